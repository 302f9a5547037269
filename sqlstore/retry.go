package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/sqlerror"
	"example.com/storefront/internal/watchdog"
)

// A call is a call of a method of the store: one try after the other, until a deadline. A try is one go at
// what the call is for, over one session; if it fails with an error that may pass, the next one follows.
type call struct {
	store  *Store
	watch  *watchdog.Watch // nil: the method is none of storefront.Store
	caller context.Context
	parent context.Context // done with caller, or earlier while the database is down
	ctx    context.Context // of each try
	cancel context.CancelFunc
	most   time.Duration // the limit of the next pause
}

func (s *Store) newCall(ctx context.Context, deadline time.Time, w *watchdog.Watch) *call {
	c := &call{store: s, watch: w, caller: ctx, parent: ctx, most: minPause}
	c.ctx, c.cancel = context.WithDeadline(ctx, deadline)
	return c
}

// begin begins a call of a method of storefront.Store: at most MaxCalls at once, with less time while the
// database is down.
func (s *Store) begin(ctx context.Context, deadline time.Time, h *watchdog.Health) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !h.Enter(s.opts.MaxCalls) {
		return nil, fmt.Errorf("%w: %d calls are in progress", storefront.ErrUnavailable, s.opts.MaxCalls)
	}
	hoping, w := h.WatchCall(ctx)
	c := s.newCall(hoping, deadline, w)
	c.caller = ctx
	return c, nil
}

// end ends a call that begin has begun.
func (c *call) end() {
	c.cancel()
	c.watch.Stop()
	c.watch.Leave()
}

// next pauses and returns nil if a try failed with a transient error: the caller tries again.
// Otherwise it returns the error of the call. When the caller's ctx is done, that matches its Err, and
// at the deadline, or if the call has ended early, [storefront.ErrUnavailable]. Its text has no values of
// rows, unless Options.Accept has returned it, or a trigger has written it.
func (c *call) next(err error) error {
	err = c.again(err)
	if _, accepted := err.(acceptError); accepted {
		return err
	}
	return sqlerror.WithoutValues(err)
}

func (c *call) again(err error) error {
	if _, accepted := err.(acceptError); accepted {
		return err
	}
	if c.ctx.Err() == nil {
		if !transient(err) {
			switch classOf(err) {
			case sqlerror.Absent:
				err = c.store.absent(c.ctx, err)
			case sqlerror.Denied:
				err = fmt.Errorf("the role of the program lacks a right that docs/databases.md lists: %w", err)
			}
			return err
		}
		c.store.stats.add(&c.store.stats.Retries, 1)
		if errors.Is(err, driver.ErrBadConn) && c.store.db.Stats().Idle > 0 {
			c.most = 2 * minPause
			return nil // after a restart of the server, all idle connections are dead
		}
		pause := c.most
		c.most = min(2*c.most, maxPause)
		// The pause is random, so that two transactions that conflicted do not again.
		select {
		case <-time.After(randomly(0, pause)):
			return nil
		case <-c.ctx.Done():
		}
	}
	early := c.parent.Err() != nil
	if why := c.caller.Err(); why != nil {
		return fmt.Errorf("sqlstore: %w: %w", why, err)
	}
	if early {
		return fmt.Errorf("%w: the database has not answered for more than %v: %v", storefront.ErrUnavailable,
			c.store.opts.Timeout, err) // which may match context.Canceled, as the caller's ctx does not
	}
	return fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
}

// retry calls try, with a session for each, until next returns an error.
func (s *Store) retry(ctx context.Context, deadline time.Time,
	try func(context.Context, *session) error) error {
	c := s.newCall(ctx, deadline, nil)
	defer c.cancel()
	for {
		err := s.with(c.ctx, nil, try)
		if err == nil {
			return nil
		}
		if err = c.next(err); err != nil {
			return err
		}
	}
}
