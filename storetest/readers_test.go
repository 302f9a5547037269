package storetest_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"example.com/storefront"
)

// pages changes the pages of orders.
func pages(change func(page []resource) []resource) func(*store) {
	return func(s *store) {
		s.listOrders = func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
			page, err := s.MemStore.ListOrders(ctx, scope, after, limit)
			return change(page), err
		}
	}
}

// byText makes GetOrderByKey find the last order whose scope and key have the same text.
func byText(text func(scope, key string) string) func(*store) {
	return func(s *store) {
		var created sync.Map
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			got, err := right(ctx, k, o)
			created.Store(text(k.Scope, k.Value), got)
			return got, err
		})
		s.byKey = func(ctx ctxt, scope, key string) (resource, error) {
			if o, ok := created.Load(text(scope, key)); ok && ctx.Err() == nil {
				return storefront.NewResource(o.(order).ID, o.(order))
			}
			return resource{}, cmp.Or(ctx.Err(), storefront.ErrNotFound)
		}
	}
}

var wrongReaders = []wrongStore{
	{"an order by ID has its ID alone", func(s *store) {
		s.getOrder = func(ctx ctxt, scope, id string) (resource, error) {
			got, err := s.MemStore.GetOrder(ctx, scope, id)
			if err != nil {
				return got, err
			}
			return storefront.NewResource(got.ID(), nil)
		}
	}, []string{getOrder}, "perhaps with more members"},
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
	{"ascending", pages(func(page []resource) []resource {
		slices.Reverse(page)
		return page
	}), []string{orderList, afterOrder, orderLimit}, "in the other direction"},
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
	{"scope and key are joined", byText(func(scope, key string) string { return scope + key }),
		[]string{byKey, noKey}, "GetOrderByKey"},
	{"keys to look for have no case", byText(func(scope, key string) string {
		return nameOf(storefront.IdempotencyKey{Scope: scope, Value: strings.ToLower(key)})
	}), []string{byKey, noKey}, `GetOrderByKey(ctx, "u", "k") returned`},
	{"a reader ignores ctx", func(s *store) {
		s.getOrder = func(ctx ctxt, scope, id string) (resource, error) {
			return s.MemStore.GetOrder(context.WithoutCancel(ctx), scope, id)
		}
	}, []string{leave}, "a context that was cancelled"},
}
