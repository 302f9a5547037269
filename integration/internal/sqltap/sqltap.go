// Package sqltap lets tests see, delay and fail what a program sends to its database.
package sqltap

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
)

// A Statement is what was sent to a database, and what it was sent with.
type Statement struct {
	Query   string
	Args    []any
	Commits bool // it is COMMIT, or in no transaction but its own
}

// A Tap stands between a pool and a driver: its function is called for every
// statement, prepared or not, and for BEGIN and COMMIT, and calls run to have the
// driver run it.
type Tap func(ctx context.Context, s Statement, run func() error) error

// Open returns a pool of connections, with the driver "sqlite", "pgx" or
// "mysql", which is closed when t ends.
func Open(t testing.TB, driverName, url string, tap Tap) *sql.DB {
	t.Helper()
	var connector driver.Connector
	var err error
	switch driverName {
	case "sqlite":
		connector, err = sqlite.NewConnector(url)
	case "pgx":
		connector, err = stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(url)
	case "mysql":
		connector, err = mysql.MySQLDriver{}.OpenConnector(url)
	}
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(tappedConnector{connector, tap})
	t.Cleanup(func() { db.Close() })
	return db
}

type tappedConnector struct {
	driver.Connector
	tap Tap
}

func (c tappedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &tappedConn{driverConn: conn.(driverConn), tap: c.tap}, nil
}

// A driverConn is what the connections of all drivers can do.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
}

type tappedConn struct {
	driverConn
	tap  Tap
	inTx bool
}

func (c *tappedConn) statement(query string, args []driver.NamedValue) Statement {
	return Statement{query, values(args), !c.inTx || query == "COMMIT"}
}

func (c *tappedConn) ExecContext(ctx context.Context, query string,
	args []driver.NamedValue) (result driver.Result, err error) {
	err = c.tap(ctx, c.statement(query, args), func() (err error) {
		result, err = c.driverConn.ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

func (c *tappedConn) QueryContext(ctx context.Context, query string,
	args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.tap(ctx, c.statement(query, args), func() (err error) {
		rows, err = c.driverConn.QueryContext(ctx, query, args)
		return err
	})
	if err != nil && rows != nil {
		rows.Close()
		rows = nil
	}
	return rows, err
}

func (c *tappedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	c.inTx = true
	err = c.tap(ctx, c.statement("BEGIN", nil), func() (err error) {
		tx, err = c.driverConn.BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		c.inTx = false
		if tx != nil {
			tx.Rollback()
		}
		return nil, err
	}
	return tappedTx{tx, ctx, c}, nil
}

type tappedTx struct {
	driver.Tx
	ctx  context.Context // a driver.Tx is not given one, and drivers keep that of BeginTx, too
	conn *tappedConn
}

func (tx tappedTx) Rollback() error {
	tx.conn.inTx = false
	return tx.Tx.Rollback()
}

func (tx tappedTx) Commit() error {
	tx.conn.inTx = false
	ran := false
	err := tx.conn.tap(tx.ctx, tx.conn.statement("COMMIT", nil), func() error {
		ran = true
		return tx.Tx.Commit()
	})
	if !ran { // the pool takes the connection back, whatever the error
		tx.Tx.Rollback()
	}
	return err
}

func (c *tappedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.driverConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return tappedStmt{stmt.(driverStmt), query, c}, nil
}

// A driverStmt is what the prepared statements of all drivers can do.
type driverStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type tappedStmt struct {
	driverStmt
	query string
	conn  *tappedConn
}

func (s tappedStmt) ExecContext(ctx context.Context,
	args []driver.NamedValue) (result driver.Result, err error) {
	err = s.conn.tap(ctx, s.conn.statement(s.query, args), func() (err error) {
		result, err = s.driverStmt.ExecContext(ctx, args)
		return err
	})
	return result, err
}

func (s tappedStmt) QueryContext(ctx context.Context,
	args []driver.NamedValue) (rows driver.Rows, err error) {
	err = s.conn.tap(ctx, s.conn.statement(s.query, args), func() (err error) {
		rows, err = s.driverStmt.QueryContext(ctx, args)
		return err
	})
	if err != nil && rows != nil {
		rows.Close()
		rows = nil
	}
	return rows, err
}

// IsValid and CheckNamedValue are each not implemented by all of the drivers.
func (c *tappedConn) IsValid() bool {
	v, ok := c.driverConn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *tappedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.driverConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func values(args []driver.NamedValue) (list []any) {
	for _, arg := range args {
		list = append(list, arg.Value)
	}
	return list
}

// A Recorder is a tap that keeps the last few statements.
type Recorder struct {
	mu   sync.Mutex
	sent []Statement
}

// Tap is the tap.
func (r *Recorder) Tap(_ context.Context, s Statement, run func() error) error {
	r.mu.Lock()
	if r.sent = append(r.sent, s); len(r.sent) > 16 { // one of Put is large
		r.sent = r.sent[1:]
	}
	r.mu.Unlock()
	return run()
}

// Take returns the last statements that were sent since it was called before.
func (r *Recorder) Take() []Statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}
