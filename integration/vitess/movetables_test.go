package vitess

import (
	"encoding/json"
	"errors"
	"fmt"
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
	store, expired := plain.Open(t), time.Now().Add(-storefront.KeyLifetime)
	var widgets []storefront.Resource
	for i := range 20 {
		widgets = append(widgets, storefront.MustResource(fmt.Sprint("widget ", i), nil))
		order := must.Get(testdb.Create(t.Context(), store, fmt.Sprint("old ", i), "kettle"))(t)
		plain.RecordKey(t, order.ID, expired.Add(-time.Hour))
	}
	must.OK(t, store.Widgets.Put(t.Context(), widgets...))
	forgotten := must.Get(store.ForgetKeys(t.Context(), expired))(t)
	storefrontd := must.Get(process.Storefrontd())(t)
	var before, after []*faulttest.Replica
	for range 2 {
		before = append(before, faulttest.NewReplica(t, storefrontd, "mysql://shop@"+server.Addr()+"/shop"))
	}
	c := cluster.Start(t, 1, "-80", "80-")
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
	workflow := func(kind, command string, args ...string) string {
		return c.Workflow(t, kind, "move", command, args...)
	}
	move := func(command string) func() { return func() { workflow("MoveTables", command) } }
	var tables []string
	underLoad(t, f, long.Of(80, 1_000), []step{
		{"vttablet", func() {
			c.AddUnsharded(t, old, server.Addr(), "shop", "vitess", "secret")
			tables = c.ApplyVSchema(t, vschema)
		}},
		{"create", func() {
			workflow("MoveTables", "create", "--source-keyspace", old, "--tables", strings.Join(tables, ","))
		}},
		{"copied", func() {
			process.WaitFor(t, "all is copied, and has its indexes", 10*time.Minute, nil, func() error {
				state := workflow("MoveTables", "show", "--include-logs=false")
				if strings.Count(state, `"state": "Running"`) != 2 {
					return errors.New(state)
				}
				return nil
			})
		}},
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
		{"VDiff", func() {
			workflow("VDiff", "create", "--wait", "--wait-update-interval", "1s")
			var report struct {
				State        string
				RowsCompared int
				HasMismatch  bool
			}
			must.OK(t, json.Unmarshal([]byte(workflow("VDiff", "show", "last", "--format", "json")), &report))
			if report.State != "completed" || report.HasMismatch || report.RowsCompared == 0 {
				t.Errorf("VDiff reports %+v", report)
			}
		}},
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
	deleted := must.Get(gate.Pool.Exec("DELETE FROM `shop[-]`.storefront_orders WHERE key_hash IS NULL AND " +
		"id > '' LIMIT 1000"))(t) // of each shard, as docs/operations.md has it
	if n := must.Get(deleted.RowsAffected())(t); n != forgotten {
		t.Errorf("%d orders whose keys are forgotten were deleted, want %d", n, forgotten)
	}
	f.Use(after...)
	check(t, f, c)
}
