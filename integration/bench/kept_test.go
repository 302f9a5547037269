package bench

import (
	"cmp"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/internal/orderid"
	"example.com/storefront/sqlstore"
)

var (
	keptFlag = flag.String("kept", "250000,2000000", "how many orders BenchmarkKept keeps, `with commas`")
	listFlag = flag.Bool("lists", false, "orders are of 100,003 accounts, and the index of their lists is there")
	keysFlag = flag.Int("keys", 200_000, "how many `orders` of these have keys that are remembered")
)

// BenchmarkKept measures what an order costs a database that keeps many: bytes of the log, and pages read and
// written. Each part begins and ends with a checkpoint, so it has written each page that it has changed; on
// SQLite, there is also one after each 1,000 pages of the log.
func BenchmarkKept(b *testing.B) {
	for _, engine := range []string{"SQLite", "PostgreSQL", "PostgreSQL18", "MariaDB", "MySQL"} {
		b.Run(engine, func(b *testing.B) {
			for text := range strings.SplitSeq(*keptFlag, ",") {
				kept := must.Get(strconv.Atoi(text))(b)
				b.Run("kept="+text, func(b *testing.B) {
					if b.N > 1 {
						b.Fatal("use -benchtime 1x")
					}
					p := newPile(b, engine)
					p.store = sqlstore.New(p.Pool, &sqlstore.Options{OrderLists: *listFlag})
					must.OK(b, p.store.Migrate(b.Context()))
					p.fill(b, kept)
					p.measureAll(b, kept)
				})
			}
		})
	}
}

func newPile(b *testing.B, engine string) *pile {
	switch engine {
	case "PostgreSQL":
		return postgresPile(b, dbserver.Postgres,
			"SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter")
	case "PostgreSQL18":
		return postgresPile(b, dbserver.Postgres18,
			"SELECT CAST(sum(write_bytes) / 8192 AS BIGINT) FROM pg_stat_io WHERE object = 'relation'")
	case "MariaDB":
		return innoDBPile(b, dbserver.MariaDB, "innodb_sys_tablespaces", "innodb-log-file-size=96M")
	case "MySQL":
		return innoDBPile(b, dbserver.MySQL, "innodb_tablespaces", "innodb-redo-log-capacity=100M")
	}
	return sqlitePile(b)
}

// A pile is a database that keeps many orders.
type pile struct {
	*testdb.DB
	store   *sqlstore.Store
	horizon time.Time // keys that were recorded before may be forgotten

	tidy       func() // does what the database does by itself now and then
	checkpoint func() // writes all pages that were changed
	counts     func() counts
	size       string // SQL: the bytes that orders take on the disk, with their indexes

	random, hash, bytes string // SQL: 10 characters, 32 bytes, the type of bytes
}

// counts are counts since the database was made.
type counts struct{ log, read, written int64 } // bytes, pages, pages

// accounts is of how many accounts the orders are.
const accounts = 100_003

// expiring is how many of the remembered keys ForgetKeys may forget.
const expiring = 20_000

// fill makes the orders of a shop that has created them at a constant rate, and has forgotten all keys but
// those of the last 25 hours and the ones that are expiring.
func (p *pile) fill(b *testing.B, kept int) {
	const rows = 1000
	forgotten := kept - *keysFlag
	scope := "''"
	if *listFlag {
		scope = "CAST(CONCAT('account ', account) AS " + p.bytes + ")"
	}
	none := must.Get(p.Pool.Query("SELECT * FROM storefront_orders WHERE 1 = 0"))(b)
	columns := must.Get(none.Columns())(b)
	none.Close()
	apart := (25 * time.Hour / time.Duration(*keysFlag-expiring)).Round(time.Millisecond)
	p.horizon = time.Now().Add(-storefront.KeyLifetime - time.Hour)
	values := map[string]string{"id": "id", "item": "'teapot'", "qty": "2", "created_ms": "ms", "scope": scope,
		"fields": "''", "place": "LEFT(hash, 8)"} // what is not in it is NULL
	for n := 0; n < kept; n += rows {
		at := p.horizon.Add(time.Duration(n-forgotten-expiring) * apart)
		if n >= forgotten {
			values["keyed_ms"], values["key_hash"], values["key_fingerprint"] = "ms", "hash", "hash"
		}
		id := orderid.First(at)[:len("ord_")+12] // with the time and 4 bits that are not random
		var selected []string
		for _, column := range columns {
			selected = append(selected, cmp.Or(values[column], "NULL"))
		}
		p.Exec(b, fmt.Sprintf(`INSERT INTO storefront_orders (%s)
			WITH RECURSIVE n (i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 1999),
			t AS (SELECT CONCAT('%s', i, %s) AS id, %d + (i - 1000) * %d AS ms, %s AS hash,
				(%d + i) * 7919 %% %d AS account FROM n)
			SELECT %s FROM t`, strings.Join(columns, ", "), id, p.random, at.UnixMilli(),
			apart.Milliseconds(), p.hash, n, accounts, strings.Join(selected, ", ")))
		if n%50_000 == 0 {
			p.tidy()
		}
	}
	p.tidy()
	must.Get(p.store.ForgetKeys(b.Context(), p.horizon.Add(-expiring*apart)))(b) // none, but from then on
	p.checkpoint()
}

