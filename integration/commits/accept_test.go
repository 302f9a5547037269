package commits

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/sqltap"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// sendTogether sends purchases in such a way that those that may share a commit
// do: before them, so many orders that no more commits are under way, which come
// to an end when all purchases have been sent and those who leave have left.
func sendTogether(t *testing.T, d *testdb.DB, accept testdb.Accept, purchases []*testdb.Purchase) {
	t.Helper()
	const most = 4 // commits under way
	opened, held := make(chan struct{}), make(chan struct{}, most)
	db := sqltap.Open(t, d.Driver, d.URL, func(ctx context.Context, s sqltap.Statement, run func() error) error {
		if strings.HasPrefix(s.Query, "INSERT") && strings.Contains(s.Query, "storefront_orders") && slices.Contains(s.Args, any("held up")) {
			select {
			case held <- struct{}{}:
			default: // it is tried again
			}
			<-opened
		}
		return run()
	})
	db.SetMaxOpenConns(2 * most)
	db.SetMaxIdleConns(2 * most)
	store := sqlstore.New(db, &sqlstore.Options{Accept: accept, Timeout: time.Minute})
	first := most
	if d.Driver == "sqlite" {
		first = 1
	}
	var sending sync.WaitGroup
	for range first {
		sending.Go(func() {
			if _, err := testdb.Create(t.Context(), store, rand.Text(), "held up"); err != nil {
				t.Errorf("an order before: %v", err)
			}
		})
		<-held
	}
	leaving, leave := context.WithCancel(t.Context())
	defer leave()
	var left sync.WaitGroup
	ended := make(chan struct{}, len(purchases))
	for _, p := range purchases {
		ctx := t.Context()
		if p.Leaves {
			ctx = leaving
			left.Add(1)
		}
		sending.Go(func() {
			p.Send(ctx, store)
			ended <- struct{}{}
			if p.Leaves {
				left.Done()
			}
		})
	}
	for begun := 0; begun < len(purchases); runtime.Gosched() {
		s := store.Stats()
		begun = int(s.Running+s.Waiting) - first + len(ended)
	}
	leave()
	left.Wait() // not for the commits
	close(opened)
	sending.Wait()
	// The pool may still be opening one for a caller that has left.
	for end := time.Now().Add(30 * time.Second); db.Stats().InUse != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are in use after all calls", db.Stats().InUse)
		}
	}
	if _, err := testdb.Create(t.Context(), store, rand.Text(), "held up"); err != nil {
		t.Errorf("an order after: %v", err)
	}
	d.Exec(t, "DELETE FROM storefront_orders WHERE item = 'held up'")
}

// mixed returns purchases for an item among others: some for new orders, before and
// after it, and some for replays of the orders of an earlier mix.
func mixed(round int, item string) (purchases []*testdb.Purchase) {
	for i := range 24 {
		p := &testdb.Purchase{Key: fmt.Sprintf("%s %d %d", item, round, i), Item: "kettle"}
		switch {
		case i%8 == 3:
			p.Item = item
		case round > 0 && i%2 == 0:
			p.Key = fmt.Sprintf("%s %d %d", item, round-1, i)
		}
		purchases = append(purchases, p)
	}
	return purchases
}

func TestAcceptThatFailsDoesSoAlone(t *testing.T) {
	endsTransaction := func(t *testing.T, p *testdb.Purchase) {
		if p.Err == nil || !strings.Contains(p.Err.Error(), "must not end it") {
			t.Errorf("%s: %v, want an error that says what Accept must not do", p.Item, p.Err)
		}
	}
	rows := []struct {
		item    string
		check   func(t *testing.T, p *testdb.Purchase)
		ordered bool // the order may be there, as Accept has committed it
	}{
		{"refused", func(t *testing.T, p *testdb.Purchase) {
			var refusal *storefront.Refusal
			if !errors.As(p.Err, &refusal) || !reflect.DeepEqual(*refusal, testdb.SoldOut) {
				t.Errorf("%s: %v, want the refusal", p.Item, p.Err)
			}
		}, false},
		{"commits", endsTransaction, true},
		{"rolls back", endsTransaction, false},
		{"sends COMMIT", endsTransaction, true},
		{"sends ROLLBACK", endsTransaction, false},
		{"begins another", endsTransaction, false},
		{"leaves rows open", func(t *testing.T, p *testdb.Purchase) { // which not every driver minds
			if p.Err != nil && !strings.Contains(p.Err.Error(), "must close its rows") {
				t.Errorf("%s: %v, want an error that says what Accept must do", p.Item, p.Err)
			}
		}, true},
		{"rolls back and says so", func(t *testing.T, p *testdb.Purchase) {
			endsTransaction(t, p)
			if !errors.Is(p.Err, testdb.ErrAccept) && !strings.Contains(fmt.Sprint(p.Err), testdb.ErrAccept.Error()) {
				t.Errorf("%s: %v, want what Accept returned, too", p.Item, p.Err)
			}
		}, false},
	}
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		d.Exec(t, "CREATE TABLE notes (order_id VARCHAR(255) NOT NULL)")
		for _, row := range rows {
			t.Run(row.item, func(t *testing.T) {
				for round := range 2 {
					purchases := mixed(round, row.item)
					sendTogether(t, d, testdb.Noted, purchases)
					for _, p := range purchases {
						switch {
						case p.Item == row.item:
							row.check(t, p)
						case p.Err != nil:
							t.Errorf("%s, at the same time: %v", p.Key, p.Err)
						}
					}
					never := func(item string) bool { return item == row.item && !row.ordered }
					testdb.CheckOrders(t, d, purchases, never, true)
				}
			})
		}
	})
}

