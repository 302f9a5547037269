package storetest_test

import (
	"cmp"
	"fmt"
	"sync"
	atomics "sync/atomic"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

// rightStores keep the contract, each in a way that not every store does.
var rightStores = []struct {
	name   string
	change func(*store)
}{
	{"the store that the wrong ones are made of", func(*store) {}},
	{"wrapped errors, times in another zone, and slices with room", func(s *store) {
		s.calls(func(_ ctxt, call func() error) error { return wrapped(call()) })
		s.replays(func(o *order) { o.CreatedAt = o.CreatedAt.In(time.FixedZone("", 3600)) })
		s.lists(func(l list, ctx ctxt, position string, limit int) ([]resource, error) {
			page, err := l.right(ctx, position, limit)
			return append(make([]resource, 0, 1000), page...), err
		})
	}},
	{"calls that meet another are in progress", func(s *store) {
		var busy sync.Map
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if _, taken := busy.LoadOrStore(nameOf(k), true); taken {
				return order{}, storefront.ErrInProgress
			}
			defer busy.Delete(nameOf(k))
			time.Sleep(time.Microsecond)
			return right(ctx, k, o)
		})
		s.lookFirst()
	}},
	{"every fifth call is unavailable", func(s *store) {
		var calls atomics.Int64
		s.calls(func(ctx ctxt, call func() error) error {
			if calls.Add(1)%5 == 0 {
				return cmp.Or(ctx.Err(), storefront.ErrUnavailable)
			}
			return call()
		})
	}},
	{"what the service never asks is an error", (*store).refuseUnasked},
	{"unavailable for a call that does not wait", func(s *store) {
		s.calls(func(ctx ctxt, call func() error) error {
			if err := call(); ctx.Err() == nil {
				return err
			}
			return fmt.Errorf("%w: %w", storefront.ErrUnavailable, ctx.Err())
		})
	}},
	{"refusals of the store's own words, and what is sold out is back after a crash", func(s *store) {
		s.refusal = storefront.Refusal{Reason: soldOut.Reason}
		s.refusalIs(func(r storefront.Refusal) error {
			return wrapped(&storefront.Refusal{Reason: r.Reason, Detail: time.Now().String()})
		})
		s.reopen = func() storefront.Store {
			s.soldOut.Clear()
			return s
		}
	}},
	{"decided, then recorded, while others with the key wait", func(s *store) {
		s.decideApart()
		s.takeTurns(nameOf, waitOrLeave)
	}},
	{"keys for a day, in calls that take their time", func(s *store) {
		s.expireKeys(storefront.KeyLifetime)
		s.takeTime(100 * time.Millisecond)
		s.lists(func(l list, ctx ctxt, position string, limit int) ([]resource, error) {
			pause(ctx, 100*time.Millisecond)
			return l.right(ctx, position, limit)
		})
	}},
	{"an order that is created though the call fails, as its context is done meanwhile", func(s *store) {
		s.lookLast(ctxt.Err)
		s.lookFirst()
	}},
}

// refuseUnasked makes the methods that read fail for what the service never asks.
func (s *store) refuseUnasked() {
	check := func(scope, id string, limit int) error {
		if _, err := storefront.NewResource(id, nil); err != nil || scope == "" || limit < 1 {
			return fmt.Errorf("asked for %q, up to %d, in the scope %q", id, limit, scope)
		}
		return nil
	}
	s.lists(func(l list, ctx ctxt, position string, limit int) ([]resource, error) {
		if err := check("any", cmp.Or(position, "first"), limit); err != nil {
			return nil, err
		}
		return l.right(ctx, position, limit)
	})
	s.get = func(ctx ctxt, id string) (resource, error) {
		if err := check("any", id, 1); err != nil {
			return resource{}, err
		}
		return s.MemStore.GetProduct(ctx, id)
	}
	s.listOrders = func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
		if err := check(scope, cmp.Or(after, "first"), limit); err != nil {
			return nil, err
		}
		return s.MemStore.ListOrders(ctx, scope, after, limit)
	}
	for get, right := range map[*orderGetter]orderGetter{&s.getOrder: s.getOrder, &s.byKey: s.byKey} {
		*get = func(ctx ctxt, scope, idOrKey string) (resource, error) {
			if err := check(scope, idOrKey, 1); err != nil {
				return resource{}, err
			}
			return right(ctx, scope, idOrKey)
		}
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the store: %w", err)
}

func TestRightStoresPass(t *testing.T) {
	t.Parallel()
	for _, r := range rightStores {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunSynctest(t, changed(r.change))
		})
	}
	t.Run("a key's time by the store's own clock", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, changed(func(s *store) { s.expireKeys(storefront.KeyLifetime + time.Minute) }))
	})
}

func TestMemStoreKeepsTheContract(t *testing.T) {
	memStore := changed(func(s *store) { s.create = s.MemStore.CreateOrder })
	t.Run("in real time", func(t *testing.T) { storetest.Run(t, memStore) })
	// In a bubble the clock moves, and a call that waits is noticed.
	t.Run("in bubbles", func(t *testing.T) { storetest.RunSynctest(t, memStore) })
}

// A bareStore has the four methods, and of the optional ones but half of an Editor.
type bareStore struct{ storefront.Store }

func (bareStore) Put(ctxt, storetest.Contents) error { return nil }

func TestBareStorePasses(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, c storetest.Contents) storefront.Store { return bareStore{newStore(c)} })
}
