package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"example.com/storefront/internal/sqlerror"
)

func (c *connection) begin(ctx context.Context) (transaction, error) {
	tx, err := c.beginTx(ctx)
	return tx, err
}

// A connTx is a transaction on a connection.
type connTx struct {
	*sql.Tx
	*connection
	cancel context.CancelFunc // of the ctx that began the transaction
	ended  bool               // commit has ended the transaction, and not database/sql
}

// beginTx begins a transaction, with the values of ctx. When ctx is done, beginTx, commit and the statements
// return, but the transaction stays until rollBack: database/sql would roll back in a goroutine of its own,
// and giving the connection back would wait for that (see also release).
func (c *connection) beginTx(ctx context.Context) (*connTx, error) {
	if c.until != nil || c.closing {
		return nil, sqlerror.With(sqlerror.Lost,
			errors.New("sqlstore: the connection's last transaction has not ended"))
	}
	beginning, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := c.conn.BeginTx(beginning, nil)
	if !stop() && err == nil {
		// ctx is done, so that database/sql rolls back.
		ended := make(chan struct{})
		close(ended)
		c.closing, c.until = true, ended
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	if c.try != nil {
		c.try.Heard()
	}
	return &connTx{tx, c, cancel, false}, nil
}

func (tx *connTx) query(ctx context.Context, query string, args ...any) (rows *sql.Rows, err error) {
	tx.call(func() { rows, err = tx.QueryContext(ctx, query, args...) })
	return rows, err
}

func (tx *connTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	n, err := rowsAffected(tx.ExecContext(ctx, query, args...))
	return n, unlessDone(ctx, err)
}

func (tx *connTx) insert(ctx context.Context, p *proposal) (int64, error) {
	return tx.store.database.Load().sql().insert(ctx, tx, p)
}

func (tx *connTx) accept(ctx context.Context, f func(*sql.Tx)) {
	tx.accepting.Store(true)
	defer tx.endWith(ctx)()
	f(tx.Tx)
}

func (tx *connTx) isDemoted(err error) bool {
	class, _ := sqlerror.ByCode(err)
	return class == sqlerror.NotPrimary
}

func (tx *connTx) commit(ctx context.Context) error {
	defer tx.endWith(ctx)()
	err := tx.Commit()
	tx.ended = ctx.Err() == nil
	return unlessDone(ctx, err)
}

// endWith makes database/sql end the transaction when ctx is done, for the methods of
// sql.Tx that take no ctx, until the caller calls the function that endWith returns.
func (tx *connTx) endWith(ctx context.Context) func() {
	stop := context.AfterFunc(ctx, tx.cancel)
	return func() {
		if !stop() || ctx.Err() != nil { // ctx may be done, and the func of AfterFunc not have begun
			tx.cancel()
			tx.closing = true
		}
	}
}

// rollBack does not wait for a server that hangs for longer than ctx, or than times.rollBack: the result of
// the call is known by then. The connection is given back when the driver is done with it.
func (tx *connTx) rollBack(ctx context.Context) {
	if tx.inDriver {
		tx.cancel()
		return
	}
	ended, late := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer tx.cancel()
		defer time.AfterFunc(tx.store.times.rollBack, func() {
			tx.cancel()
			close(late)
		}).Stop()
		defer tx.store.survive()
		tx.call(func() {
			if err := tx.Rollback(); err == sql.ErrTxDone && !tx.ended {
				tx.closing = true
			}
		})
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	case <-late:
	}
	tx.until = ended
}
