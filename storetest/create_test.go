package storetest_test

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	atomics "sync/atomic"
	"time"
)

var wrongCreation = []wrongStore{
	{"SELECT, then INSERT", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if !s.isKnown(k) && ctx.Err() == nil {
				time.Sleep(time.Microsecond)
				if s.isKnown(k) { // by now
					return right(ctx, key{Value: o.ID}, o)
				}
			}
			return right(ctx, k, o)
		})
	}, []string{exactlyOne, reused}, "ON CONFLICT DO NOTHING"},
	{"a loser creates an order and returns the other", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			fresh := !s.isKnown(k)
			if fresh && ctx.Err() == nil {
				time.Sleep(time.Microsecond)
			}
			stored, err := right(ctx, k, o)
			if fresh && err == nil && stored.ID != o.ID {
				right(ctx, key{Value: o.ID}, o)
			}
			return stored, err
		})
	}, []string{exactlyOne}, "created 16 orders, want 1"},
	{"CreateOrder is not written yet", func(s *store) {
		s.create = func(ctx ctxt, _ key, _ order) (order, error) {
			return order{}, cmp.Or(ctx.Err(), errors.New("not written yet"))
		}
	}, append([]string{concurrently, done, notLater}, everyOrder...), "failed: not written yet"},
	{"replays return the order that they are given", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if _, err := right(ctx, k, o); err != nil {
				return order{}, err
			}
			return o, nil
		})
	}, []string{exactlyOne, sameKey, lifetime, settles, crash, notLater, reused, decided, ordered}, "returned the order that it was given"},
	{"a replay with the order's own ID is recorded again", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			known := s.isKnown(k)
			stored, err := right(ctx, k, o)
			if known && err == nil && stored.ID == o.ID {
				right(ctx, key{Value: o.ID}, o)
			}
			return stored, err
		})
	}, []string{exactlyOne}, "there are 2 orders with the ID, want 1"},
	{"the unique constraint's error", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			fresh := !s.isKnown(k) && ctx.Err() == nil
			if fresh {
				time.Sleep(time.Microsecond)
			}
			stored, err := right(ctx, k, o)
			if fresh && err == nil && stored.ID != o.ID {
				return order{}, errors.New("duplicate key value violates unique constraint")
			}
			return stored, err
		})
	}, []string{inProgress}, "read the order of the first"},
	{"calls that meet abort each other", func(s *store) {
		var mu sync.Mutex
		calls := make(map[*bool]bool)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			aborted := new(bool)
			mu.Lock()
			calls[aborted] = true
			for met := range calls {
				*met = len(calls) > 1 || *met
			}
			mu.Unlock()
			time.Sleep(time.Microsecond)
			mu.Lock()
			delete(calls, aborted)
			failed := *aborted
			mu.Unlock()
			if failed {
				return order{}, errors.New("could not serialize access")
			}
			return right(ctx, k, o)
		})
	}, []string{inProgress, concurrently, decided}, "could not serialize access"},
	{"calls joined under the first one's context", func(s *store) {
		type flight struct {
			over chan struct{}
			o    order
			err  error
		}
		var mu sync.Mutex
		flights := make(map[string]*flight)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			name := fmt.Sprint(k)
			mu.Lock()
			if ctx.Err() != nil {
				mu.Unlock()
				return order{}, ctx.Err()
			}
			f, joined := flights[name]
			if !joined {
				f = &flight{over: make(chan struct{})}
				flights[name] = f
			}
			mu.Unlock()
			if joined {
				<-f.over
				return f.o, f.err
			}
			time.Sleep(time.Microsecond)
			f.o, f.err = right(ctx, k, o)
			mu.Lock()
			delete(flights, name)
			mu.Unlock()
			close(f.over)
			return f.o, f.err
		})
	}, []string{inProgress}, "calls with one key are joined"},
	{"a refused order is not rolled back", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if isRefusal(err) {
				o.Item = "refused"
				right(ctx, key{Value: o.ID}, o)
			}
			return stored, err
		})
	}, []string{exactlyOne, noTrace}, "sold out now and then, and one after them created 17 orders"},
	{"a key that was refused is not recorded later on", func(s *store) {
		var mu sync.Mutex
		var calls atomics.Int64
		refused := make(map[string]bool)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			time.Sleep(time.Duration(calls.Add(1)%8) * time.Microsecond)
			mu.Lock()
			defer mu.Unlock()
			name := nameOf(k)
			if refused[name] {
				k.Value = o.ID
			}
			stored, err := right(ctx, k, o)
			refused[name] = refused[name] || isRefusal(err)
			return stored, err
		})
	}, []string{exactlyOne, decided}, "sold out now and then, and one after them, "},
}
