package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"example.com/storefront/internal/sqlerror"
	"example.com/storefront/internal/watchdog"
)

// ordersAtOnce returns how many connections orders may use at once: half of the pool, so
// that reads go on while orders wait for a lock. 0 means any number.
func (s *Store) ordersAtOnce() int {
	most := s.db.Stats().MaxOpenConnections
	return min(most, max(1, most/2))
}

// A connection is a link over one connection of the pool, which it holds for one try.
type connection struct {
	store *Store
	conn  *sql.Conn
	try   *watchdog.Try         // nil: nothing ends the try early
	yield func(err error) error // nil, or ends what giveWay has begun

	until     <-chan struct{} // closes when conn can be given back; nil: it can be at once
	closing   bool            // database/sql may be closing conn
	accepting atomic.Bool     // Options.Accept has been called
	calls
}

// calls are those of a driver. If it panics in a query, database/sql keeps the connection and the transaction
// locked, and whoever ended one of them would wait for ever.
type calls struct {
	inDriver bool // the driver has been called, and has not returned unless it panicked
}

func (c *calls) call(f func()) {
	c.inDriver = true
	f()
	c.inDriver = false
}

func openConnection(ctx context.Context, s *Store, w *watchdog.Watch) (context.Context, link, error) {
	ctx, c, err := s.connection(ctx, w)
	return ctx, c, err
}

// connection opens a link over one connection.
func (s *Store) connection(ctx context.Context, w *watchdog.Watch) (
	trying context.Context, c *connection, err error) {
	c = &connection{store: s}
	if w == nil {
		if c.conn, err = s.connect(ctx); err != nil {
			return nil, nil, err
		}
		return s.look(ctx, c, w)
	}
	// Connecting may take long, so w does not limit it. But before a driver hands out a connection of the
	// pool, it may ask the server whether it is there, and get no answer.
	if s.db.Stats().Idle > 0 {
		trying, c.try = w.Try(ctx)
		if c.conn, err = s.connect(trying); err != nil {
			return nil, nil, c.endTry(err)
		}
	} else {
		if c.conn, err = s.connect(ctx); err != nil {
			return nil, nil, err
		}
		trying, c.try = w.Try(ctx)
	}
	s.stats.add(&s.stats.Running, 1)
	return s.look(trying, c, w)
}

// connect returns a connection, new or of the pool.
func (s *Store) connect(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil && err.Error() != "sql: database is closed" {
		// No server was reached, or none that is the primary, or it refuses everybody for now, with any code.
		if !sqlerror.IsSQLite(err) {
			err = sqlerror.With(sqlerror.Lost, err)
		}
	}
	return conn, err
}

// giveWay returns a ctx that is also done once an order has kept its connection for times.keep while
// other orders wait for a connection, unless it has called Options.Accept. So the orders that wait for
// locks do not keep all connections from those that need not wait.
func (c *connection) giveWay(ctx context.Context, w *watchdog.Watch) context.Context {
	if !c.store.isOrdering(w) {
		return ctx
	}
	running, cancel := context.WithCancel(ctx)
	times := &c.store.times
	var check func()
	check = func() {
		switch {
		case c.accepting.Load() || running.Err() != nil:
		case c.store.slots.Wanted():
			cancel()
		default:
			time.AfterFunc(randomly(times.yield, 2*times.yield), check)
		}
	}
	timer := time.AfterFunc(times.keep, check)
	c.yield = func(err error) error {
		timer.Stop()
		if err != nil && ctx.Err() == nil && running.Err() != nil {
			err = fmt.Errorf("sqlstore: the order gave up its connection to waiting orders: %w", err)
			err = sqlerror.With(sqlerror.Conflict, err)
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
	if c.try != nil {
		c.store.stats.add(&c.store.stats.Running, -1)
		err = c.endTry(err)
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

// endTry ends the watch of a try that has ended with err, and returns the error to go by.
func (c *connection) endTry(err error) error {
	if _, accepted := err.(acceptError); c.try.End(err != nil && !accepted) {
		err = sqlerror.With(sqlerror.Silent, fmt.Errorf("sqlstore: the database does not answer: %v", err))
	}
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
	// A connection to a server that is no longer the primary may be in order, but must not go back to the
	// pool. While database/sql ends the transaction of a ctx that is done, it may close conn, and conn.Raw,
	// which drop calls, must not run; database/sql itself drops a connection that is not in order.
	if class := classOf(err); (class == sqlerror.Silent || class == sqlerror.NotPrimary) && !c.closing {
		c.store.drop(c.conn)
	}
	if !c.inDriver { // otherwise Close would wait for ever
		c.conn.Close()
	}
}

// drop closes a connection that must not go back to the pool.
func (s *Store) drop(conn *sql.Conn) {
	s.stats.add(&s.stats.Dropped, 1)
	conn.Raw(func(any) error { return driver.ErrBadConn })
}

func (c *connection) query(ctx context.Context, query string, args ...any) (rows *sql.Rows, err error) {
	c.call(func() { rows, err = c.conn.QueryContext(ctx, query, args...) })
	return rows, err
}

func (c *connection) exec(ctx context.Context, query string, args ...any) (int64, error) {
	n, err := rowsAffected(c.conn.ExecContext(ctx, query, args...))
	return n, unlessDone(ctx, err)
}

// unlessDone returns err or, once ctx is done, an error: what a statement returns then proves nothing. When
// it is told to end a statement whose commit waits for a synchronous standby, PostgreSQL commits without it,
// and answers with success and a warning, which lib/pq passes on.
func unlessDone(ctx context.Context, err error) error { return cmp.Or(err, ctx.Err()) }

// rowsAffected returns how many rows a statement affected whose connection is still held.
func rowsAffected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
