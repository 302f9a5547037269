package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// newHeldDB returns a connector to a server whose commits of orders wait: each receives once
// from f.server.let.
func newHeldDB(engine engine) *fakeDB {
	f := newFakeDB(engine)
	f.server.let = make(chan struct{})
	return f
}

// A pending is a call of CreateOrder on its way.
type pending struct {
	id       string // of the order that it proposes
	leave    func() // cancels its ctx
	got      storefront.Order
	err      error // errNotReturned if it has panicked, or its goroutine has ended
	panicked any
	took     time.Duration
	ended    chan struct{}
}

var errNotReturned = errors.New("the call has not returned")

// proposeWith calls CreateOrder, and returns when the call waits.
func proposeWith(ctx context.Context, store *sqlstore.Store, key storefront.IdempotencyKey,
	order storefront.Order) *pending {
	ctx, cancel := context.WithCancel(ctx)
	p := &pending{id: order.ID, leave: cancel, err: errNotReturned, ended: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(p.ended)
		defer cancel()
		defer func() { p.panicked = recover() }()
		p.got, p.err = store.CreateOrder(ctx, key, order)
		p.took = time.Since(began)
	}()
	synctest.Wait()
	return p
}

// propose calls CreateOrder with the item as the key.
func propose(t *testing.T, store *sqlstore.Store, item string) *pending {
	return proposeWith(t.Context(), store, storefront.IdempotencyKey{Value: item},
		storefront.Order{ID: "ord_" + item, Item: item, Qty: 1})
}

// wait returns the error with which the call has ended.
func (p *pending) wait() error {
	<-p.ended
	return p.err
}

// want checks that the call has returned an order.
func (p *pending) want(t *testing.T, id string) {
	t.Helper()
	if err := p.wait(); err != nil || p.got.ID != id {
		t.Errorf("the call for %s returned %v, %v, or panicked with %v; want the order %s",
			p.id, p.got, err, p.panicked, id)
	}
}

// wantCanceled checks that the ctx of the call has ended it.
func (p *pending) wantCanceled(t *testing.T) {
	t.Helper()
	if err := p.wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose ctx was cancelled returned %v, %v", p.got, err)
	}
}

// wantOrder checks that an order can be created.
func wantOrder(t *testing.T, store *sqlstore.Store) {
	t.Helper()
	if got, err := store.CreateOrder(t.Context(), key, order); err != nil || !got.Equal(order) {
		t.Errorf("CreateOrder returned %v, %v, want %v", got, err, order)
	}
}

// An acceptor is an Options.Accept.
type acceptor = func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error

// always returns an Accept that does nothing but return err.
func always(err error) acceptor {
	return func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error { return err }
}

// create calls CreateOrder for each item, with the item as the key, and returns when all calls
// wait for their commits.
func create(t *testing.T, store *sqlstore.Store, items ...string) *sync.WaitGroup {
	var wg sync.WaitGroup
	for _, item := range items {
		call := propose(t, store, item)
		wg.Go(func() { call.want(t, "ord_"+item) })
	}
	return &wg
}

// accepts returns options with this Accept.
func accepts(accept func(context.Context, *sql.Tx, storefront.Order) error) *sqlstore.Options {
	return &sqlstore.Options{
		Accept: func(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
			return accept(ctx, tx, order)
		},
	}
}

// An order waits only while as many commits as possible are under way, and then shares the next. Statements that
// lock the same keys do so in one sequence, that of their hashes, and so do not deadlock.
func TestCommitsAreShared(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		want := "[[a] [b] [c] [d] [h f e g] [j i]]" // the items of each commit
		if engine == sqlite {
			want = "[[a] [b c d e f g h i j]]"
		}
		d := newHeldDB(engine)
		store := sqlstore.New(open(t, d), nil)
		began := time.Now()
		wg := create(t, store, strings.Split("abcdefghij", "")...)
		for range strings.Count(want, "[") - 1 {
			d.server.let <- struct{}{}
			synctest.Wait()
		}
		wg.Wait()
		stats := sqlstore.Stats{Created: 10, Commits: int64(strings.Count(want, "[")) - 1, Committed: 10}
		if got := fmt.Sprint(d.server.commits); got != want || time.Since(began) != 0 || store.Stats() != stats {
			t.Errorf("%v: after %v, the commits were %s, want %s at once; the store has %+v", engine, time.Since(began), got,
				want, store.Stats())
		}
	})
}

