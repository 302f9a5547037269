package faults

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/smalldisk"
	"example.com/storefront/internal/audit"
	"example.com/storefront/internal/must"
)

// TestDiskFull fills the disk that a SQLite file is on: first with its log, which
// cannot be emptied as long as there is a reader, then with another file. When the
// reader or the file has gone, all goes on by itself.
func TestDiskFull(t *testing.T) {
	long.Test(t)
	f := faulttest.New(t)
	const half = 3000 // more than fill the log
	f.Orders = 2 * half
	dir := smalldisk.Folder(t)
	file := filepath.Join(dir, "shop.db")
	f.Start(2, file)
	f.BeginAdmitting()
	const some = 100 // that do not fill the log
	f.Admit(some)
	f.WaitUntilAcknowledged(some)

	read := holdSnapshot(t, file)
	before := refused(f)
	f.Admit(half - some)
	f.WaitUntil("an order is refused", func(audit.Progress) bool { return refused(f) > before })
	f.Kills["log full"]++
	read()
	f.WaitUntilAcknowledged(f.Admitted)

	f.Admit(some) // which may be under way when the disk is full
	before = refused(f)
	freeDisk := smalldisk.Fill(t, dir, smalldisk.Size)
	// What the log gives back is filled, too.
	for refused(f) == before && f.Admitted < f.Orders-some {
		f.Admit(some)
		f.WaitUntil("an order is refused, or all are there", func(p audit.Progress) bool {
			return refused(f) > before || p.Acknowledged == f.Admitted
		})
		freeDisk = smalldisk.Fill(t, dir, smalldisk.Size)
	}
	if refused(f) == before {
		t.Error("no order is refused although the disk is full")
	}
	f.Kills["disk full"]++
	f.Admit(f.Orders - f.Admitted)
	f.KillReplica()
	read = holdSnapshot(t, file)
	before = f.Audit.Progress().Acknowledged
	freeDisk()
	f.WaitUntilAcknowledged(before + some)
	read()
	f.End()
	f.Check(func() *sql.DB { return dbserver.Open(t, "sqlite", file) })
}

// refused returns how many orders were refused for now.
func refused(f *faulttest.Test) int { return f.Audit.Result().Statuses[http.StatusServiceUnavailable] }

// holdSnapshot begins to read the database in a file, and returns a function that
// ends that.
func holdSnapshot(t *testing.T, file string) (end func()) {
	t.Helper()
	tx := must.Get(dbserver.Open(t, "sqlite", file).BeginTx(context.Background(), nil))(t)
	var orders int
	must.OK(t, tx.QueryRow("SELECT count(*) FROM storefront_orders").Scan(&orders))
	return func() {
		t.Helper()
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// A storefrontd that starts on a full disk waits for room: its supervisor starts no process anew that has ended
// with status 2.
func TestStartOnAFullDisk(t *testing.T) {
	dir := smalldisk.FolderOf(t, 8<<20)
	file := filepath.Join(dir, "shop.db")
	r := faulttest.StartReplicas(t, process.Storefrontd, 1, file)[0]
	r.End()
	freeDisk := smalldisk.Fill(t, dir, 8<<20)
	r.Start()
	process.WaitFor(t, "a line of the log", 5*time.Minute, r.Process, func() error {
		if log := process.LogTail(r.Log); !strings.Contains(log, "waiting for the database") {
			return errors.New(log)
		}
		return nil
	})
	freeDisk()
	r.WaitUntilServing()
	r.End()
}
