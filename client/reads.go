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
	"example.com/storefront/internal/ijson"
)

const (
	readTries   = 10
	longestWait = time.Minute // of a read for Retry-After
)

// errNotRead is why a read ends that is tried no more.
var errNotRead = fmt.Errorf("%w: %d tries have failed", storefront.ErrUnavailable, readTries)

// read sends a GET until an answer is right, or final, or no more tries are left. right gets a whole one,
// which is 200 or 304. If what is asked for can be made smaller, one that does not fit is returned, too.
func (c *Client) read(ctx context.Context, path string, prepare func(*http.Request) error,
	right func(answer) bool, smaller bool) (answer, error) {
	var pauses pauses
	for try := 1; ; try++ {
		a := c.try(ctx, path, nil, prepare)
		if (a.status == http.StatusOK || a.status == http.StatusNotModified) && a.err == nil && right(a) {
			return a, nil
		}
		problem, ofService := a.problem()
		switch {
		case ofService && a.status/100 == 4 && !a.repeatable():
			if changed(problem, strings.HasPrefix(path, "/v1/orders")) {
				e := blocked(a, nil)
				e.changed = &problem
				return a, e
			}
			return a, &RefusedError{Problem: problem}
		case a.repeatable(), a.status/100 == 2 && !a.coded(), a.status == http.StatusNotModified:
		default:
			return a, blocked(a, nil)
		}
		if try == readTries {
			return a, &UnknownError{Err: errNotRead, Last: a.String()}
		}
		if ctx.Err() == nil {
			c.opts.Logger.InfoContext(ctx, "storefront client: a read is tried again", "answer", a.String())
			if smaller && a.unfit {
				return a, nil
			}
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
	return list(ctx, c, "/v1/users", "after", storefront.Resource.ID, ascending)
}

// Widgets returns the widgets, as [Client.Users] does users.
func (c *Client) Widgets(ctx context.Context) iter.Seq2[storefront.Resource, error] {
	return list(ctx, c, "/v2/widgets", "start", storefront.Resource.ID, ascending)
}

// An Order is one that was read back, with all that the shop says of it.
type Order struct {
	storefront.Order
	// Resource has all members, also those that the shop has added, such as a state. To get them, decode
	// Resource.String(), which is JSON.
	Resource storefront.Resource
}

// MarshalJSON returns all members that the shop has sent.
func (o Order) MarshalJSON() ([]byte, error) { return o.Resource.MarshalJSON() }

// UnmarshalJSON reads what [Order.MarshalJSON] returned, or what the shop has sent.
func (o *Order) UnmarshalJSON(data []byte) error {
	var read Order
	err := read.Resource.UnmarshalJSON(data)
	if err == nil {
		err = ijson.Unmarshal(data, &read.Order)
	}
	if err == nil && (read.Item == "" || read.Qty == 0) {
		err = errors.New("it has no item, or no quantity")
	}
	if err != nil {
		return fmt.Errorf("client: not an order: %w", err)
	}
	*o = read
	return nil
}

// Orders returns the orders of the account that is signed in, the newest first, as [Client.Users] does users.
// A walk has each order that was there when it began exactly once; one that comes during it may be in it or
// not. The list is for looking, as the shop may still lose an order that is in it by a fail-over: only
// [Client.Order] says that a draft has become an order.
//
// The error matches [errors.ErrUnsupported] if the shop does not let orders be read.
func (c *Client) Orders(ctx context.Context) iter.Seq2[Order, error] {
	return list(ctx, c, "/v1/orders", "after", orderID, descending)
}

func orderID(o Order) string { return o.ID }

// GetOrder returns an order of the account that is signed in. The error matches [storefront.ErrNotFound] if
// there is none with this ID, or it is another account's, and [errors.ErrUnsupported] if the shop does not
// let orders be read. Others are as those of [Client.Users].
func (c *Client) GetOrder(ctx context.Context, id string) (order Order, err error) {
	path, err := pathOf("/v1/orders/", id)
	if err != nil {
		return Order{}, err
	}
	_, err = c.read(ctx, path, unchanged, func(a answer) bool {
		return a.status == http.StatusOK && json.Unmarshal(a.body, &order) == nil && order.ID == id
	}, false)
	if err != nil {
		return Order{}, err
	}
	return order, nil
}

// GetOrderByKey returns the order that was created with an Idempotency-Key, such as that of a draft which is
// not wanted any more, by the account that is signed in. Errors are as those of [Client.GetOrder]: if they
// match [storefront.ErrNotFound], there is none so far. A try on its way may still create one, and while
// the shop takes no orders, it may wait in the database: so wait until the shop takes orders again, and some
// minutes more. Compare the order with the draft: something on the way may have dropped the query. The shop
// remembers a key for a day; an older order is in [Client.Orders].
func (c *Client) GetOrderByKey(ctx context.Context, key string) (Order, error) {
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
	query := strings.ReplaceAll(url.QueryEscape(quoted), "+", "%20")
	var p page[Order]
	_, err := c.read(ctx, "/v1/orders?idempotency_key="+query, unchanged, func(a answer) (ok bool) {
		p, ok = parsePage(a, nil, "", orderID, descending)
		return ok && len(p.Data) <= 1 && p.Next == "" // else the query was lost on the way
	}, false)
	if err == nil && len(p.Data) == 0 {
		err = fmt.Errorf("client: there is no order with this key so far: %w", storefront.ErrNotFound)
	}
	if err != nil {
		return Order{}, err
	}
	return p.Data[0], nil
}

func unchanged(*http.Request) error { return nil }

// ascending and descending report whether an item may follow the one before it.
func ascending(id, last string) bool  { return id > last }
func descending(id, last string) bool { return id != "" && (id < last || last == "") }

func list[T any](ctx context.Context, c *Client, path, position string, id func(T) string,
	follows func(id, last string) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		size, cursor, last := c.opts.PageSize, "", ""
		seen := make(map[string]bool) // cursors since the last item: the list goes round if one comes again
		for {
			query := url.Values{"limit": {strconv.Itoa(size)}}
			if cursor != "" {
				query.Set(position, cursor)
			}
			var p page[T]
			a, err := c.read(ctx, path+"?"+query.Encode(), unchanged, func(a answer) (ok bool) {
				p, ok = parsePage(a, seen, last, id, follows)
				return ok
			}, size > 1)
			if allowed := mostItems(err); allowed > 0 && allowed < size {
				size = allowed
				continue
			}
			if err != nil {
				yield(*new(T), err)
				return
			}
			if a.unfit {
				size /= 2
				continue
			}
			if len(p.Data) > 0 {
				clear(seen)
			}
			for _, item := range p.Data {
				if !yield(item, nil) {
					return
				}
				last = id(item)
			}
			if cursor = p.Next; cursor == "" {
				return
			}
			seen[cursor] = true
		}
	}
}

// A page is one of a list.
type page[T any] struct {
	Data    []T    `json:"data"`
	HasMore *bool  `json:"has_more"`
	Next    string `json:"next"`
}

// parsePage reports whether an answer is the page that begins behind an ID and leads to none of the cursors
// that were seen. One that does not advance would be read for ever.
func parsePage[T any](a answer, seen map[string]bool, last string, id func(T) string,
	follows func(id, last string) bool) (p page[T], ok bool) {
	if a.status != http.StatusOK || json.Unmarshal(a.body, &p) != nil || p.Data == nil || p.HasMore == nil ||
		*p.HasMore != (p.Next != "") || seen[p.Next] {
		return page[T]{}, false
	}
	for _, item := range p.Data {
		if !follows(id(item), last) {
			return page[T]{}, false
		}
		last = id(item)
	}
	return p, true
}

// mostItems returns what the service allows as limit, if it has refused a request for that.
func mostItems(err error) int {
	blocked, ok := errors.AsType[*BlockedError](err)
	if !ok || blocked.changed == nil {
		return 0
	}
	for _, f := range blocked.changed.Errors {
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
	path, err := pathOf("/v1/products/", id)
	if err != nil {
		return storefront.Resource{}, err
	}
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
	}, false)
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

// pathOf returns the path of what has an ID.
func pathOf(collection, id string) (path string, err error) {
	if id == "" || id == "." || id == ".." || id == "/" || !utf8.ValidString(id) {
		return "", fmt.Errorf("client: no URL leads to the ID %q: %w", id, storefront.ErrNotFound)
	}
	return collection + url.PathEscape(id), nil
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
