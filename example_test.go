package storefront_test

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
)

// newShop returns a small store for the examples.
func newShop() *storefront.MemStore {
	store := new(storefront.MemStore)
	for _, name := range []string{"Ada", "Barbara", "Grace", "Hedy", "Margaret"} {
		id := strings.ToLower(name)
		store.Users.Put(storefront.MustResource(id, map[string]any{"name": name}))
	}
	store.Products.Put(storefront.MustResource("teapot", map[string]any{"name": "Teapot"}))
	store.Widgets.Put(
		storefront.MustResource("w1", map[string]any{"colour": "red"}),
		storefront.MustResource("w2", map[string]any{"colour": "green"}),
	)
	return store
}

// post returns the handler's answer to an order.
func post(h http.Handler, key, body string, credentials ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(body))
	r.Header["Authorization"] = credentials
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A test starts a server with the handler and talks to it as any client would.
func ExampleNew() {
	store := new(storefront.MemStore)
	store.Products.Put(storefront.MustResource("teapot", map[string]any{"name": "Teapot"}))

	server := httptest.NewServer(storefront.New(store))
	defer server.Close()

	res, err := http.Get(server.URL + "/v1/products/teapot")
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Status)
	fmt.Println(res.Header.Get("Cache-Control"))
	fmt.Println(string(body))
	// Output:
	// 200 OK
	// private, max-age=60
	// {"id":"teapot","name":"Teapot"}
}

// The handler is one among other routes: at the root, where it also answers for
// the paths that no other route has, or under a prefix.
func ExampleNew_mounted() {
	front := storefront.New(newShop())

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "ok")
	})
	mux.Handle("/", front)
	mux.Handle("/shop/", http.StripPrefix("/shop", front))

	for _, path := range []string{"/healthz", "/v1/products/teapot", "/shop/v1/products/teapot"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, w.Code, w.Body)
	}
	// Output:
	// /healthz 200 ok
	// /v1/products/teapot 200 {"id":"teapot","name":"Teapot"}
	// /shop/v1/products/teapot 200 {"id":"teapot","name":"Teapot"}
}

// The page size is the program's choice, and these reads are the same for every
// caller, so that a CDN may keep products for five minutes, and asks each time whether a
// page has changed.
func ExampleNewWithOptions() {
	front := storefront.NewWithOptions(newShop(), &storefront.Options{
		Logger:      slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		PageSize:    2,
		MaxPageSize: 100,
		MaxAge:      5 * time.Minute,
		Shared:      true,
	})

	for _, path := range []string{"/v1/users", "/v1/products/teapot", "/v1/users?limit=101"} {
		w := httptest.NewRecorder()
		front.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Printf("%d %s %q\n", w.Code, w.Header().Get("Cache-Control"), w.Header().Get("Link"))
	}
	// Output:
	// 200 no-cache "<users?limit=2&after=AXViYXJiYXJhttd5oA>; rel=\"next\""
	// 200 max-age=300 ""
	// 400 no-store ""
}

