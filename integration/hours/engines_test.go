package hours

import (
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
)

// An engine is a kind of database.
type engine struct {
	name    string
	quarter bool // of the time
	start   func(t *testing.T) *database
}

var engines = []engine{
	{"PostgreSQL", false, startPostgres},
	{"SQLite", true, startSQLite},
	{"MariaDB", true, func(t *testing.T) *database {
		return startMySQL(t, dbserver.MariaDB, "information_schema", "innodb-log-file-size=1G", "innodb-buffer-pool-size=4G")
	}},
	{"MySQL", true, func(t *testing.T) *database {
		return startMySQL(t, dbserver.MySQL, "performance_schema", "innodb-redo-log-capacity=1G", "innodb-buffer-pool-size=4G")
	}},
}

// A database is where durable has its orders.
type database struct {
	url         string                                         // for durable
	driver, dsn string                                         // for all else
	insert      string                                         // a statement that makes orders: from a number, to a number, the time of the first key, and milliseconds between keys
	after       string                                         // a statement for when the tables are filled
	fillDSN     string                                         // with which they are filled
	dir         string                                         // where it has its files
	table       func(t *testing.T, db *sql.DB) (bytes float64) // of orders
	connected   string                                         // a query for the number of connections
	backup      func(file string) *exec.Cmd
}

// fill makes n orders.
func (d *database) fill(t *testing.T, n int, statement func(from, to int) string) {
	t.Helper()
	dsn := d.fillDSN
	if dsn == "" {
		dsn = d.dsn
	}
	db := testdb.Open(t, d.driver, dsn)
	const batch = 100_000
	for from := 0; from < n; from += batch {
		db.Exec(t, statement(from, min(from+batch, n)-1))
	}
	db.Exec(t, d.after)
	if err := db.Pool.Close(); err != nil {
		t.Error(err)
	}
}

// size returns the bytes of the table of orders, and of all other files of the database but
// those that have what was ordered once more: the binary log.
func (d *database) size(t *testing.T, db *sql.DB) (orders, rest float64) {
	t.Helper()
	err := filepath.WalkDir(d.dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was there a moment ago
		}
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), "binlog.") {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			rest += float64(info.Size())
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	orders = d.table(t, db)
	return orders, rest - orders
}

// connections returns how many the database has.
func (d *database) connections(t *testing.T, db *sql.DB) float64 {
	t.Helper()
	if d.connected == "" {
		return 0
	}
	return value(t, db, d.connected)
}

func queried(query string) func(t *testing.T, db *sql.DB) float64 {
	return func(t *testing.T, db *sql.DB) float64 { return value(t, db, query) }
}

func value(t *testing.T, db *sql.DB, query string) (v float64) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&v); err != nil {
		t.Errorf("%s: %v", query, err)
	}
	return v
}

// backUp takes a backup in the place of the one before.
func (d *database) backUp(t *testing.T, file string) {
	t.Helper()
	if err := os.RemoveAll(file); err != nil {
		t.Error(err)
	}
	cmd := d.backup(file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("the backup is %v, %v", info, err)
	}
}

func startPostgres(t *testing.T) *database {
	long.Test(t)
	need.Programs(t, need.Postgres, "pg_dump")
	server := dbserver.StartPostgres(t, "shared_buffers=2GB", "max_wal_size=4GB")
	dir, err := server.Query("SHOW data_directory")
	if err != nil {
		t.Fatal(err)
	}
	return &database{
		url: server.DSN(), driver: "pgx", dsn: server.DSN(), dir: dir,
		insert: `INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, fingerprint, keyed_ms)
			SELECT 'ord_' || upper(substr(encode(sha256(int8send(n)), 'hex'), 1, 26)), 'filled', 2, at, '',
				sha256(int8send(-n - 1)), sha256(int8send(n)), at
			FROM (SELECT n, %[3]d + CAST(n * %[4]f AS BIGINT) AS at FROM generate_series(CAST(%[1]d AS BIGINT), %[2]d) AS n) AS filled`,
		after:     "VACUUM ANALYZE storefront_orders",
		table:     queried("SELECT pg_total_relation_size('storefront_orders')"),
		connected: "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'",
		backup:    func(file string) *exec.Cmd { return exec.Command("pg_dump", "-d", server.DSN(), "-f", file) },
	}
}

func startSQLite(t *testing.T) *database {
	need.Programs(t, need.Tools, "sqlite3")
	file := filepath.Join(process.Folder(t), "shop.db")
	dsn := "file:" + file + "?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)"
	return &database{
		url: file, driver: "sqlite", dsn: dsn, dir: filepath.Dir(file),
		insert: `WITH RECURSIVE filled (n) AS (VALUES (%[1]d) UNION ALL SELECT n + 1 FROM filled WHERE n < %[2]d)
			INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, fingerprint, keyed_ms)
			SELECT 'ord_' || hex(randomblob(13)), 'filled', 2, %[3]d + CAST(n * %[4]f AS INTEGER), x'',
				randomblob(32), randomblob(32), %[3]d + CAST(n * %[4]f AS INTEGER) FROM filled`,
		after:   "PRAGMA journal_mode = WAL",
		fillDSN: "file:" + file + "?_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)&_pragma=cache_size(-4000000)",
		table:   queried("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"),
		backup: func(backup string) *exec.Cmd {
			return exec.Command("sqlite3", file, "VACUUM INTO '"+backup+"'")
		},
	}
}

func startMySQL(t *testing.T, kind *dbserver.Kind, statuses string, settings ...string) *database {
	long.Test(t)
	need.Programs(t, need.MariaDB, "mysqldump")
	server := kind.Start(t, settings...)
	dir, err := server.Query("SELECT @@datadir")
	if err != nil {
		t.Fatal(err)
	}
	shop, err := url.Parse(dbserver.MySQLURL(t, server.DSN()))
	if err != nil {
		t.Fatal(err)
	}
	return &database{
		url: shop.String(), driver: "mysql", dsn: server.DSN(), dir: dir,
		insert: `INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, fingerprint, keyed_ms)
			SELECT CONCAT('ord_', UPPER(LEFT(SHA2(n, 256), 26))), 'filled', 2, %[3]d + CAST(n * %[4]f AS SIGNED), '',
				UNHEX(SHA2(CONCAT('key ', n), 256)), UNHEX(SHA2(n, 256)), %[3]d + CAST(n * %[4]f AS SIGNED)
			FROM (WITH d AS (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4
				UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)
				SELECT %[1]d + a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS n FROM d AS a, d AS b, d AS c, d, d AS e) AS filled
			WHERE n <= %[2]d`,
		after: "ANALYZE TABLE storefront_orders",
		table: func(t *testing.T, _ *sql.DB) float64 {
			info, err := os.Stat(filepath.Join(dir, "shop", "storefront_orders.ibd"))
			if err != nil {
				t.Error(err)
				return 0
			}
			return float64(info.Size())
		},
		connected: "SELECT variable_value FROM " + statuses + ".global_status WHERE variable_name = 'Threads_connected'",
		backup: func(file string) *exec.Cmd {
			return exec.Command("mysqldump", "--single-transaction", "--host="+shop.Hostname(), "--port="+shop.Port(),
				"--user=root", "--result-file="+file, "shop")
		},
	}
}
