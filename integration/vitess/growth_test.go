package vitess

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/vitess/internal/cluster"
)

// TestReshard creates orders while one shard becomes two and then four. Each time the orders are copied,
// traffic goes to the new shards, back to the old, and to the new ones again.
func TestReshard(t *testing.T) {
	f := faulttest.New(t)
	c := cluster.Start(t, cluster.Options{Shards: ranges[1], Tablets: 1, Gates: 2})
	c.ApplyVSchema(t, vschema)
	f.Start(2, c.URL())
	each := long.Of(100, 2_500)
	f.Orders = 8 * each
	f.Begin()
	acknowledged := func() { f.WaitUntilAcknowledged(f.Audit.Progress().Acknowledged + each) }
	acknowledged()
	for old, shards := 1, 2; shards <= 4; old, shards = shards, 2*shards {
		c.AddShards(t, ranges[shards]...)
		workflow := fmt.Sprint("to", shards)
		c.Reshard(t, workflow, "create", "--source-shards", strings.Join(ranges[old], ","),
			"--target-shards", strings.Join(ranges[shards], ","))
		for _, command := range []string{"switchtraffic", "reversetraffic", "switchtraffic"} {
			c.Reshard(t, workflow, command)
			f.Kills[command]++
			acknowledged()
		}
		c.Reshard(t, workflow, "complete")
		c.EndShards(t, ranges[shards])
	}
	f.End()
	f.Check(func() *sql.DB { return dbserver.Open(t, "mysql", c.Gates[0].DSN()) })
}
