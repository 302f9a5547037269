package storetest

import (
	"fmt"
	"time"

	"example.com/storefront"
)

const lifetimeMargin = time.Minute // as the calls take time themselves

// checkLifetime creates orders, makes so many more calls, and looks for the keys of those orders at several
// ages, each time after so many other calls. For a store may forget keys only where there are many of them,
// or a few in each call, or in every hundredth.
func checkLifetime(t *test) {
	const calls, callsEachTime = 300, 100
	store := t.newOrderStore()
	// Not from the start of a day, be it the calendar's or the store's own.
	timePasses := t.advance(store, 13*time.Hour)

	ages := []time.Duration{time.Minute, time.Hour, 12 * time.Hour, storefront.KeyLifetime - lifetimeMargin}
	if t.bubble { // where calls may take no time
		ages = append(ages, storefront.KeyLifetime-1)
	}
	// One key is used at each age, and each of the others once, as a store may
	// count from the last use.
	keys := make([]storefront.IdempotencyKey, 1+len(ages))
	created := make([]storefront.Order, len(keys))
	began := t.clock()
	for i := range keys {
		keys[i] = newKey()
		created[i] = t.create(store, keys[i], t.newOrder())
	}
	for range calls {
		t.create(store, newKey(), t.newOrder())
	}
	if got := t.create(store, keys[0], t.newOrder()); got.ID != created[0].ID {
		t.broken("a cache that keeps the last keys only.", "After %d orders with other keys, the key of the "+
			"order %q has the order %q.", calls, created[0].ID, got.ID)
	}
	if !timePasses {
		return
	}
	for i, age := range ages {
		t.advance(store, max(0, age-t.clock().Sub(began)))
		t.callWithOtherKeys(store, callsEachTime, began)
		for _, k := range []int{0, 1 + i} {
			t.checkKeyOfAge(store, keys[k], created[k], age, began)
		}
	}
}

// callWithOtherKeys makes so many calls, or fewer where they take so long that the
// keys of the orders that are looked for may soon be forgotten. Of ten calls nine are
// replays, so that there are few keys.
func (t *test) callWithOtherKeys(store storefront.Store, calls int, began time.Time) {
	var key storefront.IdempotencyKey
	for n := range calls {
		if t.clock().Sub(began) > storefront.KeyLifetime-lifetimeMargin/2 {
			return
		}
		if n%10 == 0 {
			key = newKey()
		}
		t.create(store, key, t.newOrder())
	}
}

// checkKeyOfAge checks that a key that is about that old still has its order. A key
// that may be forgotten, as calls have taken so long, passes.
func (t *test) checkKeyOfAge(store storefront.Store, key storefront.IdempotencyKey, created storefront.Order,
	age time.Duration, began time.Time) {
	const cause = "keys expire too early: another unit, or a lifetime counted in whole days or from " +
		"something else than the creation of the order."
	order := t.newOrder()
	got, err := t.try(store, key, order)
	switch {
	case t.clock().Sub(began) >= storefront.KeyLifetime:
	case err != nil:
		t.must(fmt.Sprintf("CreateOrder, with a key that was used %v ago,", age), err)
	case got.ID == order.ID:
		t.broken(cause, "%v after an order was created, a call with its key created another one.", age)
	case got.ID != created.ID:
		t.broken(cause, "%v after the order %q was created, a call with its key returned the order %q.", age,
			created.ID, got.ID)
	}
}
