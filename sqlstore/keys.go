package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/orderid"
)

// keysPerStatement bounds how long ForgetKeys reads, and holds locks. It keeps the parameters of a statement
// below 1000, as rowsPerStatement does.
const keysPerStatement = 900

// ForgetKeys forgets the idempotency keys that the database recorded before a time, by its own clock (SQLite:
// the machine's), whatever time their orders have. It returns how many, or fewer if a connection was lost.
// The orders stay. Run it every hour or so, in any number of programs at once:
//
//	store.ForgetKeys(ctx, time.Now().Add(-storefront.KeyLifetime-time.Hour))
//
// The hour allows for a program whose clock is ahead of the database's, and for an order that was committed
// as much as Options.Timeout after its key was recorded. ForgetKeys forgets 900 keys per transaction, oldest
// first, and on SQLite, which has one writer at a time, it waits after each for as long as that took, so that
// orders can go on. If it returns an error, some may be forgotten, and the next call goes on. It returns an
// error and forgets nothing if before is less than [storefront.KeyLifetime] ago by the clock of the database,
// or if a later release has excluded this one.
// An operator may have all keys remembered for longer, by keep_ms in storefront_schema.
//
// ForgetKeys looks for keys where the IDs of their orders, which begin with the time, say that they are: from
// where the last call ended, which it writes into storefront_schema, to an hour after before. A key whose
// order has another ID, as of a replica whose clock was more than an hour wrong, is forgotten within a day
// more: each call also looks through a part of all keys that are remembered, and in a day through all.
func (s *Store) ForgetKeys(ctx context.Context, before time.Time) (int64, error) {
	// All replicas go by the clock of the database, so that one whose own clock is ahead
	// does not forget keys that all of them need.
	var now, version, last, keep int64
	err := s.retryWith(ctx, func(ctx context.Context, c *session) error {
		st := c.database.sql()
		err := c.each(ctx, func() {}, []any{&now}, st.now)
		switch {
		case err != nil:
			return err
		case before.Truncate(time.Millisecond).After(time.UnixMilli(now).Add(-storefront.KeyLifetime)):
			return fmt.Errorf("sqlstore: ForgetKeys before %s: keys must be remembered for %v",
				before.Format(time.RFC3339), storefront.KeyLifetime)
		}
		if _, err = c.version(ctx, st); err != nil { // a later release may keep keys in another way
			return err
		}
		// On Vitess, each version has a row. An upgrade adds one, which does not know what the others say.
		var forgotten, kept int64
		last, keep = 0, 0
		return c.each(ctx, func() { last, keep = cmp.Or(forgotten, last), max(keep, kept) },
			[]any{&version, &forgotten, &kept}, st.get+`version, COALESCE(forgotten_ms, 0), COALESCE(keep_ms, 0)
			FROM `+st.prefix+`storefront_schema ORDER BY version`)
	})
	if err != nil {
		return 0, err
	}
	if before.Before(time.Unix(0, 0)) { // its milliseconds may be too many
		before = time.Unix(0, 0)
	}
	before = time.UnixMilli(max(0, before.UnixMilli()-keep)) // a Duration ends after 292 years
	n, err := s.forgetSince(ctx, time.UnixMilli(max(0, last)), before)
	s.stats.add(&s.stats.Forgotten, n)
	if err == nil {
		_, err = s.exec(ctx, func(st *statements) string {
			return `UPDATE ` + st.prefix + `storefront_schema SET forgotten_ms = ` + st.param(1) +
				` WHERE version = ` + st.param(2)
		}, before.UnixMilli(), version)
	}
	return n, err
}

// forgetSince forgets the keys that were recorded before a time, but for some of those that a call did not
// find that forgot the keys from before last.
func (s *Store) forgetSince(ctx context.Context, last, before time.Time) (int64, error) {
	// A row may have been recorded, and have got its ID, by clocks that are an hour apart.
	from := last
	if before.Before(last) {
		from = before
	}
	total, err := forgetBetween(ctx, s, "id", orderid.First(from.Add(-time.Hour)),
		orderid.First(before.Add(time.Hour)), before)
	for _, arc := range arcs(last, before) {
		if err != nil {
			break
		}
		var n int64
		n, err = forgetBetween(ctx, s, "key_hash", arc[0], arc[1], before)
		total += n
	}
	return total, err
}

