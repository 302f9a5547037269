package tables

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/sqltap"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/internal/orderid"
	"example.com/storefront/sqlstore"
)

// TestCallsReadFewRows counts what the databases read for the calls of a store of ten thousand users and
// widgets and twenty thousand orders, at any depth of a list. SQLite does not count it: its plans say by what
// it searches.
func TestCallsReadFewRows(t *testing.T) {
	const (
		analyzeMySQL = "ANALYZE TABLE storefront_users, storefront_products, storefront_widgets, storefront_orders"
		handlers     = "SELECT SUM(variable_value) FROM %s.session_status WHERE variable_name LIKE 'Handler_read%%'"
	)
	for _, e := range []struct {
		name, driver string
		url          func(testing.TB) string
		bytes        string
		states       []string // statements, after each of which the calls are made
		rows         string   // a query of how many have been read
	}{
		{"SQLite", "sqlite", testdb.SQLiteFile, "CAST(%s AS BLOB)", []string{"SELECT 1", "ANALYZE"}, ""},
		// The servers may be analyzed some time before they are told to.
		{"PostgreSQL", "pgx", dbserver.Postgres.Database, "convert_to(%s, 'UTF8')",
			[]string{"SELECT 1", "ANALYZE", "SET plan_cache_mode = force_generic_plan"},
			"SELECT (SELECT SUM(seq_tup_read) FROM pg_stat_user_tables) + " +
				"(SELECT SUM(idx_tup_read) FROM pg_stat_user_indexes)"},
		{"MariaDB", "mysql", dbserver.MariaDB.Database, "CAST(%s AS BINARY)", []string{"SELECT 1", analyzeMySQL},
			fmt.Sprintf(handlers, "information_schema")},
		{"MySQL", "mysql", dbserver.MySQL.Database, "CAST(%s AS BINARY)", []string{"SELECT 1", analyzeMySQL},
			fmt.Sprintf(handlers, "performance_schema")},
	} {
		t.Run(e.name, func(t *testing.T) {
			recorder := new(sqltap.Recorder)
			db := sqltap.Open(t, e.driver, e.url(t), recorder.Tap)
			calls := callsOf(filled(t, db, e.bytes))
			rows := func() (n int) {
				if e.driver == "pgx" {
					must.Get(db.Exec("SELECT pg_stat_force_next_flush()"))(t)
				}
				if e.rows != "" {
					must.OK(t, db.QueryRow(e.rows).Scan(&n))
				}
				return n
			}
			for _, state := range e.states {
				must.Get(db.Exec(state))(t)
				for _, c := range calls {
					must.OK(t, c.call(t.Context()))
					for range 10 { // after five, PostgreSQL may plan a prepared statement once for all
						before := rows()
						recorder.Take()
						must.OK(t, c.call(t.Context()))
						sent := recorder.Take()
						if n := rows() - before; n > c.most {
							t.Errorf("%s reads %d rows, want at most %d; after %s, it sends %v", c.name, n, c.most, state, sent)
						}
						if e.driver == "sqlite" {
							checkSearches(t, db, c, sent)
						}
					}
				}
			}
		})
	}
}

var newYear = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// filled makes the tables and fills them. The IDs of resources come in no order, which is the harder case for
// PostgreSQL.
func filled(t *testing.T, db *sql.DB, bytes string) *sqlstore.Store {
	t.Helper()
	const size, orders = 10_000, 20_000
	db.SetMaxOpenConns(1) // so that it is known which statements it has prepared
	store := sqlstore.New(db, &sqlstore.Options{Timeout: time.Minute, OrderLists: true})
	must.OK(t, store.Migrate(t.Context()))
	users := make([]storefront.Resource, 1000)
	for n := 0; n < size; n += len(users) {
		for i := range users {
			id := 10_000_000 + (n+i)*7919%size*(1_000_000/size)
			users[i] = storefront.MustResource(strconv.Itoa(id), map[string]string{"name": "A name of usual length"})
		}
		must.OK(t, store.Users.Put(t.Context(), users...))
	}
	blob := func(text string) string { return fmt.Sprintf(bytes, text) }
	for _, query := range []string{
		`INSERT INTO storefront_widgets SELECT id, body FROM storefront_users`,
		`INSERT INTO storefront_products SELECT id, body FROM storefront_users WHERE body LIKE '%0","name"%'`,
	} {
		must.Get(db.Exec(query))(t)
	}
	for n := 0; n < orders; n += 1000 { // one every second
		var rows []string
		for i := n; i < n+1000; i++ {
			at := newYear.Add(time.Duration(i) * time.Second)
			scope := fmt.Sprintf("'account %d'", min(i%100, 2)) // most are of one
			rows = append(rows, fmt.Sprintf("('%s', 'teapot', 1, %d, %s, %s, %[3]s, %[2]d, '')", orderid.First(at),
				at.UnixMilli(), blob(scope), blob(fmt.Sprintf("'key %d'", i))))
		}
		must.Get(db.Exec(`INSERT INTO storefront_orders
			(id, item, qty, created_ms, scope, key_hash, key_fingerprint, keyed_ms, fields) VALUES ` + strings.Join(rows, ", ")))(t)
	}
	return store
}

