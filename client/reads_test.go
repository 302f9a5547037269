package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/client"
	"example.com/storefront/internal/must"
)

func TestPageSizeIsWhatTheShopAllows(t *testing.T) {
	store := new(storefront.MemStore)
	for i := range 9 {
		store.Widgets.Put(storefront.MustResource(fmt.Sprint("w", i), nil))
	}
	shop := &script{shop: atBase(storefront.NewWithOptions(store, &storefront.Options{MaxPageSize: 4}))}
	n := 0
	for _, err := range shopOf(t, shop, client.Options{}).Widgets(t.Context()) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 9 || len(shop.sent) != 4 {
		t.Errorf("got %d widgets with %d requests", n, len(shop.sent))
	}
}

// TestListGoesRound has pages without items that lead to each other.
func TestListGoesRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		shop := &script{shop: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n++; n == 100 {
				panic("it goes on for ever")
			}
			says(200, fmt.Sprintf(`{"data":[],"has_more":true,"next":"%d"}`, n%2))(w, r)
		})}
		for user, err := range shopOf(t, shop, client.Options{}).Users(t.Context()) {
			if _, ok := errors.AsType[*client.UnknownError](err); !ok {
				t.Errorf("the walk yields %v, %v after %d pages", user, err, n)
			}
		}
	})
}

// A slow is a body of a KB per second.
type slow struct {
	io.Reader
	closed atomic.Bool
}

func (s *slow) Read(p []byte) (int, error) {
	if time.Sleep(time.Second); s.closed.Load() {
		return 0, net.ErrClosed
	}
	return s.Reader.Read(p[:min(len(p), 1<<10)])
}

func (s *slow) Close() error { s.closed.Store(true); return nil }

// A page that does not fit into a try, or in what a client reads, is asked for with half as many items.
func TestPageThatDoesNotFit(t *testing.T) {
	for _, row := range []struct {
		name  string
		bytes int           // of an item
		limit time.Duration // of something on the way
		slow  bool
		want  string // limits
	}{
		{"slow", 30 << 10, 0, true, "[5 2 1 1 1 1 1]"}, {"cut after 30 s", 24 << 10, 30 * time.Second, true, "[5 2 1 1 1 1 1]"},
		{"long", 1 << 10, 0, false, "[5 2 2 2]"}, {"that never does", 50 << 10, 0, true, "[5 2 1 1 1 1 1 1 1 1 1 1]"},
		{"cut at once", 1 << 10, time.Second, true, "[5 5 5 5 5 5 5 5 5 5]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(storefront.MemStore)
				for i := range 5 {
					note := strings.Repeat("a", row.bytes)
					store.Users.Put(storefront.MustResource(fmt.Sprint("u", i), map[string]string{"note": note}))
				}
				service := atBase(storefront.New(store))
				var limits []string
				shop := shopOf(t, roundTripper(func(r *http.Request) (*http.Response, error) {
					limits = append(limits, r.URL.Query().Get("limit"))
					w := httptest.NewRecorder()
					service.ServeHTTP(w, r)
					answer := w.Result()
					if row.slow {
						body := &slow{Reader: answer.Body}
						if answer.Body = body; row.limit != 0 {
							time.AfterFunc(row.limit, func() { body.Close() })
						}
					} else if limits[len(limits)-1] == "5" {
						rest := strings.NewReader(strings.Repeat(long, 16))
						answer.Body = io.NopCloser(io.MultiReader(answer.Body, rest))
					}
					return answer, nil
				}), client.Options{PageSize: 5})
				n, fails := 0, false
				for _, err := range shop.Users(t.Context()) {
					if fails = err != nil; !fails {
						n++
					}
				}
				if ends := strings.Count(row.want, " ") < 9; fmt.Sprint(limits) != row.want || fails == ends || (n == 5) != ends {
					t.Errorf("%d users with the limits %v, want %s; it fails: %v", n, limits, row.want, fails)
				}
			})
		})
	}
}

