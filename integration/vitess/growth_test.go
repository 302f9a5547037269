package vitess

import (
	"fmt"
	"strings"
	"testing"

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
	var steps []step
	for old, shards := 1, 2; shards <= 4; old, shards = shards, 2*shards {
		workflow := fmt.Sprint("to", shards)
		command := func(name string, args ...string) step {
			return step{name, func() { c.Workflow(t, "Reshard", workflow, name, args...) }}
		}
		steps = append(steps,
			step{"more tablets", func() { c.AddShards(t, ranges[shards]...) }},
			command("create", "--source-shards", strings.Join(ranges[old], ","),
				"--target-shards", strings.Join(ranges[shards], ",")),
			command("switchtraffic"), command("reversetraffic"), command("switchtraffic"),
			command("complete"),
			step{"old tablets ended", func() { c.EndShards(t, ranges[shards]) }})
	}
	underLoad(t, f, long.Of(300, 2_000), steps)
	check(t, f, c)
}
