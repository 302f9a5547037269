package sqlstore

import (
	"context"
	"time"
)

// Check returns nil if an order could be created now: the database is there, takes writes, and has tables
// that this release may use. Check creates no order, and changes no row except, in MySQL, a number in
// storefront_replays. It is for a readiness probe, and takes up to Options.Timeout unless ctx is done before.
// On Vitess, it returns nil if one of the shards could create an order.
//
// The first Check looks at the tables, and commits a write. So does one that follows a failure of a
// Check. Later ones look at the tables every 15 seconds, unless orders do. One that follows a failure
// of an order, a restart of the server, or a change of PostgreSQL's standbys commits a write. Others,
// and all on SQLite, only ask the database whether it would take the write, so that probes of an idle
// shop fill no log. On SQLite, they wait for the lock of the file, as an order does.
// After each Check, the store looks at the settings of its connections again, and on SQLite in each, at
// those of one: if one breaks a promise, neither Check nor an order succeeds.
// It also looks for the last order that it has created, and logs an error if a database that takes writes does
// not have it: that is an older copy, or a fail-over has lost orders. Orders go on.
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
		err = s.retry(ctx, deadline, s.check)
	}
	if err != nil {
		s.checked.Store(nil)
	}
	return err
}

// check checks that c could create an order now.
func (s *Store) check(ctx context.Context, c *session) error {
	st, last := c.database.sql(), s.checked.Load()
	if last == nil || int64(s.now()) >= s.inspectDue.Load() {
		missing, err := c.inspect(ctx, st)
		if !transient(err) && ctx.Err() == nil {
			s.noteFlaw(err)
		}
		if err == nil && len(missing) > 0 {
			err = s.lost(missing) // Check has read the version of the tables
		}
		if err != nil {
			return err
		}
	} else if flaw := s.flaw.Load(); flaw != nil { // which an order has found
		return *flaw
	}
	// This INSERT of no row fails if that of an order would, as a right or a column is missing, the table has
	// a rule, or the database is read-only. Where orders have a place, none would be asked.
	var err error
	if orders := st.prefix + `storefront_orders`; !st.placed {
		_, err = c.exec(ctx, `INSERT INTO `+orders+` (`+orderColumns+`)
			SELECT `+orderColumns+` FROM `+orders+` WHERE 1 = 0`+st.ifFree)
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
		s.ordering.Failed() < last.at {
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
