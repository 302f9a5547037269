package storetest_test

import (
	"cmp"
	"errors"

	"example.com/storefront"
)

var wrongCreation = []wrongStore{
	{"CreateOrder is not written yet", func(s *store) {
		s.create = func(ctx ctxt, _ key, _ order) (order, error) {
			return order{}, cmp.Or(ctx.Err(), errors.New("not written yet"))
		}
	}, []string{everyOrder}, "failed: not written yet"},

	{"SELECT, then INSERT", func(s *store) {
		s.races(func(_ key, o, stored order, err error) (order, error) {
			if err == nil && stored.ID != o.ID || errors.Is(err, storefront.ErrKeyReused) {
				return s.createWithoutKey(o)
			}
			return stored, err
		})
	}, []string{exactlyOne, reused}, "ON CONFLICT DO NOTHING"},
	{"replays return the order that they are given", func(s *store) {
		s.returns(func(_ key, o, stored order, err error) (order, error) {
			if err != nil {
				return order{}, err
			}
			return o, nil
		})
	}, []string{exactlyOne, sameKey, lifetime, settles, crash, reused, decided, ordered}, "returned the order that it was given"},
	{"a replay with the order's own ID is recorded again", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			known := s.isKnown(k)
			stored, err := right(ctx, k, o)
			if known && err == nil && stored.ID == o.ID {
				s.createWithoutKey(o)
			}
			return stored, err
		})
	}, []string{exactlyOne}, "there are 2 orders with the ID, want 1"},

	{"a replay is always in progress", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if s.isKnown(k) && ctx.Err() == nil {
				return order{}, storefront.ErrInProgress
			}
			return right(ctx, k, o)
		})
	}, []string{atomic, exactlyOne, crash, replay, sameKey, reused, inProgress, decided, ordered, lifetime, settles}, "another call with its key failed: storefront: a call with this idempotency key is in progress"},
	{"the unique constraint's error", func(s *store) {
		s.races(func(_ key, o, stored order, err error) (order, error) {
			if err == nil && stored.ID != o.ID {
				return order{}, errors.New("duplicate key value violates unique constraint")
			}
			return stored, err
		})
	}, []string{inProgress}, "read the order of the first"},
}
