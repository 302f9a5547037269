package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/apidoc"
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
func realExchanges(opts storefront.Options) (all []exchange) {
	opts.Logger = slog.New(slog.DiscardHandler)
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

// served returns the document that the service serves by default.
func served(t *testing.T) apidoc.Document {
	t.Helper()
	doc := must.Get(apidoc.Of(nil))(t)
	return doc
}

// documentedResponses calls f for every response in the document, with its operation and
// status.
func documentedResponses(d apidoc.Document, f func(operation string, response *openapi3.Response)) {
	for path, item := range d.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				f(method+" "+path+" "+status, response.Value)
			}
		}
	}
}

// Each answer is as documented. A response names its problem types by an example of each. Content-Type is no
// header here: OpenAPI says it with the content.
func TestNothingIsDocumentedThatIsNotAnswered(t *testing.T) {
	doc := served(t)
	got, want := map[string]bool{}, map[string]bool{}
	for _, e := range realExchanges(storefront.Options{}) {
		path, _, _ := strings.Cut(e.target, "?")
		if err := doc.Check(e.method, path, e.got.Code, e.got.Result().Header, e.got.Body.Bytes()); err != nil {
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
	documentedResponses(doc, func(operation string, response *openapi3.Response) {
		want[operation] = true
		for name := range response.Headers {
			want[operation+" "+http.CanonicalHeaderKey(name)] = true
		}
		if problem := response.Content["application/problem+json"]; problem != nil {
			for _, example := range problem.Examples {
				want[fmt.Sprint(operation, " ", example.Value.Value.(map[string]any)["type"])] = true
			}
		}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("documented (-) and answered (+):\n%s", diff)
	}
}

func TestExamplesOfResponsesAreSent(t *testing.T) {
	for _, opts := range []storefront.Options{{}, {PageSize: 7, MaxPageSize: 20}} {
		doc := must.Get(apidoc.Of(&opts))(t)
		all := realExchanges(opts)
		documentedResponses(doc, func(operation string, response *openapi3.Response) {
			for _, content := range response.Content {
				for name, example := range content.Examples {
					want := example.Value.Value.(map[string]any)
					closest := "nothing of this operation"
					for _, e := range all {
						var got map[string]any
						if e.operation() != operation || json.Unmarshal(e.got.Body.Bytes(), &got) != nil {
							continue
						}
						if got["instance"] != nil { // it is random
							got["instance"] = want["instance"]
						}
						if diff := cmp.Diff(want, got); diff == "" || len(diff) < len(closest) || !strings.Contains(closest, "\n") {
							closest = diff
						}
						if closest == "" {
							break
						}
					}
					if closest != "" {
						t.Errorf("%s: the example %s (-) and the closest response (+):\n%s", operation, name, closest)
					}
				}
			}
		})
	}
}

// What kin-openapi's decoder of parameters takes for a number beyond digits, such as
// +1, is not a matter of the document.
func TestTheServiceAcceptsWhatIsDocumented(t *testing.T) {
	opts := &storefront.Options{PageSize: 7, MaxPageSize: 20}
	doc := must.Get(apidoc.Of(opts))(t)
	h := storefront.NewWithOptions(scriptedStore{}, opts)
	longest := strings.Repeat("x", 255)
	get := func(path string, params map[string]string) *http.Request {
		query := url.Values{}
		for name, value := range params {
			query.Set(name, value)
		}
		return httptest.NewRequest("GET", path+"?"+query.Encode(), nil)
	}
	order := func(body string, header ...string) *http.Request {
		r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		if header != nil {
			r.Header.Set(header[0], strings.Trim(header[1], " \t")) // as every recipient does
		}
		return r
	}
	var requests []*http.Request
	for _, limit := range []string{"", "0", "1", "20", "21", "-1", "1.5", "ten", "99999999999999999999"} {
		requests = append(requests, get("/v1/users", map[string]string{"limit": limit}), get("/v2/widgets", map[string]string{"limit": limit}))
	}
	requests = append(requests, get("/v2/widgets", nil), get("/v1/users", nil))
	for _, id := range []string{"p", "p q", "é/?#", longest, longest + "x", "\x00", "a\x1f", "a\x7f", "a\u0080", "a\u009f", "a\u00a0"} {
		requests = append(requests, httptest.NewRequest("GET", "/v1/products/"+url.PathEscape(id), nil))
	}
	const teapots = `{"item":"teapot","qty":2}`
	for _, key := range []string{"k", "k k", "!#~", `k\`, longest, longest + "x", "", "\x7f", "é", "k\tk",
		`"k"`, `" "`, `"` + longest + `"`, `"x` + longest + `"`, `"` + strings.Repeat(`\"`, 255) + `"`,
		`""`, `"`, `"k`, `k"`, `"k" `, `"k"k`, `"k\"`, `"\k"`, `"\\"`, `"k";p=1`, `"é"`} {
		requests = append(requests, order(teapots, "Idempotency-Key", key))
	}
	for _, item := range []string{
		"", " ", "  ", "a", " a ", "é", "a\u0000", "\u001f", "a\u007f", "\u0085", "a\u009f", "\u00a0", "\u200b", "\u3000a", "\ufeff", "\"", "teapot\n",
		strings.Repeat("é", 255), strings.Repeat("é", 256), strings.Repeat("\U0001f375", 255),
	} {
		body := must.Get(json.Marshal(map[string]any{"item": item, "qty": 1}))(t)
		requests = append(requests, order(string(body)))
	}
	for _, qty := range []string{"0", "-1", "1", "1.5", "2.0", "2e0", "20e-1", "25e-1", "9007199254740991", "9007199254740992", "1e300", `"1"`, "null", "true", "[]", "{}"} {
		requests = append(requests, order(`{"item":"a","qty":`+qty+`}`))
	}
	for _, body := range []string{`{"item":1,"qty":1}`, `{"item":null,"qty":1}`, `{"qty":1}`, `{"item":"a"}`, `{}`, `{"Item":"a","qty":1}`,
		`{"item":"a","qty":1,"id":"x"}`, `[]`, `"item"`, `1`, `null`} {
		requests = append(requests, order(body))
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

func TestOpenAPIDocumentsForHeadTheParametersOfGet(t *testing.T) {
	for path, item := range valueAt(rawDocument(t), "paths").(map[string]any) {
		if head := valueAt(item, "head"); head != nil {
			if diff := cmp.Diff(valueAt(item, "get", "parameters"), valueAt(head, "parameters")); diff != "" {
				t.Errorf("%s: parameters of GET (-) and of HEAD (+):\n%s", path, diff)
			}
		}
	}
}

func TestOpenAPIExampleOfARequestIsAccepted(t *testing.T) {
	doc := served(t)
	for name, example := range doc.Paths.Find("/v1/orders").Post.RequestBody.Value.Content["application/json"].Examples {
		body := must.Get(json.Marshal(example.Value.Value))(t)
		r := httptest.NewRequest("POST", "/v1/orders", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k1")
		w := httptest.NewRecorder()
		if storefront.New(new(storefront.MemStore)).ServeHTTP(w, r); w.Code != http.StatusCreated {
			t.Errorf("%s: status %d\n%s", name, w.Code, w.Body)
		}
	}
}

// rawDocument is the document that the service serves, as JSON.
func rawDocument(t *testing.T) map[string]any {
	t.Helper()
	w := httptest.NewRecorder()
	storefront.New(new(storefront.MemStore)).ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	var root map[string]any
	must.OK(t, json.Unmarshal(w.Body.Bytes(), &root))
	return root
}

// valueAt returns the value that the keys lead to from v.
func valueAt(v any, keys ...string) any {
	for _, key := range keys {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// eachSchema calls f for everything in v, which is at a place in a document, that
// can be a schema.
func eachSchema(v any, at string, f func(at string, schema map[string]any)) {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			eachSchema(item, at+"/"+strconv.Itoa(i), f)
		}
	case map[string]any:
		f(at, v)
		for name, member := range v {
			if name != "value" && name != "example" { // which are data
				eachSchema(member, at+"/"+name, f)
			}
		}
	}
}

// A valid document may still have schemas that tools for OpenAPI misread.
func TestOpenAPISchemasAreReadByGenerators(t *testing.T) {
	// Tools send patterns in header fields, and not every dialect knows the same escapes.
	portable := regexp.MustCompile(`^([ -\[\]-~]|\\([\\"\[\]?^-]|x[0-9A-F]{2}))*$`)
	patterns := 0
	eachSchema(rawDocument(t), "#", func(at string, schema map[string]any) {
		if pattern, ok := schema["pattern"].(string); ok {
			patterns++
			if !portable.MatchString(pattern) {
				t.Errorf("%s: the pattern is %+q", at, pattern)
			}
		}
		// Without a format, an integer of a generated client may have 32 bits.
		if maximum, ok := schema["maximum"].(float64); schema["type"] == "integer" && (!ok || maximum > math.MaxInt32) &&
			schema["format"] != "int64" && !strings.HasSuffix(at, "/Problem/properties/status") {
			t.Errorf("%s: the format is %v", at, schema["format"])
		}
		// From an alternative that does not say its type generators make "anything",
		// which takes in all other alternatives. additionalProperties says it to some of
		// them only.
		for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
			alternatives, _ := schema[keyword].([]any)
			for i, a := range alternatives {
				if alternative := a.(map[string]any); alternative["$ref"] == nil && alternative["const"] == nil && alternative["type"] == nil {
					t.Errorf("%s/%s/%d: %v", at, keyword, i, a)
				}
			}
		}
	})
	if patterns == 0 {
		t.Error("there are no patterns")
	}
}

// checkRequest returns in what way a request is not as documented. It leaves the body
// to be read again.
func checkRequest(d apidoc.Document, r *http.Request) error {
	input := &openapi3filter.RequestValidationInput{
		Request: r,
		Options: &openapi3filter.Options{SkipSettingDefaults: true}, // in the request
	}
	for template, item := range d.Paths.Map() {
		if apidoc.Matches(template, r.URL.EscapedPath()) {
			input.Route = &routers.Route{Spec: d.T, Path: template, PathItem: item, Method: r.Method, Operation: item.Operations()[r.Method]}
			input.PathParams = map[string]string{"product_id": strings.TrimPrefix(r.URL.Path, "/v1/products/")}
		}
	}
	return openapi3filter.ValidateRequest(context.Background(), input)
}
