package vitess

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/leak"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
	"example.com/storefront/integration/vitess/internal/stock"
)

// TestMain has the commands of the repository built in its workspace, which this module is not in.
func TestMain(m *testing.M) {
	workspace, err := filepath.Abs("../../go.work")
	if err = errors.Join(err, os.Setenv("GOWORK", workspace)); err != nil {
		panic(err)
	}
	leak.Main(m)
}

// twoShards starts a cluster of two shards with so many tablets each, and makes the store's tables and those
// of stock.
func twoShards(t *testing.T, tablets int) (*cluster.Cluster, *testdb.DB) {
	t.Helper()
	c := cluster.Start(t, tablets, "-80", "80-")
	c.ApplyVSchema(t, vschema, "stock", "outbox")
	gate := testdb.New(t, "mysql", c.Gates[0].DSN())
	gate.Exec(t, stock.Tables...)
	for place := range places {
		gate.Exec(t, fmt.Sprintf("INSERT INTO stock (place, item, pieces) VALUES (x'%X0', 'kettle', %d)",
			place, pieces))
	}
	return c, gate
}

const (
	// vschema is what an operator applies before the first Migrate.
	vschema = "../../sqlstore/vschema.json"

	// single is for data source names of stores with Accept: a transaction must stay in one shard.
	single = "&transaction_mode=%27SINGLE%27"

	places, pieces = 16, 1_000_000 // of the one item that is in stock, at each place
)

// takeKettles is an Accept that takes an order's pieces of that item, under whatever name it is ordered.
func takeKettles(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, o storefront.Order) error {
	o.Item = "kettle"
	return stock.Accept(ctx, tx, key, o)
}
