package storetest

import (
	"errors"
	"sync"

	"example.com/storefront"
)

func checkAtomic(t *test) {
	const cause = "the order and the key are written by two statements without a transaction, so that a crash or a cancellation between them leaves one without the other."
	store := t.newOrderStore()
	orders, countable := optional[OrderLister](t, store, "that a call that was interrupted leaves no order without its key")
	for i := range t.interruptions(store) {
		again := t.newOrder()
		if _, err := t.createWithRetry(t.Context(), store, i.key, again); err != nil || !countable {
			continue // that the question is settled is another promise
		}
		if n := count(orders, i.order.ID, again.ID); n != 1 {
			t.broken(cause, "%v After a second call with the same key there are %d orders of the two calls, want 1.", i, n)
			return
		}
	}

	reopener, ok := optional[Reopener](t, store, "that a crash in the midst of calls leaves no order without its key, nor a key without its order")
	if !ok {
		return
	}
	// Each goroutine creates orders until one fails or the crash is over.
	type call struct {
		key    storefront.IdempotencyKey
		order  storefront.Order
		stored storefront.Order
		err    error
	}
	const goroutines, most = 8, 20
	calls := make([][]call, goroutines)
	begun, crashed := make(chan struct{}, goroutines*most), make(chan struct{})
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range most {
				c := call{key: newKey(), order: t.newOrder()}
				c.stored, c.err = store.CreateOrder(t.Context(), c.key, c.order)
				calls[g] = append(calls[g], c)
				begun <- struct{}{}
				select {
				case <-crashed:
					return
				default:
				}
				if c.err != nil && !isTemporary(c.err) {
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	for range 2 * goroutines {
		select {
		case <-begun:
		case <-ended: // calls failed
		}
	}
	reopened := t.reopen(reopener)
	close(crashed)
	<-ended
	if countable {
		orders, _ = optional[OrderLister](t, reopened, "")
	}
	for _, c := range calls {
		for _, c := range c {
			again := t.newOrder()
			stored, err := t.createWithRetry(t.Context(), reopened, c.key, again)
			switch {
			case err != nil:
				t.broken(cause, "A call was made while the store crashed, and returned the error %v. After the crash, another call with its key failed: %v", c.err, err)
				return
			case c.err == nil && stored.ID != c.stored.ID:
				// That it is still there is another promise.
			case countable && count(orders, c.order.ID, again.ID) != 1:
				t.broken(cause, "A call was made while the store crashed, and returned the error %v. After another call with its key there are %d orders of the two calls, want 1.", c.err, count(orders, c.order.ID, again.ID))
				return
			case stored.ID != again.ID && stored.ID != c.order.ID:
				t.broken(cause, "After a crash in the midst of a call with the order %s, another call with its key returned another order: %s.", orderText(c.order), orderText(stored))
				return
			}
		}
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
		key.Fingerprint[0] ^= 0xff
		_, err := t.createWithRetry(t.Context(), store, key, t.newOrder())
		return errors.Is(err, storefront.ErrKeyReused)
	}
	var keys []storefront.IdempotencyKey
	var stored []storefront.Order
	for range 2 {
		for range 10 {
			key := newKey()
			t.create(store, key, t.newOrder())
			keys = append(keys, key)
			stored = append(stored, t.create(store, key, t.newOrder())) // as replays have it
		}
		guard := newKey()
		t.create(store, guard, t.newOrder())
		refused := refuses(guard)
		store = t.reopen(reopener)
		for i, key := range keys {
			if d := orderDifference(t.create(store, key, t.newOrder()), stored[i]); d != "" {
				t.broken(cause, "After a crash, the key of the order %q, which was returned before, has an order with %s.", stored[i].ID, d)
				return
			}
		}
		if refused && !refuses(guard) {
			t.broken("fingerprints that are kept in memory alone.", "After a crash, a key is no longer refused to a call with another Fingerprint.")
			return
		}
		reopener, _ = optional[Reopener](t, store, "")
	}
}