// arcs returns between which hashes the keys are that a call looks through. All hashes are a circle, which a
// hand goes round once a day: the parts are those over which it goes from one time to another.
func arcs(from, to time.Time) [][2][]byte {
	hand := func(t time.Time) []byte {
		const day = 24 * uint64(time.Hour/time.Millisecond)
		part, _ := bits.Div64(uint64(t.UnixMilli())%day, 0, day)
		return binary.BigEndian.AppendUint64(nil, part)
	}
	first, last := make([]byte, 8), slices.Repeat([]byte{0xff}, 32)
	switch begin, end := hand(from), hand(to); {
	case !to.After(from):
		return nil
	case to.Sub(from) >= 24*time.Hour:
		return [][2][]byte{{first, last}}
	case slices.Compare(begin, end) <= 0:
		return [][2][]byte{{begin, end}}
	default:
		return [][2][]byte{{begin, last}, {first, end}}
	}
}

// forgetWhere, with the prefix of the tables, and what selects orders behind it, forgets the keys of these.
const forgetWhere = `UPDATE %sstorefront_orders
	SET key_hash = NULL, key_fingerprint = NULL, keyed_ms = NULL WHERE `

// forgetBetween forgets the keys that were recorded before a time, of orders that have more than one value
// in a column and at most another, and perhaps of some that follow.
func forgetBetween[T string | []byte](ctx context.Context, s *Store, column string, from, to T, before time.Time) (
	total int64, err error) {
	for rows := keysPerStatement; rows == keysPerStatement && string(from) < string(to); {
		var orders []any // whose keys are due
		var last T
		err = s.retryWith(ctx, func(ctx context.Context, c *session) error {
			var due sql.NullString
			orders, rows = nil, 0
			return c.each(ctx, func() {
				if rows++; due.Valid {
					orders = append(orders, due.String)
				}
			}, []any{&last, &due}, c.database.sql().dueKeys(column), before.UnixMilli(), from)
		})
		from = last
		var n int64
		began, db := time.Now(), s.database.Load()
		if err == nil && len(orders) > 0 {
			n, err = db.forget(ctx, s, before.UnixMilli(), orders)
			total += n
		}
		if err != nil {
			return total, err
		}
		if n > 0 && db.sql().pauses { // so that the orders that wait for it go on
			select {
			case <-time.After(time.Since(began)):
			case <-ctx.Done():
				return total, fmt.Errorf("sqlstore: %w", ctx.Err())
			}
		}
	}
	return total, nil
}

// dueKeys returns a query of the next orders that have more than a value in a column: the column, and then
// what forget takes for an order, or NULL if its key was not recorded before a time, the first argument. With
// an upper bound, PostgreSQL would expect few orders, and sort all for each search.
func (st *statements) dueKeys(column string) string {
	return fmt.Sprintf(`%s%s, CASE WHEN key_hash IS NOT NULL AND keyed_ms < %s THEN %s END
		FROM %sstorefront_orders WHERE %[2]s > %[6]s ORDER BY %[2]s LIMIT %[7]d`,
		st.get, column, st.param(1), st.due, st.prefix, st.param(2), keysPerStatement)
}

// forget is forget of an engine that has all orders in one place. It finds them by their IDs.
func (st *statements) forget(ctx context.Context, s *Store, before int64, ids []any) (int64, error) {
	return s.exec(ctx, func(st *statements) string {
		return fmt.Sprintf(forgetWhere+`keyed_ms < %s AND id IN %s`,
			st.prefix, st.param(1), st.rowsFrom(2, 1, len(ids)))
	}, slices.Concat([]any{before}, ids)...)
}
