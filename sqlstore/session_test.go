package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// So reads go on while orders wait for a lock, or for Accept.
func TestOrdersHoldHalfOfThePool(t *testing.T) {
	for _, accepts := range []bool{true, false} {
		for pool, most := range map[int]int{0: 20, 1: 1, 2: 1, 3: 1, 4: 2, 7: 3} {
			inBubble(t, fmt.Sprintf("Accept %t/pool of %d", accepts, pool), func(t *testing.T) {
				f, let, opts := newProductDB(), make(chan struct{}), sqlstore.Options{}
				if accepts {
					opts.Accept = func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error {
						<-let
						return nil
					}
				} else {
					f.server.let, most = let, min(most, 4) // orders share four commits
				}
				db := open(t, f)
				db.SetMaxOpenConns(pool)
				store := sqlstore.New(db, &opts)
				fill(t, store, 1)
				orders := create(t, store, strings.Split("abcdefghijklmnopqrst", "")...)
				if n := db.Stats().InUse; n != most {
					t.Errorf("the orders hold %d connections, want %d", n, most)
				}
				if pool != 1 {
					if took := fill(t, store, 10); took != 0 {
						t.Errorf("reads waited for %v", took)
					}
				}
				close(let)
				orders.Wait()
			})
		}
	}
}

// An order that waits for a lock gives way after a quarter of Timeout; Accept is not called twice for that.
func TestOrderWhoseAcceptRunsKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		db := open(t, newFakeDB(postgres))
		db.SetMaxOpenConns(2)
		store := inTime(db, wait(4*time.Second, &runs))
		create(t, store, "a", "b").Wait()
		if s := store.Stats(); runs != 2 || s.Retries != 0 {
			t.Errorf("Accept ran %d times for 2 orders, and the store has %+v", runs, s)
		}
	})
}

func TestCallsBeyondMaxCallsAreUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, let := newProductDB(), make(chan struct{})
		f.server.let = let
		f.before = func(_ context.Context, kind string) error {
			if kind == "READ" {
				<-let
			}
			return nil
		}
		db := open(t, f)
		db.SetMaxOpenConns(2)
		store := sqlstore.New(db, &sqlstore.Options{MaxCalls: 3})
		var reads sync.WaitGroup
		reads.Go(func() { fill(t, store, 3) }) // one that runs and two that wait for its connection
		synctest.Wait()
		orders := create(t, store, "a", "b", "c") // these count for themselves
		if got := store.Stats(); got.Running != 2 || got.Waiting != 4 {
			t.Errorf("of 3 reads and 3 orders over 2 connections, %d run and %d wait", got.Running, got.Waiting)
		}
		began := time.Now()
		for _, m := range methods(t.Context(), store)[:4] { // the methods of storefront.Store
			if err := m.call(); !errors.Is(err, storefront.ErrUnavailable) || time.Since(began) != 0 {
				t.Errorf("beyond MaxCalls, %s returned %v after %v", m.name, err, time.Since(began))
			}
		}
		close(let)
		reads.Wait()
		orders.Wait()
		fill(t, store, 1)
		if got := store.Stats(); got.Running != 0 || got.Waiting != 0 {
			t.Errorf("then, %d run and %d wait", got.Running, got.Waiting)
		}
	})
}

// TestSettings of integration/tables has the settings that the databases take in a test.
func TestUnfitSettingsAreRefused(t *testing.T) {
	type settings = map[string]string
	const before = "group_replication_consistency = 'BEFORE'"
	for name, test := range map[string]struct {
		engine engine
		kind   string
		says   any    // the answer to the kind of statement; or variables of MySQL
		want   string // in the error; "": it fits
	}{
		"a database that is another": {postgres, "SCHEMA", errors.New("no quote_ident"), "does not say that it is"},
		"a number and no variables":  {mysql, "VARIABLES", errors.New("code: 62"), "does not say that it is"},
		"reads of a standby":         {postgres, "SCHEMA", row{"public", "UTF8", "UTF8", "standby"}, "load_balance_mode"},
		"reads of a replica":         {mysql, "WRITER", "the primary", "the server answers what is read"},
		"node of a Galera cluster":   {mysql, "", settings{"wsrep_provider_name": "Galera"}, "Galera"},
		"a server of no group":       {mysql, "", settings{"group_replication_consistency": "EVENTUAL"}, ""},
		"several and no wait":        {mysql, "", group("OFF", "EVENTUAL"), before},
		"several after a fail-over":  {mysql, "", group("OFF", "BEFORE_ON_PRIMARY_FAILOVER"), before},
		"several that wait":          {mysql, "", group("OFF", "BEFORE"), ""},
		"several that always wait":   {mysql, "", group("OFF", "BEFORE_AND_AFTER"), ""},
		"one and no wait":            {mysql, "", group("ON", "EVENTUAL"), before},
		"one after a fail-over":      {mysql, "", group("ON", "BEFORE_ON_PRIMARY_FAILOVER"), ""},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFakeDB(test.engine)
			if variables, ok := test.says.(settings); ok {
				maps.Copy(f.server.variables, variables)
			} else {
				f.server.says[test.kind] = test.says
			}
			if test.want != "" {
				wantRefused(t, f, test.want)
			} else if _, err := sqlstore.New(open(t, f), nil).ListUsers(t.Context(), "", 1); err != nil {
				t.Errorf("ListUsers returned %v", err)
			}
		})
	}
}

