package storefront

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// doBorrowed is do on a server that uses the memory of a request again when its handler has
// returned, as fasthttp does.
func doBorrowed(h http.Handler, r *http.Request) response {
	var memory [][]byte
	lend := func(s string) string {
		b := []byte(s)
		memory = append(memory, b)
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	r.Method, r.Host, r.RequestURI, r.Proto = lend(r.Method), lend(r.Host), lend(r.RequestURI), lend(r.Proto)
	r.URL = &url.URL{Path: lend(r.URL.Path), RawPath: lend(r.URL.RawPath), RawQuery: lend(r.URL.RawQuery)}
	header := make(http.Header)
	for name, lines := range r.Header {
		name = lend(name)
		for _, line := range lines {
			header[name] = append(header[name], lend(line))
		}
	}
	r.Header = header
	body, _ := io.ReadAll(r.Body)
	memory = append(memory, body)
	r.Body = io.NopCloser(bytes.NewReader(body))

	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	for _, b := range memory {
		copy(b, bytes.Repeat([]byte("#"), len(b)))
	}
	clear(header)
	return response{w.Code, w.Result().Header, w.Body.String()}
}

// A keeper is a Store and an OrderReader that keeps the strings that it is given, and takes a second to find
// a product, whoever has gone meanwhile.
type keeper struct {
	*trialStore

	mu         sync.Mutex
	kept, were []string // the latter copied at once
}

func (k *keeper) keep(texts ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range texts {
		k.kept, k.were = append(k.kept, s), append(k.were, strings.Clone(s))
	}
}

func (k *keeper) GetProduct(_ context.Context, id string) (Resource, error) {
	k.keep(id)
	time.Sleep(time.Second)
	return k.trialStore.GetProduct(context.Background(), id)
}

func (k *keeper) CreateOrder(ctx context.Context, key IdempotencyKey, order Order) (Order, error) {
	k.keep(key.Scope, key.Value, order.Item)
	if order.Item == "teapot" {
		return k.MemStore.CreateOrder(ctx, key, order)
	}
	return k.trialStore.CreateOrder(ctx, key, order)
}

func (k *keeper) GetOrder(ctx context.Context, scope, id string) (Resource, error) {
	k.keep(scope, id)
	return k.MemStore.GetOrder(ctx, scope, id)
}

func (k *keeper) ListOrders(ctx context.Context, scope, after string, limit int) ([]Resource, error) {
	k.keep(scope, after)
	return k.MemStore.ListOrders(ctx, scope, after, limit)
}

func (k *keeper) GetOrderByKey(ctx context.Context, scope, key string) (Resource, error) {
	k.keep(scope, key)
	return k.MemStore.GetOrderByKey(ctx, scope, key)
}

func TestNothingOfARequestIsKeptWithoutACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{trialStore: newTrialStore()}
		keepAttr := func(_ []string, a slog.Attr) slog.Attr {
			k.keep(a.Value.String())
			return a
		}
		opts := Options{
			Logger: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{ReplaceAttr: keepAttr})),
			Scope:  func(r *http.Request) string { return r.Header.Get("Account") },
		}
		h := NewWithOptions(k, &opts)

		// All begin before the first has ended, and half of the clients leave before.
		var wg sync.WaitGroup
		for _, directives := range []string{"max-age=0", "no-cache", "max-age=60", "no-store",
			"max-age=60, no-store", "max-age=0, stale-if-error=60", ""} {
			for _, path := range []string{"/v1/products/a", "/v1/products/x%2Fy", "/v1/products/%6Eone"} {
				for _, account := range []string{"ada", "bob"} {
					for _, patience := range []time.Duration{100 * time.Millisecond, time.Minute} {
						r := newRequest("GET", path, "", "Account: "+account)
						if directives != "" {
							r.Header.Set("Cache-Control", directives)
						}
						wg.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), patience)
							defer cancel()
							doBorrowed(h, r.WithContext(ctx))
						})
						time.Sleep(time.Millisecond)
					}
				}
			}
		}
		wg.Wait()
		for _, r := range trials() {
			ctx := WithRoute(t.Context())
			doBorrowed(h, newRequest(r.method, r.target, r.body, r.lines...).WithContext(ctx)).wantStatus(t,
				r.status)
			k.keep(Route(ctx))
		}
		for _, key := range []string{"bare", `"quoted"`} {
			doBorrowed(h, newRequest("POST", "/v1/orders", teapots, "Content-Type: application/json",
				"Idempotency-Key: "+key, "Account: bob")).wantStatus(t, 201)
		}
		opts.Orders = k
		reader := NewWithOptions(k, &opts)
		for target, status := range map[string]int{"/v1/orders/ord_1": 404, "/v1/orders?idempotency_key=bare": 200,
			"/v1/orders?after=" + ordersList.encodeCursor("ord_1"): 200} {
			doBorrowed(reader, newRequest("GET", target, "", "Account: bob")).wantStatus(t, status)
		}
		doBorrowed(h, newRequest("BREW", "/", "")).wantStatus(t, 501)
		time.Sleep(time.Minute / 2) // until the reads that nobody waits for have ended

		for i, was := range k.were {
			if k.kept[i] != was {
				t.Errorf("%q has become %q", was, k.kept[i])
			}
		}
		for _, account := range []string{"ada", "bob"} {
			for path, want := range map[string]string{"/v1/products/a": `{"id":"a","price":7}`,
				"/v1/products/x%2Fy": `{"id":"x/y"}`} {
				if r := get(h, path, "Account: "+account, "Cache-Control: only-if-cached"); r.body != want {
					t.Errorf("the memory of %s has %d %s for %s", account, r.status, r.body, path)
				}
			}
		}
		for _, key := range []string{`"bare"`, "quoted"} {
			if r := postOrder(h, key, teapots, "Account: bob"); r.header.Get("Idempotent-Replayed") == "" {
				t.Errorf("the order with the key %s is not replayed", key)
			}
		}
		for _, o := range k.Orders() {
			if o.Item != "teapot" {
				t.Errorf("an order is of %q", o.Item)
			}
		}
	})
}
