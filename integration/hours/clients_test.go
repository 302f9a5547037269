package hours

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Of ten requests, nine are orders, and one reads a list or a product.
const (
	everyRead        = 10
	ordersOfRequests = 0.9
)

const callers = 64

// Clients send orders, each until it is acknowledged.
type clients struct {
	t       *testing.T
	url     string
	client  http.Client
	retries atomic.Int64
	seed    maphash.Seed

	mu           sync.Mutex
	acknowledged []uint64          // the hash of each order's body, by its number
	recent       []time.Duration   // what orders took since the last window
	quarters     [][]time.Duration // what orders took in each
}

func newClients(t *testing.T, url string) *clients {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = callers, callers
	t.Cleanup(transport.CloseIdleConnections)
	return &clients{t: t, url: url, client: http.Client{Transport: transport, Timeout: time.Minute}, seed: maphash.MakeSeed()}
}

// send sends requests at a rate, for as long as it says, and returns how many a second.
// Requests are due at their times, whatever becomes of those before, and what they take
// counts from then on. With a rate of 0, each caller sends one after the other.
func (c *clients) send(rate float64, length time.Duration, quarters int) (perSecond float64) {
	c.mu.Lock()
	c.quarters, c.recent = make([][]time.Duration, quarters), nil
	c.mu.Unlock()
	start := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for {
				n := next.Add(1) - 1
				due := time.Since(start)
				if rate > 0 {
					due = time.Duration(float64(n) / rate * float64(time.Second))
				}
				if due >= length {
					return
				}
				time.Sleep(due - time.Since(start))
				if n%everyRead == 0 {
					c.read(int(n / everyRead))
					continue
				}
				c.create()
				took := time.Since(start) - due
				c.mu.Lock()
				q := int(due * time.Duration(quarters) / length)
				c.quarters[q] = append(c.quarters[q], took)
				c.recent = append(c.recent, took)
				c.mu.Unlock()
			}
		})
	}
	all.Wait()
	return float64(next.Load()-callers) / time.Since(start).Seconds()
}

// sent returns how many orders are acknowledged or under way.
func (c *clients) sent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acknowledged)
}

// window returns the 99th percentile of what orders took since the last call.
func (c *clients) window() time.Duration {
	c.mu.Lock()
	recent := c.recent
	c.recent = nil
	c.mu.Unlock()
	return percentile(recent, 99)
}

// percentile returns a percentile of what orders took in a quarter, in milliseconds.
func (c *clients) percentile(quarter, p int) float64 {
	return percentile(c.quarters[quarter], p).Seconds() * 1000
}

func percentile(took []time.Duration, p int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*p/100]
}

func itemOf(n int) string { return fmt.Sprintf("hours-%d", n) }

// numberOf returns the number of the order that has an item.
func numberOf(item string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(item, "hours-")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil
}

// create sends one more order until it is acknowledged.
func (c *clients) create() {
	c.mu.Lock()
	n := len(c.acknowledged)
	c.acknowledged = append(c.acknowledged, 0)
	c.mu.Unlock()
	for {
		body, err := c.post(itemOf(n))
		if err == nil {
			c.mu.Lock()
			c.acknowledged[n] = maphash.Bytes(c.seed, body)
			c.mu.Unlock()
			return
		}
		c.retries.Add(1)
		if c.t.Context().Err() != nil {
			c.t.Errorf("order %d is not acknowledged: %v", n, err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *clients) post(item string) (body []byte, err error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, c.url+"/v1/orders", strings.NewReader(`{"item":"`+item+`","qty":2}`))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", item)
	w, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	body, err = io.ReadAll(w.Body)
	if err == nil && w.StatusCode != http.StatusCreated {
		err = errors.New(w.Status)
	}
	return body, err
}

// read reads a list or a product.
func (c *clients) read(n int) {
	path := [...]string{"/v1/users?limit=50", "/v2/widgets?limit=50", "/v1/products/" + listID(7*n)}[n%3]
	w, err := c.client.Get(c.url + path)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer w.Body.Close()
	if _, err := io.Copy(io.Discard, w.Body); err != nil {
		c.t.Error(err)
	}
	if w.StatusCode != http.StatusOK && w.StatusCode != http.StatusNotFound {
		c.t.Errorf("%s is answered %s", path, w.Status)
	}
}
