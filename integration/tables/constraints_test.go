package tables

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// An alteration is what an operator, or a restore, has done to the tables.
type alteration struct {
	by   string // statements
	want string // in the error of each first call, or "" if the store works as before
	undo string // a statement, or "" if the error has it
}

var alterations = map[string][]alteration{
	"sqlite": {
		{"ALTER TABLE storefront_users RENAME TO gone; CREATE TABLE storefront_users (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL)",
			`its column id is "text", not "bytea": SQLite changes no type, so copy the rows into a table whose column is id BYTEA NOT NULL`,
			"DROP TABLE storefront_users; ALTER TABLE gone RENAME TO storefront_users"},
		{"DROP TABLE storefront_orders; CREATE TABLE storefront_orders (id TEXT NOT NULL PRIMARY KEY, item TEXT NOT NULL, " +
			"qty BIGINT NOT NULL, created_ms BIGINT NOT NULL, scope BYTEA NOT NULL, key_hash BYTEA, key_fingerprint BYTEA, keyed_ms BIGINT, fields TEXT)",
			"storefront_orders has no unique constraint on key_hash alone", ""},
		{"DROP INDEX storefront_orders_key_hash; " +
			"CREATE UNIQUE INDEX part ON storefront_orders (key_hash) WHERE key_hash IS NOT NULL AND qty > 1",
			"storefront_orders has no unique constraint on key_hash alone", ""},
	},
	"pgx": {
		{"ALTER TABLE storefront_orders ALTER fields DROP DEFAULT, ALTER fields DROP NOT NULL, ALTER fields TYPE JSONB " +
			"USING CAST(NULLIF(fields, '') AS JSONB)", `its column fields is "jsonb", not "text"`, ""},
		{"ALTER TABLE storefront_products ALTER id TYPE TEXT", `its column id is "text", not "bytea"`, ""},
		{"ALTER TABLE storefront_orders RENAME TO gone; CREATE TABLE storefront_orders (LIKE gone, PRIMARY KEY (id)) " +
			"PARTITION BY HASH (id); CREATE TABLE orders_0 PARTITION OF storefront_orders FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
			"storefront_orders is partitioned by HASH (id), so it can have no unique constraint on key_hash alone",
			"DROP TABLE storefront_orders; ALTER TABLE gone RENAME TO storefront_orders"},
		{"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'storefront_orders_key_hash'::regclass",
			"storefront_orders has no unique constraint on key_hash alone", ""},
		{"DROP INDEX storefront_orders_key_hash; CREATE UNIQUE INDEX part ON storefront_orders (key_hash) " +
			"WHERE key_hash IS NOT NULL AND qty > 1; " +
			"CREATE UNIQUE INDEX two ON storefront_orders (key_hash, qty); ALTER TABLE storefront_orders ADD UNIQUE (key_hash) DEFERRABLE",
			"storefront_orders has no unique constraint on key_hash alone", ""},
		{"ALTER TABLE storefront_orders DROP CONSTRAINT storefront_orders_pkey", "storefront_orders has no unique constraint on id alone", ""},
		{"ALTER TABLE storefront_orders SET UNLOGGED", "storefront_orders is unlogged", ""},
		{"CREATE TABLE heir () INHERITS (storefront_orders)", "storefront_orders has tables that inherit from it",
			"DROP TABLE heir"},
		{"CREATE RULE noted AS ON INSERT TO storefront_orders DO ALSO NOTHING", "storefront_orders has a rule", ""},
		{allEmit + "'REVOKE EXECUTE ON FUNCTION ' || oid::regprocedure || ' FROM PUBLIC'" + ofAll +
			"; GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk; SET ROLE clerk", "",
			"RESET ROLE; " + allEmit + "'GRANT EXECUTE ON FUNCTION ' || oid::regprocedure || ' TO PUBLIC'" + ofAll},
		{"ALTER TABLE storefront_orders ENABLE ROW LEVEL SECURITY; GRANT SELECT ON pg_class TO PUBLIC; SET ROLE clerk",
			"storefront_orders hides rows by row security", "RESET ROLE; ALTER TABLE storefront_orders DISABLE ROW LEVEL SECURITY"},
		{"DROP TABLE storefront_users; CREATE TABLE storefront_users (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL) " +
			"PARTITION BY HASH (id); CREATE TABLE users_0 PARTITION OF storefront_users FOR VALUES WITH (MODULUS 1, REMAINDER 0)", "", ""},
		{"ALTER TABLE users_0 SET UNLOGGED", "storefront_users is unlogged", ""},
	},
	"mysql": {
		{"ALTER TABLE storefront_orders MODIFY fields LONGTEXT NULL; UPDATE storefront_orders SET fields = NULL WHERE fields = ''; " +
			"ALTER TABLE storefront_orders MODIFY fields MEDIUMTEXT", `its column fields is "mediumtext", not "longtext"`, ""},
		{"ALTER TABLE storefront_orders MODIFY key_hash VARBINARY(32)", `its column key_hash is "varbinary", not "binary"`, ""},
		{"ALTER TABLE storefront_orders DROP INDEX key_hash", "storefront_orders has no unique constraint on key_hash alone", ""},
		{"ALTER TABLE storefront_orders DROP INDEX storefront_orders_key_hash, ADD UNIQUE (key_hash(16)), ADD UNIQUE (key_hash, qty)",
			"storefront_orders has no unique constraint on key_hash alone", ""},
		{"ALTER TABLE storefront_replays ENGINE = MyISAM", "storefront_replays is of MyISAM, which has no transactions", ""},
		{"ALTER TABLE storefront_orders MODIFY item TEXT CHARACTER SET latin1 NOT NULL", `its column item is "text in latin1"`,
			"ALTER TABLE storefront_orders MODIFY item TEXT NOT NULL"},
		{"ALTER TABLE storefront_orders DROP INDEX storefront_orders_key_hash, DROP INDEX key_hash, DROP INDEX key_hash_2; " +
			"ALTER TABLE storefront_orders PARTITION BY KEY (id) PARTITIONS 2",
			"storefront_orders is partitioned, so it can have no unique constraint on key_hash alone", ""},
		{"ALTER TABLE storefront_products PARTITION BY KEY (id) PARTITIONS 2", "", ""},
	},
}

