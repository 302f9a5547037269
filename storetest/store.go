package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"example.com/storefront"
)

const promptly = "Once ctx is done, a method returns promptly, with an error that matches ctx.Err()"

func storePromises() []promise {
	return []promise{
		{"Methods may be called concurrently", checkConcurrent},
		{promptly, checkDone},
		{"A method does not use ctx after it has returned", checkNotUsedLater},
		{"A returned slice belongs to the caller", checkSlices},
		{"A resource is returned byte for byte as it was put into the Store", checkBytes},
		{"Users, products and widgets are kept apart, even if they have the same ID", checkApart},
		{"The text of an error, which is logged and never sent, contains neither the value of a key nor " +
			"the item or the fields of an order", checkErrorText},
	}
}

// A call is a call of one of the four methods, with arguments for which it succeeds.
type call struct {
	text string
	// make makes the call. If the result is wrong, the error is a wrongResult.
	make func(context.Context) error
}

type wrongResult struct{ text string }

func (w wrongResult) Error() string { return w.text }

// idsOfCalls are the IDs of the users, products and widgets in the store of calls.
var idsOfCalls = plainIDs(20)

// calls returns a store with some contents and calls of all its methods. On
// another such store each of these calls was made once, alone, and was right.
func (t *test) calls() (storefront.Store, []call) {
	contents := Contents{Users: resources(idsOfCalls), Products: resources(idsOfCalls),
		Widgets: resources(idsOfCalls)}
	for _, c := range t.callsOf(t.newStore(contents)) {
		t.must(c.text, c.make(t.Context()))
	}
	store := t.newStore(contents)
	return store, t.callsOf(store)
}

// callsOf returns calls of a store with the contents of calls.
func (t *test) callsOf(store storefront.Store) []call {
	var calls []call
	ids := idsOfCalls
	for _, l := range []list{users, widgets} {
		for _, position := range []string{ids[0], ids[len(ids)/2]} {
			calls = append(calls, call{l.text(position, 5), func(ctx context.Context) error {
				got, err := l.call(store, ctx, position, 5)
				if err != nil {
					return err
				}
				// Whether the item at the position is listed is another promise.
				if d := difference(after(position, idsOf(got), 4), after(position, ids, 4)); d != "" {
					return wrongResult{"returned " + d}
				}
				return nil
			}})
		}
	}
	for _, id := range []string{ids[0], ids[len(ids)-1]} {
		calls = append(calls, call{fmt.Sprintf("GetProduct(ctx, %q)", id), func(ctx context.Context) error {
			got, err := store.GetProduct(ctx, id)
			if err == nil && got.ID() != id {
				return wrongResult{fmt.Sprintf("returned the product %q", got.ID())}
			}
			return err
		}})
	}
	calls = append(calls, call{"CreateOrder(ctx, key, order)", func(ctx context.Context) error {
		order := t.newOrder()
		got, err := t.tryWith(ctx, store, newKey(), order)
		if err != nil {
			return err
		}
		if got.ID != order.ID {
			return wrongResult{fmt.Sprintf("with a new key and the order %q returned %q", order.ID, got.ID)}
		}
		return nil
	}})
	return calls
}

// after returns the first of the IDs that are greater than a position, no more than
// limit.
func after(position string, ids []string, limit int) []string {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id <= position })
	return ids[:min(limit, len(ids))]
}

func checkConcurrent(t *test) {
	_, calls := t.calls()
	const goroutines, rounds = 16, 3
	var failures [goroutines]string
	together(goroutines, func(g int) {
		for i := range rounds * len(calls) {
			c := calls[(g+i)%len(calls)]
			err := c.make(t.Context())
			if wrong := (wrongResult{}); errors.As(err, &wrong) {
				failures[g] = c.text + " " + wrong.text
			} else if err != nil {
				failures[g] = fmt.Sprintf("%s failed: %v", c.text, err)
			}
			if err != nil {
				return
			}
		}
	})
	for _, failure := range failures {
		if failure != "" {
			t.wrong("state that calls share without a lock, or a lock that the database does not wait for.",
				"While %d goroutines called all methods, %s.", goroutines, failure)
		}
	}
}

type doneContext struct {
	what string
	ctx  context.Context
}

func doneContexts(parent context.Context) []doneContext {
	cancelled, cancel := context.WithCancel(parent)
	cancel()
	late, cancel := context.WithDeadline(parent, time.Unix(0, 0))
	cancel()
	return []doneContext{{"cancelled", cancelled}, {"past its deadline", late}}
}

const notPassedOn = "ctx is not passed on, or the driver's own error is returned. Return ctx.Err() where " +
	"it is not nil."

