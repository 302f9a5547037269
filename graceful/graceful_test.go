package graceful

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/commandtest"
	"example.com/storefront/internal/must"
	"example.com/storefront/internal/pipes"
)

// A replica ends, and the balancer in front of it takes a second to notice. Clients that send many requests
// over a connection, each once, miss no answer.
func TestNoRequestIsLostWhileAReplicaEnds(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testReplicas(t, version) })
		})
	}
}

func testReplicas(t *testing.T, version string) {
	var protocols http.Protocols
	protocols.SetHTTP1(version == "HTTP/1.1")
	protocols.SetUnencryptedHTTP2(version == "HTTP/2.0")
	front := storefront.New(new(storefront.MemStore))
	target := &url.URL{Scheme: "http", Host: "localhost", Path: "/v1/orders"}
	var orders, late atomic.Int64 // late: while the first replica ends, answered by it
	var ending, noticed atomic.Bool
	var listeners [2]*pipes.Listener
	var ends [2]func() error
	for i := range listeners {
		listener, served := pipes.Listen(), make(chan error, 1)
		ctx, end := context.WithCancel(t.Context())
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if i == 0 && ending.Load() {
				late.Add(1)
			}
			key := r.Header.Get("Idempotency-Key")
			time.Sleep(time.Duration(key[len(key)-1]%7) * 100 * time.Millisecond) // some commits are slow
			front.ServeHTTP(w, r)
		})
		go func() {
			server := &http.Server{Handler: handler, Protocols: &protocols}
			served <- Serve(ctx, server, listener, &Options{Delay: 3 * time.Second})
		}()
		listeners[i], ends[i] = listener, func() error {
			end()
			return <-served
		}
	}
	done, stop := context.WithCancel(t.Context())
	var clients, ways sync.WaitGroup
	defer ways.Wait()
	for i := range listeners {
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			to := listeners[i]
			if noticed.Load() {
				to = listeners[1]
			}
			conn, err := to.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			ours, theirs := net.Pipe()
			ways.Go(func() { carry(conn, theirs) })
			ways.Go(func() { carry(theirs, conn) })
			return ours, nil
		}
		transport := &http.Transport{Protocols: &protocols, DialContext: dial, MaxIdleConnsPerHost: 16}
		defer transport.CloseIdleConnections()
		for range 16 {
			clients.Go(func() {
				for done.Err() == nil {
					body := io.NopCloser(strings.NewReader(`{"item":"teapot","qty":1}`)) // which cannot be rewound
					header := http.Header{"Content-Type": {"application/json"},
						"Idempotency-Key": {strconv.FormatInt(orders.Add(1), 10)}}
					response, err := transport.RoundTrip(&http.Request{
						Method: "POST", URL: target, Header: header, Body: body})
					if err != nil {
						t.Error(err)
						continue
					}
					_, err = io.Copy(io.Discard, response.Body) // so that the connection is kept
					response.Body.Close()
					if err != nil || response.StatusCode != http.StatusCreated || response.Proto != version {
						t.Errorf("%s over %s, %v", response.Status, response.Proto, err)
					}
					if response.Close && !ending.Load() {
						t.Error("an answer closes its connection, although the replica does not end")
					}
				}
			})
		}
	}
	time.Sleep(time.Second)
	ending.Store(true)
	time.AfterFunc(time.Second, func() { noticed.Store(true) })
	if err := ends[0](); err != nil {
		t.Error(err)
	}
	time.Sleep(time.Second)
	stop()
	clients.Wait()
	if err := ends[1](); err != nil {
		t.Error(err)
	}
	if late.Load() < 16 {
		t.Errorf("the replica that ends answers %d of %d orders", late.Load(), orders.Load())
	}
}

// carry has what is written at one end of a long way arrive at the other.
func carry(to, from net.Conn) {
	type piece struct {
		bytes   []byte
		arrives time.Time
	}
	way := make(chan piece, 1000)
	go func() {
		defer close(way)
		for {
			b := make([]byte, 4096)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			way <- piece{b[:n], time.Now().Add(50 * time.Millisecond)}
		}
	}()
	for p := range way {
		time.Sleep(time.Until(p.arrives))
		to.Write(p.bytes)
	}
	to.Close()
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
				opts := &Options{Delay: row.delay, Logger: slog.New(slog.NewTextHandler(log, nil))}
				err := Serve(ctx, new(http.Server), pipes.Listen(), opts)
				if took := time.Since(began); err != nil || took != row.want {
					t.Errorf("it ended after %v with %v, want %v", took, err, row.want)
				}
				want := `.*msg=serving .*\n`
				if row.want > 0 {
					want += `.*msg="draining: clients connect anew" .*\n`
				}
				want += `.*msg="finishing the requests in flight" .*\n.*msg=finished\n`
				if !regexp.MustCompile("^" + want + "$").Match(log.Bytes()) {
					t.Errorf("the log has\n%swant\n%s", log, want)
				}
			})
		})
	}
}

func TestEndDoesNotWaitForTheLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, log := io.Pipe() // nobody reads
		defer reader.Close()
		ctx, end := context.WithCancel(t.Context())
		end()
		opts := &Options{Delay: time.Second, Logger: slog.New(slog.NewTextHandler(log, nil))}
		began := time.Now()
		if err := Serve(ctx, new(http.Server), pipes.Listen(), opts); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > opts.Delay+4*stepLimit {
			t.Errorf("it took %v", took)
		}
	})
}

