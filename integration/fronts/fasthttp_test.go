package fronts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"example.com/storefront"
)

// A slowStore takes time to find a product, so that reads of one product meet.
type slowStore struct{ *storefront.MemStore }

func (s slowStore) GetProduct(ctx context.Context, id string) (storefront.Resource, error) {
	time.Sleep(time.Millisecond)
	return s.MemStore.GetProduct(ctx, id)
}

// fasthttp, on which fiber stands, uses the memory of a request again once it is answered: of
// its path, its headers and its body.
func TestFasthttp(t *testing.T) {
	t.Parallel()
	store := new(storefront.MemStore)
	const clients, rounds, products = 16, 60, 20
	for n := range products {
		store.Products.Put(storefront.MustResource(fmt.Sprint("p", n), nil))
	}
	front := storefront.NewWithOptions(slowStore{store}, &storefront.Options{
		Logger: slog.New(slog.DiscardHandler),
		Scope:  func(r *http.Request) string { return r.Header.Get("Account") },
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &fasthttp.Server{Handler: fasthttpadaptor.NewFastHTTPHandler(front)}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer func() {
		transport.CloseIdleConnections()
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: transport}
	// ask returns the body of the answer, which must have the status.
	ask := func(status int, method, path, body, account string, lines ...string) (string, http.Header) {
		r, err := http.NewRequest(method, "http://"+listener.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return "", nil
		}
		r.Header.Set("Account", account)
		for pair := range slices.Chunk(lines, 2) {
			r.Header.Set(pair[0], pair[1])
		}
		res, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return "", nil
		}
		defer res.Body.Close()
		var text bytes.Buffer
		if _, err := io.Copy(&text, res.Body); err != nil || res.StatusCode != status {
			t.Errorf("%s %s: status %d, want %d, and the error %v\n%s", method, path, res.StatusCode, status, err, &text)
		}
		return text.String(), res.Header
	}
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			account := fmt.Sprint("account ", c%3)
			for n := range rounds {
				id := fmt.Sprint("p", (c+n*n)%products)
				directives := []string{"max-age=0", "no-cache", "max-age=60", "max-age=0, stale-if-error=9"}[n%4]
				if body, _ := ask(200, "GET", "/v1/products/"+id, "", account, "Cache-Control", directives); body != `{"id":"`+id+`"}` {
					t.Errorf("%s is answered with %s", id, body)
				}
				if n%4 == 0 {
					order := fmt.Sprintf(`{"item":"item %d of %d","qty":1}`, n, c)
					ask(201, "POST", "/v1/orders", order, account, "Content-Type", "application/json", "Idempotency-Key", fmt.Sprintf("key %d of %d", n, c))
				}
			}
		})
	}
	wg.Wait()
	// Nothing has changed what was kept.
	for c := range clients {
		order := fmt.Sprintf(`{"item":"item 0 of %d","qty":1}`, c)
		_, header := ask(201, "POST", "/v1/orders", order, fmt.Sprint("account ", c%3), "Content-Type", "application/json", "Idempotency-Key", fmt.Sprintf("key 0 of %d", c))
		if header.Get("Idempotent-Replayed") == "" {
			t.Errorf("the first order of client %d is not replayed", c)
		}
	}
	if n := len(store.Orders()); n != clients*rounds/4 {
		t.Errorf("there are %d orders, want %d", n, clients*rounds/4)
	}
}
