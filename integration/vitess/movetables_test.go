package vitess

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/integration/vitess/internal/cluster"
	"example.com/storefront/internal/must"
)

// TestMoveTables creates orders while they move from a MySQL server into a keyspace of two shards. Replicas
// that use vtgate take the place of those that use the server, one of which nobody ends: the server refuses
// its user. Traffic goes to the shards, back to the server, and to the shards again.
func TestMoveTables(t *testing.T) {
	const old = "plain" // the keyspace of the server's database
	f := faulttest.New(t)
	server := dbserver.MySQL.Start(t, "gtid-mode=ON", "enforce-gtid-consistency=ON")
	must.Get(server.Query("CREATE USER vitess@'%' IDENTIFIED BY 'secret'"))(t)
	must.Get(server.Query("GRANT ALL ON *.* TO vitess@'%' WITH GRANT OPTION"))(t)
	plain := testdb.New(t, "mysql", server.DSN())
	forgotten := forgottenOrders(t, plain, 5)
	var widgets []storefront.Resource
	for i := range 20 {
		widgets = append(widgets,
			storefront.MustResource(fmt.Sprint("widget ", i), map[string]int{"number": i}))
	}
	must.OK(t, plain.OpenWith(t, nil).Widgets.Put(t.Context(), widgets...))
	storefrontd := must.Get(process.Storefrontd())(t)
	var before, after []*faulttest.Replica
	for range 2 {
		before = append(before, faulttest.NewReplica(t, storefrontd, "mysql://shop@"+server.Addr()+"/shop"))
	}
	c := cluster.Start(t, cluster.Options{Shards: ranges[2], Tablets: 1, Gates: 2})
	for range 2 {
		after = append(after, faulttest.NewReplica(t, storefrontd, c.URL()))
	}
	f.Use(slices.Concat(before, after)...)
	start := func(r *faulttest.Replica) {
		r.Start()
		r.WaitUntilServing()
	}
	for _, r := range before {
		start(r)
	}
	move := func(command string, args ...string) func() {
		return func() { c.Workflow(t, "MoveTables", "move", command, args...) }
	}
	underLoad(t, f, long.Of(80, 1_000), []step{
		{"vttablet", func() {
			c.AddUnsharded(t, old, cluster.Database{
				Addr: server.Addr(), Name: "shop", User: "vitess", Password: "secret"})
			c.ApplyVSchema(t, vschema)
		}},
		{"create", move("create", "--source-keyspace", old, "--tables", strings.Join(tables(t), ","))},
		{"copied", func() { c.WaitUntilCopied(t, "move") }},
		{"vtgate", func() {
			start(after[0])
			before[0].End()
			start(after[1])
		}},
		{"user refused", func() {
			must.Get(server.Query("ALTER USER shop@'%' ACCOUNT LOCK"))(t)
			ended := testdb.Column(t, plain.Pool, // without the texts of statements, which may be no texts
				"SELECT processlist_id FROM performance_schema.threads WHERE processlist_user = 'shop'")
			for _, id := range ended {
				must.Get(server.Query("KILL " + id))(t)
			}
			if len(ended) == 0 {
				t.Error("no replica uses the server any more, want one")
			}
		}},
		{"VDiff", func() { checkVDiff(t, c, "move") }},
		{"switchtraffic", move("switchtraffic")},
		{"ended", before[1].End},
		{"reversetraffic", move("reversetraffic")},
		{"switchtraffic", move("switchtraffic")},
		{"complete", move("complete")},
	})

	if left := testdb.Column(t, plain.Pool, "SHOW TABLES LIKE 'storefront%'"); len(left) > 0 {
		t.Errorf("the server still has the tables %v", left)
	}
	gate := testdb.Open(t, "mysql", c.Gates[0].DSN())
	gate.ExpectVersion(t, "1 1")
	if n := len(must.Get(gate.Open(t).ListWidgets(t.Context(), "", 100))(t)); n != len(widgets) {
		t.Errorf("there are %d widgets, want %d", n, len(widgets))
	}
	for _, id := range forgotten {
		deleted := must.Get(gate.Pool.Exec("DELETE FROM storefront_orders WHERE id = ?", id))(t)
		if n := must.Get(deleted.RowsAffected())(t); n != 1 {
			t.Errorf("of an order whose key is forgotten, there are %d", n)
		}
	}
	f.Use(after...)
	check(t, f, c)
}

// tables returns the names of the store's tables.
func tables(t *testing.T) (names []string) {
	t.Helper()
	var v cluster.VSchema
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(vschema))(t), &v))
	for name := range v.Tables {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// forgottenOrders creates orders, has their keys be forgotten, and returns their IDs.
func forgottenOrders(t *testing.T, d *testdb.DB, n int) (ids []string) {
	t.Helper()
	store := d.OpenWith(t, nil)
	for i := range n {
		order := must.Get(testdb.Create(t.Context(), store, fmt.Sprint("old ", i), "kettle"))(t)
		d.RecordKey(t, order.ID, time.Now().Add(-storefront.KeyLifetime-time.Hour))
		ids = append(ids, order.ID)
	}
	expired := time.Now().Add(-storefront.KeyLifetime)
	if got := must.Get(store.ForgetKeys(t.Context(), expired))(t); got != int64(n) {
		t.Fatalf("%d keys were forgotten, want %d", got, n)
	}
	return ids
}

// checkVDiff has Vitess compare what a workflow has copied with where it comes from.
func checkVDiff(t *testing.T, c *cluster.Cluster, workflow string) {
	t.Helper()
	vdiff := func(args ...string) string {
		return c.Vtctl(t, append([]string{"VDiff", "--workflow", workflow,
			"--target-keyspace", cluster.Keyspace}, args...)...)
	}
	vdiff("create", "--wait", "--wait-update-interval", "1s")
	var report struct {
		State        string
		RowsCompared int
		HasMismatch  bool
	}
	must.OK(t, json.Unmarshal([]byte(vdiff("show", "last", "--format", "json")), &report))
	if report.State != "completed" || report.HasMismatch || report.RowsCompared == 0 {
		t.Errorf("VDiff reports %+v", report)
	}
}
