package vitess

import (
	"path/filepath"
	"slices"
	"testing"

	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
	"example.com/storefront/internal/must"
)

// TestReleasesSideBySide has replicas of this release and of a later one, whose Migrate adds a column on all
// shards, under orders: the later one comes, this one is started again beside it, and the later one is taken
// back.
func TestReleasesSideBySide(t *testing.T) {
	f := faulttest.New(t)
	c := cluster.Start(t, cluster.Options{Shards: ranges[2], Tablets: 1})
	c.ApplyVSchema(t, vschema)
	gate := testdb.Open(t, "mysql", c.Gates[0].DSN())
	storefrontd := must.Get(process.Storefrontd())(t)
	first := faulttest.NewReplica(t, storefrontd, c.URL())
	second := faulttest.NewReplica(t, storefrontd, c.URL())
	later := faulttest.NewReplica(t, laterRelease(t), c.URL())
	start := func(r *faulttest.Replica, versions ...string) func() {
		return func() {
			if r.Process != nil {
				r.Process.Kill()
			}
			r.Start()
			r.WaitUntilServing()
			got := testdb.Column(t, gate.Pool,
				"SELECT CONCAT(version, ' ', oldest) FROM storefront_schema ORDER BY version")
			if !slices.Equal(got, versions) {
				t.Errorf("the versions are %v, want %v", got, versions)
			}
		}
	}
	start(first, "1 1")()
	start(second, "1 1")()
	f.Use(first, second, later)
	underLoad(t, f, long.Of(80, 1_000), []step{ // what is recorded stays
		{"later release", start(later, "1 1", "2 1")},
		{"this one again", start(first, "1 1", "2 1")},
		{"later one again", start(later, "1 1", "2 1")},
		{"taken back", later.End},
		{"this one again", start(second, "1 1", "2 1")},
	})
	odd := testdb.Column(t, gate.Pool, "SELECT id FROM storefront_orders WHERE added IS NULL OR added <> 7")
	if len(odd) > 0 {
		t.Errorf("%d orders are without the column of the later release, such as %s", len(odd), odd[0])
	}
	f.Use(first, second)
	check(t, f, c)
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
