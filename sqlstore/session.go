package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A database is what the store has found out about its database.
type database struct {
	engine
	committer
}

// A session is a link that one try uses, and what it holds meanwhile.
type session struct {
	link
	database *database // nil: not known yet
	store    *Store
	watch    *watch
	began    time.Duration
	caller   context.Context
}

// An opener is engine.open.
type opener func(context.Context, *Store, *watch) (context.Context, link, error)

// session opens a session with the database, and returns the ctx of its statements. It first finds out
// which database that is, if that is not known yet. w, if it is not nil, ends a try that the server does
// not answer, and records the outcome.
func (s *Store) session(ctx context.Context, w *watch) (context.Context, *session, error) {
	db, err := s.known(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	return s.openWith(ctx, w, db, db.open)
}

// openWith opens a session over the link that open opens.
func (s *Store) openWith(ctx context.Context, w *watch, db *database, open opener) (
	context.Context, *session, error) {
	if w != nil && w.slots != nil {
		if err := w.slots.Acquire(ctx); err != nil {
			return nil, nil, err
		}
	}
	c := &session{database: db, store: s, watch: w, began: s.now(), caller: ctx}
	err := errNoReturn
	defer func() {
		if err != nil { // also if a driver panics
			c.end(err)
		}
	}()
	ctx, c.link, err = open(ctx, s, w)
	return ctx, c, err
}

// close closes the session after a try that has ended with err, and returns the error to go by.
func (c *session) close(err error) error {
	err = c.link.close(err)
	c.end(err)
	return err
}

// end records the outcome of a try, and gives its slot back.
func (c *session) end(err error) {
	if c.watch == nil {
		return
	}
	if c.caller.Err() != context.Canceled && err != errNoReturn {
		c.watch.note(c.began, c.store.now(), err)
	}
	if c.watch.slots != nil {
		c.watch.slots.Release()
	}
}

// with calls f with a session.
func (s *Store) with(ctx context.Context, w *watch, f func(context.Context, *session) error) (err error) {
	ctx, c, err := s.session(ctx, w)
	if err != nil {
		return err
	}
	defer func() { err = c.close(err) }()
	return f(ctx, c)
}

// retryWith is retry with a session, for as long as Options.Timeout.
func (s *Store) retryWith(ctx context.Context, try func(context.Context, *session) error) error {
	return s.retry(ctx, time.Now().Add(s.opts.Timeout), func(ctx context.Context) error {
		return s.with(ctx, nil, try)
	})
}

// insert inserts the order of an attempt, and returns how many rows that were.
func (c *session) insert(ctx context.Context, a *attempt) (int64, error) {
	return c.database.sql().insertOrder(ctx, c, a)
}

// each runs a query, scans each row into dest, and then calls then.
func (c *session) each(ctx context.Context, then func(), dest []any, query string, args ...any) error {
	return each(ctx, c, then, dest, query, args...)
}

// A sender sends statements: a link or a transaction.
type sender interface {
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	exec(ctx context.Context, query string, args ...any) (int64, error)
}

func each(ctx context.Context, to sender, then func(), dest []any, query string, args ...any) error {
	rows, err := to.query(ctx, query, args...)
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

// hashes returns the key_hash of each row of a statement, which are those of some of the attempts.
func (c *session) hashes(ctx context.Context, attempts []*attempt, query string, args ...any) (
	map[[sha256.Size]byte]bool, error) {
	hashes := make(map[[sha256.Size]byte]bool)
	var hash []byte
	var other error
	err := c.each(ctx, func() {
		if !slices.ContainsFunc(attempts, func(a *attempt) bool { return bytes.Equal(a.hash[:], hash) }) {
			other = errOfAnother
			return
		}
		hashes[[sha256.Size]byte(hash)] = true
	}, []any{&hash}, query, args...)
	return hashes, cmp.Or(err, other)
}

// number returns the single value that a query returns.
func (s *Store) number(ctx context.Context, query func(*statements) string) (n int64, err error) {
	err = s.retryWith(ctx, func(ctx context.Context, c *session) error {
		return c.each(ctx, func() {}, []any{&n}, query(c.database.sql()))
	})
	return n, err
}

// known returns what is known of the database. If that is nothing, it asks the database.
func (s *Store) known(ctx context.Context, w *watch) (db *database, err error) {
	if db = s.database.Load(); db != nil {
		if w != nil && w.health == &s.ordering {
			err = s.lookAgain(ctx, w, db)
		}
		return db, err
	}
	ctx, c, err := s.openWith(ctx, w, nil, openConnection)
	if err != nil {
		return nil, err
	}
	defer func() { err = c.close(err) }()
	link := c.link.(*connection)
	link.call(func() { db, err = s.detect(ctx, link.conn) })
	return db, err
}

// detect returns what is known of the database. If that is nothing, it asks the database over conn.
func (s *Store) detect(ctx context.Context, conn *sql.Conn) (*database, error) {
	if db := s.database.Load(); db != nil {
		return db, nil
	}
	e, err := detect(ctx, conn, &s.opts)
	if err != nil {
		return nil, err
	}
	name, err := e.server(ctx, conn)
	if err != nil {
		return nil, err
	}
	c := &session{link: &connection{store: s, conn: conn}}
	if _, err := c.lookAtTables(ctx, e.sql()); err != nil {
		return nil, err
	}
	s.noteLook(nil)
	s.looked.at(conn, 2*s.db.Stats().OpenConnections+16)
	s.server.Store(&name)
	s.database.CompareAndSwap(nil, &database{e, e.newCommitter(s)})
	return s.database.Load(), nil
}

// ordersAtOnce returns how many connections orders may use at once: half of the pool, so
// that reads go on while orders wait for a lock. 0 means any number.
func (s *Store) ordersAtOnce() int {
	most := s.db.Stats().MaxOpenConnections
	return min(most, max(1, most/2))
}

// A connection is a link over one connection of the pool, which it holds for one try.
type connection struct {
	store   *Store
	conn    *sql.Conn
	monitor *monitor              // nil: nothing ends the try early
	yield   func(err error) error // nil, or ends what giveWay has begun

	until     <-chan struct{} // closes when conn can be given back; nil: it can be at once
	closing   bool            // database/sql may be closing conn
	inDriver  bool            // the driver has been called, and has not returned unless it panicked
	answered  atomic.Bool     // the server has answered a statement of the try
	accepting atomic.Bool     // Options.Accept has been called
}

func openConnection(ctx context.Context, s *Store, w *watch) (context.Context, link, error) {
	ctx, c, err := s.connection(ctx, w)
	return ctx, c, err
}

// connection opens a link over one connection.
func (s *Store) connection(ctx context.Context, w *watch) (trying context.Context, c *connection, err error) {
	c = &connection{store: s}
	if w == nil {
		if c.conn, err = s.connect(ctx); err != nil {
			return nil, nil, err
		}
		return s.look(ctx, c)
	}
	// Connecting may take long, so w does not limit it. But before a driver hands out a
	// connection of the pool, it may ask the server whether it is there, and get
	// no answer.
	if s.db.Stats().Idle > 0 {
		trying, c.monitor = w.monitor(ctx, s, &c.answered)
		if c.conn, err = s.connect(trying); err != nil {
			return nil, nil, c.monitor.end(err)
		}
	} else {
		if c.conn, err = s.connect(ctx); err != nil {
			return nil, nil, err
		}
		trying, c.monitor = w.monitor(ctx, s, &c.answered)
	}
	s.stats.running.Add(1)
	return s.look(trying, c)
}

// look looks at the settings of a connection that is new, or the first time since a Check, and closes c if
// one would break a promise: the server, or the role, may have got others since the store was made.
func (s *Store) look(ctx context.Context, c *connection) (context.Context, *connection, error) {
	db := s.database.Load()
	if db == nil || s.looked.at(c.conn, 0) {
		return ctx, c, nil
	}
	var err error
	if c.call(func() { err = db.look(ctx, c.conn) }); err != nil {
		return nil, nil, c.close(err)
	}
	s.looked.at(c.conn, 2*s.db.Stats().OpenConnections+16)
	return ctx, c, nil
}

// looked are the connections whose settings the store has looked at, and some that are gone.
type looked struct {
	mu    sync.Mutex
	conns map[any]bool
}

// at reports whether the store has looked at conn. If most is not 0, it has now, and at most so many others
// are remembered.
func (l *looked) at(conn *sql.Conn, most int) (before bool) {
	conn.Raw(func(c any) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !reflect.ValueOf(c).Comparable() { // one that cannot be told from others
			before = true
			return nil
		}
		if before = l.conns[c]; most > 0 {
			if l.conns == nil || len(l.conns) > most {
				l.conns = make(map[any]bool)
			}
			l.conns[c] = true
		}
		return nil
	})
	return before
}

// forget makes all connections as new ones.
func (l *looked) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = nil
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

// giveWay returns a ctx that is also done once an order has taken a quarter of Options.Timeout while
// other orders wait for a connection, unless it has called Options.Accept. So the orders that wait for
// locks do not keep all connections from those that need not wait.
func (c *connection) giveWay(ctx context.Context, w *watch) context.Context {
	if w == nil || w.slots == nil {
		return ctx
	}
	running, cancel := context.WithCancel(ctx)
	long := c.store.opts.Timeout / 4
	var check func()
	check = func() {
		switch {
		case c.accepting.Load() || running.Err() != nil:
		case w.slots.Wanted():
			cancel()
		default:
			time.AfterFunc(c.store.jitter(long/8, long/4), check)
		}
	}
	timer := time.AfterFunc(long, check)
	c.yield = func(err error) error {
		timer.Stop()
		if err != nil && ctx.Err() == nil && running.Err() != nil {
			err = fmt.Errorf("sqlstore: the order gave up its connection to waiting orders: %w", err)
			err = classified{err, conflict}
		}
		cancel()
		return err
	}
	return running
}

func (c *connection) close(err error) error {
	if c.yield != nil {
		err = c.yield(err)
	}
	if c.monitor != nil {
		c.store.stats.running.Add(-1)
		err = c.monitor.end(err)
	}
	if c.until == nil {
		c.release(err)
		return err
	}
	go func() {
		defer c.store.survive()
		<-c.until
		c.release(err)
	}()
	return err
}

// survive is deferred in goroutines of the store's that call the driver: nobody else would recover from its
// panic, which no call waits for.
func (s *Store) survive() {
	if value := recover(); value != nil {
		defer func() { recover() }() // nor from that of the Logger
		s.opts.Logger.Error("the driver of the database has panicked",
			slog.Any("error", fmt.Errorf("%v\n\n%s", value, debug.Stack())))
	}
}

// release gives the connection back to the pool after a try that has ended with err.
func (c *connection) release(err error) {
	// A connection to a server that is no longer the primary may be in order, but must not go
	// back to the pool. While database/sql ends the transaction of a ctx that is done, it may
	// close conn, and conn.Raw, which drop calls, must not run; database/sql itself drops a
	// connection that is not in order.
	if class := classOf(err); (class == silent || class == notPrimary) && !c.closing {
		c.store.drop(c.conn)
	}
	if !c.inDriver { // otherwise Close would wait for ever
		c.conn.Close()
	}
}

// drop closes a connection that must not go back to the pool.
func (s *Store) drop(conn *sql.Conn) {
	s.stats.dropped.Add(1)
	conn.Raw(func(any) error { return driver.ErrBadConn })
}

func (c *connection) query(ctx context.Context, query string, args ...any) (rows *sql.Rows, err error) {
	c.call(func() { rows, err = c.conn.QueryContext(ctx, query, args...) })
	return rows, err
}

// call calls f, which uses conn. If the driver panics in a query, database/sql keeps the connection.
func (c *connection) call(f func()) {
	c.inDriver = true
	f()
	c.inDriver = false
}

func (c *connection) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return rowsAffected(c.conn.ExecContext(ctx, query, args...))
}

