package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// postgreSQL returns the engine for the tables in a schema, whose name is quoted.
func postgreSQL(schema string) *engine {
	p := schema + "."
	const now = `CAST(floor(extract(epoch FROM now()) * 1000) AS BIGINT)`
	e := &engine{
		schema: append(tables(p, ` DEFAULT `+now),
			// All rows that are there get the same default, which PostgreSQL keeps with the
			// column: it writes no row.
			`ALTER TABLE `+p+`storefront_orders ADD COLUMN IF NOT EXISTS keyed_ms BIGINT DEFAULT `+now,
			`CREATE INDEX IF NOT EXISTS storefront_orders_keyed ON `+p+`storefront_orders (keyed_ms) WHERE key_hash IS NOT NULL`,
			`DROP INDEX IF EXISTS `+p+`storefront_orders_keys`, // of version 1
			`ALTER TABLE `+p+`storefront_schema ADD COLUMN IF NOT EXISTS oldest BIGINT`,
		),
		// information_schema shows neither materialized views and sequences nor the tables
		// of others that this role may not use.
		columns: `SELECT c.relname, a.attname, CASE WHEN c.relkind IN ('r', 'p') THEN '' ELSE 'not a table of ' END || format_type(a.atttypid, NULL)
			FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_attribute AS a ON a.attrelid = c.oid
			WHERE n.nspname = current_schema() AND c.relname LIKE 'storefront_%' AND a.attnum > 0 AND NOT a.attisdropped`,
		tables:  ownTables("bytea", "text", "text", "bytea", "bytea"),
		prefix:  p,
		users:   `SELECT id, body FROM ` + p + `storefront_users WHERE id > $1 ORDER BY id LIMIT $2`,
		product: `SELECT id, body FROM ` + p + `storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM ` + p + `storefront_widgets WHERE id >= $1 ORDER BY id LIMIT $2`,
		replace: ` ON CONFLICT (id) DO UPDATE SET body = excluded.body`,
		// A mere read would see an order whose connection was lost while its commit waited
		// for a synchronous standby. A fail-over may still lose that order, and a replay
		// would promise that it is kept. The lock is a write, whose commit waits for all
		// commits before it. An UPDATE would do as well, but runs triggers and leaves dead
		// rows.
		orderOf:     `SELECT id, item, qty, created_ms, fingerprint FROM ` + p + `storefront_orders WHERE key_hash = $1 FOR NO KEY UPDATE`,
		unlessTaken: ` ON CONFLICT (key_hash) DO NOTHING RETURNING key_hash`,
		forget:      forgetKeys(p),
		now:         `SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)`,
		write:       `SELECT pg_logical_emit_message(true, 'storefront', '')`,
		server:      `SELECT CAST(pg_postmaster_start_time() AS TEXT)`,
		commits:     4, // one round trip and flush each; more are slower than more orders in each
	}
	e.insert = e.insertOrders(1) + ` ON CONFLICT (key_hash) DO NOTHING`
	return e
}

func detectPostgreSQL(ctx context.Context, conn *sql.Conn) (*engine, error) {
	var schema sql.NullString
	if err := conn.QueryRowContext(ctx, `SELECT quote_ident(current_schema())`).Scan(&schema); err != nil {
		return nil, err
	}
	if !schema.Valid {
		return nil, errors.New("sqlstore: no schema of search_path is there")
	}
	// If the server sends bytes in a text form that the driver does not decode, a key is not
	// the key that was stored.
	var backslash []byte
	err := conn.QueryRowContext(ctx, `SELECT CAST('\x5c' AS BYTEA)`).Scan(&backslash)
	if err != nil && (transient(err) || ctx.Err() != nil) {
		return nil, err
	}
	if err != nil || !bytes.Equal(backslash, []byte(`\`)) {
		return nil, fmt.Errorf("sqlstore: a byte comes back as %q (%v): a driver that reads text needs bytea_output = hex", backslash, err)
	}
	return postgreSQL(schema.String), nil
}

// sqlState returns the SQLSTATE of an error, or "" if it has none. The errors of
// the PostgreSQL drivers (pgx, lib/pq) have this method.
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}
