package storetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/storefront"
)

func orderPromises() []promise {
	return []promise{
		{"The order and the key are recorded in one atomic step", checkAtomic},
		{"Of any number of calls with the same key, concurrent or not, exactly one creates an order", checkExactlyOne},
		{"A Store that survives a crash has every order that it returned before, with its key", checkCrash},
		{"The call that creates an order returns it as it was given", checkAsGiven},
		{"Every other call returns the stored order, equal in all four fields, even if it proposes the same ID", checkReplay},
		{"Two keys are the same key if Scope and Value are equal byte for byte, and only then", checkSameKey},
		{"A call whose key has been used with another Fingerprint changes nothing and returns ErrKeyReused", checkReused},
		{"A call that meets another in progress with the same key waits for its outcome, or returns ErrInProgress if the Store cannot wait", checkInProgress},
		{"A refusal is not remembered: the next call with the key is decided anew", checkRefusal},
		{"A key that has created an order is never refused, whatever has changed since", checkNeverRefused},
		{"A key is remembered for at least KeyLifetime", checkLifetime},
		{"A call that fails without creating an order leaves no trace: its key may be used again, with any order", checkNoTrace},
		{"If ctx is done or a failure occurs while it is unknown whether the order has been recorded, CreateOrder returns an error that matches ctx.Err() or ErrUnavailable", checkUnknown},
		{"A later call with the same key then settles the question", checkSettles},
	}
}

// teapot is the item of most orders, and the one that is sold out.
const teapot = "teapot"

// newOrder returns an order as the service proposes one.
func (t *test) newOrder() storefront.Order {
	return storefront.Order{ID: "ord_" + rand.Text(), Item: teapot, Qty: 2, CreatedAt: t.now()}
}

// newKey returns a key that was not used before.
func newKey() storefront.IdempotencyKey {
	return storefront.IdempotencyKey{Scope: "account 1", Value: rand.Text(), Fingerprint: sha256.Sum256([]byte("teapot 2"))}
}

// another returns another order, and the key with its fingerprint.
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
	return fmt.Sprintf("{ID: %q, Item: %q, Qty: %d, CreatedAt: %s}", o.ID, o.Item, o.Qty, o.CreatedAt.Format(time.RFC3339Nano))
}

// orderDifference says in which fields two orders differ, or "".
func orderDifference(got, want storefront.Order) string {
	var fields []string
	if got.ID != want.ID {
		fields = append(fields, fmt.Sprintf("ID %q, want %q", got.ID, want.ID))
	}
	if got.Item != want.Item {
		fields = append(fields, fmt.Sprintf("Item %q, want %q", got.Item, want.Item))
	}
	if got.Qty != want.Qty {
		fields = append(fields, fmt.Sprintf("Qty %d, want %d", got.Qty, want.Qty))
	}
	if !got.CreatedAt.Equal(want.CreatedAt) {
		fields = append(fields, fmt.Sprintf("CreatedAt %s, want %s", got.CreatedAt.Format(time.RFC3339Nano), want.CreatedAt.Format(time.RFC3339Nano)))
	}
	return strings.Join(fields, "; ")
}

// create creates an order, or gets the one that was created before. It is called
// by the test's goroutine alone.
func (t *test) create(store storefront.Store, key storefront.IdempotencyKey, order storefront.Order) storefront.Order {
	t.Helper()
	stored, err := t.createWithRetry(t.Context(), store, key, order)
	if err != nil {
		t.failed(fmt.Sprintf("CreateOrder(ctx, %s, %s)", keyText(key), orderText(order)), err)
	}
	return stored
}

func (t *test) createWithRetry(ctx context.Context, store storefront.Store, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	return retry(t, ctx, func() (storefront.Order, error) { return store.CreateOrder(ctx, key, order) })
}

// newOrderStore returns a store in which an order was created. So where a call
// fails later on, that is not because none works.
func (t *test) newOrderStore() storefront.Store {
	t.Helper()
	store := t.newStore(Contents{})
	t.create(store, newKey(), t.newOrder())
	return store
}

