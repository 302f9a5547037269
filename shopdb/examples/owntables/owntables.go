// Package owntables shows a store that embeds a sqlstore.Store, for its orders, and
// takes users and products from tables that a program has anyway. Copy this file, and
// put your own columns into it.
package owntables

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// The statements that make the tables. Lists come in byte order, in which SQLite
// compares text; PostgreSQL does so with COLLATE "C".
const (
	PostgresTables = `
		CREATE TABLE customers (login TEXT COLLATE "C" PRIMARY KEY, name TEXT NOT NULL);
		CREATE TABLE goods (sku TEXT COLLATE "C" PRIMARY KEY, title TEXT NOT NULL, cents BIGINT NOT NULL)`
	SQLiteTables = `
		CREATE TABLE customers (login TEXT PRIMARY KEY, name TEXT NOT NULL);
		CREATE TABLE goods (sku TEXT PRIMARY KEY, title TEXT NOT NULL, cents BIGINT NOT NULL)`
)

// A Shop is a storefront.Store: orders and widgets are those of the sqlstore.Store,
// users and products those of the tables customers and goods.
type Shop struct {
	*sqlstore.Store
	db *sql.DB
}

// New returns the shop in a database that has its tables and those of sqlstore.
func New(db *sql.DB, opts *sqlstore.Options) *Shop { return &Shop{sqlstore.New(db, opts), db} }

// ListUsers implements storefront.Store.
func (s *Shop) ListUsers(ctx context.Context, after string, limit int) ([]storefront.Resource, error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT login, name FROM customers WHERE login > $1 ORDER BY login LIMIT $2`, after, limit)
	if err != nil {
		return nil, failed(ctx, err)
	}
	defer rows.Close()
	var users []storefront.Resource
	for rows.Next() {
		var login string
		var fields struct {
			Name string `json:"name"`
		}
		if err := rows.Scan(&login, &fields.Name); err != nil {
			return nil, failed(ctx, err)
		}
		user, err := storefront.NewResource(login, fields)
		if err != nil {
			return nil, err // the row can be no resource: a login of 300 bytes, say
		}
		users = append(users, user)
	}
	if err := rows.Err(); err != nil { // without this, a lost connection would end the list
		return nil, failed(ctx, err)
	}
	return users, nil
}

// GetProduct implements storefront.Store.
func (s *Shop) GetProduct(ctx context.Context, id string) (storefront.Resource, error) {
	var fields struct {
		Title string `json:"title"`
		Cents int64  `json:"cents"`
	}
	err := s.db.QueryRowContext(ctx, `SELECT title, cents FROM goods WHERE sku = $1`, id).
		Scan(&fields.Title, &fields.Cents)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return storefront.Resource{}, storefront.ErrNotFound
	case err != nil:
		return storefront.Resource{}, failed(ctx, err)
	}
	return storefront.NewResource(id, fields)
}

// failed returns the error of a query that is known to be right, so that what is wrong
// is most likely the database, and passes: the answer is 503. sqlstore does not retry
// this query.
func failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
}
