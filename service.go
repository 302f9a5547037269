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
// and HEAD and OPTIONS for them. It can be mounted anywhere, including under
// [http.StripPrefix], and wrapped in middleware: authentication, rate limits,
// CORS, compression and request logs are left to the embedding program.
//
// # Reads
//
// Lists are paged by cursor: "next" in a page, or its Link header, leads to the
// next page. A client that follows them sees every item that is there throughout
// exactly once. Every read has a strong ETag and a Cache-Control, and heeds
// If-None-Match and If-Match. A client that requests a product with
// Cache-Control: max-age=N accepts a stored response that is up to N seconds
// old.
//
// # Orders
//
// An order is sent with an Idempotency-Key. Repeating a request with the same
// key creates nothing and returns the order that the first one created, so a
// client that did not see a response simply tries again.
//
// # Errors
//
// Every error is a problem document (RFC 9457). It lists all the faults of the
// query, the headers or the body at once. The text of a Store's error is never
// sent; it is logged with the incident that the response names.
//
// # Stores
//
// [MemStore] keeps everything in memory; package sqlstore keeps it in PostgreSQL
// or SQLite. To write another store, implement the four methods of [Store] and
// test it with package storetest; [NewResource] makes the values that it returns.
package storefront

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options configures [NewWithOptions]. The zero value of each field stands for
// the default that its comment names.
type Options struct {
	// Logger records every response with a status of 500 or above, unless the
	// client is gone, with the incident that the response names, and every error
	// of the store that stale-if-error hides. Idempotency keys and bodies are
	// not logged, unless the Store puts them in its errors. The default is the
	// result of slog.Default at the time of the record.
	Logger *slog.Logger

	// PageSize is the number of items on a page if limit is optional and absent.
	// The default is 50, or MaxPageSize if that is less.
	PageSize int

	// MaxPageSize is the largest limit that a client may ask for. It must not
	// exceed 1,000,000. The default is 500.
	MaxPageSize int

	// MaxAge is the freshness lifetime of responses to reads (RFC 9111, Section
	// 4.2). Cache-Control states it in whole seconds, rounded down. The default
	// is 1 minute. If it is negative, caches must always revalidate and no
	// product is kept in memory.
	MaxAge time.Duration

	// Shared states that responses are the same for every caller. They are then
	// not marked private, so that shared caches may store them, except those to
	// requests with Authorization (RFC 9111, Section 3.5).
	Shared bool

	// CacheSize is the number of products kept in memory for requests whose
	// Cache-Control accepts a stored response. The default is 10,000. If it is
	// negative, none are kept.
	CacheSize int

	// Scope returns the owner of the idempotency keys and cached products that a
	// request uses, such as the authenticated account. Scopes share neither. By
	// default all requests are in one scope, and requests with Authorization or
	// Cookie bypass the product cache unless Shared is set. A program that
	// serves more than one account must set Scope: without it, one account can
	// replay another's order by using its key, and products are cached across
	// accounts that are told apart by anything but these two headers.
	//
	// Scope may be called concurrently. It sees the request as routed by this
	// package, so the path values of an outer pattern are gone; pass them in the
	// request's context.
	Scope func(*http.Request) string
}

// New returns a handler that serves store with the default [Options]. It panics
// if store is nil.
func New(store Store) http.Handler {
	return NewWithOptions(store, nil)
}

