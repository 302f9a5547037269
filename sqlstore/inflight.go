package sqlstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"sync"

	"example.com/storefront"
)

// inFlight lets the calls of this process that have the same key share one flight. Only one
// of them can create the order, and the others would wait for its locks, each with a
// connection. An error of Accept is shared by the calls with the same fingerprint that
// came before the flight began; a call that came later shares the next one, as the stock may
// have changed since Accept looked at it. Any other failure is that of the leader alone, the
// call which makes the tries of the flight. The leader is the one that came first, so that none
// waits for ever while others are refused.
type inFlight struct {
	mu   sync.Mutex
	keys map[[sha256.Size]byte]*sameKey // by key_hash
	came uint64                         // the number of the call that came last
}

// sameKey has the calls with one key: now is the flight that is under way, or that its leader is about to
// begin, and next is shared by the calls that wait for now to end.
type sameKey struct{ now, next *flight }

// A flight is the work of one call, with all its tries, whose result other calls share.
type flight struct {
	waiters []*waiter     // in the sequence in which they came, without the leader
	ended   chan struct{} // closed when result is set
	result
}

// A waiter is a call that waits to lead a flight, or for its end.
type waiter struct {
	came uint64
	lead chan struct{} // sends once, if the waiter is the leader
}

// A result is the outcome of a flight. Every call with the key shares it if there is an order.
type result struct {
	order       storefront.Order  // the one that has the key
	fingerprint [sha256.Size]byte // of order, or of the order that Accept has refused
	outcome
}

// hasOrder reports whether the key has an order.
func (r *result) hasOrder() bool { return r.state == created || r.state == taken }

// A leader is a call that leads a flight. It must call end.
type leader struct {
	calls  *inFlight
	key    [sha256.Size]byte
	same   *sameKey
	flight *flight
}

func newFlight() *flight { return &flight{ended: make(chan struct{})} }

// add adds a waiter to a flight.
func (f *flight) add(w *waiter) {
	i, _ := slices.BinarySearchFunc(f.waiters, w.came, func(w *waiter, came uint64) int {
		return cmp.Compare(w.came, came)
	})
	f.waiters = slices.Insert(f.waiters, i, w)
}

// join makes the call the leader of a flight, or returns the result of the flight that another call with the
// key has led. If ctx is done before there is a result, its error is ctx.Err().
func (f *inFlight) join(ctx context.Context, key, fingerprint [sha256.Size]byte) (result, *leader) {
	w := &waiter{lead: make(chan struct{}, 1)}
	for {
		f.mu.Lock()
		same := f.keys[key]
		if same == nil {
			if f.keys == nil {
				f.keys = make(map[[sha256.Size]byte]*sameKey)
			}
			same = &sameKey{now: newFlight()}
			f.keys[key] = same
			f.mu.Unlock()
			return result{}, &leader{f, key, same, same.now}
		}
		now := same.now
		if same.next == nil {
			same.next = newFlight()
		}
		next := same.next
		if w.came == 0 {
			f.came++
			w.came = f.came
		}
		next.add(w)
		f.mu.Unlock()
		lead := &leader{f, key, same, next}

		select {
		case <-now.ended:
		case <-ctx.Done():
			lead.leave(w)
			return result{outcome: outcome{err: ctx.Err()}}, nil
		}
		if now.hasOrder() {
			lead.leave(w)
			return now.result, nil
		}
		select {
		case <-w.lead:
			lead.leave(w)
			return result{}, lead
		case <-next.ended:
			lead.leave(w)
			if next.hasOrder() || next.state == refused && next.fingerprint == fingerprint {
				return next.result, nil
			}
		case <-ctx.Done():
			lead.leave(w)
			return result{outcome: outcome{err: ctx.Err()}}, nil
		}
	}
}

// end ends a flight with its result, and makes the first waiter of the next one its leader.
func (l *leader) end(r result) {
	f := l.calls
	f.mu.Lock()
	defer f.mu.Unlock()
	l.flight.result = r
	close(l.flight.ended)
	if l.same.next == nil || len(l.same.next.waiters) == 0 || r.hasOrder() {
		delete(f.keys, l.key)
		return
	}
	l.same.now, l.same.next = l.same.next, nil
	l.same.now.waiters[0].lead <- struct{}{}
}

// leave notes that a waiter no longer waits for a flight. If it was its leader, the next one is.
func (l *leader) leave(w *waiter) {
	f := l.calls
	f.mu.Lock()
	l.flight.waiters = slices.DeleteFunc(l.flight.waiters, func(other *waiter) bool { return other == w })
	abandoned := false
	select {
	case <-w.lead:
		if abandoned = len(l.flight.waiters) == 0; !abandoned {
			l.flight.waiters[0].lead <- struct{}{}
		}
	default:
	}
	f.mu.Unlock()
	if abandoned {
		l.end(result{})
	}
}
