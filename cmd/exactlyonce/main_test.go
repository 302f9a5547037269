package main

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/audit"
	"example.com/storefront/internal/must"
)

// TestMain makes this binary the command itself when a test starts it again.
func TestMain(m *testing.M) {
	if os.Getenv("EXACTLYONCE_RUN_MAIN") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self := must.Get(os.Executable())(t)
	// Unless a test says so, nothing ends because a machine is slow: the last of a flag counts.
	args = append([]string{"-wait", "1h", "-timeout", "1h"}, args...)
	cmd := exec.CommandContext(t.Context(), self, args...)
	// With the race detector, a program would sleep for a second before it exits.
	cmd.Env = append(os.Environ(), "EXACTLYONCE_RUN_MAIN=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// runCommand runs the command and checks its exit status.
func runCommand(t *testing.T, status int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := command(t, args...)
	var out, messages strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &messages
	checkStatus(t, cmd.Run(), status)
	return out.String(), messages.String()
}

func checkStatus(t *testing.T, err error, want int) {
	t.Helper()
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("the command ended with status %d, want %d", got, want)
	}
}

// A shop has two replicas, which handle answers for.
type shop struct {
	store storefront.MemStore
	good  http.Handler
	url   string // of both replicas

	mu   sync.Mutex
	sent map[string]int // requests by key
}

// A handler answers the request to a replica, 0 or 1, with a key that was sent so
// often before.
type handler func(s *shop, w http.ResponseWriter, r *http.Request, replica, before int)

func startShop(t *testing.T, handle handler) *shop {
	t.Helper()
	s := &shop{sent: make(map[string]int)}
	s.good = serve(&s.store)
	var urls []string
	for i := range 2 {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Idempotency-Key")
			s.mu.Lock()
			before := s.sent[key]
			s.sent[key]++
			s.mu.Unlock()
			handle(s, w, r, i, before)
		}))
		t.Cleanup(server.Close)
		urls = append(urls, server.URL)
	}
	s.url = strings.Join(urls, ",")
	return s
}

func serve(store storefront.Store) http.Handler {
	return storefront.NewWithOptions(store, &storefront.Options{Logger: slog.New(slog.DiscardHandler)})
}

// change answers as a good shop does, but for what f does to it.
func (s *shop) change(w http.ResponseWriter, r *http.Request, f func(h http.Header, body []byte) []byte) {
	recorded := httptest.NewRecorder()
	s.good.ServeHTTP(recorded, r)
	recorded.Header().Del("Content-Length")
	body := f(recorded.Header(), recorded.Body.Bytes())
	for name, values := range recorded.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(recorded.Code)
	w.Write(body)
}

// expectFigure looks for a line such as "lost    3".
func expectFigure(t *testing.T, text, name, value string) {
	t.Helper()
	if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` +` + value + `( \(.*\))?$`).MatchString(text) {
		t.Errorf("the figure %s is not %s:\n%s", name, value, text)
	}
}

var promises = []string{"lost", "replayed differently", "created twice", "acknowledged as another order", "unanswered", "answered unexpectedly"}

func TestGoodShop(t *testing.T) {
	var mu sync.Mutex
	headers := make(map[string]int)
	s := startShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, _, _ int) {
		mu.Lock()
		headers[r.Header.Get("Authorization")+r.Header.Get("X-Tenant")]++
		mu.Unlock()
		s.good.ServeHTTP(w, r)
	})
	args := []string{"-url", s.url, "-orders", "100", "-clients", "8", "-item", "teapot", "-header", "Authorization: Bearer secret", "-header", "x-tenant:7"}
	for range 2 { // no run meets the keys of another
		stdout, stderr := runCommand(t, 0, args...)
		expectFigure(t, stdout, "acknowledged", "100 of 100")
		expectFigure(t, stdout, "keys replayed", "200 of 200")
		for _, promise := range promises {
			expectFigure(t, stdout, promise, "0")
		}
		if !strings.Contains(stdout, "\nEvery promise was kept.\n") {
			t.Errorf("the result does not say that all is well:\n%s", stdout)
		}
		if !strings.Contains(stderr, "100 real orders") {
			t.Errorf("there is no warning of real orders:\n%s", stderr)
		}
		if strings.Contains(stdout+stderr, "secret") {
			t.Errorf("a header's value is shown:\n%s%s", stdout, stderr)
		}
	}
	if len(headers) != 1 || headers["Bearer secret7"] == 0 {
		t.Errorf("requests have the headers %v", headers)
	}
	n := 0
	for _, order := range s.store.Orders() {
		if n++; order.Item != "teapot" {
			t.Errorf("there is the order %v", order)
		}
	}
	if n != 200 {
		t.Errorf("there are %d orders, want 200", n)
	}
}