func (p *pile) measureAll(b *testing.B, kept int) {
	const callers, n = 64, 20_000
	opts := &storefront.Options{}
	if *listFlag {
		opts.Scope = func(r *http.Request) string {
			key := []byte(r.Header.Get("Idempotency-Key"))
			return fmt.Sprint("account ", crc32.ChecksumIEEE(key)%accounts)
		}
	}
	front := storefront.NewWithOptions(p.store, opts)
	send := func(callers, n int, keys string) func(b *testing.B) {
		return func(b *testing.B) {
			var wg sync.WaitGroup
			for caller := range callers {
				wg.Go(func() {
					for i := caller; i < n; i += callers {
						w := httptest.NewRecorder()
						front.ServeHTTP(w, readRequest(post1(keys+strconv.Itoa(i))))
						if w.Code != http.StatusCreated {
							b.Errorf("%d: %s", w.Code, w.Body)
						}
					}
				})
			}
			wg.Wait()
		}
	}
	b.Run("kept", func(b *testing.B) {
		b.ReportMetric(float64(query(b, p.Pool, p.size))/float64(kept), "file-B/op")
		b.ReportMetric(0, "ns/op")
	})
	p.measure(b, "alone", 1000, send(1, 1000, "alone"))
	p.measure(b, "64-callers", n, send(callers, n, "first"), send(callers, n, "next"))
	p.measure(b, "replay", n/4, send(callers, n/4, "next"))
	p.measure(b, "forgotten-key", expiring, func(b *testing.B) {
		if n := must.Get(p.store.ForgetKeys(b.Context(), p.horizon))(b); n != expiring {
			b.Fatalf("%d keys were forgotten", n)
		}
	})
	// As docs/operations.md has it.
	some := `FROM storefront_orders WHERE id <= (SELECT max(id) FROM shop_archive) AND key_hash IS NULL
		AND id IN (SELECT id FROM shop_archive) ORDER BY id LIMIT 1000`
	if p.Driver != "mysql" {
		some = "FROM storefront_orders WHERE id IN (SELECT id " + some + ")"
	}
	p.Exec(b, `CREATE TABLE shop_archive AS SELECT * FROM storefront_orders WHERE key_hash IS NULL
		ORDER BY id LIMIT 10000`, "CREATE UNIQUE INDEX shop_archive_id ON shop_archive (id)")
	p.tidy()
	p.measure(b, "deleted-order", 10_000, func(b *testing.B) {
		for range 10 {
			if n := must.Get(must.Get(p.Pool.Exec("DELETE " + some))(b).RowsAffected())(b); n != 1000 {
				b.Fatalf("%d orders were deleted", n)
			}
		}
	})
}

// measure measures what each of n calls costs. If there is a second step, the log is that of the second.
func (p *pile) measure(b *testing.B, name string, n int, steps ...func(b *testing.B)) {
	b.Run(name, func(b *testing.B) {
		p.checkpoint()
		before := p.counts()
		last := before
		for i, step := range steps {
			if i > 0 {
				last = p.counts()
				b.ReportMetric(float64(last.log-before.log)/float64(n), "log-B-after-checkpoint/op")
			}
			step(b)
		}
		p.checkpoint()
		after, all := p.counts(), float64(n*len(steps))
		b.ReportMetric(float64(after.log-last.log)/float64(n), "log-B/op")
		b.ReportMetric(float64(after.read-before.read)/all, "pages-read/op")
		b.ReportMetric(float64(after.written-before.written)/all, "pages-written/op")
		b.ReportMetric(0, "ns/op")
	})
}

// query returns the number that a query returns.
func query(b *testing.B, db *sql.DB, query string) (n int64) {
	b.Helper()
	must.OK(b, db.QueryRow(query).Scan(&n))
	return n
}

