package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// newProductDB returns the way to a server that has a product.
func newProductDB() *fakeDB {
	f := newFakeDB(postgres)
	f.server.addResource(kettle)
	return f
}

// fill has the pool of store open as many connections.
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

// After a split brain, the former primary takes whatever is sent and never answers.
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
				former := 0 // connections, which the driver takes for being in order
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
				former = f.opened
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
				// Nothing is left to lead anyone astray.
				began = time.Now()
				fill(t, store, 20)
				if took := time.Since(began); took > time.Second {
					t.Errorf("then, 20 calls took %v", took)
				}
			})
		})
	}
}

// What is slow is not dead, whether or not others are answered meanwhile.
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

// Where the program holds the other connections, nobody can ask whether the server is
// there.
func TestAcceptThatIsSlowGetsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, new(fakeDB))
		db.SetMaxOpenConns(2)
		held, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		store := sqlstore.New(db, &sqlstore.Options{
			Timeout: 10 * time.Second,
			Accept: func(ctx context.Context, _ *sql.Tx, _ storefront.IdempotencyKey, _ storefront.Order) error {
				select {
				case <-time.After(3 * time.Second):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		})
		if got, err := store.CreateOrder(t.Context(), key, order); err != nil || got != order {
			t.Errorf("CreateOrder returned %v, %v", got, err)
		}
	})
}

// While the database is away, calls find out in a tenth of their time, but the first
// ones, who wait for it to come back.
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
		for range 2 { // not one, which might be a probe
			wg.Go(func() {
				if took := get(); took != 10*time.Second {
					t.Errorf("when it is away anew, one of the first calls took %v, want all of Timeout", took)
				}
			})
		}
		wg.Wait()
	})
}

// Whatever it says is an answer.
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

// A call that is given less time has failed for lack of it only if it had none left.
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
