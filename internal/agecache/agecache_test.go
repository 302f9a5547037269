package agecache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errNotFound = errors.New("not found")
	errFailed   = errors.New("failed")
)

// An outcome is that of a read. Times are in seconds.
type outcome struct {
	takes     float64
	cancelled float64 // when its context ends, and so the read, if that is before it is done
	deaf      bool    // it goes on when its context ends
	exits     bool    // it ends its goroutine
	err       error   // that it returns
}

// A request is one of a test. Times are in seconds.
type request struct {
	at     float64 // when it arrives
	header string  // its directives, and when it is cancelled or has its deadline
	want   string  // the answer and its time
}

// stored is the header of a request that takes whatever is stored.
const stored = "only-if-cached, max-stale"

// parse returns what a header says. Without cancelled and deadline, ctx ends with the test.
func parse(ctx context.Context, header string) (context.Context, *Directives) {
	d := &Directives{MaxAge: math.MaxInt64, MaxStale: -1, StaleIfError: -1}
	set := map[string]*bool{"no-cache": &d.NoCache, "no-store": &d.NoStore, "only-if-cached": &d.OnlyIfCached}
	limit := map[string]*time.Duration{
		"max-age": &d.MaxAge, "min-fresh": &d.MinFresh, "max-stale": &d.MaxStale,
		"stale-if-error": &d.StaleIfError,
	}
	var cancel context.CancelFunc
	for text := range strings.SplitSeq(header, ", ") {
		name, value, hasValue := strings.Cut(text, "=")
		n, _ := strconv.ParseFloat(value, 64)
		switch {
		case set[name] != nil:
			*set[name] = true
		case name == "max-stale" && !hasValue:
			d.MaxStale = math.MaxInt64
		case limit[name] != nil:
			*limit[name] = seconds(n)
		case name == "deadline":
			ctx, cancel = context.WithTimeout(ctx, seconds(n))
			context.AfterFunc(ctx, cancel)
		case name == "cancelled":
			ctx, cancel = context.WithCancel(ctx)
			time.AfterFunc(seconds(n), cancel)
		}
		d.AcceptsAge = d.AcceptsAge ||
			slices.Contains([]string{"max-age", "min-fresh", "max-stale", "only-if-cached"}, name)
	}
	return ctx, d
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newCache returns one with room for 9 values, each fresh for a minute.
func newCache(read func(ctx context.Context, id string) (int, error)) *Cache[int] {
	return &Cache[int]{Read: read, NotFound: errNotFound, Lifetime: time.Minute, Size: 9}
}

// play has the requests arrive one after the other, and checks what each is answered. The n-th read
// does what reads says, and returns n unless that is an error. There is no other.
func play(t *testing.T, name string, reads []outcome, requests []request) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var seen []context.Context // by the reads
			cache := newCache(func(ctx context.Context, _ string) (int, error) {
				seen = append(seen, ctx)
				n := len(seen)
				if n > len(reads) {
					return n, nil
				}
				r := reads[n-1]
				if r.deaf {
					ctx = context.WithoutCancel(ctx)
				}
				if err := pause(ctx, seconds(r.takes)); err != nil {
					if at := time.Since(began); at != seconds(r.cancelled) {
						t.Errorf("read %d is cancelled after %v, want %v", n, at, seconds(r.cancelled))
					}
					return 0, err
				}
				if r.exits {
					runtime.Goexit()
				}
				if r.err != nil {
					return 0, r.err
				}
				return n, nil
			})
			var pending sync.WaitGroup
			for i, r := range requests {
				time.Sleep(seconds(r.at) - time.Since(began))
				pending.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					got := "none"
					defer func() {
						if got != r.want {
							t.Errorf("request %d (%s): the answer is %s, want %s", i, r.header, got, r.want)
						}
					}()
					ctx, d := parse(ctx, r.header)
					answer, err := cache.Get(ctx, Key{ID: "p"}, d)
					got = describe(answer, err, began)
				})
				synctest.Wait()
			}
			pending.Wait()
			synctest.Wait()
			if len(seen) != len(reads) || len(cache.reads) > 0 {
				t.Errorf("%d reads, want %d; %d go on", len(seen), len(reads), len(cache.reads))
			}
			for i, ctx := range seen {
				if ctx.Err() == nil {
					t.Errorf("the context of read %d has not ended: what hangs on it is leaked", i+1)
				}
			}
		})
	})
}

