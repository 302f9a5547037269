package tables

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"modernc.org/sqlite"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/sqltap"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// TestStatementsReadByIndex looks at how the databases run the statements that a
// store of a million users and widgets sends, or fewer in the short run: by an
// index range scan, without a sort, and reading few blocks, at any depth of a list.
func TestStatementsReadByIndex(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		recorder := new(sqltap.Recorder)
		// More memory makes it faster, and has no part in the plans.
		db := sqltap.Open(t, "sqlite", testdb.SQLiteFile(t)+"&_pragma=cache_size(-200000)", recorder.Tap)
		store := filled(t, db, "CAST(%s AS BLOB)")
		for _, analyze := range []string{"", "ANALYZE"} {
			checkPlans(t, db, store, recorder, analyze, sqlitePlan)
		}
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		recorder := new(sqltap.Recorder)
		// It is analyzed only when told to. Without fsync it is faster.
		db := sqltap.Open(t, "pgx", dbserver.StartPostgres(t, "autovacuum=off", "fsync=off").DSN(), recorder.Tap)
		store := filled(t, db, "convert_to(%s, 'UTF8')")
		for _, analyze := range []string{"", "ANALYZE"} {
			checkPlans(t, db, store, recorder, analyze, postgresPlan)
		}
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		recorder := new(sqltap.Recorder)
		server := dbserver.MariaDB.Start(t, "innodb-stats-auto-recalc=OFF", "innodb-flush-log-at-trx-commit=0", "innodb-doublewrite=OFF",
			"innodb-buffer-pool-size=512M", "innodb-log-file-size=256M", "max-recursive-iterations=1000000", "sql-mode=PIPES_AS_CONCAT")
		db := sqltap.Open(t, "mysql", server.DSN(), recorder.Tap)
		store := filled(t, db, "CAST(%s AS BINARY)")
		for _, analyze := range []string{"", analyzeMySQL} {
			checkPlans(t, db, store, recorder, analyze, mariaDBPlan)
		}
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		recorder := new(sqltap.Recorder)
		server := dbserver.MySQL.Start(t, "innodb-stats-auto-recalc=OFF", "innodb-flush-log-at-trx-commit=0", "innodb-doublewrite=OFF", "skip-log-bin",
			"innodb-buffer-pool-size=512M", "innodb-redo-log-capacity=512M", "cte-max-recursion-depth=1000000", "sql-mode=PIPES_AS_CONCAT",
			"explain-json-format-version=1") // which is like MariaDB's
		db := sqltap.Open(t, "mysql", server.DSN(), recorder.Tap)
		store := filled(t, db, "CAST(%s AS BINARY)")
		for _, analyze := range []string{"", analyzeMySQL} {
			checkPlans(t, db, store, recorder, analyze, mySQLPlan)
		}
	})
}

const analyzeMySQL = "ANALYZE TABLE storefront_users, storefront_products, storefront_widgets, storefront_orders"

