package engines

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// The replicas' clocks may be wrong, and each forgets keys for all of them.
func TestForgetKeysGoesByTheDatabasesClock(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		const old, young = "old", "young"
		now := time.Now()
		for value, at := range map[string]time.Time{
			old:   now.Add(-storefront.KeyLifetime - time.Hour),
			young: now.Add(-storefront.KeyLifetime + time.Hour),
		} {
			order := storefront.Order{ID: value, Item: "kettle", Qty: 1, CreatedAt: now}
			if _, err := sqlstore.New(d.Pool, nil).CreateOrder(t.Context(), storefront.IdempotencyKey{Value: value}, order); err != nil {
				t.Fatal(err)
			}
			d.RecordKey(t, value, at)
		}
		keys := func(t *testing.T) int {
			return len(testdb.Column(t, d.Pool, "SELECT id FROM storefront_orders WHERE key_hash IS NOT NULL"))
		}
		synctest.Test(t, func(t *testing.T) {
			store := sqlstore.New(d.Connect(t), nil)
			time.Sleep(time.Until(now.Add(24 * time.Hour)))
			if n, err := store.ForgetKeys(t.Context(), time.Now().Add(-storefront.KeyLifetime)); err == nil || n != 0 {
				t.Errorf("with a clock that is a day ahead, it forgot %d keys, %v, want an error", n, err)
			}
		})
		if n := keys(t); n != 2 {
			t.Errorf("of two keys, %d are remembered", n)
		}
		synctest.Test(t, func(t *testing.T) { // it is 2000 there
			if n, err := sqlstore.New(d.Connect(t), nil).ForgetKeys(t.Context(), now.Add(-storefront.KeyLifetime)); err != nil || n != 1 {
				t.Errorf("with a clock that is years behind, it forgot %d keys, %v, want 1", n, err)
			}
		})
		if n := keys(t); n != 1 {
			t.Errorf("of two keys, one of which is old, %d are remembered", n)
		}
	})
}

// The time of an order is that of the replica that has proposed it, and says nothing of
// how old its key is.
func TestAKeyOfAReplicaThatIsBehindIsRemembered(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		behind, other := sqlstore.New(d.Connect(t), nil), sqlstore.New(d.Connect(t), nil)
		order := storefront.Order{ID: "ord_1", Item: "kettle", Qty: 1, CreatedAt: time.Now().Add(-26 * time.Hour).UTC().Truncate(time.Millisecond)}
		if _, err := behind.CreateOrder(t.Context(), storefront.IdempotencyKey{Value: "key"}, order); err != nil {
			t.Fatal(err)
		}
		if n, err := other.ForgetKeys(t.Context(), time.Now().Add(-storefront.KeyLifetime-time.Hour)); err != nil || n != 0 {
			t.Errorf("ForgetKeys returned %d, %v, want 0", n, err)
		}
		again := order
		again.ID = "ord_2"
		if got, err := other.CreateOrder(t.Context(), storefront.IdempotencyKey{Value: "key"}, again); err != nil || got != order {
			t.Errorf("the order, sent again, is %v, %v, want %v", got, err, order)
		}
	})
}

// Calls with each key race with each other and with ForgetKeys, by clocks that are days
// off. Some keys are old enough to be forgotten, and then create one more order.
func TestOrdersWithWrongTimesRaceWithForgetKeys(t *testing.T) {
	const keys, callers = 60, 4
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		var stores []*sqlstore.Store
		for range 3 {
			stores = append(stores, sqlstore.New(d.Connect(t), nil))
		}
		keyOf := func(i int) string { return fmt.Sprint("key ", i) }
		isOld := func(i int) bool { return i%2 == 0 }
		send := func(i, caller int, id string) {
			order := storefront.Order{ID: id, Item: keyOf(i), Qty: 1, CreatedAt: time.Now().Add(time.Duration((i+7*caller)%21-10) * 24 * time.Hour)}
			_, err := stores[(i+caller)%len(stores)].CreateOrder(t.Context(), storefront.IdempotencyKey{Value: keyOf(i)}, order)
			if err != nil && !errors.Is(err, storefront.ErrUnavailable) {
				t.Error(err)
			}
		}
		for i := range keys {
			if isOld(i) {
				id := fmt.Sprint("old ", i)
				send(i, callers, id)
				d.RecordKey(t, id, time.Now().Add(-storefront.KeyLifetime-time.Hour))
			}
		}
		var forgetting, sending sync.WaitGroup
		sent, end := context.WithCancel(t.Context())
		for _, store := range stores {
			forgetting.Go(func() {
				for sent.Err() == nil {
					if _, err := store.ForgetKeys(t.Context(), time.Now().Add(-storefront.KeyLifetime)); err != nil && !errors.Is(err, storefront.ErrUnavailable) {
						t.Error(err)
					}
				}
			})
		}
		for caller := range callers {
			sending.Go(func() {
				for i := range keys {
					send(i, caller, fmt.Sprint("new ", i, " of ", caller))
				}
			})
		}
		sending.Wait()
		end()
		forgetting.Wait()
		orders := make(map[string]int) // by item
		for _, order := range testdb.StoredOrders(t, d.Pool) {
			orders[order.Item]++
		}
		for i := range keys {
			if n := orders[keyOf(i)]; n != 1 && !(isOld(i) && n == 2) {
				t.Errorf("%d orders have %s, whose first order was old: %t", n, keyOf(i), isOld(i))
			}
		}
	})
}
