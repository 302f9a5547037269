package storefront

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
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

// The benchmarks compare the service with two handlers on the same mux. The bare one
// writes one response, whatever is asked for, with no other headers than Content-Type,
// Content-Length and, for reads, ETag and Cache-Control. The other one has a response
// ready for each of the records that are asked for, with all the headers of the service:
// no service of these records can be below it. Both have the slices of the headers ready,
// and read the body of orders. All take turns in the same run, and a ratio is the median
// of the per-turn ratios: what exceeds 1 is the cost of the service.

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

func benchmarkResource(i int) Resource {
	return MustResource(benchmarkID(i), map[string]any{"name": "A name of usual length", "price": i})
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
		return get1("/v1/users?limit=50&after="+usersList.cursor(benchmarkID(i%(benchmarkRecords-60))), "")
	}},
	{"widgets-50", "GET /v2/widgets", func(i int) string {
		return get1("/v2/widgets?limit=50&start="+widgetsList.cursor(benchmarkID(i%(benchmarkRecords-60))), "")
	}},
	{"create", "POST /v1/orders", func(int) string { return post1(newKey) }},
	{"replay", "POST /v1/orders", func(i int) string { return post1("again-" + benchmarkID(i)) }},
}

// benchmarkHandlers returns the handlers for an operation, by what they are.
func benchmarkHandlers(op operation) map[string]http.Handler {
	store := new(MemStore)
	for i := range benchmarkRecords {
		r := benchmarkResource(i)
		store.Users.Put(r)
		store.Products.Put(r)
		store.Widgets.Put(r)
	}
	front := NewWithOptions(store, &Options{MaxAge: 24 * time.Hour})

	// The other handlers write what the service wrote the second time, when there
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
	answer := func(w http.ResponseWriter, r *http.Request, a ready) {
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
	}
	handler := func(answer http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc(op.pattern, answer)
		return mux
	}

	one := record(0)
	bare := ready{status: one.status, body: one.body}
	for _, f := range one.header {
		needed := []string{"Content-Type", "Content-Length", "Etag", "Cache-Control"}
		if slices.Contains(needed, f.name) && (f.name != "Cache-Control" || !strings.HasPrefix(op.pattern, "POST")) {
			bare.header = append(bare.header, f)
		}
	}
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
	return map[string]http.Handler{
		"front": front,
		"bare":  handler(func(w http.ResponseWriter, r *http.Request) { answer(w, r, bare) }),
		"records": handler(func(w http.ResponseWriter, r *http.Request) {
			a, ok := records[name(r)]
			if !ok {
				a = one // of an order that is new
			}
			answer(w, r, a)
		}),
	}
}

// benchmarked are the handlers, in the sequence in which they take turns.
var benchmarked = []string{"bare", "records", "front"}

// turns are the times that the handlers took, turn by turn.
type turns map[string][]float64

// report writes the mean time of each handler per request, and the ratios.
func (took turns) report(b *testing.B, requests int, unit string) {
	b.ReportMetric(0, "ns/op")
	for _, kind := range benchmarked {
		sum := 0.0
		for _, t := range took[kind] {
			sum += t
		}
		b.ReportMetric(sum/float64(len(took[kind])*requests), kind+unit)
	}
	ratio := func(to string) float64 {
		ratios := make([]float64, len(took[to]))
		for i, t := range took["front"] {
			ratios[i] = t / took[to][i]
		}
		slices.Sort(ratios)
		return ratios[len(ratios)/2]
	}
	b.ReportMetric(ratio("bare"), "ratio")
	b.ReportMetric(ratio("records"), "records-ratio")
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
			took.report(b, len(requests), "-ns")
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

// BenchmarkSocket measures the CPU time per request of whole server processes,
// user and system time of all threads, over loopback connections. The servers
// run on one core and the clients on another. It needs Linux and taskset.
func BenchmarkSocket(b *testing.B) {
	if _, err := exec.LookPath("taskset"); err != nil || runtime.GOOS != "linux" || runtime.NumCPU() < 2 {
		b.Skip("this takes Linux, taskset and two cores")
	}
	for _, op := range operations {
		b.Run(op.name, func(b *testing.B) {
			servers := make(map[string]*serverProcess)
			for _, kind := range benchmarked {
				servers[kind] = startServer(b, op, kind)
			}
			const rounds, requests = 15, 20_000
			took := turns{}
			for b.Loop() {
				for round := range rounds + 1 {
					for _, kind := range benchmarked {
						s := servers[kind]
						before := s.cpuTime(b)
						s.load(b, requests)
						if round > 0 { // the first one is a warm-up
							took[kind] = append(took[kind], float64(s.cpuTime(b)-before))
						}
					}
				}
			}
			took.report(b, requests, "-cpu-ns")
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
// the address.
func runServer(name, kind string) {
	op := operations[slices.IndexFunc(operations, func(op operation) bool { return op.name == name })]
	handler := benchmarkHandlers(op)[kind]
	runtime.GC()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go http.Serve(listener, handler)
	io.Copy(io.Discard, os.Stdin)
}

type serverProcess struct {
	pid      int
	requests [][]byte
	conns    []net.Conn
	sent     int
}

// startServer starts a server on core 0, and moves this process to core 1.
func startServer(b *testing.B, op operation, kind string) *serverProcess {
	b.Helper()
	move := exec.Command("taskset", "-acp", "1", strconv.Itoa(os.Getpid()))
	if out, err := move.CombinedOutput(); err != nil {
		b.Skipf("taskset: %v\n%s", err, out)
	}
	cmd := exec.Command("taskset", "-c", "0", os.Args[0])
	cmd.Env = append(os.Environ(), "STOREFRONT_BENCHMARK_SERVER="+op.name+"/"+kind, "GOMAXPROCS=1")
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
	for i := range benchmarkRecords {
		s.requests = append(s.requests, []byte(op.request(i)))
	}
	var address string
	if _, err := fmt.Fscanln(stdout, &address); err != nil {
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

// load sends requests over all connections, not in the sequence of their records, and
// reads the responses.
func (s *serverProcess) load(b *testing.B, requests int) {
	var wg sync.WaitGroup
	each := requests / len(s.conns)
	for i, conn := range s.conns {
		first := s.sent + i*each
		wg.Go(func() {
			in := bufio.NewReader(conn)
			var out []byte
			for n := first; n < first+each; n++ {
				out = append(out[:0], s.requests[n*6151%len(s.requests)]...)
				if at := bytes.Index(out, []byte(newKey)); at >= 0 {
					copy(out[at:], fmt.Sprintf("%0*d", len(newKey), n))
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
	s.sent += requests
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
