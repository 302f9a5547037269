package releases

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	later := laterRelease(t, 3, 2)
	onDurableDatabases(t, func(t *testing.T, d *testdb.DB, url string) {
		f := faulttest.New(t)
		f.Start(2, url)
		added := faulttest.NewReplica(t, later, url)
		f.URLs = append(f.URLs, added.URL) // at which there is no answer yet
		f.Replicas = append(f.Replicas, added)
		restart := func(r *faulttest.Replica) {
			t.Helper()
			r.Process.Kill()
			r.Start()
			r.WaitUntilServing() // it has migrated
		}
		batch := long.Of(40, 150)
		steps := []struct {
			do      func()
			version string
		}{
			{func() {}, "2 2"},
			{func() { added.Start(); added.WaitUntilServing() }, "3 2"},
			{func() { restart(f.Replicas[0]) }, "3 2"},
			{added.End, "3 2"},
			{func() { restart(f.Replicas[1]) }, "3 2"},
		}
		f.Orders = 2 * batch * len(steps)
		f.Admitted = make(chan struct{}, f.Orders)
		admit := func() {
			for range batch {
				f.Admitted <- struct{}{}
			}
		}
		f.Begin()
		for i, step := range steps {
			admit() // they are created meanwhile
			step.do()
			d.ExpectVersion(t, step.version)
			admit() // and after it
			f.WaitUntilAcknowledged(2 * batch * (i + 1))
		}
		f.End()

		f.Replicas = f.Replicas[:2]
		f.URLs = f.URLs[:2]
		f.Audit.Config.URLs = f.URLs
		f.Check(func() *sql.DB { return d.Pool })
		if odd := testdb.Column(t, d.Pool, "SELECT id FROM storefront_orders WHERE added IS NULL OR added <> 7"); len(odd) > 0 {
			t.Errorf("%d orders are without the column of the later release, such as %s", len(odd), odd[0])
		}
	})
}

// A release whose tables this one cannot use says so, and it does not start beside it.
func TestAReleaseWithOtherTablesIsRefused(t *testing.T) {
	later := laterRelease(t, 3, 3)
	onDurableDatabases(t, func(t *testing.T, d *testdb.DB, url string) {
		this := faulttest.StartReplicas(t, process.Durable, 1, url)[0]
		this.End()
		other := faulttest.NewReplica(t, later, url)
		other.Start()
		other.WaitUntilServing()
		d.ExpectVersion(t, "3 3")
		this.Start()
		<-this.Process.Ended
		text, err := os.ReadFile(this.Log)
		if want := "releases from version 3 on may use"; this.Process.State == nil || err != nil || !strings.Contains(string(text), want) {
			t.Errorf("beside it, this release ended with %v and logged %q, %v, want %q", this.Process.State, text, err, want)
		}
		this.Process = nil
		d.ExpectVersion(t, "3 3")
		other.End()
	})
}

// onDurableDatabases runs test on a database without tables of each kind, with what
// durable takes for it.
func onDurableDatabases(t *testing.T, test func(t *testing.T, d *testdb.DB, url string)) {
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

// laterRelease builds durable as of a release whose tables have a version and a column
// more, which its statements do not name, and returns its file.
func laterRelease(t *testing.T, version, oldest int) string {
	t.Helper()
	const column = "storefront_orders ADD COLUMN added BIGINT DEFAULT 7`,"
	replaced := make(map[string]string)
	dir := process.Folder(t)
	for file, changes := range map[string][]string{
		"migrate.go": {
			"schemaVersion = 2", fmt.Sprintf("schemaVersion = %d", version),
			"schemaOldest = 2", fmt.Sprintf("schemaOldest = %d", oldest),
		},
		"engine.go": {
			"`ALTER TABLE `+p+`storefront_schema ADD COLUMN IF NOT EXISTS oldest BIGINT`,\n",
			"`ALTER TABLE `+p+`storefront_schema ADD COLUMN IF NOT EXISTS oldest BIGINT`,\n`ALTER TABLE `+p+`" + strings.Replace(column, "COLUMN", "COLUMN IF NOT EXISTS", 1) + "\n",
			"`ALTER TABLE storefront_schema ADD COLUMN oldest BIGINT`,\n",
			"`ALTER TABLE storefront_schema ADD COLUMN oldest BIGINT`,\n`ALTER TABLE " + column + "\n",
		},
	} {
		original, err := filepath.Abs(filepath.Join("../..", "sqlstore", file))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		source := string(text)
		for change := range slices.Chunk(changes, 2) {
			if !strings.Contains(source, change[0]) {
				t.Fatalf("%s does not have %q, so this makes no later release of it", file, change[0])
			}
			source = strings.ReplaceAll(source, change[0], change[1])
		}
		replaced[original] = filepath.Join(dir, file)
		if err := os.WriteFile(replaced[original], []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "later")
	if err := process.GoBuild(binary, "durable", "-overlay", list); err != nil {
		t.Fatal(err)
	}
	return binary
}
