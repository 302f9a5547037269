package storefront

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront/internal/ijson"
)

// An apiDocument is a decoded OpenAPI document.
type apiDocument struct {
	root map[string]any
}

func decodeAPI(t *testing.T, text string) apiDocument {
	t.Helper()
	var d apiDocument
	if err := json.Unmarshal([]byte(text), &d.root); err != nil {
		t.Fatal(err)
	}
	return d
}

// servedAPI returns the document that a handler with these options serves.
func servedAPI(t *testing.T, opts *Options) apiDocument {
	t.Helper()
	return decodeAPI(t, get(NewWithOptions(new(MemStore), opts), "/openapi.json").body)
}

// at returns the value that the keys lead to from v, through references, or nil.
func (d apiDocument) at(v any, keys ...string) any {
	for {
		m, _ := v.(map[string]any)
		if target, ok := m["$ref"].(string); ok {
			v = d.at(d.root, strings.Split(strings.TrimPrefix(target, "#/"), "/")...)
			continue
		}
		if len(keys) == 0 {
			return v
		}
		v, keys = m[keys[0]], keys[1:]
	}
}

// object is at for an object; one that is not there is empty.
func (d apiDocument) object(v any, keys ...string) map[string]any {
	m, _ := d.at(v, keys...).(map[string]any)
	return m
}

func (d apiDocument) schema(name string) map[string]any {
	return d.object(d.root, "components", "schemas", name)
}

// methods are the operations of a path, in lower case.
func (d apiDocument) methods(path string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.object(d.root, "paths", path))), func(key string) bool {
		return key == "parameters"
	})
}

// parameters returns those of an operation that are in query, header or path.
func (d apiDocument) parameters(path, method, in string) map[string]map[string]any {
	all := map[string]map[string]any{}
	item := d.object(d.root, "paths", path)
	for _, list := range []any{item["parameters"], d.at(item, method, "parameters")} {
		params, _ := list.([]any)
		for _, p := range params {
			if param := d.object(p); param["in"] == in {
				all[param["name"].(string)] = param
			}
		}
	}
	return all
}

// responses calls f for every documented response.
func (d apiDocument) responses(f func(path, method, status string, response map[string]any)) {
	for path := range d.object(d.root, "paths") {
		for _, method := range d.methods(path) {
			for status := range d.object(d.root, "paths", path, method, "responses") {
				f(path, method, status, d.object(d.root, "paths", path, method, "responses", status))
			}
		}
	}
}

// check returns what is wrong with a value under a schema. Beyond what the schema
// says, an object whose members are documented has no others, unless the schema
// says that it may.
func (d apiDocument) check(schema any, value any) (faults []string) {
	if schema == nil {
		return []string{"there is no schema"}
	}
	s := schema.(map[string]any)
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf(format, args...)+fmt.Sprintf(": %.80v", value))
	}
	object, isObject := value.(map[string]any)
	array, isArray := value.([]any)
	text, isString := value.(string)
	number, isNumber := value.(float64)
	matching := func(alternatives any) (n int) {
		for _, a := range alternatives.([]any) {
			if len(d.check(a, value)) == 0 {
				n++
			}
		}
		return n
	}
	if _, ok := s["additionalProperties"]; !ok && isObject && s["properties"] != nil {
		s = maps.Clone(s)
		s["additionalProperties"] = false
	}
	for keyword, arg := range s {
		switch keyword {
		case "title", "description", "examples", "default":
		case "$ref":
			faults = append(faults, d.check(d.at(s), value)...)
		case "type":
			ok := map[string]bool{
				"object": isObject, "array": isArray, "string": isString, "boolean": value == true || value == false,
				"integer": isNumber && number == math.Trunc(number),
			}[arg.(string)]
			if !ok {
				fault("not of type %v", arg)
			}
		case "properties":
			for name, member := range object {
				if property := arg.(map[string]any)[name]; property != nil {
					faults = append(faults, d.check(property, member)...)
				}
			}
		case "required":
			for _, name := range arg.([]any) {
				if _, ok := object[name.(string)]; isObject && !ok {
					fault("without %v", name)
				}
			}
		case "additionalProperties":
			for name := range object {
				if arg == false && d.object(s, "properties")[name] == nil {
					fault("%s is not documented", name)
				}
			}
		case "items":
			for _, item := range array {
				faults = append(faults, d.check(arg, item)...)
			}
		case "minItems":
			if isArray && len(array) < int(arg.(float64)) {
				fault("fewer than %v items", arg)
			}
		case "maxItems":
			if isArray && len(array) > int(arg.(float64)) {
				fault("more than %v items", arg)
			}
		case "minLength":
			if isString && utf8.RuneCountInString(text) < int(arg.(float64)) {
				fault("shorter than %v", arg)
			}
		case "maxLength":
			if isString && utf8.RuneCountInString(text) > int(arg.(float64)) {
				fault("longer than %v", arg)
			}
		case "pattern":
			if isString && !regexp.MustCompile(arg.(string)).MatchString(text) {
				fault("does not match %v", arg)
			}
		case "minimum":
			if isNumber && number < arg.(float64) {
				fault("less than %v", arg)
			}
		case "maximum":
			if isNumber && number > arg.(float64) {
				fault("greater than %v", arg)
			}
		case "const":
			if value != arg {
				fault("not %v", arg)
			}
		case "enum":
			if !slices.Contains(arg.([]any), value) {
				fault("not one of %v", arg)
			}
		case "anyOf":
			if matching(arg) == 0 {
				fault("not any of %v", arg)
			}
		case "oneOf":
			if matching(arg) != 1 {
				fault("not just one of %v", arg)
			}
		case "format":
			switch arg {
			case "int64":
			case "date-time":
				if _, err := time.Parse(time.RFC3339, text); err != nil {
					fault("not a date-time")
				}
			case "uri":
				if u, err := url.Parse(text); err != nil || !u.IsAbs() {
					fault("not a URI")
				}
			default:
				fault("unknown format %v", arg)
			}
		default:
			fault("unknown keyword %s", keyword)
		}
	}
	return faults
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

