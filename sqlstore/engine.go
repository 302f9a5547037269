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
	// schema makes the tables, or those and the columns that are missing; each
	// statement may be run again, and may fail because what it makes is there.
	schema []string

	// columns returns table, column and type of what has the name of a table of the store's
	// or one like it. The type of what is no table, such as a view, is none of a column's.
	columns string

	// tables are the store's, with the types of their columns since version 1.
	tables map[string]map[string]string

	// prefix comes before the names of tables, so that they are those of one schema
	// and no other's that the search_path leads to.
	prefix string

	users, product, widgets string // a list, one by its ID, and a list

	// replace ends an INSERT of resources, and has it replace those that are there.
	replace string

	// insert inserts an order. If its key is taken, it inserts nothing or fails.
	insert string

	// keyed, if it is not "", is what an INSERT gives the column keyed_ms, which
	// otherwise has a default that the database computes.
	keyed string

	// unlessTaken ends an INSERT of orders, and has it leave out those whose key is
	// taken and return the keys of the others. If it is "", the INSERT fails if any
	// of the keys is taken, and inserts nothing.
	unlessTaken string

	// orderOf reads the order of a key.
	orderOf string

	// syncReplay, if it is not "", is run after orderOf with the first byte of the
	// key's hash, on its own. Only then is the order that was read as durable as a
	// new one.
	syncReplay string

	// claim, if it is not "", is run with a number that the key decides, in a
	// transaction with Options.Accept, and in one that confirms that Accept has refused. It
	// writes what a transaction for the same key writes on another node of a cluster, where
	// locks are not seen: of the two, one then cannot commit. Without it, Accept could
	// refuse an order that is about to exist.
	claim string

	// date, if it is not "", gives keys that have no time the present one, up to a number:
	// those of a release that does not know the column, which then has no default.
	date string

	// forget forgets the oldest keys that were recorded before a time, up to a number.
	forget string

	// now reads the clock, in milliseconds since 1970-01-01 00:00:00 UTC.
	now string

	// commit, if it is not "", commits a transaction. It is for a driver whose
	// methods that end one are not told when the call's time is up.
	commit string

	// write writes something that is nobody's and commits it, and so waits for what the
	// commit of an order waits for.
	write string

	// server tells the server from others.
	server string

	// questionMarks says that all placeholders are ?, and not $1, $2 and so on.
	questionMarks bool

	// commits is how many commits of orders are best under way at the same time.
	commits int

	// oneWriter says that there is one transaction that writes at a time. Orders
	// that share a commit are then inserted one by one, with whatever Options.Accept
	// does, as nobody else could write meanwhile. Otherwise, one statement inserts
	// all of them, and with Accept, each order has a transaction of its own, which
	// no other order's locks and conflicts can hold up.
	oneWriter bool

	// persists says that the server goes on with a statement whose caller has gone, and
	// waits for its locks.
	persists bool

	// prepares has statements prepared once per connection: for a database to which
	// that is dear, and to which no pooler leads that changes connections.
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

