package overload

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/sqltap"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

const (
	poolSize = 4
	maxCalls = 32
	clients  = 300
)

// A barrier is a tap that lets statements through only while it is open. One
// that waits gives up when its ctx is done.
type barrier struct {
	arrived chan struct{} // receives from every statement that finds it closed
	behind  bool          // what commits is run first, and it is its result that waits

	mu      sync.Mutex
	opened  chan struct{} // closed: it is open
	running int           // statements that are in progress
	most    int           // of them at once
}

func newBarrier() *barrier {
	return &barrier{arrived: make(chan struct{}, clients), opened: make(chan struct{})}
}

func (b *barrier) open() { close(b.opened) }

func (b *barrier) tap(ctx context.Context, s sqltap.Statement, run func() error) error {
	asks := func(prefix string) bool { return strings.HasPrefix(s.Query, prefix) }
	if b.behind && (!s.Commits || slices.ContainsFunc([]string{ // how a store asks for the engine first
		"SELECT version()", "SHOW VARIABLES", "SHOW STATUS", "SELECT quote_ident(", "SELECT CAST(", "SELECT CONCAT(@@",
	}, asks)) {
		return run()
	}
	b.mu.Lock()
	b.running++
	b.most = max(b.most, b.running)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.running--
		b.mu.Unlock()
	}()
	if b.behind {
		if err := run(); err != nil {
			return err
		}
		run = func() error { return nil }
	}
	select {
	case <-b.opened:
		return run()
	default:
	}
	b.arrived <- struct{}{}
	select {
	case <-b.opened:
		return run()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestOverload has far more clients than calls are let in, and more calls than
// connections, on a database that answers nothing until all of them are there.
func TestOverload(t *testing.T) {
	t.Parallel()
	forEachOperation(t, func(t *testing.T, d *testdb.DB, op operation) {
		barrier := newBarrier()
		shop := serve(t, d, barrier.tap, &sqlstore.Options{MaxCalls: maxCalls, Timeout: 30 * time.Second})
		type result struct {
			client int
			answer answer
		}
		results := make(chan result, clients)
		for client := range clients {
			go func() { results <- result{client, shop.do(op, client)} }()
		}

		// As long as the database does not answer, nobody waits but the calls that
		// were let in.
		var refused []int
		for range clients - maxCalls {
			r := <-results
			r.answer.checkUnavailable(t)
			refused = append(refused, r.client)
		}
		connections := poolSize
		if op.name == "create" {
			connections /= 2 // the others are for reads
		}
		for range connections {
			<-barrier.arrived
		}
		if n := shop.db.Stats().InUse; n != connections {
			t.Errorf("%d connections are in use, want %d", n, connections)
		}
		if n := testdb.GoroutinesIn("sqlstore.(*Store)."); n != maxCalls {
			t.Errorf("%d goroutines are in the store, want %d", n, maxCalls)
		}

		// Then all are answered, those that were refused once they try again.
		barrier.open()
		acknowledged := make(map[string]string)
		for range maxCalls {
			r := <-results
			r.answer.checkSuccess(t, op, acknowledged)
		}
		for _, client := range refused {
			go func() { results <- result{client, shop.retry(op, client)} }()
		}
		for range refused {
			r := <-results
			r.answer.checkSuccess(t, op, acknowledged)
		}
		if barrier.most > poolSize {
			t.Errorf("%d statements were run at once, want at most %d", barrier.most, poolSize)
		}
		if op.name == "create" && len(acknowledged) != clients {
			t.Errorf("%d orders were acknowledged to %d clients", len(acknowledged), clients)
		}
		if diff := cmp.Diff(acknowledged, ordersIn(t, d)); diff != "" {
			t.Errorf("orders that were acknowledged (-) and that are there (+):\n%s", diff)
		}
	})
}

// TestStalledDatabase has requests end while the database answers nothing, and
// their retries succeed when it does again.
func TestStalledDatabase(t *testing.T) {
	t.Parallel()
	const few = 2 * poolSize
	for _, stall := range []struct {
		name string
		// begin stalls the database for a pool with this tap until end is called.
		begin   func(t *testing.T, d *testdb.DB) (tap sqltap.Tap, end func())
		created bool // orders are created meanwhile
	}{
		{"before a statement is run", func(t *testing.T, _ *testdb.DB) (sqltap.Tap, func()) {
			barrier := newBarrier()
			return barrier.tap, barrier.open
		}, false},
		{"after a statement was run", func(t *testing.T, _ *testdb.DB) (sqltap.Tap, func()) {
			barrier := newBarrier()
			barrier.behind = true
			return barrier.tap, barrier.open
		}, true},
		{"by a lock", func(t *testing.T, d *testdb.DB) (sqltap.Tap, func()) {
			return new(sqltap.Recorder).Tap, lock(t, d)
		}, false},
	} {
		t.Run(stall.name, func(t *testing.T) {
			forEachOperation(t, func(t *testing.T, d *testdb.DB, op operation) {
				t.Parallel()
				tap, end := stall.begin(t, d)
				var shop *shop
				refuse := func(timeout time.Duration) {
					shop = serve(t, d, tap, &sqlstore.Options{MaxCalls: maxCalls, Timeout: timeout})
					answers := make(chan answer, few)
					for client := range few {
						go func() { answers <- shop.do(op, client) }()
					}
					for range few {
						answer := <-answers
						answer.checkUnavailable(t)
					}
				}
				timeout := 100 * time.Millisecond
				refuse(timeout)
				// On a busy machine, all may have given up before one got as far as the database.
				for stall.created && op.name == "create" && len(ordersIn(t, d)) == 0 && timeout < time.Minute {
					timeout *= 2
					refuse(timeout)
				}
				end()
				created := ordersIn(t, d) // though no client knows yet
				if stall.created && op.name == "create" && len(created) == 0 {
					t.Error("no order was created during the stall")
				}
				acknowledged := make(map[string]string)
				for client := range few {
					answer := shop.retry(op, client)
					order := answer.checkSuccess(t, op, acknowledged)
					if _, ok := created[order.ID]; ok && answer.header.Get("Idempotent-Replayed") != "true" {
						t.Errorf("the order %s, which was there before, is acknowledged as a new one", order.ID)
					}
				}
				if diff := cmp.Diff(acknowledged, ordersIn(t, d)); diff != "" {
					t.Errorf("orders that were acknowledged (-) and that are there (+):\n%s", diff)
				}
			})
		})
	}
}

// An operation is something that clients ask of the service.
type operation struct {
	name    string
	status  int // of success
	request func(client int) *http.Request
}

// forEachOperation runs a test for each operation, on a database of each kind with
// a user and a product.
func forEachOperation(t *testing.T, test func(t *testing.T, d *testdb.DB, op operation)) {
	for _, op := range []operation{
		{"create", http.StatusCreated, func(client int) *http.Request {
			r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(fmt.Sprintf(`{"item":"of client %d","qty":1}`, client)))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", fmt.Sprintf("client-%d", client))
			return r
		}},
		{"get", http.StatusOK, func(int) *http.Request { return httptest.NewRequest("GET", "/v1/products/teapot", nil) }},
		{"list", http.StatusOK, func(int) *http.Request { return httptest.NewRequest("GET", "/v1/users", nil) }},
	} {
		t.Run(op.name, func(t *testing.T) {
			testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
				d.Pool.SetMaxOpenConns(1)
				store := sqlstore.New(d.Pool, nil)
				if err := store.Users.Put(t.Context(), storefront.MustResource("ada", nil)); err != nil {
					t.Fatal(err)
				}
				if err := store.Products.Put(t.Context(), storefront.MustResource("teapot", nil)); err != nil {
					t.Fatal(err)
				}
				test(t, d, op)
			})
		})
	}
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
	conn, err := d.Pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range begin {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if _, err := conn.ExecContext(t.Context(), end); err != nil {
			t.Fatal(err)
		}
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

// A shop is a service over HTTP.
type shop struct {
	*httptest.Server
	db *sql.DB
}

// serve serves a database through a pool of its own.
func serve(t *testing.T, d *testdb.DB, tap sqltap.Tap, opts *sqlstore.Options) *shop {
	t.Helper()
	db := sqltap.Open(t, d.Driver, d.URL, tap)
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	server := httptest.NewServer(storefront.NewWithOptions(sqlstore.New(db, opts), &storefront.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))}))
	t.Cleanup(server.Close)
	server.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = clients
	return &shop{server, db}
}

