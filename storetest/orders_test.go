package storetest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	atomics "sync/atomic"
	"time"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

var forgetful = wrongStore{"keys for a day but two minutes", func(s *store) {
	s.expireKeys(24*time.Hour - 2*time.Minute)
}, []string{lifetime}, "23h59m0s after"}

var wrongOrders = []wrongStore{
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
	{"the unique constraint's error", func(s *store) {
		s.races(func(_ key, o, stored order, err error) (order, error) {
			if err == nil && stored.ID != o.ID {
				return order{}, errors.New("duplicate key value violates unique constraint")
			}
			return stored, err
		})
	}, []string{inProgress}, "read the order of the first"},

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
	{"orders are not read back after a crash", func(s *store) {
		s.reopen = func() storefront.Store {
			return struct {
				storefront.Store
				storetest.Clock
				storetest.Editor
				storetest.OrderLister
				storetest.Refuser
				storetest.Reopener
			}{s, s, s, s, s, s}
		}
	}, []string{atomic, crash, noTrace, ordered}, "which has not got the methods of storefront.OrderReader"},

	{"an order is returned without milliseconds", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			known := s.isKnown(k)
			stored, err := right(ctx, k, o)
			if !known {
				stored.CreatedAt = stored.CreatedAt.Truncate(time.Second)
			}
			return stored, err
		})
	}, []string{asGiven}, "CreatedAt"},
	{"quantities in 32 bits", func(s *store) { s.replays(func(o *order) { o.Qty = int64(int32(o.Qty)) }) }, []string{replay}, "an integer of 32 bits"},
	{"the time of a call that lost a race", func(s *store) {
		s.races(func(_ key, o, stored order, err error) (order, error) {
			if err == nil {
				stored.CreatedAt = o.CreatedAt
			}
			return stored, err
		})
	}, []string{replay}, "loses a race"},
	{"a replay with the order's own ID taken for new", func(s *store) {
		s.returns(func(_ key, o, stored order, err error) (order, error) {
			if err == nil && stored.ID == o.ID {
				return o, nil
			}
			return stored, err
		})
	}, []string{replay}, "CreatedAt"},

	{"keys joined", func(s *store) { s.keys(func(k *key) { k.Scope, k.Value = "", k.Scope+k.Value }) }, []string{sameKey}, "was taken for"},
	{"keys without case", func(s *store) { s.keys(func(k *key) { k.Value = strings.ToLower(k.Value) }) }, []string{sameKey}, `Value: "K"`},
	{"half of a fingerprint", func(s *store) { s.keys(func(k *key) { clear(k.Fingerprint[16:]) }) }, []string{reused}, "differs in the last byte"},
	{"fingerprints in the key", func(s *store) {
		s.keys(func(k *key) { k.Value += fmt.Sprintf("%x", k.Fingerprint); k.Fingerprint = [32]byte{} })
	}, []string{reused, ordered}, "part of the key in the unique constraint"},
	{"an order of a reused key", func(s *store) {
		s.returns(func(_ key, o, stored order, err error) (order, error) {
			if errors.Is(err, storefront.ErrKeyReused) {
				s.createWithoutKey(o)
			}
			return stored, err
		})
	}, []string{reused}, "created an order"},
	{"another error for a reused key", func(s *store) {
		s.returns(func(_ key, _, stored order, err error) (order, error) {
			if errors.Is(err, storefront.ErrKeyReused) {
				err = errors.New("conflict")
			}
			return stored, err
		})
	}, []string{reused}, "does not match ErrKeyReused: conflict"},
	forgetful,

	{"an order is created, then ctx looked at, unless that was done by chance before", func(s *store) {
		s.lookLast(ctxt.Err)
		s.takeTurns(oneForAll, waitOrLeave)
	}, []string{noTrace}, "looked at after the order was recorded"},
	{"the driver's error in the midst", func(s *store) {
		s.lookLast(func(ctxt) error { return errDriver })
		s.lookFirst()
	}, []string{unknown}, "matches neither context canceled nor ErrUnavailable"},
	{"the key, then the order", func(s *store) {
		begun := make(map[string]bool)
		s.oneByOne(func(right creator, ctx ctxt, k key, o order) (order, error) {
			name := fmt.Sprintf("%s %x", nameOf(k), k.Fingerprint)
			if begun[name] && !s.isKnown(k) {
				return order{}, errors.New("the key has no order")
			}
			begun[name] = true
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return right(context.WithoutCancel(ctx), k, o)
		})
		s.lookFirst()
	}, []string{settles, inProgress, decided}, "leaves something behind"},

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
	{"a refusal as text", func(s *store) {
		s.refusalIs(func(r storefront.Refusal) error { return errors.New(r.Error()) })
	}, []string{decided}, "does not match *storefront.Refusal: storefront: order refused (sold-out)"},
	{"an order is rolled back with one that is refused", func(s *store) {
		var refusals atomics.Int64
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if s.decide(o) != nil {
				refusals.Add(1)
				defer refusals.Add(-1)
				time.Sleep(time.Microsecond)
				return right(ctx, k, o)
			}
			time.Sleep(time.Nanosecond)
			if refusals.Load() > 0 && !s.isKnown(k) {
				return o, nil
			}
			return right(ctx, k, o)
		})
		s.lookFirst()
	}, []string{decided, ordered}, "all of them are rolled back if one is refused"},
	{"refused before the key is looked for", (*store).decideFirst, []string{ordered}, "it is decided before the key is looked for"},
	{"decided, then recorded", (*store).decideApart, []string{ordered}, "to decide and to record the order are not one step"},
	{"after a crash, refused before the key is looked for", func(s *store) {
		s.afterCrash((*store).decideFirst)
	}, []string{ordered}, "and after a crash, a call with the order's key failed"},
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

// expireKeys makes the store forget each key after a time.
func (s *store) expireKeys(lifetime time.Duration) {
	var created sync.Map // when, by name
	s.keys(func(k *key) {
		at, known := created.Load(nameOf(*k))
		if !known || s.now().Sub(at.(time.Time)) > lifetime {
			at = s.now()
			created.Store(nameOf(*k), at)
		}
		k.Value += fmt.Sprint(at)
	})
	s.byKey = func(ctx ctxt, scope, value string) (resource, error) {
		at, _ := created.Load(nameOf(key{Scope: scope, Value: value}))
		return s.MemStore.GetOrderByKey(ctx, scope, value+fmt.Sprint(at))
	}
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
