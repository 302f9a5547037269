package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"example.com/storefront/internal/slots"
	"example.com/storefront/internal/watchdog"
)

// sqlite is the engine of SQLite, which lets one transaction write at a time: orders that share a commit
// are inserted one by one, each with the work of Options.Accept. Nobody else could write meanwhile.
type sqlite struct {
	statements
	prepared sync.Map // the prepared statements (*sql.Stmt) by their text

	// writing has one slot, for the call that writes. SQLite's lock is not a queue: without this, callers
	// could starve.
	writing slots.Slots
}

func detectSQLite(ctx context.Context, conn *sql.Conn, _ *Options, _ string, err error) (
	engine, error) {
	if err == nil || !strings.Contains(err.Error(), "no such function") {
		return nil, nil
	}
	file, journal, err := sqlitePragmas(ctx, conn)
	if err == nil && journal != "" && journal != "wal" { // which SQLite cannot use without locks
		err = checkLocks(context.WithoutCancel(ctx), conn, file)
	}
	if err != nil {
		return nil, err
	}
	const (
		create = `CREATE TABLE IF NOT EXISTS main.`
		now    = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`
	)
	return &sqlite{statements: statements{
		// SQLite knows no type BYTEA, and stores bytes as it is given them.
		schema: ownSchema(create, `main.storefront_orders_key_hash ON storefront_orders`, ``, ``),
		catalog: `SELECT m.name, c.name, CASE m.type WHEN 'table' THEN '' ELSE 'not a table of ' END || c.type
			FROM main.sqlite_master AS m, pragma_table_info(m.name, 'main') AS c
			WHERE m.type IN ('table', 'view') AND m.name LIKE 'storefront_%'
			UNION ALL SELECT m.name, min(k.name), 'unique'
			FROM main.sqlite_master AS m, pragma_index_list(m.name, 'main') AS i,
				pragma_index_info(i.name, 'main') AS k, main.sqlite_master AS s
			WHERE m.type = 'table' AND m.name LIKE 'storefront_%' AND i."unique" AND s.name = i.name
			AND (NOT i.partial OR s.sql LIKE '% (key_hash) WHERE key_hash IS NOT NULL')
			GROUP BY m.name, i.name HAVING count(*) = 1 AND min(k.name) IS NOT NULL`,
		place:   `SELECT file FROM pragma_database_list WHERE name = 'main'`,
		tables:  ownTables("bytea", "text", "text", "bytea"),
		retype:  `SQLite changes no type, so copy the rows into a table whose column is %[2]s %[3]s%[4]s`,
		reindex: dropIndex + createIndex,
		prefix:  `main.`, // no file that is attached, and no temporary table
		param:   numbered,
		// With a bare $2, SQLite would plan the query anew whenever a value is bound.
		users:   `SELECT id, body FROM main.storefront_users WHERE id > $1 ORDER BY id LIMIT +$2`,
		product: `SELECT id, body FROM main.storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM main.storefront_widgets WHERE id >= $1 ORDER BY id LIMIT +$2`,
		replace: ` ON CONFLICT (id) DO UPDATE SET body = excluded.body`,
		insertOne: `INSERT INTO main.storefront_orders (` + orderColumns + `, keyed_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, ` + now + `)` + ifKeyFree,
		ifFree: ifKeyFree,
		// An order that SQLite shows is on the disk.
		orderOf: `SELECT id, item, qty, fields, created_ms, key_fingerprint, key_hash FROM main.storefront_orders
			WHERE key_hash = $1`,
		newest: `WHERE scope = $1 ORDER BY id DESC LIMIT +$2`,
		older:  `WHERE scope = $1 AND id < $2 ORDER BY id DESC LIMIT +$3`,
		orderIndex: `SELECT 'ready' FROM pragma_index_list('storefront_orders', 'main') AS i
			WHERE NOT i.partial AND (SELECT group_concat(name) FROM
				(SELECT name FROM pragma_index_info(i.name, 'main') ORDER BY seqno)) = 'scope,id' LIMIT 1`,
		indexOrders: `CREATE INDEX IF NOT EXISTS main.storefront_orders_scope ON storefront_orders (scope, id)`,
		get:         `SELECT `,
		due:         `id`,
		pauses:      true, // orders ask for the lock now and then, and would seldom do so between two transactions
		now:         `SELECT ` + now,
		write:       `SELECT 1`, // there is nothing to wait for: the disk answers or fails
	}}, nil
}

// sqlitePragmas returns the file and the journal mode of the connection, or an error if a setting would
// break a promise. A library without these functions tells neither.
func sqlitePragmas(ctx context.Context, conn *sql.Conn) (file, journal string, err error) {
	var dirty, writable int
	err = conn.QueryRowContext(ctx, `SELECT (SELECT file FROM pragma_database_list WHERE name = 'main'),
		(SELECT journal_mode FROM pragma_journal_mode),
		(SELECT read_uncommitted FROM pragma_read_uncommitted),
		(SELECT writable_schema FROM pragma_writable_schema)`).Scan(&file, &journal, &dirty, &writable)
	switch {
	case err != nil && (transient(err) || ctx.Err() != nil):
		return "", "", err
	case err != nil:
		return "", "", nil
	case file == "":
		err = errors.New("sqlstore: this database is no file: it would be gone with its connection")
	case journal == "off" || journal == "memory":
		err = fmt.Errorf("sqlstore: with journal_mode = %s, the file does not survive a process that is "+
			"killed; it must be another mode, such as wal", journal)
	case dirty != 0:
		err = errors.New("sqlstore: with read_uncommitted = 1, the store would acknowledge orders that " +
			"another connection rolls back; it must be 0")
	case writable != 0:
		err = errors.New(
			"sqlstore: with writable_schema = 1, any statement may destroy the file; it must be 0")
	}
	return file, journal, err
}

// checkLocks returns an error if conn takes no locks on its file: if, while it writes there, it can also
// write to the same file under another name. Neither writes anything.
func checkLocks(ctx context.Context, conn *sql.Conn, file string) error {
	exec := func(statement string) error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	}
	var timeout int
	if err := conn.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&timeout); err != nil {
		return err
	}
	for _, step := range [...]struct{ do, undo string }{
		{`PRAGMA busy_timeout = 0`, fmt.Sprint(`PRAGMA busy_timeout = `, timeout)}, // not to wait for itself
		{`ATTACH DATABASE '` + strings.ReplaceAll(file, `'`, `''`) + `' AS again`, `DETACH DATABASE again`},
		{`BEGIN`, `ROLLBACK`},
	} {
		if err := exec(step.do); transient(err) {
			return err
		} else if err != nil { // such as of a cache that is shared
			return nil
		}
		defer exec(step.undo)
	}
	// The first fails at the lock of another process, or if the file is read-only.
	const write = `.incremental_vacuum(1)`
	if exec(`PRAGMA main`+write) != nil || exec(`PRAGMA again`+write) != nil {
		return nil
	}
	return errors.New("sqlstore: this file is used without locks, as with nolock=1 or vfs=unix-none: " +
		"two writers would create orders twice, and destroy it")
}

