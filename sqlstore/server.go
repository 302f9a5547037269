package sqlstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"example.com/storefront/internal/sqlerror"
	"example.com/storefront/internal/watchdog"
)

// watches makes h watch the calls of one kind: those that read, or those that create orders. question
// returns the statement that asks whether the server can serve these calls.
func (s *Store) watches(h *watchdog.Health, question func(*statements) string) {
	h.Times, h.Now, h.Drop, h.Jitter = s.times.Times, s.now, s.dropIdle, randomly
	h.Server = func() string { return *s.server.Load() }
	h.CanAsk = func() bool { return s.db.Stats().MaxOpenConnections != 1 } // or the try itself has the only one
	h.Ask = func(ctx context.Context, server string) (answered []string) {
		defer s.survive() // a driver's panic is no answer
		return s.askServers(ctx, question, server)
	}
}

// isOrdering reports whether the calls of w, which may be nil, create orders.
func (s *Store) isOrdering(w *watchdog.Watch) bool { return w != nil && w.Health == &s.ordering }

// mostAsked is over how many connections askServers asks at most.
const mostAsked = 8

// askServers sends a statement to the server over another connection, and returns the server's name, or
// none if there is no answer.
//
// If another server than the wanted one answers, it may have taken that one's place, or both may be
// behind one address. So askServers asks over further connections, idle or new, until the wanted one
// answers, and returns all names. A balancer that knows no sequence may hide a server from all of them;
// its calls then do their work once more.
func (s *Store) askServers(ctx context.Context, statement func(*statements) string, wanted string) (
	names []string) {
	for len(names) < mostAsked && !slices.Contains(names, wanted) {
		if pool := s.db.Stats(); len(names) > 0 && pool.InUse == pool.MaxOpenConnections {
			break
		}
		began := s.now()
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return append(names, s.busyServer(ctx, began, len(names))...)
		}
		c := &connection{store: s, conn: conn}
		defer c.release(nil)
		var db *database
		if c.call(func() { db, err = s.detect(ctx, conn) }); err != nil {
			break
		}
		// Any answer shows that the server is there, unless it says that it is not the primary.
		_, err = conn.ExecContext(ctx, statement(db.sql()))
		if ctx.Err() != nil || classOf(err) >= sqlerror.NotPrimary {
			break
		}
		var name string
		if c.call(func() { name, err = db.server(ctx, conn) }); err != nil {
			break
		}
		if names = append(names, name); wanted == "" {
			break
		}
	}
	if len(names) > 0 && !slices.Contains(names, wanted) {
		s.server.Store(&names[0]) // tries that began with the wanted one give up its connections
	}
	return names
}

// busyServer returns the name of the server that answered last if all connections are in use, and it is
// not silent for all that is known. The question itself has held some since it began.
func (s *Store) busyServer(ctx context.Context, began time.Duration, held int) []string {
	pool := s.db.Stats()
	answered := max(s.reading.Answered(), s.ordering.Answered())
	switch {
	case ctx.Err() != nil && answered > began: // the server answers over these connections
	case pool.InUse == pool.MaxOpenConnections && int64(pool.InUse-held) > s.Stats().Running:
		// The program uses some of them.
	default:
		return nil
	}
	return []string{*s.server.Load()}
}

// dropIdle closes the idle connections of the pool. Where a driver first asks the server
// whether it is there and gets no answer, the driver closes the connection.
func (s *Store) dropIdle(ctx context.Context) {
	// Conn may connect anew if another call takes the idle one.
	var all sync.WaitGroup
	for range s.db.Stats().Idle {
		all.Go(func() {
			defer s.survive()
			if conn, err := s.db.Conn(ctx); err == nil {
				s.drop(conn)
			}
		})
	}
	all.Wait()
}

// now returns the time since the Store was made, which is never 0.
func (s *Store) now() time.Duration { return time.Since(s.made) }