func describe(a Answer[int], err error, began time.Time) string {
	text := fmt.Sprint(a.Value)
	if err != nil {
		text, _, _ = strings.Cut(err.Error(), "\n")
	}
	text += fmt.Sprint(" at ", time.Since(began))
	if a.Forwarded != "" {
		text += ", " + string(a.Forwarded)
	}
	if a.Collapsed {
		text += ", collapsed"
	}
	if !a.Began.IsZero() || a.Age != 0 {
		text += fmt.Sprintf(", %v old", time.Since(a.Began))
		if a.Age != time.Since(a.Began) {
			text += fmt.Sprintf(" and not %v", a.Age)
		}
	}
	if a.Failure != nil {
		text += ", in place of " + a.Failure.Error()
	}
	return text
}

// What a request that does not accept it is given is in the recorded exchanges product-cache-*.
func TestWhichAgeARequestAccepts(t *testing.T) {
	const none, forever = -1, 1e9
	for header, most := range map[string]float64{ // in seconds, of a value that is fresh for 60
		"":                           none,
		"stale-if-error=60":          none,
		"no-cache":                   none,
		"no-cache, max-stale":        none,
		"max-age=30":                 30,
		"max-age=3600":               59.999,
		"no-store, max-age=30":       30, // it does not apply to what is stored
		"min-fresh=10":               50,
		"min-fresh=60":               0,
		"min-fresh=61":               none,
		"max-stale":                  forever,
		"max-stale=10":               70,
		"max-stale=10, min-fresh=10": 50,
		"max-stale, min-fresh=1":     59,
		"max-stale, max-age=70":      70,
		"only-if-cached":             59.999,
		"only-if-cached, max-age=30": 30,
	} {
		_, d := parse(t.Context(), header)
		for age, want := range map[float64]bool{most: true, most + 0.001: most == forever} {
			if got := d.accepts(seconds(max(age, 0)), time.Minute); got != (want && most != none) {
				t.Errorf("%q accepts an age of %v s: %t", header, age, got)
			}
		}
	}
}

// The value of a read may be as old as the beginning of the read.
func TestAgeCountsFromTheBeginningOfTheRead(t *testing.T) {
	for _, header := range []string{"", "max-age=60"} {
		play(t, header, []outcome{{takes: 5}, {takes: 5}}, []request{
			{0, header, "1 at 5s, uri-miss"},
			{15, "only-if-cached", "1 at 15s, 15s old"},
			{20, "no-cache", "2 at 25s, request"},
			{30, "only-if-cached", "2 at 30s, 10s old"},
		})
	}
}