func TestBrokenPromises(t *testing.T) {
	other := serve(new(storefront.MemStore))
	for _, row := range []struct {
		name, figure string
		handle       handler
	}{
		{"loses orders", "lost", func(s *shop, w http.ResponseWriter, r *http.Request, _, _ int) {
			serve(new(storefront.MemStore)).ServeHTTP(w, r)
		}},
		{"forgets keys on one replica", "lost", func(s *shop, w http.ResponseWriter, r *http.Request, replica, _ int) {
			if replica == 1 {
				other.ServeHTTP(w, r)
				return
			}
			s.good.ServeHTTP(w, r)
		}},
		{"replays another body", "replayed differently", func(s *shop, w http.ResponseWriter, r *http.Request, _, before int) {
			s.change(w, r, func(_ http.Header, body []byte) []byte { return append(body, strings.Repeat(" ", before)...) })
		}},
		{"creates twice", "created twice", func(s *shop, w http.ResponseWriter, r *http.Request, _, _ int) {
			s.change(w, r, func(h http.Header, body []byte) []byte {
				h.Del("Idempotent-Replayed")
				return body
			})
		}},
		{"acknowledges another order", "acknowledged as another order", func(s *shop, w http.ResponseWriter, r *http.Request, _, _ int) {
			s.change(w, r, func(_ http.Header, body []byte) []byte {
				return bytes.Replace(body, []byte(`"qty":`), []byte(`"qty":1`), 1)
			})
		}},
		{"answers 500", "answered unexpectedly", func(s *shop, w http.ResponseWriter, r *http.Request, _, before int) {
			if before == 0 {
				http.Error(w, "<b>failed</b>", http.StatusInternalServerError)
				return
			}
			s.good.ServeHTTP(w, r)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			report := filepath.Join(t.TempDir(), "out.html")
			stdout, _ := runCommand(t, 1, "-url", startShop(t, row.handle).url, "-orders", "100", "-clients", "8", "-report", report)
			expectFigure(t, stdout, row.figure, "[1-9][0-9]*")
			for _, what := range []string{"\nPromises were broken: ", " is " + row.figure + ": "} {
				if !strings.Contains(stdout, what) {
					t.Errorf("the result does not say %q:\n%s", what, stdout)
				}
			}
			text := checkPage(t, report, true)
			for _, what := range []string{"Promises were broken: ", " is " + row.figure + ": "} {
				if !strings.Contains(text, what) {
					t.Errorf("the report does not say %q", what)
				}
			}
		})
	}
}

