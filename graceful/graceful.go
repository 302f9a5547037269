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
// net/http closes idle connections at the end, although a request may be on its way. So for the time
// of Options.Delay, Serve serves as before, while a balancer sees /readyz fail, and each answer of
// HTTP/1.1 tells its client to connect anew, perhaps to another process (Connection: close). Only then
// Serve stops to listen, and finishes the requests in flight.
//
// A connection of HTTP/2 has many requests, and net/http does not answer those that cross its GOAWAY. So
// it is kept through the Delay. Requests that arrive over HTTP/2 in the last quarter of a second wait for
// the end, up to a second longer while earlier ones are served, and their answers follow the GOAWAY: a
// client that has asked and waits has nothing on its way.
package graceful

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"reflect"
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
// does not need the context any more: once it returns, the signals have their usual effect again.
//
// Until then, a write to a pipe whose reader has gone, such as a pager or another program that gets the
// log, is an error of the write. Otherwise it would end the program.
func NotifyContext(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	signals, broken := make(chan os.Signal, 2), make(chan os.Signal, 1)
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
		select {
		case s := <-signals: // it came before Stop, and must end the program
			if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(s) != nil {
				os.Exit(1)
			}
		default:
		}
	}()
	return ctx, func() {
		signal.Stop(broken)
		signal.Stop(signals)
		end(nil)
	}
}

// Serve serves on listener until ctx is done, for another Options.Delay, and then finishes the
// requests in flight, for up to a minute. It returns nil if all of them were finished. If the server
// fails before, as when somebody closes the listener, Serve finishes the requests in flight, too, and
// returns the error. If opts is nil, the defaults are used.
//
// If server.TLSConfig is set, Serve serves TLS, with HTTP/2, as server.ServeTLS does: TLSConfig has the
// certificate. A listener that is one of crypto/tls already, such as [tls.NewListener] makes, serves as
// its own configuration says: HTTP/2 only if "h2" is in its NextProtos. With another listener of TLS
// connections, leave TLSConfig nil.
//
// Serve wraps server.Handler, and sets the limits that server leaves zero: ReadHeaderTimeout to
// 5 seconds, ReadTimeout to 15 seconds, WriteTimeout to a minute (an order may take half of it),
// IdleTimeout to 2 minutes, and MaxHeaderBytes to 32 KiB. As in net/http, a negative timeout means
// none, and a negative MaxHeaderBytes 1 MiB.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, opts *Options) error {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	log := steps{logger: o.Logger}
	server.ReadHeaderTimeout = cmp.Or(server.ReadHeaderTimeout, 5*time.Second)
	server.ReadTimeout = cmp.Or(server.ReadTimeout, 15*time.Second)
	server.WriteTimeout = cmp.Or(server.WriteTimeout, time.Minute)
	server.IdleTimeout = cmp.Or(server.IdleTimeout, 2*time.Minute)
	server.MaxHeaderBytes = cmp.Or(server.MaxHeaderBytes, 32<<10)
	if server.ErrorLog == nil {
		server.ErrorLog = slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn)
	}
	handler := server.Handler
	if handler == nil {
		handler = http.DefaultServeMux
	}
	if o.Check != nil {
		handler = withProbes(&probes{check: o.Check, ending: ctx, steps: steps{logger: o.Logger}}, handler)
	}
	end := newEnding(ctx)
	server.Handler = end.wrap(handler)
	serve := server.Serve
	if c := server.TLSConfig; c != nil && reflect.TypeOf(listener) != reflect.TypeOf(tls.NewListener(nil, nil)) {
		if len(c.Certificates) == 0 && c.GetCertificate == nil && c.GetConfigForClient == nil {
			return errors.Join(errors.New("graceful: server.TLSConfig has no certificate; "+
				"to serve without TLS, leave it nil"), listener.Close())
		}
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}

	log.log("serving", slog.String("address", listener.Addr().String()))
	served := make(chan error, 1)
	go func() { served <- serve(listener) }()
	var failure error
	wait := func(d time.Duration) (well bool) {
		select {
		case failure = <-served:
		case <-time.After(d):
		}
		return failure == nil
	}
	select {
	case failure = <-served:
	case <-ctx.Done():
		if o.Delay > 0 && context.Cause(ctx) != errInterrupted {
			log.log("draining: clients connect anew", slog.Duration("for", o.Delay))
			end.delay(o.Delay, wait)
		}
	}
	close(end.comes)
	finishing := []slog.Attr{slog.Duration("for", finishLimit)}
	if failure != nil {
		finishing = append(finishing, slog.Any("error", failure))
	}
	log.log("finishing the requests in flight", finishing...)
	grace, cancel := context.WithTimeout(context.Background(), finishLimit)
	defer cancel()
	err := server.Shutdown(grace)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	if failure == nil {
		<-served
	}
	if err = errors.Join(failure, err); err == nil {
		log.log("finished")
	}
	return err
}
