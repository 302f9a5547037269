package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"example.com/storefront"
)

// An apiDocument is openapi.json as a third party reads it: kin-openapi.
//
// The other candidate was libopenapi-validator. Both were given responses like those
// in TestResponsesThatBreakTheDocumentAreFound, and both leave the JSON Schema
// 2020-12 of OpenAPI 3.1 to the same library, which finds what is wrong in a body.
// But libopenapi-validator (v0.13.8; later ones depend on forks that could
// not be had from the module proxy) takes the quotes off a header's value, so that
// no ETag is of its pattern and every correct read is refused, and it lets an empty
// body pass. kin-openapi (v0.152.0) refuses nothing that is correct. What it does
// not look at is seen to here: HEAD, 304, what follows the JSON, and headers that
// are not documented.
type apiDocument struct{ *openapi3.T }

// servedDocument returns the document that the service serves by default.
var servedDocument = sync.OnceValues(func() (apiDocument, error) { return documentOf(nil) })

// documentOf returns the document that the service serves with these options. It is
// valid, and so are the examples in it.
func documentOf(opts *storefront.Options) (apiDocument, error) {
	w := httptest.NewRecorder()
	storefront.NewWithOptions(new(storefront.MemStore), opts).ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	if err == nil {
		err = doc.Validate(context.Background())
	}
	return apiDocument{doc}, err
}

// validated returns a handler that does as h does and reports to t every response
// that breaks openapi.json. Requests may be anything.
func validated(t testing.TB, h http.Handler) http.Handler {
	t.Helper()
	doc, err := servedDocument()
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method, path := r.Method, r.URL.EscapedPath()
		copied := &responseCopy{ResponseWriter: w}
		h.ServeHTTP(copied, r)
		if err := doc.check(method, path, copied.status, copied.header, copied.body.Bytes()); err != nil {
			t.Errorf("the response to %s %s breaks openapi.json: %v", method, path, err)
		}
	})
}

// A responseCopy keeps a copy of what is written through it.
type responseCopy struct {
	http.ResponseWriter
	status int
	header http.Header
	body   bytes.Buffer
}

func (c *responseCopy) WriteHeader(status int) {
	if c.header == nil {
		c.status, c.header = status, c.Header().Clone()
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *responseCopy) Write(b []byte) (int, error) {
	if c.header == nil {
		c.WriteHeader(http.StatusOK)
	}
	c.body.Write(b)
	return c.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (c *responseCopy) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// check returns in what way a response is not as documented for the request.
func (d apiDocument) check(method, path string, status int, header http.Header, body []byte) error {
	operation := d.operation(method, path)
	documented := operation.Responses.Status(status)
	if documented == nil {
		return fmt.Errorf("the status %d is not documented for %s", status, operation.OperationID)
	}
	for name := range header {
		if name != "Content-Type" && !hasHeader(documented.Value, name) {
			return fmt.Errorf("%d: the header %s is not documented for %s", status, name, operation.OperationID)
		}
	}
	hasBody := len(documented.Value.Content) > 0 && method != http.MethodHead
	switch {
	case !hasBody && len(body) > 0:
		return fmt.Errorf("%d: there is a body: %q", status, body)
	case hasBody && !json.Valid(body):
		return fmt.Errorf("%d: the body is not JSON: %q", status, body)
	}

	// ValidateResponse passes all responses to HEAD and all with the status 304.
	// So it is told that this is the only response to a GET.
	const only = http.StatusOK
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: httptest.NewRequest("GET", "/", nil),
			Route: &routers.Route{Spec: d.T, Operation: &openapi3.Operation{
				Responses: openapi3.NewResponses(openapi3.WithStatus(only, documented)),
			}},
		},
		Status: only,
		Header: header,
		Options: &openapi3filter.Options{
			ExcludeResponseBody: !hasBody,
			SchemaValidationOptions: []openapi3.SchemaValidationOption{
				openapi3.WithStringFormatValidator("date-time", openapi3.NewCallbackValidator(func(text string) error {
					_, err := time.Parse(time.RFC3339, text) // its own takes February 30th
					return err
				})),
			},
		},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), input.SetBodyBytes(body)); err != nil {
		return fmt.Errorf("%d: %w", status, err)
	}
	return nil
}

func hasHeader(r *openapi3.Response, canonical string) bool {
	for name := range r.Headers {
		if http.CanonicalHeaderKey(name) == canonical {
			return true
		}
	}
	return false
}

