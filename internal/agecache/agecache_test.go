package agecache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

const lifetime = time.Minute

var (
	errNotFound = errors.New("not found")
	errFailed   = errors.New("failed")
)

// A source is a cache and what it reads: the n-th read returns n, unless fail or wait
// says otherwise.
type source struct {
	*Cache[int]

	mu    sync.Mutex
	reads int
	fail  error
}

// newSource returns a source. wait, if it is not nil, is what the n-th read does before it
// returns.
func newSource(wait func(ctx context.Context, n int) error) *source {
	s := new(source)
	s.Cache = &Cache[int]{NotFound: errNotFound, Lifetime: lifetime, Size: 9, Read: func(ctx context.Context, _ string) (int, error) {
		s.mu.Lock()
		s.reads++
		n, err := s.reads, s.fail
		s.mu.Unlock()
		if wait != nil && err == nil {
			err = wait(ctx, n)
		}
		if err != nil {
			return 0, err
		}
		return n, nil
	}}
	return s
}

func (s *source) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// A result is what Get returned.
type result struct {
	Answer[int]
	err error
}

var keyP = Key{ID: "p"}

// get asks for p.
func (s *source) get(changes ...change) result { return s.getKey(keyP, changes...) }

func (s *source) getKey(key Key, changes ...change) result {
	return <-s.start(context.Background(), key, changes...)
}

// start begins what get does, in a goroutine of its own.
func (s *source) start(ctx context.Context, key Key, changes ...change) <-chan result {
	d := with(changes...)
	done := make(chan result, 1)
	go func() {
		answer, err := s.Get(ctx, key, &d)
		done <- result{answer, err}
	}()
	return done
}

// A change is a directive of a request.
type change func(*Directives)

// with returns the directives of a request without any, and these.
func with(changes ...change) Directives {
	d := Directives{MaxAge: math.MaxInt64, MaxStale: -1, StaleIfError: -1}
	for _, change := range changes {
		change(&d)
	}
	return d
}

func maxAge(seconds int) change {
	return func(d *Directives) { d.AcceptsAge, d.MaxAge = true, time.Duration(seconds)*time.Second }
}

func minFresh(seconds int) change {
	return func(d *Directives) { d.AcceptsAge, d.MinFresh = true, time.Duration(seconds)*time.Second }
}

func maxStale(seconds int) change {
	return func(d *Directives) { d.AcceptsAge, d.MaxStale = true, time.Duration(seconds)*time.Second }
}

func staleIfError(seconds int) change {
	return func(d *Directives) { d.StaleIfError = time.Duration(seconds) * time.Second }
}

func anyStale(d *Directives)     { d.AcceptsAge, d.MaxStale = true, math.MaxInt64 }
func noCache(d *Directives)      { d.NoCache = true }
func noStore(d *Directives)      { d.NoStore = true }
func onlyIfCached(d *Directives) { d.AcceptsAge, d.OnlyIfCached = true, true }

// want checks that the result is this value.
func (r result) want(t *testing.T, n int) {
	t.Helper()
	if r.err != nil || r.Value != n {
		t.Errorf("got %d and the error %v, want %d", r.Value, r.err, n)
	}
}

// wantError checks that the result is this error.
func (r result) wantError(t *testing.T, want error) {
	t.Helper()
	if !errors.Is(r.err, want) {
		t.Errorf("got %d and the error %v, want the error %v", r.Value, r.err, want)
	}
}

// wantReads checks how many reads there were.
func (s *source) wantReads(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reads != want {
		t.Errorf("%d reads, want %d", s.reads, want)
	}
}