// NewWithOptions is like [New], but with options; nil opts stands for the
// defaults. It copies opts. It panics if store is nil, or unless 1 <= PageSize
// <= MaxPageSize <= 1,000,000 with the defaults in place.
func NewWithOptions(store Store, opts *Options) http.Handler {
	if store == nil {
		panic("storefront: the Store is nil")
	}
	s := &service{store: guardedStore{store}}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.setDefaults()
	s.cacheControl = s.opts.cacheControl()
	s.products = productCache{
		read:     s.readProduct,
		scope:    s.opts.Scope,
		shared:   s.opts.Shared,
		size:     s.opts.CacheSize,
		lifetime: s.opts.MaxAge,
	}
	s.openAPI = s.opts.document()
	s.openAPIETag = tagOf(s.openAPI).String()

	const get, post = "GET, HEAD, OPTIONS", "POST, OPTIONS"
	s.handle("GET", "/v1/users", get, s.listUsers)
	s.handle("POST", ordersPath, post, s.createOrder)
	s.handle("GET", "/v1/products/{product_id}", get, s.getProduct)
	s.handle("GET", "/v2/widgets", get, s.listWidgets)
	s.handle("GET", "/openapi.json", get, s.getOpenAPI)
	s.mux.HandleFunc("/", s.notFound)
	return s
}

const ordersPath = "/v1/orders"

func (o *Options) setDefaults() {
	if o.MaxPageSize == 0 {
		o.MaxPageSize = 500
	}
	if o.PageSize == 0 {
		o.PageSize = min(50, o.MaxPageSize)
	}
	if o.PageSize < 1 || o.PageSize > o.MaxPageSize || o.MaxPageSize > 1_000_000 {
		panic("storefront: page sizes must be 1 <= PageSize <= MaxPageSize <= 1,000,000")
	}
	if o.MaxAge == 0 {
		o.MaxAge = time.Minute
	}
	if o.CacheSize == 0 {
		o.CacheSize = 10_000
	}
}

// A service is the handler that New returns.
type service struct {
	store        Store
	opts         Options // with the defaults in place
	mux          http.ServeMux
	cacheControl string // of responses to reads
	products     productCache
	pages        sync.Pool // of *[]byte, for the bodies of lists
	openAPI      []byte
	openAPIETag  string
}

// cacheControl returns the Cache-Control of responses to reads.
func (o *Options) cacheControl() string {
	freshness := "no-cache"
	if o.MaxAge > 0 {
		freshness = "max-age=" + strconv.FormatInt(int64(o.MaxAge/time.Second), 10)
	}
	if o.Shared {
		return freshness
	}
	return "private, " + freshness
}

// handle routes requests for path with method, and HEAD if that is GET, to
// serve. It answers OPTIONS and all other methods itself, with allow in Allow.
func (s *service) handle(method, path, allow string, serve http.HandlerFunc) {
	s.mux.HandleFunc(method+" "+path, serve)
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		if r.Method == http.MethodOptions {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.writeProblem(w, r, methodNotAllowed, "This resource supports only "+allow+".")
	})
}

