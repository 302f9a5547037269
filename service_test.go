package storefront

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"example.com/storefront/internal/ijson"
)

const goodOrder = `{"item":"teapot","qty":2}`

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
		order(201, goodOrder),
		order(400, `{"item":`),
		order(400, goodOrder, "Content-Type: application/json"),
		order(400, goodOrder, "Content-Type: application/json", `Idempotency-Key: "`),
		order(409, `{"item":"busy","qty":1}`),
		order(413, goodOrder+strings.Repeat(" ", 64<<10)),
		order(415, goodOrder, "Content-Type: text/plain", "Idempotency-Key: k", "Content-Encoding: gzip"),
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

// diff compares responses; of the incident, which is random, only the length.
func (r response) diff(other response) string {
	pinned := func(s string) string {
		const incident = "urn:storefront:incident:"
		if i := strings.Index(s, incident); i >= 0 {
			i += len(incident)
			end := i + strings.IndexByte(s[i:], '"')
			s = s[:i] + strings.Repeat("?", end-i) + s[end:]
		}
		return s
	}
	r.body, other.body = pinned(r.body), pinned(other.body)
	return difference(r, other)
}

func TestProblems(t *testing.T) {
	list := func(err error) *stubStore {
		return &stubStore{listUsers: func(context.Context, string, int) ([]Resource, error) { return nil, err }}
	}
	create := func(err error) *stubStore {
		return &stubStore{createOrder: func(context.Context, IdempotencyKey, Order) (Order, error) { return Order{}, err }}
	}
	slow := func(h http.Handler) response {
		r := httptest.NewRequest("POST", "/v1/orders", iotest.ErrReader(os.ErrDeadlineExceeded))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return response{w.Code, w.Header(), w.Body.String()}
	}
	rows := []struct {
		typ    problemType
		status int
		code   string
		title  string
		store  Store
		send   func(http.Handler) response
	}{
		{invalidQuery, 400, "invalid-query", "Invalid query", new(MemStore), read(0, "/v1/users?limit=x").send},
		{malformedBody, 400, "malformed-body", "Malformed body", new(MemStore), order(0, "{").send},
		{idempotencyKeyMissing, 400, "idempotency-key-missing", "Idempotency-Key missing", new(MemStore), order(0, goodOrder, "Content-Type: application/json").send},
		{idempotencyKeyInvalid, 400, "idempotency-key-invalid", "Idempotency-Key invalid", new(MemStore), order(0, goodOrder, "Content-Type: application/json", "Idempotency-Key: é").send},
		{notFound, 404, "not-found", "Not found", new(MemStore), read(0, "/").send},
		{productNotFound, 404, "product-not-found", "Product not found", new(MemStore), read(0, "/v1/products/none").send},
		{methodNotAllowed, 405, "method-not-allowed", "Method not allowed", new(MemStore), trial{method: "PUT", target: "/v1/users"}.send},
		{requestTimeout, 408, "request-timeout", "Request timeout", new(MemStore), slow},
		{idempotencyKeyInProgress, 409, "idempotency-key-in-progress", "Idempotency-Key in progress", create(ErrInProgress), order(0, goodOrder).send},
		{preconditionFailed, 412, "precondition-failed", "Precondition failed", new(MemStore), read(0, "/v1/users", `If-Match: "x"`).send},
		{bodyTooLarge, 413, "body-too-large", "Body too large", new(MemStore), order(0, strings.Repeat(" ", 64<<10+1)).send},
		{unsupportedMediaType, 415, "unsupported-media-type", "Unsupported media type", new(MemStore), order(0, goodOrder, "Idempotency-Key: k").send},
		{invalidOrder, 422, "invalid-order", "Invalid order", new(MemStore), order(0, "{}").send},
		{idempotencyKeyReused, 422, "idempotency-key-reused", "Idempotency-Key reused", create(ErrKeyReused), order(0, goodOrder).send},
		{orderRefused, 422, "order-refused", "Order refused", create(&Refusal{}), order(0, goodOrder).send},
		{internalError, 500, "internal-error", "Internal error", list(errors.New("broken")), read(0, "/v1/users").send},
		{notImplemented, 501, "not-implemented", "Method not implemented", new(MemStore), trial{method: "BREW", target: "/v1/users"}.send},
		{unavailable, 503, "unavailable", "Service unavailable", list(ErrUnavailable), read(0, "/v1/users").send},
		{notCached, 504, "not-cached", "Not cached", new(MemStore), read(0, "/v1/products/p", "Cache-Control: only-if-cached").send},
	}
	provoked := make(map[problemType]bool)
	for _, row := range rows {
		provoked[row.typ] = true
		t.Run(row.code, func(t *testing.T) {
			var log bytes.Buffer
			h := NewWithOptions(row.store, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			p := row.send(h).wantProblem(t, row.status, row.code)
			if p.Title != row.title {
				t.Errorf("title %q, want %q", p.Title, row.title)
			}
			random, ok := strings.CutPrefix(p.Instance, "urn:storefront:incident:")
			if want := row.status >= 500; ok != want || want && len(random) < 20 {
				t.Errorf("instance %q, want an incident only with a 5xx", p.Instance)
			}
			if want := row.status >= 500; strings.Contains(log.String(), "incident="+p.Instance+" ") != want || !want && log.Len() > 0 {
				t.Errorf("want a log line with the incident only for a 5xx; the incident is %q and the log\n%s", p.Instance, &log)
			}
			if again := row.send(h).wantProblem(t, row.status, row.code); again.Title != p.Title || again.Detail != p.Detail {
				t.Errorf("the second problem has %q %q, the first one %q %q", again.Title, again.Detail, p.Title, p.Detail)
			} else if p.Instance != "" && again.Instance == p.Instance {
				t.Errorf("two failures have the incident %s", p.Instance)
			}
		})
	}
	for _, typ := range problemTypes(t) {
		if !provoked[typ] {
			t.Errorf("there is no row for %s", typ.code)
		}
	}
}

func TestProblemMembersAreThoseOfTheContract(t *testing.T) {
	r := get(New(new(MemStore)), "/v1/users?limit=0&page=1&page=2")
	want := map[string]any{
		"type": "urn:problem-type:storefront:invalid-query", "title": "Invalid query", "status": 400.0,
		"detail": "The query is not valid for this list.",
		"errors": []any{
			map[string]any{"parameter": "page", "detail": "Unknown parameter. The parameters are: limit, after."},
			map[string]any{"parameter": "page", "detail": "Unknown parameter. The parameters are: limit, after."},
			map[string]any{"parameter": "limit", "detail": "limit must be a whole number from 1 to 500, in decimal digits.", "minimum": 1.0, "maximum": 500.0},
		},
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(r.body), &got); err != nil {
		t.Fatal(err)
	}
	if diff := difference(want, got); diff != "" {
		t.Errorf("problem document, -want +got:\n%s", diff)
	}
}

func TestProblemsLeakNothing(t *testing.T) {
	leaks := []string{
		storeSecret, "10.0.0.7", "json:", "invalid character", "unexpected end", "unmarshal", "Go ", "int64", "strconv", "storefront.",
		"errorString", "parsing", "base64", "illegal", "http:", "EOF", "mime:", "goroutine", ".go:", "context ", "nil",
	}
	failing := &stubStore{
		listUsers: func(context.Context, string, int) ([]Resource, error) { return nil, errors.New(storeSecret) },
		listWidgets: func(context.Context, string, int) ([]Resource, error) {
			return nil, fmt.Errorf(storeSecret+": %w", ErrUnavailable)
		},
		getProduct: func(context.Context, string) (Resource, error) { return Resource{}, errors.New(storeSecret) },
		createOrder: func(context.Context, IdempotencyKey, Order) (Order, error) {
			return Order{ID: "ord_secret"}, fmt.Errorf(storeSecret+": %w", ErrKeyReused)
		},
	}
	requests := []trial{
		read(500, "/v1/users"),
		read(500, "/v1/products/p"),
		read(500, "/v1/products/p", "Cache-Control: max-age=9"),
		read(503, "/v2/widgets?limit=1"),
		order(422, goodOrder),
		read(400, "/v1/users?limit=9999999999999999999999"),
		read(400, "/v1/users?limit=%zz&a;b"),
		read(400, "/v1/users?after=!!!"),
		order(415, goodOrder, "Content-Type: ;;;"),
	}
	for _, body := range []string{"", "{", "nul", `{"item":"\ud800","qty":1}`, `{"item":"` + "\xff" + `","qty":1}`, `{"item":1e999,"qty":"x"}`, `{} {}`, strings.Repeat("[", 20_000)} {
		requests = append(requests, order(0, body))
	}
	for _, r := range requests {
		got := r.send(quiet(failing))
		if r.status != 0 && got.status != r.status {
			t.Errorf("%v: status %d, want %d", r, got.status, r.status)
		}
		text := fmt.Sprint(got.header) + got.body
		for _, leak := range append(leaks, "ord_secret") {
			if strings.Contains(text, leak) {
				t.Errorf("%v %.40s: the response has %q in it: %s", r, r.body, leak, text)
			}
		}
	}
}

func TestLogging(t *testing.T) {
	type line struct{ Level, Incident, Method, Route, Error string }
	stub := func(err error) Store {
		return &stubStore{
			getProduct:  func(context.Context, string) (Resource, error) { return Resource{}, err },
			createOrder: func(context.Context, IdempotencyKey, Order) (Order, error) { return Order{}, err },
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	const product = "GET /v1/products/{product_id}"
	for _, row := range []struct {
		name   string
		ctx    context.Context
		method string
		target string
		err    error
		want   []line
	}{
		{"an unknown failure is an error", t.Context(), "GET", "/v1/products/p", errors.New("disk full"), []line{{"ERROR", "", "GET", product, "disk full"}}},
		{"the zero Resource is an error", t.Context(), "GET", "/v1/products/p", nil, []line{{"ERROR", "", "GET", product, "GetProduct broke its contract: it returned the zero Resource"}}},
		{"an order without ID is an error", t.Context(), "POST", "/v1/orders", nil, []line{{"ERROR", "", "POST", "POST /v1/orders", "CreateOrder broke its contract: it returned an order without ID"}}},
		{"an unavailable store is a warning", t.Context(), "GET", "/v1/products/p", fmt.Errorf("failover: %w", ErrUnavailable), []line{{"WARN", "", "GET", product, "failover: " + ErrUnavailable.Error()}}},
		{"a deadline is a warning", t.Context(), "GET", "/v1/products/p", context.DeadlineExceeded, []line{{"WARN", "", "GET", product, "context deadline exceeded"}}},
		{"an unavailable store of orders is a warning", t.Context(), "POST", "/v1/orders", ErrUnavailable, []line{{"WARN", "", "POST", "POST /v1/orders", ErrUnavailable.Error()}}},
		{"a product that is not there is nothing", t.Context(), "GET", "/v1/products/p", ErrNotFound, nil},
		{"a reused key is nothing", t.Context(), "POST", "/v1/orders", ErrKeyReused, nil},
		{"a key in progress is nothing", t.Context(), "POST", "/v1/orders", ErrInProgress, nil},
		{"an unknown path is nothing", t.Context(), "GET", "/nowhere", nil, nil},
		{"a client that went away is nothing", gone, "GET", "/v1/products/p", fmt.Errorf("query: %w", context.Canceled), nil},
		{"a store that fails while the client goes away is an error", gone, "GET", "/v1/products/p", errors.New("disk full"), []line{{"ERROR", "", "GET", product, "disk full"}}},
		{"a cancellation that is not the client's is an error", t.Context(), "GET", "/v1/products/p", context.Canceled, []line{{"ERROR", "", "GET", product, "context canceled"}}},
		{"an unknown method is information", t.Context(), "BREW", "/v1/users", nil, []line{{"INFO", "", "BREW", "/v1/users", ""}}},
		{"an unknown method of an unknown path is information", t.Context(), "BREW", "/v1//users", nil, []line{{"INFO", "", "BREW", "/", ""}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var log bytes.Buffer
			h := NewWithOptions(stub(row.err), &Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
			r := httptest.NewRequestWithContext(row.ctx, row.method, row.target, strings.NewReader(goodOrder))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			var p Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			var got []line
			for dec := json.NewDecoder(&log); dec.More(); {
				var l line
				if err := dec.Decode(&l); err != nil {
					t.Fatal(err)
				}
				if l.Incident != p.Instance {
					t.Errorf("the log has the incident %s, the response %s", l.Incident, p.Instance)
				}
				l.Incident = ""
				got = append(got, l)
			}
			if diff := difference(row.want, got); diff != "" {
				t.Errorf("log lines, -want +got:\n%s", diff)
			}
		})
	}
}

func TestKeysAndBodiesAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	store := &stubStore{createOrder: func(context.Context, IdempotencyKey, Order) (Order, error) { return Order{}, errors.New("disk full") }}
	h := NewWithOptions(store, &Options{Logger: logger})
	postOrder(h, "sesame", `{"item":"diary","qty":1}`, "Authorization: Bearer topsecret").wantProblem(t, 500, "internal-error")
	for _, private := range []string{"sesame", "diary", "topsecret"} {
		if strings.Contains(log.String(), private) {
			t.Errorf("%q is in the log: %s", private, &log)
		}
	}
}

func TestNilLoggerIsTheDefaultOfThatTime(t *testing.T) {
	h := New(new(MemStore))
	before := slog.Default()
	defer slog.SetDefault(before)
	for range 2 {
		var log bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		p := send(h, "BREW", "/", "").wantProblem(t, 501, "not-implemented")
		if !strings.Contains(log.String(), p.Instance) {
			t.Errorf("the default logger that was set after New has %q, want the incident %s", &log, p.Instance)
		}
	}
}

func TestEveryResponse(t *testing.T) {
	for _, r := range trials() {
		t.Run(r.String(), func(t *testing.T) {
			got := r.send(quiet(newTrialStore()))
			if got.status != r.status {
				t.Fatalf("status %d, want %d: %s", got.status, r.status, got.body)
			}
			wantLength, wantType, wantOptions := []string{strconv.Itoa(len(got.body))}, []string{"application/json"}, []string{"nosniff"}
			switch {
			case r.status == 204 || r.status == 304:
				if got.body != "" {
					t.Errorf("%d with the body %q", r.status, got.body)
				}
				wantLength, wantType, wantOptions = nil, nil, nil
			case r.status >= 400:
				wantType = []string{"application/problem+json"}
			}
			if v := got.header["X-Content-Type-Options"]; !slices.Equal(v, wantOptions) {
				t.Errorf("X-Content-Type-Options: %q, want %q", v, wantOptions)
			}
			if v := got.header["Content-Length"]; !slices.Equal(v, wantLength) {
				t.Errorf("Content-Length: %q, want %q", v, wantLength)
			}
			if v := got.header["Content-Type"]; !slices.Equal(v, wantType) {
				t.Errorf("Content-Type: %q, want %q", v, wantType)
			}
			if v := got.header["Cache-Control"]; (r.status >= 400 || r.method == "POST") && !slices.Equal(v, []string{"no-store"}) {
				t.Errorf("Cache-Control: %q, want no-store", v)
			}
			if v, ok := got.header["Allow"]; ok != (r.status == 405 || r.status == 204) {
				t.Errorf("Allow: %q with status %d", v, r.status)
			}
			if v, ok := got.header["Retry-After"]; ok != (r.status == 503 || r.status == 409) {
				t.Errorf("Retry-After: %q with status %d", v, r.status)
			}
		})
	}
}

func TestHeadHasTheHeadersOfGetAndNoBody(t *testing.T) {
	for _, r := range trials() {
		if r.method != "GET" || r.target == "/v1/orders" {
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			h := quiet(newTrialStore())
			want := r.send(h)
			r.method = "HEAD"
			got := r.send(h)
			if got.body != "" {
				t.Errorf("HEAD has the body %q", got.body)
			}
			want.body = ""
			if diff := want.diff(got); diff != "" {
				t.Errorf("-GET +HEAD:\n%s", diff)
			}
		})
	}
}

func TestMethods(t *testing.T) {
	const reads, writes = "GET, HEAD, OPTIONS", "POST, OPTIONS"
	routes := []struct{ path, allow string }{
		{"/v1/users", reads},
		{"/v1/orders", writes},
		{"/v1/products/a", reads},
		{"/v1/products/none", reads},
		{"/v1/products/x%2Fy", reads},
		{"/v2/widgets", reads},
		{"/openapi.json", reads},
	}
	methods := []string{"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE"}
	h := quiet(newTrialStore())
	for _, route := range routes {
		for _, method := range methods {
			t.Run(method+route.path, func(t *testing.T) {
				r := httptest.NewRequest("GET", route.path, nil)
				r.Method = method
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				got := response{w.Code, w.Header(), w.Body.String()}
				known := slices.Contains(strings.Split(route.allow, ", "), method)
				switch {
				case method == "OPTIONS":
					want := response{204, http.Header{"Allow": {route.allow}}, ""}
					if diff := want.diff(got); diff != "" {
						t.Errorf("-want +got:\n%s", diff)
					}
				case known:
					if got.status == 405 || got.status == 501 {
						t.Errorf("status %d, but the method is in %s", got.status, route.allow)
					}
				default:
					if got.status != 405 || !slices.Equal(got.header["Allow"], []string{route.allow}) {
						t.Errorf("status %d, Allow: %q, want 405 with %s", got.status, got.header["Allow"], route.allow)
					}
					if method != "HEAD" {
						got.wantProblem(t, 405, "method-not-allowed")
					} else if got.body != "" {
						t.Errorf("HEAD has the body %q", got.body)
					}
				}
			})
		}
	}
}

func TestUnknownMethodIsNotImplemented(t *testing.T) {
	h := quiet(new(MemStore))
	for _, method := range []string{"get", "Get", "head", "post", "options", "BREW", "PROPFIND", "QUERY", "PURGE", "GETX", "GE", "G", "!", "M-SEARCH"} {
		for _, target := range []string{"/v1/users", "/v1/orders", "/v1/products/p", "/openapi.json", "/", "/nowhere", "/v1//users", "/v1/users?x"} {
			got := send(h, method, target, "")
			got.wantProblem(t, 501, "not-implemented")
			if allow, ok := got.header["Allow"]; ok {
				t.Errorf("%s %s: Allow: %q with 501", method, target, allow)
			}
		}
	}
}

func TestPathsThatAreNotThere(t *testing.T) {
	targets := []struct{ path, why string }{
		{"/", "root"},
		{"/v1", "version alone"},
		{"/v1/", "version with slash"},
		{"/v2", "version alone"},
		{"/v1/user", "unknown"},
		{"/v1/userss", "unknown"},
		{"/V1/users", "case counts"},
		{"/v1/Users", "case counts"},
		{"/OpenAPI.json", "case counts"},
		{"/v1/widgets", "another version's"},
		{"/v2/users", "another version's"},
		{"/v2/orders", "another version's"},
		{"/v2/products/a", "another version's"},
		{"/v0/users", "unknown version"},
		{"/v3/widgets", "unknown version"},
		{"/v10/users", "unknown version"},
		{"/users", "no version"},
		{"/openapi", "unknown"},
		{"/openapi.yaml", "unknown"},
		{"/v1/users/", "trailing slash"},
		{"/v1/orders/", "trailing slash"},
		{"/v1/products", "no ID"},
		{"/v1/products/", "no ID"},
		{"/v1/products/a/", "trailing slash"},
		{"/v1/products/a/b", "two segments"},
		{"/v2/widgets/", "trailing slash"},
		{"/openapi.json/", "trailing slash"},
		{"//", "empty segment"},
		{"///", "empty segments"},
		{"//v1/users", "empty segment"},
		{"/v1//users", "empty segment"},
		{"/v1/users//", "empty segment"},
		{"/v1/products//a", "empty segment"},
		{"/v1/products//", "empty segment"},
		{"/.", "dot segment"},
		{"/..", "dot segment"},
		{"/./v1/users", "dot segment"},
		{"/../v1/users", "dot segment"},
		{"/v1/./users", "dot segment"},
		{"/v1/../v1/users", "dot segment"},
		{"/v1/users/.", "dot segment"},
		{"/v1/users/..", "dot segment"},
		{"/v1/products/.", "dot segment"},
		{"/v1/products/..", "dot segment"},
		{"/v1/products/a/.", "dot segment"},
		{"/v1/products/x%2Fy/../a", "dot segment beside an escaped slash"},
		{"/v1/products/x%2Fy//", "empty segment beside an escaped slash"},
		{"/v1/products/x%2Fy/", "trailing slash beside an escaped slash"},
		{"/%2e", "escaped dot segment"},
		{"/%2e%2e/v1/users", "escaped dot segment"},
		{"/v1/%2e/users", "escaped dot segment"},
		{"/v1/%2E%2E/v1/users", "escaped dot segment"},
		{"/v1/users/%2e", "escaped dot segment"},
		{"/v1/products/%2e", "escaped dot segment as an ID"},
		{"/v1/products/%2e%2e", "escaped dot segment as an ID"},
		{"/v1/products/a/%2e%2e/b", "escaped dot segment"},
		{"/v1/products/.%2e", "escaped dot segment as an ID"},
		{"/v1%2Fusers", "an escaped slash separates nothing"},
		{"/v1%2fproducts%2fa", "an escaped slash separates nothing"},
		{"/%2Fv1/users", "an escaped slash separates nothing"},
		{"/v1/users%2F", "an escaped slash separates nothing"},
		{"/v1/users%20", "trailing space"},
		{"/v1/users%00", "trailing NUL"},
		{"/v1/users;a=b", "matrix parameter"},
		{"/v1/{product_id}", "a pattern's own text"},
		{"/{$}", "a pattern's own text"},
		{`/v1\users`, "backslash"},
		{"/http://example.com/v1/users", "a URL in a path"},
	}
	h := quiet(newTrialStore())
	server := listen(t, h)
	for _, row := range targets {
		t.Run(row.path+" "+row.why, func(t *testing.T) {
			methods := []string{"GET", "HEAD", "POST", "OPTIONS", "DELETE", "CONNECT"}
			if strings.Contains(row.why, "as an ID") {
				methods = methods[:2] // of a product that no store has the others are those of any product
			}
			for _, method := range methods {
				u, err := url.ParseRequestURI(row.path)
				if err != nil {
					t.Fatal(err)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, &http.Request{Method: method, URL: u, Host: "example.com", Header: http.Header{}, RequestURI: row.path})
				wantNothingThere(t, method, response{w.Code, w.Header(), w.Body.String()})
			}
			conn := dial(t, server)
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: example.com\r\n\r\n", row.path)
			wantNothingThere(t, "GET", conn.receive(t, "GET"))
		})
	}
}

// wantNothingThere checks that the response is the one for an unknown path, or
// for a product that no store has.
func wantNothingThere(t *testing.T, method string, r response) {
	t.Helper()
	if location, ok := r.header["Location"]; ok {
		t.Errorf("%s: Location: %s", method, location)
	}
	if method == "HEAD" {
		if r.status != 404 || r.body != "" {
			t.Errorf("%s: status %d and body %q, want 404 and none", method, r.status, r.body)
		}
		return
	}
	code := "not-found"
	if strings.Contains(r.body, "product-not-found") {
		code = "product-not-found"
	}
	r.wantProblem(t, 404, code)
}

// Such requests come from no server; a test or a middleware can make them.
func TestHandMadeURLs(t *testing.T) {
	h := quiet(newTrialStore())
	for _, row := range []struct {
		name string
		url  url.URL
		want int
	}{
		{"empty path", url.URL{}, 404},
		{"asterisk", url.URL{Path: "*"}, 404},
		{"no leading slash", url.URL{Path: "v1/users"}, 404},
		{"dot alone", url.URL{Path: "."}, 404},
		{"authority alone, as of CONNECT", url.URL{Host: "example.com:443"}, 404},
		{"opaque", url.URL{Scheme: "mailto", Opaque: "v1/users"}, 404},
		{"absolute", url.URL{Scheme: "https", Host: "example.com", Path: "/v1/users"}, 200},
		{"absolute without path", url.URL{Scheme: "https", Host: "example.com"}, 404},
		{"RawPath says the same", url.URL{Path: "/v1/users", RawPath: "/v1/users"}, 200},
		{"RawPath says another path", url.URL{Path: "/v1/users", RawPath: "/v2/widgets"}, 200},
		{"RawPath says an unclean path", url.URL{Path: "/v1/users", RawPath: "/v1//users"}, 200},
		{"RawPath hides an unclean path", url.URL{Path: "/v1//users", RawPath: "/v1/users"}, 404},
		{"RawPath hides a dot segment", url.URL{Path: "/v1/products/../users", RawPath: "/v1/users"}, 404},
		{"RawPath is not an encoding", url.URL{Path: "/v1/users", RawPath: "/v1/%zz"}, 200},
		{"RawPath is relative", url.URL{Path: "/v1/users", RawPath: "v1/users"}, 200},
		{"Path is relative and RawPath is not", url.URL{Path: "v1/users", RawPath: "/v1/users"}, 404},
		{"RawPath escapes what need not be", url.URL{Path: "/v1/users", RawPath: "/v1/%75sers"}, 200},
		{"RawPath escapes a slash", url.URL{Path: "/v1/products/x/y", RawPath: "/v1/products/x%2Fy"}, 200},
		{"RawPath lost the escaped slash", url.URL{Path: "/v1/products/x/y"}, 404},
		{"Path has a question mark", url.URL{Path: "/v1/users?limit=1"}, 404},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, method := range []string{"GET", "CONNECT"} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, &http.Request{Method: method, URL: &row.url, Header: http.Header{}})
				got := response{w.Code, w.Header(), w.Body.String()}
				switch {
				case row.want == 404:
					wantNothingThere(t, method, got)
				case method == "CONNECT":
					got.wantProblem(t, 405, "method-not-allowed")
				case got.status != row.want:
					t.Errorf("%s: status %d, want %d: %s", method, got.status, row.want, got.body)
				}
			}
		})
	}
}

