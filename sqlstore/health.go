package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/storefront"
)

// A health is what is known of the database from calls of one kind: those that read,
// or those that create orders. Times are since the Store was made.
type health struct {
	calls    atomic.Int64 // in progress
	answered atomic.Int64 // when the database has last answered
	failing  atomic.Int64 // since when it has not, but tries have failed; 0: it has answered the last
	probed   atomic.Int64 // when a call was last given all the time although it had not answered for long
	dropped  atomic.Int64 // when connections were last given up

	// question returns the statement that asks the server whether it does what these
	// calls need.
	question func(*engine) string

	mu     sync.Mutex
	asking *question // the last
}

// note records the outcome of a try that began at some time. An error that is not
// transient is an answer, too, and so is a conflict with another transaction.
func (h *health) note(began, now time.Duration, err error) {
	if class := classOf(err); class >= passing && class != conflict {
		h.failing.CompareAndSwap(0, max(int64(began), h.answered.Load()))
		return
	}
	h.answered.Store(int64(now))
	if h.failing.Load() != 0 { // reading is cheaper than writing, with many at once
		h.failing.Store(0)
	}
}

// isDown reports whether a call should give up early if nobody is answered before.
// Once tries have failed for as long as a call may take, most calls need not take as
// long to learn the same. But to find that the database is back may take long, such as
// where a driver asks several servers in turn, so one call in each fortieth of that
// time tries for all of it.
func (h *health) isDown(now, timeout time.Duration) bool {
	failing := time.Duration(h.failing.Load())
	if failing == 0 || now-failing < timeout {
		return false
	}
	last := h.probed.Load()
	return now-time.Duration(last) < timeout/40 || !h.probed.CompareAndSwap(last, int64(now))
}

// withShortDeadline calls f, which retries, with a ctx that is also done after a tenth of
// Options.Timeout if the database has answered nobody by then.
func (s *Store) withShortDeadline(ctx context.Context, h *health, f func(context.Context) error) error {
	began, early := s.now(), s.opts.Timeout/10
	hoping, giveUp := context.WithCancel(ctx)
	defer giveUp()
	timer := time.AfterFunc(s.jitter(early, early+early/8), func() {
		if time.Duration(h.answered.Load()) < began {
			giveUp()
		}
	})
	defer timer.Stop()
	err := f(hoping)
	if ctx.Err() == nil && hoping.Err() != nil && errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: the database has not answered for more than %v: %v", storefront.ErrUnavailable, s.opts.Timeout, err)
	}
	return err
}

// A watch is how a call watches the health of the database.
type watch struct {
	*health
	limit time.Duration // of silence, in the next try
	left  atomic.Bool   // a connection was, although the server is there
}

func (s *Store) newWatch(h *health) *watch { return &watch{health: h, limit: s.opts.Timeout / 5} }

// try calls f with a ctx that is also done when the server has been silent for as long as
// the limit. It is not while it answers anybody; and once half of the limit has passed,
// it is asked over another connection, so that who waits for a lock, or for
// Options.Accept, may wait for long. But where nobody else is answered, and the
// connection has not been heard of in this try, it may be the connection that is dead, as
// those that a router has forgotten; so a call leaves one of them.
//
// A server that is cut off from its standby, or from its cluster, may take connections
// and never answer. So the others in the pool are given up, too, and the next try is over
// a new connection, which may lead to another server. It is given twice as long, for
// what does take so long.
func (w *watch) try(ctx context.Context, s *Store, heardOf *atomic.Bool, f func(context.Context) error) error {
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	began, limit, server := s.now(), w.limit, s.server.Load()
	var check func()
	check = func() {
		heard := max(began, time.Duration(w.answered.Load()))
		if began < time.Duration(w.dropped.Load()) {
			heard = began // what has been answered since then may be over another connection
		}
		rest := heard + limit/2 - s.now()
		if rest <= 0 && trying.Err() == nil {
			isThere := w.isThere(trying, s, server, limit/2)
			if !isThere || trying.Err() == nil && !heardOf.Load() && s.now() >= heard+limit && w.left.CompareAndSwap(false, true) {
				cancel()
			}
			rest = limit / 2
		}
		if trying.Err() == nil {
			time.AfterFunc(s.jitter(rest, rest+limit/8), check)
		}
	}
	timer := time.AfterFunc(s.jitter(limit/2, limit/2+limit/8), check) // not all in the same instant
	defer timer.Stop()
	err := f(trying)
	if _, accepted := err.(acceptError); err == nil || accepted || trying.Err() == nil || ctx.Err() != nil {
		return err
	}
	if last := w.dropped.Load(); began >= time.Duration(last) && w.dropped.CompareAndSwap(last, int64(s.now())) {
		s.dropIdle(ctx, limit)
	}
	w.limit *= 2
	return classified{fmt.Errorf("sqlstore: the database does not answer: %v", err), silent}
}