// If the first order is not acknowledged, no other is sent, no promise is said to be
// broken, and the result says what is wrong.
func TestNotStarted(t *testing.T) {
	// An address at which nobody listens, and nobody else can as long as the test has it.
	server := httptest.NewServer(nil)
	t.Cleanup(server.Close)
	mine := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(t)
	t.Cleanup(func() { mine.Close() })
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	answer := func(status int, body string) handler {
		return func(s *shop, w http.ResponseWriter, r *http.Request, _, _ int) {
			w.Header().Set("Location", "/login")
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for _, row := range []struct {
		name     string
		handle   handler
		args     []string
		says     []string
		requests int
	}{
		{"nobody listens", nil, []string{"-url", "http://" + mine.LocalAddr().String()}, []string{"connection refused"}, 0},
		{"another path", answer(404, "404 page not found"), nil, []string{"404 Not Found", "Is the URL right?"}, 1},
		{"no TLS", nil, []string{"-url", "https://" + server.Listener.Addr().String()}, []string{"server gave HTTP response to HTTPS client"}, 0},
		{"an unknown certificate", nil, []string{"-url", secure.URL}, []string{"certificate signed by unknown authority"}, 0},
		{"no sign-in", answer(401, "<p>"), nil, []string{"401 Unauthorized", "-header"}, 1},
		{"a sign-in page", answer(302, ""), nil, []string{"302 Found", "-header"}, 1},
		{"a page", answer(200, "<p>"), nil, []string{"200 OK", "Is the URL right?"}, 1},
		{"a refused order", answer(422, `{"detail":"sold out"}`), nil, []string{"422 Unprocessable Entity", "-item", "sold out"}, 1},
		{"a failing shop", answer(500, "<p>"), nil, []string{"500 Internal Server Error"}, 2},
		{"one wrong URL", func(s *shop, w http.ResponseWriter, r *http.Request, replica, _ int) {
			if replica == 1 {
				http.NotFound(w, r)
				return
			}
			s.good.ServeHTTP(w, r)
		}, nil, []string{"404 Not Found", "but the first order"}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			report := filepath.Join(t.TempDir(), "out.html")
			args := append(row.args, "-orders", "100", "-clients", "8", "-wait", "0s", "-report", report)
			s := new(shop)
			if row.handle != nil {
				s = startShop(t, row.handle)
				args = append(args, "-url", s.url)
			}
			stdout, stderr := runCommand(t, 3, args...)
			page := checkPage(t, report, false)
			for _, what := range append(row.says, "Nothing was ") {
				if !strings.Contains(stdout, what) || !strings.Contains(page, what) {
					t.Errorf("the result or the report does not say %q:\n%s", what, stdout)
				}
			}
			if !strings.Contains(stderr, "the first order: ") {
				t.Errorf("the first order is not shown:\n%s", stderr)
			}
			if strings.Contains(stdout, "broken") || strings.Contains(page, "Broken") {
				t.Errorf("promises are said to be broken:\n%s", stdout)
			}
			if !regexp.MustCompile(`^exactlyonce, .*\n\nNothing was .*\n\n.+\n$`).MatchString(stdout) || strings.Contains(page, "lost") {
				t.Errorf("there is more than what happened:\n%s", stdout)
			}
			requests := 0
			for _, n := range s.sent {
				requests += n
			}
			if requests != row.requests || len(s.sent) > 1 {
				t.Errorf("the shop got %d requests with %d keys, want %d with one", requests, len(s.sent), row.requests)
			}
		})
	}
}

// The result is worded for what happened.
func TestWording(t *testing.T) {
	c := audit.Config{URLs: []string{"http://a"}, Orders: 200}
	for _, row := range []struct {
		name   string
		result audit.Result
		says   string
		not    string
	}{
		{"not all are acknowledged", audit.Result{Progress: audit.Progress{Sent: 140, Acknowledged: 100}}, "100 of 200 (40 others were sent, but not acknowledged)", "more were sent"},
		{"a gap", audit.Result{LongestGap: 25 * time.Second, GapBegan: 1500 * time.Millisecond}, "25.0 s (from 1.50 s to 26.5 s after the start)", ""},
		{"a gap at the start", audit.Result{LongestGap: 25 * time.Second, Creating: time.Minute, Replaying: time.Second}, "25.0 s (from the start)", "0.00 ms"},
		{"nothing", audit.Result{Creating: time.Second, Replaying: time.Second}, "–", "0.00 ms"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var text strings.Builder
			must.OK(t, summarize(c, &row.result, nil).writeText(&text))
			if got := text.String(); !strings.Contains(got, row.says) || row.not != "" && strings.Contains(got, row.not) {
				t.Errorf("it does not say %q, or says %q:\n%s", row.says, row.not, got)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	for _, row := range []struct{ got, want string }{
		{firstProgress(audit.Progress{}), "no answer yet"},
		{firstProgress(audit.Progress{Failure: "connection refused"}), "connection refused, not acknowledged yet"},
		{firstProgress(audit.Progress{Failure: "connection refused", Acknowledged: 1}), "acknowledged"},
		{creatingProgress(audit.Progress{Acknowledged: 3, Failure: "connection refused"}, 200), "3 of 200 acknowledged, 0 retrying, gap 0.0 s"},
		{creatingProgress(audit.Progress{Acknowledged: 3, Retrying: 2, Gap: 25 * time.Second, Faults: 1, Failure: "401 Unauthorized"}, 200), "3 of 200 acknowledged, 2 retrying, gap 25.0 s, 1 FAULTS, last failure: 401 Unauthorized"},
		{createdProgress(&audit.Result{Progress: audit.Progress{Acknowledged: 200}, LongestGap: 25 * time.Second}, 200), "200 of 200 acknowledged, longest gap 25.0 s"},
	} {
		if row.got != row.want {
			t.Errorf("%q, want %q", row.got, row.want)
		}
	}
}

// A terminal shows progress in one line, and never wraps it, however narrow it is.
func TestProgressOnTerminal(t *testing.T) {
	for _, row := range []struct {
		name     string
		terminal bool
		want     string
	}{
		{"terminal", true, strings.Repeat("\r\x1b[K\x1b[?7lcreating: much\x1b[?7h", 201) + "\n"},
		{"file", false, "creating: much\ncreating: much\ncreating: much\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				end := (&line{&out, row.terminal}).show("creating", func() string { return "much" })
				time.Sleep(20*time.Second + time.Millisecond)
				end()
				if out.String() != row.want {
					t.Errorf("it shows %q, want %q", out.String(), row.want)
				}
			})
		})
	}
}

// checkPage checks that a report is well-formed, needs nothing else, and has drawings or
// none, and returns its text.
func checkPage(t *testing.T, name string, drawn bool) (text string) {
	t.Helper()
	page := must.Get(os.ReadFile(name))(t)
	if !bytes.HasSuffix(bytes.TrimSpace(page), []byte("</html>")) {
		t.Error("something comes after the report")
	}
	d := xml.NewDecoder(bytes.NewReader(page))
	elements := make(map[string]int)
	var words []string
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("the report is not well-formed: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
			for _, a := range token.Attr {
				switch a.Name.Local {
				case "src", "href", "srcset", "data", "action", "xlink":
					if a.Value != "data:," {
						t.Errorf("the report refers to %s", a.Value)
					}
				case "style":
					if strings.Contains(a.Value, "url(") || strings.Contains(a.Value, "ZgotmplZ") {
						t.Errorf("the report has the style %s", a.Value)
					}
				}
			}
		case xml.CharData:
			words = append(words, strings.Fields(string(token))...)
		}
	}
	for _, element := range []string{"script", "iframe", "img", "b"} {
		if elements[element] > 0 {
			t.Errorf("the report has %d elements %s", elements[element], element)
		}
	}
	if elements["main"] != 1 || elements["table"] == 0 {
		t.Errorf("the report has the elements %v, want one main and tables", elements)
	}
	if elements["svg"] > 0 != drawn || elements["rect"] > 0 != drawn {
		t.Errorf("the report has the elements %v, want drawings: %t", elements, drawn)
	}
	text = strings.Join(words, " ")
	if strings.Contains(text, "url(") || strings.Contains(text, "@import") || strings.Contains(text, "ZgotmplZ") {
		t.Error("the report's styles refer to something else")
	}
	return text
}

