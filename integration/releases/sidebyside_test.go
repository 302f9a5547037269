package releases

import (
	"crypto/rand"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
)

// TestReleasesSideBySide has a later release, which adds to the tables, come beside replicas of this one and
// be taken back: those that run go on, and others start.
func TestReleasesSideBySide(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		running := d.OpenWith(t, nil)
		before := must.Get(testdb.Create(t.Context(), running, "before", "kettle"))(t)
		must.Get(running.ListUsers(t.Context(), "", 1))(t)
		for _, table := range []string{"users", "products", "widgets", "orders", "schema"} {
			d.Exec(t, "ALTER TABLE storefront_"+table+" ADD COLUMN added BIGINT DEFAULT 7")
		}
		d.Exec(t, "UPDATE storefront_schema SET version = 2")
		for _, store := range []storefront.Store{running, d.OpenWith(t, nil)} {
			again, err := testdb.Create(t.Context(), store, "before", "kettle")
			if _, new := testdb.Create(t.Context(), store, rand.Text(), "kettle"); err != nil || new != nil || !again.Equal(before) {
				t.Errorf("the replay is %v, %v, want %v; a new order: %v", again, err, before, new)
			}
		}
		must.OK(t, d.Use(t))
		d.ExpectVersion(t, "2 1")
		for _, table := range []string{"users", "orders"} {
			if odd := testdb.Column(t, d.Pool, "SELECT id FROM storefront_"+table+" WHERE added IS NULL OR added <> 7"); len(odd) > 0 {
				t.Errorf("of %s, these are without the column of the later release: %q", table, odd)
			}
		}
	})
}
