package storetest

import (
	"fmt"
	"time"

	"example.com/storefront"
)

func checkLifetime(t *test) {
	// A store may forget keys where there are many of them, or a few in each call:
	// then it is seen where there are few, after many calls.
	if t.checkRemembered(300, 0) {
		t.checkRemembered(0, 100)
	}
}

// checkRemembered checks that keys are remembered after so many calls, and while
// time passes, after so many each time. It reports whether they are, and time can
// pass.
func (t *test) checkRemembered(calls, callsEachTime int) bool {
	t.Helper()
	const cause = "keys expire too early: another unit, or a lifetime counted in whole days or from something else than the creation of the order."
	store := t.newOrderStore()
	// Not from the start of a day, be it the calendar's or the store's own.
	timePasses := t.advance(store, 13*time.Hour)

	const margin = time.Minute // as the calls take time themselves
	ages := []time.Duration{time.Minute, time.Hour, 12 * time.Hour, storefront.KeyLifetime - margin}
	// One key is used each time, the others once, as use may renew them.
	keys := make([]storefront.IdempotencyKey, 1+len(ages))
	created := make([]storefront.Order, len(keys))
	began := t.now()
	for i := range keys {
		keys[i] = newKey()
		created[i] = t.create(store, keys[i], t.newOrder())
	}
	for range calls {
		t.create(store, newKey(), t.newOrder())
	}
	if got := t.create(store, keys[0], t.newOrder()); got.ID != created[0].ID {
		t.broken("a cache that keeps the last keys only.", "After %d orders with other keys, the key of the order %q has the order %q.", calls, created[0].ID, got.ID)
		return false
	}
	if !timePasses {
		return false
	}

	for i, age := range ages {
		t.advance(store, max(0, age-t.now().Sub(began)))
		var other storefront.IdempotencyKey
		for n := range callsEachTime {
			if t.now().Sub(began) > storefront.KeyLifetime-margin/2 {
				break // the calls take so long that keys may be forgotten soon
			}
			if n%10 == 0 { // the calls between are replays, as there are to be few keys
				other = newKey()
			}
			t.create(store, other, t.newOrder())
		}
		for _, k := range []int{0, 1 + i} {
			order := t.newOrder()
			got, err := t.createWithRetry(t.Context(), store, keys[k], order)
			switch {
			case t.now().Sub(began) > storefront.KeyLifetime:
				return true // it may be forgotten
			case err != nil:
				t.failed(fmt.Sprintf("CreateOrder, with a key that was used %v ago,", age), err)
			case got.ID == order.ID:
				t.broken(cause, "%v after an order was created, a call with its key created another one.", age)
				return false
			case got.ID != created[k].ID:
				t.broken(cause, "%v after the order %q was created, a call with its key returned the order %q.", age, created[k].ID, got.ID)
				return false
			}
		}
	}
	return true
}
