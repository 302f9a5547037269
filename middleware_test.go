package storefront

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryResponse(t *testing.T) {
	for _, r := range trials() {
		t.Run(r.String(), func(t *testing.T) {
			got := r.send(quiet(newTrialStore()))
			got.wantStatus(t, r.status)
			want := http.Header{
				"X-Content-Type-Options": {"nosniff"}, "Content-Length": {strconv.Itoa(len(got.body))},
				"Content-Type": {"application/json"}, "Cache-Control": got.header["Cache-Control"],
			}
			if r.status == 204 || r.status == 304 {
				want = http.Header{"Content-Length": nil, "Content-Type": nil, "X-Content-Type-Options": nil}
			}
			if r.status >= 400 {
				want.Set("Content-Type", "application/problem+json")
			}
			if r.status >= 400 || r.method == "POST" {
				want.Set("Cache-Control", "no-store")
			}
			for name, values := range want {
				if !slices.Equal(got.header[name], values) {
					t.Errorf("%s: %q, want %q", name, got.header[name], values)
				}
			}
			_, allow := got.header["Allow"]
			_, retry := got.header["Retry-After"]
			if allow != (r.status == 405 || r.status == 204) ||
				retry != (r.status == 503 || r.status == 409) {
				t.Errorf("Allow: %t, Retry-After: %t with status %d", allow, retry, r.status)
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
// other response has these changes.
func TestHeadersOfOneResponseAreNotThoseOfAnother(t *testing.T) {
	h := quiet(newTrialStore())
	var want []response
	for _, r := range trials() {
		want = append(want, r.send(h))
	}
	meddling := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		for name, values := range w.Header() {
			values[0] = "changed"
			w.Header().Add(name, "added")
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

func TestAddingToOneHeaderChangesNoOther(t *testing.T) {
	h := quiet(newTrialStore())
	for _, trial := range trials() {
		trial.send(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			want := w.Header().Clone()
			for name := range want {
				w.Header().Add(name, "added")
				want.Add(name, "added")
			}
			if diff := cmp.Diff(want, w.Header()); diff != "" {
				t.Errorf("%v, -want +got:\n%s", trial, diff)
			}
		}))
	}
}

// The service replaces the headers that it sets, and leaves all others alone.
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
