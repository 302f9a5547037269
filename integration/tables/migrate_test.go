package tables

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
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
	testdb.OnDatabasesWithoutTables(t, testMigrateByManyAtOnce)
}

func testMigrateByManyAtOnce(t *testing.T, d *testdb.DB) {
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
	d.ExpectVersion(t, "3 2")
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
}

// Some of the tables may be there, as after a Migrate that was killed.
func TestMigrateGoesOnWhereAnotherEnded(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		d.Exec(t, "DROP TABLE storefront_schema", "DROP TABLE storefront_widgets")
		const dropIndex = "DROP INDEX storefront_orders_keyed"
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
				if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "but not "+table+": restore") {
					t.Errorf("without %s, Migrate returned %v", table, err)
				}
			}
			if err := sqlstore.New(d.Pool, nil).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "but not "+table+": restore") {
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
	for name, oldest := range map[string]int{"that this one may use": 2, "that this one may not use": later} {
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

// version1 returns the statements with which 1.0.0-rc.1 made its tables.
func version1(driver string) []string {
	if driver != "mysql" {
		return []string{
			`CREATE TABLE IF NOT EXISTS storefront_users (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
			`CREATE TABLE IF NOT EXISTS storefront_products (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
			`CREATE TABLE IF NOT EXISTS storefront_widgets (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
			`CREATE TABLE IF NOT EXISTS storefront_orders (
				id TEXT NOT NULL PRIMARY KEY,
				item TEXT NOT NULL,
				qty BIGINT NOT NULL,
				created_ms BIGINT NOT NULL,
				scope BYTEA NOT NULL,
				key_hash BYTEA UNIQUE,
				fingerprint BYTEA
			)`,
			`CREATE INDEX IF NOT EXISTS storefront_orders_keys ON storefront_orders (created_ms) WHERE key_hash IS NOT NULL`,
			`CREATE TABLE IF NOT EXISTS storefront_schema (version BIGINT NOT NULL PRIMARY KEY)`,
			`INSERT INTO storefront_schema (version) SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM storefront_schema) ON CONFLICT DO NOTHING`,
		}
	}
	const options = ` ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
	return []string{
		`CREATE TABLE IF NOT EXISTS storefront_users (id VARBINARY(255) NOT NULL PRIMARY KEY, body LONGTEXT NOT NULL)` + options,
		`CREATE TABLE IF NOT EXISTS storefront_products (id VARBINARY(255) NOT NULL PRIMARY KEY, body LONGTEXT NOT NULL)` + options,
		`CREATE TABLE IF NOT EXISTS storefront_widgets (id VARBINARY(255) NOT NULL PRIMARY KEY, body LONGTEXT NOT NULL)` + options,
		`CREATE TABLE IF NOT EXISTS storefront_orders (
			id VARCHAR(255) NOT NULL PRIMARY KEY,
			item TEXT NOT NULL,
			qty BIGINT NOT NULL,
			created_ms BIGINT NOT NULL,
			scope LONGBLOB NOT NULL,
			key_hash BINARY(32) UNIQUE,
			fingerprint BINARY(32),
			key_ms BIGINT AS (CASE WHEN key_hash IS NULL THEN NULL ELSE created_ms END) STORED,
			INDEX storefront_orders_keys (key_ms)
		)` + options,
		`CREATE TABLE IF NOT EXISTS storefront_replays (slot INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL)` + options,
		`CREATE TABLE IF NOT EXISTS storefront_schema (version BIGINT NOT NULL PRIMARY KEY)` + options,
		`INSERT INTO storefront_schema (version) SELECT 1 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM storefront_schema)
			ON DUPLICATE KEY UPDATE version = 1`,
	}
}

// insertAsVersion1 inserts an order as 1.0.0-rc.1 does, with an ID and a key that are the
// same.
func insertAsVersion1(t *testing.T, d *testdb.DB, id string, created time.Time) {
	t.Helper()
	hash := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, 0), id...)) // of no scope
	fingerprint := [32]byte{1}                                                  // that of create
	_, err := d.Pool.Exec(d.SQL(`INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, fingerprint) VALUES ($1, 'kettle', 1, $2, $3, $4, $5)`),
		id, created.UnixMilli(), []byte{}, hash[:], fingerprint[:])
	if err != nil {
		t.Fatal(err)
	}
}

func TestMigrateFromVersion1(t *testing.T) {
	testdb.OnDatabasesWithoutTables(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		d.Exec(t, version1(d.Driver)...)
		now := time.Now()
		ids := []string{"young", "older", "wrong time", "beside"}
		insertAsVersion1(t, d, "young", now)
		insertAsVersion1(t, d, "older", now.Add(-20*time.Hour))
		insertAsVersion1(t, d, "wrong time", now.Add(-26*time.Hour)) // it was inserted now
		insertAsVersion1(t, d, "forgotten", now)
		d.Exec(t, "UPDATE storefront_orders SET key_hash = NULL, fingerprint = NULL WHERE id = 'forgotten'")

		store := sqlstore.New(d.Pool, nil)
		if err := store.Check(t.Context()); err == nil || errors.Is(err, storefront.ErrUnavailable) {
			t.Errorf("before Migrate, Check returns %v, want an error of the version", err)
		}
		d.Migrate(t)
		d.ExpectVersion(t, "3 2")
		if err := store.Check(t.Context()); err != nil {
			t.Errorf("after Migrate, Check returns %v", err)
		}
		insertAsVersion1(t, d, "beside", now.Add(-26*time.Hour)) // by a replica of that release, which goes on

		expect := func(when string) {
			t.Helper()
			for _, id := range ids {
				if order, err := testdb.Create(t.Context(), store, id, "kettle"); err != nil || order.ID != id {
					t.Errorf("%s, the key of %q leads to %v, %v", when, id, order, err)
				}
			}
		}
		expect("after Migrate")
		forget := func() int64 {
			t.Helper()
			n := must.Get(store.ForgetKeys(t.Context(), time.Now().Add(-storefront.KeyLifetime)))(t)
			return n
		}
		if n := forget(); n != 0 {
			t.Errorf("%d keys were forgotten right after Migrate", n)
		}
		expect("after ForgetKeys")

		// A day later, all of them are.
		d.Exec(t, fmt.Sprintf("UPDATE storefront_orders SET keyed_ms = keyed_ms - %d", (storefront.KeyLifetime+time.Minute).Milliseconds()))
		if n := forget(); n < int64(len(ids)) {
			t.Errorf("%d keys were forgotten when they were old enough, want %d", n, len(ids))
		}
		if remembered := testdb.Column(t, d.Pool, "SELECT id FROM storefront_orders WHERE key_hash IS NOT NULL"); len(remembered) > 0 {
			t.Errorf("the keys of %q are remembered for ever", remembered)
		}
		if n := len(testdb.Column(t, d.Pool, "SELECT id FROM storefront_orders")); n != len(ids)+1 {
			t.Errorf("there are %d orders, want %d", n, len(ids)+1)
		}
	})
}

