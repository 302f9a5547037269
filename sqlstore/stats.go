package sqlstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

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
	Dropped int64 // connections that were closed because their server was silent or no longer the primary

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

// outcome returns the counter for a call of CreateOrder with ctx that returns err.
func (c *counters) outcome(ctx context.Context, err error, created bool) *atomic.Int64 {
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

// Check returns nil if an order could be created now: the database is there, takes writes,
// and has tables that this release may use. Check creates no order, and changes no row
// except, in MySQL, a number in storefront_replays. It is for a readiness probe, and takes
// up to Options.Timeout unless ctx is done before. On Vitess, it returns nil if one of the shards could
// create an order.
//
// The first Check looks at the tables, and commits a write. So does one that follows a failure of a
// Check. Later ones look at the tables every 15 seconds, unless orders do. One that follows a failure
// of an order, a restart of the server, or a change of PostgreSQL's standbys commits a write. Others
// only ask the database whether it would take the write, so that probes of an idle shop fill no log.
// After each Check, the store looks at the settings of its connections again: if the server has got
// one that breaks a promise, neither Check nor an order succeeds.
func (s *Store) Check(ctx context.Context) error {
	deadline := time.Now().Add(s.opts.Timeout)
	s.looked.forget()
	var err error
	// The version is in one shard, which may be away while others take orders.
	if db := s.database.Load(); db == nil || !db.sql().placed || !s.versioned.Load() {
		_, err = s.schemaVersion(ctx)
		s.versioned.Store(err == nil)
	}
	if err == nil {
		err = s.retry(ctx, deadline, func(ctx context.Context) error { return s.with(ctx, nil, s.check) })
	}
	if err != nil {
		s.checked.Store(nil)
	}
	return err
}

// check checks that c could create an order now.
func (s *Store) check(ctx context.Context, c *session) error {
	st, last := c.database.sql(), s.checked.Load()
	if last == nil || int64(s.now()) >= s.lookDue.Load() {
		missing, err := c.lookAtTables(ctx, st)
		if !transient(err) && ctx.Err() == nil {
			s.noteLook(err)
		}
		if err == nil && len(missing) > 0 {
			err = s.lost(missing) // Check has read the version of the tables
		}
		if err != nil {
			return err
		}
	}
	// This INSERT of no row fails if a right or a column is missing, or if the database is
	// read-only. Where orders have a place, none would be asked.
	var err error
	if orders := st.prefix + `storefront_orders`; !st.placed {
		_, err = c.exec(ctx, `INSERT INTO `+orders+` (`+orderColumns+`)
			SELECT `+orderColumns+` FROM `+orders+` WHERE 1 = 0`)
	}
	now := checked{at: s.now()}
	if err == nil && st.servers == "" {
		s.checked.Store(&now)
	}
	if err != nil || st.servers == "" {
		return err
	}
	unknown := c.each(ctx, func() {}, []any{&now.servers}, st.servers)
	if transient(unknown) {
		return unknown
	}
	if unknown == nil && last != nil && last.servers == now.servers &&
		s.ordering.failed.Load() < int64(last.at) {
		return nil
	}
	if _, err := c.exec(ctx, st.write); err != nil {
		return err
	}
	s.checked.Store(&now)
	return nil
}

// checked is what a Check has written to.
type checked struct {
	servers string // what the statement of this name returned; "": not known
	at      time.Duration
}
