package graceful

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	return &probes{check: check, logger: slog.New(slog.NewTextHandler(log, nil))}, log
}

func TestProbesSayNothingOfAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, log := probing(func(context.Context) error { return errors.New("no route to db1.internal") })
		well, _ := probing(func(context.Context) error { return nil })
		ending, _ := probing(well.check)
		end := make(chan struct{})
		close(end)
		ending.ending = end
		for _, row := range []struct {
			name   string
			p      *probes
			path   string
			status int
			body   string
		}{
			{"well", well, "/readyz", 200, "ok\n"},
			{"well", well, "/livez", 200, "ok\n"},
			{"no order could be created", broken, "/readyz", 503, "not ready: no order could be created now\n"},
			{"no order could be created", broken, "/livez", 200, "ok\n"},
			{"about to end", ending, "/readyz", 503, "not ready: it is about to end\n"},
			{"about to end", ending, "/livez", 200, "ok\n"},
		} {
			for _, method := range []string{"GET", "HEAD"} {
				w := asked(row.p, method, row.path)
				// The body of HEAD is left out by the server.
				if w.Code != row.status || w.Body.String() != row.body {
					t.Errorf("%s, %s %s: %d %q, want %d %q", row.name, method, row.path, w.Code, w.Body, row.status, row.body)
				}
				for name, want := range map[string]string{
					"Cache-Control":          "no-store",
					"Content-Type":           "text/plain; charset=utf-8",
					"X-Content-Type-Options": "nosniff",
				} {
					if got := w.Header().Get(name); got != want {
						t.Errorf("%s, %s %s: %s is %q, want %q", row.name, method, row.path, name, got, want)
					}
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
	for _, result := range []error{nil, errors.New("away")} {
		synctest.Test(t, func(t *testing.T) {
			var checks atomic.Int64
			p, _ := probing(func(context.Context) error {
				checks.Add(1)
				time.Sleep(readyLimit / 2)
				return result
			})
			want := http.StatusOK
			if result != nil {
				want = http.StatusServiceUnavailable
			}
			crowd := func(wantChecks int64) {
				t.Helper()
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() { wantReady(t, p, want) })
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

func TestCheckThatPanicsHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := true
		p, log := probing(func(context.Context) error {
			if panics {
				panic("out of tea")
			}
			return nil
		})
		wantReady(t, p, http.StatusServiceUnavailable)
		time.Sleep(readyKept)
		panics = false
		wantReady(t, p, http.StatusOK)
		synctest.Wait()
		for _, says := range []string{"panicked: out of tea", "probes_test.go"} {
			if !strings.Contains(log.String(), says) {
				t.Errorf("the log does not say %s: %s", says, log)
			}
		}
	})
}

func TestProbesDoNotWaitForTheLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var result error
		p, _ := probing(func(context.Context) error { return result })
		hang := make(chan struct{})
		p.logger = slog.New(hangs{slog.DiscardHandler, hang})
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
		close(hang)
	})
}

func TestUnreadinessIsLoggedWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var result error
		late := errors.New("no password")
		p, log := probing(func(ctx context.Context) error {
			if result == late {
				<-ctx.Done()
			}
			return result
		})
		for _, step := range []struct {
			result error
			want   string // the message in the log; empty: there is none
		}{
			{nil, ""},
			{errors.New("one"), "not ready: no order could be created now"},
			{errors.New("two"), ""},
			{nil, "ready again"},
			{nil, ""},
			{errors.New("three"), "not ready: no order could be created now"},
			{nil, "ready again"},
			{late, `error="no password"`},
		} {
			log.Reset()
			result = step.result
			asked(p, "GET", "/readyz")
			synctest.Wait() // the one who has checked goes on after the answer
			lines := strings.Count(log.String(), "\n")
			if step.want == "" && lines > 0 || !strings.Contains(log.String(), step.want) || lines > 1 {
				t.Errorf("after %v, the log has %q, want %q", step.result, log, step.want)
			}
			time.Sleep(readyKept)
		}
	})
}

// It is unready from then on for those, too, who have asked before.
func TestEndingIsUnreadyWhateverACheckFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checked, end := make(chan struct{}), make(chan struct{})
		p, _ := probing(func(context.Context) error { <-checked; return nil })
		p.ending = end
		var asking sync.WaitGroup
		asking.Go(func() { wantReady(t, p, http.StatusServiceUnavailable) })
		synctest.Wait()
		close(end)
		close(checked)
		asking.Wait()
		wantReady(t, p, http.StatusServiceUnavailable)
	})
}
