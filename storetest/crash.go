package storetest

import (
	"errors"
	"slices"
	"sync"

	"example.com/storefront"
)

const notAtomic = "the order and the key are written by two statements without a transaction, so that a " +
	"crash or a cancellation between them leaves one without the other."

func checkAtomic(t *test) {
	store := t.newOrderStore()
	orders, _ := optional[OrderLister](t, store,
		"that a call that was interrupted leaves no order without its key")
	for i := range t.interruptions(store) {
		again := t.newOrder()
		if _, err := t.try(store, i.key, again); err != nil {
			continue // that the question is settled is another promise
		}
		if n, wrong := miscount(orders, 1, i.order.ID, again.ID); wrong {
			t.broken(notAtomic, "%v After a second call with the same key there are %d orders of the two "+
				"calls, want 1.", i, n)
		}
	}

	reopener, ok := optional[Reopener](t, store,
		"that a crash in the midst of calls leaves no order without its key, nor a key without its order")
	if !ok {
		return
	}
	attempts, store := t.crashAmidCalls(store, reopener)
	if orders != nil {
		orders, _ = optional[OrderLister](t, store, "")
	}
	for _, a := range attempts {
		t.checkWhole(store, orders, a)
	}
}

// crashAmidCalls crashes the store while several goroutines create orders. It
// returns all their attempts, and the store after the crash. Each goroutine goes on
// until one of its calls fails or the crash is over.
func (t *test) crashAmidCalls(store storefront.Store, reopener Reopener) ([]attempt, storefront.Store) {
	const goroutines, most = 8, 20
	attempts := make([][]attempt, goroutines)
	returned, crashed := make(chan struct{}, goroutines*most), make(chan struct{})
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range most {
				a := t.attempt(t.Context(), store)
				attempts[g] = append(attempts[g], a)
				returned <- struct{}{}
				select {
				case <-crashed:
					return
				default:
				}
				if a.err != nil && !isTemporary(a.err) {
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wg.Wait()
	}()
	for range 2 * goroutines {
		select {
		case <-returned:
		case <-ended: // early, as calls have failed
		}
	}
	reopened := t.reopen(reopener)
	close(crashed)
	<-ended
	return slices.Concat(attempts...), reopened
}

// checkWhole checks that an attempt during a crash has left both the order and
// the key, or neither. The orders are nil if the store cannot list them.
func (t *test) checkWhole(store storefront.Store, orders OrderLister, a attempt) {
	again := t.newOrder()
	stored, err := t.try(store, a.key, again)
	n, wrong := miscount(orders, 1, a.order.ID, again.ID)
	switch {
	case err != nil:
		t.broken(notAtomic, "A call was made while the store crashed, and returned the error %v. After the "+
			"crash, another call with its key failed: %v", a.err, err)
	case a.err == nil && stored.ID != a.stored.ID:
		return // that an order survives the crash is another promise
	case wrong:
		t.broken(notAtomic, "A call was made while the store crashed, and returned the error %v. After "+
			"another call with its key there are %d orders of the two calls, want 1.", a.err, n)
	case stored.ID != again.ID && stored.ID != a.order.ID:
		t.broken(notAtomic, "After a crash in the midst of a call with the order %s, another call with "+
			"its key returned another order: %s.", orderText(a.order), orderText(stored))
	}
}

func checkCrash(t *test) {
	const cause = "a write that is acknowledged before it is on disk, or keys that are kept in memory alone."
	store := t.newOrderStore()
	reopener, ok := optional[Reopener](t, store, "what a crash leaves, for a store that is to survive one")
	if !ok {
		return
	}
	refuses := func(key storefront.IdempotencyKey) bool {
		_, err := t.try(store, withAnotherFingerprint(key), t.newOrder())
		return errors.Is(err, storefront.ErrKeyReused)
	}
	var keys []storefront.IdempotencyKey
	var stored []storefront.Order
	for range 2 {
		for range 10 {
			key := newKey()
			t.create(store, key, t.newOrder())
			keys = append(keys, key)
			stored = append(stored, t.create(store, key, t.newOrder())) // as a replay returns it
		}
		guard := newKey()
		t.create(store, guard, t.newOrder())
		refused := refuses(guard)
		store = t.reopen(reopener)
		for i, key := range keys {
			if d := orderDifference(t.create(store, key, t.newOrder()), stored[i]); d != "" {
				t.broken(cause, "After a crash, the key of the order %q, which was returned before, has "+
					"an order with %s.", stored[i].ID, d)
			}
		}
		if refused && !refuses(guard) {
			t.broken("fingerprints that are kept in memory alone.",
				"After a crash, a key is no longer refused to a call with another Fingerprint.")
		}
		reopener, _ = optional[Reopener](t, store, "")
	}
}
