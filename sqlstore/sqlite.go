package sqlstore

import (
	"context"
	"database/sql"
	"strings"
)

func detectSQLite(_ context.Context, _ *sql.Conn, _ string, err error) (*engine, error) {
	if err == nil || !strings.Contains(err.Error(), "no such function") {
		return nil, nil
	}
	return sqlite(), nil
}

// sqlite returns the engine of SQLite.
func sqlite() *engine {
	const now = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`
	e := &engine{
		// SQLite adds no column with a computed default to a table that has rows.
		schema: append(tables("", ""),
			`ALTER TABLE storefront_orders ADD COLUMN keyed_ms BIGINT`,
			`CREATE INDEX IF NOT EXISTS storefront_orders_keyed ON storefront_orders (keyed_ms) WHERE key_hash IS NOT NULL`,
			`DROP INDEX IF EXISTS storefront_orders_keys`,
			`ALTER TABLE storefront_schema ADD COLUMN oldest BIGINT`,
		),
		columns: `SELECT m.name, c.name, CASE m.type WHEN 'table' THEN '' ELSE 'not a table of ' END || c.type FROM sqlite_master AS m, pragma_table_info(m.name) AS c
			WHERE m.type IN ('table', 'view') AND m.name LIKE 'storefront_%'`,
		tables: ownTables("bytea", "text", "text", "bytea", "bytea"),
		// With a bare $2, SQLite would plan the query anew whenever a value is bound.
		users:   `SELECT id, body FROM storefront_users WHERE id > $1 ORDER BY id LIMIT +$2`,
		product: `SELECT id, body FROM storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM storefront_widgets WHERE id >= $1 ORDER BY id LIMIT +$2`,
		replace: ` ON CONFLICT (id) DO UPDATE SET body = excluded.body`,
		keyed:   now,
		// An order that SQLite shows is on the disk.
		orderOf: `SELECT id, item, qty, created_ms, fingerprint FROM storefront_orders WHERE key_hash = $1`,
		date: `UPDATE storefront_orders SET keyed_ms = ` + now + ` WHERE id IN (
			SELECT id FROM storefront_orders WHERE key_hash IS NOT NULL AND keyed_ms IS NULL LIMIT $1)`,
		forget:    forgetKeys(""),
		now:       `SELECT ` + now,
		commits:   1,
		oneWriter: true,
		prepares:  true,
	}
	e.insert = e.insertOrders(1) + ` ON CONFLICT (key_hash) DO NOTHING`
	return e
}

// noCode is codeClass of SQLite, whose drivers have no common type of error.
func noCode(error) (class, bool) { return final, false }

// sqliteTexts has the texts of sqlite3_errstr, which all drivers use.
var sqliteTexts = []textClass{
	{"SQL statements in progress", final},   // a savepoint whose rows Options.Accept has left open, also SQLITE_BUSY
	{"duplicate column name", exists},       // ADD COLUMN knows no IF NOT EXISTS
	{"database is locked", passing},         // SQLITE_BUSY
	{"database table is locked", passing},   // SQLITE_LOCKED
	{"database or disk is full", passing},   // SQLITE_FULL
	{"unable to open database file", lost},  // SQLITE_CANTOPEN
	{"UNIQUE constraint failed", duplicate}, // SQLITE_CONSTRAINT_UNIQUE
}
