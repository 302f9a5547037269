package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
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

// fill makes the pool of the store open this many connections.
func fill(t *testing.T, store *sqlstore.Store, connections int) {
	t.Helper()
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			if _, err := store.GetProduct(t.Context(), "kettle"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// After a split brain, the former primary takes all statements and never answers.
func TestServerThatDoesNotAnswerIsLeft(t *testing.T) {
	get := func(ctx context.Context, store *sqlstore.Store) error {
		_, err := store.GetProduct(ctx, "kettle")
		return err
	}
	create := func(ctx context.Context, store *sqlstore.Store) error {
		_, err := store.CreateOrder(ctx, key, order)
		return err
	}
	for name, test := range map[string]struct {
		call func(context.Context, *sqlstore.Store) error
		asks time.Duration
	}{
		"get":                                 {get, 0},
		"create":                              {create, 0},
		"get, by a driver that asks first":    {get, 1},
		"create, by a driver that asks first": {create, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProductDB()
				f.asks = test.asks
				f.server.took = time.Millisecond
				former := 0 // how many connections lead to the former primary; the driver takes them for good
				f.run = func(ctx context.Context, conn int, query string, args []driver.Value) ([][]driver.Value, error) {
					if conn < former {
						return hang(ctx, conn, query, args)
					}
					return nil, errPassOn
				}
				db := open(t, f)
				db.SetMaxIdleConns(20)
				store := sqlstore.New(db, &sqlstore.Options{Timeout: 10 * time.Second})
				fill(t, store, 20)
				former = len(f.conns)
				began := time.Now()
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						if err := test.call(t.Context(), store); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("8 calls beside 20 dead connections took %v", took)
				}
				// No connection to the former primary is left.
				began = time.Now()
				fill(t, store, 20)
				if took := time.Since(began); took > time.Second {
					t.Errorf("then, 20 calls took %v", took)
				}
			})
		})
	}
}

// A slow server is not dead, whether or not others are answered meanwhile.
func TestSlowCallIsNotCutWhileTheDatabaseAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := newProductDB()
		f.run = func(ctx context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
			if kindOf(query) != "READ" {
				return nil, errPassOn
			}
			if calls++; calls == 1 {
				select {
				case <-time.After(9 * time.Second):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return nil, errPassOn
		}
		store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: 10 * time.Second})
		var wg sync.WaitGroup
		began := time.Now()
		wg.Go(func() { fill(t, store, 1) })
		synctest.Wait()
		for time.Since(began) < 9*time.Second {
			fill(t, store, 1)
			time.Sleep(time.Second)
		}
		wg.Wait()
		if sent := 1 + 9; calls != sent {
			t.Errorf("%d statements were sent, want %d", calls, sent)
		}
	})
}

// A server that is so slow that it does not answer the store's question in time is given up
// at first, and has twice the time in the next try.
func TestOrderGetsThroughToASlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := map[string]time.Duration{"INSERT": 3 * time.Second, "PROBE": 1200 * time.Millisecond, "EMIT": 1200 * time.Millisecond}
		f := &fakeDB{run: func(ctx context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
			select {
			case <-time.After(slow[kindOf(query)]):
				return nil, errPassOn
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: 10 * time.Second})
		if got, err := store.CreateOrder(t.Context(), key, order); err != nil || got != order {
			t.Errorf("CreateOrder returned %v, %v", got, err)
		}
	})
}

