package vitess

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
	"example.com/storefront/internal/orderid"
)

// TestLinearizability has clients of both vtgates write and read the same few objects: each read and replay
// is of a time between its call and its return. Vitess may answer a query with what an equal one that began
// earlier has found.
func TestLinearizability(t *testing.T) {
	onShards(t, func(t *testing.T, k keyspace) {
		h := &history{t: t, most: 20_000, began: time.Now()}
		h.call(t.Context(), k.Cluster.Gates, 8)
		h.check()
	})
}

// A history is what clients have called, and what was returned, at which time.
type history struct {
	t     *testing.T
	most  int64         // calls; 0 is no limit
	pause time.Duration // of a client after each call
	began time.Time
	calls atomic.Int64

	mu      sync.Mutex
	objects map[string][]porcupine.Operation
	unknown int // writes of which nobody knows whether they were done
}

// call has clients of each vtgate call its store until ctx is done or enough calls are made.
func (h *history) call(ctx context.Context, gates []*cluster.Gate, clients int) {
	var calling sync.WaitGroup
	for _, g := range gates {
		store := testdb.Open(h.t, "mysql", g.DSN()).OpenWith(h.t, nil)
		for range clients {
			calling.Go(func() {
				for n := h.calls.Add(1); ctx.Err() == nil && (h.most == 0 || n <= h.most); n = h.calls.Add(1) {
					h.callOnce(ctx, store, int(n)/callsEach)
					if h.pause > 0 {
						time.Sleep(h.pause)
					}
				}
			})
		}
	}
	calling.Wait()
}

// Objects are few, so that clients meet, and others take their place, so that no history is long.
const (
	objects   = 4
	callsEach = 200
)

// historyItem is the item of all orders of a history.
const historyItem = "history"

func (h *history) callOnce(ctx context.Context, store *testdb.SQLStore, age int) {
	id := func(n int) string { return fmt.Sprintf("%08d-%d", age, n) }
	n := mathrand.IntN(objects)
	account := fmt.Sprint("account ", age)
	switch mathrand.IntN(8) {
	case 0, 1:
		key := storefront.IdempotencyKey{Scope: account, Value: id(n), Fingerprint: [32]byte{byte(mathrand.IntN(2))}}
		proposed := storefront.Order{ID: orderid.New(time.Now()), Item: historyItem, Qty: int64(n + 1),
			CreatedAt: time.UnixMilli(1e12).UTC()}
		value := func(o storefront.Order) string { return fmt.Sprint(key.Fingerprint[0], " ", o.ID) }
		h.record([]string{"order " + id(n)}, create, value(proposed), func() ([]string, error) {
			order, err := store.CreateOrder(ctx, key, proposed)
			if errors.Is(err, storefront.ErrKeyReused) {
				return []string{reused}, nil
			}
			return []string{value(order)}, err
		})
	case 2:
		r := storefront.MustResource(id(n), map[string]string{"version": rand.Text()})
		h.record([]string{"product " + id(n)}, write, r.String(), func() ([]string, error) {
			return []string{""}, store.Products.Put(ctx, r)
		})
	case 3:
		h.record([]string{"product " + id(n)}, read, "", func() ([]string, error) {
			r, err := store.GetProduct(ctx, id(n))
			if errors.Is(err, storefront.ErrNotFound) {
				return []string{""}, nil
			}
			return []string{r.String()}, err
		})
	case 4:
		r := storefront.MustResource(id(n), map[string]string{"version": rand.Text()})
		h.record([]string{"widget " + id(n)}, write, r.String(), func() ([]string, error) {
			return []string{""}, store.Widgets.Put(ctx, r)
		})
	case 5:
		var all []string
		for n := range objects {
			all = append(all, "widget "+id(n))
		}
		h.record(all, read, "", func() ([]string, error) {
			list, err := store.ListWidgets(ctx, id(0), objects)
			values := make([]string, objects)
			for _, r := range list {
				if i := slices.Index(all, "widget "+r.ID()); i >= 0 {
					values[i] = r.String()
				}
			}
			return values, err
		})
	case 6:
		h.record([]string{"order " + id(n)}, readID, "", func() ([]string, error) {
			order, err := store.GetOrderByKey(ctx, account, id(n))
			if errors.Is(err, storefront.ErrNotFound) {
				err = nil
			}
			return []string{order.ID()}, err
		})
	case 7:
		var all []string
		for n := range objects {
			all = append(all, "order "+id(n))
		}
		h.record(all, readID, "", func() ([]string, error) {
			list, err := store.ListOrders(ctx, account, "", objects+1)
			values := make([]string, objects)
			for _, r := range list {
				var order storefront.Order
				if err := json.Unmarshal([]byte(r.String()), &order); err != nil {
					return nil, err
				}
				values[order.Qty-1] = order.ID
			}
			return values, err
		})
	}
}

// record calls f, which returns the value of each of the objects, and adds that to their histories.
func (h *history) record(objects []string, kind, value string, f func() ([]string, error)) {
	call := time.Since(h.began)
	got, err := f()
	end := int64(time.Since(h.began))
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
	case !errors.Is(err, storefront.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, context.Canceled):
		h.t.Error(err)
		return
	case kind == read || kind == readID:
		return
	default: // it may be done at any later time, or never
		h.unknown++
		got, end = []string{unknown}, math.MaxInt64
	}
	if h.objects == nil {
		h.objects = make(map[string][]porcupine.Operation)
	}
	for i, object := range objects {
		h.objects[object] = append(h.objects[object], porcupine.Operation{
			Input: input{kind, value}, Call: int64(call), Output: got[i], Return: end})
	}
}

// The kinds of calls of an object.
const (
	create = "create" // an order: the value has its fingerprint and its ID
	write  = "write"
	read   = "read"
	readID = "read ID" // of an order
)

// What a call may return that is no value.
const (
	reused  = "reused"
	unknown = "unknown"
)

type input struct{ kind, value string }

// An object has the value "" until it is written.
var object = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		was, i := state.(string), in.(input)
		switch {
		case i.kind == read:
			return out == was, was
		case i.kind == readID:
			return out == was[min(2, len(was)):], was
		case i.kind == write:
			return true, i.value
		case was == "":
			return out == i.value || out == unknown, i.value
		case out == reused:
			return was[0] != i.value[0], was // the fingerprint
		}
		return out == was || out == unknown, was
	},
}

// check fails the test for each object whose history cannot be.
func (h *history) check() {
	h.t.Helper()
	calls := 0
	for name, operations := range h.objects {
		calls += len(operations)
		if porcupine.CheckOperations(object, operations) {
			continue
		}
		var lines strings.Builder
		slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		for _, o := range operations {
			fmt.Fprintf(&lines, "%v to %v: %v: %v\n", time.Duration(o.Call), time.Duration(o.Return), o.Input, o.Output)
		}
		h.t.Errorf("no sequence of calls, one after the other, has these results of %s:\n%s", name, &lines)
	}
	if calls == 0 {
		h.t.Error("nothing was called")
	}
	h.t.Logf("%d calls of %d objects, of which nobody knows what became of %d", calls, len(h.objects), h.unknown)
}
