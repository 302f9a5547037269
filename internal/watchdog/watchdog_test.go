package watchdog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var times = Times{
	Call: 10 * time.Second, Silence: 2 * time.Second, Early: time.Second,
	Probe: 250 * time.Millisecond, ProbeAlone: 20 * time.Second,
}

// A server is asked by a Health. It is silent unless it has names.
type server struct {
	Health
	name  string   // that Server returns
	names []string // that answer questions
	asked int
	drops []time.Duration // how long each of them may have taken
}

func newServer() *server {
	s := &server{name: "a"}
	began := time.Now().Add(-1)
	s.Health = Health{
		Times:  times,
		Now:    func() time.Duration { return time.Since(began) },
		Jitter: func(least, _ time.Duration) time.Duration { return least },
		Server: func() string { return s.name },
		CanAsk: func() bool { return true },
		Ask: func(ctx context.Context, _ string) []string {
			if s.asked++; len(s.names) == 0 {
				<-ctx.Done()
			}
			return s.names
		},
		Drop: func(ctx context.Context) {
			deadline, _ := ctx.Deadline()
			s.drops = append(s.drops, time.Until(deadline))
		},
	}
	return s
}

// try makes a try of a call that takes a time, and returns how long it took and whether it was ended.
func try(t *testing.T, w *Watch, d time.Duration, heard bool) (took time.Duration, silent bool) {
	t.Helper()
	began, since := w.Now(), time.Now()
	ctx, try := w.Try(t.Context())
	if heard {
		try.Heard()
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	took = time.Since(since)
	silent = try.End(ctx.Err() != nil)
	w.Note(began, !silent)
	return took, silent
}

// wantTry checks how long a try takes, which would take a minute.
func wantTry(t *testing.T, what string, w *Watch, heard bool, want time.Duration) {
	t.Helper()
	took, silent := try(t, w, time.Minute, heard)
	if took != want || silent != (want < time.Minute) {
		t.Errorf("%s: a try that takes a minute ended after %v, want %v; as of silence: %t", what, took, want, silent)
	}
}

func TestASilentServerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		w := s.Watch()
		wantTry(t, "the first", w, true, times.Silence)
		wantTry(t, "the second", w, true, 2*times.Silence)
		want := []time.Duration{times.Silence / 8, times.Silence / 4}
		if !slices.Equal(s.drops, want) || s.asked != 2 {
			t.Errorf("it was asked %d times, and connections were dropped within %v, want %v", s.asked, s.drops, want)
		}
	})
}

func TestASilentServerIsLeftOnceByAllTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { wantTry(t, "one of ten", s.Watch(), false, times.Silence) })
		}
		all.Wait()
		if s.asked != 1 || len(s.drops) != 1 {
			t.Errorf("it was asked %d times and left %d times, want once", s.asked, len(s.drops))
		}
	})
}

// A try that began before connections were given up is not kept by what others hear over new ones.
func TestAnswersOverNewConnectionsAreNotThoseOfOldOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var all sync.WaitGroup
		for _, d := range []time.Duration{0, 1500 * time.Millisecond} {
			all.Go(func() {
				time.Sleep(d)
				wantTry(t, fmt.Sprint("after ", d), s.Watch(), true, times.Silence)
			})
		}
		time.Sleep(2100 * time.Millisecond)
		for range 10 {
			s.Note(s.Now(), true)
			time.Sleep(100 * time.Millisecond)
		}
		all.Wait()
	})
}

// A server that answers any call is not silent, and need not be asked.
func TestASlowTryIsNotEndedWhileOthersAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		go func() {
			for s.Now() < time.Minute {
				time.Sleep(times.Silence / 3)
				s.Note(s.Now(), true)
			}
		}()
		wantTry(t, "slow", s.Watch(), false, time.Minute)
		if s.asked != 0 || s.drops != nil {
			t.Errorf("it was asked %d times and left: %v", s.asked, s.drops)
		}
		time.Sleep(time.Second)
	})
}

func TestOnlyTheServerOfTheTryIsThere(t *testing.T) {
	for _, row := range []struct {
		name     string
		answered []string
		want     time.Duration
	}{
		{"a", []string{"b"}, times.Silence / 2}, // which has taken its place
		{"a", []string{"b", "a"}, time.Minute},  // one of several
		{"", []string{"b"}, time.Minute},        // not known
		{"", nil, times.Silence},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			s.name, s.names = row.name, row.answered
			wantTry(t, fmt.Sprintf("%+v", row), s.Watch(), true, row.want)
		})
	}
}

