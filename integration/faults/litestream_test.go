package faults

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/node"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// TestLitestream has Litestream copy a SQLite file while orders are created, and loses the machine. What
// was copied by then is restored, and serves.
func TestLitestream(t *testing.T) {
	f := faulttest.New(t)
	program := filepath.Join(node.Modules(t), "@flydotio/litestream-linux-x64/litestream")
	if _, err := os.Stat(program); err != nil {
		t.Skip(err) // npm has it for a few platforms
	}
	dir := process.Folder(t)
	file, restored := filepath.Join(dir, "shop.db"), filepath.Join(dir, "restored.db")
	copies := "file://" + filepath.Join(dir, "copies")
	f.Start(1, file)
	litestream := must.Get(process.Start(exec.Command(program, "replicate", file, copies), filepath.Join(dir, "log")))(t)
	t.Cleanup(litestream.Kill)
	f.Run(func() {})
	open := func() *sql.DB { return dbserver.Open(t, "sqlite", restored) }
	process.WaitFor(t, "Litestream has copied all orders", 5*time.Minute, litestream, func() error {
		os.Remove(restored)
		out, err := exec.Command(program, "restore", "-o", restored, copies).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		db := must.Get(sql.Open("sqlite", restored))(t)
		defer db.Close()
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM storefront_orders`).Scan(&n); err != nil || n < f.Orders {
			return fmt.Errorf("%d orders are there, %v", n, err)
		}
		return nil
	})
	f.Replicas[0].Process.Kill()
	litestream.Kill()
	f.Kills["machine"]++
	f.Use(faulttest.StartReplicas(t, process.Storefrontd, 1, restored)...)
	f.Check(open)
}
