package bench

import (
	"fmt"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// BenchmarkForgetKeys forgets 1,000,000 keys of the same time, on SQLite 100,000, alone and while a
// transaction has a snapshot of the database, in which all keys are remembered. "ratio" is the second time
// to the first.
func BenchmarkForgetKeys(b *testing.B) {
	for _, engine := range []struct {
		name, driver string
		keys         int64
		url          func() string
		hash         string // of i
		begin        string // a transaction that keeps its snapshot
		setting      string // lets a recursive query have as many rows
	}{
		{"SQLite", "sqlite", 100_000, func() string { return testdb.SQLiteFile(b) }, "randomblob(32)", "BEGIN", "SELECT 1"},
		{"PostgreSQL", "pgx", 1_000_000, func() string { return dbserver.Postgres.DurableDatabase(b) },
			"sha256(CAST(CAST(i AS TEXT) AS BYTEA))", "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"},
		{"MariaDB", "mysql", 1_000_000, func() string { return dbserver.MariaDB.DurableDatabase(b) }, "UNHEX(SHA2(i, 256))",
			"START TRANSACTION WITH CONSISTENT SNAPSHOT", "SET max_recursive_iterations = 10000000"},
		{"MySQL", "mysql", 1_000_000, func() string { return dbserver.MySQL.DurableDatabase(b) }, "UNHEX(SHA2(i, 256))",
			"START TRANSACTION WITH CONSISTENT SNAPSHOT", "SET cte_max_recursion_depth = 10000000"},
	} {
		b.Run(engine.name, func(b *testing.B) {
			forget := func(before ...string) time.Duration {
				d := testdb.New(b, engine.driver, engine.url())
				conn := must.Get(d.Pool.Conn(b.Context()))(b)
				defer conn.Close()
				insert := fmt.Sprintf(`INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash,
					fingerprint, keyed_ms) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
					SELECT CONCAT('ord_', i), 'teapot', 1, 1, '', %[2]s, %[2]s, 1 FROM n`, engine.keys, engine.hash)
				for _, statement := range append([]string{engine.setting, insert}, before...) {
					must.Get(conn.ExecContext(b.Context(), statement))(b)
				}
				began := time.Now()
				n := must.Get(sqlstore.New(d.Pool, nil).ForgetKeys(b.Context(), began.Add(-48*time.Hour)))(b)
				if n != engine.keys {
					b.Fatalf("%d keys were forgotten", n)
				}
				return time.Since(began)
			}
			for b.Loop() {
				alone := forget()
				beside := forget(engine.begin, "SELECT count(*) FROM storefront_orders")
				b.ReportMetric(alone.Seconds(), "s-alone")
				b.ReportMetric(beside.Seconds(), "s-beside")
				b.ReportMetric(float64(beside)/float64(alone), "ratio")
			}
		})
	}
}
