package vitess

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

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
