package vitess

import (
	"database/sql"
	"sync"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/vitess/internal/cluster"
)

// A step is what is done to a cluster while orders are created. One without a name prepares the next one,
// before orders are created.
type step struct {
	name string
	do   func()
}

// underLoad takes steps, each with so many orders: half of them come at a pace from when the step begins, and
// the others at once after it. All are acknowledged before the next step.
func underLoad(t *testing.T, f *faulttest.Test, each int, steps []step) {
	t.Helper()
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	if long.Run() {
		pace.Reset(2 * time.Millisecond)
	}
	f.Orders = 0
	for _, s := range steps {
		if s.name != "" {
			f.Orders += each
		}
	}
	f.BeginAdmitting()
	for _, s := range steps {
		if s.name == "" {
			s.do()
			continue
		}
		before := f.Admitted
		var pacing sync.WaitGroup
		pacing.Go(func() {
			for range each / 2 {
				<-pace.C
				f.Admit(1)
			}
		})
		f.WaitUntilAcknowledged(before + 10)
		began := time.Now()
		s.do()
		t.Logf("%s: %v", s.name, time.Since(began).Round(time.Millisecond))
		f.Kills[s.name]++
		pacing.Wait()
		f.Admit(before + each - f.Admitted)
		f.WaitUntilAcknowledged(f.Admitted)
	}
	f.End()
}

// check accounts for all orders.
func check(t *testing.T, f *faulttest.Test, c *cluster.Cluster) {
	t.Helper()
	f.Check(func() *sql.DB { return streaming(t, c) })
}

// streaming returns connections that read any number of rows. Others get at most 10,000 of a shard.
func streaming(t *testing.T, c *cluster.Cluster) *sql.DB {
	t.Helper()
	return dbserver.Open(t, "mysql", c.Gates[0].DSN()+"&workload=%27olap%27")
}
