package vitess

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"example.com/storefront/integration/internal/leak"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
)

// TestMain has the commands of the repository built in its workspace, which this module is not in.
func TestMain(m *testing.M) {
	workspace, err := filepath.Abs("../../go.work")
	if err = errors.Join(err, os.Setenv("GOWORK", workspace)); err != nil {
		panic(err)
	}
	leak.Main(m)
}

// vschema is what an operator applies before the first Migrate.
const vschema = "../../sqlstore/vschema.json"

// ranges are the names of the shards of a keyspace, by how many they are.
var ranges = map[int][]string{1: {"0"}, 2: {"-80", "80-"}, 4: {"-40", "40-80", "80-c0", "c0-"}}

// clusters are those that the tests of this binary share, by the number of shards.
var clusters = make(map[int]*cluster.Cluster)

// A keyspace is a cluster and the store's tables in it.
type keyspace struct {
	*cluster.Cluster
	*testdb.DB // by way of the first vtgate
	shards     int
}

// onShards runs a test on a keyspace of two shards with empty tables or, if integration/soak runs it, also of
// one and of four. Tests that use it run one after the other.
func onShards(t *testing.T, test func(t *testing.T, k keyspace)) {
	counts := []int{2}
	if long.Run() {
		counts = []int{1, 2, 4}
	}
	for _, shards := range counts {
		t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) {
			c := clusters[shards]
			if c != nil {
				c.ShowLogs(t)
			} else { // of one tablet each, which nobody kills
				c = cluster.StartShared(t, cluster.Options{Shards: ranges[shards], Tablets: 1})
				c.ApplyVSchema(t, vschema, "sold_out")
				clusters[shards] = c
			}
			d := testdb.New(t, "mysql", c.Gates[0].DSN())
			d.Clear(t)
			test(t, keyspace{c, d, shards})
		})
	}
}