func TestNoMoreThan64OrdersShareACommit(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		d := newHeldDB(engine)
		store := sqlstore.New(open(t, d), nil)
		var wg sync.WaitGroup
		for i := range 150 {
			wg.Go(create(t, store, fmt.Sprint(i)).Wait)
		}
		close(d.server.let)
		wg.Wait()
		most := slices.MaxFunc(d.server.commits, func(a, b []string) int { return len(a) - len(b) })
		if len(most) != 64 {
			t.Errorf("%v: up to %d orders shared a commit, want 64", engine, len(most))
		}
	})
}

// Two primaries of a group do not see each other's locks, but if two transactions write the
// same row, only one of them commits.
func TestRefusalByOneOfSeveralPrimariesIsCommitted(t *testing.T) {
	refusal := &storefront.Refusal{Reason: "sold-out"}
	for _, exists := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var commits, claims int
			f := newFakeDB(mysql)
			maps.Copy(f.server.variables, group("OFF", "BEFORE"))
			f.before = func(_ context.Context, kind string) error {
				switch kind {
				case "COMMIT":
					if commits++; exists {
						f.server.addOrder(key, order)
						return &mySQLError{Number: 3101}
					}
				case "SETTLE":
					claims++
					if before := f.ran[len(f.ran)-2]; before != "BEGIN" && kindOf(before) != "SAVEPOINT" && commits == 0 {
						t.Errorf("it wrote what others conflict with after %q", f.ran)
					}
				}
				return nil
			}
			store := sqlstore.New(open(t, f), &sqlstore.Options{Accept: always(refusal)})
			got, err := store.CreateOrder(t.Context(), key, storefront.Order{ID: "ord_2", Item: "kettle"})
			if exists && (err != nil || !got.Equal(order)) {
				t.Errorf("another node was faster, and CreateOrder returned %v, %v, want its order", got, err)
			}
			if !exists && (err != refusal || commits != 1) {
				t.Errorf("CreateOrder returned %v after %d commits, want the refusal after 1", err, commits)
			}
			if claims == 0 {
				t.Error("it wrote nothing that others would conflict with")
			}
		})
	}
}

func TestAcceptHasTheOrderTheValuesAndTheDeadlineOfTheCall(t *testing.T) {
	type name struct{}
	onEach(t, func(t *testing.T, engine engine) {
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), name{}, "ada"), time.Second)
		defer cancel()
		want, _ := ctx.Deadline()
		store := inTime(open(t, newFakeDB(engine)), func(ctx context.Context, _ *sql.Tx,
			k storefront.IdempotencyKey, o storefront.Order) error {
			if !reflect.DeepEqual(k, key) || !o.Equal(order) {
				t.Errorf("Accept was called with %v and %v", k, o)
			}
			deadline, _ := ctx.Deadline()
			if value := ctx.Value(name{}); value != "ada" || !deadline.Equal(want) {
				t.Errorf("Accept saw the value %v and the deadline %v, want %v", value, deadline, want)
			}
			return nil
		})
		must.Get(store.CreateOrder(ctx, key, order))(t)
	})
}

// The caller of an order leaves while Accept works for it: a statement that is cancelled may make SQLite roll
// back the other orders of the commit, too. That of another leaves before its turn, and it is not sent.
func TestCallersWhoLeaveDuringASharedCommitOfSQLite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHeldDB(sqlite)
		var during, before *pending
		var seen error // by Accept
		store := sqlstore.New(open(t, d), accepts(func(ctx context.Context, _ *sql.Tx, order storefront.Order) error {
			if order.Item == "during" {
				during.leave()
				before.leave()
				synctest.Wait()
				seen = ctx.Err()
			}
			return nil
		}))
		wg := create(t, store, "a", "b")
		during, before = propose(t, store, "during"), propose(t, store, "before")
		wg.Go(create(t, store, "c").Wait)
		close(d.server.let)
		wg.Wait()
		during.wantCanceled(t)
		before.wantCanceled(t)
		sent := slices.DeleteFunc(d.ran, func(query string) bool { return kindOf(query) != "INSERT" })
		if got := fmt.Sprint(d.server.commits); got != "[[a] [b during c]]" || seen != nil || len(sent) != 4 {
			t.Errorf("the commits were %s after %d INSERTs, want 4, and the ctx of Accept was done: %v", got, len(sent), seen)
		}
	})
}

