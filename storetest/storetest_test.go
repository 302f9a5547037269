package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

type (
	ctxt     = context.Context
	resource = storefront.Resource
	key      = storefront.IdempotencyKey
	order    = storefront.Order
	lister   = func(ctx ctxt, position string, limit int) ([]resource, error)
	creator  = func(ctx ctxt, k key, o order) (order, error)
	getter   = func(ctx ctxt, id string) (resource, error)

	orderGetter = func(ctx ctxt, scope, idOrKey string) (resource, error)
)

// A store keeps the contract until one of its functions is changed. It has all optional
// methods.
type store struct {
	*storefront.MemStore
	listUsers, listWidgets lister
	create                 creator
	get                    getter
	getOrder, byKey        orderGetter
	listOrders             func(ctx ctxt, scope, after string, limit int) ([]resource, error)
	reopen                 func() storefront.Store
	soldOut                *sync.Map          // items
	refusal                storefront.Refusal // the one that SellOut returns

	knowing sync.Mutex
	known   map[string]bool // the keys that have an order

	ahead time.Duration // of the clock
}

func newStore(contents storetest.Contents) *store {
	m := new(storefront.MemStore)
	s := &store{
		MemStore: m, listUsers: m.ListUsers, listWidgets: m.ListWidgets, get: m.GetProduct,
		getOrder: m.GetOrder, byKey: m.GetOrderByKey, listOrders: m.ListOrders,
		soldOut: new(sync.Map), refusal: soldOut, known: make(map[string]bool),
	}
	s.create, s.reopen = s.createRight, func() storefront.Store { return s }
	s.Accept = func(_ ctxt, _ key, o order) error { return s.decide(o) }
	s.Put(context.Background(), contents)
	return s
}

// changed returns a function that makes stores and changes them.
func changed(change func(*store)) func(*testing.T, storetest.Contents) storefront.Store {
	return func(_ *testing.T, contents storetest.Contents) storefront.Store {
		s := newStore(contents)
		change(s)
		return s
	}
}

func (s *store) GetOrder(ctx ctxt, scope, id string) (resource, error) {
	return s.getOrder(ctx, scope, id)
}

func (s *store) ListOrders(ctx ctxt, scope, after string, limit int) ([]resource, error) {
	return s.listOrders(ctx, scope, after, limit)
}

func (s *store) GetOrderByKey(ctx ctxt, scope, key string) (resource, error) {
	return s.byKey(ctx, scope, key)
}

func (s *store) ListUsers(ctx ctxt, after string, limit int) ([]resource, error) {
	return s.listUsers(ctx, after, limit)
}

func (s *store) ListWidgets(ctx ctxt, start string, limit int) ([]resource, error) {
	return s.listWidgets(ctx, start, limit)
}

func (s *store) CreateOrder(ctx ctxt, k key, o order) (order, error) { return s.create(ctx, k, o) }
func (s *store) GetProduct(ctx ctxt, id string) (resource, error)    { return s.get(ctx, id) }
func (s *store) Reopen(*testing.T) storefront.Store                  { return s.reopen() }
func (s *store) Advance(d time.Duration)                             { s.ahead += d }
func (s *store) now() time.Time                                      { return time.Now().Add(s.ahead) }

// createRight creates an order as the contract says.
func (s *store) createRight(ctx ctxt, k key, o order) (order, error) {
	s.knowing.Lock()
	defer s.knowing.Unlock()
	stored, err := s.MemStore.CreateOrder(ctx, k, o)
	if err == nil {
		s.known[nameOf(k)] = true
	}
	return stored, err
}

func (s *store) Put(_ ctxt, c storetest.Contents) error {
	s.Users.Put(c.Users...)
	s.Products.Put(c.Products...)
	s.Widgets.Put(c.Widgets...)
	return nil
}

func (s *store) Delete(_ ctxt, c storetest.Contents) error {
	s.Users.Delete(ids(c.Users)...)
	s.Products.Delete(ids(c.Products)...)
	s.Widgets.Delete(ids(c.Widgets)...)
	return nil
}

// Orders returns each order once, even if it has two keys.
func (s *store) Orders() []order {
	var orders []order
	for _, o := range s.MemStore.Orders() {
		if !slices.ContainsFunc(orders, o.Equal) {
			orders = append(orders, o)
		}
	}
	return orders
}

var soldOut = storefront.Refusal{Reason: "sold-out", Detail: "There is none left.", Pointer: "#/item"}

func (s *store) SellOut(_ ctxt, item string) (storefront.Refusal, error) {
	s.soldOut.Store(item, true)
	return s.refusal, nil
}

func (s *store) Restock(_ ctxt, item string) error {
	s.soldOut.Delete(item)
	return nil
}

// decide returns a refusal if the item of an order is sold out.
func (s *store) decide(o order) error {
	if _, ok := s.soldOut.Load(o.Item); ok {
		return &soldOut
	}
	return nil
}

// isRefusal reports whether err refuses an order.
func isRefusal(err error) bool { return errors.As(err, new(*storefront.Refusal)) }

func ids(resources []resource) []string {
	var ids []string
	for _, r := range resources {
		ids = append(ids, r.ID())
	}
	return ids
}

// A list is one of the two lists of a store.
type list struct {
	right     lister
	all       *storefront.Collection
	inclusive bool // whether the item at a position is listed
}