// TestReadThatWasChanged gets what the service says only to what this client does not send.
func TestReadThatWasChanged(t *testing.T) {
	const limit = `{"type":"urn:problem-type:storefront:invalid-query","errors":[{"parameter":"limit","minimum":1,"maximum":500}]}`
	shop := &script{}
	c := shopOf(t, shop, client.Options{})
	for answer, reads := range map[string][]string{
		"404 not-found": {"users", "product"}, "405 method-not-allowed": {"users", "product"},
		"400 invalid-query": {"users", "product", "order", "key"}, "412 precondition-failed": {"users", "product", "order", "key"},
		"400 limit": {"users"},
	} {
		for _, read := range reads {
			var status int
			var code string
			fmt.Sscan(answer, &status, &code)
			if shop.shop = problem(status, code); code == "limit" {
				shop.shop = says(400, limit)
			}
			var err error
			switch read {
			case "users":
				for _, err = range c.Users(t.Context()) {
				}
			case "product":
				_, err = c.Product(t.Context(), "teapot", nil)
			case "order":
				_, err = c.GetOrder(t.Context(), "ord_1")
			case "key":
				_, err = c.GetOrderByKey(t.Context(), "k")
			}
			blocked, ok := errors.AsType[*client.BlockedError](err)
			if !ok || blocked.Status != status || !strings.Contains(err.Error(), "has changed") {
				t.Errorf("%s of %s: %v", answer, read, err)
			}
		}
	}
	shop.shop = says(200, "\x1f\x8b", "Content-Encoding", "gzip")
	if _, err := c.GetOrder(t.Context(), "ord_1"); err == nil || !strings.Contains(err.Error(), `coding "gzip"`) {
		t.Errorf("with a coding: %v", err)
	}
	// A key that is none is the program's.
	shop.shop = says(400, strings.Replace(limit, `"limit"`, `"idempotency_key"`, 1))
	_, err := c.GetOrderByKey(t.Context(), "é")
	if _, ok := errors.AsType[*client.RefusedError](err); !ok {
		t.Errorf("a key that is none: %v", err)
	}
}

// A parcels is a shop's reader, which adds what else it knows.
type parcels struct{ storefront.OrderReader }

func (p parcels) GetOrder(ctx context.Context, scope, id string) (storefront.Resource, error) {
	order, err := p.OrderReader.GetOrder(ctx, scope, id)
	if err != nil {
		return order, err
	}
	return order.With(map[string]string{"state": "sent"})
}

func TestOrdersAreReadBack(t *testing.T) {
	store := new(storefront.MemStore)
	shop := &script{shop: atBase(storefront.NewWithOptions(store, &storefront.Options{OrderFields: true,
		Orders: parcels{store}, Scope: func(r *http.Request) string { return r.Header.Get("Authorization") }}))}
	account := func(name string) *client.Client {
		return shopOf(t, shop, client.Options{PageSize: 2, SignIn: func(r *http.Request) error {
			r.Header.Set("Authorization", name)
			return nil
		}})
	}
	ada, bob := account("ada"), account("bob")
	var orders []storefront.Order
	for i, key := range []string{"k", "k+1", "k 1", `k"\,1`, "k%2B1"} {
		order := storefront.Order{ID: fmt.Sprint("ord_", i), Item: "teapot", Qty: int64(i + 1),
			Fields: `{"zip":"01067"}`, CreatedAt: time.UnixMilli(0).UTC()}
		must.Get(store.CreateOrder(t.Context(), storefront.IdempotencyKey{Scope: "ada", Value: key}, order))(t)
		orders = append(orders, order)
		if got, err := ada.GetOrderByKey(t.Context(), key); err != nil || !got.Equal(order) {
			t.Errorf("the order of the key %q is %v, %v", key, got, err)
		}
		if got, err := bob.GetOrderByKey(t.Context(), key); !errors.Is(err, storefront.ErrNotFound) {
			t.Errorf("Bob's order of the key %q is %v, %v", key, got, err)
		}
	}
	for _, r := range shop.sent {
		if strings.Contains(r.URL.RawQuery, "+") { // which some decoders leave as it is
			t.Errorf("a key is sent as %s", r.URL.RawQuery)
		}
	}
	slices.Reverse(orders)
	n := 0
	for got, err := range ada.Orders(t.Context()) {
		if err != nil || !got.Equal(orders[n]) {
			t.Fatalf("order %d is %v, %v", n, got, err)
		}
		n++
	}
	if n != len(orders) {
		t.Errorf("the walk has %d orders, want %d", n, len(orders))
	}
	for got, err := range bob.Orders(t.Context()) {
		t.Errorf("Bob has an order: %v, %v", got, err)
	}
	got, err := ada.GetOrder(t.Context(), "ord_3")
	if err != nil || !got.Equal(orders[1]) || member(got.Resource, "state") != "sent" {
		t.Errorf("GetOrder returned %v, %v", got, err)
	}
	var again client.Order
	if err := json.Unmarshal(must.Get(json.Marshal(got))(t), &again); err != nil || again.Resource != got.Resource ||
		!again.Equal(got.Order) {
		t.Errorf("%v is kept as %v (%v)", got, again, err)
	}
	for _, c := range []*client.Client{ada, bob} {
		for _, id := range []string{"ord_9", "", ".", "..", "/"} {
			if got, err := c.GetOrder(t.Context(), id); !errors.Is(err, storefront.ErrNotFound) {
				t.Errorf("GetOrder(%q) returned %v, %v", id, got, err)
			}
		}
	}
	if _, err := bob.GetOrder(t.Context(), "ord_3"); !errors.Is(err, storefront.ErrNotFound) {
		t.Errorf("Bob gets Ada's order: %v", err)
	}
}

