package integration

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestReleasesSideBySide has replicas of this release and of a later one, which adds to
// the tables, on one database under orders: the later one comes, this one is started
// again beside it, and the later one is taken back.
func TestReleasesSideBySide(t *testing.T) {
	later := laterRelease(t, 3, 2)
	onDurableDatabases(t, func(t *testing.T, d *sqlDatabase, url string) {
		f := newFaultTest(t)
		f.start(2, url)
		added := newReplica(t, later, url)
		f.urls = append(f.urls, added.url) // at which there is no answer yet
		f.replicas = append(f.replicas, added)
		restart := func(r *replica) {
			t.Helper()
			r.process.kill()
			r.start()
			r.waitUntilServing() // it has migrated
		}
		const batch = 150
		steps := []struct {
			do      func()
			version string
		}{
			{func() {}, "2 2"},
			{func() { added.start(); added.waitUntilServing() }, "3 2"},
			{func() { restart(f.replicas[0]) }, "3 2"},
			{added.end, "3 2"},
			{func() { restart(f.replicas[1]) }, "3 2"},
		}
		f.orders = 2 * batch * len(steps)
		f.admitted = make(chan struct{}, f.orders)
		admit := func() {
			for range batch {
				f.admitted <- struct{}{}
			}
		}
		f.begin()
		for i, step := range steps {
			admit() // they are created meanwhile
			step.do()
			d.expectVersion(t, step.version)
			admit() // and after it
			f.waitUntilAcknowledged(2 * batch * (i + 1))
		}
		f.end()

		f.replicas = f.replicas[:2]
		f.urls = f.urls[:2]
		f.audit.URLs = f.urls
		f.check(func() *sql.DB { return d.db })
		if odd := column(t, d.db, "SELECT id FROM storefront_orders WHERE added IS NULL OR added <> 7"); len(odd) > 0 {
			t.Errorf("%d orders are without the column of the later release, such as %s", len(odd), odd[0])
		}
	})
}

// A release whose tables this one cannot use says so, and it does not start beside it.
func TestAReleaseWithOtherTablesIsRefused(t *testing.T) {
	later := laterRelease(t, 3, 3)
	onDurableDatabases(t, func(t *testing.T, d *sqlDatabase, url string) {
		this := startReplicas(t, durableBinary, 1, url)[0]
		this.end()
		other := newReplica(t, later, url)
		other.start()
		other.waitUntilServing()
		d.expectVersion(t, "3 3")
		this.start()
		<-this.process.ended
		text, err := os.ReadFile(this.log)
		if want := "releases from version 3 on may use"; this.process.state == nil || err != nil || !strings.Contains(string(text), want) {
			t.Errorf("beside it, this release ended with %v and logged %q, %v, want %q", this.process.state, text, err, want)
		}
		this.process = nil
		d.expectVersion(t, "3 3")
		other.end()
	})
}

// onDurableDatabases runs test on a database without tables of each kind, with what
// durable takes for it.
func onDurableDatabases(t *testing.T, test func(t *testing.T, d *sqlDatabase, url string)) {
	t.Run("SQLite", func(t *testing.T) {
		file := filepath.Join(workFolder(t), "shop.db")
		test(t, openSQLDatabase(t, "sqlite", "file:"+file+"?_pragma=busy_timeout(10000)"), file)
	})
	onServersWithoutTables(t, func(t *testing.T, d *sqlDatabase) {
		url := d.url
		if d.driver == "mysql" {
			url = mySQLURL(t, url)
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
	dir := workFolder(t)
	for file, changes := range map[string][]string{
		"migrate.go": {
			"	schemaVersion = 2\n", fmt.Sprintf("	schemaVersion = %d\n", version),
			"	schemaOldest  = 2\n", fmt.Sprintf("	schemaOldest  = %d\n", oldest),
		},
		"engine.go": {
			"`ALTER TABLE `+p+`storefront_schema ADD COLUMN IF NOT EXISTS oldest BIGINT`,\n",
			"`ALTER TABLE `+p+`storefront_schema ADD COLUMN IF NOT EXISTS oldest BIGINT`,\n`ALTER TABLE `+p+`" + strings.Replace(column, "COLUMN", "COLUMN IF NOT EXISTS", 1) + "\n",
			"`ALTER TABLE storefront_schema ADD COLUMN oldest BIGINT`,\n",
			"`ALTER TABLE storefront_schema ADD COLUMN oldest BIGINT`,\n`ALTER TABLE " + column + "\n",
		},
	} {
		original, err := filepath.Abs(filepath.Join("..", "sqlstore", file))
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
	g, err := theProcessGroup()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "later")
	build := exec.Command("go", "build", "-overlay", list, "-o", binary, "example.com/storefront/durable")
	build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.id} // see binaryOf
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	return binary
}