// wantStored checks which value of p is stored; 0 is none.
func (s *source) wantStored(t *testing.T, n int) {
	t.Helper()
	r := s.get(onlyIfCached, anyStale)
	if n == 0 {
		r.wantError(t, ErrNotCached)
		return
	}
	r.want(t, n)
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// taking returns a wait that takes d.
func taking(d time.Duration) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error { return pause(ctx, d) }
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Outcomes of a request.
const (
	given      = "given what is stored"
	asked      = "read, and stored"
	askedOnly  = "read, and not stored"
	unanswered = "refused, and nothing read"
)

func TestDirectivesDecideWhatARequestIsGiven(t *testing.T) {
	const nothing = -1 // is stored
	for _, test := range []struct {
		name   string
		age    float64 // of what is stored, in seconds
		want   string
		reason Reason
		d      []change
	}{
		{"no directive", 0, asked, Request, nil},
		{"no directive, stale", 60, asked, Stale, nil},
		{"stale-if-error accepts no age", 0, asked, Request, []change{staleIfError(60)}},

		{"age below max-age", 29, given, "", []change{maxAge(30)}},
		{"age exactly max-age", 30, given, "", []change{maxAge(30)}},
		{"age above max-age", 30.001, asked, Request, []change{maxAge(30)}},
		{"age just below the lifetime", 59.999, given, "", []change{maxAge(3600)}},
		{"age exactly the lifetime", 60, asked, Stale, []change{maxAge(3600)}},

		{"no-cache", 0, asked, Request, []change{noCache}},
		{"no-cache, stale", 60, asked, Stale, []change{noCache}},
		{"no-cache wins over max-age", 0, asked, Request, []change{noCache, maxAge(60)}},
		{"no-cache wins over max-stale", 0, asked, Request, []change{noCache, anyStale}},

		{"no-store", 0, askedOnly, Request, []change{noStore}},
		{"no-store, stale", 60, askedOnly, Stale, []change{noStore}},
		{"no-store with no-cache", 0, askedOnly, Request, []change{noStore, noCache}},
		{"no-store does not apply to what is stored", 30, given, "", []change{noStore, maxAge(30)}},
		{"no-store with max-age that does not accept", 31, askedOnly, Request, []change{noStore, maxAge(30)}},

		{"min-fresh exactly left", 40, given, "", []change{minFresh(20)}},
		{"min-fresh a little more than left", 40.001, asked, Request, []change{minFresh(20)}},
		{"min-fresh of the whole lifetime", 0, given, "", []change{minFresh(60)}},
		{"min-fresh above the lifetime", 0, asked, Request, []change{minFresh(61)}},

		{"max-stale of a fresh one", 59, given, "", []change{maxStale(0)}},
		{"max-stale without limit", 1e7, given, "", []change{anyStale}},
		{"stale for exactly max-stale", 70, given, "", []change{maxStale(10)}},
		{"stale for a little more than max-stale", 70.001, asked, Stale, []change{maxStale(10)}},

		{"min-fresh=0 of a stale one", 60, asked, Stale, []change{minFresh(0)}},
		{"max-stale and min-fresh", 50, given, "", []change{maxStale(10), minFresh(10)}},
		{"max-stale and min-fresh, less than min-fresh left", 51, asked, Request, []change{maxStale(10), minFresh(10)}},
		{"max-stale and min-fresh of a stale one", 60, asked, Stale, []change{anyStale, minFresh(1)}},
		{"max-stale and max-age, older than max-age", 71, asked, Stale, []change{anyStale, maxAge(70)}},
		{"max-age and min-fresh, older than max-age", 31, asked, Request, []change{maxAge(30), minFresh(20)}},

		{"only-if-cached", 59, given, "", []change{onlyIfCached}},
		{"only-if-cached of a stale one", 60, unanswered, "", []change{onlyIfCached}},
		{"only-if-cached, older than max-age", 31, unanswered, "", []change{onlyIfCached, maxAge(30)}},
		{"only-if-cached, max-stale", 70, given, "", []change{onlyIfCached, maxStale(10)}},
		{"only-if-cached, no-cache", 0, unanswered, "", []change{onlyIfCached, noCache}},
		{"only-if-cached, no-store", 59, given, "", []change{onlyIfCached, noStore}},
		{"only-if-cached, no-store of a stale one", 60, unanswered, "", []change{onlyIfCached, noStore}},

		{"no directive", nothing, asked, URIMiss, nil},
		{"no-cache", nothing, asked, URIMiss, []change{noCache}},
		{"max-age", nothing, asked, URIMiss, []change{maxAge(30)}},
		{"min-fresh above the lifetime", nothing, asked, URIMiss, []change{minFresh(61)}},
		{"max-stale", nothing, asked, URIMiss, []change{anyStale}},
		{"no-store", nothing, askedOnly, URIMiss, []change{noStore}},
		{"no-store, max-age", nothing, askedOnly, URIMiss, []change{noStore, maxAge(30)}},
		{"only-if-cached", nothing, unanswered, "", []change{onlyIfCached}},
		{"only-if-cached, no-store", nothing, unanswered, "", []change{onlyIfCached, noStore}},
		{"only-if-cached, no-cache", nothing, unanswered, "", []change{onlyIfCached, noCache}},
	} {
		inBubble(t, fmt.Sprintf("%s, age %v", test.name, test.age), func(t *testing.T) {
			s := newSource(nil)
			began, had := time.Time{}, 0
			if test.age != nothing {
				s.get().want(t, 1)
				began, had = time.Now(), 1
				time.Sleep(seconds(test.age))
			}
			r := s.get(test.d...)
			want, stored := result{}, had
			switch test.want {
			case given:
				want.Answer = Answer[int]{Value: had, Began: began, Age: seconds(test.age)}
			case asked, askedOnly:
				want.Answer = Answer[int]{Value: had + 1, Forwarded: test.reason}
			case unanswered:
				want.err = ErrNotCached
			}
			if test.want == asked {
				stored = had + 1
			}
			if r != want {
				t.Errorf("got %+v, want %+v: %s", r, want, test.want)
			}
			s.wantReads(t, max(had, want.Value))
			s.wantStored(t, stored)
		})
	}
}

// The value of a read may be as old as the beginning of the read.
func TestAgeCountsFromTheBeginningOfTheRead(t *testing.T) {
	for name, d := range map[string][]change{"read through": nil, "shared": {maxAge(60)}} {
		inBubble(t, name, func(t *testing.T) {
			s := newSource(taking(5 * time.Second))
			began := time.Now()
			s.get(d...).want(t, 1)
			time.Sleep(10 * time.Second)
			if r := s.get(onlyIfCached); r.Age != 15*time.Second || !r.Began.Equal(began) {
				t.Errorf("age %v, begun at %v, want 15s and %v", r.Age, r.Began, began)
			}
		})
	}
}

func TestStaleIfError(t *testing.T) {
	for _, test := range []struct {
		name string
		age  float64
		err  error
		want int // the value; 0: the error
		d    []change
	}{
		{"stale for exactly the limit", 90, errFailed, 1, []change{staleIfError(30)}},
		{"stale for a little more than the limit", 90.001, errFailed, 0, []change{staleIfError(30)}},
		{"fresh", 10, errFailed, 1, []change{staleIfError(0)}},
		{"stale, limit 0", 61, errFailed, 0, []change{staleIfError(0)}},
		{"without limit", 1e7, errFailed, 1, []change{staleIfError(1e9)}},
		{"a deadline of the read", 90, context.DeadlineExceeded, 1, []change{staleIfError(30)}},
		{"no such value", 61, fmt.Errorf("wrapped: %w", errNotFound), 0, []change{staleIfError(30)}},
		{"no such value, with no-store", 61, errNotFound, 0, []change{noStore, staleIfError(30)}},
		{"only-if-cached", 61, errFailed, 0, []change{onlyIfCached, staleIfError(30)}},
		{"not asked for", 61, errFailed, 0, nil},
		{"max-age is not a limit for failures", 90, errFailed, 1, []change{maxAge(5), staleIfError(30)}},
		{"max-stale is not a limit for failures", 90, errFailed, 1, []change{maxStale(5), staleIfError(30)}},
		{"min-fresh is not one either", 90, errFailed, 1, []change{minFresh(5), staleIfError(30)}},
		{"no-cache asks first", 90, errFailed, 1, []change{noCache, staleIfError(30)}},
		{"no-store", 90, errFailed, 1, []change{noStore, staleIfError(30)}},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			s := newSource(nil)
			s.get()
			began := time.Now()
			time.Sleep(seconds(test.age))
			s.failWith(test.err)
			r := s.get(test.d...)
			if test.want == 0 {
				if r.err == nil || r.Failure != nil || !r.Began.IsZero() {
					t.Errorf("got %+v, want the error alone", r)
				}
				return
			}
			reason := Stale
			if test.age < 60 {
				reason = Request
			}
			want := result{Answer[int]{Value: 1, Forwarded: reason, Began: began, Age: seconds(test.age), Failure: test.err}, nil}
			if r != want {
				t.Errorf("got %+v, want %+v", r, want)
			}
			s.wantReads(t, 2)
		})
	}
	t.Run("nothing is stored", func(t *testing.T) {
		s := newSource(nil)
		s.failWith(errFailed)
		s.get(staleIfError(30)).wantError(t, errFailed)
	})
	for name, d := range map[string][]change{"read through": {staleIfError(30)}, "shared": {maxAge(5), staleIfError(30)}} {
		inBubble(t, "the request's own deadline, "+name, func(t *testing.T) {
			s := newSource(func(ctx context.Context, n int) error { return pause(ctx, time.Duration(n-1)*time.Hour) })
			s.get()
			time.Sleep(80 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			r := <-s.start(ctx, keyP, d...)
			r.want(t, 1)
			if r.Age != 85*time.Second || r.Failure != context.DeadlineExceeded {
				t.Errorf("age %v for the failure %v, want 85s and the deadline", r.Age, r.Failure)
			}
		})
	}
	t.Run("a request that has been cancelled", func(t *testing.T) {
		s := newSource(func(ctx context.Context, _ int) error { return ctx.Err() })
		s.get()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		(<-s.start(ctx, keyP, staleIfError(30))).wantError(t, context.Canceled)
	})
}

