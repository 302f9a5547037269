package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"example.com/storefront/integration/internal/sqltap"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// BenchmarkService compares the service on a sqlstore with a bare program: plain
// handlers that send the same SQL through the same pool and write the rows out,
// without checks, ETags and retries. The two take turns in the same run, and
// "ratio" is the median of what the service's throughput is of the bare program's
// in each pair of turns: what is missing to 1 is the cost of the service. Requests
// come over loopback connections from this process; "handlers" is without HTTP, one
// request at a time.
func BenchmarkService(b *testing.B) {
	for _, engine := range []struct {
		name string
		open func(testing.TB) *testdb.DB
	}{
		{"SQLite", func(t testing.TB) *testdb.DB {
			// The bare program does not try again, so SQLite has to.
			patient := strings.Replace(testdb.SQLiteFile(t), "busy_timeout(100)", "busy_timeout(30000)", 1)
			return testdb.New(t, "sqlite", patient)
		}},
		{"PostgreSQL", func(t testing.TB) *testdb.DB { return testdb.New(t, "pgx", dbserver.Postgres.DurableDatabase(t)) }},
		{"MariaDB", func(t testing.TB) *testdb.DB { return testdb.New(t, "mysql", dbserver.MariaDB.DurableDatabase(t)) }},
	} {
		b.Run(engine.name, func(b *testing.B) {
			d := engine.open(b)
			fillForBenchmark(b, d)
			front := storefront.New(sqlstore.New(d.Pool, nil))
			bare := bareProgram(d.Pool, queriesOf(b, d))
			for _, op := range []struct{ name, request string }{
				{"create", "POST /v1/orders HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nIdempotency-Key: KEY\r\nContent-Length: 25\r\n\r\n" + `{"item":"teapot","qty":2}`},
				{"get", "GET /v1/products/p00000007 HTTP/1.1\r\nHost: a\r\n\r\n"},
				{"list", "GET /v1/users?limit=50&after=" + cursor(b, front) + " HTTP/1.1\r\nHost: a\r\n\r\n"},
			} {
				b.Run(op.name, func(b *testing.B) {
					for _, clients := range []int{1, 16} {
						b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
							compare(b, overHTTP(b, bare, op.request, clients), overHTTP(b, front, op.request, clients))
						})
					}
					b.Run("handlers", func(b *testing.B) {
						compare(b, handlerAlone(b, bare, op.request), handlerAlone(b, front, op.request))
					})
				})
			}
		})
	}
}

// compare lets the bare program and the service take turns of n requests.
func compare(b *testing.B, bare, front func(n int)) {
	const turns, least = 151, 10 * time.Millisecond
	sides := [2]func(int){bare, front}
	n := 16 // so many that a turn of the bare program takes long enough to measure
	for took := time.Duration(0); took < least && !b.Failed(); n *= 2 {
		start := time.Now()
		bare(n)
		took = time.Since(start)
	}
	front(n)
	var ratios []float64
	var total [2]time.Duration
	for b.Loop() {
		for turn := range turns {
			var took [2]time.Duration
			for i := range sides {
				side := (i + turn) % 2 // neither is always the first
				start := time.Now()
				sides[side](n)
				took[side] = time.Since(start)
				total[side] += took[side]
			}
			ratios = append(ratios, float64(took[0])/float64(took[1]))
		}
	}
	slices.Sort(ratios)
	requests := float64(len(ratios) * n)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(total[0].Microseconds())/requests, "bare-µs")
	b.ReportMetric(float64(total[1].Microseconds())/requests, "service-µs")
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
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

// A queries is the SQL that a sqlstore sends.
type queries struct{ create, get, list string }

func queriesOf(b *testing.B, d *testdb.DB) queries {
	b.Helper()
	recorder := new(sqltap.Recorder)
	store := sqlstore.New(sqltap.Open(b, d.Driver, d.URL, recorder.Tap), nil)
	_, err1 := store.CreateOrder(b.Context(), storefront.IdempotencyKey{Value: "first"}, storefront.Order{ID: "first", Item: "teapot", Qty: 2, CreatedAt: time.Now()})
	_, err2 := store.GetProduct(b.Context(), "p00000007")
	_, err3 := store.ListUsers(b.Context(), "", 51)
	if err := errors.Join(err1, err2, err3); err != nil {
		b.Fatal(err)
	}
	sent := recorder.Take()
	only := func(text string) string { // a store may send more than these, such as to ask which engine it is
		i := slices.IndexFunc(sent, func(s sqltap.Statement) bool { return strings.Contains(s.Query, text) })
		if i < 0 {
			b.Fatalf("three calls sent %v, none of them with %s", sent, text)
		}
		return sent[i].Query
	}
	return queries{only("INSERT INTO storefront_orders"), only("FROM storefront_products"), only("FROM storefront_users")}
}

