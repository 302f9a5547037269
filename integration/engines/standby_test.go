package engines

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// When PostgreSQL is told to end a statement whose commit waits for a synchronous standby, it commits without,
// and answers with success and a warning. A driver may pass that on, however late, and another primary has no
// such order: it is acknowledged, as new or as a replay, only once the standby has it.
func TestNoOrderIsAcknowledgedWithoutItsStandby(t *testing.T) {
	server := dbserver.Postgres.Start(t)
	d := testdb.New(t, "pgx", server.DSN())
	server.CommitWith(t, "away")
	t.Run("away", func(t *testing.T) {
		for _, driver := range []string{"pgx", "postgres"} {
			for name, accept := range map[string]testdb.Accept{
				"without Accept": nil,
				"with Accept": func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error {
					return nil
				},
			} {
				t.Run(driver+", "+name, func(t *testing.T) {
					t.Parallel()
					store := testdb.OpenBy(t, "pgx", d.URL, driver).OpenWith(t, &sqlstore.Options{
						Accept: accept, Timeout: 4 * time.Second})
					prefix := rand.Text()
					for range 2 { // new, and those that have been committed as replays
						var calls sync.WaitGroup
						for i := range 24 { // more than there are connections, so that some give theirs to others
							calls.Go(func() {
								key := fmt.Sprint(prefix, i)
								got, err := testdb.Create(t.Context(), store, key, key)
								if !errors.Is(err, storefront.ErrUnavailable) {
									t.Errorf("CreateOrder returned %v, %v", got, err)
								}
							})
						}
						calls.Wait()
					}
				})
			}
		}
	})
	// The drivers have cancelled the waits, which lets the primary commit without the standby.
	stored := testdb.StoredOrders(t, d.Pool)
	if len(stored) == 0 {
		t.Fatal("no order has been committed, so this test shows nothing of replays")
	}
	server.CommitWith(t, "")
	key := stored[0].Item
	if again, err := testdb.Create(t.Context(), d.Open(t), key, key); err != nil || !again.Equal(stored[0]) {
		t.Errorf("when there is no standby to wait for, the replay is %v, %v, want %v", again, err, stored[0])
	}
}
