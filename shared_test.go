package storefront

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A response is a handler's response.
type response struct {
	status int
	header http.Header
	body   string
}

// do returns the handler's response to a request.
func do(h http.Handler, r *http.Request) response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	result := w.Result() // with the headers as they were when the status was written
	return response{result.StatusCode, result.Header, w.Body.String()}
}

// newRequest returns a request with header lines of the form "Name: value".
func newRequest(method, target, body string, lines ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// send is do for the request that newRequest returns.
func send(h http.Handler, method, target, body string, lines ...string) response {
	return do(h, newRequest(method, target, body, lines...))
}

// get sends a GET.
func get(h http.Handler, target string, lines ...string) response {
	return send(h, http.MethodGet, target, "", lines...)
}

// postOrder sends an order with a key, and lines in addition to the required
// ones.
func postOrder(h http.Handler, key, body string, lines ...string) response {
	lines = append([]string{"Content-Type: application/json", "Idempotency-Key: " + key}, lines...)
	return send(h, http.MethodPost, "/v1/orders", body, lines...)
}

// wantStatus checks the status.
func (r response) wantStatus(t *testing.T, status int) {
	t.Helper()
	if r.status != status {
		t.Errorf("status %d, want %d\n%s", r.status, status, r.body)
	}
}

// wantProblem checks that r is a problem with this status and code, and returns
// it.
func (r response) wantProblem(t *testing.T, status int, code string) Problem {
	t.Helper()
	var p Problem
	dec := json.NewDecoder(strings.NewReader(r.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatalf("status %d with the body %q: want a problem document: %v", r.status, r.body, err)
	}
	if want := "urn:problem-type:storefront:" + code; r.status != status || p.Type != want {
		t.Fatalf("got %d %s, want %d %s\n%s", r.status, p.Type, status, want, r.body)
	}
	if !strings.Contains(openAPI, `"`+p.Type+`"`) {
		t.Errorf("openapi.json does not have %s", p.Type)
	}
	if p.Status != status || p.Title == "" || p.Detail == "" {
		t.Errorf("want status %d, a title and a detail in the problem: %s", status, r.body)
	}
	if (p.Instance != "") != (status >= 500) {
		t.Errorf("want an instance from status 500 on, and none below: %s", r.body)
	}
	for _, f := range p.Errors {
		if f.Detail == "" || len(f.Parameter)+len(f.Header)+len(f.Pointer) > max(len(f.Parameter),
			len(f.Header), len(f.Pointer)) {
			t.Errorf("want a detail and at most one place in the fault %+v", f)
		}
	}
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type: %s, want application/problem+json", got)
	}
	if got := r.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control: %s, want no-store", got)
	}
	return p
}

// A stubStore is a Store made of functions. Calling a method whose function is
// nil panics.
type stubStore struct {
	listUsers   func(ctx context.Context, after string, limit int) ([]Resource, error)
	createOrder func(ctx context.Context, key IdempotencyKey, order Order) (Order, error)
	getProduct  func(ctx context.Context, id string) (Resource, error)
	listWidgets func(ctx context.Context, start string, limit int) ([]Resource, error)
}

func (s *stubStore) ListUsers(ctx context.Context, after string, limit int) ([]Resource, error) {
	return s.listUsers(ctx, after, limit)
}

func (s *stubStore) CreateOrder(ctx context.Context, key IdempotencyKey, order Order) (Order, error) {
	return s.createOrder(ctx, key, order)
}

func (s *stubStore) GetProduct(ctx context.Context, id string) (Resource, error) {
	return s.getProduct(ctx, id)
}

func (s *stubStore) ListWidgets(ctx context.Context, start string, limit int) ([]Resource, error) {
	return s.listWidgets(ctx, start, limit)
}

// teapots is a good order.
const teapots = `{"item":"teapot","qty":2}`

// storeSecret is what a failing store says and no client may see.
const storeSecret = "pq: password of shop_admin@10.0.0.7 rejected"

// A trialStore is a MemStore in which some products cannot be read and every
// order is a replay of one, so that its responses are the same every time.
type trialStore struct{ MemStore }

func newTrialStore() *trialStore {
	s := new(trialStore)
	for _, id := range []string{"a", "b", "c"} {
		s.Users.Put(MustResource(id, map[string]any{"name": "<" + id + ">"}))
		s.Products.Put(MustResource(id, map[string]any{"price": 7}))
		s.Widgets.Put(MustResource(id, nil))
	}
	s.Products.Put(MustResource("x/y", nil))
	return s
}

func (s *trialStore) GetProduct(ctx context.Context, id string) (Resource, error) {
	switch id {
	case "broken":
		return Resource{}, errors.New(storeSecret)
	case "down":
		return Resource{}, fmt.Errorf("%s: %w", storeSecret, ErrUnavailable)
	case "zero":
		return Resource{}, nil
	}
	return s.MemStore.GetProduct(ctx, id)
}