// count returns how many orders with one of the IDs there are.
func count(store OrderLister, ids ...string) int {
	n := 0
	for _, o := range store.Orders() {
		if slices.Contains(ids, o.ID) {
			n++
		}
	}
	return n
}

// An interruption is a call of CreateOrder whose context was cancelled at one of
// the moments when the store looked at it.
type interruption struct {
	key    storefront.IdempotencyKey
	order  storefront.Order
	stored storefront.Order
	err    error
	ctx    context.Context
	uses   int // how often the store looked
}

func (i interruption) String() string {
	if i.ctx.Err() == nil {
		return fmt.Sprintf("A call of CreateOrder returned the error %v.", i.err)
	}
	return fmt.Sprintf("A call of CreateOrder, cancelled at use %d of its context, returned the error %v.", i.uses, i.err)
}

// interruptions makes calls of CreateOrder with a new key each. The first one is
// cancelled when the store first looks at its context, the next one when it
// looks for the second time, and so on until one has not been cancelled.
func (t *test) interruptions(store storefront.Store) iter.Seq[interruption] {
	const most = 25 // in a commit, some drivers look without end
	return func(yield func(interruption) bool) {
		for n := 1; n <= most; n++ {
			ctx := newCountdown(t.Context(), n)
			i := interruption{key: newKey(), order: t.newOrder(), ctx: ctx.Context, uses: n}
			i.stored, i.err = store.CreateOrder(ctx, i.key, i.order)
			if i.err != nil && i.ctx.Err() == nil && !isTemporary(i.err) {
				t.failed("CreateOrder", i.err)
			}
			if !yield(i) {
				ctx.cancel()
				return
			}
			unused := ctx.left.Load() > 0
			ctx.cancel()
			if unused {
				return
			}
		}
	}
}

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

// together makes calls at the same time and waits for them.
func together(n int, call func(i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			call(i)
		})
	}
	close(start)
	wg.Wait()
}

const takenForOwn = "the stored order is taken for that of this very call, as it has the ID that the call has proposed."

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

