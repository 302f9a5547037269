package storefront

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A shelf is a store of products that counts: the n-th call of GetProduct returns
// the version n of whatever it is asked for, unless fail says otherwise.
type shelf struct {
	stubStore
	handler http.Handler

	mu    sync.Mutex
	calls int
	fail  error
}

// newShelf returns a shelf and the handler on it. wait, if it is not nil, is what
// the n-th call does before it returns.
func newShelf(opts *Options, wait func(ctx context.Context, n int) error) *shelf {
	s := new(shelf)
	s.getProduct = func(ctx context.Context, id string) (Resource, error) {
		s.mu.Lock()
		s.calls++
		n, err := s.calls, s.fail
		s.mu.Unlock()
		if wait != nil && err == nil {
			err = wait(ctx, n)
		}
		if err != nil {
			return Resource{}, err
		}
		return productVersion(id, n), nil
	}
	quiet := *cmp.Or(opts, new(Options))
	quiet.Logger = slog.New(slog.DiscardHandler)
	s.handler = NewWithOptions(s, &quiet)
	return s
}

func productVersion(id string, n int) Resource {
	return MustResource(id, map[string]int{"version": n})
}

func (s *shelf) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// get reads the product p1 with Cache-Control lines.
func (s *shelf) get(cacheControl ...string) response {
	return <-s.start(context.Background(), cacheControl...)
}

// start begins what get does, in a goroutine of its own.
func (s *shelf) start(ctx context.Context, cacheControl ...string) <-chan response {
	done := make(chan response, 1)
	go func() {
		r := httptest.NewRequestWithContext(ctx, "GET", "/v1/products/p1", nil)
		if len(cacheControl) > 0 {
			r.Header["Cache-Control"] = cacheControl
		}
		done <- do(s.handler, r)
	}()
	return done
}

// wantVersion checks that the response is this version of p1.
func (r response) wantVersion(t *testing.T, n int) {
	t.Helper()
	if want := productVersion("p1", n).String(); r.status != http.StatusOK || r.body != want {
		t.Errorf("status %d with %s, want 200 with %s", r.status, r.body, want)
	}
}

// wantCalls checks how often the store was asked.
func (s *shelf) wantCalls(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls != want {
		t.Errorf("%d calls of the store, want %d", s.calls, want)
	}
}

// wantStored checks which version of p1 is in memory; 0 is none.
func (s *shelf) wantStored(t *testing.T, n int) {
	t.Helper()
	r := s.get("only-if-cached, max-stale")
	if n == 0 {
		r.wantStatus(t, http.StatusGatewayTimeout)
	} else {
		r.wantVersion(t, n)
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestProductIsTheStoresBytes(t *testing.T) {
	const want = `{"id":"p1","name":"Teapot"}`
	r := get(New(newCacheableStore()), "/v1/products/p1")
	if r.status != http.StatusOK || r.body != want {
		t.Errorf("status %d with %s, want 200 with %s", r.status, r.body, want)
	}
	if length, tag := r.header.Get("Content-Length"), r.header.Get("ETag"); length != strconv.Itoa(len(want)) || tag != productTag {
		t.Errorf("Content-Length %s and ETag %s, want %d and %s", length, tag, len(want), productTag)
	}
}

// Outcomes of a request for a product.
const (
	fromMemory = "answered from memory"
	asked      = "asked of the store, and kept"
	askedOnly  = "asked of the store, and not kept"
	unanswered = "504, and the store not asked"
)

func TestRequestCacheControl(t *testing.T) {
	const nothing = -1 // is in memory
	for _, test := range []struct {
		age   float64 // of the product in memory, in seconds
		want  string
		lines []string
	}{
		{30, askedOnly, nil},
		{0, asked, []string{``}},
		{30, fromMemory, []string{`max-age=30`}},
		{0, asked, []string{`max-age=0`}},
		{0, asked, []string{`no-cache`}},
		{0, askedOnly, []string{`no-store`}},
		{40, fromMemory, []string{`min-fresh=20`}},
		{41, asked, []string{`min-fresh=20`}},
		{70, fromMemory, []string{`max-stale=10`}},
		{71, asked, []string{`max-stale=10`}},
		{1e7, fromMemory, []string{`max-stale`}},
		{59, fromMemory, []string{`only-if-cached`}},
		{60, unanswered, []string{`only-if-cached`}},
		{0, unanswered, []string{`only-if-cached, max-age=x`}},
		{0, asked, []string{`max-age=30`, `no-cache`}},
		{20, asked, []string{`max-age=30`, `max-age=10`}},
		{59, fromMemory, []string{`max-age=99999999999999999999`}},
		{nothing, askedOnly, nil},
		{nothing, asked, []string{`max-age=30`}},
		{nothing, askedOnly, []string{`no-store`}},
		{nothing, unanswered, []string{`only-if-cached`}},
	} {
		t.Run(fmt.Sprintf("%q, age %v: %s", test.lines, test.age, test.want), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(nil, nil)
				had := 0
				if test.age != nothing {
					s.get("no-cache").wantVersion(t, 1)
					had = 1
					time.Sleep(time.Duration(test.age * float64(time.Second)))
				}
				r := s.get(test.lines...)
				calls, stored := had, had
				if test.want == asked || test.want == askedOnly {
					calls++
				}
				if test.want == asked {
					stored = calls
				}
				if test.want == unanswered {
					r.wantProblem(t, http.StatusGatewayTimeout, "not-cached")
				} else {
					r.wantVersion(t, calls)
				}
				s.wantCalls(t, calls)
				s.wantStored(t, stored)
			})
		})
	}
}

func TestHEADIsAnsweredFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, nil)
		for want := range 2 {
			time.Sleep(time.Second)
			r := send(s.handler, "HEAD", "/v1/products/p1", "", "Cache-Control: max-age=30")
			if age := r.header["Age"]; r.status != http.StatusOK || r.body != "" || len(age) != want {
				t.Errorf("status %d, Age %q, body %q", r.status, age, r.body)
			}
		}
		s.wantCalls(t, 1)
	})
}

func TestAgeAndDateAreThoseOfTheStoredAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, nil)
		r := s.get("max-age=60")
		for _, name := range []string{"Age", "Date"} {
			if got, ok := r.header[name]; ok { // a nil Date would keep the server from adding its own
				t.Errorf("%s %q of what the store has just said, want none", name, got)
			}
		}
		date := time.Now().UTC().Format(http.TimeFormat)
		for _, step := range []struct {
			wait time.Duration
			age  string
		}{{0, "0"}, {999 * time.Millisecond, "0"}, {time.Millisecond, "1"}, {58 * time.Second, "59"}, {41 * time.Second, "100"}} {
			time.Sleep(step.wait)
			hit := s.get("max-stale")
			if !slices.Equal(hit.header["Age"], []string{step.age}) || !slices.Equal(hit.header["Date"], []string{date}) {
				t.Errorf("status %d with Age %q and Date %q, want %s and %s", hit.status, hit.header["Age"], hit.header["Date"], step.age, date)
			}
		}
	})
}

// A cache on the way that forwards max-stale but ignores Age would otherwise keep a
// stale product for everybody, and take a 304 as a renewal of it.
func TestAnswersPastTheirLifetimeAreMarkedNoCacheAndGoOutInFull(t *testing.T) {
	for _, test := range []struct {
		name   string
		opts   Options
		age    time.Duration
		want   string
		status int // with the entity tag in If-None-Match
	}{
		{"just below the lifetime", Options{}, 60*time.Second - 1, "private, max-age=60", 304},
		{"at the lifetime", Options{}, 60 * time.Second, "private, no-cache", 200},
		{"past the lifetime", Options{}, time.Hour, "private, no-cache", 200},
		{"shared, below", Options{Shared: true}, 59 * time.Second, "max-age=60", 304},
		{"shared, past", Options{Shared: true}, 61 * time.Second, "no-cache", 200},
		{"when Age reaches the max-age that is sent", Options{MaxAge: 1900 * time.Millisecond}, time.Second, "private, no-cache", 200},
		{"with a max-age that is sent as 0", Options{MaxAge: time.Millisecond}, 0, "private, no-cache", 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(&test.opts, nil)
				s.get("max-age=60")
				time.Sleep(test.age)
				r := s.get("max-stale")
				r.wantVersion(t, 1)
				if got := r.header["Cache-Control"]; !slices.Equal(got, []string{test.want}) {
					t.Errorf("Cache-Control %q, want %s", got, test.want)
				}
				for _, line := range []string{"If-None-Match: " + r.header.Get("ETag"), "If-None-Match: *"} {
					again := get(s.handler, "/v1/products/p1", "Cache-Control: max-stale", line)
					if got := again.header["Cache-Control"]; again.status != test.status || !slices.Equal(got, []string{test.want}) {
						t.Errorf("%s: status %d with Cache-Control %q, want %d with %s", line, again.status, got, test.status, test.want)
					}
				}
				s.wantCalls(t, 1)
			})
		})
	}
}

