package vitess

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
)

// BenchmarkStore measures how cost grows with the number of shards: calls of tablets, as vtgate counts them,
// and CPU time of the program and of all servers, without what the servers use when there is nothing to do.
//
//	go test -run '^$' -bench . -benchtime 4000x
func BenchmarkStore(b *testing.B) {
	var keys atomic.Int64
	for _, shards := range []int{1, 2, 4, 8} {
		k := shared(b, shards)
		store := k.DB.OpenWith(b, nil)
		var widgets []storefront.Resource
		for i := range 1000 {
			widgets = append(widgets, storefront.MustResource(fmt.Sprint("widget ", i), nil))
		}
		must.OK(b, store.Widgets.Put(b.Context(), widgets...))
		const idle = 5 * time.Second
		resting := k.usage(b)
		time.Sleep(idle)
		rested := k.usage(b)
		order := func(key int64) error {
			_, err := testdb.Create(b.Context(), store, fmt.Sprint("key ", key), "kettle")
			return err
		}
		for _, work := range []struct {
			name    string
			callers int
			do      func(i int64) error
		}{
			{"order", 1, func(int64) error { return order(keys.Add(1)) }},
			{"order", 64, func(int64) error { return order(keys.Add(1)) }},
			{"replay", 64, func(i int64) error { return order(1 + i%keys.Load()) }},
			{"page of 50", 1, func(i int64) error {
				_, err := store.ListWidgets(b.Context(), fmt.Sprint("widget ", i%900), 50)
				return err
			}},
		} {
			if work.name == "replay" {
				keys.Store(0)
				for range 64 {
					must.OK(b, order(keys.Add(1)))
				}
			}
			name := fmt.Sprintf("shards=%d/%s/callers=%d", shards, work.name, work.callers)
			b.Run(name, func(b *testing.B) {
				before, began := k.usage(b), time.Now()
				var all sync.WaitGroup
				var next atomic.Int64
				b.ResetTimer()
				for range work.callers {
					all.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							if err := work.do(i); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.StopTimer()
				after, took := k.usage(b), time.Since(began)
				b.ReportMetric(float64(after.calls-before.calls)/float64(b.N), "calls/op")
				for _, who := range []string{"program", "vtgate", "vttablets", "mysqlds"} {
					used := float64(after.cpu[who] - before.cpu[who])
					unused := float64(rested.cpu[who]-resting.cpu[who]) * float64(took) / float64(idle)
					b.ReportMetric((used-unused)/float64(b.N)/1e3, who+"-µs/op")
				}
			})
		}
	}
}

// A usage is what was used up to a moment.
type usage struct {
	calls int
	cpu   map[string]time.Duration
}

func (k keyspace) usage(b *testing.B) usage {
	u := usage{cpu: k.CPU(b)}
	for _, n := range k.Gates[0].Calls(b) {
		u.calls += n
	}
	var self syscall.Rusage
	must.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &self))
	u.cpu["program"] = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	return u
}
