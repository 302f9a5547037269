package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/internal/exchanges"
	"example.com/storefront/internal/must"
)

// examples are what is answered, or what a document says: statuses of operations, with their headers and
// problem types. A documented response names its problem types by an example of each. Content-Type is no
// header here: OpenAPI says it with the content.
type examples map[string]bool

func (e examples) add(operation, header, problem string) {
	for _, of := range []string{header, problem} {
		if of != "" && of != "Content-Type" {
			e[operation+" "+of] = true
		}
	}
	e[operation] = true
}

// TestContract holds the recorded exchanges to openapi.json, which documents nothing that they do not have.
// That they are as recorded is for the module storefront, and that each store answers as MemStore does for
// storetest.
func TestContract(t *testing.T) {
	answered, documented := make(examples), make(examples)
	for _, file := range must.Get(exchanges.Files("../../testdata/contract"))(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wrap := func(h http.Handler) http.Handler { return validated(t, h, answered) }
				if err := exchanges.Check(file, wrap); err != nil {
					t.Error(err)
				}
			})
		})
	}
	store := new(storefront.MemStore)
	all := storefront.Options{OrderFields: true, Orders: store, Scope: func(*http.Request) string { return "" }}
	for path, item := range servedBy(t, storefront.NewWithOptions(store, &all)).Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				name := method + " " + path + " " + status
				documented.add(name, "", "")
				for header := range response.Value.Headers {
					documented.add(name, http.CanonicalHeaderKey(header), "")
				}
				if problem := response.Value.Content["application/problem+json"]; problem != nil {
					for _, example := range problem.Examples {
						documented.add(name, "", example.Value.Value.(map[string]any)["type"].(string))
					}
				}
			}
		}
	}
	if diff := cmp.Diff(documented, answered); diff != "" {
		t.Errorf("documented (-) and answered (+):\n%s", diff)
	}
}

// validated returns a handler that does as h does, and sends each GET once more, as a HEAD. It reports every
// response that breaks the openapi.json that h serves, and adds it to what is answered. Requests may be
// anything.
func validated(t *testing.T, h http.Handler, answered examples) http.Handler {
	t.Helper()
	doc := servedBy(t, h)
	check := func(w *httptest.ResponseRecorder, r *http.Request) {
		h.ServeHTTP(w, r)
		operation, path := doc.operation(r)
		if operation == nil {
			return // the problem that this is answered with is not in the document
		}
		header := w.Result().Header
		if err := doc.check(operation, r.Method, w.Code, header, w.Body.Bytes()); err != nil {
			t.Errorf("the response to %s %s breaks openapi.json: %v", r.Method, r.URL, err)
		}
		var problem storefront.Problem
		if w.Code >= 400 && r.Method != http.MethodHead {
			must.OK(t, json.Unmarshal(w.Body.Bytes(), &problem))
		}
		for name := range header {
			answered.add(fmt.Sprint(r.Method, " ", path, " ", w.Code), name, problem.Type)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check(w.(*httptest.ResponseRecorder), r)
		if r.Method == http.MethodGet {
			head := r.Clone(r.Context())
			head.Method = http.MethodHead
			check(httptest.NewRecorder(), head)
		}
	})
}