// checkText is check for the value of a parameter or a header.
func (d apiDocument) checkText(schema any, text string) []string {
	if d.at(schema, "type") == "integer" && text != "" && strings.Trim(text, "0123456789") == "" {
		n, _ := strconv.ParseFloat(text, 64)
		return d.check(schema, n)
	}
	return d.check(schema, text)
}

// An apiExchange is a request and its response, at a documented path.
type apiExchange struct {
	path, method string // as in the document
	request      string // to tell which one it is
	body         string
	got          response
}

func (e apiExchange) status() string { return strconv.Itoa(e.got.status) }

// apiExchanges are real ones with every response that there is to a documented method.
func apiExchanges(opts Options) (all []apiExchange) {
	opts.Logger = slog.New(slog.DiscardHandler)
	serve := func(store Store) http.Handler { return NewWithOptions(store, &opts) }
	failing := func(err error) http.Handler {
		return serve(&stubStore{
			listUsers:   func(context.Context, string, int) ([]Resource, error) { return nil, err },
			createOrder: func(context.Context, IdempotencyKey, Order) (Order, error) { return Order{}, err },
			getProduct:  func(context.Context, string) (Resource, error) { return Resource{}, err },
			listWidgets: func(context.Context, string, int) ([]Resource, error) { return nil, err },
		})
	}
	store := new(MemStore)
	store.Users.Put(
		MustResource("u1", map[string]any{"name": "Ada"}),
		MustResource("u2", map[string]any{"name": "Grace"}),
		MustResource("u3", map[string]any{"name": "Edsger"}))
	store.Widgets.Put(
		MustResource("w1", map[string]any{"color": "red"}),
		MustResource("w2", map[string]any{"color": "blue"}),
		MustResource("w3", map[string]any{"color": "green"}))
	store.Products.Put(
		MustResource("teapot", json.RawMessage(`{"name": "Teapot", "price": {"amount": "24.50", "currency": "EUR"}}`)),
		MustResource("p2", nil))
	shop, broken, down := serve(store), failing(errors.New("no space left")), failing(ErrUnavailable)

	add := func(path string, r *http.Request, body string, h http.Handler, lines ...string) {
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Add(name, value)
		}
		request := fmt.Sprintf("%s %s %q", r.Method, r.URL, lines)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		all = append(all, apiExchange{path, strings.ToLower(r.Method), request, body, response{w.Code, w.Result().Header, w.Body.String()}})
	}
	read := func(h http.Handler, path, target string, lines ...string) {
		add(path, httptest.NewRequest("GET", target, nil), "", h, lines...)
		add(path, httptest.NewRequest("HEAD", target, nil), "", h, lines...)
	}
	const users, orders, products, widgets, document = "/v1/users", "/v1/orders", "/v1/products/{product_id}", "/v2/widgets", "/openapi.json"

	for path, target := range map[string]string{users: users + "?limit=2", widgets: widgets + "?limit=2", document: document} {
		read(shop, path, target)
		read(shop, path, target, "If-None-Match: *")
		read(shop, path, target, `If-Match: "another"`)
	}
	for path, target := range map[string]string{users: users, widgets: widgets + "?limit=2", products: "/v1/products/teapot"} {
		read(broken, path, target)
		read(down, path, target)
	}
	opts.Vary = []string{"Authorization", "Cookie"}
	varying := serve(store)
	opts.Vary = nil
	for path, target := range map[string]string{users: users, widgets: widgets + "?limit=2", products: "/v1/products/teapot", document: document} {
		read(varying, path, target)
		read(varying, path, target, "If-None-Match: *")
	}
	for _, answering := range []http.Handler{shop, broken, down} {
		read(answering, products, "/v1/products/none", "Cache-Control: no-cache")
	}
	read(shop, users, users+"?limit=2&after="+usersList.cursor("u2"))
	read(shop, users, users+"?page=2&after=2")
	read(shop, widgets, widgets+"?limit=2&start="+widgetsList.cursor("w3"))
	read(shop, widgets, widgets)
	read(shop, document, document+"?verbose=true")

	read(shop, products, "/v1/products/teapot")
	read(shop, products, "/v1/products/teapot", "Cache-Control: no-cache")
	read(shop, products, "/v1/products/teapot", "Cache-Control: max-age=60")
	read(shop, products, "/v1/products/teapot", "If-None-Match: *")
	read(shop, products, "/v1/products/teapot", "If-None-Match: *", "Cache-Control: max-age=60")
	read(shop, products, "/v1/products/teapot", `If-Match: "another"`)
	read(shop, products, "/v1/products/teapot", `If-Match: "another"`, "Cache-Control: max-age=60")
	read(shop, products, "/v1/products/teapot?verbose=true")
	read(shop, products, "/v1/products/p2", "Cache-Control: only-if-cached")
	read(shop, products, "/v1/products/none")
	read(shop, products, "/v1/products/%00")
	read(shop, products, "/v1/products/")

	for path, target := range map[string]string{users: users, orders: orders, products: "/v1/products/teapot", widgets: widgets, document: document} {
		add(path, httptest.NewRequest("OPTIONS", target, nil), "", shop)
	}
	add(products, httptest.NewRequest("OPTIONS", "/v1/products/", nil), "", shop)

	const asJSON, withKey, teapots = "Content-Type: application/json", "Idempotency-Key: k1", `{"item":"teapot","qty":2}`
	order := func(h http.Handler, body string, lines ...string) {
		add(orders, httptest.NewRequest("POST", orders, strings.NewReader(body)), body, h, lines...)
	}
	// The order of the example has come before, with its key.
	exampleOrder := serve(&stubStore{createOrder: func(context.Context, IdempotencyKey, Order) (Order, error) {
		created := time.Date(2026, 11, 22, 9, 30, 11, 250e6, time.UTC)
		return Order{"ord_7Q3DKXW2MZB5NVTCYA4RLHJ6UE", "teapot", 2, created}, nil
	}})
	order(shop, teapots, asJSON, withKey)
	order(shop, teapots, asJSON, withKey)
	order(exampleOrder, teapots, asJSON, withKey)
	order(shop, `{"item":"kettle","qty":2}`, asJSON, withKey)
	order(shop, teapots, asJSON, "Idempotency-Key: k2", "If-Match: *")
	order(shop, teapots, asJSON)
	order(shop, teapots, asJSON, `Idempotency-Key: "k2`)
	order(shop, `{"item":"teapot",`, asJSON, withKey)
	order(shop, `{"item":"","qty":0,"color":"red"}`, asJSON, withKey)
	order(shop, strings.Repeat(" ", maxOrderBody+1), asJSON, withKey)
	order(shop, teapots, withKey)
	order(shop, teapots, withKey, asJSON, "Content-Encoding: gzip")
	order(shop, teapots, withKey, "Content-Type: application/x-www-form-urlencoded", "Content-Encoding: gzip")
	order(failing(ErrInProgress), teapots, asJSON, withKey)
	order(failing(&Refusal{"sold-out", "The last teapot was sold.", "#/item"}), teapots, asJSON, withKey)
	order(broken, teapots, asJSON, withKey)
	order(down, teapots, asJSON, withKey)
	add(orders, httptest.NewRequest("POST", orders+"?verbose=true", strings.NewReader(teapots)), "", shop, asJSON, withKey)
	add(orders, httptest.NewRequest("POST", orders, iotest.ErrReader(os.ErrDeadlineExceeded)), "", shop, asJSON, withKey)
	return all
}

