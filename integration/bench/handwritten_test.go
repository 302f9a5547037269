package bench

import (
	"bufio"
	"context"
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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/sqlite"
	"example.com/storefront/sqlstore"
)

// BenchmarkHandwritten compares the service on a sqlstore with a program as people
// write it: net/http, encoding/json and a transaction for each order. Both have the
// same driver, the same settings and pools of the same size (on SQLite, the handwritten
// program has one connection), and serve callers that send each order as soon as the one
// before is answered, over connections of their own from this process. They take turns in the same run. "ratio" is the
// median of what the service's throughput is of the handwritten program's in each
// pair of turns.
func BenchmarkHandwritten(b *testing.B) {
	for _, engine := range []struct {
		name string
		open func(b *testing.B) (d *testdb.DB, handwritten *sql.DB)
	}{
		{"SQLite", func(b *testing.B) (*testdb.DB, *sql.DB) {
			d := testdb.New(b, "sqlite", testdb.SQLiteFile(b))
			// It has one connection that writes, as is usual advice: orders then wait
			// for each other in the program and not in SQLite, which is faster. And as it
			// does not try again, SQLite has to where the service also writes.
			writing := *d
			writing.URL = strings.Replace(d.URL, "busy_timeout(100)", "busy_timeout(10000)", 1) + "&_txlock=immediate"
			one := writing.Connect(b)
			one.SetMaxOpenConns(1)
			return d, one
		}},
		{"PostgreSQL", func(b *testing.B) (*testdb.DB, *sql.DB) {
			d := testdb.New(b, "pgx", dbserver.Postgres.Start(b).DSN())
			return d, servingPool(b, d)
		}},
		{"MariaDB", func(b *testing.B) (*testdb.DB, *sql.DB) {
			d := testdb.New(b, "mysql", dbserver.MariaDB.Start(b).DSN())
			return d, servingPool(b, d)
		}},
	} {
		b.Run(engine.name, func(b *testing.B) {
			d, db := engine.open(b)
			d.Exec(b, `CREATE TABLE orders (id VARCHAR(255) PRIMARY KEY, item TEXT NOT NULL, qty BIGINT NOT NULL,
				created_at VARCHAR(40) NOT NULL)`, `CREATE TABLE idempotency_keys (value VARCHAR(255) PRIMARY KEY,
				order_id VARCHAR(255) NOT NULL REFERENCES orders (id))`)
			handwritten, front := handwrittenProgram(d, db), storefront.New(sqlstore.New(servingPool(b, d), nil))
			for _, callers := range []int{1, 16, 256} {
				b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
					takeTurns(b, callers, sender(b, handwritten, callers), sender(b, front, callers))
				})
			}
		})
	}
}

// takeTurns lets two programs serve callers in turns.
func takeTurns(b *testing.B, callers int, handwritten, service func(caller int) error) {
	const turns, duration = 11, 250 * time.Millisecond
	closedLoop(b, callers, duration, handwritten)
	closedLoop(b, callers, duration, service)
	var theirs, ours, ratios []float64 // requests per second
	for b.Loop() {
		for range turns {
			their := closedLoop(b, callers, duration, handwritten)
			our := closedLoop(b, callers, duration, service)
			theirs, ours, ratios = append(theirs, their), append(ours, our), append(ratios, our/their)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(theirs), "handwritten-req/s")
	b.ReportMetric(median(ours), "service-req/s")
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

// sender returns a function that sends a new order over the connection of a caller.
func sender(b *testing.B, h http.Handler, callers int) func(caller int) error {
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
		if _, err := io.WriteString(c, post1(rand.Text())); err != nil {
			return err
		}
		res, err := http.ReadResponse(c.in, nil)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode != http.StatusCreated {
			err = fmt.Errorf("the server answered %s: %s", res.Status, body)
		}
		return err
	}
}

// servingPool returns a pool of connections as storefrontd has it.
func servingPool(b *testing.B, d *testdb.DB) *sql.DB {
	b.Helper()
	const connections = 20
	if d.Driver == "sqlite" { // with its looks at the file and the room on the disk
		file, _, _ := strings.Cut(strings.TrimPrefix(d.URL, "file:"), "?")
		db := must.Get(sqlite.Open(file, nil))(b)
		b.Cleanup(func() { db.Close() })
		return db.DB
	}
	db := d.Connect(b)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// closedLoop has callers call, each again as soon as its call has returned, until some time has passed. It
// returns how many calls there were in a second.
func closedLoop(b *testing.B, callers int, during time.Duration, call func(caller int) error) float64 {
	b.Helper()
	var calls atomic.Int64
	begin := time.Now()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for time.Since(begin) < during {
				if err := call(caller); err != nil {
					b.Error(err)
					return
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(calls.Load()) / time.Since(begin).Seconds()
}

// handwrittenProgram is the program as people write it, as far as it creates orders.
func handwrittenProgram(d *testdb.DB, db *sql.DB) http.Handler {
	var (
		replay = d.SQL(`SELECT o.id, o.item, o.qty, o.created_at FROM idempotency_keys k JOIN orders o ON o.id = k.order_id
			WHERE k.value = $1`)
		insert    = d.SQL(`INSERT INTO orders (id, item, qty, created_at) VALUES ($1, $2, $3, $4)`)
		insertKey = d.SQL(`INSERT INTO idempotency_keys (value, order_id) VALUES ($1, $2)`)
	)
	create := func(ctx context.Context, key string, order *storefront.Order) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var createdAt string
		err = tx.QueryRowContext(ctx, replay, key).Scan(&order.ID, &order.Item, &order.Qty, &createdAt)
		if err == nil {
			order.CreatedAt, err = time.Parse(time.RFC3339Nano, createdAt)
			return err
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		order.ID, order.CreatedAt = "ord_"+rand.Text(), time.Now().UTC()
		if _, err := tx.ExecContext(ctx, insert,
			order.ID, order.Item, order.Qty, order.CreatedAt.Format(time.RFC3339Nano)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertKey, key, order.ID); err != nil {
			return err
		}
		return tx.Commit()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/orders", func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		var order storefront.Order
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil || key == "" || order.Item == "" || order.Qty < 1 {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		if err := create(r.Context(), key, &order); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(order)
	})
	return mux
}
