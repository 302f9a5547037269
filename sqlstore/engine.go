package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
)

// An engine is a kind of database: what is sent to it where kinds differ, and how
// it likes its work.
type engine struct {
	schema []string // makes the tables; each statement may be run again

	users, product, widgets string // a list, one by its ID, and a list

	// replace ends an INSERT of resources, and has it replace those that are there.
	replace string

	// insert inserts an order. If its key is taken, it inserts nothing or fails.
	insert string

	// unlessTaken ends an INSERT of orders, and has it leave out those whose key is
	// taken and return the keys of the others. If it is "", the INSERT fails if any
	// of the keys is taken, and inserts nothing.
	unlessTaken string

	// orderOf reads the order of a key.
	orderOf string

	// settle, if it is not "", is run after orderOf with the first byte of the
	// key's hash, on its own. Only then is the order that was read as durable as a
	// new one.
	settle string

	// claim, if it is not "", is run with a number that the key decides, in a
	// transaction with Options.Accept, before anything else. It writes what a
	// transaction for the same key writes on another node of a cluster, where locks are
	// not seen: of the two, one then cannot commit. So they are committed even if Accept
	// refuses, or it could refuse an order that is about to exist.
	claim string

	// forget forgets keys of orders that were created before a time, the oldest of
	// them, up to a number.
	forget string

	// now reads the clock, in milliseconds since 1970-01-01 00:00:00 UTC.
	now string

	// commit, if it is not "", commits a transaction. It is for a driver whose
	// methods that end one are not told when the call's time is up.
	commit string

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

	// prepares says that preparing a statement costs more than a part of running
	// it, and that connections are nothing that poolers between here and there
	// change and that are to be told apart.
	prepares bool
}

func postgreSQL() *engine {
	e := &engine{
		schema:  tables(),
		users:   `SELECT id, body FROM storefront_users WHERE id > $1 ORDER BY id LIMIT $2`,
		product: `SELECT id, body FROM storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM storefront_widgets WHERE id >= $1 ORDER BY id LIMIT $2`,
		replace: ` ON CONFLICT (id) DO UPDATE SET body = excluded.body`,
		// The lock is there to write and thus to commit. A mere read would see an
		// order whose commit still waits for a synchronous standby after the
		// connection was lost, and answering with an order that may yet be lost in
		// a fail-over would be a false promise. The commit of a write waits for all
		// before it. An UPDATE would do, too, but for triggers and dead rows.
		orderOf:     `SELECT id, item, qty, created_ms, fingerprint FROM storefront_orders WHERE key_hash = $1 FOR NO KEY UPDATE`,
		unlessTaken: ` ON CONFLICT (key_hash) DO NOTHING RETURNING key_hash`,
		forget:      forgetKeys,
		now:         `SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)`,
		commits:     4, // one round trip and flush each; more are slower than more orders in each
	}
	e.insert = e.insertOrders(1) + ` ON CONFLICT (key_hash) DO NOTHING`
	return e
}

func sqlite() *engine {
	e := &engine{
		schema: tables(),
		// For a bare $2, it would plan anew each time that one is bound.
		users:   `SELECT id, body FROM storefront_users WHERE id > $1 ORDER BY id LIMIT +$2`,
		product: `SELECT id, body FROM storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM storefront_widgets WHERE id >= $1 ORDER BY id LIMIT +$2`,
		replace: ` ON CONFLICT (id) DO UPDATE SET body = excluded.body`,
		// What can be seen is on the disk.
		orderOf:   `SELECT id, item, qty, created_ms, fingerprint FROM storefront_orders WHERE key_hash = $1`,
		forget:    forgetKeys,
		now:       `SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`,
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
		schema:  mySQLTables(),
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
		settle:        `INSERT INTO storefront_replays (slot, number) VALUES (?, 1) ON DUPLICATE KEY UPDATE number = number + 1`,
		forget:        `UPDATE storefront_orders SET key_hash = NULL, fingerprint = NULL WHERE key_ms < ? ORDER BY key_ms LIMIT ?`,
		now:           `SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`,
		commit:        `COMMIT`,
		questionMarks: true,
		commits:       4,
	}
	// Neither has another way to insert all but those whose key is taken: INSERT
	// IGNORE hides other errors, and ON DUPLICATE KEY UPDATE takes any unique
	// column for the key.
	e.insert = e.insertOrders(1)
	// VALUES() is deprecated in MySQL since 8.0.20, and in MariaDB there is nothing else.
	// What both know, a SELECT in place of the values, is slower, and takes no more than
	// 65,535 bytes of an argument where MySQL prepares it.
	if major, _, _ := strings.Cut(version, "."); major != "5" && major != "8" && !strings.Contains(version, "MariaDB") {
		e.replace = ` AS given ON DUPLICATE KEY UPDATE body = given.body`
	}
	if cluster {
		e.claim = e.settle
	}
	return e
}