func TestAsteriskOfOptionsIsNotAPath(t *testing.T) {
	r := httptest.NewRequest("OPTIONS", "*", nil)
	w := httptest.NewRecorder()
	New(new(MemStore)).ServeHTTP(w, r)
	response{w.Code, w.Header(), w.Body.String()}.wantProblem(t, 404, "not-found")
}

func TestProductIDsInPaths(t *testing.T) {
	var store MemStore
	server := listen(t, New(&store))
	for _, id := range []string{
		"p", "x/y", "//", "/x", "x/", "a/../b", "../a", "a/.", "...", ".a", "a.", "a.json",
		"a b", " ", "%", "%2F", "%2e", "100%", "+", "a+b", "a;b", "a?b", "a#b", "a&b=c", "a:b", "a@b", "{product_id}",
		`a\b`, `"`, "'", "<&>", "~", "*", "ä", "a\u0308", "日本語", "😀", "\u00a0", "\u2028", "\u200b", "\ufeff",
		strings.Repeat("x", 255), strings.Repeat("é", 127),
	} {
		t.Run(id, func(t *testing.T) {
			store.Products.Put(MustResource(id, nil))
			want := MustResource(id, nil).String()
			target := "/v1/products/" + url.PathEscape(id)
			if got := get(New(&store), target); got.status != 200 || got.body != want {
				t.Errorf("GET %s: %d %s, want %s", target, got.status, got.body, want)
			}
			conn := dial(t, server)
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: example.com\r\n\r\n", target)
			if got := conn.receive(t, "GET"); got.status != 200 || got.body != want {
				t.Errorf("GET %s over a socket: %d %s, want %s", target, got.status, got.body, want)
			}
		})
	}
}

