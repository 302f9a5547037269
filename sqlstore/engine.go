package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// An engine is the SQL and the commit policy of one kind of database.
type engine struct {
	// schema makes the tables, or the tables and columns that are missing. Each statement
	// may be run again, and may fail because its table, column or index is there.
	schema []string

	// columns returns table, column and type of all columns in tables, views and the like
	// whose names begin with storefront_. For a view, the type is one that no column has.
	columns string

	// tables are the store's tables, with the types of the columns that all versions have.
	tables map[string]map[string]string

	// prefix comes before the names of tables. It names the schema, so that no statement
	// finds the table of another schema in the search_path.
	prefix string

	users, product, widgets string // queries of a page, of one resource by its ID, and of a page

	// replace ends an INSERT of resources, so that it replaces those with the same IDs.
	replace string

	// insert inserts an order. If its key is taken, it inserts nothing or fails.
	insert string

	// keyed, if it is not "", is the expression with which an INSERT sets the column keyed_ms;
	// otherwise the column has a default that the database computes.
	keyed string

	// unlessTaken ends an INSERT of orders, so that it leaves out those whose key is taken
	// and returns the keys of the others. If it is "", the INSERT fails if any of the keys
	// is taken, and inserts nothing.
	unlessTaken string

	// orderOf reads the order of a key.
	orderOf string

	// syncReplay, if it is not "", is run after orderOf in a transaction of its own, with the
	// first byte of the key's hash. After it, the order that was read is as durable as a new
	// one.
	syncReplay string

	// claim, if it is not "", makes two primaries of a group, which do not see each other's
	// locks, conflict on one key: it writes a row that the key's number names, so that only one
	// of their transactions can commit. A transaction with Options.Accept runs it before
	// Accept, and so does one that confirms a refusal. Without it, Accept could refuse an order
	// that another primary is about to commit.
	claim string

	// date, if it is not "", sets keyed_ms to the present time in up to a number of rows that
	// have a key and no keyed_ms, as a release that does not know the column inserts them.
	date string

	// forget forgets the oldest keys that were recorded before a time, up to a number.
	forget string

	// now reads the clock, in milliseconds since 1970-01-01 00:00:00 UTC.
	now string

	// commit, if it is not "", commits a transaction. It is for a driver whose Commit and
	// Rollback do not return when a ctx is done.
	commit string

	// write commits a row that no order needs, and so waits for all that the commit of an
	// order waits for.
	write string

	// server, if it is not "", returns a name that no other server has.
	server string

	// questionMarks says that all placeholders are ?, and not $1, $2 and so on.
	questionMarks bool

	// commits is how many commits of orders may be under way at the same time.
	commits int

	// oneWriter says that the database lets one transaction write at a time. Orders that
	// share a commit are then inserted one by one, each with the work of Options.Accept:
	// nobody else could write meanwhile. For other engines, one statement inserts all of them,
	// and with Accept, each order has a transaction of its own, so that it does not wait for
	// the locks of another.
	oneWriter bool

	// persists says that the server goes on with a statement, and waits for its locks, after
	// the caller has gone.
	persists bool

	// prepares says that statements are prepared once per connection: preparing is expensive,
	// and there is never a pooler between the store and the database.
	prepares bool
}

// shared returns how many of n orders that wait share a commit.
func (e *engine) shared(n int) int {
	const most = 64
	n = min(n, most)
	if !e.oneWriter {
		n = 1 << (bits.Len(uint(n)) - 1) // for a driver that keeps statements prepared, by their text
	}
	return n
}

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

