package vitess

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// TestAnOrderTouchesOneShard counts, by vtgate's own counters, the shards that have anything to do with an
// order, with its replay and with another order of its key, and that orders are spread over all shards.
func TestAnOrderTouchesOneShard(t *testing.T) {
	onShards(t, func(t *testing.T, k keyspace) {
		k.makeSoldOut(t)
		for name, opts := range map[string]*sqlstore.Options{
			"without Accept": nil,
			"with Accept":    {Accept: unlessSoldOut},
		} {
			t.Run(name, func(t *testing.T) {
				store := testdb.Open(t, "mysql", k.Gates[0].DSN()+single).OpenWith(t, opts)
				touched := func(what string, f func()) string {
					before := k.Gates[0].Calls(t)
					f()
					shards := make(map[string]bool)
					calls := 0
					for call, n := range k.Gates[0].Calls(t) {
						if n > before[call] {
							calls += n - before[call]
							_, shard, _ := strings.Cut(call, " ")
							shards[shard] = true
						}
					}
					var list []string
					for shard := range shards {
						list = append(list, shard)
					}
					slices.Sort(list)
					t.Logf("%s: %d calls to %v", what, calls, list)
					return strings.Join(list, ", ")
				}
				create := func(i int, key, item string, want error) func() {
					return func() {
						if _, err := testdb.Create(t.Context(), store, key, item); !errors.Is(err, want) {
							t.Errorf("order %d: %v, want %v", i, err, want)
						}
					}
				}
				create(0, "which opens a connection", "kettle", nil)()
				used := make(map[string]bool)
				for i := range 8 * k.shards {
					key := fmt.Sprint(name, " ", i)
					first := touched("an order", create(i, key, "kettle", nil))
					again := touched("its replay", create(i, key, "kettle", nil))
					if strings.Contains(first, ",") || again != first {
						t.Errorf("order %d touches the shards %s, and its replay %s, want one",
							i, first, again)
					}
					used[first] = true
				}
				if len(used) != k.shards {
					t.Errorf("orders are in the shards %v, want all %d", used, k.shards)
				}
			})
		}
	})
}
