package fronts

import (
	"bytes"
	"encoding/gob"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"example.com/storefront"
)

// A behind is how requests come from a front to the service.
type behind func(t *testing.T, f *front, dir string) (address string)

// byHTTP serves f by net/http, at the address.
func byHTTP(t *testing.T, f *front, _ string) string {
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.sever = func() { panic(http.ErrAbortHandler) }
	return server.Listener.Addr().String()
}

// byFastCGI serves f by net/http/fcgi, at the socket with the address.
func byFastCGI(t *testing.T, f *front, dir string) string {
	l := &severing{Listener: listen(t, filepath.Join(dir, "shop.sock"))}
	f.sever = l.sever
	go serveFastCGI(l, f)
	return l.Addr().String()
}

// A severing Listener can close all connections that it has accepted.
type severing struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *severing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return c, err
}

func (l *severing) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

func listen(t *testing.T, socket string) net.Listener {
	l, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(socket, 0o666) // Apache does not run as root
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// byCGI serves f to the program at the address, which is this test binary. Started by a
// front, that reads the request by net/http/cgi and passes it on, as it is, to this process.
func byCGI(t *testing.T, f *front, dir string) string {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(executable)
	program := filepath.Join(dir, "shop.cgi")
	if err := errors.Join(err, os.WriteFile(program, binary, 0o755)); err != nil {
		t.Fatal(err)
	}
	l := listen(t, filepath.Join(dir, "cgi.sock"))
	f.starts, f.sever = true, func() { panic(http.ErrAbortHandler) }
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go f.serveCGI(conn)
		}
	}()
	return program
}

// A cgiRequest has what net/http/cgi has made of a request. Its body follows in chunks, and
// ends with an empty one.
type cgiRequest struct {
	Method, Proto, Host string
	Major, Minor        int
	URL                 *url.URL
	Header              http.Header
	Length              int64
}

type cgiAnswer struct {
	Status int
	Header http.Header
	Body   []byte
}

// passOn is the handler of the CGI program.
func passOn(w http.ResponseWriter, r *http.Request) {
	executable, err := os.Executable()
	if err != nil {
		panic(err)
	}
	conn, err := net.Dial("unix", filepath.Join(filepath.Dir(executable), "cgi.sock"))
	if err != nil {
		panic(err)
	}
	go func() {
		encoder := gob.NewEncoder(conn)
		err := encoder.Encode(cgiRequest{r.Method, r.Proto, r.Host, r.ProtoMajor, r.ProtoMinor, r.URL, r.Header, r.ContentLength})
		for chunk := make([]byte, 4<<10); err == nil; {
			n, readErr := r.Body.Read(chunk)
			if n > 0 {
				err = encoder.Encode(chunk[:n])
			}
			if readErr != nil {
				encoder.Encode([]byte{})
				return
			}
		}
	}()
	var answer cgiAnswer
	if err := gob.NewDecoder(conn).Decode(&answer); err != nil {
		os.Exit(1) // as a program that was killed, without an answer
	}
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.Status)
	w.Write(answer.Body)
}

// serveCGI answers the request that passOn has sent.
func (f *front) serveCGI(conn net.Conn) {
	defer conn.Close()
	defer func() { recover() }() // from sever
	var c cgiRequest
	body := &chunks{decoder: gob.NewDecoder(conn)}
	if body.decoder.Decode(&c) != nil {
		return
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, &http.Request{Method: c.Method, Proto: c.Proto, ProtoMajor: c.Major, ProtoMinor: c.Minor, Host: c.Host,
		URL: c.URL, Header: c.Header, ContentLength: c.Length, Body: io.NopCloser(body)})
	gob.NewEncoder(conn).Encode(cgiAnswer{w.Code, w.Result().Header, w.Body.Bytes()})
}

type chunks struct {
	decoder *gob.Decoder
	rest    []byte
	err     error
}

func (c *chunks) Read(p []byte) (n int, err error) {
	if len(c.rest) == 0 && c.err == nil {
		if c.err = c.decoder.Decode(&c.rest); c.err == nil && len(c.rest) == 0 {
			c.err = io.EOF
		}
	}
	n = copy(p, c.rest)
	c.rest = c.rest[n:]
	if n == 0 {
		return 0, c.err
	}
	return n, nil
}

// gateway is for a service behind FastCGI or CGI.
func gateway(service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if err := recover(); err != nil { // it would end the process
				log.Print("panic: ", err)
				storefront.Problem{Status: http.StatusInternalServerError}.ServeHTTP(w, r)
			}
		}()
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20)) // nginx loses an answer that comes before
		if err != nil {
			storefront.Problem{Status: http.StatusBadRequest}.ServeHTTP(w, r)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.Header()["Content-Type"] = nil // none is guessed for an answer without a body
		service.ServeHTTP(w, r)
	})
}

// serveFastCGI serves until the listener is closed, and returns when all calls have ended.
func serveFastCGI(l net.Listener, service http.Handler) error {
	var calls sync.WaitGroup
	err := fcgi.Serve(l, gateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		defer calls.Done()
		service.ServeHTTP(w, r)
	})))
	calls.Wait()
	return err
}
