package faults

import (
	"database/sql"
	"path/filepath"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/process"
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
