package main

import (
	"encoding/json"
	"errors"
	"maps"
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
	tried := make(map[string]int)
	for _, line := range p.Printed {
		words := regexp.MustCompile(`(-i|-H|-d) '([^']*)'`).FindAllStringSubmatch(line, -1)
		if words == nil {
			continue
		}
		method, body, want, header := "GET", "", http.StatusOK, http.Header{}
		for _, word := range words[1:] {
			if name, value, _ := strings.Cut(word[2], ": "); word[1] == "-H" {
				header.Set(name, value)
			} else {
				method, body, want = "POST", word[2], http.StatusCreated
			}
		}
		r := must.Get(http.NewRequest(method, words[0][2], strings.NewReader(body)))(t)
		r.URL = new(url.URL).ResolveReference(r.URL) // without dot segments, as curl leaves them out
		r.Header = header
		if status, body, _ := commandtest.Do(t, r); status != want || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s, want %d and JSON", line, status, body, want)
		}
		tried[regexp.MustCompile("users|orders|products|widgets|openapi").FindString(r.URL.Path)]++
	}
	want := map[string]int{"users": 1, "orders": 1, "products": 2, "widgets": 1, "openapi": 1}
	if !maps.Equal(tried, want) {
		t.Errorf("the lines try %v, want %v:\n%s", tried, want, strings.Join(p.Printed, "\n"))
	}
}

// wantPut checks how the explorer answers to a user who is put, under the name of a host unless it is empty.
func wantPut(t *testing.T, p *commandtest.Running, host string, want int) {
	t.Helper()
	r := must.Get(http.NewRequest("POST", p.Base+"/", strings.NewReader("list=users&id=bob&op=put")))(t)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Host = host
	if status, body, _ := commandtest.Do(t, r); status != want {
		t.Errorf("putting a user at %q is answered with %d %s, want %d", host, status, body, want)
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
	wantPut(t, p, "evil.example", 403)
	wantPut(t, p, "", 204)
	p.WantAt(t, "/v1/users", 200, `{"id":"bob","changed_at":`)
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
		n := strings.Count(page, `"fields":{"n":2.0}`)
		if created != c.created || listed != c.listed || n != c.want {
			t.Errorf("%v: creating is %d, listing %d with %d orders: %s", c.args, created, listed, n, page)
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
}

// The explorer does not change it.
func TestFileWithFieldsOfItsOwn(t *testing.T) {
	p := commandtest.Start(t, "-data", commandtest.DataFile(t, `{
		"users": [{"id": "zoë", "tags": ["a", {"b": null}], "<&>": 1.50}],
		"products": [{"id": "."}, {"id": ".."}, {"id": "/"}, {"sku": 7, "id": "it's 1/2 \"off\"?"}]
	}`))
	wantPut(t, p, "", 405)
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
		{"no such port", []string{"-addr", "localhost:65536"}, 2, []string{`"localhost:65536"`, "host:port"}},
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
