package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"example.com/storefront"
	"example.com/storefront/explorer"
	"example.com/storefront/internal/demo"
	"example.com/storefront/internal/must"
)

// TestMain makes this binary the command itself when a test starts it again.
func TestMain(m *testing.M) {
	if os.Getenv("STOREFRONT_RUN_MAIN") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self := must.Get(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), "STOREFRONT_RUN_MAIN=1")
	return cmd
}

// A running is a command that serves.
type running struct {
	*exec.Cmd
	base    string   // of its URLs
	printed []string // its first lines, up to the one that says how to end it
	out     *bufio.Scanner
}

// start starts the command on a port of its own and waits until it serves.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	cmd := command(t, append([]string{"-addr", "localhost:0", "-shutdown-delay", "0"}, args...)...)
	cmd.Stderr = t.Output()
	stdout := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	p := &running{Cmd: cmd, out: bufio.NewScanner(stdout)}
	for p.out.Scan() {
		p.printed = append(p.printed, p.out.Text())
		if strings.Contains(p.out.Text(), "Ctrl-C") {
			break
		}
	}
	if len(p.printed) == 0 {
		t.Fatal("nothing was printed")
	}
	p.base = regexp.MustCompile(`http://localhost:\d+`).FindString(p.printed[0])
	if p.base == "" {
		t.Fatalf("the first line has no URL: %s", p.printed[0])
	}
	return p
}

// end sends the signal and checks that the command ends well.
func (p *running) end(t *testing.T, sig os.Signal) {
	t.Helper()
	must.OK(t, p.Process.Signal(sig))
	p.wantSuccess(t)
}

func (p *running) wantSuccess(t *testing.T) {
	t.Helper()
	for p.out.Scan() {
	}
	if err := p.Wait(); err != nil {
		t.Errorf("the command ended with %v, want status 0", err)
	}
}

// parseCurl makes the request that a shell with a printed line would have curl send.
func parseCurl(t *testing.T, line string) *http.Request {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "sh", "-c", `curl() { printf '%s\n' "$@"; }; `+line).Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	words := strings.Split(strings.TrimSuffix(string(said), "\n"), "\n")
	var target, body string
	method, header := "GET", http.Header{}
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "-i":
		case "-H":
			i++
			name, value, _ := strings.Cut(words[i], ": ")
			header.Add(name, value)
		case "-d":
			i++
			method, body = "POST", words[i]
		default:
			target = words[i]
		}
	}
	r := must.Get(http.NewRequest(method, target, strings.NewReader(body)))(t)
	r.URL = new(url.URL).ResolveReference(r.URL) // without dot segments, as curl leaves them out
	r.Header = header
	return r
}

func do(t *testing.T, r *http.Request) (status int, body string) {
	t.Helper()
	result := must.Get(http.DefaultClient.Do(r))(t)
	defer result.Body.Close()
	text := must.Get(io.ReadAll(result.Body))(t)
	return result.StatusCode, string(text)
}

func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	return do(t, must.Get(http.NewRequest("GET", url, nil))(t))
}

// dataFile writes a file to serve and returns its name.
func dataFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "shop.json")
	must.OK(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func wantPrintedLinesToWork(t *testing.T, p *running) {
	t.Helper()
	tried := make(map[string]bool)
	for _, line := range p.printed {
		if !strings.Contains(line, "curl") {
			continue
		}
		r := parseCurl(t, line)
		want := http.StatusOK
		if r.Method == "POST" {
			want = http.StatusCreated
		}
		if status, body := do(t, r); status != want || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s, want %d and JSON", line, status, body, want)
		}
		tried[strings.Join(strings.Split(r.URL.Path, "/")[:min(3, strings.Count(r.URL.Path, "/")+1)], "/")] = true
	}
	for _, path := range []string{"/v1/users", "/v1/orders", "/v1/products", "/v2/widgets", "/openapi.json"} {
		if !tried[path] {
			t.Errorf("no line tries %s:\n%s", path, strings.Join(p.printed, "\n"))
		}
	}
}

func TestSampleShop(t *testing.T) {
	p := start(t)
	wantPrintedLinesToWork(t, p)
	for path, id := range map[string]string{
		"/v1/users": "ada", "/v1/products/teapot": "teapot", "/v2/widgets?limit=5": "w1",
	} {
		if status, body := fetch(t, p.base+path); status != 200 || !strings.Contains(body, `"id":"`+id+`"`) {
			t.Errorf("%s: %d %s, want %s in it", path, status, body, id)
		}
	}
	p.end(t, os.Interrupt)
}

// change asks the explorer to put an item into a list, or to delete it.
func (p *running) change(t *testing.T, list, id, op string) (status int) {
	t.Helper()
	response := must.Get(http.PostForm(p.base+"/", url.Values{"list": {list}, "id": {id}, "op": {op}}))(t)
	response.Body.Close()
	return response.StatusCode
}

