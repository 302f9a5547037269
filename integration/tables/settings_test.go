package tables

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// TestSettingsThatKeepNoPromiseAreRefused has every first call name the setting.
func TestSettingsThatKeepNoPromiseAreRefused(t *testing.T) {
	for _, test := range []struct {
		name    string
		driver  string
		url     func(testing.TB) string
		setting string // of the connection, as in its URL
		want    string
	}{
		{"MariaDB, another charset", "mysql", dbserver.MariaDB.Database, "charset=latin1", "character_set_client"},
		{"MariaDB, another charset of results", "mysql", dbserver.MariaDB.Database, "character_set_results=latin1", "character_set_results"},
		{"MySQL, another charset", "mysql", dbserver.MySQL.Database, "charset=latin1", "character_set_client"},
		{"MySQL, half of UTF-8", "mysql", dbserver.MySQL.Database, "charset=utf8mb3", "character_set_client"},
		{"MariaDB, reads of what is rolled back", "mysql", dbserver.MariaDB.Database, "tx_isolation=%27READ-UNCOMMITTED%27", "READ UNCOMMITTED"},
		{"MySQL, reads of what is rolled back", "mysql", dbserver.MySQL.Database, "transaction_isolation=%27READ-UNCOMMITTED%27", "READ UNCOMMITTED"},
		{"SQLite, reads of what is rolled back", "sqlite", testdb.SQLiteFile, "cache=shared&_pragma=read_uncommitted(1)", "read_uncommitted"},
		{"PostgreSQL, texts of another encoding", "pgx", dbserver.Postgres.Database, "client_encoding=LATIN1", "client_encoding"},
		{"PostgreSQL, bytes as text", "pgx", dbserver.Postgres.Database, "bytea_output=escape&default_query_exec_mode=simple_protocol", "bytea_output"},
		{"PostgreSQL 18, bytes as text", "pgx", dbserver.Postgres18.Database, "bytea_output=escape&default_query_exec_mode=simple_protocol", "bytea_output"},
		// A driver that reads bytes as they are does not mind how they would be as text.
		{"PostgreSQL, bytes as text that nobody reads", "pgx", dbserver.Postgres.Database, "bytea_output=escape", ""},
		{"PostgreSQL, no schema", "pgx", dbserver.Postgres.Database, "search_path=nowhere", "search_path"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := testdb.New(t, test.driver, test.url(t))
			db := testdb.Open(t, test.driver, d.URL+"&"+test.setting).Pool
			store := func() *sqlstore.Store { return sqlstore.New(db, nil) }
			for call, f := range map[string]func() error{
				"CreateOrder": func() error { _, err := testdb.Create(t.Context(), store(), "key", "kettle"); return err },
				"GetProduct":  func() error { _, err := store().GetProduct(t.Context(), "kettle"); return err },
				"Put":         func() error { return store().Users.Put(t.Context(), storefront.MustResource("ada", nil)) },
				"Migrate":     func() error { return store().Migrate(t.Context()) },
				"Check":       func() error { return store().Check(t.Context()) },
				"ForgetKeys":  func() error { _, err := store().ForgetKeys(t.Context(), time.Time{}); return err },
			} {
				err := f()
				if test.want == "" && (err == nil || errors.Is(err, storefront.ErrNotFound)) {
					continue
				}
				if err == nil || test.want == "" || !strings.Contains(err.Error(), test.want) || errors.Is(err, storefront.ErrUnavailable) {
					t.Errorf("%s returned %v, want an error that names %q", call, err, test.want)
				}
			}
			if orders := testdb.StoredOrders(t, d.Pool); len(orders) > 0 && test.want != "" {
				t.Errorf("created: %v", orders)
			}
		})
	}
}

// A statement that a server warns of may fail on a later release of it.
func TestServerWarnsOfNothing(t *testing.T) {
	for _, k := range []*dbserver.Kind{dbserver.MariaDB, dbserver.MySQL} {
		t.Run(k.Name, func(t *testing.T) {
			d := testdb.New(t, "mysql", k.Database(t))
			db := d.Connect(t)
			db.SetMaxOpenConns(1) // warnings are of the connection's last statement
			store := sqlstore.New(db, nil)
			for name, call := range map[string]func() error{
				"Put":         func() error { return store.Users.Put(t.Context(), storefront.MustResource("ada", nil)) },
				"Delete":      func() error { return store.Users.Delete(t.Context(), "ada") },
				"CreateOrder": func() error { _, err := testdb.Create(t.Context(), store, "key", "kettle"); return err },
				"a replay":    func() error { _, err := testdb.Create(t.Context(), store, "key", "kettle"); return err },
			} {
				if err := call(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if warnings := lines(t, db, "SHOW WARNINGS"); warnings != "" {
					t.Errorf("after %s, the server warns: %s", name, warnings)
				}
			}
		})
	}
}
