package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/storefront/internal/watchdog"
)

// uniqueColumns are the columns, by table, that the store relies on to have each value once.
var uniqueColumns = map[string][]string{
	"storefront_users":    {"id"},
	"storefront_products": {"id"},
	"storefront_widgets":  {"id"},
	"storefront_orders":   {"key_hash", "id"},
	"storefront_replays":  {"slot"},
}

// inspectIfDue inspects the tables if that is due, and returns what is wrong with them. Of several calls, one
// inspects them, and the others go by the last inspection.
func (s *Store) inspectIfDue(ctx context.Context, w *watchdog.Watch, db *database) error {
	due, now := s.inspectDue.Load(), int64(s.now())
	if now >= due && s.inspectDue.CompareAndSwap(due, now+int64(inspectWait)) {
		s.inspectNow(ctx, w, db)
	}
	if flaw := s.flaw.Load(); flaw != nil {
		return *flaw
	}
	return nil
}

// inspectNow inspects the tables, and looks at the settings of one connection. If the database does not answer
// in time, the next inspection is soon.
func (s *Store) inspectNow(ctx context.Context, w *watchdog.Watch, db *database) {
	s.looked.forget()
	ctx, cancel := context.WithTimeout(ctx, s.times.inspect)
	defer cancel()
	looking, c, err := s.connection(ctx, w)
	if err == nil {
		session := &session{link: c, database: db, store: s}
		_, err = session.inspect(looking, db.sql())
		if err == nil {
			err = session.excluded(looking, db.sql())
		}
		err = c.close(err)
	}
	if !transient(err) && ctx.Err() == nil {
		s.noteFlaw(err)
	}
}

// noteFlaw notes what an inspection has found.
func (s *Store) noteFlaw(flaw error) {
	if flaw != nil {
		s.flaw.Store(&flaw)
		s.inspectDue.Store(int64(s.now() + inspectFlawed))
		return
	}
	s.flaw.Store(nil)
	s.inspectDue.Store(int64(s.now() + inspectEvery))
}

// inspect is session.inspect, over any connection.
func (s *Store) inspect(ctx context.Context) (missing []string, err error) {
	err = s.retryWith(ctx, func(ctx context.Context, c *session) error {
		missing, err = c.inspect(ctx, c.database.sql())
		return err
	})
	return missing, err
}

// inspect returns an error if a table is not as the store needs it, or not the store's, and the names
// of the tables that are not there. It returns neither if the database does not tell.
//
// Where the catalog may be wrong for a moment, what is wrong must stay.
func (c *session) inspect(ctx context.Context, st *statements) (missing []string, err error) {
	pause := inspectPause
	for n := 0; ; n++ {
		missing, err = c.inspectOnce(ctx, st)
		if len(missing) == 0 && err == nil || transient(err) || n == st.inspectsAgain {
			return missing, err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *session) inspectOnce(ctx context.Context, st *statements) (missing []string, err error) {
	types := make(map[string]map[string]string) // by table and column, or ""
	unique := make(map[[2]string]bool)          // by table and column
	var table, column, kind string
	err = c.each(ctx, func() {
		if kind == "unique" {
			unique[[2]string{table, column}] = true
			return
		}
		if types[table] == nil {
			types[table] = make(map[string]string)
		}
		if column != "" { // a type
			kind = strings.ToLower(kind)
		}
		types[table][column] = kind
	}, []any{&table, &column, &kind}, st.catalog)
	switch {
	case err != nil && (transient(err) || ctx.Err() != nil):
		return nil, err
	case err != nil: // a role that may not know
		return nil, nil
	}
	if orders := types["storefront_orders"]; orders["fingerprint"] != "" && orders["key_fingerprint"] == "" {
		return nil, errors.New("sqlstore: these tables are of a candidate before 1.0.0-rc.4, and nothing upgrades them: " +
			"use an empty database (in PostgreSQL, an empty schema is enough), or drop all tables whose names " +
			"begin with storefront_, and the orders with them")
	}
	for _, table := range slices.Sorted(maps.Keys(st.tables)) {
		there, ok := types[table]
		if !ok {
			missing = append(missing, table)
			continue
		}
		for column, want := range st.tables[table] {
			switch got := there[column]; {
			case got == want:
			case strings.HasPrefix(got, "not a table"):
				return nil, fmt.Errorf("sqlstore: there is a %s that is not the store's: it is no table, but a view "+
					"or the like: give the table that the store has made its name back", table)
			case got == "":
				return nil, fmt.Errorf("sqlstore: there is a table %s that is not the store's: it has no column %s",
					table, column)
			default:
				return nil, fmt.Errorf("sqlstore: there is a table %s that is not the store's: its column %s is %q, "+
					"not %q: %s", table, column, got, want, st.retyped(table, column, want))
			}
		}
		flaw := there[""]
		by, partitioned := strings.CutPrefix(flaw, "partitioned")
		if flaw != "" && !partitioned {
			return nil, fmt.Errorf("sqlstore: the table %s %s", table, flaw)
		}
		for _, column := range uniqueColumns[table] {
			switch {
			case unique[[2]string{table, column}]:
			case partitioned && column == "id":
				// Where key_hash divides a table into partitions, no constraint of id is possible.
			case st.ifFree != "" && column == "key_hash" && types["storefront_schema"] == nil:
				// A Migrate, perhaps another one, is going to make the index.
			case partitioned && !strings.Contains(by, column):
				return nil, fmt.Errorf("sqlstore: the table %[1]s is partitioned%[3]s, so it can have no unique "+
					"constraint on %[2]s alone, without which two orders could have one key: "+st.unpartition,
					table, column, by)
			default:
				return nil, fmt.Errorf("sqlstore: the table %s has no unique constraint on %s alone: "+
					st.reindex, table, column)
			}
		}
	}
	if st.source != "" && !slices.Contains(missing, "storefront_orders") {
		var source string
		err = c.each(ctx, func() {}, []any{&source}, st.source)
		if source != "" {
			return nil, fmt.Errorf("sqlstore: the subscription %s writes into storefront_orders, so this server "+
				"is no primary: if it has become the primary, DROP SUBSCRIPTION %[1]s", source)
		}
		if transient(err) || ctx.Err() != nil {
			return nil, err
		}
	}
	return missing, nil
}