func TestNotFoundDropsWhatIsStored(t *testing.T) {
	for _, d := range [][]change{nil, {noCache}, {maxAge(5)}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSource(nil)
			s.get()
			time.Sleep(10 * time.Second)
			s.failWith(fmt.Errorf("wrapped: %w", errNotFound))
			s.get(d...).wantError(t, errNotFound)
			s.wantStored(t, 0)
		})
	}
}

func TestFailuresAreNotStoredAndDropNothing(t *testing.T) {
	for _, err := range []error{errFailed, context.DeadlineExceeded, errNotFound} {
		for _, d := range [][]change{nil, {maxAge(60)}} {
			s := newSource(nil)
			s.failWith(err)
			for range 2 {
				s.get(d...).wantError(t, err)
			}
			s.wantReads(t, 2)
			s.failWith(nil)
			s.get(maxAge(60)).want(t, 3)
			s.wantStored(t, 3)
			if err != errNotFound {
				s.failWith(err)
				s.get(noCache)
				s.wantStored(t, 3)
			}
		}
	}
}

func TestSizeBoundsTheCacheAndTheLeastRecentlyUsedGoes(t *testing.T) {
	read := func(s *source, ids ...string) {
		for _, id := range ids {
			s.getKey(Key{ID: id}, noCache)
		}
	}
	for _, test := range []struct {
		name string
		size int
		use  func(s *source)
		want []string
	}{
		{"room for all", 3, func(s *source) { read(s, "a", "b", "c") }, []string{"a", "b", "c"}},
		{"one too many", 2, func(s *source) { read(s, "a", "b", "c") }, []string{"b", "c"}},
		{"one", 1, func(s *source) { read(s, "a", "b", "c") }, []string{"c"}},
		{"an answer from the cache is a use", 2, func(s *source) {
			read(s, "a", "b")
			s.getKey(Key{ID: "a"}, maxAge(30))
			read(s, "c")
		}, []string{"a", "c"}},
		{"a refresh is a use and takes no room", 2, func(s *source) { read(s, "a", "b", "a", "a", "c") }, []string{"a", "c"}},
		{"no-store takes no room", 2, func(s *source) {
			read(s, "a", "b")
			s.getKey(Key{ID: "c"}, noStore)
		}, []string{"a", "b"}},
		{"shared reads fill it", 2, func(s *source) {
			for _, id := range []string{"a", "b", "c"} {
				s.getKey(Key{ID: id}, maxAge(30))
			}
		}, []string{"b", "c"}},
		{"values that are gone leave room", 2, func(s *source) {
			read(s, "a", "b")
			s.failWith(errNotFound)
			read(s, "b")
			s.failWith(nil)
			read(s, "c")
		}, []string{"a", "c"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSource(nil)
			s.Size = test.size
			test.use(s)
			var stored []string
			for _, id := range []string{"a", "b", "c"} {
				if s.getKey(Key{ID: id}, onlyIfCached).err == nil {
					stored = append(stored, id)
				}
			}
			if !slices.Equal(stored, test.want) {
				t.Errorf("stored %q, want %q", stored, test.want)
			}
		})
	}
}

func TestKeysShareNeitherAValueNorARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(taking(time.Second))
		keys := []Key{{"", "p"}, {"a", "p"}, {"b", "p"}, {"", "ap"}, {"ap", ""}}
		var pending []<-chan result
		for _, key := range keys {
			pending = append(pending, s.start(t.Context(), key, maxAge(30)))
		}
		for i, key := range keys {
			(<-pending[i]).want(t, s.getKey(key, onlyIfCached).Value)
		}
		s.wantReads(t, len(keys))
	})
}

func TestConcurrentRequestsThatAcceptAgeShareOneRead(t *testing.T) {
	for _, ds := range [][][]change{
		{{maxAge(60)}},
		{{maxAge(1)}}, // the read takes longer, but none of them came after it began
		{{maxAge(60)}, {anyStale}, {minFresh(5)}, {maxAge(10), staleIfError(5)}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSource(taking(5 * time.Second))
			var pending []<-chan result
			for i := range 50 {
				pending = append(pending, s.start(t.Context(), keyP, ds[i%len(ds)]...))
			}
			collapsed := 0
			for _, p := range pending {
				r := <-p
				r.want(t, 1)
				if r.Collapsed {
					collapsed++
				}
				if r.Forwarded != URIMiss {
					t.Errorf("read for the reason %q", r.Forwarded)
				}
			}
			s.wantReads(t, 1)
			if collapsed != 49 {
				t.Errorf("%d of 50 answers are marked as collapsed, want all but one", collapsed)
			}
		})
	}
}

