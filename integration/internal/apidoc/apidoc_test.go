package apidoc

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// What kin-openapi does not look at is found all the same, and reported.
func TestValidatedReportsWhatItFinds(t *testing.T) {
	const etag, order = `"1GWBYoV3EmZg9_S2JOIEeA"`, `{"id":"ord_7Q3DKXW2MZB5NVTCYA4RLHJ6UE","item":"teapot","qty":2,"created_at":"2026-01-02T15:04:05.678Z"`
	read := http.Header{"Cache-Control": {"private, max-age=60"}, "Etag": {etag}}
	page := http.Header{"Cache-Control": read["Cache-Control"], "Etag": read["Etag"], "Content-Type": {"application/json"}, "X-Content-Type-Options": {"nosniff"}}
	created := http.Header{"Cache-Control": {"no-store"}, "Content-Type": {"application/json"}, "X-Content-Type-Options": {"nosniff"}}
	with := func(h http.Header, name, value string) http.Header {
		h = h.Clone()
		h.Set(name, value)
		return h
	}
	for _, c := range []struct {
		name, method, path string
		status             int
		header             http.Header
		body               string
		faults             int
	}{
		{"a page for HEAD", "HEAD", "/v1/users", 200, page, "", 0},
		{"a body with HEAD", "HEAD", "/v1/users", 200, page, "{}", 1},
		{"not modified", "GET", "/v1/products/tea%2Fgreen", 304, read, "", 0},
		{"a tag of another pattern with 304", "GET", "/v1/products/p", 304, with(read, "Etag", "x"), "", 1},
		{"a body with 304", "GET", "/v1/products/p", 304, read, "{}", 1},
		{"an order", "POST", "/v1/orders", 201, created, order + "}", 0},
		{"something follows the JSON", "POST", "/v1/orders", 201, created, order + "}{}", 1},
		{"no body", "POST", "/v1/orders", 201, created, "", 1},
		{"a date that is none", "POST", "/v1/orders", 201, created, `{"id":"ord_7Q3DKXW2MZB5NVTCYA4RLHJ6UE","item":"a","qty":2,"created_at":"2026-02-30T15:04:05.678Z"}`, 1},
		{"an undocumented header", "POST", "/v1/orders", 201, with(created, "Set-Cookie", "a=b"), order + "}", 1},
		{"an undocumented status", "POST", "/v1/orders", 206, created, order + "}", 1},
		{"a path that is not in the document", "GET", "/v3/users", 200, page, "{}", 1},
		{"a method that is not supported succeeds", "PUT", "/v1/orders", 201, created, order + "}", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			reported := &errorCounter{TB: t}
			h := Validated(reported, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for name, values := range c.header {
					w.Header()[name] = values
				}
				w.WriteHeader(c.status)
				w.Write([]byte(c.body))
			}))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
			if reported.n != c.faults {
				t.Errorf("it has reported %d faults, want %d", reported.n, c.faults)
			}
			if w.Code != c.status || w.Body.String() != c.body {
				t.Errorf("the response has become %d %q", w.Code, w.Body)
			}
		})
	}
}

// An errorCounter is a test whose errors are only counted.
type errorCounter struct {
	testing.TB
	n int
}

func (c *errorCounter) Errorf(string, ...any) { c.n++ }
