// Package agecache keeps values for requests that accept one of a certain age, as the
// Cache-Control of a request states it (RFC 9111, Section 5.2.1). Requests that would
// read the same value at the same time share one read. The package knows neither what
// the values are nor how a request is written, and has no goroutine while no read is
// under way. Of a key it keeps copies alone, so that the memory of its strings may be
// overwritten once Get has returned.
package agecache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Directives say which values a request accepts.
type Directives struct {
	AcceptsAge   bool          // stored ones, as far as the other fields allow
	NoCache      bool          // no stored one, unless StaleIfError allows it
	NoStore      bool          // any, but one that is read for the request is not stored
	OnlyIfCached bool          // none that would have to be read
	MaxAge       time.Duration // none that is older
	MinFresh     time.Duration // none that will be stale before this time has passed
	MaxStale     time.Duration // stale ones, up to this time after they became stale; negative: none
	StaleIfError time.Duration // if the read fails, fresh ones and stale ones up to this time; negative: none
}

// accepts reports whether the request accepts a stored value of this age and freshness
// lifetime.
func (d *Directives) accepts(age, lifetime time.Duration) bool {
	if d.NoCache || !d.AcceptsAge || age > d.MaxAge {
		return false
	}
	if left := lifetime - age; left > 0 && left >= d.MinFresh {
		return true
	}
	return d.MinFresh == 0 && age-lifetime <= d.MaxStale
}

// A Cache stores what Read returns. Its fields are set before its first use; its
// methods may be called concurrently.
type Cache[V any] struct {
	// Read returns the value with this ID, or an error that matches NotFound if there
	// is none. It is called concurrently and does not panic. Its ctx has the values of
	// the request that began the read. The ctx of a read that requests share is
	// cancelled when none of them waits any longer.
	Read     func(ctx context.Context, id string) (V, error)
	NotFound error

	Lifetime time.Duration // the freshness lifetime of values; positive
	Size     int           // how many values are stored at most; positive

	mu      sync.Mutex
	entries map[Key]*list.Element // of *entry[V]
	recent  list.List             // the same, most recently used first
	reads   map[Key]*reads[V]     // those under way
	last    uint64                // the number of the latest read
}

// A Key names a value. Scopes share neither a value nor a read.
type Key struct{ Scope, ID string }

// An Answer is a value and where it comes from. Forwarded is also set if there is an error,
// and Collapsed if that is NotFound.
type Answer[V any] struct {
	Value V

	Forwarded Reason // for the read; "" if there was none
	Collapsed bool   // another request began the read, and this one joined it

	Began   time.Time     // when the read began, if another request began it; zero otherwise
	Age     time.Duration // since Began
	Failure error         // of the read, if a stored value stands in for it
}

// A Reason says why a request led to a read, in the words of Cache-Status (RFC 9211,
// Section 2.2).
type Reason string

const (
	URIMiss Reason = "uri-miss" // nothing is stored
	Stale   Reason = "stale"    // the stored value is no longer fresh
	Request Reason = "request"  // the stored value is fresh, but the request does not accept it
)

// ErrNotCached is returned to a request that allows no read and accepts no stored value.
var ErrNotCached = errors.New("agecache: not cached")

var errNoReturn = errors.New("agecache: the read ended its goroutine")

// Get returns the value of key, stored or read, as d demands. It returns ErrNotCached,
// an error of Read, or that of ctx if ctx is done while Get waits for a shared read.
func (c *Cache[V]) Get(ctx context.Context, key Key, d *Directives) (Answer[V], error) {
	answer, err := c.get(ctx, key, d)
	failed := err != nil && err != ErrNotCached && !errors.Is(err, c.NotFound)
	if failed && d.StaleIfError >= 0 && ctx.Err() != context.Canceled {
		// RFC 5861, Section 4
		instead := Directives{AcceptsAge: true, MaxAge: math.MaxInt64, MaxStale: d.StaleIfError}
		c.mu.Lock()
		stored, ok := c.stored(key, &instead)
		c.mu.Unlock()
		if ok {
			stored.Forwarded, stored.Failure = answer.Forwarded, err
			return stored, nil
		}
	}
	return answer, err
}

// get is Get without stale-if-error.
func (c *Cache[V]) get(ctx context.Context, key Key, d *Directives) (Answer[V], error) {
	for arrived := time.Now(); ; {
		var err error
		c.mu.Lock()
		answer, ok := c.stored(key, d)
		switch {
		case ok:
			c.mu.Unlock()
			return answer, nil
		case d.OnlyIfCached:
			c.mu.Unlock()
			return Answer[V]{}, ErrNotCached
		case d.NoStore:
			c.mu.Unlock()
			answer.Value, err = c.Read(ctx, key.ID)
			return answer, err
		case d.NoCache || !d.AcceptsAge:
			read := c.begin(key)
			c.mu.Unlock()
			answer.Value, err = c.readThrough(ctx, read)
			return answer, err
		}
		call, joined := c.join(ctx, key, d)
		c.mu.Unlock()
		answer.Value, err = c.wait(ctx, call)
		if joined && (err == nil || errors.Is(err, c.NotFound)) {
			answer.Collapsed, answer.Began, answer.Age = true, call.began, since(call.began)
			if call.began.Before(arrived) && !d.accepts(answer.Age, c.Lifetime) {
				continue // the request accepts nothing that old
			}
		}
		return answer, err
	}
}

// An entry is a stored value.
type entry[V any] struct {
	key   Key
	value V
	began time.Time // when the read began, so that the age is never understated
}

