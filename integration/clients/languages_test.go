package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
)

// A language has a client in its folder of folder sdk, and a runner in testdata/runners.
type language struct {
	name, fence, extension string   // fence is of its blocks in documents
	opening                string   // what its journal does when it is opened
	programs               []string // that it needs
	interpreter            func() string
	arguments              []string // of the interpreter
}

var languages = []language{
	{"bash", "bash", ".sh", "", []string{"bash", "curl", "jq", "flock"}, is("bash"), nil},
	{"javascript", "js", ".mjs", "flush\n", []string{"node"}, is("node"), nil},
	{"python", "python", ".py", "flush\n", []string{"python3"}, need.Python, nil},
}

// run returns the command of its runner.
func (l language) run() []string {
	return slices.Concat([]string{l.interpreter()}, l.arguments, []string{"testdata/runners/run" + l.extension})
}

func is(name string) func() string { return func() string { return name } }

// inLanguages runs a test for each language.
func inLanguages(t *testing.T, test func(*testing.T, language)) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) { test(t, inParallel(t, l)) })
	}
}

// inParallel has a test of a language run beside others, if its programs are there.
func inParallel(t *testing.T, l language) language {
	t.Parallel()
	need.Programs(t, need.Tools, l.programs...)
	return l
}

// An outcome is what a runner is asked, and answers.
type outcome struct {
	Item    string   `json:"item,omitempty"`
	Qty     int64    `json:"qty,omitempty"`
	Fields  string   `json:"fields,omitempty"`
	List    string   `json:"list,omitempty"`
	Product string   `json:"product,omitempty"`
	Account string   `json:"account,omitempty"`
	Find    bool     `json:"find,omitempty"`
	Get     string   `json:"get,omitempty"`
	Got     string   `json:"got,omitempty"`
	ID      string   `json:"id,omitempty"`
	IDs     []string `json:"ids,omitempty"`
	Name    string   `json:"name,omitempty"`
	Error   string   `json:"error,omitempty"`
	Sleeps  *float64 `json:"sleeps,omitempty"`
}

// A runner is a process with a client.
type runner struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr bytes.Buffer
}

// start starts a runner, which ends with the test.
func (l language) start(t *testing.T, url string, env ...string) *runner {
	t.Helper()
	args := l.run()
	r := &runner{cmd: exec.CommandContext(t.Context(), args[0], args[1:]...)}
	r.cmd.Env = append(append(os.Environ(), "STOREFRONT_URL="+url), env...)
	r.cmd.Stderr = &r.stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.in = must.Get(r.cmd.StdinPipe())(t)
	out := must.Get(r.cmd.StdoutPipe())(t)
	r.out = bufio.NewScanner(out)
	r.out.Buffer(nil, 1<<20)
	must.OK(t, r.cmd.Start())
	t.Cleanup(r.end)
	return r
}

// end returns when the runner has ended and all that it printed has come.
func (r *runner) end() {
	r.in.Close()
	for r.out.Scan() {
	}
	r.cmd.Wait()
}

// kill kills it and its children.
func (r *runner) kill() { syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) }

// ask returns the outcome, for how long the client would have slept, and an error if the runner
// has ended.
func (r *runner) ask(o outcome) (got outcome, sleeps []float64, err error) {
	line, err := json.Marshal(o)
	if err != nil {
		return got, nil, err
	}
	r.in.Write(append(line, '\n')) // if it cannot read, it does not answer
	for r.out.Scan() {
		var got outcome
		if err := json.Unmarshal(r.out.Bytes(), &got); err != nil {
			return got, nil, fmt.Errorf("%w: %s", err, r.out.Bytes())
		}
		if got.Sleeps == nil {
			return got, sleeps, nil
		}
		sleeps = append(sleeps, *got.Sleeps)
	}
	r.cmd.Wait()
	return got, sleeps, fmt.Errorf("the runner has ended: %v\n%s", r.out.Err(), &r.stderr)
}

