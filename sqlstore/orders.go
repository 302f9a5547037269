package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/watchdog"
)

// A proposal is an order that a call proposes to create with a key.
type proposal struct {
	key   storefront.IdempotencyKey
	order storefront.Order
	hash  [sha256.Size]byte // the column key_hash
}

// row returns the values of orderColumns.
func (p *proposal) row() []any {
	return []any{p.order.ID, p.order.Item, p.order.Qty, p.order.CreatedAt.UnixMilli(),
		[]byte(p.key.Scope), p.hash[:], p.key.Fingerprint[:]}
}

// CreateOrder implements [storefront.Store]. It never returns
// [storefront.ErrInProgress]: the database makes concurrent calls with the same
// key wait for each other, and those of this process share one try.
func (s *Store) CreateOrder(ctx context.Context, key storefront.IdempotencyKey, order storefront.Order) (
	stored storefront.Order, err error) {
	counted := &s.stats.failed // if it panics
	s.stats.calls.Add(1)
	defer func() {
		s.stats.calls.Add(-1)
		counted.Add(1)
	}()
	deadline := time.Now().Add(s.opts.Timeout)
	p := &proposal{key: key, order: order, hash: keyHash(key.Scope, key.Value)}
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r, lead := s.inFlight.join(waiting, p.hash, key.Fingerprint)
	if lead != nil {
		r = s.createOnce(ctx, deadline, p, lead)
	}
	switch {
	case r.err == nil && r.fingerprint != key.Fingerprint:
		r = result{outcome: outcome{err: storefront.ErrKeyReused}}
	case lead == nil && r.err != nil && r.err == waiting.Err() && ctx.Err() == nil:
		r.err = fmt.Errorf("%w: another call with the key has not ended: %w",
			storefront.ErrUnavailable, r.err)
	}
	counted = s.stats.outcome(ctx, r.err, lead != nil && r.state == created)
	if accepted, ok := r.err.(acceptError); ok {
		return storefront.Order{}, accepted.error
	}
	return r.order, r.err
}

// createOnce creates the order of p, unless the key has one, which it returns then. No two
// calls of the process run it for one key at the same time: lead is the place of this one.
func (s *Store) createOnce(ctx context.Context, deadline time.Time, p *proposal, lead *leader) (r result) {
	defer func() { lead.end(r) }() // also if it panics
	c, err := s.begin(ctx, deadline, &s.ordering)
	if err != nil {
		return result{outcome: outcome{err: err}}
	}
	defer c.end()
	begins := pending // how the next attempt begins
	unknown := false  // whether an attempt may have created the order though its commit failed
	missing := 0      // tries whose key was neither free nor taken
	// Trying again is safe, whatever became of the try before: if that one has
	// created the order, this one finds it.
	for {
		out := s.commit(c.ctx, c.watch, p, begins)
		if out.state == created {
			return result{p.order, p.key.Fingerprint, out}
		}
		if out.state == solo {
			begins = solo
		}
		err := out.err
		switch {
		case out.state == refused:
		case err != nil && (transient(err) || c.ctx.Err() != nil):
			unknown = true
		default:
			found := s.find(c.ctx, c.watch, p, err)
			if found.err == nil {
				return found
			}
			if err = found.err; err == errNeither {
				if missing++; missing > 3 {
					err = fmt.Errorf("%w: %w", storefront.ErrUnavailable, errNeither.error)
				}
			}
		}
		if err = c.next(err); err == nil {
			continue
		}
		_, decided := err.(acceptError)
		switch {
		case decided && ctx.Err() == nil: // otherwise, Accept may have failed because ctx is done
			return result{fingerprint: p.key.Fingerprint, outcome: outcome{refused, err}}
		case !decided && unknown && ctx.Err() == nil && !errors.Is(err, storefront.ErrUnavailable):
			err = fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
		}
		return result{outcome: outcome{err: err}}
	}
}

// commit commits the order of p, in an attempt that begins as pending or solo. If that is suspect, it
// commits the order alone.
func (s *Store) commit(ctx context.Context, w *watchdog.Watch, p *proposal, begins state) outcome {
	db, err := s.known(ctx, w)
	if err != nil {
		return outcome{err: err}
	}
	for {
		a := &attempt{proposal: p, ctx: ctx, watch: w, outcome: outcome{state: begins}}
		if err := db.commit(ctx, a); err != nil {
			return outcome{err: err}
		}
		if a.state == suspect {
			a.state, begins = solo, solo // in all further attempts of the call
			if !transient(a.err) {
				continue
			}
		}
		if driver, ok := a.err.(*panicError); ok {
			panic(driver.value)
		}
		return a.outcome
	}
}

// errNeither is the error of a try for which a key was forgotten between the INSERT and the SELECT, or
// for which something in the database inserts no row.
var errNeither = classified{
	errors.New("sqlstore: the database inserted no row, yet the key is not stored"), conflict,
}

// find returns the order that has the key of p, after an INSERT that failed with err or, if err is nil,
// inserted nothing. A database may check other constraints before the key, and their errors do not
// matter if the key is taken.
func (s *Store) find(ctx context.Context, w *watchdog.Watch, p *proposal, err error) (r result) {
	foundErr := s.with(ctx, w, func(ctx context.Context, c *session) (err error) {
		r.order, r.fingerprint, err = c.database.find(ctx, c, p.hash)
		return err
	})
	switch {
	case foundErr == nil:
		r.state = taken
	case !errors.Is(foundErr, sql.ErrNoRows):
		r.err = foundErr
	case err != nil && classOf(err) != keyTaken:
		r.err = err
	default:
		r.err = errNeither
	}
	return r
}

// keyHash returns the value of the column key_hash. All hashes have one length, so that a
// scope may be longer than an index allows.
func keyHash(scope, value string) [sha256.Size]byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(scope)+len(value)), uint64(len(scope)))
	return sha256.Sum256(append(append(b, scope...), value...))
}
