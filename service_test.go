package storefront

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestConstruction(t *testing.T) {
	with := func(opts Options) func() http.Handler {
		return func() http.Handler { return NewWithOptions(new(MemStore), &opts) }
	}
	vary := func(names ...string) func() http.Handler { return with(Options{Vary: names}) }
	for name, make := range map[string]func() http.Handler{
		"nil options":                   func() http.Handler { return NewWithOptions(new(MemStore), nil) },
		"durations and size negative":   with(Options{MaxAge: -1, ListMaxAge: -1, CacheSize: -1}),
		"a million":                     with(Options{PageSize: 1_000_000, MaxPageSize: 1_000_000}),
		"bad: New of nil":               func() http.Handler { return New(nil) },
		"bad: NewWithOptions of nil":    func() http.Handler { return NewWithOptions(nil, new(Options)) },
		"bad: PageSize -1":              with(Options{PageSize: -1}),
		"bad: PageSize above 500":       with(Options{PageSize: 501}),
		"bad: PageSize above the other": with(Options{PageSize: 8, MaxPageSize: 7}),
		"bad: MaxPageSize -1":           with(Options{MaxPageSize: -1}),
		"bad: both negative":            with(Options{PageSize: -2, MaxPageSize: -1}),
		"bad: MaxPageSize 1,000,001":    with(Options{MaxPageSize: 1_000_001}),
		"bad: Vary with an empty name":  vary("Cookie", ""),
		"bad: Vary with a space":        vary("a b"),
		"bad: Vary with two names":      vary("Cookie,Authorization"),
		"bad: Vary beyond ASCII":        vary("é"),
		"bad: Vary with a colon":        vary("X:"),
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				v := recover()
				text, _ := v.(string)
				if want := strings.HasPrefix(name, "bad"); (v != nil) != want ||
					strings.HasPrefix(text, "storefront: ") != want {
					t.Errorf("panic %v, want one: %t", v, want)
				}
			}()
			if make() == nil {
				t.Error("the handler is nil")
			}
		})
	}
}

// The mux of Go 1.21 would take the methods of the routes for hosts.
func TestNewRefusesTheMuxOfGo121(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	construct := exec.Command(program, "-test.run", "^TestConstruction$/^nil_options$")
	construct.Env = append(os.Environ(), "GODEBUG=httpmuxgo121=1")
	if out, err := construct.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "panic storefront: GODEBUG has httpmuxgo121=1") {
		t.Errorf("New with the old mux: error %v, want a panic that names the setting\n%s", err, out)
	}
	t.Setenv("GODEBUG", "httpmuxgo121=1") // is too late to change the mux
	get(New(new(MemStore)), "/v1/users").wantStatus(t, http.StatusOK)
}

func TestZeroOptionsAreTheDocumentedDefaults(t *testing.T) {
	var limits []int
	store := &stubStore{listUsers: func(_ context.Context, _ string, limit int) ([]Resource, error) {
		limits = append(limits, limit)
		return nil, nil
	}}
	for _, h := range []http.Handler{New(store), NewWithOptions(store, nil),
		NewWithOptions(store, new(Options))} {
		limits = nil
		get(h, "/v1/users")
		get(h, "/v1/users?limit=500")
		get(h, "/v1/users?limit=501").wantProblem(t, 400, "invalid-query")
		if !slices.Equal(limits, []int{51, 501}) { // one more says whether more follow
			t.Errorf("the store was asked for %d, want 51 and 501", limits)
		}
	}
}