// The stub panics if it is asked.
func TestStoreIsNotAskedForIDsThatNoProductCanHave(t *testing.T) {
	h := New(new(stubStore))
	for _, row := range []struct{ escaped, why string }{
		{"%ff", "not UTF-8"},
		{"a%c3", "truncated UTF-8"},
		{"%c0%af", "overlong UTF-8"},
		{"%ed%a0%80", "a surrogate"},
		{"%f4%90%80%80", "above U+10FFFF"},
		{"%00", "NUL"},
		{"a%0Ab", "line feed"},
		{"a%0D", "carriage return"},
		{"%09", "tab"},
		{"%1f", "C0 control"},
		{"%7f", "DEL"},
		{"%c2%85", "C1 control"},
		{"%ef%bf%bf", "a noncharacter"},
		{strings.Repeat("x", 256), "256 bytes"},
		{strings.Repeat("%C3%A9", 128), "256 bytes in 128 characters"},
		{strings.Repeat("x", 100_000), "long"},
	} {
		t.Run(row.why, func(t *testing.T) {
			get(h, "/v1/products/"+row.escaped).wantProblem(t, 404, "product-not-found")
			get(h, "/v1/products/"+row.escaped, "Cache-Control: max-age=60").wantProblem(t, 404, "product-not-found")
		})
	}
}

func TestMountPointDoesNotShow(t *testing.T) {
	store := newTrialStore()
	mux := http.NewServeMux()
	mux.Handle("/", quiet(store))
	mux.Handle("/shop/", http.StripPrefix("/shop", quiet(store)))
	mux.Handle("other.example/", quiet(store))
	for _, mount := range []struct {
		name, prefix string
		handler      http.Handler
	}{
		{"a prefix", "/shop", http.StripPrefix("/shop", quiet(store))},
		{"a deep prefix", "/a/b/c", http.StripPrefix("/a/b/c", quiet(store))},
		{"the name of a version", "/v1", http.StripPrefix("/v1", quiet(store))},
		{"no prefix", "", http.StripPrefix("", quiet(store))},
		{"twice", "/a/b", http.StripPrefix("/a", http.StripPrefix("/b", quiet(store)))},
		{"a ServeMux", "", mux},
		{"a ServeMux and a prefix", "/shop", mux},
		{"a ServeMux with a host", "http://other.example", mux},
	} {
		t.Run(mount.name, func(t *testing.T) {
			for _, r := range trials() {
				want := r.send(quiet(store))
				r.target = mount.prefix + r.target
				if diff := want.diff(r.send(mount.handler)); diff != "" {
					t.Errorf("%v, -unmounted +mounted:\n%s", r, diff)
				}
			}
		})
	}
}

