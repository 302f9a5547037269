package storetest_test

import (
	"context"
	"errors"
	"sync"
	atomics "sync/atomic"
	"time"

	"example.com/storefront"
)

var wrongRefusals = []wrongStore{
	{"a refusal is remembered for any order", func(s *store) {
		refusals := make(map[string]error)
		s.oneByOne(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if err := refusals[nameOf(k)]; err != nil {
				return order{}, err
			}
			stored, err := right(ctx, k, o)
			if isRefusal(err) {
				refusals[nameOf(k)] = err
			}
			return stored, err
		})
	}, []string{decided, noTrace}, "recorded as the outcome of the key"},
	{"recorded, then decided", func(s *store) {
		s.Accept = nil
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			known := s.isKnown(k)
			stored, err := right(ctx, k, o)
			if err == nil && !known {
				err = s.decide(o)
			}
			return stored, err
		})
	}, []string{decided, noTrace}, "A call was refused. Another with its key returned the order"},
	{"a refusal as text", func(s *store) {
		s.refusalIs(func(r storefront.Refusal) error { return errors.New(r.Error()) })
	}, []string{decided}, "does not match *storefront.Refusal: storefront: order refused (sold-out)"},
	{"a Refusal without its pointer", func(s *store) {
		s.refusalIs(func(r storefront.Refusal) error {
			return &storefront.Refusal{Reason: r.Reason, Detail: r.Detail}
		})
	}, []string{decided}, `refused with Pointer "", want "#/item"`},
	{"all are refused that are committed with one", func(s *store) {
		s.decideTogether(func(own error) (error, bool) { return &soldOut, false })
	}, []string{decided}, "all of them are refused if one is"},
	{"all are rolled back that are committed with one that is refused", func(s *store) {
		s.decideTogether(func(own error) (error, bool) { return own, own == nil })
	}, []string{decided, ordered}, "all of them are rolled back if one is refused"},
	{"a refused order is not rolled back", func(s *store) {
		s.returns(func(_ key, o, stored order, err error) (order, error) {
			if isRefusal(err) {
				o.Item = "refused" // which is not sold out
				s.createWithoutKey(o)
			}
			return stored, err
		})
	}, []string{exactlyOne, noTrace}, "sold out now and then, and one after them created 17 orders"},

	{"refused before the key is looked for", (*store).decideFirst, []string{ordered}, "it is decided before the key is looked for"},
	{"the key is not looked for where calls meet", func(s *store) {
		var mu sync.Mutex
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if mu.TryLock() {
				defer mu.Unlock()
				time.Sleep(time.Microsecond)
			} else if err := s.decide(o); err != nil {
				return order{}, err
			}
			return right(ctx, k, o)
		})
		s.lookFirst()
	}, []string{ordered}, "one of 16 concurrent calls with the order's key was refused"},
	{"decided, then recorded", (*store).decideApart, []string{ordered}, "to decide and to record the order are not one step"},
	{"after a crash, refused before the key is looked for", func(s *store) {
		s.afterCrash((*store).decideFirst)
	}, []string{ordered}, "and after a crash, a call with the order's key failed"},
}

// decideFirst makes the store refuse an order for a sold-out item before it looks for the
// key.
func (s *store) decideFirst() {
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		if err := s.decide(o); err != nil && ctx.Err() == nil {
			return order{}, err
		}
		return right(ctx, k, o)
	})
}

// decideApart makes the store look for the key and decide in one step, and record the
// order in another, some time later.
func (s *store) decideApart() {
	s.Accept = nil
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		if !s.isKnown(k) {
			if err := s.decide(o); err != nil {
				return order{}, err
			}
		}
		if ctx.Err() != nil {
			return order{}, ctx.Err()
		}
		time.Sleep(time.Microsecond)
		return right(context.WithoutCancel(ctx), k, o)
	})
	s.lookFirst()
}

// refusalIs returns another error instead of a refusal.
func (s *store) refusalIs(instead func(storefront.Refusal) error) {
	s.returns(func(_ key, _, stored order, err error) (order, error) {
		if isRefusal(err) {
			err = instead(soldOut)
		}
		return stored, err
	})
}

// decideTogether makes the store decide orders whose calls meet together. Where one is to be refused and
// another is not, instead decides anew, and whether what is not refused is lost.
func (s *store) decideTogether(instead func(own error) (_ error, lost bool)) {
	var refused, accepted atomics.Int64
	s.Accept = nil
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		own, lost := s.decide(o), false
		if ctx.Err() != nil || s.isKnown(k) {
			return right(ctx, k, o)
		}
		same, others := &accepted, &refused
		if own != nil {
			same, others = others, same
		}
		same.Add(1)
		time.Sleep(time.Microsecond)
		if others.Load() > 0 {
			own, lost = instead(own)
		}
		time.Sleep(time.Microsecond) // until the others have seen it
		same.Add(-1)
		if own != nil {
			return order{}, own
		}
		if lost {
			return o, nil
		}
		return right(context.WithoutCancel(ctx), k, o)
	})
	s.lookFirst()
}
