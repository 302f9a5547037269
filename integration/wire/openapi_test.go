package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/internal/must"
)

// A scriptedStore gives every product and no list, and creates every order, unless it
// has an error, or an order that has come before.
type scriptedStore struct {
	err    error
	before storefront.Order
}

func (s scriptedStore) ListUsers(context.Context, string, int) ([]storefront.Resource, error) {
	return nil, s.err
}

func (s scriptedStore) ListWidgets(context.Context, string, int) ([]storefront.Resource, error) {
	return nil, s.err
}

func (s scriptedStore) GetProduct(_ context.Context, id string) (storefront.Resource, error) {
	return storefront.MustResource(id, nil), s.err
}

func (s scriptedStore) CreateOrder(_ context.Context, _ storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	if s.before.ID != "" {
		order = s.before
	}
	return order, s.err
}

// An exchange is a request to a path of the document and its response.
type exchange struct {
	path, method, target string
	lines                []string
	got                  *httptest.ResponseRecorder
}

func (e exchange) String() string {
	return fmt.Sprintf("%s %s %q: %d", e.method, e.target, e.lines, e.got.Code)
}

// operation is what the exchange is an example of, such as "GET /v1/users 200".
func (e exchange) operation() string { return fmt.Sprint(e.method, " ", e.path, " ", e.got.Code) }

