package vitess

import (
	"database/sql"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/vitess/internal/cluster"
)

// TestFaults creates orders by way of two vtgates in two shards of three tablets each, while one thing
// after the other fails and comes back.
func TestFaults(t *testing.T) {
	f := faulttest.New(t)
	c := cluster.Start(t, cluster.Options{Shards: ranges[2], Tablets: 3, Gates: 2, VTOrc: true})
	c.ApplyVSchema(t, vschema)
	f.Start(2, c.URL())
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
	underLoad(t, f, []step{
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
		{"vtgate killed", func() { c.Gates[0].Kill(t) }},
		{"started", func() { c.Gates[0].Start(t) }},
		{"vtgate killed", func() { c.Gates[1].Kill(t) }},
		{"started", func() { c.Gates[1].Start(t) }},
		{"etcd killed", func() { c.Etcd.Kill(t) }},
		{"started", func() { c.Etcd.Start(t) }},
	})
	f.Check(func() *sql.DB { return dbserver.Open(t, "mysql", c.Gates[0].DSN()) })
}