func TestExplorerIsAtTheRootAndNowhereElse(t *testing.T) {
	p := start(t)
	if status, body := fetch(t, p.base+"/"); status != 200 || !strings.HasPrefix(body, "<!doctype html>") {
		t.Errorf("/: %d %.40s, want the explorer", status, body)
	}
	for _, path := range []string{"//", "/./", "/%2F", "/index.html"} {
		if status, body := fetch(t, p.base+path); status != 404 || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %.40s, want the service's 404", path, status, body)
		}
	}
	p.end(t, os.Interrupt)
}

func TestExplorerChangesTheSampleOnly(t *testing.T) {
	p := start(t)
	for list, path := range map[string]string{
		"users": "/v1/users", "products": "/v1/products/bob", "widgets": "/v2/widgets?limit=9",
	} {
		var bodies []string
		for _, op := range []string{"put", "put", "delete"} {
			if status := p.change(t, list, "bob", op); status != 204 {
				t.Errorf("%s: %s is answered %d, want 204", list, op, status)
			}
			_, body := fetch(t, p.base+path)
			bodies = append(bodies, body)
		}
		const item = `{"id":"bob","changed_at":`
		has := func(i int) bool { return strings.Contains(bodies[i], item) }
		if !has(0) || !has(1) || has(2) {
			t.Errorf("%s: with bob, again and without it is\n%s", list, strings.Join(bodies, "\n"))
		}
		if bodies[0] == bodies[1] {
			t.Errorf("%s: put again, it is the same: %s", list, bodies[1])
		}
	}
	p.change(t, "products", "teapot", "put")
	_, teapot := fetch(t, p.base+"/v1/products/teapot")
	for _, want := range []string{
		`"changed_at":`, `"name":"Teapot"`, `"price":{"amount":"24.50","currency":"EUR"}`,
	} {
		if !strings.Contains(teapot, want) {
			t.Errorf("put again, the teapot is %s, want %s in it", teapot, want)
		}
	}
	p.end(t, os.Interrupt)

	p = start(t, "-data", dataFile(t, `{"users": [{"id": "ada"}]}`))
	if status := p.change(t, "users", "bob", "put"); status != 405 {
		t.Errorf("a file: %d, want 405", status)
	}
	p.end(t, os.Interrupt)
}

// A page of another site may have a name of its own made to lead here (DNS rebinding).
func TestSampleIsChangedUnderItsOwnNamesOnly(t *testing.T) {
	changed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	for _, request := range []struct {
		addr, host string
		want       int
	}{
		{"localhost:8080", "localhost:8080", 204},
		{"localhost:8080", "LOCALHOST", 204},
		{"localhost:8080", "127.0.0.1:8080", 204},
		{"localhost:8080", "[::1]:8080", 204},
		{":8080", "192.0.2.7:8080", 204},
		{"shop.example:80", "shop.example", 204},
		{"localhost:8080", "evil.example:8080", 403},
		{":8080", "evil.example:8080", 403},
		{"shop.example:80", "evil.shop.example", 403},
		{"127.0.0.1:8080", "127.0.0.1.evil.example", 403},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Host = request.host
		w := httptest.NewRecorder()
		atOwnNames(request.addr, changed).ServeHTTP(w, r)
		if w.Code != request.want {
			t.Errorf("-addr %s, Host %s: %d, want %d", request.addr, request.host, w.Code, request.want)
		}
	}

	p := start(t)
	for method, want := range map[string]int{"GET": 200, "POST": 403} {
		r := must.Get(http.NewRequest(method, p.base+"/", nil))(t)
		r.Host = "evil.example"
		if status, _ := do(t, r); status != want {
			t.Errorf("%s under another name: %d, want %d", method, status, want)
		}
	}
	p.end(t, os.Interrupt)
}

// A later version of the explorer may have more lists.
func TestSampleRefusesAListThatItDoesNotKnow(t *testing.T) {
	store := must.Get(demo.Load(""))(t)
	everything := func() (all []storefront.Resource) {
		for _, list := range []*storefront.Collection{&store.Users, &store.Products, &store.Widgets} {
			all = slices.AppendSeq(all, list.All())
		}
		return all
	}
	before := everything()
	for _, change := range []explorer.Change{
		{List: "orders", ID: "ada"}, {List: "orders", ID: "ada", Deleted: true}, {ID: "ada"},
	} {
		if err := changeSample(store)(t.Context(), change); !errors.Is(err, explorer.ErrUnknownList) {
			t.Errorf("%+v: %v, want ErrUnknownList", change, err)
		}
	}
	if !slices.EqualFunc(before, everything(), storefront.Resource.Equal) {
		t.Error("the lists are not what they were")
	}
}

