package dbserver

import (
	"database/sql"
	"testing"
)

func TestMySQLServer(t *testing.T) {
	for _, k := range []*Kind{MariaDB, MySQL} {
		t.Run(k.Name, func(t *testing.T) {
			s := k.Start(t)
			if _, err := s.Query("CREATE TABLE kept AS SELECT 1 AS n"); err != nil {
				t.Fatal(err)
			}
			s.Restart(t)
			if n, err := s.Query("SELECT n FROM kept"); err != nil || n != "1" {
				t.Errorf("after a restart: %s, %v, want 1", n, err)
			}
		})
	}
}

// A database is dropped although its test has left connections and transactions open.
func TestMySQLDatabaseIsDropped(t *testing.T) {
	for _, k := range []*Kind{MariaDB, MySQL} {
		t.Run(k.Name, func(t *testing.T) {
			k.installation(t)
			var databases []string
			for name, variant := range map[string]func(dsn string) string{
				"interpolating": Interpolating,
				"preparing":     Preparing,
			} {
				t.Run(name, func(t *testing.T) {
					var db *sql.DB
					var tx *sql.Tx
					t.Cleanup(func() { // after the database is dropped
						if tx != nil {
							tx.Rollback()
						}
						if db != nil {
							db.Close()
						}
					})
					dsn := variant(k.Database(t))
					var err error
					if db, err = sql.Open("mysql", dsn); err != nil {
						t.Fatal(err)
					}
					if _, err := db.Exec("CREATE TABLE numbers (n BIGINT)"); err != nil {
						t.Fatal(err)
					}
					if tx, err = db.Begin(); err != nil {
						t.Fatal(err)
					}
					if _, err := tx.Exec("INSERT INTO numbers VALUES (?)", 1); err != nil {
						t.Fatal(err)
					}
					var database string
					if err := tx.QueryRow("SELECT database()").Scan(&database); err != nil {
						t.Fatal(err)
					}
					databases = append(databases, database)
				})
			}
			s, err := k.sharedInMemory()
			if err != nil {
				t.Fatal(err)
			}
			for _, database := range databases {
				if left, err := s.Query("SHOW DATABASES LIKE '" + database + "'"); err != nil || left != "" {
					t.Errorf("of %s is left %q, %v", database, left, err)
				}
			}
		})
	}
}