func TestCacheStatus(t *testing.T) {
	const nothing = -1 // is in memory
	for _, test := range []struct {
		age  float64
		line string
		want string
	}{
		{nothing, "max-age=30", "storefront; fwd=uri-miss"},
		{nothing, "no-store", "storefront; fwd=uri-miss"},
		{nothing, "only-if-cached", "storefront"},
		{0, "max-age=30", "storefront; hit; ttl=60"},
		{10.5, "max-age=30", "storefront; hit; ttl=49"},
		{59.5, "max-age=60", "storefront; hit; ttl=0"},
		{70, "max-stale", "storefront; hit; ttl=-10"},
		{10, "no-cache", "storefront; fwd=request"},
		{60, "x", "storefront; fwd=stale"},
	} {
		t.Run(fmt.Sprintf("%s, age %v", test.line, test.age), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(nil, nil)
				if test.age != nothing {
					s.get("no-cache")
					time.Sleep(time.Duration(test.age * float64(time.Second)))
				}
				if got := s.get(test.line).header["Cache-Status"]; !slices.Equal(got, []string{test.want}) {
					t.Errorf("Cache-Status %q, want %q", got, test.want)
				}
			})
		})
	}
	t.Run("only of products", func(t *testing.T) {
		h := New(newCacheableStore())
		for _, target := range cacheableTargets {
			if got := get(h, target, "Cache-Control: no-cache").header["Cache-Status"]; (got != nil) != (target == "/v1/products/p1") {
				t.Errorf("%s: Cache-Status %q", target, got)
			}
		}
	})
}

func TestNoCacheMayBeAnsweredWith304AndRefreshesTheMemory(t *testing.T) {
	for _, line := range []string{"no-cache", "max-age=0"} {
		synctest.Test(t, func(t *testing.T) {
			h := New(newCacheableStore())
			get(h, "/v1/products/p1", "Cache-Control: no-cache")
			time.Sleep(30 * time.Second)
			r := get(h, "/v1/products/p1", "Cache-Control: "+line, "If-None-Match: "+productTag)
			if r.status != http.StatusNotModified || r.header["Age"] != nil {
				t.Errorf("%s: status %d, Age %q, want 304 of the store's", line, r.status, r.header["Age"])
			}
			if age := get(h, "/v1/products/p1", "Cache-Control: only-if-cached").header.Get("Age"); age != "0" {
				t.Errorf("%s: Age %s afterwards, want 0", line, age)
			}
		})
	}
}

// A cache does not evaluate If-Match (RFC 9111, Section 4.3.2): it is about the
// product as it is now.
func TestIfMatchIsNotEvaluatedFromTheCache(t *testing.T) {
	s := newShelf(nil, nil)
	s.get().wantVersion(t, 1)
	r := get(s.handler, "/v1/products/p1", "Cache-Control: max-age=60", "If-Match: "+productVersion("p1", 2).ETag())
	r.wantVersion(t, 2)
	r = get(s.handler, "/v1/products/p1", "Cache-Control: max-age=60", "If-Match: "+productVersion("p1", 2).ETag())
	r.wantProblem(t, http.StatusPreconditionFailed, "precondition-failed")
	s.wantCalls(t, 3)
	s.wantStored(t, 3)
	s.failWith(ErrUnavailable)
	r = get(s.handler, "/v1/products/p1", "Cache-Control: stale-if-error=60", "If-Match: "+productVersion("p1", 3).ETag())
	r.wantProblem(t, http.StatusServiceUnavailable, "unavailable")
}