func checkDone(t *test) {
	store, calls := t.calls()
	for _, c := range calls {
		t.must(c.text, c.make(t.Context()))
		for _, done := range doneContexts(t.Context()) {
			t.checkDoneCall(c, done)
		}
		if t.bubble {
			t.checkTimeout(c.text, c.make)
		}
		if !strings.HasPrefix(c.text, "CreateOrder") { // what it returns then is another promise
			t.checkCancelledCall(c)
		}
	}
	if t.bubble {
		key := newKey()
		t.checkWaitingCall(store, key, key)
		t.checkWaitingCall(store, newKey(), newKey())
	}
}

// checkDoneCall makes a call with a context that is done, many times: a select that
// finds both that ctx is done and that it can go on takes one at random.
func (t *test) checkDoneCall(c call, done doneContext) {
	const times = 50
	for range times {
		switch err := c.make(done.ctx); {
		case err == nil || errors.As(err, new(wrongResult)):
			t.wrong(notPassedOn, "%s with a context that was %s returned no error.", c.text, done.what)
		case !errors.Is(err, done.ctx.Err()):
			t.wrong(notPassedOn, "%s with a context that was %s returned an error that does not match %q: %v",
				c.text, done.what, done.ctx.Err(), err)
		default:
			continue
		}
		return
	}
}

// checkTimeout checks that a call takes no longer than its context lasts, by the clock
// of a bubble.
func (t *test) checkTimeout(call string, make func(context.Context) error) {
	const limit = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	make(ctx)
	if took := time.Since(began); took > limit {
		t.broken("a pause that does not end with ctx.",
			"%s with a context that was done after %v took %v to return.", call, limit, took)
	}
}

// checkCancelledCall cancels a call when the store first looks at its context, another
// when it looks for the second time, and so on.
func (t *test) checkCancelledCall(c call) {
	for n, ctx := range moments(t.Context(), 50) {
		err := c.make(ctx)
		over := ctx.Err()
		if err != nil && over == nil {
			t.must(c.text, err)
		}
		if wrong := (wrongResult{}); errors.As(err, &wrong) {
			t.broken("the error after the last row (sql.Rows.Err) is not looked at.",
				"%s, cancelled at use %d of its context, returned no error, but %s.", c.text, n, wrong.text)
		}
		if err != nil && !errors.Is(err, over) {
			t.broken(notPassedOn,
				"%s, cancelled at use %d of its context, returned an error that does not match %q: %v",
				c.text, n, over, err)
		}
	}
}

// checkWaitingCall makes two calls of CreateOrder at the same time. If the first takes
// its time, the second may wait for it, but no longer than its own context lasts.
func (t *test) checkWaitingCall(store storefront.Store, first, second storefront.IdempotencyKey) {
	var wg sync.WaitGroup
	wg.Go(func() { t.try(store, first, t.newOrder()) })
	synctest.Wait() // until the first call has returned or waits for something
	t.checkTimeout("While a call of CreateOrder was in progress, another", func(ctx context.Context) error {
		_, err := store.CreateOrder(ctx, second, t.newOrder())
		return err
	})
	wg.Wait()
}

func checkNotUsedLater(t *test) {
	const cause = "the store keeps the context of a call, or uses it in a goroutine that it leaves behind."
	store, calls := t.calls()
	for _, first := range calls {
		kept, cancel := context.WithCancel(t.Context())
		err := first.make(kept)
		cancel()
		t.must(first.text, err)
		for _, c := range calls {
			err := c.make(t.Context())
			if err != nil && !errors.As(err, new(wrongResult)) {
				t.broken(cause, "After a call of %s had returned, its context was cancelled. Then %s, "+
					"which was given another context, failed: %v", first.text, c.text, err)
			}
		}
	}

	// An order stays, even if the client that sent the request goes away at once.
	key, order := newKey(), t.newOrder()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := t.tryWith(ctx, store, key, order)
	cancel()
	t.must("CreateOrder", err)
	if got := t.create(store, key, t.newOrder()); got.ID != order.ID {
		t.broken(cause, "After CreateOrder had returned the order %q, its context was cancelled. Then its "+
			"key had the order %q.", order.ID, got.ID)
	}
}

func checkSlices(t *test) {
	const cause = "a slice that the store goes on using is returned. Return a copy (slices.Clone)."
	ids := plainIDs(20)
	store := t.newStore(Contents{Users: resources(ids), Widgets: resources(ids)})
	for _, l := range []list{users, widgets} {
		get := func(position string) []storefront.Resource {
			got, err := l.call(store, t.Context(), position, 5)
			t.must(l.text(position, 5), err)
			return got
		}
		want := idsOf(get(ids[0]))
		if len(want) == 0 {
			t.must(l.text(ids[0], 5), wrongResult{"returned nothing"})
		}
		mine := get(ids[0])
		slices.Reverse(mine)
		overwrite(mine)
		_ = append(mine[:1], mine...)
		overwrite(mine[:cap(mine)])
		if d := difference(idsOf(get(ids[0])), want); d != "" {
			t.wrong(cause,
				"After the caller had overwritten what %s returned, another such call returned %s.",
				l.text(ids[0], 5), d)
		}
		kept := get(ids[0])
		get(ids[10])
		if d := difference(idsOf(kept), want); d != "" {
			t.wrong(cause, "What %s had returned was overwritten by another call. It became %s.",
				l.text(ids[0], 5), d)
		}
	}
}

