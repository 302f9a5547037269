package storefront

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// A rawConn is a client's side of a connection, for what http.Client does not
// send.
type rawConn struct {
	net.Conn
	in *bufio.Reader
}

// listen serves h until the test is over and its connections are closed.
func listen(t *testing.T, h http.Handler) *httptest.Server {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func dial(t *testing.T, server *httptest.Server) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &rawConn{conn, bufio.NewReader(conn)}
}

// receive reads one response, an interim one included.
func (c *rawConn) receive(t *testing.T, method string) response {
	t.Helper()
	result, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(result.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{result.StatusCode, result.Header, string(body)}
}

// All come over one connection, which stays open: each response ends where it says.
func TestResponsesOverASocketAreThoseOfTheHandler(t *testing.T) {
	h := quiet(newTrialStore())
	server := listen(t, h)
	conn := dial(t, server)
	for _, r := range trials() {
		head := r.method + " " + r.target + " HTTP/1.1\r\nHost: example.com\r\n"
		for _, line := range r.lines {
			head += line + "\r\n"
		}
		fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", head, len(r.body), r.body)
		got := conn.receive(t, r.method)
		for _, name := range []string{"Date", "Connection"} {
			got.header.Del(name)
		}
		if diff := r.send(h).diff(got); diff != "" {
			t.Errorf("%v, -handler +socket:\n%s", r, diff)
		}
		if r.status == 413 { // the server closes it, as the body was not read
			conn = dial(t, server)
		}
	}
}

func TestOrdersOverASocket(t *testing.T) {
	const (
		asJSON  = "POST /v1/orders HTTP/1.1\r\nContent-Type: application/json\r\n"
		withKey = asJSON + "Idempotency-Key: k\r\n"
		chunked = withKey + "Transfer-Encoding: chunked"
	)
	chunks := func(body string, size int) string {
		var b strings.Builder
		for c := range slices.Chunk([]byte(body), size) {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(c), c)
		}
		return b.String() + "0\r\n\r\n"
	}
	exact := teapots + strings.Repeat(" ", 64<<10-len(teapots))
	for _, row := range []struct {
		name, head, body string
		status           int
		code             string
	}{
		{"chunked", chunked, chunks(teapots, 1), 201, ""},
		{"chunked and 64 KiB", chunked, chunks(exact, 1<<20), 201, ""},
		{"chunked and too large", chunked, chunks(exact+" ", 1<<20), 413, "body-too-large"},
		{"chunked and malformed", chunked, "zz\r\n", 400, "malformed-body"},
		{"cut off", withKey + "Content-Length: 26", teapots, 400, "malformed-body"},
		{"refused for its media type, and so not asked for", "POST /v1/orders HTTP/1.1\r\nContent-Type: text/plain\r\nIdempotency-Key: k\r\nExpect: 100-continue\r\nContent-Length: 9", "", 415, "unsupported-media-type"},
		{"refused for its key, and so not asked for", asJSON + "Expect: 100-continue\r\nContent-Length: 9", "", 400, "idempotency-key-missing"},
		{"refused for its size, and so not asked for", withKey + "Expect: 100-continue\r\nContent-Length: 65537", "", 413, "body-too-large"},
		{"refused for its method, and so not asked for", "PUT /v1/orders HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9", "", 405, "method-not-allowed"},
		{"refused for its path, and so not asked for", "POST /v1/order HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9", "", 404, "not-found"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var store MemStore
			h := New(&store)
			conn := dial(t, listen(t, h))
			fmt.Fprint(conn, row.head+"\r\nHost: example.com\r\n\r\n"+row.body)
			if row.name == "cut off" {
				conn.Conn.(*net.TCPConn).CloseWrite()
			}
			got := conn.receive(t, "POST")
			if row.code != "" {
				got.wantProblem(t, row.status, row.code)
				wantFreeKey(t, h)
				return
			}
			again := postOrder(h, "k", teapots)
			if got.status != row.status || again.body != got.body || again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("status %d with %s, and then %s, want the same order", got.status, got.body, again.body)
			}
		})
	}
	t.Run("asked for", func(t *testing.T) {
		conn := dial(t, listen(t, New(new(MemStore))))
		fmt.Fprintf(conn, "%sHost: example.com\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", withKey, len(teapots))
		conn.receive(t, "POST").wantStatus(t, 100)
		fmt.Fprint(conn, teapots)
		conn.receive(t, "POST").wantStatus(t, 201)
	})
}

// Each body arrives in part; what comes meanwhile is answered.
func TestSlowClientsHoldUpNobody(t *testing.T) {
	h := quiet(newTrialStore())
	body, client := io.Pipe()
	slow := make(chan response)
	go func() { slow <- do(h, newOrderRequest("slow", body)) }()
	io.WriteString(client, teapots[:9]) // is over when the handler has read it
	for _, r := range trials() {
		r.send(h).wantStatus(t, r.status)
	}
	io.WriteString(client, teapots[9:])
	client.Close()
	(<-slow).wantStatus(t, http.StatusCreated)
}