// A call is one whose cost must not grow with the tables.
type call struct {
	name string
	call func(context.Context) error
	most int    // how many rows it may read, and for what the test itself asks
	by   string // of the searches of SQLite
}

func callsOf(store *sqlstore.Store) []call {
	list := func(list func(context.Context, string, int) ([]storefront.Resource, error), position string) func(context.Context) error {
		return func(ctx context.Context) error {
			page, err := list(ctx, position, 51)
			if err == nil && len(page) != 51 {
				err = fmt.Errorf("the page has %d items", len(page))
			}
			return err
		}
	}
	orders := func(scope string, at time.Duration) func(context.Context) error {
		return list(func(ctx context.Context, after string, limit int) ([]storefront.Resource, error) {
			return store.OrderReader().ListOrders(ctx, scope, after, limit)
		}, orderid.First(newYear.Add(at)))
	}
	create := func(ctx context.Context, key storefront.IdempotencyKey) error {
		order := storefront.Order{ID: orderid.New(time.Now()), Item: "teapot", Qty: 1, CreatedAt: time.Now()}
		_, err := store.CreateOrder(ctx, key, order)
		return err
	}
	forgotten := newYear.Add(1000 * time.Second)
	const few, inScope = 2000, "(scope=? AND id<?)"
	return []call{
		{"the first users", list(store.ListUsers, ""), few, "(id>?)"},
		{"users in the middle", list(store.ListUsers, "10500000"), few, "(id>?)"},
		{"the first widgets", list(store.ListWidgets, ""), few, "(id>?)"},
		{"widgets in the middle", list(store.ListWidgets, "10500000"), few, "(id>?)"},
		{"a product", func(ctx context.Context) error {
			_, err := store.GetProduct(ctx, "10500000")
			return err
		}, few, "(id=?)"},
		{"the newest orders of an account with few", orders("account 1", 20_000*time.Second), few, inScope},
		{"the newest orders of an account with most", orders("account 2", 20_000*time.Second), few, inScope},
		{"orders of an account in the middle", orders("account 2", 10_000*time.Second), few, inScope},
		{"the order of a key", func(ctx context.Context) error {
			key := storefront.IdempotencyKey{Scope: "account 2", Value: "read"}
			_, err := store.OrderReader().GetOrderByKey(ctx, key.Scope, key.Value)
			if errors.Is(err, storefront.ErrNotFound) {
				err = create(ctx, key)
			}
			return err
		}, few, "(key_hash=?)"},
		{"the replay of an order", func(ctx context.Context) error {
			return create(ctx, storefront.IdempotencyKey{Value: "again"})
		}, few, "(key_hash=?)"},
		{"forgetting ten keys", func(ctx context.Context) error {
			forgotten = forgotten.Add(10 * time.Second)
			n, err := store.ForgetKeys(ctx, forgotten)
			if err == nil && n == 0 {
				err = errors.New("no key is forgotten")
			}
			return err
		}, 12_000, "(id>?) (key_hash>?) (id=?)"}, // of orders within an hour
	}
}

// checkSearches checks that SQLite runs what a call has sent without a scan or a sort.
func checkSearches(t *testing.T, db *sql.DB, c call, sent []sqltap.Statement) {
	t.Helper()
	var plans strings.Builder
	for _, s := range sent {
		rows := must.Get(db.Query("EXPLAIN QUERY PLAN "+s.Query, s.Args...))(t)
		for rows.Next() {
			var id, parent, unused int
			var plan string
			must.OK(t, rows.Scan(&id, &parent, &unused, &plan))
			fmt.Fprintln(&plans, plan)
		}
		must.OK(t, rows.Err())
	}
	for _, by := range strings.SplitAfter(c.by, ") ") {
		if plan := plans.String(); !strings.Contains(plan, strings.TrimSpace(by)) ||
			strings.Contains(plan, "SCAN storefront") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s is not found %s, or with a scan or a sort: %v\n%s", c.name, by, sent, plan)
		}
	}
}
