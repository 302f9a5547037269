package vitess

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
	"example.com/storefront/storetest"
)

func TestStore(t *testing.T) {
	onShards(t, func(t *testing.T, k keyspace) {
		k.makeSoldOut(t)
		for name, dsn := range map[string]string{
			"interpolating": k.Gates[0].DSN(),
			"preparing":     dbserver.Preparing(k.Gates[1].DSN()),
		} {
			t.Run(name, func(t *testing.T) {
				t.Run("without Accept", func(t *testing.T) {
					testdb.RunSuite(t, testdb.Open(t, "mysql", dsn))
				})
				t.Run("with Accept", func(t *testing.T) {
					d := testdb.Open(t, "mysql", dsn+single)
					d.Pool = k.Pool // with which the suite may change what is in all shards
					storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
						opts := &sqlstore.Options{Accept: unlessSoldOut}
						return refusingStore{testdb.NewSuiteStore(t, d, opts, contents), k}
					})
				})
			})
		}
	})
}

// TestAcceptStaysInItsShard has Accept write to another shard than that of the order: neither is there.
func TestAcceptStaysInItsShard(t *testing.T) {
	onShards(t, func(t *testing.T, k keyspace) {
		k.makeSoldOut(t)
		accept := func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, _ storefront.Order) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO sold_out (place, item) VALUES (?, 'elsewhere')",
				[]byte{sqlstore.Place(key)[0] ^ 0x80})
			return err
		}
		d := testdb.Open(t, "mysql", k.Gates[0].DSN()+single)
		store := d.OpenWith(t, &sqlstore.Options{Accept: accept, Timeout: time.Second})
		for _, key := range []string{"a", "b", "c"} {
			if o, err := testdb.Create(t.Context(), store, key, "kettle"); err == nil && k.shards > 1 {
				t.Errorf("with Accept in two shards, the order %v was created", o)
			}
		}
		orders := len(testdb.StoredOrders(t, k.Pool))
		written := len(testdb.Column(t, k.Pool, "SELECT item FROM sold_out WHERE item = 'elsewhere'"))
		if orders+written > 0 && k.shards > 1 {
			t.Errorf("there are %d orders, and %d rows that Accept has written", orders, written)
		}
	})
}

// single is for data source names of stores with Accept: a transaction must stay in one shard.
const single = "&transaction_mode=%27SINGLE%27"

// makeSoldOut makes a table of items that are sold out. As Accept must find them in the shard of the order,
// each has a row for each of 16 places, which are in any of up to 16 shards.
func (k keyspace) makeSoldOut(t *testing.T) {
	t.Helper()
	k.Exec(t, "CREATE TABLE IF NOT EXISTS sold_out (place BINARY(1) NOT NULL, item VARCHAR(255) NOT NULL, "+
		"PRIMARY KEY (place, item))")
}

// unlessSoldOut is an Accept.
func unlessSoldOut(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey,
	order storefront.Order) error {
	var gone int
	place := sqlstore.Place(key)
	err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sold_out WHERE place = ? AND item = ?",
		[]byte{place[0] & 0xf0}, order.Item).Scan(&gone)
	if err == nil && gone > 0 {
		return new(testdb.SoldOut)
	}
	return err
}

// A refusingStore is a testdb.RefusingStore whose table sold_out is in all shards.
type refusingStore struct {
	*testdb.SuiteStore
	k keyspace
}

var _ storetest.Refuser = refusingStore{}

func (s refusingStore) SellOut(ctx context.Context, item string) (storefront.Refusal, error) {
	for place := 0; place < 256; place += 16 {
		if _, err := s.k.Pool.ExecContext(ctx, "INSERT INTO sold_out (place, item) VALUES (?, ?) "+
			"ON DUPLICATE KEY UPDATE item = VALUES(item)", []byte{byte(place)}, item); err != nil {
			return testdb.SoldOut, err
		}
	}
	return testdb.SoldOut, nil
}

func (s refusingStore) Restock(ctx context.Context, item string) error {
	_, err := s.k.Pool.ExecContext(ctx, "DELETE FROM sold_out WHERE item = ?", item)
	return err
}

func (s refusingStore) Reopen(t *testing.T) storefront.Store {
	t.Helper()
	return refusingStore{s.Reopened(t), s.k}
}
