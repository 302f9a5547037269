package clusters

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbproxy"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/sqltap"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// TestEqualServers has HAProxy send each connection to the next of two servers. While Accept takes long,
// each of them may answer the question whether the server is there.
func TestEqualServers(t *testing.T) {
	t.Run("members of a group", func(t *testing.T) {
		long.Test(t)
		g := dbserver.StartMySQLGroup(t, 2, dbserver.MultiPrimary)
		testBehindHAProxy(t, groupDatabases(t, g)[0], g.Hosts()...)
	})
	t.Run("PgBouncers", func(t *testing.T) {
		t.Parallel()
		d := testdb.New(t, "pgx", dbserver.Postgres.Database(t))
		server := hostPort.FindString(d.URL)
		testBehindHAProxy(t, d, dbproxy.PgBouncer(t, server), dbproxy.PgBouncer(t, server))
	})
}

var hostPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// testBehindHAProxy creates orders in the database d by way of the servers.
func testBehindHAProxy(t *testing.T, d *testdb.DB, servers ...string) {
	const timeout = 40 * time.Second
	asked := make(chan struct{}, 100)
	behind := hostPort.ReplaceAllString(d.URL, dbproxy.HAProxy(t, "", servers...))
	db := sqltap.Open(t, d.Driver, behind, func(_ context.Context, s sqltap.Statement, run func() error) error {
		err := run()
		if strings.Contains(s.Query, "pg_postmaster_start_time()") || strings.Contains(s.Query, "@@hostname") {
			asked <- struct{}{}
		}
		return err
	})
	runs := 0
	store := sqlstore.New(db, &sqlstore.Options{Timeout: timeout,
		Accept: func(ctx context.Context, _ *sql.Tx, _ storefront.IdempotencyKey, _ storefront.Order) error {
			runs++
			for range 3 {
				select {
				case <-asked:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}})
	must.OK(t, store.Check(t.Context()))
	for len(asked) > 0 {
		<-asked
	}
	if _, err := testdb.Create(t.Context(), store, "key", "kettle"); err != nil || runs != 1 {
		t.Errorf("CreateOrder returned %v after %d runs of Accept, want one run", err, runs)
	}
	testdb.CheckOrders(t, d, nil, func(string) bool { return false }, false)
}
