package vitess

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
	"example.com/storefront/internal/must"
)

// TestReshard creates orders while one shard becomes two and, if integration/soak runs it, then four. Each
// time the orders are copied, traffic goes to the new shards, back to the old, and to the new ones again.
// Before, a replica of a later release comes, whose Migrate adds a column, and one of this release starts
// again beside it.
func TestReshard(t *testing.T) {
	f := faulttest.New(t)
	ranges := [][]string{{"0"}, {"-80", "80-"}, {"-40", "40-80", "80-c0", "c0-"}}
	c := cluster.Start(t, 1, ranges[0]...)
	c.ApplyVSchema(t, vschema)
	f.Start(2, c.URL())
	later := faulttest.NewReplica(t, laterRelease(t), c.URL())
	f.Use(append(f.Replicas, later)...)
	steps := []step{
		{"later release", func() {
			later.Start()
			later.WaitUntilServing()
		}},
		{"this one again", f.KillReplica},
	}
	for i, shards := range ranges[1:long.Of(2, 3)] {
		command := func(name string, args ...string) step {
			return step{name, func() { c.Workflow(t, "Reshard", fmt.Sprint("to", len(shards)), name, args...) }}
		}
		steps = append(steps,
			step{"more tablets", func() { c.AddShards(t, shards...) }},
			command("create", "--source-shards", strings.Join(ranges[i], ","),
				"--target-shards", strings.Join(shards, ",")),
			command("switchtraffic"), command("reversetraffic"), command("switchtraffic"),
			command("complete"))
	}
	underLoad(t, f, long.Of(300, 2_000), steps)
	check(t, f, c)
	all := streaming(t, c)
	versions := testdb.Column(t, all,
		"SELECT CONCAT(version, ' ', oldest) FROM storefront_schema ORDER BY version")
	if !slices.Equal(versions, []string{"1 1", "2 1"}) { // what is recorded stays
		t.Errorf("the versions are %v", versions)
	}
	odd := testdb.Column(t, all, "SELECT id FROM storefront_orders WHERE added IS NULL OR added <> 7")
	if len(odd) > 0 {
		t.Errorf("%d orders are without the column of the later release, such as %s", len(odd), odd[0])
	}
}

// laterRelease builds storefrontd as of a release whose tables have one more version and column, which its
// statements do not name, and returns its file.
func laterRelease(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(process.Folder(t), "later")
	const last = "forgotten_ms BIGINT)` + options,\n"
	must.OK(t, process.GoBuildChanged(binary, "shopdb/cmd/storefrontd",
		process.Change{File: "sqlstore/migrate.go", Old: "schemaVersion = 1", New: "schemaVersion = 2"},
		process.Change{File: "sqlstore/mysql.go", Old: last, New: last +
			"`ALTER TABLE storefront_orders ADD COLUMN added BIGINT DEFAULT 7`,\n"}))
	return binary
}
