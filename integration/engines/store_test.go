package engines

import (
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
)

func TestStore(t *testing.T) {
	test := func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		// With Accept, each order has a transaction of its own. Without, those that
		// arrive together share one.
		t.Run("without Accept", func(t *testing.T) { testdb.RunSuite(t, d, nil) })
		t.Run("with Accept", func(t *testing.T) { testdb.RunRefusingSuite(t, d) })
	}
	testdb.OnSQLEngines(t, test)
	t.Run("PostgreSQL 18", func(t *testing.T) { test(t, testdb.New(t, "pgx", dbserver.Postgres18.Database(t))) })
}
