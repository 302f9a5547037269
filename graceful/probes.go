package graceful

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"example.com/storefront"
)

const (
	readyLimit = 2 * time.Second // for a check
	readyKept  = time.Second     // how long its result is good for, so that a crowd of probes costs nothing
)

// probes answer those who decide whether this process gets requests (/readyz) and
// whether it goes on (/livez). Everybody may ask, so nothing of an error is in the
// answers: it is in the log.
type probes struct {
	check  func(context.Context) error // Options.Check
	ending context.Context             // done: the process is about to end

	mu     sync.Mutex
	last   *check // nil: there was none
	busy   bool   // the last one has not returned, perhaps although its time is up
	logged error  // the last result that was logged
	steps  steps
}

// A check has a result once done is closed.
type check struct {
	done chan struct{}
	err  error
	at   time.Time // of the result
}

// withProbes answers /livez and /readyz, and leaves all else to next. An http.ServeMux would
// redirect paths such as //, which are next's to refuse.
func withProbes(p *probes, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/livez":
			answer(w, r, func() (failure string) { return "" })
		case "/readyz":
			answer(w, r, p.notReady)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// notReady returns why no request should be sent to this process, or "".
func (p *probes) notReady() string {
	const ends = "not ready: it is about to end"
	if p.ending.Err() != nil {
		return ends
	}
	c := p.current()
	<-c.done // a check is short, whoever leaves
	switch {
	case p.ending.Err() != nil:
		return ends
	case c.err != nil:
		return "not ready: no order could be created now"
	}
	return ""
}

// answer answers a probe by what ask returns: why it fails, or "".
func answer(w http.ResponseWriter, r *http.Request, ask func() (failure string)) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		const detail = "This is for probes: GET, HEAD."
		storefront.Problem{Status: http.StatusMethodNotAllowed, Detail: detail}.ServeHTTP(w, r)
		return
	}
	status, text := http.StatusOK, "ok"
	if failure := ask(); failure != "" {
		status, text = http.StatusServiceUnavailable, failure
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	io.WriteString(w, text+"\n")
}

// current returns the check that is under way or whose result is still good, or else a
// new one.
func (p *probes) current() *check {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.last; p.busy || c != nil && time.Since(c.at) < readyKept {
		return c
	}
	c := &check{done: make(chan struct{})}
	p.last, p.busy = c, true
	go p.run(c)
	return c
}

// run runs a check, which is told of the end of its time a little earlier, so that its own error says why.
// One that goes on although its time is up has failed, and is the last one until it returns.
func (p *probes) run(c *check) {
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit*7/8)
	defer cancel()
	late := time.AfterFunc(readyLimit, func() { p.settle(c, context.DeadlineExceeded) })
	err := errNoReturn
	defer func() {
		if late.Stop() {
			p.settle(c, err)
		}
		<-c.done
		p.mu.Lock()
		defer p.mu.Unlock()
		p.busy = false
	}()
	err = p.call(ctx)
}

// errNoReturn is the error of a check that ends its goroutine.
var errNoReturn = errors.New("the check has ended its goroutine")

// call calls Check, whose panic would end the process in this goroutine.
func (p *probes) call(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the check panicked: %v\n\n%s", v, debug.Stack())
		}
	}()
	return p.check(ctx)
}

// settle gives a check its result, and logs it if it is another than the one that was logged before. If the
// Logger hangs, one goroutine waits for it, and no probe.
func (p *probes) settle(c *check, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.err, c.at = err, time.Now()
	close(c.done)
	if (err == nil) == (p.logged == nil) || !p.steps.areWritten() {
		return
	}
	if p.logged = err; err != nil {
		p.steps.begin(slog.LevelWarn, "not ready: no order could be created now", slog.Any("error", err))
	} else {
		p.steps.begin(slog.LevelInfo, "ready again")
	}
}
