package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/storefront"
)

func checkExactlyOne(t *test) {
	const cause = "the key is looked up first and recorded later (SELECT, then INSERT), so that concurrent calls all find it unused. Let a unique constraint decide: INSERT … ON CONFLICT DO NOTHING."
	store := t.newOrderStore()
	key := newKey()
	first := t.create(store, key, t.newOrder())
	for range 3 {
		order := t.newOrder()
		if got := t.create(store, key, order); got.ID == order.ID {
			t.broken("the key is not recorded, or the call's own order is returned instead of the stored one.",
				"A call with a key that has the order %q returned the order that it was given, %q, as if it were new.", first.ID, order.ID)
			return
		}
	}

	orders, countable := optional[OrderLister](t, store, "that calls that returned the order of another call created none of their own")
	own := first
	own.CreatedAt = own.CreatedAt.Add(time.Second)
	t.create(store, key, own)
	if countable {
		if n := count(orders, first.ID); n != 1 {
			t.broken(takenForOwn, "After a call with a key that has an order, and with the ID of that order, there are %d orders with the ID, want 1.", n)
			return
		}
	}

	const rounds, callers = 6, 16
	refuser, refuses := optional[Refuser](t, store, "")
	for round := range 2 * rounds {
		calls := fmt.Sprintf("%d concurrent calls with one key, and one after them", callers)
		changing := round >= rounds
		if changing {
			if !refuses {
				return
			}
			calls = fmt.Sprintf("%d concurrent calls with one key, while its item was sold out now and then, and one after them", callers)
			t.sellOut(refuser)
		}
		key := newKey()
		var proposed, got [callers + 1]storefront.Order
		for i := range proposed {
			proposed[i] = t.newOrder()
		}
		var returned atomic.Int64
		var err error
		together(callers+1, func(i int) {
			if i < callers {
				// That no call fails is another promise.
				got[i], _ = t.createWithRetry(t.Context(), store, key, proposed[i])
				returned.Add(1)
				return
			}
			// The pauses let the clock of a bubble move, and grow for a store that
			// takes its time.
			for n := 1; changing && err == nil && returned.Load() < callers; n++ {
				time.Sleep(time.Duration(n) * time.Microsecond)
				if n%2 != 0 {
					err = refuser.Restock(t.Context(), teapot)
				} else {
					_, err = refuser.SellOut(t.Context(), teapot)
				}
			}
		})
		if err != nil {
			t.failed("SellOut or Restock", err)
		}
		if changing {
			t.restock(refuser)
		}
		got[callers], _ = t.createWithRetry(t.Context(), store, key, proposed[callers])
		var creators, ids []string
		failed := false
		for i := range proposed {
			ids = append(ids, proposed[i].ID)
			switch got[i].ID {
			case proposed[i].ID:
				creators = append(creators, proposed[i].ID)
			case "":
				failed = true
			}
		}
		if failed && len(creators) == 0 {
			continue
		}
		if len(creators) != 1 {
			t.broken(cause, "Of %s, %d returned the order that they had proposed, want 1: %q.", calls, len(creators), creators)
			return
		}
		if countable {
			if n := count(orders, ids...); n != 1 {
				t.broken(cause, "%s created %d orders, want 1.", calls, n)
				return
			}
		}
	}
}

func checkInProgress(t *test) {
	const cause = "the call that comes second sees the unique constraint and returns its error. It must read the order of the first and return that."
	store := t.newOrderStore()
	const rounds, callers = 6, 16
	for range rounds {
		key := newKey()
		var got [callers]storefront.Order
		var errs [callers]error
		together(callers, func(i int) {
			got[i], errs[i] = t.createWithRetry(t.Context(), store, key, t.newOrder())
		})
		for i, err := range errs {
			switch {
			case isTemporary(err):
				t.broken("what is in progress does not come to an end.", "Of %d concurrent calls with one key, one still failed after many attempts: %v", callers, err)
				return
			case err != nil:
				t.broken(cause, "Of %d concurrent calls with one key, one failed with an error that matches neither ErrInProgress nor ErrUnavailable: %v", callers, err)
				return
			case got[i].ID == "":
				t.broken("the call that comes second returns before the first has recorded its order.", "Of %d concurrent calls with one key, one returned an order without ID and no error.", callers)
				return
			}
		}
	}

	// The first one may go away while others wait for it. They begin when it has
	// just begun, as it looks at its context.
	for n := 1; n <= 8; n++ {
		key := newKey()
		ctx := newCountdown(t.Context(), n)
		var wg sync.WaitGroup
		var errs [callers]error
		ctx.first = func() {
			for i := range errs {
				wg.Go(func() { _, errs[i] = t.createWithRetry(t.Context(), store, key, t.newOrder()) })
			}
		}
		store.CreateOrder(ctx, key, t.newOrder())
		ctx.cancel()
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				t.broken("calls with one key are joined, and fail when the context of the first is done; or a cancelled call leaves something behind that makes others fail.",
					"A call was cancelled (at use %d of its context), and meanwhile one of %d others with its key failed: %v", n, callers, err)
				return
			}
		}
	}
}