// What is between them is executed for each pg_logical_emit_message.
const (
	allEmit = "DO $$ BEGIN EXECUTE (SELECT string_agg("
	ofAll   = ", ';') FROM pg_proc WHERE proname = 'pg_logical_emit_message');END $$"
)

// everywhere are those of all databases.
var everywhere = []alteration{
	{"ALTER TABLE storefront_orders ADD COLUMN shop INT DEFAULT 1; CREATE INDEX by_time ON storefront_orders (created_ms)", "", ""},
	{"ALTER TABLE storefront_orders RENAME TO gone", "not storefront_orders: rename it back or restore it",
		"ALTER TABLE gone RENAME TO storefront_orders"},
	{"ALTER TABLE storefront_orders RENAME TO gone; CREATE VIEW storefront_orders AS SELECT * FROM gone", "it is no table, but a view",
		"DROP VIEW storefront_orders; ALTER TABLE gone RENAME TO storefront_orders"},
}

// TestTablesWithoutAPromiseAreRefused has every first call name what is missing, and how to mend it.
func TestTablesWithoutAPromiseAreRefused(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		d.Pool.SetMaxOpenConns(1) // which keeps its role
		if d.Driver == "pgx" {
			d.Exec(t, "CREATE ROLE clerk")
			t.Cleanup(func() { d.Exec(t, "DROP OWNED BY clerk", "DROP ROLE clerk") })
		}
		store := func() *sqlstore.Store { return sqlstore.New(d.Pool, nil) }
		for _, a := range append(alterations[d.Driver], everywhere...) {
			d.Exec(t, strings.Split(a.by, "; ")...)
			_, order := testdb.Create(t.Context(), store(), "key", "kettle")
			check := store().Check(t.Context())
			if a.want != "" {
				for call, err := range map[string]error{"CreateOrder": order, "Check": check} {
					if err == nil || !strings.Contains(err.Error(), a.want) || errors.Is(err, storefront.ErrUnavailable) {
						t.Errorf("after %s, %s returned %v, want an error that says %q", a.by, call, err, a.want)
					}
				}
				statement := regexp.MustCompile(`(CREATE|ALTER|DROP) .*`).FindString(fmt.Sprint(order))
				switch err := store().Migrate(t.Context()); {
				case err == nil || !strings.Contains(err.Error(), a.want):
					t.Errorf("after %s, Migrate returned %v", a.by, err)
				case a.undo != "":
					statement = a.undo
				}
				if statement != "" {
					d.Exec(t, strings.Split(statement, "; ")...)
				}
				_, order = testdb.Create(t.Context(), store(), "key", "kettle")
				check = store().Check(t.Context())
			} else if a.undo != "" {
				d.Exec(t, a.undo)
			}
			if err := errors.Join(order, check); err != nil {
				t.Errorf("after %s, and what undoes it, the store returns %v", a.by, err)
			}
		}
	})
}
