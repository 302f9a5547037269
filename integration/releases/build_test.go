package releases

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
)

// thisRelease builds durable as it is, and returns its file.
func thisRelease(t *testing.T) string {
	t.Helper()
	binary, err := process.Durable()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// laterRelease builds durable as of a release whose tables have a version and a column
// more, which its statements do not name, and returns its file.
func laterRelease(t *testing.T, version, oldest int) string {
	t.Helper()
	const (
		portable = "storefront_schema ADD COLUMN oldest BIGINT`,\n"
		postgres = "storefront_schema ADD COLUMN IF NOT EXISTS oldest BIGINT`,\n"
	)
	binary := filepath.Join(process.Folder(t), "later")
	err := process.GoBuildChanged(binary, "durable",
		process.Change{File: "sqlstore/migrate.go", Old: "schemaVersion = 2", New: fmt.Sprintf("schemaVersion = %d", version)},
		process.Change{File: "sqlstore/migrate.go", Old: "schemaOldest = 2", New: fmt.Sprintf("schemaOldest = %d", oldest)},
		process.Change{File: "sqlstore/sqlite.go", Old: portable, New: portable + "`ALTER TABLE storefront_orders ADD COLUMN added BIGINT DEFAULT 7`,\n"},
		process.Change{File: "sqlstore/mysql.go", Old: portable, New: portable + "`ALTER TABLE storefront_orders ADD COLUMN added BIGINT DEFAULT 7`,\n"},
		process.Change{File: "sqlstore/postgres.go", Old: postgres, New: postgres + "`ALTER TABLE `+p+`storefront_orders ADD COLUMN IF NOT EXISTS added BIGINT DEFAULT 7`,\n"},
	)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// releaseCandidate builds durable as of 1.0.0-rc.1, but for how often it forgets keys, and
// returns its file. It skips the test where the history of the repository is not there.
func releaseCandidate(t *testing.T) string {
	t.Helper()
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", "../.."}, args...)...).Output()
		if err != nil {
			need.Missing(t, need.Tools, fmt.Errorf("the history, which has 1.0.0-rc.1, is not there: git %s: %w", args[0], err))
		}
		return string(bytes.TrimSpace(out))
	}
	commit := git("log", "-1", "--format=%H", "--", "testdata/release/1.0.0-rc.1/shop.json") // that recorded it
	if commit == "" || git("rev-parse", "--is-shallow-repository") != "false" {
		need.Missing(t, need.Tools, "the history ends before 1.0.0-rc.1")
	}
	dir := process.Folder(t)
	archive := filepath.Join(dir, "rc1.zip")
	git("archive", "--format=zip", "-o", archive, commit)
	files, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	source, binary := filepath.Join(dir, "source"), filepath.Join(dir, "rc1")
	if err := os.CopyFS(source, files); err != nil {
		t.Fatal(err)
	}
	// It forgets keys ten times a second in place of once an hour.
	program := filepath.Join(source, "integration/durable/main.go")
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	often := bytes.Replace(text, []byte("NewTicker(time.Hour)"), []byte("NewTicker(time.Second / 10)"), 1)
	if bytes.Equal(often, text) {
		t.Fatal("1.0.0-rc.1 forgets keys in another way than this edit knows")
	}
	if err := os.WriteFile(program, often, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := process.GoBuild(binary, "integration/durable", "-C", filepath.Join(source, "integration")); err != nil {
		t.Fatal(err)
	}
	return binary
}
