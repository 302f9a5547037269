package tables

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// A setting is one of a database, in the URL of its driver, for all connections, or of the server (--), and
// what the store then does.
type setting struct {
	on, does string
	set      []string
}

// What the store does: a refusal begins with refuses, and an error of the database with fails.
const (
	works     = "works"
	unchecked = works + "; [a crash may lose orders](#what-must-stay-on)"
	waits     = "503, until it is changed"
	refuses   = "refuses: "
	fails     = "fails: "
)

var settings = []setting{
	{"PostgreSQL", works, []string{
		"default_transaction_isolation=read uncommitted", "default_transaction_isolation=repeatable read",
		"default_transaction_isolation=serializable&default_transaction_deferrable=on",
		"client_encoding=SQL_ASCII", "bytea_output=escape", "quote_all_identifiers=on",
		"standard_conforming_strings=off", "transform_null_equals=on", "row_security=off",
		"DateStyle=SQL,DMY&TimeZone=Asia/Kathmandu", "exit_on_error=on",
		"plan_cache_mode=force_generic_plan", "lock_timeout=1min&statement_timeout=1min",
		"CREATE DATABASE shop ENCODING 'SQL_ASCII'",
	}},
	{"PostgreSQL", unchecked, []string{"synchronous_commit=off"}},
	{"PostgreSQL", waits, []string{
		"default_transaction_read_only=on", "ALTER DATABASE shop SET default_transaction_read_only = on",
	}},
	{"PostgreSQL", refuses + "client_encoding", []string{
		"client_encoding=LATIN1", "client_encoding=EUC_JP",
		"ALTER DATABASE shop SET client_encoding = LATIN1", "ALTER ROLE shop SET client_encoding = LATIN1",
	}},
	{"PostgreSQL", refuses + "server_encoding", []string{"CREATE DATABASE shop ENCODING 'LATIN1'"}},
	{"PostgreSQL", refuses + "bytea_output", []string{
		"bytea_output=escape&default_query_exec_mode=simple_protocol",
	}},
	{"PostgreSQL", refuses + "search_path", []string{
		"search_path=nowhere", "search_path=pg_temp,public", "search_path=pg_catalog,public",
		"ALTER ROLE shop SET search_path = nowhere",
	}},
	{"PostgreSQL", refuses + "session_replication_role", []string{"session_replication_role=replica"}},

	{"MariaDB, MySQL", works, []string{
		"sql_mode=''", "sql_mode='ANSI'", "sql_mode='TRADITIONAL'", "sql_mode='NO_BACKSLASH_ESCAPES'",
		"sql_mode='ANSI,NO_BACKSLASH_ESCAPES'&interpolateParams=false",
		"sql_mode='PAD_CHAR_TO_FULL_LENGTH'",
		"sql_mode='HIGH_NOT_PRECEDENCE,REAL_AS_FLOAT,NO_UNSIGNED_SUBTRACTION'", "collation=utf8mb4_bin",
		"foreign_key_checks=0", "sql_safe_updates=1", "sql_auto_is_null=1", "max_sort_length=64",
		"time_zone='-11:00'", "default_storage_engine=MyISAM", "ALTER DATABASE shop CHARACTER SET latin1",
	}},
	{"MariaDB", works, []string{
		"tx_isolation='READ-COMMITTED'", "tx_isolation='SERIALIZABLE'&interpolateParams=false",
		"innodb_snapshot_isolation=1", "sql_mode='MSSQL'", "sql_mode='DB2'", "sql_mode='MAXDB'",
		"sql_mode='POSTGRESQL'", "sql_mode='SIMULTANEOUS_ASSIGNMENT'", "old_mode='UTF8_IS_UTF8MB3'",
		"system_versioning_asof='2020-01-01'",
		"--character-set-server=latin1 --collation-server=latin1_bin --lower-case-table-names=1" +
			" --query-cache-type=1 --log-bin=log --binlog-format=ROW --transaction-isolation=READ-COMMITTED",
	}},
	{"MySQL", works, []string{
		"transaction_isolation='READ-COMMITTED'", "transaction_isolation='SERIALIZABLE'",
		"binlog_format=STATEMENT", "sql_require_primary_key=1", "sql_generate_invisible_primary_key=1",
		"session_track_system_variables='*'&session_track_transaction_info='STATE'",
	}},
	{"MariaDB", waits, []string{"tx_read_only=1"}},
	{"MySQL", waits, []string{"transaction_read_only=1"}},
	{"MariaDB", refuses + "READ UNCOMMITTED", []string{
		"tx_isolation='READ-UNCOMMITTED'", "SET GLOBAL tx_isolation = 'READ-UNCOMMITTED'",
	}},
	{"MySQL", refuses + "READ UNCOMMITTED", []string{
		"transaction_isolation='READ-UNCOMMITTED'",
		"SET GLOBAL transaction_isolation = 'READ-UNCOMMITTED'",
	}},
	{"MariaDB, MySQL", refuses + "autocommit", []string{"autocommit=0", "SET GLOBAL autocommit = 0"}},
	{"MariaDB, MySQL", refuses + "completion_type", []string{"completion_type=1", "completion_type=2"}},
	{"MariaDB, MySQL", refuses + "unique_checks", []string{"unique_checks=0"}},
	{"MariaDB, MySQL", refuses + "sql_log_bin", []string{"sql_log_bin=0"}},
	{"MariaDB, MySQL", refuses + "sql_select_limit", []string{
		"sql_select_limit=0", "sql_select_limit=1", "SET GLOBAL sql_select_limit = 100",
	}},
	{"MariaDB, MySQL", refuses + "timestamp", []string{"timestamp=1000000"}},
	{"MariaDB, MySQL", refuses + "character_set_client", []string{
		"charset=latin1", "charset=utf8mb3", "charset=gbk", "collation=latin1_bin",
	}},
	{"MariaDB, MySQL", refuses + "character_set_connection", []string{"character_set_connection=latin1"}},
	{"MariaDB, MySQL", refuses + "character_set_results", []string{
		"character_set_results=latin1", "character_set_results=NULL",
	}},
	{"MariaDB", refuses + "EMPTY_STRING_IS_NULL", []string{"sql_mode='EMPTY_STRING_IS_NULL'"}},
	{"MariaDB", refuses + "ORACLE", []string{"sql_mode='ORACLE'"}},
	{"MariaDB, MySQL", fails + "MAX_JOIN_SIZE", []string{"max_join_size=1&sql_big_selects=0"}},
	{"MySQL", fails + "BINLOG_FORMAT = STATEMENT", []string{
		"transaction_isolation='READ-COMMITTED'&binlog_format=STATEMENT",
	}},

	{"SQLite", works, []string{
		"file:shop.db?_pragma=journal_mode(DELETE)", "file:shop.db?_pragma=journal_mode(TRUNCATE)",
		"file:shop.db?_pragma=journal_mode(PERSIST)", "file:shop.db?vfs=unix-dotfile",
		"file:shop.db?vfs=unix-excl", "file:shop.db?_pragma=encoding('UTF-16le')", "cache=shared",
		"_pragma=case_sensitive_like(1)", "_pragma=count_changes(1)",
		"_pragma=full_column_names(1)&_pragma=short_column_names(0)",
		"_pragma=reverse_unordered_selects(1)",
		"_pragma=ignore_check_constraints(1)&_pragma=recursive_triggers(1)", "_pragma=trusted_schema(0)",
	}},
	{"SQLite", unchecked, []string{"_pragma=synchronous(OFF)", "_pragma=synchronous(NORMAL)"}},
	{"SQLite", waits + ", unless the pool has one connection", []string{"_pragma=locking_mode(EXCLUSIVE)"}},
	{"SQLite", refuses + "is no file", []string{
		":memory:", "file::memory:?cache=shared", "file:shop.db?mode=memory&cache=shared",
		"file:/shop.db?vfs=memdb",
	}},
	{"SQLite", refuses + "journal_mode", []string{
		"file:shop.db?_pragma=journal_mode(MEMORY)", "file:shop.db?_pragma=journal_mode(OFF)",
	}},
	{"SQLite", refuses + "read_uncommitted", []string{"cache=shared&_pragma=read_uncommitted(1)"}},
	{"SQLite", refuses + "writable_schema", []string{"_pragma=writable_schema(1)"}},
	{"SQLite", refuses + "without locks", []string{"file:shop.db?nolock=1", "file:shop.db?vfs=unix-none"}},
	{"SQLite", fails + "attempt to write a readonly database", []string{"mode=ro", "_pragma=query_only(1)"}},
}