// kindsOfOrders are orders whose fields are hard to store. The times are not
// more than a day ago, as a store may go by them to forget keys.
func (t *test) kindsOfOrders() []storefront.Order {
	kinds := []storefront.Order{{}}
	for _, item := range []string{
		"x", " teapot ", "Teapot", "tea\u00a0pot", `"'\`, "'; DROP TABLE orders; --", "$1 ? :a %s {}", "<a>&amp;", "null", "0", "1.0",
		"\u00e9", "e\u0301", "\u65e5\u672c\u8a9e", "\U0001f600\u200d\U0001f600", "\u2028\u2029", "\u200b\u202e\ufeff", "\ufffd", "\U0010fffd",
		strings.Repeat("x", 255), strings.Repeat("\u00e9", 255), strings.Repeat("\U0001f600", 255), strings.Repeat(" ", 254) + "x",
	} {
		kinds = append(kinds, storefront.Order{Item: item})
	}
	for _, qty := range []int64{1, 1<<15 - 1, 1 << 15, 1<<24 + 1, 1<<31 - 1, 1 << 31, 1 << 32, 1<<53 - 2, 1<<53 - 1} {
		kinds = append(kinds, storefront.Order{Qty: qty})
	}
	second := t.now().Truncate(time.Second)
	for _, at := range []time.Time{
		second, second.Add(time.Millisecond), second.Add(120 * time.Millisecond), second.Add(999 * time.Millisecond),
		second.Add(-12 * time.Hour), second.Add(-23 * time.Hour),
		time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC), time.Date(2100, 7, 1, 12, 0, 0, 1e6, time.UTC),
		time.Date(2400, 2, 29, 23, 59, 59, 999e6, time.UTC),
	} {
		kinds = append(kinds, storefront.Order{CreatedAt: at})
	}
	for i := range kinds {
		rest := t.newOrder()
		kinds[i].ID = rest.ID
		if kinds[i].Item == "" {
			kinds[i].Item = rest.Item
		}
		if kinds[i].Qty == 0 {
			kinds[i].Qty = rest.Qty
		}
		if kinds[i].CreatedAt.IsZero() {
			kinds[i].CreatedAt = rest.CreatedAt
		}
	}
	return kinds
}

func checkAsGiven(t *test) {
	store := t.newOrderStore()
	for _, order := range t.kindsOfOrders() {
		if d := orderDifference(t.create(store, newKey(), order), order); d != "" {
			t.broken("it is returned as it was read back from a column that does not keep it, or the store gives it an ID or a time of its own.",
				"The call that created %s returned %s.", orderText(order), d)
		}
	}
}

func checkReplay(t *test) {
	const cause = "a column that does not keep it: a time without zone or milliseconds, an integer of 32 bits, text that is trimmed, cut or normalized."
	store := t.newOrderStore()
	for _, order := range t.kindsOfOrders() {
		key := newKey()
		first := t.create(store, key, order)
		if first.ID != order.ID {
			continue // that is another promise
		}
		for _, id := range []string{t.newOrder().ID, t.newOrder().ID, order.ID} {
			again := order
			again.ID, again.CreatedAt = id, order.CreatedAt.Add(1234*time.Millisecond)
			got := t.create(store, key, again)
			if got.ID == id && id != order.ID {
				break // that none is created is another promise
			}
			if d := orderDifference(got, order); d != "" {
				t.broken(cause, "A repeated call with the key of %s returned %s.", orderText(order), d)
				break
			}
		}
	}
	if t.Failed() {
		return
	}

	const callers = 16
	for _, oneID := range []bool{false, true} {
		key, last := newKey(), t.newOrder()
		var proposed, got [callers]storefront.Order
		together(callers, func(i int) {
			proposed[i] = t.newOrder()
			if oneID {
				proposed[i].ID = last.ID
			}
			proposed[i].CreatedAt = last.CreatedAt.Add(time.Duration(i) * time.Millisecond)
			got[i], _ = t.createWithRetry(t.Context(), store, key, proposed[i])
		})
		stored := t.create(store, key, last)
		others := 0
		for i := range got {
			if got[i].ID != stored.ID || !oneID && got[i].ID == proposed[i].ID || oneID && proposed[i].CreatedAt.Equal(stored.CreatedAt) {
				others++
				continue // that is another promise
			}
			if d := orderDifference(got[i], stored); d != "" {
				usual, calls := "a call that loses a race returns its own order with the ID of the other.", "one key"
				if oneID {
					usual, calls = takenForOwn, "one key and one ID"
				}
				t.broken(usual, "Of %d concurrent calls with %s, one returned the order %q with %s.", callers, calls, stored.ID, d)
				return
			}
		}
		if others > 1 {
			return // with one ID, calls that create cannot be told from those that do not
		}
	}
}

// distinctKeys are keys that a store might take for each other.
func distinctKeys() []storefront.IdempotencyKey {
	long, printable := strings.Repeat("x", 10_000), strings.Repeat("k", 254)
	var keys []storefront.IdempotencyKey
	for _, k := range [][2]string{
		{"", "k"}, {"s", "k"}, {"S", "k"}, {"s ", "k"}, {" s", "k"}, {"t", "k"}, // scopes
		{"", "K"}, {"", "k "}, {"", " k"}, {"", "k  "}, {"", "k%"}, {"", "k_"}, {"", "kx"}, {"", "1"}, {"", "01"}, {"", "1.0"}, {"", "1e0"}, // values
		{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"a", "b"}, {"b", "a"}, {"", "ab"}, // where one ends and the other begins
		{"a,b", "c"}, {"a", "b,c"}, {"a:b", "c"}, {"a", "b:c"}, {"a b", "c"}, {"a", "b c"}, {"a/b", "c"}, {"a", "b/c"}, {"a|b", "c"}, {"a", "b|c"},
		{`a"`, "b"}, {"a", `"b`}, {`a\`, "b"}, {"a'", "b"},
		{long + "1", "k"}, {long + "2", "k"}, {"", printable + "1"}, {"", printable + "2"}, {"", printable}, // the end of long ones
		{"\u00e9", "k"}, {"e\u0301", "k"}, {"\xff", "k"}, {"\xfe", "k"}, {"\x00", "k"}, {"s\x00", "k"}, // bytes that are no text
	} {
		key := newKey()
		key.Scope, key.Value = k[0], k[1]
		keys = append(keys, key)
	}
	return keys
}

func checkSameKey(t *test) {
	const cause = "Scope and Value are joined to one string without their lengths, compared by a collation, trimmed, cut, or Scope is left out."
	store := t.newOrderStore()
	keyOf := make(map[string]storefront.IdempotencyKey)
	keys := distinctKeys()
	created := make([]storefront.Order, len(keys))
	for i, key := range keys {
		order := t.newOrder()
		if got := t.create(store, key, order); got.ID != order.ID {
			t.broken(cause, "The key %s was taken for %s.", keyText(key), keyText(keyOf[got.ID]))
			return
		}
		keyOf[order.ID], created[i] = key, order
	}
	for i, key := range keys {
		switch got := t.create(store, key, t.newOrder()); {
		case got.ID == created[i].ID:
		case keyOf[got.ID].Value != "":
			t.broken(cause, "The key %s was taken for %s.", keyText(key), keyText(keyOf[got.ID]))
			return
		default:
			t.broken(cause, "A second call with the key %s returned another order.", keyText(key))
			return
		}
	}

	key := newKey()
	t.create(store, key, t.newOrder())
	other := key
	other.Scope += "2"
	other.Fingerprint[0] ^= 0xff
	switch _, err := t.createWithRetry(t.Context(), store, other, t.newOrder()); {
	case errors.Is(err, storefront.ErrKeyReused):
		t.broken("fingerprints are found by Value alone.", "A call with the Value of another key, but its own Scope and Fingerprint, failed: %v", err)
	case err != nil:
		t.failed("CreateOrder", err)
	}
}

func checkReused(t *test) {
	store := t.newOrderStore()
	orders, countable := optional[OrderLister](t, store, "that the refused calls created no orders")
	for _, change := range []struct {
		what string
		at   int
		bits byte
	}{{"first byte", 0, 0xff}, {"last byte", 31, 0xff}, {"first bit", 0, 0x80}, {"last bit", 31, 1}, {"middle", 16, 0x10}} {
		key := newKey()
		clear(key.Fingerprint[:change.at]) // zeros end a string in some databases
		t.create(store, key, t.newOrder())
		first := t.create(store, key, t.newOrder()) // as it is stored
		other, order := key, t.newOrder()           // with the same item and quantity: the fingerprint decides
		other.Fingerprint[change.at] ^= change.bits
		for range 2 {
			got, err := t.createWithRetry(t.Context(), store, other, order)
			switch {
			case err == nil && got.ID == order.ID:
				t.broken("the fingerprint is part of the key in the unique constraint. The key is Scope and Value.", "A call with a key that has an order, and a fingerprint that differs in the %s, created another order.", change.what)
				return
			case err == nil:
				t.broken("the fingerprint is not compared, or not as a whole.", "A call with a key that has an order, and a fingerprint that differs in the %s, returned that order and no error.", change.what)
				return
			case !errors.Is(err, storefront.ErrKeyReused):
				t.broken("", "A call with a key that has an order, and a fingerprint that differs in the %s, returned an error that does not match ErrKeyReused: %v", change.what, err)
				return
			}
		}
		if countable && count(orders, order.ID) > 0 {
			t.broken("the order is inserted before the fingerprints are compared, and stays.", "A call that returned ErrKeyReused created an order.")
			return
		}
		got, err := t.createWithRetry(t.Context(), store, key, t.newOrder())
		if err != nil {
			t.broken("the refused call has replaced the fingerprint (ON CONFLICT DO UPDATE).", "After a call that returned ErrKeyReused, a call with the fingerprint of the order failed: %v", err)
			return
		}
		if d := orderDifference(got, first); d != "" {
			t.broken("the refused call has replaced or deleted the order (ON CONFLICT DO UPDATE).", "After a call that returned ErrKeyReused, the order of the key has %s.", d)
			return
		}
		order.ID = first.ID
		if _, err := t.createWithRetry(t.Context(), store, other, order); !errors.Is(err, storefront.ErrKeyReused) {
			t.broken(takenForOwn, "A call with a key that has an order, the ID of that order, and a fingerprint that differs in the %s, returned an error that does not match ErrKeyReused: %v", change.what, err)
			return
		}
	}

	const rounds, callers = 6, 16
	for range rounds {
		key := newKey()
		var errs [callers]error
		together(callers, func(i int) {
			key := key
			key.Fingerprint[0] = byte(i % 2)
			_, errs[i] = t.createWithRetry(t.Context(), store, key, t.newOrder())
		})
		var served [2]int
		for i, err := range errs {
			if err == nil {
				served[i%2]++
			}
		}
		if served[0] > 0 && served[1] > 0 {
			t.broken("concurrent calls with one key are joined before their fingerprints are compared.", "Of %d concurrent calls with one key and two fingerprints, %d with one and %d with the other returned an order, want one of them refused.", callers, served[0], served[1])
			return
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

// sellOut makes the store refuse teapots, and returns with what.
func (t *test) sellOut(store Refuser) storefront.Refusal {
	t.Helper()
	refusal, err := store.SellOut(t.Context(), teapot)
	if err != nil {
		t.failed("SellOut", err)
	}
	return refusal
}

// restock ends what sellOut began.
func (t *test) restock(store Refuser) {
	t.Helper()
	if err := store.Restock(t.Context(), teapot); err != nil {
		t.failed("Restock", err)
	}
}

// refusalOf returns the refusal that an error matches, or nil.
func refusalOf(err error) *storefront.Refusal {
	refusal, _ := errors.AsType[*storefront.Refusal](err)
	return refusal
}

// refusalDifference says in which fields a refusal differs from what is known of
// it, or "".
func refusalDifference(got, want storefront.Refusal) string {
	var fields []string
	for _, f := range []struct{ name, got, want string }{
		{"Reason", got.Reason, want.Reason}, {"Detail", got.Detail, want.Detail}, {"Pointer", got.Pointer, want.Pointer},
	} {
		if f.want != "" && f.got != f.want {
			fields = append(fields, fmt.Sprintf("%s %q, want %q", f.name, f.got, f.want))
		}
	}
	return strings.Join(fields, "; ")
}

func checkRefusal(t *test) {
	const cause = "the refusal is recorded as the outcome of the key. Record nothing where an order is refused."
	store := t.newOrderStore()
	refuser, ok := optional[Refuser](t, store, "what a refusal leaves, for a store that refuses orders")
	if !ok {
		return
	}
	want := t.sellOut(refuser)
	key, order := newKey(), t.newOrder()
	for again, what := range []string{"a new key", "a key that was refused"} {
		got, err := t.createWithRetry(t.Context(), store, key, order)
		if err == nil && again == 0 {
			t.unable("After SellOut(ctx, %q), CreateOrder with a new key and an order for the item returned the order %q and no error.", teapot, got.ID)
		}
		if err == nil {
			t.broken("it is decided after the order was recorded, and the key is not rolled back.", "A call was refused. Another with its key returned the order %q and no error, though the item was still sold out.", got.ID)
			return
		}
		refusal := refusalOf(err)
		if refusal == nil {
			t.broken("the Refusal is made into text on its way (%v instead of %w), is no pointer, or a nil one.",
				"The error of a call with %s, whose order was refused, does not match *storefront.Refusal: %v", what, err)
			return
		}
		if d := refusalDifference(*refusal, want); d != "" {
			t.broken("the Refusal is made anew on its way, and not of all its parts.", "The order of a call with %s was refused with %s.", what, d)
			return
		}
	}

	// Others are created at the same time, and stay.
	const rounds, callers = 6, 16
	for range rounds {
		var keys [callers]storefront.IdempotencyKey
		var proposed, got [callers]storefront.Order
		var errs [callers]error
		for i := range keys {
			keys[i], proposed[i] = newKey(), t.newOrder()
			if i%2 == 0 {
				keys[i], proposed[i] = t.another(keys[i])
			}
		}
		together(callers, func(i int) { got[i], errs[i] = t.createWithRetry(t.Context(), store, keys[i], proposed[i]) })
		for i := range callers {
			switch refused := refusalOf(errs[i]) != nil; {
			case i%2 == 0 && refused:
				t.broken("orders are committed together, and all of them are refused if one is.",
					"Of %d concurrent calls with a key each, half of them for an item that was sold out, one for another item was refused: %v", callers, errs[i])
				return
			case errs[i] != nil && !refused:
				t.failed("CreateOrder", errs[i])
			case errs[i] == nil && i%2 != 0:
				t.broken("it is decided once for orders that are committed together.",
					"Of %d concurrent calls with a key each, one for an item that was sold out created the order %q.", callers, got[i].ID)
				return
			}
		}
		for i := 0; i < callers; i += 2 {
			if again := t.create(store, keys[i], proposed[(i+2)%callers]); again.ID != got[i].ID {
				t.broken("orders are committed together, and all of them are rolled back if one is refused.",
					"Of %d concurrent calls with a key each, one returned the order %q, while others were refused. Then its key had the order %q.", callers, got[i].ID, again.ID)
				return
			}
		}
	}

	t.restock(refuser)
	again := t.newOrder()
	got, err := t.createWithRetry(t.Context(), store, key, again)
	if err != nil {
		t.broken(cause, "A call was refused. After Restock, another with its key failed: %v", err)
		return
	}
	if got.ID != again.ID {
		t.broken(cause, "A call with the order %q was refused. After Restock, another with its key and the order %q returned the order %q.", order.ID, again.ID, got.ID)
		return
	}
	if third := t.create(store, key, t.newOrder()); third.ID != got.ID {
		t.broken("the refusal leaves something behind for which the key is not recorded later on.",
			"A call was refused. Another with its key created the order %q, and the next one returned the order %q.", got.ID, third.ID)
	}
}

func checkNeverRefused(t *test) {
	const cause = "it is decided before the key is looked for, or by a wrapper, which cannot look for it."
	store := t.newOrderStore()
	refuser, ok := optional[Refuser](t, store, "that what can no longer be ordered can still be asked for with its key, for a store that refuses orders")
	if !ok {
		return
	}
	key, order := newKey(), t.newOrder()
	t.create(store, key, order)
	first := t.create(store, key, t.newOrder()) // as replays have it
	if first.ID != order.ID {
		t.unable("A second call with the key of the order %q returned the order %q.", order.ID, first.ID)
	}
	t.sellOut(refuser)
	for _, id := range []string{t.newOrder().ID, t.newOrder().ID, first.ID} {
		again := t.newOrder()
		again.ID = id
		got, err := t.createWithRetry(t.Context(), store, key, again)
		if err != nil && id == first.ID {
			t.broken(takenForOwn, "The item of an order was sold out. Then a call with the order's key and its ID failed: %v", err)
			return
		}
		if err != nil {
			t.broken(cause, "The item of an order was sold out. Then a call with the order's key failed: %v", err)
			return
		}
		if d := orderDifference(got, first); d != "" && id != first.ID {
			t.broken(cause, "The item of an order was sold out. Then a call with the order's key returned one with %s.", d)
			return
		}
	}
	other := key
	other.Fingerprint[0] ^= 0xff
	if _, err := t.createWithRetry(t.Context(), store, other, t.newOrder()); refusalOf(err) != nil && !errors.Is(err, storefront.ErrKeyReused) {
		t.broken("the key is looked for together with its fingerprint.",
			"The item of an order was sold out. Then a call with the order's key and another Fingerprint was refused, and does not match ErrKeyReused: %v", err)
		return
	}
	const callers = 16
	var errs [callers]error
	together(callers, func(i int) { _, errs[i] = t.createWithRetry(t.Context(), store, key, t.newOrder()) })
	for _, err := range errs {
		if refusalOf(err) != nil {
			t.broken("the key is not looked for where calls meet.", "The item of an order was sold out. Then one of %d concurrent calls with the order's key was refused: %v", callers, err)
			return
		}
	}

	// The item may be sold out when the call that creates the order has been
	// decided but not returned. Calls that begin then wait for its outcome.
	const moments = 25 // in a commit, some drivers look without end
	for n := 1; n <= moments; n++ {
		t.restock(refuser)
		key, order := newKey(), t.newOrder()
		now, sold := make(chan struct{}), make(chan struct{})
		ctx := newCountdown(t.Context(), n)
		end := ctx.cancel
		ctx.cancel = sync.OnceFunc(func() { close(now) }) // instead of ending it
		var wg sync.WaitGroup
		var failure error
		wg.Go(func() {
			<-now
			_, failure = refuser.SellOut(t.Context(), teapot)
			close(sold)
		})
		var later [callers / 2]error
		for i := range later {
			wg.Go(func() {
				<-sold
				_, later[i] = t.createWithRetry(t.Context(), store, key, t.newOrder())
			})
		}
		got, err := t.createWithRetry(ctx, store, key, order)
		unused := ctx.left.Load() > 0
		ctx.cancel()
		wg.Wait()
		end()
		if failure != nil {
			t.failed("SellOut", failure)
		}
		for _, refused := range later {
			if err == nil && refusalOf(refused) != nil {
				t.broken("to look for the key, to decide and to record the order are not one step. Claim the key before it is decided (INSERT, then decide, then commit).",
					"While a call was in progress (at use %d of its context) its item was sold out. It created the order %q, but another with its key was refused: %v", n, got.ID, refused)
				return
			}
		}
		if unused {
			break
		}
	}

	reopener, ok := optional[Reopener](t, store, "")
	if !ok {
		return
	}
	t.restock(refuser)
	kept, last := newKey(), t.newOrder()
	t.create(store, kept, last)
	store = t.reopen(reopener)
	refuser, _ = optional[Refuser](t, store, "")
	t.restock(refuser)
	if t.create(store, kept, t.newOrder()).ID != last.ID {
		return // that keys survive a crash is another promise
	}
	t.sellOut(refuser)
	if _, err := t.createWithRetry(t.Context(), store, key, t.newOrder()); err != nil {
		t.broken("it is decided by what the store has in memory.",
			"The item of an order was sold out. After a crash, a call with the order's key failed: %v", err)
	}
}

func checkLifetime(t *test) {
	// A store may forget keys where there are many of them, or a few in each call:
	// then it is seen where there are few, after many calls.
	if t.checkRemembered(300, 0) {
		t.checkRemembered(0, 100)
	}
}

// checkRemembered checks that keys are remembered after so many calls, and while
// time passes, after so many each time. It reports whether they are, and time can
// pass.
func (t *test) checkRemembered(calls, callsEachTime int) bool {
	t.Helper()
	const cause = "keys expire too early: another unit, or a lifetime counted in whole days or from something else than the creation of the order."
	store := t.newOrderStore()
	// Not from the start of a day, be it the calendar's or the store's own.
	timePasses := t.advance(store, 13*time.Hour)

	const margin = time.Minute // as the calls take time themselves
	ages := []time.Duration{time.Minute, time.Hour, 12 * time.Hour, storefront.KeyLifetime - margin}
	// One key is used each time, the others once, as use may renew them.
	keys := make([]storefront.IdempotencyKey, 1+len(ages))
	created := make([]storefront.Order, len(keys))
	began := t.now()
	for i := range keys {
		keys[i] = newKey()
		created[i] = t.create(store, keys[i], t.newOrder())
	}
	for range calls {
		t.create(store, newKey(), t.newOrder())
	}
	if got := t.create(store, keys[0], t.newOrder()); got.ID != created[0].ID {
		t.broken("a cache that keeps the last keys only.", "After %d orders with other keys, the key of the order %q has the order %q.", calls, created[0].ID, got.ID)
		return false
	}
	if !timePasses {
		return false
	}

	for i, age := range ages {
		t.advance(store, max(0, age-t.now().Sub(began)))
		var other storefront.IdempotencyKey
		for n := range callsEachTime {
			if t.now().Sub(began) > storefront.KeyLifetime-margin/2 {
				break // the calls take so long that keys may be forgotten soon
			}
			if n%10 == 0 { // the calls between are replays, as there are to be few keys
				other = newKey()
			}
			t.create(store, other, t.newOrder())
		}
		for _, k := range []int{0, 1 + i} {
			order := t.newOrder()
			got, err := t.createWithRetry(t.Context(), store, keys[k], order)
			switch {
			case t.now().Sub(began) > storefront.KeyLifetime:
				return true // it may be forgotten
			case err != nil:
				t.failed(fmt.Sprintf("CreateOrder, with a key that was used %v ago,", age), err)
			case got.ID == order.ID:
				t.broken(cause, "%v after an order was created, a call with its key created another one.", age)
				return false
			case got.ID != created[k].ID:
				t.broken(cause, "%v after the order %q was created, a call with its key returned the order %q.", age, created[k].ID, got.ID)
				return false
			}
		}
	}
	return true
}

func checkNoTrace(t *test) {
	const cause = "the key is recorded before the order, and stays when the call fails; or failures are remembered."
	store := t.newOrderStore()
	orders, countable := optional[OrderLister](t, store, "that calls that failed created no orders")
	leavesNoTrace := func(call string, key storefront.IdempotencyKey, order storefront.Order, usual string) bool {
		t.Helper()
		if countable && count(orders, order.ID) > 0 {
			t.broken(usual, "%s failed, but created its order.", call)
			return false
		}
		other, another := t.another(key)
		got, err := t.createWithRetry(t.Context(), store, other, another)
		if err != nil {
			t.broken(cause, "%s failed. Then a call with the same key and another order failed: %v", call, err)
			return false
		}
		if got.ID != another.ID {
			t.broken(cause, "%s failed. Then a call with the same key and the order %q returned the order %q.", call, another.ID, got.ID)
			return false
		}
		return true
	}
	const times = 15 // as whether ctx is looked at first may be left to chance
	for _, done := range doneContexts(t.Context()) {
		for range times {
			key, order := newKey(), t.newOrder()
			if _, err := store.CreateOrder(done.ctx, key, order); err == nil {
				continue // that it fails is another promise
			}
			if !leavesNoTrace("A call whose context was "+done.what, key, order, "the context is looked at after the order was recorded.") {
				return
			}
		}
	}

	refuser, ok := optional[Refuser](t, store, "that orders that were refused leave no trace")
	if !ok {
		return
	}
	const decidedLate = "it is decided after the order was recorded, and what was recorded is not rolled back."
	t.sellOut(refuser)
	var refused []string
	for range 3 {
		key, order := newKey(), t.newOrder()
		if _, err := t.createWithRetry(t.Context(), store, key, order); err == nil {
			return // that it is refused is another promise
		}
		if !leavesNoTrace("A call whose order was refused", key, order, decidedLate) {
			return
		}
		refused = append(refused, order.ID)
	}
	if reopener, ok := optional[Reopener](t, store, ""); ok && countable {
		orders, _ = optional[OrderLister](t, t.reopen(reopener), "")
		if n := count(orders, refused...); n > 0 {
			t.broken(decidedLate, "After a crash there are %d orders that were refused.", n)
		}
	}
}

func checkUnknown(t *test) {
	store := t.newOrderStore()
	for i := range t.interruptions(store) {
		if i.err != nil && !errors.Is(i.err, i.ctx.Err()) && !errors.Is(i.err, storefront.ErrUnavailable) {
			t.broken("an error of the driver is returned as it is. Return ctx.Err() where it is not nil.",
				"%v That matches neither %v nor ErrUnavailable.", i, i.ctx.Err())
			return
		}
	}
}

func checkSettles(t *test) {
	const cause = "a call that was interrupted leaves a key without an order, or a lock."
	store := t.newOrderStore()
	for i := range t.interruptions(store) {
		again, third := t.newOrder(), t.newOrder()
		got, err := t.createWithRetry(t.Context(), store, i.key, again)
		if err != nil {
			t.broken(cause, "%v Another call with its key failed: %v", i, err)
			return
		}
		if i.err == nil && got.ID != i.stored.ID || got.ID != i.order.ID && got.ID != again.ID {
			t.broken(cause, "%v It had the order %s. Another call with its key and the order %s returned %s.", i, orderText(i.order), orderText(again), orderText(got))
			return
		}
		if settled := t.create(store, i.key, third); settled.ID != got.ID {
			t.broken(cause, "%v The next one with its key returned the order %s. The third returned another: %s.", i, orderText(got), orderText(settled))
			return
		}
	}
}
