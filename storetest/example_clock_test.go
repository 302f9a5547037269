package storetest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
	"example.com/storefront/storetest"
)

// A jobStore forgets keys when it is told to, by a daily job for example.
type jobStore struct {
	*sqlstore.Store
	db    *sql.DB
	t     *testing.T
	ahead time.Duration // of the real clock
}

// Advance implements storetest.Clock. The store has no clock but the times of its
// orders, so Advance makes the orders older while the store forgets keys.
func (s *jobStore) Advance(d time.Duration) {
	s.ahead += d
	s.age(s.ahead)
	if _, err := s.ForgetKeys(context.Background(), time.Now().Add(-storefront.KeyLifetime)); err != nil {
		s.t.Fatal(err)
	}
	s.age(-s.ahead)
}

func (s *jobStore) age(d time.Duration) {
	if _, err := s.db.Exec("UPDATE storefront_orders SET created_ms = created_ms - $1", d.Milliseconds()); err != nil {
		s.t.Fatal(err)
	}
}

// A store that forgets keys by the times of its orders.
func ExampleClock() {
	var db *sql.DB // with the tables of sqlstore

	_ = func(t *testing.T) { // func TestJobStore(t *testing.T)
		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
			for _, table := range []string{"users", "products", "widgets", "orders"} {
				if _, err := db.Exec("DELETE FROM storefront_" + table); err != nil {
					t.Fatal(err)
				}
			}
			store := &jobStore{Store: sqlstore.New(db, nil), db: db, t: t}
			if err := errors.Join(
				store.Users.Put(t.Context(), contents.Users...),
				store.Products.Put(t.Context(), contents.Products...),
				store.Widgets.Put(t.Context(), contents.Widgets...),
			); err != nil {
				t.Fatal(err)
			}
			return store
		})
	}
}
