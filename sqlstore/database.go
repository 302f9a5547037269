package sqlstore

import (
	"context"
	"database/sql"
	"reflect"
	"sync"

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
	s.noteFlaw(nil)
	s.looked.at(conn, 2*s.db.Stats().OpenConnections+16)
	s.server.Store(&name)
	s.database.CompareAndSwap(nil, &database{e, e.newCommitter(s)})
	return s.database.Load(), nil
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
