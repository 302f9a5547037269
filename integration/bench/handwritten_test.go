package bench

import (
	"bufio"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// BenchmarkHandwritten compares the service on a sqlstore with a program as people
// write it: net/http, encoding/json and a transaction for each order. Both have the
// same driver, the same settings and pools of the same size (on SQLite, the handwritten
// program has one connection that writes, beside those that read), and serve callers that
// send each request as soon as the one before is answered, over connections of
// their own from this process. They take turns in the same run. "ratio" is the
// median of what the service's throughput is of the handwritten program's in each
// pair of turns; the p99s are of all requests.
func BenchmarkHandwritten(b *testing.B) {
	for _, engine := range []struct {
		name string
		open func(b *testing.B) (d *testdb.DB, handwritten pools)
	}{
		{"SQLite", func(b *testing.B) (*testdb.DB, pools) {
			d := testdb.New(b, "sqlite", testdb.SQLiteFile(b))
			// It has one connection that writes, as is usual advice: orders then wait
			// for each other in the program and not in SQLite, which is faster. And as it
			// does not try again, SQLite has to where the service also writes.
			writing := *d
			writing.URL = strings.Replace(d.URL, "busy_timeout(100)", "busy_timeout(10000)", 1) + "&_txlock=immediate"
			one := writing.Connect(b)
			one.SetMaxOpenConns(1)
			return d, pools{writes: one, reads: servingPool(b, d)}
		}},
		{"PostgreSQL", func(b *testing.B) (*testdb.DB, pools) {
			d := testdb.New(b, "pgx", dbserver.Postgres.DurableDatabase(b))
			db := servingPool(b, d)
			return d, pools{db, db}
		}},
		{"MariaDB", func(b *testing.B) (*testdb.DB, pools) {
			d := testdb.New(b, "mysql", dbserver.MariaDB.DurableDatabase(b))
			db := servingPool(b, d)
			return d, pools{db, db}
		}},
	} {
		b.Run(engine.name, func(b *testing.B) {
			d, db := engine.open(b)
			fillForBenchmark(b, d)
			fillHandwritten(b, d, db.writes)
			handwritten, front := handwrittenProgram(d, db), storefront.New(sqlstore.New(servingPool(b, d), nil))
			for _, op := range []struct{ name, handwritten, front string }{
				{"create", post1(newKey), post1(newKey)},
				{"get", get1("/v1/products/p00000007", ""), get1("/v1/products/p00000007", "")},
				{"list", get1("/v1/users?limit=50&after=u00000049", ""),
					get1("/v1/users?limit=50&after="+nextThatNames("/v1/users?limit=2", "u00000049"), "")},
			} {
				b.Run(op.name, func(b *testing.B) {
					for _, callers := range []int{1, 16, 256} {
						b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
							takeTurns(b, callers,
								&contender{name: "handwritten", send: sender(b, handwritten, op.handwritten, callers)},
								&contender{name: "service", send: sender(b, front, op.front, callers)})
						})
					}
				})
			}
		})
	}
}

// A pools has the connections of the handwritten program.
type pools struct{ writes, reads *sql.DB }

// A contender is one of two programs that are compared.
type contender struct {
	name  string
	send  func(caller int) error // a request, and wait for the answer
	took  []time.Duration        // each request, of all turns
	rates []float64              // requests per second, of each turn
}

// takeTurns lets two programs serve callers in turns.
func takeTurns(b *testing.B, callers int, first, second *contender) {
	const turns, duration = 11, 250 * time.Millisecond
	sides := []*contender{first, second}
	for _, c := range sides {
		closedLoop(b, callers, duration, c.send)
	}
	for b.Loop() {
		for range turns {
			for _, c := range sides {
				each, all := closedLoop(b, callers, duration, c.send)
				c.took = append(c.took, each...)
				c.rates = append(c.rates, float64(len(each))/all.Seconds())
			}
			slices.Reverse(sides) // neither is always the first
		}
	}
	ratios := make([]float64, len(first.rates))
	for i := range ratios {
		ratios[i] = second.rates[i] / first.rates[i]
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratios), "ratio")
	for _, c := range []*contender{first, second} {
		b.ReportMetric(median(c.rates), c.name+"-req/s")
		b.ReportMetric(p99(c.took), c.name+"-p99-ms")
	}
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

