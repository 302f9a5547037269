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
	for name, oldest := range map[string]int{"that this one may use": 1, "that this one may not use": later} {
		t.Run(name, func(t *testing.T) {
			testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
				t.Parallel()
				d.Exec(t, fmt.Sprintf("UPDATE storefront_schema SET version = %d, oldest = %d", later, oldest), "DROP TABLE storefront_widgets")
				store := sqlstore.New(d.Pool, nil)
				err, notReady := store.Migrate(t.Context()), store.Check(t.Context())
				want := "storefront_widgets"
				if oldest == later {
					want = fmt.Sprint(later)
				}
				for _, err := range []error{err, notReady} {
					if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, storefront.ErrUnavailable) {
						t.Errorf("Migrate or Check returned %v, want an error that names %s", err, want)
					}
				}
				d.ExpectVersion(t, fmt.Sprint(later, oldest))
				if _, err := d.Pool.Exec("SELECT id FROM storefront_widgets"); err == nil {
					t.Error("Migrate has made a table")
				}
			})
		})
	}
}

// definitions are of the store's tables, on SQLite and PostgreSQL.
var definitions = map[string]string{
	"storefront_users":    "(id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)",
	"storefront_products": "(id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)",
	"storefront_widgets":  "(id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)",
	"storefront_orders": "(id TEXT NOT NULL PRIMARY KEY, item TEXT NOT NULL, qty BIGINT NOT NULL, created_ms BIGINT NOT NULL, " +
		"scope BYTEA NOT NULL, key_hash BYTEA UNIQUE, key_fingerprint BYTEA, keyed_ms BIGINT, fields TEXT)",
	"storefront_replays": "(slot INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL)", // on MySQL and MariaDB alone
	"storefront_schema":  "(version BIGINT NOT NULL PRIMARY KEY, oldest BIGINT NOT NULL, keep_ms BIGINT, forgotten_ms BIGINT)",
}

// definition returns that of a table on the database, or "" if it has no such table.
func definition(d *testdb.DB, table string) string {
	switch {
	case d.Driver != "mysql" && table == "storefront_replays":
		return ""
	case d.Driver != "mysql":
		return definitions[table]
	}
	types := strings.NewReplacer("scope BYTEA", "scope LONGBLOB", "id BYTEA", "id VARBINARY(255)", "BYTEA", "BINARY(32)",
		"id TEXT", "id VARCHAR(255)", "body TEXT", "body LONGTEXT")
	return types.Replace(definitions[table]) + " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
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
		for table := range definitions {
			definition := definition(d, table)
			if definition == "" {
				continue
			}
			others := map[string]string{
				"other columns": "CREATE TABLE " + table + " (name VARCHAR(20), number BIGINT)",
				"a view":        "CREATE VIEW " + table + " AS SELECT * FROM other",
			}
			for _, change := range [][2]string{{"body TEXT", "body BIGINT"}, {"body LONGTEXT", "body BIGINT"}, {"qty BIGINT", "qty TEXT"},
				{"number BIGINT", "number INT"}, {"version BIGINT", "version INT"}, {"key_fingerprint B", "print B"}} {
				if changed := strings.Replace(definition, change[0], change[1], 1); changed != definition {
					others[change[1]] = "CREATE TABLE " + table + " " + changed
				}
			}
			for name, other := range others {
				t.Run(table+", "+name, func(t *testing.T) {
					drop := "DROP TABLE " + table
					if name == "a view" {
						d.Exec(t, "CREATE TABLE other "+definition)
						defer d.Exec(t, "DROP TABLE other")
						drop = "DROP VIEW " + table
					}
					d.Exec(t, other)
					defer d.Exec(t, drop)
					before := testdb.Column(t, d.Pool, tables)
					err := sqlstore.New(d.Pool, nil).Migrate(t.Context())
					if err == nil || !strings.Contains(err.Error(), table+" that is not the store's") {
						t.Errorf("Migrate returned %v, want an error that names %s", err, table)
					}
					if after := testdb.Column(t, d.Pool, tables); !slices.Equal(after, before) {
						t.Errorf("there was %q, and then %q", before, after)
					}
				})
			}
		}
		d.Migrate(t)
	})
}

// The tables of a candidate for 1.0.0 stay as they are, and neither writes into those of the other.
func TestTablesOfACandidateAreRefused(t *testing.T) {
	const names = "(id, item, qty, created_ms, scope, key_hash, fingerprint)"
	testdb.OnDatabasesWithoutTables(t, func(t *testing.T, d *testdb.DB) {
		store := sqlstore.New(d.Connect(t), nil)
		must.OK(t, store.Migrate(t.Context()))
		insert := d.SQL("INSERT INTO storefront_orders " + names + " VALUES ('ord_1', '', 1, 0, $1, $2, $3)")
		_, err := d.Pool.Exec(insert, []byte{}, make([]byte, 32), make([]byte, 32))
		if err == nil {
			t.Error("a candidate can write into the tables")
		}

		d.Exec(t, "DROP TABLE storefront_orders", strings.NewReplacer("key_fingerprint", "fingerprint").Replace(
			"CREATE TABLE storefront_orders "+definition(d, "storefront_orders")), "UPDATE storefront_schema SET version = 3, oldest = 2")
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
		must.Get(d.Pool.Exec(insert, []byte{}, make([]byte, 32), make([]byte, 32)))(t)
		d.ExpectVersion(t, "3 2")
	})
}
