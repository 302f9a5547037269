package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/httpfield"
)

const (
	longestRead = 64 << 20 // bytes of a page or product
	readTries   = 10
	longestWait = time.Minute // of a read for Retry-After
)

// errNotRead is why a read ends that is tried no more.
var errNotRead = fmt.Errorf("%w: %d tries have failed", storefront.ErrUnavailable, readTries)

// read sends a GET until an answer is right, or final, or no more tries are left.
func (c *Client) read(ctx context.Context, path string, prepare func(*http.Request) (send bool),
	right func(answer) bool) (answer, error) {
	var pauses pauses
	for try := 1; ; try++ {
		a := c.try(ctx, http.MethodGet, path, nil, longestRead, prepare)
		if (a.status == http.StatusOK || a.status == http.StatusNotModified) && right(a) {
			return a, nil
		}
		problem, ofService := a.problem()
		switch {
		case ofService && a.status/100 == 4 && !a.repeatable():
			return a, &RefusedError{Problem: problem}
		case a.repeatable(), a.status/100 == 2, a.status == http.StatusNotModified:
		default:
			return a, blocked(a, nil)
		}
		if try == readTries {
			return a, &UnknownError{Err: errNotRead, Last: a.String()}
		}
		if ctx.Err() == nil {
			c.opts.Logger.InfoContext(ctx, "storefront client: a read is tried again", "answer", a.String())
		}
		if pauses.wait(ctx, a.retryAfter(), longestWait) != nil {
			return a, &UnknownError{Err: done(ctx), Last: a.String()}
		}
	}
}

// Users returns the users in ascending byte order of their IDs. Each loop over the iterator is a
// walk of its own, which reads a page when it needs it, and has each user that is there throughout
// exactly once.
//
// A walk that cannot be read to its end yields an error last, beside no user: a [*RefusedError], a
// [*BlockedError] or, after some tries, an [*UnknownError], which matches
// [storefront.ErrUnavailable] or the error of ctx.
func (c *Client) Users(ctx context.Context) iter.Seq2[storefront.Resource, error] {
	return c.list(ctx, "/v1/users", "after")
}

// Widgets returns the widgets, as [Client.Users] does users.
func (c *Client) Widgets(ctx context.Context) iter.Seq2[storefront.Resource, error] {
	return c.list(ctx, "/v2/widgets", "start")
}

func (c *Client) list(ctx context.Context, path, position string) iter.Seq2[storefront.Resource, error] {
	return func(yield func(storefront.Resource, error) bool) {
		size, cursor, last := c.opts.PageSize, "", ""
		for {
			query := url.Values{"limit": {strconv.Itoa(size)}}
			if cursor != "" {
				query.Set(position, cursor)
			}
			var p page
			_, err := c.read(ctx, path+"?"+query.Encode(), func(*http.Request) bool { return true },
				func(a answer) (ok bool) {
					p, ok = parsePage(a, cursor, last)
					return ok
				})
			if allowed := mostItems(err); allowed > 0 && allowed < size {
				size = allowed
				continue
			}
			if err != nil {
				yield(storefront.Resource{}, err)
				return
			}
			for _, item := range p.Data {
				if !yield(item, nil) {
					return
				}
				last = item.ID()
			}
			if cursor = p.Next; cursor == "" {
				return
			}
		}
	}
}

// A page is one of a list.
type page struct {
	Data    []storefront.Resource `json:"data"`
	HasMore bool                  `json:"has_more"`
	Next    string                `json:"next"`
}

// parsePage reports whether an answer is the page behind a cursor, which begins behind an ID. One that
// does not advance would be read for ever.
func parsePage(a answer, cursor, last string) (p page, ok bool) {
	if a.status != http.StatusOK || json.Unmarshal(a.body, &p) != nil || p.Data == nil ||
		p.HasMore != (p.Next != "") || p.Next != "" && p.Next == cursor {
		return page{}, false
	}
	for _, item := range p.Data {
		if item.ID() <= last { // also a null, which has none
			return page{}, false
		}
		last = item.ID()
	}
	return p, true
}

// mostItems returns what the service allows as limit, if it has refused a request for that.
func mostItems(err error) int {
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok {
		return 0
	}
	for _, f := range refused.Problem.Errors {
		if f.Parameter == "limit" && f.Maximum != nil {
			return int(*f.Maximum)
		}
	}
	return 0
}

// MaxAge lets [Client.Product] return what was read from the store up to this time ago, in whole
// seconds.
type MaxAge time.Duration

