package clienttest_test

import (
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"testing"
	"time"

	"example.com/storefront/clienttest"
)

// A jitter is a way to wait for a time at random that people have written down; n returns a time
// below another.
type jitter func(n func(time.Duration) time.Duration, tries int, was time.Duration) time.Duration

var jitters = map[string]jitter{
	"full": func(n func(time.Duration) time.Duration, tries int, _ time.Duration) time.Duration {
		return n(waitLimit(tries))
	},
	"equal": func(n func(time.Duration) time.Duration, tries int, _ time.Duration) time.Duration {
		return waitLimit(tries)/2 + n(waitLimit(tries)/2)
	},
	"decorrelated": func(n func(time.Duration) time.Duration, _ int, was time.Duration) time.Duration {
		least := time.Second / 4
		return min(time.Minute, least+n(max(3*was-least, 2*least)))
	},
	"linear": func(n func(time.Duration) time.Duration, tries int, _ time.Duration) time.Duration {
		return min(time.Minute, time.Duration(tries+1)*time.Second) + n(time.Second)
	},
}

// chances are where clients get their seeds from.
var chances = map[string]func() uint64{
	"random":    mathrand.Uint64,
	"the clock": func() uint64 { return uint64(time.Now().UnixNano()) },
	"a second":  func() uint64 { return uint64(time.Now().Unix()) },
}

// jittered makes a client wait so, with a generator that is seeded when the client starts or, if
// eachOrder, when an order does.
func (c *client) jittered(wait jitter, seed func() uint64, eachOrder bool) {
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

var runs = flag.Int("runs", 12, "how many runs of right clients TestNoRightClientIsAccused tries")

func TestNoRightClientIsAccused(t *testing.T) {
	type kind struct {
		name   string
		change func(*client)
	}
	var kinds []kind
	for name, j := range jitters {
		for from, seed := range chances {
			for _, eachOrder := range []bool{false, true} {
				for _, limit := range []time.Duration{10 * time.Second, 40 * time.Second} {
					kinds = append(kinds, kind{
						fmt.Sprintf("%s jitter, seeds from %s, each order: %t, %v a try", name, from, eachOrder, limit),
						func(c *client) { c.http.Timeout = limit; c.jittered(j, seed, eachOrder) }})
				}
			}
		}
	}
	for _, r := range rightClients {
		kinds = append(kinds, kind{r.name, r.change})
	}
	mathrand.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for first := 0; first < *runs; first += 100 { // testing keeps what ran in parallel
		t.Run(fmt.Sprint("from ", first), func(t *testing.T) {
			for i := first; i < min(first+100, *runs); i++ {
				k := kinds[i%len(kinds)]
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					if broken := clienttest.Broken(t, uint64(i), clienttest.Checks(),
						func(_ *testing.T, s clienttest.Service) clienttest.Client {
							c := newClient(s)
							k.change(c)
							c.stalled()
							return c.asked()
						}); len(broken) > 0 {
						t.Errorf("%s is accused of %q", k.name, broken)
					}
				})
			}
		})
	}
}
