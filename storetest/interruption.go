package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"example.com/storefront"
)

// An interruption is an attempt whose context was cancelled at one of the moments
// when the store looked at it.
type interruption struct {
	attempt
	ctx  context.Context
	uses int // how often the store had looked at ctx by then
}

func (i interruption) String() string {
	if i.ctx.Err() == nil {
		return fmt.Sprintf("A call of CreateOrder returned the error %v.", i.err)
	}
	return fmt.Sprintf("A call of CreateOrder, cancelled at use %d of its context, returned the error %v.",
		i.uses, i.err)
}

// interruptions makes calls of CreateOrder with a new key each. The first one is
// cancelled when the store first looks at its context, the next one when it
// looks for the second time, and so on until one has not been cancelled.
func (t *test) interruptions(store storefront.Store) iter.Seq[interruption] {
	return func(yield func(interruption) bool) {
		for n, ctx := range moments(t.Context(), 25) {
			i := interruption{t.attempt(ctx, store), ctx.Context, n}
			if i.err != nil && i.ctx.Err() == nil && !isTemporary(i.err) {
				t.must("CreateOrder", i.err)
			}
			if !yield(i) {
				return
			}
		}
	}
}

func checkNoTrace(t *test) {
	store := t.newOrderStore()
	orders, _ := optional[OrderLister](t, store, "that calls that failed created no orders")
	const times = 15 // as a store may leave it to chance whether it looks at ctx first
	for _, done := range doneContexts(t.Context()) {
		for range times {
			key, order := newKey(), t.newOrder()
			if _, err := store.CreateOrder(done.ctx, key, order); err == nil {
				continue // that the call fails is another promise
			}
			t.checkTrace(store, orders, key, order, "A call whose context was "+done.what,
				"the context is looked at after the order was recorded.")
		}
	}
	if refuser, ok := optional[Refuser](t, store, "that orders that were refused leave no trace"); ok {
		t.checkTracesOfRefusals(store, orders, refuser)
	}
}

// checkTrace checks that a call that failed has left neither its order nor its
// key. The usual cause is that of the order's being there. The orders are nil if
// the store cannot list them.
func (t *test) checkTrace(store storefront.Store, orders OrderLister, key storefront.IdempotencyKey,
	order storefront.Order, call, usual string) {
	const cause = "the key is recorded before the order, and stays when the call fails; or failures are " +
		"remembered."
	if _, wrong := miscount(orders, 0, order.ID); wrong {
		t.broken(usual, "%s failed, but created its order.", call)
	}
	other, another := t.another(key)
	got, err := t.try(store, other, another)
	if err != nil {
		t.broken(cause, "%s failed. Then a call with the same key and another order failed: %v", call, err)
	}
	if got.ID != another.ID {
		t.broken(cause, "%s failed. Then a call with the same key and the order %q returned the order %q.",
			call, another.ID, got.ID)
	}
}

// checkTracesOfRefusals checks that refused orders are not there, not even after a
// crash.
func (t *test) checkTracesOfRefusals(store storefront.Store, orders OrderLister, refuser Refuser) {
	const cause = "it is decided after the order was recorded, and what was recorded is not rolled back."
	t.sellOut(refuser)
	var refused []string
	for range 3 {
		key, order := newKey(), t.newOrder()
		if _, err := t.try(store, key, order); err == nil {
			return // that the order is refused is another promise
		}
		t.checkTrace(store, orders, key, order, "A call whose order was refused", cause)
		refused = append(refused, order.ID)
	}
	if reopener, ok := optional[Reopener](t, store, ""); ok && orders != nil {
		orders, _ = optional[OrderLister](t, t.reopen(reopener), "")
		if n, wrong := miscount(orders, 0, refused...); wrong {
			t.broken(cause, "After a crash there are %d orders that were refused.", n)
		}
	}
}

func checkUnknown(t *test) {
	store := t.newOrderStore()
	for i := range t.interruptions(store) {
		if i.err != nil && !errors.Is(i.err, i.ctx.Err()) && !errors.Is(i.err, storefront.ErrUnavailable) {
			t.broken("an error of the driver is returned as it is. Return ctx.Err() where it is not nil.",
				"%v That matches neither %v nor ErrUnavailable.", i, i.ctx.Err())
		}
	}
}

func checkSettles(t *test) {
	const cause = "a call that was interrupted leaves a key without an order, or a lock."
	store := t.newOrderStore()
	for i := range t.interruptions(store) {
		again, third := t.newOrder(), t.newOrder()
		got, err := t.try(store, i.key, again)
		if err != nil {
			t.broken(cause, "%v Another call with its key failed: %v", i, err)
		}
		if i.err == nil && got.ID != i.stored.ID || got.ID != i.order.ID && got.ID != again.ID {
			t.broken(cause, "%v It had the order %s. Another call with its key and the order %s returned %s.",
				i, orderText(i.order), orderText(again), orderText(got))
		}
		if settled := t.create(store, i.key, third); settled.ID != got.ID {
			t.broken(cause,
				"%v The next one with its key returned the order %s. The third returned another: %s.", i,
				orderText(got), orderText(settled))
		}
	}
}