// A question ends with the tries that wait for its answer, and the next try asks anew although a driver does
// not return when its ctx is done.
func TestAQuestionHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var ended time.Duration
		ask := s.Ask
		s.Ask = func(ctx context.Context, server string) []string {
			defer func() { ended = s.Now() }()
			return ask(ctx, server)
		}
		if took, silent := try(t, s.Watch(), 1500*time.Millisecond, true); silent {
			t.Errorf("a try was ended after %v", took)
		}
		synctest.Wait()
		if ended != 1500*time.Millisecond+1 {
			t.Errorf("the question ended after %v, want that of its try", ended)
		}
		s.Ask = func(context.Context, string) []string { time.Sleep(time.Hour); return nil }
		try(t, s.Watch(), 1500*time.Millisecond, true)
		synctest.Wait()
		s.Ask = func(context.Context, string) []string { return []string{"a"} }
		wantTry(t, "after a question that has not ended", s.Watch(), true, time.Minute)
		time.Sleep(time.Hour)
	})
}

func TestATryThatIsAnsweredInTheLastMomentLeavesTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		ctx, try := s.Watch().Try(t.Context())
		<-ctx.Done()
		if try.End(false) || s.drops != nil {
			t.Errorf("connections were dropped: %v", s.drops)
		}
	})
}

// call makes a call that fails as the server is down, and returns how long it takes.
func (s *server) call(ctx context.Context) time.Duration {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.Call)
	defer cancel()
	s.Enter(1000)
	defer s.Leave()
	hoping, w := s.WatchCall(ctx)
	defer w.Stop()
	for hoping.Err() == nil {
		try := s.Now()
		select {
		case <-time.After(10 * time.Millisecond):
		case <-hoping.Done():
		}
		s.Note(try, false)
	}
	return time.Since(began)
}

func TestOfCallsThatComeOneAtATimeFewWaitForAServerThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var long []int
		for n := range 45 {
			switch took := s.call(t.Context()); took {
			case times.Call:
				long = append(long, n)
			case times.Early:
			default:
				t.Errorf("call %d took %v", n, took)
			}
		}
		// The second is the first probe. Then there is one in each 20 s, of which a probe takes half.
		if want := []int{0, 1, 12, 23, 34}; !slices.Equal(long, want) {
			t.Errorf("calls %v had all of their time, want %v", long, want)
		}
	})
}

// Until tries have failed for all of its time, a call has that.
func TestOneCallOfAMomentProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), times.Call*19/100)
			defer cancel()
			if took := s.call(ctx); took != times.Call*19/100 {
				t.Errorf("before tries have failed for %v, a call had %v", times.Call, took)
			}
		}
		s.call(t.Context())
		for _, between := range []time.Duration{0, times.Probe / 5} {
			time.Sleep(times.Probe)
			var probes atomic.Int32
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if s.call(t.Context()) == times.Call {
						probes.Add(1)
					}
				})
				time.Sleep(between)
			}
			all.Wait()
			if n, want := probes.Load(), 1+int32(49*between/times.Probe); n != want {
				t.Errorf("of 50 calls, one in each %v, %d had all of their time, want %d", between, n, want)
			}
		}
	})
}

// down returns a server that is down, with a call that is to end early.
func down(t *testing.T) (s *server, hoping context.Context, w *Watch) {
	s = newServer()
	for range 2 { // the second is the first probe
		s.call(t.Context())
	}
	s.Enter(1)
	hoping, w = s.WatchCall(t.Context())
	return s, hoping, w
}

func TestACallGoesOnOnceTheServerHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hoping, w := down(t)
		defer w.Stop()
		time.Sleep(times.Early / 2)
		s.Note(s.Now(), true)
		time.Sleep(times.Early)
		if hoping.Err() != nil {
			t.Error("a call has ended early although the server is back")
		}
		if ctx, _ := s.WatchCall(t.Context()); ctx != t.Context() {
			t.Error("the server is back, and a call ends early")
		}
		s.Note(s.Now()-times.Call, false)
		if ctx, _ := s.WatchCall(t.Context()); ctx != t.Context() {
			t.Error("for a try that began before the last answer, a call ends early")
		}
	})
}
