package storefront

import (
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
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
		"bad: Orders without Scope":     with(Options{Orders: new(MemStore)}),
		"bad: Orders a nil pointer":     with(Options{Orders: (*MemStore)(nil), Scope: (*http.Request).UserAgent}),
		"bad: New of nil":               func() http.Handler { return New(nil) },
		"bad: New of a nil pointer":     func() http.Handler { return New((*MemStore)(nil)) },
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

func TestOptionsAreCopied(t *testing.T) {
	opts := Options{PageSize: 2}
	h := NewWithOptions(newTrialStore(), &opts)
	if opts.PageSize != 2 || opts.MaxPageSize != 0 || opts.CacheSize != 0 {
		t.Errorf("NewWithOptions has changed the options to %+v", opts)
	}
	opts = Options{PageSize: 1, Shared: true}
	users := get(h, "/v1/users")
	n, cacheControl := strings.Count(users.body, `"id"`), users.header.Get("Cache-Control")
	if n != 2 || cacheControl != "private, no-cache" {
		t.Errorf("%d users, %s: want the options that were given", n, cacheControl)
	}
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
