package main

import (
	"bufio"
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/audit"
	"example.com/storefront/internal/commandtest"
	"example.com/storefront/internal/must"
)

func TestMain(m *testing.M) { commandtest.Main(main, m.Run) }

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	// Unless a test says so, nothing ends because a machine is slow: the last of a flag counts.
	return commandtest.Command(t, append([]string{"-wait", "1h", "-timeout", "1h"}, args...)...)
}

// runCommand runs the command and checks its exit status.
func runCommand(t *testing.T, status int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := command(t, args...)
	var out, messages strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &messages
	commandtest.WantStatus(t, cmd.Run(), status)
	return out.String(), messages.String()
}

// A shop has two replicas.
type shop struct {
	store storefront.MemStore
	good  http.Handler
	url   string // of both replicas

	mu      sync.Mutex
	headers []http.Header // of requests
}

// startShop starts one that is good unless handle says otherwise.
func startShop(t *testing.T, handle func(s *shop, w http.ResponseWriter, r *http.Request)) *shop {
	t.Helper()
	s := new(shop)
	s.good = storefront.NewWithOptions(&s.store, &storefront.Options{Logger: slog.New(slog.DiscardHandler),
		OrderFields: true, Orders: &s.store, Scope: func(*http.Request) string { return "all" }})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.headers = append(s.headers, r.Header)
		s.mu.Unlock()
		if handle != nil {
			handle(s, w, r)
			return
		}
		s.good.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL + "," + server.URL
	return s
}

// got returns how many requests the shop got.
func (s *shop) got() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.headers)
}

// expectFigure looks for a line such as "lost    3".
func expectFigure(t *testing.T, text, name, value string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` +` + value + `( \(.*\))?$`)
	if !line.MatchString(text) {
		t.Errorf("the figure %s is not %s:\n%s", name, value, text)
	}
}

// kept is the verdict on a good shop: on a busy machine, a request may fail by itself.
var kept = regexp.MustCompile("\nEvery promise was kept\\.( But no request failed meanwhile: " +
	"did you make anything fail\\?)?\n")

// Passwords and the values of headers are not shown.
func TestGoodShop(t *testing.T) {
	s := startShop(t, nil)
	args := []string{"-url", strings.ReplaceAll(s.url, "http://", "http://user:secret@"),
		"-orders", "100", "-clients", "8", "-item", "teapot", "-fields", `{ "note": "\u007bkey}" }`,
		"-header", "Authorization: Bearer secret", "-header", "x-tenant:7"}
	for range 2 { // no run meets the keys of another
		stdout, stderr := runCommand(t, 0, args...)
		expectFigure(t, stdout, "acknowledged", "100 of 100")
		expectFigure(t, stdout, "keys replayed", "200 of 200")
		expectFigure(t, stdout, "orders read", "[2-9][0-9][0-9]")
		expectFigure(t, stdout, "fields", `{"note":"{key}"}`)
		expectFigure(t, stdout, "headers", "Authorization, X-Tenant")
		for kind := range audit.Kinds {
			expectFigure(t, stdout, kind.String(), "0")
		}
		if !kept.MatchString(stdout) {
			t.Errorf("the result does not say that all is well:\n%s", stdout)
		}
		if !strings.Contains(stderr, "100 real orders") {
			t.Errorf("there is no warning of real orders:\n%s", stderr)
		}
		if strings.Contains(stdout+stderr, "secret") {
			t.Errorf("a secret is shown:\n%s%s", stdout, stderr)
		}
	}
	for _, h := range s.headers {
		if h.Get("Authorization") != "Bearer secret" || h.Get("X-Tenant") != "7" {
			t.Fatalf("a request has the headers %v", h)
		}
	}
	orders := s.store.Orders()
	if len(orders) != 200 || orders[0].Item != "teapot" ||
		!strings.HasPrefix(string(orders[0].Fields), `{"note":"exactlyonce-`) {
		t.Errorf("there are %d orders, the first is %v, want 200 teapots with notes", len(orders), orders[0])
	}
}

