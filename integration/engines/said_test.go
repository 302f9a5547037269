package engines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb"
	"example.com/storefront/shopdb/mysql"
	"example.com/storefront/shopdb/postgres"
	"example.com/storefront/sqlstore"
)

// A mistake is one that a program meets at its start or in its first order.
type mistake struct {
	name  string
	url   string // of clerk at ADDR, whose password is right; FILE has it
	setUp string // statements of the superuser, after which the tables are made unless the URL is another one
	undo  string
	says  []string // in the error or, while the program waits, in the log
}

const (
	ofPostgres = "postgres://clerk@ADDR/postgres?sslmode=disable&passfile=FILE"
	ofMySQL    = "mysql://clerk@ADDR/shop?password_file=FILE"
)

// The files are beside FILE. Those of SQLite have tables of their own, beside its package, and so have settings
// (TestSettings), tables (TestTablesWithoutAPromiseAreRefused) and URLs.
var mistakes = map[*dbserver.Kind][]mistake{
	dbserver.Postgres: {
		{"a wrong password", "postgres://clerk:wrong@ADDR/postgres?sslmode=disable", "", "",
			[]string{"\nfailed to connect", "ADDR", `password authentication failed for user "clerk"`}}, // at once
		{"no password", "postgres://clerk@ADDR/postgres?sslmode=disable", "", "",
			[]string{"no password is given: name a file of passwords by passfile"}},
		{"a password alone in the file", ofPostgres + "-malformed", "", "",
			[]string{"passfile: FILE-malformed has no line host:port:database:user:password for ADDR:postgres:clerk"}},
		{"no such role, without passwords", "postgres://ghost@ADDR/postgres?sslmode=disable", "", "",
			[]string{"role \"ghost\" does not exist (SQLSTATE 28000)\n"}}, // not that it has no password
		{"no such parameter", ofPostgres + "&slmode=off", "", "",
			[]string{"\nfailed to connect", `unrecognized configuration parameter "slmode"`}}, // at once
		{"read-only", ofPostgres, "ALTER ROLE clerk SET default_transaction_read_only = on",
			"ALTER ROLE clerk RESET default_transaction_read_only",
			[]string{"default_transaction_read_only is on (user), and orders have to be written"}},
		{"no right to make tables", ofPostgres, "REVOKE ALL ON SCHEMA public FROM PUBLIC, clerk; GRANT USAGE ON SCHEMA public TO clerk",
			"GRANT ALL ON SCHEMA public TO clerk",
			[]string{"migrate, which wants a role that may make tables", "permission denied for schema public"}},
		{"no tables", ofPostgres + "&application_name=orders", "", "",
			[]string{"schema public of database postgres", "has no storefront_orders, ", "the method Migrate"}},
		{"no right to orders", ofPostgres, "TABLES; REVOKE INSERT ON storefront_orders FROM clerk",
			"GRANT ALL ON storefront_orders TO clerk",
			[]string{"permission denied for table storefront_orders", "a right that docs/databases.md lists"}},
		{"no right to the index of lists", ofPostgres, "DROP INDEX storefront_orders_scope", "", []string{"the owner of storefront_orders must make the index of lists",
			"CREATE INDEX CONCURRENTLY IF NOT EXISTS storefront_orders_scope", "must be owner of table storefront_orders"}},
		{"no tables in the first schema", ofPostgres + "&search_path=other,public",
			"CREATE SCHEMA other; GRANT ALL ON SCHEMA other TO clerk", "", []string{"there is a shop in schema public"}},
	},
	dbserver.MariaDB: mySQLMistakes,
	dbserver.MySQL: append(mySQLMistakes, mistake{"several servers, one of which could be a replica",
		"mysql://clerk@ADDR,ADDR/shop?password_file=FILE", "", "", []string{"GRANT REPLICATION CLIENT ON *.*"}}),
}

