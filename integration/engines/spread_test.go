package engines

import (
	"context"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

// A spread is a Store whose orders are in several others. It finds an order's by its
// key, so their number and sequence must stay.
type spread struct {
	storefront.Store // of users, products and widgets
	orders           []storefront.Store
}

func (s *spread) CreateOrder(ctx context.Context, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	h := fnv.New64a()
	h.Write([]byte(key.Scope + key.Value))
	return s.orders[h.Sum64()%uint64(len(s.orders))].CreateOrder(ctx, key, order)
}

func TestOrdersSpreadOverStores(t *testing.T) {
	storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
		lists := new(storefront.MemStore)
		lists.Users.Put(contents.Users...)
		lists.Products.Put(contents.Products...)
		lists.Widgets.Put(contents.Widgets...)
		return &spread{lists, []storefront.Store{new(storefront.MemStore), new(storefront.MemStore), new(storefront.MemStore)}}
	})
	var stores [3]storefront.MemStore
	s := &spread{orders: []storefront.Store{&stores[0], &stores[1], &stores[2]}}
	for i := range 3000 {
		key := storefront.IdempotencyKey{Scope: "ada", Value: fmt.Sprint("key ", i)}
		if _, err := s.CreateOrder(t.Context(), key, storefront.Order{ID: fmt.Sprint("ord_", i), Item: "teapot", Qty: 1, CreatedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range stores {
		if n := len(stores[i].Orders()); n < 900 || n > 1100 {
			t.Errorf("store %d has %d of 3000 orders", i, n)
		}
	}
}
