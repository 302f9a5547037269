package commits

import (
	"path/filepath"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver"

	"example.com/storefront/integration/internal/testdb"
)

// The driver has the name of github.com/mattn/go-sqlite3, so that no program has both.
func TestStoreOnNcruces(t *testing.T) {
	url := "file:" + filepath.Join(t.TempDir(), "shop.db") +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(100)"
	testdb.RunSuite(t, testdb.OpenBy(t, "sqlite", url, "sqlite3"), nil)
}
