package vitess

import (
	"context"
	"database/sql"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

func TestStore(t *testing.T) {
	c, gate := twoShards(t, 1)
	opts := &sqlstore.Options{
		Accept: func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, _ storefront.Order) error {
			place := sqlstore.Place(key)
			_, err := tx.ExecContext(ctx, "UPDATE stock SET pieces = pieces + 1 WHERE place = ?", []byte{place[0] & 0xf0})
			return err
		},
	}
	for name, dsn := range map[string]string{
		"interpolating": c.Gates[0].DSN(),
		"preparing":     dbserver.Preparing(c.Gates[1].DSN()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("without Accept", func(t *testing.T) {
				testdb.RunSuite(t, testdb.Open(t, "mysql", dsn), nil)
			})
			t.Run("with Accept", func(t *testing.T) {
				d := testdb.Open(t, "mysql", dsn+single)
				d.Pool = gate.Pool // with which the suite may change what is in all shards
				testdb.RunSuite(t, d, opts)
			})
		})
	}
}
