package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/sqlerror"
	"example.com/storefront/internal/watchdog"
)

// An engine is what the store leaves to one kind of database. Each has a file of its own, with its
// SQL, the settings that it demands, and how it commits; its errors are in internal/sqlerror. One more is a
// file in each, and a name in detect; it may embed another one, as vitess does. If it is a writer, too,
// its commits are concurrent.
type engine interface {
	// sql returns the statements that differ in their text alone.
	sql() *statements

	// server returns a name of the server that conn leads to that no other server has, or "" if
	// there is none.
	server(ctx context.Context, conn *sql.Conn) (string, error)

	// look returns an error if a setting of a new connection would break a promise of the store.
	look(ctx context.Context, conn *sql.Conn) error

	// open opens a link for one try. w, if it is not nil, ends a try that the server does not
	// answer: then the ctx that open returns is done.
	open(ctx context.Context, s *Store, w *watchdog.Watch) (context.Context, link, error)

	// find returns the order with a key, as durable as a new one, and its fingerprint. If there is
	// none, it returns sql.ErrNoRows.
	find(ctx context.Context, c *session, hash [sha256.Size]byte) (storefront.Order, [32]byte, error)

	// record returns the statements that record the version of the tables. One that another program has
	// run may fail, as a row is there.
	record() []string

	// shardOf returns the number of the shard, from 0 on, that has the resource with an ID.
	shardOf(id string) int

	// forget forgets the keys of these orders that were recorded before a time, in milliseconds, and returns
	// how many. The orders are those of the statement dueKeys, at most keysPerStatement.
	forget(ctx context.Context, s *Store, before int64, orders []any) (int64, error)
}

// A committer creates orders in the way of its engine: it decides which of them share a commit.
type committer interface {
	// create makes a try for the order of p, and settles it. When its commit begins, and in which goroutine, is
	// open: that is up to the queue. If ctx is done before the try has ended,
	// create may return ctx.Err() and leave the try, which may go on.
	create(ctx context.Context, p *proposal) error
}

// A link sends statements to the database. What that does is all that is open.
type link interface {
	// query runs a query. Its callers use a fixed set of texts.
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)

	// exec runs any other statement, and returns how many rows it affected.
	exec(ctx context.Context, query string, args ...any) (int64, error)

	// begin begins a transaction.
	begin(ctx context.Context) (transaction, error)

	// close ends the try, whose error is err, and returns the error to go by.
	close(err error) error
}

// A transaction inserts orders.
type transaction interface {
	exec(ctx context.Context, query string, args ...any) (int64, error)

	// insert inserts the order of a proposal, and returns how many rows that were.
	insert(ctx context.Context, p *proposal) (int64, error)

	// accept calls f, which may use the transaction until ctx is done.
	accept(ctx context.Context, f func(*sql.Tx))

	// isDemoted reports whether the error of a statement says that the server is no longer the primary.
	isDemoted(err error) bool

	commit(ctx context.Context) error

	// rollBack ends the transaction, if it has not ended.
	rollBack(ctx context.Context)
}