func TestRequestInFlightIsFinished(t *testing.T) {
	for _, row := range []struct {
		name         string
		delay, after time.Duration // when the listener fails; zero: it does not
		ended        bool
		want         error
	}{
		{"asked to end", 0, 0, true, nil},
		{"asked to end, with a delay", time.Second, 0, true, nil},
		{"the listener is closed", 0, time.Second, false, net.ErrClosed},
		{"the listener is closed during the delay", time.Hour, time.Second, true, net.ErrClosed},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				listener, arrived, answer := pipes.Listen(), make(chan struct{}), make(chan struct{})
				served := make(chan error, 1)
				handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					close(arrived)
					<-answer
					io.WriteString(w, "done")
				})
				go func() { served <- Serve(ctx, &http.Server{Handler: handler}, listener, &Options{Delay: row.delay}) }()
				client := &http.Client{Transport: &http.Transport{DialContext: listener.Dial}}
				got := make(chan string, 1)
				go func() {
					w, err := client.Get("http://localhost/")
					if err != nil {
						got <- err.Error()
						return
					}
					defer w.Body.Close()
					body, err := io.ReadAll(w.Body)
					got <- fmt.Sprintf("%s, %v", body, err)
				}()
				<-arrived
				if row.ended {
					end()
				}
				if row.after > 0 {
					time.Sleep(row.after)
					listener.Close()
				}
				time.Sleep(finishLimit - 2*time.Second)
				close(answer)
				if text := <-got; text != "done, <nil>" {
					t.Errorf("the answer is %q, want done", text)
				}
				if err := <-served; !errors.Is(err, row.want) || (err == nil) != (row.want == nil) {
					t.Errorf("%v, want %v", err, row.want)
				}
			})
		})
	}
}

func TestTLS(t *testing.T) {
	borrowed := httptest.NewUnstartedServer(nil) // its certificate, and a client that trusts it
	borrowed.EnableHTTP2 = true
	borrowed.StartTLS()
	defer borrowed.Close()
	certificates := borrowed.TLS.Certificates
	both := &tls.Config{Certificates: certificates, NextProtos: []string{"h2", "http/1.1"}}
	renewed := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificates[0], nil }
	for _, row := range []struct {
		name                 string
		ofServer, ofListener *tls.Config // nil: none
		want                 string
	}{
		{"certificates of the server", &tls.Config{GetCertificate: renewed}, nil, "HTTP/2.0"},
		{"a listener of crypto/tls", nil, both, "HTTP/2.0"},
		{"both", both, both, "HTTP/2.0"},
		{"no certificate", &tls.Config{MinVersion: tls.VersionTLS13}, nil, "TLSConfig has no certificate"},
	} {
		t.Run(row.name, func(t *testing.T) {
			listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			url := "https://" + listener.Addr().String()
			if row.ofListener != nil {
				listener = tls.NewListener(listener, row.ofListener)
			}
			ctx, end := context.WithCancel(t.Context())
			served := make(chan error, 1)
			server := &http.Server{Handler: storefront.New(new(storefront.MemStore)), TLSConfig: row.ofServer}
			go func() { served <- Serve(ctx, server, listener, nil) }()
			response, err := borrowed.Client().Get(url + "/v1/users")
			got := ""
			if err == nil {
				response.Body.Close()
				got = response.Proto
			}
			borrowed.Client().CloseIdleConnections()
			end()
			if err := <-served; err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, row.want) {
				t.Errorf("it serves %q, %v; want %q", got, err, row.want)
			}
		})
	}
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

// Each of these is tried in a process of its own, by signaled.
func TestSignals(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	for what, want := range map[string]string{ // how the process ends
		"writes to a broken pipe": "exit status 7",
		"one after stop":          "signal: terminated",
		"two at once":             "signal: terminated",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			reader, writer, err := os.Pipe()
			must.OK(t, err)
			reader.Close()
			defer writer.Close()
			cmd := commandtest.Command(t, what)
			cmd.Stdout, cmd.Stderr = writer, writer
			cmd.Run()
			if got := cmd.ProcessState.String(); got != want {
				t.Errorf("the program ends with %q, want %q", got, want)
			}
		})
	}
}

func TestMain(m *testing.M) { commandtest.Main(signaled, m.Run) }

func signaled() {
	self, _ := os.FindProcess(os.Getpid())
	parent, end := context.WithCancel(context.Background())
	defer end()
	ctx, stop := NotifyContext(parent)
	switch os.Args[1] {
	case "writes to a broken pipe":
		_, err := os.Stdout.WriteString("a line\n")
		end()
		<-ctx.Done()
		_, again := os.Stdout.WriteString("another, while it drains\n")
		if err != nil && again != nil {
			os.Exit(7)
		}
		return
	case "one after stop":
		runtime.GOMAXPROCS(1) // nothing else goes on before the signal
		stop()
		self.Signal(syscall.SIGTERM)
	case "two at once":
		self.Signal(syscall.SIGINT)
		self.Signal(syscall.SIGTERM)
	}
	time.Sleep(time.Minute)
}
