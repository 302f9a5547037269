package sqlstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"example.com/storefront/internal/watchdog"
)

// postgreSQL is the engine of PostgreSQL.
type postgreSQL struct{ statements }

// newPostgreSQL returns the engine for the tables in a schema, whose name is quoted. emits says that the role
// may call pg_logical_emit_message.
func newPostgreSQL(schema string, emits bool) *postgreSQL {
	p := schema + "."
	create := `CREATE TABLE IF NOT EXISTS ` + p
	quoted := `'` + strings.ReplaceAll(p, `'`, `''`) + `storefront_orders'`
	const (
		now  = `CAST(floor(extract(epoch FROM now()) * 1000) AS BIGINT)`
		emit = `pg_logical_emit_message(true, 'storefront', '')`
	)
	e := &postgreSQL{statements{
		schema: ownSchema(create, `storefront_orders_key_hash ON `+p+`storefront_orders`,
			` COLLATE "C"`, ` DEFAULT `+now),
		// information_schema shows neither materialized views and sequences nor the tables
		// of others that this role may not use. With quote_all_identifiers, names of types have quotes.
		// A constraint holds in each table alone that inherits from its table, and a partition may be unlogged.
		catalog: `WITH RECURSIVE c AS (SELECT c.oid, c.relname, c.relkind, (SELECT min(w.rulename)
				FROM pg_rewrite AS w WHERE w.ev_class = c.oid AND w.ev_type IN ('2', '3')
				AND c.relname = 'storefront_orders') AS rule
				FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
				WHERE n.nspname = current_schema() AND c.relname LIKE 'storefront_%'),
			t AS (SELECT oid, oid AS root FROM c UNION ALL
				SELECT h.inhrelid, t.root FROM t JOIN pg_inherits AS h ON h.inhparent = t.oid),
			f AS (SELECT t.root, min(CAST(CAST(p.oid AS regclass) AS TEXT)) FILTER (WHERE p.relpersistence <> 'p')
				AS unlogged, min(CAST(CAST(p.oid AS regclass) AS TEXT)) FILTER (WHERE p.oid <> t.root) AS heir
				FROM t JOIN pg_class AS p ON p.oid = t.oid GROUP BY t.root)
			SELECT CAST(c.relname AS TEXT), CAST(a.attname AS TEXT),
				CASE WHEN c.relkind IN ('r', 'p') THEN '' ELSE 'not a table of ' END
				|| replace(format_type(a.atttypid, NULL), '"', '')
			FROM c JOIN pg_attribute AS a ON a.attrelid = c.oid WHERE a.attnum > 0 AND NOT a.attisdropped
			UNION ALL SELECT c.relname, a.attname, 'unique' FROM c JOIN pg_index AS i ON i.indrelid = c.oid
			JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
			WHERE i.indisunique AND i.indisvalid AND i.indimmediate AND i.indnkeyatts = 1
			AND (i.indpred IS NULL OR a.attname = 'key_hash'
				AND replace(pg_get_expr(i.indpred, i.indrelid), '"', '') = '(key_hash IS NOT NULL)')
			UNION ALL SELECT c.relname, '', CASE WHEN row_security_active(c.oid)
				THEN 'hides rows by row security: give this role BYPASSRLS'
				WHEN c.rule IS NOT NULL THEN 'has a rule in place of a trigger, beside which no order can be inserted: '
				|| 'DROP RULE ' || quote_ident(c.rule) || ' ON ' || c.relname
				WHEN f.unlogged IS NOT NULL THEN 'is unlogged and does not survive a crash: ALTER TABLE '
				|| f.unlogged || ' SET LOGGED'
				WHEN c.relkind = 'p' THEN 'partitioned by ' || pg_get_partkeydef(c.oid)
				ELSE 'has tables that inherit from it, in which its constraints do not hold: ALTER TABLE '
				|| f.heir || ' NO INHERIT ' || c.relname END
			FROM c JOIN f ON f.root = c.oid WHERE c.relkind IN ('r', 'p') AND (c.relkind = 'p'
				OR f.unlogged IS NOT NULL OR f.heir IS NOT NULL OR row_security_active(c.oid)
				OR c.rule IS NOT NULL)`,
		place: `SELECT concat('schema ', current_schema(), ' of database ', current_database(),
			' at ' || host(inet_server_addr()) || ':' || inet_server_port())`,
		// What comes first in a search_path may be new there, as the schema of the user's name.
		beside: `SELECT 'schema ' || min(n.nspname) FROM pg_class AS c JOIN pg_namespace AS n
			ON n.oid = c.relnamespace WHERE c.relname = 'storefront_orders'
			AND n.nspname = ANY (current_schemas(false)) HAVING count(*) > 0`,
		source: `SELECT min(s.subname) FROM pg_subscription AS s JOIN pg_subscription_rel AS r
			ON r.srsubid = s.oid WHERE r.srrelid = ` + quoted + `::regclass HAVING count(*) > 0`,
		tables:      ownTables("bytea", "text", "text", "bytea"),
		retype:      `ALTER TABLE %[1]s ALTER COLUMN %[2]s TYPE %[3]s USING %[2]s::%[5]s`,
		reindex:     dropIndex + createIndex,
		unpartition: `copy its rows into a table without partitions, or partitioned by %[2]s`,
		prefix:      p,
		param:       numbered,
		users:       `SELECT id, body FROM ` + p + `storefront_users WHERE id > $1 ORDER BY id LIMIT $2`,
		product:     `SELECT id, body FROM ` + p + `storefront_products WHERE id = $1`,
		widgets:     `SELECT id, body FROM ` + p + `storefront_widgets WHERE id >= $1 ORDER BY id LIMIT $2`,
		replace:     ` ON CONFLICT (id) DO UPDATE SET body = excluded.body`,
		// A mere read would see an order whose connection was lost while its commit waited
		// for a synchronous standby. A fail-over may still lose that order, and a replay
		// would promise that it is kept. The message in the log is a write, whose commit waits for all
		// commits before it. A lock of the row would do as well, but wait for those of other programs.
		orderOf: `SELECT id, item, qty, fields, created_ms, key_fingerprint, key_hash FROM ` + p + `storefront_orders
			WHERE key_hash = $1 AND ` + emit + ` IS NOT NULL`,
		newest: `WHERE scope <= $1 AND (scope, id) >= ($1, '') ORDER BY scope DESC, id DESC LIMIT $2`,
		older: `WHERE (scope, id) < ($1, $2) AND (scope, id) >= ($1, '')
			ORDER BY scope DESC, id DESC LIMIT $3`,
		// The catalog has an index from the moment on in which somebody begins to make it.
		orderIndex: `SELECT CASE WHEN i.indisvalid THEN 'ready' WHEN EXISTS (SELECT
				FROM pg_stat_progress_create_index AS b WHERE b.index_relid = i.indexrelid OR b.relid IS NULL)
				THEN 'building' ELSE 'invalid' END
			FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
			WHERE i.indrelid = ` + quoted + `::regclass AND i.indpred IS NULL
			AND (i.indisvalid OR c.relname = 'storefront_orders_scope')
			AND replace(pg_get_indexdef(i.indexrelid, 1, true), '"', '') = 'scope'
			AND replace(pg_get_indexdef(i.indexrelid, 2, true), '"', '') = 'id'
			ORDER BY i.indisvalid DESC LIMIT 1`,
		indexOrders: `CREATE INDEX CONCURRENTLY IF NOT EXISTS storefront_orders_scope ON ` + p +
			`storefront_orders (scope, id)`,
		unindexOrders: `DROP INDEX CONCURRENTLY IF EXISTS ` + p + `storefront_orders_scope`,
		get:           `SELECT `,
		due:           `id`,
		ifFree:        ifKeyFree,
		now:           `SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)`,
		write:         `SELECT ` + emit,
		servers: `SELECT concat_ws(' ', pg_postmaster_start_time(),
			current_setting('synchronous_standby_names'),
			(SELECT string_agg(CAST(pid AS TEXT), ' ' ORDER BY pid) FROM pg_stat_replication))`,
	}}
	if !emits {
		e.orderOf = strings.Replace(e.orderOf, `AND `+emit+` IS NOT NULL`, `FOR KEY SHARE`, 1)
		e.write = `SELECT id FROM ` + p + `storefront_orders ORDER BY id DESC LIMIT 1 FOR KEY SHARE SKIP LOCKED`
	}
	e.insertOne, e.returns = e.insertion(1)+ifKeyFree+` RETURNING key_hash`, true
	return e
}