// For a request that joins a read, the value is as old as the read.
func TestAgeOfASharedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(taking(50 * time.Second))
		began := time.Now()
		first := s.start(t.Context(), keyP, maxAge(60))
		time.Sleep(49 * time.Second)
		want := result{Answer[int]{Value: 1, Forwarded: URIMiss, Collapsed: true, Began: began, Age: 50 * time.Second}, nil}
		if joined := <-s.start(t.Context(), keyP, maxAge(60)); joined != want {
			t.Errorf("the request that joined got %+v, want %+v", joined, want)
		}
		want = result{Answer[int]{Value: 1, Forwarded: URIMiss}, nil}
		if own := <-first; own != want {
			t.Errorf("the request that began the read got %+v, want %+v", own, want)
		}
	})
}

func TestARequestThatDoesNotAcceptAgeNeverJoinsARead(t *testing.T) {
	for name, d := range map[string][]change{
		"no directive":      nil,
		"no-cache":          {noCache},
		"no-cache, max-age": {noCache, maxAge(60)},
		"no-store":          {noStore},
		"no-store, max-age": {noStore, maxAge(60)},
		"min-fresh":         {minFresh(61)},
		"stale-if-error":    {staleIfError(60)},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newSource(taking(5 * time.Second))
			first := s.start(t.Context(), keyP, maxAge(60))
			time.Sleep(time.Second)
			second := s.start(t.Context(), keyP, d...)
			synctest.Wait()
			s.wantReads(t, 2)
			(<-first).want(t, 1)
			(<-second).want(t, 2)
		})
	}
}

