package integration

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"example.com/storefront"
	"example.com/storefront/internal/exchanges"
	"example.com/storefront/sqlstore"
)

// A database holds what stores on it have in common.
type database interface {
	// open returns a store with connections of its own, as each replica of a
	// program has. They are closed when t ends, or its bubble.
	open(t testing.TB) testStore

	// clear deletes everything.
	clear(t testing.TB)
}

// A testStore is a store as the tests need it.
type testStore interface {
	exchanges.Store
	Orders() []storefront.Order
}

// onEveryEngine runs test on an empty database of each kind.
func onEveryEngine(t *testing.T, test func(t *testing.T, d database)) {
	t.Run("memory", func(t *testing.T) { test(t, &memory{new(exchanges.MemStore)}) })
	onSQLEngines(t, func(t *testing.T, d *sqlDatabase) { test(t, d) })
}

// onSQLEngines runs test on an empty database of each kind that sqlstore is
// for. Without the binaries of a server it skips that one.
func onSQLEngines(t *testing.T, test func(t *testing.T, d *sqlDatabase)) {
	onDatabasesWithoutTables(t, func(t *testing.T, d *sqlDatabase) {
		d.migrate(t)
		test(t, d)
	})
}

// onSQLServers is onSQLEngines without SQLite, which has one writer at a time.
func onSQLServers(t *testing.T, test func(t *testing.T, d *sqlDatabase)) {
	onServersWithoutTables(t, func(t *testing.T, d *sqlDatabase) {
		d.migrate(t)
		test(t, d)
	})
}

// onDatabasesWithoutTables is onSQLEngines before anybody has made a table.
func onDatabasesWithoutTables(t *testing.T, test func(t *testing.T, d *sqlDatabase)) {
	t.Run("SQLite", func(t *testing.T) { test(t, openSQLDatabase(t, "sqlite", sqliteFile(t))) })
	onServersWithoutTables(t, test)
}

func onServersWithoutTables(t *testing.T, test func(t *testing.T, d *sqlDatabase)) {
	t.Run("PostgreSQL", func(t *testing.T) { test(t, openSQLDatabase(t, "pgx", postgresDatabase(t))) })
	t.Run("PostgreSQL 18", func(t *testing.T) { test(t, openSQLDatabase(t, "pgx", postgres18.database(t))) })
	t.Run("MariaDB", func(t *testing.T) { test(t, openSQLDatabase(t, "mysql", mariaDB.database(t))) })
	t.Run("MySQL", func(t *testing.T) { test(t, openSQLDatabase(t, "mysql", mySQL.database(t))) })
}

// A memory is a database in memory: a store.
type memory struct{ store *exchanges.MemStore }

func (m *memory) open(testing.TB) testStore { return m.store }
func (m *memory) clear(testing.TB)          { m.store = new(exchanges.MemStore) }

// A sqlDatabase is a database with the tables of sqlstore.
type sqlDatabase struct {
	driver string // "sqlite", "pgx" or "mysql"
	url    string // or what the driver takes
	db     *sql.DB
}

// newSQLDatabase makes the tables in an empty database.
func newSQLDatabase(t testing.TB, driver, url string) *sqlDatabase {
	t.Helper()
	d := openSQLDatabase(t, driver, url)
	d.migrate(t)
	return d
}

// openSQLDatabase leaves a database as it is.
func openSQLDatabase(t testing.TB, driver, url string) *sqlDatabase {
	t.Helper()
	d := &sqlDatabase{driver: driver, url: url}
	d.db = d.connect(t)
	return d
}

func (d *sqlDatabase) migrate(t testing.TB) {
	t.Helper()
	if err := sqlstore.New(d.db, nil).Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// sqliteFile returns the URL of a new file.
func sqliteFile(t testing.TB) string {
	return "file:" + filepath.Join(t.TempDir(), "shop.db") +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(100)"
}

func (d *sqlDatabase) open(t testing.TB) testStore {
	t.Helper()
	return d.openWith(t, nil)
}

// openWith is open with options.
func (d *sqlDatabase) openWith(t testing.TB, opts *sqlstore.Options) *sqlTestStore {
	t.Helper()
	db := d.connect(t)
	return &sqlTestStore{sqlstore.New(db, opts), db, t}
}

// connect returns a pool of connections, which is closed when t ends.
func (d *sqlDatabase) connect(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, d.url)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { db.Close() })
	return db
}

// sql returns a statement that has placeholders $1, $2 and so on, each once and in
// this order, as the driver takes it.
func (d *sqlDatabase) sql(statement string) string {
	if d.driver != "mysql" {
		return statement
	}
	return placeholder.ReplaceAllString(statement, "?")
}

var placeholder = regexp.MustCompile(`\$[0-9]+`)

// exec runs statements on a new database, such as those that make a table of a
// program's own.
func (d *sqlDatabase) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := d.db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (d *sqlDatabase) clear(t testing.TB) {
	t.Helper()
	for _, table := range []string{"users", "products", "widgets", "orders"} {
		d.exec(t, "DELETE FROM storefront_"+table)
	}
}

// recordKey has the key of an order have been recorded at a time.
func (d *sqlDatabase) recordKey(t testing.TB, orderID string, at time.Time) {
	t.Helper()
	_, err := d.db.Exec(d.sql("UPDATE storefront_orders SET keyed_ms = $1 WHERE id = $2"), at.UnixMilli(), orderID)
	if err != nil {
		t.Fatal(err)
	}
}

// A sqlTestStore is a sqlstore.Store with the methods of a testStore.
type sqlTestStore struct {
	*sqlstore.Store
	db *sql.DB
	t  testing.TB
}

func (s *sqlTestStore) Orders() []storefront.Order {
	s.t.Helper()
	return storedOrders(s.t, s.db)
}

// storedOrders returns all orders in a database.
func storedOrders(t testing.TB, db *sql.DB) (orders []storefront.Order) {
	t.Helper()
	rows, err := db.Query("SELECT id, item, qty, created_ms FROM storefront_orders")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var o storefront.Order
		var ms int64
		if err := rows.Scan(&o.ID, &o.Item, &o.Qty, &ms); err != nil {
			t.Fatal(err)
		}
		o.CreatedAt = time.UnixMilli(ms).UTC()
		orders = append(orders, o)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return orders
}

func (s *sqlTestStore) Put(ctx context.Context, collection string, resources ...storefront.Resource) error {
	c, err := s.collection(collection)
	if err != nil {
		return err
	}
	return c.Put(ctx, resources...)
}

func (s *sqlTestStore) Delete(ctx context.Context, collection string, ids ...string) error {
	c, err := s.collection(collection)
	if err != nil {
		return err
	}
	return c.Delete(ctx, ids...)
}

func (s *sqlTestStore) collection(name string) (sqlstore.Collection, error) {
	switch name {
	case "users":
		return s.Users, nil
	case "products":
		return s.Products, nil
	case "widgets":
		return s.Widgets, nil
	}
	return sqlstore.Collection{}, fmt.Errorf("there are no %s", name)
}
