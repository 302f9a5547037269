package vitess

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
	"example.com/storefront/internal/must"
	"example.com/storefront/internal/orderid"
	"example.com/storefront/sqlstore"
)

// TestReadsSeeEarlierWrites has calls by way of both vtgates write and read the same objects. Vitess may
// answer a query with what an equal one that began earlier has found.
func TestReadsSeeEarlierWrites(t *testing.T) {
	c, gate := twoShards(t, 1)
	for i := range 100 { // so that a query of widgets lasts, and equal ones meet it
		r := storefront.MustResource(readID+strconv.Itoa(i), map[string][]int{"long": make([]int, 10_000)})
		must.OK(t, gate.Open(t).Widgets.Put(t.Context(), r))
	}
	var all sync.WaitGroup
	defer all.Wait()
	for kind, a := range accesses {
		open := func(g *cluster.Gate) *testdb.SQLStore { // a busy machine may be slow
			return testdb.Open(t, "mysql", g.DSN()).OpenWith(t, &sqlstore.Options{Timeout: 10 * time.Minute})
		}
		var mu sync.Mutex
		newest := 1 // that a call which has returned has written or read
		call := func(f func(least int) (n int, err error)) {
			mu.Lock()
			before := newest
			mu.Unlock()
			n, err := f(before)
			if err != nil || n < before {
				t.Errorf("%s: after write %d, a call returned write %d, %v", kind, before, n, err)
			}
			mu.Lock()
			newest = max(newest, n)
			mu.Unlock()
		}
		read := func(store *testdb.SQLStore) {
			call(func(least int) (int, error) { return a.read(t.Context(), store, least) })
		}
		writer := open(c.Gates[0])
		must.OK(t, a.write(t.Context(), writer, 1))
		writing, end := context.WithCancel(t.Context())
		all.Go(func() {
			defer end()
			for n := range long.Of(50, 2_000) {
				call(func(int) (int, error) { return 2 + n, a.write(t.Context(), writer, 2+n) })
				read(writer) // while equal reads that began earlier are under way
			}
		})
		for _, g := range []*cluster.Gate{c.Gates[0], c.Gates[1], c.Gates[0], c.Gates[1]} {
			reader := open(g)
			all.Go(func() {
				for writing.Err() == nil {
					read(reader)
				}
			})
		}
	}
}

// An access is how objects of a kind are written and read: there is one writer, whose writes have numbers.
type access struct {
	write func(ctx context.Context, store *testdb.SQLStore, n int) error
	read  func(ctx context.Context, store *testdb.SQLStore, least int) (n int, err error)
}

const (
	readID = "read"   // of a resource, and the item of an order
	byKey  = "by key" // the scope of orders
	listed = "listed" // the same
)

var accesses = map[string]access{
	"product": {
		func(ctx context.Context, store *testdb.SQLStore, n int) error {
			return store.Products.Put(ctx, storefront.MustResource(readID, map[string]int{"qty": n}))
		},
		func(ctx context.Context, store *testdb.SQLStore, _ int) (int, error) {
			r, err := store.GetProduct(ctx, readID)
			return number(err, r)
		},
	},
	"widget": {
		func(ctx context.Context, store *testdb.SQLStore, n int) error {
			return store.Widgets.Put(ctx, storefront.MustResource(readID, map[string]int{"qty": n}))
		},
		func(ctx context.Context, store *testdb.SQLStore, _ int) (int, error) {
			list, err := store.ListWidgets(ctx, readID, 200)
			return number(err, list...)
		},
	},
	"order by its key": {
		func(ctx context.Context, store *testdb.SQLStore, n int) error { return order(ctx, store, byKey, n) },
		func(ctx context.Context, store *testdb.SQLStore, least int) (int, error) {
			r, err := store.GetOrderByKey(ctx, byKey, strconv.Itoa(least))
			return number(err, r)
		},
	},
	"newest order": {
		func(ctx context.Context, store *testdb.SQLStore, n int) error { return order(ctx, store, listed, n) },
		func(ctx context.Context, store *testdb.SQLStore, _ int) (int, error) {
			list, err := store.ListOrders(ctx, listed, "", 1)
			return number(err, list...)
		},
	},
}

// number returns the number of the write that a read has returned, or 0 if there was none.
func number(err error, found ...storefront.Resource) (int, error) {
	var members struct{ Qty int }
	if err == nil && len(found) > 0 {
		err = json.Unmarshal([]byte(found[0].String()), &members)
	}
	return members.Qty, err
}

// order creates an order. One that follows has a greater ID.
func order(ctx context.Context, store *testdb.SQLStore, scope string, n int) error {
	key := storefront.IdempotencyKey{Scope: scope, Value: strconv.Itoa(n)}
	_, err := store.CreateOrder(ctx, key, storefront.Order{ID: orderid.New(time.Now()), Item: readID,
		Qty: int64(n), CreatedAt: time.UnixMilli(1e12).UTC()})
	return err
}