// If the store cannot look for the key, it does not know whether the order is there.
func TestFailureToLookForTheKeyIsReturned(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		f := newFakeDB(engine)
		f.server.says["INSERT"], f.server.says["REPLAY"] = stateError("23514"), stateError("42501")
		_, err := sqlstore.New(open(t, f), nil).CreateOrder(t.Context(), key, order)
		if !errors.Is(err, stateError("42501")) {
			t.Errorf("%v: CreateOrder returned %v", engine, err)
		}
	})
}

// It makes no difference where in the commit the slow order is.
func TestSlowAcceptDoesNotKeepOthersFromTheirCommit(t *testing.T) {
	for at := range 4 {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeDB(sqlite)
			slow := fmt.Sprint(1 + at)
			var runs []time.Duration // how long each call of Accept for the slow order had
			store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: timeout, Accept: func(ctx context.Context, _ *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
				long := 5 * time.Millisecond
				if order.Item == slow {
					deadline, _ := ctx.Deadline()
					runs = append(runs, time.Until(deadline))
					long = timeout / 2
				}
				return pause(ctx, long)
			}})
			var wg sync.WaitGroup
			wg.Go(func() { // so that other orders always wait for a commit
				for i := range 500 {
					time.Sleep(5 * time.Millisecond)
					wg.Go(create(t, store, fmt.Sprint("other ", i)).Wait)
				}
			})
			defer wg.Wait()
			create(t, store, "0", "1", "2", "3", "4").Wait()
			// If the slow order is the first of a commit, it has all of its time at once.
			if want := min(at+1, 2); len(runs) != want || runs[len(runs)-1] < timeout/2 {
				t.Errorf("the slow one is %s, and Accept had %v, want %d runs", slow, runs, want)
			}
			wg.Wait()
			for _, items := range f.server.commits {
				if len(items) > 1 && slices.Contains(items, slow) && (at > 0 || items[0] != slow) {
					t.Errorf("the slow one was committed with others: %q", f.server.commits)
				}
			}
		})
	}
}

// An error that is of another database, or of a deadline that Accept has set, is no error of the order's
// connection. A refusal is final whatever it says, as clients may have written that, and even if it comes with
// an error that may pass.
func TestErrorOfAcceptIsFinal(t *testing.T) {
	refusal := &storefront.Refusal{Reason: "sold-out"}
	panics, exits := errors.New("it panics with this"), errors.New("it ends its goroutine") // that of its caller
	finals := []error{
		panics, exits,
		fmt.Errorf("warehouse: %w", driver.ErrBadConn),
		&url.Error{Op: "Get", URL: "http://warehouse", Err: syscall.ECONNREFUSED},
		stateError("53300"), // too many connections of another database
		number(1062),        // a duplicate
		sqliteError("unable to open database file (14)"),
		&serviceError{1213},
		errors.Join(refusal, stateError("40001")), errors.Join(refusal, number(1213)), errors.Join(refusal, errBusy),
		errors.Join(refusal, stateError("25006")), errors.Join(refusal, &serviceError{1213}),
	}
	for _, err := range []error{driver.ErrBadConn, context.DeadlineExceeded, context.Canceled, io.ErrUnexpectedEOF,
		storefront.ErrUnavailable} {
		finals = append(finals, err, errors.Join(refusal, err))
	}
	for _, text := range []string{"invalid connection", "sqlite3: database is locked", "UNIQUE constraint failed",
		"Error 1213 (40001): deadlock", "(SQLSTATE 40001)", "VT15001", "driver: bad connection"} {
		finals = append(finals, errors.New(text),
			&storefront.Refusal{Reason: "no-such-item", Detail: text},
			&storefront.Refusal{Detail: "The shop has no " + text},
			fmt.Errorf("%s: %w: %[1]s", text, &storefront.Refusal{Reason: "no-such-item"}))
	}
	onEach(t, func(t *testing.T, engine engine) {
		for _, others := range [][]string{nil, {"a", "b"}} {
			for _, want := range finals {
				f, runs := newHeldDB(engine), 0
				accept := func(_ context.Context, _ *sql.Tx, order storefront.Order) error {
					if order.Item != "bad" {
						return nil
					}
					switch runs++; want {
					case panics:
						panic(want)
					case exits:
						runtime.Goexit()
					}
					return want
				}
				store := sqlstore.New(open(t, f), accepts(accept))
				wg := create(t, store, others...)
				call := propose(t, store, "bad")
				wg.Go(create(t, store, others...).Wait) // their replays, which share a commit with it in SQLite
				close(f.server.let)
				wg.Wait()
				got := call.wait()
				if value, ok := call.panicked.(error); ok || want == exits && got == errNotReturned {
					got = cmp.Or(value, exits)
				}
				if got != want || runs != 1 || call.took > 0 {
					t.Errorf("%v, beside %q: CreateOrder returned %v after %d runs and %v, want %v itself after 1",
						engine, others, got, runs, call.took, want)
				}
			}
		}
	})
}

