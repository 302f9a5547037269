package vitess

import (
	"sync"
	"testing"
	"time"

	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
)

// A step is what is done to a cluster while orders are created.
type step struct {
	name string
	do   func()
}

// underLoad takes steps, each with so many orders: half of them come at a pace while the step is taken, as
// long as it takes, and the others at once after it. All are acknowledged before the next step.
func underLoad(t *testing.T, f *faulttest.Test, each int, steps []step) {
	t.Helper()
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	if long.Run() {
		pace.Reset(2 * time.Millisecond)
	}
	f.Orders = each * len(steps)
	f.BeginAdmitting()
	for i, s := range steps {
		began := time.Now()
		var pacing sync.WaitGroup
		done := make(chan struct{})
		pacing.Go(func() {
			for range each / 2 {
				select {
				case <-pace.C:
					f.Admit(1)
				case <-done:
					return
				}
			}
		})
		stop := sync.OnceFunc(func() {
			close(done)
			pacing.Wait()
		})
		defer stop()
		f.WaitUntilAcknowledged(i*each + 10)
		before, doing := f.Audit.Progress(), time.Now()
		s.do()
		did := time.Since(doing)
		f.Kills[s.name]++
		stop()
		f.Admit((i+1)*each - f.Admitted)
		f.WaitUntilAcknowledged((i + 1) * each)
		t.Logf("%s: %v, %v with its orders, of which %d requests failed", s.name, did.Round(time.Millisecond),
			time.Since(began).Round(time.Millisecond), f.Audit.Progress().Failed-before.Failed)
	}
	f.End()
}