// statements are the statements of an engine that differ in their text alone.
type statements struct {
	// schema makes the tables, or the tables and columns that are missing. Each statement
	// may be run again, and may fail because its table, column or index is there.
	schema []string

	// catalog returns rows of three texts about the tables, views and the like whose names begin with
	// storefront_: table, column and type of each column; table, column and "unique" for each column of
	// which a constraint allows each value once; table, "" and "partitioned", perhaps with by what, for such a
	// table; and table, "" and what is wrong with it. For a view, the type is one that no column has.
	catalog string

	// place says where the tables are, for people.
	place string

	// beside returns the place of another shop beside which a new one must not begin, or nothing. It is
	// "" if no such place can be known.
	beside string

	// source returns the name of what writes the orders of another server into these tables, or nothing.
	// It is "" if that is a setting of the server (see look).
	source string

	// inspectsAgain is how often the catalog must say again that something is wrong.
	inspectsAgain int

	// tables are the store's tables, with the types of the columns that all versions have. The INSERTs of
	// candidates before 1.0.0-rc.4 name a column fingerprint, so none can write into these tables, nor a release
	// into theirs.
	tables map[string]map[string]string

	// retype is the format of a statement, or an advice, that gives a table's column its type: of the names
	// of the table and the column, the type, what follows it in the definition, and its name in tables.
	retype string

	// reindex is the format of the statements that make a unique index of a table's column, for both names.
	reindex string

	// unpartition is what to do about a table that is partitioned by another column: a format like reindex.
	unpartition string

	// prefix comes before the names of tables. It names the schema, so that no statement
	// finds the table of another schema in the search_path.
	prefix string

	// param returns the placeholder of the nth argument, from 1 on.
	param func(n int) string

	users, product, widgets string // queries of a page, of one resource by its ID, and of a page

	// newest and older are what a query of a page of orders has behind the table: of a scope, and of a scope
	// and less than an ID. Only the index (scope, id) may serve them: an optimizer that expects the rows of a
	// scope everywhere would look for them among those of others, and find the last ones at the end.
	newest, older string

	// orderIndex returns "ready" if there is an index for the lists of orders. If there is one that cannot be
	// used, it returns "building" while somebody makes it, and otherwise "invalid".
	orderIndex string

	// indexOrders makes that index beside orders, and unindexOrders removes an invalid one.
	indexOrders, unindexOrders string

	// replace ends an INSERT of resources, so that it replaces those with the same IDs.
	replace string

	// placed says that an INSERT of an order names its place.
	placed bool

	// insertOne inserts an order. If its key is taken, it inserts nothing or fails.
	insertOne string

	// ifFree ends an INSERT of orders, so that it leaves out those whose keys are taken, and fails if no
	// constraint tells. It is "" where no statement does that.
	ifFree string

	// returns says that insertOne returns the key_hash of the row that it has inserted.
	returns bool

	// orderOf reads the order of a key, and its key_hash.
	orderOf string

	// get begins a query that asks the database itself, and due is the column by which forget finds an order.
	get, due string

	// pauses says that ForgetKeys pauses after each transaction for as long as that took: orders wait for it.
	pauses bool

	// now reads the clock, in milliseconds since 1970-01-01 00:00:00 UTC.
	now string

	// write commits a row that no order needs, and so waits for all that the commit of an order waits for.
	write string

	// servers names the servers that a commit needs, as one text that changes when one of them
	// restarts or goes. It is "" if there is none.
	servers string
}

func (st *statements) sql() *statements { return st }

// find is find of an engine that shows no order before its commit is durable.
func (st *statements) find(ctx context.Context, c *session, hash [sha256.Size]byte) (
	order storefront.Order, fingerprint [32]byte, err error) {
	args := []any{hash[:]}
	if st.placed {
		args = []any{hash[:placeSize], hash[:]}
	}
	var ms int64
	var print, key []byte
	var fields sql.NullString // NULL of one that was, for a while, of a type for JSON, which has no ''
	found := false
	err = c.each(ctx, func() { found = true },
		[]any{&order.ID, &order.Item, &order.Qty, &fields, &ms, &print, &key}, st.orderOf, args...)
	switch {
	case err == nil && !found:
		err = sql.ErrNoRows
	case err == nil && !bytes.Equal(key, hash[:]):
		err = errOfAnother
	}
	order.Fields, order.CreatedAt = storefront.Fields(fields.String), time.UnixMilli(ms).UTC()
	copy(fingerprint[:], print)
	return order, fingerprint, err
}

// shardOf is shardOf of an engine without shards.
func (st *statements) shardOf(string) int { return 0 }

// A detector returns the engine of the database behind conn, nil if it is of another kind, or an error if its
// settings would break a promise of a store with these options. version and err are the answer to
// SELECT version().
type detector func(_ context.Context, conn *sql.Conn, _ *Options, version string, err error) (engine, error)

