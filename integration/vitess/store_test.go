package vitess

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

func TestStore(t *testing.T) {
	c, gate := twoShards(t, 1)
	opts := &sqlstore.Options{
		Accept: func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, _ storefront.Order) error {
			place := sqlstore.Place(key)
			const put = "UPDATE stock SET pieces = pieces + 1 WHERE place = ?"
			_, err := tx.ExecContext(ctx, put, []byte{place[0] & 0xf0})
			return err
		},
	}
	for name, dsn := range map[string]string{
		"interpolating": c.Gates[0].DSN(),
		"preparing":     strings.TrimSuffix(c.Gates[1].DSN(), "&interpolateParams=true"),
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

// TestAnOrderTouchesOneShard counts, by vtgate's own counters, the shards that have anything to do with an
// order and with its replay, and that orders are spread over all shards.
func TestAnOrderTouchesOneShard(t *testing.T) {
	c, _ := twoShards(t, 1)
	for name, opts := range map[string]*sqlstore.Options{
		"without Accept": nil,
		"with Accept":    {Accept: takeKettles},
	} {
		t.Run(name, func(t *testing.T) {
			store := testdb.Open(t, "mysql", c.Gates[0].DSN()+single).OpenWith(t, opts)
			create := func(key string) (touched string) {
				var shards []string
				before := c.Gates[0].Calls(t)
				must.Get(testdb.Create(t.Context(), store, key, "kettle"))(t)
				for shard, calls := range c.Gates[0].Calls(t) {
					if calls > before[shard] {
						shards = append(shards, shard)
					}
				}
				slices.Sort(shards)
				return strings.Join(shards, ",")
			}
			create("which opens a connection")
			used := make(map[string]bool)
			for i := range 16 {
				key := fmt.Sprint(name, " ", i)
				first, again := create(key), create(key)
				if strings.Contains(first, ",") || again != first {
					t.Errorf("order %d touches the shards %s, and its replay %s, want one", i, first, again)
				}
				used[first] = true
			}
			if len(used) != 2 {
				t.Errorf("orders are in the shards %v, want both", used)
			}
		})
	}
}
