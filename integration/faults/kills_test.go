package faults

import (
	"database/sql"
	"path/filepath"
	"testing"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
)

// TestReplicaKills kills replicas that share a PostgreSQL.
func TestReplicaKills(t *testing.T) {
	long.Test(t)
	f := faulttest.New(t)
	server := dbserver.StartPostgres(t)
	f.Start(3, server.DSN())
	f.Run(f.KillReplica)
	f.Check(func() *sql.DB { return dbserver.Open(t, "pgx", server.DSN()) })
}

// TestPostgresKills kills the PostgreSQL that replicas share.
func TestPostgresKills(t *testing.T) {
	f := faulttest.New(t)
	server := dbserver.StartPostgres(t)
	f.Start(3, server.DSN())
	f.Run(func() {
		f.Kills["PostgreSQL"]++
		server.Restart(t)
	})
	f.Check(func() *sql.DB { return dbserver.Open(t, "pgx", server.DSN()) })
}

// TestMySQLKills kills the MariaDB or MySQL that replicas share.
func TestMySQLKills(t *testing.T) {
	for _, k := range []*dbserver.Kind{dbserver.MariaDB, dbserver.MySQL} {
		t.Run(k.Name, func(t *testing.T) {
			long.Test(t)
			f := faulttest.New(t)
			server := k.Start(t)
			f.Start(3, dbserver.MySQLURL(t, server.DSN()))
			f.Orders = 400
			f.Run(func() {
				f.Kills[k.Name]++
				server.Restart(t)
			})
			f.Check(func() *sql.DB { return dbserver.Open(t, "mysql", server.DSN()) })
		})
	}
}

// TestSQLiteKills kills a server that keeps a SQLite file.
func TestSQLiteKills(t *testing.T) {
	long.Test(t)
	testSQLiteKills(t, 1)
}

// TestSQLiteReplicaKills kills replicas that share a SQLite file.
func TestSQLiteReplicaKills(t *testing.T) { testSQLiteKills(t, 3) }

func testSQLiteKills(t *testing.T, replicas int) {
	f := faulttest.New(t)
	file := filepath.Join(process.Folder(t), "shop.db")
	f.Start(replicas, file)
	f.Run(f.KillReplica)
	f.Check(func() *sql.DB { return dbserver.Open(t, "sqlite", file) })
}
