package engines

import (
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
	"example.com/storefront/storetest"
)

func TestStore(t *testing.T) {
	test := func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		d.Exec(t, "CREATE TABLE sold_out (item VARCHAR(255) NOT NULL PRIMARY KEY)")
		// With Accept, each order has a transaction of its own. Without, those that
		// arrive together share one.
		t.Run("without Accept", func(t *testing.T) { testdb.RunSuite(t, d) })
		t.Run("with Accept", func(t *testing.T) {
			opts := &sqlstore.Options{Accept: testdb.UnlessSoldOut(d)}
			storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
				return &testdb.RefusingStore{SuiteStore: testdb.NewSuiteStore(t, d, opts, contents)}
			})
		})
	}
	testdb.OnSQLEngines(t, test)
	t.Run("PostgreSQL 18", func(t *testing.T) { test(t, testdb.New(t, "pgx", dbserver.Postgres18.Database(t))) })
}