func TestHostAndForwardingHeadersDoNotShow(t *testing.T) {
	h := quiet(newTrialStore())
	for _, row := range []struct{ host, line string }{
		{"", "X-Nothing: 1"},
		{"other.example:8443", "X-Nothing: 1"},
		{"[::1]:80", "X-Nothing: 1"},
		{"bad host/..", "X-Nothing: 1"},
		{"example.com", "X-Forwarded-Host: other.example"},
		{"example.com", "X-Forwarded-Proto: https"},
		{"example.com", "X-Forwarded-Prefix: /shop"},
		{"example.com", "X-Forwarded-For: 10.0.0.7"},
		{"example.com", "Forwarded: for=10.0.0.7;host=other.example;proto=https"},
		{"example.com", "X-Original-Url: /v1/users"},
		{"example.com", "X-Rewrite-Url: /v1/users"},
		{"example.com", "X-Http-Method-Override: DELETE"},
		{"example.com", "Origin: https://other.example"},
		{"example.com", "Accept: text/html"},
		{"example.com", "Accept-Encoding: gzip"},
		{"example.com", "Range: bytes=0-1"},
	} {
		t.Run(row.host+" "+row.line, func(t *testing.T) {
			for _, r := range trials() {
				want := r.send(h)
				r.lines = append(slices.Clip(r.lines), row.line)
				outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.Host = row.host
					h.ServeHTTP(w, r)
				})
				if diff := want.diff(r.send(outer)); diff != "" {
					t.Errorf("%v, -want +got:\n%s", r, diff)
				}
			}
		})
	}
}

// A bareWriter has the methods of http.ResponseWriter and no other.
type bareWriter struct{ http.ResponseWriter }

func TestWriterNeedsOnlyThreeMethods(t *testing.T) {
	h := quiet(newTrialStore())
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(bareWriter{w}, r) })
	for _, r := range trials() {
		if diff := r.send(h).diff(r.send(bare)); diff != "" {
			t.Errorf("%v, -want +got:\n%s", r, diff)
		}
	}
}

// A meddlingWriter adds to, and then replaces, every header on its way out.
type meddlingWriter struct{ http.ResponseWriter }

func (w meddlingWriter) meddle() {
	h := w.Header()
	for _, name := range slices.Collect(maps.Keys(h)) {
		h.Add(name, "added")
		h.Add(name, "added")
	}
}

func (w meddlingWriter) WriteHeader(status int) {
	w.meddle()
	w.ResponseWriter.WriteHeader(status)
}

// Whatever middlewares do with the headers of a response, also at the same time,
// is not to be seen in another one.
func TestHeadersOfOneResponseAreNotThoseOfAnother(t *testing.T) {
	h := quiet(newTrialStore())
	var want []response
	for _, r := range trials() {
		want = append(want, r.send(h))
	}
	wrappers := map[string]http.HandlerFunc{
		"Add before": func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "Etag", "Allow", "X-Content-Type-Options", "Retry-After"} {
				w.Header().Add(name, "before")
			}
			h.ServeHTTP(w, r)
		},
		"Add at WriteHeader": func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(meddlingWriter{w}, r) },
		"Add after": func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			meddlingWriter{w}.meddle()
		},
		"Change in place after": func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			for _, values := range w.Header() {
				values[0] = "changed"
			}
		},
		"Set after": func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			for name := range w.Header() {
				w.Header().Set(name, "set")
				w.Header().Add(name, "added")
			}
		},
	}
	var wg sync.WaitGroup
	for _, wrapper := range wrappers {
		wg.Go(func() {
			for _, r := range trials() {
				r.send(wrapper)
			}
		})
	}
	wg.Wait()
	for i, r := range trials() {
		if diff := want[i].diff(r.send(h)); diff != "" {
			t.Errorf("%v after middlewares, -want +got:\n%s", r, diff)
		}
	}
}

func TestProductThatIsADotSegmentIsNotFound(t *testing.T) {
	var store MemStore
	store.Products.Put(MustResource(".", nil), MustResource("..", nil))
	for _, id := range []string{".", "..", "%2e", "%2E", "%2e%2e", ".%2E"} {
		get(New(&store), "/v1/products/"+id).wantProblem(t, http.StatusNotFound, "not-found")
	}
}

func TestPanicOfTheStoreIsAFailureOfTheStore(t *testing.T) {
	var log strings.Builder
	h := NewWithOptions(&stubStore{}, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, r := range []response{
		get(h, "/v1/users"),
		get(h, "/v1/products/p1"),
		get(h, "/v1/products/p1", "Cache-Control: max-age=60"),
		get(h, "/v2/widgets?limit=1"),
		postOrder(h, "k", `{"item":"teapot","qty":2}`),
	} {
		p := r.wantProblem(t, http.StatusInternalServerError, "internal-error")
		if !strings.Contains(log.String(), p.Instance) {
			t.Errorf("the log does not have %s", p.Instance)
		}
	}
	if n := strings.Count(log.String(), "the store panicked: "); n != 5 || !strings.Contains(log.String(), "shared_test.go") {
		t.Errorf("the log does not have five panics with their stacks:\n%s", log.String())
	}
}

func TestLogSaysWhatTheStorePanickedWith(t *testing.T) {
	for want, value := range map[string]any{
		"an error":      errors.New("an error"),
		"a text":        "a text",
		"42":            42,
		"1m0s":          time.Minute, // a Stringer
		"a struct {}":   struct{}{},
		"a *fs.PathErr": (*fs.PathError)(nil),
	} {
		var log strings.Builder
		h := NewWithOptions(&stubStore{listUsers: func(context.Context, string, int) ([]Resource, error) { panic(value) }},
			&Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		get(h, "/v1/users").wantProblem(t, http.StatusInternalServerError, "internal-error")
		if !strings.Contains(log.String(), "the store panicked: "+want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
}

func TestLogOfAnUnknownMethodIsShort(t *testing.T) {
	var log strings.Builder
	h := NewWithOptions(new(MemStore), &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	send(h, strings.Repeat("M", 100_000), "/v1/users", "").wantProblem(t, http.StatusNotImplemented, "not-implemented")
	if log.Len() > 1000 {
		t.Errorf("the log has %d bytes", log.Len())
	}
}

func TestAddToOneResponseLeavesAnotherAlone(t *testing.T) {
	h := quiet(newTrialStore())
	for _, r := range trials() {
		var headers [2]http.Header
		for i := range headers {
			outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r)
				headers[i] = w.Header()
			})
			r.send(outer)
		}
		for name := range headers[0] {
			headers[0].Add(name, "one")
			headers[1].Add(name, "two")
			if got := headers[0][name]; got[len(got)-1] != "one" {
				t.Errorf("%v: what was added to %s of the first response is now %q", r, name, got)
			}
		}
	}
}

// What a middleware has set for another purpose stays; what is the service's to
// say, it says alone.
func TestLinkIsAddedToThatOfAWrapper(t *testing.T) {
	h := quiet(newTrialStore())
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</help>; rel=help")
		h.ServeHTTP(w, r)
	})
	got := get(outer, "/v1/users?limit=1").header["Link"]
	if len(got) != 2 || got[0] != "</help>; rel=help" || !strings.HasSuffix(got[1], `; rel="next"`) {
		t.Errorf("Link %q, want both", got)
	}
}

// An addingWriter adds to every header as it is written.
type addingWriter struct{ *httptest.ResponseRecorder }

func (w addingWriter) WriteHeader(status int) {
	for name := range w.Header() {
		w.Header().Add(name, "added")
	}
	w.ResponseRecorder.WriteHeader(status)
}

func TestAddToOneHeaderLeavesTheOthersAlone(t *testing.T) {
	for _, r := range trials() {
		want := r.send(quiet(newTrialStore()))
		w := addingWriter{httptest.NewRecorder()}
		quiet(newTrialStore()).ServeHTTP(w, newRequest(r.method, r.target, r.body, r.lines...))
		for name, values := range want.header {
			if got := w.Header()[name]; !slices.Equal(got, append(slices.Clip(values), "added")) {
				t.Errorf("%v: %s is %q, want %q and what was added", r, name, got, values)
			}
		}
	}
}

func TestHeadersOfMiddlewares(t *testing.T) {
	h := quiet(newTrialStore())
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=9")
		w.Header().Set("X-Content-Type-Options", "other")
		w.Header().Set("Cache-Control", "public")
		h.ServeHTTP(w, r)
	})
	for _, r := range trials() {
		if r.method == "OPTIONS" {
			continue
		}
		want := r.send(h)
		want.header.Set("Strict-Transport-Security", "max-age=9")
		if r.status == http.StatusNotModified { // without a body, that is nothing of the service's
			want.header.Set("X-Content-Type-Options", "other")
		}
		if diff := want.diff(r.send(outer)); diff != "" {
			t.Errorf("%v, -want +got:\n%s", r, diff)
		}
	}
}

func TestConstruction(t *testing.T) {
	for _, row := range []struct {
		name   string
		make   func() http.Handler
		panics bool
	}{
		{"New of nil", func() http.Handler { return New(nil) }, true},
		{"NewWithOptions of nil", func() http.Handler { return NewWithOptions(nil, new(Options)) }, true},
		{"nil options", func() http.Handler { return NewWithOptions(new(MemStore), nil) }, false},
		{"zero options", func() http.Handler { return NewWithOptions(new(MemStore), new(Options)) }, false},
		{"PageSize 1", func() http.Handler { return NewWithOptions(new(MemStore), &Options{PageSize: 1}) }, false},
		{"PageSize -1", func() http.Handler { return NewWithOptions(new(MemStore), &Options{PageSize: -1}) }, true},
		{"PageSize above the default MaxPageSize", func() http.Handler { return NewWithOptions(new(MemStore), &Options{PageSize: 501}) }, true},
		{"PageSize at MaxPageSize", func() http.Handler { return NewWithOptions(new(MemStore), &Options{PageSize: 7, MaxPageSize: 7}) }, false},
		{"PageSize above MaxPageSize", func() http.Handler { return NewWithOptions(new(MemStore), &Options{PageSize: 8, MaxPageSize: 7}) }, true},
		{"MaxPageSize below the default PageSize", func() http.Handler { return NewWithOptions(new(MemStore), &Options{MaxPageSize: 7}) }, false},
		{"MaxPageSize -1", func() http.Handler { return NewWithOptions(new(MemStore), &Options{MaxPageSize: -1}) }, true},
		{"MaxPageSize 1,000,000", func() http.Handler { return NewWithOptions(new(MemStore), &Options{MaxPageSize: 1_000_000}) }, false},
		{"MaxPageSize 1,000,001", func() http.Handler { return NewWithOptions(new(MemStore), &Options{MaxPageSize: 1_000_001}) }, true},
		{"MaxAge and CacheSize negative", func() http.Handler { return NewWithOptions(new(MemStore), &Options{MaxAge: -1, CacheSize: -1}) }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			defer func() {
				v := recover()
				text, _ := v.(string)
				if (v != nil) != row.panics || v != nil && !strings.HasPrefix(text, "storefront: ") {
					t.Errorf("panic %v, want one: %t", v, row.panics)
				}
			}()
			if row.make() == nil {
				t.Error("the handler is nil")
			}
		})
	}
}