// packageFiles parses and type-checks the package, as far as its constants go.
func packageFiles(t *testing.T) ([]*ast.File, *types.Info) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Error: func(error) {}} // what is imported stays unknown
	conf.Check("storefront", fset, files, info)
	return files, info
}

func stringConstant(t *testing.T, info *types.Info, expr ast.Expr) string {
	t.Helper()
	value := info.Types[expr].Value
	if value == nil || value.Kind() != constant.String {
		t.Fatalf("this test needs constants, not %s", types.ExprString(expr))
	}
	return constant.StringVal(value)
}

func TestOpenAPIDocumentsTheRoutes(t *testing.T) {
	files, info := packageFiles(t)
	var routes []string
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok && f.Name.Name == "handle" {
				return false // it registers what its callers say
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch f, _ := call.Fun.(*ast.SelectorExpr); {
			case f == nil:
			case f.Sel.Name == "handle":
				path := stringConstant(t, info, call.Args[1])
				for method := range strings.SplitSeq(stringConstant(t, info, call.Args[2]), ", ") {
					routes = append(routes, path+" "+method)
				}
			case f.Sel.Name == "Handle" || f.Sel.Name == "HandleFunc":
				if pattern := stringConstant(t, info, call.Args[0]); pattern != "/" {
					t.Errorf("the route %s is registered in a way that this test does not know", pattern)
				}
			}
			return true
		})
	}
	var documented []string
	d := decodeAPI(t, openAPI)
	for path := range d.object(d.root, "paths") {
		for _, method := range d.methods(path) {
			documented = append(documented, path+" "+strings.ToUpper(method))
		}
	}
	slices.Sort(routes)
	slices.Sort(documented)
	if diff := cmp.Diff(routes, documented); diff != "" {
		t.Errorf("routes of the code (-) and of the document (+):\n%s", diff)
	}
}

func TestOpenAPIDocumentsTheMethodsThatAllowNames(t *testing.T) {
	d := decodeAPI(t, openAPI)
	for _, e := range apiExchanges(Options{}) {
		if allow := e.got.header.Get("Allow"); allow != "" {
			got := strings.Split(strings.ToLower(allow), ", ")
			slices.Sort(got)
			if diff := cmp.Diff(got, d.methods(e.path)); diff != "" {
				t.Errorf("%s: methods of Allow (-) and of the document (+):\n%s", e.request, diff)
			}
		}
	}
}

// No operation can be answered with these, so that it is the description of the
// document that has them.
func TestOpenAPIDescribesTheAnswersToOtherMethods(t *testing.T) {
	d := decodeAPI(t, openAPI)
	description := d.at(d.root, "info", "description").(string)
	for _, line := range []string{
		"\n- 405 method-not-allowed, with Allow, answers a method that the path does not support.\n",
		"\n- 501 not-implemented answers a method other than GET, HEAD, POST, OPTIONS, PUT, PATCH, DELETE, CONNECT and TRACE, on any path.\n",
	} {
		if !strings.Contains(description, line) {
			t.Errorf("the description does not have %q", line)
		}
	}
	h := New(new(MemStore))
	for path := range d.object(d.root, "paths") {
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE", "BREW", "get"} {
			if slices.Contains(d.methods(path), strings.ToLower(method)) && method != "get" {
				continue
			}
			status, code := http.StatusMethodNotAllowed, "method-not-allowed"
			if method == "BREW" || method == "get" {
				status, code = http.StatusNotImplemented, "not-implemented"
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, strings.ReplaceAll(path, "{product_id}", "teapot"), nil))
			if w.Code != status {
				t.Errorf("%s %s: status %d, want %d", method, path, w.Code, status)
			}
			if allow := w.Header()["Allow"]; (allow != nil) != (status == http.StatusMethodNotAllowed) {
				t.Errorf("%s %s: Allow is %q", method, path, allow)
			}
			if method == "HEAD" {
				continue
			}
			var body map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Errorf("%s %s: %v", method, path, err)
			}
			for _, fault := range d.check(d.schema("Problem"), body) {
				t.Errorf("%s %s: %s", method, path, fault)
			}
			if want := "urn:problem-type:storefront:" + code; body["type"] != want {
				t.Errorf("%s %s: the type is %v, want %s", method, path, body["type"], want)
			}
		}
	}
}

func TestOpenAPIDocumentsTheStatuses(t *testing.T) {
	d := decodeAPI(t, openAPI)
	seen, documented := map[string]bool{}, map[string]bool{}
	for _, e := range apiExchanges(Options{}) {
		seen[e.method+" "+e.path+" "+e.status()] = true
	}
	d.responses(func(path, method, status string, _ map[string]any) {
		documented[method+" "+path+" "+status] = true
	})
	if diff := cmp.Diff(seen, documented); diff != "" {
		t.Errorf("seen (-) and documented (+):\n%s", diff)
	}
}

