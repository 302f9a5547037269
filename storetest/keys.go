package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/storefront"
)

// distinctKeys returns keys that a store might take for each other.
func distinctKeys() []storefront.IdempotencyKey {
	long, printable := strings.Repeat("x", 10_000), strings.Repeat("k", 254)
	var keys []storefront.IdempotencyKey
	for _, k := range [][2]string{
		{"", "k"}, {"s", "k"}, {"S", "k"}, {"s ", "k"}, {" s", "k"}, {"t", "k"}, // scopes
		// values
		{"", "K"}, {"", "k "}, {"", " k"}, {"", "k  "}, {"", "k%"}, {"", "k_"}, {"", "kx"},
		{"", "1"}, {"", "01"}, {"", "1.0"}, {"", "1e0"},
		// where one ends and the other begins
		{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"a", "b"}, {"b", "a"}, {"", "ab"},
		{"a,b", "c"}, {"a", "b,c"}, {"a:b", "c"}, {"a", "b:c"}, {"a b", "c"}, {"a", "b c"},
		{"a/b", "c"}, {"a", "b/c"}, {"a|b", "c"}, {"a", "b|c"},
		{`a"`, "b"}, {"a", `"b`}, {`a\`, "b"}, {"a'", "b"},
		// the end of long ones
		{long + "1", "k"}, {long + "2", "k"}, {"", printable + "1"}, {"", printable + "2"}, {"", printable},
		// bytes that are no text
		{"\u00e9", "k"}, {"e\u0301", "k"}, {"\xff", "k"}, {"\xfe", "k"}, {"\x00", "k"}, {"s\x00", "k"},
	} {
		key := newKey()
		key.Scope, key.Value = k[0], k[1]
		keys = append(keys, key)
	}
	return keys
}

func checkSameKey(t *test) {
	const cause = "Scope and Value are joined to one string without their lengths, compared by a " +
		"collation, trimmed, cut, or Scope is left out."
	store := t.newOrderStore()
	keyOf := make(map[string]storefront.IdempotencyKey)
	keys := distinctKeys()
	created := make([]storefront.Order, len(keys))
	for i, key := range keys {
		order := t.newOrder()
		if created[i] = t.create(store, key, order); created[i].ID != order.ID {
			t.wrong(cause, "The key %s was taken for %s.", keyText(key), keyText(keyOf[created[i].ID]))
		}
		keyOf[order.ID] = key
	}
	for i, key := range keys {
		switch got := t.create(store, key, t.newOrder()); {
		case got.ID == created[i].ID:
		case keyOf[got.ID].Value != "":
			t.wrong(cause, "The key %s was taken for %s.", keyText(key), keyText(keyOf[got.ID]))
		default:
			t.wrong(cause, "A second call with the key %s returned another order.", keyText(key))
		}
	}

	key := newKey()
	t.create(store, key, t.newOrder())
	other := withAnotherFingerprint(key)
	other.Scope += "2"
	switch _, err := t.try(store, other, t.newOrder()); {
	case errors.Is(err, storefront.ErrKeyReused):
		t.broken("fingerprints are found by Value alone.",
			"A call with the Value of another key, but its own Scope and Fingerprint, failed: %v", err)
	case err != nil:
		t.must("CreateOrder", err)
	}
}

func checkReused(t *test) {
	store := t.newOrderStore()
	orders, _ := optional[OrderLister](t, store, "that the refused calls created no orders")
	for _, change := range []struct {
		what string
		at   int
		bits byte
	}{
		{"first bit", 0, 0x80}, {"last byte", 31, 0xff}, {"last bit", 31, 1},
	} {
		key := newKey()
		clear(key.Fingerprint[:change.at]) // zeros end a string in some databases
		other := key
		other.Fingerprint[change.at] ^= change.bits
		t.checkOtherFingerprint(store, orders, key, other, "a fingerprint that differs in the "+change.what)
	}
	for range rounds {
		t.checkTwoFingerprints(store)
	}
}

// checkOtherFingerprint checks that a call with a key that has an order, but with
// another fingerprint, returns ErrKeyReused and changes nothing. The orders are nil if
// the store cannot list them.
func (t *test) checkOtherFingerprint(store storefront.Store, orders OrderLister, key,
	other storefront.IdempotencyKey, fingerprint string) {
	t.create(store, key, t.newOrder())
	first := t.create(store, key, t.newOrder()) // as a replay returns it
	order := t.newOrder()                       // with the same item and quantity: the fingerprint decides
	for range 2 {
		got, err := t.try(store, other, order)
		switch {
		case err == nil && got.ID == order.ID:
			t.broken(
				"the fingerprint is part of the key in the unique constraint. The key is Scope and Value.",
				"A call with a key that has an order, and %s, created another order.", fingerprint)
		case err == nil:
			t.broken("the fingerprint is not compared, or not as a whole.",
				"A call with a key that has an order, and %s, returned that order and no error.", fingerprint)
		case !errors.Is(err, storefront.ErrKeyReused):
			t.broken("", "A call with a key that has an order, and %s, returned an error that does not "+
				"match ErrKeyReused: %v", fingerprint, err)
		}
	}
	if _, wrong := miscount(orders, 0, order.ID); wrong {
		t.broken("the order is inserted before the fingerprints are compared, and stays.",
			"A call that returned ErrKeyReused created an order.")
	}
	got, err := t.try(store, key, t.newOrder())
	if err != nil {
		t.broken("the refused call has replaced the fingerprint (ON CONFLICT DO UPDATE).",
			"After a call that returned ErrKeyReused, a call with the fingerprint of the order failed: %v",
			err)
	}
	if d := orderDifference(got, first); d != "" {
		t.broken("the refused call has replaced or deleted the order (ON CONFLICT DO UPDATE).",
			"After a call that returned ErrKeyReused, the order of the key has %s.", d)
	}
}

// checkTwoFingerprints checks that concurrent calls with one key and two
// fingerprints return an order to those with one of the two only.
func (t *test) checkTwoFingerprints(store storefront.Store) {
	key := newKey()
	var errs [callers]error
	together(callers, func(i int) {
		key := key
		key.Fingerprint[0] = byte(i % 2)
		_, errs[i] = t.try(store, key, t.newOrder())
	})
	var served [2]int
	for i, err := range errs {
		if err == nil {
			served[i%2]++
		}
	}
	if served[0] > 0 && served[1] > 0 {
		t.broken("concurrent calls with one key are joined before their fingerprints are compared.",
			"Of %d concurrent calls with one key and two fingerprints, %d with one and %d with the other "+
				"returned an order, want one of them refused.", callers, served[0], served[1])
	}
}

const lifetimeMargin = time.Minute // as the calls take time themselves

// checkLifetime creates orders, makes many more calls, and looks for the keys of those orders at several
// ages, each time after other calls. For a store may forget keys only where there are many of them, or a few
// in each call, or in every hundredth.
func checkLifetime(t *test) {
	const calls = 300
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
		other := newKey()
		for range 100 {
			t.create(store, other, t.newOrder())
		}
		for _, k := range []int{0, 1 + i} {
			t.checkKeyOfAge(store, keys[k], created[k], age, began)
		}
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
