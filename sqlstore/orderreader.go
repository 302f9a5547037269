package sqlstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/storefront"
	"example.com/storefront/internal/sqlerror"
)

// OrderReader returns what reads the orders of the store, for storefront.Options.Orders. Each of its methods
// reads rows of one scope alone, by an index: an order costs one row, and a page of orders costs a page,
// however many orders there are.
//
// OrderReader panics if Options.OrderLists is not set. ListOrders fails while the index that Migrate makes
// then is not there.
func (s *Store) OrderReader() storefront.OrderReader {
	if !s.opts.OrderLists {
		panic("sqlstore: OrderReader of a Store without Options.OrderLists")
	}
	return orderReader{s}
}

type orderReader struct{ store *Store }

// GetOrder implements [storefront.OrderReader].
func (o orderReader) GetOrder(ctx context.Context, scope, id string) (storefront.Resource, error) {
	if !utf8.ValidString(id) || strings.Contains(id, "\x00") { // which no order has, and PostgreSQL takes for an error
		return storefront.Resource{}, storefront.ErrNotFound
	}
	found, err := o.read(ctx, scope, 1, func(_ context.Context, c *session) (string, []any, error) {
		st := c.database.sql()
		return `WHERE id = ` + st.param(1) + ` AND scope = ` + st.param(2), []any{id, scopeColumn(scope)}, nil
	}, func(found string, _ []byte) bool { return strings.TrimRight(found, " ") == strings.TrimRight(id, " ") })
	if len(found) > 0 && found[0].ID() != id { // to MySQL, spaces at the end make no difference
		found = nil
	}
	return only(found, err)
}

// ListOrders implements [storefront.OrderReader].
func (o orderReader) ListOrders(ctx context.Context, scope, after string, limit int) (
	[]storefront.Resource, error) {
	return o.read(ctx, scope, limit, func(ctx context.Context, c *session) (string, []any, error) {
		st := c.database.sql()
		where, args := st.newest, []any{scopeColumn(scope)}
		if after != "" {
			where, args = st.older, append(args, after)
		}
		return where, append(args, limit), o.store.lookForOrderIndex(ctx, c)
	}, func(id string, _ []byte) bool { return after == "" || id < after })
}

// GetOrderByKey implements [storefront.OrderReader].
func (o orderReader) GetOrderByKey(ctx context.Context, scope, key string) (storefront.Resource, error) {
	hash := keyHash(scope, key)
	return only(o.read(ctx, scope, 1, func(_ context.Context, c *session) (string, []any, error) {
		where, args := c.database.sql().ofKey(hash)
		return where, args, nil
	}, func(_ string, of []byte) bool { return bytes.Equal(of, hash[:]) }))
}

// read returns the orders that a condition selects, at most n. All must be of the scope, and their IDs and
// the hashes of their keys must be some that were asked for.
func (o orderReader) read(ctx context.Context, scope string, n int,
	where func(context.Context, *session) (string, []any, error), asked func(id string, hash []byte) bool) (
	[]storefront.Resource, error) {
	var order storefront.Order
	var ms int64
	var fields sql.NullString
	var of, hash sql.RawBytes
	column := scopeColumn(scope)
	return o.store.read(ctx, n, func(ctx context.Context, c *session) (string, []any, error) {
		condition, args, err := where(ctx, c)
		st := c.database.sql()
		return st.get + `id, item, qty, fields, created_ms, scope, key_hash FROM ` + st.prefix + `storefront_orders ` +
			condition, args, err
	}, []any{&order.ID, &order.Item, &order.Qty, &fields, &ms, &of, &hash}, func() (storefront.Resource, error) {
		if !bytes.Equal(of, column) || !asked(order.ID, hash) {
			return storefront.Resource{}, errOfAnother
		}
		order.Fields, order.CreatedAt = storefront.Fields(fields.String), time.UnixMilli(ms).UTC()
		return storefront.NewResource(order.ID, &order)
	})
}