// sender returns a function that makes a request over the connection of a caller.
func sender(b *testing.B, h http.Handler, request string, callers int) func(caller int) error {
	b.Helper()
	server := httptest.NewServer(h)
	b.Cleanup(server.Close)
	type connection struct {
		net.Conn
		in *bufio.Reader
	}
	connections := make([]connection, callers)
	for i := range connections {
		conn := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(b)
		b.Cleanup(func() { conn.Close() })
		connections[i] = connection{conn, bufio.NewReader(conn)}
	}
	return func(caller int) error {
		c := connections[caller]
		if _, err := c.Write(newRequest(request)); err != nil {
			return err
		}
		return skipResponse(c.in)
	}
}

// servingPool returns a pool of connections as durable has it.
func servingPool(b *testing.B, d *testdb.DB) *sql.DB {
	b.Helper()
	connections := 20
	if d.Driver == "sqlite" {
		connections = 4
	}
	db := d.Connect(b)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// closedLoop has callers call, each again as soon as its call has returned, until
// some time has passed. It returns how long each of the calls took, and all of it.
func closedLoop(b *testing.B, callers int, during time.Duration, call func(caller int) error) (each []time.Duration, all time.Duration) {
	b.Helper()
	took := make([][]time.Duration, callers)
	begin := time.Now()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for start := begin; start.Sub(begin) < during; {
				if err := call(caller); err != nil {
					b.Error(err)
					return
				}
				end := time.Now()
				took[caller] = append(took[caller], end.Sub(start))
				start = end
			}
		})
	}
	wg.Wait()
	all = time.Since(begin)
	return slices.Concat(took...), all
}

// p99 returns the time, in milliseconds, that all but one of a hundred calls took at
// most.
func p99(took []time.Duration) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[(len(took)*99-1)/100].Seconds() * 1000
}

func fillForBenchmark(b *testing.B, d *testdb.DB) {
	b.Helper()
	type fields struct {
		Name  string `json:"name"`
		Price int    `json:"price"`
	}
	var users, products []storefront.Resource
	for i := range 1000 {
		users = append(users, storefront.MustResource(fmt.Sprintf("u%08d", i), fields{"A name of usual length", i}))
		products = append(products, storefront.MustResource(fmt.Sprintf("p%08d", i), fields{"A name of usual length", i}))
	}
	store := sqlstore.New(d.Pool, nil)
	if err := errors.Join(store.Users.Put(b.Context(), users...), store.Products.Put(b.Context(), products...)); err != nil {
		b.Fatal(err)
	}
}

// newRequest returns a request with a new key, if it has one.
func newRequest(request string) []byte {
	before, after, keyed := strings.Cut(request, newKey)
	if keyed {
		request = before + rand.Text() + after
	}
	return []byte(request)
}

// skipResponse reads a response, and returns an error unless it is a success or a 304.
func skipResponse(in *bufio.Reader) error {
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 && res.StatusCode != http.StatusNotModified {
		err = fmt.Errorf("the server answered %s: %s", res.Status, body)
	}
	return err
}

func fillHandwritten(b *testing.B, d *testdb.DB, db *sql.DB) {
	b.Helper()
	for _, statement := range []string{
		`CREATE TABLE users (id VARCHAR(255) PRIMARY KEY, name TEXT NOT NULL, price BIGINT NOT NULL)`,
		`CREATE TABLE products (id VARCHAR(255) PRIMARY KEY, name TEXT NOT NULL, price BIGINT NOT NULL)`,
		`CREATE TABLE orders (id VARCHAR(255) PRIMARY KEY, item TEXT NOT NULL, qty BIGINT NOT NULL, created_at VARCHAR(40) NOT NULL)`,
		`CREATE TABLE idempotency_keys (value VARCHAR(255) PRIMARY KEY, order_id VARCHAR(255) NOT NULL REFERENCES orders (id))`,
	} {
		must.Get(db.Exec(statement))(b)
	}
	tx := must.Get(db.Begin())(b)
	defer tx.Rollback()
	for i := range 1000 { // as in fillForBenchmark
		_, err1 := tx.Exec(d.SQL(`INSERT INTO users VALUES ($1, $2, $3)`), fmt.Sprintf("u%08d", i), "A name of usual length", i)
		_, err2 := tx.Exec(d.SQL(`INSERT INTO products VALUES ($1, $2, $3)`), fmt.Sprintf("p%08d", i), "A name of usual length", i)
		must.OK(b, errors.Join(err1, err2))
	}
	must.OK(b, tx.Commit())
}

