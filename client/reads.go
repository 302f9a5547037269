package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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
func (c *Client) read(ctx context.Context, path string, prepare func(*http.Request) error,
	right func(answer) bool) (answer, error) {
	var pauses pauses
	for try := 1; ; try++ {
		a := c.try(ctx, http.MethodGet, path, "", longestRead, prepare)
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
			_, err := c.read(ctx, path+"?"+query.Encode(), func(*http.Request) error { return nil },
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

// ProductOptions are the options of [Client.Product]. Their zero values are the defaults.
type ProductOptions struct {
	// MaxAge is how long ago the service may have read the product from the store, in whole seconds, if it
	// allows that. 0: it is read anew.
	MaxAge time.Duration
}

// Product returns a product. nil options are the defaults.
//
// The shop is asked each time, as only the shop knows who is signed in, by a Transport or by a certificate.
// What the client remembers (see Options.Products) is returned if the shop says that it would send the same.
//
// The error matches [storefront.ErrNotFound] if there is no such product. Others are as those of
// [Client.Users].
func (c *Client) Product(ctx context.Context, id string, opts *ProductOptions) (storefront.Resource, error) {
	if id == "" || id == "." || id == ".." || id == "/" || !utf8.ValidString(id) {
		return storefront.Resource{}, fmt.Errorf("client: no URL leads to a product with the ID %q: %w", id,
			storefront.ErrNotFound)
	}
	path := "/v1/products/" + url.PathEscape(id)
	var known remembered
	var signIn string
	var product storefront.Resource
	a, err := c.read(ctx, path, func(r *http.Request) error {
		signIn = c.signIn(r)
		known = c.remembered(path)
		if known.signIn != signIn {
			known = remembered{}
		}
		if known.tag != "" {
			r.Header.Set("If-None-Match", known.tag)
		}
		if opts != nil && opts.MaxAge != 0 {
			r.Header.Set("Cache-Control", fmt.Sprintf("max-age=%d", max(0, opts.MaxAge/time.Second)))
		}
		return nil
	}, func(a answer) bool {
		product = known.product
		if a.status == http.StatusNotModified {
			return known.tag != "" // else nothing was asked for that could be unmodified
		}
		product = storefront.Resource{}
		return json.Unmarshal(a.body, &product) == nil && product.ID() == id
	})
	if err != nil {
		return storefront.Resource{}, err
	}
	if a.status == http.StatusOK {
		m := remembered{product, a.header.Get("ETag"), signIn}
		if httpfield.ParseCacheControl(a.header.Values("Cache-Control")).NoStore || a.header.Get("Vary") == "*" {
			m.tag = ""
		}
		c.remember(path, m)
	}
	return product, nil
}

// A remembered product is what an answer with an entity tag had.
type remembered struct {
	product storefront.Resource
	tag     string // "": nothing is remembered
	signIn  string // with which it was asked for, as far as the client sees that
}

// signIn returns the fields of a request, with the cookies that it will have.
func (c *Client) signIn(r *http.Request) string {
	var cookies []*http.Cookie
	if c.http.Jar != nil {
		cookies = c.http.Jar.Cookies(r.URL)
	}
	return fmt.Sprint(r.Header, cookies)
}

// remembered returns the zero value if there is none.
func (c *Client) remembered(path string) remembered {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.products[path]
}

// remember replaces what is remembered of a product. That is nothing without a strong entity tag: a weak
// one may be that of what another account gets, too (RFC 9110, Section 8.8.1).
func (c *Client) remember(path string, m remembered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.products, path)
	if !strings.HasPrefix(m.tag, `"`) || c.opts.Products == 0 {
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