// Content-Type is not among the headers: OpenAPI says it with the content.
func TestOpenAPIDocumentsTheResponseHeaders(t *testing.T) {
	d := decodeAPI(t, openAPI)
	responses, sent := map[string]int{}, map[string]int{}
	for _, e := range apiExchanges(Options{}) {
		response := e.method + " " + e.path + " " + e.status()
		responses[response]++
		for name := range e.got.header {
			if name != "Content-Type" {
				sent[response+" "+name]++
			}
		}
	}
	seen, documented := map[string]string{}, map[string]string{}
	for key, n := range sent {
		seen[key] = "sometimes"
		if n == responses[key[:strings.LastIndex(key, " ")]] {
			seen[key] = "always"
		}
	}
	d.responses(func(path, method, status string, response map[string]any) {
		for name, header := range d.object(response, "headers") {
			key := method + " " + path + " " + status + " " + http.CanonicalHeaderKey(name)
			documented[key] = "sometimes"
			if d.at(header, "required") == true {
				documented[key] = "always"
			}
		}
	})
	if diff := cmp.Diff(seen, documented); diff != "" {
		t.Errorf("seen (-) and documented (+):\n%s", diff)
	}
}

func TestOpenAPIDocumentsTheValuesOfResponseHeaders(t *testing.T) {
	for _, opts := range []Options{{}, {Shared: true}, {MaxAge: -1}} {
		d := servedAPI(t, &opts)
		for _, e := range apiExchanges(opts) {
			response := d.at(d.root, "paths", e.path, e.method, "responses", e.status())
			for name, header := range d.object(response, "headers") {
				for _, value := range e.got.header.Values(name) {
					for _, fault := range d.checkText(d.at(header, "schema"), value) {
						t.Errorf("%s: %s: %s", e.request, name, fault)
					}
				}
			}
		}
	}
}

func TestOpenAPIDocumentsTheMediaTypes(t *testing.T) {
	d := decodeAPI(t, openAPI)
	for _, e := range apiExchanges(Options{}) {
		method := e.method
		if method == "head" {
			method = "get" // whose Content-Type it has
		}
		want := slices.Collect(maps.Keys(d.object(d.root, "paths", e.path, method, "responses", e.status(), "content")))
		if diff := cmp.Diff(want, e.got.header["Content-Type"]); diff != "" {
			t.Errorf("%s: %d: documented (-) and sent (+):\n%s", e.request, e.got.status, diff)
		}
	}
}

func TestOpenAPIDocumentsTheBodies(t *testing.T) {
	d := decodeAPI(t, openAPI)
	for _, e := range apiExchanges(Options{}) {
		content := d.object(d.root, "paths", e.path, e.method, "responses", e.status(), "content")
		if (content != nil) != (e.got.body != "") {
			t.Errorf("%s: %d: content documented: %t, body: %q", e.request, e.got.status, content != nil, e.got.body)
		}
		for mediaType := range content {
			var body any
			if err := json.Unmarshal([]byte(e.got.body), &body); err != nil {
				t.Errorf("%s: %d: %v", e.request, e.got.status, err)
			}
			for _, fault := range d.check(d.at(content, mediaType, "schema"), body) {
				t.Errorf("%s: %d: %s", e.request, e.got.status, fault)
			}
		}
	}
}

// The schema leaves this to the description of instance.
func TestOpenAPIProblemsHaveAnInstanceFromStatus500On(t *testing.T) {
	for _, e := range apiExchanges(Options{}) {
		if e.got.body == "" {
			continue
		}
		var p Problem
		if err := json.Unmarshal([]byte(e.got.body), &p); err != nil {
			t.Fatal(err)
		}
		if (p.Instance != "") != (e.got.status >= 500) {
			t.Errorf("%s: %d with the instance %q", e.request, e.got.status, p.Instance)
		}
	}
}

func TestOpenAPIFaultsSayAtMostOnePlace(t *testing.T) {
	d := decodeAPI(t, openAPI)
	places := map[string]int{}
	for _, e := range apiExchanges(Options{}) {
		if e.got.header.Get("Content-Type") != "application/problem+json" || e.got.body == "" {
			continue
		}
		var p Problem
		if err := json.Unmarshal([]byte(e.got.body), &p); err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Errors {
			n := 0
			for name, value := range map[string]string{"parameter": f.Parameter, "header": f.Header, "pointer": f.Pointer} {
				if value != "" {
					n++
					places[name]++
				}
			}
			if n > 1 {
				t.Errorf("%s: a fault with %d places: %+v", e.request, n, f)
			}
		}
	}
	for _, name := range []string{"parameter", "header", "pointer"} {
		if places[name] == 0 {
			t.Errorf("no fault has had a %s", name)
		}
	}
	if faults := d.check(d.schema("Fault"), map[string]any{"detail": "It is somewhere."}); faults != nil {
		t.Errorf("a fault without a place: %q", faults)
	}
}

func TestOpenAPIDocumentsWhichPointersAreLeftOut(t *testing.T) {
	d := decodeAPI(t, openAPI)
	for length, sent := range map[int]bool{2 << 10: true, 2<<10 + 1: false} {
		pointer := "#/" + strings.Repeat("x", length-len("#/"))
		faults := d.check(d.at(d.schema("Fault"), "properties", "pointer"), pointer)
		if (faults == nil) != sent {
			t.Errorf("a pointer of %d bytes: the document says %q, want it to be valid: %t", length, faults, sent)
		}
		got := postOrder(New(new(MemStore)), "k1", `{"item":"teapot","qty":2,"`+pointer[2:]+`":1}`)
		if strings.Contains(got.body, `"pointer"`) != sent {
			t.Errorf("a pointer of %d bytes: the answer is %.300s, want it there: %t", length, got.body, sent)
		}
	}
}