// An answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// do makes the request of a client.
func (s *shop) do(op operation, client int) (a answer) {
	r := op.request(client)
	r.RequestURI = ""
	r.URL.Scheme, r.URL.Host = "http", s.Listener.Addr().String()
	response, err := s.Client().Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	a.status, a.header = response.StatusCode, response.Header
	a.body, a.err = io.ReadAll(response.Body)
	return a
}

// retry makes the request of a client until it is answered with another status
// than 503. It does not wait in between, as a client should.
func (s *shop) retry(op operation, client int) answer {
	for {
		if a := s.do(op, client); a.status != http.StatusServiceUnavailable {
			return a
		}
	}
}

// checkUnavailable checks a refusal.
func (a *answer) checkUnavailable(t *testing.T) {
	t.Helper()
	var problem struct{ Type string }
	json.Unmarshal(a.body, &problem)
	if a.err != nil || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" ||
		a.header.Get("Content-Type") != "application/problem+json" || problem.Type != "urn:problem-type:storefront:unavailable" {
		t.Errorf("the answer is %d, %v, %v\n%s\nwant 503 with Retry-After and a problem document", a.status, a.err, a.header, a.body)
	}
}

// checkSuccess checks that the answer is what was asked for. If that is an order,
// checkSuccess returns it and puts it down as acknowledged.
func (a *answer) checkSuccess(t *testing.T, op operation, acknowledged map[string]string) (order storefront.Order) {
	t.Helper()
	if a.err != nil || a.status != op.status {
		t.Errorf("the answer is %d, %v\n%s\nwant %d", a.status, a.err, a.body, op.status)
		return order
	}
	if op.name == "create" {
		if err := json.Unmarshal(a.body, &order); err != nil {
			t.Error(err)
		}
		acknowledged[order.ID] = order.Item
	}
	return order
}