// The fields of a resource are the program's own. The ID goes first, whether the
// fields have it or not.
func ExampleNewResource() {
	type Product struct {
		Name  string   `json:"name"`
		Price string   `json:"price"`
		Tags  []string `json:"tags,omitempty"`
	}
	teapot, err := storefront.NewResource("teapot", Product{Name: "Teapot", Price: "24.50 EUR"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(teapot.ID())
	fmt.Println(teapot)

	_, err = storefront.NewResource("tea\npot", nil)
	fmt.Println(err)
	// Output:
	// teapot
	// {"id":"teapot","name":"Teapot","price":"24.50 EUR"}
	// storefront: resource: the ID "tea\npot" has a control character or a noncharacter
}

// A JSON file holds a whole shop. If something is wrong with it, the error says where,
// and nothing of it is loaded.
func ExampleMemStore_Load() {
	store := new(storefront.MemStore)
	err := store.Load(strings.NewReader(`{
		"users":    [{"id": "ada", "name": "Ada"}],
		"products": [{"id": "teapot", "name": "Teapot"}, {"id": "kettle", "litres": 1.7}],
		"widgets":  [{"id": "w1", "colour": "red"}]
	}`))
	if err != nil {
		log.Fatal(err)
	}
	for product := range store.Products.All() {
		fmt.Println(product)
	}

	err = store.Load(strings.NewReader(`{"products": [{"id": "cup"}, {"name": "Saucer"}]}`))
	fmt.Println(err)
	_, loaded := store.Products.Get("cup")
	fmt.Println(loaded)
	// Output:
	// {"id":"kettle","litres":1.7}
	// {"id":"teapot","name":"Teapot"}
	// storefront: load: products[1]: the ID is missing or empty
	// false
}

// A client that can live with a product of some age says so, and is then answered
// from memory. Without Cache-Control the store is always asked.
func Example_acceptAge() {
	front := storefront.New(newShop())

	for _, directive := range []string{"max-age=30", "max-age=30", "no-cache", ""} {
		r := httptest.NewRequest("GET", "/v1/products/teapot", nil)
		r.Header.Set("Cache-Control", directive)
		w := httptest.NewRecorder()
		front.ServeHTTP(w, r)
		status, _, _ := strings.Cut(w.Header().Get("Cache-Status"), "; ttl")
		fmt.Printf("%-10s %s\n", directive, status)
	}
	// Output:
	// max-age=30 storefront; fwd=uri-miss
	// max-age=30 storefront; hit
	// no-cache   storefront; fwd=request
	//            storefront; fwd=request
}

// accountKey is the context key of the authenticated account.
type accountKey struct{}

// account returns the authenticated account. A Store can call it, too, with the
// context that it is given.
func account(ctx context.Context) string {
	name, _ := ctx.Value(accountKey{}).(string)
	return name
}

// authenticate lets requests with a token of an account through, with the account in their
// context. If the token cannot be looked up, the answer is 503, after which clients try again:
// a 401 is final.
func authenticate(accountOf func(token string) (string, error), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var name string
		var err error
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "Bearer") {
			name, err = accountOf(token)
		}
		switch {
		case err != nil:
			w.Header().Set("Retry-After", "1")
			storefront.Problem{Status: http.StatusServiceUnavailable,
				Detail: "The token cannot be looked up now. Try again."}.ServeHTTP(w, r)
		case name == "":
			w.Header().Set("WWW-Authenticate", "Bearer")
			storefront.Problem{Status: http.StatusUnauthorized,
				Detail: "A known token is required."}.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, name)))
		}
	})
}

// accountOf stands for a table or a service that has the accounts.
func accountOf(token string) (string, error) {
	if token == "token-l" {
		return "", errors.New("the replica that has it is away")
	}
	return map[string]string{"token-a": "ada", "token-g": "grace"}[token], nil
}

// Authentication wraps the handler, and Scope says whose idempotency keys and
// cached products a request deals with: two accounts that happen to choose the
// same key do not get each other's orders. As accounts are told apart by the header
// Authorization, which Vary has by default, caches give neither what the other has
// read.
func ExampleOptions_scope() {
	store := newShop()
	front := storefront.NewWithOptions(store, &storefront.Options{
		Scope: func(r *http.Request) string { return account(r.Context()) },
	})
	handler := authenticate(accountOf, front)

	for _, credentials := range []string{"Bearer token-a", "Bearer token-g", "bearer token-a", "Bearer guess",
		"Basic token-a", "Bearer token-l"} {
		w := post(handler, "order-1", `{"item":"teapot","qty":1}`, credentials)
		fmt.Printf("%s %d replayed=%q\n", credentials, w.Code, w.Header().Get("Idempotent-Replayed"))
	}
	fmt.Println("orders:", len(store.Orders()))
	// Output:
	// Bearer token-a 201 replayed=""
	// Bearer token-g 201 replayed=""
	// bearer token-a 201 replayed="true"
	// Bearer guess 401 replayed=""
	// Basic token-a 401 replayed=""
	// Bearer token-l 503 replayed=""
	// orders: 2
}

