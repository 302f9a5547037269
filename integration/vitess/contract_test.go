package vitess

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/storefront/internal/exchanges"
	"example.com/storefront/internal/must"
)

// TestContract replays the recorded exchanges, as that of the module storefront does with MemStore.
func TestContract(t *testing.T) {
	files := must.Get(exchanges.Files("../../testdata/contract"))(t)
	onShards(t, func(t *testing.T, k keyspace) {
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
				k.Clear(t)
				synctest.Test(t, func(t *testing.T) { // where the clock stands still while the database works
					unchanged := func(h http.Handler) http.Handler { return h }
					if err := exchanges.Check(file, k.Open(t), unchanged); err != nil {
						t.Error(err)
					}
				})
			})
		}
	})
}