// TestSettings sets each of them, and has docs/databases.md say what the store then does.
func TestSettings(t *testing.T) {
	var rows []string
	for _, s := range settings {
		does := errorText.ReplaceAllString(s.does, "$1`$2`")
		rows = append(rows, fmt.Sprintf("| %s | `%s` | %s |", s.on, strings.Join(s.set, "`, `"), does))
	}
	documents.ExpectTable(t, "../../docs/databases.md", rows)
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		if d.Driver != "sqlite" && len(testdb.Column(t, d.Pool, "SELECT 1 WHERE 'a' < 'B'")) == 0 {
			t.Fatal("the database sorts by bytes, so this test shows nothing")
		}
		_, engine, _ := strings.Cut(t.Name(), "/")
		for _, s := range settings {
			for _, set := range s.set {
				if strings.Contains(s.on, engine) {
					t.Run(set, func(t *testing.T) { expect(t, with(t, d, set), s.does) })
				}
			}
		}
	})
}

var (
	errorText = regexp.MustCompile("^(" + refuses + "|" + fails + ")(.*)")

	global   = regexp.MustCompile(`^SET (GLOBAL \w+) .*`)
	database = regexp.MustCompile(`test\d+`)
)

// with returns a database like d, with a setting.
func with(t *testing.T, d *testdb.DB, set string) *testdb.DB {
	name := database.FindString(d.URL)
	undo := ""
	switch {
	case strings.HasPrefix(set, "--"):
		server := dbserver.MariaDB.Start(t, strings.Split(set[2:], " --")...)
		return testdb.Open(t, d.Driver, server.DSN())
	case strings.HasPrefix(set, "CREATE DATABASE"):
		options := " LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0"
		d.Exec(t, strings.Replace(set, "shop", "other", 1)+options)
		t.Cleanup(func() { d.Exec(t, "DROP DATABASE other WITH (FORCE)") })
		return testdb.Open(t, d.Driver, strings.Replace(d.URL, name, "other", 1)+"&client_encoding=UTF8")
	case strings.HasPrefix(set, "SET"):
		undo = global.ReplaceAllString(set, "SET $1 = DEFAULT")
	case strings.HasPrefix(set, "ALTER") && d.Driver == "mysql":
		undo = "ALTER DATABASE shop CHARACTER SET utf8mb4"
	case strings.HasPrefix(set, "ALTER"):
		undo, _, _ = strings.Cut(set, " SET ")
		undo += " RESET ALL"
	case d.Driver == "sqlite" && !strings.HasPrefix(set, "_") && strings.Contains(set, ":"):
		file := "file:" + filepath.Join(t.TempDir(), "shop.db")
		return testdb.Open(t, d.Driver, strings.Replace(set, "file:shop.db", file, 1))
	default:
		return testdb.Open(t, d.Driver, d.URL+"&"+strings.ReplaceAll(set, " ", "%20"))
	}
	names := strings.NewReplacer("DATABASE shop", "DATABASE "+name, "ROLE shop", "ROLE postgres")
	d.Exec(t, names.Replace(set))
	t.Cleanup(func() { d.Exec(t, names.Replace(undo)) })
	return testdb.Open(t, d.Driver, d.URL)
}

