// Package watchdog gives up a server that has fallen silent: it ends the tries that the server does not
// answer, and the calls that need not wait as long as others to learn that the server is down. It knows
// nothing of what is sent to the server, nor over what.
//
// A call makes one try after the other, each over one connection.
package watchdog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Times are the times of a [Health].
type Times struct {
	// Call is the most time that a call has. When tries have failed for as long, the server is down.
	Call time.Duration

	// Silence is how long the server may answer nobody in the first try of a call: long enough for a pause
	// of a server that is in order, short enough for several tries in a call.
	Silence time.Duration

	// Early is the time of a call while the server is down: enough to try another server.
	Early time.Duration

	// Probe is how often a call has all of its time though the server is down, as finding that it is back
	// may take long, and ProbeAlone is how often if calls come one at a time: each of them would be one.
	Probe, ProbeAlone time.Duration
}

// What follows is in parts of the time that a try gives a silent server.
const (
	askAfter   = 2 // 1/2: when the server is asked, so that the answer comes in the other half
	spread     = 8 // 1/8: by how much the moment varies, so that not all calls ask in one instant
	dropWithin = 8 // 1/8: what closing the idle connections may take, as the call waits for that
	whileDown  = 4 // 1/4: what the try of a call has that ends early, so that it has several, too
	nextTry    = 2 // 2 times as long: what the next try has, in case the work itself takes long
)

// A Health knows how a server has answered the calls of one kind. Its fields are set before the first call.
type Health struct {
	Times

	// Now returns the time since some moment, which is never 0.
	Now func() time.Duration

	// Jitter returns a random time.
	Jitter func(least, most time.Duration) time.Duration

	// Server returns the name of the server that answered last, or "" if it is not known.
	Server func() string

	// Ask asks the server over another connection whether it can serve these calls, and returns the names
	// of all servers that have answered. It is nil if there is nothing to ask.
	Ask func(ctx context.Context, server string) (answered []string)

	// CanAsk reports whether there may be another connection.
	CanAsk func() bool

	// Drop closes the connections that nobody uses.
	Drop func(ctx context.Context)

	calls    atomic.Int64 // in progress
	answered atomic.Int64 // when the server last answered
	failing  atomic.Int64 // since when tries fail without an answer; 0: the last try was answered
	failed   atomic.Int64 // when a try last failed so
	probed   atomic.Int64 // when a call last got all of its time while the server was down
	dropped  atomic.Int64 // when connections were last given up

	mu     sync.Mutex
	asking *question // the one that is not answered yet, or nil
}

// Enter begins a call, and returns false if most calls are in progress. Leave ends it.
func (h *Health) Enter(most int) bool {
	enters := h.calls.Add(1) <= int64(most)
	if !enters {
		h.Leave()
	}
	return enters
}

// Leave ends a call that has entered.
func (h *Health) Leave() { h.calls.Add(-1) }

// Note notes how a try has ended that began at a time: with an answer, or without.
func (h *Health) Note(began time.Duration, answered bool) {
	now := int64(h.Now())
	if !answered {
		h.failing.CompareAndSwap(0, max(int64(began), h.answered.Load()))
		h.failed.Store(now)
		return
	}
	h.answered.Store(now)
	if h.failing.Load() != 0 { // many calls do this at once, and a load is cheaper than a store
		h.failing.Store(0)
	}
}

// Answered returns when the server last answered.
func (h *Health) Answered() time.Duration { return time.Duration(h.answered.Load()) }

// Failed returns when a try last ended without an answer.
func (h *Health) Failed() time.Duration { return time.Duration(h.failed.Load()) }

// isDown reports whether a call should end early unless another call is answered.
func (h *Health) isDown() bool {
	now, failing := h.Now(), time.Duration(h.failing.Load())
	if failing == 0 || now-failing < h.Call {
		return false
	}
	every := h.Probe
	if h.calls.Load() == 1 {
		every = h.ProbeAlone
	}
	last := h.probed.Load()
	return last != 0 && now-time.Duration(last) < every || !h.probed.CompareAndSwap(last, int64(now))
}

// A Watch watches the tries of a call, one at a time.
type Watch struct {
	*Health
	limit time.Duration // how long the server may be silent in the next try
	kept  atomic.Bool   // the call gives up no connection to a server that is there: it has, or must not
	stop  func()
}

// Watch returns a watch of a call that may take all of its time.
func (h *Health) Watch() *Watch { return &Watch{Health: h, limit: h.Silence, stop: func() {}} }

