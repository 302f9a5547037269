package integration

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// The replicas' clocks may be wrong, and each forgets keys for all of them.
func TestForgetKeysGoesByTheDatabasesClock(t *testing.T) {
	onSQLEngines(t, func(t *testing.T, d *sqlDatabase) {
		const old, young = "old", "young"
		now := time.Now()
		for value, at := range map[string]time.Time{
			old:   now.Add(-storefront.KeyLifetime - time.Hour),
			young: now.Add(-storefront.KeyLifetime + time.Hour),
		} {
			order := storefront.Order{ID: value, Item: "kettle", Qty: 1, CreatedAt: now}
			if _, err := sqlstore.New(d.db, nil).CreateOrder(t.Context(), storefront.IdempotencyKey{Value: value}, order); err != nil {
				t.Fatal(err)
			}
			d.recordKey(t, value, at)
		}
		keys := func(t *testing.T) int {
			return len(column(t, d.db, "SELECT id FROM storefront_orders WHERE key_hash IS NOT NULL"))
		}
		synctest.Test(t, func(t *testing.T) {
			store := sqlstore.New(d.connect(t), nil)
			time.Sleep(time.Until(now.Add(24 * time.Hour)))
			if n, err := store.ForgetKeys(t.Context(), time.Now().Add(-storefront.KeyLifetime)); err == nil || n != 0 {
				t.Errorf("with a clock that is a day ahead, it forgot %d keys, %v, want an error", n, err)
			}
		})
		if n := keys(t); n != 2 {
			t.Errorf("of two keys, %d are remembered", n)
		}
		synctest.Test(t, func(t *testing.T) { // it is 2000 there
			if n, err := sqlstore.New(d.connect(t), nil).ForgetKeys(t.Context(), now.Add(-storefront.KeyLifetime)); err != nil || n != 1 {
				t.Errorf("with a clock that is years behind, it forgot %d keys, %v, want 1", n, err)
			}
		})
		if n := keys(t); n != 1 {
			t.Errorf("of two keys, one of which is old, %d are remembered", n)
		}
	})
}
