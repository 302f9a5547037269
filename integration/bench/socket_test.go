package bench

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront/internal/must"
)

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

// TestMain lets the test binary also run as the server of BenchmarkSocket. Before benchmarks,
// it prints what benchstat needs to tell machines apart, and go test does not print.
func TestMain(m *testing.M) {
	if name, kind, ok := strings.Cut(os.Getenv("STOREFRONT_BENCHMARK_SERVER"), "/"); ok {
		runServer(name, kind)
		return
	}
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() != "" {
		fmt.Printf("cores: %d\nflush: %v\n", runtime.NumCPU(), flushTime())
	}
	os.Exit(m.Run())
}

// flushTime returns how long it takes to write 4 KiB to the end of a file, where the databases
// are, and have the disk keep them: the median.
func flushTime() time.Duration {
	f, err := os.CreateTemp("", "flush-")
	if err != nil {
		panic(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var took []float64
	for range 301 {
		start := time.Now()
		f.Write(make([]byte, 4096))
		f.Sync()
		took = append(took, float64(time.Since(start)))
	}
	return time.Duration(median(took))
}

// runServer serves one side of an operation until standard input ends. It prints
// the address.
func runServer(name, kind string) {
	var handler http.Handler
	if name == "memory" {
		handler = memoryHandler()
	} else {
		op := operations[slices.IndexFunc(operations, func(op operation) bool { return op.name == name })]
		handler = benchmarkHandlers(op)[kind]
	}
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
	stdin := must.Get(cmd.StdinPipe())(b)
	stdout := must.Get(cmd.StdoutPipe())(b)
	must.OK(b, cmd.Start())
	s := &serverProcess{pid: cmd.Process.Pid}
	for i := range benchmarkRecords {
		s.requests = append(s.requests, []byte(op.request(i)))
	}
	var address string
	must.Get(fmt.Fscanln(stdout, &address))(b)
	for range 16 {
		conn := must.Get(net.Dial("tcp", address))(b)
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

// cpuTime returns the CPU time that the threads of the process have used.
func (s *serverProcess) cpuTime(b *testing.B) (used time.Duration) {
	b.Helper()
	for _, thread := range must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.pid)))(b) {
		text := must.Get(os.ReadFile(thread))(b)
		used += time.Duration(must.Get(strconv.ParseInt(strings.Fields(string(text))[0], 10, 64))(b))
	}
	if used == 0 {
		b.Fatal("no schedstat of the server")
	}
	return used
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
