// Package storefront puts an HTTP front on a store of users, orders, products and
// widgets. [New] turns a [Store] into an [http.Handler]:
//
//	store := new(storefront.MemStore)
//	store.Products.Put(storefront.MustResource("p1", map[string]any{"name": "Teapot"}))
//	http.ListenAndServe("localhost:8080", storefront.New(store))
//
// The handler serves
//
//	GET  /v1/users?limit=50&after=…    users, page by page
//	POST /v1/orders                    {"item": "teapot", "qty": 2}, with an Idempotency-Key
//	GET  /v1/products/{product_id}     one product
//	GET  /v2/widgets?limit=50&start=…  widgets, page by page
//	GET  /openapi.json                 the contract of the above
//
// and, with Options.Orders, the orders of the account that asks,
//
//	GET  /v1/orders?limit=50&after=…       page by page, newest first
//	GET  /v1/orders?idempotency_key=…      the one that was created with a key
//	GET  /v1/orders/{order_id}             one order
//
// and HEAD and OPTIONS for them. It can be mounted anywhere, including under [http.StripPrefix],
// whose prefix must not end in a slash, and wrapped in middleware: authentication, rate limits,
// CORS, compression and request logs are left to the embedding program.
//
// # Reads
//
// Lists are paged by cursor: "next" in a page, or its Link header, leads to the next page. A client that
// follows them sees every item present for the whole walk exactly once, also through a cache, as caches
// must revalidate the pages that they keep. Every read has a strong ETag and a Cache-Control, and heeds
// If-None-Match and If-Match. A client that requests a product with Cache-Control: max-age=N accepts a
// stored response that is up to N seconds old; one that sends no Cache-Control always has the Store's.
//
// # Orders
//
// An order is sent with an Idempotency-Key. Repeating a request with the same
// key creates nothing and returns the order that the first one created, so a
// client that did not see a response simply tries again. With Options.OrderFields, an order may have
// [Fields] of the program's own, such as an address, which the Store checks: see MemStore.Accept.
//
// # Errors
//
// Every error is a problem document (RFC 9457). It lists all the faults of the
// query, the headers or the body at once. The text of a Store's error is never
// sent; it is logged with the incident that the response names.
//
// # Stores
//
// [MemStore] keeps everything in memory, also as a fake in tests (docs/testing.md); package sqlstore keeps
// it in PostgreSQL, SQLite, MySQL or MariaDB. To write another store, implement the four methods of [Store]
// and test it with package storetest; [NewResource] makes the values that it returns.
package storefront

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/storefront/internal/agecache"
	"example.com/storefront/internal/httpfield"
	"example.com/storefront/internal/ijson"
)

