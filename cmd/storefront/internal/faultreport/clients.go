package faultreport

import (
	"bytes"
	"cmp"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/faults"
)

// What is remembered has a bound.
const (
	mostClients   = 32
	mostCalls     = 500     // of a client
	mostExchanges = 500     // of a call
	mostBytes     = 4 << 20 // of a client; what it has begun may take as much again
)

// A Server serves a store with faults to clients that cannot be asked what they believe, and at
// [PagePath] and [JSONPath] what each client did right and wrong.
//
// A client is its User-Agent, or its address if it has none. Each of its orders meets the next
// fault of a round that the seed has shuffled; so does each of its walks through a list. An
// order is the requests that share a key, or the item and the quantity: each order of a client
// has others.
//
// [faults.Shop] says what its [http.Server] must be like.
type Server struct {
	seed uint64
	shop *faults.Shop

	// shop.View guards these.
	clients []*client // in the sequence in which they came
	beyond  int       // requests of clients that were too many
}

// New returns a server of a store. The seed decides what is left to chance.
func New(seed uint64, store *storefront.MemStore) *Server {
	s := &Server{seed: seed}
	s.shop = faults.NewOver(store, faults.NewDice(seed, "", faults.Minutes), s.assign)
	return s
}

// EndWaits ends the requests that wait because of a fault. Those that come later do not wait.
func (s *Server) EndWaits() { s.shop.EndWaits() }

// ServeHTTP answers the requests of clients, and those for the page about them.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == PagePath || r.URL.Path == JSONPath:
		s.servePage(w, r)
	case kindOf(r) != "" || (&conformance.Exchange{Path: r.URL.Path}).Redirected():
		s.shop.ServeHTTP(w, r)
	default:
		w.Header().Set("Connection", "close")
		s.shop.Service.ServeHTTP(w, r)
	}
}

// kindOf returns "" for a request that meets no fault.
func kindOf(r *http.Request) conformance.Kind {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch path := r.URL.Path; {
	case path == "/v1/orders" && r.Method == http.MethodPost:
		return conformance.Orders
	case path == "/v1/users" && read:
		return conformance.Users
	case path == "/v2/widgets" && read:
		return conformance.Widgets
	case strings.HasPrefix(path, "/v1/products/") && read:
		return conformance.Products
	}
	return ""
}

// assign returns a call that nobody remembers where a bound is reached.
func (s *Server) assign(r *http.Request, e *conformance.Exchange) *faults.Call {
	kind := kindOf(r)
	forgotten := s.shop.NewCall(kind, new(faults.Fault), faults.Dice{})
	cl := s.client(r)
	if cl == nil {
		s.beyond++
		return forgotten
	}
	c, size := cl.find(kind, r, e), cl.size()
	switch {
	case c == nil && kind == "":
		return forgotten
	case c == nil && (len(cl.calls) == mostCalls || size > mostBytes), size > 2*mostBytes:
		cl.beyond++
		return forgotten
	case c == nil:
		return cl.begin(s.shop, kind, e)
	case len(c.Exchanges) == mostExchanges:
		cl.beyond++
		c.Exchanges = c.Exchanges[:mostExchanges-1] // how the call stands stays known
	}
	return c
}

func (s *Server) client(r *http.Request) *client {
	name := printable(conformance.Excerpt(r.UserAgent(), 100))
	if name == "" {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		name = "no User-Agent, " + host
	}
	for _, cl := range s.clients {
		if cl.name == name {
			return cl
		}
	}
	if len(s.clients) == mostClients {
		return nil
	}
	cl := &client{name: name, dice: faults.NewDice(s.seed, name, faults.Minutes),
		rounds: make(map[conformance.Kind]*round)}
	s.clients = append(s.clients, cl)
	return cl
}

// printable replaces what could disturb a terminal or turn a line around.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

type client struct {
	name   string
	dice   faults.Dice
	calls  []*faults.Call
	rounds map[conformance.Kind]*round
	beyond int // requests that were too many
}

// A round is the faults of a kind in the sequence in which calls meet them.
type round struct {
	number, of int
	rest       []*faults.Fault
}

