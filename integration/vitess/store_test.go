package vitess

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
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
						return refusingStore{testdb.NewSuiteStore(t, d, opts, contents), k, t}
					})
				})
			})
		}
	})
}

// single is for data source names of stores with Accept: a transaction must stay in one shard.
const single = "&transaction_mode=%27SINGLE%27"

// placed says of a table that its column place chooses the shard.
const placed = `{"column_vindexes": [{"column": "place", "name": "binary"}]}`

// makeSoldOut makes a table of items that are sold out. As Accept must find them in the shard of the order,
// each has a row for each of 16 places, which are in any of up to 16 shards.
func (k keyspace) makeSoldOut(t *testing.T) {
	t.Helper()
	k.AddTables(t, map[string]string{"sold_out": placed})
	k.Exec(t, "CREATE TABLE IF NOT EXISTS sold_out (place BINARY(1) NOT NULL, item VARCHAR(255) NOT NULL, "+
		"PRIMARY KEY (place, item))")
}

// shelf returns the place, of 16, that is in the same shard as the order of a key.
func shelf(key storefront.IdempotencyKey) []byte {
	place := sqlstore.Place(key)
	return []byte{place[0] & 0xf0}
}

// unlessSoldOut is an Accept.
func unlessSoldOut(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey,
	order storefront.Order) error {
	var gone int
	err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sold_out WHERE place = ? AND item = ?",
		shelf(key), order.Item).Scan(&gone)
	if err == nil && gone > 0 {
		return new(testdb.SoldOut)
	}
	return err
}

// A refusingStore is a testdb.RefusingStore whose table sold_out is in all shards.
type refusingStore struct {
	*testdb.SuiteStore
	k keyspace
	t *testing.T
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

// Advance is that of SuiteStore, but that the keys may be in all shards.
func (s refusingStore) Advance(d time.Duration) {
	s.t.Helper()
	s.k.Exec(s.t, fmt.Sprintf("UPDATE storefront_orders SET keyed_ms = keyed_ms - %d", d.Milliseconds()))
	s.k.Exec(s.t, testdb.ForgetPlace)
	must.Get(s.ForgetKeys(s.t.Context(), time.Now().Add(-storefront.KeyLifetime)))(s.t)
}

func (s refusingStore) Reopen(t *testing.T) storefront.Store {
	t.Helper()
	return refusingStore{s.Reopened(t), s.k, t}
}