func (e *sqlite) look(ctx context.Context, conn *sql.Conn) error {
	_, _, err := sqlitePragmas(ctx, conn)
	return err
}

// server returns "": a file has no server.
func (e *sqlite) server(context.Context, *sql.Conn) (string, error) { return "", nil }

// open opens a link over any connection of the pool. Nothing ends a try early: a file does not fall silent.
// The store looks at one connection in each Check, and when orders inspect the tables. Nobody else need wait.
func (e *sqlite) open(ctx context.Context, s *Store, w *watchdog.Watch) (context.Context, link, error) {
	if w != nil {
		s.stats.add(&s.stats.Running, 1)
		return ctx, &preparedLink{e, s, w}, nil
	}
	_, c, err := s.connection(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	return ctx, &preparedLink{e, s, nil}, c.close(nil)
}

// A preparedLink prepares each statement once per connection: SQLite parses and plans it anew otherwise,
// and there is never a pooler between the store and the file.
type preparedLink struct {
	*sqlite
	store *Store
	watch *watchdog.Watch
}

func (l *preparedLink) close(err error) error {
	if l.watch != nil {
		l.store.stats.add(&l.store.stats.Running, -1)
	}
	return err
}

func (l *preparedLink) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	statement, err := l.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return statement.QueryContext(ctx, args...)
}

func (l *preparedLink) exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := l.writing.Acquire(ctx); err != nil {
		return 0, err
	}
	defer l.writing.Release()
	conn, err := l.store.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return rowsAffected(conn.ExecContext(ctx, query, args...))
}

// statement returns query as a statement that each connection prepares once. If two calls prepare it at once,
// one is kept. The other stays open, too: closing it would wait for the user of its connection.
func (l *preparedLink) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if statement, ok := l.prepared.Load(query); ok {
		return statement.(*sql.Stmt), nil
	}
	statement, err := l.store.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	kept, _ := l.prepared.LoadOrStore(query, statement)
	return kept.(*sql.Stmt), nil
}

func (l *preparedLink) begin(ctx context.Context) (transaction, error) {
	// Before the transaction: the pool may have one connection only.
	statement, err := l.statement(ctx, l.insertOne)
	if err != nil {
		return nil, err
	}
	if err := l.writing.Acquire(ctx); err != nil {
		return nil, err
	}
	var tx *sql.Tx
	defer func() {
		if tx == nil { // also if the driver panics
			l.writing.Release()
		}
	}()
	if tx, err = l.store.db.BeginTx(ctx, nil); err != nil {
		return nil, err
	}
	return &sqliteTx{Tx: tx, store: l.store, writing: &l.writing, insertOne: tx.StmtContext(ctx, statement)}, nil
}

type sqliteTx struct {
	*sql.Tx
	store     *Store
	writing   *slots.Slots
	insertOne *sql.Stmt
	calls
	accepting bool // Options.Accept has been called, and has not returned unless it panicked
}

func (tx *sqliteTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return rowsAffected(tx.ExecContext(ctx, query, args...))
}

func (tx *sqliteTx) insert(ctx context.Context, p *proposal) (n int64, err error) {
	tx.call(func() { n, err = rowsAffected(tx.insertOne.ExecContext(ctx, p.row()...)) })
	return n, err
}

func (tx *sqliteTx) accept(_ context.Context, f func(*sql.Tx)) {
	tx.accepting = true
	f(tx.Tx)
	tx.accepting = false
}

func (tx *sqliteTx) isDemoted(error) bool         { return false }
func (tx *sqliteTx) commit(context.Context) error { return tx.Commit() }

func (tx *sqliteTx) rollBack(ctx context.Context) {
	defer tx.writing.Release()
	switch {
	case tx.inDriver:
	case tx.accepting: // the driver may have panicked
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer tx.store.survive()
			tx.Rollback()
		}()
		select {
		case <-ended:
		case <-ctx.Done():
		case <-time.After(tx.store.times.rollBack):
		}
	default:
		tx.Rollback()
	}
}
