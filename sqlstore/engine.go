package sqlstore

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// An engine is a kind of database: what is sent to it where kinds differ, and how
// it likes its work.
type engine struct {
	users, product, widgets string // a list, one by its ID, and a list

	// insert inserts an order, unless its key is taken.
	insert string

	// orderOf reads the order of a key. It does not return before that order is as
	// durable as a new one.
	orderOf string

	// now reads the clock, in milliseconds since 1970-01-01 00:00:00 UTC.
	now string

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
	return &engine{
		users:   `SELECT id, body FROM storefront_users WHERE id > $1 ORDER BY id LIMIT $2`,
		product: `SELECT id, body FROM storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM storefront_widgets WHERE id >= $1 ORDER BY id LIMIT $2`,
		insert:  insertOrders(1),
		// The lock is there to write and thus to commit. A mere read would see an
		// order whose commit still waits for a synchronous standby after the
		// connection was lost, and answering with an order that may yet be lost in
		// a fail-over would be a false promise. The commit of a write waits for all
		// before it. An UPDATE would do, too, but for triggers and dead rows.
		orderOf: `SELECT id, item, qty, created_ms, fingerprint FROM storefront_orders WHERE key_hash = $1 FOR NO KEY UPDATE`,
		now:     `SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)`,
		commits: 4, // one round trip and flush each; more are slower than more orders in each
	}
}

func sqlite() *engine {
	return &engine{
		// For a bare $2, it would plan anew each time that one is bound.
		users:   `SELECT id, body FROM storefront_users WHERE id > $1 ORDER BY id LIMIT +$2`,
		product: `SELECT id, body FROM storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM storefront_widgets WHERE id >= $1 ORDER BY id LIMIT +$2`,
		insert:  insertOrders(1),
		// What can be seen is on the disk.
		orderOf:   `SELECT id, item, qty, created_ms, fingerprint FROM storefront_orders WHERE key_hash = $1`,
		now:       `SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`,
		commits:   1,
		oneWriter: true,
		prepares:  true,
	}
}

// ask returns what kind of database conn leads to.
func ask(ctx context.Context, conn *sql.Conn) (*engine, error) {
	var version string
	err := conn.QueryRowContext(ctx, `SELECT version()`).Scan(&version)
	switch {
	case err == nil:
		return postgreSQL(), nil // or what speaks its SQL
	case strings.Contains(err.Error(), "no such function"):
		return sqlite(), nil
	}
	return nil, err
}

// insertOrders returns the statement that inserts n orders, each with the arguments
// that proposal.row returns, but none whose key is taken.
func insertOrders(n int) string {
	return `INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, fingerprint) VALUES ` +
		placeholders(n, 7) + ` ON CONFLICT (key_hash) DO NOTHING`
}

// placeholders returns those of rows with as many columns, such as ($1, $2), ($3, $4).
func placeholders(rows, columns int) string {
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
		b.WriteString("$" + strconv.Itoa(i+1))
	}
	b.WriteString(")")
	return b.String()
}

// A session is what a try sends its statements through: a connection or, where
// they are prepared, any connection of the pool.
type session struct {
	store  *Store
	engine *engine
	conn   *sql.Conn // nil if the engine prepares
}

// query runs one of few queries.
func (c session) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if c.conn != nil {
		return c.conn.QueryContext(ctx, query, args...)
	}
	statement, err := c.store.prepared(ctx, query)
	if err != nil {
		return nil, err
	}
	return statement.QueryContext(ctx, args...)
}

// insert inserts an order, alone in its transaction.
func (c session) insert(ctx context.Context, args ...any) (n int64, err error) {
	if c.conn != nil {
		return rowsAffected(c.conn.ExecContext(ctx, c.engine.insert, args...))
	}
	statement, err := c.store.prepared(ctx, c.engine.insert)
	if err != nil {
		return 0, err
	}
	return rowsAffected(statement.ExecContext(ctx, args...))
}

// begin begins a transaction, and returns a function that is like insert, but in it.
func (c session) begin(ctx context.Context) (tx *sql.Tx, insert func(args ...any) (int64, error), err error) {
	if c.conn != nil {
		tx, err = c.conn.BeginTx(ctx, nil)
		return tx, func(args ...any) (int64, error) { return rowsAffected(tx.ExecContext(ctx, c.engine.insert, args...)) }, err
	}
	// Before the transaction: the pool may have one connection only.
	statement, err := c.store.prepared(ctx, c.engine.insert)
	if err != nil {
		return nil, nil, err
	}
	if tx, err = c.store.db.BeginTx(ctx, nil); err != nil {
		return nil, nil, err
	}
	statement = tx.StmtContext(ctx, statement)
	return tx, func(args ...any) (int64, error) { return rowsAffected(statement.ExecContext(ctx, args...)) }, nil
}

// prepared returns query as a statement that each connection prepares once.
func (s *Store) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if statement, ok := s.statements.Load(query); ok {
		return statement.(*sql.Stmt), nil
	}
	statement, err := s.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if first, ok := s.statements.LoadOrStore(query, statement); ok {
		statement.Close()
		return first.(*sql.Stmt), nil
	}
	return statement, nil
}

func rowsAffected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// exec runs any other statement.
func (c session) exec(ctx context.Context, query string, args ...any) (int64, error) {
	if c.conn != nil {
		return rowsAffected(c.conn.ExecContext(ctx, query, args...))
	}
	return rowsAffected(c.store.db.ExecContext(ctx, query, args...))
}

// number returns the only value of the only row of the engine's query.
func (s *Store) number(ctx context.Context, query func(*engine) string) (n int64, err error) {
	err = s.retryWith(ctx, func(ctx context.Context, c session) error {
		rows, err := c.query(ctx, query(c.engine))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := rows.Scan(&n); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return n, err
}