// Of calls that come one at a time, each would be the one that waits for the database to come back.
func TestCallsThatComeOneAtATimeFailSoonWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := true
		f := newProductDB()
		f.run = func(context.Context, int, string, []driver.Value) ([][]driver.Value, error) {
			if away {
				return nil, stateError("57P03")
			}
			return nil, errPassOn
		}
		store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: 10 * time.Second})
		long := 0
		for n := range 30 {
			began := time.Now()
			_, err := store.GetProduct(t.Context(), "kettle")
			took := time.Since(began)
			if took > 2*time.Second {
				long++
			} else if want := "has not answered for more than 10s"; !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("GetProduct returned %v, want an error that says %q", err, want)
			}
			if n < 2 && took != 10*time.Second || 2 <= n && n < 10 && took > 2*time.Second {
				t.Errorf("call %d took %v, want all of Timeout of the first two, and a tenth of it of the next", n, took)
			}
		}
		if long < 3 || long > 5 {
			t.Errorf("%d of 30 calls waited for all of Timeout, want 3 to 5", long)
		}
		away = false
		fill(t, store, 1)
	})
}

// While the database is away, calls find out in a tenth of their time, except the first
// ones, which wait for it to come back.
func TestCallsFailSoonWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		away := true
		f := newProductDB()
		f.run = func(context.Context, int, string, []driver.Value) ([][]driver.Value, error) {
			mu.Lock()
			defer mu.Unlock()
			if away {
				return nil, stateError("57P03")
			}
			return nil, errPassOn
		}
		store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: 10 * time.Second})
		get := func() time.Duration {
			began := time.Now()
			if _, err := store.GetProduct(t.Context(), "kettle"); !errors.Is(err, storefront.ErrUnavailable) {
				t.Errorf("GetProduct returned %v", err)
			}
			return time.Since(began)
		}
		for range 2 { // the second is the first probe
			if took := get(); took != 10*time.Second {
				t.Errorf("the first calls took %v, want all of Timeout", took)
			}
		}
		var wg sync.WaitGroup
		soon := 0
		for range 100 { // in 10 seconds
			wg.Go(func() {
				took := get()
				mu.Lock()
				defer mu.Unlock()
				if took <= 2*time.Second {
					soon++
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		mu.Lock()
		if soon < 40 { // by now, and one in each 250 milliseconds was a probe
			t.Errorf("%d of 100 calls failed soon, want 40 at least", soon)
		}
		away = false
		mu.Unlock()
		fill(t, store, 100) // who comes now is answered
		mu.Lock()
		away = true
		mu.Unlock()
		wg.Wait()
		for range 4 { // not one, which might be the probe
			wg.Go(func() {
				if took := get(); took != 10*time.Second {
					t.Errorf("when it is away anew, one of the first calls took %v, want all of Timeout", took)
				}
			})
		}
		wg.Wait()
	})
}

// Any error that the database itself returns is an answer.
func TestDatabaseThatRefusesIsNotAway(t *testing.T) {
	for name, refusal := range map[string]error{
		"constraint":            stateError("23514"),
		"serialization failure": stateError("40001"),
		"lock not available":    stateError("55P03"),
		"deadlock (MySQL)":      &mySQLError{Number: 1213},
		"conflict in a group":   &mySQLError{Number: 3101},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refuses := true
				f := &fakeDB{run: func(ctx context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
					if kindOf(query) != "INSERT" {
						return nil, errPassOn
					}
					if refuses {
						return nil, refusal
					}
					select {
					case <-time.After(1500 * time.Millisecond): // longer than calls have while it is away
						return nil, errPassOn
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}}
				store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: 10 * time.Second})
				for began := time.Now(); time.Since(began) < 15*time.Second; time.Sleep(time.Second) {
					if _, err := store.CreateOrder(t.Context(), key, order); err == nil {
						t.Error("an order was created that was refused")
					}
				}
				refuses = false
				var wg sync.WaitGroup
				for i := range 4 { // not one, which might be the probe, and with a key each, or they share a try
					wg.Go(func() {
						key := storefront.IdempotencyKey{Value: fmt.Sprint(i)}
						proposed := storefront.Order{ID: fmt.Sprint("ord_", i), Item: "kettle", Qty: 1}
						if _, err := store.CreateOrder(t.Context(), key, proposed); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

// A call that is given less time returns the error of Accept, unless its time was up.
func TestErrorOfAcceptIsReturnedWhileCallsAreGivenLessTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := fmt.Errorf("a warehouse that the program asks: %w", context.Canceled)
		var back atomic.Bool
		store := sqlstore.New(open(t, &fakeDB{run: func(_ context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
			if !back.Load() {
				return nil, stateError("57P03")
			}
			return nil, errPassOn
		}}), &sqlstore.Options{Accept: func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error { return failure }})
		var wg sync.WaitGroup
		for range 2 { // the second is the first probe
			store.CreateOrder(t.Context(), key, order)
		}
		wg.Go(func() { store.CreateOrder(t.Context(), key, order) }) // a probe
		synctest.Wait()
		wg.Go(func() {
			if _, err := store.CreateOrder(t.Context(), key, order); err != failure {
				t.Errorf("CreateOrder returned %v, want %v", err, failure)
			}
		})
		synctest.Wait()
		back.Store(true)
		wg.Wait()
	})
}

// Writes to a primary without its standby hang; reads do not.
func TestReadsGoOnWhileOrdersHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProductDB()
		f.run = func(ctx context.Context, conn int, query string, args []driver.Value) ([][]driver.Value, error) {
			if kind := kindOf(query); kind == "INSERT" || kind == "EMIT" {
				return hang(ctx, conn, query, args)
			}
			return nil, errPassOn
		}
		store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: 10 * time.Second})
		calls := 0
		create := func() time.Duration {
			began := time.Now()
			calls++
			key := storefront.IdempotencyKey{Value: fmt.Sprint(calls)} // those with one key share a try
			if _, err := store.CreateOrder(t.Context(), key, order); !errors.Is(err, storefront.ErrUnavailable) {
				t.Errorf("CreateOrder returned %v", err)
			}
			return time.Since(began)
		}
		create()
		var wg sync.WaitGroup
		wg.Go(func() { create() }) // the probe
		synctest.Wait()
		fill(t, store, 1)
		if took := create(); took > 2*time.Second {
			t.Errorf("an order took %v to fail", took)
		}
		began := time.Now()
		fill(t, store, 10)
		if took := time.Since(began); took != 0 {
			t.Errorf("reads took %v", took)
		}
		wg.Wait()
	})
}

