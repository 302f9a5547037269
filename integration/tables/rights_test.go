package tables

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// The rights of docs/databases.md are all that a program needs. It need not be told of other tables, nor may call
// functions.
func TestDocumentedRights(t *testing.T) {
	rights := []string{
		"GRANT SELECT, UPDATE ON storefront_schema TO clerk", "GRANT SELECT, INSERT, UPDATE ON storefront_orders TO clerk",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON storefront_users TO clerk",
		"GRANT SELECT ON storefront_products TO clerk", "GRANT SELECT ON storefront_widgets TO clerk",
	}
	testdb.OnSQLServers(t, func(t *testing.T, d *testdb.DB) {
		d.Pool.SetMaxOpenConns(1) // which keeps its role
		pool := d.Pool
		if d.Driver == "pgx" {
			d.Exec(t, "CREATE ROLE clerk")
			t.Cleanup(func() { d.Exec(t, "RESET ROLE", "DROP OWNED BY clerk", "DROP ROLE clerk") })
			d.Exec(t, append(rights, allEmit+"'REVOKE EXECUTE ON FUNCTION ' || oid::regprocedure || ' FROM PUBLIC'"+ofAll,
				"SET ROLE clerk")...)
		} else {
			d.Exec(t, "CREATE USER clerk@'%' IDENTIFIED BY 'secret'")
			t.Cleanup(func() { d.Exec(t, "DROP USER clerk@'%'") })
			for _, right := range append(rights, "GRANT SELECT, INSERT, UPDATE ON storefront_replays TO clerk") {
				d.Exec(t, right+"@'%'")
			}
			pool = dbserver.Open(t, "mysql", strings.Replace(d.URL, "root@", "clerk:secret@", 1))
		}
		store := sqlstore.New(pool, nil)
		_, order := testdb.Create(t.Context(), store, "key", "kettle")
		_, again := testdb.Create(t.Context(), store, "key", "kettle")
		_, keys := store.ForgetKeys(t.Context(), time.Now().Add(-25*time.Hour))
		must.OK(t, errors.Join(store.Migrate(t.Context()), order, again, keys, store.Check(t.Context()),
			store.Users.Put(t.Context(), storefront.MustResource("ada", nil)), store.Users.Delete(t.Context(), "ada")))
	})
}