// tables returns the schema of PostgreSQL, which SQLite takes, too: it knows no type BYTEA
// and stores what it is given.
func tables() []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS storefront_users (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS storefront_products (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS storefront_widgets (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS storefront_orders (
			id TEXT NOT NULL PRIMARY KEY,
			item TEXT NOT NULL,
			qty BIGINT NOT NULL,
			created_ms BIGINT NOT NULL,
			scope BYTEA NOT NULL,
			key_hash BYTEA UNIQUE,
			fingerprint BYTEA
		)`,
		`CREATE INDEX IF NOT EXISTS storefront_orders_keys ON storefront_orders (created_ms) WHERE key_hash IS NOT NULL`,
		`CREATE TABLE IF NOT EXISTS storefront_schema (version BIGINT NOT NULL PRIMARY KEY)`,
		// Not beside the version of a later release.
		`INSERT INTO storefront_schema (version) SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM storefront_schema) ON CONFLICT DO NOTHING`,
	}
}

// mySQLTables is tables for MySQL, which has no index of a part of the rows: key_ms
// is NULL where the key is forgotten, so that those rows are apart in its index.
func mySQLTables() []string {
	const options = ` ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`
	return []string{
		`CREATE TABLE IF NOT EXISTS storefront_users (id VARBINARY(255) NOT NULL PRIMARY KEY, body LONGTEXT NOT NULL)` + options,
		`CREATE TABLE IF NOT EXISTS storefront_products (id VARBINARY(255) NOT NULL PRIMARY KEY, body LONGTEXT NOT NULL)` + options,
		`CREATE TABLE IF NOT EXISTS storefront_widgets (id VARBINARY(255) NOT NULL PRIMARY KEY, body LONGTEXT NOT NULL)` + options,
		`CREATE TABLE IF NOT EXISTS storefront_orders (
			id VARCHAR(255) NOT NULL PRIMARY KEY,
			item TEXT NOT NULL,
			qty BIGINT NOT NULL,
			created_ms BIGINT NOT NULL,
			scope LONGBLOB NOT NULL,
			key_hash BINARY(32) UNIQUE,
			fingerprint BINARY(32),
			key_ms BIGINT AS (CASE WHEN key_hash IS NULL THEN NULL ELSE created_ms END) STORED,
			INDEX storefront_orders_keys (key_ms)
		)` + options,
		`CREATE TABLE IF NOT EXISTS storefront_replays (slot INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL)` + options,
		`CREATE TABLE IF NOT EXISTS storefront_schema (version BIGINT NOT NULL PRIMARY KEY)` + options,
		`INSERT INTO storefront_schema (version) SELECT 1 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM storefront_schema)
			ON DUPLICATE KEY UPDATE version = 1`,
	}
}

// forgetKeys is the statement of PostgreSQL and SQLite. Its last condition is for
// what another ForgetKeys does meanwhile.
const forgetKeys = `UPDATE storefront_orders SET key_hash = NULL, fingerprint = NULL WHERE id IN (
	SELECT id FROM storefront_orders WHERE key_hash IS NOT NULL AND created_ms < $1 ORDER BY created_ms LIMIT $2
	) AND key_hash IS NOT NULL`

// ask returns what kind of database conn leads to.
func ask(ctx context.Context, conn *sql.Conn) (*engine, error) {
	var version string
	err := conn.QueryRowContext(ctx, `SELECT version()`).Scan(&version)
	switch {
	case err == nil && version != "" && '0' <= version[0] && version[0] <= '9':
		cluster, err := clustered(ctx, conn)
		return mySQL(version, cluster), err // 8.0.36, 10.11.6-MariaDB, 8.0.11-TiDB-v7.5.0
	case err == nil:
		return postgreSQL(), nil // PostgreSQL 15.4 …, CockroachDB CCL …
	case strings.Contains(err.Error(), "no such function"):
		return sqlite(), nil
	}
	return nil, err
}

// clustered reports whether conn, which leads to MySQL, leads to a node of a cluster
// that has several which take writes. It returns an error if its settings keep the
// store from doing what it promises.
func clustered(ctx context.Context, conn *sql.Conn) (bool, error) {
	rows, err := conn.QueryContext(ctx, `SHOW VARIABLES WHERE Variable_name IN ('autocommit', 'wsrep_on', 'wsrep_sync_wait',
		'group_replication_group_name', 'group_replication_single_primary_mode', 'group_replication_consistency')`)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	settings := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return false, err
		}
		settings[name] = value
	}
	if err := rows.Err(); err != nil {
		return false, err
	}
	if settings["autocommit"] == "OFF" {
		return false, errors.New("sqlstore: with autocommit = OFF, no order would ever be committed")
	}
	// A node of a Galera cluster that does not wait for what others have committed
	// would not see what was acknowledged there, and Accept could refuse an order that
	// exists.
	cluster := settings["wsrep_on"] == "ON"
	if wait, _ := strconv.Atoi(settings["wsrep_sync_wait"]); cluster && wait&1 == 0 {
		return false, errors.New("sqlstore: this is a Galera cluster: every connection needs wsrep_sync_wait = 1 (see the package's documentation)")
	}
	// So it is with a member of a group of Group Replication. With a single primary,
	// a new one must first have what the old one has acknowledged.
	if settings["group_replication_group_name"] != "" {
		cluster = settings["group_replication_single_primary_mode"] == "OFF"
		switch consistency := settings["group_replication_consistency"]; {
		case cluster && consistency != "BEFORE" && consistency != "BEFORE_AND_AFTER",
			consistency == "EVENTUAL":
			return false, errors.New("sqlstore: this is a group of MySQL servers: every connection needs group_replication_consistency = 'BEFORE' (see the package's documentation)")
		}
	}
	return cluster, nil
}

// insertOrders returns the statement that inserts n orders, each with the arguments
// that proposal.row returns.
func (e *engine) insertOrders(n int) string {
	return `INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, fingerprint) VALUES ` + e.placeholders(n, 7)
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
