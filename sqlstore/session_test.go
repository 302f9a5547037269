package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// When a result is asked for its rows, or when a prepared statement is closed, database/sql
// waits for the user of the connection, which may be a reader that takes minutes by then.
// The server notes the first (see open), and no statement is prepared twice and then closed.
func TestNothingWaitsForAConnectionThatItDoesNotHold(t *testing.T) {
	for i := range methods(t.Context(), nil) {
		for _, taken := range []bool{false, true} { // whether CreateOrder finds its key taken
			onEach(t, func(t *testing.T, engine engine) {
				f := newFakeDB(engine)
				f.server.took = time.Millisecond
				f.server.addResource(kettle)
				if taken {
					f.server.addOrder(key, order)
				}
				db := open(t, f)
				db.SetMaxOpenConns(1)
				store := sqlstore.New(db, nil)
				fill(t, store, 1)
				m := methods(t.Context(), store)[i]
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := m.call(); err != nil {
						t.Errorf("%s returned %v", m.name, err)
					}
				})
				for range 5 { // these reads wait for the connection that the call has
					wg.Go(func() { fill(t, store, 1) })
				}
				wg.Wait()
				slices.Sort(f.prepared)
				if once := slices.Compact(slices.Clone(f.prepared)); len(once) != len(f.prepared) {
					t.Errorf("over one connection, these were prepared: %q", f.prepared)
				}
			})
		}
	}
}

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
				if pool != 0 {
					left := propose(t, store, "left")
					left.leave()
					left.wantCanceled(t) // and its place is not lost
				}
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

// SQLite's lock is not a queue, so one call at a time asks for it.
func TestWritesOfSQLiteGoInSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDB(sqlite)
		writing := 0
		f.before = func(_ context.Context, kind string) error {
			switch kind {
			case "BEGIN", "PUT", "DELETE", "FORGET":
				if writing++; writing != 1 {
					t.Errorf("%d calls write at once", writing)
				}
			}
			time.Sleep(time.Millisecond)
			switch kind {
			case "COMMIT", "PUT", "DELETE", "FORGET":
				writing--
			}
			return nil
		}
		store := sqlstore.New(open(t, f), nil)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() { must.OK(t, store.Users.Put(t.Context(), kettle)) })
			all.Go(func() { must.OK(t, store.Users.Delete(t.Context(), "kettle")) })
			all.Go(create(t, store, fmt.Sprint(i)).Wait)
		}
		all.Wait()
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
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := store.GetProduct(done, "kettle"); !errors.Is(err, context.Canceled) {
			t.Errorf("a call beyond MaxCalls whose ctx is done returned %v", err)
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

func TestUnfitSettingsAreRefused(t *testing.T) {
	type settings = map[string]string
	const before = "group_replication_consistency = 'BEFORE'"
	for name, test := range map[string]struct {
		engine engine
		kind   string
		says   any    // the answer to the kind of statement; or variables of MySQL
		want   string // in the error; "": it fits
	}{
		"no schema":                    {postgres, "SCHEMA", row{nil, "UTF8", "UTF8", "origin"}, "search_path"},
		"texts of another encoding":    {postgres, "SCHEMA", row{"public", "LATIN1", "UTF8", "origin"}, "client_encoding"},
		"a database of another kind":   {postgres, "SCHEMA", errors.New("no quote_ident"), "does not say that it is"},
		"a number and no variables":    {mysql, "VARIABLES", errors.New("code: 62"), "does not say that it is"},
		"reads of a standby":           {postgres, "SCHEMA", row{"public", "UTF8", "UTF8", "standby"}, "load_balance_mode"},
		"reads of a replica":           {mysql, "WRITER", "the primary", "the server answers what is read"},
		"no triggers":                  {postgres, "SCHEMA", row{"public", "UTF8", "UTF8", "replica"}, "session_replication_role"},
		"bytes as text of another":     {postgres, "BYTES", []byte(`\\`), "bytea_output"},
		"bytes that cannot be given":   {postgres, "BYTES", stateError("22P02"), "bytea_output"},
		"rows that are not shown":      {mysql, "LIMIT", row{"1", int64(0)}, "sql_select_limit"},
		"a clock that stands":          {mysql, "LIMIT", row{"18446744073709551615", int64(400_000)}, "timestamp"},
		"no file":                      {sqlite, "PRAGMAS", row{"", "wal", int64(0), int64(0)}, "no file"},
		"no journal":                   {sqlite, "PRAGMAS", row{"shop.db", "off", int64(0), int64(0)}, "journal_mode"},
		"reads of what is undone":      {sqlite, "PRAGMAS", row{"shop.db", "wal", int64(1), int64(0)}, "read_uncommitted"},
		"a schema that is written":     {sqlite, "PRAGMAS", row{"shop.db", "wal", int64(0), int64(1)}, "writable_schema"},
		"node of a Galera cluster":     {mysql, "", settings{"wsrep_provider_name": "Galera"}, "Galera"},
		"nothing is committed":         {mysql, "", settings{"autocommit": "OFF"}, "autocommit"},
		"reads of what is rolled back": {mysql, "", settings{"transaction_isolation": "READ-UNCOMMITTED"}, "READ UNCOMMITTED"},
		"server that is in no group":   {mysql, "", settings{"group_replication_group_name": "", "group_replication_consistency": "EVENTUAL"}, ""},
		"member that waits for nobody": {mysql, "", group("OFF", "EVENTUAL"), before},
		"one of several primaries that waits after a fail-over only": {mysql, "", group("OFF", "BEFORE_ON_PRIMARY_FAILOVER"), before},
		"one of several primaries that waits":                        {mysql, "", group("OFF", "BEFORE"), ""},
		"one of several primaries that always waits":                 {mysql, "", group("OFF", "BEFORE_AND_AFTER"), ""},
		"primary that waits for nobody":                              {mysql, "", group("ON", "EVENTUAL"), before},
		"primary that waits after a fail-over":                       {mysql, "", group("ON", "BEFORE_ON_PRIMARY_FAILOVER"), ""},
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
	for engine, test := range map[engine]struct {
		kind string
		says []driver.Value
		want string // in the error
	}{
		postgres: {"SCHEMA", []driver.Value{"public", "UTF8", "UTF8", "replica"}, "session_replication_role"},
		mysql:    {"LIMIT", []driver.Value{"1", int64(0)}, "sql_select_limit"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeDB(engine)
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
				if err := errors.Join(check, create); (err != nil) != step.refused || (list != nil) != step.refused ||
					err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v: %s, calls returned %v, %v", engine, step.when, err, list)
				}
			}
		})
	}
}