// A proxy that loses the query gets the page of all orders, and one that mixes up answers any order.
func TestAnotherOrderIsNone(t *testing.T) {
	const order = `{"id":"ord_2","item":"teapot","qty":2}`
	for _, page := range []string{`{"data":[` + order + `,{"id":"ord_1","item":"teapot","qty":2}],"has_more":false}`,
		`{"data":[` + order + `],"has_more":true,"next":"A"}`, `{"data":[],"has_more":true,"next":"A"}`, order, `{}`,
		`{"data":null,"has_more":false}`} {
		synctest.Test(t, func(t *testing.T) {
			got, err := shopOf(t, &script{shop: says(200, page)}, client.Options{}).GetOrderByKey(t.Context(), "k")
			if _, ok := errors.AsType[*client.UnknownError](err); !ok {
				t.Errorf("%s: %v, %v", page, got, err)
			}
			got, err = shopOf(t, &script{shop: says(200, page)}, client.Options{}).GetOrder(t.Context(), "ord_1")
			if _, ok := errors.AsType[*client.UnknownError](err); !ok {
				t.Errorf("GetOrder, %s: %v, %v", page, got, err)
			}
		})
	}
}

func TestShopThatServesNoOrders(t *testing.T) {
	shop, _ := newScript()
	c := shopOf(t, shop, client.Options{})
	_, byID := c.GetOrder(t.Context(), "ord_1")
	_, byKey := c.GetOrderByKey(t.Context(), "k")
	var walk error
	for _, walk = range c.Orders(t.Context()) {
	}
	for _, err := range []error{byID, byKey, walk} {
		if !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, storefront.ErrNotFound) ||
			!strings.Contains(err.Error(), "the shop does not serve") {
			t.Errorf("the error is %v", err)
		}
	}
	shop.answers = append([]http.HandlerFunc{says(404, "<html>")}, slices.Repeat([]http.HandlerFunc{problem(404, "not-found")}, 4)...)
	if _, err := c.GetOrder(t.Context(), "ord_1"); errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("after a page of a proxy: %v", err)
	}
	if _, err := c.Order(t.Context(), client.NewDraft("teapot", 2)); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("after 404 to an order: %v", err)
	}
}

func TestProductIsNotFound(t *testing.T) {
	shop, _ := newScript()
	c := shopOf(t, shop, client.Options{})
	for _, id := range []string{"kettle", "", ".", "..", "/"} {
		if _, err := c.Product(t.Context(), id, nil); !errors.Is(err, storefront.ErrNotFound) {
			t.Errorf("Product(%q) returned %v", id, err)
		}
	}
	shop.answers = []http.HandlerFunc{says(404, "<html>")}
	_, err := c.Product(t.Context(), "kettle", nil)
	if _, ok := errors.AsType[*client.BlockedError](err); !ok || errors.Is(err, storefront.ErrNotFound) {
		t.Errorf("after a page of a proxy, Product returned %v", err)
	}
}

func TestAnotherProductIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop, store := newScript(says(200, `{"id":"kettle"}`))
		store.Products.Put(storefront.MustResource("teapot", nil))
		product, err := shopOf(t, shop, client.Options{}).Product(t.Context(), "teapot", nil)
		if err != nil || product.ID() != "teapot" || len(shop.sent) != 2 {
			t.Errorf("Product returned %v, %v with %d requests", product, err, len(shop.sent))
		}
	})
}

