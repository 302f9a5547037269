package overload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

const (
	poolSize = 4
	maxCalls = 32
	clients  = 300
)

// TestOverload has far more clients than calls are let in, and more calls than
// connections, on a database that answers nothing until all of them are there.
func TestOverload(t *testing.T) {
	t.Parallel()
	forEachOperation(t, func(t *testing.T, d *testdb.DB, op operation) {
		db := connect(t, d)
		store := sqlstore.New(db, &sqlstore.Options{MaxCalls: maxCalls, Timeout: time.Minute})
		unlock := lock(t, d)
		results := make(chan result, clients)
		for client := range clients {
			go func() { results <- op.call(t, store, client) }()
		}

		// As long as the database does not answer, nobody waits but the calls that
		// were let in.
		var refused []int
		for range clients - maxCalls {
			r := <-results
			r.wantUnavailable(t)
			refused = append(refused, r.client)
		}
		connections := poolSize
		if op.creates {
			connections /= 2 // the others are for reads
		}
		if n := db.Stats().InUse; n > connections {
			t.Errorf("%d connections are in use, want %d", n, connections)
		}

		// Then all are answered, those that were refused once they try again.
		unlock()
		acknowledged := make(map[string]string)
		for range maxCalls {
			(<-results).want(t, op, acknowledged)
		}
		for _, client := range refused {
			go func() { results <- op.retry(t, store, client) }()
		}
		for range refused {
			(<-results).want(t, op, acknowledged)
		}
		if op.creates && len(acknowledged) != clients {
			t.Errorf("%d orders were acknowledged to %d clients", len(acknowledged), clients)
		}
		if diff := cmp.Diff(acknowledged, ordersIn(t, d)); diff != "" {
			t.Errorf("orders that were acknowledged (-) and that are there (+):\n%s", diff)
		}
	})
}

// TestStalledDatabase has calls end while the database answers nothing, and
// their retries succeed when it does again.
func TestStalledDatabase(t *testing.T) {
	t.Parallel()
	const few = 2 * poolSize
	forEachOperation(t, func(t *testing.T, d *testdb.DB, op operation) {
		t.Parallel()
		unlock := lock(t, d)
		store := sqlstore.New(connect(t, d), &sqlstore.Options{MaxCalls: maxCalls, Timeout: 500 * time.Millisecond})
		results := make(chan result, few)
		for client := range few {
			go func() { results <- op.call(t, store, client) }()
		}
		for range few {
			(<-results).wantUnavailable(t)
		}
		unlock()
		created := ordersIn(t, d) // though no client knows yet
		acknowledged := make(map[string]string)
		for client := range few {
			r := op.retry(t, store, client)
			r.want(t, op, acknowledged)
			if _, before := created[r.order.ID]; before && r.order.ID == r.proposed {
				t.Errorf("the order %s, which was there before, is acknowledged as a new one", r.order.ID)
			}
		}
		if diff := cmp.Diff(acknowledged, ordersIn(t, d)); diff != "" {
			t.Errorf("orders that were acknowledged (-) and that are there (+):\n%s", diff)
		}
	})
}

// An operation is something that a client asks of a store.
type operation struct {
	creates bool
	do      func(ctx context.Context, store *sqlstore.Store, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error)
}

// A result is what a client got.
type result struct {
	client   int
	order    storefront.Order
	proposed string // the order's ID
	err      error
}

var calls atomic.Int64

func (op operation) call(t *testing.T, store *sqlstore.Store, client int) result {
	r := result{client: client, proposed: fmt.Sprint("ord_", calls.Add(1))}
	r.order, r.err = op.do(t.Context(), store, storefront.IdempotencyKey{Value: fmt.Sprint("client ", client)},
		storefront.Order{ID: r.proposed, Item: fmt.Sprint("of client ", client), Qty: 1, CreatedAt: time.Now()})
	return r
}

