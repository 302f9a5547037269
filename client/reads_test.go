package client_test

import (
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
	"path"
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
		{"cut after 30 s", 24 << 10, 30 * time.Second, true, "[5 2 1 1 1 1 1]"}, {"long", 1 << 10, 0, false, "[5 2 2 2]"},
		{"that never does", 50 << 10, 0, true, "[5 2 1 1 1 1 1 1 1 1 1 1]"},
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
	const fault = `{"type":"urn:problem-type:storefront:invalid-query","errors":[{"parameter":"%s","maximum":500}]}`
	shop := &script{}
	c := shopOf(t, shop, client.Options{})
	users := func() (any, error) { return idsOf(c.Users(t.Context()), storefront.Resource.ID) }
	product := func() (any, error) { return c.Product(t.Context(), "teapot", nil) }
	order := func() (any, error) { return c.GetOrder(t.Context(), "ord_1") }
	byKey := func() (any, error) { return c.GetOrderByKey(t.Context(), "k") }
	for _, row := range []struct {
		answer http.HandlerFunc
		read   func() (any, error)
		says   string
	}{
		{problem(404, "not-found"), users, "has changed"},
		{problem(405, "method-not-allowed"), product, "has changed"},
		{problem(400, "invalid-query"), byKey, "has changed"},
		{problem(412, "precondition-failed"), order, "has changed"},
		{says(400, fmt.Sprintf(fault, "limit")), users, "has changed"},
		{says(200, "\x1f\x8b", "Content-Encoding", "gzip"), order, `coding "gzip"`},
	} {
		shop.shop = row.answer
		_, err := row.read()
		if _, ok := errors.AsType[*client.BlockedError](err); !ok || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%v, want one with %s", err, row.says)
		}
	}
	// A key that is none is the program's.
	shop.shop = says(400, fmt.Sprintf(fault, "idempotency_key"))
	_, err := byKey()
	if _, ok := errors.AsType[*client.RefusedError](err); !ok {
		t.Errorf("a key that is none: %v", err)
	}
}

func TestOrdersAreReadBack(t *testing.T) {
	store := new(storefront.MemStore)
	shop := &script{shop: atBase(storefront.NewWithOptions(store, &storefront.Options{OrderFields: true,
		Orders: store, Scope: func(*http.Request) string { return "ada" }}))}
	c := shopOf(t, shop, client.Options{})
	order := storefront.Order{Item: "teapot", Fields: `{"zip":"01067"}`, CreatedAt: time.UnixMilli(0).UTC()}
	for i, key := range []string{"k", "k+1", "k 1", `k"\,1`, "k%2B1"} {
		order.ID, order.Qty = fmt.Sprint("ord_", i), int64(i+1)
		must.Get(store.CreateOrder(t.Context(), storefront.IdempotencyKey{Scope: "ada", Value: key}, order))(t)
		if got, err := c.GetOrderByKey(t.Context(), key); err != nil || !got.Equal(order) {
			t.Errorf("the order of the key %q is %v, %v", key, got, err)
		}
		if query := shop.sent[i].URL.RawQuery; strings.Contains(query, "+") { // which some decoders leave as it is
			t.Errorf("a key is sent as %s", query)
		}
	}
	// To encoding/json, what this shop adds has the names that an order has.
	sent := strings.TrimSuffix(string(must.Get(json.Marshal(order))(t)), "}") +
		`,"state":"sent","ID":4,"Item":"parcel","QTY":1,"fieldſ":{}}`
	shop.answers = []http.HandlerFunc{says(201, sent), says(200, sent)}
	draft := must.Get(client.NewDraftWithOptions(order.Item, order.Qty, &client.DraftOptions{Fields: order.Fields}))(t)
	if got, err := c.Order(t.Context(), draft); err != nil || !got.Equal(order) {
		t.Errorf("Order returned %v, %v", got, err)
	}
	got, err := c.GetOrder(t.Context(), order.ID)
	if err != nil || !got.Equal(order) || member(got.Resource, "state") != "sent" {
		t.Errorf("GetOrder returned %v, %v", got, err)
	}
	var again client.Order
	if err := json.Unmarshal(must.Get(json.Marshal(got))(t), &again); err != nil || again.Resource != got.Resource ||
		!again.Equal(got.Order) {
		t.Errorf("%v is kept as %v (%v)", got, again, err)
	}
	for _, id := range []string{"ord_9", "", ".", "..", "/"} {
		if got, err := c.GetOrder(t.Context(), id); !errors.Is(err, storefront.ErrNotFound) {
			t.Errorf("GetOrder(%q) returned %v, %v", id, got, err)
		}
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
			product, err := shopOf(t, &script{shop: says(200, page)}, client.Options{}).Product(t.Context(), "ord_1", nil)
			if err == nil {
				t.Errorf("Product, %s: %v", page, product)
			}
		})
	}
}