// TestMigrateFromVersion2 has orders go on, also while a transaction reads the table, and a release that
// does not know the column of MySQL's tables inserts beside.
func TestMigrateFromVersion2(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		store := sqlstore.New(d.Pool, nil)
		for i := range 2100 { // more than Migrate works on at a time
			insertAsVersion1(t, d, fmt.Sprint(i), time.Now())
		}
		d.Exec(t, "UPDATE storefront_orders SET key_hash = NULL, fingerprint = NULL, keyed_ms = NULL WHERE id LIKE '7%'",
			"UPDATE storefront_schema SET version = 2")
		if d.Driver == "mysql" {
			d.Exec(t, "ALTER TABLE storefront_orders DROP COLUMN place")
		}
		if err := store.Check(t.Context()); err == nil || errors.Is(err, storefront.ErrUnavailable) {
			t.Errorf("before Migrate, Check returns %v, want an error of the version", err)
		}
		if d.Driver != "sqlite" { // where a reader is in nobody's way
			reading := must.Get(d.Connect(t).Begin())(t)
			must.Get(reading.Exec("SELECT COUNT(*) FROM storefront_orders"))(t)
			migrated := make(chan error)
			go func() {
				migrated <- sqlstore.New(d.Connect(t), &sqlstore.Options{Timeout: 10 * time.Minute}).Migrate(t.Context())
			}()
			for i := range 20 {
				if _, err := testdb.Create(t.Context(), store, fmt.Sprint("meanwhile ", i), "kettle"); err != nil {
					t.Error(err)
				}
			}
			must.OK(t, reading.Rollback())
			must.OK(t, <-migrated)
		}
		d.Migrate(t)
		d.ExpectVersion(t, "3 2")
		insertAsVersion1(t, d, "beside", time.Now())
		if order, err := testdb.Create(t.Context(), store, "5", "kettle"); err != nil || order.ID != "5" {
			t.Errorf("the key of an order of version 2 leads to %v, %v", order, err)
		}
		if d.Driver == "mysql" {
			const places = "SELECT HEX(place) FROM storefront_orders ORDER BY id"
			before := testdb.Column(t, d.Pool, places)
			if wrong := testdb.Column(t, d.Pool, `SELECT id FROM storefront_orders WHERE place IS NULL
				OR place <> LEFT(COALESCE(key_hash, place), 8)`); len(wrong) > 0 {
				t.Errorf("%d orders have no place, or a wrong one: %.100q", len(wrong), wrong)
			}
			d.Exec(t, "UPDATE storefront_orders SET key_hash = NULL")
			if !slices.Equal(testdb.Column(t, d.Pool, places), before) {
				t.Error("an order has another place once its key is forgotten")
			}
		}
	})
}

func TestMigrateFromVersion1ByManyAtOnce(t *testing.T) {
	testdb.OnDatabasesWithoutTables(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		d.Exec(t, version1(d.Driver)...)
		insertAsVersion1(t, d, "order", time.Now())
		testMigrateByManyAtOnce(t, d)
		if order, err := testdb.Create(t.Context(), sqlstore.New(d.Pool, nil), "order", "kettle"); err != nil || order.ID != "order" {
			t.Errorf("the key of an order of version 1 leads to %v, %v", order, err)
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
		for _, statement := range version1(d.Driver) {
			rest, ok := strings.CutPrefix(statement, "CREATE TABLE IF NOT EXISTS ")
			if !ok {
				continue
			}
			table, definition, _ := strings.Cut(rest, " ")
			others := map[string]string{
				"other columns": "CREATE TABLE " + table + " (name VARCHAR(20), number BIGINT)",
				"a view":        "CREATE VIEW " + table + " AS SELECT * FROM other",
			}
			for _, change := range [][2]string{{"body TEXT", "body BIGINT"}, {"body LONGTEXT", "body BIGINT"}, {"qty BIGINT", "qty TEXT"},
				{"number BIGINT", "number INT"}, {"version BIGINT", "version INT"}, {"fingerprint B", "print B"}} {
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
