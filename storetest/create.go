package storetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/storefront"
)

func checkExactlyOne(t *test) {
	store := t.newOrderStore()
	key := newKey()
	first := t.create(store, key, t.newOrder())
	for range 3 {
		order := t.newOrder()
		if got := t.create(store, key, order); got.ID == order.ID {
			t.broken("the key is not recorded, or the call's own order is returned, not the stored one.",
				"A call with a key that has the order %q returned the order that it was given, %q, as if "+
					"it were new.", first.ID, order.ID)
		}
	}

	orders, _ := optional[OrderLister](t, store,
		"that calls that returned the order of another call created none of their own")
	own := first
	own.CreatedAt = own.CreatedAt.Add(time.Second)
	t.create(store, key, own)
	if n, wrong := miscount(orders, 1, first.ID); wrong {
		t.broken("the stored order is taken for that of this very call, as it has the ID that the call has "+
			"proposed.", "After a call with a key that has an order, and with the ID of that order, "+
			"there are %d orders with the ID, want 1.", n)
	}

	for range rounds {
		t.checkOneCreates(store, orders)
	}
}

// checkOneCreates checks that exactly one of several concurrent calls with one key, and one more after
// them, creates an order, or none where some fail. The orders are nil if the store cannot list them.
func (t *test) checkOneCreates(store storefront.Store, orders OrderLister) {
	const cause = "the key is looked up first and recorded later (SELECT, then INSERT), so that concurrent " +
		"calls all find it unused. Let a unique constraint decide: INSERT … ON CONFLICT DO NOTHING."
	calls := fmt.Sprintf("%d concurrent calls with one key, and one after them", callers)
	key := newKey()
	var creators, ids [callers + 1]string
	var failed atomic.Bool
	call := func(i int) {
		order := t.newOrder()
		ids[i] = order.ID
		if got, err := t.try(store, key, order); err != nil {
			failed.Store(true)
		} else if got.ID == order.ID {
			creators[i] = order.ID
		}
	}
	together(callers, call)
	call(callers)
	created := slices.DeleteFunc(creators[:], func(id string) bool { return id == "" })
	if failed.Load() && len(created) == 0 {
		return // that no call fails is another promise
	}
	if len(created) != 1 {
		t.broken(cause, "Of %s, %d returned the order that they had proposed, want 1: %q.", calls,
			len(created), created)
	}
	if n, wrong := miscount(orders, 1, ids[:]...); wrong {
		t.broken(cause, "%s created %d orders, want 1.", calls, n)
	}
}

func checkInProgress(t *test) {
	store := t.newOrderStore()
	for range rounds {
		t.checkOutcomes(store)
	}
	const moments = 8
	for n := range 4 * moments { // each several times, as one of the others may be faster
		t.checkFirstGoesAway(store, 1+n%moments)
	}
}

// checkOutcomes checks that concurrent calls with one key all return an order.
func (t *test) checkOutcomes(store storefront.Store) {
	key := newKey()
	var got [callers]storefront.Order
	var errs [callers]error
	together(callers, func(i int) {
		got[i], errs[i] = t.try(store, key, t.newOrder())
	})
	for i, err := range errs {
		switch {
		case isTemporary(err):
			t.broken("what is in progress does not come to an end.",
				"Of %d concurrent calls with one key, one still failed after many attempts: %v", callers, err)
		case err != nil:
			t.broken("the call that comes second sees the unique constraint and returns its error. It "+
				"must read the order of the first and return that.",
				"Of %d concurrent calls with one key, one failed with an error that matches neither "+
					"ErrInProgress nor ErrUnavailable: %v", callers, err)
		case got[i].ID == "":
			t.broken("the call that comes second returns before the first has recorded its order.",
				"Of %d concurrent calls with one key, one returned an order without ID and no error.",
				callers)
		}
	}
}

// checkFirstGoesAway makes a call whose context is cancelled when it is used for the
// nth time. Others with its key begin as soon as the store first looks at that
// context. They all return an order.
func (t *test) checkFirstGoesAway(store storefront.Store, n int) {
	key := newKey()
	ctx := newCountdown(t.Context(), n)
	var wg sync.WaitGroup
	var errs [callers]error
	ctx.first = func() {
		for i := range errs {
			wg.Go(func() { _, errs[i] = t.try(store, key, t.newOrder()) })
		}
	}
	store.CreateOrder(ctx, key, t.newOrder())
	ctx.cancel()
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.broken("calls with one key are joined, and fail when the context of the first is done; or a "+
				"cancelled call leaves something behind that makes others fail.",
				"A call was cancelled (at use %d of its context), and meanwhile one of %d others with its "+
					"key failed: %v", n, callers, err)
		}
	}
}
