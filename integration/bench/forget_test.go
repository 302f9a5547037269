package bench

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// BenchmarkForget measures what PostgreSQL writes to its log, and how long it takes, when keys
// are forgotten and when whole orders are deleted. How much of it is whole pages is up to how
// many rows of a page change from one checkpoint to the next, and not to how many there are:
// of 25 hours of keys, with checkpoints 5 minutes apart, the keys of 5 minutes are a 300th.
func BenchmarkForget(b *testing.B) {
	const orders = 1_000_000
	const interval, hour = orders / 300, orders / 25
	server := dbserver.StartPostgres(b, "checkpoint_timeout=1h", "max_wal_size=16GB", "autovacuum=off")
	d := testdb.New(b, "pgx", server.DSN())
	d.Exec(b, "CREATE EXTENSION pg_walinspect", fmt.Sprintf(`
		INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, fingerprint, keyed_ms)
		SELECT 'ord_' || upper(substr(encode(sha256(int8send(n)), 'hex'), 1, 26)), 'teapot', 2, n, 'account-00000001',
			sha256(int8send(n + %[1]d)), sha256(int8send(n + 2 * %[1]d)), n
		FROM generate_series(1, %[1]d) AS n`, orders))
	store := sqlstore.New(servingPool(b, d), &sqlstore.Options{Timeout: time.Minute})

	// cost reports what each of n rows takes.
	cost := func(what string, n int, do func()) {
		b.Helper()
		from, start := lsn(b, d.Pool), time.Now()
		do()
		took, to := time.Since(start), lsn(b, d.Pool)
		var records, pages float64
		var count int
		if err := d.Pool.QueryRow(`SELECT sum(record_length - fpi_length), sum(fpi_length), count(*) FILTER (WHERE fpi_length > 0)
			FROM pg_get_wal_records_info($1, $2)`, from, to).Scan(&records, &pages, &count); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(n), "rows/"+what)
		b.ReportMetric(records/float64(n), "records-B/"+what)
		b.ReportMetric(pages/float64(n), "pages-B/"+what)
		b.ReportMetric(float64(count)/float64(n), "pages/"+what)
		b.ReportMetric(float64(n)/took.Seconds(), "per-s/"+what)
	}
	forgotten := 0
	forget := func(n int) func() {
		return func() {
			b.Helper()
			forgotten += n
			if got, err := store.ForgetKeys(b.Context(), time.UnixMilli(int64(forgotten)+1)); err != nil || got != int64(n) {
				b.Fatalf("ForgetKeys returned %d, %v, want %d", got, err, n)
			}
		}
	}
	statement := func(statement string) func() {
		return func() { d.Exec(b, statement) }
	}
	for b.Loop() {
		d.Exec(b, "VACUUM ANALYZE storefront_orders", "CHECKPOINT")
		cost("forget-after-checkpoint", interval, forget(interval))
		cost("forget-hour", hour-interval, forget(hour-interval)) // the rest of an hour, without a checkpoint
		cost("forget", interval, forget(interval))                // each page has been logged by then
		cost("vacuum", hour+interval, statement("VACUUM storefront_orders"))
		cost("delete-after-checkpoint", hour, func() {
			d.Exec(b, "CHECKPOINT", fmt.Sprintf("DELETE FROM storefront_orders WHERE created_ms > %d", orders-hour))
		})
		cost("vacuum-deleted", hour, statement("VACUUM storefront_orders"))
	}
	b.ReportMetric(0, "ns/op")
	if n := number(b, d.Pool, "SELECT count(*) FROM storefront_orders WHERE key_hash IS NULL"); n != int64(forgotten) {
		b.Errorf("%d keys are forgotten, want %d", n, forgotten)
	}
	b.ReportMetric(float64(number(b, d.Pool, "SELECT pg_table_size('storefront_orders_pkey')"))/orders, "id-B/order")
}

// lsn has PostgreSQL write its log to the disk, and returns how far that is.
func lsn(b *testing.B, db *sql.DB) (at string) {
	b.Helper()
	if _, err := db.Exec("SELECT pg_logical_emit_message(true, 'storefront', '')"); err != nil {
		b.Fatal(err)
	}
	if err := db.QueryRow("SELECT CAST(pg_current_wal_flush_lsn() AS TEXT)").Scan(&at); err != nil {
		b.Fatal(err)
	}
	return at
}
