package storefront

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront/internal/ijson"
)

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
		{idempotencyKeyMissing, 400, "idempotency-key-missing", "Idempotency-Key missing", new(MemStore), order(0, teapots, "Content-Type: application/json").send},
		{idempotencyKeyInvalid, 400, "idempotency-key-invalid", "Idempotency-Key invalid", new(MemStore), order(0, teapots, "Content-Type: application/json", "Idempotency-Key: é").send},
		{notFound, 404, "not-found", "Not found", new(MemStore), read(0, "/").send},
		{productNotFound, 404, "product-not-found", "Product not found", new(MemStore), read(0, "/v1/products/none").send},
		{methodNotAllowed, 405, "method-not-allowed", "Method not allowed", new(MemStore), trial{method: "PUT", target: "/v1/users"}.send},
		{requestTimeout, 408, "request-timeout", "Request timeout", new(MemStore), slow},
		{idempotencyKeyInProgress, 409, "idempotency-key-in-progress", "Idempotency-Key in progress", create(ErrInProgress), order(0, teapots).send},
		{preconditionFailed, 412, "precondition-failed", "Precondition failed", new(MemStore), read(0, "/v1/users", `If-Match: "x"`).send},
		{bodyTooLarge, 413, "body-too-large", "Body too large", new(MemStore), order(0, strings.Repeat(" ", 64<<10+1)).send},
		{unsupportedMediaType, 415, "unsupported-media-type", "Unsupported media type", new(MemStore), order(0, teapots, "Idempotency-Key: k").send},
		{invalidOrder, 422, "invalid-order", "Invalid order", new(MemStore), order(0, "{}").send},
		{idempotencyKeyReused, 422, "idempotency-key-reused", "Idempotency-Key reused", create(ErrKeyReused), order(0, teapots).send},
		{orderRefused, 422, "order-refused", "Order refused", create(&Refusal{}), order(0, teapots).send},
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
			t.Errorf("there is no row for %s", typ)
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
	if diff := cmp.Diff(want, got); diff != "" {
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
		order(422, teapots),
		read(400, "/v1/users?limit=9999999999999999999999"),
		read(400, "/v1/users?limit=%zz&a;b"),
		read(400, "/v1/users?after=!!!"),
		order(415, teapots, "Content-Type: ;;;"),
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
			r := httptest.NewRequestWithContext(row.ctx, row.method, row.target, strings.NewReader(teapots))
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
			if diff := cmp.Diff(row.want, got); diff != "" {
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
				postOrder(h, "k", teapots),
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

func (l loop) Error() string { return l.Unwrap().Error() }
func (l loop) Unwrap() error { return l }

func (k knot) Error() string   { return errors.Join(k.Unwrap()...).Error() }
func (k knot) Unwrap() []error { return []error{k[0], k, k} }

func (e unending) Error() string { return e.Unwrap().Error() }
func (e unending) Unwrap() error { return unending{e.depth + 1} }

func (c chain) Error() string { return "link\n" + c.Unwrap().Error() }
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
					r := postOrder(h, "k", teapots)
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
	requests["a long key"] = order(0, teapots, "Content-Type: application/json", "Idempotency-Key: "+strings.Repeat("k", 100_000))
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
	f.Add("a=b", "k", teapots, uint8(1))
	f.Add("%FF%01%22=%zz;", `"k`, `{"\u0001é/~":{"a":1,"a":2}}`, uint8(200))
	f.Add("&limit=%E2%80%A8", "é", `[`, uint8(255))
	h := quiet(new(MemStore))
	f.Fuzz(func(t *testing.T, query, key, body string, times uint8) {
		r := httptest.NewRequest("GET", "/v1/users", nil)
		r.URL.RawQuery = strings.Repeat(query+"&", int(times))
		do(h, r).wantSmallAndWhole(t)
		deep := strings.Repeat(`{`+string(ijson.AppendString(nil, body))+`:`, int(times)) + body + strings.Repeat(`}`, int(times))
		for _, body := range []string{body, strings.Repeat(body, int(times)), deep} {
			r := newOrderRequest("", strings.NewReader(body))
			r.Header["Idempotency-Key"] = []string{key}
			do(h, r).wantSmallAndWhole(t)
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
