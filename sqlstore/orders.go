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
	alone bool // it shares no commit, as one that it shared has failed
}

// row returns the arguments of engine.insertOrders.
func (p *proposal) row() []any {
	return []any{p.order.ID, p.order.Item, p.order.Qty, p.order.CreatedAt.UnixMilli(), []byte(p.key.Scope), p.hash[:], p.key.Fingerprint[:]}
}

// CreateOrder implements [storefront.Store]. It never returns
// [storefront.ErrInProgress]: the database makes concurrent calls with the same
// key wait for each other.
func (s *Store) CreateOrder(ctx context.Context, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	var (
		p           = &proposal{key: key, order: order, hash: keyHash(key.Scope, key.Value)}
		stored      storefront.Order
		fingerprint [32]byte
		unknown     bool // whether a try before may have created the order
	)
	// Trying again is safe, whatever became of the try before: if that one has
	// created the order, this one finds it.
	err := s.call(ctx, &s.ordering, func(ctx context.Context, w *watch) error {
		p.watch = w
		for round := range 2 {
			created, err := s.create(ctx, p)
			if created {
				stored, fingerprint = order, key.Fingerprint
				return nil
			}
			_, decided := err.(decision)
			if err != nil && (decided || transient(err) || ctx.Err() != nil) {
				unknown = unknown || !decided
				return err
			}
			// What else the database has against the order does not matter if the
			// key is taken, which it may look at last.
			var foundErr error
			stored, fingerprint, foundErr = s.orderOf(ctx, p)
			switch {
			case !errors.Is(foundErr, sql.ErrNoRows):
				return foundErr
			case err != nil && (round > 0 || !duplicate(err)):
				return err
			}
			// The key was forgotten between the two statements.
		}
		return errors.New("sqlstore: the database does not insert the order, and does not have its key")
	})
	decision, decided := err.(decision)
	switch {
	case decided:
		return storefront.Order{}, decision.error
	case err != nil && unknown && ctx.Err() == nil && !errors.Is(err, storefront.ErrUnavailable):
		return storefront.Order{}, fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
	case err != nil:
		return storefront.Order{}, err
	case fingerprint != key.Fingerprint:
		return storefront.Order{}, storefront.ErrKeyReused
	}
	return stored, nil
}

// orderOf returns the order that was created with p's key, and its fingerprint. If
// there is none, it returns sql.ErrNoRows.
func (s *Store) orderOf(ctx context.Context, p *proposal) (order storefront.Order, fingerprint [32]byte, err error) {
	err = s.with(ctx, p.watch, func(ctx context.Context, c session) error {
		rows, err := c.query(ctx, c.engine.orderOf, p.hash[:])
		if err != nil {
			return err
		}
		defer rows.Close()
		found := false
		for rows.Next() {
			var ms int64
			var print []byte
			if err := rows.Scan(&order.ID, &order.Item, &order.Qty, &ms, &print); err != nil {
				return err
			}
			found = true
			order.CreatedAt = time.UnixMilli(ms).UTC()
			copy(fingerprint[:], print)
		}
		// The commit, if there is one, comes after the row.
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		if !found {
			return sql.ErrNoRows
		}
		if c.engine.settle != "" {
			_, err = c.exec(ctx, c.engine.settle, p.hash[0])
		}
		return err
	})
	return order, fingerprint, err
}

// keyHash is the column key_hash. A hash is of one length, so that the length of
// a scope is not limited by what an index takes.
func keyHash(scope, value string) [sha256.Size]byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(scope)+len(value)), uint64(len(scope)))
	return sha256.Sum256(append(append(b, scope...), value...))
}

// keysPerStatement bounds how long ForgetKeys holds locks.
const keysPerStatement = 1000

// ForgetKeys forgets the idempotency keys of the orders that were created before
// a time, and returns how many, or fewer where a connection was lost. The orders
// stay. Run it every hour or so, in any number of programs at once:
//
//	store.ForgetKeys(ctx, time.Now().Add(-storefront.KeyLifetime-time.Hour))
//
// The hour allows for clocks that differ, as an order has the time of the program
// that created it. ForgetKeys forgets 1000 keys per transaction, oldest first; if
// it returns an error, some may be forgotten, and calling it again goes on. It
// returns an error and forgets nothing if before is less than
// [storefront.KeyLifetime] ago by the clock of the database, or of the machine for
// SQLite.
func (s *Store) ForgetKeys(ctx context.Context, before time.Time) (int64, error) {
	// By the clock that all replicas share: one that is ahead must not forget what
	// they all need.
	now, err := s.number(ctx, func(e *engine) string { return e.now })
	if err != nil {
		return 0, err
	}
	if before.UnixMilli() > now-storefront.KeyLifetime.Milliseconds() {
		return 0, fmt.Errorf("sqlstore: ForgetKeys before %s: keys must be remembered for %v", before.Format(time.RFC3339), storefront.KeyLifetime)
	}
	var total int64
	for {
		n, err := s.exec(ctx, func(e *engine) string { return e.forget }, before.UnixMilli(), keysPerStatement)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
	}
}