// ServeHTTP implements [http.Handler].
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case "GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE":
	default:
		s.writeProblem(w, r, notImplemented, "No resource supports this method.")
		return
	}
	// ServeMux would redirect an unclean path; here it is not found.
	p := r.URL.Path
	if r.URL.RawPath != "" {
		// An escaped slash is part of an ID, but an escaped dot is a dot (RFC 3986,
		// Section 6.2.2.2).
		p = strings.NewReplacer("%2e", ".", "%2E", ".").Replace(r.URL.EscapedPath())
	}
	if !isClean(p) {
		s.notFound(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// isClean reports whether p begins with a slash and has neither empty nor dot
// segments. It may end in a slash.
func isClean(p string) bool {
	clean := path.Clean(p)
	return p != "" && p[0] == '/' && (p == clean || p == clean+"/" && clean != "/")
}

func (s *service) notFound(w http.ResponseWriter, r *http.Request) {
	s.writeProblem(w, r, notFound, "No resource has this path. The paths are listed in openapi.json.")
}

//go:embed openapi.json
var openAPI string

// document returns the OpenAPI document with o's page sizes in place of the
// defaults.
func (o *Options) document() []byte {
	return []byte(strings.NewReplacer(
		`"maximum": 500, "default": 50`, `"maximum": `+strconv.Itoa(o.MaxPageSize)+`, "default": `+strconv.Itoa(o.PageSize),
		`"maximum": 500`, `"maximum": `+strconv.Itoa(o.MaxPageSize),
		`from 1 to 500.`, `from 1 to `+strconv.Itoa(o.MaxPageSize)+`.`, // in an example
	).Replace(openAPI))
}

// getOpenAPI serves GET /openapi.json.
func (s *service) getOpenAPI(w http.ResponseWriter, r *http.Request) {
	if s.checkNoQuery(w, r) && !s.checkPreconditions(w, r, s.openAPIETag) {
		s.writeJSON(w, r, http.StatusOK, s.openAPI)
	}
}

// checkNoQuery reports whether the request has no query parameters. If it has
// any, checkNoQuery has answered.
func (s *service) checkNoQuery(w http.ResponseWriter, r *http.Request) bool {
	_, faults := parseQuery(r.URL.RawQuery)
	if faults != nil {
		s.writeProblem(w, r, invalidQuery, "This resource takes no query parameters.", faults...)
	}
	return faults == nil
}

// writeJSON answers with body, which is JSON, unchanged.
func (s *service) writeJSON(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	s.write(w, r, status, "application/json", body)
}

func (s *service) write(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	writeHeader(w, status, contentType, len(body))
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

func writeHeader(w http.ResponseWriter, status int, contentType string, length int) {
	h := w.Header()
	values := &[3]string{contentType, strconv.Itoa(length), "nosniff"} // one allocation for all
	h["Content-Type"] = values[0:1:1]
	h["Content-Length"] = values[1:2:2]
	h["X-Content-Type-Options"] = values[2:3:3]
	w.WriteHeader(status)
}

// encode renders v as compact JSON, without escaping <, > and &.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		literal, _ := encode(s) // strings have no errors
		return append(b, literal...)
	}
	return append(append(append(b, '"'), s...), '"')
}

// A problemType is a problem type (RFC 9457, Section 3.1.1).
type problemType int

const (
	invalidQuery problemType = iota
	malformedBody
	idempotencyKeyMissing
	idempotencyKeyInvalid
	notFound
	productNotFound
	methodNotAllowed
	requestTimeout
	idempotencyKeyInProgress
	preconditionFailed
	bodyTooLarge
	unsupportedMediaType
	invalidOrder
	idempotencyKeyReused
	internalError
	notImplemented
	unavailable
	notCached
	problemTypes // the number of types
)

// describe returns the status, the code (the end of the type URI) and the title
// of all problems of type t. They are part of the contract and never change.
func (t problemType) describe() (status int, code, title string) {
	switch t {
	case invalidQuery:
		return http.StatusBadRequest, "invalid-query", "Invalid query"
	case malformedBody:
		return http.StatusBadRequest, "malformed-body", "Malformed body"
	case idempotencyKeyMissing:
		return http.StatusBadRequest, "idempotency-key-missing", "Idempotency-Key missing"
	case idempotencyKeyInvalid:
		return http.StatusBadRequest, "idempotency-key-invalid", "Idempotency-Key invalid"
	case notFound:
		return http.StatusNotFound, "not-found", "Not found"
	case productNotFound:
		return http.StatusNotFound, "product-not-found", "Product not found"
	case methodNotAllowed:
		return http.StatusMethodNotAllowed, "method-not-allowed", "Method not allowed"
	case requestTimeout:
		return http.StatusRequestTimeout, "request-timeout", "Request timeout"
	case idempotencyKeyInProgress:
		return http.StatusConflict, "idempotency-key-in-progress", "Idempotency-Key in progress"
	case preconditionFailed:
		return http.StatusPreconditionFailed, "precondition-failed", "Precondition failed"
	case bodyTooLarge:
		return http.StatusRequestEntityTooLarge, "body-too-large", "Body too large"
	case unsupportedMediaType:
		return http.StatusUnsupportedMediaType, "unsupported-media-type", "Unsupported media type"
	case invalidOrder:
		return http.StatusUnprocessableEntity, "invalid-order", "Invalid order"
	case idempotencyKeyReused:
		return http.StatusUnprocessableEntity, "idempotency-key-reused", "Idempotency-Key reused"
	case notImplemented:
		return http.StatusNotImplemented, "not-implemented", "Method not implemented"
	case unavailable:
		return http.StatusServiceUnavailable, "unavailable", "Service unavailable"
	case notCached:
		return http.StatusGatewayTimeout, "not-cached", "Not cached"
	default:
		return http.StatusInternalServerError, "internal-error", "Internal error"
	}
}

// A problem is a problem details object (RFC 9457, Section 3).
type problem struct {
	Type     string  `json:"type"`
	Title    string  `json:"title"`
	Status   int     `json:"status"`
	Detail   string  `json:"detail"`
	Instance string  `json:"instance,omitempty"`
	Errors   []fault `json:"errors,omitempty"`
}

// A fault is one thing wrong with a request. One of Parameter, Header and
// Pointer says where: a query parameter, a header field or a place in the body.
type fault struct {
	Detail    string `json:"detail"`
	Parameter string `json:"parameter,omitempty"`
	Header    string `json:"header,omitempty"`
	Pointer   string `json:"pointer,omitempty"`
	Minimum   int64  `json:"minimum,omitempty"` // bounds are above 0, so 0 means none
	Maximum   int64  `json:"maximum,omitempty"`
}

// maxFaults bounds the number of faults that a problem lists, so that a small
// request cannot cause a large response.
const maxFaults = 100

// maxNameInFault is how many bytes of a parameter's name a fault repeats.
const maxNameInFault = 255

// writeProblem answers with a problem of type t, and logs it if its status is
// 500 or above.
func (s *service) writeProblem(w http.ResponseWriter, r *http.Request, t problemType, detail string, faults ...fault) {
	s.sendProblem(w, r, t, "", detail, faults)
}

func (s *service) sendProblem(w http.ResponseWriter, r *http.Request, t problemType, instance, detail string, faults []fault) {
	status, code, title := t.describe()
	if status >= 500 && instance == "" {
		instance = newIncident()
		s.log(r, slog.LevelInfo, code, slog.String("incident", instance))
	}
	body, err := encode(problem{
		Type:     "urn:problem-type:storefront:" + code,
		Title:    title,
		Status:   status,
		Detail:   detail,
		Instance: instance,
		Errors:   faults[:min(len(faults), maxFaults)],
	})
	if err != nil { // cannot happen with these types
		panic(err)
	}
	w.Header().Set("Cache-Control", "no-store")
	s.write(w, r, status, "application/problem+json", body)
}

// storeFailed answers a request for which the store returned err, with 503 if
// err is temporary and with 500 otherwise, and logs err unless the client is
// gone.
func (s *service) storeFailed(w http.ResponseWriter, r *http.Request, err error) {
	incident := newIncident()
	t, level, detail := internalError, slog.LevelError, "The server failed to answer. Quote the instance when you report this."
	clientGone := r.Context().Err() == context.Canceled && errors.Is(err, context.Canceled)
	if clientGone || errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t, level, detail = unavailable, slog.LevelWarn, "The service is temporarily unavailable. Try again; retry an order with the same key."
		w.Header().Set("Retry-After", "1")
	}
	if !clientGone {
		s.log(r, level, "the store failed", slog.String("incident", incident), slog.Any("error", err))
	}
	s.sendProblem(w, r, t, incident, detail, nil)
}

func newIncident() string { return "urn:storefront:incident:" + rand.Text() }

func (s *service) log(r *http.Request, level slog.Level, message string, attrs ...slog.Attr) {
	logger := s.opts.Logger
	if logger == nil {
		logger = slog.Default()
	}
	attrs = append(attrs, slog.String("method", r.Method[:min(len(r.Method), 32)]), slog.String("route", r.Pattern))
	logger.LogAttrs(r.Context(), level, "storefront: "+message, attrs...)
}
