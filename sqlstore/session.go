package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A session sends the statements of a try: over one connection or, where the engine
// prepares statements, over any connection of the pool.
type session struct {
	store  *Store
	engine *engine
	conn   *sql.Conn // nil if the engine prepares
	held   *held
}

// held is the state of the connection that a try holds.
type held struct {
	until     <-chan struct{} // closes when conn can be given back; nil: it can be at once
	closing   bool            // database/sql may be closing conn
	heard     atomic.Bool     // the server has answered a statement of the try
	accepting atomic.Bool     // Options.Accept has been called
}

// withSession calls try with a session. If w is not nil, w ends a try that the server does
// not answer, and records the outcome.
func (s *Store) withSession(ctx context.Context, w *watch, try func(context.Context, session) error) error {
	if w != nil && w.health == &s.ordering {
		if err := s.slots.take(ctx, s.ordersAtOnce); err != nil {
			return err
		}
		defer s.slots.giveBack()
	}
	began := s.now()
	err := s.withConn(ctx, w, try)
	if w != nil && ctx.Err() != context.Canceled {
		w.note(began, s.now(), err)
	}
	return err
}

// ordersAtOnce returns how many connections orders may use at once: half of the pool, so
// that reads go on while orders wait for a lock. 0 means any number.
func (s *Store) ordersAtOnce() int {
	most := s.db.Stats().MaxOpenConnections
	return min(most, max(1, most/2))
}

func (s *Store) withConn(ctx context.Context, w *watch, try func(context.Context, session) error) (err error) {
	running := func() (ends func()) {
		if w == nil {
			return func() {}
		}
		s.stats.running.Add(1)
		return func() { s.stats.running.Add(-1) }
	}
	if e := s.engine.Load(); e != nil && e.prepares {
		defer running()()
		return try(ctx, session{store: s, engine: e})
	}
	var conn *sql.Conn
	var h held
	// Connecting may take long, so w does not limit it. But before a driver hands out a
	// connection of the pool, it may ask the server whether it is there (pgx does), and get
	// no answer.
	pooled := w != nil && s.db.Stats().Idle > 0
	if !pooled {
		if conn, err = s.connect(ctx); err != nil {
			return err
		}
	}
	defer func() {
		switch {
		case conn == nil:
		case h.until == nil:
			s.release(conn, &h, err)
		default:
			go func() {
				<-h.until
				s.release(conn, &h, err)
			}()
		}
	}()
	run := func(ctx context.Context) (err error) {
		if pooled {
			if conn, err = s.connect(ctx); err != nil {
				return err
			}
		}
		defer running()()
		e, err := s.detect(ctx, conn)
		if err != nil {
			return err
		}
		try := func(ctx context.Context) error { return try(ctx, session{s, e, conn, &h}) }
		if w != nil && w.health == &s.ordering && !e.persists {
			return s.inTurn(ctx, &h, try)
		}
		return try(ctx)
	}
	if w == nil {
		return run(ctx)
	}
	return w.try(ctx, s, &h.heard, run)
}

// inTurn calls run with a ctx that is also done once run has taken a quarter of
// Options.Timeout while other orders wait for a connection, unless it has called
// Options.Accept. So the orders that wait for locks do not keep all connections from those
// that need not wait. It is not for an engine that persists: MySQL ends the wait for a lock
// after innodb_lock_wait_timeout.
func (s *Store) inTurn(ctx context.Context, h *held, run func(context.Context) error) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	long := s.opts.Timeout / 4
	var check func()
	check = func() {
		switch {
		case h.accepting.Load() || running.Err() != nil:
		case s.slots.wanted():
			cancel()
		default:
			time.AfterFunc(s.jitter(long/8, long/4), check)
		}
	}
	defer time.AfterFunc(long, check).Stop()
	err := run(running)
	if err != nil && ctx.Err() == nil && running.Err() != nil {
		err = classified{fmt.Errorf("sqlstore: it waits for others: %w", err), conflict}
	}
	return err
}

// connect returns a connection, new or of the pool.
func (s *Store) connect(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil && err.Error() != "sql: database is closed" {
		if _, ok := codeClass(err); !ok {
			err = classified{err, lost} // no server was reached, or none that is the primary
		}
	}
	return conn, err
}

