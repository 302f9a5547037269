package storetest_test

import (
	"context"
	"errors"
	"time"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

var wrongCrashes = []wrongStore{
	{"the order, then the key", func(s *store) {
		s.oneByOne(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if !s.isKnown(k) {
				s.createWithoutKey(o)
				if ctx.Err() != nil {
					return order{}, ctx.Err()
				}
			}
			return right(context.WithoutCancel(ctx), k, o)
		})
		s.lookFirst()
	}, []string{atomic}, "two statements without a transaction"},
	{"a crash between the order and the key", func(s *store) {
		crashed, turn := make(chan struct{}), make(chan struct{}, 1)
		right := s.create
		s.afterCrash(func(again *store) {
			close(crashed)
			again.create = right
		})
		s.around(func(_ creator, ctx ctxt, k key, o order) (order, error) {
			ctx = context.WithoutCancel(ctx)
			turn <- struct{}{} // not a mutex, for which the clock of a bubble does not move
			defer func() { <-turn }()
			if s.isKnown(k) {
				return right(ctx, k, o)
			}
			s.createWithoutKey(o)
			time.Sleep(time.Microsecond)
			select {
			case <-crashed:
				return order{}, errDriver
			default:
				return right(ctx, k, o)
			}
		})
		s.lookFirst()
	}, []string{atomic}, "was made while the store crashed"},
	{"the last orders are not on disk yet", func(s *store) {
		s.reopen = func() storefront.Store { return newStore(storetest.Contents{}) }
	}, []string{crash}, "acknowledged before it is on disk"},
	{"fingerprints in memory alone", func(s *store) {
		s.afterCrash(func(again *store) {
			again.returns(func(_ key, _, stored order, err error) (order, error) {
				if errors.Is(err, storefront.ErrKeyReused) {
					return order{ID: "the stored one"}, nil
				}
				return stored, err
			})
		})
	}, []string{crash}, "fingerprints that are kept in memory alone"},
}

// afterCrash changes the store that Reopen returns, which has the same orders.
func (s *store) afterCrash(change func(again *store)) {
	s.reopen = func() storefront.Store {
		again := newStore(storetest.Contents{})
		again.MemStore, again.create, again.soldOut = s.MemStore, s.create, s.soldOut
		change(again)
		return again
	}
}
