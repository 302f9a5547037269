// Package testdb runs a test on each of the databases that sqlstore is for, and has the
// stores that tests open on them.
//
// The drivers are chosen for programs like storefrontd. pgx is the one
// for PostgreSQL that is developed further, and it notices at once when a context
// is done. go-sql-driver/mysql, for MySQL and MariaDB, does so, too, except in Commit
// and Rollback. For SQLite, modernc.org/sqlite needs no C compiler and builds from an
// empty cache in 12 s, where mattn/go-sqlite3 needs cgo and 24 s; it takes 4.7
// instead of 3.6 µs for a row by its ID, 18 instead of 16 µs for a page of 50, and
// 249 instead of 222 µs for a durable insert, which matters little behind HTTP.
package testdb

import (
	"cmp"
	"context"
	"database/sql"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// OnSQLEngines runs test on an empty database of each kind that sqlstore is
// for. Without the binaries of a server it skips that one.
func OnSQLEngines(t *testing.T, test func(t *testing.T, d *DB)) {
	t.Run("SQLite", func(t *testing.T) { test(t, New(t, "sqlite", SQLiteFile(t))) })
	OnSQLServers(t, test)
}

// OnSQLServers is OnSQLEngines without SQLite, which has one writer at a time.
func OnSQLServers(t *testing.T, test func(t *testing.T, d *DB)) { onServers(t, New, test) }

// OnDatabasesWithoutTables is OnSQLEngines before anybody has made a table.
func OnDatabasesWithoutTables(t *testing.T, test func(t *testing.T, d *DB)) {
	t.Run("SQLite", func(t *testing.T) { test(t, Open(t, "sqlite", SQLiteFile(t))) })
	onServers(t, Open, test)
}

func onServers(t *testing.T, open func(testing.TB, string, string) *DB, test func(*testing.T, *DB)) {
	t.Run("PostgreSQL", func(t *testing.T) { test(t, open(t, "pgx", dbserver.Postgres.Database(t))) })
	t.Run("MariaDB", func(t *testing.T) { test(t, open(t, "mysql", dbserver.MariaDB.Database(t))) })
	t.Run("MySQL", func(t *testing.T) { test(t, open(t, "mysql", dbserver.MySQL.Database(t))) })
}

// A DB is a database with the tables of sqlstore.
type DB struct {
	Driver string // "sqlite", "pgx" or "mysql"
	URL    string // or what the driver takes
	Pool   *sql.DB

	name   string // of another driver for the same kind of database, or ""
	t      testing.TB
	stores *sql.DB // of those of a suite; nil until there is one
}

// New makes the tables in an empty database.
func New(t testing.TB, driver, url string) *DB {
	t.Helper()
	d := Open(t, driver, url)
	d.Migrate(t)
	return d
}

// Open leaves a database as it is.
func Open(t testing.TB, driver, url string) *DB {
	t.Helper()
	return OpenBy(t, driver, url, driver)
}

// OpenBy is Open by another driver, whose name is the last one, for the databases that the first one is for.
func OpenBy(t testing.TB, driver, url, name string) *DB {
	t.Helper()
	d := &DB{Driver: driver, URL: url, name: name, t: t}
	d.Pool = d.Connect(t)
	return d
}

// Migrate makes the tables.
func (d *DB) Migrate(t testing.TB) {
	t.Helper()
	must.OK(t, sqlstore.New(d.Pool, &sqlstore.Options{OrderLists: true}).Migrate(context.Background()))
}

// SQLiteFile returns the URL of a new file.
func SQLiteFile(t testing.TB) string {
	return "file:" + filepath.Join(t.TempDir(), "shop.db") +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(100)"
}

// Open returns a store with connections of its own, which are closed when t ends.
func (d *DB) Open(t testing.TB) *SQLStore {
	t.Helper()
	return d.OpenWith(t, nil)
}

// OpenWith is open with options.
func (d *DB) OpenWith(t testing.TB, opts *sqlstore.Options) *SQLStore {
	t.Helper()
	return storeOn(t, d.Connect(t), opts)
}

func storeOn(t testing.TB, db *sql.DB, opts *sqlstore.Options) *SQLStore {
	all := sqlstore.Options{}
	if opts != nil {
		all = *opts
	}
	all.OrderLists = true
	store := sqlstore.New(db, &all)
	return &SQLStore{store, store.OrderReader(), db, t}
}

// Connect returns a pool of connections, which is closed when t ends.
func (d *DB) Connect(t testing.TB) *sql.DB {
	t.Helper()
	db := must.Get(sql.Open(cmp.Or(d.name, d.Driver), d.URL))(t)
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { db.Close() })
	return db
}