// detect returns the engine of the database behind conn, or an error if its settings would
// break a promise of a store with these options.
func detect(ctx context.Context, conn *sql.Conn, opts *Options) (engine, error) {
	var version string
	// The LIMIT is for a MySQL whose sql_select_limit is 0.
	unknown := conn.QueryRowContext(ctx, `SELECT version() LIMIT 1`).Scan(&version)
	for _, detect := range []detector{detectPostgreSQL, detectMySQL, detectSQLite} {
		e, err := detect(ctx, conn, opts, version, unknown)
		if e != nil {
			return e, nil
		}
		if err != nil { // such as of DuckDB, which has a version, but no encodings
			unknown = err
			break
		}
	}
	_, known := sqlerror.ByCode(unknown)
	if known || transient(unknown) || ctx.Err() != nil || strings.HasPrefix(unknown.Error(), "sqlstore: ") {
		return nil, unknown
	}
	var kind string
	conn.Raw(func(driver any) error {
		kind = fmt.Sprintf("%T", driver)
		return nil
	})
	return nil, fmt.Errorf(
		"sqlstore: the database of a %s does not say that it is PostgreSQL, SQLite, MySQL or MariaDB: %w",
		kind, unknown)
}

// nameOf returns the name that a query of the server returns. An error that the same server would
// return again is no name, but no failure, either.
func nameOf(ctx context.Context, conn *sql.Conn, query string) (name string, err error) {
	err = conn.QueryRowContext(ctx, query).Scan(&name)
	if err != nil && (transient(err) || ctx.Err() != nil) {
		return "", err
	}
	return name, nil
}

// orderColumns are the columns of proposal.row.
const orderColumns = `id, item, qty, created_ms, scope, key_hash, key_fingerprint, fields`

// insertion returns the statement that inserts n orders, whose arguments are those of row for each, where
// keyed_ms has a default that the database computes.
func (st *statements) insertion(n int) string {
	columns, width := orderColumns, 8
	if st.placed {
		columns, width = orderColumns+`, place`, 9
	}
	return `INSERT INTO ` + st.prefix + `storefront_orders (` + columns + `) VALUES ` + st.rows(n, width)
}

// insert inserts the order of a proposal, and returns how many rows that were. If it has waited for long, it
// ends with a conflict.
func (st *statements) insert(ctx context.Context, to sender, p *proposal) (n int64, err error) {
	if whole := ctx; p.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.wait)
		defer func() {
			if err != nil && ctx.Err() != nil && whole.Err() == nil {
				err = sqlerror.With(sqlerror.Conflict, fmt.Errorf("sqlstore: the INSERT of the order waits: %w", err))
				p.watch.Keep() // this one is given up
			}
			cancel()
		}()
	}
	if !st.returns {
		return to.exec(ctx, st.insertOne, st.row(p)...)
	}
	var hash []byte
	err = each(ctx, to, func() { n++ }, []any{&hash}, st.insertOne, st.row(p)...)
	if err == nil && n > 0 && !bytes.Equal(hash, p.hash[:]) {
		err = errOfAnother
	}
	return n, err
}

// row returns the arguments of insertOne.
func (st *statements) row(p *proposal) []any {
	row := p.row()
	if st.placed {
		row = append(row, p.hash[:placeSize])
	}
	return row
}

// rowsOf returns the arguments of insertion for the orders of proposals.
func (st *statements) rowsOf(proposals []*proposal) (args []any) {
	for _, p := range proposals {
		args = append(args, st.row(p)...)
	}
	return args
}

// byShard returns the items of each shard, which keep their order.
func byShard[T any](items []T, shard func(T) int) (parts [][]T) {
	of := make(map[int][]T)
	for _, item := range items {
		n := shard(item)
		of[n] = append(of[n], item)
	}
	for _, n := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, of[n])
	}
	return parts
}