// Product returns a product as the store has it. With a MaxAge it may be as old as that, out of the
// client's memory (see Options.Products) or the service's, if the service allows it.
//
// The error matches [storefront.ErrNotFound] if there is no such product. Others are as those of
// [Client.Users].
func (c *Client) Product(ctx context.Context, id string, maxAge ...MaxAge) (storefront.Resource, error) {
	if id == "" || id == "." || id == ".." || id == "/" {
		return storefront.Resource{}, fmt.Errorf("client: no URL leads to a product with the ID %q: %w", id,
			storefront.ErrNotFound)
	}
	path := "/v1/products/" + url.PathEscape(id)
	known := c.remembered(path)
	var accept time.Duration
	if len(maxAge) > 0 {
		accept = max(0, time.Duration(maxAge[0]).Truncate(time.Second))
	}
	var request *http.Request // the last; nil: memory has answered
	var product storefront.Resource
	var sent time.Time
	a, err := c.read(ctx, path, func(r *http.Request) (send bool) {
		request, sent = r, time.Now()
		if !known.isFor(r) {
			known = nil
		}
		if known != nil && elapsed(known.read) < min(accept, known.fresh) {
			request = nil
			return false
		}
		if known != nil && known.tag != "" {
			r.Header.Set("If-None-Match", known.tag)
		}
		if len(maxAge) > 0 {
			r.Header.Set("Cache-Control", fmt.Sprintf("max-age=%d", accept/time.Second))
		}
		return true
	}, func(a answer) bool {
		product = storefront.Resource{}
		switch {
		case a.status == http.StatusOK:
			return json.Unmarshal(a.body, &product) == nil && product.ID() == id
		case known == nil || request != nil && known.tag == "":
			return false // nothing was asked for that could be unmodified
		}
		product = known.product
		return true
	})
	if err != nil {
		return storefront.Resource{}, err
	}
	if request != nil {
		c.remember(path, newRemembered(product, request, a, sent))
	}
	return product, nil
}

// A remembered product may be used again for requests with the same fields.
type remembered struct {
	product storefront.Resource
	tag     string        // "" if the answer had none
	fields  http.Header   // of the request, on which the answer depends
	read    time.Time     // from the store, or earlier
	fresh   time.Duration // since then; what is older has to be asked for
}

// newRemembered returns nil if the product must not be kept.
func newRemembered(product storefront.Resource, r *http.Request, a answer, sent time.Time) *remembered {
	control := httpfield.ParseCacheControl(a.header.Values("Cache-Control"))
	if control.NoStore {
		return nil
	}
	m := &remembered{product: product, tag: a.header.Get("ETag"), fields: make(http.Header), read: sent}
	if m.tag == "" {
		m.tag = r.Header.Get("If-None-Match") // of which this is the 304
	}
	// Nobody gets what another account has read, whatever Vary says.
	vary := append(a.header.Values("Vary"), "Authorization", "Cookie")
	for name := range strings.SplitSeq(strings.Join(vary, ","), ",") {
		if name = strings.TrimSpace(name); name == "*" {
			return nil
		}
		name = http.CanonicalHeaderKey(name)
		m.fields[name] = r.Header[name]
	}
	if control.NoCache || control.MaxAge == httpfield.Forever {
		return m // a lifetime that nobody has given is none
	}
	if value := a.header.Get("Age"); value != "" {
		age, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return m
		}
		m.read = sent.Add(-time.Duration(age) * time.Second)
	}
	m.fresh = control.MaxAge
	return m
}

// isFor reports whether there is a product that was the answer to such a request.
func (m *remembered) isFor(r *http.Request) bool {
	if m == nil {
		return false
	}
	for name, values := range m.fields {
		if !slices.Equal(values, r.Header[name]) {
			return false
		}
	}
	return true
}

// remembered returns nil if there is none.
func (c *Client) remembered(path string) *remembered {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.products[path]
}

// remember replaces what is remembered of a product, by nothing if m is nil.
func (c *Client) remember(path string, m *remembered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.products[path]; old != nil && m != nil && old.read.After(m.read) {
		return // it was read after this one was
	}
	delete(c.products, path)
	if m == nil || c.opts.Products == 0 {
		return
	}
	for other := range c.products {
		if len(c.products) < c.opts.Products {
			break
		}
		delete(c.products, other) // any, as maps have no sequence
	}
	c.products[path] = m
}
