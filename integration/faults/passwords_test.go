package faults

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/internal/must"
)

// TestPasswords exchanges the password in the steps of docs/databases.md, and breaks all connections, so
// that replicas need the password while only the server has the new one.
func TestPasswords(t *testing.T) {
	for _, row := range []struct {
		kind   *dbserver.Kind
		driver string
		url    string // of the address and the file
		file   string // of the password
		setUp  func(t *testing.T, s *dbserver.Server)
		change string // to another password
		kill   string // all connections
	}{
		{dbserver.Postgres, "pgx", "postgres://clerk@%s/postgres?sslmode=disable&passfile=%s", "*:*:*:clerk:%s\n",
			func(t *testing.T, s *dbserver.Server) {
				hba := must.Get(s.Query("SHOW hba_file"))(t)
				execute(t, s, "COPY (SELECT unnest(ARRAY['host all clerk all scram-sha-256', 'host all all all trust'])) TO '"+hba+"'",
					"SELECT pg_reload_conf()", "CREATE ROLE clerk LOGIN PASSWORD 'first'", "GRANT ALL ON SCHEMA public TO clerk")
			},
			"ALTER ROLE clerk PASSWORD '%s'",
			"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'clerk'"},
		{dbserver.MariaDB, "mysql", "mysql://clerk@%s/shop?password_file=%s", "%s\n",
			func(t *testing.T, s *dbserver.Server) {
				execute(t, s, "CREATE USER clerk@'%' IDENTIFIED BY 'first'", "GRANT ALL ON shop.* TO clerk@'%'")
			},
			"SET PASSWORD FOR clerk@'%%' = PASSWORD('%s')",
			"KILL USER clerk"},
	} {
		t.Run(row.kind.Name, func(t *testing.T) {
			f := faulttest.New(t)
			server := row.kind.Start(t)
			row.setUp(t, server)
			file := filepath.Join(t.TempDir(), "password")
			write := func(password string) {
				t.Helper()
				must.OK(t, os.WriteFile(file, fmt.Appendf(nil, row.file, password), 0o600))
			}
			write("first")
			f.Start(1, fmt.Sprintf(row.url, server.Addr(), file))
			f.Run(func() {
				const password = "second"
				execute(t, server, fmt.Sprintf(row.change, password), row.kill)
				f.WaitUntilStuck()
				write(password)
				f.Kills["password"]++
			})
			for status, n := range f.Audit.Result().Statuses {
				switch status {
				case http.StatusCreated, http.StatusServiceUnavailable:
				default:
					t.Errorf("%d answers were %d", n, status)
				}
			}
			f.Check(func() *sql.DB { return dbserver.Open(t, row.driver, server.DSN()) })
		})
	}
}

// execute executes statements on a server.
func execute(t *testing.T, s *dbserver.Server, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := s.Query(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}
