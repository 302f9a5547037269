package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"example.com/storefront"
)

// The first pause between two tries is at most minPause. The limit then doubles, up to
// maxPause.
const (
	minPause = 2 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// retry calls try until its error is not transient. When ctx is done, retry returns an error
// that matches ctx.Err(), and at the deadline one that matches [storefront.ErrUnavailable].
func (s *Store) retry(ctx context.Context, deadline time.Time, try func(context.Context) error) error {
	trying, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for most := minPause; ; most = min(2*most, maxPause) {
		err := try(trying)
		if _, accepted := err.(acceptError); err == nil || accepted {
			return err
		}
		if trying.Err() == nil {
			if !transient(err) {
				return err
			}
			s.stats.retries.Add(1)
			if errors.Is(err, driver.ErrBadConn) && s.db.Stats().Idle > 0 {
				most = minPause
				continue // after a restart of the server, all idle connections are dead
			}
			// The pause is random, so that two transactions that conflicted do not again.
			select {
			case <-time.After(s.jitter(0, most)):
				continue
			case <-trying.Done():
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("sqlstore: %w: %w", ctx.Err(), err)
		}
		return fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
	}
}