func TestReport(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out.html")
	must.OK(t, os.WriteFile(name, bytes.Repeat([]byte("an older one "), 100_000), 0o600))
	s := startShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, _, before int) {
		switch before {
		case 0:
			panic(http.ErrAbortHandler) // closes the connection
		case 1:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not now", http.StatusServiceUnavailable)
		default:
			s.good.ServeHTTP(w, r)
		}
	})
	withPassword := strings.ReplaceAll(s.url, "http://", "http://user:secret@")
	stdout, _ := runCommand(t, 0, "-url", withPassword, "-orders", "100", "-clients", "8", "-seed", "42", "-report", name,
		"-header", "X-Key: secret", "-item", "<b>tea</b>")
	text := checkPage(t, name, true)
	if strings.Contains(stdout+text, "secret") {
		t.Error("a secret is shown")
	}
	if !strings.Contains(stdout, "timed out; the last: Post ") {
		t.Errorf("the result does not say why there was no answer:\n%s", stdout)
	}
	// Whatever the text says, the page says, too.
	for line := range strings.Lines(stdout) {
		for _, cell := range regexp.MustCompile(` {2,}|[()\n]`).Split(line, -1) {
			if cell = strings.TrimSpace(cell); !strings.Contains(text, cell) {
				t.Errorf("the page does not say %q", cell)
			}
		}
	}
	for _, what := range []string{"seed 42", "X-Key", "<b>tea</b>", "longest gap", "requests/s", "seconds since the start", "percentile"} {
		if !strings.Contains(text, what) {
			t.Errorf("the page does not say %q", what)
		}
	}
	page := must.Get(os.ReadFile(name))(t)
	for _, class := range []string{"acknowledged", "again", "failed"} {
		if !bytes.Contains(page, []byte(`<rect class="`+class+`"`)) {
			t.Errorf("the timeline shows nothing that is %s", class)
		}
	}
}

// A good shop answers as it should.
func goodShop(t *testing.T) *shop {
	return startShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, _, _ int) { s.good.ServeHTTP(w, r) })
}