// Accept decides about each order, one at a time, before it exists. Here it counts
// the stock. A buyer who retries gets the order that he has, though nothing is left;
// one who came too late is refused, now and later.
func ExampleMemStore_accept() {
	stock := int64(1)
	store := &storefront.MemStore{
		Accept: func(ctx context.Context, key storefront.IdempotencyKey, order storefront.Order) error {
			if order.Qty > stock {
				return &storefront.Refusal{Reason: "sold-out", Detail: "Not enough teapots are left.",
					Pointer: "#/qty"}
			}
			stock -= order.Qty
			return nil
		},
	}
	front := storefront.New(store)

	for _, key := range []string{"order-of-ada", "order-of-bob", "order-of-ada"} {
		w := post(front, key, `{"item":"teapot","qty":1}`)
		fmt.Printf("%s %d replayed=%q\n", key, w.Code, w.Header().Get("Idempotent-Replayed"))
	}
	fmt.Println("orders:", len(store.Orders()), "stock:", stock)
	// Output:
	// order-of-ada 201 replayed=""
	// order-of-bob 422 replayed=""
	// order-of-ada 201 replayed="true"
	// orders: 1 stock: 0
}

// Orders have fields of the program's own. Accept says all that is wrong with them at once, so that a form
// can show each fault beside its input.
func ExampleRefusal() {
	store := &storefront.MemStore{
		Accept: func(ctx context.Context, _ storefront.IdempotencyKey, order storefront.Order) error {
			var fields struct{ Street, City string }
			if err := json.Unmarshal([]byte(cmp.Or(order.Fields, "{}")), &fields); err != nil {
				return &storefront.Refusal{Reason: "address", Detail: "Its parts are text.", Pointer: "#/fields"}
			}
			var faults []storefront.Fault
			need := func(name, value string) {
				if strings.TrimSpace(value) == "" {
					faults = append(faults, storefront.Fault{Detail: "Needed.", Pointer: "#/fields/" + name})
				}
			}
			need("street", fields.Street)
			need("city", fields.City)
			if faults != nil {
				return &storefront.Refusal{Reason: "address", Detail: "There is no such address.", Faults: faults}
			}
			return nil
		},
	}
	front := storefront.NewWithOptions(store, &storefront.Options{OrderFields: true})

	for _, fields := range []string{
		`{"street":" "}`, `{"street":5}`, `{"street":"12 St James's Square","city":"London"}`,
	} {
		w := post(front, "order-1", `{"item":"teapot","qty":1,"fields":`+fields+`}`)
		_, errors, _ := strings.Cut(w.Body.String(), `,"errors":`)
		fmt.Println(w.Code, errors)
	}
	// Output:
	// 422 [{"detail":"Needed.","pointer":"#/fields/street"},{"detail":"Needed.","pointer":"#/fields/city"}]}
	// 422 [{"detail":"Its parts are text.","pointer":"#/fields"}]}
	// 201
}

// A shippingReader adds to each order whether it was shipped.
type shippingReader struct {
	orders  storefront.OrderReader
	shipped *sync.Map // by the IDs of orders
}

func (r shippingReader) with(order storefront.Resource, err error) (storefront.Resource, error) {
	if err != nil {
		return order, err
	}
	_, shipped := r.shipped.Load(order.ID())
	return order.With(map[string]bool{"shipped": shipped})
}

func (r shippingReader) GetOrder(ctx context.Context, scope, id string) (storefront.Resource, error) {
	return r.with(r.orders.GetOrder(ctx, scope, id))
}

func (r shippingReader) GetOrderByKey(ctx context.Context, scope, key string) (storefront.Resource, error) {
	return r.with(r.orders.GetOrderByKey(ctx, scope, key))
}

func (r shippingReader) ListOrders(
	ctx context.Context, scope, after string, limit int,
) ([]storefront.Resource, error) {
	orders, err := r.orders.ListOrders(ctx, scope, after, limit)
	for i := range orders {
		if orders[i], err = r.with(orders[i], err); err != nil {
			return nil, err
		}
	}
	return orders, err
}

