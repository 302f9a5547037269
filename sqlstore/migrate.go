package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"example.com/storefront"
)

const (
	// schemaVersion is the version of these tables; increase it when they change.
	schemaVersion = 3

	// schemaOldest is the oldest version whose releases may use these tables. It stays the
	// same as long as the tables are only added to, so that releases run side by side and can
	// be rolled back to.
	schemaOldest = 2
)

// Migrate makes the tables and indexes that the store needs, or those that are
// missing, also in a database of an earlier release. In a database that has them all, it
// changes nothing and makes no writer wait. Any number of programs may run it at once, so
// every replica may run it at startup. It also works while an older release is running, and
// with the tables of a later release if they say that this release may use them; if they do
// not, or if a table with one of its names is not the store's, it returns an error.
//
// On MySQL and MariaDB, orders go on while Migrate changes tables of versions 1 and 2, row by row; that
// takes about a minute for a million orders. Elsewhere, version 3 is version 2, and from version 1, orders
// wait while Migrate adds a column and an index: with a million orders, for a second or two. If the table is
// large, give the Store a Timeout of minutes: a statement that takes longer than Timeout is ended, and
// PostgreSQL begins anew.
//
// Migrate needs the right to create tables. Like the methods of [storefront.Store], it
// waits up to Options.Timeout for a database that is away.
func (s *Store) Migrate(ctx context.Context) error {
	// CREATE INDEX IF NOT EXISTS may wait for all writers even if the index is there.
	version, err := s.schemaVersion(ctx)
	switch {
	case ctx.Err() != nil || errors.Is(err, storefront.ErrUnavailable) || errors.Is(err, errLaterRelease):
		return err
	case version > schemaVersion:
		return nil
	}
	missing, err := s.lookAtTables(ctx)
	if err != nil || version == schemaVersion && missing == "" {
		return err
	}
	db := s.database.Load()
	// Statements that change nothing may wait for locks, too.
	if st := db.sql(); version < st.changed || missing != "" {
		err = s.change(ctx, st.schema, false)
	}
	if err == nil {
		err = db.upgrade(ctx, s)
	}
	if err == nil {
		err = s.change(ctx, db.record(), true)
	}
	if err != nil {
		return fmt.Errorf("sqlstore: migrate: %w", err)
	}
	_, err = s.lookAtTables(ctx) // the server may have made them otherwise
	return err
}

// change runs statements that change the tables, or record their version.
func (s *Store) change(ctx context.Context, statements []string, record bool) error {
	for _, statement := range statements {
		err := s.retryWith(ctx, func(ctx context.Context, c *session) error {
			_, err := c.exec(ctx, statement)
			switch class := classOf(err); {
			case class == exists, record && class.isDuplicate(): // another program has done it
				return nil
			case class == raced || class.isDuplicate():
				err = classified{err, conflict}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// record is record of an engine on which one statement can see all rows.
func (st *statements) record() []string {
	return []string{
		fmt.Sprintf(`UPDATE %sstorefront_schema SET version = %d, oldest = %d WHERE version < %[2]d`,
			st.prefix, schemaVersion, schemaOldest),
		fmt.Sprintf(`INSERT INTO %sstorefront_schema (version, oldest)
			SELECT %d, %d FROM (SELECT 1 AS one) AS once
			WHERE NOT EXISTS (SELECT 1 FROM %[1]sstorefront_schema)`, st.prefix, schemaVersion, schemaOldest),
	}
}

// upgrade is upgrade of an engine whose statements of the schema are all that there is to do.
func (st *statements) upgrade(context.Context, *Store) error { return nil }

var errLaterRelease = errors.New("the tables are of a later release")

// schemaVersion returns the version of the tables, or 0 if there are none, or an error if
// this release may not use them.
func (s *Store) schemaVersion(ctx context.Context) (version int64, err error) {
	oldest := sql.NullInt64{}
	err = s.retryWith(ctx, func(ctx context.Context, c *session) error {
		return c.each(ctx, func() {}, []any{&version, &oldest},
			`SELECT version, oldest FROM `+c.database.sql().prefix+`storefront_schema ORDER BY version`)
	})
	switch {
	case err != nil &&
		(s.database.Load() == nil || ctx.Err() != nil || errors.Is(err, storefront.ErrUnavailable)):
		return 0, err // the database is away, or one that the store refuses
	case err != nil:
		return 0, fmt.Errorf("sqlstore: the tables are not there, or of version 1: %w", err)
	case oldest.Int64 > schemaVersion:
		return version, fmt.Errorf("sqlstore: %w: they have version %d, which releases from version %d on "+
			"may use; this one knows version %d", errLaterRelease, version, oldest.Int64, schemaVersion)
	case version < schemaVersion:
		return version, fmt.Errorf("sqlstore: the tables have version %d; Migrate makes version %d of them",
			version, schemaVersion)
	}
	return version, nil
}