// wait returns an Accept that takes a time d, and counts its calls.
func wait(d time.Duration, calls *int) func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error {
	return func(ctx context.Context, _ *sql.Tx, _ storefront.IdempotencyKey, _ storefront.Order) error {
		*calls++
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A server that answers questions is there, so that a call has all of its time for work that
// takes long. A call that waits for a lock in the first statement of a try gives up its
// connection once, as the connection may be dead.
func TestWhatTakesLongHasAllOfItsTime(t *testing.T) {
	const timeout = 10 * time.Second
	for _, engine := range engines {
		for _, part := range []float64{0.25, 0.4, 0.5, 0.9} {
			for _, pool := range []int{0, 1, 2} {
				for _, name := range []string{"Accept", "lock"} {
					if name == "lock" && engine == sqlite {
						continue // there is one writer, and busy_timeout
					}
					t.Run(fmt.Sprintf("%v/%s of %v/pool of %d", engine, name, part, pool), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							long := time.Duration(part * float64(timeout))
							f := newFakeDB(engine)
							f.server.took = time.Millisecond
							db := open(t, f)
							db.SetMaxOpenConns(pool)
							runs, questions, most := 0, 0, 1
							if name == "lock" {
								most = 2
							}
							began := time.Now()
							opts := &sqlstore.Options{Timeout: timeout}
							if name == "Accept" {
								opts.Accept = wait(long, &runs)
							}
							store := sqlstore.New(db, opts)
							if err := store.Check(t.Context()); err != nil { // leaves a connection over which the store can ask
								t.Fatal(err)
							}
							f.run = func(ctx context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
								switch kindOf(query) {
								case "EMIT", "SETTLE":
									questions++
								case "INSERT":
									if name == "Accept" {
										break
									}
									runs++
									select {
									case <-time.After(long - time.Since(began)):
									case <-ctx.Done():
										return nil, ctx.Err()
									}
								}
								return nil, errPassOn
							}
							began = time.Now()
							got, err := store.CreateOrder(t.Context(), key, order)
							if took := time.Since(began); err != nil || got != order || runs < 1 || runs > most || took < long {
								t.Errorf("CreateOrder returned %v, %v after %v and %d runs", got, err, took, runs)
							}
							if asked := questions > 0; engine != sqlite && asked != (pool != 1) {
								t.Errorf("the server was asked %d questions", questions)
							}
							if s := store.Stats(); s.Retries != int64(runs-1) || name == "Accept" && s.Dropped != 0 {
								t.Errorf("the store has %+v", s)
							}
						})
					})
				}
			}
		}
	}
}

