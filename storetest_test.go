package storefront_test

import (
	"context"
	"sync"
	"testing"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

// A suiteMemStore is a MemStore that storetest can change, whose orders it can
// count, and that refuses what is sold out.
type suiteMemStore struct {
	storefront.MemStore
	soldOut sync.Map // items
}

var soldOut = storefront.Refusal{Reason: "sold-out", Detail: "There is none left.", Pointer: "#/item"}

func (s *suiteMemStore) SellOut(_ context.Context, item string) (storefront.Refusal, error) {
	s.soldOut.Store(item, true)
	return soldOut, nil
}

func (s *suiteMemStore) Restock(_ context.Context, item string) error {
	s.soldOut.Delete(item)
	return nil
}

func (s *suiteMemStore) accept(_ context.Context, _ storefront.IdempotencyKey, order storefront.Order) error {
	if _, ok := s.soldOut.Load(order.Item); ok {
		return &soldOut
	}
	return nil
}

func (s *suiteMemStore) Put(_ context.Context, c storetest.Contents) error {
	s.Users.Put(c.Users...)
	s.Products.Put(c.Products...)
	s.Widgets.Put(c.Widgets...)
	return nil
}

func (s *suiteMemStore) Delete(_ context.Context, c storetest.Contents) error {
	for collection, resources := range map[*storefront.Collection][]storefront.Resource{
		&s.Users: c.Users, &s.Products: c.Products, &s.Widgets: c.Widgets} {
		for _, r := range resources {
			collection.Delete(r.ID())
		}
	}
	return nil
}

func newSuiteMemStore(t *testing.T, contents storetest.Contents) storefront.Store {
	s := new(suiteMemStore)
	s.Accept = s.accept
	s.Put(t.Context(), contents)
	return s
}

func TestMemStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, newSuiteMemStore)
}

// In a bubble the clock moves, and a call that waits is noticed.
func TestMemStoreKeepsTheContractWhileTimePasses(t *testing.T) {
	storetest.RunSynctest(t, newSuiteMemStore)
}