// since returns the time since t by the clock that has gone further: Linux stops the monotonic one while the
// machine is suspended, and the other one may be set back.
func since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// stored returns the value stored under key if d accepts it, and otherwise the reason
// for a read. c.mu must be held.
func (c *Cache[V]) stored(key Key, d *Directives) (answer Answer[V], ok bool) {
	element := c.entries[key]
	if element == nil {
		return Answer[V]{Forwarded: URIMiss}, false
	}
	e := element.Value.(*entry[V])
	age := since(e.began)
	switch {
	case d.accepts(age, c.Lifetime):
		c.recent.MoveToFront(element)
		return Answer[V]{Value: e.value, Began: e.began, Age: age}, true
	case age >= c.Lifetime:
		return Answer[V]{Forwarded: Stale}, false
	}
	return Answer[V]{Forwarded: Request}, false
}

// reads are the reads of one key that are under way and whose outcome may be stored.
type reads[V any] struct {
	key     Key // a copy that nothing else uses
	count   int
	settled uint64   // the number of the latest read whose outcome is known; older ones are not stored
	call    *call[V] // one that other requests may join, or nil
}

// A read is a read under way.
type read struct {
	key    Key
	began  time.Time
	number uint64 // greater than those of reads that began before
}

// begin notes a read; the caller must call end. c.mu must be held.
func (c *Cache[V]) begin(key Key) read {
	if c.reads == nil {
		c.reads = make(map[Key]*reads[V])
	}
	under := c.reads[key]
	if under == nil {
		// The read may outlast the request, whose strings may be parts of something much
		// larger, or of a buffer that is used again.
		under = &reads[V]{key: Key{strings.Clone(key.Scope), strings.Clone(key.ID)}}
		c.reads[under.key] = under
	}
	under.count++
	c.last++
	return read{under.key, time.Now(), c.last}
}

// readThrough makes the read of one request that shares it with no other.
func (c *Cache[V]) readThrough(ctx context.Context, r read) (value V, err error) {
	err = errNoReturn
	defer func() { c.end(r, value, err) }()
	value, err = c.Read(ctx, r.key.ID)
	return value, err
}

// end stores the outcome of a read, or removes what is stored if there is no such value,
// unless the outcome of a read that began later is known: a value that the later one has
// found gone does not come back. If it is that of a call, no further request joins it.
func (c *Cache[V]) end(r read, value V, err error) {
	gone := errors.Is(err, c.NotFound) // it may call a method of err, and the lock is not held
	c.mu.Lock()
	defer c.mu.Unlock()
	reads := c.reads[r.key]
	if reads.call != nil && reads.call.number == r.number {
		reads.call = nil
	}
	if reads.count--; reads.count == 0 {
		delete(c.reads, r.key)
	}
	if err != nil && !gone || r.number < reads.settled {
		return
	}
	reads.settled = r.number
	switch element := c.entries[r.key]; {
	case gone && element != nil:
		c.remove(element)
	case gone:
	case element != nil:
		e := element.Value.(*entry[V])
		e.value, e.began = value, r.began
		c.recent.MoveToFront(element)
	default:
		if c.entries == nil {
			c.entries = make(map[Key]*list.Element)
		}
		c.entries[r.key] = c.recent.PushFront(&entry[V]{r.key, value, r.began})
		if len(c.entries) > c.Size {
			c.remove(c.recent.Back())
		}
	}
}

func (c *Cache[V]) remove(element *list.Element) {
	delete(c.entries, c.recent.Remove(element).(*entry[V]).key)
}

// A call is a read that requests wait for.
type call[V any] struct {
	read
	waiters int                // guarded by the cache's mu
	cancel  context.CancelFunc // called when nobody waits any longer
	done    chan struct{}      // closed once the fields below are set
	value   V
	err     error
}

// join adds a request to those that wait for the call under way, if d accepts a value of
// that call's age and nothing newer is known, and for a new call otherwise. c.mu must be
// held.
func (c *Cache[V]) join(ctx context.Context, key Key, d *Directives) (joined *call[V], shared bool) {
	if reads := c.reads[key]; reads != nil && reads.call != nil {
		joined = reads.call
		shared = joined.number > reads.settled && d.accepts(since(joined.began), c.Lifetime)
	}
	if !shared {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		joined = &call[V]{read: c.begin(key), cancel: cancel, done: make(chan struct{})}
		c.reads[key].call = joined
		go c.run(ctx, joined)
	}
	joined.waiters++
	return joined, shared
}

// run makes the call, in a goroutine of its own, so that the end of one request does not
// end it for the others.
func (c *Cache[V]) run(ctx context.Context, call *call[V]) {
	call.err = errNoReturn
	defer func() {
		if call.err == errNoReturn {
			call.err = fmt.Errorf("%w\n\n%s", errNoReturn, debug.Stack())
		}
		c.end(call.read, call.value, call.err)
		close(call.done)
	}()
	call.value, call.err = c.Read(ctx, call.key.ID)
}

// wait waits until the call ends or ctx is done. The last request to leave cancels the
// call.
func (c *Cache[V]) wait(ctx context.Context, call *call[V]) (value V, err error) {
	defer c.leave(call)
	select {
	case <-call.done:
	case <-ctx.Done():
	}
	select {
	case <-call.done:
		return call.value, call.err
	default: // not what the call returns once leave has cancelled it
		return value, ctx.Err()
	}
}

// leave notes that a request no longer waits for the call. No further request joins a call
// that the last one has left.
func (c *Cache[V]) leave(call *call[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.waiters--; call.waiters > 0 {
		return
	}
	call.cancel()
	if reads := c.reads[call.key]; reads != nil && reads.call == call {
		reads.call = nil
	}
}
