package faults

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/smalldisk"
)

// TestKills kills one of the replicas that share a database, and then a database that is a server. TestAtOnce
// does so at random, and to all databases.
func TestKills(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		f := faulttest.New(t)
		file := filepath.Join(process.Folder(t), "shop.db")
		f.Start(3, file)
		f.Run(f.KillReplica)
		f.Check(func() *sql.DB { return dbserver.Open(t, "sqlite", file) })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		f := faulttest.New(t)
		server := dbserver.Postgres.Start(t)
		f.Start(3, server.DSN())
		f.Run(func() {
			f.KillReplica()
			f.Kills["PostgreSQL"]++
			server.Kill(t)
			server.Start(t)
		})
		f.Check(func() *sql.DB { return dbserver.Open(t, "pgx", server.DSN()) })
	})
}

// A storefrontd that starts on a full disk waits for room: its supervisor starts no process anew that has ended
// with status 2.
func TestStartOnAFullDisk(t *testing.T) {
	dir := smalldisk.Folder(t, 8<<20)
	file := filepath.Join(dir, "shop.db")
	r := faulttest.StartReplicas(t, process.Storefrontd, 1, file)[0]
	r.End()
	freeDisk := smalldisk.Fill(t, dir)
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
