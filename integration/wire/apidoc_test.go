package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"example.com/storefront/internal/must"
)

// A document is openapi.json as a third party reads it: kin-openapi. Method check sees to all that it does
// not look at: HEAD, 304, text behind the JSON, and members that are not documented.
type document struct{ *openapi3.T }

var known = make(map[string]document) // the documents that were served, by their text

// servedBy returns the document that a service serves. It is valid, and so are the examples in it.
func servedBy(t *testing.T, h http.Handler) document {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	text := w.Body.String()
	if _, ok := known[text]; !ok {
		doc := must.Get(openapi3.NewLoader().LoadFromData([]byte(text)))(t)
		must.OK(t, doc.Validate(context.Background()))
		known[text] = document{doc}
	}
	return known[text]
}

// check returns in what way a response is not as documented for the request.
func (d document) check(
	operation *openapi3.Operation, method string, status int, header http.Header, body []byte,
) error {
	documented := operation.Responses.Status(status)
	if documented == nil {
		return fmt.Errorf("the status %d is not documented for %s", status, operation.OperationID)
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

// operation returns the operation whose responses document what is answered to a request, or nil, and its
// path.
func (d document) operation(r *http.Request) (operation *openapi3.Operation, template string) {
	for template, item := range d.Paths.Map() {
		if matched, _ := path.Match(parameter.ReplaceAllString(template, "*"), r.URL.EscapedPath()); matched {
			return item.Operations()[r.Method], template
		}
	}
	return nil, ""
}

var parameter = regexp.MustCompile(`{\w+}`)
