package storefront

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront/internal/must"
)

// logged returns a handler and its log.
func logged(store Store) (http.Handler, *syncBuffer) {
	log := new(syncBuffer)
	return NewWithOptions(store, &Options{Logger: slog.New(slog.NewJSONHandler(log,
		&slog.HandlerOptions{Level: slog.LevelDebug}))}), log
}

// A logLine is what the service logs of an incident.
type logLine struct{ Level, Incident, Method, Route, Error string }

// incidents reads a log in JSON.
func (l *syncBuffer) incidents(t *testing.T) (lines []logLine) {
	t.Helper()
	for dec := json.NewDecoder(strings.NewReader(l.String())); dec.More(); {
		var line logLine
		must.OK(t, dec.Decode(&line))
		lines = append(lines, line)
	}
	return lines
}

// storeRequests are requests that have each method of the store called, by route.
var storeRequests = []struct {
	route string
	trial trial
}{
	{"GET /v1/users", read(0, "/v1/users")},
	{"GET /v2/widgets", read(0, "/v2/widgets?limit=1")},
	{productRoute, read(0, "/v1/products/p1")},
	{productRoute, read(0, "/v1/products/p1", "Cache-Control: max-age=60")},
	{productRoute, read(0, "/v1/products/p1", "Cache-Control: no-store")},
	{productRoute, read(0, "/v1/products/p1", "Cache-Control: max-stale, stale-if-error=60")},
	{orderRoute, order(0, `{"item":"diary","qty":31337}`, "Content-Type: application/json",
		"Idempotency-Key: sesame", "Authorization: Bearer topsecret")},
}

const (
	productRoute = "GET /v1/products/{product_id}"
	orderRoute   = "POST /v1/orders"
)

// An outcome is what becomes of a store's error.
type outcome struct {
	status            int
	code, retry, logs string // logs is the level, or "" for nothing
}

// check sends the request whose outcome it is, of which it tells nothing but what a
// client may know.
func (want outcome) check(t *testing.T, store Store, route string, request trial, text string) {
	t.Helper()
	h, log := logged(store)
	r := request.send(h)
	p := r.wantProblem(t, want.status, want.code)
	if r.header.Get("Retry-After") != want.retry || r.header["Link"] != nil || r.header["Etag"] != nil {
		t.Errorf("%s: headers %v, want Retry-After %q, no Link and no ETag", route, r.header, want.retry)
	}
	for _, secret := range []string{storeSecret, text, "ord_secret", "broke its contract"} {
		if strings.Contains(fmt.Sprint(r.header)+r.body, secret) {
			t.Errorf("%s: the response has %q in it: %v %s", route, secret, r.header, r.body)
		}
	}
	var lines []logLine
	if want.logs != "" {
		lines = []logLine{{want.logs, p.Instance, request.method, route, text}}
	}
	if diff := cmp.Diff(lines, log.incidents(t)); diff != "" {
		t.Errorf("%s: log lines, -want +got:\n%s", route, diff)
	}
	for _, private := range []string{"sesame", "diary", "31337", "topsecret"} {
		if strings.Contains(log.String(), private) {
			t.Errorf("%s: %q is in the log: %s", route, private, log)
		}
	}
}