// mySQL returns the engine of MySQL and MariaDB, and of one of several primaries of a group. Both know all statements but replace.
func mySQL(version string, primaries bool) *engine {
	e := &engine{
		schema: mySQLTables(),
		columns: `SELECT c.table_name, c.column_name, CONCAT(IF(t.table_type = 'VIEW', 'not a table of ', ''), c.data_type)
			FROM information_schema.columns AS c JOIN information_schema.tables AS t
			ON t.table_schema = c.table_schema AND t.table_name = c.table_name
			WHERE c.table_schema = database() AND c.table_name LIKE 'storefront\_%'`,
		tables:  ownTables("varbinary", "longtext", "varchar", "longblob", "binary"),
		users:   `SELECT id, body FROM storefront_users WHERE id > ? ORDER BY id LIMIT ?`,
		product: `SELECT id, body FROM storefront_products WHERE id = ?`,
		widgets: `SELECT id, body FROM storefront_widgets WHERE id >= ? ORDER BY id LIMIT ?`,
		replace: ` ON DUPLICATE KEY UPDATE body = VALUES(body)`,
		orderOf: `SELECT id, item, qty, created_ms, fingerprint FROM storefront_orders WHERE key_hash = ?`,
		// InnoDB shows an order to others before its commit is on the disk. The commit of a
		// write waits for all commits before it, but that of a mere lock, or of an UPDATE
		// that changes nothing, does not. So a replay writes a number, in one of many rows,
		// so that few replays wait for each other or, in a group with several primaries, conflict.
		syncReplay:    `INSERT INTO storefront_replays (slot, number) VALUES (?, 1) ON DUPLICATE KEY UPDATE number = number + 1`,
		forget:        `UPDATE storefront_orders SET key_hash = NULL, fingerprint = NULL, keyed_ms = NULL WHERE keyed_ms < ? ORDER BY keyed_ms LIMIT ?`,
		now:           `SELECT ` + mySQLNow,
		commit:        `COMMIT`,
		write:         `INSERT INTO storefront_replays (slot, number) VALUES (-1, 1) ON DUPLICATE KEY UPDATE number = number + 1`,
		server:        `SELECT CONCAT(@@hostname, ':', @@port)`,
		questionMarks: true,
		commits:       4,
		persists:      true,
	}
	// Neither MySQL nor MariaDB can insert all orders but those whose key is taken: INSERT
	// IGNORE hides other errors, and ON DUPLICATE KEY UPDATE takes any unique column for
	// the key.
	e.insert = e.insertOrders(1)
	e.tables["storefront_replays"] = map[string]string{"slot": "int", "number": "bigint"}
	// MySQL has deprecated VALUES() since 8.0.20, and MariaDB has nothing else. Both know a
	// SELECT in place of the values, but it is slower, and MySQL then takes no more than
	// 65,535 bytes of an argument in a prepared statement.
	if major, _, _ := strings.Cut(version, "."); major != "5" && major != "8" && !strings.Contains(version, "MariaDB") {
		e.replace = ` AS given ON DUPLICATE KEY UPDATE body = given.body`
	}
	if primaries {
		e.claim = e.syncReplay
	}
	return e
}