// SQL returns a statement that has placeholders $1, $2 and so on, each once and in
// this order, as the driver takes it.
func (d *DB) SQL(statement string) string {
	if d.Driver != "mysql" {
		return statement
	}
	return placeholder.ReplaceAllString(statement, "?")
}

var placeholder = regexp.MustCompile(`\$[0-9]+`)

// Exec runs statements on a new database, such as those that make a table of a
// program's own.
func (d *DB) Exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := d.Pool.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// Clear deletes everything.
func (d *DB) Clear(t testing.TB) {
	t.Helper()
	for _, table := range []string{"users", "products", "widgets", "orders"} {
		d.Exec(t, "DELETE FROM storefront_"+table+" WHERE id > ''") // as sql_safe_updates wants it
	}
}

// RecordKey has the key of an order have been recorded at a time.
func (d *DB) RecordKey(t testing.TB, orderID string, at time.Time) {
	t.Helper()
	must.Get(d.Pool.Exec(d.SQL("UPDATE storefront_orders SET keyed_ms = $1 WHERE id = $2"), at.UnixMilli(),
		orderID))(t)
	d.Exec(t, forgetPlace)
}

// A SQLStore is a sqlstore.Store with its orders.
type SQLStore struct {
	*sqlstore.Store
	storefront.OrderReader
	db *sql.DB
	t  testing.TB
}

// Orders returns all orders.
func (s *SQLStore) Orders() []storefront.Order {
	s.t.Helper()
	return StoredOrders(s.t, s.db)
}

// StoredOrders returns all orders in a database.
func StoredOrders(t testing.TB, db *sql.DB) (orders []storefront.Order) {
	t.Helper()
	rows := must.Get(db.Query("SELECT id, item, qty, fields, created_ms FROM storefront_orders"))(t)
	defer rows.Close()
	for rows.Next() {
		var o storefront.Order
		var ms int64
		must.OK(t, rows.Scan(&o.ID, &o.Item, &o.Qty, &o.Fields, &ms))
		o.CreatedAt = time.UnixMilli(ms).UTC()
		orders = append(orders, o)
	}
	must.OK(t, rows.Err())
	return orders
}

// ExpectVersion expects a version of the tables, and the oldest that may use them.
func (d *DB) ExpectVersion(t *testing.T, want string) {
	t.Helper()
	query := "SELECT version || ' ' || oldest FROM storefront_schema"
	if d.Driver == "mysql" {
		query = "SELECT CONCAT(version, ' ', oldest) FROM storefront_schema"
	}
	if got := Column(t, d.Pool, query); !slices.Equal(got, []string{want}) {
		t.Errorf("the version, and the oldest that may use it, is %q, want %q", got, want)
	}
}

// Column returns the only column of a query's rows.
func Column(t *testing.T, db *sql.DB, query string) (values []string) {
	t.Helper()
	rows := must.Get(db.Query(query))(t)
	defer rows.Close()
	for rows.Next() {
		var value string
		must.OK(t, rows.Scan(&value))
		values = append(values, value)
	}
	must.OK(t, rows.Err())
	return values
}
