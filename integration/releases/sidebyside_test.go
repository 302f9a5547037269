package releases

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
)

// TestReleasesSideBySide has replicas of this release and of a later one, which adds to
// the tables, on one database under orders: the later one comes, this one is started
// again beside it, and the later one is taken back.
func TestReleasesSideBySide(t *testing.T) {
	onDatabases(t, besideLater(t))
}

// TestReleasesSideBySideOnClusters does so on clusters, with another node for each replica.
func TestReleasesSideBySideOnClusters(t *testing.T) {
	long.Test(t)
	test := besideLater(t)
	t.Run("Group Replication", func(t *testing.T) { onGroup(t, dbserver.MultiPrimary, test) })
}

func besideLater(t *testing.T) func(t *testing.T, d *testdb.DB, urls ...string) {
	t.Helper()
	this, later := thisRelease(t), laterRelease(t, 3, 2)
	return func(t *testing.T, d *testdb.DB, urls ...string) {
		e := newExchange(t, d, urls)
		first, second, added := e.add(this), e.add(this), e.add(later)
		both := []*faulttest.Replica{first, second}
		e.run(both, []step{
			{start(added), "3 2"},
			{start(first), "3 2"},
			{added.End, "3 2"},
			{start(second), "3 2"},
		}, both)
	}
}

// TestReleaseCandidateSideBySide begins with replicas of 1.0.0-rc.1. This release changes
// their tables under orders and the later one adds to them, while those replicas are replaced,
// but for one that replays the orders of all in the end. None of them starts again.
func TestReleaseCandidateSideBySide(t *testing.T) {
	long.Test(t)
	candidate, this, later := releaseCandidate(t), thisRelease(t), laterRelease(t, 3, 2)
	test := func(t *testing.T, d *testdb.DB, urls ...string) {
		e := newExchange(t, d, urls)
		old := []*faulttest.Replica{e.add(candidate), e.add(candidate), e.add(candidate)}
		first, second, added := e.add(this), e.add(this), e.add(later)
		e.run(old, []step{
			{start(first), "2 2"},
			{start(added), "3 2"},
			{old[0].End, "3 2"},
			{func() { expectRefusal(t, old[0], "of a later release") }, "3 2"},
			{start(second), "3 2"},
			{added.End, "3 2"},
			{old[1].End, "3 2"},
			{start(first), "3 2"},
			{start(added), "3 2"},
		}, []*faulttest.Replica{old[2], first, second, added})
		if d.Driver == "mysql" {
			expectLogged(t, old[2], "keys are not forgotten")
		}
	}
	onDatabases(t, test)
	// Of several primaries, 1.0.0-rc.1 answers a conflict at the commit with 500.
	t.Run("Group Replication", func(t *testing.T) { onGroup(t, dbserver.SinglePrimary, test) })
}

// A release whose tables this one cannot use says so, and it does not start beside it.
func TestAReleaseWithOtherTablesIsRefused(t *testing.T) {
	later := laterRelease(t, 3, 3)
	onDatabases(t, func(t *testing.T, d *testdb.DB, urls ...string) {
		this := faulttest.StartReplicas(t, process.Durable, 1, urls[0])[0]
		this.End()
		other := faulttest.NewReplica(t, later, urls[0])
		start(other)()
		d.ExpectVersion(t, "3 3")
		expectRefusal(t, this, "releases from version 3 on may use")
		d.ExpectVersion(t, "3 3")
		other.End()
	})
}

// expectRefusal starts a replica on tables that its release may not use, and expects that
// it says so and ends.
func expectRefusal(t *testing.T, r *faulttest.Replica, want string) {
	t.Helper()
	r.Start()
	process.WaitFor(t, "the release is refused", 5*time.Minute, nil, func() error {
		if _, ended := r.Process.HasEnded(); !ended {
			return errors.New("it runs")
		}
		return nil
	})
	if r.Process.State == nil {
		t.Error("beside it, the release ended with status 0")
	}
	expectLogged(t, r, want)
}

func expectLogged(t *testing.T, r *faulttest.Replica, want string) {
	t.Helper()
	text, err := os.ReadFile(r.Log)
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the release logged %q, %v, want %q", text, err, want)
	}
}

// An exchange replaces replicas of one release by those of another under orders.
type exchange struct {
	*faulttest.Test
	t        *testing.T
	database *testdb.DB
	urls     []string // of the database, for the replicas in turn
}