func detectPostgreSQL(ctx context.Context, conn *sql.Conn, _ *Options, version string, err error) (
	engine, error) {
	if err != nil || isNumbered(version) { // PostgreSQL 15.4 …, CockroachDB CCL …
		return nil, nil
	}
	schema, err := postgreSQLSettings(ctx, conn)
	if err != nil {
		return nil, err
	}
	// Some that speak its SQL have no such function, and not every role may call it.
	emits := false
	err = conn.QueryRowContext(ctx, `SELECT coalesce(bool_and(has_function_privilege(oid, 'EXECUTE')), false)
		FROM pg_proc WHERE proname = 'pg_logical_emit_message'`).Scan(&emits)
	if err != nil && (transient(err) || ctx.Err() != nil) {
		return nil, err
	}
	return newPostgreSQL(schema, emits), nil
}

func (e *postgreSQL) look(ctx context.Context, conn *sql.Conn) error {
	schema, err := postgreSQLSettings(ctx, conn)
	if err != nil {
		return err
	}
	name := func(quoted string) string { return strings.Trim(quoted, `"`) } // quote_all_identifiers may be new
	if was := strings.TrimSuffix(e.prefix, "."); name(schema) != name(was) {
		return fmt.Errorf("sqlstore: the first schema of search_path is %s now and was %s: set it back, or start "+
			"the program anew", schema, was)
	}
	return nil
}

