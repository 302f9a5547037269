package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"example.com/storefront"
)

// rowsPerStatement keeps the parameters of a statement below 1000, the fewest that a build of SQLite takes.
const rowsPerStatement = 400

// bytesPerStatement keeps a statement below MySQL's max_allowed_packet, which may be 1 MiB.
const bytesPerStatement = 512 << 10

// A Collection is the users, products or widgets of a [Store]. Its methods may be called concurrently.
type Collection struct {
	store *Store
	table string
}

// Put adds resources, or replaces those with the same IDs. If an ID is given twice, the last resource counts.
// A few are one transaction (on Vitess, those of each shard), at present up to 400 of 512 KiB in all; more
// are put so many at a time, in order of ID. If Put returns an error, some may have been put, and putting all
// again is safe. If one of them is the zero Resource, Put returns an error and puts none.
func (c Collection) Put(ctx context.Context, resources ...storefront.Resource) error {
	// Two concurrent calls that write in order of ID do not deadlock.
	resources = slices.Clone(resources)
	slices.Reverse(resources) // CompactFunc keeps the first of several with one ID
	slices.SortStableFunc(resources,
		func(a, b storefront.Resource) int { return cmp.Compare(a.ID(), b.ID()) })
	resources = slices.CompactFunc(resources, func(a, b storefront.Resource) bool { return a.ID() == b.ID() })
	if len(resources) > 0 && resources[0].ID() == "" {
		return errors.New("sqlstore: Put of the zero Resource")
	}
	for len(resources) > 0 {
		n, size := 1, len(resources[0].String())
		for ; n < min(len(resources), rowsPerStatement); n++ {
			if size += len(resources[n].String()); size > bytesPerStatement {
				break
			}
		}
		put := func(st *statements, batch []storefront.Resource) (string, []any) {
			args := make([]any, 0, 2*len(batch))
			for _, r := range batch {
				args = append(args, []byte(r.ID()), r.String())
			}
			return "INSERT INTO " + st.prefix + c.table + " (id, body) VALUES " +
				st.rows(len(batch), 2) + st.replace, args
		}
		if err := change(ctx, c.store, resources[:n], storefront.Resource.ID, put); err != nil {
			return err
		}
		resources = resources[n:]
	}
	return nil
}

// change runs a statement that changes the resources of a batch, or one for those of each shard.
func change[T any](ctx context.Context, s *Store, batch []T, id func(T) string,
	statement func(*statements, []T) (string, []any)) error {
	return s.retryWith(ctx, func(ctx context.Context, c *session) error {
		for _, some := range byShard(batch, func(t T) int { return c.database.shardOf(id(t)) }) {
			query, args := statement(c.database.sql(), some)
			if _, err := c.exec(ctx, query, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// Delete deletes the resources with these IDs, if they are there. A few are one transaction (on Vitess,
// those of each shard), at present up to 400; more are deleted so many at a time. If Delete returns an
// error, some may have been deleted, and deleting all again is safe.
func (c Collection) Delete(ctx context.Context, ids ...string) error {
	for batch := range slices.Chunk(ids, rowsPerStatement) {
		remove := func(st *statements, batch []string) (string, []any) {
			args := make([]any, 0, len(batch))
			for _, id := range batch {
				args = append(args, []byte(id))
			}
			return "DELETE FROM " + st.prefix + c.table + " WHERE id IN " + st.rows(1, len(batch)), args
		}
		if err := change(ctx, c.store, batch, func(id string) string { return id }, remove); err != nil {
			return err
		}
	}
	return nil
}