func TestFileWithFieldsOfItsOwn(t *testing.T) {
	p := start(t, "-data", dataFile(t, `{
		"users": [{"id": "zoë", "tags": ["a", {"b": null}], "<&>": 1.50}],
		"products": [{"sku": 7, "id": "it's 1/2 \"off\"?"}]
	}`))
	for path, want := range map[string]string{
		"/v1/users":           `{"data":[{"id":"zoë","tags":["a",{"b":null}],"<&>":1.50}],"has_more":false}`,
		"/v2/widgets?limit=1": `{"data":[],"has_more":false}`,
		"/v1/products/it%27s%201%2F2%20%22off%22%3F": `{"id":"it's 1/2 \"off\"?","sku":7}`,
	} {
		if status, body := fetch(t, p.base+path); status != 200 || body != want {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
	wantPrintedLinesToWork(t, p)
	p.end(t, os.Interrupt)
}

func TestPrintedProductIsThere(t *testing.T) {
	for _, id := range []string{
		"teapot", "a/b", "/a", "a/", "//", "./", "../..", "...", "/.", ".a", "\\", "a?b", "a#b", "%", "%2F", "%2e",
		"+", " ", "~", "zoë", "\U0001fad6", "it's", "'; exit 1 #", `"`, "$HOME", "`exit 1`", "!", "-i", "[1-3]",
		"{a,b}", "*", "a;b,c=d&e:f@g", strings.Repeat("'", 255),
	} {
		store := new(storefront.MemStore)
		for _, id := range []string{".", "..", "/", id} { // the first three cannot be requested
			store.Products.Put(storefront.MustResource(id, nil))
		}
		server := httptest.NewServer(storefront.New(store))
		var printed strings.Builder
		demo.TryThis(&printed, server.Listener.Addr(), product(store))
		tried := 0
		for line := range strings.Lines(printed.String()) {
			if !strings.Contains(line, "/v1/products/") {
				continue
			}
			tried++
			status, body := do(t, parseCurl(t, line))
			if want := storefront.MustResource(id, nil).String(); status != 200 || body != want {
				t.Errorf("with the product %q, %s: %d %s, want 200 %s", id, line, status, body, want)
			}
		}
		if tried != 2 {
			t.Errorf("with the product %q, %d lines try it, want 2:\n%s", id, tried, &printed)
		}
		server.Close()
	}
}

func TestProductThatCannotBeRequestedIsNotPrinted(t *testing.T) {
	for _, id := range []string{".", "..", "/"} {
		store := new(storefront.MemStore)
		store.Products.Put(storefront.MustResource(id, nil))
		if got := product(store); got != "" {
			t.Errorf("with the product %q alone, %q is the one for examples, want none", id, got)
		}
	}
}

// An output calls written when something is written to it.
type output struct {
	text    []byte
	written func()
}

func (o *output) Write(text []byte) (int, error) {
	o.written()
	o.text = append(o.text, text...)
	return len(text), nil
}

func TestRefusalToStart(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "localhost:0"))(t)
	defer taken.Close()
	missing := filepath.Join(t.TempDir(), "missing.json")
	bad := func(text string) []string { return []string{"-data", dataFile(t, text)} }
	for _, row := range []struct {
		name   string
		args   []string
		status int
		says   []string
	}{
		{"no id", bad(`{"users": [], "products": [{"id": "a"}, {"name": "x"}]}`), 2,
			[]string{"shop.json", "products[1]", "ID is missing"}},
		{"id is a number", bad(`{"widgets": [{"id": 7}]}`), 2,
			[]string{"shop.json", "widgets[0]", `"id" is not a string`}},
		{"an ID twice", bad(`{"users": [{"id": "a"}, {"id": "b"}, {"id": "a"}]}`), 2,
			[]string{"shop.json", "users[2]", `"a"`, "[0]"}},
		{"not an object", bad(`{"users": [{"id": "a"}, "b"]}`), 2,
			[]string{"shop.json", "users[1]", "not a JSON object"}},
		{"not an array", bad(`{"users": {"id": "a"}}`), 2, []string{"shop.json", "users", "not an array"}},
		{"unknown collection", bad(`{"Users": []}`), 2,
			[]string{"shop.json", `"Users"`, "users, products and widgets"}},
		{"syntax", bad(`{"users": [{"id": "a",}]}`), 2,
			[]string{"shop.json", "line 1, column 23", "invalid character"}},
		{"truncated", bad(`{"users": [{"id": "a"}`), 2,
			[]string{"shop.json", "line 1, column 22", "unexpected end"}},
		{"empty file", bad(""), 2, []string{"shop.json", "unexpected end"}},
		{"no such file", []string{"-data", missing}, 2, []string{missing, "no such file"}},
		{"a directory", []string{"-data", t.TempDir()}, 2, []string{"is a directory"}},
		{"unexpected argument", []string{"shop.json"}, 2, []string{"unexpected argument", `"shop.json"`}},
		{"unknown flag", []string{"-port", "80"}, 2, []string{"-port", "-addr", "-data", "-shutdown-delay"}},
		{"negative delay", []string{"-shutdown-delay", "-1s"}, 2, []string{"-shutdown-delay", "-1s", "negative"}},
		{"address in use", []string{"-addr", taken.Addr().String()}, 1, []string{taken.Addr().String(), "in use"}},
		{"address without port", []string{"-addr", "localhost"}, 2, []string{"-addr", `"localhost"`, "host:port"}},
		{"empty port", []string{"-addr", "localhost:"}, 2, []string{"-addr", `"localhost:"`, "host:port"}},
		{"empty address", []string{"-addr", ""}, 2, []string{"-addr", `""`, "host:port"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			cmd := command(t, row.args...)
			if row.args[0] == "-data" { // what would be served, is served on a port of its own
				cmd.Args = append(cmd.Args, "-addr", "localhost:0")
			}
			var stderr bytes.Buffer
			stdout := &output{written: func() { cmd.Process.Kill() }}
			cmd.Stdout, cmd.Stderr = stdout, &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != row.status {
				t.Errorf("the command ended with %v, want status %d", err, row.status)
			}
			if stdout.text != nil {
				t.Errorf("it serves: %s", stdout.text)
			}
			for _, what := range row.says {
				if !strings.Contains(stderr.String(), what) {
					t.Errorf("the message does not say %s: %s", what, &stderr)
				}
			}
			if n := strings.Count(stderr.String(), "\n"); n != 1 && row.name != "unknown flag" {
				t.Errorf("the message has %d lines, want 1: %s", n, &stderr)
			}
		})
	}
}

