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
	for _, row := range []struct {
		name   string
		make   func() http.Handler
		panics bool
	}{
		{"New of nil", func() http.Handler { return New(nil) }, true},
		{"NewWithOptions of nil", func() http.Handler { return NewWithOptions(nil, new(Options)) }, true},
		{"nil options", func() http.Handler { return NewWithOptions(new(MemStore), nil) }, false},
		{"PageSize -1", with(Options{PageSize: -1}), true},
		{"PageSize above the default MaxPageSize", with(Options{PageSize: 501}), true},
		{"PageSize above MaxPageSize", with(Options{PageSize: 8, MaxPageSize: 7}), true},
		{"MaxPageSize -1", with(Options{MaxPageSize: -1}), true},
		{"both negative", with(Options{PageSize: -2, MaxPageSize: -1}), true},
		{"MaxPageSize 1,000,001", with(Options{MaxPageSize: 1_000_001}), true},
		{"MaxAge, ListMaxAge and CacheSize negative", with(Options{MaxAge: -1, ListMaxAge: -1, CacheSize: -1}), false},
		{"Vary with an empty name", with(Options{Vary: []string{"Cookie", ""}}), true},
		{"Vary with a space", with(Options{Vary: []string{"a b"}}), true},
		{"Vary with two names in one", with(Options{Vary: []string{"Cookie,Authorization"}}), true},
		{"Vary beyond ASCII", with(Options{Vary: []string{"é"}}), true},
		{"Vary with a colon", with(Options{Vary: []string{"X:"}}), true},
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

// The mux of Go 1.21 would take the methods of the routes for hosts.
func TestNewRefusesTheMuxOfGo121(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	construct := exec.Command(program, "-test.run", "^TestConstruction$/^nil_options$")
	construct.Env = append(os.Environ(), "GODEBUG=httpmuxgo121=1")
	if out, err := construct.CombinedOutput(); err == nil || !strings.Contains(string(out), "panic storefront: GODEBUG has httpmuxgo121=1") {
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
	for _, h := range []http.Handler{New(store), NewWithOptions(store, nil), NewWithOptions(store, new(Options))} {
		limits = nil
		if got := get(h, "/v1/users").header.Get("Cache-Control"); got != "private, no-cache" {
			t.Errorf("Cache-Control: %s, want private, no-cache", got)
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
		Logger: slog.New(slog.NewTextHandler(&log, nil)), PageSize: 2, MaxPageSize: 3, ListMaxAge: 5 * time.Second,
		Scope: func(*http.Request) string { scoped++; return "" },
	}
	opts := given
	h := NewWithOptions(store, &opts)
	if opts.PageSize != 2 || opts.MaxPageSize != 3 || opts.CacheSize != 0 || opts.Shared {
		t.Errorf("NewWithOptions has changed the options to %+v", opts)
	}
	opts = Options{Logger: slog.New(slog.DiscardHandler), PageSize: 1, MaxPageSize: 1, ListMaxAge: -1, Shared: true, CacheSize: -1}

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
	postOrder(h, "k", teapots)
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
		for _, row := range []struct {
			h                     http.Handler
			product, cacheControl string
			status                int
		}{
			{h1, `{"id":"p","of":"one"}`, "private, max-age=3600", 400},
			{h2, `{"id":"p","of":"two"}`, "max-age=1", 200},
		} {
			got := get(row.h, "/v1/products/p", "Cache-Control: max-age=1")
			if got.body != row.product || got.header.Get("Cache-Control") != row.cacheControl {
				t.Errorf("got %s with Cache-Control %s, want %s with %s", got.body, got.header.Get("Cache-Control"), row.product, row.cacheControl)
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
			untilDone := func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}
			list := func(ctx context.Context, _ string, _ int) ([]Resource, error) { return nil, untilDone(ctx) }
			h := New(&stubStore{
				listUsers:   list,
				listWidgets: list,
				getProduct:  func(ctx context.Context, _ string) (Resource, error) { return Resource{}, untilDone(ctx) },
			})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for _, target := range []string{"/v1/users", "/v2/widgets?limit=1", "/v1/products/p", "/v1/products/p", "/v1/products/q"} {
				for _, directive := range []string{"", "max-age=60", "no-cache"} {
					wg.Go(func() { do(h, newRequest("GET", target, "", "Cache-Control: "+directive).WithContext(ctx)) })
				}
			}
			synctest.Wait()
			cancel()
			wg.Wait()
		})
	})
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

func TestSharedResponsesToCredentialsArePrivate(t *testing.T) {
	h := NewWithOptions(newCacheableStore(), &Options{Shared: true})
	for _, target := range cacheableTargets {
		shared := "max-age=60"
		if strings.Contains(target, "limit") {
			shared = "no-cache"
		}
		for line, want := range map[string]string{
			"Accept: */*":             shared,
			"Authorization: Bearer x": "private, " + shared,
			"Authorization: ":         "private, " + shared,
			"Cookie: a=b":             "private, " + shared,
		} {
			for _, condition := range []string{"If-None-Match: *", "Accept-Language: en"} {
				if got := get(h, target, line, condition).header.Get("Cache-Control"); got != want {
					t.Errorf("%s, %s, %s: Cache-Control %q, want %q", target, line, condition, got, want)
				}
			}
		}
	}
}
