package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/storefront"
)

func readerPromises() []promise {
	return []promise{
		{"Methods may be called concurrently, and once ctx is done, one returns promptly, with an error that " +
			"matches ctx.Err()", reads(checkReadersLeave)},
		{"GetOrder returns the order whose ID is id", reads(checkGetOrder)},
		{"If there is none, or it is another scope's, it returns ErrNotFound", reads(checkNoOrder)},
		{"ListOrders returns the orders of a scope in descending byte order of ID, which is newest first",
			reads(checkOrderList)},
		{`It begins with the first whose ID is less than after, byte by byte, or with the last of all if after is ""`,
			reads(checkAfter)},
		{"It returns at most limit orders, and fewer only if no more follow", reads(checkOrderLimit)},
		{"GetOrderByKey returns the order that was created with a key, as long as CreateOrder would return it for " +
			"this key, and perhaps longer", reads(checkOrderByKey)},
		{"If no order has been created with the key, it returns ErrNotFound", reads(checkNoKey)},
		{"An order that CreateOrder has returned is there for every call that begins later", reads(checkReadAtOnce)},
	}
}

// reads makes a check of one of a store that reads orders back.
func reads(check func(*test, storefront.Store, storefront.OrderReader)) func(*test) {
	return func(t *test) {
		store := t.newStore(Contents{})
		if orders, ok := optional[storefront.OrderReader](t, store, "that orders are read back"); ok {
			check(t, store, watchedReader{orders, t})
		}
	}
}

// orders creates n orders of a scope, in no sequence of their IDs, and returns them by descending ID.
func (t *test) orders(store storefront.Store, scope string, n int) []storefront.Order {
	t.Helper()
	orders := make([]storefront.Order, n)
	for i := range orders {
		orders[i] = t.newOrder()
		orders[i].Qty = int64(i + 1)
		if t.bubble {
			time.Sleep(time.Millisecond)
		}
	}
	for i := range orders {
		order := orders[(i+n/2)%n]
		key := newKey()
		key.Scope = scope
		if got := t.create(store, key, order); got.ID != order.ID {
			t.unable("CreateOrder returned an order with another ID.")
		}
	}
	slices.SortFunc(orders, newestFirst)
	return orders
}

func newestFirst(a, b storefront.Order) int { return cmp.Compare(b.ID, a.ID) }

// readKeys are distinctKeys, none of which has the scope "": the service reads nothing there.
func readKeys() []storefront.IdempotencyKey {
	keys := distinctKeys()
	for i := range keys {
		keys[i].Scope = cmp.Or(keys[i].Scope, "u")
	}
	return keys
}

// listed checks a page against the orders that it has.
func (t *test) listed(orders storefront.OrderReader, cause, scope, after string, limit int, want []storefront.Order) {
	t.Helper()
	call := fmt.Sprintf("ListOrders(ctx, %q, %q, %d)", scope, after, limit)
	page, err := orders.ListOrders(t.Context(), scope, after, limit)
	t.must(call, err)
	var ids []string
	for _, o := range want {
		ids = append(ids, o.ID)
	}
	if d := difference(idsOf(page), ids); d != "" {
		t.wrong(cause, "%s returned %s.", call, d)
		return
	}
	for i, got := range page {
		t.sameOrder(call, got, want[i])
	}
}

// sameOrder checks that a Resource is that of an order, or has more members.
func (t *test) sameOrder(call string, got storefront.Resource, want storefront.Order) {
	t.Helper()
	with, err := got.With(want)
	if err != nil || !with.Equal(got) {
		t.wrong("it is made from other columns than NewResource(o.ID, o) makes it from the order.",
			"%s returned %s, want %s, perhaps with more members.", call, got, storefront.MustResource(want.ID, want))
	}
}

// isNotFound checks that there is no order for a call.
func (t *test) isNotFound(cause, call string, got storefront.Resource, err error) {
	t.Helper()
	switch {
	case err == nil:
		t.wrong(cause, "%s returned the order %q.", call, got.ID())
	case !errors.Is(err, storefront.ErrNotFound):
		t.wrong("what the database returns for no row is not turned into ErrNotFound.",
			"%s returned an error that does not match ErrNotFound: %v", call, err)
	}
}

const anotherScope = "the scope is not compared, or not byte for byte."

func checkGetOrder(t *test, store storefront.Store, orders storefront.OrderReader) {
	for _, order := range t.kindsOfOrders() {
		key := newKey()
		t.create(store, key, order)
		call := fmt.Sprintf("GetOrder(ctx, %q, %q)", key.Scope, order.ID)
		got, err := orders.GetOrder(t.Context(), key.Scope, order.ID)
		t.must(call, err)
		t.sameOrder(call, got, order)
	}
}

func checkNoOrder(t *test, store storefront.Store, orders storefront.OrderReader) {
	order := t.orders(store, "account 1", 1)[0]
	for scope, ids := range map[string][]string{
		"account 1": {"ord_", order.ID + " ", order.ID[:len(order.ID)-1], strings.ToUpper(order.ID), "%", "a/b", "\U0001f375"},
		"account 2": {order.ID}, "Account 1": {order.ID}, "account 1 ": {order.ID}, "account": {order.ID},
	} {
		for _, id := range ids {
			got, err := orders.GetOrder(t.Context(), scope, id)
			t.isNotFound(anotherScope, fmt.Sprintf("GetOrder(ctx, %q, %q)", scope, id), got, err)
		}
	}
}

