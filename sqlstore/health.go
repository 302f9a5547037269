package sqlstore

import (
	"context"
	"database/sql/driver"
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
	answered atomic.Int64 // when the database has last answered
	failing  atomic.Int64 // since when it has not, but tries have failed; 0: it has answered the last
	probed   atomic.Int64 // when a call was last given all the time although it had not answered for long
	dropped  atomic.Int64 // when connections were last given up
}

// note takes notice of how a try has ended that began at some time. An error that is
// not transient is an answer, too, and so is a conflict with another transaction.
func (h *health) note(began, now time.Duration, err error) {
	if _, decided := err.(decision); !decided && transient(err) && !conflict(err) {
		h.failing.CompareAndSwap(0, max(int64(began), h.answered.Load()))
		return
	}
	h.answered.Store(int64(now))
	if h.failing.Load() != 0 { // reading is cheaper than writing, with many at once
		h.failing.Store(0)
	}
}

// hopeless reports whether a call should give up early if nobody is answered before.
// Once tries have failed for as long as a call may take, most calls need not take as
// long to learn the same. But to find that the database is back may take long, such as
// where a driver asks several servers in turn, so one call in each fortieth of that
// time tries for all of it.
func (h *health) hopeless(now, timeout time.Duration) bool {
	failing := time.Duration(h.failing.Load())
	if failing == 0 || now-failing < timeout {
		return false
	}
	last := h.probed.Load()
	return now-time.Duration(last) < timeout/40 || !h.probed.CompareAndSwap(last, int64(now))
}

// withoutHope calls f, which retries, with a ctx that is also done after a tenth of
// Options.Timeout if the database has answered nobody by then.
func (s *Store) withoutHope(ctx context.Context, h *health, f func(context.Context) error) error {
	began, early := s.now(), s.opts.Timeout/10
	hoping, giveUp := context.WithCancel(ctx)
	defer giveUp()
	timer := time.AfterFunc(s.pause(early, early+early/8), func() {
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
	limit time.Duration // of the next try
}

// try calls f with a ctx that is also done when f has taken as long as the limit and
// the database has answered nobody meanwhile. A server that is cut off from its
// standby, or from its cluster, may take connections and never answer. So the others
// in the pool are given up, too, and the next try is over a new connection, which may
// lead to another server. It is given twice as long, for what does take so long.
func (w *watch) try(ctx context.Context, s *Store, f func(context.Context) error) error {
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	began, limit := s.now(), w.limit
	var check func()
	check = func() {
		heard := max(began, time.Duration(w.answered.Load()))
		if began < time.Duration(w.dropped.Load()) {
			heard = began // what has been answered since then may be over another connection
		}
		if rest := heard + limit - s.now(); rest <= 0 {
			cancel()
		} else if trying.Err() == nil {
			time.AfterFunc(s.pause(rest, rest+limit/8), check)
		}
	}
	timer := time.AfterFunc(s.pause(limit, limit+limit/8), check) // not all in the same instant
	defer timer.Stop()
	err := f(trying)
	if _, decided := err.(decision); err == nil || decided || trying.Err() == nil || ctx.Err() != nil {
		return err
	}
	if last := w.dropped.Load(); began >= time.Duration(last) && w.dropped.CompareAndSwap(last, int64(s.now())) {
		s.dropIdle(ctx, limit)
	}
	w.limit *= 2
	return silence{fmt.Errorf("sqlstore: the database does not answer: %v", err)}
}

// A silence is that of a server. The connection to it is to be given up.
type silence struct{ error }

// dropIdle closes the connections of the pool that nobody uses. A driver that asks the
// server first whether it is there closes those over which it gets no answer.
func (s *Store) dropIdle(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit/8) // if somebody is faster, it may connect
	defer cancel()
	var all sync.WaitGroup
	for range s.db.Stats().Idle {
		all.Go(func() {
			if conn, err := s.db.Conn(ctx); err == nil {
				conn.Raw(func(any) error { return driver.ErrBadConn })
			}
		})
	}
	all.Wait()
}

// now returns the time since the Store was made, which is never 0.
func (s *Store) now() time.Duration { return time.Since(s.made) }