// A sending is an order whose body is on its way.
type sending struct {
	net.Conn
	in   *bufio.Reader
	rest string
}

func (p *running) dial(t *testing.T) net.Conn {
	t.Helper()
	conn := must.Get(net.Dial("tcp", strings.TrimPrefix(p.base, "http://")))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// beginOrder returns once the handler waits for the body.
func beginOrder(t *testing.T, p *running) *sending {
	t.Helper()
	conn := p.dial(t)
	const begin, rest = `{"item":"teapot",`, `"qty":2}`
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: application/json\r\nIdempotency-Key: k\r\n"+
		"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(begin+rest))
	s := &sending{conn, bufio.NewReader(conn), rest}
	if status := s.receive(t); status != http.StatusContinue {
		t.Fatalf("status %d, want 100", status)
	}
	fmt.Fprint(conn, begin)
	return s
}

func (s *sending) receive(t *testing.T) (status int) {
	t.Helper()
	result := must.Get(http.ReadResponse(s.in, nil))(t)
	must.Get(io.Copy(io.Discard, result.Body))(t)
	return result.StatusCode
}

// finish sends the rest of the order, with which the command ends.
func (s *sending) finish(t *testing.T, p *running) {
	t.Helper()
	fmt.Fprint(s, s.rest)
	if status := s.receive(t); status != http.StatusCreated {
		t.Errorf("status %d, want 201", status)
	}
	p.wantSuccess(t)
}

// signal signals the command and waits until it says what it does.
func (p *running) signal(t *testing.T, sig os.Signal, says string) {
	t.Helper()
	must.OK(t, p.Process.Signal(sig))
	p.wantLine(t, says)
}

func (p *running) wantLine(t *testing.T, says string) {
	t.Helper()
	if !p.out.Scan() || !strings.Contains(p.out.Text(), says) {
		t.Fatalf("it says %q, want a line with %q", p.out.Text(), says)
	}
}

func TestSignalFinishesTheRequestInFlight(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			p := start(t)
			s := beginOrder(t, p)
			p.signal(t, sig, "in flight")
			s.finish(t, p)
		})
	}
}

// The second signal is SIGTERM: SIGINT's usual effect is none in a job that a shell has started in
// the background, and so in the tests that it runs.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := start(t)
	beginOrder(t, p)
	p.signal(t, os.Interrupt, "in flight")
	p.Process.Signal(syscall.SIGTERM)
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the command ended with %v, want the signal's usual effect", err)
	}
}

func TestTermEndsAfterTheDelay(t *testing.T) {
	p := start(t, "-shutdown-delay", "1ms")
	s := beginOrder(t, p)
	p.signal(t, syscall.SIGTERM, "another 1ms")
	p.wantLine(t, "in flight")
	s.finish(t, p)
}

func TestInterruptDoesNotWait(t *testing.T) {
	p := start(t, "-shutdown-delay", "1h")
	p.end(t, os.Interrupt)
}
