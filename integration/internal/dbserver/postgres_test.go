package dbserver

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"
)

// Postgres18 is of that release.
func TestPostgres18(t *testing.T) {
	db := Open(t, "pgx", Postgres18.Database(t))
	var version string
	if err := db.QueryRow("SHOW server_version").Scan(&version); err != nil || !strings.HasPrefix(version, "18.") {
		t.Errorf("its version is %s, %v", version, err)
	}
}

// A frozen server answers nobody, on a connection that there is or a new one, and goes
// on as if nothing had happened.
func TestPostgresFreezes(t *testing.T) {
	s := StartPostgres(t)
	connect := func() *sql.DB {
		db := Open(t, "pgx", s.DSN())
		db.SetMaxOpenConns(1)
		return db
	}
	known, unknown := connect(), connect()
	if err := known.Ping(); err != nil {
		t.Fatal(err)
	}
	s.Freeze(t)
	for name, db := range map[string]*sql.DB{"known": known, "new": unknown} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // long enough for one that is not frozen
		defer cancel()
		if _, err := db.ExecContext(ctx, "SELECT 1"); err == nil {
			t.Errorf("it answers a %s connection", name)
		}
	}
	s.Thaw(t)
	if one, err := s.Query("SELECT 1"); err != nil || one != "1" {
		t.Errorf("after the thaw: %s, %v, want 1", one, err)
	}
}

func TestPostgresServer(t *testing.T) {
	primary := StartPostgres(t)
	standby := primary.StartStandby(t)
	if _, err := primary.Query("CREATE TABLE kept AS SELECT 1 AS n"); err != nil {
		t.Fatal(err)
	}
	primary.Restart(t)
	if n, err := primary.Query("SELECT n FROM kept"); err != nil || n != "1" {
		t.Errorf("after a restart: %s, %v, want 1", n, err)
	}
	primary.Kill(t)
	standby.Promote(t)
	if n, err := standby.Query("SELECT n FROM kept"); err != nil || n != "1" {
		t.Errorf("on the promoted standby: %s, %v, want 1", n, err)
	}
}
