package storetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/orderid"
)

func orderPromises() []promise {
	return []promise{
		{"The order and the key are recorded in one atomic step", checkAtomic},
		{"Of any number of calls with the same key, concurrent or not, exactly one creates an order",
			checkExactlyOne},
		{"A Store that survives a crash has every order that it returned before, with its key", checkCrash},
		{"The call that creates an order returns it as it was given", checkAsGiven},
		{"Every other call returns the stored order, equal in all five fields, even if it proposes " +
			"the same ID", checkReplay},
		{"Two keys are the same key if Scope and Value are equal byte for byte, and only then", checkSameKey},
		{"A call whose key has been used with another Fingerprint changes nothing and returns ErrKeyReused",
			checkReused},
		{"A call that meets another in progress with the same key waits for its outcome, or returns " +
			"ErrInProgress if the Store cannot wait", checkInProgress},
		{"A refusal is not remembered: the next call with the key is decided anew", checkRefusal},
		{"A key that has created an order is never refused, whatever has changed since", checkNeverRefused},
		{"A key is remembered for at least KeyLifetime", checkLifetime},
		{"A call that fails without creating an order leaves no trace: its key may be used again, with " +
			"any order", checkNoTrace},
		{"If ctx is done or a failure occurs while it is unknown whether the order has been recorded, " +
			"CreateOrder returns an error that matches ctx.Err() or ErrUnavailable", checkUnknown},
		{"A later call with the same key then settles the question", checkSettles},
	}
}

// Where calls meet, it takes several of them, and luck: the suite makes so many at the
// same time, so many times.
const callers, rounds = 16, 6

// teapot is the item of most orders, and the only one that is sold out at times.
const teapot = "teapot"

// newOrder returns an order as the service proposes one.
func (t *test) newOrder() storefront.Order {
	return storefront.Order{ID: orderid.New(t.now()), Item: teapot, Qty: 2, CreatedAt: t.now()}
}

// newKey returns a key that no call has used, for an order of newOrder.
func newKey() storefront.IdempotencyKey {
	return storefront.IdempotencyKey{Scope: "account 1", Value: rand.Text(),
		Fingerprint: sha256.Sum256([]byte("teapot 2"))}
}

// withAnotherFingerprint returns the key as a call with another order has it.
func withAnotherFingerprint(key storefront.IdempotencyKey) storefront.IdempotencyKey {
	key.Fingerprint[0] ^= 0xff
	return key
}

// another returns another order, and the key with the fingerprint of that order.
func (t *test) another(key storefront.IdempotencyKey) (storefront.IdempotencyKey, storefront.Order) {
	order := t.newOrder()
	order.Item, order.Qty = "kettle", 3
	key.Fingerprint = sha256.Sum256([]byte("kettle 3"))
	return key, order
}

func keyText(key storefront.IdempotencyKey) string {
	text := fmt.Sprintf("{Scope: %.100q, Value: %.100q", key.Scope, key.Value)
	if n := len(key.Scope) + len(key.Value); n > 200 {
		text += fmt.Sprintf(" (%d bytes)", n)
	}
	return text + "}"
}

func orderText(o storefront.Order) string {
	return fmt.Sprintf("{ID: %q, Item: %q, Qty: %d, Fields: %.100q, CreatedAt: %s}", o.ID, o.Item, o.Qty, o.Fields,
		o.CreatedAt.Format(time.RFC3339Nano))
}

// A field is a part of an order or of a refusal, as text.
type field struct{ name, got, want string }

// differences says in which fields two things differ.
func differences(fields ...field) string {
	var texts []string
	for _, f := range fields {
		if f.got != f.want {
			texts = append(texts, fmt.Sprintf("%s %.300q, want %.300q", f.name, f.got, f.want))
		}
	}
	return strings.Join(texts, "; ")
}

// orderDifference says in which fields two orders differ. It returns "" if they are
// equal.
func orderDifference(got, want storefront.Order) string {
	instant := func(o storefront.Order) string { return o.CreatedAt.UTC().Format(time.RFC3339Nano) }
	return differences(
		field{"ID", got.ID, want.ID},
		field{"Item", got.Item, want.Item},
		field{"Qty", fmt.Sprint(got.Qty), fmt.Sprint(want.Qty)},
		field{"Fields", string(got.Fields), string(want.Fields)},
		field{"CreatedAt", instant(got), instant(want)},
	)
}

// create creates an order, or returns the one that was created with the key before.
// Only the goroutine of the subtest may call it, as it ends the subtest if the call fails.
func (t *test) create(store storefront.Store, key storefront.IdempotencyKey,
	order storefront.Order) storefront.Order {
	t.Helper()
	stored, err := t.try(store, key, order)
	t.must(fmt.Sprintf("CreateOrder(ctx, %s, %s)", keyText(key), orderText(order)), err)
	return stored
}

// try is create for a call that may fail.
func (t *test) try(store storefront.Store, key storefront.IdempotencyKey,
	order storefront.Order) (storefront.Order, error) {
	return t.tryWith(t.Context(), store, key, order)
}

func (t *test) tryWith(ctx context.Context, store storefront.Store, key storefront.IdempotencyKey,
	order storefront.Order) (storefront.Order, error) {
	return retry(t, ctx, func() (storefront.Order, error) { return store.CreateOrder(ctx, key, order) })
}

// An attempt is a call of CreateOrder with a new key, and the result.
type attempt struct {
	key    storefront.IdempotencyKey
	order  storefront.Order
	stored storefront.Order
	err    error
}

// attempt makes one call, which is not repeated.
func (t *test) attempt(ctx context.Context, store storefront.Store) attempt {
	a := attempt{key: newKey(), order: t.newOrder()}
	a.stored, a.err = store.CreateOrder(ctx, a.key, a.order)
	return a
}

// newOrderStore returns a store in which an order was created: where a later call
// fails, it is not because CreateOrder never works.
func (t *test) newOrderStore() storefront.Store {
	t.Helper()
	store := t.newStore(Contents{})
	t.create(store, newKey(), t.newOrder())
	return store
}

// miscount returns how many orders with one of the IDs there are, and whether that is not
// the number that is wanted. If the store cannot list its orders, store is nil.
func miscount(store OrderLister, want int, ids ...string) (n int, wrong bool) {
	if store == nil {
		return 0, false
	}
	for _, o := range store.Orders() {
		if slices.Contains(ids, o.ID) {
			n++
		}
	}
	return n, n != want
}