// If the first order is not acknowledged, no other is sent.
func TestNotStarted(t *testing.T) {
	s := startShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	stdout, stderr := runCommand(t, 3, "-url", s.url, "-orders", "100")
	if !regexp.MustCompile(`^exactlyonce, .*\n\nNothing was .*\n\n.+\n$`).MatchString(stdout) {
		t.Errorf("there is more than what happened:\n%s", stdout)
	}
	if !strings.Contains(stderr, "the first order: 404 Not Found") {
		t.Errorf("the first order is not shown:\n%s", stderr)
	}
	if s.got() != 1 {
		t.Errorf("the shop got %d requests, want 1", s.got())
	}
}

// The result is worded for what happened.
func TestWording(t *testing.T) {
	type result = audit.Result
	answered := func(status int) *audit.NotStarted {
		return &audit.NotStarted{Status: status, Detail: " <p>sold out\n"}
	}
	const second = time.Second
	rows := []struct {
		result     result
		notStarted *audit.NotStarted
		status     int
		says       []string
		not        string
	}{
		{result{Progress: audit.Progress{Sent: 140, Acknowledged: 100, Replayed: 100}}, nil, 0,
			[]string{"100 of 200 (40 others were sent, but not acknowledged)", "Every promise was kept."},
			""},
		{result{Progress: audit.Progress{Sent: 140, Acknowledged: 140, Replayed: 100}}, nil, 1,
			[]string{"Not known whether every promise was kept: the replaying was ended early."}, "others"},
		{result{Progress: audit.Progress{Sent: 140, Acknowledged: 140, Replayed: 100}, Old: 40}, nil, 1,
			[]string{"Not known whether every promise was kept: of 140 replays, 40 were left out, as their keys " +
				"were older than 23 hours."}, "ended early"},
		{result{Progress: audit.Progress{Sent: 140, Acknowledged: 140}, // all replays are 401
			Broken: [audit.Kinds]int{audit.Unexpected: 20}}, nil, 1,
			[]string{"Not known whether every promise was kept: 20 answered unexpectedly."}, "ended early"},
		{result{LongestGap: 25 * second, GapBegan: 1500 * time.Millisecond}, nil, 0,
			[]string{"25s (from 1.5s to 26.5s after the start)"}, ""},
		{result{Progress: audit.Progress{Failed: 3}, Statuses: map[int]int{409: 3}}, nil, 0,
			[]string{"Every promise was kept. But no request failed meanwhile: did you make anything fail?\n"}, ""},
		{result{Progress: audit.Progress{Failed: 1, Failure: "refused"}}, nil, 0,
			[]string{"1 (no answer: 0, the last: refused)", "\nEvery promise was kept.\n"}, "?"},

		{result{}, &audit.NotStarted{URL: "http://a", Failure: "refused"}, 3,
			[]string{"Nothing was acknowledged, so there was no promise to keep. http://a: refused.\n"},
			"lost"},
		{result{}, answered(401), 3, []string{"Is a -header missing that signs in?\n\n<p>sold out\n"}, "URL"},
		{result{}, answered(422), 3, []string{"-item and -fields say what is ordered."}, "URL"},
		{result{}, answered(404), 3, []string{"Is the URL right?\n"}, ""},
		{result{}, answered(500), 3, []string{"Nothing was"}, "?"},
		{result{Progress: audit.Progress{Acknowledged: 1}}, answered(404), 3,
			[]string{"Nothing was tried but the first order, which another URL has acknowledged."}, ""},
	}
	for kind := range audit.Kinds {
		row, verdict := rows[0], "Promises were broken: "
		row.status, row.not = 1, "ended early"
		switch kind {
		case audit.Unanswered:
			verdict = "Not known whether every promise was kept: "
		case audit.Unexpected:
			verdict, row.status = "The shop failed: ", 5
		}
		row.result.Broken[kind] = 3
		row.result.Faults[kind] = []audit.Fault{{Kind: kind, Key: "key-7", Detail: "<b>why</b>"}}
		row.says = []string{
			verdict + "3 " + kind.String() + ".", "key-7 is " + kind.String() + ": <b>why</b>",
		}
		rows = append(rows, row)
	}
	for _, row := range rows {
		var text bytes.Buffer
		c := audit.Config{URLs: []string{"http://a"}, Orders: 200}
		status := must.Get(report(&text, c, &row.result, row.notStarted))(t)
		for _, what := range row.says {
			if !strings.Contains(text.String(), what) {
				t.Errorf("it does not say %q:\n%s", what, &text)
			}
		}
		if status != row.status || row.not != "" && strings.Contains(text.String(), row.not) {
			t.Errorf("the status is %d, want %d; or it says %q:\n%s", status, row.status, row.not, &text)
		}
	}
}

