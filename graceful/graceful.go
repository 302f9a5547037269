// Package graceful serves HTTP until the program is asked to end, and then ends without an
// answer that a client misses: it answers the probes of balancers and supervisors, and drains.
//
//	ctx, stop := graceful.NotifyContext(context.Background())
//	defer stop()
//	listener, err := net.Listen("tcp", "localhost:8080")
//	…
//	server := &http.Server{Handler: storefront.New(store)}
//	opts := &graceful.Options{Check: store.Check, Delay: 10 * time.Second}
//	err = graceful.Serve(ctx, server, listener, opts)
//
// # Probes
//
// If Options.Check is set, [Serve] answers GET and HEAD of two paths itself, before the
// server's handler, in plain text:
//
//   - /livez is 200 as long as the process serves.
//   - /readyz is 200 if Check succeeds, and 503 if it fails, panics, or does not return within 2
//     seconds. Its answer may be a second old, and requests share a call of Check, so that a
//     crowd of probes costs nothing. The answer has nothing of the error: the log has it, once.
//     From the moment that ctx is done, /readyz is 503.
//
// # Draining
//
// net/http closes idle connections at the end, although a request may be on its way. So once
// ctx is done, each answer tells the client to connect anew, perhaps to another process:
// Connection: close in HTTP/1.1, GOAWAY in HTTP/2. For the time of Options.Delay, all is
// served as before, so that a balancer that sees /readyz fail, and a client that sends anything
// in that time, have no connection that would break. Only then Serve stops to listen, and
// finishes the requests in flight.
package graceful

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// finishLimit is how long Serve waits for the requests in flight.
const finishLimit = time.Minute

// Options are settings of [Serve]. Zero values are defaults.
type Options struct {
	// Check reports whether requests should be sent to this process, as the method Check of
	// sqlstore.Store does. If it is nil, there are no probes, and their paths are the handler's.
	Check func(context.Context) error

	// Delay is how long Serve serves on once its ctx is done, longer than balancers take to
	// notice that /readyz fails. Zero means that it stops at once. After SIGINT, as from a
	// terminal, it does so anyway, if ctx is from [NotifyContext].
	Delay time.Duration

	// Logger gets the errors of Check, when they begin and end, and those of the server. It is also told
	// that Serve serves, drains and has finished, and Serve waits for a second at most for each of these
	// records. If it is nil, it is slog.Default().
	Logger *slog.Logger
}

// errInterrupted is the cause of the end of a context that SIGINT has ended.
var errInterrupted = errors.New("interrupted")

// NotifyContext returns a context that is done after SIGINT or SIGTERM, when parent is done, or
// when stop is called. A second signal ends the program at once. The program calls stop when it
// does not need the context any more: it gives the signals their usual effect again.
//
// Until then, a write to a pipe whose reader has gone, such as a pager or another program that gets the
// log, is an error of the write. Otherwise it would end the program.
func NotifyContext(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	signals, broken := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var cause error
		select {
		case s := <-signals:
			if s == os.Interrupt {
				cause = errInterrupted
			}
		case <-ctx.Done():
		}
		signal.Stop(signals)
		end(cause)
	}()
	return ctx, func() {
		signal.Stop(broken)
		end(nil)
	}
}

// Serve serves on listener until ctx is done, for another Options.Delay, and then finishes the
// requests in flight, for up to a minute. It returns nil if all of them were finished. If the
// server fails before, it returns its error. If opts is nil, the defaults are used.
//
// Serve wraps server.Handler, and sets the limits that server leaves zero: ReadHeaderTimeout to
// 5 seconds, ReadTimeout to 15 seconds, WriteTimeout to a minute (an order may take half of it),
// IdleTimeout to 2 minutes, and MaxHeaderBytes to 32 KiB. A negative one means none, as in
// net/http. For TLS, the listener is one of crypto/tls.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, opts *Options) error {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	logger := slog.New(safeHandler{o.Logger.Handler()})
	steps := steps{logger: logger}
	server.ReadHeaderTimeout = cmp.Or(server.ReadHeaderTimeout, 5*time.Second)
	server.ReadTimeout = cmp.Or(server.ReadTimeout, 15*time.Second)
	server.WriteTimeout = cmp.Or(server.WriteTimeout, time.Minute)
	server.IdleTimeout = cmp.Or(server.IdleTimeout, 2*time.Minute)
	server.MaxHeaderBytes = cmp.Or(server.MaxHeaderBytes, 32<<10)
	if server.ErrorLog == nil {
		server.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelWarn)
	}
	handler := server.Handler
	if handler == nil {
		handler = http.DefaultServeMux
	}
	if o.Check != nil {
		handler = withProbes(&probes{check: o.Check, ending: ctx.Done(), logger: logger}, handler)
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Connection", "close") // which net/http makes a GOAWAY over HTTP/2
		}
		handler.ServeHTTP(w, r)
	})

	steps.log("serving", slog.String("address", listener.Addr().String()))
	served := make(chan error, 1)
	var panicked error // of the listener, or of a function in server
	go func() {
		err := errNoReturn
		defer func() {
			if v := recover(); v != nil {
				panicked = stopped("the server", v)
			} else if err == errNoReturn {
				err = stopped("the server", nil)
			}
			served <- err
		}()
		err = server.Serve(listener)
	}()
	ended := func(err error) error {
		if panicked != nil { // which is the caller's to recover from, as that of server.Serve
			panic(panicked)
		}
		return err
	}
	select {
	case err := <-served:
		return ended(err)
	case <-ctx.Done():
	}
	if o.Delay > 0 && context.Cause(ctx) != errInterrupted {
		steps.log("draining: clients connect anew", slog.Duration("for", o.Delay))
		select {
		case err := <-served:
			return ended(err)
		case <-time.After(o.Delay):
		}
	}
	steps.log("finishing the requests in flight", slog.Duration("for", finishLimit))
	grace, cancel := context.WithTimeout(context.Background(), finishLimit)
	defer cancel()
	err := server.Shutdown(grace)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	ended(<-served)
	if err == nil {
		steps.log("finished")
	}
	return err
}
