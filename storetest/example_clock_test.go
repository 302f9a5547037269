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
	db *sql.DB
	t  *testing.T
}

// Advance implements storetest.Clock. The store goes by the clock of the database, so the keys are older by d
// instead, and the next ForgetKeys looks for all of them.
func (s *jobStore) Advance(d time.Duration) {
	_, err := s.db.Exec("UPDATE storefront_orders SET keyed_ms = keyed_ms - $1", d.Milliseconds())
	if err == nil {
		_, err = s.db.Exec("UPDATE storefront_schema SET forgotten_ms = NULL")
	}
	if err == nil {
		_, err = s.ForgetKeys(context.Background(), time.Now().Add(-storefront.KeyLifetime))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// A store that forgets keys by the clock of its database.
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