func TestStaleIfError(t *testing.T) {
	wrapped := fmt.Errorf("wrapped: %w", errNotFound)
	for _, row := range []struct {
		age    float64
		header string
		err    error // of the read
		helps  bool
	}{
		{90, "stale-if-error=30", errFailed, true},
		{90.001, "stale-if-error=30", errFailed, false},
		{61, "stale-if-error=0", errFailed, false},
		{1e7, "stale-if-error=1e9", errFailed, true},
		{90, "stale-if-error=30", context.DeadlineExceeded, true},
		{61, "stale-if-error=30", wrapped, false},
		{61, "no-store, stale-if-error=30", errNotFound, false},
		{61, "", errFailed, false},
		// Other directives are no limit for failures.
		{90, "max-age=5, stale-if-error=30", errFailed, true},
		{90, "no-cache, stale-if-error=30", errFailed, true},
	} {
		at := seconds(row.age)
		want := fmt.Sprintf("%v at %v, stale", row.err, at)
		if row.helps {
			want = fmt.Sprintf("1 at %v, stale, %v old, in place of %v", at, at, row.err)
		}
		play(t, fmt.Sprintf("%s, age %v, %v", row.header, row.age, row.err), []outcome{{}, {err: row.err}},
			[]request{{0, "", "1 at 0s, uri-miss"}, {row.age, row.header, want}})
	}
	play(t, "nothing is stored", []outcome{{err: errFailed}}, []request{
		{0, "stale-if-error=30", "failed at 0s, uri-miss"},
	})
	for _, header := range []string{"stale-if-error=30", "max-age=5, stale-if-error=30"} {
		reads := []outcome{{}, {takes: 99, cancelled: 85}, {takes: 99, cancelled: 88}}
		play(t, "the request's own end, "+header, reads, []request{
			{0, "", "1 at 0s, uri-miss"},
			{80, header + ", deadline=5",
				"1 at 1m25s, stale, 1m25s old, in place of " + context.DeadlineExceeded.Error()},
			{86, header + ", cancelled=2", "context canceled at 1m28s, stale"},
		})
	}
}

func TestFailuresAreNotStoredAndDropNothing(t *testing.T) {
	for _, err := range []error{errFailed, context.DeadlineExceeded, errNotFound} {
		for _, header := range []string{"", "max-age=60"} {
			reads := []outcome{{err: err}, {err: err}, {}, {err: errFailed}}
			play(t, fmt.Sprintf("%s, %v", header, err), reads, []request{
				{0, header, err.Error() + " at 0s, uri-miss"},
				{1, header, err.Error() + " at 1s, uri-miss"},
				{2, "max-age=60", "3 at 2s, uri-miss"},
				{3, "no-cache", "failed at 3s, request"},
				{4, stored, "3 at 4s, 2s old"},
			})
		}
	}
}

func TestSizeBoundsTheCacheAndTheLeastRecentlyUsedGoes(t *testing.T) {
	for _, row := range []struct {
		name string
		uses string // the header of a request, and the keys
		want string
	}{
		{"one too many", "no-cache: a b c", "b c"},
		{"an answer from the cache is a use", "no-cache: a b; max-age=30: a; no-cache: c", "a c"},
		{"a refresh is a use and takes no room", "no-cache: a b a a c", "a c"},
		{"no-store takes no room", "no-cache: a b; no-store: c", "a b"},
		{"shared reads fill it", "max-age=30: a b c", "b c"},
	} {
		cache := newCache(func(context.Context, string) (int, error) { return 0, nil })
		cache.Size = 2
		for use := range strings.SplitSeq(row.uses, "; ") {
			header, ids, _ := strings.Cut(use, ": ")
			_, d := parse(t.Context(), header)
			for _, id := range strings.Fields(ids) {
				cache.Get(t.Context(), Key{ID: id}, d)
			}
		}
		var got []string
		_, d := parse(t.Context(), stored)
		for _, id := range []string{"a", "b", "c"} {
			if _, err := cache.Get(t.Context(), Key{ID: id}, d); err == nil {
				got = append(got, id)
			}
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s: stored %q, want %s", row.name, got, row.want)
		}
	}
}

func TestKeysShareNeitherAValueNorARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		cache := newCache(func(ctx context.Context, _ string) (int, error) {
			n++
			read := n
			return read, pause(ctx, time.Second)
		})
		keys := []Key{{"", "p"}, {"a", "p"}, {"b", "p"}, {"", "ap"}, {"ap", ""}}
		for _, header := range []string{"max-age=30", stored} {
			_, d := parse(t.Context(), header)
			for i, key := range keys {
				go func() {
					if got, err := cache.Get(t.Context(), key, d); got.Value != i+1 || err != nil {
						t.Errorf("%s of %q: %d, %v, want %d", header, key, got.Value, err, i+1)
					}
				}()
				synctest.Wait()
			}
			time.Sleep(2 * time.Second)
		}
	})
}

