package integration

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
	"example.com/storefront/storetest"
)

func TestStore(t *testing.T) {
	test := func(t *testing.T, d *sqlDatabase) {
		d.exec(t, "CREATE TABLE sold_out (item VARCHAR(255) NOT NULL PRIMARY KEY)")
		// With Accept, each order has a transaction of its own. Without, those that
		// arrive together share one.
		t.Run("without Accept", func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
				return newSuiteStore(t, d, nil, contents)
			})
		})
		t.Run("with Accept", func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
				return &refusingStore{newSuiteStore(t, d, &sqlstore.Options{Accept: unlessSoldOut(d)}, contents)}
			})
		})
	}
	onSQLEngines(t, test)
	for _, k := range []*mySQLKind{mariaDB, mySQL} {
		t.Run(k.name+", preparing", func(t *testing.T) { test(t, newSQLDatabase(t, "mysql", preparing(k.database(t)))) })
	}
}

// newSuiteStore returns a store with these contents, and nothing else.
func newSuiteStore(t *testing.T, d *sqlDatabase, opts *sqlstore.Options, contents storetest.Contents) *suiteStore {
	t.Helper()
	d.clear(t)
	d.exec(t, "DELETE FROM sold_out")
	s := openSuiteStore(t, d, opts)
	if err := s.Put(t.Context(), contents); err != nil {
		t.Fatal(err)
	}
	return s
}

// openSuiteStore returns a store with what is there.
func openSuiteStore(t *testing.T, d *sqlDatabase, opts *sqlstore.Options) *suiteStore {
	t.Helper()
	return &suiteStore{sqlTestStore: d.openWith(t, opts), database: d, opts: opts}
}

// A suiteStore is a sqlstore.Store with the optional methods of storetest that
// need no Accept.
type suiteStore struct {
	*sqlTestStore
	database *sqlDatabase
	opts     *sqlstore.Options
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
// goes by the clock of the database, so the keys are older by d instead.
func (s *suiteStore) Advance(d time.Duration) {
	s.t.Helper()
	if _, err := s.db.Exec(s.database.sql("UPDATE storefront_orders SET keyed_ms = keyed_ms - $1"), d.Milliseconds()); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.ForgetKeys(s.t.Context(), time.Now().Add(-storefront.KeyLifetime)); err != nil {
		s.t.Fatal(err)
	}
}

// Reopen closes the connections under the calls in progress. What real crashes
// leave is tested with real processes.
func (s *suiteStore) Reopen(t *testing.T) storefront.Store {
	t.Helper()
	return s.reopen(t)
}

func (s *suiteStore) reopen(t *testing.T) *suiteStore {
	t.Helper()
	s.db.Close()
	return openSuiteStore(t, s.database, s.opts)
}

// A refusingStore is a suiteStore that refuses orders for what is in the table
// sold_out, and so has all the optional methods of storetest.
type refusingStore struct{ *suiteStore }

var _ interface {
	storetest.Clock
	storetest.Editor
	storetest.OrderLister
	storetest.Refuser
	storetest.Reopener
} = (*refusingStore)(nil)

var soldOut = storefront.Refusal{Reason: "sold-out", Detail: "There is none left.", Pointer: "#/item"}

// unlessSoldOut returns an Accept that reads and writes nothing else.
func unlessSoldOut(d *sqlDatabase) accept {
	query := d.sql("SELECT EXISTS (SELECT 1 FROM sold_out WHERE item = $1)")
	return func(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
		var gone bool
		err := tx.QueryRowContext(ctx, query, order.Item).Scan(&gone)
		if err == nil && gone {
			return new(soldOut)
		}
		return err
	}
}

func (s *refusingStore) SellOut(ctx context.Context, item string) (storefront.Refusal, error) {
	insert := "INSERT INTO sold_out (item) VALUES ($1) ON CONFLICT DO NOTHING"
	if s.database.driver == "mysql" {
		insert = "REPLACE INTO sold_out (item) VALUES (?)"
	}
	return soldOut, s.write(ctx, insert, item)
}

func (s *refusingStore) Restock(ctx context.Context, item string) error {
	return s.write(ctx, s.database.sql("DELETE FROM sold_out WHERE item = $1"), item)
}

// write runs a statement beside calls of the store, which may make SQLite wait for
// longer than it does by itself, and a node of Galera give way to another.
func (s *refusingStore) write(ctx context.Context, statement string, args ...any) error {
	for {
		_, err := s.db.ExecContext(ctx, statement, args...)
		if err == nil || !strings.Contains(err.Error(), "database is locked") && !strings.Contains(err.Error(), "try restarting transaction") {
			return err
		}
	}
}

// Reopen hides that of suiteStore.
func (s *refusingStore) Reopen(t *testing.T) storefront.Store {
	t.Helper()
	return &refusingStore{s.reopen(t)}
}
