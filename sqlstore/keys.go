package sqlstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/storefront"
)

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

// keysPerSearch bounds how many IDs ForgetKeys keeps in memory.
const keysPerSearch = 100 * keysPerStatement

// forgetByThousands forgets the keys that were recorded before a time, in milliseconds, and returns how
// many. It pauses after each transaction.
//
// While any snapshot of the database is older, PostgreSQL and MySQL keep an index entry for each key that
// was forgotten since. A search for the oldest keys passes all of these, so one serves many transactions.
func (s *Store) forgetByThousands(ctx context.Context, pause func(took time.Duration) error, before int64) (
	total int64, err error) {
	for from, more := int64(math.MinInt64), true; more; {
		var ids []any
		ids, from, err = s.oldKeys(ctx, from, before, keysPerSearch)
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
				more = len(ids) == keysPerSearch
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
