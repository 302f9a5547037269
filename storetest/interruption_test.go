package storetest_test

import (
	"context"
	"errors"

	"example.com/storefront"
)

var wrongInterruptions = []wrongStore{
	{"an order is created, then ctx looked at, unless that was done by chance before", func(s *store) {
		s.lookLast(ctxt.Err)
		s.takeTurns(oneForAll, waitOrLeave)
	}, []string{noTrace}, "looked at after the order was recorded"},
	{"a refused order is recovered after a crash", func(s *store) {
		var refused []order
		s.oneByOne(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if isRefusal(err) {
				refused = append(refused, o)
			}
			return stored, err
		})
		s.reopen = func() storefront.Store {
			for _, o := range refused {
				o.Item = "refused" // which is not sold out
				s.createWithoutKey(o)
			}
			return s
		}
	}, []string{noTrace}, "After a crash there are 3 orders that were refused"},

	{"the driver's error in the midst", func(s *store) {
		s.lookLast(func(ctxt) error { return errDriver })
		s.lookFirst()
	}, []string{unknown}, "matches neither context canceled nor ErrUnavailable"},

	{"the key, then the order", func(s *store) {
		begun := make(map[string]bool)
		s.oneByOne(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if begun[fullNameOf(k)] && !s.isKnown(k) {
				return order{}, errors.New("the key has no order")
			}
			begun[fullNameOf(k)] = true
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return right(context.WithoutCancel(ctx), k, o)
		})
		s.lookFirst()
	}, []string{settles, inProgress, decided}, "leaves something behind"},
	{"the key of an interrupted call is not recorded again", func(s *store) {
		interrupted := make(map[string]bool)
		s.oneByOne(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				interrupted[nameOf(k)] = true
				return order{}, ctx.Err()
			}
			if interrupted[nameOf(k)] {
				return s.createWithoutKey(o)
			}
			return right(context.WithoutCancel(ctx), k, o)
		})
		s.lookFirst()
	}, []string{settles}, "The third returned another"},
}

// lookFirst makes each method look at ctx before it does anything else.
func (s *store) lookFirst() {
	s.calls(func(ctx ctxt, call func() error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return call()
	})
}

// lookLast makes CreateOrder create the order whatever ctx says, and then fail if ctx is
// done.
func (s *store) lookLast(failure func(ctxt) error) {
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		stored, err := right(context.WithoutCancel(ctx), k, o)
		if ctx.Err() != nil {
			return order{}, failure(ctx)
		}
		return stored, err
	})
}
