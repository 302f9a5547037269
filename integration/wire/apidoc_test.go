package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"example.com/storefront/internal/must"
)

// A document is openapi.json as a third party reads it: kin-openapi. Method check sees to all that it does not
// look at: HEAD, 304, text behind the JSON, and headers and members that are not documented.
type document struct{ *openapi3.T }

// servedBy returns the document that a service serves. It is valid, and so are the examples in it.
func servedBy(h http.Handler) (document, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	if doc, ok := known.Load(w.Body.String()); ok {
		return doc.(document), nil
	}
	doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	if err == nil {
		err = doc.Validate(context.Background())
	}
	if err == nil {
		known.Store(w.Body.String(), document{doc})
	}
	return document{doc}, err
}

var known sync.Map // the documents that were served, by their text

// validated returns a handler that does as h does and reports to t every response
// that breaks the openapi.json that h serves. Requests may be anything.
func validated(t testing.TB, h http.Handler) http.Handler {
	t.Helper()
	doc := must.Get(servedBy(h))(t)
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
	c.status, c.header = status, c.Header().Clone()
	c.ResponseWriter.WriteHeader(status)
}

func (c *responseCopy) Write(b []byte) (int, error) {
	c.body.Write(b)
	return c.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (c *responseCopy) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// check returns in what way a response is not as documented for the request.
func (d document) check(method, path string, status int, header http.Header, body []byte) error {
	operation := d.operation(method, path)
	if operation == nil {
		return nil // the problem that this is answered with is not in the document
	}
	documented := operation.Responses.Status(status)
	if documented == nil {
		return fmt.Errorf("the status %d is not documented for %s", status, operation.OperationID)
	}
	for name := range header {
		if name != "Content-Type" && !hasHeader(documented.Value, name) {
			return fmt.Errorf("%d: the header %s is not documented for %s",
				status, name, operation.OperationID)
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
				openapi3.WithStringFormatValidator("date-time", openapi3.NewCallbackValidator(
					func(text string) error {
						_, err := time.Parse(time.RFC3339, text) // its own takes February 30th
						return err
					})),
			},
		},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), input.SetBodyBytes(body)); err != nil {
		return fmt.Errorf("%d: %w", status, err)
	}
	for _, content := range documented.Value.Content {
		var value any
		if hasBody && json.Unmarshal(body, &value) == nil {
			if names := undocumented(content.Schema.Value, value, ""); names != nil {
				return fmt.Errorf("%d: the members %q are not documented for %s", status, names, operation.OperationID)
			}
		}
	}
	return nil
}

// undocumented returns the members of a value, which is at a place in a body, that its
// schema does not have.
func undocumented(schema *openapi3.Schema, value any, at string) (names []string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			names = append(names, undocumented(schema.Items.Value, item, at)...)
		}
	case map[string]any:
		open := schema.AdditionalProperties.Has != nil || schema.AdditionalProperties.Schema != nil
		for name, member := range value {
			if property := schema.Properties[name]; property != nil {
				names = append(names, undocumented(property.Value, member, at+"/"+name)...)
			} else if len(schema.Properties) > 0 && !open {
				names = append(names, at+"/"+name)
			}
		}
	}
	return names
}

func hasHeader(r *openapi3.Response, canonical string) bool {
	for name := range r.Headers {
		if http.CanonicalHeaderKey(name) == canonical {
			return true
		}
	}
	return false
}

// operation returns the operation whose responses document what is answered to a request, or nil.
func (d document) operation(method, path string) *openapi3.Operation {
	for template, item := range d.Paths.Map() {
		if matches(template, path) {
			return item.Operations()[method]
		}
	}
	return nil
}

var parameter = regexp.MustCompile(`{\w+}`)

// matches reports whether an escaped path is one of the template's.
func matches(template, escaped string) bool {
	ok, _ := path.Match(parameter.ReplaceAllString(template, "?*"), escaped)
	return ok
}
