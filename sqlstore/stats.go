package sqlstore

import (
	"context"
	"errors"
	"sync/atomic"

	"example.com/storefront"
)

// Stats counts what a [Store] has done since it was made, and what it is doing. The numbers
// are read one after the other, so that while calls are in progress, they may be of slightly
// different moments.
type Stats struct {
	// How calls of CreateOrder have ended. Their sum is the number of those that have
	// returned.
	Created     int64 // with a new order
	Replayed    int64 // with the order that was there, of another call or of an earlier try
	KeyReused   int64 // with storefront.ErrKeyReused
	Refused     int64 // with a *storefront.Refusal of Options.Accept
	Unavailable int64 // with storefront.ErrUnavailable
	Canceled    int64 // with another error when their ctx was done
	Failed      int64 // with any other error, or a panic

	Commits   int64 // transactions that have created orders
	Committed int64 // orders that these have created: more than Created if callers had left

	Forgotten int64 // keys that ForgetKeys has forgotten

	Retries int64 // tries of any method that followed a failed one
	Dropped int64 // connections that were closed: no longer to the primary, or silent for a fifth of Timeout, as in wait of a lock

	Running int64 // reads and orders that use a connection now (on SQLite, or wait for one)
	Waiting int64 // reads and orders that wait for a connection, a commit or a call with the same key
}

// counters has the numbers from which Stats is made.
type counters struct {
	created, replayed, keyReused, refused, unavailable, canceled, failed atomic.Int64

	commits, committed, forgotten, retries, dropped atomic.Int64

	calls, running atomic.Int64 // now
}

// Stats returns the numbers of the store. It does not use the database, and may be called at
// any time.
func (s *Store) Stats() Stats {
	c := &s.stats
	running := c.running.Load()
	return Stats{
		Created:     c.created.Load(),
		Replayed:    c.replayed.Load(),
		KeyReused:   c.keyReused.Load(),
		Refused:     c.refused.Load(),
		Unavailable: c.unavailable.Load(),
		Canceled:    c.canceled.Load(),
		Failed:      c.failed.Load(),
		Commits:     c.commits.Load(),
		Committed:   c.committed.Load(),
		Forgotten:   c.forgotten.Load(),
		Retries:     c.retries.Load(),
		Dropped:     c.dropped.Load(),
		Running:     running,
		Waiting:     max(0, c.calls.Load()-running),
	}
}

// of returns the counter for a call of CreateOrder with ctx that returns err.
func (c *counters) of(ctx context.Context, err error, created bool) *atomic.Int64 {
	accepted, ok := err.(acceptError)
	switch {
	case created:
		return &c.created
	case err == nil:
		return &c.replayed
	case err == storefront.ErrKeyReused:
		return &c.keyReused
	case ok:
		if _, refused := errors.AsType[*storefront.Refusal](accepted.error); refused {
			return &c.refused
		}
		return &c.failed
	case errors.Is(err, storefront.ErrUnavailable):
		return &c.unavailable
	case ctx.Err() != nil:
		return &c.canceled
	}
	return &c.failed
}
