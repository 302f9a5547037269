package storefront

import (
	"container/list"
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// checkPreconditions sets ETag and Cache-Control on a response whose entity tag is
// etag, and evaluates the request's preconditions in the order of RFC 9110,
// Section 13.2.2. It reports whether it has answered, with 304 or 412.
func (s *service) checkPreconditions(w http.ResponseWriter, r *http.Request, etag string) (answered bool) {
	h := w.Header()
	if lines := r.Header["If-Match"]; isPresent(lines) && !matchETag(lines, etag, false) {
		s.writeProblem(w, r, preconditionFailed, "If-Match does not list the current entity tag.")
		return true
	}
	values := &[3]string{etag, s.cacheControl, "nosniff"} // one allocation for all
	h["Etag"] = values[0:1:1]
	h["Cache-Control"] = values[1:2:2]
	if lines := r.Header["If-None-Match"]; isPresent(lines) && matchETag(lines, etag, true) {
		h["X-Content-Type-Options"] = values[2:3:3]
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	return false
}

// isPresent reports whether a header field is present and not empty.
func isPresent(lines []string) bool {
	return len(lines) > 0 && (len(lines) > 1 || lines[0] != "")
}

// matchETag reports whether the lines of If-Match or If-None-Match, taken as one
// list, contain the strong entity tag etag, or are "*". The comparison is strong
// or weak as in RFC 9110, Section 8.8.3.2. Parsing stops at the first element
// that is not an entity tag.
func matchETag(lines []string, etag string, weak bool) bool {
	if len(lines) == 1 && strings.Trim(lines[0], " \t") == "*" {
		return true
	}
	for _, rest := range lines {
		for {
			rest = strings.TrimLeft(rest, " \t,")
			if rest == "" {
				break
			}
			isWeak := strings.HasPrefix(rest, "W/")
			tag := strings.TrimPrefix(rest, "W/")
			n := entityTagLen(tag)
			if n == 0 {
				return false
			}
			tag, rest = tag[:n], strings.TrimLeft(tag[n:], " \t")
			if rest != "" && rest[0] != ',' {
				return false
			}
			if tag == etag && (weak || !isWeak) {
				return true
			}
		}
	}
	return false
}

// entityTagLen returns the length in bytes of the opaque-tag (RFC 9110, Section
// 8.8.3) that s begins with, quotes included, or 0 if it begins with none.
func entityTagLen(s string) int {
	if s == "" || s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c < '!' || c == 0x7F:
			return 0
		}
	}
	return 0
}

// forever stands for a number of seconds too large to represent (RFC 9111,
// Section 1.2.2).
const forever time.Duration = math.MaxInt64

// directives holds the directives of a request's Cache-Control (RFC 9111,
// Section 5.2.1, and RFC 5861, Section 4).
type directives struct {
	acceptsAge   bool // some directive allows a stored response
	noCache      bool // also set by max-age=0 and by anything malformed
	noStore      bool
	onlyIfCached bool
	maxAge       time.Duration // forever if absent
	minFresh     time.Duration // 0 if absent
	maxStale     time.Duration // -1 if absent, forever if it has no argument
	staleIfError time.Duration // -1 if absent
}

// parseDirectives parses the lines of Cache-Control as one list. If a directive
// is repeated, the most restrictive one counts.
func parseDirectives(lines []string) directives {
	d := directives{maxAge: forever, maxStale: -1, staleIfError: -1}
	for _, rest := range lines {
		for rest != "" {
			var element string
			element, rest = cutElement(rest)
			if element != "" {
				d.add(element)
			}
		}
	}
	return d
}

// cutElement returns the first element of a comma-separated list, trimmed, and
// what follows its comma. A comma in a quoted string does not separate.
func cutElement(list string) (element, rest string) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == ',' && !quoted:
			return strings.Trim(list[:i], " \t"), list[i+1:]
		}
	}
	return strings.Trim(list, " \t"), ""
}

