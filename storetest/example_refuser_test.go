package storetest_test

import (
	"context"
	"sync"
	"testing"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

// A stockStore refuses orders for items that are sold out.
type stockStore struct {
	storefront.MemStore
	gone sync.Map // the items that are sold out
}

// accept is called for an order that is about to be created. A store over a
// database would look into its stock here, in the transaction of the order.
func (s *stockStore) accept(_ context.Context, _ storefront.IdempotencyKey, order storefront.Order) error {
	if _, gone := s.gone.Load(order.Item); gone {
		return &storefront.Refusal{Reason: "sold-out", Detail: "There is none left.", Pointer: "#/item"}
	}
	return nil
}

// SellOut implements storetest.Refuser.
func (s *stockStore) SellOut(_ context.Context, item string) (storefront.Refusal, error) {
	s.gone.Store(item, true)
	return storefront.Refusal{Reason: "sold-out", Pointer: "#/item"}, nil // with any Detail
}

// Restock implements storetest.Refuser.
func (s *stockStore) Restock(_ context.Context, item string) error {
	s.gone.Delete(item)
	return nil
}

// The suite tells a store that refuses orders which item is sold out.
func ExampleRefuser() {
	_ = func(t *testing.T) { // func TestStockStore(t *testing.T)
		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
			store := new(stockStore)
			store.Accept = store.accept
			store.Users.Put(contents.Users...)
			store.Products.Put(contents.Products...)
			store.Widgets.Put(contents.Widgets...)
			return store
		})
	}
}