// retry calls until the database is available, with pauses at random, as clients have them.
func (op operation) retry(t *testing.T, store *sqlstore.Store, client int) result {
	for most := time.Millisecond; ; most = min(2*most, time.Second) {
		if r := op.call(t, store, client); !errors.Is(r.err, storefront.ErrUnavailable) {
			return r
		}
		time.Sleep(rand.N(most))
	}
}

func (r result) wantUnavailable(t *testing.T) {
	t.Helper()
	if !errors.Is(r.err, storefront.ErrUnavailable) {
		t.Errorf("client %d got %v, %v, want ErrUnavailable", r.client, r.order, r.err)
	}
}

// want checks that the operation has succeeded, and puts down an order as acknowledged.
func (r result) want(t *testing.T, op operation, acknowledged map[string]string) {
	t.Helper()
	if r.err != nil {
		t.Errorf("client %d: %v", r.client, r.err)
	} else if op.creates {
		acknowledged[r.order.ID] = r.order.Item
	}
}

// forEachOperation runs a test for each operation, on a database of each kind with
// a user and a product.
func forEachOperation(t *testing.T, test func(t *testing.T, d *testdb.DB, op operation)) {
	for name, op := range map[string]operation{
		"create": {true, func(ctx context.Context, store *sqlstore.Store, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
			return store.CreateOrder(ctx, key, order)
		}},
		"get": {false, func(ctx context.Context, store *sqlstore.Store, _ storefront.IdempotencyKey, _ storefront.Order) (o storefront.Order, err error) {
			_, err = store.GetProduct(ctx, "teapot")
			return o, err
		}},
		"list": {false, func(ctx context.Context, store *sqlstore.Store, _ storefront.IdempotencyKey, _ storefront.Order) (o storefront.Order, err error) {
			_, err = store.ListUsers(ctx, "", 10)
			return o, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
				d.Pool.SetMaxOpenConns(1)
				store := sqlstore.New(d.Pool, nil)
				must.OK(t, errors.Join(store.Users.Put(t.Context(), storefront.MustResource("ada", nil)),
					store.Products.Put(t.Context(), storefront.MustResource("teapot", nil))))
				test(t, d, op)
			})
		})
	}
}

// connect returns a pool of its own of a database.
func connect(t *testing.T, d *testdb.DB) *sql.DB {
	t.Helper()
	db := must.Get(sql.Open(d.Driver, d.URL))(t)
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	t.Cleanup(func() {
		// A statement that a call has left may still use SQLite's files. After Close, InUse may count
		// connections that were to be opened.
		for end := time.Now().Add(time.Minute); db.Stats().InUse > 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		db.Close()
	})
	return db
}

// lock keeps other connections from reading and writing until unlock is called.
func lock(t *testing.T, d *testdb.DB) (unlock func()) {
	t.Helper()
	begin, end := []string{"BEGIN", "LOCK TABLE storefront_users, storefront_products, storefront_orders"}, "ROLLBACK"
	switch d.Driver {
	case "sqlite":
		// In WAL mode, readers would not wait. The next connection changes it back.
		begin = []string{"PRAGMA journal_mode = DELETE", "BEGIN EXCLUSIVE"}
	case "mysql":
		begin, end = []string{"LOCK TABLES storefront_users WRITE, storefront_products WRITE, storefront_orders WRITE"}, "UNLOCK TABLES"
	}
	conn := must.Get(d.Pool.Conn(t.Context()))(t)
	for _, statement := range begin {
		must.Get(conn.ExecContext(t.Context(), statement))(t)
	}
	return func() {
		must.Get(conn.ExecContext(t.Context(), end))(t)
		conn.Close()
	}
}

// ordersIn returns the items of all orders in a database by ID.
func ordersIn(t *testing.T, d *testdb.DB) map[string]string {
	t.Helper()
	items := make(map[string]string)
	for _, order := range testdb.StoredOrders(t, d.Pool) {
		items[order.ID] = order.Item
	}
	return items
}