// An arrivalWriter records how much of the body was there when the header was
// written.
type arrivalWriter struct {
	*httptest.ResponseRecorder
	body   *countingReader
	atHead int
}

func (w *arrivalWriter) WriteHeader(status int) {
	w.atHead = w.body.n
	w.ResponseRecorder.WriteHeader(status)
}

type countingReader struct {
	io.Reader
	n int
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n += n
	return n, err
}

// A proxy that is still writing a request may lose the answer.
func TestAnswersComeAfterTheBody(t *testing.T) {
	const size = 60_000
	for _, test := range []struct {
		name           string
		method, target string
		declared       int64
		size           int
		line           string
		want           int // bytes read before the answer
	}{
		{"an order of another media type", "POST", "/v1/orders", size, size, "Content-Type: text/plain", size},
		{"an order without a key", "POST", "/v1/orders", size, size, "Content-Type: application/json", size},
		{"an order with a query", "POST", "/v1/orders?a=b", size, size, "Content-Type: application/json", size},
		{"an order in chunks", "POST", "/v1/orders", -1, size, "Content-Type: text/plain", size},
		{"another method", "PUT", "/v1/orders", size, size, "Accept: */*", size},
		{"another path", "POST", "/v1/nothing", size, size, "Accept: */*", size},
		{"an unclean path", "POST", "//v1/orders", size, size, "Accept: */*", size},
		{"a method that no one knows", "BREW", "/v1/orders", size, size, "Accept: */*", size},
		{"a refused read with a body", "GET", "/v1/users?limit=0", 2, 2, "Accept: */*", 2},
		{"a read with a body", "GET", "/v1/users", size, size, "Accept: */*", size},
		{"a read that is not modified", "GET", "/v1/users", size, size, "If-None-Match: *", size},
		{"a refused read in endless chunks, of which 64 KiB are read", "GET", "/v1/users?limit=0", -1, 1 << 20, "Accept: */*", 64 << 10},
		{"OPTIONS with a body", "OPTIONS", "/v1/users", size, size, "Accept: */*", size},
		{"exactly 64 KiB", "PUT", "/v1/orders", 64 << 10, 64 << 10, "Accept: */*", 64 << 10},
		{"a declared byte more, of which nothing is read", "PUT", "/v1/orders", 64<<10 + 1, 64<<10 + 1, "Accept: */*", 0},
		{"endless chunks, of which 64 KiB are read", "PUT", "/v1/orders", -1, 1 << 20, "Accept: */*", 64 << 10},
		{"a client that waits for 100 Continue", "PUT", "/v1/orders", size, size, "Expect: 100-continue", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := &countingReader{Reader: strings.NewReader(strings.Repeat("x", test.size))}
			r := httptest.NewRequest(test.method, test.target, io.NopCloser(body))
			r.ContentLength = test.declared
			name, value, _ := strings.Cut(test.line, ": ")
			r.Header.Set(name, value)
			w := &arrivalWriter{httptest.NewRecorder(), body, -1}
			quiet(new(MemStore)).ServeHTTP(w, r)
			if w.atHead != test.want || body.n != test.want {
				t.Errorf("status %d after %d bytes of the body, and %d in the end, want %d", w.Code, w.atHead, body.n, test.want)
			}
		})
	}
}

// A pipeListener accepts the other ends of net.Pipe, where nothing is on the way:
// who writes waits for the reader.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// A client that writes before it reads and a server that answers before it has
// read, over a connection that is closed afterwards (HTTP/1.0, as many proxies
// have it), would wait for each other.
func TestRefusalReachesAClientThatWritesBeforeItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(pipeListener)
		server := &http.Server{Handler: quiet(new(MemStore))}
		go server.Serve(l)
		ours, theirs := net.Pipe()
		l <- theirs
		fmt.Fprintf(ours, "POST /v1/orders HTTP/1.0\r\nContent-Type: text/plain\r\nContent-Length: 60000\r\n\r\n%s", strings.Repeat("x", 60_000))
		result, err := http.ReadResponse(bufio.NewReader(ours), nil)
		if err != nil || result.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%v, %v, want 415", result, err)
		}
		ours.Close()
		close(l)
	})
}

// Over HTTP/2, net/http hides from handlers that the client waits for 100 Continue,
// and sends it when the body is read. The promise is that the answer arrives.
func TestRefusalOverHTTP2Arrives(t *testing.T) {
	server := httptest.NewUnstartedServer(quiet(new(MemStore)))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for _, line := range []string{"Accept: */*", "Expect: 100-continue"} {
		r, err := http.NewRequest("POST", server.URL+"/v1/orders", strings.NewReader(strings.Repeat("x", 60_000)))
		if err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
		result, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		result.Body.Close()
		if result.ProtoMajor != 2 || result.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %s %s, want 415 over HTTP/2", line, result.Proto, result.Status)
		}
	}
}
