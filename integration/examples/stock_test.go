package examples

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/storefront"
	"example.com/storefront/client"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/examples/outbox"
)

// TestStock kills a replica of the command stock under orders, some of which are sent twice at once. Then each
// has taken its pieces and has its event, once. Of 60 orders at once for 10 pieces, 10 get one.
func TestStock(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		if d.Driver != "pgx" {
			long.Test(t)
		}
		f := faulttest.New(t)
		f.Orders = 200
		name, table, item := d.URL, outbox.PostgresTable, "VARCHAR(255)"
		switch d.Driver {
		case "sqlite":
			name, _, _ = strings.Cut(strings.TrimPrefix(d.URL, "file:"), "?")
			table = outbox.SQLiteTable
		case "mysql":
			user, rest, _ := strings.Cut(d.URL, "tcp(")
			addr, database, _ := strings.Cut(rest, ")")
			name, _, _ = strings.Cut("mysql://"+user+addr+database, "?")
			table, item = outbox.MySQLTable, "VARBINARY(1020)"
		}
		const pieces = 9 // the most that an order takes
		d.Exec(t, table, "CREATE TABLE stock (item "+item+" NOT NULL PRIMARY KEY, pieces BIGINT NOT NULL)")
		for n := range f.Orders {
			d.Exec(t, fmt.Sprintf("INSERT INTO stock VALUES ('key-%d', %d)", 1+n, pieces))
		}
		f.Use(faulttest.StartReplicas(t, process.Stock, 3, name)...)
		f.Run(f.KillReplica)

		sellers := f.URLs
		f.Use(faulttest.StartReplicas(t, process.Storefrontd, 1, name)...) // which ends at a signal with status 0
		f.Check(func() *sql.DB { return d.Pool })
		var stored, events []string
		for _, order := range testdb.StoredOrders(t, d.Pool) {
			stored = append(stored, order.ID)
		}
		for _, event := range testdb.Column(t, d.Pool, "SELECT event FROM outbox") {
			var order storefront.Order
			must.OK(t, json.Unmarshal([]byte(event), &order))
			events = append(events, order.ID)
		}
		expectOrders(t, "orders and their events", stored, events)
		if wrong := testdb.Column(t, d.Pool, fmt.Sprintf("SELECT stock.item FROM stock JOIN storefront_orders AS o ON o.item = stock.item "+
			"WHERE pieces + qty <> %d", pieces)); len(wrong) > 0 {
			t.Errorf("of these, other pieces are left than were not sold: %q", wrong)
		}

		const last, buyers = 10, 60
		d.Exec(t, fmt.Sprintf("INSERT INTO stock VALUES ('last', %d)", last))
		var buying sync.WaitGroup
		var sold atomic.Int32
		buy := func(i int, item string) {
			shop := must.Get(client.New(sellers[i%len(sellers)], nil))(t)
			_, err := shop.Order(t.Context(), client.NewDraft(item, 1))
			refused, _ := errors.AsType[*client.RefusedError](err)
			switch {
			case err == nil:
				sold.Add(1)
			case refused == nil || refused.Problem.Type != "urn:problem-type:storefront:order-refused":
				t.Errorf("an order of %q, which %d orders ask for at once, is answered with %v", item, buyers, err)
			}
		}
		for i, other := range []string{"LAST", "lást", "last "} { // which no piece is of
			buy(i, other)
		}
		if n := sold.Load(); n > 0 {
			t.Errorf("%d orders of items that are not in stock were created", n)
		}
		for i := range buyers {
			buying.Go(func() { buy(i, "last") })
		}
		buying.Wait()
		left := testdb.Column(t, d.Pool, "SELECT pieces FROM stock WHERE item = 'last'")
		if sold.Load() != last || !slices.Equal(left, []string{"0"}) {
			t.Errorf("of %d pieces, %d were sold and %q are left", last, sold.Load(), left)
		}
	})
}
