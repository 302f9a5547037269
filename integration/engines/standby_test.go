package engines

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/internal/orderid"
	"example.com/storefront/sqlstore"
)

// When PostgreSQL is told to end a statement whose commit waits for a synchronous standby, it commits without,
// and answers with success and a warning. A driver may pass that on, however late, and another primary has no
// such order.
func TestNoOrderIsAcknowledgedWithoutItsStandby(t *testing.T) {
	server := dbserver.Postgres.Start(t)
	d := testdb.New(t, "pgx", server.DSN())
	d.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'away'", "SELECT pg_reload_conf()")
	for _, driver := range []string{"pgx", "postgres"} {
		for name, accept := range map[string]testdb.Accept{
			"without Accept": nil,
			"with Accept":    func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error { return nil },
		} {
			t.Run(driver+", "+name, func(t *testing.T) {
				t.Parallel()
				store := testdb.OpenBy(t, "pgx", d.URL, driver).OpenWith(t, &sqlstore.Options{
					Accept: accept, Timeout: 4 * time.Second})
				var calls sync.WaitGroup
				for range 24 { // more than there are connections, so that some give theirs to others
					calls.Go(func() {
						key := storefront.IdempotencyKey{Value: rand.Text()}
						got, err := store.CreateOrder(t.Context(), key,
							storefront.Order{ID: orderid.New(time.Now()), Item: "teapot", Qty: 1, CreatedAt: time.Now()})
						if !errors.Is(err, storefront.ErrUnavailable) {
							t.Errorf("CreateOrder returned %v, %v", got, err)
						}
					})
				}
				calls.Wait()
			})
		}
	}
}

// The second server of a URL is an older copy that takes writes, as one that was restored.
func TestOlderCopyIsTold(t *testing.T) {
	server, copied := dbserver.Postgres.Start(t), dbserver.Postgres.Start(t)
	testdb.New(t, "pgx", server.DSN())
	testdb.New(t, "pgx", copied.DSN())
	db := dbserver.Open(t, "pgx", dbserver.PostgresURL("postgres", server.Addr(), copied.Addr()))
	var log strings.Builder
	store := sqlstore.New(db, &sqlstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	order := must.Get(testdb.Create(t.Context(), store, "before", "kettle"))(t)
	must.OK(t, store.Check(t.Context()))
	server.Kill(t)
	must.Get(testdb.Create(t.Context(), store, "after", "kettle"))(t)
	if !strings.Contains(log.String(), order.ID) {
		t.Errorf("the log is %q, want the order %s named", log.String(), order.ID)
	}
}