func TestConcurrentRequestsThatAcceptAgeShareOneRead(t *testing.T) {
	const joined = "1 at 5s, uri-miss, collapsed, 5s old"
	play(t, "whatever else they say", []outcome{{takes: 5}}, []request{
		{0, "max-age=10, stale-if-error=5", "1 at 5s, uri-miss"},
		{0, "max-stale", joined},
		{0, "min-fresh=5", joined},
		{0, "max-age=1", joined}, // the read takes longer, but it did not begin before the request came
		{4, "max-age=5", joined},
	})
	play(t, "there is none", []outcome{{takes: 5, err: errNotFound}}, []request{
		{0, "max-age=60", "not found at 5s, uri-miss"},
		{1, "max-age=60", "not found at 5s, uri-miss, collapsed, 5s old"},
	})
}

func TestARequestThatDoesNotAcceptAgeNeverJoinsARead(t *testing.T) {
	for _, header := range []string{
		"", "no-cache, max-age=60", "no-store, max-age=60", "min-fresh=61", "stale-if-error=60",
	} {
		play(t, header, []outcome{{takes: 5}, {takes: 5}}, []request{
			{0, "max-age=60", "1 at 5s, uri-miss"}, {1, header, "2 at 6s, uri-miss"},
		})
	}
}

func TestASharedReadIsNotGivenToARequestForWhichItBeganTooLongAgo(t *testing.T) {
	const joined, second = "1 at 5s, uri-miss, collapsed, 5s old", "2 at 10s, request"
	for _, row := range []struct {
		name  string
		reads int
		later []request
	}{
		{"it is young enough when it is done", 1, []request{{1, "max-age=5", joined}}},
		{"it is too old when it is done", 2, []request{{1, "max-age=4", second}}},
		{"it is too old to join", 2, []request{{3, "max-age=2", "2 at 8s, uri-miss"}}},
		{"it leaves just enough freshness when it is done", 1, []request{{1, "min-fresh=55", joined}}},
		{"it leaves too little freshness when it is done", 2, []request{{1, "min-fresh=56", second}}},
		{"who asks again shares the second read", 2, []request{
			{1, "max-age=1", second}, {7, "max-age=5", "2 at 10s, request, collapsed, 5s old"},
		}},
	} {
		play(t, row.name, []outcome{{takes: 5}, {takes: 5}}[:row.reads],
			append([]request{{0, "max-age=60", "1 at 5s, uri-miss"}}, row.later...))
	}
	reads := []outcome{{takes: 5, err: errNotFound}, {takes: 5}}
	play(t, "that there is no such value is an answer, too", reads, []request{
		{0, "max-age=60", "not found at 5s, uri-miss"}, {1, "max-age=3", "2 at 10s, uri-miss"},
	})
}

func TestCancellationOfOneRequestDoesNotFailTheOthers(t *testing.T) {
	const joined = "1 at 5s, uri-miss, collapsed, 5s old"
	for i := range 3 {
		requests := []request{
			{0, "max-age=60", "1 at 5s, uri-miss"}, {0, "max-age=60", joined}, {0, "max-age=60", joined},
			{6, stored, "1 at 6s, 6s old"},
		}
		requests[i] = request{0, "max-age=60, cancelled=2", "context canceled at 2s, uri-miss"}
		play(t, fmt.Sprint("request ", i, " is cancelled"), []outcome{{takes: 5}}, requests)
		requests[i] = request{0, "max-age=60, deadline=2", "context deadline exceeded at 2s, uri-miss"}
		play(t, fmt.Sprint("request ", i, " has a deadline"), []outcome{{takes: 5}}, requests)
	}
}

