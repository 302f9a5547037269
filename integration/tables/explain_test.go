package tables

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
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

// TestStatementsReadByIndex looks at how the databases run the statements that a
// store of ten thousand users and widgets sends: by an index range scan and without a sort, at any depth of a list.
func TestStatementsReadByIndex(t *testing.T) {
	const analyzeMySQL = "ANALYZE TABLE storefront_users, storefront_products, storefront_widgets, storefront_orders"
	for _, e := range []struct {
		name, driver   string
		url            func(testing.TB) string
		bytes, analyze string
		plans          func(*testing.T, *sql.DB, sqltap.Statement) map[string]string
	}{
		{"SQLite", "sqlite", testdb.SQLiteFile, "CAST(%s AS BLOB)", "ANALYZE", sqlitePlan},
		// The servers may be analyzed some time before they are told to.
		{"PostgreSQL", "pgx", dbserver.Postgres.Database, "convert_to(%s, 'UTF8')", "ANALYZE", postgresPlans},
		{"MariaDB", "mysql", dbserver.MariaDB.Database, "CAST(%s AS BINARY)", analyzeMySQL, mySQLPlan},
		{"MySQL", "mysql", func(t testing.TB) string {
			return dbserver.MySQL.Database(t) + "&explain_json_format_version=1" // which is like MariaDB's
		}, "CAST(%s AS BINARY)", analyzeMySQL, mySQLPlan},
	} {
		t.Run(e.name, func(t *testing.T) {
			recorder := new(sqltap.Recorder)
			db := sqltap.Open(t, e.driver, e.url(t), recorder.Tap)
			store := filled(t, db, e.bytes)
			for _, analyze := range []string{"", e.analyze} {
				checkPlans(t, db, store, recorder, analyze, e.plans)
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

// checkPlans checks the plans of what the store sends, by how the database makes them, after a
// statement that has the database analyze its tables.
func checkPlans(t *testing.T, db *sql.DB, store *sqlstore.Store, recorder *sqltap.Recorder, analyze string,
	plansOf func(*testing.T, *sql.DB, sqltap.Statement) map[string]string) {
	when, seconds := "never analyzed", 0
	if analyze != "" {
		when, seconds = "analyzed", 1000
		must.Get(db.Exec(analyze))(t)
	}
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
	const ofScope, lessThan = `(?:ROW\(scope, id\)|scope)`, `(?:=.* AND \(?id ?<|<)`
	forget := func(ctx context.Context) error {
		seconds += 10
		_, err := store.ForgetKeys(ctx, newYear.Add(time.Duration(seconds)*time.Second))
		return err
	}
	for _, test := range []struct {
		name   string
		call   func(context.Context) error // the last statement that it sends to the table is looked at
		begins string                      // that statement
		table  string
		index  string // as PostgreSQL names it
		column string // by which the index is searched
		by     string // an operator, as a regular expression
	}{
		{"the first users", list(store.ListUsers, ""), "", "storefront_users", "storefront_users_pkey", "id", ">"},
		{"users in the middle", list(store.ListUsers, "10500000"), "", "storefront_users", "storefront_users_pkey", "id", ">"},
		{"the first widgets", list(store.ListWidgets, ""), "", "storefront_widgets", "storefront_widgets_pkey", "id", ">=?"},
		{"widgets in the middle", list(store.ListWidgets, "10500000"), "", "storefront_widgets", "storefront_widgets_pkey", "id", ">=?"},
		{"a product", func(ctx context.Context) error {
			_, err := store.GetProduct(ctx, "10500000")
			return err
		}, "", "storefront_products", "storefront_products_pkey", "id", "="},
		{"the newest orders of an account with few", orders("account 1", 20_000*time.Second), "",
			"storefront_orders", "storefront_orders_scope", ofScope, lessThan},
		{"the newest orders of an account with most", orders("account 2", 20_000*time.Second), "",
			"storefront_orders", "storefront_orders_scope", ofScope, lessThan},
		{"orders of an account in the middle", orders("account 2", 10_000*time.Second), "",
			"storefront_orders", "storefront_orders_scope", ofScope, lessThan},
		{"the order of a key", func(ctx context.Context) error {
			key := storefront.IdempotencyKey{Scope: "account 2", Value: "read"}
			_, err := store.CreateOrder(ctx, key, storefront.Order{ID: orderid.New(time.Now()), Item: "teapot", Qty: 1})
			_, err2 := store.OrderReader().GetOrderByKey(ctx, key.Scope, key.Value)
			return errors.Join(err, err2)
		}, "", "storefront_orders", "storefront_orders_key_hash", "key_hash", "="},
		{"the replay of an order", func(ctx context.Context) error {
			order := storefront.Order{ID: orderid.New(time.Now()), Item: "teapot", Qty: 1, CreatedAt: time.Now()}
			_, err := store.CreateOrder(ctx, storefront.IdempotencyKey{Value: "again"}, order)
			return err
		}, "", "storefront_orders", "storefront_orders_key_hash", "key_hash", "="},
		{"a search for keys by ID", forget, "SELECT id, CASE", "storefront_orders", "storefront_orders_pkey", "id", ">"},
		{"a search of a part of all keys", forget, "SELECT key_hash, CASE", "storefront_orders", "storefront_orders_key_hash", "key_hash", ">"},
		{"forgetting ten keys", forget, "UPDATE", "storefront_orders", "storefront_orders_pkey", "id", "="},
	} {
		t.Run(when+"/"+test.name, func(t *testing.T) {
			recorder.Take()
			for range 10 { // after five, PostgreSQL may plan a prepared statement once for all
				must.OK(t, test.call(t.Context()))
			}
			var last sqltap.Statement
			for _, s := range recorder.Take() {
				if strings.Contains(s.Query, test.table) && strings.HasPrefix(s.Query, test.begins) {
					last = s
				}
			}
			for how, plan := range plansOf(t, db, last) {
				byIndex := regexp.MustCompile(fmt.Sprintf(
					`(?:Index Scan (?:Backward )?using %[2]s on %[1]s\b.*|Bitmap Index Scan on %[2]s)\n *Index Cond: \(+%[3]s %[4]s |SEARCH main\.%[1]s USING INDEX \S+ \(%[3]s%[4]s\?(?:\)| AND )|%[5]s`,
					test.table, test.index, test.column, test.by, mySQLByIndex(test.table, test.index)))
				// PostgreSQL may sort the few old keys that it expects.
				if !byIndex.MatchString(plan) || regexp.MustCompile("Sort Key: id|SCAN|TEMP B-TREE|filesort|temporary_table").MatchString(plan) {
					t.Errorf("%s %v\nis not run by index, or with a sort, when planned %s:\n%s", last.Query, last.Args, how, plan)
				}
			}
		})
	}
}

// sqlitePlan returns SQLite's plan of a statement, which is made when the
// statement is prepared, each time it is run.
func sqlitePlan(t *testing.T, db *sql.DB, s sqltap.Statement) map[string]string {
	t.Helper()
	return map[string]string{"as always": lines(t, db, "EXPLAIN QUERY PLAN "+s.Query, s.Args...)}
}

// postgresPlans returns PostgreSQL's plans of a statement: with its arguments, as
// the driver has prepared it before on this connection, and for any arguments.
func postgresPlans(t *testing.T, db *sql.DB, s sqltap.Statement) map[string]string {
	t.Helper()
	const explain = "EXPLAIN (COSTS OFF) "
	var prepared string
	if err := db.QueryRow("SELECT name FROM pg_prepared_statements WHERE statement = $1", s.Query).Scan(&prepared); err != nil {
		t.Fatalf("is %q prepared? %v", s.Query, err)
	}
	literals := make([]string, len(s.Args))
	for i, arg := range s.Args {
		literals[i] = fmt.Sprint(arg)
		switch arg := arg.(type) {
		case []byte:
			literals[i] = fmt.Sprintf(`'\x%x'`, arg)
		case string:
			literals[i] = "'" + arg + "'"
		}
	}
	execute := fmt.Sprintf(`%s EXECUTE "%s" (%s)`, explain, prepared, strings.Join(literals, ", "))
	plans := map[string]string{"with its arguments": lines(t, db, explain+s.Query, s.Args...), "prepared before": lines(t, db, execute)}
	lines(t, db, "SET plan_cache_mode = force_generic_plan")
	plans["for any arguments"] = lines(t, db, execute)
	lines(t, db, "RESET plan_cache_mode")
	return plans
}

// mySQLByIndex returns a regular expression for a table that is searched by an
// index, which is given as PostgreSQL names it.
func mySQLByIndex(table, index string) string {
	switch {
	case strings.HasSuffix(index, "_pkey"):
		index = "PRIMARY"
	case strings.HasSuffix(index, "_key_hash"):
		index = "key_hash"
	}
	return fmt.Sprintf(`"table_name": "%s",\s+"access_type": "(const|range)",\s+"possible_keys": \[[^]]*\],\s+"key": "%s"`, table, index)
}

// mySQLPlan returns MySQL's or MariaDB's plan of a statement.
func mySQLPlan(t *testing.T, db *sql.DB, s sqltap.Statement) map[string]string {
	t.Helper()
	plan := lines(t, db, "EXPLAIN FORMAT=JSON "+s.Query, s.Args...)
	// An UPDATE of what it is searched by first notes which rows it is of.
	plan = strings.NewReplacer(`"using_filesort": false`, "", `"using_temporary_table": "for update"`, "").Replace(plan)
	return map[string]string{"with its arguments": plan}
}

// lines returns the last column of what a query returns, a line each.
func lines(t *testing.T, db *sql.DB, query string, args ...any) string {
	t.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns := must.Get(rows.Columns())(t)
	var text strings.Builder
	for rows.Next() {
		row := make([]any, len(columns))
		for i := range row {
			row[i] = new(any)
		}
		must.OK(t, rows.Scan(row...))
		switch value := (*row[len(row)-1].(*any)).(type) {
		case []byte:
			fmt.Fprintf(&text, "%s\n", value)
		default:
			fmt.Fprintln(&text, value)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return text.String()
}