// A serviceError is an error of the program's that has a code, as those of MySQL's drivers have.
type serviceError struct{ Code uint16 }

func (e *serviceError) Error() string { return fmt.Sprint("the warehouse said ", e.Code) }

// One order that waits for a lock may make a whole commit hang.
func TestOrdersOfASharedCommitThatHangsGoAlone(t *testing.T) {
	for _, engine := range []engine{postgres, mysql} {
		synctest.Test(t, func(t *testing.T) {
			f := newHeldDB(engine)
			var mu sync.Mutex
			var sizes []int // how many orders each INSERT has
			var at []time.Duration
			began := time.Now()
			f.run = func(ctx context.Context, _ int, query string, args []driver.Value) ([][]driver.Value, error) {
				if kindOf(query) != "INSERT" {
					return nil, errPassOn
				}
				mu.Lock()
				sizes, at = append(sizes, len(args)/8), append(at, time.Since(began))
				mu.Unlock()
				if len(args) > 8 {
					return nil, hang(ctx, query)
				}
				time.Sleep(timeout / 100) // so that the next ones wait
				return nil, errPassOn
			}
			wg := create(t, inTime(open(t, f), nil), strings.Split("abcdefghijkl", "")...)
			close(f.server.let)
			wg.Wait()
			if want := []int{1, 1, 1, 1, 8, 1, 1, 1, 1, 1, 1, 1, 1}; !slices.Equal(sizes, want) {
				t.Fatalf("%v: the INSERTs were of %v orders, want %v", engine, sizes, want)
			}
			if at[5] < timeout/4 || at[12] > timeout/4+time.Second {
				t.Errorf("%v: orders went alone after %v, want a quarter of %v", engine, at, timeout)
			}
		})
	}
}

// The program may run ForgetKeys at any time. In MySQL, only the text of the error tells which unique column it
// is about. A database may look at other constraints before that of the key: they matter only if it is free.
func TestForgottenBetweenInsertAndSelect(t *testing.T) {
	keyTaken := &mySQLError{1062, "Error 1062 (23000): Duplicate entry 'x' for key 'storefront_orders.key_hash'"}
	idTaken := &mySQLError{1062, "Error 1062 (23000): Duplicate entry 'ord_1' for key 'PRIMARY'"}
	for name, test := range map[string]struct {
		engine engine
		insert error // nil: it inserts nothing
		final  bool
	}{
		"PostgreSQL":          {postgres, nil, false},
		"SQLite":              {sqlite, nil, false},
		"MySQL":               {mysql, keyTaken, false},
		"MySQL, the ID":       {mysql, idTaken, true},
		"PostgreSQL, a check": {postgres, stateError("23514"), true},
		"SQLite, the ID": {sqlite,
			errors.New("constraint failed: UNIQUE constraint failed: storefront_orders.id (1555)"), true},
	} {
		for _, accept := range []acceptor{nil, always(nil)} {
			for _, times := range []int{1, 3, 1 << 30} {
				inBubble(t, fmt.Sprintf("%s/Accept %t/%d times", name, accept != nil, times), func(t *testing.T) {
					f := newFakeDB(test.engine)
					forgotten := 0
					f.run = func(_ context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
						if kindOf(query) == "INSERT" && forgotten < times {
							forgotten++
							return nil, test.insert
						}
						return nil, errPassOn
					}
					store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: 3 * time.Second, Accept: accept})
					got, err := store.CreateOrder(t.Context(), key, order)
					switch {
					case test.final:
						if !errors.Is(err, test.insert) || errors.Is(err, storefront.ErrUnavailable) || forgotten != 1 {
							t.Errorf("CreateOrder returned %v, %v after %d tries", got, err, forgotten)
						}
						f.server.addOrder(key, order)
						forgotten = 0
						wantOrder(t, store)
					case times < 4:
						if err != nil || !got.Equal(order) {
							t.Errorf("CreateOrder returned %v, %v", got, err)
						}
					case !errors.Is(err, storefront.ErrUnavailable) || errors.Is(err, sql.ErrNoRows) || forgotten != 4:
						t.Errorf("CreateOrder returned %v, %v after %d tries, want 4", got, err, forgotten)
					}
				})
			}
		}
	}
}

