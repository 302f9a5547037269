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

// noRow returns the database's error where there is no order.
func noRow(get orderGetter) orderGetter {
	return func(ctx ctxt, scope, text string) (resource, error) {
		got, err := get(ctx, scope, text)
		if errors.Is(err, storefront.ErrNotFound) {
			err = errDriver
		}
		return got, err
	}
}

// idAlone leaves out the other members of an order.
func idAlone(get orderGetter) orderGetter {
	return func(ctx ctxt, scope, text string) (resource, error) {
		got, err := get(ctx, scope, text)
		if err != nil {
			return got, err
		}
		return storefront.NewResource(got.ID(), nil)
	}
}

// pages changes the pages of orders.
func pages(change func(page []resource) []resource) func(*store) {
	return func(s *store) {
		s.listOrders = func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
			page, err := s.MemStore.ListOrders(ctx, scope, after, limit)
			return change(page), err
		}
	}
}

var wrongReaders = []wrongStore{
	{"an order by ID has its ID alone", func(s *store) { s.getOrder = idAlone(s.getOrder) },
		[]string{getOrder}, "perhaps with more members"},
	{"an order by ID is anybody's", func(s *store) {
		s.getOrder = func(ctx ctxt, _, id string) (resource, error) {
			for _, o := range s.Orders() {
				if o.ID == id && ctx.Err() == nil {
					return storefront.NewResource(id, o)
				}
			}
			return resource{}, cmp.Or(ctx.Err(), storefront.ErrNotFound)
		}
	}, []string{noOrder}, "the scope is not compared"},
	{"no row is another error", func(s *store) { s.getOrder = noRow(s.getOrder) },
		[]string{noOrder}, "does not match ErrNotFound"},
	{"ascending", pages(func(page []resource) []resource {
		slices.Reverse(page)
		return page
	}), []string{orderList, afterOrder, orderLimit}, "in the other direction"},
	{"scopes without case", func(s *store) {
		s.listOrders = func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
			return s.MemStore.ListOrders(ctx, strings.ToLower(scope), after, limit)
		}
	}, []string{orderList}, "the scope is not compared"},
	{"the newest is missed", pages(func(page []resource) []resource { return page[min(1, len(page)):] }),
		[]string{orderList, afterOrder, orderLimit, readAtOnce}, "at index 0"},
	{"the order at the position is listed", func(s *store) {
		s.listOrders = func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
			if after != "" {
				after += " "
			}
			return s.MemStore.ListOrders(ctx, scope, after, limit)
		}
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
		s.byKey = func(ctx ctxt, scope, key string) (resource, error) {
			if o, ok := created.Load(scope + key); ok && ctx.Err() == nil {
				return storefront.NewResource(o.(order).ID, o.(order))
			}
			return resource{}, cmp.Or(ctx.Err(), storefront.ErrNotFound)
		}
	}, []string{byKey, noKey}, "GetOrderByKey"},
	{"no row is another error, for keys", func(s *store) { s.byKey = noRow(s.byKey) },
		[]string{noKey}, "does not match ErrNotFound"},
	{"an order by key has its ID alone", func(s *store) { s.byKey = idAlone(s.byKey) },
		[]string{byKey}, "perhaps with more members"},
	{"a reader ignores ctx", func(s *store) {
		s.getOrder = func(ctx ctxt, scope, id string) (resource, error) {
			return s.MemStore.GetOrder(context.WithoutCancel(ctx), scope, id)
		}
	}, []string{leave}, "a context that was cancelled"},
	{"pages are cached", func(s *store) {
		var cached sync.Map
		s.listOrders = func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
			page, err := s.MemStore.ListOrders(ctx, scope, after, limit)
			if err != nil {
				return nil, err
			}
			first, _ := cached.LoadOrStore(fmt.Sprint(scope, after, limit), page)
			return first.([]resource), nil
		}
	}, []string{readAtOnce}, "a cache"},
}