// next begins a new round after the last fault of one.
func (cl *client) next(kind conformance.Kind) *faults.Fault {
	r := cl.rounds[kind]
	if r == nil {
		r = new(round)
		cl.rounds[kind] = r
	}
	if len(r.rest) == 0 {
		for _, t := range faults.Of(kind, faults.Minutes) {
			switch t.Name {
			case faults.Missing, faults.ListChanges,
				faults.TwoWalks: // for clients that can be asked; the lists are the program's
			case faults.Outage: // each call is one client, and it takes three to compare their waits
				r.rest = append(r.rest, t, t, t)
			default:
				r.rest = append(r.rest, t)
			}
		}
		r.number, r.of = r.number+1, len(r.rest)
		later := r.rest[1:] // the first is that nothing is wrong
		cl.dice.Shuffle(len(later), func(i, j int) { later[i], later[j] = later[j], later[i] })
	}
	t := r.rest[0]
	r.rest = r.rest[1:]
	return t
}

// size returns about how many bytes the client takes.
func (cl *client) size() (bytes int) {
	for _, c := range cl.calls {
		bytes += 500
		for _, e := range c.Exchanges {
			bytes += 500 + len(e.Target) + len(e.Key) + len(e.Tag) + len(e.Body) + len(e.Answer.Body)
		}
	}
	return bytes
}

func (cl *client) begin(s *faults.Shop, kind conformance.Kind, e *conformance.Exchange) *faults.Call {
	c := s.NewCall(kind, cl.next(kind), cl.dice)
	c.Began = e.At
	switch kind {
	case conformance.Orders:
		for _, earlier := range cl.calls {
			earlier.Arrive()
		}
		c.Item, c.Qty = e.Order()
	case conformance.Products:
		// What the client has kept of the product has the tags of earlier calls.
		if earlier := cl.newest(func(c *faults.Call) bool { return isOfProduct(c, e) }); earlier != nil {
			c.Tags = slices.Compact(slices.Sorted(slices.Values(earlier.Tags)))
		}
	}
	cl.calls = append(cl.calls, c)
	return c
}

// find returns the call that a request goes on with, or nil if it begins one. The kind is ""
// for the request that follows a redirect.
func (cl *client) find(kind conformance.Kind, r *http.Request, e *conformance.Exchange) *faults.Call {
	switch kind {
	case conformance.Orders:
		return cl.findOrder(e)
	case conformance.Users, conformance.Widgets:
		return cl.findWalk(kind, r.URL.Query())
	case conformance.Products:
		return cl.newest(func(c *faults.Call) bool { return isOfProduct(c, e) && !c.Outlived() })
	}
	return cl.newest(func(c *faults.Call) bool {
		return c.Exchanges[len(c.Exchanges)-1].Answer.Status/100 == 3
	})
}

// isOfProduct reports whether a call reads the product that a request asks for.
func isOfProduct(c *faults.Call, e *conformance.Exchange) bool {
	return c.Kind == conformance.Products && c.Exchanges[0].Path == e.Path
}

// newest returns nil if there is none.
func (cl *client) newest(is func(*faults.Call) bool) *faults.Call {
	for _, c := range slices.Backward(cl.calls) {
		if is(c) {
			return c
		}
	}
	return nil
}

func (cl *client) findOrder(e *conformance.Exchange) *faults.Call {
	c := cl.newest(func(c *faults.Call) bool {
		return c.Kind == conformance.Orders && e.Key != "" &&
			slices.ContainsFunc(c.Exchanges, func(try *conformance.Exchange) bool { return try.Key == e.Key })
	})
	if c != nil {
		last := c.Last()
		if last.Done && last.Meaning() != conformance.Retryable && !e.SameOrder(c.Exchanges[0]) {
			return nil // another order with a key that was used
		}
		return c
	}
	item, qty := e.Order()
	return cl.newest(func(c *faults.Call) bool {
		return c.Kind == conformance.Orders && item != "" && c.Item == item && c.Qty == qty
	})
}

func (cl *client) findWalk(kind conformance.Kind, query url.Values) *faults.Call {
	newest := cl.newest(func(c *faults.Call) bool { return c.Kind == kind })
	if cursor := query.Get("after") + query.Get("start"); cursor != "" {
		if newest != nil && newest.Last().Answer.Status == http.StatusNotModified {
			return newest // which goes on with a page that it has kept
		}
		gave := cl.newest(func(c *faults.Call) bool {
			return c.Kind == kind && slices.ContainsFunc(c.Exchanges, func(e *conformance.Exchange) bool {
				return bytes.Contains(e.Answer.Body, []byte(`"`+cursor+`"`))
			})
		})
		return cmp.Or(gave, newest)
	}
	if newest != nil {
		if last := newest.Last(); last.Cursor == "" && last.Done &&
			(!last.FromService || last.Delivery != conformance.Whole) {
			return newest // asked for its first page again
		}
	}
	return nil
}
