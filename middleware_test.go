package storefront

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

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