// add records one element of the list.
func (d *directives) add(element string) {
	name, arg, hasArg := strings.Cut(element, "=")
	if !isToken(name) || hasArg && !isToken(arg) && !isQuoted(arg) {
		d.noCache = true
		return
	}
	is := func(directive string) bool { return strings.EqualFold(name, directive) }
	switch {
	case is("no-cache"):
		d.noCache = true
	case is("no-store"):
		d.noStore = true
	case is("only-if-cached"):
		d.onlyIfCached = true
		d.acceptsAge = true
	case is("max-stale") && !hasArg:
		d.acceptsAge = true
		if d.maxStale < 0 {
			d.maxStale = forever
		}
	case is("max-age"), is("min-fresh"), is("max-stale"), is("stale-if-error"):
		seconds, ok := parseDeltaSeconds(arg)
		switch {
		case !ok:
			d.noCache = true
		case is("max-age"):
			d.acceptsAge = true
			d.maxAge = min(d.maxAge, seconds)
			d.noCache = d.noCache || seconds == 0
		case is("min-fresh"):
			d.acceptsAge = true
			d.minFresh = max(d.minFresh, seconds)
		case is("max-stale"):
			d.acceptsAge = true
			if d.maxStale < 0 || seconds < d.maxStale {
				d.maxStale = seconds
			}
		case d.staleIfError < 0 || seconds < d.staleIfError:
			d.staleIfError = seconds
		}
	}
}

// parseDeltaSeconds parses a number of seconds as a token or a quoted string;
// recipients ought to accept both forms (RFC 9111, Section 5.2).
func parseDeltaSeconds(arg string) (time.Duration, bool) {
	if isQuoted(arg) {
		arg = arg[1 : len(arg)-1]
	}
	if arg == "" || strings.Trim(arg, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n > int64(forever/time.Second) {
		return forever, true
	}
	return time.Duration(n) * time.Second, true
}

// isToken reports whether s is a token (RFC 9110, Section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7F || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// isQuoted reports whether s is a quoted string (RFC 9110, Section 5.6.4).
func isQuoted(s string) bool {
	if s == "" || s[0] != '"' {
		return false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i == len(s)-1
		}
	}
	return false
}

// accepts reports whether d allows a stored response of the given age, where
// lifetime is the freshness lifetime.
func (d *directives) accepts(age, lifetime time.Duration) bool {
	if d.noCache || !d.acceptsAge || age > d.maxAge {
		return false
	}
	if left := lifetime - age; left > 0 && left >= d.minFresh {
		return true
	}
	return d.minFresh == 0 && age-lifetime <= d.maxStale
}

// errNotCached is returned when a request with only-if-cached would have to go
// to the store.
var errNotCached = errors.New("not cached")

// A productCache holds products for requests whose Cache-Control allows a stored
// response. Concurrent requests of that kind share one call to the store.
type productCache struct {
	read     func(ctx context.Context, id string) (Resource, error)
	scope    func(*http.Request) string // nil: one scope for all requests
	shared   bool
	size     int           // entries; negative: none
	lifetime time.Duration // the freshness lifetime of an entry

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
	cacheStatus []string // RFC 9211; nil if only-if-cached failed
	age, date   []string // nil if the product is fresh from the store
	failure     error    // the store's error, if a stale product stands in for it
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
	d := parseDirectives(r.Header["Cache-Control"])
	if !c.serves(r) {
		if d.onlyIfCached {
			return productAnswer{}, errNotCached
		}
		product, err := c.read(ctx, id)
		return forwarded(product, fwdBypass), err
	}
	if isPresent(r.Header["If-Match"]) { // only the origin can evaluate it (RFC 9111, Section 4.3.2)
		d.noCache, d.staleIfError = true, -1
	}
	key := productKey{id: id}
	if c.scope != nil {
		key.scope = c.scope(r)
	}
	var (
		answer productAnswer
		err    error
	)
	switch {
	case d.acceptsAge && !d.noCache:
		answer, err = c.reuse(ctx, key, &d)
	case d.onlyIfCached:
		err = errNotCached
	default:
		answer, err = c.readThrough(ctx, key, &d)
	}
	if err != nil && err != errNotCached && !errors.Is(err, ErrNotFound) && d.staleIfError >= 0 && ctx.Err() != context.Canceled {
		if stale, ok := c.stale(key, d.staleIfError); ok {
			stale.cacheStatus, stale.failure = answer.cacheStatus, err
			return stale, nil
		}
	}
	return answer, err
}

