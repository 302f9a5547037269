package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
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
)

// The benchmarks compare the service with a handler on the same mux that has a response ready
// for each of the records that are requested, with all the headers of the service: no service
// of these records can be below it. It reads the body of orders. The two take turns in the
// same run, and a ratio is the median of the ratios of the turns: what exceeds 1 is the cost
// of the service.

// benchmarkRecords is how many of each kind there are, and how many different requests.
const benchmarkRecords = 10_000

// An operation is a kind of requests to benchmark.
type operation struct {
	name    string
	pattern string
	request func(i int) string // as on the wire, with newKey for a key that is new each time
}

const newKey = "KEYKEYKEYKEYKEYK"

func get1(target, lines string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n"
}

func post1(key string) string {
	return "POST /v1/orders HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nIdempotency-Key: " + key +
		"\r\nContent-Length: 27\r\n\r\n" + `{"item":"teapot","qty":  2}`
}

func benchmarkID(i int) string { return fmt.Sprintf("%08d", i) }

func benchmarkResource(i int) storefront.Resource {
	return storefront.MustResource(benchmarkID(i), map[string]any{"name": "A name of usual length", "price": i})
}

var operations = []operation{
	{"product", "GET /v1/products/{product_id}", func(i int) string { return get1("/v1/products/"+benchmarkID(i), "") }},
	{"product-304", "GET /v1/products/{product_id}", func(i int) string {
		return get1("/v1/products/"+benchmarkID(i), "If-None-Match: "+benchmarkResource(i).ETag()+"\r\n")
	}},
	{"product-cached", "GET /v1/products/{product_id}", func(i int) string {
		return get1("/v1/products/"+benchmarkID(i), "Cache-Control: max-age=86400\r\n")
	}},
	{"users-50", "GET /v1/users", func(i int) string {
		return get1("/v1/users?limit=50&after="+nextThatNames("/v1/users?limit=2", benchmarkID(i%(benchmarkRecords-60))), "")
	}},
	{"widgets-50", "GET /v2/widgets", func(i int) string {
		return get1("/v2/widgets?limit=50&start="+nextThatNames("/v2/widgets?limit=1", benchmarkID(i%(benchmarkRecords-60))), "")
	}},
	{"create", "POST /v1/orders", func(int) string { return post1(newKey) }},
	{"replay", "POST /v1/orders", func(i int) string { return post1("again-" + benchmarkID(i)) }},
}

// benchmarkHandlers returns the handlers for an operation, by what they are.
func benchmarkHandlers(op operation) map[string]http.Handler {
	store := new(storefront.MemStore)
	for i := range benchmarkRecords {
		r := benchmarkResource(i)
		store.Users.Put(r)
		store.Products.Put(r)
		store.Widgets.Put(r)
	}
	front := storefront.NewWithOptions(store, &storefront.Options{MaxAge: 24 * time.Hour})

	// The other handler writes what the service wrote the second time, when there
	// is an order to replay and a product in the cache.
	type field struct {
		name   string
		values []string
	}
	type ready struct {
		status int
		header []field
		body   []byte
	}
	record := func(i int) ready {
		var w *httptest.ResponseRecorder
		for range 2 {
			w = httptest.NewRecorder()
			front.ServeHTTP(w, readRequest(op.request(i)))
		}
		a := ready{status: w.Code, body: bytes.Clone(w.Body.Bytes())}
		for name, values := range w.Header() {
			if op.name != "create" || name != "Idempotent-Replayed" {
				a.header = append(a.header, field{name, values})
			}
		}
		return a
	}
	one := record(0)
	name := func(r *http.Request) string { // of the record that r asks for
		if r.Method == http.MethodPost {
			return r.Header.Get("Idempotency-Key")
		}
		return r.RequestURI
	}
	records := make(map[string]ready)
	if op.name != "create" {
		for i := range benchmarkRecords {
			r := readRequest(op.request(i))
			records[name(r)] = record(i)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc(op.pattern, func(w http.ResponseWriter, r *http.Request) {
		a, ok := records[name(r)]
		if !ok {
			a = one // of an order that is new
		}
		if r.Method == http.MethodPost {
			io.Copy(io.Discard, r.Body)
		}
		h := w.Header()
		for _, f := range a.header {
			h[f.name] = f.values
		}
		w.WriteHeader(a.status)
		if len(a.body) > 0 {
			w.Write(a.body)
		}
	})
	return map[string]http.Handler{"service": front, "records": mux}
}

// benchmarked are the handlers, in the sequence in which they take turns.
var benchmarked = []string{"records", "service"}

// turns are the times that the handlers took, turn by turn.
type turns map[string][]float64

// report writes the mean time of each handler per request, and the ratio.
func (took turns) report(b *testing.B, requests int) {
	b.ReportMetric(0, "ns/op")
	for _, kind := range benchmarked {
		sum := 0.0
		for _, t := range took[kind] {
			sum += t
		}
		b.ReportMetric(sum/float64(len(took[kind])*requests), kind+"-ns")
	}
	ratios := make([]float64, len(took["records"]))
	for i, t := range took["service"] {
		ratios[i] = t / took["records"][i]
	}
	b.ReportMetric(median(ratios), "ratio")
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

// BenchmarkHandler measures the handlers alone, with a thousand different requests.
func BenchmarkHandler(b *testing.B) {
	for _, op := range operations {
		b.Run(op.name, func(b *testing.B) {
			handlers := benchmarkHandlers(op)
			requests := make([]*http.Request, 1000)
			for i := range requests {
				requests[i] = readRequest(op.request(i * 7 % benchmarkRecords))
			}
			_, payload, _ := strings.Cut(op.request(0), "\r\n\r\n")
			body := strings.NewReader("")
			posted := io.NopCloser(body)
			w := discarder{}
			serve := func(h http.Handler, r *http.Request) {
				if r.Method == http.MethodPost {
					body.Reset(payload)
					r.Body = posted
				}
				if op.name == "create" {
					r.Header["Idempotency-Key"] = []string{strconv.FormatUint(rand.Uint64(), 36)}
				}
				clear(w)
				h.ServeHTTP(w, r)
			}
			took := turns{}
			for b.Loop() {
				for _, kind := range benchmarked {
					start := time.Now()
					for _, r := range requests {
						serve(handlers[kind], r)
					}
					took[kind] = append(took[kind], float64(time.Since(start)))
				}
			}
			took.report(b, len(requests))
			own := 0.0
			if op.name == "create" {
				own = 2 // the key and its header
			}
			for _, kind := range benchmarked {
				i := 0
				b.ReportMetric(testing.AllocsPerRun(1000, func() {
					serve(handlers[kind], requests[i%len(requests)])
					i++
				})-own, kind+"-allocs")
			}
		})
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
	}
	w := httptest.NewRecorder()
	storefront.New(store).ServeHTTP(w, httptest.NewRequest("GET", page, nil))
	var answer struct{ Next string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Next == "" {
		panic(w.Body.String())
	}
	named.Store(page+id, answer.Next)
	return answer.Next
}

var named sync.Map // what nextThatNames has returned
