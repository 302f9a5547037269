package engines

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/XSAM/otelsql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	_ "github.com/mattn/go-sqlite3"
	"github.com/ngrok/sqlmw"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
)

// A driver is one that people use, and modes that it has.
type driver struct {
	on, module, modes string
	url               func(testing.TB) string // nil: another package tests it
	like, name        string                  // that of package testdb for the same database, and its own
}

// TestStore runs storetest on the drivers of package testdb.
var drivers = []driver{
	{"PostgreSQL", "github.com/jackc/pgx/v5/stdlib", "default_query_exec_mode=cache_describe " +
		"default_query_exec_mode=describe_exec default_query_exec_mode=exec " +
		"default_query_exec_mode=simple_protocol stdlib.OpenDBFromPool", dbserver.Postgres.Database, "pgx", "pgx"},
	{"PostgreSQL", "github.com/lib/pq", "binary_parameters=yes disable_prepared_binary_result=yes",
		dbserver.Postgres.Database, "pgx", "postgres"},
	{"MariaDB", "github.com/go-sql-driver/mysql", mySQLModes, dbserver.MariaDB.Database, "mysql", "mysql"},
	{"MySQL", "github.com/go-sql-driver/mysql", mySQLModes, dbserver.MySQL.Database, "mysql", "mysql"},
	{"SQLite", "modernc.org/sqlite", "_txlock=immediate _txlock=exclusive _time_format=sqlite " +
		"_inttotime=1&_texttotime=1", testdb.SQLiteFile, "sqlite", "sqlite"},
	{"SQLite", "github.com/mattn/go-sqlite3", "_txlock=immediate _loc=auto _mutex=no cache=shared",
		mattnFile, "sqlite", "sqlite3"},
	{"SQLite", "github.com/ncruces/go-sqlite3/driver", "", nil, "", ""},
}

const mySQLModes = "interpolateParams=false clientFoundRows=true parseTime=true&loc=Local " +
	"multiStatements=true columnsWithAlias=true compress=true rejectReadOnly=true checkConnLiveness=false " +
	"maxAllowedPacket=65536 timeTruncate=1s charset=utf8mb4,utf8"

// mattnFile is testdb.SQLiteFile in the words of another driver.
func mattnFile(t testing.TB) string {
	file := "file:" + filepath.Join(t.TempDir(), "shop.db")
	return file + "?_journal_mode=WAL&_synchronous=FULL&_busy_timeout=100"
}

// TestDrivers runs storetest on each driver that TestStore does not, and uses each mode.
func TestDrivers(t *testing.T) {
	var rows []string
	for _, d := range drivers {
		modes := strings.Fields(d.modes)
		row := fmt.Sprintf("| %s | `%s` | `%s` |", d.on, d.module, strings.Join(modes, "`, `"))
		rows = append(rows, strings.Replace(row, "``", "", 1))
		if d.url == nil {
			continue
		}
		t.Run(d.on+" "+d.name, func(t *testing.T) {
			t.Parallel()
			if d.name == "sqlite3" {
				need.Programs(t, need.Tools, "gcc") // else Go has built this driver as a stub
			}
			url := d.url(t)
			for _, mode := range modes {
				t.Run(mode, func(t *testing.T) {
					with := testdb.OpenBy(t, d.like, url+"&"+mode, d.name)
					if mode == "stdlib.OpenDBFromPool" {
						pool := must.Get(pgxpool.New(t.Context(), url))(t)
						t.Cleanup(pool.Close)
						with.Pool = stdlib.OpenDBFromPool(pool)
					}
					defer with.Pool.Close()
					must.OK(t, with.Use(t))
				})
			}
			if d.like != d.name {
				testdb.RunSuite(t, testdb.OpenBy(t, d.like, url, d.name), nil)
			}
		})
	}
	documents.ExpectTable(t, "../../docs/databases.md", rows)
}

// TestWrappedDrivers has the drivers that others wrap, for traces and the like.
func TestWrappedDrivers(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		traced := must.Get(otelsql.Register(d.Driver))(t)
		intercepted := "intercepted in " + t.Name()
		sql.Register(intercepted, sqlmw.Driver(d.Pool.Driver(), new(sqlmw.NullInterceptor)))
		for _, name := range []string{traced, intercepted} {
			must.OK(t, testdb.OpenBy(t, d.Driver, d.URL, name).Use(t))
		}
	})
}