// Options configures [NewWithOptions]. The zero value of each field stands for
// the default that its comment names.
type Options struct {
	// Logger records every response with a status of 500 or above, with the incident that the response names:
	// 500 as an error, 503 as a warning, 501 and 504 as information, and so a 503 whose client is gone. It
	// also records, as warnings, errors of the store that stale-if-error hides, and a Refusal that breaks its
	// rules. A record has the method and the route of the request, and the Store's error as the Store returned
	// it, so that a handler can look into it. It has no key and no body, unless the Store puts them in its
	// errors. The default is the result of slog.Default at the time of the record.
	Logger *slog.Logger

	// PageSize is the number of items on a page if limit is optional and absent.
	// The default is 50, or MaxPageSize if that is less.
	PageSize int

	// MaxPageSize is the largest limit that a client may ask for. It must not
	// exceed 1,000,000. The default is 500.
	MaxPageSize int

	// MaxAge is the freshness lifetime of products and of openapi.json (RFC 9111, Section 4.2).
	// Cache-Control states it in whole seconds, rounded down. The default is 1 minute. If it is
	// negative, caches must always revalidate and no product is kept in memory.
	MaxAge time.Duration

	// ListMaxAge is the same for pages of lists. By default, as with anything less than a second, caches must
	// always revalidate: a walk sees what the Store has, and a page that has not changed is a 304. With a
	// longer lifetime, caches may mix pages of different ages. A walk then sees exactly once what was in the
	// list from ListMaxAge before it began until it ended, but may miss newer items and include deleted ones.
	// A cache that ignores Age can double that time.
	ListMaxAge time.Duration

	// Shared states that responses are the same for every caller. They are then not marked private,
	// so that shared caches may store them, except those to requests with Authorization or Cookie:
	// not every shared cache keeps to RFC 9111, Section 3.5. The products kept in memory serve
	// every caller, of whatever Scope. So a shop with accounts and one catalogue sets both.
	Shared bool

	// CacheSize is the number of products kept in memory for requests whose Cache-Control accepts a
	// stored response. The default is 10,000. If it is negative, none are kept.
	CacheSize int

	// Scope returns the owner of the idempotency keys that a request uses and, unless Shared is set, of the
	// products kept in memory for it, such as the authenticated account. Scopes share neither. A scope is
	// permanent for an account. Never derive it from a language, a device or a session: an order retried from
	// another one would be a second order. By default all requests are in one scope, and requests with
	// Authorization or Cookie bypass the products in memory unless Shared is set. A program that serves more
	// than one account must set Scope: without it, one account can replay another's order by using its key,
	// and products are kept across accounts that differ in anything but these two headers and those in Vary.
	//
	// Scope may be called concurrently. It sees the request as routed by this package, so the path
	// values of an outer pattern are gone; pass them in the request's context. If it goes by
	// anything but Authorization and Cookie, set Vary, too.
	Scope func(*http.Request) string

	// Vary names the request headers that reads depend on, such as the one that Scope goes by.
	// Responses to reads list them in Vary (RFC 9110, Section 12.5.5), so that no cache, such as a
	// browser's, gives one account what another has read. If reads depend on anything but headers,
	// such as the address of the client, Vary is "*". The default is Authorization and Cookie if
	// Scope is set, and none otherwise; an empty slice that is not nil stands for none.
	//
	// Requests with one of the headers, Host included, bypass the products in
	// memory, unless Scope or Shared is set. With Scope, the memory holds one copy of a
	// product per scope; with Shared, one in all. So if the Store reads products
	// by another header, too, such as Accept-Language, set CacheSize to a negative number.
	Vary []string

	// OrderFields lets orders have a member fields, an object of the program's own: see [Fields].
	// Without it, fields is an unknown member. Set it on all replicas before a client sends any, and
	// leave it set as long as a key of an order with fields is remembered, for [KeyLifetime]: a replica
	// without it refuses the retry of an order that exists.
	OrderFields bool

	// Orders, if it is not nil, serves GET /v1/orders and GET /v1/orders/{order_id}: the orders of the
	// scope of the request, to nobody else. Scope must be set, too. Orders of the scope "" are
	// nobody's: who has it gets an empty list, 404, and 400 for a key. Of any other scope, a 201 has a
	// Location. Responses are never shared, whatever Shared and ListMaxAge say.
	//
	// A [MemStore] is an OrderReader. Whatever decides what POST /v1/orders creates should decide what
	// is read, too: a wrapper that embeds a store and has a CreateOrder of its own still has the readers
	// of the store.
	Orders OrderReader
}

// New returns a handler that serves store with the default [Options]. It panics
// if store is nil, or a nil pointer, or if GODEBUG has httpmuxgo121=1, as it needs the routes of Go 1.22.
func New(store Store) http.Handler { return NewWithOptions(store, nil) }

// NewWithOptions is like [New], but with options; nil opts stands for the defaults. It copies opts.
// It panics as New does, if a name in Vary cannot be that of a header, if Orders is a nil pointer, or is set
// and Scope is not, or unless 1 <= PageSize <= MaxPageSize <= 1,000,000 with the defaults in place.
func NewWithOptions(store Store, opts *Options) http.Handler {
	s := &service{store: guardedStore{store}}
	if opts != nil {
		s.opts = *opts
	}
	if store == nil || isNil(store) || isNil(s.opts.Orders) {
		panic(fmt.Sprintf("storefront: the Store (%T) or Options.Orders (%T) is a nil pointer", store, s.opts.Orders))
	}
	s.opts.setDefaults()
	s.orders = guardedReader{s.opts.Orders}
	s.freshness, s.listFreshness = newFreshness(s.opts.MaxAge), newFreshness(s.opts.ListMaxAge)
	s.vary = strings.Join(s.opts.Vary, ", ")
	s.products = agecache.Cache[Resource]{
		Read: s.store.GetProduct, NotFound: ErrNotFound, Lifetime: s.opts.MaxAge, Size: s.opts.CacheSize,
	}
	s.bypassHeaders = []string{"Authorization", "Cookie"}
	for _, name := range s.opts.Vary {
		s.bypassHeaders = append(s.bypassHeaders, http.CanonicalHeaderKey(name))
	}
	s.openAPI = sync.OnceValues(s.opts.document)

	var listOrders http.HandlerFunc
	if s.opts.Orders != nil {
		listOrders = s.listOrders
		s.handle(ordersPath+"/{order_id}", s.withoutQuery(s.getOrder), nil)
	}
	s.handle("/v1/users", s.listUsers, nil)
	s.handle(ordersPath, listOrders, s.withoutQuery(s.createOrder))
	s.handle("/v1/products/{product_id}", s.withoutQuery(s.getProduct), nil)
	s.handle("/v2/widgets", s.listWidgets, nil)
	s.handle("/openapi.json", s.withoutQuery(s.getOpenAPI), nil)
	s.mux.HandleFunc("/", s.routed("/", s.notFound))
	s.checkMux()
	return s
}

