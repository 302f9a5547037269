package clienttest_test

import (
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"example.com/storefront/clienttest"
)

// A jitter is a way to wait for a time at random that people have written down; n returns a time
// below another.
type jitter func(n func(time.Duration) time.Duration, tries int, was time.Duration) time.Duration

var jitters = []jitter{
	func(n func(time.Duration) time.Duration, tries int, _ time.Duration) time.Duration {
		return n(waitLimit(tries))
	},
	func(n func(time.Duration) time.Duration, tries int, _ time.Duration) time.Duration {
		return waitLimit(tries)/2 + n(waitLimit(tries)/2)
	},
	func(n func(time.Duration) time.Duration, _ int, was time.Duration) time.Duration {
		least := time.Second / 4
		return min(time.Minute, least+n(max(3*was-least, 2*least)))
	},
	func(n func(time.Duration) time.Duration, tries int, _ time.Duration) time.Duration {
		return min(time.Minute, time.Duration(tries+1)*time.Second) + n(time.Second)
	},
}

// jittered makes a client wait so, with a generator that is seeded by the clock, in seconds, when the
// client starts or, if eachOrder, when an order does.
func (c *client) jittered(wait jitter, eachOrder bool) {
	seed := func() uint64 { return uint64(time.Now().Unix()) }
	source := mathrand.NewPCG(seed(), 0)
	random := mathrand.New(source)
	n := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	var was time.Duration
	c.pause = func(tries int, a answer) time.Duration {
		if tries == 0 {
			was = 0
			if eachOrder {
				source.Seed(seed(), 0)
			}
		}
		was = wait(n, tries, was)
		return told(a) + was
	}
}

// stalled makes a client stop for 10 seconds now and then: before a request, before it sees the
// answer, and when it waits.
func (c *client) stalled() {
	stall := func() {
		if mathrand.IntN(50) == 0 {
			time.Sleep(10 * time.Second)
		}
	}
	whole, pause := c.http.Transport, c.pause
	c.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		stall()
		res, err := whole.RoundTrip(r)
		stall()
		if late := r.Context().Err(); late != nil && err == nil {
			res.Body.Close()
			return nil, late
		}
		return res, err
	})
	c.pause = func(tries int, a answer) time.Duration {
		stall()
		return pause(tries, a)
	}
}

var runs = flag.Int("runs", 4, "how many runs of right clients TestNoRightClientIsAccused tries")

// Whatever the seed is, and how a client waits, and when it is stalled.
func TestNoRightClientIsAccused(t *testing.T) {
	for i := range *runs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			right, wait := rightClients[mathrand.IntN(len(rightClients))], jitters[i%len(jitters)]
			eachOrder := (i+i/len(jitters))%2 == 0
			trial := clienttest.Trial{Seed: uint64(i), Kinds: slices.Concat(orders, right.kinds), Waits: true}
			if broken := trial.Broken(t, func(_ *testing.T, s clienttest.Service) clienttest.Client {
				c := newClient(s)
				c.jittered(wait, eachOrder)
				right.change(c)
				c.stalled()
				return c.asked()
			}); len(broken) > 0 {
				t.Errorf("%s, at each order: %t, is accused of %q", right.name, eachOrder, broken)
			}
		})
	}
}
