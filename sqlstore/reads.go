package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"example.com/storefront"
)

// ListUsers implements [storefront.Store].
func (s *Store) ListUsers(ctx context.Context, after string, limit int) ([]storefront.Resource, error) {
	return s.resources(ctx, limit, func(st *statements) string { return st.users },
		func(id string) bool { return id > after }, []byte(after), limit)
}

// ListWidgets implements [storefront.Store].
func (s *Store) ListWidgets(ctx context.Context, start string, limit int) ([]storefront.Resource, error) {
	return s.resources(ctx, limit, func(st *statements) string { return st.widgets },
		func(id string) bool { return id >= start }, []byte(start), limit)
}

// GetProduct implements [storefront.Store].
func (s *Store) GetProduct(ctx context.Context, id string) (storefront.Resource, error) {
	return only(s.resources(ctx, 1, func(st *statements) string { return st.product },
		func(found string) bool { return found == id }, []byte(id)))
}

// only returns the only resource that was found.
func only(found []storefront.Resource, err error) (storefront.Resource, error) {
	switch {
	case err != nil:
		return storefront.Resource{}, err
	case len(found) == 0:
		return storefront.Resource{}, storefront.ErrNotFound
	}
	return found[0], nil
}

// resources returns the resources of a query whose rows are IDs and bodies, at most n. Each ID is one that
// was asked for.
func (s *Store) resources(ctx context.Context, n int, query func(*statements) string,
	asked func(id string) bool, args ...any) ([]storefront.Resource, error) {
	var id, body sql.RawBytes
	return s.read(ctx, n, func(_ context.Context, c *session) (string, []any, error) {
		return query(c.database.sql()), args, nil
	}, []any{&id, &body}, func() (r storefront.Resource, err error) {
		if err := r.UnmarshalJSON(body); err != nil {
			return r, fmt.Errorf("sqlstore: the body of the row with the ID %q: %w", id, err)
		}
		// A client that walks a list by wrong IDs would miss items, or never end.
		if r.ID() != string(id) {
			return r, fmt.Errorf("sqlstore: the body of the row with the ID %q has the ID %q", id, r.ID())
		}
		if !asked(r.ID()) {
			return r, errOfAnother
		}
		return r, nil
	})
}

// read runs a query of at most n rows, scans each into dest, and returns what render makes of each.
func (s *Store) read(ctx context.Context, n int,
	query func(context.Context, *session) (text string, args []any, err error), dest []any,
	render func() (storefront.Resource, error)) (list []storefront.Resource, err error) {
	if n <= 0 {
		return nil, ctx.Err()
	}
	s.stats.add(&s.stats.Waiting, 1)
	defer s.stats.add(&s.stats.Waiting, -1)
	c, err := s.begin(ctx, time.Now().Add(s.opts.Timeout), &s.reading)
	if err != nil {
		return nil, err
	}
	defer c.end()
	for {
		list = make([]storefront.Resource, 0, min(n, 512))
		err := s.with(c.ctx, c.watch, func(ctx context.Context, c *session) error {
			text, args, err := query(ctx, c)
			if err != nil {
				return err
			}
			var wrong error // of the first row that has one
			err = c.each(ctx, func() {
				if wrong == nil {
					var r storefront.Resource
					r, wrong = render()
					list = append(list, r)
				}
			}, dest, text, args...)
			return cmp.Or(wrong, err)
		})
		if err == nil {
			return list, nil
		}
		if err = c.next(err); err != nil {
			return nil, err
		}
	}
}