// A temporary error wins over a final one: a client would give up an order that is
// only delayed.
func TestStoreErrors(t *testing.T) {
	var (
		broken   = outcome{500, "internal-error", "", "ERROR"}
		away     = outcome{503, "unavailable", "1", "WARN"}
		missing  = outcome{404, "product-not-found", "", ""}
		reused   = outcome{422, "idempotency-key-reused", "", ""}
		underWay = outcome{409, "idempotency-key-in-progress", "1", ""}
		refused  = outcome{422, "order-refused", "", ""}
	)
	forms := func(err error) []error {
		return []error{err, fmt.Errorf(storeSecret+": %w", err), errors.Join(errors.New(storeSecret), err)}
	}
	var both []error
	for _, temporary := range []error{ErrUnavailable, context.DeadlineExceeded} {
		for _, final := range []error{ErrNotFound, ErrKeyReused, ErrInProgress, &Refusal{},
			errors.New("disk full")} {
			both = append(both, errors.Join(temporary, final), errors.Join(final, temporary))
		}
	}
	panics := func() error { panic("a trap") }
	both = append(both, errors.Join(ErrUnavailable, trap{is: panics, as: panics}))
	for _, row := range []struct {
		name  string
		errs  []error
		all   outcome
		route string // which has an outcome of its own
		own   outcome
	}{
		{"ErrUnavailable", forms(ErrUnavailable), away, "", outcome{}},
		{"a deadline", forms(context.DeadlineExceeded), away, "", outcome{}},
		{"a temporary error and a final one", both, away, "", outcome{}},
		{"another error", forms(errors.New("disk full")), broken, "", outcome{}},
		{"cancelled by the store itself", forms(context.Canceled), broken, "", outcome{}},
		{"ErrNotFound", forms(ErrNotFound), broken, productRoute, missing},
		{"ErrKeyReused", forms(ErrKeyReused), broken, orderRoute, reused},
		{"ErrInProgress", forms(ErrInProgress), broken, orderRoute, underWay},
		{"a Refusal", forms(&Refusal{}), broken, orderRoute, refused},
		{"ErrInProgress and a Refusal", forms(errors.Join(&Refusal{}, ErrInProgress)), broken, orderRoute,
			underWay},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // as an error is given little time to answer
				for _, err := range row.errs {
					for _, request := range storeRequests {
						want := row.all
						if request.route == row.route {
							want = row.own
						}
						want.check(t, failing(err), request.route, request.trial, err.Error())
					}
				}
			})
		})
	}
}

func TestStoresThatBreakTheirContract(t *testing.T) {
	type brokenStore struct {
		route, text string
		store       *stubStore
	}
	stored := func(text string, change func(*Order)) brokenStore {
		return brokenStore{orderRoute, "CreateOrder broke its contract: it returned " + text,
			&stubStore{createOrder: func(_ context.Context, _ IdempotencyKey, order Order) (Order, error) {
				change(&order)
				return order, nil
			}}}
	}
	at, west := time.Date(2026, 11, 20, 20, 52, 11, 250e6, time.UTC), time.FixedZone("", -60*60)
	endOfTime := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	product := func(r Resource) *stubStore {
		return &stubStore{getProduct: func(context.Context, string) (Resource, error) { return r, nil }}
	}
	unordered := func(context.Context, string, int) ([]Resource, error) {
		return bareResources("a", "c", "b"), nil
	}
	lists := &stubStore{listUsers: unordered, listWidgets: unordered}
	const behind = `broke its contract: it returned "b" behind "c", which is not in ascending byte order`
	const another = "an order with another item or quantity than was sent"
	for _, row := range []brokenStore{
		{"GET /v1/users", "ListUsers " + behind, lists},
		{"GET /v2/widgets", "ListWidgets " + behind, lists},
		{productRoute, "GetProduct broke its contract: it returned the zero Resource", product(Resource{})},
		{productRoute, `GetProduct broke its contract: it returned "kettle" for the ID "p1"`,
			product(MustResource("kettle", nil))},
		stored("an order, but the ID is missing or empty", func(o *Order) { *o = Order{} }),
		stored("an order, but the ID \"\\xff\" is not valid UTF-8", func(o *Order) { o.ID = "\xff" }),
		stored("an order, but the ID \"a\\n\" has a control character or a noncharacter",
			func(o *Order) { o.ID = "a\n" }),
		stored("an order, but the ID has 256 bytes, more than 255",
			func(o *Order) { o.ID = strings.Repeat("o", 256) }),
		stored(another, func(o *Order) { o.Item = "Diary" }),
		stored(another, func(o *Order) { o.ID, o.Item = "ord_1", "diary " }),
		stored(another, func(o *Order) { o.ID, o.Qty = "ord_1", 31338 }),
		stored("the order that it was given, but with CreatedAt 2026-11-20 20:52:11.25 +0000 UTC",
			func(o *Order) { o.CreatedAt = at }),
		stored("an order with CreatedAt 0001-01-01 00:00:00 +0000 UTC",
			func(o *Order) { o.ID, o.CreatedAt = "ord_1", time.Time{} }),
		stored("an order with CreatedAt 10000-01-01 00:00:00 +0000 UTC",
			func(o *Order) { o.ID, o.CreatedAt = "ord_1", endOfTime }),
		stored("an order with CreatedAt 9999-12-31 23:00:00 -0100 -0100",
			func(o *Order) { o.ID, o.CreatedAt = "ord_1", endOfTime.In(west) }),
	} {
		for _, request := range storeRequests {
			if request.route == row.route {
				outcome{500, "internal-error", "", "ERROR"}.check(t, row.store, request.route, request.trial,
					row.text)
			}
		}
	}
}

