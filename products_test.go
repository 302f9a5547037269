package storefront

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// newShelf returns a handler on products that are all there, each read by read.
func newShelf(opts *Options, read func(ctx context.Context) error) http.Handler {
	return NewWithOptions(&stubStore{getProduct: func(ctx context.Context, id string) (Resource, error) {
		return MustResource(id, nil), read(ctx)
	}}, opts)
}

// taking returns what takes d, or until ctx is done.
func taking(d time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// getLater begins to read a product, which may be a minute old, in a goroutine of its own.
func getLater(ctx context.Context, h http.Handler) <-chan response {
	done := make(chan response, 1)
	go func() {
		done <- do(h, newRequest("GET", "/v1/products/p1", "", "Cache-Control: max-age=60").WithContext(ctx))
	}()
	return done
}

func TestCacheSizeBoundsTheMemory(t *testing.T) {
	for size, most := range map[int]int{0: 10_000, 2: 2} {
		synctest.Test(t, func(t *testing.T) { // or the first products might become stale
			h := newShelf(&Options{CacheSize: size}, taking(0))
			for i := range most + 1 {
				get(h, "/v1/products/"+strconv.Itoa(i), "Cache-Control: no-cache")
			}
			for i, want := range map[int]int{0: 504, 1: 200, most: 200} {
				get(h, "/v1/products/"+strconv.Itoa(i), "Cache-Control: only-if-cached").wantStatus(t, want)
			}
		})
	}
}

// Not every proxy lets an empty header through.
func TestEmptyCredentialsBypassTheMemory(t *testing.T) {
	r := get(New(newCacheableStore()), "/v1/products/p1", "Authorization: ", "Cache-Control: max-age=60")
	if got := r.header.Get("Cache-Status"); got != "storefront; fwd=bypass" || r.header["Vary"] != nil {
		t.Errorf("Cache-Status %s, Vary %q, want that the memory is bypassed, and none", got, r.header["Vary"])
	}
}

func TestAnIDThatNoProductHasIsLookedForNowhere(t *testing.T) {
	r := get(New(newCacheableStore()), "/v1/products/%00", "Cache-Control: max-age=60")
	if got := r.header.Get("Cache-Status"); r.status != 404 || got != "storefront" {
		t.Errorf("status %d, Cache-Status %s, want 404 and that neither memory nor store was asked", r.status, got)
	}
}

func TestARequestThatJoinsACallSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newShelf(nil, taking(50*time.Second))
		date := time.Now().UTC().Format(http.TimeFormat)
		first := getLater(t.Context(), h)
		time.Sleep(49 * time.Second)
		joined, own := <-getLater(t.Context(), h), <-first
		for r, want := range map[*response][3]string{&own: {"storefront; fwd=uri-miss"},
			&joined: {"storefront; fwd=uri-miss; collapsed", "50", date}} {
			got := [3]string{r.header.Get("Cache-Status"), r.header.Get("Age"), r.header.Get("Date")}
			if got != want {
				t.Errorf("Cache-Status, Age and Date are %q, want %q", got, want)
			}
		}
	})
}

func TestContextValuesReachTheStore(t *testing.T) {
	type key struct{}
	for _, line := range []string{"Accept: */*", "Cache-Control: max-age=60", "Cache-Control: no-store"} {
		var got any
		h := newShelf(nil, func(ctx context.Context) error { got = ctx.Value(key{}); return nil })
		r := newRequest("GET", "/v1/products/p1", "", line)
		if do(h, r.WithContext(context.WithValue(t.Context(), key{}, "trace"))); got != "trace" {
			t.Errorf("with %s the store sees %v, want the value of the request's context", line, got)
		}
	}
}

func TestARequestWithoutCacheControlAsksForNoScope(t *testing.T) {
	get(newShelf(&Options{Scope: func(*http.Request) string {
		t.Error("Scope was called")
		return ""
	}}, taking(0)), "/v1/products/p1").wantStatus(t, http.StatusOK)
}

// A read is as new as the answer, however long the body of the request takes.
func TestTheBodyOfAReadIsDroppedBeforeAnythingIsAsked(t *testing.T) {
	var read bool
	store := failingBy(func() error {
		if !read {
			t.Error("the store was asked before the body was read")
		}
		return nil
	})
	for _, target := range []string{"/v1/users", "/v1/products/p1", "/v2/widgets?limit=1"} {
		for _, line := range []string{"Accept: */*", "Cache-Control: no-cache"} {
			read = false
			r := newRequest("GET", target, "", line)
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("a body"),
				readerFunc(func([]byte) (int, error) {
					read = true
					return 0, io.EOF
				})))
			do(New(store), r).wantStatus(t, http.StatusOK)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
