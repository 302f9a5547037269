package trouble

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/storefront"
)

// A Call is all that a client sends, and is answered, to place one order, walk a list or read
// products.
type Call struct {
	Kind    Kind
	Trouble *Trouble
	Item    string // that was to be ordered, if it is known
	Qty     int64
	// Results are what the client said, if it can be asked: of the call, and of those by
	// which it went on with an order.
	Results []*Result
	// Running are the stacks of goroutines that the client has left, once all is over.
	Running string

	shop      *Shop
	began     time.Time
	steps     []step
	taken     int // steps and what came after them
	held      []held
	exchanges []*Exchange
	changed   map[string]bool // items that came or went during the walk
	tags      []string        // that products were given, behind their paths
}

// A Result is what a client said in the end.
type Result struct {
	Name string // of the method
	Err  error
	// Stuck is whether the method did not return, and was stopped.
	Stuck bool
	ID    string   // of the order
	IDs   []string // of the items in a list
	Text  string   // the name of a product
	Want  string   // the one that it has; empty: there is no such product

	from, to  int // exchanges
	asked, at time.Time
}

// An Exchange is a request and its answer.
type Exchange struct {
	At             time.Time
	Method, Target string
	Key            string // Idempotency-Key
	Tag            string // If-None-Match
	Cursor         string
	Body           []byte

	path          string
	authorization string
	expected      bool // as a request of the call
	cursorKnown   bool // whether the shop has given it out
	last          bool // whether its page has no next
	answer        answer
	way           way
	left          bool      // whether the client left before the answer had ended
	own           bool      // whether the answer is the service's
	ended         time.Time // when its answer began to come, or failed to; 0 before
	created       string    // the ID of the order that it created
	over          bool      // whether nothing more of it comes
}

// meaning is what a client is to make of the answer.
func (e *Exchange) meaning() Meaning {
	if e.left || e.way != whole && e.way != late {
		return Again
	}
	return e.answer.meaning()
}

// Asked records that a method of the client is called, and returns what records the result.
// Requests that come between one result and the next call are sent by nobody's order.
func (c *Call) Asked(name string) (said func(*Result)) {
	c.shop.mu.Lock()
	defer c.shop.mu.Unlock()
	from, asked := len(c.exchanges), time.Now()
	return func(r *Result) {
		c.shop.mu.Lock()
		defer c.shop.mu.Unlock()
		r.Name, r.from, r.to, r.asked, r.at = name, from, len(c.exchanges), asked, time.Now()
		c.Results = append(c.Results, r)
	}
}

// Mend ends the trouble: what was wrong is put right.
func (c *Call) Mend() {
	c.shop.mu.Lock()
	defer c.shop.mu.Unlock()
	c.taken = len(c.steps)
}

// settle has what was held up on its way arrive.
func (c *Call) settle() {
	for _, h := range c.held {
		h.e.created = created(c.shop.ask(h.r, h.r.URL.RawQuery, h.e.Body))
	}
	c.held = nil
}

// Requests returns how many have come.
func (c *Call) Requests() int {
	c.shop.mu.Lock()
	defer c.shop.mu.Unlock()
	return len(c.exchanges)
}

// take adds an exchange and returns how it is answered.
func (c *Call) take(e *Exchange) step {
	c.exchanges = append(c.exchanges, e)
	switch {
	case e.path == "/sign-in":
		return says(http.StatusOK, signIn)
	case e.path == "/elsewhere/v1/orders":
		return says(http.StatusCreated, forged, "Content-Type", "application/json")
	}
	switch c.Kind {
	case Orders:
		e.expected = e.Method == http.MethodPost && e.path == "/v1/orders"
	case Users:
		e.expected = e.path == "/v1/users"
	case Widgets:
		e.expected = e.path == "/v2/widgets"
	case Products:
		e.expected = strings.HasPrefix(e.path, "/v1/products/")
	}
	if !e.expected {
		return step{times: 1}
	}
	c.taken++
	if c.taken > len(c.steps) {
		if c.Trouble.forever {
			return c.steps[len(c.steps)-1]
		}
		return step{times: 1}
	}
	st := c.steps[c.taken-1]
	if st.answer != nil && st.answer.status == http.StatusNotModified && e.Tag != "" {
		return step{times: 1} // a 304 could be right
	}
	return st
}

// Change deletes an item of the list and puts two others into it.
func (c *Call) Change() {
	c.shop.mu.Lock()
	defer c.shop.mu.Unlock()
	c.change()
}

