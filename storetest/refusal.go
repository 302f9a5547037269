package storetest

import (
	"cmp"
	"errors"
	"sync"

	"example.com/storefront"
)

// sellOut makes the store refuse teapots, and returns the refusal to be expected.
func (t *test) sellOut(store Refuser) storefront.Refusal {
	t.Helper()
	refusal, err := store.SellOut(t.Context(), teapot)
	t.must("SellOut", err)
	return refusal
}

// restock makes the store accept teapots again.
func (t *test) restock(store Refuser) {
	t.Helper()
	t.must("Restock", store.Restock(t.Context(), teapot))
}

// refusalOf returns the refusal that an error matches, or nil.
func refusalOf(err error) *storefront.Refusal {
	refusal, _ := errors.AsType[*storefront.Refusal](err)
	return refusal
}

// refusalDifference says in which fields a refusal differs from the expected one,
// whose empty fields may be anything. It returns "" if there are none.
func refusalDifference(got, want storefront.Refusal) string {
	return differences(
		field{"Reason", got.Reason, cmp.Or(want.Reason, got.Reason)},
		field{"Detail", got.Detail, cmp.Or(want.Detail, got.Detail)},
		field{"Pointer", got.Pointer, cmp.Or(want.Pointer, got.Pointer)},
	)
}

func checkRefusal(t *test) {
	store := t.newOrderStore()
	refuser, ok := optional[Refuser](t, store, "what a refusal leaves, for a store that refuses orders")
	if !ok {
		return
	}
	want := t.sellOut(refuser)
	key, order := newKey(), t.newOrder()
	t.checkRefused(store, key, order, want)
	for range rounds {
		t.checkOthersAreCreated(store)
	}
	t.restock(refuser)
	t.checkDecidedAnew(store, key, order)
}

// checkRefused checks that two calls with a new key are both refused with what is
// wanted.
func (t *test) checkRefused(store storefront.Store, key storefront.IdempotencyKey, order storefront.Order,
	want storefront.Refusal) {
	for again, what := range []string{"a new key", "a key that was refused"} {
		got, err := t.try(store, key, order)
		if err == nil && again == 0 {
			t.unable("After SellOut(ctx, %q), CreateOrder with a new key and an order for the item "+
				"returned the order %q and no error.", teapot, got.ID)
		}
		if err == nil {
			t.broken("it is decided after the order was recorded, and the key is not rolled back.",
				"A call was refused. Another with its key returned the order %q and no error, though the "+
					"item was still sold out.", got.ID)
		}
		refusal := refusalOf(err)
		if refusal == nil {
			t.broken("the Refusal is made into text (%v instead of %w), is no pointer, or a nil one.",
				"The error of a call with %s, whose order was refused, does not match "+
					"*storefront.Refusal: %v", what, err)
		}
		if d := refusalDifference(*refusal, want); d != "" {
			t.broken("the Refusal is made anew on its way, and not of all its parts.",
				"The order of a call with %s was refused with %s.", what, d)
		}
	}
}

// checkOthersAreCreated makes concurrent calls with a key each. Every second order is
// for teapots, which are sold out. The others are created, and stay.
func (t *test) checkOthersAreCreated(store storefront.Store) {
	var keys [callers]storefront.IdempotencyKey
	var proposed, got [callers]storefront.Order
	var errs [callers]error
	for i := range keys {
		keys[i], proposed[i] = newKey(), t.newOrder()
		if i%2 == 0 {
			keys[i], proposed[i] = t.another(keys[i])
		}
	}
	together(callers, func(i int) {
		got[i], errs[i] = t.try(store, keys[i], proposed[i])
	})
	for i := range callers {
		switch refused := refusalOf(errs[i]) != nil; {
		case i%2 == 0 && refused:
			t.broken("orders are committed together, and all of them are refused if one is.",
				"Of %d concurrent calls with a key each, half of them for an item that was sold out, one "+
					"for another item was refused: %v", callers, errs[i])
		case errs[i] != nil && !refused:
			t.must("CreateOrder", errs[i])
		case errs[i] == nil && i%2 != 0:
			t.broken("it is decided once for orders that are committed together.",
				"Of %d concurrent calls with a key each, one for an item that was sold out created the "+
					"order %q.", callers, got[i].ID)
		}
	}
	for i := 0; i < callers; i += 2 {
		if again := t.create(store, keys[i], proposed[(i+2)%callers]); again.ID != got[i].ID {
			t.broken("orders are committed together, and all of them are rolled back if one is refused.",
				"Of %d concurrent calls with a key each, one returned the order %q, while others were "+
					"refused. Then its key had the order %q.", callers, got[i].ID, again.ID)
		}
	}
}

// checkDecidedAnew checks that the key of an order that was refused now creates one,
// and that every later call with it returns that order.
func (t *test) checkDecidedAnew(store storefront.Store, key storefront.IdempotencyKey,
	refused storefront.Order) {
	const cause = "the refusal is recorded as the outcome of the key. Record nothing of a refused order."
	again := t.newOrder()
	got, err := t.try(store, key, again)
	if err != nil {
		t.broken(cause, "A call was refused. After Restock, another with its key failed: %v", err)
	}
	if got.ID != again.ID {
		t.broken(cause, "A call with the order %q was refused. After Restock, another with its key and "+
			"the order %q returned the order %q.", refused.ID, again.ID, got.ID)
	}
	if third := t.create(store, key, t.newOrder()); third.ID != got.ID {
		t.broken("the refusal leaves something behind for which the key is not recorded later on.",
			"A call was refused. Another with its key created the order %q, and the next one returned the "+
				"order %q.", got.ID, third.ID)
	}
}

