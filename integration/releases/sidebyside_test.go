package releases

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
)

// TestReleasesSideBySide has replicas of this release and of a later one, which adds to
// the tables, on one database under orders: the later one comes, this one is started
// again beside it, and the later one is taken back.
func TestReleasesSideBySide(t *testing.T) {
	onDatabases(t, besideLater(t))
}

// TestReleasesSideBySideOnClusters does so on a group, with another member for each replica.
func TestReleasesSideBySideOnClusters(t *testing.T) {
	long.Test(t)
	onGroup(t, dbserver.MultiPrimary, besideLater(t))
}

func besideLater(t *testing.T) func(t *testing.T, d *testdb.DB, urls ...string) {
	t.Helper()
	this, later := thisRelease(t), laterRelease(t, 2, 1)
	return func(t *testing.T, d *testdb.DB, urls ...string) {
		e := &exchange{faulttest.New(t), t, d, urls}
		first, second, added := e.add(this), e.add(this), e.add(later)
		both := []*faulttest.Replica{first, second}
		e.run(both, []step{
			{start(added), "2 1"},
			{start(first), "2 1"},
			{added.End, "2 1"},
			{start(second), "2 1"},
		}, both)
	}
}

// A release whose tables this one cannot use says so, and it does not start beside it.
func TestAReleaseWithOtherTablesIsRefused(t *testing.T) {
	later := laterRelease(t, 2, 2)
	onDatabases(t, func(t *testing.T, d *testdb.DB, urls ...string) {
		this := faulttest.StartReplicas(t, process.Storefrontd, 1, urls[0])[0]
		this.End()
		other := faulttest.NewReplica(t, later, urls[0])
		start(other)()
		d.ExpectVersion(t, "2 2")
		expectRefusal(t, this, "releases from version 2 on may use")
		d.ExpectVersion(t, "2 2")
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
	for what, where := range map[string]string{
		"are remembered by a key of more than its time": "key_hash IS NOT NULL",
		"are without the column of the later release":   "added IS NULL OR added <> 7",
	} {
		odd := testdb.Column(e.t, e.database.Pool, "SELECT id FROM storefront_orders WHERE "+where)
		if len(odd) > 0 {
			e.t.Errorf("%d orders %s, such as %s", len(odd), what, odd[0])
		}
	}
}

// thisRelease builds storefrontd as it is, and returns its file.
func thisRelease(t *testing.T) string {
	t.Helper()
	binary := must.Get(process.Storefrontd())(t)
	return binary
}

// laterRelease builds storefrontd as of a release whose tables have a version and a column
// more, which its statements do not name, and returns its file.
func laterRelease(t *testing.T, version, oldest int) string {
	t.Helper()
	// added is the code of a statement of the schema that makes the column.
	added := func(table, exists string) string {
		return "`ALTER TABLE " + table + " ADD COLUMN " + exists + " added BIGINT DEFAULT 7`,\n"
	}
	const mySQLSchema = "forgotten_ms BIGINT)` + options,\n"
	own := regexp.MustCompile(`schema: (ownSchema\((?:.*,\n)?.*\)),\n`)
	with := func(file, added string) process.Change {
		schema := own.FindStringSubmatch(read(t, filepath.Join(root, file)))
		return process.Change{File: file, Old: schema[0], New: "schema: append(" + schema[1] + ",\n" + added + "),\n"}
	}
	binary := filepath.Join(process.Folder(t), "later")
	err := process.GoBuildChanged(binary, "shopdb/cmd/storefrontd", []process.Change{
		{File: "sqlstore/migrate.go", Old: "schemaVersion = 1", New: "schemaVersion = " + strconv.Itoa(version)},
		{File: "sqlstore/migrate.go", Old: "schemaOldest = 1", New: "schemaOldest = " + strconv.Itoa(oldest)},
		{File: "sqlstore/mysql.go", Old: mySQLSchema, New: mySQLSchema + added("storefront_orders", "")},
		with("sqlstore/sqlite.go", added("main.storefront_orders", "")),
		with("sqlstore/postgres.go", added("`+p+`storefront_orders", "IF NOT EXISTS")),
	}...)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// onDatabases runs test on a database without tables of each kind, with the name or URL that
// storefrontd takes for it.
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

// onGroup runs test on a database without tables of a group of MySQL servers, with a URL for
// each member in which it comes first.
func onGroup(t *testing.T, single bool, test func(t *testing.T, d *testdb.DB, urls ...string)) {
	t.Run("Group Replication", func(t *testing.T) {
		const setting = "group_replication_consistency='BEFORE'"
		g := dbserver.StartMySQLGroup(t, 3, single)
		dsn := g.Members[0].DSNOf(g.NewDatabase(t))
		hosts, first := g.Hosts(), g.Members[0].Addr()
		var urls []string
		for range hosts {
			url := strings.Replace(dbserver.MySQLURL(t, dsn), first, strings.Join(hosts, ","), 1)
			urls = append(urls, url+"?"+setting)
			hosts = append(hosts[1:], hosts[0])
		}
		test(t, testdb.Open(t, "mysql", dsn+"&"+setting), urls...)
	})
}