// A question to the server is asked once for all that want to know.
type question struct {
	waiting int           // who wait for the answer
	cancel  func()        // nobody does any more
	ended   chan struct{} // closed when server is known
	server  *string       // nil: no answer
}

// isThere asks whether the server that was known when a try began is there, and answers
// within a time.
func (w *watch) isThere(ctx context.Context, s *Store, server *string, within time.Duration) bool {
	if s.db.Stats().MaxOpenConnections == 1 {
		return true // nobody can ask while it is in use
	}
	w.mu.Lock()
	q := w.asking
	if q == nil {
		asking, cancel := context.WithTimeout(context.Background(), within)
		q = &question{cancel: cancel, ended: make(chan struct{})}
		w.asking = q
		go func() {
			defer func() {
				recover() // a driver's panic is no answer
				cancel()
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.asking == q {
					w.asking = nil
				}
				close(q.ended)
			}()
			q.server = s.ask(asking, w.question)
		}()
	}
	q.waiting++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if q.waiting--; q.waiting == 0 {
			q.cancel()
			if w.asking == q {
				w.asking = nil
			}
		}
	}()
	select {
	case <-q.ended:
		return q.server != nil && (*server == "" || *q.server == *server)
	case <-ctx.Done():
		return true
	}
}

// ask asks a question, and returns who has answered. If there is no answer, it returns nil.
func (s *Store) ask(ctx context.Context, statement func(*engine) string) *string {
	began := s.now()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		if ctx.Err() != nil && time.Duration(max(s.reading.answered.Load(), s.ordering.answered.Load())) > began {
			return s.server.Load() // all connections are in use, and are answered over
		}
		if pool := s.db.Stats(); pool.InUse == pool.MaxOpenConnections && int64(pool.InUse) > s.stats.running.Load() {
			return s.server.Load() // all connections are in use, also by others than the store
		}
		return nil
	}
	defer conn.Close()
	e, err := s.detect(ctx, conn)
	if err != nil {
		return nil
	}
	// Whatever it answers, it is there, unless it is the wrong one.
	if _, err := conn.ExecContext(ctx, statement(e)); ctx.Err() != nil || classOf(err) >= notPrimary {
		return nil
	}
	name, err := serverOf(ctx, e, conn)
	if err != nil {
		return nil
	}
	if known := s.server.Load(); *known == name {
		return known
	}
	s.server.Store(&name) // those who began before it was known leave the other
	return &name
}

// serverOf returns a name of the server that conn leads to, or "" if it has none.
func serverOf(ctx context.Context, e *engine, conn *sql.Conn) (name string, err error) {
	if e.server == "" {
		return "", nil
	}
	err = conn.QueryRowContext(ctx, e.server).Scan(&name)
	if err != nil && (transient(err) || ctx.Err() != nil) {
		return "", err
	}
	return name, nil
}

// dropIdle closes the connections of the pool that nobody uses. A driver that asks the
// server first whether it is there closes those over which it gets no answer.
func (s *Store) dropIdle(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit/8) // if somebody is faster, it may connect
	defer cancel()
	var all sync.WaitGroup
	for range s.db.Stats().Idle {
		all.Go(func() {
			if conn, err := s.db.Conn(ctx); err == nil {
				s.drop(conn)
			}
		})
	}
	all.Wait()
}

// now returns the time since the Store was made, which is never 0.
func (s *Store) now() time.Duration { return time.Since(s.made) }