func TestServerThatAnswersNoQuestionIsLeftAfterAFifth(t *testing.T) {
	for _, engine := range []engine{postgres, mysql} {
		for _, pool := range []int{0, 2} {
			synctest.Test(t, func(t *testing.T) {
				const timeout = 10 * time.Second
				f := newFakeDB(engine)
				db := open(t, f)
				db.SetMaxOpenConns(pool)
				store := sqlstore.New(db, &sqlstore.Options{Timeout: timeout})
				create(t, store, "first").Wait()
				var silent atomic.Bool
				silent.Store(true)
				f.run = func(ctx context.Context, conn int, query string, args []driver.Value) ([][]driver.Value, error) {
					if silent.Load() {
						return hang(ctx, conn, query, args)
					}
					return nil, errPassOn
				}
				began := time.Now()
				time.AfterFunc(timeout/5, func() { silent.Store(false) }) // who is not left goes on to hang
				create(t, store, "second").Wait()
				if took := time.Since(began); took < timeout/5 || took > timeout/4 {
					t.Errorf("%v, a pool of %d: the order was created after %v, want a fifth of %v", engine, pool, took, timeout)
				}
			})
		}
	}
}

// After a fail-over, another server may answer the questions, also if the one before has answered some.
func TestServerThatAnswersInPlaceOfAnotherIsNotIt(t *testing.T) {
	for _, after := range []time.Duration{100 * time.Millisecond, 2500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const timeout = 10 * time.Second
			f := newFakeDB(postgres)
			f.server.took = time.Millisecond
			runs := 0
			store := sqlstore.New(open(t, f), accepts(func(context.Context, *sql.Tx, storefront.Order) error {
				if runs++; runs == 2 {
					time.Sleep(after)
				}
				time.Sleep(time.Second)
				return nil
			}))
			create(t, store, "first").Wait()
			began := time.Now()
			wg := create(t, store, "a")
			time.Sleep(after) // until Accept runs
			f.server.failOver()
			wg.Wait()
			if took := time.Since(began) - after; took > timeout/2 || runs != 3 {
				t.Errorf("%v after a fail-over, and after %d runs, the order was created", took, runs)
			}
		})
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

// One that has fallen silent is left, although the others answer.
func TestSilentOneOfEqualServersIsLeft(t *testing.T) {
	for _, pool := range []int{0, 2, 7} {
		synctest.Test(t, func(t *testing.T) {
			const timeout = 10 * time.Second
			f := newFakeDB(postgres)
			f.names = []string{"a", "b", "c"}
			db := open(t, f)
			db.SetMaxOpenConns(pool)
			silent, over := false, make(chan struct{})
			f.run = func(ctx context.Context, conn int, _ string, _ []driver.Value) ([][]driver.Value, error) {
				if !silent || conn%3 != 0 {
					return nil, errPassOn
				}
				select {
				case <-ctx.Done():
				case <-over:
				}
				return nil, driver.ErrBadConn
			}
			store := sqlstore.New(db, accepts(func(context.Context, *sql.Tx, storefront.Order) error {
				if !silent {
					silent = true
					f.server.failOver() // ends its transactions
				}
				return nil
			}))
			began := time.Now()
			create(t, store, "a").Wait()
			if took := time.Since(began); took > timeout/2 {
				t.Errorf("pool of %d: the order was created after %v", pool, took)
			}
			close(over)
		})
	}
}