// release gives a connection back to the pool after a try that has ended with err.
func (s *Store) release(conn *sql.Conn, h *held, err error) {
	// A connection to a server that is no longer the primary may be in order, but must not go
	// back to the pool. While database/sql ends the transaction of a ctx that is done, it may
	// close conn, and conn.Raw, which drop calls, must not run; database/sql itself drops a
	// connection that is not in order.
	if class := classOf(err); (class == silent || class == notPrimary) && !h.closing {
		s.drop(conn)
	}
	conn.Close()
}

// drop closes a connection that must not go back to the pool.
func (s *Store) drop(conn *sql.Conn) {
	s.stats.dropped.Add(1)
	conn.Raw(func(any) error { return driver.ErrBadConn })
}

// detect returns the engine of the database, which it asks over conn unless the engine is
// known.
func (s *Store) detect(ctx context.Context, conn *sql.Conn) (*engine, error) {
	if e := s.engine.Load(); e != nil {
		return e, nil
	}
	e, err := detect(ctx, conn)
	if err != nil {
		return nil, err
	}
	name, err := serverOf(ctx, e, conn)
	if err != nil {
		return nil, err
	}
	s.server.Store(&name)
	s.engine.CompareAndSwap(nil, e)
	return s.engine.Load(), nil
}

// knownEngine returns the engine, and connects to the database if it is not known yet.
func (s *Store) knownEngine(ctx context.Context, w *watch) (e *engine, err error) {
	if e = s.engine.Load(); e == nil {
		err = s.withSession(ctx, w, func(_ context.Context, c session) error { e = c.engine; return nil })
	}
	return e, err
}

// retryWith is retry with a session, for as long as Options.Timeout.
func (s *Store) retryWith(ctx context.Context, try func(context.Context, session) error) error {
	return s.retry(ctx, time.Now().Add(s.opts.Timeout), func(ctx context.Context) error { return s.withSession(ctx, nil, try) })
}

// query runs a query. Where the engine prepares statements, query keeps one for each text:
// its callers use a fixed set of texts.
func (c session) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if c.conn != nil {
		return c.conn.QueryContext(ctx, query, args...)
	}
	statement, err := c.store.prepared(ctx, query)
	switch {
	case err != nil:
		return nil, err
	case statement == nil:
		return c.store.db.QueryContext(ctx, query, args...)
	}
	return statement.QueryContext(ctx, args...)
}

// each runs a query as query does, scans each row into dest, and then calls then.
func (c session) each(ctx context.Context, then func(), dest []any, query string, args ...any) error {
	rows, err := c.query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		then()
	}
	// A statement that writes commits after its last row, and that may fail.
	return errors.Join(rows.Err(), rows.Close())
}

// hashes returns the key_hash of each row of a statement.
func (c session) hashes(ctx context.Context, query string, args ...any) (map[[sha256.Size]byte]bool, error) {
	hashes := make(map[[sha256.Size]byte]bool)
	var hash []byte
	err := c.each(ctx, func() { hashes[[sha256.Size]byte(hash)] = true }, []any{&hash}, query, args...)
	return hashes, err
}

// A transaction inserts orders.
type transaction struct {
	*sql.Tx
	session
	insert func(ctx context.Context, args ...any) (sql.Result, error)
	cancel context.CancelFunc // of the ctx that began the transaction
	ended  bool               // commit has ended the transaction, and not database/sql
}

