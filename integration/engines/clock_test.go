package engines

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/internal/orderid"
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
			key := storefront.IdempotencyKey{Value: value}
			must.Get(sqlstore.New(d.Pool, nil).CreateOrder(t.Context(), key, order))(t)
			d.RecordKey(t, value, at)
		}
		keys := func(t *testing.T) int {
			return len(testdb.Column(t, d.Pool, "SELECT id FROM storefront_orders WHERE key_hash IS NOT NULL"))
		}
		synctest.Test(t, func(t *testing.T) {
			store := sqlstore.New(d.Connect(t), nil)
			time.Sleep(time.Until(now.Add(time.Hour)))
			if n, err := store.ForgetKeys(t.Context(), time.Now().Add(-storefront.KeyLifetime)); err == nil || n != 0 {
				t.Errorf("with a clock that is an hour ahead, it forgot %d keys, %v, want an error", n, err)
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

// TestClocksOfReplicasLoseNoKey has orders of replicas whose clocks are wrong, with IDs to match, forgotten by
// hours, as by a program that runs for days: no key before its time, each of a clock that is less than an hour
// wrong at once, and every other one within a day and an hour more.
func TestClocksOfReplicasLoseNoKey(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		store := sqlstore.New(d.Pool, nil)
		first := time.Now().Add(-30 * 24 * time.Hour).Truncate(time.Millisecond)
		keyed, late := make(map[string]time.Time), make(map[string]time.Duration) // by ID
		for _, wrong := range []time.Duration{50 * time.Minute, 2 * time.Hour, 30 * time.Hour, 400 * 24 * time.Hour} {
			for n := range 8 {
				for _, wrong := range []time.Duration{wrong, -wrong} {
					at := first.Add(time.Duration(n)*6*time.Hour + time.Minute)
					order := storefront.Order{ID: orderid.New(at.Add(wrong)), Item: "kettle", Qty: 1, CreatedAt: at.Add(wrong)}
					must.Get(store.CreateOrder(t.Context(), storefront.IdempotencyKey{Value: order.ID}, order))(t)
					d.RecordKey(t, order.ID, at)
					if keyed[order.ID] = at; wrong.Abs() > time.Hour {
						late[order.ID] = 25 * time.Hour
					}
				}
			}
		}
		const remembered = "SELECT id FROM storefront_orders WHERE key_hash IS NOT NULL"
		for hour := range 24 * 4 {
			before := first.Add(time.Duration(hour) * time.Hour)
			must.Get(store.ForgetKeys(t.Context(), before))(t)
			kept := testdb.Column(t, d.Pool, remembered)
			for id, at := range keyed {
				is := slices.Contains(kept, id)
				if !is && !at.Before(before) {
					t.Fatalf("before %v, the key of %s is forgotten, which was recorded at %v", before, id, at)
				}
				if is && at.Before(before.Add(-late[id])) {
					t.Errorf("before %v, the key of %s is remembered, which was recorded at %v", before, id, at)
				}
				if !is {
					delete(keyed, id)
				}
			}
		}
		if len(keyed) > 0 {
			t.Errorf("%d keys are left", len(keyed))
		}
	})
}