func TestOpenAPIListsTheProblemTypes(t *testing.T) {
	d := decodeAPI(t, openAPI)
	var want, got []string
	for _, typ := range problemTypes(t) {
		p := typ.problem("")
		want = append(want, fmt.Sprintf("%s, %s, %d", p.Type, p.Title, p.Status))
	}
	for _, entry := range d.schema("KnownProblemType")["oneOf"].([]any) {
		e := d.object(entry)
		status, _, _ := strings.Cut(e["description"].(string), ": ")
		got = append(got, fmt.Sprintf("%s, %s, %s", e["const"], e["title"], status))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("code (-) and document (+):\n%s", diff)
	}
}

func TestOpenAPILeavesRoomForProblemTypesOfLaterVersions(t *testing.T) {
	d := decodeAPI(t, openAPI)
	ofProblems := d.object(d.schema("Problem"), "properties")["type"]
	for _, c := range []struct {
		urn         string
		valid, here bool // as the type of a problem; as a type of this version
	}{
		{"urn:problem-type:storefront:invalid-order", true, true},
		{"urn:problem-type:storefront:not-cached", true, true},
		{"urn:problem-type:storefront:of-a-later-version", true, false},
		{"urn:problem-type:storefront:", false, false},
		{"urn:problem-type:another:invalid-order", false, false},
		{"about:blank", false, false},
	} {
		if faults := d.check(ofProblems, c.urn); (faults == nil) != c.valid {
			t.Errorf("%s as the type of a problem: %q, want it to be valid: %t", c.urn, faults, c.valid)
		}
		if faults := d.check(d.schema("KnownProblemType"), c.urn); (faults == nil) != c.here {
			t.Errorf("%s as a type of this version: %q, want it to be one: %t", c.urn, faults, c.here)
		}
	}
}

// From an alternative that does not say its type generators make "anything", which
// takes in all other alternatives. additionalProperties says it to some of them only.
func TestOpenAPIAlternativesSayWhatTheyAre(t *testing.T) {
	eachSchema(decodeAPI(t, openAPI).root, "#", func(at string, schema map[string]any) {
		for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
			alternatives, _ := schema[keyword].([]any)
			for i, a := range alternatives {
				if !slices.ContainsFunc([]string{"$ref", "const", "type"}, func(key string) bool {
					return a.(map[string]any)[key] != nil
				}) {
					t.Errorf("%s/%s/%d: %v", at, keyword, i, a)
				}
			}
		}
	})
}

// Of this form generators make a string. Without a type beside anyOf it would be a struct
// for oapi-codegen, which also leaves out a KnownProblemType that nothing refers to. With
// oneOf a type of this version would be both alternatives, and so not valid.
func TestOpenAPIProblemTypeIsAStringForGenerators(t *testing.T) {
	schema := decodeAPI(t, openAPI).schema("ProblemType")
	delete(schema, "description")
	for _, alternative := range schema["anyOf"].([]any) {
		delete(alternative.(map[string]any), "description")
	}
	want := map[string]any{
		"type":    "string",
		"format":  "uri",
		"pattern": "^urn:problem-type:storefront:[a-z-]+$",
		"anyOf": []any{
			map[string]any{"type": "string"},
			map[string]any{"$ref": "#/components/schemas/KnownProblemType"},
		},
	}
	if diff := cmp.Diff(want, schema); diff != "" {
		t.Errorf("wanted (-) and found (+):\n%s", diff)
	}
}

// Of this form generators make a union or constants: with anyOf it would be any string
// for openapi-typescript, and with a type in each entry oapi-codegen fails.
func TestOpenAPIKnownProblemTypesAreAClosedSetForGenerators(t *testing.T) {
	schema := decodeAPI(t, openAPI).schema("KnownProblemType")
	if diff := cmp.Diff([]string{"description", "oneOf", "type"}, slices.Sorted(maps.Keys(schema))); diff != "" {
		t.Errorf("keywords wanted (-) and found (+):\n%s", diff)
	}
	for _, entry := range schema["oneOf"].([]any) {
		if diff := cmp.Diff([]string{"const", "description", "title"}, slices.Sorted(maps.Keys(entry.(map[string]any)))); diff != "" {
			t.Errorf("%v: keywords wanted (-) and found (+):\n%s", entry, diff)
		}
	}
}

// A response names its problem types by an example of each.
func TestOpenAPIDocumentsWhichProblemsAResponseMayBe(t *testing.T) {
	d := decodeAPI(t, openAPI)
	seen, documented := map[string]bool{}, map[string]bool{}
	for _, e := range apiExchanges(Options{}) {
		if e.got.header.Get("Content-Type") == "application/problem+json" && e.got.body != "" {
			var p Problem
			if err := json.Unmarshal([]byte(e.got.body), &p); err != nil {
				t.Fatal(err)
			}
			seen[e.method+" "+e.path+" "+e.status()+" "+p.Type] = true
		}
	}
	d.responses(func(path, method, status string, response map[string]any) {
		for _, example := range d.object(response, "content", "application/problem+json", "examples") {
			documented[fmt.Sprint(method, " ", path, " ", status, " ", d.at(example, "value", "type"))] = true
		}
	})
	if diff := cmp.Diff(seen, documented); diff != "" {
		t.Errorf("seen (-) and documented (+):\n%s", diff)
	}
}

func TestOpenAPIExamplesOfResponsesAreSent(t *testing.T) {
	for name, opts := range map[string]Options{"default options": {}, "other limits": {PageSize: 7, MaxPageSize: 20}} {
		t.Run(name, func(t *testing.T) {
			d := servedAPI(t, &opts)
			exchanges := apiExchanges(opts)
			d.responses(func(path, method, status string, response map[string]any) {
				for mediaType := range d.object(response, "content") {
					for name, example := range d.object(response, "content", mediaType, "examples") {
						want := d.at(example, "value")
						closest := ""
						for _, e := range exchanges {
							if e.path != path || e.method != method || e.status() != status {
								continue
							}
							var got map[string]any
							if err := json.Unmarshal([]byte(e.got.body), &got); err != nil {
								t.Fatal(err)
							}
							if got["instance"] != nil { // it is random
								got["instance"] = d.at(want, "instance")
							}
							diff := cmp.Diff(want, any(got))
							if diff == "" {
								return
							}
							if closest == "" || len(diff) < len(closest) {
								closest = diff
							}
						}
						t.Errorf("%s %s %s: the example %s (-) and the closest response (+):\n%s", method, path, status, name, closest)
					}
				}
			})
		})
	}
}