// ofKey returns the condition of the order of a key, and its arguments.
func (st *statements) ofKey(hash [sha256.Size]byte) (where string, args []any) {
	where, args = `WHERE key_hash = `+st.param(1), []any{hash[:]}
	if st.placed {
		where, args = where+` AND place = `+st.param(2), append(args, hash[:placeSize])
	}
	return where, args
}

// scopeColumn returns the value of the column scope: an index has no room for a scope of any length.
func scopeColumn(scope string) []byte {
	const hashed = "sha256:"
	if len(scope) <= 255 && !strings.HasPrefix(scope, hashed) {
		return []byte(scope)
	}
	sum := sha256.Sum256([]byte(scope))
	return hex.AppendEncode([]byte(hashed), sum[:])
}

// lookForOrderIndex returns an error if the index for the lists of orders is not there. It asks the database
// now and then: without the index, each page would sort all orders of its scope.
func (s *Store) lookForOrderIndex(ctx context.Context, c *session) error {
	if int64(s.now()) < s.indexDue.Load() {
		return nil
	}
	state, err := c.orderIndex(ctx)
	st := c.database.sql()
	switch {
	case err != nil:
		return err
	case state == "ready":
		s.indexDue.Store(int64(s.now() + inspectEvery))
		return nil
	case state == "building":
		return fmt.Errorf("%w: the index of lists of orders is being made", storefront.ErrUnavailable)
	case state == "invalid":
		return fmt.Errorf("sqlstore: the index of lists of orders is invalid, as whoever made it was "+
			"interrupted: call Migrate with Options.OrderLists, or %s; %s", st.unindexOrders, st.indexOrders)
	}
	return fmt.Errorf("sqlstore: %w", errNoOrderIndex)
}

var errNoOrderIndex = errors.New("storefront_orders has no index on (scope, id), so that a list of " +
	"orders would read them all: call Migrate with Options.OrderLists, or make the index")

// orderIndex returns the state of the index for the lists of orders, or "" if there is none.
func (c *session) orderIndex(ctx context.Context) (state string, err error) {
	err = c.each(ctx, func() {}, []any{&state}, c.database.sql().orderIndex)
	return state, err
}

// indexOrders makes the index for the lists of orders, unless it is there. That takes as long as it takes,
// until ctx is done.
func (s *Store) indexOrders(ctx context.Context) error {
	if !s.opts.OrderLists {
		return nil
	}
	began := time.Now()
	for made := 0; ; {
		var state string
		err := s.retryWith(ctx, func(ctx context.Context, c *session) (err error) {
			state, err = c.orderIndex(ctx)
			return err
		})
		switch {
		case err != nil || state == "ready":
			return err
		case state == "building": // by another Migrate, or a person
		case made == 3:
			return fmt.Errorf("sqlstore: %w; the database does not make it (%q)", errNoOrderIndex, state)
		default:
			err = s.with(ctx, nil, func(ctx context.Context, c *session) error {
				st := c.database.sql()
				if state == "invalid" { // whoever made it was interrupted
					if _, err := c.exec(ctx, st.unindexOrders); err != nil {
						return err
					}
				}
				_, err := c.exec(ctx, st.indexOrders)
				return err
			})
			switch class := classOf(err); {
			case err == nil || class == sqlerror.Exists || class == sqlerror.Raced || class.IsDuplicate():
				made++
				continue
			case class == sqlerror.Denied:
				return fmt.Errorf("sqlstore: the owner of storefront_orders must make the index of lists of orders, "+
					"by Migrate with Options.OrderLists or by %s: %w", s.database.Load().sql().indexOrders, err)
			case !transient(err) || time.Since(began) > s.opts.Timeout:
				return fmt.Errorf("sqlstore: migrate: %w", err)
			}
		}
		select {
		case <-time.After(randomly(0, maxPause)):
		case <-ctx.Done():
			return fmt.Errorf("sqlstore: %w: the index of lists is not there yet", ctx.Err())
		}
	}
}
