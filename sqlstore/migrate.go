package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"example.com/storefront"
)

// schemaVersion is what a release with other tables will have another of.
const schemaVersion = 1

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
	version, err := s.number(ctx, func(*engine) string { return `SELECT COALESCE(max(version), 0) FROM storefront_schema` })
	switch {
	case ctx.Err() != nil || errors.Is(err, storefront.ErrUnavailable):
		return err
	case version > schemaVersion:
		return fmt.Errorf("sqlstore: migrate: the tables have version %d, of a later release; this one knows version %d", version, schemaVersion)
	case version == schemaVersion:
		return nil
	}
	e, err := s.known(ctx, nil)
	if err != nil {
		return err
	}
	for _, statement := range e.schema {
		err := s.retryWith(ctx, func(ctx context.Context, c session) error {
			_, err := c.exec(ctx, statement)
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