func TestASharedReadIsNotGivenToARequestForWhichItBeganTooLongAgo(t *testing.T) {
	for _, test := range []struct {
		name    string
		arrives time.Duration
		d       change
		want    int
		takes   time.Duration
	}{
		{"it is young enough when it is done", time.Second, maxAge(5), 1, 4 * time.Second},
		{"it is too old when it is done", time.Second, maxAge(4), 2, 9 * time.Second},
		{"it is too old to join", 3 * time.Second, maxAge(2), 2, 5 * time.Second},
		{"it leaves too little freshness when it is done", time.Second, minFresh(56), 2, 9 * time.Second},
		{"it leaves just enough freshness when it is done", time.Second, minFresh(55), 1, 4 * time.Second},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			s := newSource(taking(5 * time.Second))
			first := s.start(t.Context(), keyP, maxAge(60))
			time.Sleep(test.arrives)
			arrived := time.Now()
			s.get(test.d).want(t, test.want)
			if took := time.Since(arrived); took != test.takes {
				t.Errorf("it took %v, want %v", took, test.takes)
			}
			(<-first).want(t, 1)
			s.wantReads(t, test.want)
		})
	}
	inBubble(t, "those that ask again share the second read", func(t *testing.T) {
		s := newSource(taking(5 * time.Second))
		pending := []<-chan result{s.start(t.Context(), keyP, maxAge(60))}
		began := time.Now()
		time.Sleep(time.Second / 2)
		for range 20 {
			pending = append(pending, s.start(t.Context(), keyP, maxAge(1)))
		}
		for _, p := range pending {
			<-p
		}
		s.wantReads(t, 2)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %v, want the time of two reads, 10s", took)
		}
	})
	inBubble(t, "that there is no such value is an answer, too", func(t *testing.T) {
		s := newSource(func(ctx context.Context, n int) error {
			if err := pause(ctx, 5*time.Second); err != nil || n > 1 {
				return err
			}
			return errNotFound
		})
		first := s.start(t.Context(), keyP, maxAge(60))
		time.Sleep(time.Second)
		s.get(maxAge(3)).want(t, 2)
		(<-first).wantError(t, errNotFound)
	})
}

func TestCancellationOfOneRequestDoesNotFailTheOthers(t *testing.T) {
	for i := range 6 {
		who, want := i%3, []error{context.Canceled, context.DeadlineExceeded}[i/3]
		inBubble(t, fmt.Sprintf("request %d, %v", who, want), func(t *testing.T) {
			s := newSource(taking(5 * time.Second))
			began := time.Now()
			gone, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var pending []<-chan result
			for i := range 3 {
				ctx := t.Context()
				if i == who {
					ctx = gone
				}
				pending = append(pending, s.start(ctx, keyP, maxAge(60)))
				synctest.Wait()
			}
			if want == context.Canceled {
				cancel()
			}
			<-gone.Done()
			ended := time.Since(began)
			(<-pending[who]).wantError(t, want)
			if took := time.Since(began); took != ended {
				t.Errorf("the request ended after %v, want %v", took, ended)
			}
			for i, p := range pending {
				if i != who {
					(<-p).want(t, 1)
				}
			}
			s.wantReads(t, 1)
			s.wantStored(t, 1)
		})
	}
}

// No goroutine remains: synctest fails when one does.
func TestAReadForWhichNobodyWaitsIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		s := newSource(func(ctx context.Context, n int) error {
			if n > 1 {
				return nil
			}
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		timed, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		first, second := s.start(ctx, keyP, maxAge(60)), s.start(timed, keyP, maxAge(60))
		synctest.Wait()
		cancel()
		<-first
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the read was cancelled while a request waited for it")
		}
		<-second
		if err := <-ended; err != context.Canceled {
			t.Errorf("the read ended with %v, want its context cancelled", err)
		}
		s.get(maxAge(60)).want(t, 2)
	})
}

func TestACancelledReadIsNotJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{}) // the first read is slow to see that it is cancelled
		s := newSource(func(ctx context.Context, n int) error {
			if n == 1 {
				<-slow
			}
			return ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		first := s.start(ctx, keyP, maxAge(60))
		synctest.Wait()
		cancel()
		<-first
		second := s.start(t.Context(), keyP, maxAge(60))
		synctest.Wait()
		s.wantReads(t, 2)
		close(slow)
		(<-second).want(t, 2)
		s.wantStored(t, 2)
	})
}

func TestContextOfASharedReadEndsWithIt(t *testing.T) {
	var seen context.Context
	s := newSource(func(ctx context.Context, _ int) error {
		seen = ctx
		return nil
	})
	s.get(maxAge(60))
	if seen.Err() == nil {
		t.Error("the context is not cancelled after the read: what hangs on it is leaked")
	}
}

