package storetest_test

import (
	"context"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

// A shopStore stands for the store to be tested. Here it holds everything in
// memory.
type shopStore struct {
	storefront.MemStore
}

// A testStore is a shopStore with what only its test needs.
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
	s.Users.Delete(ids(c.Users)...)
	s.Products.Delete(ids(c.Products)...)
	s.Widgets.Delete(ids(c.Widgets)...)
	return nil
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

// A dailyStore forgets keys when it is told to.
type dailyStore struct {
	*shopStore
	ahead time.Duration // of the real clock
}

func (s *dailyStore) forgetKeys(before time.Time) {}

// Advance implements storetest.Clock.
func (s *dailyStore) Advance(d time.Duration) {
	s.ahead += d
	s.forgetKeys(time.Now().Add(s.ahead - storefront.KeyLifetime))
}

func ExampleClock() {
	_ = func(t *testing.T) { // func TestDailyStore(t *testing.T)
		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
			store := &dailyStore{shopStore: new(shopStore)}
			store.Users.Put(contents.Users...)
			store.Products.Put(contents.Products...)
			store.Widgets.Put(contents.Widgets...)
			return store
		})
	}
}