// readThrough answers a request that does not accept a stored response.
func (c *productCache) readThrough(ctx context.Context, key productKey, d *directives) (productAnswer, error) {
	began := time.Now()
	product, err := c.read(ctx, key.id)
	c.mu.Lock()
	element := c.entries[key]
	fwd := c.forwardReason(element, began)
	if !d.noStore {
		c.keep(element, key, product, began, err)
	}
	c.mu.Unlock()
	return forwarded(product, fwd), err
}

// reuse answers a request that accepts a stored response.
func (c *productCache) reuse(ctx context.Context, key productKey, d *directives) (productAnswer, error) {
	arrived := time.Now()
	for {
		c.mu.Lock()
		now := time.Now()
		element := c.entries[key]
		if element != nil {
			entry := *element.Value.(*productEntry)
			if age := now.Sub(entry.began); d.accepts(age, c.lifetime) {
				c.recent.MoveToFront(element)
				c.mu.Unlock()
				return entry.hit(age, c.lifetime), nil
			}
		}
		fwd := c.forwardReason(element, now)
		switch {
		case d.onlyIfCached:
			c.mu.Unlock()
			return productAnswer{}, errNotCached
		case d.noStore:
			c.mu.Unlock()
			product, err := c.read(ctx, key.id)
			return forwarded(product, fwd), err
		}
		call, joined := c.join(ctx, key, d, now)
		c.mu.Unlock()
		product, err := c.wait(ctx, key, call)
		if joined && (err == nil || errors.Is(err, ErrNotFound)) {
			if call.began.Before(arrived) && !d.accepts(time.Since(call.began), c.lifetime) {
				continue // what it returned is too old for this request
			}
			fwd += "; collapsed"
		}
		return forwarded(product, fwd), err
	}
}

// forwardReason returns the Cache-Status of a request that is forwarded to the
// store. element is the stored entry, or nil.
func (c *productCache) forwardReason(element *list.Element, now time.Time) string {
	switch {
	case element == nil:
		return fwdURIMiss
	case now.Sub(element.Value.(*productEntry).began) >= c.lifetime:
		return fwdStale
	}
	return fwdRequest
}

// serves reports whether the cache may be used to answer r. Without a scope, the
// response to a request with credentials may be for its sender alone.
func (c *productCache) serves(r *http.Request) bool {
	if c.size < 0 || c.lifetime <= 0 {
		return false
	}
	return c.shared || c.scope != nil || len(r.Header["Authorization"]) == 0 && len(r.Header["Cookie"]) == 0
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
		if len(c.entries) > c.size {
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
func (c *productCache) join(ctx context.Context, key productKey, d *directives, now time.Time) (call *productCall, joined bool) {
	call = c.calls[key]
	joined = call != nil && d.accepts(now.Sub(call.began), c.lifetime)
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
	return entry.hit(age, c.lifetime), age-c.lifetime <= limit
}

// hit returns the answer that e gives at the given age.
func (e *productEntry) hit(age, lifetime time.Duration) productAnswer {
	values := &[3]string{
		"storefront; hit; ttl=" + strconv.FormatInt(int64((lifetime-age)/time.Second), 10),
		strconv.FormatInt(int64(age/time.Second), 10),
		e.began.UTC().Format(http.TimeFormat),
	}
	return productAnswer{product: e.product, cacheStatus: values[0:1:1], age: values[1:2:2], date: values[2:3:3]}
}

// forwarded returns the answer for a product that the store returned.
func forwarded(product Resource, fwd string) productAnswer {
	return productAnswer{product: product, cacheStatus: []string{fwd}}
}
