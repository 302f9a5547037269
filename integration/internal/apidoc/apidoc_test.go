package apidoc

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

func TestResponsesThatBreakTheDocumentAreFound(t *testing.T) {
	doc, err := Served()
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
Link: <users?limit=1&after=AXV1MlFdzvE>; rel="next"
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
		{"a header is not of its pattern", page, `Etag: "`, `Etag: x"`, "ETag"},
		{"a header is not of its pattern with 304", notModified, `Etag: "`, `Etag: x"`, "ETag"},
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
			err = doc.Check(method, path, status, header, []byte(body))
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
	h := Validated(reported, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