func TestFailureThatStaleIfErrorCoversIsLogged(t *testing.T) {
	var log strings.Builder
	var failure error
	h := NewWithOptions(&stubStore{getProduct: func(context.Context, string) (Resource, error) {
		return MustResource("p1", nil), failure
	}}, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	get(h, "/v1/products/p1", "Cache-Control: no-cache")
	failure = errors.New("disk on fire")
	r := get(h, "/v1/products/p1", "Cache-Control: stale-if-error=60")
	if r.status != http.StatusOK || !strings.Contains(log.String(), "disk on fire") {
		t.Errorf("status %d and the log %q, want 200 and the failure in the log", r.status, log.String())
	}
}

func TestStaleIfError(t *testing.T) {
	for _, test := range []struct {
		age    float64
		err    error
		line   string
		status int
		want   http.Header
	}{
		{10, errors.New("failed"), "no-cache, stale-if-error=30", 200, http.Header{
			"Age": {"10"}, "Cache-Status": {"storefront; fwd=request"}, "Cache-Control": {"private, max-age=60"}}},
		{90, errors.New("failed"), "stale-if-error=30", 200, http.Header{
			"Age": {"90"}, "Cache-Status": {"storefront; fwd=stale"}, "Cache-Control": {"private, no-cache"}}},
		{90, ErrUnavailable, "max-age=5, stale-if-error=30", 200, http.Header{
			"Age": {"90"}, "Cache-Status": {"storefront; fwd=stale"}, "Cache-Control": {"private, no-cache"}}},
		{91, errors.New("failed"), "stale-if-error=30", 500, http.Header{"Age": nil, "Cache-Status": {"storefront; fwd=stale"}}},
		{91, ErrUnavailable, "stale-if-error=30", 503, http.Header{"Age": nil, "Cache-Status": {"storefront; fwd=stale"}}},
		{61, ErrNotFound, "stale-if-error=30", 404, http.Header{"Age": nil, "Cache-Status": {"storefront; fwd=stale"}}},
		{61, errors.New("failed"), "no-cache", 500, http.Header{"Age": nil, "Cache-Status": {"storefront; fwd=stale"}}},
	} {
		t.Run(fmt.Sprintf("%s, age %v, %v", test.line, test.age, test.err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(nil, nil)
				s.get("no-cache")
				if test.status == http.StatusOK {
					test.want["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
				}
				time.Sleep(time.Duration(test.age * float64(time.Second)))
				s.failWith(test.err)
				r := s.get(test.line)
				r.wantStatus(t, test.status)
				for name, want := range test.want {
					if got := r.header[name]; !slices.Equal(got, want) {
						t.Errorf("%s %q, want %q", name, got, want)
					}
				}
			})
		})
	}
}

func TestCacheSizeBoundsTheMemory(t *testing.T) {
	for size, most := range map[int]int{0: 10_000, 2: 2} {
		synctest.Test(t, func(t *testing.T) { // or the first products might become stale
			s := newShelf(&Options{CacheSize: size}, nil)
			for i := range most + 1 {
				get(s.handler, "/v1/products/"+strconv.Itoa(i), "Cache-Control: no-cache")
			}
			for i, want := range map[int]int{0: 504, 1: 200, most: 200} {
				if r := get(s.handler, "/v1/products/"+strconv.Itoa(i), "Cache-Control: only-if-cached"); r.status != want {
					t.Errorf("CacheSize %d: status %d for product %d of %d, want %d", size, r.status, i, most+1, want)
				}
			}
		})
	}
}

func TestMaxAgeBoundsTheAgeOfProductsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, maxAge := range []time.Duration{500 * time.Millisecond, 90 * time.Minute} {
			s := newShelf(&Options{MaxAge: maxAge}, nil)
			s.get("no-cache")
			time.Sleep(maxAge - time.Nanosecond)
			s.get("max-age=86400").wantVersion(t, 1)
			time.Sleep(time.Nanosecond)
			s.get("max-age=86400").wantVersion(t, 2)
		}
	})
}

// wantBypass checks that lines have the store asked each time, and leave nothing
// in the cache.
func (s *shelf) wantBypass(t *testing.T, lines ...string) {
	t.Helper()
	for n := 1; n <= 2; n++ {
		r := get(s.handler, "/v1/products/p1", append(lines, "Cache-Control: max-age=30")...)
		r.wantVersion(t, n)
		if got := r.header.Get("Cache-Status"); got != "storefront; fwd=bypass" {
			t.Errorf("Cache-Status %q", got)
		}
	}
	r := get(s.handler, "/v1/products/p1", append(lines, "Cache-Control: only-if-cached")...)
	r.wantProblem(t, http.StatusGatewayTimeout, "not-cached")
	s.wantCalls(t, 2)
	s.wantStored(t, 0)
}

func TestNegativeCacheSizeAndNegativeMaxAgeKeepNothing(t *testing.T) {
	for _, opts := range []*Options{{CacheSize: -1}, {MaxAge: -1}, {CacheSize: -1, Shared: true}, {MaxAge: -time.Hour, Shared: true}} {
		newShelf(opts, nil).wantBypass(t)
	}
}

