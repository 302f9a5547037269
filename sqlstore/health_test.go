package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// newProductDB returns a connector to a server that has a product.
func newProductDB() *fakeDB {
	f := newFakeDB(postgres)
	f.server.addResource(kettle)
	return f
}

// inTime returns a store on a pool.
func inTime(db *sql.DB, accept acceptor) *sqlstore.Store {
	return sqlstore.New(db, &sqlstore.Options{Accept: accept, Timeout: timeout})
}

// fill makes the pool of the store open this many connections, and returns how long the reads took.
func fill(t *testing.T, store *sqlstore.Store, connections int) time.Duration {
	t.Helper()
	began := time.Now()
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			if got, err := store.GetProduct(t.Context(), "kettle"); err != nil || !got.Equal(kettle) {
				t.Errorf("GetProduct returned %v, %v", got, err)
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// After a split brain, the former primary takes all statements and never answers.
func TestServerThatDoesNotAnswerIsLeft(t *testing.T) {
	for method, call := range map[string]func(*testing.T, *sqlstore.Store){
		"get":    func(t *testing.T, store *sqlstore.Store) { fill(t, store, 1) },
		"create": wantOrder,
	} {
		for _, asks := range []time.Duration{0, 1} { // whether the driver asks first
			inBubble(t, fmt.Sprintf("%s/asks %d", method, asks), func(t *testing.T) {
				f := newProductDB()
				f.asks = asks
				f.server.took = time.Millisecond
				db := open(t, f)
				db.SetMaxIdleConns(20)
				store := inTime(db, nil)
				fill(t, store, 20)
				f.silent.Store(int32(len(f.conns))) // those to the former primary; the driver takes them for good
				began := time.Now()
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() { call(t, store) })
				}
				wg.Wait()
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("8 calls beside 20 dead connections took %v", took)
				}
				// No connection to the former primary is left.
				if took := fill(t, store, 20); took > time.Second {
					t.Errorf("then, 20 calls took %v", took)
				}
			})
		}
	}
}

// While the database is away, calls find out in a tenth of their time, except the first ones, which wait for it
// to come back. Which calls these are is up to the watchdog.
func TestCallsFailSoonWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProductDB()
		f.away.Store(true)
		store := inTime(open(t, f), nil)
		for _, most := range []time.Duration{timeout, timeout, timeout / 5} { // the second is the first probe
			began := time.Now()
			_, err := store.GetProduct(t.Context(), "kettle")
			took := time.Since(began)
			early := strings.Contains(fmt.Sprint(err), "has not answered for more than")
			if !errors.Is(err, storefront.ErrUnavailable) || early != (took < timeout) ||
				took > most || took < most/2 {
				t.Errorf("a call took %v, want up to %v, and returned %v", took, most, err)
			}
		}
		f.away.Store(false)
		fill(t, store, 100) // who comes now is answered
	})
}

// A call may end early while its driver does not return, and the caller's time be up by then.
func TestCallThatEndsEarlySaysThatTheTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := time.Duration(0)
		f := newProductDB()
		f.before = func(context.Context, string) error {
			time.Sleep(took)
			return stateError("57P03")
		}
		store := inTime(open(t, f), nil)
		for range 2 { // which wait for the database
			store.GetProduct(t.Context(), "kettle")
		}
		took = timeout / 6
		ctx, cancel := context.WithTimeout(t.Context(), timeout/8)
		defer cancel()
		if _, err := store.GetProduct(ctx, "kettle"); !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
			t.Errorf("a call returned %v, want an error that matches %v", err, ctx.Err())
		}
		time.Sleep(took) // the driver returns from what the watchdog has asked, too
	})
}

// wait returns an Accept that takes a time d, and counts its calls.
func wait(d time.Duration, calls *int) acceptor {
	return func(ctx context.Context, _ *sql.Tx, _ storefront.IdempotencyKey, _ storefront.Order) error {
		*calls++
		return pause(ctx, d)
	}
}

