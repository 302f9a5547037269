package storefront

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The benchmarks compare the service with the leanest handler that net/http
// permits, on the same mux: it reads the body of orders, and writes the same bytes
// with no other headers than Content-Type, Content-Length and, for reads, ETag and
// Cache-Control, whose slices it has ready. The two take turns in the same run, and
// "ratio" is the median of the per-turn ratios: what exceeds 1 is the cost of the
// service.

// An operation is a request to benchmark.
type operation struct {
	name    string
	pattern string
	request string // as on the wire, with KEY for a key that is new each time
}

var operations = []operation{
	{"product", "GET /v1/products/{product_id}", "GET /v1/products/p00000007 HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"product-304", "GET /v1/products/{product_id}", "GET /v1/products/p00000007 HTTP/1.1\r\nHost: a\r\nIf-None-Match: ETAG\r\n\r\n"},
	{"product-cached", "GET /v1/products/{product_id}", "GET /v1/products/p00000007 HTTP/1.1\r\nHost: a\r\nCache-Control: max-age=3600\r\n\r\n"},
	{"users-50", "GET /v1/users", "GET /v1/users?limit=50 HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"widgets-50", "GET /v2/widgets", "GET /v2/widgets?limit=50&start=START HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"create", "POST /v1/orders", "POST /v1/orders HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nIdempotency-Key: KEY\r\nContent-Length: 27\r\n\r\n" + `{"item":"teapot","qty":  2}`},
	{"replay", "POST /v1/orders", "POST /v1/orders HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nIdempotency-Key: again\r\nContent-Length: 27\r\n\r\n" + `{"item":"teapot","qty":  2}`},
}

// benchmarkHandlers returns the service and the bare handler for an operation,
// and its request.
func benchmarkHandlers(op operation) (front, bare http.Handler, request string) {
	type fields struct {
		Name  string `json:"name"`
		Price int    `json:"price"`
	}
	store := new(MemStore)
	for i := range 1000 {
		n := fmt.Sprintf("%08d", i)
		store.Users.Put(MustResource("u"+n, fields{"A name of usual length", i}))
		store.Products.Put(MustResource("p"+n, fields{"A name of usual length", i}))
		store.Widgets.Put(MustResource("w"+n, fields{"A name of usual length", i}))
	}
	product, _ := store.Products.Get("p00000007")
	front = NewWithOptions(store, &Options{MaxAge: time.Hour})
	request = strings.NewReplacer("ETAG", product.ETag(), "START", widgetsList.cursor("w00000500")).Replace(op.request)

	// The bare handler writes what the service wrote the second time, when there
	// is an order to replay and a product in the cache.
	var recorded *httptest.ResponseRecorder
	for range 2 {
		recorded = httptest.NewRecorder()
		front.ServeHTTP(recorded, readRequest(strings.ReplaceAll(request, "KEY", "first")))
	}
	body, status := recorded.Body.Bytes(), recorded.Code
	header := make(http.Header)
	for _, name := range []string{"Content-Type", "Content-Length", "Etag", "Cache-Control"} {
		if values, ok := recorded.Header()[name]; ok && (name != "Cache-Control" || !strings.HasPrefix(op.pattern, "POST")) {
			header[name] = values
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc(op.pattern, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			io.Copy(io.Discard, r.Body)
		}
		maps.Copy(w.Header(), header)
		w.WriteHeader(status)
		if len(body) > 0 {
			w.Write(body)
		}
	})
	return front, mux, request
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

// BenchmarkHandler measures the handlers alone.
func BenchmarkHandler(b *testing.B) {
	for _, op := range operations {
		b.Run(op.name, func(b *testing.B) {
			front, bare, text := benchmarkHandlers(op)
			r := readRequest(text)
			_, payload, _ := strings.Cut(text, "\r\n\r\n")
			body := strings.NewReader("")
			if r.Body != http.NoBody {
				r.Body = io.NopCloser(body)
			}
			newKey := op.name == "create"
			w := discarder{}
			serve := func(h http.Handler) {
				body.Reset(payload)
				if newKey {
					r.Header["Idempotency-Key"] = []string{strconv.FormatUint(rand.Uint64(), 36)}
				}
				clear(w)
				h.ServeHTTP(w, r)
			}
			const turn = 200
			ratios, total := []float64{}, [2]time.Duration{}
			for b.Loop() {
				var took [2]time.Duration
				for i, h := range []http.Handler{bare, front} {
					start := time.Now()
					for range turn {
						serve(h)
					}
					took[i] = time.Since(start)
					total[i] += took[i]
				}
				ratios = append(ratios, float64(took[1])/float64(took[0]))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(total[0].Nanoseconds())/float64(len(ratios)*turn), "bare-ns")
			b.ReportMetric(float64(total[1].Nanoseconds())/float64(len(ratios)*turn), "front-ns")
			b.ReportMetric(median(ratios), "ratio")
			own := 0.0
			if newKey {
				own = 2 // the key and its header
			}
			b.ReportMetric(testing.AllocsPerRun(1000, func() { serve(bare) })-own, "bare-allocs")
			b.ReportMetric(testing.AllocsPerRun(1000, func() { serve(front) })-own, "front-allocs")
		})
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// BenchmarkSocket measures the CPU time per request of whole server processes,
// user and system time of all threads, over loopback connections. The servers
// run on one core and the clients on another. It needs Linux and taskset.
func BenchmarkSocket(b *testing.B) {
	if _, err := exec.LookPath("taskset"); err != nil || runtime.GOOS != "linux" || runtime.NumCPU() < 2 {
		b.Skip("this takes Linux, taskset and two cores")
	}
	for _, op := range operations {
		b.Run(op.name, func(b *testing.B) {
			var servers [2]*serverProcess
			for i, kind := range []string{"bare", "front"} {
				servers[i] = startServer(b, op.name, kind)
			}
			const rounds, requests = 15, 20_000
			ratios, total := []float64{}, [2]time.Duration{}
			for b.Loop() {
				for round := range rounds + 1 {
					var took [2]time.Duration
					for i, s := range servers {
						before := s.cpuTime(b)
						s.load(b, requests)
						took[i] = s.cpuTime(b) - before
					}
					if round == 0 { // a warm-up
						continue
					}
					total[0] += took[0]
					total[1] += took[1]
					ratios = append(ratios, float64(took[1])/float64(took[0]))
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(total[0].Nanoseconds())/float64(len(ratios)*requests), "bare-cpu-ns")
			b.ReportMetric(float64(total[1].Nanoseconds())/float64(len(ratios)*requests), "front-cpu-ns")
			b.ReportMetric(median(ratios), "ratio")
		})
	}
}

// TestMain lets the test binary also run as the server of BenchmarkSocket.
func TestMain(m *testing.M) {
	if name, kind, ok := strings.Cut(os.Getenv("STOREFRONT_BENCHMARK_SERVER"), "/"); ok {
		runServer(name, kind)
		return
	}
	os.Exit(m.Run())
}

// runServer serves one side of an operation until standard input ends. It prints
// the request, quoted, and the address, each on a line.
func runServer(name, kind string) {
	op := operations[slices.IndexFunc(operations, func(op operation) bool { return op.name == name })]
	front, bare, request := benchmarkHandlers(op)
	handler := map[string]http.Handler{"front": front, "bare": bare}[kind]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%q\n%s\n", request, listener.Addr())
	go http.Serve(listener, handler)
	io.Copy(io.Discard, os.Stdin)
}

type serverProcess struct {
	pid     int
	request string
	conns   []net.Conn
	keys    int
}

// startServer starts a server on core 0, and moves this process to core 1.
func startServer(b *testing.B, name, kind string) *serverProcess {
	b.Helper()
	move := exec.Command("taskset", "-acp", "1", strconv.Itoa(os.Getpid()))
	if out, err := move.CombinedOutput(); err != nil {
		b.Skipf("taskset: %v\n%s", err, out)
	}
	cmd := exec.Command("taskset", "-c", "0", os.Args[0])
	cmd.Env = append(os.Environ(), "STOREFRONT_BENCHMARK_SERVER="+name+"/"+kind, "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	s := &serverProcess{pid: cmd.Process.Pid}
	var address string
	if _, err := fmt.Fscanf(stdout, "%q\n%s\n", &s.request, &address); err != nil {
		b.Fatal(err)
	}
	for range 16 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		s.conns = append(s.conns, conn)
	}
	b.Cleanup(func() {
		for _, conn := range s.conns {
			conn.Close()
		}
		stdin.Close()
		cmd.Wait()
	})
	return s
}

// cpuTime returns the CPU time that the process has used.
func (s *serverProcess) cpuTime(b *testing.B) time.Duration {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.pid))
	if err != nil || len(threads) == 0 {
		b.Fatal("no schedstat of the server: ", err)
	}
	var sum time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			b.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// load sends requests over all connections and reads the responses.
func (s *serverProcess) load(b *testing.B, requests int) {
	var wg sync.WaitGroup
	before, after, newKey := strings.Cut(s.request, "KEY")
	each := requests / len(s.conns)
	for i, conn := range s.conns {
		first := s.keys + i*each
		wg.Go(func() {
			in := bufio.NewReader(conn)
			out := []byte(s.request)
			for n := range each {
				if newKey {
					out = append(strconv.AppendInt(append(out[:0], before...), int64(first+n), 10), after...)
				}
				if _, err := conn.Write(out); err != nil {
					b.Error(err)
					return
				}
				if err := skipResponse(in); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	s.keys += requests
}

func skipResponse(in *bufio.Reader) error {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 2")) && !bytes.HasPrefix(line, []byte("HTTP/1.1 304")) {
			return fmt.Errorf("the server answered %s", line)
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
		if len(line) == 2 {
			_, err := in.Discard(length)
			return err
		}
	}
}

// BenchmarkMemStore measures collections of growing sizes, filled in random
// order of ID. It reads a thousand IDs spread over the collection, both directly
// from the store and through the service.
func BenchmarkMemStore(b *testing.B) {
	for _, size := range []int{1_000, 1_000_000, 10_000_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { benchmarkMemStore(b, size) })
	}
}

func benchmarkMemStore(b *testing.B, size int) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	store := new(MemStore)
	newUser := func(n int) Resource {
		return MustResource(fmt.Sprintf("user_%09d", n), map[string]string{"name": "A name of usual length"})
	}
	var putting time.Duration
	order := rand.Perm(size)
	for chunk := range slices.Chunk(order, 1000) {
		users := make([]Resource, len(chunk))
		for i, n := range chunk {
			users[i] = newUser(n)
		}
		start := time.Now()
		for _, user := range users {
			store.Users.Put(user)
		}
		putting += time.Since(start)
	}
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = fmt.Sprintf("user_%09d", order[i*(size/1000)])
	}
	order = nil
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.Run("put", func(b *testing.B) { // has been done above
		b.ReportMetric(float64(putting.Nanoseconds())/float64(size), "ns/op")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(size), "bytes/resource")
	})

	// The users serve as products, too.
	service := New(&stubStore{listUsers: store.ListUsers, getProduct: func(_ context.Context, id string) (Resource, error) {
		user, _ := store.Users.Get(id)
		return user, nil
	}})
	products, pages := make([]*http.Request, len(ids)), make([]*http.Request, len(ids))
	for i, id := range ids {
		products[i] = httptest.NewRequest("GET", "/v1/products/"+id, nil)
		pages[i] = httptest.NewRequest("GET", "/v1/users?limit=50&after="+usersList.cursor(id), nil)
	}
	w := discarder{}
	serve := func(r *http.Request) {
		clear(w)
		service.ServeHTTP(w, r)
	}
	read := func(name string, read func(i int)) {
		b.Run(name, func(b *testing.B) {
			// The cost of garbage collection grows with the heap and would hide
			// what is being measured.
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			for i := 0; b.Loop(); i++ {
				read(i % len(ids))
			}
		})
		runtime.GC()
	}
	read("get", func(i int) { store.Users.Get(ids[i]) })
	read("page-50", func(i int) { store.ListUsers(context.Background(), ids[i], 51) })
	read("service-get", func(i int) { serve(products[i]) })
	read("service-page-50", func(i int) { serve(pages[i]) })

	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		user := newUser(size)
		for {
			select {
			case <-stop:
				return
			default:
				store.Users.Put(user)
			}
		}
	})
	read("get-while-writing", func(i int) { store.Users.Get(ids[i]) })
	close(stop)
	writer.Wait()
}

// BenchmarkMemStoreOrders measures the memory that an order takes.
func BenchmarkMemStoreOrders(b *testing.B) {
	store := new(MemStore)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n := 0
	for b.Loop() {
		n++
		key := IdempotencyKey{Value: fmt.Sprintf("%036d", n)}
		store.CreateOrder(context.Background(), key, Order{ID: fmt.Sprintf("ord_%026d", n), Item: "teapot", Qty: 2})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "bytes/order")
	runtime.KeepAlive(store)
}
