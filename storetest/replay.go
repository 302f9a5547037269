package storetest

import (
	"cmp"
	"strings"
	"time"

	"example.com/storefront"
)

// kindsOfOrders returns orders whose fields are hard to store. None is more than a
// day old, as a store may forget a key by the time of its order.
func (t *test) kindsOfOrders() []storefront.Order {
	kinds := []storefront.Order{{}}
	for _, item := range []string{
		"x", " teapot ", "Teapot", "tea\u00a0pot", "null", "0", "1.0",
		`"'\`, "'; DROP TABLE orders; --", "$1 ? :a %s {}", "<a>&amp;",
		"\u00e9", "e\u0301", "\u65e5\u672c\u8a9e", "\U0001f600\u200d\U0001f600", "\u2028\u2029",
		"\u200b\u202e\ufeff", "\ufffd", "\U0010fffd",
		strings.Repeat("x", 255), strings.Repeat("\u00e9", 255), strings.Repeat("\U0001f600", 255),
		strings.Repeat(" ", 254) + "x",
	} {
		kinds = append(kinds, storefront.Order{Item: item})
	}
	for _, qty := range []int64{
		1, 1<<15 - 1, 1 << 15, 1<<24 + 1, 1<<31 - 1, 1 << 31, 1 << 32, 1<<53 - 2, 1<<53 - 1,
	} {
		kinds = append(kinds, storefront.Order{Qty: qty})
	}
	for _, fields := range []storefront.Fields{
		`{}`, `{"b":1,"a":2}`, `{"n":[1.0,1e2,-0,0.10,12345678901234567890,1E400]}`,
		`{"":"\u0000\u001f\"\\é\u2028😀","null":null,"deep":` + storefront.Fields(strings.Repeat("[", 900)+
			strings.Repeat("]", 900)) + `}`,
		`{"long":"` + storefront.Fields(strings.Repeat("x", 16<<10-len(`{"long":""}`))) + `"}`,
	} {
		kinds = append(kinds, storefront.Order{Fields: fields})
	}
	second := t.now().Truncate(time.Second)
	for _, at := range []time.Time{
		second, second.Add(time.Millisecond), second.Add(120 * time.Millisecond),
		second.Add(999 * time.Millisecond),
		second.Add(-12 * time.Hour), second.Add(-23 * time.Hour),
		time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC), time.Date(2100, 7, 1, 12, 0, 0, 1e6, time.UTC),
		time.Date(2400, 2, 29, 23, 59, 59, 999e6, time.UTC),
	} {
		kinds = append(kinds, storefront.Order{CreatedAt: at})
	}
	for i := range kinds {
		rest := t.newOrder()
		kinds[i].ID = rest.ID
		kinds[i].Item = cmp.Or(kinds[i].Item, rest.Item)
		kinds[i].Qty = cmp.Or(kinds[i].Qty, rest.Qty)
		kinds[i].CreatedAt = cmp.Or(kinds[i].CreatedAt, rest.CreatedAt)
	}
	return kinds
}

func checkAsGiven(t *test) {
	store := t.newOrderStore()
	for _, order := range t.kindsOfOrders() {
		if d := orderDifference(t.create(store, newKey(), order), order); d != "" {
			t.wrong("it is returned as it was read back from a column that does not keep it, or the store "+
				"gives it an ID or a time of its own.", "The call that created %s returned %s.",
				orderText(order), d)
		}
	}
}

func checkReplay(t *test) {
	store := t.newOrderStore()
	for _, order := range t.kindsOfOrders() {
		t.checkReplaysOf(store, order)
	}
	t.checkRace(store)
}

// checkReplaysOf checks calls that repeat the one that creates an order.
func (t *test) checkReplaysOf(store storefront.Store, order storefront.Order) {
	key := newKey()
	first := t.create(store, key, order)
	if first.ID != order.ID {
		return // that the call returns the order as it was given is another promise
	}
	for _, id := range []string{t.newOrder().ID, t.newOrder().ID, order.ID} {
		again := order
		again.ID, again.CreatedAt = id, order.CreatedAt.Add(1234*time.Millisecond)
		got := t.create(store, key, again)
		if got.ID == id && id != order.ID {
			return // that the call creates no order is another promise
		}
		if d := orderDifference(got, order); d != "" {
			t.wrong("a column that does not keep it: a time without zone or milliseconds, an integer of 32 "+
				"bits, text that is trimmed, cut or normalized, a type for JSON that writes it in its own way.",
				"A repeated call with the key of %s returned %s.", orderText(order), d)
			return
		}
	}
}

// checkRace checks that those of several concurrent calls with one key that return the
// order of another return it as it is stored.
func (t *test) checkRace(store storefront.Store) {
	key, last := newKey(), t.newOrder()
	var proposed, got [callers]storefront.Order
	together(callers, func(i int) {
		proposed[i] = t.newOrder()
		proposed[i].CreatedAt = last.CreatedAt.Add(time.Duration(i) * time.Millisecond)
		got[i], _ = t.try(store, key, proposed[i])
	})
	stored := t.create(store, key, last)
	for i := range got {
		if got[i].ID != stored.ID || got[i].ID == proposed[i].ID {
			continue // that no call fails, and that only one creates, are other promises
		}
		if d := orderDifference(got[i], stored); d != "" {
			t.broken("a call that loses a race returns its order with the ID of the other.",
				"Of %d concurrent calls with one key, one returned the order %q with %s.", callers,
				stored.ID, d)
		}
	}
}
