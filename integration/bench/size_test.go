package bench

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/must"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// BenchmarkSize measures what an order and its key take: room for the row and in
// each index, bytes of the engine's log, and CPU time of the server and of this
// process, which calls the store directly. docs/scale.md has the figures. It needs Linux.
//
// "alone" is an order that has a commit of its own; all else is for 64 callers,
// whose orders share commits. "after-checkpoint" is right after one, when
// PostgreSQL logs whole pages.
func BenchmarkSize(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("this takes Linux")
	}
	b.Run("SQLite", func(b *testing.B) {
		file := filepath.Join(b.TempDir(), "shop.db")
		// Without checkpoints, the log is as long as all that was written to it.
		d := testdb.New(b, "sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(100)&_pragma=wal_autocheckpoint(0)")
		measureSize(b, &sized{
			database:   d,
			log:        func() int64 { return fileSize(b, file+"-wal") },
			checkpoint: func() { d.Exec(b, "PRAGMA wal_checkpoint(TRUNCATE)") },
			parts: `SELECT CASE name WHEN 'storefront_orders' THEN 'row' WHEN 'storefront_orders_keyed' THEN 'keyed_ms'
				WHEN 'sqlite_autoindex_storefront_orders_1' THEN 'id' ELSE 'key_hash' END, pgsize
				FROM dbstat WHERE aggregate = TRUE AND name LIKE '%storefront_orders%'`,
			record: `CREATE TRIGGER recorded AFTER INSERT ON storefront_orders BEGIN
				UPDATE storefront_orders SET keyed_ms = %d WHERE id = NEW.id; END`,
		})
	})
	b.Run("PostgreSQL", func(b *testing.B) {
		server := dbserver.StartPostgres(b, "checkpoint_timeout=1h", "max_wal_size=16GB", "autovacuum=off")
		d := testdb.New(b, "pgx", server.DSN())
		measureSize(b, &sized{
			database:   d,
			log:        func() int64 { return number(b, d.Pool, "SELECT pg_current_wal_lsn() - '0/0'") },
			checkpoint: func() { d.Exec(b, "CHECKPOINT") },
			server:     server.Process.Process.Pid,
			parts: `SELECT CASE relname WHEN 'storefront_orders' THEN 'row' WHEN 'storefront_orders_keyed' THEN 'keyed_ms'
				WHEN 'storefront_orders_pkey' THEN 'id' ELSE 'key_hash' END, pg_table_size(oid)
				FROM pg_class WHERE relname LIKE 'storefront_orders%'`,
			record: "ALTER TABLE storefront_orders ALTER COLUMN keyed_ms SET DEFAULT %d",
		})
	})
	b.Run("MariaDB", func(b *testing.B) {
		server := dbserver.MariaDB.Start(b, "innodb-log-file-size=1G", "innodb-buffer-pool-size=512M")
		d := testdb.New(b, "mysql", server.DSN())
		measureSize(b, &sized{
			database: d,
			log: func() int64 {
				return number(b, d.Pool, "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_OS_LOG_WRITTEN'")
			},
			checkpoint: func() {},
			server:     server.Process.Process.Pid,
			analyze:    "ANALYZE TABLE storefront_orders",
			parts: `SELECT CASE index_name WHEN 'PRIMARY' THEN 'row' WHEN 'storefront_orders_keyed' THEN 'keyed_ms' ELSE index_name END,
				stat_value * @@innodb_page_size
				FROM mysql.innodb_index_stats WHERE table_name = 'storefront_orders' AND stat_name = 'size'`,
			record: "ALTER TABLE storefront_orders ALTER COLUMN keyed_ms SET DEFAULT %d",
		})
	})
}

// A sized is a database and how its parts are measured.
type sized struct {
	database   *testdb.DB
	log        func() int64 // bytes that were written to the log so far
	checkpoint func()
	server     int    // the process, unless the database is in this one
	analyze    string // a statement that has it count
	parts      string // a query for the bytes of each part of the table of orders
	record     string // a statement that has keys be recorded at another time from then on; %d is in milliseconds
}

