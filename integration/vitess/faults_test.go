package vitess

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbproxy"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
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
	underLoad(t, f, eachFault, faults(t, f, c))
	stop()
	others.Wait()
	h.check()
	gate.Exec(t, "DELETE FROM storefront_orders WHERE item = '"+historyItem+"'")
	f.Check(func() *sql.DB { return gate.Pool })
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
	underLoad(t, f, eachFault, faults(t, f, c))
	f.Check(func() *sql.DB { return gate.Pool })
	orders := testdb.Column(t, gate.Pool, "SELECT id FROM storefront_orders")
	if left := leftInStock(t, gate.Pool); left != places*pieces-len(orders) {
		t.Errorf("of %d pieces are left %d, with %d orders of one", places*pieces, left, len(orders))
	}
	checkOutbox(t, gate.Pool, orders)
}

// eachFault is how many orders each fault has.
var eachFault = long.Of(300, 10_000)

func startFaulty(t *testing.T) *cluster.Cluster {
	t.Helper()
	c := cluster.Start(t, cluster.Options{
		Shards: ranges[2], Tablets: 3, Gates: 2, VTOrc: true, Networks: true})
	c.ApplyVSchema(t, vschema)
	return c
}

// faults are what fails and comes back in a cluster.
func faults(t *testing.T, f *faulttest.Test, c *cluster.Cluster) []step {
	primary := func(shard string, fail func(*cluster.Tablet)) *cluster.Tablet {
		c.WaitUntilReplicating(t)
		p := c.Primary(t, shard)
		fail(p)
		return p
	}
	var failed *cluster.Tablet
	kill := func(shard string) func() {
		return func() { failed = primary(shard, func(p *cluster.Tablet) { p.Kill(t) }) }
	}
	rebuild := func() { failed.Rebuild(t) }
	return []step{
		{"planned reparents", func() {
			c.PlannedReparent(t, "-80")
			c.PlannedReparent(t, "80-")
		}},
		{"primary killed", kill("-80")},
		{"rebuilt", rebuild},
		{"primary killed", kill("80-")},
		{"rebuilt", rebuild},
		{"primary frozen", func() { failed = primary("-80", func(p *cluster.Tablet) { p.Freeze(t) }) }},
		{"primary thawed", func() { failed.Thaw(t) }},
		{"killed as well", func() { failed.Kill(t) }},
		{"rebuilt", rebuild},
		{"primary cut off for a time", func() {
			primary("80-", func(p *cluster.Tablet) {
				p.Network.Hold()
				f.WaitUntilStuck()
				p.Network.Heal()
			})
		}},
		{"vtgate killed", func() { c.Gates[0].Kill(t) }},
		{"started", func() { c.Gates[0].Start(t) }},
		{"vtgate killed", func() { c.Gates[1].Kill(t) }},
		{"started", func() { c.Gates[1].Start(t) }},
		{"etcd killed", func() { c.Etcd.Kill(t) }},
		{"started", func() { c.Etcd.Start(t) }},
	}
}
