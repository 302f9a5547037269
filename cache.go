package storefront

import (
	"container/list"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/storefront/internal/httpfield"
)

// checkPreconditions sets ETag, Cache-Control and Vary on a response whose entity
// tag is etag, and evaluates the request's preconditions in the order of RFC 9110,
// Section 13.2.2. It reports whether it has answered, with 304 or 412.
//
// If the response is expired, its age having reached its freshness lifetime, it is
// marked no-cache and goes out in full, as some caches on the way ignore Age and
// would take a 304 as a renewal for others.
func (s *service) checkPreconditions(w http.ResponseWriter, r *http.Request, etag string, expired bool) (answered bool) {
	if lines := r.Header["If-Match"]; isPresent(lines) && !httpfield.MatchETag(lines, etag, false) {
		s.writeProblem(w, r, preconditionFailed, "If-Match does not list the current entity tag.")
		return true
	}
	dropBody(r) // which a read may have, but has no use for
	h := w.Header()
	setHeaders(h, "Etag", etag, "Cache-Control", s.cacheControl(r, expired))
	if s.vary != "" { // middleware may have set others
		h["Vary"] = append(slices.Clip(h["Vary"]), s.vary)
	}
	if lines := r.Header["If-None-Match"]; !expired && isPresent(lines) && httpfield.MatchETag(lines, etag, true) {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	return false
}

// cacheControl returns the Cache-Control of the response to a read. It is private
// also with Shared where the request has credentials: RFC 9111, Section 3.5, keeps
// shared caches from storing the response, but not all of them keep to it.
func (s *service) cacheControl(r *http.Request, expired bool) string {
	shared := s.opts.Shared && r.Header["Authorization"] == nil && r.Header["Cookie"] == nil
	switch {
	case shared && (expired || s.opts.MaxAge < 0):
		return "no-cache"
	case shared:
		return s.maxAge
	case expired || s.opts.MaxAge < 0:
		return "private, no-cache"
	}
	return s.privateMaxAge
}

// isPresent reports whether a header field is present and not empty.
func isPresent(lines []string) bool {
	return len(lines) > 0 && (len(lines) > 1 || lines[0] != "")
}

// errNotCached is returned when a request with only-if-cached would have to go
// to the store.
var errNotCached = errors.New("not cached")

// A productCache holds products for requests whose Cache-Control allows a stored
// response. Concurrent requests of that kind share one call to the store.
type productCache struct {
	read     func(ctx context.Context, id string) (Resource, error)
	opts     *Options // MaxAge is the freshness lifetime of an entry
	personal []string // request headers by which products may differ: without Scope, the cache does not serve these

	mu      sync.Mutex
	entries map[productKey]*list.Element // of *productEntry
	recent  list.List                    // most recently used first
	calls   map[productKey]*productCall
}

type productKey struct{ scope, id string }

// A productEntry is a stored product.
type productEntry struct {
	key     productKey
	product Resource
	began   time.Time // when the call to the store began, so that the age is never understated
}

// A productAnswer is a product and where it came from.
type productAnswer struct {
	product     Resource
	cacheStatus string    // RFC 9211; "" if only-if-cached failed
	began       time.Time // when the call to the store began, if that was for another request
	age         time.Duration
	failure     error // the store's error, if a stale product stands in for it
}

// Values of Cache-Status for a request that is forwarded to the store, by reason
// (RFC 9211, Section 2.2).
const (
	fwdBypass  = "storefront; fwd=bypass"   // the cache is not used for such requests
	fwdURIMiss = "storefront; fwd=uri-miss" // nothing is stored
	fwdStale   = "storefront; fwd=stale"    // the stored product is no longer fresh
	fwdRequest = "storefront; fwd=request"  // the stored product is fresh, but the request refuses it
)

// get returns the product with this ID, from the cache if r allows it. Its
// errors are errNotCached, the store's, and that of r's context.
func (c *productCache) get(r *http.Request, id string) (productAnswer, error) {
	ctx := r.Context()
	d := httpfield.ParseCacheControl(r.Header["Cache-Control"])
	if !c.serves(r) {
		if d.OnlyIfCached {
			return productAnswer{}, errNotCached
		}
		product, err := c.read(ctx, id)
		return forwarded(product, fwdBypass), err
	}
	if isPresent(r.Header["If-Match"]) { // only the origin can evaluate it (RFC 9111, Section 4.3.2)
		d.NoCache, d.StaleIfError = true, -1
	}
	key := productKey{id: id}
	if c.opts.Scope != nil {
		key.scope = c.opts.Scope(r)
	}
	var (
		answer productAnswer
		err    error
	)
	switch {
	case d.AcceptsAge && !d.NoCache:
		answer, err = c.reuse(ctx, key, &d)
	case d.OnlyIfCached:
		err = errNotCached
	default:
		answer, err = c.readThrough(ctx, key, &d)
	}
	failed := err != nil && err != errNotCached && !errors.Is(err, ErrNotFound)
	if failed && d.StaleIfError >= 0 && ctx.Err() != context.Canceled {
		if stale, ok := c.stale(key, d.StaleIfError); ok {
			stale.cacheStatus, stale.failure = answer.cacheStatus, err
			return stale, nil
		}
	}
	return answer, err
}

// readThrough answers a request that does not accept a stored response.
func (c *productCache) readThrough(ctx context.Context, key productKey, d *httpfield.CacheControl) (productAnswer, error) {
	began := time.Now()
	product, err := c.read(ctx, key.id)
	c.mu.Lock()
	element := c.entries[key]
	fwd := c.forwardReason(element, began)
	if !d.NoStore {
		c.keep(element, key, product, began, err)
	}
	c.mu.Unlock()
	return forwarded(product, fwd), err
}

// reuse answers a request that accepts a stored response.
func (c *productCache) reuse(ctx context.Context, key productKey, d *httpfield.CacheControl) (productAnswer, error) {
	arrived := time.Now()
	for {
		c.mu.Lock()
		now := time.Now()
		element := c.entries[key]
		if element != nil {
			entry := *element.Value.(*productEntry)
			if age := now.Sub(entry.began); d.Accepts(age, c.opts.MaxAge) {
				c.recent.MoveToFront(element)
				c.mu.Unlock()
				return entry.hit(age, c.opts.MaxAge), nil
			}
		}
		fwd := c.forwardReason(element, now)
		switch {
		case d.OnlyIfCached:
			c.mu.Unlock()
			return productAnswer{}, errNotCached
		case d.NoStore:
			c.mu.Unlock()
			product, err := c.read(ctx, key.id)
			return forwarded(product, fwd), err
		}
		call, joined := c.join(ctx, key, d, now)
		c.mu.Unlock()
		product, err := c.wait(ctx, key, call)
		answer := forwarded(product, fwd)
		if joined && (err == nil || errors.Is(err, ErrNotFound)) {
			age := time.Since(call.began)
			if call.began.Before(arrived) && !d.Accepts(age, c.opts.MaxAge) {
				continue // what it returned is too old for this request
			}
			answer.cacheStatus += "; collapsed"
			answer.began, answer.age = call.began, age
		}
		return answer, err
	}
}

// forwardReason returns the Cache-Status of a request that is forwarded to the
// store. element is the stored entry, or nil.
func (c *productCache) forwardReason(element *list.Element, now time.Time) string {
	switch {
	case element == nil:
		return fwdURIMiss
	case now.Sub(element.Value.(*productEntry).began) >= c.opts.MaxAge:
		return fwdStale
	}
	return fwdRequest
}

// serves reports whether the cache may be used to answer r. Without a scope, the
// response to a request with credentials may be for its sender alone.
func (c *productCache) serves(r *http.Request) bool {
	if c.opts.CacheSize < 0 || c.opts.MaxAge <= 0 {
		return false
	}
	personal := func(name string) bool { return r.Header[name] != nil || name == "*" }
	return c.opts.Shared || c.opts.Scope != nil || !slices.ContainsFunc(c.personal, personal)
}

// keep stores under key the outcome of a call to the store that began at the
// given time, unless that of a later call is stored already. element is the
// current entry, or nil. c.mu must be held.
func (c *productCache) keep(element *list.Element, key productKey, product Resource, began time.Time, err error) {
	switch {
	case element != nil && began.Before(element.Value.(*productEntry).began):
	case errors.Is(err, ErrNotFound):
		if element != nil {
			c.remove(element)
		}
		if call := c.calls[key]; call != nil && call.began.Before(began) {
			delete(c.calls, key) // it may still return the product
		}
	case err != nil:
	case element != nil:
		entry := element.Value.(*productEntry)
		entry.product, entry.began = product, began
		c.recent.MoveToFront(element)
	default:
		if c.entries == nil {
			c.entries = make(map[productKey]*list.Element)
		}
		// The strings of key may be parts of a request that is much larger.
		key = productKey{strings.Clone(key.scope), strings.Clone(key.id)}
		c.entries[key] = c.recent.PushFront(&productEntry{key, product, began})
		if len(c.entries) > c.opts.CacheSize {
			c.remove(c.recent.Back())
		}
	}
}

func (c *productCache) remove(element *list.Element) {
	delete(c.entries, c.recent.Remove(element).(*productEntry).key)
}

// A productCall is a call to the store that requests are waiting for.
type productCall struct {
	began   time.Time
	waiters int                // guarded by the cache's mu
	cancel  context.CancelFunc // called when no one waits any longer
	done    chan struct{}      // closed once the fields below are set
	product Resource
	err     error
}

// join adds the caller to the waiters of the call in flight for key, if d
// accepts a response of that call's age, and of a new call otherwise. c.mu must
// be held.
func (c *productCache) join(ctx context.Context, key productKey, d *httpfield.CacheControl, now time.Time) (call *productCall, joined bool) {
	call = c.calls[key]
	joined = call != nil && d.Accepts(now.Sub(call.began), c.opts.MaxAge)
	if !joined {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		call = &productCall{began: now, cancel: cancel, done: make(chan struct{})}
		if c.calls == nil {
			c.calls = make(map[productKey]*productCall)
		}
		c.calls[key] = call
		go c.run(ctx, key, call)
	}
	call.waiters++
	return call, joined
}

// run makes the call, in a goroutine of its own, so that no request's
// cancellation ends it for the others.
func (c *productCache) run(ctx context.Context, key productKey, call *productCall) {
	call.err = errors.New("GetProduct did not return") // unless it does
	defer func() {
		c.mu.Lock()
		if c.calls[key] == call { // else it has been given up or replaced
			delete(c.calls, key)
			c.keep(c.entries[key], key, call.product, call.began, call.err)
		}
		c.mu.Unlock()
		close(call.done)
	}()
	call.product, call.err = c.read(ctx, key.id)
}

// wait waits for call to finish or ctx to be done. The last waiter to leave
// cancels the call.
func (c *productCache) wait(ctx context.Context, key productKey, call *productCall) (Resource, error) {
	select {
	case <-call.done:
	case <-ctx.Done():
	}
	c.mu.Lock()
	call.waiters--
	if call.waiters == 0 {
		call.cancel()
		if c.calls[key] == call { // no one else is to join it
			delete(c.calls, key)
		}
	}
	c.mu.Unlock()
	select {
	case <-call.done:
	default:
		return Resource{}, ctx.Err()
	}
	return call.product, call.err
}

// stale returns the product stored under key, if it has been stale for at most
// limit (RFC 5861, Section 4).
func (c *productCache) stale(key productKey, limit time.Duration) (productAnswer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.entries[key]
	if element == nil {
		return productAnswer{}, false
	}
	c.recent.MoveToFront(element)
	entry := element.Value.(*productEntry)
	age := time.Since(entry.began)
	return entry.hit(age, c.opts.MaxAge), age-c.opts.MaxAge <= limit
}

// hit returns the answer that e gives at the given age.
func (e *productEntry) hit(age, lifetime time.Duration) productAnswer {
	ttl := "storefront; hit; ttl=" + strconv.FormatInt(int64((lifetime-age)/time.Second), 10)
	return productAnswer{product: e.product, cacheStatus: ttl, began: e.began, age: age}
}

// forwarded returns the answer for a product that the store returned.
func forwarded(product Resource, fwd string) productAnswer {
	return productAnswer{product: product, cacheStatus: fwd}
}
