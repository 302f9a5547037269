package storefront

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Nothing in a response depends on the host, on the place where the service is
// mounted, on what a proxy says, or on what a wrapper's writer can do.
func TestResponsesDependOnlyOnWhatIsDocumented(t *testing.T) {
	h := quiet(newTrialStore())
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle("/shop/", http.StripPrefix("/shop", h))
	mux.Handle("other.example/", h)
	at := func(prefix string, mounted http.Handler) func(trial) response {
		return func(r trial) response {
			r.target = prefix + r.target
			return r.send(mounted)
		}
	}
	through := func(change func(w *http.ResponseWriter, r *http.Request)) func(trial) response {
		return at("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			change(&w, r)
			h.ServeHTTP(w, r)
		}))
	}
	ways := map[string]func(trial) response{
		"a prefix":                at("/shop", http.StripPrefix("/shop", h)),
		"a deep prefix":           at("/a/b/c", http.StripPrefix("/a/b/c", h)),
		"the name of a version":   at("/v1", http.StripPrefix("/v1", h)),
		"no prefix":               at("", http.StripPrefix("", h)),
		"two prefixes":            at("/a/b", http.StripPrefix("/a", http.StripPrefix("/b", h))),
		"a ServeMux":              at("", mux),
		"a ServeMux and a prefix": at("/shop", mux),
		"a ServeMux with a host":  at("http://other.example", mux),
		"a writer with three methods": through(func(w *http.ResponseWriter, _ *http.Request) {
			*w = struct{ http.ResponseWriter }{*w}
		}),
	}
	for _, host := range []string{"", "other.example:8443", "[::1]:80", "bad host/.."} {
		ways["the host "+host] = through(func(_ *http.ResponseWriter, r *http.Request) { r.Host = host })
	}
	for _, line := range []string{
		"X-Forwarded-Host: other.example", "X-Forwarded-Proto: https", "X-Forwarded-Prefix: /shop",
		"X-Forwarded-For: 10.0.0.7", "Forwarded: for=10.0.0.7;host=other.example;proto=https",
		"X-Original-Url: /v1/users", "X-Rewrite-Url: /v1/users", "X-Http-Method-Override: DELETE",
		"Origin: https://other.example", "Accept: text/html", "Accept-Encoding: gzip", "Range: bytes=0-1",
	} {
		ways[line] = func(r trial) response {
			r.lines = append(slices.Clip(r.lines), line)
			return r.send(h)
		}
	}
	for name, send := range ways {
		t.Run(name, func(t *testing.T) {
			for _, r := range trials() {
				if diff := r.send(h).diff(send(r)); diff != "" {
					t.Errorf("%v, -want +got:\n%s", r, diff)
				}
			}
		})
	}
}

// Middlewares may change the headers of a response, also at the same time, and no
// other header or response has these changes.
func TestHeadersOfOneResponseAreNotThoseOfAnother(t *testing.T) {
	h := quiet(newTrialStore())
	var want []response
	for _, r := range trials() {
		want = append(want, r.send(h))
	}
	meddling := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		want := w.Header().Clone()
		for name := range want {
			w.Header().Add(name, "added")
			want.Add(name, "added")
		}
		if diff := cmp.Diff(want, w.Header()); diff != "" {
			t.Errorf("%s %s: adding to a header has changed another, -want +got:\n%s", r.Method, r.URL, diff)
		}
		for _, values := range w.Header() {
			values[0] = "changed"
		}
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, r := range trials() {
				r.send(meddling)
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
