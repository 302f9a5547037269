package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

func TestStatsCountEachOutcomeOnce(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		f := newFakeDB(engine)
		var accept func(context.Context) error // nil accepts
		store := sqlstore.New(open(t, f), accepts(func(ctx context.Context, _ *sql.Tx, _ storefront.Order) error {
			if accept == nil {
				return nil
			}
			return accept(ctx)
		}))
		returns := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
		ctx, cancel := context.WithCancel(t.Context())
		var want sqlstore.Stats
		for _, step := range []struct {
			what, key   string
			fingerprint byte
			accept      func(context.Context) error
			counter     *int64
		}{
			{"created", "k", 1, nil, &want.Created},
			{"replayed", "k", 1, nil, &want.Replayed},
			{"key reused", "k", 2, nil, &want.KeyReused},
			{"refused", "r", 1, returns(fmt.Errorf("wrapped: %w", &storefront.Refusal{Reason: "sold-out"})), &want.Refused},
			{"failed", "f", 1, returns(errors.New("broken")), &want.Failed},
			{"failed for a while", "w", 1, returns(storefront.ErrUnavailable), &want.Failed}, // of another database
			{"panicked", "p", 1, func(context.Context) error { panic("a value") }, &want.Failed},
			{"goroutine ended", "g", 1, func(context.Context) error { runtime.Goexit(); return nil }, &want.Failed},
			{"canceled", "c", 1, func(ctx context.Context) error { cancel(); return ctx.Err() }, &want.Canceled},
			{"canceled before", "b", 1, nil, &want.Canceled},
			{"unavailable", "u", 1, nil, &want.Unavailable},
		} {
			f.away.Store(step.what == "unavailable")
			accept = step.accept
			with := t.Context()
			if strings.HasPrefix(step.what, "canceled") {
				with = ctx
			}
			key := storefront.IdempotencyKey{Value: step.key, Fingerprint: [32]byte{step.fingerprint}}
			proposeWith(with, store, key, storefront.Order{ID: "ord_" + step.what, Item: "kettle"}).wait()
			synctest.Wait() // on SQLite, a commit may end after its caller
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
		if got := store.Stats(); got.Retries == 0 {
			t.Errorf("%v: after a call that was unavailable, the store has %+v", engine, got)
		}
	})
}

func TestCheckWritesOnlyWhenItMust(t *testing.T) {
	for _, engine := range []engine{postgres, mysql} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeDB(engine)
			writes := 0
			fails := make(map[string]error) // by the kind of the statement that fails once
			f.before = func(_ context.Context, kind string) error {
				if kind == "EMIT" || kind == "SETTLE" {
					kind = "a write"
					writes++
				}
				err := fails[kind]
				delete(fails, kind)
				return err
			}
			f.server.says["TABLES"] = [][]driver.Value{} // as a Migrate was cut off
			store := sqlstore.New(open(t, f), nil)
			if err := store.Check(t.Context()); !strings.Contains(fmt.Sprint(err), "version 0") {
				t.Errorf("%v: Check of tables without a version returned %v", engine, err)
			}
			f.server.says["TABLES"] = []driver.Value{int64(2), int64(1)} // of a later, compatible release
			denied := f.server.error("42501", "", 1142)
			for _, step := range []struct {
				what   string
				before func()
				fails  bool
			}{
				{"nothing was checked yet", func() {}, false},
				{"a standby has left, or the server has restarted", func() { f.server.says["SERVERS"] = "second" }, false},
				{"an order has met a server that was gone", func() {
					fails["INSERT"] = io.ErrUnexpectedEOF
					create(t, store, "a").Wait()
				}, false},
				{"a Check has failed", func() {
					fails["INSERT"] = denied
					if err := store.Check(t.Context()); err == nil {
						t.Error("Check does not fail")
					}
				}, false},
				{"the server has another name, and the write fails", func() {
					f.server.says["SERVERS"], fails["a write"] = "third", denied
				}, true},
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