// postgreSQLSettings returns the schema for the tables, or an error if a setting of the connection would
// break a promise.
func postgreSQLSettings(ctx context.Context, conn *sql.Conn) (string, error) {
	var schema sql.NullString
	var client, server, role string
	// What splits reads from writes sends a query of a volatile function, such as pg_is_in_recovery, to the
	// primary.
	err := conn.QueryRowContext(ctx, `SELECT quote_ident(current_schema()), pg_client_encoding(),
		getdatabaseencoding(), CASE WHEN current_setting('transaction_read_only', true) = 'on'
		AND current_setting('default_transaction_read_only', true) = 'off' THEN 'standby'
		ELSE coalesce(current_setting('session_replication_role', true), '') END`).
		Scan(&schema, &client, &server, &role)
	if err != nil {
		return "", err
	}
	if role == "standby" { // which takes no NOTIFY
		if _, err := conn.ExecContext(ctx, `NOTIFY storefront`); err == nil {
			return "", errors.New("sqlstore: a standby answers what is read over this connection, and the primary " +
				"what is written: what is between, such as pgpool with load_balance_mode = on, must send all to the primary")
		}
	}
	// The names of PostgreSQL's own schemas, such as that of temporary tables, begin with pg_.
	if !schema.Valid || strings.HasPrefix(strings.Trim(schema.String, `"`), "pg_") {
		return "", errors.New("sqlstore: the first schema of search_path that exists, and that this role may use, " +
			"must be one for tables")
	}
	if role == "replica" {
		return "", errors.New("sqlstore: with session_replication_role = replica, triggers would not run; " +
			"it must be origin")
	}
	for _, is := range [...]struct{ name, encoding string }{
		{"server_encoding", server}, {"client_encoding", client},
	} {
		if is.encoding != "UTF8" && is.encoding != "SQL_ASCII" { // which leaves bytes as they are
			return "", fmt.Errorf("sqlstore: with %s = %s, some texts would be refused, or stored as "+
				"others; it must be UTF8", is.name, is.encoding)
		}
	}
	// If the server sends bytes in a text form that the driver does not decode, a key is not
	// the key that was stored.
	var backslash []byte
	err = conn.QueryRowContext(ctx, `SELECT decode('5c', 'hex')`).Scan(&backslash)
	if err != nil && (transient(err) || ctx.Err() != nil) {
		return "", err
	}
	if err != nil || !bytes.Equal(backslash, []byte(`\`)) {
		return "", fmt.Errorf("sqlstore: a byte comes back as %q (%v): "+
			"a driver that reads text needs bytea_output = hex", backslash, err)
	}
	return schema.String, nil
}

func (e *postgreSQL) server(ctx context.Context, conn *sql.Conn) (string, error) {
	return nameOf(ctx, conn, `SELECT CAST(pg_postmaster_start_time() AS TEXT)`)
}

// open opens a link that an order gives up while others wait for one: PostgreSQL may let it wait for a
// lock for ever.
func (e *postgreSQL) open(ctx context.Context, s *Store, w *watchdog.Watch) (context.Context, link, error) {
	ctx, c, err := s.connection(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	return c.giveWay(ctx, w), c, nil
}

// confirm returns the refusal: there is one primary, on which any stands.
func (e *postgreSQL) confirm(_ context.Context, _ *session, _ *proposal, refusal outcome) (outcome, error) {
	return refusal, nil
}

// insertMany leaves out the orders whose key is taken.
func (e *postgreSQL) insertMany(ctx context.Context, c *session, proposals []*proposal) (
	map[[sha256.Size]byte]bool, error) {
	return c.hashes(ctx, proposals,
		e.insertion(len(proposals))+ifKeyFree+` RETURNING key_hash`, e.rowsOf(proposals)...)
}
