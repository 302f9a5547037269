package storefront_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/internal/exchanges"
	"example.com/storefront/internal/must"
)

// The files are described in testdata/contract/README.md.
func TestContract(t *testing.T) {
	for _, file := range must.Get(exchanges.Files("testdata/contract"))(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := exchanges.Check(file, nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Tests of the service see that no problem is sent that the document does not have.
func TestContractHasEveryProblemOfTheDocument(t *testing.T) {
	problem := regexp.MustCompile(`"type": "(urn:problem-type:[^"]+)",\s+"title": "([^"]+)",\s+"status": (\d+)`)
	name := strings.NewReplacer(" ", "", "-", "")
	recorded := make(map[string]string)
	for _, file := range must.Get(exchanges.Files("testdata/contract"))(t) {
		for _, m := range problem.FindAllStringSubmatch(string(must.Get(os.ReadFile(file))(t)), -1) {
			recorded[m[1]] = m[3] + " " + strings.ToLower(name.Replace(m[2]))
		}
	}
	var document struct {
		Components struct {
			Schemas struct {
				KnownProblemType struct {
					Types        []string `json:"enum"`
					Names        []string `json:"x-enum-varnames"`
					Descriptions []string `json:"x-enum-descriptions"`
				}
			}
		}
	}
	w, store := httptest.NewRecorder(), new(storefront.MemStore)
	storefront.NewWithOptions(store, &storefront.Options{
		Orders: store, Scope: func(*http.Request) string { return "" },
	}).ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	must.OK(t, json.Unmarshal(w.Body.Bytes(), &document))
	documented, known := make(map[string]string), document.Components.Schemas.KnownProblemType
	for i, typ := range known.Types {
		status, _, _ := strings.Cut(known.Descriptions[i], ": ")
		documented[typ] = status + " " + strings.ToLower(known.Names[i])
	}
	if diff := cmp.Diff(recorded, documented); diff != "" {
		t.Errorf("problems that are recorded (-) and documented (+):\n%s", diff)
	}
}
