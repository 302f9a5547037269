package sqlstore

import (
	"context"
	"crypto/sha256"
	"sync"

	"example.com/storefront"
)

// flights let calls of this process that have the same key and fingerprint share one try,
// as one of them at most creates the order and the others would wait for its locks, each
// with a connection. What Accept has refused, or failed with, says nothing to those who
// came while the try was under way, as what was decided may have changed before they
// came: they share the next one. Any other failure is that of who has made the try.
type flights struct {
	mu    sync.Mutex
	lines map[flightKey]*line
}

type flightKey struct{ hash, fingerprint [sha256.Size]byte }

// A line is of the calls with one key: those of a try that is under way, or has nobody to
// make it yet, and those that wait for its end.
type line struct{ now, next *flight }

// A flight is a try that calls share.
type flight struct {
	members int           // who wait to make it, or for its end; not the one who makes it
	lead    chan struct{} // receives once, for one of them to make it
	ended   chan struct{} // closed when the following is known
	result
}

// A result is what a flight has come to.
type result struct {
	order storefront.Order
	err   error
	valid validity
}

// A validity says for whom a result is one.
type validity int

const (
	forOne     validity = iota // for who has made the try
	forMembers                 // for those, too, who came before it began
	forAll                     // for all
)

func newFlight() *flight { return &flight{lead: make(chan struct{}, 1), ended: make(chan struct{})} }

// do returns the result of try, or of that of another call. If ctx is done before there is
// one, it returns ctx.Err().
func (f *flights) do(ctx context.Context, key flightKey, try func() result) (r result, own bool) {
	for {
		f.mu.Lock()
		l := f.lines[key]
		if l == nil {
			if f.lines == nil {
				f.lines = make(map[flightKey]*line)
			}
			l = &line{now: newFlight()}
			f.lines[key] = l
			f.mu.Unlock()
			return f.make(key, l, l.now, try), true
		}
		now := l.now
		if l.next == nil {
			l.next = newFlight()
		}
		next := l.next
		next.members++
		f.mu.Unlock()

		select {
		case <-now.ended:
		case <-ctx.Done():
			f.leave(key, l, next)
			return result{err: ctx.Err()}, false
		}
		if now.valid == forAll {
			f.leave(key, l, next)
			return now.result, false
		}
		select {
		case <-next.lead:
			f.leave(key, l, next)
			return f.make(key, l, next, try), true
		case <-next.ended:
			f.leave(key, l, next)
			if next.valid > forOne {
				return next.result, false
			}
		case <-ctx.Done():
			f.leave(key, l, next)
			return result{err: ctx.Err()}, false
		}
	}
}

// make makes the try of a flight.
func (f *flights) make(key flightKey, l *line, fl *flight, try func() result) result {
	defer f.end(key, l, fl) // also when try panics
	fl.result = try()
	return fl.result
}

// end ends a flight, and has one of those who wait for the next one make that.
func (f *flights) end(key flightKey, l *line, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(fl.ended)
	if l.next == nil || l.next.members == 0 || fl.valid == forAll {
		delete(f.lines, key)
		return
	}
	l.now, l.next = l.next, nil
	l.now.lead <- struct{}{}
}

// leave notes that a member of a flight no longer waits.
func (f *flights) leave(key flightKey, l *line, fl *flight) {
	f.mu.Lock()
	fl.members--
	abandoned := false
	if fl.members == 0 && l.now == fl {
		select {
		case <-fl.lead:
			abandoned = true // the last of them was to make it
		default:
		}
	}
	f.mu.Unlock()
	if abandoned {
		f.end(key, l, fl)
	}
}
