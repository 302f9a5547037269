package sqlstore

import (
	"context"
	"errors"
	"sync"

	"example.com/storefront"
)

// Stats counts what a [Store] has done since it was made, and what it is doing.
type Stats struct {
	// How calls of CreateOrder have ended. Their sum is the number of those that have returned.
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

// counters are the numbers of Stats. Those who run are among those who wait until Stats tells them apart.
type counters struct {
	mu sync.Mutex
	Stats
}

// add adds n to one of the numbers.
func (c *counters) add(number *int64, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*number += n
}

// Stats returns the numbers of the store. It does not use the database, and may be called at any time.
func (s *Store) Stats() Stats {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	now := s.stats.Stats
	now.Waiting = max(0, now.Waiting-now.Running)
	return now
}

// of returns the counter for a call of CreateOrder with ctx that returns err.
func (c *counters) of(ctx context.Context, err error, created bool) *int64 {
	accepted, ok := err.(acceptError)
	switch {
	case created:
		return &c.Created
	case err == nil:
		return &c.Replayed
	case err == storefront.ErrKeyReused:
		return &c.KeyReused
	case ok:
		if _, refused := errors.AsType[*storefront.Refusal](accepted.error); refused {
			return &c.Refused
		}
		return &c.Failed
	case errors.Is(err, storefront.ErrUnavailable):
		return &c.Unavailable
	case ctx.Err() != nil:
		return &c.Canceled
	}
	return &c.Failed
}
