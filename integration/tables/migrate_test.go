package tables

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

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
		must.OK(t, d.Use(t)) // which migrates again
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
			if oldest == later {
				wantExcluded(t, d)
			}
			d.ExpectVersion(t, fmt.Sprint(later, oldest))
			if _, err := d.Pool.Exec("SELECT id FROM storefront_widgets"); err == nil {
				t.Error("Migrate has made a table")
			}
		}
	})
}

// wantExcluded checks that this release, which a later one has excluded, uses no table: neither a program that
// has just started and looks at nothing first nor one that forgets keys every hour.
func wantExcluded(t *testing.T, d *testdb.DB) {
	t.Helper()
	opts := &sqlstore.Options{Timeout: time.Minute}
	_, order := testdb.Create(t.Context(), sqlstore.New(d.Pool, opts), "key", "kettle")
	_, forgot := sqlstore.New(d.Pool, opts).ForgetKeys(t.Context(), time.Now().Add(-2*storefront.KeyLifetime))
	for what, err := range map[string]error{"an order": order, "ForgetKeys": forgot} {
		if err == nil || !strings.Contains(err.Error(), "of a later release") {
			t.Errorf("%s: got %v, want an error that says that the tables are of a later release", what, err)
		}
	}
}

// The tables of a candidate before 1.0.0-rc.4 stay as they are.
func TestTablesOfACandidateAreRefused(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		d.Exec(t, "ALTER TABLE storefront_orders RENAME COLUMN key_fingerprint TO fingerprint",
			"UPDATE storefront_schema SET version = 3, oldest = 2")
		store := sqlstore.New(d.Pool, nil)
		_, order := testdb.Create(t.Context(), store, "key", "kettle")
		for _, err := range []error{store.Migrate(t.Context()), store.Check(t.Context()), order} {
			const want = "of a candidate before 1.0.0-rc.4, and nothing upgrades them: use an empty database"
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error that says %q", err, want)
			}
		}
		d.ExpectVersion(t, "3 2")
	})
}
