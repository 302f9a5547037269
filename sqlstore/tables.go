package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// uniqueColumns are the columns, by table, that the store relies on to have each value once.
var uniqueColumns = map[string][]string{
	"storefront_users":    {"id"},
	"storefront_products": {"id"},
	"storefront_widgets":  {"id"},
	"storefront_orders":   {"key_hash", "id"},
	"storefront_replays":  {"slot"},
}

// lookAtTables is session.lookAtTables, over any connection.
func (s *Store) lookAtTables(ctx context.Context) (missing string, err error) {
	err = s.retryWith(ctx, func(ctx context.Context, c *session) error {
		missing, err = c.lookAtTables(ctx, c.database.sql())
		return err
	})
	return missing, err
}

// lookAtTables returns an error if a table is not as the store needs it, or not the store's, and the name
// of a table that is not there. It returns neither if the database does not tell.
//
// Where the catalog may be wrong for a moment, what is wrong must stay.
func (c *session) lookAtTables(ctx context.Context, st *statements) (missing string, err error) {
	pause := 20 * time.Millisecond
	for look := 0; ; look++ {
		missing, err = c.lookOnce(ctx, st)
		if err == nil || transient(err) || look == st.looksAgain {
			return missing, err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (c *session) lookOnce(ctx context.Context, st *statements) (missing string, err error) {
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
		return "", err
	case err != nil: // a role that may not know
		return "", nil
	}
	for _, table := range slices.Sorted(maps.Keys(st.tables)) {
		there, ok := types[table]
		if !ok {
			missing = table
			continue
		}
		for column, want := range st.tables[table] {
			if got := there[column]; got != want {
				return "", fmt.Errorf("sqlstore: there is a table %s that is not the store's: "+
					"its column %s is %q, not %q", table, column, got, want)
			}
		}
		flaw := there[""]
		if flaw != "" && flaw != "partitioned" {
			return "", fmt.Errorf("sqlstore: the table %s %s", table, flaw)
		}
		for _, column := range uniqueColumns[table] {
			// Where key_hash divides a table into partitions, no constraint of id is possible.
			if !unique[[2]string{table, column}] && (flaw == "" || column != "id") {
				return "", fmt.Errorf("sqlstore: the table %s has no unique constraint on %s alone: "+
					"CREATE UNIQUE INDEX %[1]s_%[2]s ON %[1]s (%[2]s)", table, column)
			}
		}
	}
	return missing, nil
}