func TestShopThatServesNoOrders(t *testing.T) {
	shop, _ := newScript()
	c := shopOf(t, shop, client.Options{})
	_, byID := c.GetOrder(t.Context(), "ord_1")
	_, byKey := c.GetOrderByKey(t.Context(), "k")
	_, walk := idsOf(c.Orders(t.Context()), func(o client.Order) string { return o.ID })
	for _, err := range []error{byID, byKey, walk} {
		if !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, storefront.ErrNotFound) ||
			!strings.Contains(err.Error(), "the shop does not serve") {
			t.Errorf("the error is %v", err)
		}
	}
}

// TestProductIsRemembered reads a product three times, which has changed before the last.
func TestProductIsRemembered(t *testing.T) {
	for _, test := range []struct {
		name     string
		products int
		fields   []string // of the answers, in place of the service's
		tagged   bool     // what is sent when the product is known
	}{
		{"for its tag", 1, nil, true},
		{"with no-cache", 1, []string{"Cache-Control", "no-cache, max-age=60"}, true},
		{"not with Vary: *", 1, []string{"Vary", "*"}, false},
		{"not with no-store", 1, []string{"Cache-Control", "no-store"}, false},
		{"not unless Products says so", 0, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := new(storefront.MemStore)
			service := atBase(storefront.NewWithOptions(store, &storefront.Options{CacheSize: -1}))
			shop := &script{shop: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := httptest.NewRecorder()
				service.ServeHTTP(answer, r)
				maps.Copy(w.Header(), answer.Header())
				says(answer.Code, answer.Body.String(), test.fields...)(w, r)
			})}
			c := shopOf(t, shop, client.Options{Products: test.products})
			for i, now := range []string{"old", "old", "new"} {
				store.Products.Put(storefront.MustResource("teapot", map[string]string{"name": now}))
				product, err := c.Product(t.Context(), "teapot", &client.ProductOptions{MaxAge: time.Hour})
				if err != nil || member(product, "name") != now || len(shop.sent) != i+1 {
					t.Errorf("Product returned %v, %v with %d requests", product, err, len(shop.sent))
				}
				if tag := shop.sent[i].Header.Get("If-None-Match"); (tag != "") != (test.tagged && i > 0) {
					t.Errorf("If-None-Match of request %d is %q", i+1, tag)
				}
			}
		})
	}
}

// TestProductIsNotAnothers has accounts sign in, one after the other, in ways of which the client sees some. A
// shop may have one tag for all: where the client sees nothing, a weak one.
func TestProductIsNotAnothers(t *testing.T) {
	for _, way := range []string{"SignIn", "Jar", "Transport"} {
		t.Run(way, func(t *testing.T) {
			shop := &script{shop: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				account := r.Header.Get("Authorization")
				if cookie, err := r.Cookie("account"); err == nil {
					account = cookie.Value
				}
				id := path.Base(r.URL.Path)
				tag := map[string]string{"own": `"` + account + `"`, "weak": `W/"1"`, "strong": `"1"`}[id]
				w.Header().Set("ETag", tag)
				if r.Header.Get("If-None-Match") == tag {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				fmt.Fprintf(w, `{"id":%q,"name":%q}`, id, account)
			})}
			account := ""
			jar, _ := cookiejar.New(nil)
			opts := client.Options{Products: 10, HTTPClient: &http.Client{Transport: shop}}
			ids := []string{"own", "weak", "strong"}
			switch way {
			case "SignIn":
				opts.SignIn = func(r *http.Request) error {
					r.Header.Set("Authorization", account)
					return nil
				}
			case "Jar":
				opts.HTTPClient.Jar = jar
			case "Transport":
				ids = ids[:2]
				opts.HTTPClient.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
					r = r.Clone(r.Context())
					r.Header.Set("Authorization", account)
					return shop.RoundTrip(r)
				})
			}
			c := must.Get(client.New("http://shop.test", &opts))(t)
			base, _ := url.Parse("http://shop.test")
			for _, account = range []string{"", "ada", "grace", "grace", "ada", ""} {
				jar.SetCookies(base, []*http.Cookie{{Name: "account", Value: account}})
				for _, id := range ids {
					product, err := c.Product(t.Context(), id, &client.ProductOptions{MaxAge: time.Hour})
					if err != nil || member(product, "name") != account {
						t.Errorf("%q gets the product of %q (%v)", account, member(product, "name"), err)
					}
				}
			}
		})
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
