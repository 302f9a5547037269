package graceful

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
)

// asked asks probes, as a client of the process would.
func asked(p *probes, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	withProbes(p, storefront.New(new(storefront.MemStore))).ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func wantReady(t *testing.T, p *probes, want int) {
	t.Helper()
	if w := asked(p, "GET", "/readyz"); w.Code != want {
		t.Errorf("/readyz: %d %s, want %d", w.Code, w.Body, want)
	}
}

// probing returns probes with a check, and what they log.
func probing(check func(context.Context) error) (*probes, *bytes.Buffer) {
	log := new(bytes.Buffer)
	return &probes{check: check, ending: context.Background(),
		steps: steps{logger: slog.New(slog.NewTextHandler(log, nil))}}, log
}

func TestProbesSayNothingOfAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, log := probing(func(context.Context) error { return errors.New("no route to db1.internal") })
		well, _ := probing(func(context.Context) error { return nil })
		for _, row := range []struct {
			p      *probes
			path   string
			status int
			body   string
		}{
			{well, "/readyz", 200, "ok\n"},
			{well, "/livez", 200, "ok\n"},
			{broken, "/readyz", 503, "not ready: no order could be created now\n"},
			{broken, "/livez", 200, "ok\n"},
		} {
			for _, method := range []string{"GET", "HEAD"} {
				w := asked(row.p, method, row.path)
				h := w.Header()
				fields := h.Get("Cache-Control") + " " + h.Get("Content-Type") + " " + h.Get("X-Content-Type-Options")
				// The body of HEAD is left out by the server.
				if w.Code != row.status || w.Body.String() != row.body ||
					fields != "no-store text/plain; charset=utf-8 nosniff" {
					t.Errorf("%s %s: %d %q, want %d %q; %v", method, row.path, w.Code, w.Body, row.status, row.body, h)
				}
			}
		}
		synctest.Wait() // the one who has checked goes on after the answer
		if !strings.Contains(log.String(), "no route to db1.internal") {
			t.Errorf("the log does not have the error: %s", log)
		}
	})
}

func TestProbesAreAtTheirPathsAlone(t *testing.T) {
	p, _ := probing(func(context.Context) error { return nil })
	for _, path := range []string{
		"/livez/", "//livez", "/readyz/", "/readyz/x", "/READYZ", "/healthz", "/v1/livez",
	} {
		w := asked(p, "GET", path)
		if w.Code != http.StatusNotFound || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, want the service's 404", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/livez", "/readyz"} {
		w := asked(p, "POST", path)
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d, Allow: %s; want 405 with GET and HEAD", path, w.Code, w.Header().Get("Allow"))
		}
	}
}

func TestCrowdSharesACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int64
		p, _ := probing(func(context.Context) error {
			checks.Add(1)
			time.Sleep(readyLimit / 2)
			return errors.New("away")
		})
		crowd := func(wantChecks int64) {
			t.Helper()
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { wantReady(t, p, http.StatusServiceUnavailable) })
			}
			all.Wait()
			if n := checks.Load(); n != wantChecks {
				t.Errorf("there were %d checks, want %d", n, wantChecks)
			}
		}
		crowd(1) // who asks while it is under way
		time.Sleep(readyKept - time.Nanosecond)
		crowd(1) // and while its result is good
		time.Sleep(time.Nanosecond)
		crowd(2)
	})
}

// A check is told that its time is up. One that hangs all the same is not joined by others, and holds up no
// answer. When it ends, the next one can succeed.
func TestCheckThatHangsIsTheOnlyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int64
		hang := make(chan struct{})
		p, log := probing(func(ctx context.Context) error {
			if checks.Add(1) == 1 {
				<-ctx.Done()
				<-hang
			}
			return nil
		})
		began := time.Now()
		wantReady(t, p, http.StatusServiceUnavailable)
		if took := time.Since(began); took != readyLimit {
			t.Errorf("it took %v, want %v", took, readyLimit)
		}
		for range 10 {
			wantReady(t, p, http.StatusServiceUnavailable)
			time.Sleep(readyKept)
		}
		if n := checks.Load(); n != 1 {
			t.Errorf("there were %d checks, want 1", n)
		}
		close(hang)
		synctest.Wait()
		wantReady(t, p, http.StatusOK)
		synctest.Wait() // the one who has checked goes on after the answer
		if !strings.Contains(log.String(), "deadline exceeded") {
			t.Errorf("the log does not say why: %s", log)
		}
	})
}

func TestProbesDoNotWaitForTheLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var result error
		p, _ := probing(func(context.Context) error { return result })
		reader, log := io.Pipe() // nobody reads for now
		p.steps.logger = slog.New(slog.NewTextHandler(log, nil))
		began := time.Now()
		for range 5 {
			result = errors.New("away")
			wantReady(t, p, http.StatusServiceUnavailable)
			time.Sleep(readyKept)
			result = nil
			wantReady(t, p, http.StatusOK)
			time.Sleep(readyKept)
		}
		if took := time.Since(began); took != 10*readyKept {
			t.Errorf("it took %v", took)
		}
		go func() {
			<-p.steps.last
			log.Close()
		}()
		if text, err := io.ReadAll(reader); strings.Count(string(text), "\n") != 1 || err != nil {
			t.Errorf("the records that waited are %q, %v, want one", text, err)
		}
	})
}

func TestUnreadinessIsLoggedWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var result error
		late, panics, exits := errors.New("no password"), errors.New("panics"), errors.New("exits")
		p, log := probing(func(ctx context.Context) error {
			switch result {
			case late:
				<-ctx.Done()
			case panics:
				panic("out of tea")
			case exits:
				runtime.Goexit()
			}
			return result
		})
		for _, step := range []struct {
			result error
			want   string // a regular expression of the line in the log; empty: there is none
		}{
			{nil, ""},
			{errors.New("one"), `level=WARN msg="not ready: no order could be created now" error=one`},
			{errors.New("two"), ""},
			{nil, `level=INFO msg="ready again"`},
			{nil, ""},
			{late, `error="no password"`},
			{nil, "ready again"},
			{panics, `the check panicked: out of tea.*probes_test\.go`},
			{nil, "ready again"},
			{exits, "the check has ended its goroutine"},
			{nil, "ready again"},
		} {
			log.Reset()
			result = step.result
			if w := asked(p, "GET", "/readyz"); (w.Code == 200) != (result == nil) {
				t.Errorf("after %v, /readyz is %d", result, w.Code)
			}
			synctest.Wait() // the one who has checked goes on after the answer
			lines := strings.Count(log.String(), "\n")
			if !regexp.MustCompile(step.want).MatchString(log.String()) || lines != min(len(step.want), 1) {
				t.Errorf("after %v, the log has %q, want %q", step.result, log, step.want)
			}
			time.Sleep(readyKept)
		}
	})
}

// A Logger that panics would end the process in a goroutine of its own.
func TestProbesSurviveTheLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := probing(func(context.Context) error { return errors.New("away") })
		p.steps.logger = slog.New(panics{})
		wantReady(t, p, http.StatusServiceUnavailable)
		synctest.Wait()
		if !p.steps.areWritten() {
			t.Error("the next record waits for one that is not written")
		}
	})
}

// A panics is a Handler that panics.
type panics struct{ slog.Handler }

func (panics) Enabled(context.Context, slog.Level) bool  { return true }
func (panics) Handle(context.Context, slog.Record) error { panic("out of tea") }

// It is unready from then on for those, too, who have asked before. It is alive.
func TestEndingIsUnreadyWhateverACheckFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checked := make(chan struct{})
		p, _ := probing(func(context.Context) error { <-checked; return nil })
		ending, end := context.WithCancel(t.Context())
		p.ending = ending
		var asking sync.WaitGroup
		asking.Go(func() { wantReady(t, p, http.StatusServiceUnavailable) })
		synctest.Wait()
		end()
		close(checked)
		asking.Wait()
		wantReady(t, p, http.StatusServiceUnavailable)
		if w := asked(p, "GET", "/livez"); w.Code != http.StatusOK {
			t.Errorf("/livez: %d %s", w.Code, w.Body)
		}
	})
}