func TestZeroOptionsAreTheDocumentedDefaults(t *testing.T) {
	var limits []int
	store := &stubStore{listUsers: func(_ context.Context, _ string, limit int) ([]Resource, error) {
		limits = append(limits, limit)
		return nil, nil
	}}
	for _, h := range []http.Handler{New(store), NewWithOptions(store, nil), NewWithOptions(store, new(Options))} {
		limits = nil
		if got := get(h, "/v1/users").header.Get("Cache-Control"); got != "private, max-age=60" {
			t.Errorf("Cache-Control: %s, want private, max-age=60", got)
		}
		get(h, "/v1/users?limit=500")
		if !slices.Equal(limits, []int{51, 501}) { // one more says whether more follow
			t.Errorf("the store was asked for %d, want 51 and 501", limits)
		}
		get(h, "/v1/users?limit=501").wantProblem(t, 400, "invalid-query")
	}
}

func TestOptionsAreCopied(t *testing.T) {
	store := newTrialStore()
	var log bytes.Buffer
	scoped := 0
	given := Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), PageSize: 2, MaxPageSize: 3, MaxAge: 5 * time.Second,
		Scope: func(*http.Request) string { scoped++; return "" },
	}
	opts := given
	h := NewWithOptions(store, &opts)
	if opts.PageSize != 2 || opts.MaxPageSize != 3 || opts.CacheSize != 0 || opts.Shared {
		t.Errorf("NewWithOptions has changed the options to %+v", opts)
	}
	opts = Options{Logger: slog.New(slog.DiscardHandler), PageSize: 1, MaxPageSize: 1, MaxAge: -1, Shared: true, CacheSize: -1}

	users := get(h, "/v1/users")
	if strings.Count(users.body, `"id"`) != 2 {
		t.Errorf("the page has not the 2 users of the options that were given: %s", users.body)
	}
	if got := users.header.Get("Cache-Control"); got != "private, max-age=5" {
		t.Errorf("Cache-Control: %s, want that of the options that were given", got)
	}
	if got := get(h, "/v1/users?limit=3").status; got != 200 {
		t.Errorf("limit=3: status %d, want 200", got)
	}
	postOrder(h, "k", goodOrder)
	if scoped == 0 {
		t.Error("Scope was not called")
	}
	send(h, "BREW", "/", "")
	if log.Len() == 0 {
		t.Error("the Logger that was given was not used")
	}
}

func TestHandlersShareNothing(t *testing.T) {
	var one, two MemStore
	one.Products.Put(MustResource("p", map[string]any{"of": "one"}))
	two.Products.Put(MustResource("p", map[string]any{"of": "two"}))
	h1 := NewWithOptions(&one, &Options{MaxAge: time.Hour, MaxPageSize: 10, PageSize: 10})
	h2 := NewWithOptions(&two, &Options{MaxAge: time.Second, Shared: true})
	for range 2 {
		for _, h := range []struct {
			http.Handler
			product, cacheControl string
		}{
			{h1, `{"id":"p","of":"one"}`, "private, max-age=3600"},
			{h2, `{"id":"p","of":"two"}`, "max-age=1"},
		} {
			got := get(h, "/v1/products/p", "Cache-Control: max-age=1")
			if got.body != h.product || got.header.Get("Cache-Control") != h.cacheControl {
				t.Errorf("got %s with Cache-Control %s, want %s with %s", got.body, got.header.Get("Cache-Control"), h.product, h.cacheControl)
			}
		}
	}
	get(h1, "/v1/users?limit=11").wantProblem(t, 400, "invalid-query")
	if got := get(h2, "/v1/users?limit=11").status; got != 200 {
		t.Errorf("limit=11 of the other handler: status %d, want 200", got)
	}
	for _, h := range []http.Handler{h1, h2} {
		if got := postOrder(h, "k", goodOrder); got.status != 201 || got.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("status %d and header %v, want an order that is not a replay", got.status, got.header)
		}
	}
	if len(one.Orders()) != 1 || len(two.Orders()) != 1 {
		t.Errorf("the stores have %d and %d orders, want one each", len(one.Orders()), len(two.Orders()))
	}
}

// At its end a bubble must have no goroutine but the test's own.
func TestNoGoroutineIsLeft(t *testing.T) {
	t.Run("after New", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { New(new(MemStore)) })
	})
	t.Run("after requests", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := NewWithOptions(newTrialStore(), &Options{Logger: slog.New(slog.DiscardHandler)})
			for _, r := range trials() {
				r.lines = append(slices.Clip(r.lines), "Cache-Control: max-age=60, stale-if-error=60")
				r.send(h)
			}
		})
	})
	t.Run("after requests that were cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			untilDone := func(ctx context.Context) ([]Resource, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			h := New(&stubStore{
				listUsers:   func(ctx context.Context, _ string, _ int) ([]Resource, error) { return untilDone(ctx) },
				listWidgets: func(ctx context.Context, _ string, _ int) ([]Resource, error) { return untilDone(ctx) },
				getProduct: func(ctx context.Context, _ string) (Resource, error) {
					_, err := untilDone(ctx)
					return Resource{}, err
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for _, target := range []string{"/v1/users", "/v2/widgets?limit=1", "/v1/products/p", "/v1/products/p", "/v1/products/q"} {
				for _, line := range []string{"", "max-age=60", "no-cache"} {
					wg.Go(func() {
						r := httptest.NewRequestWithContext(ctx, "GET", target, nil)
						r.Header.Set("Cache-Control", line)
						h.ServeHTTP(httptest.NewRecorder(), r)
					})
				}
			}
			synctest.Wait()
			cancel()
			wg.Wait()
		})
	})
}

// A rawConn is a client's side of a connection, for what http.Client does not
// send.
type rawConn struct {
	net.Conn
	in *bufio.Reader
}

// listen serves h until the test is over and its connections are closed.
func listen(t *testing.T, h http.Handler) *httptest.Server {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func dial(t *testing.T, server *httptest.Server) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &rawConn{conn, bufio.NewReader(conn)}
}

// receive reads one response, an interim one included.
func (c *rawConn) receive(t *testing.T, method string) response {
	t.Helper()
	result, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(result.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{result.StatusCode, result.Header, string(body)}
}

func TestResponsesOverASocketAreThoseOfTheHandler(t *testing.T) {
	h := quiet(newTrialStore())
	server := listen(t, h)
	for _, r := range trials() {
		conn := dial(t, server)
		head := r.method + " " + r.target + " HTTP/1.1\r\nHost: example.com\r\n"
		for _, line := range r.lines {
			head += line + "\r\n"
		}
		fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", head, len(r.body), r.body)
		got := conn.receive(t, r.method)
		for _, name := range []string{"Date", "Connection"} {
			got.header.Del(name)
		}
		if diff := r.send(h).diff(got); diff != "" {
			t.Errorf("%v, -handler +socket:\n%s", r, diff)
		}
	}
}

func TestConnectionIsKeptAlive(t *testing.T) {
	server := listen(t, quiet(newTrialStore()))
	first := true
	for _, r := range trials() {
		if r.status == 413 { // the server closes it, as the body was not read
			continue
		}
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if info.Reused == first {
				t.Errorf("%v: the connection is used again: %t", r, info.Reused)
			}
		}})
		request, err := http.NewRequestWithContext(ctx, r.method, server.URL+r.target, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range r.lines {
			name, value, _ := strings.Cut(line, ": ")
			request.Header.Add(name, value)
		}
		result, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, result.Body); err != nil {
			t.Fatal(err)
		}
		result.Body.Close()
		first = false
	}
}

func TestOrdersOverASocket(t *testing.T) {
	const head = "POST /v1/orders HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n"
	chunks := func(body string) string {
		var b strings.Builder
		for c := range strings.SplitSeq(body, "") {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(c), c)
		}
		return b.String() + "0\r\n\r\n"
	}
	t.Run("chunked", func(t *testing.T) {
		server := listen(t, New(new(MemStore)))
		conn := dial(t, server)
		fmt.Fprint(conn, head+"Transfer-Encoding: chunked\r\n\r\n"+chunks(goodOrder))
		first := conn.receive(t, "POST")
		fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", head, len(goodOrder), goodOrder)
		again := conn.receive(t, "POST")
		if first.status != 201 || again.status != 201 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("chunked %d %s, with a length %d %s: want the same order", first.status, first.body, again.status, again.body)
		}
	})
	t.Run("chunked and too large", func(t *testing.T) {
		server := listen(t, New(new(MemStore)))
		conn := dial(t, server)
		fmt.Fprintf(conn, "%sTransfer-Encoding: chunked\r\n\r\n10001\r\n%s\r\n0\r\n\r\n", head, strings.Repeat(" ", 0x10001))
		conn.receive(t, "POST").wantProblem(t, 413, "body-too-large")
	})
	t.Run("chunked and malformed", func(t *testing.T) {
		server := listen(t, New(new(MemStore)))
		conn := dial(t, server)
		fmt.Fprint(conn, head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
		conn.receive(t, "POST").wantProblem(t, 400, "malformed-body")
	})
	t.Run("cut off", func(t *testing.T) {
		var store MemStore
		server := listen(t, New(&store))
		conn := dial(t, server)
		fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", head, len(goodOrder)+1, goodOrder)
		conn.Conn.(*net.TCPConn).CloseWrite()
		conn.receive(t, "POST").wantProblem(t, 400, "malformed-body")
		if orders := store.Orders(); len(orders) > 0 {
			t.Errorf("a body that did not arrive has made the orders %v", orders)
		}
	})
	t.Run("the body is asked for", func(t *testing.T) {
		server := listen(t, New(new(MemStore)))
		conn := dial(t, server)
		fmt.Fprintf(conn, "%sExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", head, len(goodOrder))
		if got := conn.receive(t, "POST"); got.status != 100 {
			t.Fatalf("status %d, want 100", got.status)
		}
		fmt.Fprint(conn, goodOrder)
		if got := conn.receive(t, "POST"); got.status != 201 {
			t.Errorf("status %d, want 201: %s", got.status, got.body)
		}
	})
	for _, row := range []struct {
		name, head string
		status     int
		code       string
	}{
		{"media type", "POST /v1/orders HTTP/1.1\r\nContent-Type: text/plain\r\nIdempotency-Key: k\r\nContent-Length: 9", 415, "unsupported-media-type"},
		{"key", "POST /v1/orders HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9", 400, "idempotency-key-missing"},
		{"declared size", "POST /v1/orders HTTP/1.1\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\nContent-Length: 65537", 413, "body-too-large"},
		{"method", "PUT /v1/orders HTTP/1.1\r\nContent-Length: 9", 405, "method-not-allowed"},
		{"path", "POST /v1/order HTTP/1.1\r\nContent-Length: 9", 404, "not-found"},
	} {
		t.Run("the body is not asked for when it is refused for its "+row.name, func(t *testing.T) {
			server := listen(t, New(new(MemStore)))
			conn := dial(t, server)
			fmt.Fprint(conn, row.head+"\r\nHost: example.com\r\nExpect: 100-continue\r\n\r\n")
			conn.receive(t, "POST").wantProblem(t, row.status, row.code)
		})
	}
}

