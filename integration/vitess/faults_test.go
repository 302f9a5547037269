package vitess

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
	"example.com/storefront/integration/vitess/internal/stock"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/mysql"
	"example.com/storefront/sqlstore"
)

// TestFaults creates orders by way of two vtgates in two shards of three tablets each, while one thing
// after the other fails and comes back.
func TestFaults(t *testing.T) {
	f := faulttest.New(t)
	c, gate := twoShards(t, 3)
	f.Start(2, c.URL())
	underLoad(t, f, long.Of(300, 10_000), faults(t, f, c))
	check(t, f, c)
	takePolicyAway(t, c, gate.Pool)
}

// takePolicyAway has the tablets acknowledge orders that no replica has. A store that runs takes none then,
// once a Check has looked.
func takePolicyAway(t *testing.T, c *cluster.Cluster, db *sql.DB) {
	store := sqlstore.New(db, &sqlstore.Options{Timeout: time.Second})
	expect := func(policy string, want func(check, create error) bool) {
		c.Vtctl(t, "SetKeyspaceDurabilityPolicy", "--durability-policy="+policy, cluster.Keyspace)
		process.WaitFor(t, "the store sees the policy "+policy, 5*time.Minute, nil, func() error {
			check := store.Check(t.Context())
			_, create := testdb.Create(t.Context(), store, rand.Text(), "kettle")
			if !want(check, create) {
				return fmt.Errorf("Check returned %v and CreateOrder %v", check, create)
			}
			return nil
		})
	}
	names := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "durability policy semi_sync")
	}
	expect("none", func(check, create error) bool { return names(check) && names(create) })
	expect("semi_sync", func(check, create error) bool { return check == nil && create == nil })
}

// TestFaultsWithAccept is TestFaults for orders that take pieces of a stock. What is not in stock is refused.
func TestFaultsWithAccept(t *testing.T) {
	f := faulttest.New(t)
	c, _ := twoShards(t, 3)
	for range 2 {
		db := must.Get(mysql.Open(c.URL()+"?"+single[1:], nil))(t)
		t.Cleanup(func() { db.Close() })
		shop := httptest.NewServer(storefront.New(sqlstore.New(db.DB, &sqlstore.Options{Accept: takeKettles})))
		t.Cleanup(shop.Close)
		f.URLs = append(f.URLs, shop.URL)
	}
	underLoad(t, f, long.Of(200, 1_000), faults(t, f, c))
	check(t, f, c)
	gate := testdb.Open(t, "mysql", c.Gates[0].DSN()+single)
	selling := gate.OpenWith(t, &sqlstore.Options{Accept: stock.Accept})
	_, err := testdb.Create(t.Context(), selling, "sold out", "teapot")
	if _, refused := errors.AsType[*storefront.Refusal](err); !refused {
		t.Errorf("what is not in stock is answered with %v", err)
	}
	all := streaming(t, c)
	var left, sold int
	must.OK(t, all.QueryRow("SELECT SUM(pieces) FROM stock").Scan(&left))
	must.OK(t, all.QueryRow("SELECT SUM(qty) FROM storefront_orders").Scan(&sold))
	if left != places*pieces-sold {
		t.Errorf("of %d pieces, %d are sold and %d are left", places*pieces, sold, left)
	}
	orders := testdb.Column(t, all, "SELECT id FROM storefront_orders")
	events := testdb.Column(t, all, "SELECT order_id FROM outbox")
	slices.Sort(orders)
	slices.Sort(events)
	if diff := cmp.Diff(orders, events); diff != "" {
		t.Errorf("events of the orders (-want +got):\n%s", diff)
	}
}

// faults are what fails and comes back in a cluster.
func faults(t *testing.T, f *faulttest.Test, c *cluster.Cluster) []step {
	var p *cluster.Tablet
	primary := func(shard string) func() { return func() { p = c.Primary(t, shard) } }
	return []step{
		{"planned reparents", func() {
			c.PlannedReparent(t, "-80")
			c.PlannedReparent(t, "80-")
		}},
		{do: primary("-80")},
		{"primary killed", func() { p.Kill(t) }},
		{"rebuilt", func() { p.Rebuild(t) }},
		{do: primary("80-")},
		{"primary killed", func() { p.Kill(t) }},
		{"rebuilt", func() { p.Rebuild(t) }},
		{do: primary("-80")},
		{"primary frozen", func() {
			p.MySQL.Freeze(t)
			p.Server.Freeze(t)
		}},
		{"primary thawed", func() {
			p.MySQL.Thaw(t)
			p.Server.Thaw(t)
		}},
		{"killed as well", func() { p.Kill(t) }},
		{"rebuilt", func() { p.Rebuild(t) }},
		{do: primary("80-")},
		{"primary silent for a time", func() { // to vtgates, not to its replicas
			p.Server.Freeze(t)
			f.WaitUntilStuck()
			p.Server.Thaw(t)
		}},
		{"vtgate killed", func() { c.Gates[0].Kill(t) }},
		{"started", func() { c.Gates[0].Start(t) }},
		{"vtgate killed", func() { c.Gates[1].Kill(t) }},
		{"started", func() { c.Gates[1].Start(t) }},
		{"etcd killed", func() {
			c.Etcd.Kill(t)
			if len(f.Replicas) > 0 { // whose connections are all new, then
				f.KillReplica()
			}
		}},
		{"started", func() { c.Etcd.Start(t) }},
	}
}
