package wire

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"example.com/storefront"
)

// That keys and the characters of items are as documented is for the module storefront. What kin-openapi's decoder takes for a
// number beyond digits, such as +1, is not a matter of the document.
func TestTheServiceAcceptsWhatIsDocumented(t *testing.T) {
	var requests []*http.Request
	get := func(target string) { requests = append(requests, httptest.NewRequest("GET", target, nil)) }
	for _, list := range []string{"/v1/users", "/v1/orders", "/v2/widgets"} {
		get(list)
		for _, limit := range []string{"", "0", "1", "20", "21", "-1", "1.5", "ten", "99999999999999999999"} {
			get(list + "?limit=" + limit)
		}
	}
	store := new(storefront.MemStore)
	longest := strings.Repeat("x", 255)
	for _, id := range []string{"p", "é/?#", longest, longest + "x", "\x00", "a\u009f", "a\u00a0"} {
		if r, err := storefront.NewResource(id, nil); err == nil {
			store.Products.Put(r)
		}
		get("/v1/products/" + url.PathEscape(id))
	}
	order := func(body string) {
		r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", strconv.Itoa(len(requests)))
		requests = append(requests, r)
	}
	for _, qty := range []string{"0", "-1", "1", "1.5", "2.0", "2e0", "25e-1", "9007199254740991",
		"9007199254740992", "1e300", `"1"`, "null", "true", "[]", "{}"} {
		order(`{"item":"a","qty":` + qty + `}`)
	}
	for _, body := range []string{`{"item":1,"qty":1}`, `{"item":null,"qty":1}`, `{"qty":1}`, `{"item":"a"}`,
		`{}`, `{"Item":"a","qty":1}`, `{"item":"a","qty":1,"id":"x"}`, `[]`, `1`, `null`,
		`{"item":"` + longest + `","qty":1}`, `{"item":"` + longest + `x","qty":1}`} {
		order(body)
	}
	scope := func(*http.Request) string { return "ann" }
	h := storefront.NewWithOptions(store,
		&storefront.Options{PageSize: 7, MaxPageSize: 20, Orders: store, Scope: scope})
	doc := servedBy(t, h)
	for _, r := range requests {
		documented := checkRequest(doc, r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if accepted := w.Code < 300; accepted != (documented == nil) {
			t.Errorf("%s %.80s %.80q: the answer is %d, and the document says %v\n%s",
				r.Method, r.URL, r.Header, w.Code, documented, w.Body)
		}
	}
}

// checkRequest returns in what way a request is not as documented. It leaves the body
// to be read again.
func checkRequest(d document, r *http.Request) error {
	operation, path := d.operation(r)
	return openapi3filter.ValidateRequest(context.Background(), &openapi3filter.RequestValidationInput{
		Request: r,
		Options: &openapi3filter.Options{SkipSettingDefaults: true}, // in the request
		Route: &routers.Route{
			Spec: d.T, Path: path, PathItem: d.Paths.Value(path), Method: r.Method, Operation: operation},
		PathParams: map[string]string{"product_id": strings.TrimPrefix(r.URL.Path, "/v1/products/")},
	})
}