// lists replaces ListUsers and ListWidgets.
func (s *store) lists(instead func(l list, ctx ctxt, position string, limit int) ([]resource, error)) {
	replace := func(l list) lister {
		return func(ctx ctxt, position string, limit int) ([]resource, error) {
			return instead(l, ctx, position, limit)
		}
	}
	s.listUsers = replace(list{s.listUsers, &s.Users, false})
	s.listWidgets = replace(list{s.listWidgets, &s.Widgets, true})
}

// around replaces CreateOrder with a function that may call the one that it replaces.
func (s *store) around(create func(right creator, ctx ctxt, k key, o order) (order, error)) {
	right := s.create
	s.create = func(ctx ctxt, k key, o order) (order, error) { return create(right, ctx, k, o) }
}

// calls replaces each method of the contract with a function that may call it.
func (s *store) calls(around func(ctx ctxt, call func() error) error) {
	get := s.get
	s.get = func(ctx ctxt, id string) (r resource, err error) {
		err = around(ctx, func() (err error) { r, err = get(ctx, id); return err })
		return r, err
	}
	s.lists(func(l list, ctx ctxt, position string, limit int) (page []resource, err error) {
		err = around(ctx, func() (err error) { page, err = l.right(ctx, position, limit); return err })
		return page, err
	})
	s.around(func(right creator, ctx ctxt, k key, o order) (stored order, err error) {
		err = around(ctx, func() (err error) { stored, err = right(ctx, k, o); return err })
		return stored, err
	})
	for _, get := range []*orderGetter{&s.getOrder, &s.byKey} {
		right := *get
		*get = func(ctx ctxt, scope, idOrKey string) (r resource, err error) {
			err = around(ctx, func() (err error) { r, err = right(ctx, scope, idOrKey); return err })
			return r, err
		}
	}
	listOrders := s.listOrders
	s.listOrders = func(ctx ctxt, scope, after string, limit int) (page []resource, err error) {
		err = around(ctx, func() (err error) { page, err = listOrders(ctx, scope, after, limit); return err })
		return page, err
	}
}

// oneByOne is like around, but a call waits until the one before has returned.
func (s *store) oneByOne(create func(right creator, ctx ctxt, k key, o order) (order, error)) {
	var mu sync.Mutex
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		mu.Lock()
		defer mu.Unlock()
		return create(right, ctx, k, o)
	})
}

// takeTurns lets in one call at a time of those whose keys have the same name. The
// others wait for their turn.
func (s *store) takeTurns(name func(key) string, wait func(ctx ctxt, turn chan struct{}) error) {
	var turns sync.Map
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		turn, _ := turns.LoadOrStore(name(k), make(chan struct{}, 1))
		if err := wait(ctx, turn.(chan struct{})); err != nil {
			return order{}, err
		}
		defer func() { <-turn.(chan struct{}) }()
		return right(ctx, k, o)
	})
}

func oneForAll(key) string { return "" }

// waitOrLeave waits for a turn until ctx is done. It may take a turn though ctx is done.
func waitOrLeave(ctx ctxt, turn chan struct{}) error {
	select { // at random, if both can be done
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitAnyway waits for a turn though ctx may be done meanwhile.
func waitAnyway(_ ctxt, turn chan struct{}) error {
	turn <- struct{}{}
	return nil
}

// takeTime makes CreateOrder take some time, or less if ctx is done before.
func (s *store) takeTime(d time.Duration) {
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		pause(ctx, d)
		return right(ctx, k, o)
	})
}

func pause(ctx ctxt, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// returns changes the results of CreateOrder.
func (s *store) returns(change func(k key, o, stored order, err error) (order, error)) {
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		stored, err := right(ctx, k, o)
		return change(k, o, stored, err)
	})
}

// replays changes the orders that replays return.
func (s *store) replays(change func(stored *order)) {
	s.returns(func(_ key, o, stored order, err error) (order, error) {
		if err == nil && stored.ID != o.ID {
			change(&stored)
		}
		return stored, err
	})
}

// races lets calls with one key meet: each that finds no order pauses before it goes
// on. Then it changes what those calls return.
func (s *store) races(change func(k key, o, stored order, err error) (order, error)) {
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		if s.isKnown(k) || ctx.Err() != nil {
			return right(ctx, k, o)
		}
		time.Sleep(time.Microsecond)
		stored, err := right(ctx, k, o)
		return change(k, o, stored, err)
	})
}

// keys changes the key of each call, one call at a time.
func (s *store) keys(change func(k *key)) {
	var mu sync.Mutex
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		mu.Lock()
		change(&k)
		mu.Unlock()
		return right(ctx, k, o)
	})
}

// isKnown reports whether there is an order with the key.
func (s *store) isKnown(k key) bool {
	s.knowing.Lock()
	defer s.knowing.Unlock()
	return s.known[nameOf(k)]
}

// nameOf returns the same text for the same key, whatever its fingerprint.
func nameOf(k key) string { return fmt.Sprintf("%q %q", k.Scope, k.Value) }

// createWithoutKey creates an order with a key that no call has.
func (s *store) createWithoutKey(o order) (order, error) {
	return s.MemStore.CreateOrder(context.Background(), key{Scope: "without a key", Value: o.ID}, o)
}