func sqlitePile(b *testing.B) *pile {
	const pageSize = 4096
	file := filepath.Join(b.TempDir(), "shop.db")
	// Nothing but checkpoint empties the WAL.
	p := &pile{DB: testdb.Open(b, "sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"+
		"&_pragma=busy_timeout(10000)&_pragma=wal_autocheckpoint(0)")}
	p.Pool.SetMaxOpenConns(4)
	var done counts // in earlier WALs
	p.counts = func() counts {
		var read int64 // by this process, in which only SQLite reads: it has no sockets
		must.Get(fmt.Sscanf(string(must.Get(os.ReadFile("/proc/self/io"))(b)), "rchar: %d", &read))(b)
		return counts{done.log + must.Get(os.Stat(file+"-wal"))(b).Size(), done.read + read/pageSize, done.written}
	}
	p.checkpoint = func() {
		before := p.counts()
		done.log, done.written = before.log, done.written+pagesOf(b, file+"-wal")
		p.Exec(b, "PRAGMA wal_checkpoint(TRUNCATE)")
		done.read -= p.counts().read - before.read
	}
	p.tidy = p.checkpoint
	p.size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
	p.random, p.hash, p.bytes = "lower(hex(randomblob(5)))", "randomblob(32)", "BLOB"
	return p
}

// pagesOf returns how many pages a WAL has (https://www.sqlite.org/fileformat.html, 4.1). In each 1,000
// frames, a page counts once.
func pagesOf(b *testing.B, wal string) (pages int64) {
	f := must.Get(os.Open(wal))(b)
	defer f.Close()
	var number [4]byte
	seen := make(map[[4]byte]bool)
	for frame := int64(0); ; frame++ {
		if _, err := f.ReadAt(number[:], 32+frame*(24+4096)); err != nil {
			return pages + int64(len(seen))
		}
		if seen[number] = true; frame%1000 == 999 {
			pages += int64(len(seen))
			clear(seen)
		}
	}
}

func postgresPile(b *testing.B, kind *dbserver.Kind, written string) *pile {
	server := kind.Start(b, "autovacuum=off", "checkpoint_timeout=1d", "max_wal_size=10GB")
	p := &pile{DB: testdb.Open(b, "pgx", server.DSN())}
	admin := dbserver.Open(b, "pgx", server.DSN())
	admin.SetMaxIdleConns(0)
	p.tidy = func() { p.Exec(b, "VACUUM (ANALYZE) storefront_orders") }
	p.checkpoint = func() {
		for range 2 { // the second waits until the first has been counted
			must.Get(admin.Exec("CHECKPOINT"))(b)
		}
	}
	p.counts = func() counts {
		// A process of the server counts what it has read at its end, at the latest.
		p.Pool.SetMaxIdleConns(0)
		process.WaitFor(b, "connections end", 5*time.Minute, server.Process, func() (err error) {
			if query(b, admin, "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'client%'") > 1 {
				err = errors.New("there are some")
			}
			return err
		})
		p.Pool.SetMaxIdleConns(20)
		return counts{
			query(b, admin, "SELECT CAST(pg_current_wal_insert_lsn() - '0/0' AS BIGINT)"),
			query(b, admin, "SELECT blks_read FROM pg_stat_database WHERE datname = current_database()"),
			query(b, admin, written),
		}
	}
	p.size = "SELECT pg_total_relation_size('storefront_orders')"
	p.random = "left(md5(CAST(random() AS TEXT)), 10)"
	p.hash, p.bytes = "sha256(CAST(CAST(random() AS TEXT) AS BYTEA))", "BYTEA"
	p.Pool.SetMaxOpenConns(20)
	return p
}

func innoDBPile(b *testing.B, kind *dbserver.Kind, spaces string, settings ...string) *pile {
	server := kind.Start(b, append(settings, "innodb-buffer-pool-size=64M")...)
	p := &pile{DB: testdb.Open(b, "mysql", server.DSN())}
	p.Pool.SetMaxOpenConns(20)
	status := func(name string) (n int64) {
		must.OK(b, p.Pool.QueryRow("SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(new(string), &n))
		return n
	}
	p.counts = func() counts {
		return counts{status("Innodb_os_log_written"), status("Innodb_pages_read"), status("Innodb_pages_written")}
	}
	p.checkpoint = func() {
		p.Exec(b, "SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0", "SET GLOBAL innodb_max_dirty_pages_pct = 0")
		last := counts{}
		process.WaitFor(b, "nothing is written", 5*time.Minute, server.Process, func() (err error) {
			now := p.counts() // which the purge of what was deleted also changes
			if now != last || status("Innodb_buffer_pool_pages_dirty") > 0 {
				last, err = now, errors.New("something is")
				time.Sleep(time.Second)
			}
			return err
		})
		p.Exec(b, "SET GLOBAL innodb_max_dirty_pages_pct = 90")
	}
	p.tidy = func() {}
	p.random, p.bytes = "LEFT(SHA2(RAND(), 256), 10)", "BINARY"
	p.hash = "UNHEX(SHA2(CONCAT(RAND(), RAND()), 256))"
	p.size = "SELECT file_size FROM information_schema." + spaces + " WHERE name = 'shop/storefront_orders'"
	return p
}
