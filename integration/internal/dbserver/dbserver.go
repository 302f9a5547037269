// Package dbserver starts the databases that tests need: PostgreSQL and pairs of it,
// MariaDB and Galera clusters of it, MySQL and groups of it. Each test binary has servers
// of its own, which end with it.
package dbserver

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
)

func Open(t *testing.T, driver, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// A notInstalled says what a test would need.
type notInstalled string

func (n notInstalled) Error() string { return string(n) }

// NewDatabaseName returns a name for a database that this test binary is given once.
func NewDatabaseName() string { return fmt.Sprintf("test%d", databases.Add(1)) }

var databases atomic.Int64
