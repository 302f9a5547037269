package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/watchdog"
)

// ListUsers implements [storefront.Store].
func (s *Store) ListUsers(ctx context.Context, after string, limit int) ([]storefront.Resource, error) {
	return s.read(ctx, limit, func(st *statements) string { return st.users },
		func(id string) bool { return id > after }, []byte(after), limit)
}

// ListWidgets implements [storefront.Store].
func (s *Store) ListWidgets(ctx context.Context, start string, limit int) ([]storefront.Resource, error) {
	return s.read(ctx, limit, func(st *statements) string { return st.widgets },
		func(id string) bool { return id >= start }, []byte(start), limit)
}

// GetProduct implements [storefront.Store].
func (s *Store) GetProduct(ctx context.Context, id string) (storefront.Resource, error) {
	found, err := s.read(ctx, 1, func(st *statements) string { return st.product },
		func(found string) bool { return found == id }, []byte(id))
	switch {
	case err != nil:
		return storefront.Resource{}, err
	case len(found) == 0:
		return storefront.Resource{}, storefront.ErrNotFound
	}
	return found[0], nil
}

// read runs a query whose rows are IDs and bodies, at most n, and returns the resources. Each ID is one
// that was asked for.
func (s *Store) read(ctx context.Context, n int, query func(*statements) string, asked func(id string) bool,
	args ...any) ([]storefront.Resource, error) {
	if n <= 0 {
		return nil, ctx.Err()
	}
	s.stats.calls.Add(1)
	defer s.stats.calls.Add(-1)
	c, err := s.begin(ctx, time.Now().Add(s.opts.Timeout), &s.reading)
	if err != nil {
		return nil, err
	}
	defer c.end()
	for {
		list, err := s.readOnce(c.ctx, c.watch, n, query, asked, args)
		if err == nil {
			return list, nil
		}
		if err = c.next(err); err != nil {
			return nil, err
		}
	}
}

func (s *Store) readOnce(ctx context.Context, w *watchdog.Watch, n int, query func(*statements) string,
	asked func(id string) bool, args []any) (list []storefront.Resource, err error) {
	ctx, c, err := s.session(ctx, w)
	if err != nil {
		return nil, err
	}
	defer func() { err = c.close(err) }()
	rows, err := c.query(ctx, query(c.database.sql()), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list, err = resources(rows, n)
	if slices.ContainsFunc(list, func(r storefront.Resource) bool { return !asked(r.ID()) }) {
		return nil, errOfAnother
	}
	return list, err
}

func resources(rows *sql.Rows, n int) ([]storefront.Resource, error) {
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