// filled makes the tables and fills them. The IDs come in no order, which is the
// harder case for PostgreSQL.
func filled(t *testing.T, db *sql.DB, bytes string) *sqlstore.Store {
	t.Helper()
	size := long.Of(50_000, 1_000_000)
	db.SetMaxOpenConns(1) // so that it is known which statements it has prepared
	store := sqlstore.New(db, &sqlstore.Options{Timeout: time.Minute})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	users := make([]storefront.Resource, 1000)
	for n := 0; n < size; n += len(users) {
		for i := range users {
			id := 10_000_000 + (n+i)*7919%size*(1_000_000/size)
			users[i] = storefront.MustResource(strconv.Itoa(id), map[string]string{"name": "A name of usual length"})
		}
		if err := store.Users.Put(t.Context(), users...); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d users were put in %v", size, time.Since(start))
	blob := func(text string) string { return fmt.Sprintf(bytes, text) }
	for _, query := range []string{
		`INSERT INTO storefront_widgets SELECT id, body FROM storefront_users`,
		`INSERT INTO storefront_products SELECT id, body FROM storefront_users WHERE body LIKE '%0","name"%'`,
		// One every second, from the first of 2026 on.
		`INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, fingerprint, keyed_ms)
			WITH RECURSIVE numbers(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i < 99999)
			SELECT 'ord_' || (i * 7919 % 100000), 'teapot', 1, 1767225600000 + i * 1000, ` + blob("''") + `, ` + blob("'key ' || i") + `, ` + blob("'fingerprint'") + `, 1767225600000 + i * 1000 FROM numbers`,
	} {
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// A plan is how a database runs a statement.
type plan struct {
	how    string // it was planned
	text   string
	blocks int // that were read
}

// checkPlans checks the plans of what the store sends, after a statement that has the
// database analyze its tables.
func checkPlans(t *testing.T, db *sql.DB, store *sqlstore.Store, recorder *sqltap.Recorder, analyze string, plansOf func(*testing.T, *sql.DB, sqltap.Statement) []plan) {
	when := "never analyzed"
	if analyze != "" {
		when = "analyzed"
		if _, err := db.Exec(analyze); err != nil {
			t.Fatal(err)
		}
	}
	list := func(list func(context.Context, string, int) ([]storefront.Resource, error), position string, full bool) func(context.Context) error {
		return func(ctx context.Context) error {
			page, err := list(ctx, position, 51)
			if err == nil && (len(page) == 0 || full != (len(page) == 51)) {
				err = fmt.Errorf("the page has %d items", len(page))
			}
			return err
		}
	}
	const few, page = 20, 51*2 + 20 // blocks; SQLite reads two for a row
	for _, test := range []struct {
		name   string
		call   func(context.Context) error // the last statement that it sends to the table is looked at
		table  string
		index  string // as PostgreSQL names it
		column string // by which the index is searched
		by     string // an operator, as a regular expression
		most   int    // blocks; 0: not looked at
	}{
		{"the first users", list(store.ListUsers, "", true), "storefront_users", "storefront_users_pkey", "id", ">", page},
		{"users in the middle", list(store.ListUsers, "10500000", true), "storefront_users", "storefront_users_pkey", "id", ">", page},
		{"the last users", list(store.ListUsers, "10999979", false), "storefront_users", "storefront_users_pkey", "id", ">", page},
		{"the first widgets", list(store.ListWidgets, "", true), "storefront_widgets", "storefront_widgets_pkey", "id", ">=?", page},
		{"widgets in the middle", list(store.ListWidgets, "10500000", true), "storefront_widgets", "storefront_widgets_pkey", "id", ">=?", page},
		{"the last widgets", list(store.ListWidgets, "10999979", false), "storefront_widgets", "storefront_widgets_pkey", "id", ">=?", page},
		{"a product", func(ctx context.Context) error {
			_, err := store.GetProduct(ctx, "10500000")
			return err
		}, "storefront_products", "storefront_products_pkey", "id", "=", few},
		{"the replay of an order", func(ctx context.Context) error {
			order := storefront.Order{ID: "ord_" + rand.Text(), Item: "teapot", Qty: 1, CreatedAt: time.Now()}
			_, err := store.CreateOrder(ctx, storefront.IdempotencyKey{Value: "again"}, order)
			return err
		}, "storefront_orders", "storefront_orders_key_hash_key", "key_hash", "=", few},
		{"forgetting keys", func(ctx context.Context) error { // none is that old
			_, err := store.ForgetKeys(ctx, time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC))
			return err
		}, "storefront_orders", "storefront_orders_keyed", "keyed_ms", "<", 0},
	} {
		t.Run(when+"/"+test.name, func(t *testing.T) {
			recorder.Take()
			for range 10 { // after five, PostgreSQL may plan a prepared statement once for all
				if err := test.call(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var last sqltap.Statement
			for _, s := range recorder.Take() {
				if strings.Contains(s.Query, test.table) {
					last = s
				}
			}
			for _, plan := range plansOf(t, db, last) {
				byIndex := regexp.MustCompile(fmt.Sprintf(
					`Index Scan using %[2]s on %[1]s\b.*\n *Index Cond: \(%[3]s %[4]s |SEARCH %[1]s USING INDEX \S+ \(%[3]s%[4]s\?\)|%[5]s`,
					test.table, test.index, test.column, test.by, mariaDBByIndex(test.table, test.index)))
				if !byIndex.MatchString(plan.text) || regexp.MustCompile("Sort|SCAN|TEMP B-TREE|filesort|temporary_table").MatchString(plan.text) {
					t.Errorf("%s %v\nis not run by index, or with a sort, when planned %s:\n%s", last.Query, last.Args, plan.how, plan.text)
				}
				if test.most > 0 && (plan.blocks < 1 || plan.blocks > test.most) {
					t.Errorf("%s %v\nread %d blocks, want 1 to %d, when planned %s:\n%s", last.Query, last.Args, plan.blocks, test.most, plan.how, plan.text)
				}
			}
		})
	}
}

// sqlitePlan returns SQLite's plan of a statement, which is made when the
// statement is prepared, each time it is run.
func sqlitePlan(t *testing.T, db *sql.DB, s sqltap.Statement) []plan {
	t.Helper()
	before := sqliteBlocks(t, db)
	lines(t, db, s.Query, s.Args...)
	blocks := sqliteBlocks(t, db) - before
	return []plan{{"as always", lines(t, db, "EXPLAIN QUERY PLAN "+s.Query, s.Args...), blocks}}
}

// sqliteBlocks returns how many blocks SQLite has read on the only connection.
func sqliteBlocks(t *testing.T, db *sql.DB) (sum int) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Raw(func(c any) error {
		for _, counter := range []sqlite.DBStatusOp{sqlite.DBStatusCacheHit, sqlite.DBStatusCacheMiss} {
			n, _, err := sqltap.Unwrap(c).(sqlite.DBStatus).Status(counter, false)
			if err != nil {
				return err
			}
			sum += n
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return sum
}

// postgresPlan returns PostgreSQL's plans of a statement: with its arguments, as
// the driver has prepared it before on this connection, and for any arguments.
func postgresPlan(t *testing.T, db *sql.DB, s sqltap.Statement) []plan {
	t.Helper()
	const explain = "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) "
	var prepared string
	if err := db.QueryRow("SELECT name FROM pg_prepared_statements WHERE statement = $1", s.Query).Scan(&prepared); err != nil {
		t.Fatalf("is %q prepared? %v", s.Query, err)
	}
	literals := make([]string, len(s.Args))
	for i, arg := range s.Args {
		switch arg := arg.(type) {
		case []byte:
			literals[i] = fmt.Sprintf(`'\x%x'`, arg)
		default:
			literals[i] = fmt.Sprint(arg)
		}
	}
	execute := fmt.Sprintf(`%s EXECUTE "%s" (%s)`, explain, prepared, strings.Join(literals, ", "))
	plans := []plan{
		{how: "with its arguments", text: lines(t, db, explain+s.Query, s.Args...)},
		{how: "prepared before", text: lines(t, db, execute)},
	}
	lines(t, db, "SET plan_cache_mode = force_generic_plan")
	plans = append(plans, plan{how: "for any arguments", text: lines(t, db, execute)})
	lines(t, db, "RESET plan_cache_mode")
	for i := range plans {
		found := regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`).FindStringSubmatch(plans[i].text)
		if found == nil {
			t.Fatalf("no buffers in the plan:\n%s", plans[i].text)
		}
		for _, n := range found[1:] {
			read, _ := strconv.Atoi(cmp.Or(n, "0"))
			plans[i].blocks += read
		}
	}
	return plans
}

// mariaDBByIndex returns a regular expression for a table that is searched by an
// index, which is given as PostgreSQL names it.
func mariaDBByIndex(table, index string) string {
	switch {
	case strings.HasSuffix(index, "_pkey"):
		index = "PRIMARY"
	case strings.HasSuffix(index, "_key_hash_key"):
		index = "key_hash"
	}
	return fmt.Sprintf(`"table_name": "%s",\s+"access_type": "(const|range)",\s+"possible_keys": \[[^]]*\],\s+"key": "%s"`, table, index)
}

// mariaDBPlan returns MariaDB's plans of a statement: with its arguments in the text,
// and prepared.
func mariaDBPlan(t *testing.T, db *sql.DB, s sqltap.Statement) []plan {
	t.Helper()
	analyze := "ANALYZE FORMAT=JSON " + s.Query
	prepared, err := db.Prepare(analyze)
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Close()
	plans := []plan{{how: "with its arguments"}, {how: "prepared"}}
	if err := db.QueryRow(analyze, s.Args...).Scan(&plans[0].text); err != nil {
		t.Fatalf("%s: %v", analyze, err)
	}
	if err := prepared.QueryRow(s.Args...).Scan(&plans[1].text); err != nil {
		t.Fatalf("%s, prepared: %v", analyze, err)
	}
	for i := range plans {
		if pages := regexp.MustCompile(`"pages_accessed": (\d+)`).FindStringSubmatch(plans[i].text); pages != nil {
			plans[i].blocks, _ = strconv.Atoi(pages[1])
		}
	}
	return plans
}

// mySQLPlan returns MySQL's plan of a statement. As it tells no blocks, those are the
// rows that were read.
func mySQLPlan(t *testing.T, db *sql.DB, s sqltap.Statement) []plan {
	t.Helper()
	p := plan{how: "with its arguments"}
	if err := db.QueryRow("EXPLAIN FORMAT=JSON "+s.Query, s.Args...).Scan(&p.text); err != nil {
		t.Fatalf("%s: %v", s.Query, err)
	}
	// An UPDATE of what it is searched by first notes which rows it is of.
	p.text = strings.NewReplacer(`"using_filesort": false`, "", `"using_temporary_table": "for update"`, "").Replace(p.text)
	if strings.HasPrefix(s.Query, "SELECT") {
		before := mySQLRowsRead(t, db)
		lines(t, db, s.Query, s.Args...)
		p.blocks = mySQLRowsRead(t, db) - before
	}
	return []plan{p}
}

// mySQLRowsRead returns how many times the only connection has asked for a row.
func mySQLRowsRead(t *testing.T, db *sql.DB) (sum int) {
	t.Helper()
	for line := range strings.Lines(lines(t, db, "SHOW SESSION STATUS LIKE 'Handler_read%'")) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// lines returns the last column of what a query returns, a line each.
func lines(t *testing.T, db *sql.DB, query string, args ...any) string {
	t.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for rows.Next() {
		row := make([]any, len(columns))
		for i := range row {
			row[i] = new(any)
		}
		if err := rows.Scan(row...); err != nil {
			t.Fatal(err)
		}
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