// A client that is gone is nobody's failure, but may have closed its sending half alone, and reads the
// incident; what has none is not logged.
func TestLogging(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	const product = "/v1/products/p"
	for _, row := range []struct {
		name           string
		ctx            context.Context
		method, target string
		status         int
		err            error
		want           []logLine
	}{
		{"a client that went away is information", gone, "GET", product, 503,
			fmt.Errorf("query: %w", context.Canceled),
			[]logLine{{"INFO", "", "GET", productRoute, "query: context canceled"}}},
		{"a store that fails while the client goes away is an error", gone, "GET", product, 500,
			errors.New("disk full"),
			[]logLine{{"ERROR", "", "GET", productRoute, "disk full"}}},
		{"an unknown path is nothing", t.Context(), "GET", "/nowhere", 404, nil, nil},
		{"a product that is not cached is information", t.Context(), "GET", product + "?only-if-cached", 504, nil,
			[]logLine{{"INFO", "", "GET", productRoute, ""}}},
		{"an unknown method is information", t.Context(), "BREW", "/v1/users", 501, nil,
			[]logLine{{"INFO", "", "BREW", "/v1/users", ""}}},
		{"an unknown method of an unknown path is information", t.Context(), "BREW", "/v1//users", 501, nil,
			[]logLine{{"INFO", "", "BREW", "/", ""}}},
		{"an unknown method is cut", t.Context(), strings.Repeat("M", 100_000), "/", 501, nil,
			[]logLine{{"INFO", "", strings.Repeat("M", 32), "/", ""}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			h, log := logged(failing(row.err))
			target, directive, _ := strings.Cut(row.target, "?")
			r := do(h, newRequest(row.method, target, "", "Cache-Control: "+directive).WithContext(row.ctx))
			var p Problem
			if err := json.Unmarshal([]byte(r.body), &p); err != nil || r.status != row.status {
				t.Fatalf("status %d, want %d: %v", r.status, row.status, err)
			}
			for i := range row.want {
				row.want[i].Incident = p.Instance
			}
			if diff := cmp.Diff(row.want, log.incidents(t)); diff != "" {
				t.Errorf("log lines, -want +got:\n%s", diff)
			}
		})
	}
}

func TestNilLoggerIsTheDefaultOfThatTime(t *testing.T) {
	h := New(new(MemStore))
	defer slog.SetDefault(slog.Default())
	for range 2 {
		var log bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		p := send(h, "BREW", "/", "").wantProblem(t, 501, "not-implemented")
		if !strings.Contains(log.String(), p.Instance) {
			t.Errorf("the default logger of that time has %q, want %s", &log, p.Instance)
		}
	}
}

func TestErrorsOfAStoreAreAStrangersCode(t *testing.T) {
	testErrorsOfAStranger(t)
	t.Setenv("GODEBUG", "panicnil=1") // with which recover does not tell of a panic with nil
	testErrorsOfAStranger(t)
}