// operation returns the operation whose responses document what is answered to a
// request. For a request that matches none, it is one with the responses that the
// description of the document has for that.
func (d apiDocument) operation(method, path string) *openapi3.Operation {
	for template, item := range d.Paths.Map() {
		if !matches(template, path) {
			continue
		}
		if operation := item.Operations()[method]; operation != nil {
			return operation
		}
		return &openapi3.Operation{OperationID: "a method that the path does not support", Responses: openapi3.NewResponses(
			openapi3.WithStatus(http.StatusMethodNotAllowed, d.problem("Allow")),
			openapi3.WithStatus(http.StatusNotImplemented, d.problem()),
		)}
	}
	return &openapi3.Operation{OperationID: "a path that is not in the document", Responses: openapi3.NewResponses(
		openapi3.WithStatus(http.StatusNotFound, d.problem()),
		openapi3.WithStatus(http.StatusNotImplemented, d.problem()),
	)}
}

// problem returns the response that is a problem with these headers beside those of
// every problem.
func (d apiDocument) problem(headers ...string) *openapi3.ResponseRef {
	response := openapi3.NewResponse().WithContent(
		openapi3.NewContentWithSchemaRef(d.Components.Schemas["Problem"], []string{"application/problem+json"}))
	response.Headers = openapi3.Headers{
		"Cache-Control":          d.Components.Headers["NoStore"],
		"Content-Length":         d.Components.Headers["ContentLength"],
		"X-Content-Type-Options": d.Components.Headers["ContentTypeOptions"],
	}
	for _, name := range headers {
		response.Headers[name] = d.Components.Headers[name]
	}
	return &openapi3.ResponseRef{Value: response}
}

// matches reports whether an escaped path is one of the template's.
func matches(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, got, func(want, got string) bool {
		if strings.HasPrefix(want, "{") {
			return got != ""
		}
		return want == got
	})
}

