package clienttest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"example.com/storefront"
)

// A Shop is a client, to be copied: what docs/wire.md says in "How to retry well". It passes
// this suite.
type Shop struct {
	URL       string // the base URL of the service
	Transport http.RoundTripper
}

// An OpenOrder is the error of an order that may exist or not. To go on with it when what was
// wrong has been put right, call Place. Keep its key, its body and its time on a disk.
type OpenOrder struct {
	Key   string
	Body  []byte
	First time.Time // before the first try
	Last  string    // answer
}

func (o *OpenOrder) Error() string {
	return fmt.Sprintf("the order with the key %s: %s", o.Key, o.Last)
}

// Order places an order.
func (s *Shop) Order(ctx context.Context, item string, qty int64) (storefront.Order, error) {
	body, err := json.Marshal(map[string]any{"item": item, "qty": qty})
	if err != nil {
		return storefront.Order{}, err
	}
	return s.Place(ctx, &OpenOrder{rand.Text(), body, time.Now(), "no answer"})
}

// Place sends an order until an answer is final, or 12 hours have passed since its first try.
// The error is an *OpenOrder.
func (s *Shop) Place(ctx context.Context, open *OpenOrder) (storefront.Order, error) {
	ctx, cancel := context.WithDeadline(ctx, open.First.Add(12*time.Hour))
	defer cancel()
	for pause := time.Second / 4; ; pause = min(2*pause, time.Minute) {
		status, wait, answer := s.try(ctx, open.Key, open.Body)
		if status != 0 {
			open.Last = fmt.Sprintf("%d: %s", status, answer)
		}
		switch {
		case status == http.StatusCreated:
			var created storefront.Order
			if json.Unmarshal(answer, &created) == nil && created.ID != "" {
				return created, nil
			}
		case status == 0, status == 408, status == 409, status == 429, status >= 500 && status != 501:
		default:
			return storefront.Order{}, open
		}
		select {
		case <-time.After(wait + mathrand.N(pause)):
		case <-ctx.Done():
			return storefront.Order{}, open
		}
	}
}

// try returns a status of 0 if there is no answer, or a part of one.
func (s *Shop) try(ctx context.Context, key string, body []byte) (status int, wait time.Duration,
	answer []byte) {
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/orders", bytes.NewReader(body))
	if err != nil {
		return 0, 0, nil
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	client := http.Client{
		Transport: s.Transport,
		Timeout:   40 * time.Second, // the body of the answer included
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // do not follow it
		},
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, 0, nil
	}
	defer res.Body.Close()
	if answer, err = io.ReadAll(io.LimitReader(res.Body, 1<<20)); err != nil {
		return 0, 0, nil
	}
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // 0 if it is no number
	return res.StatusCode, time.Duration(min(max(seconds, 0), 3600)) * time.Second, answer
}

func Example() {
	service := httptest.NewServer(storefront.New(new(storefront.MemStore)))
	defer service.Close()

	shop := &Shop{URL: service.URL}
	created, err := shop.Order(context.Background(), "teapot", 2)
	fmt.Println(created.Item, created.Qty, err)
	// Output: teapot 2 <nil>
}