// A server that answers questions is there, so that a call has all of its time for work that
// takes long. A call that waits for a lock in the first statement of a try gives up its
// connection once, as the connection may be dead.
func TestWhatTakesLongHasAllOfItsTime(t *testing.T) {
	for _, part := range []float64{0.25, 0.4, 0.5, 0.9} {
		for _, pool := range []int{0, 1, 2} {
			for _, locked := range []bool{false, true} {
				onEach(t, func(t *testing.T, engine engine) {
					if locked && engine == sqlite {
						return // there is one writer, and busy_timeout
					}
					long := time.Duration(part * float64(timeout))
					f := newFakeDB(engine)
					f.server.took = time.Millisecond
					db := open(t, f)
					db.SetMaxOpenConns(pool)
					runs, questions, most := 0, 0, 1
					accept := wait(long, &runs)
					if locked {
						accept, most = nil, 2
					}
					store := inTime(db, accept)
					store.Check(t.Context()) // after which connections are looked at anew
					began := time.Now()
					f.before = func(ctx context.Context, kind string) error {
						switch {
						case kind == "EMIT", kind == "SETTLE":
							questions++
						case locked && kind == "INSERT":
							runs++
							return pause(ctx, long-time.Since(began))
						}
						return nil
					}
					wantOrder(t, store)
					s := store.Stats()
					if took := time.Since(began); runs < 1 || runs > most || took < long || s.Retries != int64(runs-1) || !locked && s.Dropped != 0 {
						t.Errorf("locked: %t, a pool of %d: after %v and %d runs, the store has %+v", locked, pool, took, runs, s)
					}
					if asked := questions > 0; engine != sqlite && asked != (pool != 1) {
						t.Errorf("locked: %t, a pool of %d: the server was asked %d questions", locked, pool, questions)
					}
				})
			}
		}
	}
}

// A balancer sends each connection to the next of several servers.
func TestAnyOfEqualServersMayAnswer(t *testing.T) {
	for _, engine := range []engine{postgres, mysql} {
		for _, names := range [][]string{{"a", "b"}, {"a", "b", "c", "d", "e"}} {
			for _, pool := range []int{0, 7} {
				synctest.Test(t, func(t *testing.T) {
					f := newFakeDB(engine)
					f.names = names
					db := open(t, f)
					db.SetMaxOpenConns(pool)
					runs := 0
					store := sqlstore.New(db, &sqlstore.Options{Timeout: 10 * time.Second, Accept: wait(8*time.Second, &runs)})
					for i := range 4 {
						create(t, store, fmt.Sprint(i)).Wait()
					}
					if s := store.Stats(); runs != 4 || s.Retries != 0 || s.Dropped != 0 {
						t.Errorf("%v, %q, pool of %d: Accept ran %d times, and the store has %+v", engine, names, pool, runs, s)
					}
				})
			}
		}
	}
}

// While database/sql ends the transaction of a ctx that is done, it may close the connection.
func TestConnectionThatDatabaseSQLMayCloseIsLeftToIt(t *testing.T) {
	for _, kind := range []string{"BEGIN", "NOTE"} { // the statement during which ctx ends
		inBubble(t, kind, func(t *testing.T) {
			f := newProductDB()
			f.server.took = time.Millisecond
			store := inTime(open(t, f), func(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, _ storefront.Order) error {
				_, err := tx.ExecContext(ctx, "note it")
				return err
			})
			fill(t, store, 1)
			var silent, met atomic.Bool
			f.run = func(ctx context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
				switch {
				case kindOf(query) == kind && met.CompareAndSwap(false, true):
					silent.Store(true)
					<-ctx.Done()
					if silent.Store(false); kind == "BEGIN" {
						return nil, nil // the answer comes in the same moment
					}
					return nil, ctx.Err()
				case silent.Load():
					return nil, hang(ctx, query)
				}
				return nil, errPassOn
			}
			wantOrder(t, store)
			// The store itself drops only the connection over which it asked whether the server is there.
			if s := store.Stats(); s.Retries != 1 || s.Dropped != 1 {
				t.Errorf("the store has %+v, want one retry and one connection dropped", s)
			}
		})
	}
}

// A driver that panics in a query leaves a lock of database/sql held, for which Close of the connection would
// wait for ever. No call waits for the question whether the server is there: the log tells.
func TestDriverThatPanicsHoldsUpNobody(t *testing.T) {
	const tablets = "SHOW VITESS_TABLETS"
	// The second query of a kind panics, and the first statement of another is not answered.
	for kind, stops := range map[string]string{
		"VERSION": "VERSION", "SERVER": "INSERT", tablets: "",
	} {
		inBubble(t, kind, func(t *testing.T) {
			f, log, opts := newFakeDB(postgres), new(strings.Builder), sqlstore.Options{Timeout: timeout}
			var mu sync.Mutex
			seen := make(map[string]int)
			see := func(is string) int {
				mu.Lock()
				defer mu.Unlock()
				if seen[is]++; is == kind && seen[is] == 2 {
					panic("a driver")
				}
				return seen[is]
			}
			f.server.meets = func(is string) fate {
				if see(is) == 1 && is == stops {
					return stuck // so that the store asks over another connection
				}
				return answered
			}
			if kind == tablets {
				f = newVtgate(func(_ context.Context, query string, _ row) ([]row, error) {
					if see(query); kindOf(query) == "INSERT" {
						return nil, &mySQLError{1105, "Error 1105 (HY000): multi-db transaction attempted"}
					}
					return nil, errPassOn
				})
			}
			db := sql.OpenDB(f)
			opts.Logger = slog.New(slog.NewTextHandler(log, nil))
			call := propose(t, sqlstore.New(db, &opts), "kettle")
			if kind == tablets {
				if <-call.ended; call.panicked == nil {
					t.Errorf("CreateOrder returned %v, %v", call.got, call.err)
				}
			} else if call.want(t, "ord_kettle"); strings.Count(log.String(), "has panicked") != 1 {
				t.Errorf("the log has %s", log)
			}
			if n := db.Stats().InUse; n != 1 {
				t.Errorf("%d connections are in use, want that of the query", n)
			}
			db.Close()
			f.hangUp()
			f.serving.Wait()
		})
	}
}

