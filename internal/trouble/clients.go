package trouble

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"

	"example.com/storefront"
)

// What is remembered has a bound.
const (
	mostClients   = 32
	mostCalls     = 500     // of a client
	mostExchanges = 500     // of a call
	mostBytes     = 4 << 20 // of a client; what it has begun may take as much again
)

// Clients is a shop for clients that cannot be asked what they believe. It serves a store with
// troubles, and at [PagePath] and [JSONPath] what each client did right and wrong.
//
// A client is its User-Agent, or its address if it has none. Each of its orders meets the next
// trouble of a round that the seed has shuffled; so does each of its walks through a list. An
// order is the requests that share a key. A request with a new key is the retry of an order
// with the same item and quantity if the last answer to that one was not final.
//
// [Shop] says what its server must be like.
type Clients struct {
	seed uint64
	shop *Shop
	once sync.Once

	// shop.mu guards these.
	clients []*client // in the sequence in which they came
	beyond  int       // requests of clients that were too many
}

// NewClients returns a shop over a store. The seed decides what is left to chance.
func NewClients(seed uint64, store *storefront.MemStore) *Clients {
	s := &Clients{seed: seed, shop: newShop(seed, "", Minutes, store)}
	s.shop.assign = s.assign
	return s
}

// Hurry ends the requests that wait because of a trouble. Those that come later do not wait.
func (s *Clients) Hurry() { s.once.Do(func() { close(s.shop.closed) }) }

// ServeHTTP answers the requests of clients, and those for the page about them.
func (s *Clients) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == PagePath || r.URL.Path == JSONPath:
		s.servePage(w, r)
	case kindOf(r) != "" || (&Exchange{path: r.URL.Path}).redirected():
		s.shop.ServeHTTP(w, r)
	default:
		w.Header().Set("Connection", "close")
		s.shop.service.ServeHTTP(w, r)
	}
}

// kindOf returns "" for a request that meets no trouble.
func kindOf(r *http.Request) Kind {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch path := r.URL.Path; {
	case path == "/v1/orders" && r.Method == http.MethodPost:
		return Orders
	case path == "/v1/users" && read:
		return Users
	case path == "/v2/widgets" && read:
		return Widgets
	case strings.HasPrefix(path, "/v1/products/") && read:
		return Products
	}
	return ""
}

// assign returns a call that nobody remembers where a bound is reached.
func (s *Clients) assign(r *http.Request, e *Exchange) *Call {
	kind := kindOf(r)
	forgotten := s.shop.begin(kind, new(Trouble), s.shop.dice)
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
	case len(c.exchanges) == mostExchanges:
		cl.beyond++
		c.exchanges = c.exchanges[:mostExchanges-1] // how the call stands stays known
	}
	return c
}

func (s *Clients) client(r *http.Request) *client {
	name := printable(cut(r.UserAgent(), 100))
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
	cl := &client{name: name, dice: newDice(s.seed, name, Minutes), rounds: make(map[Kind]*round)}
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
	dice   dice
	calls  []*Call
	rounds map[Kind]*round
	beyond int // requests that were too many
}

// A round is the troubles of a kind in the sequence in which calls meet them.
type round struct {
	number, of int
	rest       []*Trouble
}