func measureSize(b *testing.B, s *sized) {
	const callers, before, measured, few = 64, 100_000, 50_000, 2_000
	store := sqlstore.New(servingPool(b, s.database), &sqlstore.Options{Timeout: time.Minute})
	newKey := func() storefront.IdempotencyKey {
		key := storefront.IdempotencyKey{Scope: "account-00000001", Value: rand.Text()}
		rand.Read(key.Fingerprint[:])
		return key
	}
	create := func(key storefront.IdempotencyKey) (replayed bool, err error) {
		order := storefront.Order{ID: "ord_" + rand.Text(), Item: "teapot", Qty: 2, CreatedAt: time.Now().UTC()}
		got, err := store.CreateOrder(b.Context(), key, order)
		return got.ID != order.ID, err
	}
	each := func(n, callers int, call func() error) {
		b.Helper()
		var wg sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(n))
		for range callers {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if err := call(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if b.Failed() {
			b.FailNow()
		}
	}
	// cost reports what each of n orders takes.
	cost := func(what string, n int, do func()) {
		b.Helper()
		log, own, server := s.log(), ownCPU(b), serverCPU(b, s.server)
		do()
		b.ReportMetric(float64(s.log()-log)/float64(n), "log-B/"+what)
		b.ReportMetric(float64((ownCPU(b)-own).Nanoseconds())/float64(n)/1000, "own-CPU-µs/"+what)
		if s.server != 0 {
			b.ReportMetric(float64((serverCPU(b, s.server)-server).Nanoseconds())/float64(n)/1000, "server-CPU-µs/"+what)
		}
	}
	createNew := func() error {
		_, err := create(newKey())
		return err
	}
	var created []storefront.IdempotencyKey
	for range few {
		created = append(created, newKey())
		must.Get(create(created[len(created)-1]))(b)
	}
	var next atomic.Int64
	replay := func() error {
		replayed, err := create(created[next.Add(1)%few])
		if err == nil && !replayed {
			err = errors.New("a replay has created an order")
		}
		return err
	}
	for b.Loop() {
		each(before, callers, createNew)
		s.checkpoint()
		b.ReportMetric(float64(number(b, s.database.Pool, "SELECT count(*) FROM storefront_orders")), "orders-at-checkpoint")
		b.ReportMetric(few, "orders-after-checkpoint")
		cost("create-after-checkpoint", few, func() { each(few, callers, createNew) })
		each(measured, callers, createNew)
		cost("create", measured, func() { each(measured, callers, createNew) })
		cost("create-alone", few, func() { each(few, 1, createNew) })
		cost("replay", measured, func() { each(measured, callers, replay) })
	}
	b.ReportMetric(0, "ns/op")

	s.checkpoint()
	if s.analyze != "" {
		s.database.Exec(b, s.analyze)
	}
	orders := number(b, s.database.Pool, "SELECT count(*) FROM storefront_orders")
	rows := must.Get(s.database.Pool.Query(s.parts))(b)
	defer rows.Close()
	for rows.Next() {
		var part string
		var bytes int64
		must.OK(b, rows.Scan(&part, &bytes))
		b.ReportMetric(float64(bytes)/float64(orders), part+"-B/order")
	}
	must.OK(b, rows.Err())

	const horizon = storefront.KeyLifetime + time.Hour
	s.database.Exec(b, fmt.Sprintf(s.record, time.Now().Add(-horizon-time.Minute).UnixMilli()))
	each(measured, callers, createNew)
	cost("forget", measured, func() {
		if n, err := store.ForgetKeys(b.Context(), time.Now().Add(-horizon)); err != nil || n != measured {
			b.Fatalf("ForgetKeys returned %d, %v", n, err)
		}
	})
}

func fileSize(b *testing.B, name string) int64 {
	b.Helper()
	info := must.Get(os.Stat(name))(b)
	return info.Size()
}

func number(b *testing.B, db *sql.DB, query string) (n int64) {
	b.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	return n
}

// ownCPU returns the CPU time that this process has used.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// serverCPU returns the CPU time that a process and its children have used, as far
// as they are there.
func serverCPU(b *testing.B, pid int) (sum time.Duration) {
	b.Helper()
	if pid == 0 {
		return 0
	}
	children := must.Get(process.Children(pid))(b)
	for _, pid := range append(children, pid) {
		sum += threadsCPU(b, pid)
	}
	return sum
}

// threadsCPU returns the CPU time that the threads of a process have used: 0 if it is gone.
func threadsCPU(b *testing.B, pid int) (sum time.Duration) {
	b.Helper()
	threads := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)))(b)
	for _, thread := range threads {
		text := must.Get(os.ReadFile(thread))(b)
		ns := must.Get(strconv.ParseInt(strings.Fields(string(text))[0], 10, 64))(b)
		sum += time.Duration(ns)
	}
	return sum
}