// Accounts read their orders back, newest first, each with what the program knows of it. Scope says whose they
// are. (A program with a database reads the states of a page by one query: shopdb/examples/orderstate.)
func ExampleOrderReader() {
	store, shipped := newShop(), new(sync.Map)
	front := storefront.NewWithOptions(store, &storefront.Options{
		Scope:  func(r *http.Request) string { return account(r.Context()) },
		Orders: shippingReader{store, shipped},
	})
	handler := authenticate(accountOf, front)

	post(handler, "order-1", `{"item":"teapot","qty":1}`, "Bearer token-a")
	post(handler, "order-2", `{"item":"teapot","qty":2}`, "Bearer token-a")
	shipped.Store(store.Orders()[0].ID, true)
	for _, credentials := range []string{"Bearer token-a", "Bearer token-g"} {
		r := httptest.NewRequest("GET", "/v1/orders", nil)
		r.Header.Set("Authorization", credentials)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var page struct {
			Data []struct {
				Qty     int
				Shipped bool
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
			log.Fatal(err)
		}
		fmt.Println(page.Data)
	}
	// Output:
	// [{2 false} {1 true}]
	// []
}

// A sliceStore is a Store written from scratch: sorted slices, and a map in which
// an order and its key are one entry. It keeps every key for ever.
type sliceStore struct {
	mu                       sync.RWMutex
	users, products, widgets []storefront.Resource // sorted by ID
	orders                   map[sliceKey]sliceOrder
}

type sliceKey struct{ scope, value string }

type sliceOrder struct {
	fingerprint [32]byte
	order       storefront.Order
}

// find returns where in sorted the ID is or would be, and whether it is there.
func find(sorted []storefront.Resource, id string) (int, bool) {
	return slices.BinarySearchFunc(sorted, id, func(r storefront.Resource, id string) int {
		return cmp.Compare(r.ID(), id)
	})
}

func (s *sliceStore) ListUsers(ctx context.Context, after string, limit int) ([]storefront.Resource, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	i, found := find(s.users, after)
	if found {
		i++
	}
	return firstOf(s.users[i:], limit), nil
}

func (s *sliceStore) ListWidgets(ctx context.Context, start string, limit int) ([]storefront.Resource,
	error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	i, _ := find(s.widgets, start)
	return firstOf(s.widgets[i:], limit), nil
}

// firstOf returns a copy, as what a Store returns belongs to the caller.
func firstOf(resources []storefront.Resource, limit int) []storefront.Resource {
	return slices.Clone(resources[:min(limit, len(resources))])
}

func (s *sliceStore) GetProduct(ctx context.Context, id string) (storefront.Resource, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return storefront.Resource{}, err
	}
	i, found := find(s.products, id)
	if !found {
		return storefront.Resource{}, storefront.ErrNotFound
	}
	return s.products[i], nil
}

func (s *sliceStore) CreateOrder(ctx context.Context, key storefront.IdempotencyKey,
	order storefront.Order) (storefront.Order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return storefront.Order{}, err
	}
	k := sliceKey{key.Scope, key.Value}
	if first, ok := s.orders[k]; ok {
		if first.fingerprint != key.Fingerprint {
			return storefront.Order{}, storefront.ErrKeyReused
		}
		return first.order, nil
	}
	if s.orders == nil {
		s.orders = make(map[sliceKey]sliceOrder)
	}
	s.orders[k] = sliceOrder{key.Fingerprint, order}
	return order, nil
}

