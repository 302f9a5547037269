package wire

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/storefront/internal/exchanges"
	"example.com/storefront/internal/must"
)

// TestContract holds the recorded exchanges to openapi.json. That they are as recorded is for the module storefront,
// and that each store answers as MemStore does for storetest.
func TestContract(t *testing.T) {
	for _, file := range must.Get(exchanges.Files("../../testdata/contract"))(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wrap := func(h http.Handler) http.Handler { return validated(t, h) }
				if err := exchanges.Check(file, wrap); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
