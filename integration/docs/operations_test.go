package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// statementsOf returns the SQL of a document that is marked as that of a test and is for
// the database.
func statementsOf(t *testing.T, d *testdb.DB, document, test string) []string {
	t.Helper()
	return documents.Statements(t, repository, document, test, d.Driver)
}

// createAt creates an order whose key is its ID, by a replica with another clock.
func createAt(t *testing.T, store *sqlstore.Store, id string, at time.Time) storefront.Order {
	t.Helper()
	order := storefront.Order{ID: id, Item: "teapot", Qty: 1, CreatedAt: at.UTC().Truncate(time.Millisecond)}
	got := must.Get(store.CreateOrder(t.Context(), storefront.IdempotencyKey{Value: id}, order))(t)
	return got
}

// What operators run succeeds, and queries have rows, once there is an order with the ID and of the day in
// README.
func TestQueriesOfOperators(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		day := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
		createAt(t, sqlstore.New(d.Pool, nil), "ord_0pgbmqoa8l8q3dkv2mrb5nvtca", day)
		var statements []string
		for _, document := range []string{"README.md", "docs/databases.md", "docs/operations.md"} {
			statements = append(statements, statementsOf(t, d, document, "TestQueriesOfOperators")...)
		}
		isMySQL := d.Driver == "mysql" &&
			!strings.Contains(testdb.Column(t, d.Pool, "SELECT version()")[0], "MariaDB")
		for _, statement := range statements {
			if strings.Contains(statement, "replication_group_members") && !isMySQL {
				continue // MariaDB has no such groups
			}
			rows := must.Get(d.Pool.QueryContext(t.Context(), statement))(t)
			isQuery := strings.HasPrefix(statement, "SELECT") || strings.HasPrefix(statement, "SHOW")
			if some := rows.Next(); some != isQuery {
				t.Errorf("%s: it has rows: %t", statement, some)
			}
			must.OK(t, errors.Join(rows.Close(), rows.Err()))
		}
	})
}

// An order whose key is remembered is not deleted, whatever its time, and none that is not in the archive.
func TestOldOrdersAreDeleted(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		store := sqlstore.New(d.Pool, nil)
		createAt(t, store, "forgotten", time.UnixMilli(1e12))
		createAt(t, store, "forgotten, and young", time.UnixMilli(2e12))
		for _, id := range []string{"forgotten", "forgotten, and young"} {
			d.RecordKey(t, id, time.Now().Add(-26*time.Hour))
		}
		must.Get(store.ForgetKeys(t.Context(), time.Now().Add(-25*time.Hour)))(t)
		kept := createAt(t, store, "kept", time.UnixMilli(1e12))
		statements := statementsOf(t, d, "docs/operations.md", "TestOldOrdersAreDeleted")
		last := len(statements) - 1
		d.Exec(t, statements[:last-1]...)
		d.Exec(t, statements[last]) // before any was archived
		if n := len(testdb.StoredOrders(t, d.Pool)); n != 3 {
			t.Errorf("%d orders are left where none is archived, want 3", n)
		}
		d.Exec(t, statements[last-1:]...)
		if ids := testdb.Column(t, d.Pool, "SELECT id FROM shop_archive WHERE item = 'teapot'"); len(ids) != 1 ||
			ids[0] != "forgotten" {
			t.Errorf("archived are %q, want forgotten", ids)
		}
		var left []string
		for _, order := range testdb.StoredOrders(t, d.Pool) {
			left = append(left, order.ID)
		}
		if len(left) != 2 || strings.Contains(fmt.Sprintf("%q", left), `"forgotten"`) {
			t.Errorf("left are %q, want all but forgotten", left)
		}
		if got := createAt(t, store, "kept", time.Now()); !got.Equal(kept) {
			t.Errorf("the order whose key is remembered is %v, want %v", got, kept)
		}
	})
}

// Keys that a database has recorded while its clock was behind are as if they were older. What keeps them waits
// for no order.
func TestKeysThatWereRecordedTooEarlyAreKept(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		store := sqlstore.New(d.Pool, nil)
		order := createAt(t, store, "key", time.Now())
		const behind = 2 * time.Hour
		d.RecordKey(t, "key", time.Now().Add(-24*time.Hour-55*time.Minute-behind))
		if d.Driver != "sqlite" { // which has one writer at a time
			tx := must.Get(d.Pool.Begin())(t)
			must.Get(tx.Exec("UPDATE storefront_orders SET qty = 1"))(t)
			t.Cleanup(func() { tx.Rollback() })
		}
		statements := statementsOf(t, d, "docs/operations.md", "TestKeysThatWereRecordedTooEarlyAreKept")
		for _, statement := range statements {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			must.Get(d.Pool.ExecContext(ctx, statement))(t)
		}
		if n, err := store.ForgetKeys(t.Context(), time.Now().Add(-25*time.Hour)); err != nil || n != 0 {
			t.Errorf("ForgetKeys returned %d, %v", n, err)
		}
		if again := createAt(t, store, "key", time.Now().Add(time.Hour)); !again.Equal(order) {
			t.Errorf("the order, sent again, is %v, want %v", again, order)
		}
	})
}

// backingUp tries a command that copies the SQLite file of storefrontd: the copy is for its owner alone. It
// replaces no copy, and makes no file where there is no database.
func backingUp(t *testing.T, command string) {
	need.Programs(t, need.Tools, "sqlite3")
	dir := process.Folder(t)
	d := testdb.New(t, "sqlite", "file:"+filepath.Join(dir, "shop.db"))
	order := createAt(t, sqlstore.New(d.Pool, nil), "key", time.Now())
	name := filepath.Join(dir, "shop-1.db")
	script := strings.NewReplacer("/var/lib/shop", dir, "/var/backups", dir, "$(date +%s)", "1").Replace(command)
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	missing := strings.Replace(script, "shop.db", "missing.db", 1)
	for _, script := range []string{script, missing} {
		if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err == nil {
			t.Errorf("%s succeeds: %s", script, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "missing.db")); err == nil {
		t.Errorf("%s makes a database", missing)
	}
	if info := must.Get(os.Stat(name))(t); info.Mode() != 0o600 {
		t.Errorf("%s makes a file of mode %v, want 0600", script, info.Mode())
	}
	got := testdb.StoredOrders(t, testdb.Open(t, "sqlite", "file:"+name).Pool)
	if len(got) != 1 || !got[0].Equal(order) {
		t.Errorf("the copy has %v, want %v", got, order)
	}
}