func TestBadFlags(t *testing.T) {
	const url = "http://127.0.0.1:1"
	for _, row := range []struct {
		args []string
		says string // beside the first argument
	}{
		{[]string{"-url", "localhost:8080"}, "http://"},
		{[]string{"-url", url + "?a=b"}, "query"},
		{[]string{"-url", "http://user:secret@host:port"}, "not a URL"},
		{[]string{"-orders", "0"}, "1"},
		{[]string{"-fields", "null"}, "null is no object"},
		{[]string{"-timeout", "0s"}, "more than 0"},
		{[]string{"-header", "Authorization Bearer secret"}, "Name: value"},
		{[]string{"-header", "idempotency-key: k"}, "Idempotency-Key"},
		{[]string{"-url", url, "http://127.0.0.1:2"}, "unexpected argument"},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			t.Parallel()
			stdout, stderr := runCommand(t, 2, append([]string{"-wait", "0s", "-url", url}, row.args...)...)
			if stdout != "" || strings.Contains(stderr, "real orders") {
				t.Errorf("it has begun: %s%s", stdout, stderr)
			}
			if !strings.Contains(stderr, row.args[0]) || !strings.Contains(stderr, row.says) {
				t.Errorf("the message does not say %s and %s: %s", row.args[0], row.says, stderr)
			}
			if strings.Contains(stderr, "secret") {
				t.Errorf("the message has what nobody may see: %s", stderr)
			}
		})
	}
}

// Ctrl-C ends what the output goes to, such as tee, too. A result that could not be written breaks no
// promise.
func TestReaderHasEnded(t *testing.T) {
	s := startShop(t, nil)
	reader, writer, err := os.Pipe()
	must.OK(t, err)
	reader.Close()
	defer writer.Close()
	cmd := command(t, "-url", s.url, "-orders", "10", "-clients", "2")
	cmd.Stdout, cmd.Stderr = writer, writer
	commandtest.WantStatus(t, cmd.Run(), 4)
}

// The first signal of Ctrl-C ends the creating, and the second the replaying. What was not replayed
// is not said to be safe.
func TestInterrupt(t *testing.T) {
	for signals, says := range map[int]string{
		1: "Every promise was kept.",
		2: "Not known whether every promise was kept: the replaying was ended early.",
	} {
		busy, end := make(chan struct{}), make(chan struct{})
		isBusy := sync.OnceFunc(func() { close(busy) })
		s := startShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			if s.got() > 20 {
				if isBusy(); signals == 2 {
					<-end
				}
			}
			s.good.ServeHTTP(w, r)
		})
		t.Cleanup(func() { close(end) }) // before the servers are closed
		cmd := command(t, "-url", s.url, "-orders", "1000000", "-clients", "8")
		var out strings.Builder
		cmd.Stdout = &out
		messages := bufio.NewScanner(must.Get(cmd.StderrPipe())(t))
		must.OK(t, cmd.Start())
		<-busy
		must.OK(t, cmd.Process.Signal(os.Interrupt))
		for messages.Scan() && !strings.Contains(messages.Text(), "No more orders are created") {
		}
		if signals == 2 {
			must.OK(t, cmd.Process.Signal(os.Interrupt))
		}
		for messages.Scan() {
		}
		commandtest.WantStatus(t, cmd.Wait(), signals-1)
		expectFigure(t, out.String(), "acknowledged", "[1-9][0-9]* of 1000000")
		if !strings.Contains(out.String(), says) {
			t.Errorf("the result does not say %s\n%s", says, &out)
		}
	}
}