func testErrorsOfAStranger(t *testing.T) {
	var nilRefusal *Refusal
	panics := func() error { panic("a trap") }
	returns := func(err error) func() error { return func() error { return err } }
	says := map[string][]string{
		"a panic with a text": {"the store panicked: a text", "shared_test.go"}, // and where
		"a typed nil Refusal": {"a nil *storefront.Refusal is an error, too"},
	}
	for name, fail := range map[string]func() error{
		"a typed nil Refusal":              returns(nilRefusal),
		"an error whose Is panics":         returns(trap{is: panics}),
		"an error whose As panics":         returns(trap{as: panics}),
		"an error whose Unwrap panics":     returns(trap{unwrap: panics}),
		"an error whose Error panics":      returns(trap{text: panics}),
		"an error that cannot be compared": returns(uncomparable{"not to be sent"}),
		"a panic with nil":                 func() error { panic(any(nil)) },
		"a panic with a text":              func() error { panic("a text") },
		"a panic with such an error":       func() error { panic(trap{text: panics, is: panics}) },
		"a panic with what is temporary":   func() error { panic(ErrUnavailable) },
		"a final error before one": returns(errors.Join(errors.New("not to be sent"),
			trap{is: panics, text: panics})),
	} {
		synctest.Test(t, func(t *testing.T) {
			store := failingBy(fail)
			h, log := logged(store)
			for i, request := range storeRequests {
				r := request.trial.send(h)
				p := r.wantProblem(t, http.StatusInternalServerError, "internal-error")
				if lines := log.incidents(t); len(lines) != i+1 || lines[i].Incident != p.Instance ||
					lines[i].Error == "" || lines[i].Level != "ERROR" {
					t.Errorf("%s: %s: the log is %s, want the incident %s", name, request.route, log,
						p.Instance)
				}
				if strings.Contains(r.body, "not to be sent") {
					t.Errorf("%s: %s: the error is sent: %s", name, request.route, r.body)
				}
				for _, text := range says[name] {
					if !strings.Contains(log.incidents(t)[i].Error, text) {
						t.Errorf("%s: %s: the log does not say %s: %s", name, request.route, text, log)
					}
				}
			}
			*store = *failing(nil) // and nothing else is disturbed
			for _, line := range []string{"Accept: */*", "Cache-Control: max-age=5"} {
				get(h, "/v1/products/p1", line).wantStatus(t, http.StatusOK)
			}
		})
	}
}

// The handlers of package slog expect that Error may panic; those of others need not.
func TestErrorThatPanicsIsLoggedByAnyHandler(t *testing.T) {
	log := new(syncBuffer)
	careless := func(_ []string, a slog.Attr) slog.Attr {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(err.Error())
		}
		return a
	}
	store := failing(trap{text: func() error { panic("in Error") }})
	h := NewWithOptions(store, &Options{
		Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{ReplaceAttr: careless})),
	})
	p := get(h, "/v1/products/p1").wantProblem(t, http.StatusInternalServerError, "internal-error")
	lines := log.incidents(t)
	if len(lines) != 1 || lines[0].Incident != p.Instance || lines[0].Error != "a storefront.trap whose methods panic" {
		t.Errorf("the log is %s, want the incident %s of a trap", log, p.Instance)
	}
}

// A trap is an error whose methods do what its functions do.
type trap struct{ is, as, unwrap, text func() error }

func (trap) call(f func() error) (err error) {
	if f != nil {
		err = f()
	}
	return err
}
func (e trap) Error() string { e.call(e.text); return "not to be sent" }
func (e trap) Is(error) bool { e.call(e.is); return false }
func (e trap) As(any) bool   { e.call(e.as); return false }
func (e trap) Unwrap() error { return e.call(e.unwrap) }

type uncomparable []string

func (e uncomparable) Error() string { return e[0] }

