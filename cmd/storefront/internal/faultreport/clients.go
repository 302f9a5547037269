package faultreport

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
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

// A Server serves a store with faults to clients, and at [PagePath] and [JSONPath] what each client
// did right and wrong. What a client believes in the end, it reports at [OutcomesPath].
//
// A client is its User-Agent, or its address if it has none. Each has a copy of the store, as lists
// and products change under it. Each of its orders meets the next fault of a round that the seed
// has shuffled; so does each of its walks through a list. An order is the requests that share a key,
// or the item and the quantity: each order of a client has others.
//
// [faults.Shop] says what its [http.Server] must be like.
type Server struct {
	Only     *regexp.Regexp // of kind/name of the faults that are injected; nil: all
	Patience time.Duration  // see [conformance.Call]

	seed    uint64
	store   *storefront.MemStore
	service http.Handler // without faults

	mu      sync.Mutex
	ended   bool
	clients []*client // in the sequence in which they came
	beyond  int       // requests of clients that were too many
}

// New returns a server of a store. The seed decides what is left to chance.
func New(seed uint64, store *storefront.MemStore) *Server {
	return &Server{seed: seed, store: store, service: storefront.New(store)}
}

// EndWaits ends the requests that wait because of a fault. Those that come later do not wait.
func (s *Server) EndWaits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, cl := range s.clients {
		for _, shop := range cl.shops {
			shop.EndWaits()
		}
	}
}

// ServeHTTP answers the requests of clients, and those for the page about them.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == PagePath || r.URL.Path == JSONPath:
		s.servePage(w, r)
		return
	case r.URL.Path == OutcomesPath:
		s.serveOutcomes(w, r)
		return
	case kindOf(r) != "" || (&conformance.Exchange{Path: r.URL.Path}).Redirected():
		if cl := s.client(clientName(r)); cl != nil {
			cl.shops[0].ServeHTTP(w, r)
			return
		}
	}
	w.Header().Set("Connection", "close")
	s.service.ServeHTTP(w, r)
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

// clientName returns the name of the client that has sent a request.
func clientName(r *http.Request) string {
	if name := shown(r.UserAgent()); name != "" {
		return name
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return "no User-Agent, " + host
}

// client returns nil where there are too many.
func (s *Server) client(name string) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cl := range s.clients {
		if cl.name == name {
			return cl
		}
	}
	if len(s.clients) == mostClients {
		s.beyond++
		return nil
	}
	cl := s.newClient(name)
	cl.store = copyOf(s.store)
	s.open(cl, cl.store, cl.dice, cl.assign)
	s.clients = append(s.clients, cl)
	return cl
}

func (s *Server) newClient(name string) *client {
	return &client{server: s, name: name, dice: faults.NewDice(s.seed, name, faults.Minutes),
		rounds: make(map[conformance.Kind]*round), reads: make(map[string]reads)}
}

// copyOf returns a store with the same lists and products.
func copyOf(store *storefront.MemStore) *storefront.MemStore {
	c := new(storefront.MemStore)
	for from, to := range map[*storefront.Collection]*storefront.Collection{
		&store.Users: &c.Users, &store.Products: &c.Products, &store.Widgets: &c.Widgets} {
		to.Put(slices.Collect(from.All())...)
	}
	return c
}

// open opens a shop for a client.
func (s *Server) open(cl *client, store *storefront.MemStore, dice faults.Dice,
	assign func(*http.Request, *conformance.Exchange) *faults.Call) *faults.Shop {
	shop := faults.NewOver(store, dice, assign)
	if s.ended {
		shop.EndWaits()
	}
	cl.shops = append(cl.shops, shop)
	return shop
}

// assign returns a call that nobody remembers where a bound is reached. Its caller is in view.
func (cl *client) assign(r *http.Request, e *conformance.Exchange) *faults.Call {
	kind := kindOf(r)
	c, size := cl.find(kind, r, e), cl.size()
	if kind == conformance.Products {
		cl.arrive(strings.TrimPrefix(e.Path, "/v1/products/"))
	}
	switch {
	case c == nil && kind == "":
		return cl.forgotten(kind)
	case c == nil && (len(cl.calls) == mostCalls || size > mostBytes), size > 2*mostBytes:
		cl.beyond++
		return cl.forgotten(kind)
	case c == nil:
		return cl.begin(kind, e)
	}
	if limit(c) {
		cl.beyond++
	}
	return c
}

// forgotten returns a call that nobody remembers.
func (cl *client) forgotten(kind conformance.Kind) *faults.Call {
	return cl.shops[0].NewCall(kind, new(faults.Fault), faults.Dice{})
}

// limit forgets the last request of a call that has as many as are remembered: so how the call stands
// stays known.
func limit(c *faults.Call) (beyond bool) {
	if beyond = len(c.Exchanges) == mostExchanges; beyond {
		c.Exchanges = c.Exchanges[:mostExchanges-1]
	}
	return beyond
}

