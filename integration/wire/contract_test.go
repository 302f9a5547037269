package wire

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/storefront/integration/internal/apidoc"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/exchanges"
	"example.com/storefront/internal/must"
)

// TestContract of the module storefront replays the same files with MemStore.
func TestContract(t *testing.T) {
	files := must.Get(exchanges.Files("../../testdata/contract"))(t)
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
				d.Clear(t)
				// The connections are made in the bubble. To read from a network or a
				// file is not to be durably blocked, so the clock stands still while
				// the database works.
				synctest.Test(t, func(t *testing.T) {
					wrap := func(h http.Handler) http.Handler { return apidoc.Validated(t, h) }
					if err := exchanges.Check(file, d.Open(t), wrap); err != nil {
						t.Error(err)
					}
				})
			})
		}
	})
}
