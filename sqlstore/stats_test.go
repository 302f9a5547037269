package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// outcomes returns how many calls have ended, by all counters of s that say how.
func outcomes(s sqlstore.Stats) int64 {
	return s.Created + s.Replayed + s.KeyReused + s.Refused + s.Unavailable + s.Canceled + s.Failed
}

func TestStatsCountEachOutcomeOnce(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		var away atomic.Bool
		f := newFakeDB(engine)
		f.before = func(context.Context, string) error {
			if away.Load() {
				return driver.ErrBadConn
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		store := sqlstore.New(open(t, f), &sqlstore.Options{
			Accept: func(ctx context.Context, _ *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
				switch order.Item {
				case "refused":
					return fmt.Errorf("wrapped: %w", &storefront.Refusal{Reason: "sold-out"})
				case "failed":
					return errors.New("broken")
				case "failed for a while": // of another database
					return fmt.Errorf("warehouse: %w", storefront.ErrUnavailable)
				case "panicked":
					panic("a value")
				case "ended":
					runtime.Goexit()
				case "canceled":
					cancel()
					return ctx.Err()
				}
				return nil
			},
		})
		call := func(ctx context.Context, value, item string) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { recover() }()
				store.CreateOrder(ctx, storefront.IdempotencyKey{Value: value, Fingerprint: [32]byte{byte(len(item))}},
					storefront.Order{ID: "ord_" + item + value, Item: item})
			}()
			<-ended
			synctest.Wait() // on SQLite, a commit may end after its caller
		}
		var want sqlstore.Stats
		for _, step := range []struct {
			what, key, item string
			counter         *int64
		}{
			{"created", "k", "kettle", &want.Created},
			{"replayed", "k", "kettle", &want.Replayed},
			{"key reused", "k", "another", &want.KeyReused},
			{"refused", "r", "refused", &want.Refused},
			{"failed", "f", "failed", &want.Failed},
			{"failed for a while", "w", "failed for a while", &want.Failed},
			{"panicked", "p", "panicked", &want.Failed},
			{"goroutine ended", "g", "ended", &want.Failed},
			{"canceled", "c", "canceled", &want.Canceled},
			{"canceled before", "b", "kettle", &want.Canceled},
			{"unavailable", "u", "kettle", &want.Unavailable},
		} {
			away.Store(step.what == "unavailable")
			with := t.Context()
			if strings.HasPrefix(step.what, "canceled") {
				with = ctx
			}
			call(with, step.key, step.item)
			*step.counter++
			if step.what == "created" {
				want.Commits, want.Committed = 1, 1
			}
			got := store.Stats()
			got.Retries = 0
			if got != want {
				t.Fatalf("%v: after a call that was %s, the store has %+v, want %+v", engine, step.what, got, want)
			}
		}
		if got := store.Stats(); outcomes(got) != 11 || got.Retries == 0 {
			t.Errorf("%v: after 11 calls, the store has %+v", engine, got)
		}
	})
}

func TestStatsCountCommitsAndTheirOrders(t *testing.T) {
	for engine, commits := range map[engine]int64{postgres: 6, sqlite: 2, mysql: 6} {
		synctest.Test(t, func(t *testing.T) {
			d := newHeldDB(engine)
			store := sqlstore.New(open(t, d), nil)
			ctx, cancel := context.WithCancel(t.Context())
			wg := create(t, store, strings.Split("abcdefghi", "")...)
			left := propose(ctx, store, "left")
			for range int(commits) - 1 {
				d.server.let <- struct{}{}
				synctest.Wait()
			}
			cancel() // its order is in the last commit, which goes on
			wantCanceled(t, left)
			close(d.server.let)
			wg.Wait()
			synctest.Wait()
			want := sqlstore.Stats{Created: 9, Canceled: 1, Commits: commits, Committed: 10}
			if got := store.Stats(); got != want {
				t.Errorf("%v: the store has %+v, want %+v", engine, got, want)
			}
		})
	}
}

// The driver still takes these connections for good ones.
func TestStatsCountConnectionsThatAreLeft(t *testing.T) {
	for name, test := range map[string]struct {
		turn func(*fakeDB)
		want int64
	}{
		// The store drops the connection of the call and the idle one. The driver itself closes
		// the third, over which the store asked the server.
		"to a server that is silent":     {func(f *fakeDB) { f.server.failOver() }, 2},
		"to a server that is no primary": {func(f *fakeDB) { f.server.meetOnce("", demoted) }, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newProductDB()
			f.server.took = time.Millisecond
			db := open(t, f)
			db.SetMaxIdleConns(3)
			store := sqlstore.New(db, nil)
			fill(t, store, 3)
			if got := store.Stats().Dropped; got != 0 {
				t.Errorf("%d connections were dropped before", got)
			}
			test.turn(f)
			create(t, store, "a").Wait()
			if got := store.Stats().Dropped; got != test.want {
				t.Errorf("%d connections were dropped, want %d", got, test.want)
			}
		})
	}
}

func TestStatsCountWhoRunsAndWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, let := newGatedDB()
		store := sqlstore.New(open(t, f), nil)
		want := func(running, waiting int64) {
			t.Helper()
			synctest.Wait()
			if got := store.Stats(); got.Running != running || got.Waiting != waiting {
				t.Errorf("%d calls run and %d wait, want %d and %d", got.Running, got.Waiting, running, waiting)
			}
		}
		want(0, 0)
		wg := create(t, store, "a", "b", "c", "d")
		want(4, 0)
		wg.Go(create(t, store, "e", "f", "g").Wait)
		want(4, 3)
		wg.Go(func() { fill(t, store, 2) })
		want(6, 3)
		close(let)
		wg.Wait()
		want(0, 0)
	})
}

func TestCheckOfAStoreThatCanCreateOrders(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		for name, version := range map[string][]driver.Value{
			"its own tables":                        {int64(2), int64(2)},
			"tables of a later, compatible release": {int64(3), int64(2)},
		} {
			f := newFakeDB(engine)
			f.server.says["TABLES"] = version
			store := sqlstore.New(open(t, f), nil)
			if err := store.Check(t.Context()); err != nil {
				t.Errorf("%v: with %s, Check returned %v", engine, name, err)
			}
			if n := len(f.server.state.orders); n != 0 || len(f.server.commits) != 0 || outcomes(store.Stats()) != 0 {
				t.Errorf("%v: Check has left %d orders, and the store has %+v", engine, n, store.Stats())
			}
		}
	})
}

func TestCheckOfAStoreThatCannotCreateOrders(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		// fails returns the error of the engine of three.
		fails := func(state stateError, text sqliteError, n uint16) error {
			return newServer(engine).error(state, text, n)
		}
		readOnly := fails("25006", "attempt to write a readonly database (8)", 1290)
		for name, test := range map[string]struct {
			says map[string]any
			want string // in the error
		}{
			"no tables": {map[string]any{"TABLES": fails("42P01", "no such table: storefront_schema (1)", 1146)},
				"the tables are not there"},
			"tables of the first version": {map[string]any{"TABLES": fails("42703", "no such column: oldest (1)", 1054)},
				"the tables are not there, or of version 1"},
			"tables of an earlier release":  {map[string]any{"TABLES": []driver.Value{int64(1), nil}}, "Migrate"},
			"no version":                    {map[string]any{"TABLES": [][]driver.Value{}}, "version 0"},
			"tables of a later release":     {map[string]any{"TABLES": []driver.Value{int64(3), int64(3)}}, "later release"},
			"no right to insert":            {map[string]any{"INSERT": fails("42501", "not authorized (23)", 1142)}, ""},
			"no column of the orders":       {map[string]any{"INSERT": fails("42703", "no such column: key_hash (1)", 1054)}, ""},
			"a database that is read only":  {map[string]any{"INSERT": readOnly}, ""},
			"a commit that is not executed": {map[string]any{"EMIT": readOnly, "SETTLE": readOnly}, ""},
		} {
			if engine == sqlite && test.says["EMIT"] != nil {
				continue // on SQLite, Check writes nothing else, and the INSERT finds this out
			}
			f := newFakeDB(engine)
			maps.Copy(f.server.says, test.says)
			err := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: 3 * time.Second}).Check(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, %s: Check returned %v, want an error that says %q", engine, name, err, test.want)
			}
			if test.want == "" && strings.Contains(fmt.Sprint(err), "the tables are not there") {
				t.Errorf("%v, %s: Check returned %v, which says something else of the tables", engine, name, err)
			}
		}
	})
}

func TestCheckWritesOnlyWhenItMust(t *testing.T) {
	for _, engine := range []engine{postgres, mysql} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeDB(engine)
			writes, servers := 0, "first"
			var fails string // the kind of the statement that fails once
			f.run = func(_ context.Context, _ int, query string, args []driver.Value) ([][]driver.Value, error) {
				kind := kindOf(query)
				switch {
				case kind == "SERVERS":
					return [][]driver.Value{{servers}}, nil
				case kind == "EMIT", kind == "SETTLE" && len(args) == 0:
					kind = "a write"
					writes++
				case kind == "INSERT" && len(args) == 0:
					kind = "INSERT of no row"
				case kind == "INSERT":
					kind = "an order"
				}
				if kind == fails {
					fails = ""
					if kind == "an order" {
						return nil, io.ErrUnexpectedEOF
					}
					return nil, [...]error{postgres: stateError("42501"), mysql: number(1142)}[engine]
				}
				return nil, errPassOn
			}
			store := sqlstore.New(open(t, f), nil)
			for _, step := range []struct {
				what   string
				before func()
				fails  bool
			}{
				{"nothing was checked yet", func() {}, false},
				{"a standby has left, or the server has restarted", func() { servers = "second" }, false},
				{"an order has met a server that was gone", func() {
					fails = "an order"
					create(t, store, "a").Wait()
				}, false},
				{"a Check has failed", func() {
					fails = "INSERT of no row"
					if err := store.Check(t.Context()); err == nil {
						t.Error("Check does not fail")
					}
				}, false},
				{"the server has another name, and the write fails", func() { servers, fails = "third", "a write" }, true},
				{"the write of a Check has failed", func() {}, false},
			} {
				step.before()
				for _, want := range []int{1, 0, 0} {
					writes = 0
					if err := store.Check(t.Context()); (err != nil) != step.fails || writes != want {
						t.Errorf("%v: when %s, Check writes %d times and returns %v, want %d", engine, step.what, writes, err, want)
					}
					if step.fails {
						break
					}
				}
			}
		})
	}
}
