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

// A session is what a try sends its statements through: a connection or, where
// they are prepared, any connection of the pool.
type session struct {
	store  *Store
	engine *engine
	conn   *sql.Conn // nil if the engine prepares
	held   *held
}

// held is what keeps conn from being given back.
type held struct {
	until     <-chan struct{} // closes when it can be, if not at once
	closing   bool            // database/sql may be closing it
	heard     atomic.Bool     // a statement of the try has been answered
	accepting atomic.Bool     // Options.Accept has been called
}

// withSession calls try with a session. If w is not nil, it goes by what is known there,
// and adds to it.
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

// ordersAtOnce returns how many connections orders have at most: half of the pool's, so
// that reads go on while orders wait for a lock. 0 is any number.
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
	connect := func(ctx context.Context) (err error) {
		conn, err = s.db.Conn(ctx)
		if err != nil && sqlState(err) == "" && err.Error() != "sql: database is closed" {
			if number, _ := mySQLCode(err); number == 0 {
				err = classified{err, lost} // no server was reached, or none that is the primary
			}
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
		case h.until == nil:
			s.release(conn, &h, err)
		default:
			go func() {
				<-h.until
				s.release(conn, &h, err)
			}()
		}
	}()
	run := func(ctx context.Context) error {
		if pooled {
			if err := connect(ctx); err != nil {
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

// inTurn calls run with a ctx that is also done once it has taken a quarter of the time
// that calls have and others wait for a connection for an order, unless Options.Accept has
// been called. So those who wait for locks do not keep all connections of orders from those
// who need not. A server that goes on without its caller is not left for that: in MySQL, they
// wait no longer than innodb_lock_wait_timeout.
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

// release gives a connection back to the pool, over which a try has ended with err.
func (s *Store) release(conn *sql.Conn, h *held, err error) {
	// A server that was the primary when it was connected to, and no longer is, may
	// have the connection in order, but it must not go back to the pool. Where
	// database/sql ends the transaction of a ctx that is done, it may close the Conn, too,
	// whose method Raw must not be called meanwhile; it drops the connection itself if
	// that is not in order.
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

// detect returns what kind of database it is that conn leads to.
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

// known is detect for who has no connection.
func (s *Store) known(ctx context.Context, w *watch) (e *engine, err error) {
	if e = s.engine.Load(); e == nil {
		err = s.withSession(ctx, w, func(_ context.Context, c session) error { e = c.engine; return nil })
	}
	return e, err
}

// retryWith calls try with a session, as retry does.
func (s *Store) retryWith(ctx context.Context, try func(context.Context, session) error) error {
	return s.retry(ctx, time.Now().Add(s.opts.Timeout), func(ctx context.Context) error { return s.withSession(ctx, nil, try) })
}

// query runs a query, prepared once by its text where the engine prepares: callers have
// few texts.
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

// each runs a query as query does, scans each row into dest, and calls then after it.
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
	// The commit of a statement that writes, if there is one, comes after its rows, and may fail.
	return errors.Join(rows.Err(), rows.Close())
}

// hashes runs a statement that returns some of the orders' key_hash.
func (c session) hashes(ctx context.Context, query string, args ...any) (map[[sha256.Size]byte]bool, error) {
	hashes := make(map[[sha256.Size]byte]bool)
	var hash []byte
	err := c.each(ctx, func() { hashes[[sha256.Size]byte(hash)] = true }, []any{&hash}, query, args...)
	return hashes, err
}

// A transaction is one in which orders are inserted.
type transaction struct {
	*sql.Tx
	session
	insert func(ctx context.Context, args ...any) (sql.Result, error)
	cancel context.CancelFunc // of the ctx that it began with
	ended  bool               // by commit, and not by database/sql
}

// begin begins a transaction, with the values of ctx. Only begin itself and commit end
// when ctx is done, besides statements: database/sql would roll back then, in a
// goroutine of its own, and whoever gives the connection back waits for that (see also
// release).
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
		return &transaction{tx, c, tx.StmtContext(ctx, statement).ExecContext, nil, false}, nil
	}
	if c.held.until != nil || c.held.closing {
		return nil, classified{errors.New("sqlstore: the connection's last transaction has not ended"), lost}
	}
	beginning, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := c.conn.BeginTx(beginning, nil)
	if !stop() && err == nil {
		// database/sql rolls back, and who gives the connection back waits for that.
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
	insert := func(ctx context.Context, args ...any) (sql.Result, error) {
		return tx.ExecContext(ctx, c.engine.insert, args...)
	}
	return &transaction{tx, c, insert, cancel, false}, nil
}

// commit commits the transaction.
func (tx *transaction) commit(ctx context.Context) error {
	switch {
	case tx.conn == nil:
		return tx.Commit()
	case tx.engine.commit != "":
		_, err := tx.ExecContext(ctx, tx.engine.commit)
		return err
	}
	defer tx.endWith(ctx)()
	err := tx.Commit()
	tx.ended = ctx.Err() == nil
	return err
}

// endWith has database/sql end the transaction when ctx is done, as far as its methods
// that are given no ctx are concerned, until the function is called that it returns. It
// does nothing where the driver would not be told.
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

// rollBack ends the transaction, if it has not ended. A server that hangs is left when
// ctx is done, or soon, as what the call returns is known by then; the connection cannot
// be, so it is given back when the driver is done with it.
func (tx *transaction) rollBack(ctx context.Context) {
	if tx.conn == nil {
		tx.Rollback()
		return
	}
	ended := make(chan struct{})
	late := time.NewTimer(tx.store.opts.Timeout / 5)
	defer late.Stop()
	go func() {
		defer close(ended)
		defer tx.cancel()
		defer time.AfterFunc(tx.store.opts.Timeout/5, tx.cancel).Stop()
		if err := tx.Rollback(); err == sql.ErrTxDone && !tx.ended {
			tx.held.closing = true
		}
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	case <-late.C:
	}
	tx.held.until = ended
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

// exec runs any other statement, and returns how many rows it affected. While they are
// asked for, the connection is held: database/sql waits for whoever has it by then.
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

// rowsAffected is for the result of a statement whose connection is still held.
func rowsAffected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// number returns the only value of the only row of the engine's query.
func (s *Store) number(ctx context.Context, query func(*engine) string) (n int64, err error) {
	err = s.retryWith(ctx, func(ctx context.Context, c session) error {
		return c.each(ctx, func() {}, []any{&n}, query(c.engine))
	})
	return n, err
}

// slots are for connections that may be in use at the same time. Who waits for one gets
// it in turn.
type slots struct {
	mu      sync.Mutex
	used    int
	waiting []chan struct{}
}

// take waits for a slot while as many as most returns are used, if that is not 0.
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
		s.giveBack() // it was its turn in the same moment
	}
	return ctx.Err()
}

// wanted reports whether anybody waits for a slot.
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