func checkOrderList(t *test, store storefront.Store, orders storefront.OrderReader) {
	const cause = "they are sorted by another column or in the other direction, or those of another scope are listed."
	own, others := t.orders(store, "account 1", 7), t.orders(store, "account 2", 3)
	t.listed(orders, cause, "account 1", "", 100, own)
	t.listed(orders, cause, "account 2", "", 100, others)
	created := make(map[string][]storefront.Order) // by scope
	for _, key := range readKeys() {
		order := t.create(store, key, t.newOrder())
		created[key.Scope] = append(created[key.Scope], order)
	}
	for scope, own := range created {
		slices.SortFunc(own, newestFirst)
		t.listed(orders, anotherScope, scope, "", 100, own)
	}
	for _, scope := range []string{"account", "account 3", "Account 1", "account 1 "} {
		t.listed(orders, anotherScope, scope, "", 100, nil)
	}
}

func checkAfter(t *test, store storefront.Store, orders storefront.OrderReader) {
	own := t.orders(store, "account 1", 5)
	t.orders(store, "account 2", 2)
	for i, order := range own {
		t.listed(orders, "the order at the position is listed, too, or the comparison has the other direction.",
			"account 1", order.ID, 100, own[i+1:])
		t.listed(orders, "the position is looked up, and no order has it.", "account 1", order.ID+"0", 100, own[i:])
	}
	t.listed(orders, "", "account 1", "ord", 100, nil)
	t.listed(orders, "", "account 1", "z", 100, own)
}

func checkOrderLimit(t *test, store storefront.Store, orders storefront.OrderReader) {
	own := t.orders(store, "account 1", 120)
	for _, limit := range []int{1, 2, 119, 120, 121, 501} {
		t.listed(orders, "the limit is off by one, or the store has one of its own.", "account 1", "", limit,
			own[:min(limit, len(own))])
	}
}

func checkOrderByKey(t *test, store storefront.Store, orders storefront.OrderReader) {
	keys, created := readKeys(), make(map[int]storefront.Order)
	for i, key := range keys {
		created[i] = t.create(store, key, t.newOrder())
	}
	for i, key := range keys {
		call := fmt.Sprintf("GetOrderByKey(ctx, %.60q, %.60q)", key.Scope, key.Value)
		got, err := orders.GetOrderByKey(t.Context(), key.Scope, key.Value)
		t.must(call, err)
		t.sameOrder(call, got, created[i])
	}
}

func checkNoKey(t *test, store storefront.Store, orders storefront.OrderReader) {
	for _, key := range readKeys() {
		got, err := orders.GetOrderByKey(t.Context(), key.Scope, key.Value)
		t.isNotFound("keys are compared by a collation, or scope and value are joined.", fmt.Sprintf(
			"GetOrderByKey(ctx, %.60q, %.60q), where no order has the key,", key.Scope, key.Value), got, err)
		t.create(store, key, t.newOrder()) // which the next keys resemble
	}
}

func checkReadersLeave(t *test, store storefront.Store, orders storefront.OrderReader) {
	key, order := newKey(), t.newOrder()
	t.create(store, key, order)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, byID := orders.GetOrder(ctx, key.Scope, order.ID)
	_, byKey := orders.GetOrderByKey(ctx, key.Scope, key.Value)
	_, list := orders.ListOrders(ctx, key.Scope, "", 5)
	for method, err := range map[string]error{"GetOrder": byID, "GetOrderByKey": byKey, "ListOrders": list} {
		if !errors.Is(err, context.Canceled) {
			t.wrong("ctx is not passed on.", "%s with a context that was cancelled returned the error %v.", method, err)
		}
	}
}

// checkReadAtOnce reads while other calls create, as a pool of connections or a cache may show what was.
func checkReadAtOnce(t *test, store storefront.Store, orders storefront.OrderReader) {
	for range rounds {
		var missed [callers]string
		together(callers, func(i int) {
			key, order := newKey(), t.newOrder()
			key.Scope = fmt.Sprintf("account %d", i%4)
			if _, err := t.try(store, key, order); err != nil {
				return
			}
			read := func(name string, get func() (storefront.Resource, error)) {
				if got, err := get(); err != nil || got.ID() != order.ID {
					missed[i] = fmt.Sprintf("%s returned %s, %v for the order %q", name, got, err, order.ID)
				}
			}
			read("GetOrder", func() (storefront.Resource, error) {
				return orders.GetOrder(t.Context(), key.Scope, order.ID)
			})
			read("GetOrderByKey", func() (storefront.Resource, error) {
				return orders.GetOrderByKey(t.Context(), key.Scope, key.Value)
			})
			read("ListOrders", func() (got storefront.Resource, err error) {
				page, err := orders.ListOrders(t.Context(), key.Scope, "", 501)
				for _, listed := range page {
					if listed.ID() == order.ID {
						got = listed
					}
				}
				return got, err
			})
		})
		for _, text := range missed {
			if text != "" {
				t.wrong("reads go to a replica, or to a cache.", "%s, which CreateOrder had returned.", text)
			}
		}
	}
}