func checkBytes(t *test) {
	var put []storefront.Resource
	for i, fields := range []string{
		`{}`,
		`{"z":1,"a":2,"m":{"z":1,"a":2}}`,
		`{"price":1.50,"many":1e2,"huge":123456789012345678901234567890,"small":-0.0,"e":1E+2}`,
		`{"text":"é é 日本 😀 <a>&amp; \u2028 \\ \" \n \u0000"}`,
		`{"":[null,true,false,[],{},[[]],""]," a ":" b "}`,
		`{"ID":"another","Id":null,"name":"'; DROP TABLE users; --"}`,
		`{"long":"` + strings.Repeat("0123456789abcdé😀", 6000) + `"}`,
		`{"deep":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`,
	} {
		put = append(put, storefront.MustResource(plainIDs(20)[i], json.RawMessage(fields)))
	}
	put = append(put, storefront.MustResource("only <an> \"ID\" é", nil))
	store := t.newStore(Contents{Users: put, Products: put, Widgets: put})
	check := func(method string, got storefront.Resource) {
		for _, want := range put {
			if got.ID() == want.ID() && !got.Equal(want) {
				t.wrong("JSON is decoded and encoded again (JSONB, a map), not kept as MarshalJSON has it.",
					"%s returned %.200s, want %.200s.", method, got, want)
			}
		}
	}
	for _, l := range []list{users, widgets} {
		got, err := l.call(store, t.Context(), plainIDs(1)[0], 100)
		t.must(l.method, err)
		for _, r := range got {
			check(l.method, r)
		}
	}
	for _, want := range put {
		got, err := store.GetProduct(t.Context(), want.ID())
		if err != nil && !errors.Is(err, storefront.ErrNotFound) {
			t.must("GetProduct", err)
		}
		check("GetProduct", got)
	}
}

func checkApart(t *test) {
	made := func(what string, ids ...string) []storefront.Resource {
		var out []storefront.Resource
		for _, id := range ids {
			out = append(out, storefront.MustResource(id, map[string]string{"is a": what}))
		}
		return out
	}
	contents := Contents{
		Users:    made("user", "a", "both", "user", "z"),
		Products: made("product", "a", "both", "product", "z"),
		Widgets:  made("widget", "a", "both", "widget", "z"),
	}
	store := t.newStore(contents)
	const cause = "one table or map for all of them, whose key is the ID alone."
	for _, l := range []list{users, widgets} {
		all := contents.Users
		if l.inclusive {
			all = contents.Widgets
		}
		got, err := l.call(store, t.Context(), "a", 100) // which is there in both lists
		t.must(l.text("a", 100), err)
		for _, r := range got {
			if !strings.Contains(r.String(), l.item) {
				t.wrong(cause, "%s returned what is no %s: %s.", l.text("a", 100), l.item, r)
			}
		}
		for _, r := range all[1:] { // whether the list has the item at the position is another promise
			if !slices.Contains(idsOf(got), r.ID()) {
				t.wrong(cause, "%s did not return the %s %q.", l.text("a", 100), l.item, r.ID())
			}
		}
	}
	for _, id := range []string{"both", "user", "widget", "product"} {
		switch got, err := store.GetProduct(t.Context(), id); {
		case err == nil && got.ID() != "" && !strings.Contains(got.String(), `"is a":"product"`):
			t.wrong(cause, "GetProduct(ctx, %q) returned what is no product: %s.", id, got)
		case err != nil && (id == "both" || id == "product"):
			t.wrong(cause, "GetProduct(ctx, %q) did not return the product: %v", id, err)
		}
	}
}

func checkErrorText(t *test) {
	store := t.newStore(Contents{Products: resources([]string{"p"})})
	secret := newKey()
	order := t.newOrder()
	order.Item, order.Fields = "a very private item", `{"note":"a very private note"}`
	check := func(what string, err error) {
		for _, part := range []string{secret.Value, order.Item, "a very private note"} {
			if err != nil && strings.Contains(err.Error(), part) {
				t.wrong("the arguments are wrapped into the error. Logs are read by more people than orders.",
					"The error of %s contains %q: %v", what, part, err)
			}
		}
	}
	for _, done := range doneContexts(t.Context()) {
		_, err := store.CreateOrder(done.ctx, secret, order)
		check("a call whose context was "+done.what, err)
	}
	_, err := t.try(store, secret, order)
	check("CreateOrder", err)
	secret.Fingerprint[0] ^= 1
	other := order
	other.ID = t.newOrder().ID
	_, err = t.try(store, secret, other)
	check("a call that reuses a key", err)
}
