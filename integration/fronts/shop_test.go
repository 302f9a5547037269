package fronts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// A front is a proxy that a test has started, and the server behind it.
type front struct {
	dial   func() (net.Conn, error) // to the proxy
	client *http.Client             // its requests go to the proxy, whatever host they name

	cuts    bool     // it answers Range, with a part
	streams bool     // it does not wait for a whole body before it asks the service
	resends bool     // it sends an order again of which nothing is known
	shops   sync.Map // of *shop by host: what the server behind it serves
	opened  atomic.Int64

	unready atomic.Bool  // what the server says that it is
	refused atomic.Int64 // how often it has said so
}

// ServeHTTP serves the shop that the request names as its host.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s, ok := f.shops.Load(r.Host); ok {
		s.(*shop).ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/readyz" && f.unready.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		f.refused.Add(1)
		return
	}
	w.WriteHeader(http.StatusOK) // the proxy asks whether the server is there
}

// A shop is a service behind a front, which sees what arrives there. It has a host of
// its own and, as caches may leave the host out of their keys, a product of its own.
type shop struct {
	front         *front
	host          string
	product, url  string
	store         storefront.MemStore
	service       http.Handler
	breakOff      atomic.Bool // whether connections are closed in place of an answer
	mu            sync.Mutex
	requests      []*http.Request
	productNumber int
}

func (f *front) open(t testing.TB, opts *storefront.Options) *shop {
	t.Helper()
	n := f.opened.Add(1)
	s := &shop{front: f, host: fmt.Sprintf("shop%d.example", n), product: fmt.Sprintf("teapot-%d", n)}
	s.url = "/v1/products/" + s.product
	s.change(t)
	o := storefront.Options{Logger: slog.New(slog.DiscardHandler)}
	if opts != nil {
		o.Shared, o.MaxAge = opts.Shared, opts.MaxAge
	}
	s.service = storefront.NewWithOptions(&s.store, &o)
	f.shops.Store(s.host, s)
	return s
}

// ServeHTTP serves the shop, and notes the request before its answer leaves.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	if s.breakOff.Load() {
		s.service.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	s.service.ServeHTTP(w, r)
}

// arrived returns how many requests have reached the service.
func (s *shop) arrived() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *shop) last() *http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[len(s.requests)-1]
}

// change puts another version of the product into the store.
func (s *shop) change(t testing.TB) {
	t.Helper()
	s.productNumber++
	s.store.Products.Put(storefront.MustResource(s.product, map[string]any{"version": s.productNumber}))
}

// An answer is what a client of the front got.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request to the front, with header lines of the form "Name: value".
func (s *shop) send(t testing.TB, method, path, body string, lines ...string) answer {
	t.Helper()
	r := must.Get(http.NewRequest(method, "http://"+s.host+path, strings.NewReader(body)))(t)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	res := must.Get(s.front.client.Do(r))(t)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{res.StatusCode, res.Header, string(text)}
}

// get sends a GET for the product.
func (s *shop) get(t testing.TB, lines ...string) answer {
	t.Helper()
	return s.send(t, "GET", s.url, "", lines...)
}

func (s *shop) order(t testing.TB, key string) answer {
	t.Helper()
	return s.send(t, "POST", "/v1/orders", `{"item":"teapot","qty":1}`, "Content-Type: application/json", "Idempotency-Key: "+key)
}

func (s *shop) addUsers(ids ...string) {
	for _, id := range ids {
		s.store.Users.Put(storefront.MustResource(id, nil))
	}
}

// wantWalk checks which users a walk by Link sees.
func (s *shop) wantWalk(t testing.TB, from string, want ...string) {
	t.Helper()
	var ids []string
	at, err := url.Parse(from)
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		r := s.send(t, "GET", at.String(), "")
		var page struct{ Data []storefront.Resource }
		if err := json.Unmarshal([]byte(r.body), &page); err != nil || r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", at, r.status, r.body)
		}
		for _, user := range page.Data {
			ids = append(ids, user.ID())
		}
		var link string
		if link, more = strings.CutSuffix(r.header.Get("Link"), `>; rel="next"`); more {
			at, _ = at.Parse(strings.TrimPrefix(link, "<"))
		}
	}
	if !slices.Equal(ids, want) {
		t.Errorf("the walk has seen %q, want %q", ids, want)
	}
}

// wantNew checks that a client gets the product as it is in the store.
func (s *shop) wantNew(t testing.TB) {
	t.Helper()
	product, _ := s.store.Products.Get(s.product)
	if r := s.get(t); r.status != http.StatusOK || r.body != product.String() {
		t.Errorf("the answer is %d %s, want %s", r.status, r.body, product)
	}
}

// wantNotModified checks that a client that has the product is not sent it again.
func (s *shop) wantNotModified(t testing.TB) {
	t.Helper()
	tag := s.get(t).header.Get("ETag")
	for range 2 {
		if r := s.get(t, "If-None-Match: "+tag); r.status != http.StatusNotModified || r.body != "" {
			t.Errorf("the answer is %d %q, want 304 without a body", r.status, r.body)
		}
	}
}

// wantNotStored checks that the product is read anew for every request, and that
// nobody else gets what was read for one with these header lines.
func (s *shop) wantNotStored(t testing.TB, lines ...string) {
	t.Helper()
	for range 3 {
		s.get(t, lines...)
	}
	if n := s.arrived(); n != 3 {
		t.Errorf("of 3 requests, %d have reached the service", n)
	}
	s.change(t)
	s.wantNew(t)
}

func (a answer) wantProblem(t testing.TB, status int, code string) {
	t.Helper()
	var p storefront.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.status != status || p.Type != "urn:problem-type:storefront:"+code {
		t.Errorf("the answer is %d %q, want the problem %s", a.status, a.body, code)
	}
}

// wait calls done until it returns true.
func wait(t testing.TB, what string, done func() bool) {
	t.Helper()
	process.WaitFor(t, what, time.Minute, nil, func() error {
		if !done() {
			return errors.New("not yet")
		}
		return nil
	})
}
