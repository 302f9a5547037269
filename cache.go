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

// A representation is what a read answers with: all but its bytes.
type representation struct {
	etag    string
	length  int    // of the body, in bytes
	link    string // to the next page, or ""
	expired bool   // its age has reached its freshness lifetime

	date, age, cacheStatus string // of a product, or ""
}

// writeHead evaluates the request's preconditions in the order of RFC 9110, Section
// 13.2.2, writes the head of the response, and reports whether the body is to follow.
// If the preconditions say so, the response is 304 or 412.
//
// A representation that is expired is marked no-cache and goes out in full, as some
// caches on the way ignore Age and would take a 304 as a renewal for others.
func (s *service) writeHead(w http.ResponseWriter, r *http.Request, rep representation) (body bool) {
	h := w.Header()
	if lines := r.Header["If-Match"]; isPresent(lines) && !httpfield.MatchETag(lines, rep.etag, false) {
		setHeaders(h, "Cache-Status", rep.cacheStatus)
		s.writeProblem(w, r, preconditionFailed, "If-Match does not list the current entity tag.")
		return false
	}
	if s.vary != "" { // middleware may have set others
		h["Vary"] = append(slices.Clip(h["Vary"]), s.vary)
	}
	lines := r.Header["If-None-Match"]
	if !rep.expired && isPresent(lines) && httpfield.MatchETag(lines, rep.etag, true) {
		setHeaders(h, "Etag", rep.etag, "Cache-Control", s.cacheControl(r, false),
			"Date", rep.date, "Age", rep.age, "Cache-Status", rep.cacheStatus)
		w.WriteHeader(http.StatusNotModified)
		return false
	}
	if rep.link != "" {
		h["Link"] = append(slices.Clip(h["Link"]), rep.link)
	}
	setHeaders(h, "Content-Type", "application/json", "Content-Length", strconv.Itoa(rep.length), "X-Content-Type-Options", "nosniff",
		"Etag", rep.etag, "Cache-Control", s.cacheControl(r, rep.expired),
		"Date", rep.date, "Age", rep.age, "Cache-Status", rep.cacheStatus)
	w.WriteHeader(http.StatusOK)
	return r.Method != http.MethodHead
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

var errNotCached = errors.New("not cached")               // only-if-cached would have to go to the store
var errNoReturn = errors.New("GetProduct did not return") // but ended its goroutine

// A productCache holds products for requests whose Cache-Control allows a stored
// response. Concurrent requests of that kind share one call to the store.
type productCache struct {
	read     func(ctx context.Context, id string) (Resource, error)
	opts     *Options // MaxAge is the freshness lifetime of an entry
	personal []string // request headers by which products may differ: without Scope, the cache does not serve these

	mu      sync.Mutex
	entries map[productKey]*list.Element // of *productEntry
	recent  list.List                    // most recently used first
	reads   map[productKey]*productReads // those under way
	last    uint64                       // the number of the latest read
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
	cacheStatus string    // RFC 9211; "" if the request has no Cache-Control, or only-if-cached failed
	began       time.Time // when the call to the store began, if that was for another request
	age         time.Duration
	failure     error // the store's error, if a stale product stands in for it
}

// Values of Cache-Status for a request that is forwarded to the store, by reason
// (RFC 9211, Section 2.2), and for one that may not be.
const (
	fwdBypass  = "storefront; fwd=bypass"   // the cache is not used for such requests
	fwdURIMiss = "storefront; fwd=uri-miss" // nothing is stored
	fwdStale   = "storefront; fwd=stale"    // the stored product is no longer fresh
	fwdRequest = "storefront; fwd=request"  // the stored product is fresh, but the request refuses it
	noForward  = "storefront"               // only-if-cached: neither stored nor forwarded
)

// get returns the product with this ID, from the cache if r allows it. A request
// without Cache-Control has nothing to do with the cache. The errors are errNotCached,
// the store's, and that of r's context.
func (c *productCache) get(r *http.Request, id string) (productAnswer, error) {
	ctx := r.Context()
	lines, ok := r.Header["Cache-Control"]
	if !ok {
		product, err := c.read(ctx, id)
		return productAnswer{product: product}, err
	}
	d := httpfield.ParseCacheControl(lines)
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
	if c.opts.Scope != nil && !c.opts.Shared {
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
	c.mu.Lock()
	read := c.begin(key)
	fwd := c.forwardReason(key, read.began)
	c.mu.Unlock()
	product, err := Resource{}, errNoReturn
	defer func() {
		c.mu.Lock()
		c.end(read, product, err, !d.NoStore)
		c.mu.Unlock()
	}()
	product, err = c.read(ctx, key.id)
	return forwarded(product, fwd), err
}

// reuse answers a request that accepts a stored response.
func (c *productCache) reuse(ctx context.Context, key productKey, d *httpfield.CacheControl) (productAnswer, error) {
	arrived := time.Now()
	for {
		c.mu.Lock()
		now := time.Now()
		if element := c.entries[key]; element != nil {
			entry := *element.Value.(*productEntry)
			if age := now.Sub(entry.began); d.Accepts(age, c.opts.MaxAge) {
				c.recent.MoveToFront(element)
				c.mu.Unlock()
				return entry.hit(age, c.opts.MaxAge), nil
			}
		}
		fwd := c.forwardReason(key, now)
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
		product, err := c.wait(ctx, call)
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

// forwardReason returns the Cache-Status of a request that is forwarded to the store.
// c.mu must be held.
func (c *productCache) forwardReason(key productKey, now time.Time) string {
	element := c.entries[key]
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
	personal := func(name string) bool {
		return name == "*" || r.Header[name] != nil || name == "Host" && r.Host != "" // where net/http keeps it
	}
	return c.opts.Shared || c.opts.Scope != nil || !slices.ContainsFunc(c.personal, personal)
}

// productReads are the reads of one key that are under way: calls to the store whose
// outcome may be stored.
type productReads struct {
	count   int
	settled uint64       // the number of the latest read whose outcome is known; older ones are not stored
	call    *productCall // one that other requests may join, or nil
}

// A productRead is a read under way.
type productRead struct {
	key    productKey
	began  time.Time
	number uint64 // greater than those of reads that began before
}

// begin notes a read, which is to be ended. c.mu must be held.
func (c *productCache) begin(key productKey) productRead {
	reads := c.reads[key]
	if reads == nil {
		reads = new(productReads)
		if c.reads == nil {
			c.reads = make(map[productKey]*productReads)
		}
		c.reads[key] = reads
	}
	reads.count++
	c.last++
	return productRead{key, time.Now(), c.last}
}

// end stores the outcome of a read, or removes what is stored if there is no such
// product, unless the outcome of a read that began later is known: what that has found
// gone does not come back. If store is false, nothing is stored. c.mu must be held.
func (c *productCache) end(read productRead, product Resource, err error, store bool) {
	reads := c.reads[read.key]
	if reads.count--; reads.count == 0 {
		delete(c.reads, read.key)
	}
	gone := errors.Is(err, ErrNotFound)
	if !store || err != nil && !gone || read.number < reads.settled {
		return
	}
	reads.settled = read.number
	element := c.entries[read.key]
	switch {
	case gone && element != nil:
		c.remove(element)
	case gone:
	case element != nil:
		entry := element.Value.(*productEntry)
		entry.product, entry.began = product, read.began
		c.recent.MoveToFront(element)
	default:
		if c.entries == nil {
			c.entries = make(map[productKey]*list.Element)
		}
		// The strings of the key may be parts of a request that is much larger.
		key := productKey{strings.Clone(read.key.scope), strings.Clone(read.key.id)}
		c.entries[key] = c.recent.PushFront(&productEntry{key, product, read.began})
		if len(c.entries) > c.opts.CacheSize {
			c.remove(c.recent.Back())
		}
	}
}

func (c *productCache) remove(element *list.Element) {
	delete(c.entries, c.recent.Remove(element).(*productEntry).key)
}

// A productCall is a read that requests are waiting for.
type productCall struct {
	productRead
	waiters int                // guarded by the cache's mu
	cancel  context.CancelFunc // called when no one waits any longer
	done    chan struct{}      // closed once the fields below are set
	product Resource
	err     error
}

// join adds the caller to the waiters of the call in flight for key, if d accepts a
// response of that call's age and nothing newer is known, and of a new call otherwise.
// c.mu must be held.
func (c *productCache) join(ctx context.Context, key productKey, d *httpfield.CacheControl, now time.Time) (call *productCall, joined bool) {
	if reads := c.reads[key]; reads != nil && reads.call != nil {
		call = reads.call
		joined = call.number > reads.settled && d.Accepts(now.Sub(call.began), c.opts.MaxAge)
	}
	if !joined {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		call = &productCall{productRead: c.begin(key), cancel: cancel, done: make(chan struct{})}
		c.reads[key].call = call
		go c.run(ctx, call)
	}
	call.waiters++
	return call, joined
}

// run makes the call, in a goroutine of its own, so that no request's
// cancellation ends it for the others.
func (c *productCache) run(ctx context.Context, call *productCall) {
	call.err = errNoReturn
	defer func() {
		c.mu.Lock()
		c.leave(call)
		c.end(call.productRead, call.product, call.err, true)
		c.mu.Unlock()
		close(call.done)
	}()
	call.product, call.err = c.read(ctx, call.key.id)
}

// leave sees to it that nobody joins the call any longer. c.mu must be held.
func (c *productCache) leave(call *productCall) {
	if reads := c.reads[call.key]; reads != nil && reads.call == call {
		reads.call = nil
	}
}

// wait waits for call to finish or ctx to be done. The last waiter to leave
// cancels the call.
func (c *productCache) wait(ctx context.Context, call *productCall) (Resource, error) {
	select {
	case <-call.done:
	case <-ctx.Done():
	}
	c.mu.Lock()
	call.waiters--
	if call.waiters == 0 {
		call.cancel()
		c.leave(call)
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
