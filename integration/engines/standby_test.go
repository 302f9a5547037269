package engines

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
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
