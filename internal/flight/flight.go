// Package flight lets calls with the same key share the work of one of them. Unlike internal/singleflight of
// the standard library, it lets a call leave, and a result be one that later calls do not share.
package flight

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// A Group has the flights of all keys. A flight is the work of one call, its leader, whose result others
// share. The calls that came before it began share any result that they take for theirs. A call that came
// later shares the next flight, unless the result is final. Its leader is the first of them that came, so that
// none waits for ever while others fail. The methods of a Group may be called concurrently.
type Group[K comparable, R any] struct {
	// IsFinal reports whether a result is that of all calls with the key, also of those that came later. It
	// is set before the first call.
	IsFinal func(R) bool

	mu   sync.Mutex
	keys map[K]*flights[R]
	came uint64 // the number of the call that came last
}

// flights are those with one key: now is the flight that is under way, or that its leader is about to begin,
// and next is shared by the calls that wait for now to end.
type flights[R any] struct{ now, next *flight[R] }

type flight[R any] struct {
	waiters []*waiter     // in the sequence in which they came, without the leader
	ended   chan struct{} // closed when result is set
	result  R
}

// A waiter is a call that waits to lead a flight, or for its end.
type waiter struct {
	came uint64
	lead chan struct{} // sends once, if the waiter is the leader
}

// A Leader is a call that leads a flight. It must call End.
type Leader[K comparable, R any] struct {
	group   *Group[K, R]
	key     K
	flights *flights[R]
	flight  *flight[R]
}

func newFlight[R any]() *flight[R] { return &flight[R]{ended: make(chan struct{})} }

// add adds a waiter to a flight.
func (f *flight[R]) add(w *waiter) {
	i, _ := slices.BinarySearchFunc(f.waiters, w.came, func(w *waiter, came uint64) int {
		return cmp.Compare(w.came, came)
	})
	f.waiters = slices.Insert(f.waiters, i, w)
}

// Join makes the call the leader of a flight, or returns the result of a flight that another call with the
// key has led, if that is final, or the call came before the flight began and shares the result. If ctx is
// done before there is either, Join returns ctx.Err().
func (g *Group[K, R]) Join(ctx context.Context, key K, shares func(R) bool) (
	result R, lead *Leader[K, R], err error) {
	w := &waiter{lead: make(chan struct{}, 1)}
	for {
		g.mu.Lock()
		all := g.keys[key]
		if all == nil {
			if g.keys == nil {
				g.keys = make(map[K]*flights[R])
			}
			all = &flights[R]{now: newFlight[R]()}
			g.keys[key] = all
			g.mu.Unlock()
			return result, &Leader[K, R]{g, key, all, all.now}, nil
		}
		now := all.now
		if all.next == nil {
			all.next = newFlight[R]()
		}
		next := all.next
		if w.came == 0 {
			g.came++
			w.came = g.came
		}
		next.add(w)
		g.mu.Unlock()
		l := &Leader[K, R]{g, key, all, next}

		select {
		case <-now.ended:
		case <-ctx.Done():
			l.leave(w)
			return result, nil, ctx.Err()
		}
		if g.IsFinal(now.result) {
			l.leave(w)
			return now.result, nil, nil
		}
		select {
		case <-w.lead:
			l.leave(w)
			return result, l, nil
		case <-next.ended:
			l.leave(w)
			if g.IsFinal(next.result) || shares(next.result) {
				return next.result, nil, nil
			}
		case <-ctx.Done():
			l.leave(w)
			return result, nil, ctx.Err()
		}
	}
}

// End ends the flight with its result, and makes the first waiter of the next one its leader.
func (l *Leader[K, R]) End(result R) {
	g := l.group
	g.mu.Lock()
	defer g.mu.Unlock()
	l.flight.result = result
	close(l.flight.ended)
	if l.flights.next == nil || len(l.flights.next.waiters) == 0 || g.IsFinal(result) {
		delete(g.keys, l.key)
		return
	}
	l.flights.now, l.flights.next = l.flights.next, nil
	l.flights.now.waiters[0].lead <- struct{}{}
}

// leave notes that a waiter no longer waits for a flight. If it was its leader, the next one is.
func (l *Leader[K, R]) leave(w *waiter) {
	g := l.group
	g.mu.Lock()
	l.flight.waiters = slices.DeleteFunc(l.flight.waiters, func(other *waiter) bool { return other == w })
	abandoned := false
	select {
	case <-w.lead:
		if abandoned = len(l.flight.waiters) == 0; !abandoned {
			l.flight.waiters[0].lead <- struct{}{}
		}
	default:
	}
	g.mu.Unlock()
	if abandoned {
		var none R
		l.End(none)
	}
}
