package overload

import (
	"context"
	"database/sql"
	"net/http"
	"path/filepath"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/smalldisk"
	"example.com/storefront/internal/audit"
)

// TestDiskFull fills the disk that a SQLite file is on: first with its log, which
// cannot be emptied as long as there is a reader, then with another file. When the
// reader or the file has gone, all goes on by itself.
func TestDiskFull(t *testing.T) {
	f := faulttest.New(t)
	half := long.Of(3000, 5000) // more than fill the log
	f.Orders = 2 * half
	dir := smalldisk.Folder(t)
	file := filepath.Join(dir, "shop.db")
	f.Start(2, file)
	f.BeginAdmitting()
	const some = 100 // that do not fill the log
	f.Admit(some)
	f.WaitUntilAcknowledged(some)

	read := holdSnapshot(t, file)
	f.Admit(half - some)
	waitUntilRefused(t, f)
	f.Kills["log full"]++
	read()
	f.WaitUntilAcknowledged(f.Admitted)

	f.Admit(some) // which may be under way when the disk is full
	freeDisk := smalldisk.Fill(t, dir, smalldisk.Size)
	f.Admit(half - some) // which are not, however slow that was
	waitUntilRefused(t, f)
	f.Kills["disk full"]++
	f.KillReplica()
	read = holdSnapshot(t, file)
	before := f.Audit.Progress().Acknowledged
	freeDisk()
	f.WaitUntilAcknowledged(before + some)
	read()
	f.End()
	f.Check(func() *sql.DB { return dbserver.Open(t, "sqlite", file) })
}

// waitUntilRefused waits until an order is refused for now.
func waitUntilRefused(t *testing.T, f *faulttest.Test) {
	t.Helper()
	refused := func() int { return f.Audit.Result().Statuses[http.StatusServiceUnavailable] }
	before := refused()
	f.WaitUntil("an order is refused", func(audit.Progress) bool { return refused() > before })
}

// holdSnapshot begins to read the database in a file, and returns a function that
// ends that.
func holdSnapshot(t *testing.T, file string) (end func()) {
	t.Helper()
	tx, err := dbserver.Open(t, "sqlite", file).BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var orders int
	if err := tx.QueryRow("SELECT count(*) FROM storefront_orders").Scan(&orders); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}