// A standby that is no part of a split answers reads.
func TestStandbyAnswersReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProductDB()
		f.server.says["SCHEMA"] = []driver.Value{"public", "UTF8", "UTF8", "standby"}
		f.server.says["NOTIFY"] = stateError("25006")
		fill(t, sqlstore.New(open(t, f), nil), 1)
	})
}

// The server may get other settings while the store is in use, which new connections have, and some of
// which, such as those of replication, old ones have, too: a Check looks at them.
func TestNewConnectionsAreLookedAt(t *testing.T) {
	for _, test := range []struct {
		engine engine
		kind   string
		says   row
		want   string // in the error; "": it fits
	}{
		{postgres, "SCHEMA", row{"public", "UTF8", "UTF8", "replica"}, "session_replication_role"},
		{postgres, "SCHEMA", row{"shop", "UTF8", "UTF8", "origin"}, "is shop now and was public"},
		{postgres, "SCHEMA", row{`"public"`, "UTF8", "UTF8", "origin"}, ""}, // with quote_all_identifiers
		{postgres, "BYTES", row{[]byte(`\\`)}, "bytea_output"},
		{mysql, "LIMIT", row{"1", int64(0)}, "sql_select_limit"},
	} {
		inBubble(t, test.want, func(t *testing.T) {
			f := newFakeDB(test.engine)
			db := open(t, f)
			store := sqlstore.New(db, nil)
			said := f.server.says[test.kind]
			for _, step := range []struct {
				when                  string
				flawed, anew, refused bool // the server, each connection, and calls
			}{
				{"at first", false, false, false},
				{"over an old connection", true, false, false},
				{"over a new connection", true, true, true},
				{"with the old settings", false, false, false},
				{"after a Check", true, false, true},
				{"with the old settings after a Check", false, false, false},
			} {
				if f.server.says[test.kind] = said; step.flawed {
					f.server.says[test.kind] = test.says
				}
				db.SetMaxIdleConns(map[bool]int{false: 10, true: -1}[step.anew])
				var check error
				if strings.HasPrefix(step.when, "after") {
					check = store.Check(t.Context())
				}
				_, list := store.ListUsers(t.Context(), "", 1)
				_, create := store.CreateOrder(t.Context(), key, order)
				refused := step.refused && test.want != ""
				if err := errors.Join(check, create); (err != nil) != refused || (list != nil) != refused ||
					err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s, calls returned %v, %v", step.when, err, list)
				}
			}
		})
	}
}

// On SQLite, Check looks for the orders, too, however often it is called: it puts off their own look.
func TestCheckLooksAtSettingsOnSQLite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDB(sqlite)
		store := sqlstore.New(open(t, f), nil)
		right := f.server.says["PRAGMAS"]
		for n, says := range []any{right, row{"shop.db", "wal", int64(0), int64(1)}, right} {
			f.server.says["PRAGMAS"] = says
			want := [...]string{"<nil>", "writable_schema", "<nil>"}[n]
			var errs []error
			for range 5 {
				time.Sleep(4 * time.Second)
				errs = append(errs, store.Check(t.Context()))
			}
			_, err := store.CreateOrder(t.Context(), key, order)
			for _, err := range append(errs, err) {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("with the pragmas %v, a call returned %v", says, err)
				}
			}
		}
	})
}

// catalogOf returns what PostgreSQL says of the tables of orders and of the version, if these columns of orders
// are unique.
func catalogOf(unique ...string) (rows [][]driver.Value) {
	for column, kind := range map[string]string{"id": "text", "item": "text", "qty": "bigint",
		"created_ms": "bigint", "scope": "bytea", "key_hash": "bytea", "key_fingerprint": "bytea", "fields": "text"} {
		rows = append(rows, row{"storefront_orders", column, kind})
	}
	for _, column := range unique {
		rows = append(rows, row{"storefront_orders", column, "unique"})
	}
	for _, column := range []string{"version", "oldest", "keep_ms", "forgotten_ms"} {
		rows = append(rows, row{"storefront_schema", column, "bigint"})
	}
	return rows
}

// What a promise rests on may be gone while the store runs, also where nobody asks for a Check. Once it is back,
// orders go on.
func TestTablesAreLookedAtWhileOrdersCome(t *testing.T) {
	for name, flaw := range map[string]struct {
		kind         string
		right, wrong any // what the server says
	}{
		"a constraint":         {"CATALOG", catalogOf("id", "key_hash"), catalogOf("id")},
		"a release of its own": {"TABLES", row{int64(1), int64(1)}, row{int64(9), int64(9)}},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFakeDB(postgres)
			f.server.says["CATALOG"] = catalogOf("id", "key_hash")
			store := sqlstore.New(open(t, f), nil)
			wantOrder(t, store)
			for _, flawed := range []bool{true, false} {
				if f.server.says[flaw.kind] = flaw.right; flawed {
					f.server.says[flaw.kind] = flaw.wrong
				}
				time.Sleep(time.Minute)
				before := len(f.ran)
				for range 2 {
					if _, err := store.CreateOrder(t.Context(), key, order); (err != nil) != flawed || errors.Is(err, storefront.ErrUnavailable) {
						t.Errorf("a minute after the tables have become flawed (%t), CreateOrder returned %v", flawed, err)
					}
				}
				if err := store.Check(t.Context()); flawed && err == nil {
					t.Error("with flawed tables, Check returned nil")
				}
				if sent := fmt.Sprint(f.ran[before:]); flawed && strings.Contains(sent, "INSERT INTO storefront_orders (id") {
					t.Errorf("with flawed tables, an order was sent: %s", sent)
				}
			}
		})
	}
}