// Where all connections are in use, the store cannot ask: by the program, or by calls that are answered.
func TestOrderIsNotCutWhileOthersHaveTheConnections(t *testing.T) {
	for name, use := range map[string]func(*sql.DB, *sqlstore.Store, context.Context){
		"the program": func(db *sql.DB, _ *sqlstore.Store, ctx context.Context) {
			if conn, err := db.Conn(ctx); err == nil && db.Stats().InUse == 1 {
				<-ctx.Done()
				conn.Close()
			} else if err == nil {
				conn.Close()
			}
		},
		"reads": func(_ *sql.DB, store *sqlstore.Store, ctx context.Context) {
			for ctx.Err() == nil {
				store.GetProduct(ctx, "kettle")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProductDB()
				f.run = func(_ context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
					if kindOf(query) == "READ" {
						time.Sleep(900 * time.Millisecond)
					}
					return nil, errPassOn
				}
				db := open(t, f)
				db.SetMaxOpenConns(2)
				runs := 0
				store := sqlstore.New(db, &sqlstore.Options{Timeout: 10 * time.Second, Accept: wait(6*time.Second, &runs)})
				fill(t, store, 1)
				ctx, cancel := context.WithCancel(t.Context())
				var others sync.WaitGroup
				for range 3 {
					others.Go(func() { use(db, store, ctx) })
				}
				synctest.Wait()
				create(t, store, "a").Wait()
				if s := store.Stats(); s.Retries != 0 || s.Dropped != 0 {
					t.Errorf("the store has %+v, want no retry", s)
				}
				cancel()
				others.Wait()
			})
		})
	}
}

// Connecting may have to wait for a fail-over. A server that was not reached is not silent.
func TestConnectingMayTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := 0
		f := newProductDB()
		f.connect = func(ctx context.Context) error {
			connections++
			select {
			case <-time.After(9 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: 10 * time.Second})
		fill(t, store, 1)
		if connections != 1 || store.Stats().Retries != 0 {
			t.Errorf("there were %d connections, and the store has %+v", connections, store.Stats())
		}
	})
}

// If no connection is left over which the store could ask, nobody knows whether the server is
// there. The next try has more time.
func TestAcceptIsNotBlamedForAServerThatIsLeft(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		db := open(t, newFakeDB(engine))
		db.SetMaxOpenConns(2)
		conn, err := db.Conn(t.Context()) // the program's own work
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		runs := 0
		store := sqlstore.New(db, &sqlstore.Options{Timeout: 10 * time.Second, Accept: wait(3*time.Second, &runs)})
		if got, err := store.CreateOrder(t.Context(), key, order); err != nil || got != order || runs > 2 {
			t.Errorf("%v: CreateOrder returned %v, %v after %d runs", engine, got, err, runs)
		}
	})
}

// A call that is cancelled soon says nothing about the database.
func TestCallsThatAreCancelledAreNoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		f := newProductDB()
		slow := 100 * time.Millisecond
		f.run = func(ctx context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
			if kindOf(query) != "READ" {
				return nil, errPassOn
			}
			select {
			case <-time.After(slow):
				return nil, errPassOn
			case <-ctx.Done():
				return nil, driver.ErrBadConn // as many drivers word it
			}
		}
		store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: timeout})
		fill(t, store, 1)
		for began := time.Now(); time.Since(began) < 2*timeout; {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			time.AfterFunc(slow/2, cancel)
			if _, err := store.GetProduct(ctx, "kettle"); !errors.Is(err, context.Canceled) {
				t.Errorf("GetProduct returned %v", err)
			}
			cancel()
		}
		// Longer than a call has while the database is away.
		slow = timeout / 2
		fill(t, store, 4)
	})
}