func (c *Call) change() {
	list := c.list()
	if c.changed == nil {
		c.changed = make(map[string]bool)
	}
	ids := slices.Collect(list.All())
	gone, first, end := ids[2].ID(), "a0", "z9"
	list.Delete(gone)
	list.Put(storefront.MustResource(first, nil), storefront.MustResource(end, nil))
	c.changed[gone], c.changed[first], c.changed[end] = true, true, true
}

// items returns the IDs of the list.
func (c *Call) items() []string {
	var ids []string
	for item := range c.list().All() {
		ids = append(ids, item.ID())
	}
	return ids
}

func (c *Call) list() *storefront.Collection {
	if c.Kind == Widgets {
		return &c.shop.store.Widgets
	}
	return &c.shop.store.Users
}

// Story tells the call in lines: when, what was sent, and what was answered.
func (c *Call) Story() string {
	var b strings.Builder
	say := func(at time.Time, format string, args ...any) {
		if since := at.Sub(c.began); since < time.Hour {
			fmt.Fprintf(&b, "%9.3f s  ", since.Seconds())
		} else {
			fmt.Fprintf(&b, "%11s  ", since.Round(time.Second))
		}
		fmt.Fprintf(&b, format+"\n", args...)
	}
	called, results := c.Results, c.Results
	before := func(i int) { // what was called and said before an exchange
		for {
			switch {
			case len(called) > 0 && len(called) == len(results) && called[0].from <= i:
				say(called[0].asked, "%s is called", called[0].Name)
				called = called[1:]
			case len(results) > len(called) && results[0].to <= i:
				say(results[0].at, "%s", results[0])
				results = results[1:]
			default:
				return
			}
		}
	}
	const shown = 6
	for i, e := range c.exchanges {
		before(i)
		if i >= shown && i < len(c.exchanges)-2 {
			if i == shown {
				fmt.Fprintf(&b, "             … and %d more requests\n", len(c.exchanges)-2-shown)
			}
			continue
		}
		say(e.At, "%d. %s %s%s", i+1, e.Method, e.Target, e.asked())
		end := e.ended
		if end.IsZero() {
			end = e.At
		}
		say(end, "   %s", e.answered())
	}
	before(len(c.exchanges))
	return b.String()
}

func (r *Result) String() string {
	switch {
	case r.Err != nil:
		return "it returns the error: " + cut(r.Err.Error(), 300)
	case r.IDs != nil:
		return "it returns " + strings.Join(r.IDs, ", ")
	case r.ID != "":
		return fmt.Sprintf("it returns the order %q", r.ID)
	default:
		return fmt.Sprintf("it returns %q", r.Text)
	}
}

func (e *Exchange) asked() string {
	var b strings.Builder
	if e.Key != "" {
		fmt.Fprintf(&b, "  Idempotency-Key: %s", cut(e.Key, 60))
	}
	if e.Tag != "" {
		fmt.Fprintf(&b, "  If-None-Match: %s", cut(e.Tag, 60))
	}
	if len(e.Body) > 0 {
		b.WriteString("  " + cut(string(e.Body), 100))
	}
	return b.String()
}

func (e *Exchange) answered() string {
	var text string
	switch e.way {
	case nothing, silent:
		text = "no answer: " + string(e.way)
		if e.way == nothing {
			text = string(e.way)
		}
	default:
		text = fmt.Sprint(e.answer.status)
		for _, name := range []string{"Retry-After", "Location", "Age", "ETag", "Cache-Control", "Idempotent-Replayed"} {
			if name == "Cache-Control" && e.answer.header.Get("ETag") == "" {
				continue
			}
			if value := e.answer.header.Get(name); value != "" {
				text += "  " + name + ": " + cut(value, 40)
			}
		}
		text += "  " + cut(string(e.answer.body), 110)
		if e.way != whole {
			text += "; " + string(e.way)
		}
	}
	if e.left {
		text += "; the client left"
	}
	if e.created != "" && (e.way != whole || e.answer.status != http.StatusCreated) {
		text += "; the shop has created the order " + e.created
	}
	return text
}

// rounded returns a duration as people would say it.
func rounded(d time.Duration) time.Duration {
	if d < time.Minute {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// cut returns the text in one line of no more than n bytes and something.
func cut(text string, n int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\ufffd")), " ")
	if len(text) <= n {
		return text
	}
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