func newExchange(t *testing.T, d *testdb.DB, urls []string) *exchange {
	t.Helper()
	return &exchange{faulttest.New(t), t, d, urls}
}

// add adds a replica of a release, which clients ask, although it is not started yet.
func (e *exchange) add(binary string) *faulttest.Replica {
	e.t.Helper()
	r := faulttest.NewReplica(e.t, binary, e.urls[len(e.Replicas)%len(e.urls)])
	e.Use(append(e.Replicas, r)...)
	return r
}

// A step is a part of an exchange.
type step struct {
	do      func()
	version string // of the tables after it, and the oldest that may use them
}

// start returns what starts a replica, or kills and starts it again, and then waits until
// it serves and so has migrated.
func start(r *faulttest.Replica) func() {
	return func() {
		if r.Process != nil {
			r.Process.Kill()
		}
		r.Start()
		r.WaitUntilServing()
	}
}

// run starts the replicas that there are before, and does the steps under orders. Those that
// are there after the steps are sent all orders again.
func (e *exchange) run(before []*faulttest.Replica, steps []step, after []*faulttest.Replica) {
	e.t.Helper()
	for _, r := range before {
		start(r)()
	}
	batch := long.Of(40, 100)
	e.Orders = batch * (1 + 2*len(steps))
	e.BeginAdmitting()
	e.Admit(batch)
	e.WaitUntilAcknowledged(e.Admitted)
	for _, step := range steps {
		e.Admit(batch) // they are created meanwhile
		step.do()
		e.Kills["exchanged"]++
		e.database.ExpectVersion(e.t, step.version)
		e.Admit(batch) // and after it
		e.WaitUntilAcknowledged(e.Admitted)
	}
	e.End()

	// The keys of each release are remembered for their time, and no longer.
	store := testdb.OpenSuiteStore(e.t, e.database, nil)
	store.Advance(storefront.KeyLifetime - time.Hour)
	e.Use(after...)
	e.Check(func() *sql.DB { return e.database.Pool })
	store.Advance(storefront.KeyLifetime)
	for what, query := range map[string]string{
		"are remembered by a key of more than its time": "SELECT id FROM storefront_orders WHERE key_hash IS NOT NULL",
		"are without the column of the later release":   "SELECT id FROM storefront_orders WHERE added IS NULL OR added <> 7",
	} {
		if odd := testdb.Column(e.t, e.database.Pool, query); len(odd) > 0 {
			e.t.Errorf("%d orders %s, such as %s", len(odd), what, odd[0])
		}
	}
}

// onDatabases runs test on a database without tables of each kind, with the name or URL that
// durable takes for it.
func onDatabases(t *testing.T, test func(t *testing.T, d *testdb.DB, urls ...string)) {
	t.Run("SQLite", func(t *testing.T) {
		file := filepath.Join(process.Folder(t), "shop.db")
		test(t, testdb.Open(t, "sqlite", "file:"+file+"?_pragma=busy_timeout(10000)"), file)
	})
	testdb.OnServersWithoutTables(t, func(t *testing.T, d *testdb.DB) {
		url := d.URL
		if d.Driver == "mysql" {
			url = dbserver.MySQLURL(t, url)
		}
		test(t, d, url)
	})
}

func onGroup(t *testing.T, single bool, test func(t *testing.T, d *testdb.DB, urls ...string)) {
	onNodes(t, dbserver.StartMySQLGroup(t, 3, single).Servers(), "group_replication_consistency='BEFORE'", test)
}

// onNodes runs test on a database without tables of a cluster, with a URL for each node in
// which it comes first.
func onNodes(t *testing.T, nodes []*dbserver.Server, setting string, test func(t *testing.T, d *testdb.DB, urls ...string)) {
	dsn := nodes[0].DSNOf(nodes[0].NewDatabase(t))
	var hosts, urls []string
	for _, node := range nodes {
		hosts = append(hosts, node.Addr())
	}
	for range hosts {
		urls = append(urls, strings.Replace(dbserver.MySQLURL(t, dsn), nodes[0].Addr(), strings.Join(hosts, ","), 1)+"?"+setting)
		hosts = append(hosts[1:], hosts[0])
	}
	test(t, testdb.Open(t, "mysql", dsn+"&"+setting), urls...)
}
