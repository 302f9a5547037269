package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/elapsed"
	"example.com/storefront/internal/watchdog"
)

// A database is what the store has found out about its database.
type database struct {
	engine
	committer
}

// known returns what is known of the database. If that is nothing, it asks the database.
func (s *Store) known(ctx context.Context, w *watchdog.Watch) (db *database, err error) {
	if db = s.database.Load(); db != nil {
		if s.isOrdering(w) {
			err = s.inspectIfDue(ctx, w, db)
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
	if _, err := c.inspect(ctx, e.sql()); err != nil {
		return nil, err
	}
	if err := c.excluded(ctx, e.sql()); err != nil {
		return nil, err
	}
	s.noteFlaw(nil)
	s.looked.at(conn, 2*s.db.Stats().OpenConnections+16)
	s.server.Store(&name)
	found := &database{engine: e}
	if w, ok := e.(writer); ok {
		found.committer = newConcurrent(s, w)
	} else {
		found.committer = newSerial(s)
	}
	s.database.CompareAndSwap(nil, found)
	return s.database.Load(), nil
}

// look looks at the settings of a connection that is new, or the first time since a Check, and closes c if
// one would break a promise: the server, or the role, may have got others since the store was made. It also
// looks for the last order.
func (s *Store) look(ctx context.Context, c *connection, w *watchdog.Watch) (
	context.Context, *connection, error) {
	db := s.database.Load()
	if db == nil || s.looked.at(c.conn, 0) {
		return ctx, c, nil
	}
	var err error
	if c.call(func() { err = db.look(ctx, c.conn) }); err != nil {
		return nil, nil, c.close(err)
	}
	known, err := s.lookForLast(ctx, &session{link: c, database: db, store: s, watch: w})
	if err != nil {
		return nil, nil, c.close(err)
	}
	if known {
		s.looked.at(c.conn, 2*s.db.Stats().OpenConnections+16)
	}
	return ctx, c, nil
}

// acknowledged is an order that the store has created.
type acknowledged struct {
	id   string
	hash [sha256.Size]byte // the column key_hash
	at   time.Time
	lost atomic.Bool // the database no longer has it, and the log says so
}

// lookForLast looks for the last order that the store has created: c may lead to another server than the one
// that has acknowledged it, or that one may have been restored. If the order is gone, the log says so, and
// orders go on, as whoever has a standby that is not synchronous wants. It reports whether this is
// known, and returns an error that may pass.
func (s *Store) lookForLast(ctx context.Context, c *session) (known bool, err error) {
	last, st, found := s.last.Load(), c.database.sql(), ""
	// Once ForgetKeys has forgotten the key, programs may delete the order.
	if last == nil || last.lost.Load() || elapsed.Since(last.at) > storefront.KeyLifetime-time.Hour {
		return true, nil
	}
	where, args := st.ofKey(last.hash)
	where = st.get + `id FROM ` + st.prefix + `storefront_orders ` + where
	find := func() error {
		found = ""
		return c.each(ctx, func() {}, []any{&found}, where, args...)
	}
	err = find()
	switch {
	case transient(err) && !st.placed: // where orders have a place, the others may go on
		return false, err
	case err != nil || found == last.id:
		return true, nil
	case c.watch != nil && !s.isOrdering(c.watch):
		return false, nil // a read need not wait for the write
	}
	// A standby may not have the order yet, and takes no write. A former primary cannot commit one.
	// One that takes the write may have become the primary since it was asked.
	if _, err := c.exec(ctx, st.write); err != nil || find() != nil {
		return false, nil
	}
	if found != last.id && !last.lost.Swap(true) {
		s.opts.Logger.Error("the database does not have the last order that was acknowledged: it is an older copy, "+
			"or a fail-over has lost orders, and retries of lost orders create them again (see docs/failures.md)",
			slog.String("order", last.id))
	}
	return true, nil
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
