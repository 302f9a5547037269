package vitess

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
	"example.com/storefront/integration/vitess/internal/stock"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// withAccept returns stores, one for each vtgate, with Accept in transactions of one shard.
func (k keyspace) withAccept(t *testing.T, accept testdb.Accept) (stores []storefront.Store) {
	t.Helper()
	for _, g := range k.Gates {
		d := testdb.Open(t, "mysql", g.DSN()+single)
		stores = append(stores, d.OpenWith(t, &sqlstore.Options{Accept: accept}))
	}
	return stores
}

const places = 16

// fillStock makes the tables of package stock, with so many pieces of an item at each place.
func fillStock(t *testing.T, c *cluster.Cluster, d *testdb.DB, item string, pieces int) {
	t.Helper()
	c.AddTables(t, map[string]string{"stock": placed, "outbox": placed})
	d.Exec(t, "DROP TABLE IF EXISTS stock", "DROP TABLE IF EXISTS outbox")
	d.Exec(t, stock.Tables...)
	for place := range places {
		d.Exec(t, fmt.Sprintf("INSERT INTO stock (place, item, pieces) VALUES (x'%X0', '%s', %d)",
			place, item, pieces))
	}
}

// leftInStock returns how many pieces are left at all places.
func leftInStock(t *testing.T, pool *sql.DB) int {
	t.Helper()
	if short := testdb.Column(t, pool, "SELECT pieces FROM stock WHERE pieces < 0"); len(short) > 0 {
		t.Errorf("there are %s pieces left", short)
	}
	return sum(t, pool, "SELECT SUM(pieces) FROM stock")
}

func sum(t *testing.T, pool *sql.DB, query string) (n int) {
	t.Helper()
	must.OK(t, pool.QueryRow(query).Scan(&n))
	return n
}

// checkOutbox expects that there are these orders, and an event of each.
func checkOutbox(t *testing.T, pool *sql.DB, orders []string) {
	t.Helper()
	slices.Sort(orders)
	for what, query := range map[string]string{
		"orders": "SELECT id FROM storefront_orders",
		"events": "SELECT order_id FROM outbox",
	} {
		got := testdb.Column(t, pool, query)
		slices.Sort(got)
		if diff := cmp.Diff(orders, got); diff != "" {
			t.Errorf("%s of those that buyers know of (-want +got):\n%s", what, diff)
		}
	}
}

// TestAcceptStaysInItsShard has Accept write to another shard than that of the order: neither is there.
func TestAcceptStaysInItsShard(t *testing.T) {
	accept := func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, o storefront.Order) error {
		place := sqlstore.Place(key)
		place[0] ^= 0x80
		_, err := tx.ExecContext(ctx, "INSERT INTO elsewhere (place, order_id) VALUES (?, ?)", place[:], o.ID)
		return err
	}
	k := shared(t, 2)
	k.AddTables(t, map[string]string{"elsewhere": placed})
	k.Exec(t, "CREATE TABLE IF NOT EXISTS elsewhere (place BINARY(8) NOT NULL, "+
		"order_id VARCHAR(255) NOT NULL, PRIMARY KEY (place, order_id))")
	for i, store := range k.withAccept(t, accept) {
		for n := range 4 {
			if o, err := testdb.Create(t.Context(), store, fmt.Sprint("key ", i, n), "kettle"); err == nil {
				t.Errorf("with Accept in two shards, the order %v was created", o)
			}
		}
	}
	written := testdb.Column(t, k.Pool, "SELECT order_id FROM elsewhere")
	if stored := testdb.StoredOrders(t, k.Pool); len(stored)+len(written) > 0 {
		t.Errorf("there are the orders %v, and what Accept has written: %q", stored, written)
	}
}
