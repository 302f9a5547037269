package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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

// benchmarkRecords is how many of each kind there are, and how many different requests.
const benchmarkRecords = 10_000

// An operation is a kind of requests to benchmark.
type operation struct {
	name    string
	request func(i int) string // as on the wire
}

func get1(target, lines string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n"
}

func post1(key string) string { return post1As(key, `{"item":"teapot","qty":  2}`) }

func post1As(key, body string) string {
	return "POST /v1/orders HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nIdempotency-Key: " + key +
		"\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

func benchmarkID(i int) string { return fmt.Sprintf("%08d", i) }

func benchmarkResource(i int) storefront.Resource {
	return storefront.MustResource(benchmarkID(i), map[string]any{"name": "A name of usual length", "price": i})
}

var operations = []operation{
	{"product", func(i int) string { return get1("/v1/products/"+benchmarkID(i), "") }},
	{"product-304", func(i int) string {
		return get1("/v1/products/"+benchmarkID(i), "If-None-Match: "+benchmarkResource(i).ETag()+"\r\n")
	}},
	{"product-cached", func(i int) string {
		return get1("/v1/products/"+benchmarkID(i), "Cache-Control: max-age=86400\r\n")
	}},
	{"users-50", func(i int) string {
		return get1("/v1/users?limit=50&after="+nextThatNames("/v1/users?limit=2", benchmarkID(i%(benchmarkRecords-60))), "")
	}},
	{"widgets-50", func(i int) string {
		return get1("/v2/widgets?limit=50&start="+nextThatNames("/v2/widgets?limit=1", benchmarkID(i%(benchmarkRecords-60))), "")
	}},
	{"order", func(i int) string { return get1("/v1/orders/"+benchmarkOrderID(i), "") }},
	{"orders-50", func(i int) string {
		return get1("/v1/orders?limit=50&after="+nextThatNames("/v1/orders?limit=2", benchmarkOrderID(60+i%(benchmarkRecords-60))), "")
	}},
	{"create", func(int) string { return post1("new") }},
	{"create-fields", func(int) string {
		return post1As("new", `{"item":"teapot","qty":2,"fields":{"address":{"name":"Ada Lovelace","street":"12 St James's Square",`+
			`"zip":"SW1Y 4JH","city":"London","country":"GB"},"note":"Ring twice."}}`)
	}},
	{"replay", func(i int) string { return post1("again-" + benchmarkID(i)) }},
}

func benchmarkOrderID(i int) string { return "ord_" + benchmarkID(i) }

func benchmarkOrder(ctx context.Context, store storefront.Store, id string) error {
	key := storefront.IdempotencyKey{Scope: benchmarkScope(nil), Value: id}
	_, err := store.CreateOrder(ctx, key, storefront.Order{ID: id, Item: "teapot", Qty: 2, CreatedAt: time.UnixMilli(1e12).UTC()})
	return err
}

func benchmarkScope(*http.Request) string { return "account" }

func readRequest(text string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		panic(err)
	}
	return r
}

// A discarder is an http.ResponseWriter that keeps nothing.
type discarder http.Header

func (d discarder) Header() http.Header               { return http.Header(d) }
func (d discarder) WriteHeader(int)                   {}
func (d discarder) Write(b []byte) (int, error)       { return len(b), nil }
func (d discarder) WriteString(s string) (int, error) { return len(s), nil }

// BenchmarkHandler measures the service alone on a MemStore, with a thousand different requests.
func BenchmarkHandler(b *testing.B) {
	for _, op := range operations {
		b.Run(op.name, func(b *testing.B) {
			store := new(storefront.MemStore)
			for i := range benchmarkRecords {
				r := benchmarkResource(i)
				store.Users.Put(r)
				store.Products.Put(r)
				store.Widgets.Put(r)
			}
			opts := &storefront.Options{MaxAge: 24 * time.Hour, OrderFields: true}
			if strings.HasPrefix(op.name, "order") {
				for i := range benchmarkRecords {
					must.OK(b, benchmarkOrder(b.Context(), store, benchmarkOrderID(i)))
				}
				opts.Orders, opts.Scope = store, benchmarkScope
			}
			serveAll(b, op, storefront.NewWithOptions(store, opts))
		})
	}
}

