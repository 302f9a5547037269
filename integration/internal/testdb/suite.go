package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
	"example.com/storefront/storetest"
)

// RunSuite runs storetest on stores with these options.
func RunSuite(t *testing.T, d *DB, opts *sqlstore.Options) {
	d.Migrate(t)
	storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
		return newSuiteStore(t, d, opts, contents)
	})
}

// RunRefusingSuite runs storetest on stores that refuse orders for what is in the table sold_out.
func RunRefusingSuite(t *testing.T, d *DB) {
	d.Exec(t, "CREATE TABLE sold_out (item VARCHAR(255) NOT NULL PRIMARY KEY)")
	opts := &sqlstore.Options{Accept: UnlessSoldOut(d)}
	storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
		d.Exec(t, "DELETE FROM sold_out")
		return &refusingStore{newSuiteStore(t, d, opts, contents)}
	})
}

// newSuiteStore returns a store with these contents, and nothing else.
func newSuiteStore(t *testing.T, d *DB, opts *sqlstore.Options, contents storetest.Contents) *suiteStore {
	t.Helper()
	d.Clear(t)
	s := openSuiteStore(t, d, opts)
	must.OK(t, s.Put(t.Context(), contents))
	return s
}

// openSuiteStore returns a store with what is there. Those of a database share connections: a server
// takes longer for a new one than for most tests.
func openSuiteStore(t *testing.T, d *DB, opts *sqlstore.Options) *suiteStore {
	if d.stores == nil {
		d.stores = d.Connect(d.t)
	}
	return &suiteStore{storeOn(t, d.stores, opts), d, opts}
}

// A suiteStore is a sqlstore.Store with the optional methods of storetest that
// need no Accept.
type suiteStore struct {
	*SQLStore
	database *DB
	opts     *sqlstore.Options
}

var _ interface {
	storetest.Clock
	storetest.Editor
	storetest.OrderLister
	storetest.Reopener
} = (*suiteStore)(nil)

// Put puts resources.
func (s *suiteStore) Put(ctx context.Context, contents storetest.Contents) error {
	return errors.Join(
		s.Users.Put(ctx, contents.Users...),
		s.Products.Put(ctx, contents.Products...),
		s.Widgets.Put(ctx, contents.Widgets...),
	)
}

// Delete deletes resources.
func (s *suiteStore) Delete(ctx context.Context, contents storetest.Contents) error {
	return errors.Join(
		s.Users.Delete(ctx, ids(contents.Users)...),
		s.Products.Delete(ctx, ids(contents.Products)...),
		s.Widgets.Delete(ctx, ids(contents.Widgets)...),
	)
}

func ids(resources []storefront.Resource) (ids []string) {
	for _, r := range resources {
		ids = append(ids, r.ID())
	}
	return ids
}

// Advance forgets the keys that may be forgotten once d has passed. The store
// goes by the clock of the database, so the keys are older by d instead.
func (s *suiteStore) Advance(d time.Duration) {
	s.t.Helper()
	s.database.Exec(s.t, fmt.Sprint("UPDATE storefront_orders SET keyed_ms = keyed_ms - ", d.Milliseconds()),
		forgetPlace)
	must.Get(s.ForgetKeys(s.t.Context(), time.Now().Add(-storefront.KeyLifetime)))(s.t)
}

// forgetPlace makes the next ForgetKeys look for all keys, as their orders may have any ID and age.
const forgetPlace = "UPDATE storefront_schema SET forgotten_ms = NULL WHERE version = 1"

// Reopen closes the connections under the calls in progress. Real crashes are
// tested with real processes.
func (s *suiteStore) Reopen(t *testing.T) storefront.Store {
	t.Helper()
	return s.reopened(t)
}

func (s *suiteStore) reopened(t *testing.T) *suiteStore {
	t.Helper()
	s.database.stores.Close()
	s.database.stores = nil
	return openSuiteStore(t, s.database, s.opts)
}

// A refusingStore is a suiteStore that refuses orders for what is in the table
// sold_out, and so has all the optional methods of storetest.
type refusingStore struct{ *suiteStore }

var _ storetest.Refuser = (*refusingStore)(nil)

// SoldOut is the refusal of UnlessSoldOut.
var SoldOut = storefront.Refusal{Reason: "sold-out", Detail: "There is none left.", Pointer: "#/item"}

// UnlessSoldOut returns an Accept that reads and writes nothing else.
func UnlessSoldOut(d *DB) Accept {
	query := d.SQL("SELECT EXISTS (SELECT 1 FROM sold_out WHERE item = $1)")
	return func(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
		var gone bool
		err := tx.QueryRowContext(ctx, query, order.Item).Scan(&gone)
		if err == nil && gone {
			return new(SoldOut)
		}
		return err
	}
}

// SellOut has the store refuse orders for an item until Restock.
func (s *refusingStore) SellOut(ctx context.Context, item string) (storefront.Refusal, error) {
	insert := "INSERT INTO sold_out (item) VALUES ($1) ON CONFLICT DO NOTHING"
	if s.database.Driver == "mysql" {
		insert = "REPLACE INTO sold_out (item) VALUES (?)"
	}
	return SoldOut, s.write(ctx, insert, item)
}

// Restock undoes SellOut.
func (s *refusingStore) Restock(ctx context.Context, item string) error {
	return s.write(ctx, s.database.SQL("DELETE FROM sold_out WHERE item = $1"), item)
}

// write runs a statement beside calls of the store, which may make SQLite wait for
// longer than it does by itself, and a member of a group give way to another.
func (s *refusingStore) write(ctx context.Context, statement string, args ...any) error {
	for {
		_, err := s.db.ExecContext(ctx, statement, args...)
		if err == nil || !strings.Contains(err.Error(), "database is locked") &&
			!strings.Contains(err.Error(), "try restarting transaction") {
			return err
		}
	}
}

// Reopen hides that of suiteStore.
func (s *refusingStore) Reopen(t *testing.T) storefront.Store {
	t.Helper()
	return &refusingStore{s.reopened(t)}
}
