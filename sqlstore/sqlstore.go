package sqlstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"example.com/storefront"
)

// A Store is a [storefront.Store] in a SQL database. Make one with [New]. Its
// methods may be called concurrently.
type Store struct {
	Users, Products, Widgets Collection

	db    *sql.DB
	opts  Options
	calls atomic.Int64 // of the methods of storefront.Store that are in progress
}

// Options are the options of a [Store]. The zero value of each field is a
// documented default.
type Options struct {
	// Timeout is the most time that a call of a method of storefront.Store, or a
	// transaction of another method, is given, with the wait for a connection
	// and all retries. An earlier deadline of ctx goes first. After it, calls
	// fail with storefront.ErrUnavailable. It should be longer than a fail-over
	// that clients are not to notice, but shorter than the 30 seconds after which
	// the service gives up an order. If it is 0, it is 10 seconds. It must not be
	// negative.
	Timeout time.Duration

	// MaxCalls is how many calls of ListUsers, CreateOrder, GetProduct and
	// ListWidgets may be in progress at once. Those beyond the connections of
	// the pool wait for one; those beyond MaxCalls return
	// storefront.ErrUnavailable at once, so that under overload a call waits for
	// at most about MaxCalls others. If it is 0, it is 1000. It must not be
	// negative.
	MaxCalls int
}

// New returns the store in a database whose tables were made by [Store.Migrate].
// It does not use the database yet, and never closes it. If opts is nil, the
// defaults are used; otherwise opts is copied.
//
// New panics if db is nil or an option is negative.
func New(db *sql.DB, opts *Options) *Store {
	if db == nil {
		panic("sqlstore: New with a nil DB")
	}
	s := &Store{db: db}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Timeout < 0 || s.opts.MaxCalls < 0 {
		panic("sqlstore: New with a negative option")
	}
	if s.opts.Timeout == 0 {
		s.opts.Timeout = 10 * time.Second
	}
	if s.opts.MaxCalls == 0 {
		s.opts.MaxCalls = 1000
	}
	s.Users = Collection{s, "storefront_users"}
	s.Products = Collection{s, "storefront_products"}
	s.Widgets = Collection{s, "storefront_widgets"}
	return s
}

