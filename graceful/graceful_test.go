package graceful

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/internal/pipes"
)

// When it stops listening, no connection is left over which a request could be on its way.
func TestEachAnswerOfTheDelayClosesItsConnection(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testDelay(t, version) })
		})
	}
}

func testDelay(t *testing.T, version string) {
	var protocols http.Protocols
	protocols.SetHTTP1(version == "HTTP/1.1")
	protocols.SetUnencryptedHTTP2(version == "HTTP/2.0")
	ctx, end := context.WithCancel(t.Context())
	var open atomic.Int64
	server := &http.Server{
		Handler:   storefront.New(new(storefront.MemStore)),
		Protocols: &protocols,
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		},
	}
	listener := pipes.Listen()
	served := make(chan error, 1)
	opts := &Options{Delay: 10 * time.Second, Check: func(context.Context) error { return nil }}
	go func() { served <- Serve(ctx, server, listener, opts) }()

	var clients []func(wantReadyz int)
	for _, row := range []struct {
		request string
		want    int
	}{
		{"GET /v1/users", 200}, {"HEAD /v1/users", 200}, {"OPTIONS /v1/users", 204}, {"PUT /v1/users", 405},
		{"GET /v1/users?limit=0", 400}, {"POST /v1/orders", 415}, {"GET /v1/products/p", 404}, {"GET //", 404},
		{"GET /openapi.json", 200}, {"GET /livez", 200}, {"GET /readyz", 0},
	} {
		transport := &http.Transport{Protocols: &protocols, DialContext: listener.Dial}
		defer transport.CloseIdleConnections()
		clients = append(clients, func(wantReadyz int) {
			method, path, _ := strings.Cut(row.request, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			result, err := transport.RoundTrip(r)
			if err != nil {
				t.Errorf("%s: %v", row.request, err)
				return
			}
			defer result.Body.Close()
			_, err = io.Copy(io.Discard, result.Body)
			want := cmp.Or(row.want, wantReadyz)
			if err != nil || result.StatusCode != want || result.Proto != version {
				t.Errorf("%s: %s, status %d, %v; want %s and %d",
					row.request, result.Proto, result.StatusCode, err, version, want)
			}
		})
	}
	ask := func(wantReadyz int) {
		var all sync.WaitGroup
		for _, client := range clients {
			all.Go(func() { client(wantReadyz) })
		}
		all.Wait()
	}
	ask(http.StatusOK)
	ask(http.StatusOK)
	if n := open.Load(); n != int64(len(clients)) {
		t.Errorf("before the end, %d connections are open for %d clients", n, len(clients))
	}
	end()
	ask(http.StatusServiceUnavailable)
	time.Sleep(2 * time.Second) // over HTTP/2, net/http closes a second after the GOAWAY
	if n := open.Load(); n != 0 {
		t.Errorf("after another answer each, %d connections are open", n)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// messages returns a logger that writes messages alone, a line each.
func messages(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key != slog.MessageKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestDelay(t *testing.T) {
	for _, row := range []struct {
		name  string
		delay time.Duration
		cause error // of the end
		want  time.Duration
	}{
		{"it is waited for", 10 * time.Second, nil, 10 * time.Second},
		{"nobody asks for one", 0, nil, 0},
		{"not by somebody at a terminal", 10 * time.Second, errInterrupted, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				end(row.cause)
				began := time.Now()
				log := new(bytes.Buffer)
				err := Serve(ctx, new(http.Server), pipes.Listen(), &Options{Delay: row.delay, Logger: messages(log)})
				if took := time.Since(began); err != nil || took != row.want {
					t.Errorf("it ended after %v with %v, want %v", took, err, row.want)
				}
				want := "msg=serving\n"
				if row.want > 0 {
					want += "msg=\"draining: clients connect anew\"\n"
				}
				want += "msg=\"finishing the requests in flight\"\nmsg=finished\n"
				if log.String() != want {
					t.Errorf("the log has\n%swant\n%s", log, want)
				}
			})
		})
	}
}

func TestRequestInFlightIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		listener, arrived, answer := pipes.Listen(), make(chan struct{}), make(chan struct{})
		served := make(chan error, 1)
		go func() {
			served <- Serve(ctx, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(arrived)
				<-answer
				io.WriteString(w, "done")
			})}, listener, nil)
		}()
		client := &http.Client{Transport: &http.Transport{DialContext: listener.Dial}}
		got := make(chan string, 1)
		go func() {
			w, err := client.Get("http://localhost/")
			body := []byte("none")
			if err == nil {
				defer w.Body.Close()
				body, err = io.ReadAll(w.Body)
			}
			if err != nil {
				t.Error(err)
			}
			got <- string(body)
		}()
		<-arrived
		end()
		time.Sleep(finishLimit - time.Second)
		close(answer)
		if text := <-got; text != "done" {
			t.Errorf("the answer is %q, want done", text)
		}
		if err := <-served; err != nil {
			t.Errorf("%v, want nil", err)
		}
	})
}

func TestFailureOfTheServerIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, delay := range []time.Duration{0, time.Hour} { // before the end, and while it drains
			ctx, end := context.WithCancel(t.Context())
			if delay > 0 {
				end()
			}
			listener := pipes.Listen()
			time.AfterFunc(time.Second, func() { listener.Close() })
			if err := Serve(ctx, new(http.Server), listener, &Options{Delay: delay}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("with a delay of %v: %v, want ErrClosed", delay, err)
			}
			end()
		}
	})
}

func TestLimitsThatTheServerLeavesZeroAreSet(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	const second = int64(time.Second)
	for _, row := range []struct {
		server *http.Server
		want   [5]int64
	}{
		{new(http.Server), [5]int64{5 * second, 15 * second, 60 * second, 120 * second, 32 << 10}},
		{&http.Server{ReadHeaderTimeout: -1, ReadTimeout: 1, WriteTimeout: 2, IdleTimeout: 3, MaxHeaderBytes: 4},
			[5]int64{-1, 1, 2, 3, 4}},
	} {
		s := row.server
		must.OK(t, Serve(ended, s, pipes.Listen(), nil))
		got := [5]int64{int64(s.ReadHeaderTimeout), int64(s.ReadTimeout), int64(s.WriteTimeout),
			int64(s.IdleTimeout), int64(s.MaxHeaderBytes)}
		if got != row.want {
			t.Errorf("the limits are %d, want %d", got, row.want)
		}
	}
}

func TestContextEndsWithoutASignal(t *testing.T) {
	for name, ends := range map[string]func(end, stop context.CancelFunc){
		"stop":   func(_, stop context.CancelFunc) { stop() },
		"parent": func(end, _ context.CancelFunc) { end() },
	} {
		parent, end := context.WithCancel(t.Context())
		ctx, stop := NotifyContext(parent)
		if ctx.Err() != nil {
			t.Errorf("%s: it is done at once", name)
		}
		ends(end, stop)
		if <-ctx.Done(); context.Cause(ctx) != context.Canceled {
			t.Errorf("%s: the cause is %v", name, context.Cause(ctx))
		}
		stop()
		end()
	}
}

// The log of a program may go to one that has ended.
func TestBrokenPipeEndsNothing(t *testing.T) {
	if os.Getenv("GRACEFUL_TEST_CHILD") != "" {
		parent, end := context.WithCancel(t.Context())
		defer end()
		ctx, stop := NotifyContext(parent)
		defer stop()
		for range 2 { // the second time while it drains
			if _, err := os.Stdout.WriteString("a line\n"); err == nil {
				return
			}
			end()
			<-ctx.Done()
		}
		os.Exit(7)
	}
	reader, writer, err := os.Pipe()
	must.OK(t, err)
	reader.Close()
	child := exec.Command(os.Args[0], "-test.run=^TestBrokenPipeEndsNothing$")
	child.Env, child.Stdout = append(os.Environ(), "GRACEFUL_TEST_CHILD=1"), writer
	if err := child.Run(); child.ProcessState.ExitCode() != 7 {
		t.Errorf("the program ended with %v", err)
	}
}
