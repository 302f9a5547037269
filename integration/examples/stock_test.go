package examples

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/examples/outbox"
)

// TestStock kills a replica of the command stock under orders, some of which are sent twice at once. Then each
// has taken its pieces and has its event, once, and what is not in stock is refused.
func TestStock(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		if d.Driver != "pgx" {
			long.Test(t)
		}
		f := faulttest.New(t)
		f.Orders = 200
		name, table := d.URL, outbox.PostgresTable
		switch d.Driver {
		case "sqlite":
			name, _, _ = strings.Cut(strings.TrimPrefix(d.URL, "file:"), "?")
			table = outbox.SQLiteTable
		case "mysql":
			user, rest, _ := strings.Cut(d.URL, "tcp(")
			addr, database, _ := strings.Cut(rest, ")")
			name, _, _ = strings.Cut("mysql://"+user+addr+database, "?")
			table = outbox.MySQLTable
		}
		const pieces = 9 // the most that an order takes
		d.Exec(t, table, "CREATE TABLE stock (item VARCHAR(255) NOT NULL PRIMARY KEY, pieces BIGINT NOT NULL)")
		for n := range f.Orders {
			d.Exec(t, fmt.Sprintf("INSERT INTO stock VALUES ('key-%d', %d)", 1+n, pieces))
		}
		f.Use(faulttest.StartReplicas(t, process.Stock, 3, name)...)
		f.Run(f.KillReplica)

		r := must.Get(http.NewRequestWithContext(t.Context(), "POST", f.URLs[1]+"/v1/orders", strings.NewReader(`{"item":"kettle","qty":1}`)))(t)
		r.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"none"}}
		w := must.Get(http.DefaultClient.Do(r))(t)
		defer w.Body.Close()
		var refused storefront.Problem
		must.OK(t, json.NewDecoder(w.Body).Decode(&refused))
		if w.StatusCode != http.StatusUnprocessableEntity || refused.Type != "urn:problem-type:storefront:order-refused" {
			t.Errorf("what is not in stock is answered with %s: %v", w.Status, refused)
		}

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
	})
}
