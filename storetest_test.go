package storefront_test

import (
	"context"
	"testing"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

// An editableMemStore is a MemStore that storetest can change and whose orders it
// can count.
type editableMemStore struct{ *storefront.MemStore }

func (s editableMemStore) Put(_ context.Context, c storetest.Contents) error {
	s.Users.Put(c.Users...)
	s.Products.Put(c.Products...)
	s.Widgets.Put(c.Widgets...)
	return nil
}

func (s editableMemStore) Delete(_ context.Context, c storetest.Contents) error {
	for _, u := range c.Users {
		s.Users.Delete(u.ID())
	}
	for _, p := range c.Products {
		s.Products.Delete(p.ID())
	}
	for _, w := range c.Widgets {
		s.Widgets.Delete(w.ID())
	}
	return nil
}

func newEditableMemStore(t *testing.T, contents storetest.Contents) storefront.Store {
	s := editableMemStore{new(storefront.MemStore)}
	s.Put(t.Context(), contents)
	return s
}

func TestMemStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, newEditableMemStore)
}

// In a bubble the clock moves, and a call that waits is noticed.
func TestMemStoreKeepsTheContractWhileTimePasses(t *testing.T) {
	storetest.RunSynctest(t, newEditableMemStore)
}