// tables returns the statements that make the tables in PostgreSQL and SQLite, which knows
// no type BYTEA and stores bytes as it is given them. keyed ends the definition of the column
// keyed_ms with its default, if it has one.
func tables(prefix, keyed string) []string {
	create := `CREATE TABLE IF NOT EXISTS ` + prefix
	return []string{
		create + `storefront_users (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
		create + `storefront_products (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
		create + `storefront_widgets (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
		create + `storefront_orders (
			id TEXT NOT NULL PRIMARY KEY,
			item TEXT NOT NULL,
			qty BIGINT NOT NULL,
			created_ms BIGINT NOT NULL,
			scope BYTEA NOT NULL,
			key_hash BYTEA UNIQUE,
			fingerprint BYTEA,
			keyed_ms BIGINT` + keyed + `
		)`,
		create + `storefront_schema (version BIGINT NOT NULL PRIMARY KEY, oldest BIGINT)`,
	}
}

const mySQLNow = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`

// mySQLTables returns the schema of MySQL. MySQL cannot leave rows out of an index, so
// keyed_ms is NULL once the key is forgotten, and those rows are at one end of the index.
func mySQLTables() []string {
	const (
		options = ` ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
		create  = `CREATE TABLE IF NOT EXISTS `
	)
	return []string{
		create + `storefront_users (id VARBINARY(255) NOT NULL PRIMARY KEY, body LONGTEXT NOT NULL)` + options,
		create + `storefront_products (id VARBINARY(255) NOT NULL PRIMARY KEY, body LONGTEXT NOT NULL)` + options,
		create + `storefront_widgets (id VARBINARY(255) NOT NULL PRIMARY KEY, body LONGTEXT NOT NULL)` + options,
		create + `storefront_orders (
			id VARCHAR(255) NOT NULL PRIMARY KEY,
			item TEXT NOT NULL,
			qty BIGINT NOT NULL,
			created_ms BIGINT NOT NULL,
			scope LONGBLOB NOT NULL,
			key_hash BINARY(32) UNIQUE,
			fingerprint BINARY(32),
			keyed_ms BIGINT DEFAULT (` + mySQLNow + `),
			INDEX storefront_orders_keyed (keyed_ms)
		)` + options,
		create + `storefront_replays (slot INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL)` + options,
		create + `storefront_schema (version BIGINT NOT NULL PRIMARY KEY, oldest BIGINT)` + options,
		// From version 1.
		`ALTER TABLE storefront_orders ADD COLUMN keyed_ms BIGINT DEFAULT (` + mySQLNow + `), ADD INDEX storefront_orders_keyed (keyed_ms)`,
		`ALTER TABLE storefront_orders DROP INDEX storefront_orders_keys, DROP COLUMN key_ms`,
		`ALTER TABLE storefront_schema ADD COLUMN oldest BIGINT`,
	}
}

// ownTables returns the tables that all engines have, with the given types of the columns
// whose types differ.
func ownTables(id, body, orderID, scope, hash string) map[string]map[string]string {
	resources := map[string]string{"id": id, "body": body}
	return map[string]map[string]string{
		"storefront_users":    resources,
		"storefront_products": resources,
		"storefront_widgets":  resources,
		"storefront_orders": {"id": orderID, "item": "text", "qty": "bigint", "created_ms": "bigint",
			"scope": scope, "key_hash": hash, "fingerprint": hash},
		"storefront_schema": {"version": "bigint"},
	}
}

// forgetKeys returns the statement of PostgreSQL and SQLite. Its last condition leaves out
// the keys that another ForgetKeys forgets meanwhile.
func forgetKeys(prefix string) string {
	return `UPDATE ` + prefix + `storefront_orders SET key_hash = NULL, fingerprint = NULL WHERE id IN (
	SELECT id FROM ` + prefix + `storefront_orders WHERE key_hash IS NOT NULL AND keyed_ms < $1 ORDER BY keyed_ms LIMIT $2
	) AND key_hash IS NOT NULL`
}

// detect returns the engine of the database behind conn, or an error if its settings would
// break a promise of the store.
func detect(ctx context.Context, conn *sql.Conn) (*engine, error) {
	var version string
	err := conn.QueryRowContext(ctx, `SELECT version()`).Scan(&version)
	switch {
	case err == nil && version != "" && '0' <= version[0] && version[0] <= '9':
		return detectMySQL(ctx, conn, version) // 8.0.36, 10.11.6-MariaDB, 8.0.11-TiDB-v7.5.0
	case err == nil:
		return detectPostgreSQL(ctx, conn) // PostgreSQL 15.4 …, CockroachDB CCL …
	case strings.Contains(err.Error(), "no such function"):
		return sqlite(), nil
	}
	return nil, err
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

// detectMySQL is detect for MySQL and MariaDB.
func detectMySQL(ctx context.Context, conn *sql.Conn, version string) (*engine, error) {
	settings, err := namedValues(ctx, conn, `SHOW VARIABLES WHERE Variable_name IN ('autocommit', 'character_set_client',
		'character_set_connection', 'character_set_results',
		'group_replication_group_name', 'group_replication_single_primary_mode', 'group_replication_consistency')`)
	if err != nil {
		return nil, err
	}
	// Galera has lost acknowledged orders when nodes crashed while others were cut off. The
	// variables do not tell whether a server is a node: wsrep_on may be ON without a provider,
	// or OFF for this session alone, and wsrep_provider may name one that is not loaded.
	status, err := namedValues(ctx, conn, `SHOW STATUS LIKE 'wsrep_provider_name'`)
	if err != nil {
		return nil, err
	}
	if provider := status["wsrep_provider_name"]; provider != "" {
		return nil, fmt.Errorf("sqlstore: this is a node of a %s cluster, which may lose orders that it has acknowledged "+
			"(MDEV-38976): the store does not use it (see docs/databases.md)", provider)
	}
	if settings["autocommit"] == "OFF" {
		return nil, errors.New("sqlstore: with autocommit = OFF, no order would ever be committed")
	}
	for _, name := range []string{"character_set_client", "character_set_connection", "character_set_results"} {
		if charset, ok := settings[name]; ok && charset != "utf8mb4" {
			return nil, fmt.Errorf("sqlstore: with %s = %s, some texts would be stored as others; it must be utf8mb4", name, charset)
		}
	}
	// In a group with several primaries, a member must wait until it has the commits of the
	// others. Otherwise, Accept could refuse an order that another member has acknowledged. With
	// a single primary, the next primary must have all that the last one acknowledged before it
	// answers.
	primaries := false
	if settings["group_replication_group_name"] != "" {
		primaries = settings["group_replication_single_primary_mode"] == "OFF"
		switch consistency := settings["group_replication_consistency"]; {
		case primaries && consistency != "BEFORE" && consistency != "BEFORE_AND_AFTER",
			consistency == "EVENTUAL":
			return nil, errors.New("sqlstore: this is a group of MySQL servers: every connection needs group_replication_consistency = 'BEFORE' (see the package's documentation)")
		}
	}
	return mySQL(version, primaries), nil
}

// namedValues returns the rows of a statement of MySQL's that shows names and values.
func namedValues(ctx context.Context, conn *sql.Conn, query string) (map[string]string, error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		values[name] = value
	}
	return values, rows.Err()
}

// insertOrders returns the statement that inserts n orders. Its arguments are those of
// proposal.row for each order.
func (e *engine) insertOrders(n int) string {
	columns, values := `id, item, qty, created_ms, scope, key_hash, fingerprint`, e.placeholders(n, 7)
	if e.keyed != "" {
		columns, values = columns+`, keyed_ms`, strings.TrimSuffix(values, ")")+", "+e.keyed+")"
	}
	return `INSERT INTO ` + e.prefix + `storefront_orders (` + columns + `) VALUES ` + values
}

// placeholders returns the placeholders of a number of rows, such as ($1, $2), ($3, $4).
func (e *engine) placeholders(rows, columns int) string {
	var b strings.Builder
	for i := range rows * columns {
		switch {
		case i == 0:
			b.WriteString("(")
		case i%columns == 0:
			b.WriteString("), (")
		default:
			b.WriteString(", ")
		}
		if e.questionMarks {
			b.WriteString("?")
		} else {
			b.WriteString("$" + strconv.Itoa(i+1))
		}
	}
	b.WriteString(")")
	return b.String()
}