// A pooler may mix up the answers of its connections, and they may be of somebody else's orders. The rows say
// what they are.
func TestAnswerToAnotherStatementIsALostConnection(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		theirs := []byte(keyHash(storefront.IdempotencyKey{Value: "theirs"}))
		f := newFakeDB(engine)
		f.server.addOrder(key, order)
		f.server.addResource(kettle)
		f.server.says["INDEX"], f.server.says["ORDERS"] = "ready", rowOf(order, "ada", "k")
		kind, wrong := "", row(nil) // the statement that gets this answer, once
		f.run = func(_ context.Context, _ int, query string, _ []driver.Value) ([][]driver.Value, error) {
			if kindOf(query) != kind {
				return nil, errPassOn
			}
			kind = ""
			return [][]driver.Value{wrong}, nil
		}
		later := order
		later.ID += "z"
		store := sqlstore.New(open(t, f), &sqlstore.Options{Timeout: timeout, OrderLists: true})
		orders := store.OrderReader()
		create := func(key storefront.IdempotencyKey, id string) func() (any, error) {
			return func() (any, error) {
				got, err := store.CreateOrder(t.Context(), key, storefront.Order{ID: id})
				return got.ID, err
			}
		}
		product := func() (any, error) { return store.GetProduct(t.Context(), "kettle") }
		users := func() (any, error) { return store.ListUsers(t.Context(), "b", 10) }
		get := func() (any, error) { return orders.GetOrder(t.Context(), "ada", order.ID) }
		list := func() (any, error) { return orders.ListOrders(t.Context(), "ada", later.ID, 10) }
		byKey := func() (any, error) { return orders.GetOrderByKey(t.Context(), "ada", "k") }
		is := fmt.Sprint(storefront.MustResource(order.ID, order))
		for _, test := range []struct {
			kind  string
			wrong row
			call  func() (any, error)
			want  string
		}{
			{"REPLAY", row{"ord_x", "", int64(1), "", int64(0), []byte{}, theirs}, create(key, "ord_2"), order.ID},
			{"READ", row{[]byte("a"), `{"id":"a"}`}, product, `{"id":"kettle"}`},
			{"READ", row{[]byte("a"), `{"id":"a"}`}, users, `[{"id":"kettle"}]`},
			{"ORDERS", rowOf(order, "bob", "k"), list, "[" + is + "]"},
			{"ORDERS", rowOf(order, "", "k"), list, "[" + is + "]"},
			{"ORDERS", rowOf(later, "ada", "k"), list, "[" + is + "]"},
			{"ORDERS", rowOf(order, "bob", "k"), get, is},
			{"ORDERS", rowOf(later, "ada", "k"), get, is},
			{"ORDERS", rowOf(order, "bob", "k"), byKey, is},
			{"ORDERS", rowOf(later, "ada", "other"), byKey, is},
			{"INSERT", row{theirs}, create(storefront.IdempotencyKey{Value: "new"}, "ord_new"), "ord_new"},
		} {
			if test.kind == "INSERT" && engine != postgres {
				continue // it returns no rows
			}
			kind, wrong = test.kind, test.wrong
			if got, err := test.call(); err != nil || fmt.Sprint(got) != test.want || kind != "" {
				t.Errorf("after the answer %v, the call returned %v, %v, want %s", wrong, got, err, test.want)
			}
		}
		if engine != sqlite && store.Stats().Dropped == 0 {
			t.Error("no connection was given up")
		}
	})
}

// The answer to an INSERT of MySQL says how many rows it has inserted, and nothing else of them.
func TestSharedInsertIsOfAllItsOrders(t *testing.T) {
	for _, answer := range []struct{ orders, inserted int }{{4, 0}, {4, 3}, {4, 5}, {3, 0}, {3, 2}} {
		inBubble(t, fmt.Sprint(answer), func(t *testing.T) {
			f, met := newHeldDB(mysql), false
			f.server.addOrder(storefront.IdempotencyKey{Value: "e"}, storefront.Order{ID: "ord_e"}) // of 4, 3 are inserted
			f.run = func(_ context.Context, _ int, query string, args []driver.Value) ([][]driver.Value, error) {
				if met || kindOf(query) != "INSERT" || len(args) != 8*answer.orders {
					return nil, errPassOn
				}
				met = true
				return make([][]driver.Value, answer.inserted), nil
			}
			wg := create(t, inTime(open(t, f), nil), strings.Split("abcdefgh", "")...)
			close(f.server.let)
			wg.Wait()
			if len(f.server.orders) != 8 || !met {
				t.Errorf("8 calls have returned orders, of which the database has %d", len(f.server.orders))
			}
		})
	}
}

