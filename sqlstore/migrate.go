package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"example.com/storefront"
)

// schema returns the statements that make the tables. Each may be run again.
func schema() []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS storefront_users (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS storefront_products (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS storefront_widgets (id BYTEA NOT NULL PRIMARY KEY, body TEXT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS storefront_orders (
			id TEXT NOT NULL PRIMARY KEY,
			item TEXT NOT NULL,
			qty BIGINT NOT NULL,
			created_ms BIGINT NOT NULL,
			scope BYTEA NOT NULL,
			key_hash BYTEA UNIQUE,
			fingerprint BYTEA
		)`,
		`CREATE INDEX IF NOT EXISTS storefront_orders_keys ON storefront_orders (created_ms) WHERE key_hash IS NOT NULL`,
		`CREATE TABLE IF NOT EXISTS storefront_schema (version BIGINT NOT NULL PRIMARY KEY)`,
		`INSERT INTO storefront_schema (version) VALUES (1) ON CONFLICT DO NOTHING`,
	}
}

// Migrate makes the tables and indexes that the store needs, or those that are
// missing. It changes nothing in a database that has them, makes no writer wait,
// and may be run by any number of programs at once, so every replica may run it
// at startup. It also works while an older release is running.
//
// It needs the right to create tables. Like the methods of [storefront.Store], it
// waits for a database that is not there for up to Options.Timeout.
func (s *Store) Migrate(ctx context.Context) error {
	// CREATE INDEX IF NOT EXISTS waits for all writers in PostgreSQL, even when
	// there is nothing to create.
	if err := s.migrated(ctx); err == nil || ctx.Err() != nil || errors.Is(err, storefront.ErrUnavailable) {
		return err
	}
	for _, statement := range schema() {
		err := s.retry(ctx, func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, statement)
			if createdMeanwhile(err) {
				err = passing{err}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("sqlstore: migrate: %w", err)
		}
	}
	return nil
}

// migrated returns nil if the tables are known to be there.
func (s *Store) migrated(ctx context.Context) error {
	return s.retry(ctx, func(ctx context.Context, conn *sql.Conn) error {
		var version int
		return conn.QueryRowContext(ctx, `SELECT version FROM storefront_schema WHERE version = 1`).Scan(&version)
	})
}

// createdMeanwhile reports whether a statement of the schema failed because another
// program ran it at the same time: in PostgreSQL, IF NOT EXISTS looks first and
// creates then.
func createdMeanwhile(err error) bool {
	return slices.Contains([]string{
		"23505", // unique violation, in a system catalog
		"42P07", // duplicate table
		"42710", // duplicate object
		"XX000", // internal error: tuple concurrently updated
	}, sqlState(err))
}