// call is like retry, but for the methods that requests lead to, of which there
// may be more than the database can answer.
func (s *Store) call(ctx context.Context, try func(context.Context, *sql.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer s.calls.Add(-1)
	if s.calls.Add(1) > int64(s.opts.MaxCalls) {
		return fmt.Errorf("%w: %d calls are in progress", storefront.ErrUnavailable, s.opts.MaxCalls)
	}
	return s.retry(ctx, try)
}

// ListUsers implements [storefront.Store].
func (s *Store) ListUsers(ctx context.Context, after string, limit int) ([]storefront.Resource, error) {
	return s.list(ctx, `SELECT id, body FROM storefront_users WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
}

// ListWidgets implements [storefront.Store].
func (s *Store) ListWidgets(ctx context.Context, start string, limit int) ([]storefront.Resource, error) {
	return s.list(ctx, `SELECT id, body FROM storefront_widgets WHERE id >= $1 ORDER BY id LIMIT $2`, start, limit)
}

func (s *Store) list(ctx context.Context, query, position string, limit int) (list []storefront.Resource, err error) {
	err = s.call(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
		list, err = resources(ctx, conn, limit, query, []byte(position), limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// GetProduct implements [storefront.Store].
func (s *Store) GetProduct(ctx context.Context, id string) (storefront.Resource, error) {
	var found []storefront.Resource
	err := s.call(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
		found, err = resources(ctx, conn, 1, `SELECT id, body FROM storefront_products WHERE id = $1`, []byte(id))
		return err
	})
	switch {
	case err != nil:
		return storefront.Resource{}, err
	case len(found) == 0:
		return storefront.Resource{}, storefront.ErrNotFound
	}
	return found[0], nil
}

// resources returns the resources in at most n rows of their IDs and bodies.
func resources(ctx context.Context, conn *sql.Conn, n int, query string, args ...any) ([]storefront.Resource, error) {
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := make([]storefront.Resource, 0, min(n, 512))
	var id, body sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&id, &body); err != nil {
			return nil, err
		}
		var r storefront.Resource
		if err := r.UnmarshalJSON(body); err != nil {
			return nil, fmt.Errorf("sqlstore: the body of the row with the ID %q: %w", id, err)
		}
		// A client that walks a list by wrong IDs would miss items, or never end.
		if r.ID() != string(id) {
			return nil, fmt.Errorf("sqlstore: the body of the row with the ID %q has the ID %q", id, r.ID())
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// CreateOrder implements [storefront.Store]. It never returns
// [storefront.ErrInProgress]: the database makes concurrent calls with the same
// key wait for each other.
func (s *Store) CreateOrder(ctx context.Context, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	var (
		hash        = keyHash(key.Scope, key.Value)
		stored      storefront.Order
		fingerprint []byte
		unknown     bool // whether a try before may have created the order
	)
	// Trying again is safe, whatever became of the try before: if that one has
	// created the order, this one finds it.
	err := s.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		for range 2 {
			created, err := insertOrder(ctx, conn, hash, key, order)
			if err != nil {
				unknown = unknown || transient(err)
				return err
			}
			if created {
				stored, fingerprint = order, key.Fingerprint[:]
				return nil
			}
			stored, fingerprint, err = orderOf(ctx, conn, hash)
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			// The key was forgotten between the two statements.
		}
		return errors.New("sqlstore: another order has the proposed ID")
	})
	switch {
	case err != nil && unknown && ctx.Err() == nil && !errors.Is(err, storefront.ErrUnavailable):
		return storefront.Order{}, fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
	case err != nil:
		return storefront.Order{}, err
	case !bytes.Equal(fingerprint, key.Fingerprint[:]):
		return storefront.Order{}, storefront.ErrKeyReused
	}
	return stored, nil
}

// insertOrder records order and key, and reports whether it has: that is, whether
// neither key nor ID is taken. One statement is one transaction, and the unique
// constraint on key_hash decides between concurrent ones.
func insertOrder(ctx context.Context, conn *sql.Conn, hash []byte, key storefront.IdempotencyKey, order storefront.Order) (bool, error) {
	var id string
	err := conn.QueryRowContext(ctx, `INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, fingerprint)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING id`,
		order.ID, order.Item, order.Qty, order.CreatedAt.UnixMilli(), []byte(key.Scope), hash, key.Fingerprint[:]).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// orderOf returns the order that was created with a key, and its fingerprint. If
// there is none, it returns sql.ErrNoRows.
//
// It updates the row, with what is there, in order to commit: a read would see an
// order whose commit still waits for a synchronous standby after the connection
// was lost, and answering with an order that may yet be lost in a fail-over would
// be a false promise. The commit of a write waits for all before it.
func orderOf(ctx context.Context, conn *sql.Conn, hash []byte) (order storefront.Order, fingerprint []byte, err error) {
	var ms int64
	err = conn.QueryRowContext(ctx, `UPDATE storefront_orders SET qty = qty WHERE key_hash = $1
		RETURNING id, item, qty, created_ms, fingerprint`, hash).Scan(&order.ID, &order.Item, &order.Qty, &ms, &fingerprint)
	order.CreatedAt = time.UnixMilli(ms).UTC()
	return order, fingerprint, err
}

// keyHash is the column key_hash. A hash is of one length, so that the length of
// a scope is not limited by what an index takes.
func keyHash(scope, value string) []byte {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(scope))))
	h.Write([]byte(scope))
	h.Write([]byte(value))
	return h.Sum(nil)
}

// keysPerStatement bounds how long ForgetKeys holds locks.
const keysPerStatement = 1000

// ForgetKeys forgets the idempotency keys of the orders that were created before
// a time, and returns how many, or fewer where a connection was lost. The orders
// stay. Run it every hour or so, in any
// number of programs at once:
//
//	store.ForgetKeys(ctx, time.Now().Add(-storefront.KeyLifetime-time.Hour))
//
// The hour allows for clocks that differ, as an order has the time of the program
// that created it. ForgetKeys forgets 1000 keys per transaction, oldest first; if
// it returns an error, some may be forgotten, and calling it again goes on. It
// returns an error and forgets nothing if before is less than
// [storefront.KeyLifetime] ago.
func (s *Store) ForgetKeys(ctx context.Context, before time.Time) (int64, error) {
	if time.Since(before) < storefront.KeyLifetime {
		return 0, fmt.Errorf("sqlstore: ForgetKeys before %s: keys must be remembered for %v", before.Format(time.RFC3339), storefront.KeyLifetime)
	}
	var total int64
	for {
		// The last condition is for what another ForgetKeys does meanwhile.
		n, err := s.exec(ctx, `UPDATE storefront_orders SET key_hash = NULL, fingerprint = NULL WHERE id IN (
			SELECT id FROM storefront_orders WHERE key_hash IS NOT NULL AND created_ms < $1 ORDER BY created_ms LIMIT $2
			) AND key_hash IS NOT NULL`, before.UnixMilli(), keysPerStatement)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
	}
}
