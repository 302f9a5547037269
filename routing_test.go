package storefront

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"example.com/storefront/internal/must"
)

func TestPathsThatAreNotThere(t *testing.T) {
	store := newTrialStore()
	store.Products.Put(bareResources(".", "..", "/")...)
	h := quiet(store)
	for _, path := range []string{ // %2F is a slash that separates nothing
		"/", "/v1/user", "/v1/userss", "/openapi.yaml", "/v1/products", "/v1/", "/v2", "/v0/users",
		"/v10/users", "/users", "/v1/widgets", "/v2/users", "/v2/orders", "/v2/products/a", "/V1/users",
		"/v1/Users", "/OpenAPI.json", "/v1/users/", "/v1/orders/", "/v1/products/", "/v1/products/a/",
		"/v2/widgets/", "/openapi.json/", "/v1/products/a/b", "//", "///", "//v1/users", "/v1//users",
		"/v1/users//", "/v1/products//a", "/v1/products//", "/.", "/..", "/./v1/users", "/../v1/users",
		"/v1/./users", "/v1/../v1/users", "/v1/users/.", "/v1/users/..", "/v1/products/.",
		"/v1/products/..", "/v1/products/a/.", "/v1/products/x%2Fy/../a", "/v1/products/x%2Fy//",
		"/v1/products/x%2Fy/", "/%2e", "/%2e%2e/v1/users", "/v1/%2e/users", "/v1/%2E%2E/v1/users",
		"/v1/users/%2e", "/v1/products/a/%2e%2e/b", "/v1/products/%2e", "/v1/products/%2E",
		"/v1/products/%2e%2e", "/v1/products/.%2E", "/v1%2Fusers", "/v1%2fproducts%2fa", "/%2Fv1/users",
		"/v1/users%2F", "/v1/users%20", "/v1/users%00", "/v1/users;a=b", `/v1\users`,
		"/http://example.com/v1/users", "/v1/{product_id}", "/{$}",
	} {
		t.Run(path, func(t *testing.T) {
			u := must.Get(url.ParseRequestURI(path))(t)
			for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS", "DELETE", "CONNECT"} {
				r := &http.Request{Method: method, URL: u, Host: "example.com", Header: http.Header{},
					RequestURI: path}
				wantNothingThere(t, method, do(h, r))
			}
		})
	}
}

// wantNothingThere checks that the response is the one for an unknown path.
func wantNothingThere(t *testing.T, method string, r response) {
	t.Helper()
	if r.header["Location"] != nil || method == "HEAD" && (r.status != 404 || r.body != "") {
		t.Errorf("%s: %d, Location %q, body %q, want 404", method, r.status, r.header["Location"], r.body)
	}
	if method != "HEAD" {
		r.wantProblem(t, 404, "not-found")
	}
}

// The stub panics if it is asked.
func TestStoreIsNotAskedForIDsThatNoProductCanHave(t *testing.T) {
	for _, escaped := range []string{
		"%ff", "a%c3", "%c0%af", "%ed%a0%80", "%f4%90%80%80", "%00", "a%0Ab", "%7f", "%c2%85", "%ef%bf%bf",
		strings.Repeat("x", 256), strings.Repeat("%C3%A9", 128),
	} {
		get(New(new(stubStore)), "/v1/products/"+escaped).wantProblem(t, 404, "product-not-found")
	}
}

func TestRoute(t *testing.T) {
	h := reading(new(MemStore))
	type wrapper func(http.Handler) http.Handler
	changing := func(change func(*http.Request) *http.Request) wrapper {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, change(r))
			})
		}
	}
	copying := changing(func(r *http.Request) *http.Request { return r.Clone(r.Context()) })
	noting := changing(func(r *http.Request) *http.Request { return r.WithContext(WithRoute(r.Context())) })
	prefixed := func(next http.Handler) http.Handler {
		strip := http.StripPrefix("/shop", next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r = r.Clone(r.Context())
			r.URL.Path = "/shop" + r.URL.Path
			strip.ServeHTTP(w, r)
		})
	}
	inTime := func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Hour, "") }
	for _, wrappers := range [][]wrapper{
		{}, {inTime}, {copying}, {noting}, {prefixed}, {copying, prefixed, noting, inTime, copying},
		{inTime, noting, copying},
	} {
		var inner string
		wrapped := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			inner = r.Pattern
		}))
		for _, wrap := range wrappers {
			wrapped = wrap(wrapped)
		}
		for request, want := range map[string]string{
			"GET /v1/users":         "GET /v1/users",
			"HEAD /v1/users":        "GET /v1/users",
			"GET /v1/users?limit=x": "GET /v1/users",
			"POST /v1/orders":       "POST /v1/orders",
			"GET /v1/products/a":    "GET /v1/products/{product_id}",
			"GET /v1/products/none": "GET /v1/products/{product_id}",
			"GET /v2/widgets":       "GET /v2/widgets",
			"GET /openapi.json":     "GET /openapi.json",
			"OPTIONS /v1/orders":    "/v1/orders",
			"HEAD /v1/orders":       "GET /v1/orders",
			"GET /v1/orders/a":      "GET /v1/orders/{order_id}",
			"PUT /v1/orders/a":      "/v1/orders/{order_id}",
			"PUT /v1/users":         "/v1/users",
			"DELETE /v1/products/a": "/v1/products/{product_id}",
			"BREW /v1/users":        "/v1/users",
			"BREW /v1/nothing":      "/",
			"GET /v1/users/":        "/",
			"GET //v1/users":        "/",
			"GET /v1/../v1/users":   "/",
			"BREW //v1/users":       "/",
		} {
			method, target, _ := strings.Cut(request, " ")
			r := httptest.NewRequest(method, target, nil)
			r = r.WithContext(WithRoute(r.Context()))
			wrapped.ServeHTTP(httptest.NewRecorder(), r)
			if outer := Route(r.Context()); outer != want || inner != want {
				t.Errorf("%s: the route is %q, and %q inside, want %q", request, outer, inner, want)
			}
		}
	}
}

func TestRouteOfARequestThatDidNotReachTheService(t *testing.T) {
	ctx := WithRoute(t.Context())
	before, without, same := Route(ctx), Route(t.Context()), WithRoute(ctx) == ctx
	if before != "" || without != "" || !same { // of another context, the first one would not have the route
		t.Errorf("before: %q; without WithRoute: %q; WithRoute again is the same context: %t", before, without, same)
	}
}