// handwrittenProgram is the program as people write it.
func handwrittenProgram(d *testdb.DB, db pools) http.Handler {
	var (
		replay = d.SQL(`SELECT o.id, o.item, o.qty, o.created_at FROM idempotency_keys k JOIN orders o ON o.id = k.order_id
			WHERE k.value = $1`)
		insert    = d.SQL(`INSERT INTO orders (id, item, qty, created_at) VALUES ($1, $2, $3, $4)`)
		insertKey = d.SQL(`INSERT INTO idempotency_keys (value, order_id) VALUES ($1, $2)`)
		product   = d.SQL(`SELECT id, name, price FROM products WHERE id = $1`)
		users     = d.SQL(`SELECT id, name, price FROM users WHERE id > $1 ORDER BY id LIMIT $2`)
	)
	type thing struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		Price int64  `json:"price"`
	}
	fail := func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusInternalServerError) }
	reply := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/orders", func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		var order storefront.Order
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil || key == "" || order.Item == "" || order.Qty < 1 {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		ctx := r.Context()
		tx, err := db.writes.BeginTx(ctx, nil)
		if err != nil {
			fail(w, err)
			return
		}
		defer tx.Rollback()
		var createdAt string
		err = tx.QueryRowContext(ctx, replay, key).Scan(&order.ID, &order.Item, &order.Qty, &createdAt)
		switch {
		case err == nil:
			order.CreatedAt, _ = time.Parse(time.RFC3339Nano, createdAt)
			reply(w, http.StatusCreated, order)
			return
		case !errors.Is(err, sql.ErrNoRows):
			fail(w, err)
			return
		}
		order.ID, order.CreatedAt = "ord_"+rand.Text(), time.Now().UTC()
		if _, err := tx.ExecContext(ctx, insert,
			order.ID, order.Item, order.Qty, order.CreatedAt.Format(time.RFC3339Nano)); err != nil {
			fail(w, err)
			return
		}
		if _, err := tx.ExecContext(ctx, insertKey, key, order.ID); err != nil {
			fail(w, err)
			return
		}
		if err := tx.Commit(); err != nil {
			fail(w, err)
			return
		}
		reply(w, http.StatusCreated, order)
	})
	mux.HandleFunc("GET /v1/products/{id}", func(w http.ResponseWriter, r *http.Request) {
		var p thing
		err := db.reads.QueryRowContext(r.Context(), product, r.PathValue("id")).Scan(&p.ID, &p.Name, &p.Price)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			http.NotFound(w, r)
		case err != nil:
			fail(w, err)
		default:
			reply(w, http.StatusOK, p)
		}
	})
	mux.HandleFunc("GET /v1/users", func(w http.ResponseWriter, r *http.Request) {
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil || limit < 1 {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		rows, err := db.reads.QueryContext(r.Context(), users, r.URL.Query().Get("after"), limit+1)
		if err != nil {
			fail(w, err)
			return
		}
		defer rows.Close()
		page := struct {
			Data    []thing `json:"data"`
			HasMore bool    `json:"has_more"`
		}{Data: []thing{}}
		for rows.Next() {
			var u thing
			if err := rows.Scan(&u.ID, &u.Name, &u.Price); err != nil {
				fail(w, err)
				return
			}
			page.Data = append(page.Data, u)
		}
		if err := rows.Err(); err != nil {
			fail(w, err)
			return
		}
		if page.HasMore = len(page.Data) > limit; page.HasMore {
			page.Data = page.Data[:limit]
		}
		reply(w, http.StatusOK, page)
	})
	return mux
}