func TestCredentialsBypassTheCacheUnlessScopeOrSharedIsSet(t *testing.T) {
	for _, line := range []string{"Authorization: Bearer a", "Cookie: a=b", "Authorization: "} {
		newShelf(nil, nil).wantBypass(t, line)
		for _, opts := range []*Options{{Shared: true}, {Scope: func(*http.Request) string { return "a" }}} {
			s := newShelf(opts, nil)
			for range 2 {
				get(s.handler, "/v1/products/p1", line, "Cache-Control: max-age=30").wantVersion(t, 1)
			}
			s.wantCalls(t, 1)
		}
	}
	t.Run("what others have stored is not given to them", func(t *testing.T) {
		s := newShelf(nil, nil)
		s.get("no-cache")
		get(s.handler, "/v1/products/p1", "Authorization: Bearer a", "Cache-Control: max-age=30").wantVersion(t, 2)
		s.wantStored(t, 1)
	})
}

func TestScopesShareNeitherAnEntryNorACallUnlessTheyShareAllProducts(t *testing.T) {
	scope := func(r *http.Request) string { return r.Header.Get("Tenant") }
	tenants := []string{"", "a", "b", "ap1", "a/p1"}
	for _, test := range []struct {
		opts  Options
		calls int
	}{{Options{Scope: scope}, len(tenants)}, {Options{Scope: scope, Shared: true}, 1}} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(&test.opts, func(ctx context.Context, _ int) error { return pause(ctx, time.Second) })
			var wg sync.WaitGroup
			for _, tenant := range tenants {
				wg.Go(func() {
					first := get(s.handler, "/v1/products/p1", "Tenant: "+tenant, "Cache-Control: max-age=30").body
					r := get(s.handler, "/v1/products/p1", "Tenant: "+tenant, "Cache-Control: only-if-cached")
					if r.status != http.StatusOK || r.body != first {
						t.Errorf("tenant %q: status %d with %s, want %s", tenant, r.status, r.body, first)
					}
				})
			}
			wg.Wait()
			s.wantCalls(t, test.calls)
		})
	}
}

func TestARequestThatJoinsACallSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, 50*time.Second) })
		date := time.Now().UTC().Format(http.TimeFormat)
		first := s.start(t.Context(), "max-age=60")
		time.Sleep(49 * time.Second)
		joined := <-s.start(t.Context(), "max-age=60")
		joined.wantVersion(t, 1)
		if joined.header.Get("Age") != "50" || joined.header.Get("Date") != date || joined.header.Get("Cache-Status") != "storefront; fwd=uri-miss; collapsed" {
			t.Errorf("Age %s, Date %s, Cache-Status %s", joined.header.Get("Age"), joined.header.Get("Date"), joined.header.Get("Cache-Status"))
		}
		if own := <-first; own.header["Age"] != nil || own.header.Get("Cache-Status") != "storefront; fwd=uri-miss" {
			t.Errorf("the request that began the call got Age %s, Cache-Status %s", own.header["Age"], own.header.Get("Cache-Status"))
		}
	})
}

func TestARequestThatStopsWaitingIs503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, 5*time.Second) })
		timed, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		gone, cancel := context.WithCancel(t.Context())
		hurried, left := s.start(timed, "max-age=60"), s.start(gone, "max-age=60")
		synctest.Wait()
		cancel()
		for _, p := range []<-chan response{hurried, left} {
			r := <-p
			r.wantProblem(t, http.StatusServiceUnavailable, "unavailable")
			if r.header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After %q, want 1", r.header.Get("Retry-After"))
			}
		}
	})
}

func TestContextValuesReachTheStore(t *testing.T) {
	type key struct{}
	for _, line := range []string{"", "max-age=60", "no-store"} {
		var got any
		s := newShelf(nil, func(ctx context.Context, _ int) error {
			got = ctx.Value(key{})
			return nil
		})
		<-s.start(context.WithValue(t.Context(), key{}, "trace"), line)
		if got != "trace" {
			t.Errorf("with %q the store sees %v, want the value of the request's context", line, got)
		}
	}
}

// In an address of its own, each shop is another one.
func TestProductsThatDependOnTheHostAreNotShared(t *testing.T) {
	store := &stubStore{getProduct: func(ctx context.Context, id string) (Resource, error) {
		return MustResource(id, map[string]any{"of": ctx.Value(http.LocalAddrContextKey)}), nil
	}}
	h := NewWithOptions(store, &Options{Vary: []string{"host"}})
	read := func(host string) response {
		r := newRequest("GET", "/v1/products/p", "", "Cache-Control: max-age=60")
		r.Host = host
		return do(h, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, host)))
	}
	for _, host := range []string{"a.example", "b.example", "a.example"} {
		if r := read(host); r.body != `{"id":"p","of":"`+host+`"}` || r.header.Get("Cache-Status") != "storefront; fwd=bypass" {
			t.Errorf("%s got %s, Cache-Status %s", host, r.body, r.header.Get("Cache-Status"))
		}
	}
}