// expect checks that a store does this.
func expect(t *testing.T, d *testdb.DB, does string) {
	if strings.HasPrefix(does, works) {
		if err := d.Use(t); err != nil {
			t.Error(err)
		}
		return
	}
	opts := &sqlstore.Options{}
	if strings.HasPrefix(does, waits) {
		opts.Timeout = 200 * time.Millisecond
	}
	ctx := t.Context()
	store := func() *sqlstore.Store { return sqlstore.New(d.Pool, opts) }
	calls := map[string]func() error{
		"CreateOrder": func() error { _, err := testdb.Create(ctx, store(), "key", "kettle"); return err },
		"Put":         func() error { return store().Users.Put(ctx, storefront.MustResource("ada", nil)) },
	}
	want, refused := strings.CutPrefix(does, refuses)
	if refused {
		calls["GetProduct"] = func() error { _, err := store().GetProduct(ctx, "kettle"); return err }
		calls["Migrate"] = func() error { return store().Migrate(ctx) }
		calls["Check"] = func() error { return store().Check(ctx) }
		calls["ForgetKeys"] = func() error { _, err := store().ForgetKeys(ctx, time.Time{}); return err }
	}
	want = strings.TrimPrefix(want, fails)
	for call, f := range calls {
		err := f()
		unavailable := errors.Is(err, storefront.ErrUnavailable)
		named := err != nil && strings.Contains(err.Error(), want)
		if unavailable != (opts.Timeout > 0) || !unavailable && !named {
			t.Errorf("%s returned %v, want %s", call, err, does)
		}
	}
}
