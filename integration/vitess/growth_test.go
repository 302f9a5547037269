package vitess

import (
	"fmt"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/vitess/internal/cluster"
)

// TestReshard creates orders while one shard becomes two and, if integration/soak runs it, then four. Each
// time the orders are copied, traffic goes to the new shards, back to the old, and to the new ones again.
func TestReshard(t *testing.T) {
	f := faulttest.New(t)
	c := cluster.Start(t, cluster.Options{Shards: ranges[1], Tablets: 1})
	c.ApplyVSchema(t, vschema)
	f.Start(2, c.URL())
	var steps []step
	for old := 1; old < long.Of(2, 4); old *= 2 {
		shards := ranges[2*old]
		command := func(name string, args ...string) step {
			return step{name, func() { c.Workflow(t, "Reshard", fmt.Sprint("from", old), name, args...) }}
		}
		steps = append(steps,
			step{"more tablets", func() { c.AddShards(t, shards...) }},
			command("create", "--source-shards", strings.Join(ranges[old], ","),
				"--target-shards", strings.Join(shards, ",")),
			command("switchtraffic"), command("reversetraffic"), command("switchtraffic"),
			command("complete"))
	}
	underLoad(t, f, long.Of(300, 2_000), steps)
	check(t, f, c)
}