// cursor returns the cursor of the second page of users. The bare program takes it
// for an ID, and the users after it are as many.
func cursor(b *testing.B, front http.Handler) string {
	b.Helper()
	w := httptest.NewRecorder()
	front.ServeHTTP(w, httptest.NewRequest("GET", "/v1/users?limit=50", nil))
	var page struct{ Next string }
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || page.Next == "" {
		b.Fatalf("a page of users: %v\n%s", err, w.Body)
	}
	return page.Next
}

// bareProgram is what a program without the service would do at least.
func bareProgram(db *sql.DB, queries queries) http.Handler {
	reply := func(w http.ResponseWriter, status int, body []byte, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		w.Write(body)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/orders", func(w http.ResponseWriter, r *http.Request) {
		var order storefront.Order
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			reply(w, 0, nil, err)
			return
		}
		order.ID, order.CreatedAt = "ord_"+rand.Text(), time.Now().UTC()
		key, fingerprint := sha256.Sum256([]byte(r.Header.Get("Idempotency-Key"))), sha256.Sum256([]byte(order.Item))
		_, err := db.ExecContext(r.Context(), queries.create, order.ID, order.Item, order.Qty,
			order.CreatedAt.UnixMilli(), []byte{}, key[:], fingerprint[:])
		body := fmt.Appendf(nil, `{"id":%q,"item":%q,"qty":%d,"created_at":%q}`, order.ID, order.Item, order.Qty, order.CreatedAt.Format(time.RFC3339Nano))
		reply(w, http.StatusCreated, body, err)
	})
	mux.HandleFunc("GET /v1/products/{id}", func(w http.ResponseWriter, r *http.Request) {
		var id, body []byte
		err := db.QueryRowContext(r.Context(), queries.get, []byte(r.PathValue("id"))).Scan(&id, &body)
		reply(w, http.StatusOK, body, err)
	})
	mux.HandleFunc("GET /v1/users", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		limit, _ := strconv.Atoi(query.Get("limit"))
		rows, err := db.QueryContext(r.Context(), queries.list, []byte(query.Get("after")), limit+1)
		if err != nil {
			reply(w, 0, nil, err)
			return
		}
		defer rows.Close()
		body, n := []byte(`{"data":[`), 0
		var id, user sql.RawBytes
		for ; rows.Next() && err == nil; n++ {
			err = rows.Scan(&id, &user)
			if n < limit {
				body = append(append(body, user...), ',')
			}
		}
		body = fmt.Appendf(bytes.TrimSuffix(body, []byte(",")), `],"has_more":%t}`, n > limit)
		reply(w, http.StatusOK, body, errors.Join(err, rows.Err()))
	})
	return mux
}

// newRequest returns a request with a new key, if it has one.
func newRequest(request string) []byte {
	before, after, keyed := strings.Cut(request, "KEY")
	if keyed {
		request = before + rand.Text() + after
	}
	return []byte(request)
}

// overHTTP returns a function that makes n requests, over as many connections as
// there are clients.
func overHTTP(b *testing.B, h http.Handler, request string, clients int) func(n int) {
	send := sender(b, h, request, clients)
	return func(n int) {
		var wg sync.WaitGroup
		for client := range clients {
			wg.Go(func() {
				for range n / clients {
					if err := send(client); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// skipResponse reads a response, much cheaper than net/http does, and returns an
// error unless it is a success.
func skipResponse(in *bufio.Reader) error {
	var status string
	length, chunked := 0, false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if status == "" {
			status = line
		}
		if value, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(value))
		}
		chunked = chunked || line == "Transfer-Encoding: chunked\r\n"
		if line == "\r\n" {
			break
		}
	}
	if !strings.HasPrefix(status, "HTTP/1.1 2") {
		body, _ := io.ReadAll(io.LimitReader(in, int64(length)))
		return fmt.Errorf("the server answered %s%s", status, body)
	}
	for chunked {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(strings.TrimSpace(line), 16, 31)
		if err != nil {
			return err
		}
		if _, err := in.Discard(int(size) + len("\r\n")); err != nil {
			return err
		}
		chunked = size > 0
	}
	_, err := in.Discard(length)
	return err
}

// handlerAlone returns a function that calls the handler n times.
func handlerAlone(b *testing.B, h http.Handler, request string) func(n int) {
	ctx, cancel := context.WithCancel(context.Background()) // what database/sql watches, as in a server
	b.Cleanup(cancel)
	return func(n int) {
		for range n {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(newRequest(request))))
			if err != nil {
				b.Fatal(err)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.WithContext(ctx))
			if w.Code/100 != 2 {
				b.Fatalf("the handler answered %d: %s", w.Code, w.Body)
			}
		}
	}
}