func TestResponsesThatBreakTheDocumentAreFound(t *testing.T) {
	doc, err := servedDocument()
	if err != nil {
		t.Fatal(err)
	}
	const (
		page = `GET /v1/users
200
Cache-Control: private, max-age=60
Content-Length: 67
Content-Type: application/json
Etag: "1GWBYoV3EmZg9_S2JOIEeA"
Link: <?limit=1&after=AXV1MlFdzvE>; rel="next"
X-Content-Type-Options: nosniff

{"data":[{"id":"u1","name":"Ada"}],"has_more":true,"next":"AXV1MlFdzvE"}`
		order = `POST /v1/orders
201
Cache-Control: no-store
Content-Length: 100
Content-Type: application/json
Idempotent-Replayed: true
X-Content-Type-Options: nosniff

{"id":"ord_7Q3DKXW2MZB5NVTCYA4RLHJ6UE","item":"teapot","qty":2,"created_at":"2026-01-02T15:04:05.678Z"}`
		problem = `GET /v1/users
400
Cache-Control: no-store
Content-Length: 257
Content-Type: application/problem+json
X-Content-Type-Options: nosniff

{"type":"urn:problem-type:storefront:invalid-query","title":"Invalid query","status":400,"detail":"d","errors":[{"detail":"e","parameter":"limit","minimum":1}]}`
		unavailable = `POST /v1/orders
503
Cache-Control: no-store
Content-Length: 257
Content-Type: application/problem+json
Retry-After: 1
X-Content-Type-Options: nosniff

{"type":"urn:problem-type:storefront:unavailable","title":"t","status":503,"detail":"d","instance":"urn:storefront:incident:AAAAAAAAAAAAAAAAAAAAAAAAA2"}`
		notModified = `GET /v1/products/tea%2Fgreen
304
Age: 7
Cache-Control: private, max-age=60
Cache-Status: storefront; hit; ttl=52
Date: Fri, 20 Nov 2026 20:52:12 GMT
Etag: "1GWBYoV3EmZg9_S2JOIEeA"
Vary: Authorization, Cookie

`
		product = `GET /v1/products/tea%2Fgreen
200
Age: 7
Cache-Control: private, max-age=60
Cache-Status: storefront; hit; ttl=52
Content-Length: 18
Content-Type: application/json
Date: Fri, 20 Nov 2026 20:52:12 GMT
Etag: "1GWBYoV3EmZg9_S2JOIEeA"
X-Content-Type-Options: nosniff

{"id":"tea/green"}`
		head = `HEAD /v2/widgets
200
Cache-Control: private, max-age=60
Content-Length: 67
Content-Type: application/json
Etag: "1GWBYoV3EmZg9_S2JOIEeA"
X-Content-Type-Options: nosniff

`
		options = `OPTIONS /v1/orders
204
Allow: POST, OPTIONS

`
		elsewhere = `GET /v1/users/
404
Cache-Control: no-store
Content-Length: 257
Content-Type: application/problem+json
X-Content-Type-Options: nosniff

{"type":"urn:problem-type:storefront:not-found","title":"Not found","status":404,"detail":"d"}`
		method = `PUT /v1/orders
405
Allow: POST, OPTIONS
Cache-Control: no-store
Content-Length: 257
Content-Type: application/problem+json
X-Content-Type-Options: nosniff

{"type":"urn:problem-type:storefront:method-not-allowed","title":"t","status":405,"detail":"d"}`
	)
	for _, c := range []struct{ name, response, old, new, want string }{
		{"a page", page, "", "", ""},
		{"an order", order, "", "", ""},
		{"an order with an added member", order, `{"id"`, `{"note":null,"id"`, ""},
		{"a problem", problem, "", "", ""},
		{"a problem with a type of a later version", problem, "invalid-query", "too-early", ""},
		{"a fault that names no place", problem, `"parameter":"limit",`, "", ""},
		{"a problem for HEAD", strings.Replace(problem, "GET", "HEAD", 1), problem[strings.Index(problem, "{"):], "", ""},
		{"unavailable", unavailable, "", "", ""},
		{"a product", product, "", "", ""},
		{"not modified", notModified, "", "", ""},
		{"the headers of a page", head, "", "", ""},
		{"the methods of a path", options, "", "", ""},
		{"a path that is not in the document", elsewhere, "", "", ""},
		{"a method that the path does not support", method, "", "", ""},

		{"a string for an integer", order, `"qty":2`, `"qty":"2"`, "qty"},
		{"a fraction for an integer", order, `"qty":2`, `"qty":2.5`, "qty"},
		{"below the minimum", order, `"qty":2`, `"qty":0`, "qty"},
		{"above the maximum", order, `"qty":2`, `"qty":9007199254740992`, "qty"},
		{"a member is missing", order, `"item":"teapot",`, "", "item"},
		{"a string is too long", order, "teapot", strings.Repeat("x", 256), "item"},
		{"a string is not of the pattern", order, "teapot", " ", "item"},
		{"a date is in another format", order, "2026-01-02T", "2026-01-02 ", "created_at"},
		{"a date is none", order, "2026-01-02T", "2026-02-30T", "created_at"},
		{"a date has two digits of the second's fraction", order, ".678Z", ".67Z", "created_at"},
		{"null for an array", page, `[{"id":"u1","name":"Ada"}]`, "null", "data"},
		{"null for a string", page, `"next":"AXV1MlFdzvE"`, `"next":null`, "next"},
		{"a string for an object in an array", page, `{"id":"u1","name":"Ada"}`, `"u1"`, "data/0"},
		{"a member is missing in an array", page, `"id":"u1",`, "", "data/0"},
		{"beside a $ref with siblings", page, `"next":"AXV1MlFdzvE"`, `"next":"a=b"`, "next"},
		{"a problem type of another form", problem, "urn:problem-type:storefront:invalid-query", "about:blank", "type"},
		{"too few items", problem, `[{"detail":"e","parameter":"limit","minimum":1}]`, "[]", "errors"},
		{"an instance of another pattern", unavailable, "AAA2", "AAA1", "instance"},

		{"an undocumented status", page, "\n200\n", "\n206\n", "status 206"},
		{"an undocumented status of an error", problem, "\n400\n", "\n409\n", "status 409"},
		{"an undocumented status for HEAD", head, "\n200\n", "\n404\n", "status 404"},
		{"an undocumented 304", order, "\n201\n", "\n304\n", "status 304"},
		{"a success at a path that is not in the document", page, "/v1/users", "/v3/users", "status 200"},
		{"a method that is not supported succeeds", order, "POST", "PUT", "status 201"},

		{"a required header is missing", page, "Etag: \"1GWBYoV3EmZg9_S2JOIEeA\"\n", "", "ETag"},
		{"a required header is missing for HEAD", head, "Cache-Control: private, max-age=60\n", "", "Cache-Control"},
		{"a required header is missing with 304", notModified, "Cache-Control: private, max-age=60\n", "", "Cache-Control"},
		{"a required header is missing with 204", options, "Allow: POST, OPTIONS\n", "", "Allow"},
		{"a required header is missing with 405", method, "Allow: POST, OPTIONS\n", "", "Allow"},
		{"a required header is missing with 503", unavailable, "Retry-After: 1\n", "", "Retry-After"},
		{"a header is not of its pattern", page, `Etag: "`, `Etag: W/"`, "ETag"},
		{"a header is not of its pattern with 304", notModified, `Etag: "`, `Etag: W/"`, "ETag"},
		{"an optional header is not of its pattern", product, "ttl=52", "ttl=x", "Cache-Status"},
		{"a header is not the constant", order, "no-store", "no-cache", "Cache-Control"},
		{"an optional header is not the constant", order, "Idempotent-Replayed: true", "Idempotent-Replayed: yes", "Idempotent-Replayed"},
		{"a header is not one of the enumeration", options, "POST, OPTIONS", "POST", "Allow"},
		{"a header is not an integer", unavailable, "Retry-After: 1", "Retry-After: soon", "Retry-After"},
		{"a header is below its minimum", product, "Age: 7", "Age: -1", "Age"},
		{"an undocumented header with 304", notModified, "\n304\n", "\n304\nContent-Length: 0\n", "Content-Length"},
		{"an undocumented header", page, "\n200\n", "\n200\nSet-Cookie: a=b\n", "Set-Cookie"},

		{"another content type", order, "application/json", "text/json", "Content-Type"},
		{"a problem as plain JSON", problem, "application/problem+json", "application/json", "Content-Type"},
		{"no content type", order, "Content-Type: application/json\n", "", "Content-Type"},
		{"text", order, order[strings.Index(order, "{"):], "created", "JSON"},
		{"JSON that breaks off", order, "Z\"}", "Z\"", "JSON"},
		{"something follows the JSON", order, "Z\"}", "Z\"}{}", "JSON"},
		{"no body", order, order[strings.Index(order, "{"):], "", "JSON"},
		{"a body with HEAD", head, "nosniff\n\n", "nosniff\n\n{}", "body"},
		{"a body with 304", notModified, "Cookie\n\n", "Cookie\n\n{}", "body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(c.response, c.old, c.new, 1)
			if c.want != "" && text == c.response {
				t.Fatalf("there is no %q to replace", c.old)
			}
			head, body, _ := strings.Cut(text, "\n\n")
			lines := strings.Split(head, "\n")
			method, path, _ := strings.Cut(lines[0], " ")
			status, err := strconv.Atoi(lines[1])
			if err != nil {
				t.Fatal(err)
			}
			header := make(http.Header)
			for _, line := range lines[2:] {
				name, value, _ := strings.Cut(line, ": ")
				header.Add(name, value)
			}
			err = doc.check(method, path, status, header, []byte(body))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("it was refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("the error is %v, want one that names %s", err, c.want)
			}
		})
	}
}

