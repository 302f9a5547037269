package commits

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/sqlstore"
)

// The store gives up a connection by returning driver.ErrBadConn from Raw. The
// documentation of sqlstore relies on this where it tells pgx's ways to a sql.DB apart.
func TestGivingUpAConnectionEndsItsSession(t *testing.T) {
	server := dbserver.StartPostgres(t)
	for _, row := range []struct {
		name string
		open func(t *testing.T) *sql.DB // with one connection
		ends bool
	}{
		{"with sql.Open", func(t *testing.T) *sql.DB {
			db, err := sql.Open("pgx", server.DSN())
			if err != nil {
				t.Fatal(err)
			}
			db.SetMaxOpenConns(1)
			return db
		}, true},
		{"but not with OpenDBFromPool", func(t *testing.T) *sql.DB {
			config, err := pgxpool.ParseConfig(server.DSN())
			if err != nil {
				t.Fatal(err)
			}
			config.MaxConns = 1
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			return stdlib.OpenDBFromPool(pool)
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			db := row.open(t)
			t.Cleanup(func() { db.Close() })
			session := func() (pid int) {
				t.Helper()
				if err := db.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
					t.Fatal(err)
				}
				return pid
			}
			first := session()
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conn.Raw(func(any) error { return driver.ErrBadConn })
			if second := session(); (second != first) != row.ends {
				t.Errorf("after session %d was given up, the next connection has session %d", first, second)
			}
			if !row.ends {
				return
			}
			process.WaitFor(t, "the session ends", 30*time.Second, server.Process, func() error {
				var n int
				if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, first).Scan(&n); err != nil || n == 0 {
					return err
				}
				return fmt.Errorf("session %d is still there", first)
			})

			// As those that are connected to a primary that has become a standby.
			if err := sqlstore.New(db, nil).Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), `SET default_transaction_read_only = on`); err != nil {
				t.Fatal(err)
			}
			_, err = sqlstore.New(db, &sqlstore.Options{Timeout: 30 * time.Second}).CreateOrder(t.Context(), storefront.IdempotencyKey{Value: row.name}, storefront.Order{ID: row.name, Item: "teapot", Qty: 1, CreatedAt: time.UnixMilli(0).UTC()})
			if err != nil {
				t.Errorf("an order over a session that is read-only: %v; want that another session creates it", err)
			}
		})
	}
}
