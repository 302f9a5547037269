// Package sqltap lets tests see, delay and fail what a program sends to its database.
package sqltap

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"testing"

	"github.com/ngrok/sqlmw"

	"example.com/storefront/internal/must"
)

// A Statement is what was sent to a database, and what it was sent with.
type Statement struct {
	Query string
	Args  []any
}

// A Tap stands between a pool and a driver: its function is called for every
// statement, prepared or not, and for COMMIT, and calls run to have the driver run it.
type Tap func(ctx context.Context, s Statement, run func() error) error

// Open returns a pool of connections by a driver that is registered, which is closed when t ends.
func Open(t testing.TB, driverName, url string, tap Tap) *sql.DB {
	t.Helper()
	plain := must.Get(sql.Open(driverName, url))(t)
	defer plain.Close()
	tapped := sqlmw.Driver(plain.Driver(), interceptor{tap: tap}).(driver.DriverContext)
	db := sql.OpenDB(must.Get(tapped.OpenConnector(url))(t))
	t.Cleanup(func() { db.Close() })
	return db
}

type interceptor struct {
	sqlmw.NullInterceptor
	tap Tap
}

func (i interceptor) ConnExecContext(ctx context.Context, conn driver.ExecerContext, query string, args []driver.NamedValue) (driver.Result, error) {
	return tapped(ctx, i.tap, query, args, func() (driver.Result, error) { return conn.ExecContext(ctx, query, args) })
}

func (i interceptor) ConnQueryContext(ctx context.Context, conn driver.QueryerContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	rows, err := tapped(ctx, i.tap, query, args, func() (driver.Rows, error) { return conn.QueryContext(ctx, query, args) })
	return ctx, rows, err
}

func (i interceptor) StmtExecContext(ctx context.Context, stmt driver.StmtExecContext, query string, args []driver.NamedValue) (driver.Result, error) {
	return tapped(ctx, i.tap, query, args, func() (driver.Result, error) { return stmt.ExecContext(ctx, args) })
}

func (i interceptor) StmtQueryContext(ctx context.Context, stmt driver.StmtQueryContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	rows, err := tapped(ctx, i.tap, query, args, func() (driver.Rows, error) { return stmt.QueryContext(ctx, args) })
	return ctx, rows, err
}

func (i interceptor) TxCommit(ctx context.Context, tx driver.Tx) error {
	return i.tap(ctx, Statement{Query: "COMMIT"}, tx.Commit)
}

func tapped[R any](ctx context.Context, tap Tap, query string, args []driver.NamedValue, run func() (R, error)) (r R, err error) {
	s := Statement{Query: query}
	for _, arg := range args {
		s.Args = append(s.Args, arg.Value)
	}
	err = tap(ctx, s, func() (err error) {
		r, err = run()
		return err
	})
	return r, err
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