// A pipe, a FIFO and what a link leads to hold a report, and the null device takes one.
func TestReportIsWrittenInto(t *testing.T) {
	s := goodShop(t)
	folder := filepath.Join(t.TempDir(), "with space")
	must.OK(t, os.Mkdir(folder, 0o700))
	file, link, fifo := filepath.Join(folder, "out.html"), filepath.Join(folder, "link"), filepath.Join(folder, "fifo")
	must.OK(t, errors.Join(os.Symlink("out.html", link), syscall.Mkfifo(fifo, 0o600)))
	read := func(open func() (*os.File, error)) func(cmd *exec.Cmd) error {
		return func(cmd *exec.Cmd) error {
			f, err := open()
			if err != nil {
				return err
			}
			defer f.Close()
			page, err := io.ReadAll(f)
			return errors.Join(err, os.WriteFile(file, page, 0o600))
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, report string
		given        []*os.File // as the command's 3
		read         func(cmd *exec.Cmd) error
	}{
		{"a link", link, nil, nil},
		{"the null device", os.DevNull, nil, nil},
		{"a FIFO", fifo, nil, read(func() (*os.File, error) { return os.Open(fifo) })},
		{"a pipe", "/dev/fd/3", []*os.File{w}, read(func() (*os.File, error) { return r, w.Close() })},
	} {
		t.Run(row.name, func(t *testing.T) {
			os.Remove(file)
			cmd := command(t, "-url", s.url, "-orders", "20", "-report", row.report)
			var out strings.Builder
			cmd.Stdout, cmd.ExtraFiles = &out, row.given
			must.OK(t, cmd.Start())
			if row.read != nil {
				if err := row.read(cmd); err != nil {
					t.Error(err)
				}
			}
			checkStatus(t, cmd.Wait(), 0)
			if !strings.HasSuffix(out.String(), "\nEvery promise was kept.\n") {
				t.Errorf("the result is\n%s", &out)
			}
			if row.report != os.DevNull {
				checkPage(t, file, true)
			}
		})
	}
}

// A result that could not be written breaks no promise.
func TestResultIsNotWritten(t *testing.T) {
	s := goodShop(t)
	t.Run("the report", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		cmd := command(t, "-url", s.url, "-orders", "20", "-report", "/dev/fd/3")
		var out, messages strings.Builder
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &messages, []*os.File{w}
		r.Close()
		checkStatus(t, cmd.Run(), 4)
		if !strings.HasSuffix(out.String(), "\nEvery promise was kept.\n") || !strings.Contains(messages.String(), "exactlyonce: -report: ") {
			t.Errorf("it says\n%s%s", &out, &messages)
		}
	})
	t.Run("the text", func(t *testing.T) {
		readOnly := must.Get(os.Open(os.DevNull))(t)
		defer readOnly.Close()
		cmd := command(t, "-url", s.url, "-orders", "20")
		cmd.Stdout = readOnly
		checkStatus(t, cmd.Run(), 4)
	})
}

// Help names each flag and each status.
func TestHelp(t *testing.T) {
	_, help := runCommand(t, 0, "-help")
	for _, what := range []string{"-url", "-report", "\n  0  if", "\n  1  if", "\n  2  for", "\n  3  if", "\n  4  if", "go run"} {
		if !strings.Contains(help, what) {
			t.Errorf("it does not say %q:\n%s", what, help)
		}
	}
}

