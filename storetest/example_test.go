package storetest_test

import (
	"context"
	"testing"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

// A shopStore stands for the store to be tested. Here it holds everything in
// memory.
type shopStore struct {
	storefront.MemStore
}

// A testStore is a shopStore with methods that only its test needs.
type testStore struct {
	*shopStore
}

// Put implements storetest.Editor.
func (s testStore) Put(_ context.Context, c storetest.Contents) error {
	s.Users.Put(c.Users...)
	s.Products.Put(c.Products...)
	s.Widgets.Put(c.Widgets...)
	return nil
}

// Delete implements storetest.Editor.
func (s testStore) Delete(_ context.Context, c storetest.Contents) error {
	s.Users.Delete(idsOf(c.Users)...)
	s.Products.Delete(idsOf(c.Products)...)
	s.Widgets.Delete(idsOf(c.Widgets)...)
	return nil
}

func idsOf(resources []storefront.Resource) (ids []string) {
	for _, r := range resources {
		ids = append(ids, r.ID())
	}
	return ids
}

// In a _test.go file, this is the whole test of a store.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestShopStore(t *testing.T)
		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
			store := testStore{new(shopStore)}
			if err := store.Put(t.Context(), contents); err != nil {
				t.Fatal(err)
			}
			return store
		})
	}
}