// The other calls of the instant give up early, and learn from the probe.
func TestOneCallOfAnInstantProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		f := newProductDB()
		f.run = func(context.Context, int, string, []driver.Value) ([][]driver.Value, error) {
			return nil, stateError("57P03")
		}
		store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: timeout})
		store.GetProduct(t.Context(), "kettle")
		go store.GetProduct(t.Context(), "kettle") // a probe
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(timeout/20, cancel)
		if _, err := store.GetProduct(ctx, "kettle"); !errors.Is(err, context.Canceled) {
			t.Errorf("a call that is cancelled before it would give up returned %v", err)
		}
		time.Sleep(timeout)
		for range 3 {
			long := make(chan bool)
			for range 50 {
				go func() {
					began := time.Now()
					store.GetProduct(t.Context(), "kettle")
					long <- time.Since(began) > timeout/2
				}()
			}
			probes := 0
			for range 50 {
				if <-long {
					probes++
				}
			}
			if probes != 1 {
				t.Errorf("%d of 50 calls of an instant took all of their time, want 1", probes)
			}
		}
	})
}

// A call that is given a tenth of its time has time to try another server.
func TestSilentServerIsLeftSoonerWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, idle = 10 * time.Second, 5
		away, silent := false, false
		f := newProductDB()
		f.server.took = time.Millisecond
		f.run = func(ctx context.Context, conn int, query string, args []driver.Value) ([][]driver.Value, error) {
			switch {
			case silent && conn < idle:
				return hang(ctx, conn, query, args)
			case away:
				return nil, stateError("57P03")
			}
			return nil, errPassOn
		}
		db := open(t, f)
		db.SetMaxIdleConns(idle)
		store := sqlstore.New(db, &sqlstore.Options{Timeout: timeout})
		fill(t, store, idle)
		away = true
		for range 2 { // the second is the first probe
			store.GetProduct(t.Context(), "kettle")
		}
		away, silent = false, true
		var wg sync.WaitGroup
		for range 2 { // the second is the next probe
			wg.Go(func() { store.GetProduct(t.Context(), "kettle") })
			synctest.Wait()
		}
		began := time.Now()
		fill(t, store, 1)
		if took := time.Since(began); took > timeout/10 {
			t.Errorf("GetProduct took %v", took)
		}
		wg.Wait()
	})
}

// While database/sql ends the transaction of a ctx that is done, it may close the connection.
func TestConnectionThatDatabaseSQLMayCloseIsLeftToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProductDB()
		f.server.took = time.Millisecond
		var silent atomic.Bool
		f.run = func(ctx context.Context, conn int, query string, args []driver.Value) ([][]driver.Value, error) {
			if silent.Load() {
				return hang(ctx, conn, query, args)
			}
			return nil, errPassOn
		}
		runs := 0
		accept := func(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, _ storefront.Order) (err error) {
			if runs++; runs == 1 {
				silent.Store(true)
				_, err = tx.ExecContext(ctx, "UPDATE stock SET n = n - 1")
				silent.Store(false)
			}
			return err
		}
		store := sqlstore.New(open(t, f), &sqlstore.Options{Accept: accept, Timeout: 10 * time.Second})
		fill(t, store, 1)
		if got, err := store.CreateOrder(t.Context(), key, order); err != nil || got != order || runs != 2 {
			t.Errorf("CreateOrder returned %v, %v after %d runs of Accept", got, err, runs)
		}
		// The store itself drops only the connection over which it asked whether the server is there.
		if s := store.Stats(); s.Retries != 1 || s.Dropped != 1 {
			t.Errorf("the store has %+v, want one retry and one connection dropped", s)
		}
	})
}