// checkMux panics if the mux is that of Go 1.21, which takes the method for a part of the
// path. A program can ask for it in several ways, and all of them show in what it does.
func (s *service) checkMux() {
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: ordersPath}}
	if _, pattern := s.mux.Handler(r); pattern != http.MethodPost+" "+ordersPath {
		panic("storefront: GODEBUG has httpmuxgo121=1, or the default of Go 1.21, and ServeMux knows no methods: " +
			"put //go:debug httpmuxgo121=0 into the main package, or the setting into GODEBUG")
	}
}

func (o *Options) setDefaults() {
	o.MaxPageSize = cmp.Or(o.MaxPageSize, 500)
	o.PageSize = cmp.Or(o.PageSize, min(50, o.MaxPageSize))
	if o.PageSize < 1 || o.PageSize > o.MaxPageSize || o.MaxPageSize > 1_000_000 {
		panic("storefront: page sizes must be 1 <= PageSize <= MaxPageSize <= 1,000,000")
	}
	o.MaxAge = cmp.Or(o.MaxAge, time.Minute)
	if o.ListMaxAge < time.Second { // max-age=0 lets caches use a page while they cannot ask
		o.ListMaxAge = -1
	}
	o.CacheSize = cmp.Or(o.CacheSize, 10_000)
	if o.Vary == nil && o.Scope != nil {
		o.Vary = []string{"Authorization", "Cookie"}
	}
	if slices.ContainsFunc(o.Vary, func(name string) bool { return !httpfield.IsToken(name) }) {
		panic(fmt.Sprintf("storefront: Vary has what is not the name of a header: %q", o.Vary))
	}
	if o.Orders != nil && o.Scope == nil {
		panic("storefront: Orders is set, and Scope is not: whose orders are they?")
	}
}

// isNil reports whether v is an interface that holds a nil pointer, and so is not nil itself.
func isNil(v any) bool {
	return reflect.ValueOf(v).Kind() == reflect.Pointer && reflect.ValueOf(v).IsNil()
}

// A service is the handler that New returns.
type service struct {
	store                    guardedStore
	orders                   guardedReader // if Options.Orders is set
	opts                     Options       // with the defaults in place
	mux                      http.ServeMux
	products                 agecache.Cache[Resource]
	bypassHeaders            []string  // canonical names of headers by which products may differ
	pages                    sync.Pool // of *[]byte, for the bodies of lists
	openAPI                  func() (text []byte, etag string)
	freshness, listFreshness freshness
	vary                     string // of responses to reads
}

// handle has get and post serve the requests for path with these methods, get also those with HEAD.
// One of them may be nil. It answers OPTIONS and all other methods itself.
func (s *service) handle(path string, get, post http.HandlerFunc) {
	allow := "OPTIONS"
	if post != nil {
		allow = "POST, " + allow
		s.mux.HandleFunc("POST "+path, s.routed("POST "+path, post))
	}
	if get != nil {
		allow = "GET, HEAD, " + allow
		s.mux.HandleFunc("GET "+path, s.routed("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			dropBody(r) // first, as a slow body would make the answer older
			get(w, r)
		}))
	}
	s.mux.HandleFunc(path, s.routed(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		if r.Method == http.MethodOptions {
			dropBody(r)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.writeProblem(w, r, methodNotAllowed, "This resource supports only "+allow+".")
	}))
}

