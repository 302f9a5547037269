package vitess

import (
	"database/sql"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
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
	// Half of the orders of a step are sent before it, and the others after it.
	steps := []struct {
		name string
		do   func()
	}{
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
	}
	each := long.Of(150, 5_000)
	f.Orders = each * len(steps)
	f.BeginAdmitting()
	for i, step := range steps {
		f.Admit(each / 2)
		f.WaitUntilAcknowledged(i*each + each/4)
		before, began := f.Audit.Progress(), time.Now()
		step.do()
		took := time.Since(began)
		f.Kills[step.name]++
		f.Admit(each - each/2)
		f.WaitUntilAcknowledged((i + 1) * each)
		p := f.Audit.Progress()
		t.Logf("%s (%v): %v until its orders were there, %d requests failed", step.name,
			took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), p.Failed-before.Failed)
	}
	f.End()
	f.Check(func() *sql.DB { return dbserver.Open(t, "mysql", c.Gates[0].DSN()) })
}
