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
)

// A proposal is an order that is to be created with a key.
type proposal struct {
	key   storefront.IdempotencyKey
	order storefront.Order
	hash  [sha256.Size]byte // the column key_hash
	watch *watch
	alone bool // the order shares no commit any more, as one that it shared has failed
}

// row returns the arguments of engine.insertOrders.
func (p *proposal) row() []any {
	return []any{p.order.ID, p.order.Item, p.order.Qty, p.order.CreatedAt.UnixMilli(), []byte(p.key.Scope), p.hash[:], p.key.Fingerprint[:]}
}

// CreateOrder implements [storefront.Store]. It never returns
// [storefront.ErrInProgress]: the database makes concurrent calls with the same
// key wait for each other, and those of this process share one try.
func (s *Store) CreateOrder(ctx context.Context, key storefront.IdempotencyKey, order storefront.Order) (stored storefront.Order, err error) {
	outcome := &s.stats.failed // if it panics
	s.stats.calls.Add(1)
	defer func() {
		s.stats.calls.Add(-1)
		outcome.Add(1)
	}()
	deadline := time.Now().Add(s.opts.Timeout)
	p := &proposal{key: key, order: order, hash: keyHash(key.Scope, key.Value)}
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	created := false
	r, own := s.flights.do(waiting, p.hash, key.Fingerprint, func() (r result) {
		r, created = s.createOnce(ctx, deadline, p)
		return r
	})
	switch {
	case r.err == nil && r.fingerprint != key.Fingerprint:
		r = result{err: storefront.ErrKeyReused}
	case !own && r.err != nil && r.err == waiting.Err() && ctx.Err() == nil:
		r.err = fmt.Errorf("%w: another call with the key has not ended: %w", storefront.ErrUnavailable, r.err)
	}
	outcome = s.stats.outcome(ctx, r.err, created)
	if accepted, ok := r.err.(acceptError); ok {
		return storefront.Order{}, accepted.error
	}
	return r.order, r.err
}

// createOnce creates the order of p, unless the key has one, which it returns then. No two
// calls of the process run it for one key at the same time.
func (s *Store) createOnce(ctx context.Context, deadline time.Time, p *proposal) (r result, created bool) {
	var (
		stored      storefront.Order
		fingerprint [32]byte
		unknown     bool // whether a try before may have created the order
		missing     int  // tries whose key was neither free nor taken
	)
	// Trying again is safe, whatever became of the try before: if that one has
	// created the order, this one finds it.
	err := s.call(ctx, deadline, &s.ordering, func(ctx context.Context, w *watch) (err error) {
		p.watch = w
		created, err = s.create(ctx, p)
		if created {
			stored, fingerprint = p.order, p.key.Fingerprint
			return nil
		}
		_, decided := err.(acceptError)
		if err != nil && (decided || transient(err) || ctx.Err() != nil) {
			unknown = unknown || !decided
			return err
		}
		// A database may check other constraints before the key, and their errors do not
		// matter if the key is taken.
		var foundErr error
		stored, fingerprint, foundErr = s.orderOf(ctx, p)
		switch {
		case !errors.Is(foundErr, sql.ErrNoRows):
			return foundErr
		case err != nil && classOf(err) != keyTaken:
			return err
		}
		// The key was forgotten between the two statements, or nothing inserts the order.
		err = errors.New("sqlstore: the database does not insert the order, and does not have its key")
		if missing++; missing > 3 {
			return fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
		}
		return classified{err, conflict}
	})
	_, decided := err.(acceptError)
	switch {
	case decided && ctx.Err() != nil: // Accept may have failed because ctx is done
		return result{err: err}, false
	case decided:
		return result{err: err, fingerprint: p.key.Fingerprint, valid: forMembers}, false
	case err != nil && unknown && ctx.Err() == nil && !errors.Is(err, storefront.ErrUnavailable):
		return result{err: fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)}, false
	case err != nil:
		return result{err: err}, false
	}
	return result{order: stored, fingerprint: fingerprint, valid: forAll}, created
}

// orderOf returns the order that was created with p's key, and its fingerprint. If
// there is none, it returns sql.ErrNoRows.
func (s *Store) orderOf(ctx context.Context, p *proposal) (order storefront.Order, fingerprint [32]byte, err error) {
	err = s.withSession(ctx, p.watch, func(ctx context.Context, c session) error {
		var ms int64
		var print []byte
		found := false
		err := c.each(ctx, func() { found = true }, []any{&order.ID, &order.Item, &order.Qty, &ms, &print}, c.engine.orderOf, p.hash[:])
		if err != nil {
			return err
		}
		if !found {
			return sql.ErrNoRows
		}
		order.CreatedAt = time.UnixMilli(ms).UTC()
		copy(fingerprint[:], print)
		if c.engine.syncReplay != "" {
			_, err = c.exec(ctx, c.engine.syncReplay, p.hash[0])
		}
		return err
	})
	return order, fingerprint, err
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
// it waits after each for as long as that took, so that orders have their turn. If it
// returns an error, some may be forgotten, and the next call goes on. It returns an error
// and forgets nothing if before is less than [storefront.KeyLifetime] ago by the clock of
// the database.
//
// In SQLite, if a release with tables of version 1 has recorded a key, its age counts from
// the first ForgetKeys that finds it.
func (s *Store) ForgetKeys(ctx context.Context, before time.Time) (int64, error) {
	// All replicas go by the clock of the database, so that one whose own clock is ahead
	// does not forget keys that all of them need.
	now, err := s.number(ctx, func(e *engine) string { return e.now })
	if err != nil {
		return 0, err
	}
	if before.UnixMilli() > now-storefront.KeyLifetime.Milliseconds() {
		return 0, fmt.Errorf("sqlstore: ForgetKeys before %s: keys must be remembered for %v", before.Format(time.RFC3339), storefront.KeyLifetime)
	}
	if e := s.engine.Load(); e.date != "" {
		if _, err := s.byThousands(ctx, func(e *engine) string { return e.date }); err != nil {
			return 0, err
		}
	}
	return s.byThousands(ctx, func(e *engine) string { return e.forget }, before.UnixMilli())
}

// byThousands runs a statement, whose last argument says how many rows it changes at most,
// until it changes none, and returns how many it has changed.
func (s *Store) byThousands(ctx context.Context, statement func(*engine) string, args ...any) (total int64, err error) {
	args = append(args, keysPerStatement)
	for {
		began := time.Now()
		n, err := s.exec(ctx, statement, args...)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
		if !s.engine.Load().oneWriter {
			continue
		}
		// Orders ask for the lock now and then, and would seldom do so between two transactions
		// without a pause.
		select {
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
			return total, fmt.Errorf("sqlstore: %w", ctx.Err())
		}
	}
}