// A clientShop answers the first tries of an order in a way of the test's, and those
// after them as the service does.
type clientShop struct {
	store   storefront.MemStore
	service http.Handler
	first   []http.HandlerFunc

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
	if n > len(s.first) {
		s.service.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Connection", "close")
	s.first[n-1](w, r)
}

// answers answers with a body and header fields, each a name and a value.
func answers(status int, body string, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// closes answers nothing, and the service does not get the request.
func closes(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func times(n int, a http.HandlerFunc) []http.HandlerFunc {
	return slices.Repeat([]http.HandlerFunc{a}, n)
}

const htmlPage = "<!DOCTYPE html><p>Soci\xe9t\xe9 {\"id\":\"ord_FORGED\"}" // in Latin-1

// problem answers with a problem document of the service.
func problem(status int, code string, fields ...string) http.HandlerFunc {
	return answers(status, `{"type":"urn:problem-type:storefront:`+code+`"}`,
		append(fields, "Content-Type", "application/problem+json")...)
}

var refused = problem(422, "order-refused")

// The clients say what the table of docs/wire.md says. What they make of other answers is for the judge.
var clientRows = []struct {
	name    string
	answers []http.HandlerFunc
	error   string // what the client then says, its kind first; without it, it sends the same again
	wait    int    // seconds that it waits at least
}{
	{"302 to a page", times(1, answers(302, "", "Location", "/login")), "Blocked 302", 0},
	{"401 after no answer", []http.HandlerFunc{closes, answers(401, htmlPage)}, "Blocked 401", 0},
	{"201 in a coding", times(1, answers(201, "\xff{}", "Content-Encoding", "aes")), "Blocked 201", 0},

	{"422 refused", times(1, problem(422, `order-refused","reason":"sold-out`)), "Refused sold-out", 0},
	{"422 key reused", times(1, problem(422, "idempotency-key-reused")), "Unknown key-reused", 0},
	{"422 refused after no answer", []http.HandlerFunc{closes, refused}, "Unknown order-refused", 0},
	{"422 refused after 408", []http.HandlerFunc{problem(408, "request-timeout"), refused},
		"Refused order-refused", 0},
	{"400 of a cut body", times(1, problem(400, "malformed-body")), "", 0},
	{"400 of a wrong body", times(4, problem(400, "malformed-body")), "Refused malformed-body", 0},
	{"422 refused after 415", []http.HandlerFunc{problem(415, "unsupported-media-type"), refused},
		"Refused order-refused", 0},
	{"412", times(4, problem(412, "precondition-failed")), "Blocked precondition-failed", 0},

	{"503 with zeros", times(1, problem(503, "unavailable", "Retry-After", "0009")), "", 9},
	{"503 with code", times(1, answers(503, htmlPage, "Retry-After", "a[$(echo EVALUATED 1>&2)]")), "", 0},
	{"503 with many digits", times(1, answers(503, htmlPage, "Retry-After", strings.Repeat("9", 5000))), "", 3600},
	{"503 for long", times(10, answers(503, htmlPage)), "", 0},
}

// The clients do not sleep between their tries here, but say for how long they would have slept.
func TestClientsTakeAnswersForWhatTheyAre(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop := newFolderShop(t)
		r := l.start(t, shop.URL, "SLEEPS=1")
		keys := make(map[string]bool)
		for _, c := range clientRows {
			t.Run(c.name, func(t *testing.T) {
				s := &clientShop{first: c.answers}
				s.service = storefront.New(&s.store)
				shop.answers(s.ServeHTTP)
				got, sleeps, err := r.ask(outcome{Item: c.name, Qty: 2})
				if err != nil {
					t.Fatal(err)
				}
				key := checkTries(t, s, c.error == "")
				if keys[key] || len(key) < 20 {
					t.Errorf("its key is %q, want a new one", key)
				}
				keys[key] = true
				created := s.store.Orders()
				kind, what, _ := strings.Cut(c.error, " ")
				switch {
				case c.error == "" && (len(created) != 1 || got.ID != created[0].ID):
					t.Errorf("it says %+v; the store has %v, want one order, and its ID", got, created)
				case c.error != "" && (!strings.HasPrefix(got.Error, kind+":") ||
					!strings.Contains(got.Error, what) || !strings.Contains(got.Error, key)):
					t.Errorf("its error is not %s with %s and the key %s: %s", kind, what, key, got.Error)
				}
				checkSleeps(t, sleeps, len(s.requests)-1, c.wait)
			})
		}
		if r.end(); strings.Contains(r.stderr.String(), "EVALUATED") {
			t.Error("it evaluates what the server sends")
		}
	})
}

// checkTries checks that the client has sent one order so often as it was to, always with
// the same key and body, and returns the key.
func checkTries(t *testing.T, s *clientShop, again bool) (key string) {
	t.Helper()
	want := len(s.first)
	if again {
		want++
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
func checkSleeps(t *testing.T, sleeps []float64, times, told int) {
	t.Helper()
	limit := 0.25 // s
	for i, seconds := range sleeps {
		if seconds < float64(told) || seconds > float64(told)+limit {
			t.Errorf("before try %d it sleeps for %v s, want from %d to %v more", i+2, seconds, told, limit)
		}
		limit = min(2*limit, 60)
	}
	if len(sleeps) != times {
		t.Errorf("it sleeps %v, want %d times", sleeps, times)
	}
}