// next begins a new round after the last trouble of one.
func (cl *client) next(kind Kind) *Trouble {
	r := cl.rounds[kind]
	if r == nil {
		r = new(round)
		cl.rounds[kind] = r
	}
	if len(r.rest) == 0 {
		for _, t := range Troubles(kind, Minutes) {
			switch t.Name {
			case Missing, listChanges, TwoWalks: // for clients that can be asked; the lists are the program's
			case "an outage": // each call is one client, and it takes three to compare their waits
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
		for _, e := range c.exchanges {
			bytes += 500 + len(e.Target) + len(e.Key) + len(e.Tag) + len(e.Body) + len(e.answer.body)
		}
	}
	return bytes
}

func (cl *client) begin(s *Shop, kind Kind, e *Exchange) *Call {
	c := s.begin(kind, cl.next(kind), cl.dice)
	c.began = e.At
	switch kind {
	case Orders:
		for _, earlier := range cl.calls {
			earlier.settle()
		}
		c.Item, c.Qty = ordered(e)
	case Products:
		// What the client has kept of the product has the tags of earlier calls.
		for _, earlier := range slices.Backward(cl.calls) {
			if earlier.Kind == Products && earlier.exchanges[0].path == e.path {
				c.tags = slices.Compact(slices.Sorted(slices.Values(earlier.tags)))
				break
			}
		}
	}
	cl.calls = append(cl.calls, c)
	return c
}

// ordered returns what a request orders, with zeros for what is no item or no whole quantity.
func ordered(e *Exchange) (item string, qty int64) {
	var order struct {
		Item string
		Qty  float64 // 2.0 is 2, too; whole numbers up to 2^53-1 are exact
	}
	json.Unmarshal(e.Body, &order)
	if qty = int64(order.Qty); float64(qty) != order.Qty {
		qty = 0
	}
	return order.Item, qty
}

// find returns the call that a request goes on with, or nil if it begins one. The kind is ""
// for the request that follows a redirect.
func (cl *client) find(kind Kind, r *http.Request, e *Exchange) *Call {
	switch kind {
	case Orders:
		return cl.findOrder(e)
	case Users, Widgets:
		return cl.findWalk(kind, r.URL.Query())
	case Products:
		return cl.newest(func(c *Call) bool {
			return c.Kind == kind && c.exchanges[0].path == e.path && c.taken <= len(c.steps)
		})
	}
	return cl.newest(func(c *Call) bool { return c.exchanges[len(c.exchanges)-1].answer.status/100 == 3 })
}

// newest returns nil if there is none.
func (cl *client) newest(is func(*Call) bool) *Call {
	for _, c := range slices.Backward(cl.calls) {
		if is(c) {
			return c
		}
	}
	return nil
}

func (cl *client) findOrder(e *Exchange) *Call {
	c := cl.newest(func(c *Call) bool {
		return c.Kind == Orders && e.Key != "" && slices.ContainsFunc(c.exchanges, func(try *Exchange) bool { return try.Key == e.Key })
	})
	if c != nil {
		if last := c.last(); last.over && last.meaning() != Again && !sameJSON(e.Body, c.exchanges[0].Body) {
			return nil // another order with a key that was used
		}
		return c
	}
	item, qty := ordered(e)
	return cl.newest(func(c *Call) bool {
		last := c.last()
		return c.Kind == Orders && item != "" && c.Item == item && c.Qty == qty &&
			last.over && last.meaning() == Again && e.At.Sub(last.ended) < patience
	})
}

func (cl *client) findWalk(kind Kind, query url.Values) *Call {
	newest := cl.newest(func(c *Call) bool { return c.Kind == kind })
	if cursor := query.Get("after") + query.Get("start"); cursor != "" {
		if newest != nil && newest.last().answer.status == http.StatusNotModified {
			return newest // which goes on with a page that it has kept
		}
		gave := cl.newest(func(c *Call) bool {
			return c.Kind == kind && slices.ContainsFunc(c.exchanges, func(e *Exchange) bool { return bytes.Contains(e.answer.body, []byte(`"`+cursor+`"`)) })
		})
		return cmp.Or(gave, newest)
	}
	if newest != nil {
		if last := newest.last(); last.Cursor == "" && last.over && (!last.own || last.way != whole) {
			return newest // asked for its first page again
		}
	}
	return nil
}

// last returns the last request of the call's own kind.
func (c *Call) last() *Exchange {
	for _, e := range slices.Backward(c.exchanges) {
		if e.expected {
			return e
		}
	}
	return nil
}