func TestSlowClientsHoldUpNobody(t *testing.T) {
	store := newTrialStore()
	server := listen(t, quiet(store))
	const head = "POST /v1/orders HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
	var slow []*rawConn
	for i := range 20 {
		conn := dial(t, server)
		fmt.Fprintf(conn, "%sIdempotency-Key: k%d\r\nContent-Length: %d\r\n\r\n", head, i, len(goodOrder))
		if got := conn.receive(t, "POST"); got.status != 100 {
			t.Fatalf("status %d, want 100", got.status)
		}
		fmt.Fprint(conn, goodOrder[:i]) // the handler waits for the rest
		slow = append(slow, conn)
	}
	for _, r := range trials() {
		if r.method != "GET" {
			continue
		}
		conn := dial(t, server)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: example.com\r\n\r\n", r.target)
		if got := conn.receive(t, "GET"); got.status == 0 {
			t.Errorf("%v: no response", r)
		}
	}
	fast := dial(t, server)
	fmt.Fprintf(fast, "%sIdempotency-Key: fast\r\nContent-Length: %d\r\n\r\n%s", head, len(goodOrder), goodOrder)
	if interim, got := fast.receive(t, "POST"), fast.receive(t, "POST"); interim.status != 100 || got.status != 201 {
		t.Errorf("status %d and %d, want 100 and 201", interim.status, got.status)
	}
	for i, conn := range slow {
		fmt.Fprint(conn, goodOrder[i:])
		if got := conn.receive(t, "POST"); got.status != 201 {
			t.Errorf("slow client %d: status %d, want 201", i, got.status)
		}
	}
}

func TestUnknownParameterIsRefusedOnEveryRoute(t *testing.T) {
	h := quiet(newTrialStore())
	for _, r := range []trial{
		read(0, "/v1/users?x=1"), read(0, "/v1/products/a?x=1"), read(0, "/v1/products/none?x=1"),
		read(0, "/v2/widgets?limit=1&x=1"), read(0, "/openapi.json?x=1"),
		{"POST", "/v1/orders?x=1", goodOrder, []string{"Content-Type: application/json", "Idempotency-Key: k"}, 0},
	} {
		p := r.send(h).wantProblem(t, 400, "invalid-query")
		if len(p.Errors) != 1 || p.Errors[0].Parameter != "x" {
			t.Errorf("%v: errors %+v, want one that names the parameter", r, p.Errors)
		}
	}
}

// A trap is an error whose methods panic, but for those that are told not to.
type trap struct{ error, is, as, unwrap bool }

func (t *trap) spring(safe bool) {
	if !safe {
		panic("a trap")
	}
}

func (t *trap) Error() string          { t.spring(t.error); return "not to be sent" }
func (t *trap) Is(error) bool          { t.spring(t.is); return false }
func (t *trap) As(any) bool            { t.spring(t.as); return false }
func (t *trap) Unwrap() error          { t.spring(t.unwrap); return nil }
func (t *trap) Format(fmt.State, rune) { panic("a trap") }

// A bomb is a trap that even package fmt does not survive: it panics with itself.
type bomb struct{ is bool }

func (b bomb) Error() string { panic(b) }
func (b bomb) Is(error) bool {
	if b.is {
		panic(b)
	}
	return false
}

func TestErrorsOfAStoreAreAStrangersCode(t *testing.T) {
	var nilPathError *fs.PathError
	var nilRefusal *Refusal
	for name, err := range map[string]error{
		"a typed nil":                      nilPathError,
		"a typed nil, wrapped":             fmt.Errorf("open: %w", nilPathError),
		"a typed nil, joined":              errors.Join(errors.New("first"), nilPathError),
		"a typed nil Refusal":              nilRefusal,
		"an error whose methods all panic": new(trap),
		"an error whose Error panics":      &trap{error: false, is: true, as: true, unwrap: true},
		"an error whose Is panics":         &trap{error: true, is: false, as: true, unwrap: true},
		"an error whose As panics":         &trap{error: true, is: true, as: false, unwrap: true},
		"an error whose Unwrap panics":     &trap{error: true, is: true, as: true, unwrap: false},
		"an error that cannot be compared": uncomparable{errors.New("x")},
		"an error that panics with itself": bomb{},
		"an error whose Is panics with it": bomb{true},
		"an error that contains itself":    loop{},
		"errors that contain themselves":   knot{},
		"an endless chain":                 unending{},
		"a chain of a million":             chain(1_000_000),
		"ErrUnavailable in an endless one": knot{ErrUnavailable},
		"an error that ends the goroutine": trapFunc(runtime.Goexit),
		"an error that does not answer":    trapFunc(func() { <-t.Context().Done() }),
		"a panic with a typed nil":         nil,
		"a panic with a bomb":              nil,
		"a panic with a knot":              nil,
		"a panic with what has no end":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			var log syncBuffer
			broken := true
			fail := func() error {
				switch name {
				case "a panic with a typed nil":
					panic(nilPathError)
				case "a panic with a bomb":
					panic(bomb{})
				case "a panic with a knot":
					panic(knot{})
				case "a panic with what has no end":
					ring := []any{nil}
					ring[0] = ring
					panic(ring)
				}
				return err
			}
			good := newCacheableStore()
			h := NewWithOptions(&stubStore{
				listUsers:   func(context.Context, string, int) ([]Resource, error) { return nil, fail() },
				listWidgets: func(context.Context, string, int) ([]Resource, error) { return nil, fail() },
				createOrder: func(context.Context, IdempotencyKey, Order) (Order, error) { return Order{}, fail() },
				getProduct: func(ctx context.Context, id string) (Resource, error) {
					if broken {
						return Resource{}, fail()
					}
					return good.GetProduct(ctx, id)
				},
			}, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			for i, r := range []response{
				get(h, "/v1/users"),
				get(h, "/v2/widgets?limit=1"),
				postOrder(h, "k", goodOrder),
				get(h, "/v1/products/p1"),
				get(h, "/v1/products/p1", "Cache-Control: max-age=5"),
				get(h, "/v1/products/p1", "Cache-Control: no-store"),
				get(h, "/v1/products/p1", "Cache-Control: max-stale, stale-if-error=60"),
			} {
				p := r.wantProblem(t, http.StatusInternalServerError, "internal-error")
				if !strings.Contains(log.String(), "incident="+p.Instance) {
					t.Errorf("request %d: the log has not the incident %s", i, p.Instance)
				}
				if strings.Contains(r.body, "not to be sent") {
					t.Errorf("request %d: the error is sent: %s", i, r.body)
				}
			}
			broken = false // and nothing else is disturbed
			for _, line := range []string{"Accept: */*", "Cache-Control: max-age=5"} {
				if r := get(h, "/v1/products/p1", line); r.status != http.StatusOK {
					t.Errorf("then %s: status %d", line, r.status)
				}
			}
		})
	}
}

// Trees of errors without end. Error of a loop, a knot or an unending goes on as
// errors.Join does, by those inside.
type (
	loop     struct{}
	knot     [1]error // and itself
	unending struct{ depth int }
	chain    int
)

func (l loop) Error() string     { return l.Unwrap().Error() }
func (l loop) Unwrap() error     { return l }
func (k knot) Error() string     { return errors.Join(k.Unwrap()...).Error() }
func (k knot) Unwrap() []error   { return []error{k[0], k, k} }
func (e unending) Error() string { return e.Unwrap().Error() }
func (e unending) Unwrap() error { return unending{e.depth + 1} }
func (c chain) Error() string    { return "link\n" + c.Unwrap().Error() }
func (c chain) Unwrap() error {
	if c == 0 {
		return ErrUnavailable
	}
	return c - 1
}

// A trapFunc is an error whose Is does what it does.
type trapFunc func()

func (f trapFunc) Error() string { return "not to be sent" }
func (f trapFunc) Is(error) bool { f(); return false }

// A client would give up what is only delayed, and memory would forget what is there.
func TestWhatIsTemporaryWinsOverWhatIsFinal(t *testing.T) {
	for _, temporary := range []error{ErrUnavailable, context.DeadlineExceeded, fmt.Errorf("commit: %w", ErrUnavailable)} {
		for _, final := range []error{ErrNotFound, ErrKeyReused, ErrInProgress, &Refusal{Reason: "sold-out"}, errors.New("x")} {
			for _, err := range []error{errors.Join(temporary, final), errors.Join(final, temporary), fmt.Errorf("%w: %w", final, temporary)} {
				t.Run(fmt.Sprint(err), func(t *testing.T) {
					var failure error
					h := NewWithOptions(&stubStore{
						listUsers:   func(context.Context, string, int) ([]Resource, error) { return nil, err },
						createOrder: func(context.Context, IdempotencyKey, Order) (Order, error) { return Order{}, err },
						getProduct:  func(context.Context, string) (Resource, error) { return MustResource("p1", nil), failure },
					}, &Options{Logger: slog.New(slog.DiscardHandler)})
					get(h, "/v1/users").wantProblem(t, http.StatusServiceUnavailable, "unavailable")
					r := postOrder(h, "k", goodOrder)
					r.wantProblem(t, http.StatusServiceUnavailable, "unavailable")
					if r.header.Get("Retry-After") != "1" {
						t.Errorf("Retry-After %q", r.header["Retry-After"])
					}
					get(h, "/v1/products/p1", "Cache-Control: no-cache").wantStatus(t, http.StatusOK)
					failure = err
					for _, line := range []string{"Accept: */*", "Cache-Control: no-cache", "Cache-Control: no-cache, max-age=1"} {
						get(h, "/v1/products/p1", line).wantProblem(t, http.StatusServiceUnavailable, "unavailable")
					}
					for _, line := range []string{"Cache-Control: no-cache, stale-if-error=5", "Cache-Control: only-if-cached"} {
						get(h, "/v1/products/p1", line).wantStatus(t, http.StatusOK) // as memory has it still
					}
				})
			}
		}
	}
}