// WatchCall returns a watch of a call that has entered, and a ctx of its tries. While the server is down, it
// is done after Early, unless the server has answered a call by then.
func (h *Health) WatchCall(ctx context.Context) (context.Context, *Watch) {
	w := h.Watch()
	if !h.isDown() {
		return ctx, w
	}
	w.limit /= whileDown
	began := h.Now()
	hoping, giveUp := context.WithCancel(ctx)
	timer := time.AfterFunc(h.Jitter(h.Early, h.Early+h.Early/spread), func() {
		if h.Answered() < began {
			giveUp()
		}
	})
	w.stop = func() {
		timer.Stop()
		giveUp()
	}
	return hoping, w
}

// Stop ends the watch of a call.
func (w *Watch) Stop() { w.stop() }

// Keep makes the call keep its connection as long as the server is there.
func (w *Watch) Keep() { w.kept.Store(true) }

// A Try is a try that is watched.
type Try struct {
	*Watch
	caller, trying context.Context
	cancel         context.CancelFunc
	timer          *time.Timer
	began          time.Duration
	heard          atomic.Bool // the server has answered in this try
}

// Try watches a try from now on, and returns its ctx, which is also done when the server is silent: when it
// has answered no call of this kind for the limit, nor a question that is asked halfway. So a call that waits
// for a lock, or for its own program, may wait for longer. But if no other call is answered, and the server
// has answered nothing over the connection of this try (see [Try.Heard]), the connection may be dead, as one
// that a router has forgotten. So a call gives up one connection although the server is there.
func (w *Watch) Try(ctx context.Context) (context.Context, *Try) {
	trying, cancel := context.WithCancel(ctx)
	t := &Try{Watch: w, caller: ctx, trying: trying, cancel: cancel, began: w.Now()}
	limit, server := w.limit, w.Server()
	var check func()
	check = func() {
		heard := max(t.began, w.Answered())
		if t.began < time.Duration(w.dropped.Load()) {
			heard = t.began // the answers since then may have come over new connections
		}
		rest := heard + limit/askAfter - w.Now()
		if rest <= 0 && trying.Err() == nil {
			isThere := w.isThere(trying, server, limit/askAfter)
			if !isThere || trying.Err() == nil && !t.heard.Load() && w.Now() >= heard+limit &&
				w.kept.CompareAndSwap(false, true) {
				cancel()
			}
			rest = limit / askAfter
		}
		if trying.Err() == nil {
			time.AfterFunc(w.Jitter(rest, rest+limit/spread), check)
		}
	}
	t.timer = time.AfterFunc(w.Jitter(limit/askAfter, limit/askAfter+limit/spread), check)
	return trying, t
}

// Heard notes that the server has answered in this try, so that the connection is alive.
func (t *Try) Heard() { t.heard.Store(true) }

// End ends a try, which has failed or not, and reports whether it failed as the server is silent.
//
// A server that is cut off from its standby, or from its cluster, may accept connections and never answer. So
// the idle connections are given up, too, and the next try uses a new connection, which may lead to another
// server.
func (t *Try) End(failed bool) (silent bool) {
	defer t.cancel()
	t.timer.Stop()
	if !failed || t.trying.Err() == nil || t.caller.Err() != nil {
		return false
	}
	last := t.dropped.Load()
	if t.began >= time.Duration(last) && t.dropped.CompareAndSwap(last, int64(t.Now())) {
		ctx, cancel := context.WithTimeout(t.caller, t.limit/dropWithin)
		defer cancel()
		t.Drop(ctx)
	}
	t.limit *= nextTry
	return true
}

// A question to the server is asked once for all tries that wait for the answer.
type question struct {
	waiting int           // how many tries wait
	cancel  func()        // called when none does any more
	ended   chan struct{} // closed when servers is set
	servers []string      // those that have answered
}

// isThere reports whether the server that was known when a try began answers within a time. If ctx is done,
// it reports true.
func (w *Watch) isThere(ctx context.Context, server string, within time.Duration) bool {
	if !w.CanAsk() {
		return true
	}
	w.mu.Lock()
	q := w.asking
	if q == nil {
		asking, cancel := context.WithTimeout(context.Background(), within)
		q = &question{cancel: cancel, ended: make(chan struct{})}
		w.asking = q
		go func() {
			defer func() { // also if Ask ends the goroutine
				cancel()
				w.mu.Lock()
				defer w.mu.Unlock()
				w.forget(q)
				close(q.ended)
			}()
			q.servers = w.Ask(asking, server)
		}()
	}
	q.waiting++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if q.waiting--; q.waiting == 0 {
			q.cancel()
			w.forget(q)
		}
	}()
	select {
	case <-q.ended:
		return len(q.servers) > 0 && (server == "" || slices.Contains(q.servers, server))
	case <-ctx.Done():
		return true
	}
}

// forget makes the next try that asks ask anew. The Health is locked.
func (h *Health) forget(q *question) {
	if h.asking == q {
		h.asking = nil
	}
}
