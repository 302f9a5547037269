package sqlstore

import (
	"context"
	"database/sql"
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

// A kind is a kind of database that the store knows.
type kind struct {
	// detect returns the engine of the database behind conn, nil if it is of another kind, or an
	// error if its settings would break a promise of the store. version and err are the answer to
	// SELECT version().
	detect func(ctx context.Context, conn *sql.Conn, version string, err error) (*engine, error)

	// codeClass returns the class of an error by its code, and false if it has no code of this kind.
	codeClass func(error) (class, bool)

	// texts are parts of the texts of errors without a code. The first that occurs tells the class.
	texts []textClass
}

type textClass struct {
	text string
	class
}

// kinds returns the kinds of databases.
func kinds() [3]kind {
	return [...]kind{
		{detectPostgreSQL, postgreSQLCode, postgreSQLTexts},
		{detectMySQL, mySQLCodeClass, mySQLTexts},
		{detectSQLite, noCode, sqliteTexts},
	}
}

// detect returns the engine of the database behind conn, or an error if its settings would
// break a promise of the store.
func detect(ctx context.Context, conn *sql.Conn) (*engine, error) {
	var version string
	unknown := conn.QueryRowContext(ctx, `SELECT version()`).Scan(&version)
	for _, k := range kinds() {
		if e, err := k.detect(ctx, conn, version, unknown); e != nil || err != nil {
			return e, err
		}
	}
	return nil, unknown
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
