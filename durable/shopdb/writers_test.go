//go:build !nosqlite && (darwin || freebsd || linux)

package shopdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// A process that writes all the time lets another one write in between: of its transactions, hardly more
// than one begins while the other waits. Each Open has a descriptor of its own, as another process has.
func TestWritersOfOtherProcessesAreNext(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	db, _ := openFile(t, name)
	busy, _ := openFile(t, name)
	must.OK(t, sqlstore.New(db, nil).Migrate(t.Context()))
	must.Get(db.ExecContext(t.Context(), `CREATE TABLE t (b)`))(t)
	var begun atomic.Int64
	var others sync.WaitGroup
	first, stop := make(chan struct{}), make(chan struct{})
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				tx := must.Get(busy.BeginTx(t.Context(), nil))(t)
				if begun.Add(1) == 1 {
					close(first)
				}
				must.Get(tx.ExecContext(t.Context(), `INSERT INTO t VALUES (1)`))(t)
				time.Sleep(50 * time.Millisecond) // as an Accept that takes long
				must.OK(t, tx.Commit())
			}
		})
	}
	<-first
	const orders = 50
	before := begun.Load()
	for range orders {
		must.Get(db.ExecContext(t.Context(), `INSERT INTO t VALUES (2)`))(t)
		must.Get(db.ExecContext(t.Context(), `UPDATE t SET b = 3 WHERE b = 2`))(t)
	}
	if n := begun.Load() - before; n > 4*2*orders {
		t.Errorf("while 100 statements waited, another process began %d transactions", n)
	}
	close(stop)
	others.Wait()
}

// BenchmarkOrderBesideABusyProcess creates orders, one at a time, beside a process with 16 callers whose Accept
// takes 20 ms, and tells how long the orders waited.
func BenchmarkOrderBesideABusyProcess(b *testing.B) {
	name := filepath.Join(b.TempDir(), "shop.db")
	open := func(accept time.Duration) *sqlstore.Store {
		db := must.Get(Open(name, nil))(b)
		b.Cleanup(func() { db.Close() })
		store := sqlstore.New(db.DB, &sqlstore.Options{
			Accept: func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error {
				time.Sleep(accept)
				return nil
			},
		})
		must.OK(b, store.Migrate(b.Context()))
		return store
	}
	store, busy := open(0), open(20*time.Millisecond)
	var stop atomic.Bool
	var others sync.WaitGroup
	for range 16 {
		others.Go(func() {
			for !stop.Load() {
				createOrder(b.Context(), busy, rand.Text())
			}
		})
	}
	var took []time.Duration
	failed := 0
	for b.Loop() {
		began := time.Now()
		if createOrder(b.Context(), store, rand.Text()) != nil {
			failed++
		}
		took = append(took, time.Since(began))
	}
	stop.Store(true)
	others.Wait()
	slices.Sort(took)
	for name, part := range map[string]float64{"p50": 0.5, "p99": 0.99, "most": 1} {
		b.ReportMetric(float64(took[int(part*float64(len(took)-1))].Milliseconds()), name+"-ms")
	}
	b.ReportMetric(float64(failed), "unavailable")
}
