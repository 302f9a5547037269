package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/watchdog"
)

// tries are the tries of one call, until a deadline. A try is one go at what the call is for, over one
// session; if it fails with an error that may pass, the next one follows.
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
			switch classOf(err) {
			case absent:
				err = t.store.absent(t.ctx, err)
			case denied:
				err = fmt.Errorf("the role of the program lacks a right that docs/databases.md lists: %w", err)
			}
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
		case <-time.After(randomly(0, pause)):
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

// A call is a call of a method of storefront.Store, with all its tries.
type call struct {
	*tries
	watch *watchdog.Watch
}

// begin begins a call: at most MaxCalls at once, until the deadline, with less time while the database
// is down.
func (s *Store) begin(ctx context.Context, deadline time.Time, h *watchdog.Health) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !h.Enter(s.opts.MaxCalls) {
		return nil, fmt.Errorf("%w: %d calls are in progress", storefront.ErrUnavailable, s.opts.MaxCalls)
	}
	ctx, w := h.WatchCall(ctx)
	return &call{s.newTries(ctx, deadline), w}, nil
}

// next is next of tries, and tells why a call gave up early.
func (c *call) next(err error) error {
	err = c.tries.next(err)
	if err != nil && c.watch.GaveUp() && errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: the database has not answered for more than %v: %v",
			storefront.ErrUnavailable, c.store.opts.Timeout, err)
	}
	return err
}

// end ends the call.
func (c *call) end() {
	c.cancel()
	c.watch.Stop()
	c.watch.Leave()
}