// rowsAffected returns how many rows a statement affected whose connection is still held.
func rowsAffected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

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

// beginTx begins a transaction, with the values of ctx. When ctx is done, beginTx, commit and
// the statements return, but the transaction stays until rollBack: database/sql would roll
// back in a goroutine of its own, and giving the connection back would wait for that (see
// also release).
func (c *connection) beginTx(ctx context.Context) (*connTx, error) {
	if c.until != nil || c.closing {
		return nil, classified{errors.New("sqlstore: the connection's last transaction has not ended"), lost}
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
	c.answered.Store(true)
	return &connTx{tx, c, cancel, false}, nil
}

func (tx *connTx) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return tx.QueryContext(ctx, query, args...)
}

func (tx *connTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return rowsAffected(tx.ExecContext(ctx, query, args...))
}

func (tx *connTx) insert(ctx context.Context, a *attempt) (int64, error) {
	return tx.store.database.Load().sql().insertOrder(ctx, tx, a)
}

func (tx *connTx) accept(ctx context.Context, f func(*sql.Tx)) {
	tx.accepting.Store(true)
	defer tx.endWith(ctx)()
	f(tx.Tx)
}

func (tx *connTx) isDemoted(err error) bool {
	class, _ := codeClass(err)
	return class == notPrimary
}

func (tx *connTx) commit(ctx context.Context) error {
	defer tx.endWith(ctx)()
	err := tx.Commit()
	tx.ended = ctx.Err() == nil
	return err
}

// endWith makes database/sql end the transaction when ctx is done, for the methods of
// sql.Tx that take no ctx, until the caller calls the function that endWith returns.
func (tx *connTx) endWith(ctx context.Context) func() {
	stop := context.AfterFunc(ctx, tx.cancel)
	return func() {
		if !stop() {
			tx.closing = true
		}
	}
}

// rollBack does not wait for a server that hangs for longer than ctx, or than a fifth of
// Options.Timeout: the result of the call is known by then. The connection is given back when the
// driver is done with it.
func (tx *connTx) rollBack(ctx context.Context) {
	ended, late := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer tx.cancel()
		defer time.AfterFunc(tx.store.opts.Timeout/5, func() {
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
