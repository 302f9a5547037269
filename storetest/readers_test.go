package storetest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"example.com/storefront"
)

// A changedReader is an OrderReader with other methods.
type changedReader struct {
	*storefront.MemStore
	get, byKey func(ctx ctxt, scope, text string) (resource, error)
	list       func(ctx ctxt, scope, after string, limit int) ([]resource, error)
}

func (r changedReader) GetOrder(ctx ctxt, scope, id string) (resource, error) {
	if r.get == nil {
		return r.MemStore.GetOrder(ctx, scope, id)
	}
	return r.get(ctx, scope, id)
}

func (r changedReader) GetOrderByKey(ctx ctxt, scope, key string) (resource, error) {
	if r.byKey == nil {
		return r.MemStore.GetOrderByKey(ctx, scope, key)
	}
	return r.byKey(ctx, scope, key)
}

func (r changedReader) ListOrders(ctx ctxt, scope, after string, limit int) ([]resource, error) {
	if r.list == nil {
		return r.MemStore.ListOrders(ctx, scope, after, limit)
	}
	return r.list(ctx, scope, after, limit)
}

// pages makes a reader whose pages are changed.
func pages(change func(page []resource) []resource) func(*store) {
	return func(s *store) {
		s.readers = changedReader{MemStore: s.MemStore,
			list: func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
				page, err := s.MemStore.ListOrders(ctx, scope, after, limit)
				return change(page), err
			}}
	}
}

var wrongReaders = []wrongStore{
	{"an order by ID has no fields", func(s *store) {
		s.readers = changedReader{MemStore: s.MemStore, get: func(ctx ctxt, scope, id string) (resource, error) {
			for _, o := range s.Orders() {
				if got, err := s.MemStore.GetOrder(ctx, scope, id); o.ID == id && o.Fields != "" {
					o.Fields = ""
					return storefront.MustResource(id, o), err
				} else if o.ID == id {
					return got, err
				}
			}
			return resource{}, storefront.ErrNotFound
		}}
	}, []string{getOrder}, "perhaps with more members"},
	{"an order by ID is anybody's", func(s *store) {
		s.readers = changedReader{MemStore: s.MemStore, get: func(ctx ctxt, _, id string) (resource, error) {
			for _, o := range s.Orders() {
				if o.ID == id && ctx.Err() == nil {
					return storefront.NewResource(id, o)
				}
			}
			return resource{}, cmp.Or(ctx.Err(), storefront.ErrNotFound)
		}}
	}, []string{noOrder}, "the scope is not compared"},
	{"no row is another error", func(s *store) {
		s.readers = changedReader{MemStore: s.MemStore, get: func(ctx ctxt, scope, id string) (resource, error) {
			got, err := s.MemStore.GetOrder(ctx, scope, id)
			if errors.Is(err, storefront.ErrNotFound) {
				err = errDriver
			}
			return got, err
		}}
	}, []string{noOrder}, "does not match ErrNotFound"},
	{"ascending", pages(func(page []resource) []resource {
		slices.Reverse(page)
		return page
	}), []string{orderList, afterOrder, orderLimit}, "in the other direction"},
	{"scopes without case", func(s *store) {
		s.readers = changedReader{MemStore: s.MemStore,
			list: func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
				return s.MemStore.ListOrders(ctx, strings.ToLower(scope), after, limit)
			}}
	}, []string{orderList}, "the scope is not compared"},
	{"the newest is missed", pages(func(page []resource) []resource { return page[min(1, len(page)):] }),
		[]string{orderList, afterOrder, orderLimit, readAtOnce}, "at index 0"},
	{"the order at the position is listed", func(s *store) {
		s.readers = changedReader{MemStore: s.MemStore,
			list: func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
				if after != "" {
					after += " "
				}
				return s.MemStore.ListOrders(ctx, scope, after, limit)
			}}
	}, []string{afterOrder}, "the order at the position is listed, too"},
	{"at most 100 orders", pages(func(page []resource) []resource { return page[:min(100, len(page))] }),
		[]string{orderLimit}, "the store has one of its own"},
	{"scope and key are joined", func(s *store) {
		var created sync.Map
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			got, err := right(ctx, k, o)
			created.Store(k.Scope+k.Value, got)
			return got, err
		})
		s.readers = changedReader{MemStore: s.MemStore, byKey: func(ctx ctxt, scope, key string) (resource, error) {
			if o, ok := created.Load(scope + key); ok && ctx.Err() == nil {
				return storefront.NewResource(o.(order).ID, o.(order))
			}
			return resource{}, cmp.Or(ctx.Err(), storefront.ErrNotFound)
		}}
	}, []string{byKey, noKey}, "GetOrderByKey"},
	{"no row is another error, for keys", func(s *store) {
		s.readers = changedReader{MemStore: s.MemStore, byKey: func(ctx ctxt, scope, key string) (resource, error) {
			got, err := s.MemStore.GetOrderByKey(ctx, scope, key)
			if errors.Is(err, storefront.ErrNotFound) {
				err = errDriver
			}
			return got, err
		}}
	}, []string{noKey}, "does not match ErrNotFound"},
	{"an order by key has no item", func(s *store) {
		s.readers = changedReader{MemStore: s.MemStore, byKey: func(ctx ctxt, scope, key string) (resource, error) {
			got, err := s.MemStore.GetOrderByKey(ctx, scope, key)
			if err != nil {
				return got, err
			}
			return storefront.NewResource(got.ID(), nil)
		}}
	}, []string{byKey}, "perhaps with more members"},
	{"a reader ignores ctx", func(s *store) {
		s.readers = changedReader{MemStore: s.MemStore, get: func(ctx ctxt, scope, id string) (resource, error) {
			return s.MemStore.GetOrder(context.WithoutCancel(ctx), scope, id)
		}}
	}, []string{leave}, "a context that was cancelled"},
	{"pages are cached", func(s *store) {
		var cached sync.Map
		s.readers = changedReader{MemStore: s.MemStore,
			list: func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
				page, err := s.MemStore.ListOrders(ctx, scope, after, limit)
				if err != nil {
					return nil, err
				}
				first, _ := cached.LoadOrStore(fmt.Sprint(scope, after, limit), page)
				return first.([]resource), nil
			}}
	}, []string{readAtOnce}, "a cache"},
}