// routed returns a handler that notes the route of requests and leaves them to handler, except
// those with a method that HTTP does not define (RFC 9110, Section 9.3, and RFC 5789).
func (s *service) routed(route string, handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = route
		if noted, ok := r.Context().Value(routeKey{}).(*atomic.Pointer[string]); ok {
			noted.Store(&route)
		}
		switch r.Method {
		case "GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE":
			handler(w, r)
		default:
			s.writeProblem(w, r, notImplemented, "No resource supports this method.")
		}
	}
}

type routeKey struct{}

// WithRoute returns a copy of ctx, the context of one request, in which the service notes the
// request's route. A program that labels metrics or traces by route wraps everything else in a
// handler that makes ctx := WithRoute(r.Context()), passes on r.WithContext(ctx), and afterwards
// calls Route(ctx). If ctx comes from WithRoute already, WithRoute returns ctx.
func WithRoute(ctx context.Context) context.Context {
	if ctx.Value(routeKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, routeKey{}, new(atomic.Pointer[string]))
}

// Route returns the route that was noted in ctx, which comes from [WithRoute] or is
// derived from one that does. It is the [http.Request.Pattern] that the service sees,
// which does not get out of copies of the request, such as [http.StripPrefix] makes.
//
// The routes, without the place where the service is mounted, are "GET /v1/users", "POST
// /v1/orders", "GET /v1/products/{product_id}", "GET /v2/widgets", "GET /openapi.json" and, with
// Options.Orders, "GET /v1/orders" and "GET /v1/orders/{order_id}", with HEAD under GET; these without
// their method for requests with another one (204, 405 and 501); and "/" for all other paths. The route is ""
// as long as the request has not reached the service.
func Route(ctx context.Context) string {
	noted, _ := ctx.Value(routeKey{}).(*atomic.Pointer[string])
	if noted == nil || noted.Load() == nil {
		return ""
	}
	return *noted.Load()
}