// view calls f, during which no call of the client changes.
func (cl *client) view(f func()) {
	for _, shop := range cl.shops {
		inner := f
		f = func() { shop.View(inner) }
	}
	f()
}

// shown returns the name of a client as it is shown.
func shown(name string) string { return printable(conformance.Excerpt(name, 100)) }

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
	server *Server
	name   string
	dice   faults.Dice
	shops  []*faults.Shop       // one; of a program, one for each of its processes
	store  *storefront.MemStore // nil: it is a program

	// Whoever uses these is in view.
	calls   []*faults.Call
	rounds  map[conformance.Kind]*round
	reads   map[string]reads // by product
	beyond  int              // requests that were too many
	without []string         // what a program says that it does not do
}

// A round is the faults of a kind in the sequence in which calls meet them.
type round struct {
	number, of int
	rest       []*faults.Fault
}

// begin begins a round of faults.
func (r *round) begin(dice faults.Dice, all []*faults.Fault) {
	r.number, r.of, r.rest = r.number+1, len(all), all
	later := all[1:] // the first is that nothing is wrong
	dice.Shuffle(len(later), func(i, j int) { later[i], later[j] = later[j], later[i] })
}

// next begins a new round after the last fault of one.
func (cl *client) next(kind conformance.Kind) *faults.Fault {
	r := cl.rounds[kind]
	if r == nil {
		r = new(round)
		cl.rounds[kind] = r
	}
	if len(r.rest) == 0 {
		r.begin(cl.dice, cl.server.faults(kind, timesAlone))
	}
	f := r.rest[0]
	r.rest = r.rest[1:]
	return f
}

// timesAlone is how often clients that come by themselves meet a fault.
func timesAlone(f *faults.Fault) int {
	switch f.Name {
	case faults.Missing, faults.TwoWalks: // these need a client that does as it is told
		return 0
	case faults.Outage: // each call is one client, and it takes three to compare their waits
		return 3
	}
	return 1
}

// Plan says in words how much a client has to do until it has met all faults.
func (s *Server) Plan() string {
	n := func(kind conformance.Kind) int { return len(s.faults(kind, timesAlone)) }
	return fmt.Sprintf("%d orders, each of another item, %d walks through each list and %d reads of products",
		n(conformance.Orders), n(conformance.Users), n(conformance.Products))
}

// faults returns those of a kind that are injected, each so often as times says.
func (s *Server) faults(kind conformance.Kind, times func(*faults.Fault) int) (all []*faults.Fault) {
	for i, f := range faults.Of(kind, faults.Minutes) { // of which the first is that nothing is wrong
		if i == 0 || s.Only == nil || s.Only.MatchString(fullName(kind, f)) {
			all = append(all, slices.Repeat([]*faults.Fault{f}, times(f))...)
		}
	}
	return all
}

// Matches reports whether there is a fault with such a name.
func Matches(name *regexp.Regexp) bool {
	return slices.ContainsFunc(kinds, func(kind conformance.Kind) bool {
		return slices.ContainsFunc(faults.Of(kind, faults.Minutes),
			func(f *faults.Fault) bool { return name.MatchString(fullName(kind, f)) })
	})
}

func fullName(kind conformance.Kind, f *faults.Fault) string { return string(kind) + "/" + f.Name }

// size returns about how many bytes the client takes.
func (cl *client) size() (bytes int) {
	for _, c := range cl.calls {
		bytes += 500
		for _, e := range c.Exchanges {
			bytes += 500 + len(e.Target) + len(e.Key) + len(e.Tag) + len(e.Body) + len(e.Answer.Body)
		}
		for _, r := range c.Results {
			bytes += 200 + len(r.Name) + len(r.ID) + len(r.Text) + len(strings.Join(r.IDs, "   "))
			if r.Err != nil {
				bytes += len(r.Err.Error())
			}
		}
	}
	return bytes
}

func (cl *client) begin(kind conformance.Kind, e *conformance.Exchange) *faults.Call {
	c := cl.shops[0].NewCall(kind, cl.next(kind), cl.dice)
	c.Began, c.Patience = e.At, cl.server.Patience
	switch kind {
	case conformance.Orders:
		for _, earlier := range cl.calls {
			earlier.Arrive()
		}
		c.Item, c.Qty = e.Order()
	case conformance.Products:
		c.Item = strings.TrimPrefix(e.Path, "/v1/products/")
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
	return c.Kind == conformance.Products && "/v1/products/"+c.Item == e.Path
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

// asksForMore reports whether a request is for another page than the first.
func asksForMore(e *conformance.Exchange) bool {
	return strings.Contains(e.Target, "after=") || strings.Contains(e.Target, "start=")
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
		if last := newest.Last(); newest.Results == nil && !asksForMore(last) && last.Done &&
			(!last.FromService || last.Delivery != conformance.Whole) {
			return newest // asked for its first page again
		}
	}
	return nil
}
