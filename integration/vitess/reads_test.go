package vitess

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
)

// TestReadsSeeEarlierWrites has calls by way of both vtgates write and read the same objects. Vitess may
// answer a query with what an equal one that began earlier has found.
func TestReadsSeeEarlierWrites(t *testing.T) {
	onShards(t, func(t *testing.T, k keyspace) {
		for i := range 100 { // so that a query of widgets lasts, and equal ones meet it
			r := storefront.MustResource(readID+strconv.Itoa(i), map[string][]int{"long": make([]int, 10_000)})
			must.OK(t, k.Open(t).Widgets.Put(t.Context(), r))
		}
		readAndWrite(t.Context(), t, k.Cluster, long.Of(50, 2_000), 0)
	})
}

// readAndWrite writes objects of each kind until ctx is done, or so many times, with a pause after each, and
// reads them meanwhile.
func readAndWrite(ctx context.Context, t *testing.T, c *cluster.Cluster, times int, pause time.Duration) {
	var all sync.WaitGroup
	for kind, a := range accesses {
		o := &object{access: a, unknown: make(map[int]bool)}
		written, end := context.WithCancel(ctx)
		call := func(g *cluster.Gate, times int, once func(context.Context, *testdb.SQLStore) error) {
			store := testdb.Open(t, "mysql", g.DSN()).OpenWith(t, nil)
			for n := 0; n != times && written.Err() == nil; n++ {
				if err := once(ctx, store); err != nil && !errors.Is(err, storefront.ErrUnavailable) && ctx.Err() == nil {
					t.Errorf("%s: %v", kind, err)
				}
				time.Sleep(pause)
			}
		}
		all.Go(func() {
			defer end()
			call(c.Gates[0], times, o.writeOnce)
			o.mu.Lock()
			defer o.mu.Unlock()
			t.Logf("%s: %d writes, %d of them unknown, and %d reads", kind, o.written, len(o.unknown), o.reads)
			if o.reads == 0 {
				t.Errorf("%s: nothing was read", kind)
			}
		})
		for _, g := range []*cluster.Gate{c.Gates[0], c.Gates[1], c.Gates[0], c.Gates[1]} {
			all.Go(func() { call(g, -1, o.readOnce) })
		}
	}
	all.Wait()
}

// An object has one writer, whose writes have the numbers 1, 2 and so on. So the number that a read returns
// shows whether that is of a time between its call and its return.
type object struct {
	access
	mu      sync.Mutex
	written int
	least   int          // for reads that begin now
	unknown map[int]bool // writes that may be done at any time, or never
	reads   int
}

func (o *object) writeOnce(ctx context.Context, store *testdb.SQLStore) error {
	o.mu.Lock()
	o.written++
	n := o.written
	o.unknown[n] = true
	o.mu.Unlock()
	err := o.write(ctx, store, n)
	o.mu.Lock()
	if err == nil {
		delete(o.unknown, n)
		o.least = max(o.least, n)
	}
	o.mu.Unlock()
	return cmp.Or(err, o.readOnce(ctx, store)) // while equal reads that began earlier are under way
}

func (o *object) readOnce(ctx context.Context, store *testdb.SQLStore) error {
	o.mu.Lock()
	least := o.least
	o.mu.Unlock()
	n, err := o.read(ctx, store, least)
	if err != nil && !errors.Is(err, storefront.ErrNotFound) {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if n < least && !o.unknown[n] || n > o.written {
		return errors.New("a read has returned write " + strconv.Itoa(n) + ", after write " + strconv.Itoa(least))
	}
	o.least = max(o.least, n)
	o.reads++
	return nil
}

// An access is how objects of a kind are written and read.
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
