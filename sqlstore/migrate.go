package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"example.com/storefront"
	"example.com/storefront/internal/sqlerror"
)

const (
	// schemaVersion is the version of these tables; increase it when they change. Migrate must then tell
	// a shop of an earlier version whose orders are away from a new one.
	schemaVersion = 1

	// schemaOldest is the oldest version whose releases may use these tables. It stays the same as long as
	// the tables are only added to, so that releases run side by side and can be rolled back to.
	schemaOldest = 1
)

// Migrate makes the tables and indexes that the store needs, in a database that has none of them, and logs
// where; or those that are missing because an earlier Migrate was cut off, or because they are of an earlier
// release. In a database that has them all, it changes nothing and makes no writer wait. Any number of
// programs may run it at once, so every replica may run it at startup. It also works while an older release
// is running, and with the tables of a later release if they say that this release may use them; if they do
// not, or if a table with one of its names is not the store's, it returns an error. Nothing upgrades tables
// of candidates before 1.0.0-rc.4.
//
// With Options.OrderLists, Migrate also makes the index of these lists, at any time, however long that takes.
// In PostgreSQL and MySQL, orders go on meanwhile; in SQLite, they wait.
//
// Migrate begins no shop beside or in place of another one that it can see. It returns an error if a table
// is missing though all have been made, as after a restore, and in PostgreSQL if the tables are in another
// schema of the search_path than the first.
//
// Migrate needs the right to create tables. Like the methods of [storefront.Store], it
// waits up to Options.Timeout for a database that is away.
func (s *Store) Migrate(ctx context.Context) error {
	// CREATE INDEX IF NOT EXISTS may wait for all writers even if the index is there.
	version, err := s.schemaVersion(ctx)
	if ctx.Err() != nil || errors.Is(err, storefront.ErrUnavailable) || errors.Is(err, errLaterRelease) {
		return err
	}
	_, fails := sqlerror.ByCode(err)
	fails = fails && classOf(err) != sqlerror.Absent
	missing, flaw := s.inspect(ctx)
	switch {
	case flaw != nil:
		return flaw
	case fails:
		return err
	case version >= schemaVersion && len(missing) > 0:
		return s.lost(missing)
	case version >= schemaVersion:
		return s.indexOrders(ctx)
	}
	db := s.database.Load()
	isNew := slices.Contains(missing, "storefront_orders")
	if isNew {
		if other := s.isAlone(ctx); other != nil {
			// It may be this shop, which another Migrate has begun since.
			missing, err = s.inspect(ctx)
			if err != nil || slices.Contains(missing, "storefront_orders") {
				return other
			}
			isNew = false
		}
	}
	if err = s.change(ctx, db.sql().schema, false); err == nil {
		err = s.change(ctx, db.record(), true)
	}
	if classOf(err) == sqlerror.Denied {
		return fmt.Errorf("sqlstore: migrate, which wants a role that may make tables: %w", err)
	}
	if err != nil {
		return fmt.Errorf("sqlstore: migrate: %w", err)
	}
	if isNew {
		s.opts.Logger.Warn("made the tables of a new shop, which has no orders yet",
			slog.String("place", s.text(ctx, func(st *statements) string { return st.place })))
	}
	if _, err = s.inspect(ctx); err != nil { // the server may have made them otherwise
		return err
	}
	return s.indexOrders(ctx)
}

// lost returns the error of tables that are missing though all have been made.
func (s *Store) lost(missing []string) error {
	return fmt.Errorf("sqlstore: the database has the tables of a shop, but not %s: rename it back or restore "+
		"it, or orders that it had could be made again; if it is to begin empty, DELETE FROM "+
		"storefront_schema and call Migrate", strings.Join(missing, ", "))
}

