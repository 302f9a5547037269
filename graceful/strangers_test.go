package graceful

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront/internal/pipes"
)

// ends are the ways in which a function may end without a return, and what the log then says.
var ends = []struct {
	name string
	end  func()
	says string
}{
	{"panics", func() { panic("out of tea") }, "panicked: out of tea"},
	{"panics with an error", func() { panic(errors.New("no tea")) }, "panicked: no tea"},
	{"panics with ErrAbortHandler", func() { panic(http.ErrAbortHandler) }, "panicked: net/http: abort Handler"},
	{"panics with an error that panics", func() { panic(new(badError)) }, "panicked: %!v(PANIC=Error method: worse)"},
	{"ends its goroutine", runtime.Goexit, "ended its goroutine"},
}

type badError struct{}

func (*badError) Error() string { panic("worse") }

func TestCheckThatDoesNotReturnHasFailed(t *testing.T) {
	for _, row := range ends {
		for _, late := range []bool{false, true} {
			t.Run(row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var well atomic.Bool
					p, log := probing(func(context.Context) error {
						if well.Load() {
							return nil
						}
						if late {
							time.Sleep(readyLimit + time.Second)
						}
						row.end()
						return nil
					})
					var crowd sync.WaitGroup
					for range 10 {
						crowd.Go(func() { wantReady(t, p, http.StatusServiceUnavailable) })
					}
					crowd.Wait()
					time.Sleep(readyLimit + time.Second)
					well.Store(true)
					wantReady(t, p, http.StatusOK)
					synctest.Wait()
					text := log.String()
					if strings.Count(text, row.says) != 1 || !strings.Contains(text, "strangers_test.go") ||
						strings.Count(text, "ready again") != 1 {
						t.Errorf("the log does not say once where it %s: %s", row.name, text)
					}
				})
			})
		}
	}
}

// A strangersHandler is a slog.Handler that does something else.
type strangersHandler struct {
	slog.Handler
	do func()
}

func (h strangersHandler) Handle(ctx context.Context, r slog.Record) error {
	h.do()
	return h.Handler.Handle(ctx, r)
}

func TestProbesDoNotWaitForTheLogger(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	for _, row := range append(ends, struct {
		name string
		end  func()
		says string
	}{"hangs", func() { select {} }, ""}) {
		t.Run(row.name, func(t *testing.T) {
			end := row.end
			if row.name == "hangs" {
				end = func() { <-hang } // a channel of no bubble, for which synctest does not wait
			}
			var result atomic.Pointer[error]
			p, log := probing(func(context.Context) error { return *result.Load() })
			p.logger = slog.New(safeHandler{strangersHandler{slog.NewTextHandler(log, nil), end}})
			goroutines := 0
			for i := range 20 {
				err := errors.New("away")
				want := http.StatusServiceUnavailable
				if i%2 == 1 {
					err, want = nil, http.StatusOK
				}
				result.Store(&err)
				wantReady(t, p, want)
				p.mu.Lock()
				p.last.at = p.last.at.Add(-readyKept) // time has passed
				p.mu.Unlock()
				for p.isBusy() {
					runtime.Gosched()
				}
				if i == 3 {
					goroutines = runtime.NumGoroutine()
				}
			}
			if n := runtime.NumGoroutine(); n > goroutines+5 {
				t.Errorf("%d goroutines more are there after 16 more checks", n-goroutines)
			}
		})
	}
}

func (p *probes) isBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy
}

// The server's own log is the Logger's, and it is used while net/http recovers from a handler's panic.
func TestPanicOfTheLoggerEndsItsConnectionAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		listener := pipes.Listen()
		handler := strangersHandler{slog.NewTextHandler(io.Discard, nil), func() { panic("out of ink") }}
		served := make(chan error, 1)
		go func() {
			served <- Serve(ctx, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/panic" {
					panic("out of tea")
				}
			})}, listener, &Options{Logger: slog.New(handler)})
		}()
		client := &http.Client{Transport: &http.Transport{DialContext: listener.Dial}}
		for _, path := range []string{"panic", "well"} {
			response, err := client.Get("http://localhost/" + path)
			if (err == nil) != (path == "well") {
				t.Errorf("/%s: %v", path, err)
			}
			if err == nil {
				response.Body.Close()
			}
		}
		client.CloseIdleConnections()
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// Its records go into a pipe that nobody reads, until hang is closed.
type hangs struct {
	slog.Handler
	hang chan struct{}
}

func (hangs) Enabled(context.Context, slog.Level) bool { return true }

func (h hangs) Handle(context.Context, slog.Record) error { <-h.hang; return nil }

func TestEndDoesNotWaitForTheLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		ctx, end := context.WithCancel(t.Context())
		end()
		opts := &Options{Delay: time.Second, Logger: slog.New(hangs{slog.DiscardHandler, hang})}
		began := time.Now()
		if err := Serve(ctx, new(http.Server), pipes.Listen(), opts); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > opts.Delay+4*stepLimit {
			t.Errorf("it took %v", took)
		}
		close(hang)
	})
}

// A strangersListener is one whose Accept does something else.
type strangersListener struct {
	net.Listener
	do func()
}

func (l strangersListener) Accept() (net.Conn, error) {
	l.do()
	return l.Listener.Accept()
}

func TestListenerThatDoesNotReturn(t *testing.T) {
	for _, row := range ends {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					v := recover()
					if row.name == "ends its goroutine" {
						if v != nil {
							t.Errorf("it panics with %v", v)
						}
					} else if err, ok := v.(error); !ok || !strings.Contains(err.Error(), row.says) {
						t.Errorf("the caller's panic is %v, want %s", v, row.says)
					}
				}()
				err := Serve(t.Context(), new(http.Server), strangersListener{pipes.Listen(), row.end}, nil)
				if err == nil || !strings.Contains(err.Error(), row.says) {
					t.Errorf("the error is %v, want %s", err, row.says)
				}
			})
		})
	}
}
