package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/storefront"
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
func (s *Store) commit(ctx context.Context, w *watch, p *proposal, begins state) outcome {
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
func (s *Store) find(ctx context.Context, w *watch, p *proposal, err error) (r result) {
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

// keysPerStatement bounds how long ForgetKeys holds locks.
const keysPerStatement = 1000

// ForgetKeys forgets the idempotency keys that the database recorded before a time, by its
// own clock (SQLite: the machine's), whatever time their orders have. It returns how many,
// or fewer if a connection was lost. The orders stay. Run it every hour or so, in any number
// of programs at once:
//
//	store.ForgetKeys(ctx, time.Now().Add(-storefront.KeyLifetime-time.Hour))
//
// The hour allows for a program whose clock is ahead of the database's, and for an order that
// was committed as much as Options.Timeout after its key was recorded. ForgetKeys forgets
// 1000 keys per transaction, oldest first, and on SQLite, which has one writer at a time,
// it waits after each for as long as that took, so that orders can go on. If it
// returns an error, some may be forgotten, and the next call goes on. It returns an error
// and forgets nothing if before is less than [storefront.KeyLifetime] ago by the clock of
// the database.
//
// In SQLite, if a release with tables of version 1 has recorded a key, its age counts from
// the first ForgetKeys that finds it.
func (s *Store) ForgetKeys(ctx context.Context, before time.Time) (int64, error) {
	// All replicas go by the clock of the database, so that one whose own clock is ahead
	// does not forget keys that all of them need.
	now, err := s.number(ctx, func(st *statements) string { return st.now })
	if err != nil {
		return 0, err
	}
	if before.UnixMilli() > now-storefront.KeyLifetime.Milliseconds() {
		return 0, fmt.Errorf("sqlstore: ForgetKeys before %s: keys must be remembered for %v",
			before.Format(time.RFC3339), storefront.KeyLifetime)
	}
	n, err := s.database.Load().forgetKeys(ctx, s, before)
	s.stats.forgotten.Add(n)
	return n, err
}

// keysPerLook bounds how many IDs ForgetKeys keeps in memory.
const keysPerLook = 100 * keysPerStatement

// forgetByThousands forgets the keys that were recorded before a time, in milliseconds, and returns how
// many. It pauses after each transaction.
//
// While any snapshot of the database is older, PostgreSQL and MySQL keep an index entry for each key that
// was forgotten since. A search for the oldest keys passes all of these, so one serves many transactions.
func (s *Store) forgetByThousands(ctx context.Context, pause func(took time.Duration) error, before int64) (
	total int64, err error) {
	for from, more := int64(math.MinInt64), true; more; {
		var ids []any
		ids, from, err = s.oldKeys(ctx, from, before, keysPerLook)
		if err != nil {
			return total, err
		}
		more = false // if others forget these keys, or nobody can, this is the last search
		for some := range slices.Chunk(ids, keysPerStatement) {
			began := time.Now()
			n, err := s.exec(ctx,
				func(st *statements) string { return st.forget + st.rowsFrom(2, 1, len(some)) },
				slices.Insert(some, 0, any(before))...)
			if total += n; err == nil && n > 0 {
				more = len(ids) == keysPerLook
				err = pause(time.Since(began))
			}
			if err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// oldKeys returns the first column of the statement of this name for the orders with the oldest keys, at
// most so many, and the time of the last of these keys.
func (s *Store) oldKeys(ctx context.Context, from, before int64, most int) (ids []any, last int64, err error) {
	err = s.retryWith(ctx, func(ctx context.Context, c *session) error {
		var id string
		ids, last = nil, from
		return c.each(ctx, func() { ids = append(ids, id) }, []any{&id, &last}, c.database.sql().oldKeys,
			from, before, most)
	})
	return ids, last, err
}
