package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"example.com/storefront"
)

var wrongInterruptions = []wrongStore{
	{"a refused call keeps its key", func(s *store) {
		var mu sync.Mutex
		taken := make(map[string]key)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			if first, ok := taken[nameOf(k)]; ok && first.Fingerprint != k.Fingerprint {
				return order{}, storefront.ErrKeyReused
			}
			stored, err := right(ctx, k, o)
			if isRefusal(err) {
				taken[nameOf(k)] = k
			}
			return stored, err
		})
	}, []string{noTrace}, "A call whose order was refused failed. Then a call with the same key and another order failed"},
	{"a refused order is recovered after a crash", func(s *store) {
		var mu sync.Mutex
		var refused []order
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if isRefusal(err) {
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, o)
			}
			return stored, err
		})
		s.reopen = func() storefront.Store {
			for _, o := range refused {
				o.Item = "refused"
				s.MemStore.CreateOrder(context.Background(), key{Value: o.ID}, o)
			}
			return s
		}
	}, []string{noTrace}, "After a crash there are 3 orders that were refused"},
	{"a failed call keeps its key", func(s *store) {
		var mu sync.Mutex
		taken := make(map[string]key)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			name := nameOf(k)
			if first, ok := taken[name]; ok && first.Fingerprint != k.Fingerprint {
				return order{}, storefront.ErrKeyReused
			}
			stored, err := right(ctx, k, o)
			if err == nil || ctx.Err() != nil {
				taken[name] = k
			}
			return stored, err
		})
	}, []string{noTrace}, "the key is recorded before the order"},
	{"a failure is remembered", func(s *store) {
		var mu sync.Mutex
		failures := make(map[string]error)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			name := nameOf(k)
			if err := failures[name]; err != nil {
				return order{}, err
			}
			stored, err := right(ctx, k, o)
			if ctx.Err() != nil {
				failures[name] = err
			}
			return stored, err
		})
	}, []string{noTrace, settles, inProgress}, "leaves something behind"},
	{"an order is created, then ctx looked at", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(context.WithoutCancel(ctx), k, o)
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return stored, err
		})
	}, []string{noTrace}, "looked at after the order was recorded"},
	{"an order is created, then ctx looked at, unless that was done by chance before", func(s *store) {
		turn := make(chan struct{}, 1)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			select { // at random, if both can be done
			case turn <- struct{}{}:
				defer func() { <-turn }()
			case <-ctx.Done():
				return order{}, ctx.Err()
			}
			stored, err := right(context.WithoutCancel(ctx), k, o)
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return stored, err
		})
	}, []string{noTrace}, "looked at after the order was recorded"},
	{"the driver's error in the midst", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			stored, err := right(context.WithoutCancel(ctx), k, o)
			if ctx.Err() != nil {
				return order{}, errDriver
			}
			return stored, err
		})
	}, []string{unknown}, "matches neither context canceled nor ErrUnavailable"},
	{"the key, then the order", func(s *store) {
		var mu sync.Mutex
		begun := make(map[string]string)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			if begun[nameOf(k)+fmt.Sprint(k.Fingerprint)] != "" && !s.isKnown(k) {
				return order{}, errors.New("the key has no order")
			}
			begun[nameOf(k)+fmt.Sprint(k.Fingerprint)] = o.ID
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return right(context.WithoutCancel(ctx), k, o)
		})
	}, []string{settles, inProgress, decided}, "leaves something behind"},
	{"the key of an interrupted call is not recorded again", func(s *store) {
		var mu sync.Mutex
		interrupted := make(map[string]bool)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				interrupted[nameOf(k)] = true
				return order{}, ctx.Err()
			}
			if interrupted[nameOf(k)] {
				k.Value = o.ID
			}
			return right(context.WithoutCancel(ctx), k, o)
		})
	}, []string{settles}, "The third returned another"},
}