func TestOpenAPIExampleOfAProductIsOneOfTheSampleShop(t *testing.T) {
	program, err := os.ReadFile("cmd/storefront/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, sample, _ := strings.Cut(string(program), "const sample = `")
	sample, _, _ = strings.Cut(sample, "`")
	shop := new(MemStore)
	if err := shop.Load(strings.NewReader(sample)); err != nil {
		t.Fatal(err)
	}
	d := decodeAPI(t, openAPI)
	id := d.parameters("/v1/products/{product_id}", "get", "path")["product_id"]["example"].(string)
	got := get(New(shop), "/v1/products/"+id)
	var product any
	if err := json.Unmarshal([]byte(got.body), &product); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(product, d.at(d.root, "components", "examples", "Product", "value")); diff != "" {
		t.Errorf("the product of the sample shop (-) and the example (+):\n%s", diff)
	}
	headers := map[string]string{}
	for _, name := range []string{"ETag", "Content-Length"} {
		header := d.object(d.root, "paths", "/v1/products/{product_id}", "get", "responses", "200", "headers", name)
		headers[name] = fmt.Sprint(header["example"])
	}
	want := map[string]string{"ETag": got.header.Get("ETag"), "Content-Length": got.header.Get("Content-Length")}
	if diff := cmp.Diff(want, headers); diff != "" {
		t.Errorf("headers of the product (-) and their examples (+):\n%s", diff)
	}
}

func TestOpenAPIExampleOfARequestIsAccepted(t *testing.T) {
	d := decodeAPI(t, openAPI)
	for name, example := range d.object(d.root, "paths", "/v1/orders", "post", "requestBody", "content", "application/json", "examples") {
		body, err := json.Marshal(d.at(example, "value"))
		if err != nil {
			t.Fatal(err)
		}
		if got := postOrder(New(new(MemStore)), "k1", string(body)); got.status != http.StatusCreated {
			t.Errorf("%s: status %d\n%s", name, got.status, got.body)
		}
	}
}

func TestOpenAPIExamplesAreValid(t *testing.T) {
	d := decodeAPI(t, openAPI)
	checked := 0
	var walk func(v any, at string)
	walk = func(v any, at string) {
		switch v := v.(type) {
		case []any:
			for i, item := range v {
				walk(item, at+"/"+strconv.Itoa(i))
			}
		case map[string]any:
			if schema := v["schema"]; schema != nil {
				values := map[string]any{}
				if example, ok := v["example"]; ok {
					values["example"] = example
				}
				for name, example := range d.object(v, "examples") {
					values[name] = d.at(example, "value")
				}
				for name, value := range values {
					checked++
					for _, fault := range d.check(schema, value) {
						t.Errorf("%s: %s: %s", at, name, fault)
					}
				}
			}
			for name, member := range v {
				walk(member, at+"/"+name)
			}
		}
	}
	walk(d.root, "#")
	if checked == 0 {
		t.Error("there are none")
	}
}

func TestOpenAPIDocumentsTheRequestHeaders(t *testing.T) {
	files, info := packageFiles(t)
	read := map[string]bool{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if index, ok := n.(*ast.IndexExpr); ok && types.ExprString(index.X) == "r.Header" && types.ExprString(index.Index) != "name" { // of Options.Vary
				read[stringConstant(t, info, index.Index)] = true
			}
			if call, ok := n.(*ast.CallExpr); ok && strings.HasPrefix(types.ExprString(call.Fun), "r.Header.") {
				read[stringConstant(t, info, call.Args[0])] = true
			}
			return true
		})
	}
	documented := map[string]bool{
		"Content-Type":  true, // by the content of the request body
		"Authorization": true, // in the description of Cache-Control
		"Cookie":        true, // there, too
		"Expect":        true, // in the description of the whole
	}
	d := decodeAPI(t, openAPI)
	for path := range d.object(d.root, "paths") {
		for _, method := range d.methods(path) {
			for name := range d.parameters(path, method, "header") {
				documented[name] = true
			}
		}
	}
	if diff := cmp.Diff(read, documented); diff != "" {
		t.Errorf("read by the code (-) and documented (+):\n%s", diff)
	}
}

func TestOpenAPIDocumentsTheQueryParameters(t *testing.T) {
	d := decodeAPI(t, openAPI)
	h := New(new(MemStore))
	for path := range d.object(d.root, "paths") {
		method := "get"
		if !slices.Contains(d.methods(path), method) {
			method = "post"
		}
		complaint := func(query, name, detail string) bool {
			var p Problem
			if err := json.Unmarshal([]byte(send(h, strings.ToUpper(method), path+query, "").body), &p); err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(p.Errors, func(f Fault) bool {
				return f.Parameter == name && strings.Contains(f.Detail, detail)
			})
		}
		documented := d.parameters(path, method, "query")
		for _, name := range []string{"limit", "after", "start"} {
			taken := !complaint("?"+name+"=1", name, "Unknown parameter")
			if taken != (documented[name] != nil) {
				t.Errorf("%s %s: %s documented: %t, taken: %t", method, path, name, documented[name] != nil, taken)
			}
			required := complaint("", name, "is required")
			if required != (documented[name]["required"] == true) {
				t.Errorf("%s %s: %s documented as required: %v, required: %t", method, path, name, documented[name]["required"], required)
			}
		}
	}
}

func TestOpenAPIDocumentsForHeadTheParametersOfGet(t *testing.T) {
	d := decodeAPI(t, openAPI)
	for path := range d.object(d.root, "paths") {
		if slices.Contains(d.methods(path), "head") {
			head, get := d.at(d.root, "paths", path, "head", "parameters"), d.at(d.root, "paths", path, "get", "parameters")
			if diff := cmp.Diff(get, head); diff != "" {
				t.Errorf("%s: parameters of GET (-) and of HEAD (+):\n%s", path, diff)
			}
		}
	}
}