// begin begins a transaction, with the values of ctx. When ctx is done, begin, commit and
// the statements return, but the transaction stays until rollBack: database/sql would roll
// back in a goroutine of its own, and giving the connection back would wait for that (see
// also release).
func (c session) begin(ctx context.Context) (*transaction, error) {
	if c.conn == nil {
		// Before the transaction: the pool may have one connection only.
		statement, err := c.store.prepared(ctx, c.engine.insert)
		if err != nil {
			return nil, err
		}
		tx, err := c.store.db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		insert := insertWith(tx, c.engine)
		if statement != nil {
			insert = tx.StmtContext(ctx, statement).ExecContext
		}
		return &transaction{tx, c, insert, nil, false}, nil
	}
	if c.held.until != nil || c.held.closing {
		return nil, classified{errors.New("sqlstore: the connection's last transaction has not ended"), lost}
	}
	beginning, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := c.conn.BeginTx(beginning, nil)
	if !stop() && err == nil {
		// ctx is done, so that database/sql rolls back.
		ended := make(chan struct{})
		close(ended)
		c.held.closing, c.held.until = true, ended
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	c.held.heard.Store(true)
	return &transaction{tx, c, insertWith(tx, c.engine), cancel, false}, nil
}

// insertWith returns a function that inserts an order with a statement that is not prepared.
func insertWith(tx *sql.Tx, e *engine) func(context.Context, ...any) (sql.Result, error) {
	return func(ctx context.Context, args ...any) (sql.Result, error) {
		return tx.ExecContext(ctx, e.insert, args...)
	}
}

// send runs a statement without arguments.
func (tx *transaction) send(ctx context.Context, statement string) error {
	_, err := tx.ExecContext(ctx, statement)
	return err
}

// commit commits the transaction.
func (tx *transaction) commit(ctx context.Context) error {
	switch {
	case tx.conn == nil:
		return tx.Commit()
	case tx.engine.commit != "":
		return tx.send(ctx, tx.engine.commit)
	}
	defer tx.endWith(ctx)()
	err := tx.Commit()
	tx.ended = ctx.Err() == nil
	return err
}

// endWith makes database/sql end the transaction when ctx is done, for the methods of
// sql.Tx that take no ctx, until the caller calls the function that endWith returns. It does
// nothing for an engine whose driver would go on all the same.
func (tx *transaction) endWith(ctx context.Context) func() {
	if tx.conn == nil || tx.engine.commit != "" {
		return func() {}
	}
	stop := context.AfterFunc(ctx, tx.cancel)
	return func() {
		if !stop() {
			tx.held.closing = true
		}
	}
}

// rollBack ends the transaction, if it has not ended. It does not wait for a server that
// hangs for longer than ctx, or than a fifth of Options.Timeout: the result of the call is
// known by then. The connection is given back when the driver is done with it.
func (tx *transaction) rollBack(ctx context.Context) {
	if tx.conn == nil {
		tx.Rollback()
		return
	}
	ended, late := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer tx.cancel()
		defer time.AfterFunc(tx.store.opts.Timeout/5, func() {
			tx.cancel()
			close(late)
		}).Stop()
		if err := tx.Rollback(); err == sql.ErrTxDone && !tx.ended {
			tx.held.closing = true
		}
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	case <-late:
	}
	tx.held.until = ended
}

// prepared returns query as a statement that each connection prepares once, or nil while
// another call prepares it. Two calls would prepare two, and closing one of them would wait
// for the user of its connection.
func (s *Store) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if statement, ok := s.statements.LoadOrStore(query, (*sql.Stmt)(nil)); ok {
		return statement.(*sql.Stmt), nil
	}
	statement, err := s.db.PrepareContext(ctx, query)
	if err != nil {
		s.statements.Delete(query)
		return nil, err
	}
	s.statements.Store(query, statement)
	return statement, nil
}

// exec runs any other statement, and returns how many rows it affected. It holds the
// connection until it has that number: database/sql would wait for the next user of the
// connection.
func (c session) exec(ctx context.Context, query string, args ...any) (int64, error) {
	conn := c.conn
	if conn == nil {
		var err error
		if conn, err = c.store.db.Conn(ctx); err != nil {
			return 0, err
		}
		defer conn.Close()
	}
	return rowsAffected(conn.ExecContext(ctx, query, args...))
}

// rowsAffected returns how many rows a statement affected whose connection is still held.
func rowsAffected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// number returns the single value that a query of the engine returns.
func (s *Store) number(ctx context.Context, query func(*engine) string) (n int64, err error) {
	err = s.retryWith(ctx, func(ctx context.Context, c session) error {
		return c.each(ctx, func() {}, []any{&n}, query(c.engine))
	})
	return n, err
}

// slots limits how many connections orders use at once. Those that wait for a slot get one
// in the sequence of their arrival.
type slots struct {
	mu      sync.Mutex
	used    int
	waiting []chan struct{}
}

// take waits for a slot while most() slots are used. If most() is 0, there is no limit.
func (s *slots) take(ctx context.Context, most func() int) error {
	s.mu.Lock()
	if limit := most(); limit == 0 || s.used < limit {
		s.used++
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(s.waiting, turn)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		s.giveBack() // giveBack has passed a slot on to this call in the same moment
	}
	return ctx.Err()
}

// wanted reports whether a call waits for a slot.
func (s *slots) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

func (s *slots) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.used--
		return
	}
	close(s.waiting[0])
	s.waiting = s.waiting[1:]
}