// A Store of one's own has four methods. The comments of the interface are what
// it must keep to.
func ExampleStore() {
	front := storefront.New(&sliceStore{
		users: []storefront.Resource{
			storefront.MustResource("ada", map[string]any{"name": "Ada"}),
			storefront.MustResource("grace", map[string]any{"name": "Grace"}),
		},
	})

	w := httptest.NewRecorder()
	front.ServeHTTP(w, httptest.NewRequest("GET", "/v1/users", nil))
	fmt.Println(w.Code, w.Body)

	for _, body := range []string{`{"item":"teapot","qty":1}`, `{"qty":1, "item":"teapot"}`,
		`{"item":"teapot","qty":2}`} {
		w := post(front, "order-1", body)
		fmt.Printf("%d replayed=%q\n", w.Code, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// 200 {"data":[{"id":"ada","name":"Ada"},{"id":"grace","name":"Grace"}],"has_more":false}
	// 201 replayed=""
	// 201 replayed="true"
	// 422 replayed=""
}

// Metrics and traces are labelled by route. The outermost wrapper asks for it with
// WithRoute; then Route knows it in there and outside, whatever is between: here
// a prefix is stripped, and the request is copied twice on its way.
func ExampleRoute() {
	front := storefront.New(newShop())
	inner := http.TimeoutHandler(http.StripPrefix("/shop", front), time.Minute, "")
	counts := make(map[string]int)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := storefront.WithRoute(r.Context())
		inner.ServeHTTP(w, r.WithContext(ctx))
		counts[storefront.Route(ctx)]++
	})

	for _, path := range []string{"/shop/v1/products/teapot", "/shop/v1/products/kettle",
		"/shop/v2/widgets?limit=1", "/shop/wp-login.php", "/elsewhere"} {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	for _, route := range slices.Sorted(maps.Keys(counts)) {
		fmt.Printf("%q %d\n", route, counts[route])
	}
	// Output:
	// "" 1
	// "/" 1
	// "GET /v1/products/{product_id}" 2
	// "GET /v2/widgets" 1
}

// A program's own refusals look like those of the service.
func ExampleProblem() {
	closed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3600")
		storefront.Problem{
			Type:   "https://shop.example/problems/closed",
			Title:  "Closed",
			Status: http.StatusServiceUnavailable,
			Detail: "The shop opens at nine.",
		}.ServeHTTP(w, r)
	})

	w := httptest.NewRecorder()
	closed.ServeHTTP(w, httptest.NewRequest("GET", "/v1/users", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"), w.Header().Get("Cache-Control"))
	fmt.Println(w.Body)
	// Output:
	// 503 application/problem+json no-store
	// {"type":"https://shop.example/problems/closed","title":"Closed","status":503,"detail":"The shop opens at nine."}
}

// allowOrigin lets the pages of one origin use next from a browser.
func allowOrigin(origin string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		if r.Header.Get("Origin") == origin {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers",
				"Age, Allow, Cache-Status, Date, ETag, Idempotent-Replayed, Link, Location, Retry-After")
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
				h.Set("Access-Control-Allow-Headers",
					"Authorization, Cache-Control, Content-Type, Idempotency-Key, If-Match, If-None-Match")
				h.Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// CORS wraps the handler, outside of what authenticates, as a preflight carries
// no credentials.
func ExampleNew_cors() {
	handler := allowOrigin("https://shop.example", storefront.New(newShop()))

	r := httptest.NewRequest("OPTIONS", "/v1/orders", nil)
	r.Header.Set("Origin", "https://shop.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	r.Header.Set("Access-Control-Request-Headers", "content-type,idempotency-key")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Access-Control-Allow-Origin"))

	r = httptest.NewRequest("GET", "/v1/products/teapot", nil)
	r.Header.Set("Origin", "https://elsewhere.example")
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Printf("%d %q\n", w.Code, w.Header().Get("Access-Control-Allow-Origin"))
	// Output:
	// 204 https://shop.example
	// 200 ""
}

// A gzipWriter compresses a response. The compressed bytes are not those that the
// strong ETag stands for, so the tag becomes a weak one, which If-None-Match
// still matches.
type gzipWriter struct {
	http.ResponseWriter
	gz *gzip.Writer // nil as long as nothing is written
}

func (w *gzipWriter) WriteHeader(status int) {
	h := w.Header()
	if etag := h.Get("ETag"); strings.HasPrefix(etag, `"`) {
		h.Set("ETag", "W/"+etag)
	}
	if status != http.StatusNoContent && status != http.StatusNotModified {
		h.Del("Content-Length")
		h.Set("Content-Encoding", "gzip")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *gzipWriter) Write(p []byte) (int, error) {
	if w.gz == nil {
		w.gz = gzip.NewWriter(w.ResponseWriter)
	}
	return w.gz.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *gzipWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// acceptsGzip reports whether Accept-Encoding has gzip, and not with q=0.
func acceptsGzip(r *http.Request) bool {
	for _, line := range r.Header.Values("Accept-Encoding") {
		for element := range strings.SplitSeq(line, ",") {
			coding, weight, weighted := strings.Cut(element, ";")
			if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				return !weighted || strings.Trim(weight, " qQ=0.") != ""
			}
		}
	}
	return false
}

// Compression wraps the handler. The wrapper must weaken the ETag, and say that
// the response depends on Accept-Encoding also when it does not compress.
func ExampleNew_compression() {
	front := storefront.New(newShop())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !acceptsGzip(r) {
			front.ServeHTTP(w, r)
			return
		}
		gw := &gzipWriter{ResponseWriter: w}
		front.ServeHTTP(gw, r)
		if gw.gz != nil {
			gw.gz.Close()
		}
	})

	r := httptest.NewRequest("GET", "/v1/users", nil)
	r.Header.Set("Accept-Encoding", "br, gzip")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	etag := w.Header().Get("ETag")
	fmt.Println(w.Code, w.Header().Get("Content-Encoding"), strings.HasPrefix(etag, `W/"`))

	r.Header.Set("If-None-Match", etag)
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("ETag") == etag, w.Body.Len())
	// Output:
	// 200 gzip true
	// 304 true 0
}