// postgreSQL is for the tables of a schema, whose name is quoted.
func postgreSQL(schema string) *engine {
	p := schema + "."
	const now = `CAST(floor(extract(epoch FROM now()) * 1000) AS BIGINT)`
	e := &engine{
		schema: append(tables(p, ` DEFAULT `+now),
			// The default is the same for all rows that are there, and kept with the column
			// alone: no row is written.
			`ALTER TABLE `+p+`storefront_orders ADD COLUMN IF NOT EXISTS keyed_ms BIGINT DEFAULT `+now,
			`CREATE INDEX IF NOT EXISTS storefront_orders_keyed ON `+p+`storefront_orders (keyed_ms) WHERE key_hash IS NOT NULL`,
			`DROP INDEX IF EXISTS `+p+`storefront_orders_keys`, // of version 1
			`ALTER TABLE `+p+`storefront_schema ADD COLUMN IF NOT EXISTS oldest BIGINT`,
		),
		// information_schema has neither what others have made and keep to themselves
		// nor materialized views and sequences.
		columns: `SELECT c.relname, a.attname, CASE WHEN c.relkind IN ('r', 'p') THEN '' ELSE 'not a table of ' END || format_type(a.atttypid, NULL)
			FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_attribute AS a ON a.attrelid = c.oid
			WHERE n.nspname = current_schema() AND c.relname LIKE 'storefront_%' AND a.attnum > 0 AND NOT a.attisdropped`,
		tables:  ownTables("bytea", "text", "text", "bytea", "bytea"),
		prefix:  p,
		users:   `SELECT id, body FROM ` + p + `storefront_users WHERE id > $1 ORDER BY id LIMIT $2`,
		product: `SELECT id, body FROM ` + p + `storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM ` + p + `storefront_widgets WHERE id >= $1 ORDER BY id LIMIT $2`,
		replace: ` ON CONFLICT (id) DO UPDATE SET body = excluded.body`,
		// The lock is there to write and thus to commit. A mere read would see an
		// order whose commit still waits for a synchronous standby after the
		// connection was lost, and answering with an order that may yet be lost in
		// a fail-over would be a false promise. The commit of a write waits for all
		// before it. An UPDATE would do, too, but for triggers and dead rows.
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
		// A column that is added to a table with rows can have no default that is computed.
		schema: append(tables("", ""),
			`ALTER TABLE storefront_orders ADD COLUMN keyed_ms BIGINT`,
			`CREATE INDEX IF NOT EXISTS storefront_orders_keyed ON storefront_orders (keyed_ms) WHERE key_hash IS NOT NULL`,
			`DROP INDEX IF EXISTS storefront_orders_keys`,
			`ALTER TABLE storefront_schema ADD COLUMN oldest BIGINT`,
		),
		columns: `SELECT m.name, c.name, CASE m.type WHEN 'table' THEN '' ELSE 'not a table of ' END || c.type FROM sqlite_master AS m, pragma_table_info(m.name) AS c
			WHERE m.type IN ('table', 'view') AND m.name LIKE 'storefront_%'`,
		tables: ownTables("bytea", "text", "text", "bytea", "bytea"),
		// For a bare $2, it would plan anew each time that one is bound.
		users:   `SELECT id, body FROM storefront_users WHERE id > $1 ORDER BY id LIMIT +$2`,
		product: `SELECT id, body FROM storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM storefront_widgets WHERE id >= $1 ORDER BY id LIMIT +$2`,
		replace: ` ON CONFLICT (id) DO UPDATE SET body = excluded.body`,
		keyed:   now,
		// What can be seen is on the disk.
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

// mySQL is for MariaDB, too: but for replace, it has nothing that only one of them knows.
func mySQL(version string, cluster bool) *engine {
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
		// InnoDB shows an order to others before its commit is on the disk. The
		// commit of a write waits for all before it, but that of a mere lock, or of
		// an UPDATE that changes nothing, does not. So there is something to write,
		// in many rows, so that few replays wait for each other or, in Galera,
		// conflict.
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
	// Neither has another way to insert all but those whose key is taken: INSERT
	// IGNORE hides other errors, and ON DUPLICATE KEY UPDATE takes any unique
	// column for the key.
	e.insert = e.insertOrders(1)
	e.tables["storefront_replays"] = map[string]string{"slot": "int", "number": "bigint"}
	// VALUES() is deprecated in MySQL since 8.0.20, and in MariaDB there is nothing else.
	// What both know, a SELECT in place of the values, is slower, and takes no more than
	// 65,535 bytes of an argument where MySQL prepares it.
	if major, _, _ := strings.Cut(version, "."); major != "5" && major != "8" && !strings.Contains(version, "MariaDB") {
		e.replace = ` AS given ON DUPLICATE KEY UPDATE body = given.body`
	}
	if cluster {
		e.claim = e.syncReplay
	}
	return e
}

// tables returns the tables of PostgreSQL, which SQLite takes, too: it knows no type BYTEA
// and stores what it is given. The last column has a default, or none.
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

// mySQLTables is the schema of MySQL, which has no index of a part of the rows: keyed_ms
// is NULL where the key is forgotten, so that those rows are apart in its index.
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

// ownTables returns the tables that each engine has, by the types that some of their
// columns have.
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

// forgetKeys is the statement of PostgreSQL and SQLite. Its last condition is for
// what another ForgetKeys does meanwhile.
func forgetKeys(prefix string) string {
	return `UPDATE ` + prefix + `storefront_orders SET key_hash = NULL, fingerprint = NULL WHERE id IN (
	SELECT id FROM ` + prefix + `storefront_orders WHERE key_hash IS NOT NULL AND keyed_ms < $1 ORDER BY keyed_ms LIMIT $2
	) AND key_hash IS NOT NULL`
}

// detect returns what kind of database conn leads to, and an error if its settings keep
// the store from doing what it promises.
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
	// As text, and for a driver that does not know that, a key would not be the key that
	// was stored.
	var backslash []byte
	err := conn.QueryRowContext(ctx, `SELECT CAST('\x5c' AS BYTEA)`).Scan(&backslash)
	if transient(err) || ctx.Err() != nil {
		return nil, err
	}
	if err != nil || !bytes.Equal(backslash, []byte(`\`)) {
		return nil, fmt.Errorf("sqlstore: a byte comes back as %q (%v): a driver that reads text needs bytea_output = hex", backslash, err)
	}
	return postgreSQL(schema.String), nil
}

// detectMySQL looks at the settings of conn, which leads to MySQL.
func detectMySQL(ctx context.Context, conn *sql.Conn, version string) (*engine, error) {
	rows, err := conn.QueryContext(ctx, `SHOW VARIABLES WHERE Variable_name IN ('autocommit', 'character_set_client',
		'character_set_connection', 'character_set_results', 'wsrep_on', 'wsrep_sync_wait',
		'group_replication_group_name', 'group_replication_single_primary_mode', 'group_replication_consistency')`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	settings := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		settings[name] = value
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if settings["autocommit"] == "OFF" {
		return nil, errors.New("sqlstore: with autocommit = OFF, no order would ever be committed")
	}
	for _, name := range []string{"character_set_client", "character_set_connection", "character_set_results"} {
		if charset, ok := settings[name]; ok && charset != "utf8mb4" {
			return nil, fmt.Errorf("sqlstore: with %s = %s, some texts would be stored as others; it must be utf8mb4", name, charset)
		}
	}
	// A node of a Galera cluster that does not wait for what others have committed
	// would not see what was acknowledged there, and Accept could refuse an order that
	// exists.
	cluster := settings["wsrep_on"] == "ON"
	if wait, _ := strconv.Atoi(settings["wsrep_sync_wait"]); cluster && wait&1 == 0 {
		return nil, errors.New("sqlstore: this is a Galera cluster: every connection needs wsrep_sync_wait = 1 (see the package's documentation)")
	}
	// So it is with a member of a group of Group Replication. With a single primary,
	// a new one must first have what the old one has acknowledged.
	if settings["group_replication_group_name"] != "" {
		cluster = settings["group_replication_single_primary_mode"] == "OFF"
		switch consistency := settings["group_replication_consistency"]; {
		case cluster && consistency != "BEFORE" && consistency != "BEFORE_AND_AFTER",
			consistency == "EVENTUAL":
			return nil, errors.New("sqlstore: this is a group of MySQL servers: every connection needs group_replication_consistency = 'BEFORE' (see the package's documentation)")
		}
	}
	return mySQL(version, cluster), nil
}

// insertOrders returns the statement that inserts n orders, each with the arguments
// that proposal.row returns.
func (e *engine) insertOrders(n int) string {
	columns, values := `id, item, qty, created_ms, scope, key_hash, fingerprint`, e.placeholders(n, 7)
	if e.keyed != "" {
		columns, values = columns+`, keyed_ms`, strings.TrimSuffix(values, ")")+", "+e.keyed+")"
	}
	return `INSERT INTO ` + e.prefix + `storefront_orders (` + columns + `) VALUES ` + values
}

// placeholders returns those of rows with as many columns, such as ($1, $2), ($3, $4).
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
