package vitess

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbproxy"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
	"example.com/storefront/sqlstore"
)

// TestFaults creates orders by way of two vtgates in two shards of three tablets each, while one thing
// after the other fails and comes back. Others write and read meanwhile.
func TestFaults(t *testing.T) {
	f := faulttest.New(t)
	c := startFaulty(t)
	gate := testdb.New(t, "mysql", c.Gates[0].DSN())
	f.Start(2, c.URL())
	calling, stop := context.WithCancel(t.Context())
	h := &history{t: t, pause: 20 * time.Millisecond, began: time.Now()}
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	others.Go(func() { h.call(calling, c.Gates, 2) })
	underLoad(t, f, long.Of(300, 10_000), faults(t, f, c))
	stop()
	others.Wait()
	h.check()
	gate.Exec(t, "DELETE FROM storefront_orders WHERE item = '"+historyItem+"'")
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

// TestFaultsWithAccept is TestFaults for orders that take pieces of a stock, by way of vtgates that stand
// behind one address.
func TestFaultsWithAccept(t *testing.T) {
	f := faulttest.New(t)
	c := startFaulty(t)
	gate := testdb.New(t, "mysql", c.Gates[0].DSN())
	const pieces = 1_000_000
	fillStock(t, c, gate, "kettle", pieces)
	seller := func() (string, error) {
		binary := filepath.Join(process.Folder(t), "seller")
		return binary, process.GoBuild(binary, "integration/vitess/internal/seller")
	}
	balancer := dbproxy.HAProxy(t, "check inter 1s on-marked-down shutdown-sessions",
		c.Gates[0].Addr(), c.Gates[1].Addr())
	url := "mysql://root@" + balancer + "/" + cluster.Keyspace + "?" + single[1:]
	f.Use(faulttest.StartReplicas(t, seller, 2, url)...)
	underLoad(t, f, long.Of(200, 1_000), faults(t, f, c))
	check(t, f, c)
	left, sold := leftInStock(t, gate.Pool), sum(t, gate.Pool, "SELECT SUM(qty) FROM storefront_orders")
	if left != places*pieces-sold {
		t.Errorf("of %d pieces, %d are sold and %d are left", places*pieces, sold, left)
	}
	all := streaming(t, c)
	checkOutbox(t, all, testdb.Column(t, all, "SELECT id FROM storefront_orders"))
}

func startFaulty(t *testing.T) *cluster.Cluster {
	t.Helper()
	c := cluster.Start(t, cluster.Options{
		Shards: ranges[2], Tablets: 3, Gates: 2, VTOrc: true, Networks: true})
	c.ApplyVSchema(t, vschema)
	return c
}

// faults are what fails and comes back in a cluster.
func faults(t *testing.T, f *faulttest.Test, c *cluster.Cluster) []step {
	var p *cluster.Tablet
	primary := func(shard string) func() {
		return func() {
			c.WaitUntilReplicating(t)
			p = c.Primary(t, shard)
		}
	}
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
		{"primary frozen", func() { p.Freeze(t) }},
		{"primary thawed", func() { p.Thaw(t) }},
		{"killed as well", func() { p.Kill(t) }},
		{"rebuilt", func() { p.Rebuild(t) }},
		{do: primary("80-")},
		{"primary cut off for a time", func() {
			p.Network.Hold()
			f.WaitUntilStuck()
			p.Network.Heal()
		}},
		{"vtgate killed", func() { c.Gates[0].Kill(t) }},
		{"started", func() { c.Gates[0].Start(t) }},
		{"vtgate killed", func() { c.Gates[1].Kill(t) }},
		{"started", func() { c.Gates[1].Start(t) }},
		{"etcd killed", func() { c.Etcd.Kill(t) }},
		{"started", func() { c.Etcd.Start(t) }},
	}
}