func TestBadFlags(t *testing.T) {
	const url = "http://127.0.0.1:1"
	missing := filepath.Join(t.TempDir(), "missing", "out.html")
	for _, row := range []struct {
		name string
		args []string
		says []string
	}{
		{"no URL", nil, []string{"-url"}},
		{"empty URL", []string{"-url", ""}, []string{"-url", "http://"}},
		{"URL without scheme", []string{"-url", "localhost:8080"}, []string{"-url", "http://"}},
		{"another scheme", []string{"-url", "ftp://localhost"}, []string{"-url", "http://"}},
		{"second URL", []string{"-url", url + ",localhost"}, []string{"-url", "http://"}},
		{"query", []string{"-url", url + "?a=b"}, []string{"-url", "query"}},
		{"unparsable URL", []string{"-url", "http://user:secret@%zz"}, []string{"-url", "not a URL"}},
		{"no orders", []string{"-url", url, "-orders", "0"}, []string{"-orders", "1"}},
		{"no clients", []string{"-url", url, "-clients", "0"}, []string{"-clients", "1"}},
		{"no wait", []string{"-url", url, "-wait", "-1s"}, []string{"-wait"}},
		{"no time", []string{"-url", url, "-timeout", "0s"}, []string{"-timeout"}},
		{"no patience", []string{"-url", url, "-patience", "-1s"}, []string{"-patience"}},
		{"header without colon", []string{"-url", url, "-header", "Authorization"}, []string{"-header", "Name: value"}},
		{"header with a line", []string{"-url", url, "-header", "A: b\nC: d"}, []string{"-header", "Name: value"}},
		{"header of ours", []string{"-url", url, "-header", "idempotency-key: k"}, []string{"-header", "Idempotency-Key"}},
		{"unexpected argument", []string{"-url", url, "http://127.0.0.1:2"}, []string{"unexpected argument", "-url"}},
		{"unknown flag", []string{"-port", "80"}, []string{"-port", "-report"}},
		{"no folder", []string{"-url", url, "-report", missing}, []string{"-report", missing}},
		{"a report that is a folder", []string{"-url", url, "-report", filepath.Dir(filepath.Dir(missing))}, []string{"-report", "is a directory"}},
		{"a report that is a device", []string{"-url", url, "-report", "/dev/zero"}, []string{"-report", "/dev/zero is a device"}},
		{"a report among the result", []string{"-url", url, "-report", "/dev/stdout"}, []string{"-report", "/dev/stdout is where the result is"}},
		{"a report among the messages", []string{"-url", url, "-report", "/dev/stderr"}, []string{"-report", "/dev/stderr is where the result is"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr := runCommand(t, 2, append([]string{"-wait", "0s"}, row.args...)...)
			if stdout != "" {
				t.Errorf("it has a result: %s", stdout)
			}
			for _, what := range row.says {
				if !strings.Contains(stderr, what) {
					t.Errorf("the message does not say %s: %s", what, stderr)
				}
			}
			if strings.Contains(stderr, "real orders") {
				t.Errorf("it has begun: %s", stderr)
			}
		})
	}
}

// An interruption is a command that a test sends signals.
type interruption struct {
	*exec.Cmd
	out      bytes.Buffer
	messages *bufio.Scanner
}

func startInterruption(t *testing.T, s *shop) *interruption {
	t.Helper()
	i := &interruption{Cmd: command(t, "-url", s.url, "-orders", "1000000", "-clients", "8")}
	i.Stdout = &i.out
	stderr := must.Get(i.StderrPipe())(t)
	i.messages = bufio.NewScanner(stderr)
	must.OK(t, i.Start())
	return i
}

// interrupt sends the signal of Ctrl-C and waits for a message.
func (i *interruption) interrupt(t *testing.T, message string) {
	t.Helper()
	must.OK(t, i.Process.Signal(os.Interrupt))
	for i.messages.Scan() {
		if message != "" && strings.Contains(i.messages.Text(), message) {
			return
		}
	}
	if message != "" {
		t.Fatalf("it does not say %q", message)
	}
}

func TestInterrupt(t *testing.T) {
	busy := make(chan struct{}, 1)
	s := startShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, _, _ int) {
		s.good.ServeHTTP(w, r)
		if s.created(20) {
			select {
			case busy <- struct{}{}:
			default:
			}
		}
	})
	i := startInterruption(t, s)
	<-busy
	i.interrupt(t, "No more orders are created")
	for i.messages.Scan() {
	}
	checkStatus(t, i.Wait(), 0)
	stdout := i.out.String()
	expectFigure(t, stdout, "acknowledged", "[1-9][0-9]* of 1000000")
	if !strings.Contains(stdout, "Every promise was kept.") {
		t.Errorf("the result does not say that all is well:\n%s", stdout)
	}
}

// created reports whether as many keys were sent.
func (s *shop) created(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent) > n
}

// What was not replayed is not said to be safe.
func TestSecondInterrupt(t *testing.T) {
	busy, end := make(chan struct{}, 1), make(chan struct{})
	s := startShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, _, before int) {
		if s.created(20) {
			select {
			case busy <- struct{}{}:
			default:
			}
			<-end
		}
		s.good.ServeHTTP(w, r)
	})
	t.Cleanup(func() { close(end) }) // before the servers are closed
	i := startInterruption(t, s)
	<-busy
	i.interrupt(t, "No more orders are created")
	i.interrupt(t, "")
	checkStatus(t, i.Wait(), 1)
	if stdout := i.out.String(); !strings.Contains(stdout, "Not known whether every promise was kept: the replaying was ended early.") {
		t.Errorf("the result does not say that it is not known:\n%s", stdout)
	}
}