// realExchanges returns exchanges with every response that there is to a documented method.
func realExchanges() (all []exchange) {
	opts := storefront.Options{Logger: slog.New(slog.DiscardHandler)}
	serve := func(store storefront.Store) http.Handler { return storefront.NewWithOptions(store, &opts) }
	store := new(storefront.MemStore)
	if err := store.Load(strings.NewReader(`{
		"users": [{"id": "u1", "name": "Ada"}, {"id": "u2", "name": "Grace"}, {"id": "u3", "name": "Edsger"}],
		"widgets": [{"id": "w1", "color": "red"}, {"id": "w2", "color": "blue"}, {"id": "w3", "color": "green"}],
		"products": [{"id": "teapot", "name": "Teapot", "price": {"amount": "24.50", "currency": "EUR"}}, {"id": "p2"}]
	}`)); err != nil {
		panic(err)
	}
	shop, broken, down := serve(store), serve(scriptedStore{err: errors.New("no space left")}), serve(scriptedStore{err: storefront.ErrUnavailable})
	opts.Vary = []string{"Authorization", "Cookie"}
	varying := serve(store)
	opts.Vary = nil

	const users, orders, products, widgets, document = "/v1/users", "/v1/orders", "/v1/products/{product_id}", "/v2/widgets", "/openapi.json"
	send := func(h http.Handler, method, path, target string, body io.Reader, lines ...string) {
		r := httptest.NewRequest(method, target, body)
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Add(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		all = append(all, exchange{path, method, target, lines, w})
	}
	read := func(h http.Handler, path, target string, lines ...string) {
		send(h, "GET", path, target, nil, lines...)
		send(h, "HEAD", path, target, nil, lines...)
	}
	for path, target := range map[string]string{users: users + "?limit=2", widgets: widgets + "?limit=2", products: "/v1/products/teapot", document: document} {
		read(shop, path, target)
		read(shop, path, target, "If-None-Match: *")
		read(shop, path, target, `If-Match: "another"`)
		name, query, _ := strings.Cut(target, "?")
		read(shop, path, name+"?verbose=true&"+query)
		read(varying, path, target)
		read(varying, path, target, "If-None-Match: *")
		if path != document {
			read(broken, path, target)
			read(down, path, target)
		}
		send(shop, "OPTIONS", path, target, nil)
	}
	read(shop, users, "/v1/users?limit=2&after=AXV1MlFdzvE")
	read(shop, users, "/v1/users?page=2&after=2")
	read(shop, widgets, "/v2/widgets?limit=2&start=AXd3MxfoSIs")
	read(shop, widgets, widgets)
	for _, h := range []http.Handler{shop, broken, down} {
		read(h, products, "/v1/products/none", "Cache-Control: no-cache")
	}
	read(shop, products, "/v1/products/teapot", "Cache-Control: no-cache")
	read(shop, products, "/v1/products/teapot", "Cache-Control: max-age=60")
	read(shop, products, "/v1/products/teapot", "If-None-Match: *", "Cache-Control: max-age=60")
	read(shop, products, "/v1/products/teapot", `If-Match: "another"`, "Cache-Control: max-age=60")
	read(shop, products, "/v1/products/p2", "Cache-Control: only-if-cached")
	read(shop, products, "/v1/products/none")
	read(shop, products, "/v1/products/%00")
	read(shop, products, "/v1/products/")
	send(shop, "OPTIONS", products, "/v1/products/", nil)
	send(shop, "OPTIONS", orders, orders, nil)

	const asJSON, withKey, teapots = "Content-Type: application/json", "Idempotency-Key: k1", `{"item":"teapot","qty":2}`
	order := func(h http.Handler, body string, lines ...string) {
		send(h, "POST", orders, orders, strings.NewReader(body), lines...)
	}
	order(shop, teapots, asJSON, withKey)
	order(shop, teapots, asJSON, withKey)
	order(serve(scriptedStore{before: storefront.Order{
		ID: "ord_0pgdk7tjbt87kq3dvm2rbh5nta", Item: "teapot", Qty: 2, CreatedAt: time.Date(2026, 11, 22, 9, 30, 11, 250e6, time.UTC)}}), teapots, asJSON, withKey)
	order(shop, `{"item":"kettle","qty":2}`, asJSON, withKey)
	order(shop, teapots, asJSON, "Idempotency-Key: k2", "If-Match: *")
	order(shop, teapots, asJSON)
	order(shop, teapots, asJSON, `Idempotency-Key: "k2`)
	order(shop, `{"item":"teapot",`, asJSON, withKey)
	order(shop, `{"item":"","qty":0,"color":"red"}`, asJSON, withKey)
	order(shop, strings.Repeat(" ", 64<<10+1), asJSON, withKey)
	order(shop, teapots, withKey)
	order(shop, teapots, withKey, asJSON, "Content-Encoding: gzip")
	order(shop, teapots, withKey, "Content-Type: application/x-www-form-urlencoded", "Content-Encoding: gzip")
	for _, err := range []error{storefront.ErrInProgress, &storefront.Refusal{Reason: "sold-out", Detail: "The last teapot was sold.", Pointer: "#/item"}} {
		order(serve(scriptedStore{err: err}), teapots, asJSON, withKey)
	}
	order(broken, teapots, asJSON, withKey)
	order(down, teapots, asJSON, withKey)
	send(shop, "POST", orders, orders+"?verbose=true", strings.NewReader(teapots), asJSON, withKey)
	send(shop, "POST", orders, orders, iotest.ErrReader(os.ErrDeadlineExceeded), asJSON, withKey)
	return all
}

// Each answer is as documented. A response names its problem types by an example of each. Content-Type is no
// header here: OpenAPI says it with the content.
func TestNothingIsDocumentedThatIsNotAnswered(t *testing.T) {
	doc := must.Get(servedBy(storefront.New(new(storefront.MemStore))))(t)
	got, want := map[string]bool{}, map[string]bool{}
	for _, e := range realExchanges() {
		path, _, _ := strings.Cut(e.target, "?")
		if err := doc.check(e.method, path, e.got.Code, e.got.Result().Header, e.got.Body.Bytes()); err != nil {
			t.Errorf("%v breaks openapi.json: %v", e, err)
		}
		got[e.operation()] = true
		for name := range e.got.Result().Header {
			if name != "Content-Type" {
				got[e.operation()+" "+name] = true
			}
		}
		var p storefront.Problem
		if e.got.Code >= 400 && json.Unmarshal(e.got.Body.Bytes(), &p) == nil {
			got[e.operation()+" "+p.Type] = true
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				name := method + " " + path + " " + status
				want[name] = true
				for header := range response.Value.Headers {
					want[name+" "+http.CanonicalHeaderKey(header)] = true
				}
				if problem := response.Value.Content["application/problem+json"]; problem != nil {
					for _, example := range problem.Examples {
						want[fmt.Sprint(name, " ", example.Value.Value.(map[string]any)["type"])] = true
					}
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("documented (-) and answered (+):\n%s", diff)
	}
}

// What kin-openapi's decoder of parameters takes for a number beyond digits, such as
// +1, is not a matter of the document.
func TestTheServiceAcceptsWhatIsDocumented(t *testing.T) {
	opts := &storefront.Options{PageSize: 7, MaxPageSize: 20}
	h := storefront.NewWithOptions(scriptedStore{}, opts)
	doc := must.Get(servedBy(h))(t)
	longest := strings.Repeat("x", 255)
	order := func(key, body string) *http.Request {
		r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		return r
	}
	requests := []*http.Request{
		httptest.NewRequest("GET", "/v1/users", nil), httptest.NewRequest("GET", "/v2/widgets", nil)}
	for _, limit := range []string{"", "0", "1", "20", "21", "-1", "1.5", "ten", "99999999999999999999"} {
		for _, list := range []string{"/v1/users", "/v2/widgets"} {
			requests = append(requests, httptest.NewRequest("GET", list+"?limit="+limit, nil))
		}
	}
	for _, id := range []string{"p", "p q", "é/?#", longest, longest + "x", "\x00", "a\x1f", "a\x7f", "a\u0080", "a\u009f", "a\u00a0"} {
		requests = append(requests, httptest.NewRequest("GET", "/v1/products/"+url.PathEscape(id), nil))
	}
	for _, key := range []string{
		"k", "k k", longest, longest + "x", "", "\x7f", "é", "k\tk", `"k"`, `"k`, `"\k"`, `"k";p=1`} {
		requests = append(requests, order(key, `{"item":"teapot","qty":2}`))
	}
	for _, item := range []string{
		"", " ", " a ", "a\u0000", "\u0085", "\u200b", "teapot\n",
		strings.Repeat("é", 255), strings.Repeat("é", 256), strings.Repeat("\U0001f375", 255),
	} {
		body := must.Get(json.Marshal(map[string]any{"item": item, "qty": 1}))(t)
		requests = append(requests, order("k", string(body)))
	}
	for _, example := range doc.Paths.Find("/v1/orders").Post.RequestBody.Value.Content["application/json"].Examples {
		body := must.Get(json.Marshal(example.Value.Value))(t)
		requests = append(requests, order("k", string(body)))
	}
	for _, qty := range []string{"0", "-1", "1", "1.5", "2.0", "2e0", "20e-1", "25e-1", "9007199254740991", "9007199254740992", "1e300", `"1"`, "null", "true", "[]", "{}"} {
		requests = append(requests, order("k", `{"item":"a","qty":`+qty+`}`))
	}
	for _, body := range []string{`{"item":1,"qty":1}`, `{"item":null,"qty":1}`, `{"qty":1}`, `{"item":"a"}`, `{}`, `{"Item":"a","qty":1}`,
		`{"item":"a","qty":1,"id":"x"}`, `[]`, `"item"`, `1`, `null`} {
		requests = append(requests, order("k", body))
	}
	for _, r := range requests {
		documented := checkRequest(doc, r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if accepted := w.Code < 300; accepted != (documented == nil) {
			t.Errorf("%s %.80s %.80q: the answer is %d, and the document says %v\n%s", r.Method, r.URL, r.Header, w.Code, documented, w.Body)
		}
	}
}

// checkRequest returns in what way a request is not as documented. It leaves the body
// to be read again.
func checkRequest(d document, r *http.Request) error {
	input := &openapi3filter.RequestValidationInput{
		Request: r,
		Options: &openapi3filter.Options{SkipSettingDefaults: true}, // in the request
	}
	for template, item := range d.Paths.Map() {
		if matches(template, r.URL.EscapedPath()) {
			input.Route = &routers.Route{Spec: d.T, Path: template, PathItem: item, Method: r.Method, Operation: item.Operations()[r.Method]}
			input.PathParams = map[string]string{"product_id": strings.TrimPrefix(r.URL.Path, "/v1/products/")}
		}
	}
	return openapi3filter.ValidateRequest(context.Background(), input)
}
