package storetest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

var wrongCrashes = []wrongStore{
	{"the order, then the key", func(s *store) {
		var mu sync.Mutex
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			if s.isKnown(k) {
				return right(context.WithoutCancel(ctx), k, o)
			}
			right(context.WithoutCancel(ctx), key{Scope: "without a key", Value: o.ID}, o)
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return right(context.WithoutCancel(ctx), k, o)
		})
	}, []string{atomic}, "two statements without a transaction"},
	{"a crash between the order and the key", func(s *store) {
		crashed, turn := make(chan struct{}), make(chan struct{}, 1)
		right := s.creator()
		s.reopen = func() storefront.Store {
			close(crashed)
			again := s.again()
			again.create = right
			return again
		}
		s.create = func(ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			ctx = context.WithoutCancel(ctx)
			turn <- struct{}{} // not a mutex, for which the clock of a bubble does not move
			defer func() { <-turn }()
			if s.isKnown(k) {
				return right(ctx, k, o)
			}
			right(ctx, key{Scope: "without a key", Value: o.ID}, o)
			time.Sleep(time.Microsecond)
			select {
			case <-crashed:
				return order{}, errDriver
			default:
				return right(ctx, k, o)
			}
		}
	}, []string{atomic}, "was made while the store crashed"},
	{"Reopen returns nil", func(s *store) {
		s.reopen = func() storefront.Store { return nil }
	}, []string{atomic, crash, ordered, noTrace}, "Reopen returned nil."},
	{"a replay is always in progress", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if s.isKnown(k) && ctx.Err() == nil {
				return order{}, storefront.ErrInProgress
			}
			return right(ctx, k, o)
		})
	}, []string{atomic, exactlyOne, crash, replay, sameKey, reused, inProgress, decided, ordered, lifetime, settles, notLater}, "another call with its key failed: storefront: a call with this idempotency key is in progress"},
	{"Reopen returns a store without Orders", func(s *store) {
		s.reopen = func() storefront.Store {
			return struct {
				storefront.Store
				storetest.Editor
				storetest.Refuser
				storetest.Reopener
			}{s, s, s, s}
		}
	}, []string{atomic, crash, ordered, noTrace}, "has not got the methods of storetest.OrderLister"},
	{"keys in memory alone", func(s *store) {
		s.reopen = func() storefront.Store {
			again := newStore(storetest.Contents{})
			for _, o := range s.Orders() {
				again.MemStore.CreateOrder(context.Background(), key{Scope: "lost", Value: o.ID}, o)
			}
			return again
		}
	}, []string{crash}, "keys that are kept in memory alone"},
	{"the last orders are not on disk yet", func(s *store) {
		s.reopen = func() storefront.Store { return newStore(storetest.Contents{}) }
	}, []string{crash}, "acknowledged before it is on disk"},
	{"another order after a crash", func(s *store) {
		s.reopen = func() storefront.Store {
			again := s.again()
			again.replays(func(o *order) { o.Qty++ })
			return again
		}
	}, []string{crash}, "Qty 3, want 2"},
	{"fingerprints in memory alone", func(s *store) {
		s.reopen = func() storefront.Store {
			again := s.again()
			again.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
				stored, err := right(ctx, k, o)
				if errors.Is(err, storefront.ErrKeyReused) {
					return order{ID: "the stored one"}, nil
				}
				return stored, err
			})
			return again
		}
	}, []string{crash}, "fingerprints that are kept in memory alone"},
}