// TestProductIsRemembered reads a product twice, which changes in between or does not.
func TestProductIsRemembered(t *testing.T) {
	for _, test := range []struct {
		name     string
		products int
		fields   []string // of the answers, in place of the service's
		other    bool     // account
		tagged   bool     // the second request
	}{
		{name: "for its tag", products: 1, tagged: true},
		{name: "not for another account", products: 1, other: true},
		{name: "not with Vary: *", products: 1, fields: []string{"Vary", "*"}},
		{name: "not with no-store", products: 1, fields: []string{"Cache-Control", "no-store"}},
		{name: "with no-cache", products: 1, fields: []string{"Cache-Control", "no-cache, max-age=60"}, tagged: true},
		{name: "not unless Products says so"},
	} {
		for _, name := range []string{"old", "new"} {
			t.Run(test.name+", "+name, func(t *testing.T) {
				account := "ada"
				store := new(storefront.MemStore)
				service := atBase(storefront.NewWithOptions(store, &storefront.Options{CacheSize: -1}))
				shop := &script{shop: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					answer := httptest.NewRecorder()
					service.ServeHTTP(answer, r)
					maps.Copy(w.Header(), answer.Header())
					for i := 0; i < len(test.fields); i += 2 {
						w.Header().Set(test.fields[i], test.fields[i+1])
					}
					w.WriteHeader(answer.Code)
					w.Write(answer.Body.Bytes())
				})}
				c := shopOf(t, shop, client.Options{Products: test.products, SignIn: func(r *http.Request) error {
					r.Header.Set("Authorization", account)
					return nil
				}})
				for i, now := range []string{"old", name} {
					store.Products.Put(storefront.MustResource("teapot", map[string]string{"name": now}))
					product, err := c.Product(t.Context(), "teapot", &client.ProductOptions{MaxAge: time.Hour})
					if err != nil || member(product, "name") != now || len(shop.sent) != i+1 {
						t.Errorf("Product returned %v, %v with %d requests", product, err, len(shop.sent))
					}
					if test.other {
						account = "grace"
					}
				}
				if tag := shop.sent[1].Header.Get("If-None-Match"); (tag != "") != test.tagged {
					t.Errorf("If-None-Match of the last request is %q", tag)
				}
			})
		}
	}
}

// TestProductIsNotAnothers has two accounts sign in, one after the other, in ways of which the client sees
// some. A shop may have one weak tag for both.
func TestProductIsNotAnothers(t *testing.T) {
	for _, tags := range []string{"", `W/"1"`} {
		for _, way := range []string{"SignIn", "Jar", "Transport"} {
			t.Run(way+tags, func(t *testing.T) {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					cookie, _ := r.Cookie("account") // or none
					account := r.Header.Get("Authorization")
					if cookie != nil {
						account = cookie.Value
					}
					tag := cmp.Or(tags, `"`+account+`"`)
					w.Header().Set("ETag", tag)
					w.Header().Set("Cache-Control", "private, max-age=60")
					if r.Header.Get("If-None-Match") == tag {
						w.WriteHeader(http.StatusNotModified)
						return
					}
					fmt.Fprintf(w, `{"id":"teapot","name":%q}`, account)
				}))
				defer server.Close()
				account := ""
				jar, _ := cookiejar.New(nil)
				opts := client.Options{Products: 10, HTTPClient: &http.Client{}}
				switch way {
				case "SignIn":
					opts.SignIn = func(r *http.Request) error {
						r.Header.Set("Authorization", account)
						return nil
					}
				case "Jar":
					opts.HTTPClient.Jar = jar
				case "Transport":
					opts.HTTPClient.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
						r = r.Clone(r.Context())
						r.Header.Set("Authorization", account)
						return http.DefaultTransport.RoundTrip(r)
					})
				}
				c := must.Get(client.New(server.URL, &opts))(t)
				base, _ := url.Parse(server.URL)
				for _, account = range []string{"", "ada", "grace", "grace", "ada", ""} {
					jar.SetCookies(base, []*http.Cookie{{Name: "account", Value: account}})
					product, err := c.Product(t.Context(), "teapot", &client.ProductOptions{MaxAge: time.Hour})
					if err != nil || member(product, "name") != account {
						t.Errorf("%q gets the product of %q (%v)", account, member(product, "name"), err)
					}
				}
			})
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestMemoryHasABound(t *testing.T) {
	shop, store := newScript()
	c := shopOf(t, shop, client.Options{Products: 1})
	store.Products.Put(storefront.MustResource("a", nil), storefront.MustResource("b", nil))
	for i, id := range []string{"a", "b", "b", "a"} {
		must.Get(c.Product(t.Context(), id, nil))(t)
		remembered := shop.sent[i].Header.Get("If-None-Match") != ""
		if want := i == 2; remembered != want {
			t.Errorf("when %s was read, product %d was remembered: %v, want %v", id, i+1, remembered, want)
		}
	}
}