// absent says what is the case if a statement has failed with err, as a table is not there, and what to do.
func (s *Store) absent(ctx context.Context, err error) error {
	var missing []string
	flaw := s.retryWith(ctx, func(ctx context.Context, c *session) (err error) {
		missing, err = c.inspectOnce(ctx, c.database.sql())
		return err
	})
	lacks, made := "", false
	if len(missing) > 0 {
		place := s.text(ctx, func(st *statements) string { return st.place })
		lacks = place + " has no " + strings.Join(missing, ", ") + ": "
	}
	if len(missing) > 0 && !slices.Contains(missing, "storefront_schema") {
		version, _ := s.schemaVersion(ctx)
		made = version >= schemaVersion
	}
	why, noOrders := flaw, slices.Contains(missing, "storefront_orders")
	if made {
		why = s.lost(missing)
	} else if noOrders {
		why = s.isAlone(ctx)
	}
	if made && noOrders {
		s.noteFlaw(why) // or each order would ask all this
	}
	if why == nil {
		why = fmt.Errorf("sqlstore: the tables are not there: %sthe method Migrate of the store makes them", lacks)
	}
	return fmt.Errorf("%w: %w", why, err)
}

// isAlone returns an error if the database has another shop that this one would begin beside.
func (s *Store) isAlone(ctx context.Context) error {
	other := s.text(ctx, func(st *statements) string { return st.beside })
	if other == "" {
		return nil
	}
	return fmt.Errorf("sqlstore: there is a shop in %s, and Migrate would begin another one in %s: set the "+
		"search_path to the schema of the shop alone, or to that of the new one alone", other,
		s.text(ctx, func(st *statements) string { return st.place }))
}

// text returns the single text that a query returns, or "" if there is no query or no answer.
func (s *Store) text(ctx context.Context, query func(*statements) string) (text string) {
	s.retryWith(ctx, func(ctx context.Context, c *session) error {
		if query := query(c.database.sql()); query != "" {
			return c.each(ctx, func() {}, []any{&text}, query)
		}
		return nil
	})
	return text
}

// change runs statements that change the tables, or record their version.
func (s *Store) change(ctx context.Context, statements []string, record bool) error {
	for _, statement := range statements {
		err := s.retryWith(ctx, func(ctx context.Context, c *session) error {
			_, err := c.exec(ctx, statement)
			switch class := classOf(err); {
			case class == sqlerror.Exists, record && class.IsDuplicate(): // another program has done it
				return nil
			case class == sqlerror.Raced || class.IsDuplicate():
				err = sqlerror.With(sqlerror.Conflict, err)
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

var errLaterRelease = errors.New("the tables are of a later release")

// version returns the version of the tables, or 0 if none is recorded, or an error if this release may not
// use them.
func (c *session) version(ctx context.Context, st *statements) (version int64, err error) {
	var oldest int64
	err = c.each(ctx, func() {}, []any{&version, &oldest},
		`SELECT version, oldest FROM `+st.prefix+`storefront_schema ORDER BY version`)
	if err == nil && oldest > schemaVersion {
		err = fmt.Errorf("sqlstore: %w: they have version %d, which releases from version %d on "+
			"may use; this one knows version %d", errLaterRelease, version, oldest, schemaVersion)
	}
	return version, err
}

// excluded returns an error if a later release has excluded this one, or one that may pass. On Vitess, it does
// not ask: the version is in one shard, which may be away while others take orders.
func (c *session) excluded(ctx context.Context, st *statements) error {
	if st.placed {
		return nil
	}
	if _, err := c.version(ctx, st); transient(err) || errors.Is(err, errLaterRelease) {
		return err
	}
	return nil // a table that is missing is told by the statement that needs it
}

// schemaVersion returns the version of the tables, or 0 if there are none, or an error if
// this release may not use them.
func (s *Store) schemaVersion(ctx context.Context) (version int64, err error) {
	err = s.retryWith(ctx, func(ctx context.Context, c *session) (err error) {
		version, err = c.version(ctx, c.database.sql())
		return err
	})
	switch {
	case err != nil:
		return version, err // among others, the database is away, or one that the store refuses
	case version < schemaVersion:
		return version, fmt.Errorf("sqlstore: the tables have version %d; Migrate makes version %d of them",
			version, schemaVersion)
	}
	return version, nil
}
