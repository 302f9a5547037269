package integration

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// An accept is what sqlstore.Options.Accept is set to.
type accept = func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error

// create creates an order for an item as the service does, with a new ID.
func create(ctx context.Context, store storefront.Store, key, item string) (storefront.Order, error) {
	return store.CreateOrder(ctx, storefront.IdempotencyKey{Value: key, Fingerprint: [32]byte{1}},
		storefront.Order{ID: "ord_" + rand.Text(), Item: item, Qty: 1, CreatedAt: time.Now().UTC().Truncate(time.Millisecond)})
}

// A purchase is an order that is sent, and what came of it.
type purchase struct {
	key, item string
	leaves    bool // its caller goes away before there is an answer
	order     storefront.Order
	err       error
	panicked  any
}

var errNotReturned = errors.New("CreateOrder has not returned")

func (p *purchase) send(ctx context.Context, store storefront.Store) {
	defer func() { p.panicked = recover() }()
	p.err = errNotReturned
	p.order, p.err = create(ctx, store, p.key, p.item)
}

// sendTogether sends purchases in such a way that those that may share a commit
// do: before them, so many orders that no more commits are under way, which come
// to an end when all purchases have been sent and those who leave have left.
func sendTogether(t *testing.T, d *sqlDatabase, accept accept, purchases []*purchase) {
	t.Helper()
	const most = 4 // commits under way
	opened, held := make(chan struct{}), make(chan struct{}, most)
	db := openTapped(t, d.driver, d.url, func(ctx context.Context, s statement, run func() error) error {
		if strings.HasPrefix(s.query, "INSERT") && strings.Contains(s.query, "storefront_orders") && slices.Contains(s.args, any("held up")) {
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
	if d.driver == "sqlite" {
		first = 1
	}
	var sending sync.WaitGroup
	for range first {
		sending.Go(func() {
			if _, err := create(t.Context(), store, rand.Text(), "held up"); err != nil {
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
		if p.leaves {
			ctx = leaving
			left.Add(1)
		}
		sending.Go(func() {
			defer func() { // Accept may end the goroutine
				ended <- struct{}{}
				if p.leaves {
					left.Done()
				}
			}()
			p.send(ctx, store)
		})
	}
	for goroutinesIn("sqlstore.(*Store).CreateOrder(")-first+len(ended) < len(purchases) {
		runtime.Gosched()
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
	if _, err := create(t.Context(), store, rand.Text(), "held up"); err != nil {
		t.Errorf("an order after: %v", err)
	}
	d.exec(t, "DELETE FROM storefront_orders WHERE item = 'held up'")
}

// noted is an Accept that writes down the order's ID in the table notes, and fails
// as the item says.
func noted(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
	if order.Item == "held up" {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO notes (order_id) VALUES ('"+order.ID+"')"); err != nil {
		return err
	}
	var err error
	switch order.Item {
	case "refused":
		err = new(soldOut)
	case "panics":
		panic(errAccept)
	case "exits":
		runtime.Goexit()
	case "commits":
		err = tx.Commit()
	case "rolls back":
		err = tx.Rollback()
	case "sends COMMIT":
		_, err = tx.ExecContext(ctx, "COMMIT")
	case "sends ROLLBACK":
		_, err = tx.ExecContext(ctx, "ROLLBACK")
	case "begins another":
		if _, err = tx.ExecContext(ctx, "ROLLBACK"); err == nil {
			_, err = tx.ExecContext(ctx, "BEGIN")
		}
	case "rolls back and says so":
		err = errors.Join(errAccept, tx.Rollback())
	}
	return err
}

var errAccept = errors.New("of two minds")

// checkOrders checks that the orders that were acknowledged are there, and none for
// an item that must not be, and that each has been noted if all were to be.
func checkOrders(t *testing.T, d *sqlDatabase, purchases []*purchase, never func(item string) bool, allNoted bool) {
	t.Helper()
	stored := storedOrders(t, d.db)
	for _, order := range stored {
		if never(order.Item) {
			t.Errorf("there is the order %v", order)
		}
	}
	for _, p := range purchases {
		if p.err == nil && !slices.ContainsFunc(stored, func(o storefront.Order) bool { return o == p.order }) {
			t.Errorf("%s of %s: the order %v was acknowledged and is not there", p.key, p.item, p.order)
		}
	}
	if !allNoted {
		return
	}
	var ids []string
	for _, order := range stored {
		ids = append(ids, order.ID)
	}
	notes := column(t, d.db, "SELECT order_id FROM notes")
	slices.Sort(ids)
	slices.Sort(notes)
	if diff := cmp.Diff(ids, notes); diff != "" {
		t.Errorf("orders (-) and what Accept has written (+):\n%s", diff)
	}
}

// mixed returns purchases for an item among others: some for new orders, before and
// after it, and some for replays of the orders of an earlier mix.
func mixed(round int, item string) (purchases []*purchase) {
	for i := range 24 {
		p := &purchase{key: fmt.Sprintf("new %d %d", round, i), item: "kettle"}
		switch {
		case i%8 == 3:
			p.key, p.item = item+" "+p.key, item
		case round > 0 && i%2 == 0:
			p.key = fmt.Sprintf("new %d %d", round-1, i)
		}
		purchases = append(purchases, p)
	}
	return purchases
}

func TestAcceptThatFailsDoesSoAlone(t *testing.T) {
	endsTransaction := func(t *testing.T, p *purchase) {
		if p.err == nil || !strings.Contains(p.err.Error(), "must not end it") {
			t.Errorf("%s: %v, want an error that says what Accept must not do", p.item, p.err)
		}
	}
	for _, row := range []struct {
		item    string
		check   func(t *testing.T, p *purchase)
		ordered bool // the order may be there, as Accept has committed it
	}{
		{"refused", func(t *testing.T, p *purchase) {
			var refusal *storefront.Refusal
			if !errors.As(p.err, &refusal) || *refusal != soldOut {
				t.Errorf("%s: %v, want the refusal", p.item, p.err)
			}
		}, false},
		{"panics", func(t *testing.T, p *purchase) {
			if err, _ := p.panicked.(error); !errors.Is(err, errAccept) {
				t.Errorf("%s: CreateOrder panicked with %v and returned %v, want the panic of Accept", p.item, p.panicked, p.err)
			}
		}, false},
		{"exits", func(t *testing.T, p *purchase) {
			if p.err != errNotReturned {
				t.Errorf("%s: CreateOrder has returned %v", p.item, p.err)
			}
		}, false},
		{"commits", endsTransaction, true},
		{"rolls back", endsTransaction, false},
		{"sends COMMIT", endsTransaction, true},
		{"sends ROLLBACK", endsTransaction, false},
		{"begins another", endsTransaction, false},
		{"rolls back and says so", func(t *testing.T, p *purchase) {
			endsTransaction(t, p)
			if !errors.Is(p.err, errAccept) && !strings.Contains(fmt.Sprint(p.err), errAccept.Error()) {
				t.Errorf("%s: %v, want what Accept returned, too", p.item, p.err)
			}
		}, false},
	} {
		t.Run(row.item, func(t *testing.T) {
			onSQLEngines(t, func(t *testing.T, d *sqlDatabase) {
				d.exec(t, "CREATE TABLE notes (order_id VARCHAR(255) NOT NULL)")
				for round := range 3 {
					purchases := mixed(round, row.item)
					sendTogether(t, d, noted, purchases)
					for _, p := range purchases {
						switch {
						case p.item == row.item:
							row.check(t, p)
						case p.err != nil:
							t.Errorf("%s, at the same time: %v, panicked: %v", p.key, p.err, p.panicked)
						}
					}
					checkOrders(t, d, purchases, func(item string) bool { return item == row.item && !row.ordered }, true)
				}
			})
		})
	}
}

// Two orders whose transactions cannot both have been first: the database lets one
// of them try again, and that is the whole of it, Accept included.
func TestAcceptRunsAgainWithItsTransaction(t *testing.T) {
	for name, serializable := range map[string]func(t *testing.T) *sqlDatabase{
		"PostgreSQL": func(t *testing.T) *sqlDatabase {
			d := newSQLDatabase(t, "pgx", postgresDatabase(t))
			d.url += "&default_transaction_isolation=serializable"
			return d
		},
		"MariaDB": func(t *testing.T) *sqlDatabase {
			d := newSQLDatabase(t, "mysql", mariaDB.database(t))
			d.url += "&tx_isolation='SERIALIZABLE'"
			return d
		},
		"MySQL": func(t *testing.T) *sqlDatabase {
			d := newSQLDatabase(t, "mysql", mySQL.database(t))
			d.url += "&transaction_isolation='SERIALIZABLE'"
			return d
		},
	} {
		t.Run(name, func(t *testing.T) { checkThatAcceptRunsAgain(t, serializable(t)) })
	}
}

func checkThatAcceptRunsAgain(t *testing.T, d *sqlDatabase) {
	t.Helper()
	d.exec(t, "CREATE TABLE notes (order_id VARCHAR(255) NOT NULL)")
	var runs atomic.Int64
	var both sync.WaitGroup
	both.Add(2)
	store := d.openWith(t, &sqlstore.Options{Accept: func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, order storefront.Order) error {
		var notes int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM notes").Scan(&notes); err != nil {
			return fmt.Errorf("counting: %w", err)
		}
		if runs.Add(1) <= 2 {
			both.Done()
			both.Wait()
		}
		if err := noted(ctx, tx, key, order); err != nil {
			return fmt.Errorf("noting: %w", err)
		}
		return nil
	}})
	purchases := []*purchase{{key: "a", item: "kettle"}, {key: "b", item: "kettle"}}
	var sending sync.WaitGroup
	for _, p := range purchases {
		sending.Go(func() { p.send(t.Context(), store) })
	}
	sending.Wait()
	for _, p := range purchases {
		if p.err != nil {
			t.Errorf("%s: %v", p.key, p.err)
		}
	}
	if n := runs.Load(); n < 3 {
		t.Errorf("Accept ran %d times for two orders of which one had to be tried again", n)
	}
	checkOrders(t, d, purchases, func(string) bool { return false }, true)
}

func TestCallersThatLeave(t *testing.T) {
	for _, accept := range []struct {
		name   string
		accept accept
	}{{"without Accept", nil}, {"with Accept", noted}} {
		t.Run(accept.name, func(t *testing.T) {
			onSQLEngines(t, func(t *testing.T, d *sqlDatabase) {
				d.exec(t, "CREATE TABLE notes (order_id VARCHAR(255) NOT NULL)")
				for round := range 3 {
					purchases := mixed(round, "kettle")
					for i, p := range purchases {
						p.leaves = i%3 == 1
					}
					sendTogether(t, d, accept.accept, purchases)
					for _, p := range purchases {
						if p.err != nil && !(p.leaves && errors.Is(p.err, context.Canceled)) {
							t.Errorf("%s, whose caller left: %t: %v", p.key, p.leaves, p.err)
						}
					}
					checkOrders(t, d, purchases, func(string) bool { return false }, accept.accept != nil)
				}
			})
		})
	}
}