var mySQLMistakes = []mistake{
	{"a wrong password", "mysql://clerk:wrong@ADDR/shop", "", "",
		[]string{"\nADDR: ", "Access denied for user 'clerk'", "using password: YES"}}, // at once
	{"no password", "mysql://clerk@ADDR/shop", "", "", []string{"Access denied for user 'clerk'", "no password is given: name its file by password_file in the URL"}},
	{"no such variable", ofMySQL + "&slmode=1", "", "", []string{"\nADDR: ", "Unknown system variable 'slmode'"}}, // at once
	{"read-only", ofMySQL, "SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", []string{"ADDR: it is read-only (read_only)"}},
	{"no right to make tables", ofMySQL, "REVOKE CREATE ON shop.* FROM clerk@'%'", "GRANT ALL ON shop.* TO clerk@'%'",
		[]string{"migrate, which wants a role that may make tables", "CREATE command denied to user 'clerk'"}},
	{"no tables", ofMySQL + "&columnsWithAlias=false", "", "", []string{"database shop at", "has no storefront_orders, ", "the method Migrate"}},
	{"no right to orders", ofMySQL, "TABLES; REVOKE ALL ON shop.* FROM clerk@'%'; GRANT SELECT ON shop.* TO clerk@'%'",
		"GRANT ALL ON shop.* TO clerk@'%'",
		[]string{"INSERT command denied to user 'clerk'", "storefront_orders", "a right that docs/databases.md lists"}},
	{"no right to the index of lists", ofMySQL, "DROP INDEX storefront_orders_scope ON storefront_orders; REVOKE INDEX ON shop.* FROM clerk@'%'", "GRANT ALL ON shop.* TO clerk@'%'",
		[]string{"the owner of storefront_orders must make the index of lists", "CREATE INDEX storefront_orders_scope", "INDEX command denied"}},
}

// Each error at the start or in the first order says what is wrong, and where. None has a password.
func TestWhatIsSaid(t *testing.T) {
	const password = "pass:word"
	for kind, mistakes := range mistakes {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			server := kind.Start(t)
			file := filepath.Join(t.TempDir(), "file")
			driver := "pgx"
			contents := map[string]string{"": `*:*:*:clerk:pass\:word`, "-malformed": password}
			account := []string{"CREATE ROLE clerk LOGIN PASSWORD '" + password + "'", "GRANT ALL ON SCHEMA public TO clerk",
				"ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO clerk",
				"COPY (SELECT unnest(ARRAY['host all postgres,ghost all trust', 'host all all all scram-sha-256'])) TO 'HBA'",
				"SELECT pg_reload_conf()"}
			if kind != dbserver.Postgres {
				driver, contents[""] = "mysql", password+"\n"
				account = []string{"CREATE USER clerk@'%' IDENTIFIED BY '" + password + "'", "GRANT ALL ON shop.* TO clerk@'%'"}
			} else {
				account[3] = strings.Replace(account[3], "HBA", must.Get(server.Query("SHOW hba_file"))(t), 1)
			}
			for suffix, text := range contents {
				must.OK(t, os.WriteFile(file+suffix, []byte(text), 0o600))
			}
			execute := func(statements ...string) {
				t.Helper()
				for _, statement := range statements {
					switch statement {
					case "":
						continue
					case "TABLES":
						testdb.New(t, driver, server.DSN())
						continue
					}
					if _, err := server.Query(statement); err != nil {
						t.Fatalf("%s: %v", statement, err)
					}
				}
			}
			execute(account...)
			fill := strings.NewReplacer("ADDR", server.Addr(), "FILE", file)
			for _, m := range mistakes {
				execute(strings.Split(m.setUp, "; ")...)
				said := said(t, fill.Replace(m.url), m.name)
				execute(strings.Split(m.undo, "; ")...)
				for _, says := range m.says {
					if !strings.Contains(said, fill.Replace(says)) {
						t.Errorf("%s: it says %q, want %q", m.name, said, fill.Replace(says))
					}
				}
				if strings.Contains(said, password) || strings.Contains(said, "wrong@") {
					t.Errorf("%s: it says the password: %s", m.name, said)
				}
			}
		})
	}
}

// said returns what a program says that opens a database, and takes an order, or until it waits.
func said(t *testing.T, url, mistake string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &waits{cancel: cancel}
	logger := slog.New(slog.NewTextHandler(log, nil))
	var db *shopdb.DB
	var err error
	if strings.HasPrefix(url, "postgres") {
		db, err = postgres.Open(url, &postgres.Options{Logger: logger})
	} else {
		db, err = mysql.Open(url, &mysql.Options{Logger: logger})
	}
	if err != nil {
		return err.Error()
	}
	defer db.Close()
	store := sqlstore.New(db.DB, &sqlstore.Options{Logger: slog.New(slog.DiscardHandler),
		OrderLists: strings.HasSuffix(mistake, "lists")})
	if !strings.HasPrefix(mistake, "no tables") {
		err = db.WaitFor(ctx, store.Migrate)
	}
	if err == nil {
		_, order := testdb.Create(t.Context(), store, "key", "kettle")
		err = errors.Join(store.Check(t.Context()), order)
	}
	return strings.ReplaceAll(fmt.Sprintf("%v\n%v\n", log, err), `\"`, `"`)
}

// A waits is a log of which the first line says that the program waits.
type waits struct {
	strings.Builder
	cancel func()
}

func (w *waits) Write(line []byte) (int, error) {
	defer w.cancel()
	return w.Builder.Write(line)
}
