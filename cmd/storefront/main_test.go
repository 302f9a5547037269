package main

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"example.com/storefront/internal/commandtest"
	"example.com/storefront/internal/must"
)

func TestMain(m *testing.M) {
	if os.Getenv("STOREFRONT_URL") != "" {
		client(os.Args[1])
		return
	}
	commandtest.Main(main, m.Run)
}

// wantPrintedLinesToWork sends what a shell with the printed lines would have curl send.
func wantPrintedLinesToWork(t *testing.T, p *commandtest.Running) {
	t.Helper()
	for _, path := range []string{"/v1/users", "/v1/orders", "/v1/products/", "/v2/widgets", "/openapi"} {
		tried := 0
		for _, line := range p.Printed {
			words := regexp.MustCompile(`(?:-[Hd] )?'[^']*'`).FindAllString(line, -1)
			if !strings.HasPrefix(line, "  curl -i '") || !strings.Contains(line, path) {
				continue
			}
			tried++
			method, body, want, header := "GET", "", http.StatusOK, http.Header{}
			for _, word := range words[1:] {
				flag, value, _ := strings.Cut(strings.TrimSuffix(word, "'"), " '")
				if name, field, ok := strings.Cut(value, ": "); ok && flag == "-H" {
					header.Set(name, field)
				} else if flag == "-d" {
					method, body, want = "POST", value, http.StatusCreated
				}
			}
			r := must.Get(http.NewRequest(method, strings.Trim(words[0], "'"), strings.NewReader(body)))(t)
			r.URL = new(url.URL).ResolveReference(r.URL) // without dot segments, as curl leaves them out
			r.Header = header
			if status, body, _ := commandtest.Do(t, r); status != want || !json.Valid([]byte(body)) {
				t.Errorf("%s: %d %s, want %d and JSON", line, status, body, want)
			}
		}
		if tried == 0 {
			t.Errorf("no line tries %s:\n%s", path, strings.Join(p.Printed, "\n"))
		}
	}
}

func TestSampleShop(t *testing.T) {
	p := commandtest.Start(t)
	wantPrintedLinesToWork(t, p)
	p.WantAt(t, "/v1/users", 200, `"id":"ada"`)
	p.WantAt(t, "/v1/products/teapot", 200, `"id":"teapot"`)
	p.WantAt(t, "/v2/widgets?limit=5", 200, `"id":"w1"`)
	p.WantAt(t, "/", 200, "<!doctype html>")
	for _, path := range []string{"//", "/./", "/%2F", "/index.html"} { // are no other names of the explorer
		p.WantAt(t, path, 404, `"status":404`)
	}
	p.End(t)
}

func TestFieldsAndOrdersIfAskedFor(t *testing.T) {
	for _, c := range []struct {
		args                  []string
		created, listed, want int
	}{{nil, 422, 405, 0}, {[]string{"-fields"}, 201, 405, 0}, {[]string{"-fields", "-orders"}, 201, 200, 1}} {
		p := commandtest.Start(t, c.args...)
		created, _, _ := p.Order(t, "k", `{"item":"teapot","qty":2,"fields":{"n":2.0}}`)
		listed, page := commandtest.Get(t, p.Base+"/v1/orders")
		if n := strings.Count(page, `"fields":{"n":2.0}`); created != c.created || listed != c.listed || n != c.want {
			t.Errorf("%v: creating is %d, listing %d with %d orders: %s", c.args, created, listed, n, page)
		}
		p.End(t)
	}
}

func TestExplorerChangesTheSampleOnly(t *testing.T) {
	for data, want := range map[string]int{"": 204, `{"users": [{"id": "ada"}]}`: 405} {
		var args []string
		if data != "" {
			args = []string{"-data", commandtest.DataFile(t, data)}
		}
		p := commandtest.Start(t, args...)
		form := url.Values{"list": {"users"}, "id": {"bob"}, "op": {"put"}}
		response := must.Get(http.PostForm(p.Base+"/", form))(t)
		if response.Body.Close(); response.StatusCode != want {
			t.Errorf("with the data %q, putting a user is answered with %d, want %d", data, response.StatusCode, want)
		}
		_, users := commandtest.Get(t, p.Base+"/v1/users")
		if put := strings.Contains(users, `{"id":"bob","changed_at":`); put != (want == 204) {
			t.Errorf("with the data %q, there are the users %s", data, users)
		}
		p.End(t)
	}
}

