package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// share calls CreateOrder with key, or a key that differs in its fingerprint.
func share(t *testing.T, store *sqlstore.Store, id string, fingerprint ...byte) *pending {
	key, proposed := key, order
	proposed.ID = id
	copy(key.Fingerprint[:], fingerprint)
	return proposeWith(t.Context(), store, key, proposed)
}

// A script is an Accept that ends each of its calls when the test says how.
type script struct {
	calls []string // the IDs of the orders
	end   chan func() error
}

// newScript returns a script and a store that it is the Accept of.
func newScript(t *testing.T, engine engine) (*script, *sqlstore.Store) {
	s := &script{end: make(chan func() error)}
	return s, inTime(open(t, newFakeDB(engine)), s.accept)
}

func (s *script) accept(ctx context.Context, _ *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
	s.calls = append(s.calls, order.ID)
	select {
	case end := <-s.end:
		return end()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func accept() error { return nil }

// Calls that wait for a try do not count as calls in progress: MaxCalls is 1 here.
func TestCallsWithOneKeyShareATry(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		s := &script{end: make(chan func() error)}
		db := open(t, newFakeDB(engine))
		store := sqlstore.New(db, &sqlstore.Options{Accept: s.accept, MaxCalls: 1})
		var calls []*pending
		for i := range 300 {
			calls = append(calls, share(t, store, fmt.Sprint("ord_", i)))
		}
		if n := db.Stats().InUse; n != 1 {
			t.Errorf("%v: they use %d connections", engine, n)
		}
		if got := store.Stats(); got.Running != 1 || got.Waiting != 299 {
			t.Errorf("%v: the store has %+v", engine, got)
		}
		s.end <- accept
		for _, c := range calls {
			c.want(t, "ord_0")
		}
		if len(s.calls) != 1 {
			t.Errorf("%v: Accept was called for %q", engine, s.calls)
		}
		if got := store.Stats(); got.Created != 1 || got.Replayed != 299 {
			t.Errorf("%v: the store has %+v", engine, got)
		}
	})
}

// The calls that have waited get the order, even if another program has created it.
func TestCallsThatShareATryGetTheOrderThatWasThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHeldDB(postgres)
		store := sqlstore.New(open(t, f), nil)
		replays, let := 0, make(chan struct{})
		f.before = func(_ context.Context, kind string) error {
			if kind == "REPLAY" {
				replays++
				<-let
			}
			return nil
		}
		f.server.addOrder(key, order)
		calls := []*pending{share(t, store, "a"), share(t, store, "b"), share(t, store, "c")}
		close(let)
		for _, c := range calls {
			c.want(t, order.ID)
		}
		if replays != 1 {
			t.Errorf("the order was looked for %d times", replays)
		}
	})
}

func TestOthersGoOnWithoutWhoMakesTheTry(t *testing.T) {
	broken := errors.New("broken")
	for name, stop := range map[string]func(*pending, *script){
		"cancelled": func(c *pending, _ *script) { c.leave() },
		"panics":    func(_ *pending, s *script) { s.end <- func() error { panic("a value") } },
		"fails":     func(_ *pending, s *script) { s.end <- func() error { return broken } },
	} {
		onEach(t, func(t *testing.T, engine engine) {
			s, store := newScript(t, engine)
			first := share(t, store, "first")
			var calls []*pending
			for i := range 5 {
				calls = append(calls, share(t, store, fmt.Sprint(i)))
			}
			stop(first, s)
			synctest.Wait()
			<-first.ended
			if first.err == nil && first.panicked == nil {
				t.Errorf("%v, %s: the first call returned %v", engine, name, first.got)
			}
			// Any one of them makes the next try.
			s.end <- accept
			for _, c := range calls {
				<-c.ended
				c.want(t, s.calls[1])
			}
			if len(s.calls) != 2 {
				t.Errorf("%v, %s: Accept was called for %q", engine, name, s.calls)
			}
		})
	}
}

// A later call may be accepted: there may be more in stock since the refusal. So may one with another fingerprint,
// whose order Accept has not seen.
func TestRefusalIsForThoseWhoCameBeforeTheTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := &storefront.Refusal{Reason: "sold-out"}
		s, store := newScript(t, postgres)
		first := share(t, store, "first")
		same := []*pending{first, share(t, store, "a"), share(t, store, "b"), share(t, store, "c")}
		other := share(t, store, "other", 2)
		refuse := func(want ...string) {
			s.end <- func() error { return refusal }
			synctest.Wait()
			if !slices.Equal(s.calls, want) {
				t.Fatalf("after a refusal, Accept was called for %q, want %q", s.calls, want)
			}
		}
		refuse("first", "a")
		late := share(t, store, "late")
		refuse("first", "a", "late")
		refuse("first", "a", "late", "other")
		for _, c := range append(same, late) {
			if err := c.wait(); err != refusal {
				t.Errorf("the call for %s returned %v, %v, want the refusal", c.id, c.got, err)
			}
		}
		s.end <- accept
		other.want(t, "other")
		if got := store.Stats(); got.Refused != 5 || got.Created != 1 {
			t.Errorf("the store has %+v", got)
		}
	})
}

// The time of a call begins when the call does, not when it makes a try.
func TestTimeOfACallThatWaitsForATryIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newScript(t, postgres)
		calls := []*pending{share(t, store, "first")}
		time.Sleep(4 * time.Second)
		calls = append(calls, share(t, store, "second"), share(t, store, "third"))
		time.Sleep(4 * time.Second)
		calls = append(calls, share(t, store, "last"))
		for _, c := range calls[:3] {
			<-c.ended
			// The first call ends with the error of Accept. Each of the others ends in its own try,
			// or while it waits for that of another.
			if c.took != timeout || c.got != (storefront.Order{}) || !errors.Is(c.err, storefront.ErrUnavailable) {
				t.Errorf("the call for %s returned %v, %v after %v", c.id, c.got, c.err, c.took)
			}
		}
		s.end <- accept
		calls[3].want(t, "last")
	})
}