// An uncomparable is an error that panics where errors are compared without care.
type uncomparable []error

func (uncomparable) Error() string { return "uncomparable" }

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

func TestLogSaysOfWhichTypeAPanickingErrorIs(t *testing.T) {
	var log bytes.Buffer
	h := NewWithOptions(&stubStore{listUsers: func(context.Context, string, int) ([]Resource, error) {
		var err *fs.PathError
		return nil, err
	}}, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	get(h, "/v1/users").wantProblem(t, 500, "internal-error")
	if !strings.Contains(log.String(), "a *fs.PathError without a text") {
		t.Errorf("the log does not say that a *fs.PathError was returned: %s", &log)
	}
}

func TestVary(t *testing.T) {
	scope := func(*http.Request) string { return "a" }
	for _, test := range []struct {
		name string
		opts *Options
		want []string
	}{
		{"none by default", nil, nil},
		{"credentials by default if Scope is set", &Options{Scope: scope}, []string{"Authorization, Cookie"}},
		{"what is set", &Options{Vary: []string{"X-Account"}}, []string{"X-Account"}},
		{"what is set, also with Scope", &Options{Scope: scope, Vary: []string{"X-Account", "Accept-Language"}}, []string{"X-Account, Accept-Language"}},
		{"none with Scope if it is set to none", &Options{Scope: scope, Vary: []string{}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := NewWithOptions(newCacheableStore(), test.opts)
			for _, target := range cacheableTargets {
				for _, line := range []string{"Accept: */*", "If-None-Match: *", "Cache-Control: max-age=9"} {
					if got := get(h, target, line).header["Vary"]; !slices.Equal(got, test.want) {
						t.Errorf("%s, %s: Vary %q, want %q", target, line, got, test.want)
					}
				}
			}
		})
	}
}

func TestVaryIsAddedToThatOfAWrapper(t *testing.T) {
	h := NewWithOptions(newCacheableStore(), &Options{Vary: []string{"Cookie"}})
	shared := make([]string, 1, 4) // of all responses of the wrapper
	shared[0] = "Accept-Encoding"
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Vary"] = shared
		h.ServeHTTP(w, r)
	})
	for _, target := range cacheableTargets {
		if got := get(outer, target).header["Vary"]; !slices.Equal(got, []string{"Accept-Encoding", "Cookie"}) {
			t.Errorf("%s: Vary %q, want both", target, got)
		}
	}
	if got := shared[:2][1]; got != "" {
		t.Errorf("the service has written %q into the wrapper's slice", got)
	}
}

// Without a Scope, products in memory are everybody's.
func TestProductsInMemoryDoNotVary(t *testing.T) {
	type account struct{}
	store := &stubStore{getProduct: func(ctx context.Context, id string) (Resource, error) {
		return MustResource(id, map[string]any{"for": ctx.Value(account{})}), nil
	}}
	for name, vary := range map[string][]string{"a header": {"x-account"}, "the header in capitals": {"Accept", "X-Account"}, "anything": {"*"}} {
		t.Run(name, func(t *testing.T) {
			h := NewWithOptions(store, &Options{Vary: vary})
			outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), account{}, r.Header.Get("X-Account"))))
			})
			for _, who := range []string{"ann", "bob", "ann"} {
				r := get(outer, "/v1/products/p", "Cache-Control: max-age=60", "X-Account: "+who)
				if want := `{"id":"p","for":"` + who + `"}`; r.body != want || r.header.Get("Cache-Status") != "storefront; fwd=bypass" {
					t.Errorf("%s got %s, Cache-Status %s", who, r.body, r.header.Get("Cache-Status"))
				}
			}
		})
	}
}

func TestVaryThatIsNoHeaderPanics(t *testing.T) {
	for _, name := range []string{"", "a b", "Cookie,Authorization", "é", "X:"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is accepted", name)
				}
			}()
			NewWithOptions(new(MemStore), &Options{Vary: []string{"Cookie", name}})
		}()
	}
}

func TestSharedResponsesToCredentialsArePrivate(t *testing.T) {
	h := NewWithOptions(newCacheableStore(), &Options{Shared: true})
	for _, target := range cacheableTargets {
		for line, want := range map[string]string{
			"Accept: */*":             "max-age=60",
			"Authorization: Bearer x": "private, max-age=60",
			"Authorization: ":         "private, max-age=60",
			"Cookie: a=b":             "private, max-age=60",
		} {
			for _, condition := range []string{"If-None-Match: *", "Accept-Language: en"} {
				if got := get(h, target, line, condition).header.Get("Cache-Control"); got != want {
					t.Errorf("%s, %s, %s: Cache-Control %q, want %q", target, line, condition, got, want)
				}
			}
		}
	}
}

// hostileRequests are requests that try to have much said of little.
func hostileRequests() map[string]trial {
	queries := map[string]string{
		"names that are not UTF-8":    strings.Repeat("%FF", 255) + "=1",
		"names of control characters": strings.Repeat("%01", 255) + "=1",
		"names of quotes":             strings.Repeat("%22", 255) + "=1",
		"names of line separators":    strings.Repeat("%E2%80%A8", 85) + "=1",
		"names of four bytes":         strings.Repeat("%F0%9F%98%80", 64) + "=1",
		"raw bytes":                   strings.Repeat("\xff", 255),
		"bad escapes":                 strings.Repeat("%", 255),
		"semicolons":                  strings.Repeat(";", 255),
	}
	requests := make(map[string]trial)
	for name, pair := range queries {
		requests["100 "+name] = trial{method: "GET", target: "/v1/users?" + strings.Repeat(pair+"&", 100)}
		requests["one of 1,000 times the length, "+name] = trial{method: "GET", target: "/v1/users?" + strings.Repeat(strings.TrimSuffix(pair, "=1"), 1000)}
	}
	deep := ""
	for i := range 30 {
		deep += `{"` + strings.Repeat(string(rune('é'+i)), 500) + `":`
	}
	deep += `{"a":1,"a":2}` + strings.Repeat("}", 30)
	wide := "{"
	for i := range 120 {
		wide += fmt.Sprintf(`"%d%s":1,`, i, strings.Repeat("é", 250))
	}
	for name, body := range map[string]string{
		"a duplicate under long names":     deep,
		"many long names":                  wide + `"item":"x","qty":1}`,
		"many names of control characters": "{" + strings.ReplaceAll(wide[1:], "é", `\u0001`) + `"x":1}`,
		"one very long name":               `{"` + strings.Repeat("😀", 15_000) + `":1}`,
		"a surrogate under a long name":    `{"` + strings.Repeat("/", 60_000) + `":"\ud800"}`,
		"nested deeply":                    strings.Repeat(`{"~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~":`, 1001) + "1" + strings.Repeat("}", 1001),
	} {
		requests[name] = order(0, body)
	}
	requests["a long method"] = trial{method: strings.Repeat("M", 100_000), target: "/v1/users"}
	requests["a long path"] = trial{method: "GET", target: "/" + strings.Repeat("x", 100_000)}
	requests["a long key"] = order(0, goodOrder, "Content-Type: application/json", "Idempotency-Key: "+strings.Repeat("k", 100_000))
	return requests
}

// wantSmallAndWhole checks that a response is not much larger than nothing, and that
// nothing in it was cut within a character or a pointer.
func (r response) wantSmallAndWhole(t *testing.T) Problem {
	t.Helper()
	size := len(r.body)
	for name, values := range r.header {
		size += len(name) + len(strings.Join(values, ""))
	}
	if size > 16<<10 {
		t.Errorf("the response has %d bytes", size)
	}
	var p Problem
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || !utf8.ValidString(r.body) {
		t.Fatalf("status %d, not JSON in UTF-8: %v: %.100q", r.status, err, r.body)
	}
	for _, f := range p.Errors {
		if f.Pointer != "" && !uriFragment.MatchString(f.Pointer) {
			t.Errorf("the pointer %.100s is not whole", f.Pointer)
		}
		if len(f.Parameter) > 3*maxNameInFault {
			t.Errorf("a parameter of %d bytes is repeated", len(f.Parameter))
		}
	}
	return p
}

func TestNoResponseIsMuchLargerThanTheDataItCarries(t *testing.T) {
	h := quiet(new(MemStore))
	for name, request := range hostileRequests() {
		t.Run(name, func(t *testing.T) {
			r := request.send(h)
			p := r.wantSmallAndWhole(t)
			if r.status < 400 {
				t.Errorf("status %d", r.status)
			}
			if strings.HasPrefix(name, "100 ") && len(p.Errors) < 5 {
				t.Errorf("%d faults, want as many as there is room for", len(p.Errors))
			}
		})
	}
}

func FuzzProblemSize(f *testing.F) {
	f.Add("a=b", "k", goodOrder, uint8(1))
	f.Add("%FF%01%22=%zz;", `"k`, `{"\u0001é/~":{"a":1,"a":2}}`, uint8(200))
	f.Add("&limit=%E2%80%A8", "é", `[`, uint8(255))
	h := quiet(new(MemStore))
	f.Fuzz(func(t *testing.T, query, key, body string, times uint8) {
		r := httptest.NewRequest("GET", "/v1/users", nil)
		r.URL.RawQuery = strings.Repeat(query+"&", int(times))
		serveOrder(h, r).wantSmallAndWhole(t)
		deep := strings.Repeat(`{`+string(ijson.AppendString(nil, body))+`:`, int(times)) + body + strings.Repeat(`}`, int(times))
		for _, body := range []string{body, strings.Repeat(body, int(times)), deep} {
			r := newOrderRequest("", strings.NewReader(body))
			r.Header["Idempotency-Key"] = []string{key}
			serveOrder(h, r).wantSmallAndWhole(t)
		}
	})
}

func TestPointersThatWouldBeLongAreAbsent(t *testing.T) {
	for n, there := range map[int]bool{2046: true, 2047: false} {
		p := postOrder(New(new(MemStore)), "k", `{"`+strings.Repeat("x", n)+`":1,"item":"a","qty":1}`).wantProblem(t, 422, "invalid-order")
		if len(p.Errors) != 1 || (p.Errors[0].Pointer != "") != there {
			t.Errorf("a name of %d bytes: faults %+.50v", n, p.Errors)
		}
	}
}