// A page of another site may have a name of its own made to lead here (DNS rebinding).
func TestSampleIsChangedUnderItsOwnNamesOnly(t *testing.T) {
	changed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	for _, request := range []struct {
		addr, host string
		want       int
	}{
		{":8080", "LOCALHOST", 204},
		{"localhost:8080", "[::1]:8080", 204},
		{"shop.example:80", "SHOP.example", 204},
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

	p := commandtest.Start(t)
	r := must.Get(http.NewRequest("POST", p.Base+"/", nil))(t)
	r.Host = "evil.example"
	if status, _, _ := commandtest.Do(t, r); status != 403 {
		t.Errorf("under another name: %d, want 403", status)
	}
	p.End(t)
}

func TestFileWithFieldsOfItsOwn(t *testing.T) {
	p := commandtest.Start(t, "-data", commandtest.DataFile(t, `{
		"users": [{"id": "zoë", "tags": ["a", {"b": null}], "<&>": 1.50}],
		"products": [{"id": "."}, {"id": ".."}, {"id": "/"}, {"sku": 7, "id": "it's 1/2 \"off\"?"}]
	}`))
	p.WantAt(t, "/v1/users", 200, `[{"id":"zoë","tags":["a",{"b":null}],"<&>":1.50}]`)
	p.WantAt(t, "/v2/widgets?limit=1", 200, `{"data":[],"has_more":false}`)
	p.WantAt(t, "/v1/products/it%27s%201%2F2%20%22off%22%3F", 200, `{"id":"it's 1/2 \"off\"?","sku":7}`)
	wantPrintedLinesToWork(t, p)
	p.End(t)
}

func TestRefusalToStart(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "localhost:0"))(t)
	defer taken.Close()
	missing := filepath.Join(t.TempDir(), "missing.json")
	bad := commandtest.DataFile(t, `{"users": [], "products": [{"id": "a"}, {"name": "x"}]}`)
	for _, row := range []struct {
		name   string
		args   []string
		status int
		says   []string
	}{
		{"no id", []string{"-data", bad}, 2, []string{bad, "products[1]", "ID is missing"}},
		{"no such file", []string{"-data", missing}, 2, []string{missing, "no such file"}},
		{"unexpected argument", []string{"shop.json"}, 2, []string{"unexpected argument", `"shop.json"`}},
		{"unknown flag", []string{"-port", "80"}, 2, []string{"-port", "-addr", "-data", "-shutdown-delay"}},
		{"negative delay", []string{"-shutdown-delay", "-1s"}, 2, []string{"-shutdown-delay -1s"}},
		{"address in use", []string{"-addr", taken.Addr().String()}, 1, []string{"in use"}},
		{"address without port", []string{"-addr", "localhost"}, 2, []string{`"localhost"`, "host:port"}},
		{"empty port", []string{"-addr", "localhost:"}, 2, []string{`"localhost:"`, "host:port"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			// What would be served is served on a port of its own: the last of a flag counts.
			cmd := commandtest.Command(t, append([]string{"-addr", "localhost:0"}, row.args...)...)
			message := commandtest.WantRefusal(t, cmd, row.status, row.says...)
			if n := strings.Count(message, "\n"); n != 1 && row.name != "unknown flag" {
				t.Errorf("the message has %d lines, want 1: %s", n, message)
			}
		})
	}
}

func TestSignalFinishesTheRequestInFlight(t *testing.T) {
	const inFlight = "in flight"
	for _, row := range []struct {
		signal syscall.Signal
		delay  string
		says   []string
	}{
		{syscall.SIGINT, "1h", []string{inFlight}},
		{syscall.SIGTERM, "0", []string{inFlight}},
		{syscall.SIGTERM, "1ms", []string{"for=1ms", inFlight}},
	} {
		p := commandtest.Start(t, "-shutdown-delay", row.delay)
		order := p.BeginOrder(t)
		p.Signal(t, row.signal, row.says...)
		order.Finish(t)
		p.WantEnd(t)
	}
}

// The second signal is SIGTERM: SIGINT's usual effect is none in a job that a shell has started in
// the background, and so in the tests that it runs.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := commandtest.Start(t)
	p.BeginOrder(t)
	p.Signal(t, os.Interrupt, "in flight")
	p.Signal(t, syscall.SIGTERM)
	exit, ok := errors.AsType[*exec.ExitError](p.Wait())
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the command ended with %v, want the signal's usual effect", exit)
	}
}
