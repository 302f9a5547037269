package faultreport

import (
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/storefront/internal/conformance"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stalled makes a buyer stop for 10 seconds now and then: before a request, and before it sees
// the answer.
func (b *buyer) stalled() {
	whole := b.http.Transport
	stall := func() {
		if mathrand.IntN(50) == 0 {
			time.Sleep(10 * time.Second)
		}
	}
	b.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		stall()
		res, err := whole.RoundTrip(r)
		stall()
		if late := r.Context().Err(); late != nil && err == nil {
			res.Body.Close()
			return nil, late
		}
		return res, err
	})
}

// Each order has a generator of its own, whose seed is the time. Orders that begin at once wait
// for the same times, then.
func TestNoRightClientIsAccused(t *testing.T) {
	type times = time.Duration
	for name, wait := range map[string]func(n func(times) times, limit, was times) times{
		"full":   func(n func(times) times, limit, _ times) times { return n(limit) },
		"equal":  func(n func(times) times, limit, _ times) times { return limit/2 + n(limit/2) },
		"linear": func(n func(times) times, _, was times) times { return was + time.Second/2 + n(time.Second/2) },
		"decorrelated": func(n func(times) times, _, was times) times {
			return min(time.Minute, time.Second/4+n(max(time.Second/2, 3*was-time.Second/4)))
		},
	} {
		order := func(b *buyer, i int) {
			random := mathrand.New(mathrand.NewPCG(uint64(time.Now().UnixNano()), 0))
			var was time.Duration
			b.pause = func(limit time.Duration) time.Duration {
				was = wait(func(d times) times { return times(random.Int64N(int64(d))) }, limit, was)
				return was
			}
			b.http.Timeout = []time.Duration{10 * time.Second, 40 * time.Second}[i%2]
			b.stalled()
			b.order(fmt.Sprint("teapot ", i))
		}
		for _, parallel := range []bool{false, true} {
			t.Run(fmt.Sprint(name, parallel), func(t *testing.T) {
				inWorld(t, func(w *world, _ *buyer) {
					var wg sync.WaitGroup
					for i := range 3 * ofARound() {
						if wg.Go(func() { order(w.buyer("b"), i) }); !parallel {
							wg.Wait()
						}
					}
					wg.Wait()
					if failed := w.failed("b", conformance.Orders); failed != nil {
						t.Errorf("it is accused of %q", failed)
					}
				})
			})
		}
	}
}

func TestWaitsOfWrongClientsAreJudged(t *testing.T) {
	for _, row := range []struct {
		pause  func(limit time.Duration) time.Duration
		failed string
	}{
		{func(limit time.Duration) time.Duration { return limit }, "waits-differ"},
		{func(time.Duration) time.Duration { return time.Second + mathrand.N(time.Second/10) }, "waits-grow"},
		{func(time.Duration) time.Duration { return 0 }, "waits-grow"},
	} {
		inWorld(t, func(w *world, b *buyer) {
			b.pause = row.pause
			b.orders(ofARound())
			if failed := w.failed("b", conformance.Orders); !slices.Contains(failed, row.failed) {
				t.Errorf("failed are %q, want %q", failed, row.failed)
			}
		})
	}
}
