package bench

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// BenchmarkCreateOrder has callers create orders, each the next as soon as it has
// one, through a pool of the size that durable has.
func BenchmarkCreateOrder(b *testing.B) {
	for _, engine := range []struct {
		name string
		open func(b *testing.B) *sql.DB
	}{
		{"SQLite", func(b *testing.B) *sql.DB { return servingPool(b, testdb.New(b, "sqlite", testdb.SQLiteFile(b))) }},
		{"PostgreSQL", func(b *testing.B) *sql.DB {
			return servingPool(b, testdb.New(b, "pgx", dbserver.Postgres.DurableDatabase(b)))
		}},
		{"MariaDB", func(b *testing.B) *sql.DB {
			return servingPool(b, testdb.New(b, "mysql", dbserver.MariaDB.DurableDatabase(b)))
		}},
	} {
		b.Run(engine.name, func(b *testing.B) {
			for _, callers := range []int{1, 4, 16, 64, 256} {
				b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
					// Under contention, some wait for long.
					store := sqlstore.New(engine.open(b), &sqlstore.Options{Timeout: time.Minute})
					create := func(int) error {
						_, err := store.CreateOrder(b.Context(), storefront.IdempotencyKey{Value: rand.Text()},
							storefront.Order{ID: "ord_" + rand.Text(), Item: "teapot", Qty: 2, CreatedAt: time.Now().UTC()})
						return err
					}
					closedLoop(b, callers, 100*time.Millisecond, create) // all connections
					var took []time.Duration
					var total time.Duration
					for b.Loop() {
						each, all := closedLoop(b, callers, time.Second, create)
						took, total = append(took, each...), total+all
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(float64(len(took))/total.Seconds(), "orders/s")
					b.ReportMetric(p99(took), "p99-ms")
				})
			}
		})
	}
}

// servingPool returns a pool of connections as durable has it.
func servingPool(b *testing.B, d *testdb.DB) *sql.DB {
	b.Helper()
	connections := 20
	if d.Driver == "sqlite" {
		connections = 4
	}
	db := d.Connect(b)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// closedLoop has callers call, each again as soon as its call has returned, until
// some time has passed. It returns how long each of the calls took, and all of it.
func closedLoop(b *testing.B, callers int, during time.Duration, call func(caller int) error) (each []time.Duration, all time.Duration) {
	b.Helper()
	took := make([][]time.Duration, callers)
	begin := time.Now()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for start := begin; start.Sub(begin) < during; {
				if err := call(caller); err != nil {
					b.Error(err)
					return
				}
				end := time.Now()
				took[caller] = append(took[caller], end.Sub(start))
				start = end
			}
		})
	}
	wg.Wait()
	all = time.Since(begin)
	return slices.Concat(took...), all
}

// p99 returns the time, in milliseconds, that all but one of a hundred calls took at
// most.
func p99(took []time.Duration) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[(len(took)*99-1)/100].Seconds() * 1000
}