// ifKeyFree is ifFree of PostgreSQL and SQLite: the constraint holds the keys that are remembered.
const ifKeyFree = ` ON CONFLICT (key_hash) WHERE key_hash IS NOT NULL DO NOTHING`

// ownSchema returns the statements that make the tables of PostgreSQL and SQLite, with the beginnings of
// those of tables and of the index of keys, the collation of IDs, and a default of keyed_ms. Numbers come
// before what has no fixed length, as PostgreSQL aligns them.
func ownSchema(create, index, collate, keyed string) []string {
	const resources = ` (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`
	return []string{
		create + `storefront_users` + resources,
		create + `storefront_products` + resources,
		create + `storefront_widgets` + resources,
		create + `storefront_orders (
			id TEXT` + collate + ` NOT NULL PRIMARY KEY,
			qty BIGINT NOT NULL,
			created_ms BIGINT NOT NULL,
			keyed_ms BIGINT` + keyed + `,
			item TEXT NOT NULL,
			scope BYTEA NOT NULL,
			key_hash BYTEA,
			key_fingerprint BYTEA,
			fields TEXT NOT NULL DEFAULT ''
		)`,
		`CREATE UNIQUE INDEX IF NOT EXISTS ` + index + ` (key_hash) WHERE key_hash IS NOT NULL`,
		// The last one: see inspectOnce.
		create + `storefront_schema (version BIGINT NOT NULL PRIMARY KEY, oldest BIGINT NOT NULL,
			keep_ms BIGINT, forgotten_ms BIGINT)`,
	}
}

// ownTables returns the tables that all engines have, with the given types of the columns whose types differ.
func ownTables(id, body, orderID, hash string) map[string]map[string]string {
	resources := map[string]string{"id": id, "body": body}
	return map[string]map[string]string{
		"storefront_users":    resources,
		"storefront_products": resources,
		"storefront_widgets":  resources,
		"storefront_orders": {"id": orderID, "item": "text", "qty": "bigint", "created_ms": "bigint",
			"scope": id, "key_hash": hash, "key_fingerprint": hash, "fields": body},
		"storefront_schema": {"version": "bigint", "oldest": "bigint", "keep_ms": "bigint",
			"forgotten_ms": "bigint"},
	}
}

const (
	// An interrupted statement may have left one, and so may somebody who has chosen other columns.
	dropIndex = `DROP INDEX IF EXISTS %[1]s_%[2]s; `

	createIndex = `CREATE UNIQUE INDEX %[1]s_%[2]s ON %[1]s (%[2]s)`
)

// columnType finds the type of a column, and what follows it, in a statement of the schema.
const columnType = `\b%s ([A-Z]+(?:\(\d+\))?(?: CHARACTER SET \w+)?(?: COLLATE [\w"]+)?)` +
	`( NOT NULL)?( DEFAULT \(?''\)?)?`

// retyped returns the statement that gives a column its type, with its name in tables.
func (st *statements) retyped(table, column, name string) string {
	definition := regexp.MustCompile(fmt.Sprintf(columnType, column))
	for _, create := range st.schema {
		_, columns, _ := strings.Cut(create, table+" (")
		if found := definition.FindStringSubmatch(columns); found != nil {
			// Where there is a default, NULL will do, which stands for '' (see order).
			return fmt.Sprintf(st.retype, table, column, found[1], cmp.Or(found[3], found[2]), name)
		}
	}
	return ""
}

func numbered(n int) string { return "$" + strconv.Itoa(n) }

func marked(int) string { return "?" }

// rows returns the placeholders of a number of rows, such as ($1, $2), ($3, $4).
func (st *statements) rows(rows, columns int) string { return st.rowsFrom(1, rows, columns) }

// rowsFrom is rows whose first argument is the nth.
func (st *statements) rowsFrom(n, rows, columns int) string {
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
		b.WriteString(st.param(n + i))
	}
	b.WriteString(")")
	return b.String()
}