// An arrivalWriter records how much of the body was there when the header was
// written.
type arrivalWriter struct {
	*httptest.ResponseRecorder
	body   *countingReader
	atHead int
}

func (w *arrivalWriter) WriteHeader(status int) {
	w.atHead = w.body.n
	w.ResponseRecorder.WriteHeader(status)
}

type countingReader struct {
	io.Reader
	n int
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n += n
	return n, err
}

// A proxy that is still writing a request may lose the answer.
func TestAnswersComeAfterTheBody(t *testing.T) {
	const size = 60_000
	for _, test := range []struct {
		name           string
		method, target string
		declared       int64
		size           int
		line           string
		want           int // bytes read before the answer
	}{
		{"an order of another media type", "POST", "/v1/orders", size, size, "Content-Type: text/plain", size},
		{"an order without a key", "POST", "/v1/orders", size, size, "Content-Type: application/json", size},
		{"an order with a query", "POST", "/v1/orders?a=b", size, size, "Content-Type: application/json", size},
		{"an order in chunks", "POST", "/v1/orders", -1, size, "Content-Type: text/plain", size},
		{"another method", "PUT", "/v1/orders", size, size, "Accept: */*", size},
		{"another path", "POST", "/v1/nothing", size, size, "Accept: */*", size},
		{"an unclean path", "POST", "//v1/orders", size, size, "Accept: */*", size},
		{"a method that no one knows", "BREW", "/v1/orders", size, size, "Accept: */*", size},
		{"a refused read with a body", "GET", "/v1/users?limit=0", 2, 2, "Accept: */*", 2},
		{"a read with a body", "GET", "/v1/users", size, size, "Accept: */*", size},
		{"a read that is not modified", "GET", "/v1/users", size, size, "If-None-Match: *", size},
		{"a refused read in endless chunks, of which 64 KiB are read", "GET", "/v1/users?limit=0", -1, 1 << 20, "Accept: */*", 64 << 10},
		{"OPTIONS with a body", "OPTIONS", "/v1/users", size, size, "Accept: */*", size},
		{"exactly 64 KiB", "PUT", "/v1/orders", 64 << 10, 64 << 10, "Accept: */*", 64 << 10},
		{"a declared byte more, of which nothing is read", "PUT", "/v1/orders", 64<<10 + 1, 64<<10 + 1, "Accept: */*", 0},
		{"endless chunks, of which 64 KiB are read", "PUT", "/v1/orders", -1, 1 << 20, "Accept: */*", 64 << 10},
		{"a client that waits for 100 Continue", "PUT", "/v1/orders", size, size, "Expect: 100-continue", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := &countingReader{Reader: strings.NewReader(strings.Repeat("x", test.size))}
			r := httptest.NewRequest(test.method, test.target, io.NopCloser(body))
			r.ContentLength = test.declared
			name, value, _ := strings.Cut(test.line, ": ")
			r.Header.Set(name, value)
			w := &arrivalWriter{httptest.NewRecorder(), body, -1}
			quiet(new(MemStore)).ServeHTTP(w, r)
			if w.atHead != test.want || body.n != test.want {
				t.Errorf("status %d after %d bytes of the body, and %d in the end, want %d", w.Code, w.atHead, body.n, test.want)
			}
		})
	}
}

// A pipeListener accepts the other ends of net.Pipe, where nothing is on the way:
// who writes waits for the reader.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// A client that writes before it reads and a server that answers before it has
// read, over a connection that is closed afterwards (HTTP/1.0, as many proxies
// have it), would wait for each other.
func TestRefusalReachesAClientThatWritesBeforeItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(pipeListener)
		server := &http.Server{Handler: quiet(new(MemStore))}
		go server.Serve(l)
		ours, theirs := net.Pipe()
		l <- theirs
		fmt.Fprintf(ours, "POST /v1/orders HTTP/1.0\r\nContent-Type: text/plain\r\nContent-Length: 60000\r\n\r\n%s", strings.Repeat("x", 60_000))
		result, err := http.ReadResponse(bufio.NewReader(ours), nil)
		if err != nil || result.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%v, %v, want 415", result, err)
		}
		ours.Close()
		close(l)
	})
}

// Over HTTP/2, net/http hides from handlers that the client waits for 100 Continue,
// and sends it when the body is read. What counts is that the answer arrives.
func TestRefusalOverHTTP2Arrives(t *testing.T) {
	server := httptest.NewUnstartedServer(quiet(new(MemStore)))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for _, line := range []string{"Accept: */*", "Expect: 100-continue"} {
		r, err := http.NewRequest("POST", server.URL+"/v1/orders", strings.NewReader(strings.Repeat("x", 60_000)))
		if err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
		result, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		result.Body.Close()
		if result.ProtoMajor != 2 || result.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %s %s, want 415 over HTTP/2", line, result.Proto, result.Status)
		}
	}
}

func TestProblemWritesItself(t *testing.T) {
	replaced, _ := json.Marshal("\xff") // by U+FFFD, which encoding/json escapes or not
	for _, test := range []struct {
		name    string
		problem Problem
		status  int
		body    string
	}{
		{"zero", Problem{}, 500, `{"type":"about:blank","title":"Internal Server Error","status":500}`},
		{"status alone", Problem{Status: 401}, 401, `{"type":"about:blank","title":"Unauthorized","status":401}`},
		{"status of a success", Problem{Status: 200}, 500, `{"type":"about:blank","title":"Internal Server Error","status":500}`},
		{"status without a text", Problem{Status: 499}, 499, `{"type":"about:blank","title":"Error","status":499}`},
		{"status beyond", Problem{Status: 600}, 500, `{"type":"about:blank","title":"Internal Server Error","status":500}`},
		{"all members", Problem{"urn:a", "A", 429, "Too <many> & more", "r", "urn:b", []Fault{{"d", "p", "h", "#/x", new(int64(0)), new(int64(2))}}}, 429,
			`{"type":"urn:a","title":"A","status":429,"detail":"Too <many> & more","reason":"r","instance":"urn:b","errors":[{"detail":"d","parameter":"p","header":"h","pointer":"#/x","minimum":0,"maximum":2}]}`},
		{"text that is not UTF-8", Problem{Status: 400, Detail: "\xff"}, 400, `{"type":"about:blank","title":"Bad Request","status":400,"detail":` + string(replaced) + `}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.Header().Set("Cache-Control", "public")
				test.problem.ServeHTTP(w, r)
			})
			got := get(outer, "/")
			want := response{test.status, http.Header{
				"Content-Type":           {"application/problem+json"},
				"Content-Length":         {strconv.Itoa(len(got.body))},
				"Cache-Control":          {"no-store"},
				"X-Content-Type-Options": {"nosniff"},
				"Retry-After":            {"7"},
			}, test.body}
			if diff := want.diff(got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			want.body = ""
			if diff := want.diff(send(outer, "HEAD", "/", "")); diff != "" {
				t.Errorf("HEAD, -want +got:\n%s", diff)
			}
		})
	}
}

func TestRoute(t *testing.T) {
	h := quiet(newTrialStore())
	copying := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.Clone(r.Context()))
		})
	}
	noting := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(WithRoute(r.Context())))
		})
	}
	prefixed := func(next http.Handler) http.Handler { return http.StripPrefix("/shop", next) }
	inTime := func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Hour, "") }
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"alone":          func(h http.Handler) http.Handler { return h },
		"StripPrefix":    prefixed,
		"TimeoutHandler": inTime,
		"a copy":         copying,
		"noted twice":    noting,
		"all of them":    func(h http.Handler) http.Handler { return copying(prefixed(noting(inTime(copying(h))))) },
		"the other way":  func(h http.Handler) http.Handler { return inTime(noting(copying(prefixed(copying(h))))) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, test := range []struct{ method, target, want string }{
				{"GET", "/v1/users", "GET /v1/users"},
				{"HEAD", "/v1/users", "GET /v1/users"},
				{"GET", "/v1/users?limit=x", "GET /v1/users"},
				{"POST", "/v1/orders", "POST /v1/orders"},
				{"GET", "/v1/products/a", "GET /v1/products/{product_id}"},
				{"GET", "/v1/products/none", "GET /v1/products/{product_id}"},
				{"GET", "/v2/widgets", "GET /v2/widgets"},
				{"GET", "/openapi.json", "GET /openapi.json"},
				{"OPTIONS", "/v1/orders", "/v1/orders"},
				{"PUT", "/v1/users", "/v1/users"},
				{"DELETE", "/v1/products/a", "/v1/products/{product_id}"},
				{"BREW", "/v1/users", "/v1/users"},
				{"BREW", "/v1/nothing", "/"},
				{"GET", "/v1/nothing", "/"},
				{"GET", "/v1/users/", "/"},
				{"GET", "//v1/users", "/"},
				{"GET", "/v1/../v1/users", "/"},
				{"BREW", "//v1/users", "/"},
			} {
				target := test.target
				if strings.Contains(name, "Strip") || strings.Contains(name, "all") || strings.Contains(name, "other") {
					target = "/shop" + target
				}
				var outer, inner string
				service := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					h.ServeHTTP(w, r)
					inner = r.Pattern
				})
				r := httptest.NewRequest(test.method, target, nil)
				r = r.WithContext(WithRoute(r.Context()))
				wrap(service).ServeHTTP(httptest.NewRecorder(), r)
				if outer = Route(r.Context()); outer != test.want || inner != test.want {
					t.Errorf("%s %s: the route is %q outside, and the pattern %q inside, want %q", test.method, target, outer, inner, test.want)
				}
			}
		})
	}
}

func TestRouteOfARequestThatDidNotReachTheService(t *testing.T) {
	if got := Route(t.Context()); got != "" {
		t.Errorf("without WithRoute: %q", got)
	}
	ctx := WithRoute(t.Context())
	if got := Route(ctx); got != "" {
		t.Errorf("before: %q", got)
	}
	if again := WithRoute(ctx); again != ctx {
		t.Error("WithRoute of its own result is another context, whose route the first one would not have")
	}
}

func TestRouteMayBeAskedForWhileTheRequestIsServed(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	h := New(&stubStore{listUsers: func(context.Context, string, int) ([]Resource, error) {
		close(entered)
		<-leave
		return nil, nil
	}})
	r := httptest.NewRequest("GET", "/v1/users", nil)
	r = r.WithContext(WithRoute(r.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-entered
	if got := Route(r.Context()); got != "GET /v1/users" {
		t.Errorf("route %q", got)
	}
	close(leave)
	<-done
}
