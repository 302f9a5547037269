package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

func TestStore(t *testing.T) {
	onSQLEngines(t, func(t *testing.T, d *sqlDatabase) {
		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
			d.clear(t)
			s := &suiteStore{sqlTestStore: d.open(t).(*sqlTestStore), database: d}
			if err := s.Put(t.Context(), contents); err != nil {
				t.Fatal(err)
			}
			return s
		})
	})
}

// A suiteStore is a sqlstore.Store with all the optional methods of storetest.
type suiteStore struct {
	*sqlTestStore
	database *sqlDatabase
	advanced time.Duration
}

var _ interface {
	storetest.Clock
	storetest.Editor
	storetest.OrderLister
	storetest.Reopener
} = (*suiteStore)(nil)

// Put hides that of sqlTestStore.
func (s *suiteStore) Put(ctx context.Context, contents storetest.Contents) error {
	return errors.Join(
		s.Users.Put(ctx, contents.Users...),
		s.Products.Put(ctx, contents.Products...),
		s.Widgets.Put(ctx, contents.Widgets...),
	)
}

// Delete hides that of sqlTestStore.
func (s *suiteStore) Delete(ctx context.Context, contents storetest.Contents) error {
	return errors.Join(
		s.Users.Delete(ctx, idsOf(contents.Users)...),
		s.Products.Delete(ctx, idsOf(contents.Products)...),
		s.Widgets.Delete(ctx, idsOf(contents.Widgets)...),
	)
}

func idsOf(resources []storefront.Resource) (ids []string) {
	for _, r := range resources {
		ids = append(ids, r.ID())
	}
	return ids
}

// Advance forgets the keys that may be forgotten once d has passed. The store
// has no clock but that of its orders, so they are older for so long.
func (s *suiteStore) Advance(d time.Duration) {
	s.t.Helper()
	s.advanced += d
	s.age(s.advanced)
	if _, err := s.ForgetKeys(s.t.Context(), time.Now().Add(-storefront.KeyLifetime)); err != nil {
		s.t.Fatal(err)
	}
	s.age(-s.advanced)
}

func (s *suiteStore) age(d time.Duration) {
	s.t.Helper()
	if _, err := s.db.Exec("UPDATE storefront_orders SET created_ms = created_ms - $1", d.Milliseconds()); err != nil {
		s.t.Fatal(err)
	}
}

// Reopen closes the connections under the calls in progress. What real crashes
// leave is tested with real processes.
func (s *suiteStore) Reopen(t *testing.T) storefront.Store {
	t.Helper()
	s.db.Close()
	return &suiteStore{sqlTestStore: s.database.open(t).(*sqlTestStore), database: s.database, advanced: s.advanced}
}