func TestAReadForWhichNobodyWaitsIsCancelled(t *testing.T) {
	play(t, "after the last one left", []outcome{{takes: 9, cancelled: 2}, {}}, []request{
		{0, "max-age=60, cancelled=1", "context canceled at 1s, uri-miss"},
		{0, "max-age=60, deadline=2", "context deadline exceeded at 2s, uri-miss"},
		{3, "max-age=60", "2 at 3s, uri-miss"},
	})
}

func TestACancelledReadIsNotJoined(t *testing.T) {
	reads := []outcome{{takes: 5, deaf: true, err: context.Canceled}, {takes: 5}}
	play(t, "which is slow to see that it is", reads, []request{
		{0, "max-age=60, cancelled=1", "context canceled at 1s, uri-miss"},
		{2, "max-age=60", "2 at 7s, uri-miss"},
		{8, stored, "2 at 8s, 6s old"},
	})
	play(t, "and another is", []outcome{{takes: 9, cancelled: 4}, {takes: 5}}, []request{
		{0, "max-age=60, cancelled=4", "context canceled at 4s, uri-miss"},
		{3, "max-age=2", "2 at 8s, uri-miss"},
		{5, "max-age=60", "2 at 8s, uri-miss, collapsed, 5s old"},
	})
}

func TestAnOlderSlowerReadDoesNotReplaceANewerValue(t *testing.T) {
	for _, headers := range [][2]string{
		{"", ""}, {"", "no-cache"}, {"", "max-age=1"}, {"max-age=60", ""}, {"max-age=60", "no-cache"},
		{"max-age=60", "max-age=1"},
	} {
		for want, err := range map[string]error{"1": nil, "not found": errNotFound, "failed": errFailed} {
			play(t, fmt.Sprintf("%q, %s", headers, want), []outcome{{takes: 10, err: err}, {}}, []request{
				{0, headers[0], want + " at 10s, uri-miss"},
				{2, headers[1], "2 at 2s, uri-miss"},
				{3, "max-age=60", "2 at 3s, 1s old"},
				{11, stored, "2 at 11s, 9s old"},
			})
		}
	}
}

func TestAnOlderReadDoesNotBringBackAValueThatIsGone(t *testing.T) {
	for _, row := range []struct {
		older, newer string
		at           float64
	}{
		{"max-age=60", "no-cache", 2}, {"max-age=60", "no-cache", 0}, {"max-age=60", "max-age=1", 2},
		{"no-cache", "no-cache", 2}, {"no-cache", "no-cache", 0}, {"", "max-age=1", 2},
	} {
		play(t, fmt.Sprintf("%s, %s, %v", row.older, row.newer, row.at),
			[]outcome{{takes: 5}, {err: errNotFound}, {err: errNotFound}}, []request{
				{0, row.older, "1 at 5s, uri-miss"},
				{row.at, row.newer, fmt.Sprintf("not found at %v, uri-miss", seconds(row.at))},
				{3, "max-age=60", "not found at 3s, uri-miss"},
				{6, stored, "agecache: not cached at 6s"},
			})
	}
}

func TestAReadThatFailsDoesNotKeepRequestsFromJoiningAnother(t *testing.T) {
	play(t, "which began after it", []outcome{{takes: 1, err: errFailed}, {takes: 5}}, []request{
		{0, "no-cache", "failed at 1s, uri-miss"},
		{0, "max-age=60", "2 at 5s, uri-miss"},
		{2, "max-age=60", "2 at 5s, uri-miss, collapsed, 5s old"},
	})
}

func TestAReadThatEndsItsGoroutineHangsNobody(t *testing.T) {
	play(t, "shared or not", []outcome{{takes: 1, exits: true}, {takes: 1, exits: true}, {}}, []request{
		{0, "max-age=60", "agecache: the read ended its goroutine at 1s, uri-miss"},
		{0, "max-age=60", "agecache: the read ended its goroutine at 1s, uri-miss"},
		{0, "", "none"}, // its own goroutine ends
		{2, "max-age=60", "3 at 2s, uri-miss"},
	})
}