// The values of a context, such as a trace or an account, are those of the request that
// began the read, even if it has ended, and never of another scope.
func TestASharedReadHasTheValuesOfTheRequestThatBeganIt(t *testing.T) {
	type name struct{}
	synctest.Test(t, func(t *testing.T) {
		saw := make(chan string, 4)
		s := newSource(func(ctx context.Context, _ int) error {
			err := pause(ctx, time.Second)
			saw <- ctx.Value(name{}).(string)
			return err
		})
		var pending []<-chan result
		for _, request := range []string{"a1", "a2", "b1"} {
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), name{}, request), time.Minute)
			defer cancel()
			if request == "a1" {
				ctx, cancel = context.WithTimeout(ctx, time.Second/2)
				defer cancel()
			}
			pending = append(pending, s.start(ctx, Key{Scope: request[:1]}, maxAge(60)))
			synctest.Wait()
		}
		for _, p := range pending {
			<-p
		}
		s.wantReads(t, 2)
		if first, second := <-saw, <-saw; first+second != "a1b1" && first+second != "b1a1" {
			t.Errorf("the reads saw the values %s and %s, want a1 and b1", first, second)
		}
	})
}

func TestAnOlderSlowerReadDoesNotReplaceANewerValue(t *testing.T) {
	for _, older := range [][]change{nil, {maxAge(60)}} {
		for _, newer := range [][]change{nil, {noCache}, {maxAge(1)}} {
			for _, outcome := range []error{nil, errNotFound, errFailed} {
				inBubble(t, fmt.Sprintf("%+v, %+v, %v", with(older...), with(newer...), outcome), func(t *testing.T) {
					s := newSource(func(ctx context.Context, n int) error {
						if n > 1 {
							return nil
						}
						pause(ctx, 10*time.Second)
						return outcome
					})
					slow := s.start(t.Context(), keyP, older...)
					time.Sleep(2 * time.Second)
					s.get(newer...).want(t, 2)
					<-slow
					s.wantStored(t, 2)
				})
			}
		}
	}
}

func TestAnOlderReadDoesNotBringBackAValueThatIsGone(t *testing.T) {
	for _, test := range []struct {
		name         string
		older, newer []change
		wait         time.Duration
	}{
		{"shared, then no-cache", []change{maxAge(60)}, []change{noCache}, 2 * time.Second},
		{"shared, then no-cache at one time of the clock", []change{maxAge(60)}, []change{noCache}, 0},
		{"shared, then shared", []change{maxAge(60)}, []change{maxAge(1)}, 2 * time.Second},
		{"no-cache, then no-cache", []change{noCache}, []change{noCache}, 2 * time.Second},
		{"no-cache, then no-cache at one time of the clock", []change{noCache}, []change{noCache}, 0},
		{"no directive, then shared", nil, []change{maxAge(1)}, 2 * time.Second},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			s := newSource(func(ctx context.Context, n int) error {
				if n == 1 {
					return pause(ctx, 5*time.Second)
				}
				return errNotFound
			})
			slow := s.start(t.Context(), keyP, test.older...)
			synctest.Wait()
			time.Sleep(test.wait)
			s.get(test.newer...).wantError(t, errNotFound)
			s.get(maxAge(60)).wantError(t, errNotFound)
			(<-slow).want(t, 1)
			s.wantStored(t, 0)
		})
	}
}

func TestAReadThatFailsDoesNotKeepRequestsFromJoiningAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := [...]chan struct{}{make(chan struct{}), make(chan struct{})}
		s := newSource(func(_ context.Context, n int) error {
			<-let[n-1]
			return []error{errFailed, nil}[n-1]
		})
		through := s.start(t.Context(), keyP, noCache)
		synctest.Wait()
		first := s.start(t.Context(), keyP, maxAge(60))
		synctest.Wait()
		close(let[0])
		(<-through).wantError(t, errFailed)
		second := s.start(t.Context(), keyP, maxAge(60))
		synctest.Wait()
		close(let[1])
		(<-first).want(t, 2)
		(<-second).want(t, 2)
	})
}

func TestAReadThatEndsItsGoroutineHangsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(func(ctx context.Context, n int) error {
			pause(ctx, time.Second)
			if n < 3 {
				runtime.Goexit()
			}
			return nil
		})
		first, second := s.start(t.Context(), keyP, maxAge(60)), s.start(t.Context(), keyP, maxAge(60))
		(<-first).wantError(t, errNoReturn)
		(<-second).wantError(t, errNoReturn)
		s.start(t.Context(), keyP) // its own goroutine ends
		time.Sleep(2 * time.Second)
		s.wantReads(t, 2)
		s.Cache.mu.Lock()
		if len(s.Cache.reads) > 0 {
			t.Error("a read that has ended counts as under way")
		}
		s.Cache.mu.Unlock()
		s.get(maxAge(60)).want(t, 3)
	})
}

// Any mixture of requests is held against the one rule that there is: an answer is as
// new as the request's arrival, or no older than its max-age.
func TestNoAnswerIsOlderThanItsRequestAccepts(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var (
				mu    sync.Mutex
				began = []time.Time{{}} // by value
				slow  = rand.New(rand.NewPCG(seed, 1))
			)
			s := newSource(func(ctx context.Context, n int) error {
				mu.Lock()
				for len(began) <= n {
					began = append(began, time.Now())
				}
				d, fails := time.Duration(slow.IntN(4000))*time.Millisecond, slow.IntN(10) == 0
				mu.Unlock()
				if err := pause(ctx, d); err != nil || fails {
					return errors.Join(errFailed, err)
				}
				return nil
			})
			s.Lifetime = 5 * time.Second
			var wg sync.WaitGroup
			answers := 0
			for range 300 {
				time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
				accepts := random.IntN(4)
				var d []change
				switch {
				case accepts > 0:
					d = []change{maxAge(accepts)}
				case random.IntN(2) == 0:
					d = []change{noCache}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(20_000))*time.Millisecond)
				wg.Go(func() {
					defer cancel()
					arrived := time.Now()
					r := <-s.start(ctx, keyP, d...)
					if r.err != nil {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					answers++
					read := began[r.Value]
					if read.Before(arrived) && time.Since(read) > time.Duration(accepts)*time.Second {
						t.Errorf("seed %d: a request with max-age=%d that arrived at %v was given at %v what was read at %v",
							seed, accepts, arrived, time.Now(), read)
					}
				})
			}
			wg.Wait()
			if reads := len(began) - 1; answers < 100 || reads >= 300 {
				t.Errorf("seed %d: %d answers of %d reads: this tests nothing", seed, answers, reads)
			}
		})
	}
}

// A Get may share its read with another, and its caller may leave while the read goes on.
func TestNothingKeepsTheMemoryOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(func(context.Context, int) error {
			time.Sleep(time.Second)
			return nil
		})
		var ids []string
		read := s.Read
		s.Read = func(ctx context.Context, id string) (int, error) {
			n, err := read(ctx, id)
			s.mu.Lock()
			defer s.mu.Unlock()
			ids = append(ids, id)
			return n, err
		}
		var wg sync.WaitGroup
		for _, d := range []Directives{with(noCache), with(noCache), with(maxAge(0)), with(maxAge(60)), with(maxAge(60))} {
			for _, patience := range []time.Duration{time.Millisecond, time.Minute} {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					memory := []byte("scope and id")
					text := unsafe.String(unsafe.SliceData(memory), len(memory))
					s.Get(ctx, Key{Scope: text[:5], ID: text[10:]}, &d)
					clear(memory)
				})
				time.Sleep(time.Millisecond)
			}
		}
		wg.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		for _, id := range ids {
			if id != "id" {
				t.Errorf("a read has %q in place of the ID", id)
			}
		}
		if r := s.getKey(Key{Scope: "scope", ID: "id"}, onlyIfCached); r.err != nil || len(s.Cache.reads) > 0 {
			t.Errorf("the value is not stored: %v, or one of %d reads has not ended", r.err, len(s.Cache.reads))
		}
	})
}

// inBubble runs a subtest in which time passes only while all goroutines wait.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
