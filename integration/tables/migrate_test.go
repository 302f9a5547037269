package tables

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

func TestMigrateByManyAtOnce(t *testing.T) {
	testdb.OnDatabasesWithoutTables(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		var wg sync.WaitGroup
		for range 12 {
			db := d.Connect(t)
			wg.Go(func() {
				if err := sqlstore.New(db, nil).Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		d.ExpectVersion(t, "1 1")
		store := sqlstore.New(d.Connect(t), nil)
		must.OK(t, store.Users.Put(t.Context(), storefront.MustResource("ada", nil)))
		if err := store.Migrate(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
		if list, err := store.ListUsers(t.Context(), "", 2); err != nil || len(list) != 1 {
			t.Errorf("after another Migrate, users are %v, %v", list, err)
		}
		if _, err := testdb.Create(t.Context(), store, "key", "kettle"); err != nil {
			t.Error(err)
		}
	})
}

// Some of the tables may be there, as after a Migrate that was killed.
func TestMigrateGoesOnWhereAnotherEnded(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		d.Exec(t, "DROP TABLE storefront_schema", "DROP TABLE storefront_widgets")
		const dropIndex = "DROP INDEX storefront_orders_key_hash"
		if d.Driver != "mysql" { // where it is a part of the table
			d.Exec(t, dropIndex)
		}
		store := sqlstore.New(d.Pool, nil)
		must.OK(t, store.Migrate(t.Context()))
		if _, err := store.ListWidgets(t.Context(), "", 1); err != nil {
			t.Error(err)
		}
		if d.Driver != "mysql" {
			d.Exec(t, dropIndex)
		}
	})
}

// A table that has been made and is missing had rows, as after a restore of some of them: an empty one would
// have orders made again.
func TestMigrateMakesNoTableAnew(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		store := sqlstore.New(d.Pool, nil)
		must.OK(t, store.Check(t.Context()))
		for _, table := range []string{"storefront_orders", "storefront_users"} {
			d.Exec(t, "ALTER TABLE "+table+" RENAME TO away")
			for _, s := range []*sqlstore.Store{store, sqlstore.New(d.Pool, nil)} { // one that runs, and one that starts
				if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "but not "+table+": rename it back or restore") {
					t.Errorf("without %s, Migrate returned %v", table, err)
				}
			}
			if err := sqlstore.New(d.Pool, nil).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "but not "+table+": rename it back or restore") {
				t.Errorf("without %s, Check returned %v", table, err)
			}
			d.Exec(t, "ALTER TABLE away RENAME TO "+table)
			must.OK(t, sqlstore.New(d.Pool, nil).Migrate(t.Context()))
		}

		d.Exec(t, "DROP TABLE storefront_orders", "DELETE FROM storefront_schema") // as the error says
		var log strings.Builder
		opts := &sqlstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		for range 2 {
			must.OK(t, sqlstore.New(d.Pool, opts).Migrate(t.Context()))
		}
		if place := regexp.MustCompile(`level=WARN .*new shop.* place=.*(shop\.db|test\d+ at )`); len(place.FindAllString(log.String(), -1)) != 1 {
			t.Errorf("Migrate has logged %s, want once where the new shop is", &log)
		}
		must.OK(t, sqlstore.New(d.Pool, nil).Check(t.Context()))
	})
}

// The oldest version that may use the tables decides, and not their own.
func TestMigrateInADatabaseOfALaterRelease(t *testing.T) {
	const later = 1_000_000
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		d.Exec(t, "DROP TABLE storefront_widgets")
		for oldest, want := range map[int]string{1: "storefront_widgets", later: fmt.Sprint(later)} {
			d.Exec(t, fmt.Sprintf("UPDATE storefront_schema SET version = %d, oldest = %d", later, oldest))
			store := sqlstore.New(d.Pool, nil)
			for _, err := range []error{store.Migrate(t.Context()), store.Check(t.Context())} {
				if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, storefront.ErrUnavailable) {
					t.Errorf("Migrate or Check returned %v, want an error that names %s", err, want)
				}
			}
			d.ExpectVersion(t, fmt.Sprint(later, oldest))
			if _, err := d.Pool.Exec("SELECT id FROM storefront_widgets"); err == nil {
				t.Error("Migrate has made a table")
			}
		}
	})
}

// TestMigrateRefusesTablesOfOthers has each table of the store's be one that another
// program has made for itself.
func TestMigrateRefusesTablesOfOthers(t *testing.T) {
	testdb.OnDatabasesWithoutTables(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		tables := `SELECT name FROM sqlite_master`
		switch d.Driver {
		case "pgx":
			tables = `SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace`
		case "mysql":
			tables = `SELECT table_name FROM information_schema.tables WHERE table_schema = database()`
		}
		for _, table := range []string{"users", "products", "widgets", "orders", "schema"} {
			table = "storefront_" + table
			for kind, definition := range map[string]string{
				"TABLE": "(name VARCHAR(20), number BIGINT)", "VIEW": "AS SELECT 1 AS version",
			} {
				d.Exec(t, fmt.Sprintf("CREATE %s %s %s", kind, table, definition))
				before := testdb.Column(t, d.Pool, tables)
				err := sqlstore.New(d.Pool, nil).Migrate(t.Context())
				if err == nil || !strings.Contains(err.Error(), table+" that is not the store's") {
					t.Errorf("with a %s of another program, Migrate returned %v, want an error that names %s", kind, err, table)
				}
				if after := testdb.Column(t, d.Pool, tables); !slices.Equal(after, before) {
					t.Errorf("there was %q, and then %q", before, after)
				}
				d.Exec(t, fmt.Sprintf("DROP %s %s", kind, table))
			}
		}
		d.Migrate(t)
	})
}

// The tables of a candidate for 1.0.0 stay as they are, and neither writes into those of the other.
func TestTablesOfACandidateAreRefused(t *testing.T) {
	const names = "(id, item, qty, created_ms, scope, key_hash, fingerprint)"
	testdb.OnDatabasesWithoutTables(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		store := sqlstore.New(d.Connect(t), nil)
		must.OK(t, store.Migrate(t.Context()))
		insert := d.SQL("INSERT INTO storefront_orders " + names + " VALUES ('ord_1', '', 1, 0, $1, $2, $3)")
		_, err := d.Pool.Exec(insert, []byte{}, make([]byte, 32), make([]byte, 32))
		if err == nil {
			t.Error("a candidate can write into the tables")
		}

		d.Exec(t, "ALTER TABLE storefront_orders RENAME COLUMN key_fingerprint TO fingerprint",
			"UPDATE storefront_schema SET version = 3, oldest = 2")
		for want, s := range map[string]*sqlstore.Store{
			"": store, // which runs
			"of a candidate for 1.0.0, and nothing upgrades them: use an empty database": sqlstore.New(d.Connect(t), nil),
		} {
			_, err := testdb.Create(t.Context(), s, "key", "kettle")
			for _, err := range []error{s.Migrate(t.Context()), s.Check(t.Context()), err} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want an error that says %q", err, want)
				}
			}
		}
		if orders := testdb.StoredOrders(t, d.Pool); len(orders) > 0 {
			t.Errorf("its tables have the orders %v", orders)
		}
		d.ExpectVersion(t, "3 2")
	})
}