// While another program migrates, MariaDB may tell of a table without its constraints.
func TestTableIsLookedAtAgainBeforeItIsRefused(t *testing.T) {
	for _, row := range []struct {
		engine  engine
		flawed  int // how many looks see the flaw
		refused bool
	}{{mysql, 1, false}, {mysql, 4, false}, {mysql, 5, true}, {postgres, 1, true}, {sqlite, 1, true}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeDB(row.engine)
			f.catalog = func() (rows [][]driver.Value) {
				if row.flawed--; row.flawed >= 0 {
					rows = [][]driver.Value{{"storefront_users", "id", "of another type"}}
				}
				return rows
			}
			if _, err := sqlstore.New(open(t, f), nil).ListUsers(t.Context(), "", 1); (err != nil) != row.refused {
				t.Errorf("%v: after a flaw, ListUsers returned %v", row.engine, err)
			}
		})
	}
}

// What a promise rests on may be gone while the store runs, also where nobody asks for a Check. Once it is back,
// orders go on.
func TestTablesAreLookedAtWhileOrdersCome(t *testing.T) {
	for name, flaw := range map[string]func(f *fakeDB, flawed bool){
		"a constraint": nil,
		"a release of its own": func(f *fakeDB, flawed bool) {
			version := map[bool]int64{false: 1, true: 9}[flawed]
			f.server.says["TABLES"] = []driver.Value{version, version}
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			f, flawed := newFakeDB(postgres), false
			f.catalog = func() (rows [][]driver.Value) {
				if rows = catalogOf("id"); flaw != nil || !flawed {
					rows = catalogOf("id", "key_hash")
				}
				for _, column := range []string{"version", "oldest", "keep_ms", "forgotten_ms"} {
					rows = append(rows, []driver.Value{"storefront_schema", column, "bigint"})
				}
				return rows
			}
			store := sqlstore.New(open(t, f), nil)
			wantOrder(t, store)
			for _, flawed = range []bool{true, false} {
				if flaw != nil {
					flaw(f, flawed)
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

// Of many orders, one looks.
func TestOneOrderLooksAtTheTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, looks := newFakeDB(postgres), 0
		f.catalog = func() [][]driver.Value {
			looks++
			time.Sleep(time.Millisecond) // meanwhile, the other orders come
			return nil
		}
		store := inTime(open(t, f), nil)
		create(t, store, "first").Wait()
		looks = 0
		time.Sleep(time.Minute)
		create(t, store, strings.Split("abcdefghijkl", "")...).Wait()
		if looks != 1 {
			t.Errorf("12 orders looked at the tables %d times, want once", looks)
		}
	})
}