// A read is as new as the answer, however long the body of the request takes.
func TestTheBodyOfAReadIsDroppedBeforeAnythingIsAsked(t *testing.T) {
	read := false
	list := func(context.Context, string, int) ([]Resource, error) {
		if !read {
			t.Error("the store was asked before the body was read")
		}
		return nil, nil
	}
	h := New(&stubStore{listUsers: list, listWidgets: list, getProduct: func(_ context.Context, id string) (Resource, error) {
		list(nil, "", 0)
		return MustResource(id, nil), nil
	}})
	for _, target := range []string{"/v1/users", "/v1/products/p1", "/v2/widgets?limit=1"} {
		for _, line := range []string{"Accept: */*", "Cache-Control: no-cache"} {
			read = false
			r := newRequest("GET", target, "", line)
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("a body"), readerFunc(func([]byte) (int, error) {
				read = true
				return 0, io.EOF
			})))
			do(h, r)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestARequestWithoutCacheControlHasNothingToDoWithTheMemory(t *testing.T) {
	s := newShelf(&Options{Scope: func(r *http.Request) string {
		if r.Header["Cache-Control"] == nil {
			t.Error("the service asks for a scope")
		}
		return ""
	}}, nil)
	without := func(fail error, status int) {
		t.Helper()
		s.failWith(fail)
		r := s.get()
		r.wantStatus(t, status)
		if got := r.header["Cache-Status"]; got != nil { // every header costs the clients that did not ask for it
			t.Errorf("Cache-Status %q, want none", got)
		}
	}
	without(nil, http.StatusOK)
	s.wantStored(t, 0)
	s.get("max-age=60").wantVersion(t, 2)
	without(nil, http.StatusOK)
	without(ErrNotFound, http.StatusNotFound)
	s.wantStored(t, 2)
}

func TestEveryAnswerOfAProductToARequestWithCacheControlHasCacheStatus(t *testing.T) {
	for _, test := range []struct {
		fail   error
		lines  []string
		status int
		want   string
	}{
		{nil, []string{"Cache-Control: max-age=60", "If-None-Match: *"}, 304, "storefront; hit; ttl=60"},
		{nil, []string{"Cache-Control: no-cache", "If-None-Match: *"}, 304, "storefront; fwd=request"},
		{nil, []string{"Cache-Control: max-age=60", `If-Match: "x"`}, 412, "storefront; fwd=request"},
		{nil, []string{"Cache-Control: only-if-cached, no-cache"}, 504, "storefront"},
		{nil, []string{"Cache-Control: only-if-cached", "Cookie: a=b"}, 504, "storefront"},
		{ErrUnavailable, []string{"Cache-Control: no-cache"}, 503, "storefront; fwd=request"},
		{errors.New("x"), []string{"Cache-Control: no-cache"}, 500, "storefront; fwd=request"},
		{ErrNotFound, []string{"Cache-Control: no-cache"}, 404, "storefront; fwd=request"},
	} {
		synctest.Test(t, func(t *testing.T) { // as ttl tells of time
			s := newShelf(nil, nil)
			s.get("max-age=60")
			s.failWith(test.fail)
			r := get(s.handler, "/v1/products/p1", test.lines...)
			if got := r.header["Cache-Status"]; r.status != test.status || !slices.Equal(got, []string{test.want}) {
				t.Errorf("%q: status %d with Cache-Status %q, want %d with %q", test.lines, r.status, got, test.status, test.want)
			}
		})
	}
}

// A cache takes the age of a 304 for that of what it renews (RFC 9111, Section 4.3.4).
func TestNotModifiedFromTheMemoryHasItsAgeAndDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, nil)
		tag := s.get("max-age=60").header.Get("Etag")
		date := time.Now().UTC().Format(http.TimeFormat)
		time.Sleep(10 * time.Second)
		r := get(s.handler, "/v1/products/p1", "Cache-Control: max-age=60", "If-None-Match: "+tag)
		want := response{304, http.Header{
			"Age": {"10"}, "Date": {date}, "Etag": {tag}, "Cache-Control": {"private, max-age=60"}, "Cache-Status": {"storefront; hit; ttl=50"},
		}, ""}
		if diff := want.diff(r); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		s.wantCalls(t, 1)
	})
}
