package storefront

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront/internal/must"
	"example.com/storefront/internal/pipes"
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
		waiting = "Expect: 100-continue\r\nContent-Length: "
	)
	exact := teapots + strings.Repeat(" ", 64<<10-len(teapots))
	chunk := func(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }
	for _, row := range []struct {
		head, body string
		status     int
		code       string
	}{
		{chunked, chunk(exact), 201, ""},
		{chunked, chunk(exact + " "), 413, "body-too-large"},
		{chunked, "zz\r\n", 400, "malformed-body"},
		{withKey + "Content-Length: 26", teapots, 400, "malformed-body"}, // cut off
		// These are refused for what their heads say, and so not asked for their bodies.
		{"POST /v1/orders HTTP/1.1\r\nContent-Type: text/plain\r\n" + waiting + "9", "", 415,
			"unsupported-media-type"},
		{asJSON + waiting + "9", "", 400, "idempotency-key-missing"},
		{withKey + waiting + "65537", "", 413, "body-too-large"},
		{"PUT /v1/orders HTTP/1.1\r\n" + waiting + "9", "", 405, "method-not-allowed"},
		{"POST /v1/order HTTP/1.1\r\n" + waiting + "9", "", 404, "not-found"},
	} {
		h := New(new(MemStore))
		conn := dial(t, listen(t, h))
		fmt.Fprint(conn, row.head+"\r\nHost: example.com\r\n\r\n"+row.body)
		if row.body == teapots {
			conn.Conn.(*net.TCPConn).CloseWrite()
		}
		got := conn.receive(t, "POST")
		if row.code == "" {
			got.wantStatus(t, row.status)
		} else {
			got.wantProblem(t, row.status, row.code)
			wantFreeKey(t, h)
		}
	}
	conn := dial(t, listen(t, New(new(MemStore))))
	fmt.Fprintf(conn, "%s%s%d\r\nHost: example.com\r\n\r\n", withKey, waiting, len(teapots))
	conn.receive(t, "POST").wantStatus(t, 100)
	fmt.Fprint(conn, teapots)
	conn.receive(t, "POST").wantStatus(t, 201)
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
	const size, all, any = 60_000, 64 << 10, "Accept: */*"
	for _, test := range []struct {
		method, target string
		declared       int64
		size           int
		line           string
		want           int // bytes read before the answer
	}{
		{"POST", "/v1/orders", size, size, "Content-Type: text/plain", size},
		{"POST", "/v1/orders", size, size, "Content-Type: application/json", size}, // without a key
		{"POST", "/v1/orders?a=b", size, size, "Content-Type: application/json", size},
		{"POST", "/v1/orders", -1, size, "Content-Type: text/plain", size},
		{"PUT", "/v1/orders", size, size, any, size},
		{"POST", "/v1/nothing", size, size, any, size},
		{"POST", "//v1/orders", size, size, any, size},
		{"BREW", "/v1/orders", size, size, any, size},
		{"GET", "/v1/users?limit=0", 2, 2, any, 2},
		{"GET", "/v1/users", size, size, any, size},
		{"GET", "/v1/users", size, size, "If-None-Match: *", size},
		{"GET", "/v1/users?limit=0", -1, 1 << 20, any, all}, // of endless chunks
		{"OPTIONS", "/v1/users", size, size, any, size},
		{"PUT", "/v1/orders", all, all, any, all},
		{"PUT", "/v1/orders", all + 1, all + 1, any, 0},
		{"PUT", "/v1/orders", -1, 1 << 20, any, all},
		{"PUT", "/v1/orders", size, size, "Expect: 100-continue", 0},
	} {
		body := &countingReader{Reader: strings.NewReader(strings.Repeat("x", test.size))}
		r := newRequest(test.method, test.target, "", test.line)
		r.Body, r.ContentLength = io.NopCloser(body), test.declared
		w := &arrivalWriter{httptest.NewRecorder(), body, -1}
		quiet(new(MemStore)).ServeHTTP(w, r)
		if w.atHead != test.want || body.n != test.want {
			t.Errorf("%+v: %d after %d bytes, and %d in the end", test, w.Code, w.atHead, body.n)
		}
	}
}

// overAPipe has server answer a request that comes over a pipe.
func overAPipe(t *testing.T, server *http.Server, request string) *http.Response {
	t.Helper()
	l := pipes.Listen()
	go server.Serve(l)
	ours := must.Get(l.Dial(t.Context(), "", ""))(t)
	t.Cleanup(func() { ours.Close(); l.Close() })
	io.WriteString(ours, request)
	return must.Get(http.ReadResponse(bufio.NewReader(ours), nil))(t)
}

// A client that writes before it reads and a server that answers before it has
// read, over a connection that is closed afterwards (HTTP/1.0, as many proxies
// have it), would wait for each other.
func TestRefusalReachesAClientThatWritesBeforeItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result := overAPipe(t, &http.Server{Handler: quiet(new(MemStore))}, "POST /v1/orders HTTP/1.0\r\n"+
			"Content-Type: text/plain\r\nContent-Length: 60000\r\n\r\n"+strings.Repeat("x", 60_000))
		if result.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("status %d, want 415", result.StatusCode)
		}
	})
}

func TestOrderBodyThatDoesNotArriveInTheServersReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &http.Server{Handler: New(new(MemStore)), ReadTimeout: 15 * time.Second}
		began := time.Now()
		result := overAPipe(t, server,
			"POST /v1/orders HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 100\r\n"+
				"Content-Type: application/json\r\nIdempotency-Key: k\r\n\r\n"+`{"item":"teapot"`)
		took := time.Since(began)
		if result.StatusCode != http.StatusRequestTimeout || !result.Close || took != server.ReadTimeout {
			t.Errorf("status %d, close %t, after %v, want 408, true, %v", result.StatusCode, result.Close,
				took, server.ReadTimeout)
		}
		wantFreeKey(t, server.Handler)
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
		r, err := http.NewRequest("POST", server.URL+"/v1/orders",
			strings.NewReader(strings.Repeat("x", 60_000)))
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