func checkNeverRefused(t *test) {
	store := t.newOrderStore()
	refuser, ok := optional[Refuser](t, store, "that what can no longer be ordered can still be asked for "+
		"with its key, for a store that refuses orders")
	if !ok {
		return
	}
	key, order := newKey(), t.newOrder()
	t.create(store, key, order)
	first := t.create(store, key, t.newOrder()) // as a replay returns it
	if first.ID != order.ID {
		t.unable("A second call with the key of the order %q returned the order %q.", order.ID, first.ID)
	}
	t.sellOut(refuser)
	t.checkReplaysOfSoldOut(store, key, first)
	t.checkSoldOutTogether(store, key)
	for n, ctx := range moments(t.Context(), 25) {
		t.checkSoldOutAmidCall(store, refuser, n, ctx)
	}
	if reopener, ok := optional[Reopener](t, store, ""); ok {
		t.checkSoldOutAfterCrash(store, refuser, reopener, key)
	}
}

// sold is how what happens to an order begins whose item is sold out.
const sold = "After the item of an order was sold out"

// checkReplaysOfSoldOut checks that calls with the key of an order whose item is
// sold out return that order, or ErrKeyReused if they have another fingerprint.
func (t *test) checkReplaysOfSoldOut(store storefront.Store, key storefront.IdempotencyKey,
	first storefront.Order) {
	const cause = "it is decided before the key is looked for, or by a wrapper, which cannot look for it."
	for range 2 {
		got, err := t.try(store, key, t.newOrder())
		if err != nil {
			t.broken(cause, "%s, a call with the order's key failed: %v", sold, err)
		}
		if d := orderDifference(got, first); d != "" {
			t.broken(cause, "%s, a call with the order's key returned one with %s.", sold, d)
		}
	}
	_, err := t.try(store, withAnotherFingerprint(key), t.newOrder())
	if refusalOf(err) != nil && !errors.Is(err, storefront.ErrKeyReused) {
		t.broken("the key is looked for together with its fingerprint.",
			"%s, a call with the order's key and another Fingerprint was refused, and does not match "+
				"ErrKeyReused: %v", sold, err)
	}
}

// checkSoldOutTogether checks that none of several concurrent calls is refused
// that have the key of an order whose item is sold out.
func (t *test) checkSoldOutTogether(store storefront.Store, key storefront.IdempotencyKey) {
	var errs [callers]error
	together(callers, func(i int) { _, errs[i] = t.try(store, key, t.newOrder()) })
	for _, err := range errs {
		if refusalOf(err) != nil {
			t.broken("the key is not looked for where calls meet.",
				"%s, one of %d concurrent calls with the order's key was refused: %v", sold, callers, err)
		}
	}
}

// checkSoldOutAmidCall sells out an item when the store looks for the nth time at the
// context of a call that orders it. Other calls with the key begin then, and are not
// to be refused if the first has created the order: they wait for its outcome.
func (t *test) checkSoldOutAmidCall(store storefront.Store, refuser Refuser, n int, ctx *countdownContext) {
	t.restock(refuser)
	key, order := newKey(), t.newOrder()
	now, sold := make(chan struct{}), make(chan struct{})
	end := ctx.cancel
	ctx.cancel = sync.OnceFunc(func() { close(now) }) // the context itself goes on
	var wg sync.WaitGroup
	var failure error
	wg.Go(func() {
		defer close(sold) // also if SellOut ends the goroutine, as t.Fatal does
		<-now
		_, failure = refuser.SellOut(t.Context(), teapot)
	})
	var later [callers / 2]error
	for i := range later {
		wg.Go(func() {
			<-sold
			_, later[i] = t.try(store, key, t.newOrder())
		})
	}
	got, err := t.tryWith(ctx, store, key, order)
	ctx.cancel()
	wg.Wait()
	end()
	if failure != nil {
		t.must("SellOut", failure)
	}
	for _, refused := range later {
		if err == nil && refusalOf(refused) != nil {
			t.broken("to look for the key, to decide and to record the order are not one step. Claim the "+
				"key before it is decided (INSERT, then decide, then commit).",
				"While a call was in progress (at use %d of its context) its item was sold out. It "+
					"created the order %q, but another with its key was refused: %v", n, got.ID, refused)
		}
	}
}

// checkSoldOutAfterCrash checks that the key of an order is not refused after a crash,
// either. No call uses the key between the crash and the one that may be refused, as
// that might put it into the store's memory. Another key shows that the store has
// kept its keys, which is another promise.
func (t *test) checkSoldOutAfterCrash(store storefront.Store, refuser Refuser, reopener Reopener,
	key storefront.IdempotencyKey) {
	t.restock(refuser)
	another, order := newKey(), t.newOrder()
	t.create(store, another, order)
	store = t.reopen(reopener)
	refuser, _ = optional[Refuser](t, store, "")
	t.restock(refuser)
	if t.create(store, another, t.newOrder()).ID != order.ID {
		return
	}
	t.sellOut(refuser)
	if _, err := t.try(store, key, t.newOrder()); err != nil {
		t.broken("it is decided by what the store has in memory.",
			"%s, and after a crash, a call with the order's key failed: %v", sold, err)
	}
}
