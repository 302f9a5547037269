package sqlstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"sync"

	"example.com/storefront"
)

// flights lets the calls of this process that have the same key share one try. Only one
// of them can create the order, and the others would wait for its locks, each with a
// connection. An error of Accept is shared by the calls with the same fingerprint that
// came before the try began; a call that came later shares the next try, as the stock may
// have changed since Accept looked at it. Any other failure is that of the call alone
// which made the try. Of the calls that share a try, the one that came first makes it, so
// that none waits for ever while others are refused.
type flights struct {
	mu    sync.Mutex
	lines map[[sha256.Size]byte]*line // by key_hash
	came  uint64                      // the number of the call that came last
}

// A line is the calls with one key: now is the try that is under way, or that one of its
// members is about to make, and next is the try of the calls that wait for now to end.
type line struct{ now, next *flight }

// A flight is a try that calls share.
type flight struct {
	members []*member     // in the sequence in which they came, without the one that makes the try
	ended   chan struct{} // closed when result is set
	result
}

// A member is a call that waits to make a try, or for its end.
type member struct {
	came uint64
	lead chan struct{} // sends once, if the member is to make the try
}

// A result is the outcome of a try.
type result struct {
	order       storefront.Order  // the one that has the key
	fingerprint [sha256.Size]byte // of order, or of the order that Accept has refused
	err         error
	valid       validity
}

// A validity says which calls share a result.
type validity int

const (
	forOne     validity = iota // only the call that made the try
	forMembers                 // also those with its fingerprint that came before the try began
	forAll                     // every call with the key
)

func newFlight() *flight { return &flight{ended: make(chan struct{})} }

// join adds a member to a flight.
func (fl *flight) join(m *member) {
	i, _ := slices.BinarySearchFunc(fl.members, m.came, func(m *member, came uint64) int { return cmp.Compare(m.came, came) })
	fl.members = slices.Insert(fl.members, i, m)
}

// do returns the result of try, which is then the call's own, or of the try of another
// call with the key. If ctx is done before there is a result, it returns ctx.Err().
func (f *flights) do(ctx context.Context, key, fingerprint [sha256.Size]byte, try func() result) (r result, own bool) {
	m := &member{lead: make(chan struct{}, 1)}
	for {
		f.mu.Lock()
		l := f.lines[key]
		if l == nil {
			if f.lines == nil {
				f.lines = make(map[[sha256.Size]byte]*line)
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
		if m.came == 0 {
			f.came++
			m.came = f.came
		}
		next.join(m)
		f.mu.Unlock()

		select {
		case <-now.ended:
		case <-ctx.Done():
			f.leave(key, l, next, m)
			return result{err: ctx.Err()}, false
		}
		if now.valid == forAll {
			f.leave(key, l, next, m)
			return now.result, false
		}
		select {
		case <-m.lead:
			f.leave(key, l, next, m)
			return f.make(key, l, next, try), true
		case <-next.ended:
			f.leave(key, l, next, m)
			if next.valid == forAll || next.valid == forMembers && next.fingerprint == fingerprint {
				return next.result, false
			}
		case <-ctx.Done():
			f.leave(key, l, next, m)
			return result{err: ctx.Err()}, false
		}
	}
}

// make makes the try of a flight.
func (f *flights) make(key [sha256.Size]byte, l *line, fl *flight, try func() result) result {
	defer f.end(key, l, fl) // also when try panics
	fl.result = try()
	return fl.result
}

// end ends a flight, and tells the first member of the next one to make the next try.
func (f *flights) end(key [sha256.Size]byte, l *line, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(fl.ended)
	if l.next == nil || len(l.next.members) == 0 || fl.valid == forAll {
		delete(f.lines, key)
		return
	}
	l.now, l.next = l.next, nil
	l.now.members[0].lead <- struct{}{}
}

// leave notes that a member of a flight no longer waits. If it was to make the try, the
// next one is.
func (f *flights) leave(key [sha256.Size]byte, l *line, fl *flight, m *member) {
	f.mu.Lock()
	fl.members = slices.DeleteFunc(fl.members, func(other *member) bool { return other == m })
	abandoned := false
	select {
	case <-m.lead:
		if abandoned = len(fl.members) == 0; !abandoned {
			fl.members[0].lead <- struct{}{}
		}
	default:
	}
	f.mu.Unlock()
	if abandoned {
		f.end(key, l, fl)
	}
}
