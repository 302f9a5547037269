package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/clienttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
)

// A clientShop answers the first tries of an order in a way of the test's, and those
// after them as the service does.
type clientShop struct {
	store   storefront.MemStore
	service http.Handler
	first   func(s *clientShop, w http.ResponseWriter, r *http.Request)
	tries   int // that are answered by first

	mu       sync.Mutex
	requests []string // each request's line, key and body
}

func (s *clientShop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	key := r.Header.Get("Idempotency-Key")
	s.requests = append(s.requests, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, key, body))
	n := len(s.requests)
	s.mu.Unlock()
	switch {
	case n <= s.tries:
		w.Header().Set("Connection", "close") // or Go's client would send a request that fails again by itself
		s.first(s, w, r)
	case r.URL.Path == "/v1/orders":
		s.service.ServeHTTP(w, r)
	default: // a redirect was followed
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"id":"ord_REDIRECTED","item":"teapot","qty":2,"created_at":"2026-11-20T20:52:11.250Z"}`)
	}
}

// A firstAnswer answers a try.
type firstAnswer func(*clientShop, http.ResponseWriter, *http.Request)

// answers answers with a body and header fields, each a name and a value.
func answers(status int, body string, fields ...string) firstAnswer {
	return func(_ *clientShop, w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// cut creates the order and sends a part of the answer: so much of a hundred.
func cut(percent int, chunked bool) firstAnswer {
	return func(s *clientShop, w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		s.service.ServeHTTP(answer, r)
		if percent > 0 {
			if !chunked {
				w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
			}
			w.WriteHeader(answer.Code)
			w.Write(answer.Body.Bytes()[:answer.Body.Len()*percent/100])
			http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler) // closes the connection
	}
}

const (
	documentedOrder = `{"id":"ord_FORGED","item":"teapot","qty":2,"created_at":"2026-11-20T20:52:11.250Z"}`
	htmlPage        = "<!DOCTYPE html><p>Soci\xe9t\xe9 {\"id\":\"ord_FORGED\"}" // in Latin-1
)

// problem returns a problem document of the service with a code.
func problem(code string) string { return `{"type":"urn:problem-type:storefront:` + code + `"}` }

// The clients in folder clients take an answer for what the table of docs/wire.md says. A row is how
// the first tries are answered.
var clientRows = []struct {
	name  string
	first firstAnswer
	tries int    // 1 if it is 0
	final string // what the client then says; without it, it sends the same again
	wait  int    // seconds that it waits at least
}{
	{name: "200 with an order", first: answers(200, documentedOrder), final: "200"},
	{name: "202 with an order", first: answers(202, documentedOrder), final: "202"},
	{name: "204", first: answers(204, ""), final: "204"},
	{name: "301", first: answers(301, "", "Location", "/login"), final: "301"},
	{name: "302 to a page", first: answers(302, "", "Location", "/login"), final: "302"},
	{name: "303", first: answers(303, "", "Location", "/login"), final: "303"},
	{name: "307", first: answers(307, "", "Location", "/elsewhere/v1/orders"), final: "307"},
	{name: "308", first: answers(308, "", "Location", "/elsewhere/v1/orders"), final: "308"},
	{name: "400 HTML", first: answers(400, htmlPage), final: "400"},
	{name: "401", first: answers(401, htmlPage), final: "401"},
	{name: "403", first: answers(403, `{}`), final: "403"},
	{name: "404", first: answers(404, htmlPage), final: "404"},
	{name: "422 refused", first: answers(422, problem(`order-refused","reason":"sold-out`)), final: "sold-out"},
	{name: "422 key reused", first: answers(422, problem("idempotency-key-reused")), final: "key-reused"},
	{name: "501", first: answers(501, htmlPage), final: "501"},

	{name: "201 HTML", first: answers(201, htmlPage, "Content-Type", "text/html")},
	{name: "201 empty", first: answers(201, "")},
	{name: "201 of something else", first: answers(201, `{"page":"sign in"}`)},
	{name: "201 with an empty ID", first: answers(201, `{"id":""}`)},
	{name: "201 null", first: answers(201, "null")},
	{name: "201 of a list", first: answers(201, `["id"]`)},
	{name: "201 of half an order", first: answers(201, documentedOrder[:len(documentedOrder)/2])},
	{name: "no answer", first: cut(0, false)},
	{name: "half an answer", first: cut(50, false)},
	{name: "half an answer, chunked", first: cut(50, true)},
	{name: "408", first: answers(408, problem("request-timeout"))},
	{name: "409", first: answers(409, problem("idempotency-key-in-progress"), "Retry-After", "1"), wait: 1},
	{name: "409 HTML", first: answers(409, htmlPage)},
	{name: "429", first: answers(429, htmlPage, "Retry-After", "30"), wait: 30},
	{name: "500 HTML", first: answers(500, htmlPage)},
	{name: "502 HTML", first: answers(502, htmlPage)},
	{name: "503 with seconds", first: answers(503, problem("unavailable"), "Retry-After", "5"), wait: 5},
	{name: "503 without Retry-After", first: answers(503, htmlPage)},
	{name: "503 with a word", first: answers(503, htmlPage, "Retry-After", "soon")},
	{name: "503 with a date", first: answers(503, htmlPage, "Retry-After", "Mon, 23 Nov 2026 10:00:00 GMT")},
	{name: "503 with a negative number", first: answers(503, htmlPage, "Retry-After", "-100")},
	{name: "503 with a fraction", first: answers(503, htmlPage, "Retry-After", "1.5")},
	{name: "503 with digits that are not of ASCII", first: answers(503, htmlPage, "Retry-After", "٣٣")},
	{name: "503 with code", first: answers(503, htmlPage, "Retry-After", "a[$(echo EVALUATED 1>&2)]")},
	{name: "503 with a day", first: answers(503, htmlPage, "Retry-After", "86400"), wait: 3600},
	{name: "503 with many digits", wait: 3600,
		first: answers(503, htmlPage, "Retry-After", strings.Repeat("9", 5000))},
	{name: "504 HTML", first: answers(504, htmlPage)},
	{name: "520", first: answers(520, htmlPage)},
	{name: "503 for long", first: answers(503, htmlPage), tries: 12},
}

// TestSmallClients runs the clients in folder clients against a service that answers in
// each way. In the test they do not sleep between their tries, but print for how long they
// would have slept.
//
// A program starts for each answer. So in the short run one language in turn meets it.
func TestSmallClients(t *testing.T) {
	for _, row := range []struct {
		language, file string
		sleep, instead string // how it sleeps, and a call in the place of that
		function       string // that is called: it prints and does not sleep
		run            string
	}{
		{"bash", "order.sh", "\tsleep ", "\techo >&2 sleeps ", "", "bash"},
	} {
		t.Run(row.language, func(t *testing.T) {
			t.Parallel()
			need.Programs(t, need.Tools, row.run, "curl")
			var mu sync.Mutex
			var shop *clientShop
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				s := shop
				mu.Unlock()
				s.ServeHTTP(w, r)
			}))
			defer server.Close()

			program := strings.ReplaceAll(clientSource(t, row.file), documentedURL, server.URL)
			if strings.Count(program, row.sleep) != 1 {
				t.Fatalf("it has not one %q", row.sleep)
			}
			program = strings.Replace(program, row.sleep, row.instead, 1) + row.function
			dir := t.TempDir()
			file := filepath.Join(dir, row.file)
			must.OK(t, os.WriteFile(file, []byte(program), 0o600))
			keys := make(map[string]bool)
			for i, c := range clientRows {
				t.Run(c.name, func(t *testing.T) {
					if i%2 == 0 {
						long.Test(t)
					}
					s := &clientShop{first: c.first, tries: max(1, c.tries)}
					s.service = storefront.New(&s.store)
					mu.Lock()
					shop = s
					mu.Unlock()
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					defer cancel()
					cmd := exec.CommandContext(ctx, row.run, file)
					cmd.Dir = dir
					var stdout, stderr strings.Builder
					cmd.Stdout, cmd.Stderr = &stdout, &stderr
					err := cmd.Run()
					if _, ended := errors.AsType[*exec.ExitError](err); err != nil && (!ended || ctx.Err() != nil) {
						t.Fatalf("%v\n%s", err, stderr.String())
					}
					key := checkTries(t, s, c.final == "")
					if keys[key] || len(key) < 20 {
						t.Errorf("its key is %q, want a new one", key)
					}
					keys[key] = true
					created, said := s.store.Orders(), stderr.String()
					switch {
					case c.final != "" && (err == nil || stdout.Len() > 0 || len(created) > 0):
						t.Errorf("it ends with %v and prints %q; the store has %v, want a failure", err, &stdout, created)
					case c.final != "" && (!strings.Contains(said, c.final) || !strings.Contains(said, key)):
						t.Errorf("its message has not both %s and the key %s:\n%s", c.final, key, said)
					case c.final == "" && (err != nil || len(created) != 1 ||
						stdout.String() != "created "+created[0].ID+"\n"):
						t.Errorf("it ends with %v and prints %q; the store has %v, want one order that is printed\n%s",
							err, &stdout, created, said)
					}
					checkSleeps(t, stderr.String(), len(s.requests)-1, c.wait)
				})
			}
		})
	}
}

// checkTries checks that the client has sent one order so often as it was to, always with
// the same key and body, and returns the key.
func checkTries(t *testing.T, s *clientShop, again bool) (key string) {
	t.Helper()
	want := 1
	if again {
		want = s.tries + 1
	}
	if len(s.requests) == 0 {
		t.Fatal("it sends nothing")
	}
	if len(s.requests) != want || len(slices.Compact(slices.Clone(s.requests))) != 1 {
		t.Errorf("it sends %q, want the same %d times", s.requests, want)
	}
	line := strings.SplitN(s.requests[0], " ", 4)
	if line[0] != "POST" || line[1] != "/v1/orders" {
		t.Errorf("it sends %q", s.requests[0])
	}
	return line[2]
}

// checkSleeps checks that a client has slept between its tries: for as long as it was told
// and for a random time, up to a limit that doubles and is a minute at last.
func checkSleeps(t *testing.T, stderr string, times, told int) {
	t.Helper()
	limit, n := 1.0, 0 // s; Bash has whole ones
	for line := range strings.Lines(stderr) {
		_, text, ok := strings.Cut(line, "sleeps ")
		if !ok {
			continue
		}
		n++
		seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || seconds < float64(told) || seconds > float64(told)+limit {
			t.Errorf("before try %d it sleeps for %s s (%v), want from %d to %v more", n+1, text, err, told, limit)
		}
		if limit *= 2; limit > 61 {
			limit = 61
		}
	}
	if n != times {
		t.Errorf("it sleeps %d times, want %d:\n%s", n, times, stderr)
	}
	if strings.Contains(stderr, "EVALUATED") {
		t.Error("it evaluates what the server sends")
	}
}

// clientSource returns a file of folder clients.
func clientSource(t *testing.T, file string) string {
	t.Helper()
	source := must.Get(os.ReadFile(filepath.Join(repository, "clients", file)))(t)
	return string(source)
}

// A program is a client that sends an order to a service, both of which it is given in its
// environment.
type program struct{ run, env []string }

func (p program) CreateOrder(ctx context.Context, item string, qty int64) (id string, err error) {
	order, err := json.Marshal(map[string]any{"item": item, "qty": qty})
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, p.run[0], p.run[1:]...)
	cmd.Env = append(os.Environ(), append(p.env, "ORDER="+string(order))...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, &stderr)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(out), "created ")), nil
}

// TestDocumentedClientsPassTheSuite has the clients in folder clients meet the faults of
// package clienttest, as they stand but for the order and the URL.
func TestDocumentedClientsPassTheSuite(t *testing.T) {
	for _, row := range []struct {
		language, file string
		url, order     [2]string // what stands in the file, and in its place
		run            string
	}{
		{"bash", "order.sh", [2]string{documentedURL, `"$SERVICE"`},
			[2]string{`'{"item":"teapot","qty":2}'`, `"$ORDER"`}, "bash"},
	} {
		t.Run(row.language, func(t *testing.T) {
			long.Test(t)
			t.Parallel()
			need.Programs(t, need.Tools, row.run, "curl")
			text := clientSource(t, row.file)
			for _, change := range [][2]string{row.url, row.order} {
				if strings.Count(text, change[0]) != 1 {
					t.Fatalf("it has not one %s", change[0])
				}
				text = strings.Replace(text, change[0], change[1], 1)
			}
			run := []string{row.run, filepath.Join(t.TempDir(), row.file)}
			must.OK(t, os.WriteFile(run[len(run)-1], []byte(text), 0o600))
			clienttest.Run(t, func(t *testing.T, service clienttest.Service) clienttest.Client {
				return program{run, []string{"SERVICE=" + service.URL}}
			})
		})
	}
}