// ServeHTTP implements [http.Handler].
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// ServeMux would redirect an unclean path; here it is not found.
	p := r.URL.Path
	if r.URL.RawPath != "" {
		// An escaped slash is part of an ID, but an escaped dot is a dot (RFC 3986, Section 6.2.2.2).
		p = strings.NewReplacer("%2e", ".", "%2E", ".").Replace(r.URL.EscapedPath())
	}
	if !isClean(p) {
		s.routed("/", s.notFound)(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// isClean reports whether p begins with a slash and has neither empty nor dot segments. It may end in a slash.
func isClean(p string) bool {
	clean := path.Clean(p)
	return p != "" && p[0] == '/' && (p == clean || p == clean+"/" && clean != "/")
}

func (s *service) notFound(w http.ResponseWriter, r *http.Request) {
	s.writeProblem(w, r, notFound, "No resource has this path. The paths are listed in openapi.json.")
}

//go:embed openapi.json
var openAPI string

// document returns the OpenAPI document of a service with these options, and its entity tag. The last
// member of the file, which is not served, has what the document has more with an option.
func (o *Options) document() (text []byte, etag string) {
	base, more, _ := strings.Cut(openAPI, ",\n  \"x-options\": ")
	doc := base + "\n}\n"
	if o.OrderFields || o.Orders != nil {
		var all any
		var options struct{ OrderFields, Orders any }
		json.Unmarshal([]byte(doc), &all)
		json.Unmarshal([]byte(strings.TrimSuffix(more, "}\n")), &options)
		if o.OrderFields {
			all = merge(all, options.OrderFields)
		}
		if o.Orders != nil {
			all = merge(all, options.Orders)
		}
		compact, _ := ijson.Marshal(all)
		var indented bytes.Buffer
		json.Indent(&indented, compact, "", "  ")
		doc = indented.String() + "\n"
	}
	most, usual := strconv.Itoa(o.MaxPageSize), strconv.Itoa(o.PageSize)
	text = []byte(strings.NewReplacer(
		`"maximum": 500, "default": 50`, `"maximum": `+most+`, "default": `+usual,
		`"default": 50,`, `"default": `+usual+`,`,
		`"maximum": 500`, `"maximum": `+most,
		`from 1 to 500.`, `from 1 to `+most+`.`, // in an example
	).Replace(doc))
	return text, httpfield.ETag(tagOf(text))
}

// merge adds to a JSON value: members to objects, elements to arrays, and anything else in place of it.
func merge(to, more any) any {
	switch more := more.(type) {
	case map[string]any:
		if object, ok := to.(map[string]any); ok {
			for name, value := range more {
				object[name] = merge(object[name], value)
			}
			return object
		}
	case []any:
		array, _ := to.([]any)
		return append(array, more...)
	}
	return more
}

// getOpenAPI serves GET /openapi.json.
func (s *service) getOpenAPI(w http.ResponseWriter, r *http.Request) {
	text, etag := s.openAPI()
	if s.writeHead(w, r, representation{etag: etag, freshness: s.freshness, length: len(text)}) {
		w.Write(text)
	}
}

// setContent sets the headers that describe the body of a response, and Cache-Control. Here
// as elsewhere, names are in canonical form, which Header.Set would bring them to each time,
// and values share an allocation, with no capacity to append to.
func setContent(h http.Header, contentType string, length int, cacheControl string) {
	v := []string{contentType, strconv.Itoa(length), "nosniff", cacheControl}
	h["Content-Type"], h["Content-Length"] = v[:1:1], v[1:2:2]
	h["X-Content-Type-Options"], h["Cache-Control"] = v[2:3:3], v[3:]
}

// A problemType is a problem type (RFC 9457, Section 3.1.1): the status, the code, which ends the
// type URI, and the title of all its problems. They are part of the contract and never change.
type problemType struct {
	status      int
	code, title string
}

var (
	invalidQuery             = problemType{400, "invalid-query", "Invalid query"}
	malformedBody            = problemType{400, "malformed-body", "Malformed body"}
	idempotencyKeyMissing    = problemType{400, "idempotency-key-missing", "Idempotency-Key missing"}
	idempotencyKeyInvalid    = problemType{400, "idempotency-key-invalid", "Idempotency-Key invalid"}
	notFound                 = problemType{404, "not-found", "Not found"}
	orderNotFound            = problemType{404, "order-not-found", "Order not found"}
	productNotFound          = problemType{404, "product-not-found", "Product not found"}
	methodNotAllowed         = problemType{405, "method-not-allowed", "Method not allowed"}
	requestTimeout           = problemType{408, "request-timeout", "Request timeout"}
	idempotencyKeyInProgress = problemType{409, "idempotency-key-in-progress", "Idempotency-Key in progress"}
	preconditionFailed       = problemType{412, "precondition-failed", "Precondition failed"}
	bodyTooLarge             = problemType{413, "body-too-large", "Body too large"}
	unsupportedMediaType     = problemType{415, "unsupported-media-type", "Unsupported media type"}
	invalidOrder             = problemType{422, "invalid-order", "Invalid order"}
	idempotencyKeyReused     = problemType{422, "idempotency-key-reused", "Idempotency-Key reused"}
	orderRefused             = problemType{422, "order-refused", "Order refused"}
	internalError            = problemType{500, "internal-error", "Internal error"}
	notImplemented           = problemType{501, "not-implemented", "Method not implemented"}
	unavailable              = problemType{503, "unavailable", "Service unavailable"}
	notCached                = problemType{504, "not-cached", "Not cached"}
)

func (t problemType) problem(detail string) Problem {
	uri := "urn:problem-type:storefront:" + t.code
	return Problem{Type: uri, Title: t.title, Status: t.status, Detail: detail}
}

// A Problem is a problem document (RFC 9457, Section 3). It is a handler that answers every request
// with itself, so that what a program refuses around the service, such as a request without
// credentials, looks like what the service refuses:
//
//	w.Header().Set("WWW-Authenticate", "Bearer")
//	storefront.Problem{Status: http.StatusUnauthorized, Detail: "…"}.ServeHTTP(w, r)
//
// Clients written in Go can decode the service's problems into it.
type Problem struct {
	Type     string  `json:"type"`               // a URI that names the kind of problem; empty: "about:blank"
	Title    string  `json:"title"`              // the same for all of a type; empty: the text of the status
	Status   int     `json:"status"`             // 400 to 599; anything else: 500
	Detail   string  `json:"detail,omitempty"`   // what is wrong this time, for people
	Reason   string  `json:"reason,omitempty"`   // of an order that was refused: Reason of the Refusal
	Instance string  `json:"instance,omitempty"` // a URI that names this occurrence
	Errors   []Fault `json:"errors,omitempty"`   // all that is wrong with the request
}

// A Fault is one thing wrong with a request. At most one of Parameter, Header and
// Pointer says where. Minimum and Maximum are bounds of a number's value (limit, qty), or
// of a string's length in characters, which are code points (item). A Fault cannot be compared by ==:
// later versions may add fields of any type.
type Fault struct {
	_ [0]func()

	Detail    string `json:"detail"`              // what is wrong, for people
	Parameter string `json:"parameter,omitempty"` // the name of a query parameter, perhaps cut
	Header    string `json:"header,omitempty"`    // the name of a header field
	Pointer   string `json:"pointer,omitempty"`   // in the body: a JSON Pointer (RFC 6901, 6: URI fragment)
	Minimum   *int64 `json:"minimum,omitempty"`   // the least allowed; nil: not said
	Maximum   *int64 `json:"maximum,omitempty"`   // the greatest allowed; nil: not said
}

// ServeHTTP answers with p, as application/problem+json with Cache-Control: no-store. Headers that w has
// already, such as Retry-After, stay. ServeHTTP first reads and drops what is left of the request's body,
// up to 64 KiB, unless more is declared or, over HTTP/1, the client waits for 100 Continue: a proxy that is
// still sending may lose a response that comes before. The server's ReadTimeout bounds how long that takes.
func (p Problem) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	dropBody(r)
	if p.Status < 400 || p.Status > 599 {
		p.Status = http.StatusInternalServerError
	}
	p.Type = cmp.Or(p.Type, "about:blank")
	p.Title = cmp.Or(p.Title, http.StatusText(p.Status), "Error")
	body, _ := ijson.Marshal(p) // has no errors
	setContent(w.Header(), "application/problem+json", len(body), "no-store")
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

const maxDropped = 64 << 10 // bytes

// dropBody discards the body, up to maxDropped bytes of it, so that a client that is
// still sending gets the answer. It does nothing if it is called again. It reads nothing
// of a request with Expect: to read asks a client that waits for 100 Continue to send the
// body, and over HTTP/2 net/http does not tell whether the client waits. Nor does it read what
// follows CONNECT, which is no body (RFC 9110, Section 9.3.6): over HTTP/2, it ends with the tunnel.
func dropBody(r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength <= maxDropped && r.Header["Expect"] == nil &&
		r.Method != http.MethodConnect {
		io.CopyN(io.Discard, r.Body, maxDropped)
		r.Body = http.NoBody
	}
}

// writeProblem answers with a problem of type t, and logs it if its status is 500 or above.
func (s *service) writeProblem(
	w http.ResponseWriter, r *http.Request, t problemType, detail string, faults ...Fault,
) {
	p := t.problem(detail)
	p.Errors = bounded(detail, faults)
	if p.Status >= 500 {
		p.Instance = newIncident()
		s.log(r, slog.LevelInfo, p.Title, slog.String("incident", p.Instance))
	}
	p.ServeHTTP(w, r)
}

const (
	maxFaults     = 100      // in a problem
	maxFaultBytes = 15 << 10 // of all faults and the detail of a problem, as JSON
)

// bounded returns the first of the faults of a problem with this detail, so that no request, however
// small, causes a large response.
func bounded(detail string, faults []Fault) []Fault {
	faults = faults[:min(len(faults), maxFaults)]
	size := len(ijson.AppendString(nil, detail))
	for i, fault := range faults {
		text, _ := ijson.Marshal(fault) // has no errors
		if size += len(text) + len(","); size > maxFaultBytes {
			return faults[:i]
		}
	}
	return faults
}

// storeFailed answers a request for which the store returned err, with 503 if err is temporary or the
// client is gone, and with 500 otherwise.
func (s *service) storeFailed(w http.ResponseWriter, r *http.Request, err error) {
	level, message := slog.LevelError, "the store failed"
	p := internalError.problem("The server failed to answer. Quote the instance when you report this.")
	clientGone := r.Context().Err() == context.Canceled && errors.Is(err, context.Canceled)
	if clientGone || isTemporary(err) {
		level = slog.LevelWarn
		p = unavailable.problem("The service is temporarily unavailable. Try again; retry an order with the same key.")
		w.Header().Set("Retry-After", "1")
	}
	if clientGone { // or has closed its sending half, which looks the same, and gets the answer
		level, message = slog.LevelInfo, "the client is gone"
	}
	p.Instance = newIncident()
	s.logFailure(r, level, message, err, slog.String("incident", p.Instance))
	p.ServeHTTP(w, r)
}

func isTemporary(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

func newIncident() string { return "urn:storefront:incident:" + rand.Text() }

func (s *service) log(r *http.Request, level slog.Level, message string, attrs ...slog.Attr) {
	logger := s.opts.Logger
	if logger == nil {
		logger = slog.Default()
	}
	method := strings.Clone(r.Method[:min(len(r.Method), 32)]) // a handler may keep a record for later
	attrs = append(attrs, slog.String("method", method), slog.String("route", r.Pattern))
	logger.LogAttrs(r.Context(), level, "storefront: "+message, attrs...)
}

// logFailure logs the Store's error as it is, for handlers that look into it.
func (s *service) logFailure(r *http.Request, level slog.Level, msg string, err error, attrs ...slog.Attr) {
	if e, ok := err.(*storeError); ok {
		err = e.err
	}
	defer func() {
		if recover() != nil { // a method of err did, and the handler did not expect it
			text := fmt.Sprintf("a %T whose methods panic", err)
			s.log(r, level, msg, append(attrs, slog.String("error", text))...)
		}
	}()
	s.log(r, level, msg, append(attrs, slog.Any("error", err))...)
}

// A guardedStore is where the service meets a Store, whose methods, and those of the errors that it
// returns, are a stranger's code. It checks each result once. A result that breaks the contract becomes
// an error, and so does a panic. All errors become a *storeError. The strings that it gives a Store are
// the Store's, as not every server lets those of a request live as long as net/http does.
type guardedStore struct{ store Store }

func (g guardedStore) ListUsers(ctx context.Context, after string, limit int) (page []Resource, err error) {
	defer guard(&err)
	err = errPanicked // unless the store returns
	if page, err = g.store.ListUsers(ctx, after, limit); err != nil {
		return nil, err
	}
	return page, checkPage("ListUsers", page, after, false)
}

func (g guardedStore) ListWidgets(ctx context.Context, start string, limit int) (page []Resource, err error) {
	defer guard(&err)
	err = errPanicked // unless the store returns
	if page, err = g.store.ListWidgets(ctx, start, limit); err != nil {
		return nil, err
	}
	return page, checkPage("ListWidgets", page, start, true)
}

// checkPage returns an error unless the items come in ascending order, behind the
// position or, if it is inclusive, at it. A walk over pages that do not might never end.
func checkPage(method string, items []Resource, position string, inclusive bool) error {
	last := position
	for i, item := range items {
		id := item.ID()
		switch {
		case id > last || id == last && id != "" && inclusive && i == 0:
			last = id
		case id == "":
			return broken(method, "the zero Resource")
		case i == 0:
			return broken(method, "%q for the position %q, which it does not come after", id, position)
		case id == last:
			return broken(method, "%q twice", id)
		default:
			return broken(method, "%q behind %q, which is not in ascending byte order", id, last)
		}
	}
	return nil
}

func (g guardedStore) CreateOrder(ctx context.Context, key IdempotencyKey, o Order) (got Order, err error) {
	defer guard(&err)
	err = errPanicked // unless the store returns
	key.Scope, key.Value = strings.Clone(key.Scope), strings.Clone(key.Value)
	if got, err = g.store.CreateOrder(ctx, key, o); err != nil {
		return Order{}, err
	}
	return checkStored(got, o)
}

var year10000 = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// checkStored returns stored as the answer to a call that proposed order, or an error unless it can be what
// the call has created or found. The error names nothing that was ordered, as it is logged.
//
// A replay is answered if its fields have the value of those that were sent, in whatever form a database has
// kept them since, as the order is there. The answer has those that are kept, as a read has.
func checkStored(stored, order Order) (Order, error) {
	isNew, at, err := stored.ID == order.ID, stored.CreatedAt, checkID(stored.ID)
	fields, same := stored.Fields.valued(order.Fields)
	switch method := "CreateOrder"; {
	case err != nil:
		err = broken(method, "an order, but %v", err)
	case stored.Item != order.Item || stored.Qty != order.Qty:
		err = broken(method, "an order with another item or quantity than was sent")
	case !same || isNew && stored.Fields != order.Fields:
		err = broken(method, "an order with other fields than were sent, or a new one with fields in another form")
	case isNew && !at.Equal(order.CreatedAt):
		err = broken(method, "the order that it was given, but with CreatedAt %v", at)
	case !at.After(time.Time{}) || !at.Before(year10000): // which RFC 3339 cannot write
		err = broken(method, "an order with CreatedAt %v", at)
	}
	stored.Fields = fields
	return stored, err
}

func (g guardedStore) GetProduct(ctx context.Context, id string) (product Resource, err error) {
	defer guard(&err)
	err = errPanicked // unless the store returns
	product, err = g.store.GetProduct(ctx, strings.Clone(id))
	switch {
	case err != nil:
	case product == Resource{}:
		err = broken("GetProduct", "the zero Resource")
	case product.ID() != id:
		err = broken("GetProduct", "%q for the ID %q", product.ID(), id)
	}
	return product, err
}

// A guardedReader is what a guardedStore is, for an OrderReader.
type guardedReader struct{ orders OrderReader }

func (g guardedReader) GetOrder(ctx context.Context, scope, id string) (order Resource, err error) {
	defer guard(&err)
	err = errPanicked // unless the reader returns
	order, err = g.orders.GetOrder(ctx, strings.Clone(scope), strings.Clone(id))
	if err == nil && order.ID() != id {
		err = broken("GetOrder", "%q for the ID %q", order.ID(), id)
	}
	return order, err
}

func (g guardedReader) ListOrders(
	ctx context.Context, scope, after string, limit int,
) (page []Resource, err error) {
	defer guard(&err)
	err = errPanicked // unless the reader returns
	if page, err = g.orders.ListOrders(ctx, strings.Clone(scope), after, limit); err != nil {
		return nil, err
	}
	last := after
	for _, order := range page {
		id := order.ID()
		if id == "" {
			return nil, broken("ListOrders", "the zero Resource")
		}
		if last != "" && id >= last {
			return nil, broken("ListOrders", "%q behind %q, which is not in descending byte order", id, last)
		}
		last = id
	}
	return page, nil
}

func (g guardedReader) GetOrderByKey(ctx context.Context, scope, key string) (order Resource, err error) {
	defer guard(&err)
	err = errPanicked // unless the reader returns
	order, err = g.orders.GetOrderByKey(ctx, strings.Clone(scope), strings.Clone(key))
	if err == nil && order == (Resource{}) {
		err = broken("GetOrderByKey", "the zero Resource")
	}
	return order, err
}

// broken returns the error for a method whose result breaks its contract.
func broken(method, format string, args ...any) error {
	return fmt.Errorf("%s broke its contract: it returned %s", method, fmt.Sprintf(format, args...))
}

// A storeError is a Store's error. It matches those errors of the contract that the
// Store's matches, and has no method that calls one of a stranger's.
type storeError struct {
	err     error // for the log
	matches []error
}

func (e *storeError) Error() string   { return "the store failed" }
func (e *storeError) Unwrap() []error { return e.matches }

// errPanicked stands for the result of a method that panics: with panicnil=1, recover is nil after panic(nil).
var errPanicked = errors.New("panicked")

// guard replaces an error of the Store, or its panic, by a *storeError.
func guard(err *error) {
	switch v := recover(); {
	case v != nil || *err == errPanicked:
		panicked, ok := v.(error)
		if !ok {
			panicked = fmt.Errorf("%v", v)
		}
		*err = &storeError{err: fmt.Errorf("the store panicked: %w\n\n%s", panicked, debug.Stack())}
	case *err != nil:
		*err = examine(*err)
	}
}

// examine finds out which errors of the contract err matches. A method of err that panics matches nothing.
func examine(err error) *storeError {
	known := &storeError{err: err}
	if isNil(err) { // whose text would be <nil>
		known.err = fmt.Errorf("a nil %T is an error, too: return nil itself for none (%w)", err, err)
	}
	match := func(target error) {
		defer func() { recover() }()
		if errors.Is(err, target) {
			known.matches = append(known.matches, target)
		}
	}
	match(ErrUnavailable)
	match(context.DeadlineExceeded)
	temporary := known.matches != nil
	match(context.Canceled)
	if temporary { // it wins over a final one
		return known
	}
	match(ErrNotFound)
	match(ErrKeyReused)
	match(ErrInProgress)
	func() {
		defer func() { recover() }()
		if refusal, ok := errors.AsType[*Refusal](err); ok && refusal != nil {
			known.matches = append(known.matches, new(*refusal))
		}
	}()
	return known
}