// Tools take the default as it is, and most of them join it and a path.
func TestOpenAPIServerIsByDefaultWhereTheProgramListens(t *testing.T) {
	program, err := os.ReadFile("cmd/storefront/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, addr, _ := strings.Cut(string(program), `flag.String("addr", "`)
	addr, _, _ = strings.Cut(addr, `"`)
	d := decodeAPI(t, openAPI)
	var got []string
	for _, s := range d.root["servers"].([]any) {
		server := d.object(s)
		u := server["url"].(string)
		for name := range d.object(server, "variables") {
			u = strings.ReplaceAll(u, "{"+name+"}", d.at(server, "variables", name, "default").(string))
		}
		got = append(got, u)
	}
	if diff := cmp.Diff([]string{"http://" + addr}, got); diff != "" {
		t.Errorf("where the program listens (-) and the servers by default (+):\n%s", diff)
	}
}

func TestOpenAPIStatesTheLimitsOfTheCode(t *testing.T) {
	d := decodeAPI(t, openAPI)
	opts := Options{}
	opts.setDefaults()
	limit := func(path string) map[string]any {
		return d.object(d.parameters(path, "get", "query")["limit"], "schema")
	}
	for _, c := range []struct {
		limit string
		got   any
		want  float64
	}{
		{"users per page without limit", limit("/v1/users")["default"], float64(opts.PageSize)},
		{"users per page", limit("/v1/users")["maximum"], float64(opts.MaxPageSize)},
		{"widgets per page", limit("/v2/widgets")["maximum"], float64(opts.MaxPageSize)},
		{"bytes of a cursor", d.schema("Cursor")["maxLength"], maxCursor},
		{"characters of item", d.schema("Item")["maxLength"], maxItem},
		{"qty", d.schema("Qty")["maximum"], maxQty},
		{"faults of a problem", d.at(d.schema("Problem"), "properties", "errors", "maxItems"), maxFaults},
	} {
		if c.got != c.want {
			t.Errorf("%s: documented %v, want %v", c.limit, c.got, c.want)
		}
	}
	bodyLimit := fmt.Sprintf("At most %d bytes", maxOrderBody)
	if got := d.at(d.root, "paths", "/v1/orders", "post", "requestBody", "description"); !strings.Contains(got.(string), bodyLimit) {
		t.Errorf("the request body is described as %q, want %q in it", got, bodyLimit)
	}
	keyLifetime := fmt.Sprintf("at least %v hours", KeyLifetime.Hours())
	if got := d.parameters("/v1/orders", "post", "header")["Idempotency-Key"]["description"]; !strings.Contains(got.(string), keyLifetime) {
		t.Errorf("Idempotency-Key is described as %q, want %q in it", got, keyLifetime)
	}
}

// Without a format, an integer of a generated client may have 32 bits.
func TestOpenAPIIntegersThatMayExceed32BitsAreInt64(t *testing.T) {
	eachSchema(decodeAPI(t, openAPI).root, "#", func(at string, schema map[string]any) {
		if maximum, ok := schema["maximum"].(float64); schema["type"] == "integer" && (!ok || maximum > math.MaxInt32) {
			if schema["format"] != "int64" {
				t.Errorf("%s: the format is %v", at, schema["format"])
			}
		}
	})
}

func TestOpenAPIParametersAreThoseThatTheServiceAccepts(t *testing.T) {
	opts := &Options{PageSize: 7, MaxPageSize: 20}
	store := &stubStore{
		listUsers:   func(context.Context, string, int) ([]Resource, error) { return nil, nil },
		listWidgets: func(context.Context, string, int) ([]Resource, error) { return nil, nil },
		getProduct:  func(_ context.Context, id string) (Resource, error) { return NewResource(id, nil) },
		createOrder: func(_ context.Context, _ IdempotencyKey, o Order) (Order, error) { return o, nil },
	}
	h := NewWithOptions(store, opts)
	d := servedAPI(t, opts)
	query := func(path, name, more string) func(value string) response {
		return func(value string) response { return get(h, path+"?"+name+"="+url.QueryEscape(value)+more) }
	}
	limits := []string{"", "0", "1", "20", "21", "-1", "+1", "1.0", "1e1", "0x1", "ten", "99999999999999999999"}
	longest := strings.Repeat("x", 255)
	for _, c := range []struct {
		path, method, in, name string
		request                func(value string) response
		values                 []string
	}{
		{"/v1/users", "get", "query", "limit", query("/v1/users", "limit", ""), limits},
		{"/v2/widgets", "get", "query", "limit", query("/v2/widgets", "limit", ""), limits},
		{"/v1/users", "get", "query", "after", query("/v1/users", "after", ""),
			[]string{usersList.cursor("u"), usersList.cursor(longest), "", "a b", "a=", strings.Repeat("A", maxCursor+1)}},
		{"/v2/widgets", "get", "query", "start", query("/v2/widgets", "start", "&limit=1"),
			[]string{widgetsList.cursor("w"), widgetsList.cursor(longest), "", "a b", "a=", strings.Repeat("A", maxCursor+1)}},
		{"/v1/products/{product_id}", "get", "path", "product_id",
			func(value string) response { return get(h, "/v1/products/"+url.PathEscape(value)) },
			[]string{"p", "p q", "é/?#", longest, longest + "x", "", "\x00", "a\x1f", "a\x7f", "a\u0080", "a\u009f", "a\u00a0"}},
		{"/v1/orders", "post", "header", "Idempotency-Key",
			func(value string) response { return postOrder(h, value, `{"item":"teapot","qty":2}`) },
			[]string{"k", "k k", "!#~", `k\`, longest, longest + "x", "", "\x7f", "é", "k\tk",
				`"k"`, `" "`, `"` + longest + `"`, `"x` + longest + `"`, `"` + strings.Repeat(`\"`, 255) + `"`,
				`""`, `"`, `"k`, `k"`, `"k" `, `"k"k`, `"k\"`, `"\k"`, `"\\"`, `"k";p=1`, `"é"`}},
		{"/v1/orders", "post", "header", "Content-Encoding",
			func(value string) response {
				return postOrder(h, "k", `{"item":"teapot","qty":2}`, "Content-Encoding: "+value)
			},
			[]string{"identity", "gzip", "identity, gzip"}},
	} {
		schema := d.parameters(c.path, c.method, c.in)[c.name]["schema"]
		for _, value := range c.values {
			if c.in == "header" {
				value = strings.Trim(value, " \t") // as every recipient does
			}
			got := c.request(value)
			faults := d.checkText(schema, value)
			if accepted := got.status < 300; accepted != (faults == nil) {
				t.Errorf("%s = %.80q: the answer is %d, the document says %q", c.name, value, got.status, faults)
			}
		}
	}
}

func TestOpenAPIOrdersAreThoseThatTheServiceAccepts(t *testing.T) {
	d := decodeAPI(t, openAPI)
	var bodies []string
	for _, item := range []string{
		"", " ", "  ", "a", " a ", "é", "a\u0000", "\u001f", "a\u007f", "\u0085", "a\u009f", "\u00a0",
		"\u200b", "\u3000a", "\ufeff", "\"", "teapot\n",
		strings.Repeat("é", maxItem), strings.Repeat("é", maxItem+1), strings.Repeat("\U0001f375", maxItem),
	} {
		body, err := json.Marshal(map[string]any{"item": item, "qty": 1})
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, string(body))
	}
	for _, qty := range []string{"0", "-1", "1", "1.5", "9007199254740991", "9007199254740992", "1e300", `"1"`, "null", "true", "[]", "{}"} {
		bodies = append(bodies, `{"item":"a","qty":`+qty+`}`)
	}
	bodies = append(bodies,
		`{"item":1,"qty":1}`, `{"item":null,"qty":1}`, `{"qty":1}`, `{"item":"a"}`, `{}`, `{"Item":"a","qty":1}`,
		`{"item":"a","qty":1,"id":"x"}`, `[]`, `"item"`, `1`, `null`)

	schema := d.at(d.root, "paths", "/v1/orders", "post", "requestBody", "content", "application/json", "schema")
	for _, body := range bodies {
		var value any
		if err := json.Unmarshal([]byte(body), &value); err != nil {
			t.Fatal(err)
		}
		got := postOrder(New(new(MemStore)), "k", body)
		faults := d.check(schema, value)
		if accepted := got.status == http.StatusCreated; accepted != (faults == nil) {
			t.Errorf("%.80s: the answer is %d, the document says %q", body, got.status, faults)
		}
	}
}

// The pattern is lenient with spaces beyond U+00FF: literal ones, \u and \p{Z} each
// break a tool in use. From U+3001 on there are neither spaces nor control
// characters, and this test is content with every 97th character.
func TestOpenAPIRefusesNoItemThatTheServiceAccepts(t *testing.T) {
	pattern := regexp.MustCompile(decodeAPI(t, openAPI).schema("Item")["pattern"].(string))
	var body []byte
	for r := range rune(utf8.MaxRune + 1) {
		switch {
		case !utf8.ValidRune(r) || ijson.IsNoncharacter(r):
			continue // these cannot be sent
		case r > '\u3000' && (unicode.IsSpace(r) || unicode.IsControl(r)):
			t.Fatalf("%q is a space or a control character", r)
		case r > '\u3000' && r%97 != 0:
			continue
		}
		for _, item := range []string{string(r), "a" + string(r)} {
			body = append(ijson.AppendString(append(body[:0], `{"qty":1,"item":`...), item), '}')
			_, _, faults := decodeOrder(body)
			lenient := r > 0xFF && unicode.IsSpace(r)
			if accepted := faults == nil; accepted != pattern.MatchString(item) && !lenient {
				t.Errorf("%q: accepted: %t, matched: %t", item, accepted, !accepted)
			}
		}
	}
}

// Tools send patterns in header fields, and not every dialect knows the same escapes.
func TestOpenAPIPatternsAreInASCIIWithFewEscapes(t *testing.T) {
	allowed := regexp.MustCompile(`^([ -\[\]-~]|\\([\\"\[\]?^-]|x[0-9A-F]{2}))*$`)
	n := 0
	eachSchema(decodeAPI(t, openAPI).root, "#", func(at string, schema map[string]any) {
		if pattern, ok := schema["pattern"].(string); ok {
			n++
			if !allowed.MatchString(pattern) {
				t.Errorf("%s: the pattern is %+q", at, pattern)
			}
		}
	})
	if n == 0 {
		t.Error("there are none")
	}
}

func TestOpenAPIIsServedAsItIsWithDefaultOptions(t *testing.T) {
	want, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := get(New(new(MemStore)), "/openapi.json").body; got != string(want) {
		t.Errorf("openapi.json (-) and what is served (+):\n%s", cmp.Diff(string(want), got))
	}
}

func TestOpenAPIIsServedWithTheLimitsOfOptions(t *testing.T) {
	opts := &Options{PageSize: 7, MaxPageSize: 20}
	var got []string
	var compare func(file, served any, at string)
	compare = func(file, served any, at string) {
		switch file := file.(type) {
		case map[string]any:
			other, _ := served.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(file)) {
				compare(file[name], other[name], at+"/"+name)
			}
		case []any:
			other, _ := served.([]any)
			for i := range min(len(file), len(other)) {
				compare(file[i], other[i], at+"/"+strconv.Itoa(i))
			}
		default:
			if file != served {
				got = append(got, fmt.Sprintf("%s: %v", at, served))
			}
		}
	}
	compare(decodeAPI(t, openAPI).root, servedAPI(t, opts).root, "")
	want := []string{
		"/components/examples/InvalidWidgetsQuery/value/errors/0/detail: limit is required: a whole number from 1 to 20.",
		"/components/examples/InvalidWidgetsQuery/value/errors/0/maximum: 20",
		"/components/parameters/UsersLimit/schema/default: 7",
		"/components/parameters/UsersLimit/schema/maximum: 20",
		"/components/parameters/WidgetsLimit/schema/maximum: 20",
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what options change, wanted (-) and served (+):\n%s", diff)
	}
}