func TestOptionsAreCopied(t *testing.T) {
	var log bytes.Buffer
	scoped := 0
	opts := Options{
		Logger: slog.New(slog.NewTextHandler(&log,
			nil)), PageSize: 2, MaxPageSize: 3, ListMaxAge: 5 * time.Second,
		Scope: func(*http.Request) string { scoped++; return "" },
	}
	h := NewWithOptions(newTrialStore(), &opts)
	if opts.PageSize != 2 || opts.MaxPageSize != 3 || opts.CacheSize != 0 || opts.Shared {
		t.Errorf("NewWithOptions has changed the options to %+v", opts)
	}
	opts = Options{Logger: slog.New(slog.DiscardHandler), PageSize: 1, MaxPageSize: 1, ListMaxAge: -1,
		Shared: true}

	users := get(h, "/v1/users")
	cacheControl, n := users.header.Get("Cache-Control"), strings.Count(users.body, `"id"`)
	more := get(h, "/v1/users?limit=3").status
	postOrder(h, "k", teapots)
	send(h, "BREW", "/", "")
	if n != 2 || cacheControl != "private, max-age=5" || more != 200 || scoped == 0 || log.Len() == 0 {
		t.Errorf("%d users, %s, limit=3 is %d, %d calls of Scope, log %q: want the options that were given",
			n, cacheControl, more, scoped, &log)
	}
}

func TestHandlersShareNothing(t *testing.T) {
	var one, two MemStore
	one.Products.Put(MustResource("p", map[string]any{"of": "one"}))
	two.Products.Put(MustResource("p", map[string]any{"of": "two"}))
	for range 2 {
		for _, row := range []struct {
			h                     http.Handler
			product, cacheControl string
			status                int
		}{
			{NewWithOptions(&one, &Options{MaxAge: time.Hour, MaxPageSize: 10}), "one",
				"private, max-age=3600", 400},
			{NewWithOptions(&two, &Options{MaxAge: time.Second, Shared: true}), "two", "max-age=1", 200},
		} {
			r := get(row.h, "/v1/products/p", "Cache-Control: max-age=1")
			if got := r.header.Get("Cache-Control"); !strings.Contains(r.body, row.product) ||
				got != row.cacheControl {
				t.Errorf("got %s with Cache-Control %s, want %s with %s", r.body, got, row.product,
					row.cacheControl)
			}
			get(row.h, "/v1/users?limit=11").wantStatus(t, row.status)
			postOrder(row.h, "k", teapots).wantStatus(t, 201)
		}
	}
	if len(one.Orders()) != 1 || len(two.Orders()) != 1 {
		t.Errorf("the stores have %d and %d orders, want one each", len(one.Orders()), len(two.Orders()))
	}
}

// At its end a bubble must have no goroutine but the test's own.
func TestNoGoroutineIsLeft(t *testing.T) {
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
			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			h := quiet(failingBy(func() error {
				<-ctx.Done()
				return ctx.Err()
			}))
			for _, target := range []string{"/v1/users", "/v2/widgets?limit=1", "/v1/products/p",
				"/v1/products/p", "/v1/products/q"} {
				for _, directive := range []string{"", "max-age=60", "no-cache"} {
					wg.Go(func() {
						do(h,
							newRequest("GET", target, "", "Cache-Control: "+directive).WithContext(ctx))
					})
				}
			}
			synctest.Wait()
			cancel()
			wg.Wait()
		})
	})
}

func TestWhatAWrapperHasIsAddedTo(t *testing.T) {
	h := NewWithOptions(newCacheableStore(), &Options{Vary: []string{"Cookie"}})
	shared := make([]string, 1, 4) // of all responses of the wrapper
	shared[0] = "</help>; rel=help"
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Vary"], w.Header()["Link"] = shared, shared
		h.ServeHTTP(w, r)
	})
	for _, target := range cacheableTargets {
		r := get(outer, target)
		if got := r.header["Vary"]; !slices.Equal(got, []string{shared[0], "Cookie"}) {
			t.Errorf("%s: Vary %q, want both", target, got)
		}
		if got, list := r.header["Link"], strings.Contains(target, "limit"); got[0] != shared[0] ||
			(len(got) == 2) != list {
			t.Errorf("%s: Link %q, want that of the wrapper and of the next page", target, got)
		}
	}
	if got := shared[:2][1]; got != "" {
		t.Errorf("the service has written %q into the wrapper's slice", got)
	}
}