func (s *trialStore) CreateOrder(ctx context.Context, key IdempotencyKey, order Order) (Order, error) {
	switch order.Item {
	case "broken":
		return Order{}, errors.New(storeSecret)
	case "reused":
		return Order{}, ErrKeyReused
	case "busy":
		return Order{}, ErrInProgress
	}
	order.ID = "ord_first"
	order.CreatedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return order, ctx.Err()
}

// A trial is a request to a handler of a trialStore.
type trial struct {
	method, target, body string
	lines                []string
	status               int
}

func (r trial) String() string {
	return strings.Join(append([]string{r.method + " " + r.target}, r.lines...), ", ")
}

func (r trial) send(h http.Handler) response { return send(h, r.method, r.target, r.body, r.lines...) }

func order(status int, body string, lines ...string) trial {
	if lines == nil {
		lines = []string{"Content-Type: application/json", "Idempotency-Key: k"}
	}
	return trial{"POST", "/v1/orders", body, lines, status}
}

func read(status int, target string, lines ...string) trial {
	return trial{"GET", target, "", lines, status}
}

// trials are requests of every kind to every route, in the way in which they
// leave the path alone.
func trials() []trial {
	return []trial{
		read(200, "/v1/users"),
		read(200, "/v1/users?limit=2"),
		read(304, "/v1/users", "If-None-Match: *"),
		read(412, "/v1/users", `If-Match: "other"`),
		read(400, "/v1/users?limit=0&page=1"),
		read(200, "/v1/products/a"),
		read(200, "/v1/products/x%2Fy"),
		read(304, "/v1/products/a", "If-None-Match: *"),
		read(412, "/v1/products/a", `If-Match: "other"`),
		read(400, "/v1/products/a?full=1"),
		read(404, "/v1/products/none"),
		read(404, "/v1/products/%ff"),
		read(500, "/v1/products/broken"),
		read(500, "/v1/products/zero"),
		read(503, "/v1/products/down"),
		read(504, "/v1/products/c", "Cache-Control: only-if-cached"),
		read(200, "/v2/widgets?limit=2"),
		read(304, "/v2/widgets?limit=2", "If-None-Match: *"),
		read(400, "/v2/widgets"),
		read(200, "/openapi.json"),
		read(304, "/openapi.json", "If-None-Match: *"),
		read(404, "/v1/other"),
		read(404, "/v3/users"),
		read(404, "/v1/users/"),
		read(405, "/v1/orders"),
		order(201, teapots),
		order(400, `{"item":`),
		order(400, teapots, "Content-Type: application/json"),
		order(400, teapots, "Content-Type: application/json", `Idempotency-Key: "`),
		order(409, `{"item":"busy","qty":1}`),
		order(413, teapots+strings.Repeat(" ", 64<<10)),
		order(415, teapots, "Content-Type: text/plain", "Idempotency-Key: k", "Content-Encoding: gzip"),
		order(422, `{"qty":0}`),
		order(422, `{"item":"reused","qty":1}`),
		order(500, `{"item":"broken","qty":1}`),
		{"OPTIONS", "/v1/users", "", nil, 204},
		{"OPTIONS", "/v1/orders", "", nil, 204},
		{"OPTIONS", "/nowhere", "", nil, 404},
		{"DELETE", "/v1/products/a", "", nil, 405},
		{"BREW", "/v1/users", "", nil, 501},
	}
}

// quiet is New for a handler that neither logs nor remembers a product, so that
// one request does not change the response to the next.
func quiet(store Store) http.Handler {
	return NewWithOptions(store, &Options{Logger: slog.New(slog.DiscardHandler), CacheSize: -1})
}

var incident = regexp.MustCompile(`urn:storefront:incident:[A-Z2-7]{26}"`)

// diff returns what is in r (-) or in other (+) alone, but for the incidents, which
// are random.
func (r response) diff(other response) string {
	r.body = incident.ReplaceAllString(r.body, "incident")
	other.body = incident.ReplaceAllString(other.body, "incident")
	return cmp.Diff(r, other, cmp.AllowUnexported(response{}))
}

// A syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// failing returns a store whose methods return err, with results that do not count.
func failing(err error) *stubStore { return failingBy(func() error { return err }) }

// failingBy is failing for the error that fail returns each time.
func failingBy(fail func() error) *stubStore {
	list := func(context.Context, string, int) ([]Resource, error) { return bareResources("a", "b"), fail() }
	return &stubStore{
		listUsers:   list,
		listWidgets: list,
		createOrder: func(context.Context, IdempotencyKey, Order) (Order, error) {
			return Order{ID: "ord_secret"}, fail()
		},
		getProduct: func(_ context.Context, id string) (Resource, error) {
			return MustResource(id, nil), fail()
		},
	}
}

// cacheableTargets are all reads, of the store that newCacheableStore makes. The
// lists have a next page.
var cacheableTargets = []string{"/v1/users?limit=1", "/v1/products/p1", "/v2/widgets?limit=1",
	"/openapi.json"}

func newCacheableStore() *MemStore {
	store := new(MemStore)
	store.Users.Put(bareResources("u1", "u2")...)
	store.Products.Put(bareResources("p1")...)
	store.Widgets.Put(bareResources("w1", "w2")...)
	return store
}
