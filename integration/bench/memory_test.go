package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"example.com/storefront"
	"example.com/storefront/internal/must"
)

// A memoryBody is a body of a certain size that could cost much.
type memoryBody struct {
	name string
	text func(size int) string
}

var memoryBodies = []memoryBody{
	{"arrays", func(size int) string { return strings.Repeat("[", size) }},
	{"objects", func(size int) string { return fill("", `{"a":`, "", size) }},
	{"allowed", func(size int) string { // as deep as a value may be
		return fill(`{"item":"teapot","qty":2,"a":`+strings.Repeat("[", 990)+strings.Repeat("]", 990), " ", "}", size)
	}},
	{"pairs", func(size int) string { return fill(`{"a":[1`, ",[[]]", "]}", size) }},
	{"turns", func(size int) string { return fill(`{"a":`+strings.Repeat(`[{"b":`, 450), " ", "", size) }},
	{"escapes", func(size int) string { return fill(`{"item":"`, `\u00e9`, `"}`, size) }},
	{"members", func(size int) string {
		var b strings.Builder
		b.WriteString(`{"a":1`)
		for i := 0; b.Len() < size-16; i++ {
			fmt.Fprintf(&b, `,"%s":1`, strconv.FormatInt(int64(i), 36))
		}
		return fill(b.String(), " ", "}", size)
	}},
	{"number", func(size int) string { return fill(`{"item":"teapot","qty":2.`, "0", "1}", size) }},
	{"no-JSON", func(size int) string { return strings.Repeat("x", size) }},
}

// plainBody is an order.
var plainBody = memoryBody{"plain", func(size int) string { return fill(`{"item":"teapot","qty":2`, " ", "}", size) }}

// fill repeats unit between start and end, up to a size.
func fill(start, unit, end string, size int) string {
	return start + strings.Repeat(unit, max(0, size-len(start)-len(end))/len(unit)) + end
}

// BenchmarkMemory measures the resident memory of a server process for each of 1,000 connections that have
// each sent three bodies and are kept. The bodies are those of orders, or texts of which the program makes
// resources. "ratio" is to orders of the same size that are as they should be. It needs Linux.
func BenchmarkMemory(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("this takes /proc")
	}
	for _, target := range []string{"/v1/orders", "/new", "/unmarshal", "/load"} {
		for _, size := range []int{2_500, 10_000, 64 << 10} {
			plain := 0.0
			for _, body := range append([]memoryBody{plainBody}, memoryBodies...) {
				b.Run(fmt.Sprintf("%s/%d/%s", path.Base(target), size, body.name), func(b *testing.B) {
					took := 0.0
					text := body.text(size)
					if target != "/v1/orders" {
						text = strings.Replace(text, `"item"`, `"id"`, 1) // which a resource has
					}
					for b.Loop() {
						took = residentPerConnection(b, target, text)
					}
					if body.name == plainBody.name {
						plain = took
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(took/1024, "KiB/conn")
					if plain > 0 {
						b.ReportMetric(took/plain, "ratio")
					}
				})
			}
		}
	}
}

// TestMain lets the test binary also run as the server of BenchmarkMemory. It prints the address, and
// serves until standard input ends.
func TestMain(m *testing.M) {
	if os.Getenv("STOREFRONT_BENCHMARK_SERVER") == "" {
		os.Exit(m.Run())
	}
	handler := memoryHandler()
	runtime.GC()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go http.Serve(listener, handler)
	io.Copy(io.Discard, os.Stdin)
}

// residentPerConnection returns how much of a new server's memory is resident, in bytes, for each of
// 1,000 connections that have sent a body three times.
func residentPerConnection(b *testing.B, target, body string) float64 {
	const connections, times, callers = 1000, 3, 16
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STOREFRONT_BENCHMARK_SERVER=memory")
	cmd.Stderr = os.Stderr
	stdin := must.Get(cmd.StdinPipe())(b)
	stdout := must.Get(cmd.StdoutPipe())(b)
	must.OK(b, cmd.Start())
	defer cmd.Wait()
	defer stdin.Close()
	var address string
	must.Get(fmt.Fscanln(stdout, &address))(b)
	before := resident(b, cmd.Process.Pid)
	var conns [connections]net.Conn
	var calling sync.WaitGroup
	for caller := range callers {
		calling.Go(func() {
			for i := caller; i < connections; i += callers {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					b.Error(err)
					return
				}
				conns[i] = conn
				in := bufio.NewReader(conn)
				for range times {
					_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"+
						"Idempotency-Key: %d\r\nContent-Length: %d\r\n\r\n%s", target, i, len(body), body)
					if err == nil {
						err = dropResponse(in)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	calling.Wait()
	after := resident(b, cmd.Process.Pid)
	for _, conn := range conns {
		if conn != nil {
			conn.Close()
		}
	}
	return float64(after-before) / connections
}

func dropResponse(in *bufio.Reader) error {
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// resident returns the resident memory of a process, in bytes.
func resident(b *testing.B, pid int) int64 {
	b.Helper()
	status := string(must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(b))
	_, text, _ := strings.Cut(status, "VmRSS:")
	var kB int64
	must.Get(fmt.Sscan(text, &kB))(b)
	return kB << 10
}

// memoryHandler is the service, and a program that makes resources of what it is sent.
func memoryHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", storefront.New(new(storefront.MemStore)))
	handle := func(path string, use func(text []byte) error) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			if err == nil {
				err = use(text)
			}
			fmt.Fprint(w, err == nil)
		})
	}
	handle("/new", func(text []byte) error {
		_, err := storefront.NewResource("r", json.RawMessage(text))
		return err
	})
	handle("/unmarshal", func(text []byte) error { return new(storefront.Resource).UnmarshalJSON(text) })
	handle("/load", func(text []byte) error {
		return new(storefront.MemStore).Load(strings.NewReader(`{"users":[` + string(text) + `]}`))
	})
	return mux
}