// BenchmarkReads measures the service on a sqlstore: how long a read takes, with one caller.
func BenchmarkReads(b *testing.B) {
	for _, engine := range []struct {
		name string
		open func(b *testing.B) *testdb.DB
	}{
		{"SQLite", func(b *testing.B) *testdb.DB { return testdb.New(b, "sqlite", testdb.SQLiteFile(b)) }},
		{"PostgreSQL", func(b *testing.B) *testdb.DB { return testdb.New(b, "pgx", dbserver.Postgres.Database(b)) }},
		{"MariaDB", func(b *testing.B) *testdb.DB { return testdb.New(b, "mysql", dbserver.MariaDB.Database(b)) }},
		{"MySQL", func(b *testing.B) *testdb.DB { return testdb.New(b, "mysql", dbserver.MySQL.Database(b)) }},
	} {
		b.Run(engine.name, func(b *testing.B) {
			store := sqlstore.New(servingPool(b, engine.open(b)), &sqlstore.Options{OrderLists: true})
			must.OK(b, store.Migrate(b.Context()))
			var resources []storefront.Resource
			for i := range benchmarkRecords {
				resources = append(resources, benchmarkResource(i))
			}
			must.OK(b, errors.Join(store.Users.Put(b.Context(), resources...), store.Products.Put(b.Context(), resources...)))
			var wg sync.WaitGroup
			for caller := range 64 {
				wg.Go(func() {
					for i := caller; i < benchmarkRecords; i += 64 {
						if err := benchmarkOrder(b.Context(), store, benchmarkOrderID(i)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			front := storefront.NewWithOptions(store,
				&storefront.Options{Orders: store.OrderReader(), Scope: benchmarkScope})
			for _, op := range operations {
				switch op.name {
				case "product", "order", "users-50", "orders-50":
					b.Run(op.name, func(b *testing.B) { serveAll(b, op, front) })
				}
			}
		})
	}
}

// serveAll has a handler serve requests of a kind, again and again.
func serveAll(b *testing.B, op operation, front http.Handler) {
	_, payload, _ := strings.Cut(op.request(0), "\r\n\r\n")
	body := strings.NewReader("")
	posted := io.NopCloser(body)
	w := discarder{}
	serve := func(r *http.Request) {
		if r.Method == http.MethodPost {
			body.Reset(payload)
			r.Body = posted
		}
		if strings.HasPrefix(op.name, "create") { // a new key, for two allocations
			r.Header["Idempotency-Key"] = []string{strconv.FormatUint(rand.Uint64(), 36)}
		}
		clear(w)
		front.ServeHTTP(w, r)
	}
	requests := make([]*http.Request, 1000)
	for i := range requests {
		requests[i] = readRequest(op.request(i * 7 % benchmarkRecords))
		serve(requests[i]) // of which some then have an order, or a product in memory
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		serve(requests[i%len(requests)])
	}
}

// nextThatNames returns the cursor that names this ID: the next of page, which is a list
// with two users or one widget.
func nextThatNames(page, id string) string {
	if next, ok := named.Load(page + id); ok {
		return next.(string)
	}
	store := new(storefront.MemStore)
	for _, id := range []string{"!", id, id + "0"} {
		store.Users.Put(storefront.MustResource(id, nil))
		store.Widgets.Put(storefront.MustResource(id, nil))
		if err := benchmarkOrder(context.Background(), store, id); err != nil {
			panic(err)
		}
	}
	w := httptest.NewRecorder()
	opts := &storefront.Options{Orders: store, Scope: benchmarkScope}
	storefront.NewWithOptions(store, opts).ServeHTTP(w, httptest.NewRequest("GET", page, nil))
	var answer struct{ Next string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Next == "" {
		panic(w.Body.String())
	}
	named.Store(page+id, answer.Next)
	return answer.Next
}

var named sync.Map // what nextThatNames has returned