func TestValidatedReportsWhatItFinds(t *testing.T) {
	reported := &errorCounter{TB: t}
	h := validated(reported, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Write([]byte("teapot"))
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/products/teapot", nil))
	if reported.n != 1 {
		t.Errorf("it has reported %d errors, want 1", reported.n)
	}
	if w.Code != http.StatusOK || w.Body.String() != "teapot" || w.Header().Get("Content-Type") != "text/plain" {
		t.Errorf("the response has become %d %v %q", w.Code, w.Header(), w.Body)
	}
}

// An errorCounter is a test whose errors are only counted.
type errorCounter struct {
	testing.TB
	n int
}

func (c *errorCounter) Errorf(string, ...any) { c.n++ }

// checkRequest returns in what way a request is not as documented. It leaves the body
// to be read again.
func (d apiDocument) checkRequest(r *http.Request) error {
	input := &openapi3filter.RequestValidationInput{Request: r}
	for template, item := range d.Paths.Map() {
		if matches(template, r.URL.EscapedPath()) {
			input.Route = &routers.Route{Spec: d.T, Path: template, PathItem: item, Method: r.Method, Operation: item.Operations()[r.Method]}
			input.PathParams = map[string]string{"product_id": strings.TrimPrefix(r.URL.Path, "/v1/products/")}
		}
	}
	return openapi3filter.ValidateRequest(context.Background(), input)
}
