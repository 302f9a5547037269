package storetest

import (
	"errors"
	"strings"

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