// A program's handler groups errors by their type, or has them say more of themselves.
func TestLogHasTheStoresOwnError(t *testing.T) {
	own := fmt.Errorf("while reading: %w",
		&fs.PathError{Op: "read", Path: "shop.db", Err: errors.New("a bad block")})
	for name, fail := range map[string]func() error{
		"an error":               func() error { return own },
		"what is temporary, too": func() error { return errors.Join(ErrUnavailable, own) },
		"a panic":                func() error { panic(own) },
	} {
		for _, line := range []string{"Accept: */*", "Cache-Control: no-cache, stale-if-error=60"} {
			var got error
			note := func(_ []string, a slog.Attr) slog.Attr {
				if err, ok := a.Value.Any().(error); ok {
					got = err
				}
				return a
			}
			store := failing(nil)
			logger := slog.NewTextHandler(io.Discard, &slog.HandlerOptions{ReplaceAttr: note})
			h := NewWithOptions(store, &Options{Logger: slog.New(logger)})
			get(h, "/v1/products/p1", "Cache-Control: no-cache")
			*store = *failingBy(fail)
			r := get(h, "/v1/products/p1", line)
			if covered := strings.Contains(line, "stale"); (r.status == 200) != covered || !errors.Is(got, own) {
				t.Errorf("%s, %s: status %d, the log got %T %v", name, line, r.status, got, got)
			}
		}
	}
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
	// 100 is the least number of faults.
	requests := []trial{read(100, "/v1/users?"+strings.Repeat("x&", 1000))}
	for pair, times := range map[string]int{"%FF": 255, "%01": 255, "%22": 255, "%E2%80%A8": 85,
		"%F0%9F%98%80": 64, "\xff": 255, "%": 255, ";": 255} {
		pair = strings.Repeat(pair, times)
		requests = append(requests, read(5, "/v1/users?"+strings.Repeat(pair+"&", 100)),
			read(1, "/v1/users?"+strings.Repeat(pair, 1000)))
	}
	wide := func(name string) (text string) {
		for i := range 120 {
			text += fmt.Sprintf(`"%d%s":1,`, i, strings.Repeat(name, 60))
		}
		return "{" + text + `"item":"x","qty":1}`
	}
	requests = append(requests, order(100, wide("")), order(5, wide("é")), order(5, wide(`\u0001`)),
		order(1, `{"`+strings.Repeat("😀", 15_000)+`":1}`),
		order(1, `{"`+strings.Repeat("/", 60_000)+`":"\ud800"}`),
		order(1, strings.Repeat(`{"`+strings.Repeat("é", 500)+`":`, 30)+`{"a":1,"a":2}`+strings.Repeat("}", 30)),
		order(1, strings.Repeat(`{"~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~":`, 1001)+"1"+strings.Repeat("}", 1001)),
		order(1, teapots, "Content-Type: application/json", "Idempotency-Key: "+strings.Repeat("k", 100_000)),
		trial{method: strings.Repeat("M", 100_000), target: "/v1/users"}, read(0, "/"+strings.Repeat("x", 100_000)))
	for _, r := range requests {
		got := r.send(quiet(new(MemStore)))
		if n := len(got.wantSmallAndWhole(t).Errors); got.status < 400 || n > 100 || n < r.status {
			t.Errorf("%.40s %.40s: %d with %d faults, want %d", r.target, r.body, got.status, n, r.status)
		}
	}
	if _, faults := parseQuery(strings.Repeat("a&", 10_000)); len(faults) != maxFaults {
		t.Errorf("%d faults are made, want %d", len(faults), maxFaults)
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
		{"status alone", Problem{Status: 401}, 401,
			`{"type":"about:blank","title":"Unauthorized","status":401}`},
		{"status of a success", Problem{Status: 200}, 500,
			`{"type":"about:blank","title":"Internal Server Error","status":500}`},
		{"status without a text", Problem{Status: 499}, 499,
			`{"type":"about:blank","title":"Error","status":499}`},
		{"status beyond", Problem{Status: 600}, 500,
			`{"type":"about:blank","title":"Internal Server Error","status":500}`},
		{"all members", Problem{"urn:a", "A", 429, "Too <many> & more", "r", "urn:b", []Fault{{Detail: "d",
			Parameter: "p", Header: "h", Pointer: "#/x", Minimum: new(int64(0)), Maximum: new(int64(2))}}}, 429,
			`{"type":"urn:a","title":"A","status":429,"detail":"Too <many> & more","reason":"r",` +
				`"instance":"urn:b","errors":[{"detail":"d","parameter":"p",` +
				`"header":"h","pointer":"#/x","minimum":0,"maximum":2}]}`},
		{"text that is not UTF-8", Problem{Status: 400, Detail: "\xff"}, 400,
			`{"type":"about:blank","title":"Bad Request","status":400,"detail":` + string(replaced) + `}`},
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