// Two orders whose transactions cannot both have been first: the database lets one
// of them try again, and that is the whole of it, Accept included.
func TestAcceptRunsAgainWithItsTransaction(t *testing.T) {
	testdb.OnSQLServers(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		_, engine, _ := strings.Cut(t.Name(), "/")
		d.URL += map[string]string{
			"PostgreSQL": "&default_transaction_isolation=serializable",
			"MariaDB":    "&tx_isolation='SERIALIZABLE'",
			"MySQL":      "&transaction_isolation='SERIALIZABLE'",
		}[engine]
		checkThatAcceptRunsAgain(t, d)
	})
}

func checkThatAcceptRunsAgain(t *testing.T, d *testdb.DB) {
	t.Helper()
	d.Exec(t, "CREATE TABLE notes (order_id VARCHAR(255) NOT NULL)")
	var runs atomic.Int64
	var both sync.WaitGroup
	both.Add(2)
	store := d.OpenWith(t, &sqlstore.Options{Accept: func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, order storefront.Order) error {
		var notes int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM notes").Scan(&notes); err != nil {
			return fmt.Errorf("counting: %w", err)
		}
		if runs.Add(1) <= 2 {
			both.Done()
			both.Wait()
		}
		if err := testdb.Noted(ctx, tx, key, order); err != nil {
			return fmt.Errorf("noting: %w", err)
		}
		return nil
	}})
	purchases := []*testdb.Purchase{{Key: "a", Item: "kettle"}, {Key: "b", Item: "kettle"}}
	var sending sync.WaitGroup
	for _, p := range purchases {
		sending.Go(func() { p.Send(t.Context(), store) })
	}
	sending.Wait()
	for _, p := range purchases {
		if p.Err != nil {
			t.Errorf("%s: %v", p.Key, p.Err)
		}
	}
	if n := runs.Load(); n < 3 {
		t.Errorf("Accept ran %d times for two orders of which one had to be tried again", n)
	}
	testdb.CheckOrders(t, d, purchases, func(string) bool { return false }, true)
}

// withAndWithout runs a test of stores on a database without orders: without Accept, and with one that notes
// orders.
func withAndWithout(t *testing.T, d *testdb.DB, test func(t *testing.T, accept testdb.Accept)) {
	d.Exec(t, "CREATE TABLE IF NOT EXISTS notes (order_id VARCHAR(255) NOT NULL)")
	for name, accept := range map[string]testdb.Accept{"without Accept": nil, "with Accept": testdb.Noted} {
		d.Clear(t)
		d.Exec(t, "DELETE FROM notes")
		t.Run(name, func(t *testing.T) { test(t, accept) })
	}
}

func TestCallersThatLeave(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		withAndWithout(t, d, func(t *testing.T, accept testdb.Accept) {
			for round := range 2 {
				purchases := mixed(round, "kettle")
				for i, p := range purchases {
					p.Leaves = i%3 == 1
				}
				sendTogether(t, d, accept, purchases)
				for _, p := range purchases {
					if p.Err != nil && !(p.Leaves && errors.Is(p.Err, context.Canceled)) {
						t.Errorf("%s, whose caller left: %t: %v", p.Key, p.Leaves, p.Err)
					}
				}
				testdb.CheckOrders(t, d, purchases, func(string) bool { return false }, accept != nil)
			}
		})
	})
}
