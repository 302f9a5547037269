package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// A session is what a try sends its statements through: a connection or, where
// they are prepared, any connection of the pool.
type session struct {
	store  *Store
	engine *engine
	conn   *sql.Conn        // nil if the engine prepares
	busy   *<-chan struct{} // what closes when conn can be given back, if not at once
}

// with calls try with a session. If w is not nil, it goes by what is known there, and
// adds to it.
func (s *Store) with(ctx context.Context, w *watch, try func(context.Context, session) error) error {
	began := s.now()
	err := s.connected(ctx, w, try)
	if w != nil && ctx.Err() != context.Canceled {
		w.note(began, s.now(), err)
	}
	return err
}

func (s *Store) connected(ctx context.Context, w *watch, try func(context.Context, session) error) (err error) {
	if e := s.engine.Load(); e != nil && e.prepares {
		return try(ctx, session{store: s, engine: e})
	}
	var conn *sql.Conn
	var busy <-chan struct{}
	connect := func(ctx context.Context) (err error) {
		conn, err = s.db.Conn(ctx)
		if err != nil && sqlState(err) == "" && mySQLNumber(err) == 0 && err.Error() != "sql: database is closed" {
			err = passing{err} // no server was reached, or none that is the primary
		}
		return err
	}
	// To connect may take long. But where the pool has a connection, the driver may
	// ask the server whether it is there (pgx does), and get no answer.
	pooled := w != nil && s.db.Stats().Idle > 0
	if !pooled {
		if err := connect(ctx); err != nil {
			return err
		}
	}
	defer func() {
		switch {
		case conn == nil:
		case busy == nil:
			release(conn, err)
		default:
			go func() {
				<-busy
				release(conn, err)
			}()
		}
	}()
	over := func(ctx context.Context) error {
		if pooled {
			if err := connect(ctx); err != nil {
				return err
			}
		}
		e, err := s.ask(ctx, conn)
		if err != nil {
			return err
		}
		return try(ctx, session{s, e, conn, &busy})
	}
	if w == nil {
		return over(ctx)
	}
	return w.try(ctx, s, over)
}

// release gives a connection back to the pool, over which a try has ended with err.
func release(conn *sql.Conn, err error) {
	if _, silent := err.(silence); silent || displaced(err) {
		// The server was the primary when it was connected to, and no longer is.
		// The connection may be in order, but must not go back to the pool.
		conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	conn.Close()
}

// ask returns what kind of database it is.
func (s *Store) ask(ctx context.Context, conn *sql.Conn) (*engine, error) {
	if e := s.engine.Load(); e != nil {
		return e, nil
	}
	e, err := ask(ctx, conn)
	if err == nil {
		s.engine.Store(e)
	}
	return e, err
}

// known is ask for who has no connection.
func (s *Store) known(ctx context.Context, w *watch) (e *engine, err error) {
	if e = s.engine.Load(); e == nil {
		err = s.with(ctx, w, func(_ context.Context, c session) error { e = c.engine; return nil })
	}
	return e, err
}

// retryWith calls try with a session, as retry does.
func (s *Store) retryWith(ctx context.Context, try func(context.Context, session) error) error {
	return s.retry(ctx, func(ctx context.Context) error { return s.with(ctx, nil, try) })
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

// hashes runs a statement that returns some of the orders' key_hash.
func (c session) hashes(ctx context.Context, query string, args ...any) (map[[sha256.Size]byte]bool, error) {
	rows, err := c.query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	hashes := make(map[[sha256.Size]byte]bool)
	for rows.Next() {
		var hash []byte
		if err := rows.Scan(&hash); err != nil {
			return nil, err
		}
		hashes[[sha256.Size]byte(hash)] = true
	}
	// The rows of an INSERT come before its commit, which may fail.
	return hashes, errors.Join(rows.Err(), rows.Close())
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

// begin begins a transaction with the values of a ctx, and returns a function that is
// like insert, but in it.
func (c session) begin(ctx context.Context, v *values) (tx *sql.Tx, insert func(args ...any) (int64, error), err error) {
	if c.conn != nil {
		beginning := ctx
		if c.engine.commit != "" {
			// When the ctx of a transaction is done, database/sql rolls back, and
			// whoever gives the connection back waits for that. See rollBack.
			var cancel context.CancelFunc
			beginning, cancel = context.WithCancel(v)
			defer context.AfterFunc(ctx, cancel)()
		}
		tx, err = c.conn.BeginTx(beginning, nil)
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

// rollBack ends tx, if it has not ended. For a driver that is not told when the call's
// time is up, a server that hangs is left then. The connection cannot be, so it is
// given back when the driver is done with it.
func (c session) rollBack(ctx context.Context, tx *sql.Tx) {
	if c.engine.commit == "" {
		tx.Rollback()
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tx.Rollback()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		*c.busy = ended
	}
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