// The pool may lead to an older copy now, or the database may have been restored. The log tells that once,
// and orders go on. Reads write nothing: a former primary answers them, but commits nothing.
func TestLostOrderIsTold(t *testing.T) {
	var had []*orderRow
	lose := func(s *server) { had, s.orders = s.orders, nil }
	for name, row := range map[string]struct {
		change func(*server)
		after  time.Duration
		told   bool
		writes func(*server) // unless it is nil, changes what the server has before a write
	}{
		"an older copy":                      {lose, time.Hour, true, nil},
		"another order has the key":          {func(s *server) { s.orders[0].id = "ord_2" }, time.Hour, true, nil},
		"the same server":                    {func(*server) {}, time.Hour, false, nil},
		"an order that programs may delete":  {lose, storefront.KeyLifetime, false, nil},
		"a standby that becomes the primary": {lose, time.Hour, false, func(s *server) { s.orders = had }},
		"a standby that is behind": {func(s *server) {
			lose(s)
			s.says["EMIT"], s.says["PROBE"], s.says["SETTLE"] = stateError("25006"), errBusy, number(1290)
		}, time.Hour, false, nil},
	} {
		onEach(t, func(t *testing.T, engine engine) {
			f, log := newFakeDB(engine), new(strings.Builder)
			defer slog.SetDefault(slog.Default())
			slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
			store := sqlstore.New(open(t, f), nil)
			wantOrder(t, store)
			time.Sleep(row.after)
			row.change(f.server)
			f.server.addResource(kettle)
			f.server.meets = func(kind string) fate {
				if kind == "EMIT" || kind == "SETTLE" {
					t.Errorf("%s: a read writes", name)
				}
				return answered
			}
			fill(t, store, 5)
			f.server.meets = func(kind string) fate {
				if row.writes != nil && slices.Contains([]string{"EMIT", "SETTLE", "PROBE"}, kind) {
					row.writes(f.server)
				}
				return answered
			}
			store.Check(t.Context()) // each looks, whether orders come or not
			if told := strings.Contains(log.String(), order.ID); told != row.told {
				t.Errorf("%s: after a Check, the log is %s", name, log)
			}
			for _, item := range []string{"a", "b"} {
				create(t, store, item).Wait()
				store.Check(t.Context()) // after which connections are looked at anew
				time.Sleep(time.Minute)
			}
			if n := strings.Count(log.String(), order.ID); (n == 1) != row.told || n > 1 {
				t.Errorf("%s: the log is %s", name, log)
			}
		})
	}
}

// Not in a bubble of synctest: a goroutine of database/sql stays.
func TestDriverThatPanicsInATransactionIsHeardOf(t *testing.T) {
	for _, engine := range engines {
		for _, where := range []string{"INSERT", "Accept"} {
			t.Run(fmt.Sprintf("%v/%s", engine, where), func(t *testing.T) {
				t.Parallel()
				var once sync.Once
				accepting := false
				f := newFakeDB(engine)
				f.server.meets = func(kind string) fate {
					if kind == where || accepting {
						once.Do(func() { panic("a driver") })
					}
					return answered
				}
				store := sqlstore.New(sql.OpenDB(f), &sqlstore.Options{Accept: func(ctx context.Context, tx *sql.Tx,
					_ storefront.IdempotencyKey, _ storefront.Order) error {
					accepting = where == "Accept"
					rows, err := tx.QueryContext(ctx, "INSERT INTO outbox", 1)
					if err == nil {
						err = rows.Close()
					}
					return err
				}})
				create := func(item string) (err error) {
					defer func() {
						if value := recover(); value != nil {
							err = fmt.Errorf("panic: %v", value)
						}
					}()
					_, err = store.CreateOrder(t.Context(), storefront.IdempotencyKey{Value: item},
						storefront.Order{ID: "ord_" + item, Item: item, Qty: 1})
					return err
				}
				if err := create("a"); err == nil || !strings.Contains(err.Error(), "a driver") {
					t.Errorf("CreateOrder returned %v, want the panic", err)
				}
				if engine == sqlite && where == "Accept" {
					return // nobody can write any more, as the connection has the lock
				}
				if err := create("b"); err != nil {
					t.Errorf("the next CreateOrder returned %v", err)
				}
			})
		}
	}
}