// order is the client of the examples below: it sends an order once.
func order(client *http.Client, url, key string) (status string, err error) {
	r, err := http.NewRequest("POST", url+"/v1/orders", strings.NewReader(`{"item":"teapot","qty":2}`))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	res, err := client.Do(r)
	if err != nil {
		return "", err
	}
	return res.Status, res.Body.Close()
}

// A fake that fails: Accept has the last word on each order that would be created. The error of
// a failure is logged, so the example drops the log.
func ExampleMemStore_fake() {
	var failure error
	store := &storefront.MemStore{
		Accept: func(context.Context, storefront.IdempotencyKey, storefront.Order) error { return failure },
	}
	front := storefront.NewWithOptions(store, &storefront.Options{Logger: slog.New(slog.DiscardHandler)})

	for _, failure = range []error{
		&storefront.Refusal{Reason: "sold-out", Detail: "No teapots are left."},
		storefront.ErrUnavailable,
		errors.New("anything else"),
		nil,
	} {
		fmt.Println(post(front, "order-1", `{"item":"teapot","qty":2}`).Code)
	}
	fmt.Println("orders:", len(store.Orders()))
	// Output:
	// 422
	// 503
	// 500
	// 201
	// orders: 1
}

// loseFirst loses the first answer: what was asked for is done, and the client does not learn
// of it. The panic has net/http close the connection, and writes nothing into a log.
func loseFirst(next http.Handler) http.Handler {
	var lost atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lost.CompareAndSwap(false, true) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// A fake that loses an answer.
func ExampleMemStore_Orders() {
	store := new(storefront.MemStore)
	server := httptest.NewServer(loseFirst(storefront.New(store)))
	defer server.Close()

	_, err := order(server.Client(), server.URL, "order-1")
	fmt.Println("an answer:", err == nil, "orders:", len(store.Orders()))
	status, err := order(server.Client(), server.URL, "order-1")
	fmt.Println(status, err, "orders:", len(store.Orders()))
	// Output:
	// an answer: false orders: 1
	// 201 Created <nil> orders: 1
}

// A slowStore takes its time for an order. Its lists and products are those of the MemStore.
type slowStore struct {
	*storefront.MemStore
	delay time.Duration
}

func (s slowStore) CreateOrder(ctx context.Context, key storefront.IdempotencyKey,
	order storefront.Order) (storefront.Order, error) {
	select {
	case <-time.After(s.delay):
		return s.MemStore.CreateOrder(ctx, key, order)
	case <-ctx.Done():
		return storefront.Order{}, ctx.Err()
	}
}

// inMemory is a transport without a network: it calls a handler. As behind a network, the
// handler does not know the client's deadline, learns when the client has left, and goes on; and
// a panic is a connection that breaks.
type inMemory struct{ handler http.Handler }

func (t inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	received := r.Clone(ctx)
	if r.Body == nil {
		received.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		defer received.Body.Close()
		t.handler.ServeHTTP(w, received)
	}()
	select {
	case broken := <-ended:
		if broken != nil {
			return nil, io.ErrUnexpectedEOF
		}
		res := w.Result()
		res.Request = r
		return res, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// A client that is less patient than the shop is slow leaves an order that it does not know of,
// until it sends it again. In the bubble, all of this takes no time.
func TestFakeInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(storefront.MemStore)
		client := &http.Client{
			Transport: inMemory{storefront.New(slowStore{store, 20 * time.Second})},
			Timeout:   15 * time.Second,
		}
		began := time.Now()
		_, err := order(client, "http://shop.test", "order-1")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != client.Timeout {
			t.Errorf("the client gave up with %v after %v, want its deadline after %v", err, took,
				client.Timeout)
		}
		time.Sleep(time.Minute)
		if n := len(store.Orders()); n != 1 {
			t.Errorf("there are %d orders, want the one that the client does not know of", n)
		}
		client.Timeout = 40 * time.Second
		if status, err := order(client, "http://shop.test", "order-1"); err != nil ||
			status != "201 Created" || len(store.Orders()) != 1 {
			t.Errorf("the second try is answered with %q, %v, and there are %d orders", status, err,
				len(store.Orders()))
		}
	})
}
