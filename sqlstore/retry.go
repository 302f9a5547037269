package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"example.com/storefront"
)

// tries are the tries of one call, until a deadline.
type tries struct {
	store  *Store
	parent context.Context
	ctx    context.Context // of each try
	cancel context.CancelFunc
	most   time.Duration // the limit of the next pause
}

func (s *Store) newTries(ctx context.Context, deadline time.Time) *tries {
	t := &tries{store: s, parent: ctx, most: minPause}
	t.ctx, t.cancel = context.WithDeadline(ctx, deadline)
	return t
}

// next pauses and returns nil if a try failed with a transient error: the caller tries again.
// Otherwise it returns the error of the call. When the parent ctx is done, that matches its Err, and
// at the deadline [storefront.ErrUnavailable].
func (t *tries) next(err error) error {
	if _, accepted := err.(acceptError); accepted {
		return err
	}
	if t.ctx.Err() == nil {
		if !transient(err) {
			return err
		}
		t.store.stats.retries.Add(1)
		if errors.Is(err, driver.ErrBadConn) && t.store.db.Stats().Idle > 0 {
			t.most = 2 * minPause
			return nil // after a restart of the server, all idle connections are dead
		}
		pause := t.most
		t.most = min(2*t.most, maxPause)
		// The pause is random, so that two transactions that conflicted do not again.
		select {
		case <-time.After(t.store.jitter(0, pause)):
			return nil
		case <-t.ctx.Done():
		}
	}
	if t.parent.Err() != nil {
		return fmt.Errorf("sqlstore: %w: %w", t.parent.Err(), err)
	}
	return fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
}

// retry calls try until next returns an error.
func (s *Store) retry(ctx context.Context, deadline time.Time, try func(context.Context) error) error {
	t := s.newTries(ctx, deadline)
	defer t.cancel()
	for {
		err := try(t.ctx)
		if err == nil {
			return nil
		}
		if err = t.next(err); err != nil {
			return err
		}
	}
}

// A call is a call of a method of storefront.Store.
type call struct {
	*tries
	caller context.Context
	health *health
	watch  *watch
	giveUp func() // nil unless the call gives up early
}

// begin begins a call: at most MaxCalls at once, until the deadline, with less time while the database
// is down.
func (s *Store) begin(ctx context.Context, deadline time.Time, h *health) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if h.calls.Add(1) > int64(s.opts.MaxCalls) {
		h.calls.Add(-1)
		return nil, fmt.Errorf("%w: %d calls are in progress", storefront.ErrUnavailable, s.opts.MaxCalls)
	}
	c := &call{caller: ctx, health: h, watch: s.newWatch(h)}
	if h.isDown(s.now(), &s.times) {
		c.watch.limit /= 4
		ctx = c.giveUpEarly(ctx, s)
	}
	c.tries = s.newTries(ctx, deadline)
	return c, nil
}

// giveUpEarly returns a ctx that is also done after times.early if the database has
// answered no call by then.
func (c *call) giveUpEarly(ctx context.Context, s *Store) context.Context {
	began, early := s.now(), s.times.early
	hoping, giveUp := context.WithCancel(ctx)
	timer := time.AfterFunc(s.jitter(early, early+early/8), func() {
		if time.Duration(c.health.answered.Load()) < began {
			giveUp()
		}
	})
	c.giveUp = func() {
		timer.Stop()
		giveUp()
	}
	return hoping
}

// next is next of tries, and tells why a call gave up early.
func (c *call) next(err error) error {
	err = c.tries.next(err)
	early := c.giveUp != nil && c.caller.Err() == nil && c.parent.Err() != nil
	if err != nil && early && errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: the database has not answered for more than %v: %v",
			storefront.ErrUnavailable, c.store.opts.Timeout, err)
	}
	return err
}

// end ends the call.
func (c *call) end() {
	c.cancel()
	if c.giveUp != nil {
		c.giveUp()
	}
	c.health.calls.Add(-1)
}
