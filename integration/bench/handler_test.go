package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
)

// benchmarkRecords is how many of each kind there are, and how many different requests.
const benchmarkRecords = 10_000

// An operation is a kind of requests to benchmark.
type operation struct {
	name    string
	request func(front http.Handler, i int) string // as on the wire
}

func get1(target, lines string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n"
}

func post1(key string) string {
	const body = `{"item":"teapot","qty":  2}`
	return "POST /v1/orders HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nIdempotency-Key: " + key +
		"\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

func benchmarkID(i int) string { return fmt.Sprintf("%08d", i) }

func benchmarkResource(i int) storefront.Resource {
	return storefront.MustResource(benchmarkID(i), map[string]any{"name": "A name of usual length", "price": i})
}

var operations = []operation{
	{"product", func(_ http.Handler, i int) string { return get1("/v1/products/"+benchmarkID(i), "") }},
	{"product-304", func(_ http.Handler, i int) string {
		return get1("/v1/products/"+benchmarkID(i), "If-None-Match: "+benchmarkResource(i).ETag()+"\r\n")
	}},
	{"product-cached", func(_ http.Handler, i int) string {
		return get1("/v1/products/"+benchmarkID(i), "Cache-Control: max-age=86400\r\n")
	}},
	{"users-50", func(front http.Handler, _ int) string {
		return get1("/v1/users?limit=50&after="+next(front, "/v1/users?limit=500"), "")
	}},
	{"widgets-50", func(front http.Handler, _ int) string {
		return get1("/v2/widgets?limit=50&start="+next(front, "/v2/widgets?limit=500"), "")
	}},
	{"orders-50", func(front http.Handler, _ int) string {
		return get1("/v1/orders?limit=50&after="+next(front, "/v1/orders?limit=500"), "")
	}},
	{"create", func(http.Handler, int) string { return post1("new") }},
	{"replay", func(_ http.Handler, i int) string { return post1("again-" + benchmarkID(i)) }},
}

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
			if op.name == "orders-50" {
				for i := range benchmarkRecords {
					key := storefront.IdempotencyKey{Scope: "account", Value: benchmarkID(i)}
					order := storefront.Order{
						ID: "ord_" + benchmarkID(i), Item: "teapot", Qty: 2, CreatedAt: time.UnixMilli(1e12)}
					must.Get(store.CreateOrder(b.Context(), key, order))(b)
				}
				opts.Orders, opts.Scope = store, func(*http.Request) string { return "account" }
			}
			serveAll(b, op, storefront.NewWithOptions(store, opts))
		})
	}
}

// serveAll has a handler serve requests of a kind, again and again.
func serveAll(b *testing.B, op operation, front http.Handler) {
	_, payload, _ := strings.Cut(op.request(front, 0), "\r\n\r\n")
	body := strings.NewReader("")
	posted := io.NopCloser(body)
	w := discarder{}
	serve := func(r *http.Request) {
		if r.Method == http.MethodPost {
			body.Reset(payload)
			r.Body = posted
		}
		if op.name == "create" { // a new key, for two allocations
			r.Header["Idempotency-Key"] = []string{strconv.FormatUint(rand.Uint64(), 36)}
		}
		clear(w)
		front.ServeHTTP(w, r)
	}
	requests := make([]*http.Request, 1000)
	for i := range requests {
		requests[i] = readRequest(op.request(front, i*7%benchmarkRecords))
		serve(requests[i]) // of which some then have an order, or a product in memory
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		serve(requests[i%len(requests)])
	}
}

// next returns the cursor that a page of the service has for the next one.
func next(front http.Handler, page string) string {
	w := httptest.NewRecorder()
	front.ServeHTTP(w, readRequest(get1(page, "")))
	var answer struct{ Next string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Next == "" {
		panic(w.Body.String())
	}
	return answer.Next
}
