package fronts

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"example.com/storefront"
	"example.com/storefront/internal/must"
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

// byCGI returns the program that a front starts for each request: this test binary.
func byCGI(t *testing.T, _ *front, dir string) string {
	executable := must.Get(os.Executable())(t)
	binary, err := os.ReadFile(executable)
	program := filepath.Join(dir, "shop.cgi")
	must.OK(t, errors.Join(err, os.WriteFile(program, binary, 0o755)))
	return program
}

// serveByCGI is the handler of that program. It also answers the question whether it is there.
func serveByCGI(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		w.WriteHeader(http.StatusOK)
		return
	}
	store := new(storefront.MemStore)
	for _, id := range []string{"a", "b", "c"} {
		store.Users.Put(storefront.MustResource(id, nil))
	}
	storefront.New(store).ServeHTTP(w, r)
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
