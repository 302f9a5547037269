package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/storefront/internal/slots"
)

// A health records how the database has answered the calls of one kind: those that read,
// or those that create orders. Times are since the Store was made.
type health struct {
	calls    atomic.Int64 // in progress
	answered atomic.Int64 // when the database last answered
	failing  atomic.Int64 // since when tries fail without an answer; 0: the last try was answered
	failed   atomic.Int64 // when a try last failed so
	probed   atomic.Int64 // when a call last got all of its time while the database was down
	dropped  atomic.Int64 // when connections were last given up

	// question returns the statement that asks whether the server can serve these calls.
	question func(*statements) string

	slots *slots.Slots // the connections that these calls may use at once; nil: any number

	mu     sync.Mutex
	asking *question // the one that is not answered yet, or nil
}

// note records the outcome of a try. An error that is not transient is an answer, too, and
// so is a conflict with another transaction.
func (h *health) note(began, now time.Duration, err error) {
	if class := classOf(err); class >= passing && class != conflict {
		h.failing.CompareAndSwap(0, max(int64(began), h.answered.Load()))
		h.failed.Store(int64(now))
		return
	}
	h.answered.Store(int64(now))
	if h.failing.Load() != 0 { // many calls do this at once, and a load is cheaper than a store
		h.failing.Store(0)
	}
}

// isDown reports whether a call should give up early unless another call is answered.
// Once tries have failed for as long as Options.Timeout, most calls need not wait as long
// to learn the same.
func (h *health) isDown(now time.Duration, times *times) bool {
	failing := time.Duration(h.failing.Load())
	if failing == 0 || now-failing < times.call {
		return false
	}
	every := times.probe
	if h.calls.Load() == 1 {
		every = times.probeAlone
	}
	last := h.probed.Load()
	return last != 0 && now-time.Duration(last) < every || !h.probed.CompareAndSwap(last, int64(now))
}

// A watch ends the tries of a call that the server does not answer.
type watch struct {
	*health
	limit time.Duration // how long the server may be silent in the next try
	left  atomic.Bool   // the call has given up a connection although the server is there
}

func (s *Store) newWatch(h *health) *watch { return &watch{health: h, limit: s.times.silence} }

// A monitor ends one try if the server does not answer it.
type monitor struct {
	*watch
	store  *Store
	caller context.Context
	trying context.Context
	cancel context.CancelFunc
	timer  *time.Timer
	began  time.Duration
}

// monitor returns a ctx that is also done when the server has been silent for as long as
// the limit. A server that answers any call is not silent; and after half of the limit, the monitor
// asks the server over another connection, so that a call that waits for a lock, or for
// Options.Accept, may wait for longer. But if no other call is answered, and the server has
// answered nothing over this connection in this try, the connection may be dead, as one that
// a router has forgotten. So a call gives up one connection although the server is there.
func (w *watch) monitor(ctx context.Context, s *Store, answered *atomic.Bool) (context.Context, *monitor) {
	trying, cancel := context.WithCancel(ctx)
	began, limit, server := s.now(), w.limit, s.server.Load()
	var check func()
	check = func() {
		heard := max(began, time.Duration(w.answered.Load()))
		if began < time.Duration(w.dropped.Load()) {
			heard = began // the answers since then may have come over new connections
		}
		rest := heard + limit/2 - s.now()
		if rest <= 0 && trying.Err() == nil {
			isThere := w.isThere(trying, s, server, limit/2)
			giveUp := !isThere || trying.Err() == nil && !answered.Load() && s.now() >= heard+limit &&
				w.left.CompareAndSwap(false, true)
			if giveUp {
				cancel()
			}
			rest = limit / 2
		}
		if trying.Err() == nil {
			time.AfterFunc(s.jitter(rest, rest+limit/8), check)
		}
	}
	timer := time.AfterFunc(s.jitter(limit/2, limit/2+limit/8), check) // not all calls in the same instant
	return trying, &monitor{w, s, ctx, trying, cancel, timer, began}
}

// end ends the monitor after a try that has ended with err, and returns the error to go by.
//
// A server that is cut off from its standby, or from its cluster, may accept connections
// and never answer. So the idle connections of the pool are given up, too, and the next try
// uses a new connection, which may lead to another server. The limit of that try is twice
// as long, in case the work itself takes long.
func (m *monitor) end(err error) error {
	defer m.cancel()
	m.timer.Stop()
	_, accepted := err.(acceptError)
	if err == nil || accepted || m.trying.Err() == nil || m.caller.Err() != nil {
		return err
	}
	last := m.dropped.Load()
	if m.began >= time.Duration(last) && m.dropped.CompareAndSwap(last, int64(m.store.now())) {
		m.store.dropIdle(m.caller, m.limit)
	}
	m.limit *= 2
	return classified{fmt.Errorf("sqlstore: the database does not answer: %v", err), silent}
}

// A question to the server is asked once for all calls that wait for the answer.
type question struct {
	waiting int           // how many calls wait
	cancel  func()        // called when none does any more
	ended   chan struct{} // closed when servers is set
	servers []string      // those that have answered
}

// isThere reports whether the server that was known when a try began answers within a time.
// If ctx is done, it reports true.
func (w *watch) isThere(ctx context.Context, s *Store, server *string, within time.Duration) bool {
	if s.db.Stats().MaxOpenConnections == 1 {
		return true // the try itself uses the only connection
	}
	w.mu.Lock()
	q := w.asking
	if q == nil {
		asking, cancel := context.WithTimeout(context.Background(), within)
		q = &question{cancel: cancel, ended: make(chan struct{})}
		w.asking = q
		go func() {
			defer func() {
				cancel()
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.asking == q {
					w.asking = nil
				}
				close(q.ended)
			}()
			defer s.survive() // a driver's panic is no answer
			q.servers = s.askServers(asking, w.question, *server)
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
		return len(q.servers) > 0 && (*server == "" || slices.Contains(q.servers, *server))
	case <-ctx.Done():
		return true
	}
}

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
		defer conn.Close()
		db, err := s.detect(ctx, conn)
		if err != nil {
			break
		}
		// Any answer shows that the server is there, unless it says that it is not the primary.
		_, err = conn.ExecContext(ctx, statement(db.sql()))
		if ctx.Err() != nil || classOf(err) >= notPrimary {
			break
		}
		name, err := db.server(ctx, conn)
		if err != nil {
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
	answered := time.Duration(max(s.reading.answered.Load(), s.ordering.answered.Load()))
	switch {
	case ctx.Err() != nil && answered > began: // the server answers over these connections
	case pool.InUse == pool.MaxOpenConnections && int64(pool.InUse-held) > s.stats.running.Load():
		// The program uses some of them.
	default:
		return nil
	}
	return []string{*s.server.Load()}
}

// dropIdle closes the idle connections of the pool. Where a driver first asks the server
// whether it is there and gets no answer, the driver closes the connection.
func (s *Store) dropIdle(ctx context.Context, limit time.Duration) {
	// Conn may connect anew if another call takes the idle one.
	ctx, cancel := context.WithTimeout(ctx, limit/8)
	defer cancel()
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