// share calls CreateOrder with key, or a key that differs in its fingerprint.
func share(t *testing.T, store *sqlstore.Store, id string, fingerprint ...byte) *pending {
	key, proposed := key, order
	proposed.ID = id
	copy(key.Fingerprint[:], fingerprint)
	return proposeWith(t.Context(), store, key, proposed)
}

// A script is an Accept that ends each of its calls when the test says how.
type script struct {
	calls []string // the IDs of the orders
	end   chan func() error
}

func newScript() *script { return &script{end: make(chan func() error)} }

func (s *script) accept(ctx context.Context, _ *sql.Tx, _ storefront.IdempotencyKey,
	order storefront.Order) error {
	s.calls = append(s.calls, order.ID)
	select {
	case end := <-s.end:
		return end()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func accept() error { return nil }

// Calls that wait for a try do not count as calls in progress: MaxCalls is 1 here.
func TestCallsWithOneKeyShareATry(t *testing.T) {
	onEach(t, func(t *testing.T, engine engine) {
		s := newScript()
		db := open(t, newFakeDB(engine))
		store := sqlstore.New(db, &sqlstore.Options{Accept: s.accept, MaxCalls: 1})
		var calls []*pending
		for i := range 300 {
			calls = append(calls, share(t, store, fmt.Sprint("ord_", i)))
		}
		if n := db.Stats().InUse; n != 1 {
			t.Errorf("%v: they use %d connections", engine, n)
		}
		if got := store.Stats(); got.Running != 1 || got.Waiting != 299 {
			t.Errorf("%v: the store has %+v", engine, got)
		}
		s.end <- accept
		for _, c := range calls {
			c.want(t, "ord_0")
		}
		share(t, store, "later").want(t, "ord_0")
		if got := store.Stats(); len(s.calls) != 1 || got.Created != 1 || got.Replayed != 300 {
			t.Errorf("%v: Accept was called for %q, and the store has %+v", engine, s.calls, got)
		}
	})
}

// The call that came first makes the next try. A refusal is for those who came before its try with the same
// fingerprint: there may be more in stock since, and Accept has not seen the order of another one.
func TestOthersGoOnWithoutWhoMakesTheTry(t *testing.T) {
	broken, refusal := errors.New("broken"), &storefront.Refusal{Reason: "sold-out"}
	for name, stop := range map[string]func(*pending, *script){
		"cancelled": func(c *pending, _ *script) { c.leave() },
		"panics":    func(_ *pending, s *script) { s.end <- func() error { panic("a value") } },
		"fails":     func(_ *pending, s *script) { s.end <- func() error { return broken } },
	} {
		onEach(t, func(t *testing.T, engine engine) {
			s := newScript()
			store := inTime(open(t, newFakeDB(engine)), s.accept)
			first := share(t, store, "first")
			refused := []*pending{share(t, store, "a"), share(t, store, "b"), share(t, store, "c")}
			other := share(t, store, "other", 2)
			stop(first, s)
			if <-first.ended; first.err == nil && first.panicked == nil {
				t.Errorf("%v, %s: the first call returned %v", engine, name, first.got)
			}
			synctest.Wait()
			refused = append(refused, share(t, store, "late"))
			refuse := func() error { return refusal }
			for i, end := range []func() error{refuse, refuse, accept} {
				if want := []string{"first", "a", "late", "other"}[:i+2]; !slices.Equal(s.calls, want) {
					t.Fatalf("%v, %s: Accept was called for %q, want %q", engine, name, s.calls, want)
				}
				s.end <- end
				synctest.Wait()
			}
			for _, c := range refused {
				if err := c.wait(); err != refusal {
					t.Errorf("%v, %s: the call for %s returned %v, %v, want the refusal", engine, name, c.id, c.got, err)
				}
			}
			other.want(t, "other")
		})
	}
}
