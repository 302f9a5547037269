// Package drive has clients meet faults, for package conformance to judge what they did.
//
// A [Client] is a few functions: those of a Go program's own client, which package clienttest has,
// or of a program in any language; see [Program].
package drive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/faults"
	"example.com/storefront/internal/pipes"
)

// Kinds are all, in the sequence in which they are judged.
var Kinds = []conformance.Kind{
	conformance.Orders, conformance.Fields, conformance.Users, conformance.Widgets, conformance.Products,
	conformance.History, conformance.Lookups,
}

// A Client is one that has just started. What is nil, it cannot do. Package clienttest says what
// the functions do that have names of its methods.
type Client struct {
	Start func() error // before the first call
	End   func() error // after the last

	CreateOrder            func(ctx context.Context, item string, qty int64) (id string, err error)
	CreateOrderWithFields  func(ctx context.Context, item string, qty int64, fields string) (id string, err error)
	ResumeOrder, FindOrder func(ctx context.Context, err error) (id string, _ error)
	Patience               time.Duration // 0: it leaves no order to a queue
	ListUsers, ListWidgets func(ctx context.Context) (ids []string, err error)
	ListOrders             func(ctx context.Context) (ids []string, err error)
	GetProduct             func(ctx context.Context, id string) (name string, err error)
}

// Can reports whether the client does what is of a kind.
func (c *Client) Can(kind conformance.Kind) bool {
	return map[conformance.Kind]bool{
		conformance.Orders:   c.CreateOrder != nil,
		conformance.Fields:   c.CreateOrderWithFields != nil,
		conformance.Users:    c.ListUsers != nil,
		conformance.Widgets:  c.ListWidgets != nil,
		conformance.Products: c.GetProduct != nil,
		conformance.History:  c.ListOrders != nil,
		conformance.Lookups:  c.FindOrder != nil,
	}[kind]
}

// A Run drives clients.
type Run struct {
	// New returns a client of the service at a URL. It may have a way of its own to get there. It
	// is called from one goroutine.
	New    func(url string, way http.RoundTripper) *Client
	Pace   faults.Pace // Days: in bubbles of testing/synctest
	Seed   uint64
	Chance string // where the seed is set, as users write it

	told map[string]int // how often a story was told, by check
}

// Meetings returns one for each fault of a kind. In the first, nothing is wrong.
func (r *Run) Meetings(kind conformance.Kind) (all []*Meeting) {
	for _, f := range faults.Of(kind, r.Pace) {
		all = append(all, &Meeting{Kind: kind, Fault: f, run: r, over: make(chan struct{})})
	}
	return all
}

// Bubble is whether each meeting has a bubble of its own.
func (r *Run) Bubble() bool { return r.Pace == faults.Days }

// Begin opens meetings that have not begun, and holds them in the background, the longest first, a
// number of them at the same time.
func (r *Run) Begin(ctx context.Context, places int, meetings ...*Meeting) {
	queue := make(chan *Meeting, len(meetings))
	longest := func(a, b *Meeting) int { return b.length() - a.length() }
	for _, m := range slices.SortedStableFunc(slices.Values(meetings), longest) {
		if !m.begun {
			m.begun = true
			m.Open()
			queue <- m
		}
	}
	close(queue)
	for range places {
		go func() {
			for m := range queue {
				m.Hold(ctx)
			}
		}()
	}
}

// A Meeting is that of a fault and the clients that meet it at the same time.
type Meeting struct {
	Kind  conformance.Kind
	Fault *faults.Fault
	// Once it is over:
	Calls []*conformance.Call
	Err   error // a client could not be driven, or ctx was done: the calls are not to be judged

	run    *Run
	visits []*visit
	begun  bool
	over   chan struct{}
}

// length orders meetings by how long they take.
func (m *Meeting) length() int {
	switch {
	case m.Fault.Slow(), m.Fault.Name == faults.Outage:
		return 2
	case m.Kind == conformance.Products:
		return 1
	}
	return 0
}

// A visit is a client and its shop.
type visit struct {
	*Meeting
	ctx       context.Context
	shop      *faults.Shop
	server    *http.Server
	transport *transport
	client    *Client
	calls     []*conformance.Call
	stuck     bool  // a call did not return
	err       error // see [Meeting.Err]
}

// Wait returns when the meeting is over, if [Run.Begin] has begun it.
func (m *Meeting) Wait() {
	if m.begun {
		<-m.over
	}
}

// clients is how many meet the fault.
func (m *Meeting) clients() int {
	switch {
	case m.Fault.Name != faults.Outage:
		return 1
	case m.run.Bubble():
		return 20
	}
	return 5
}

// stagger makes clients begin at times of their own: some take their chance from the clock.
func (m *Meeting) stagger(ctx context.Context, i int) {
	switch {
	case m.run.Bubble():
		sleep(ctx, time.Duration(i)*2718281828)
	case m.Fault.Name == faults.Outage: // in which their waits are compared
		sleep(ctx, time.Duration(i)*2100*time.Millisecond)
	}
}

// Open makes the shops and the clients.
func (m *Meeting) Open() {
	for i := range m.clients() {
		if i > 0 && m.run.Bubble() {
			m.stagger(context.Background(), 1)
		}
		name := fmt.Sprint(m.Kind, m.Fault.Name, i)
		v := &visit{Meeting: m, shop: faults.New(m.run.Seed, name, m.run.Pace)}
		v.server = &http.Server{Handler: v.shop, ErrorLog: log.New(io.Discard, "", 0)}
		v.server.SetKeepAlivesEnabled(false)
		var listener net.Listener
		url, way := "http://shop.test", &http.Transport{DisableKeepAlives: true}
		if m.run.Bubble() {
			shop := pipes.Listen()
			way.DialContext = shop.Dial
			listener = shop
		} else {
			var err error
			if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				panic(err)
			}
			url = "http://" + listener.Addr().String()
		}
		go v.server.Serve(listener)
		v.transport = &transport{Transport: way}
		v.transport.left.Store(int64(m.Kind.MostRequests()))
		v.client = m.run.New(url, v.transport)
		m.visits = append(m.visits, v)
	}
}

// Client returns one of those that Open has made.
func (m *Meeting) Client() *Client { return m.visits[0].client }

// Hold has all clients do what they are to do, and closes the meeting.
func (m *Meeting) Hold(ctx context.Context) {
	defer close(m.over)
	var wg sync.WaitGroup
	for i, v := range m.visits {
		v.ctx = ctx
		wg.Go(func() {
			m.stagger(ctx, i)
			v.hold()
		})
	}
	wg.Wait()
	m.Close()
	for _, v := range m.visits {
		m.Calls = append(m.Calls, v.calls...)
		m.Err = cmp.Or(m.Err, v.err)
	}
}

// hold has a client do what it is to do.
func (v *visit) hold() {
	if v.err = v.ctx.Err(); v.err != nil {
		return
	}
	if v.client.End != nil {
		defer func() { v.err = cmp.Or(v.err, v.client.End()) }()
	}
	if v.client.Start != nil {
		if v.err = v.client.Start(); v.err != nil {
			return
		}
	}
	switch v.Kind {
	case conformance.Orders, conformance.Fields:
		v.order()
	case conformance.History:
		v.walk("ListOrders", v.client.ListOrders)
	case conformance.Users:
		v.walk("ListUsers", v.client.ListUsers)
	case conformance.Widgets:
		v.walk("ListWidgets", v.client.ListWidgets)
	case conformance.Products:
		v.read()
	case conformance.Lookups:
		v.look()
	}
	// A client that goes on after it has said that it gave up is seen.
	if v.run.Bubble() {
		sleep(v.ctx, 2*time.Hour)
	} else {
		sleep(v.ctx, time.Second)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Close closes a meeting that is open.
func (m *Meeting) Close() {
	for _, v := range m.visits {
		v.transport.stop()
		v.shop.Close()
		v.server.Close()
	}
}

// order places orders, and goes on with those that end with an error.
func (v *visit) order() {
	easy := storefront.Order{Item: "teapot", Qty: 2}
	hard := storefront.Order{Item: ` Café é  "Ötzi" <b>&amp; 茶🫖 `, Qty: 1<<53 - 1}
	orders := []storefront.Order{easy}
	if v.Kind == conformance.Fields {
		hard = easy
		hard.Fields = hardFields
	}
	switch {
	case v.Fault.None():
		orders = append(orders, easy, hard)
		if v.Kind == conformance.Fields {
			for _, fields := range otherFields {
				easy.Fields = fields
				orders = append(orders, easy)
			}
		}
	case v.Fault.Hard:
		orders[0] = hard
	}
	for _, o := range orders {
		c := v.begin()
		c.Want = o
		name, fields := fmt.Sprintf("CreateOrder(ctx, %q, %d)", o.Item, o.Qty), string(o.Fields)
		if fields != "" {
			name = fmt.Sprintf("CreateOrderWithFields(ctx, %q, %d, %q)", o.Item, o.Qty,
				conformance.Excerpt(fields, 1000))
		}
		err := v.ask(c, name, "", func(ctx context.Context, r *conformance.Result) {
			if fields == "" {
				r.ID, r.Err = v.client.CreateOrder(ctx, o.Item, o.Qty)
			} else {
				r.ID, r.Err = v.client.CreateOrderWithFields(ctx, o.Item, o.Qty, fields)
			}
		})
		if v.client.ResumeOrder != nil {
			v.resume(c, err)
		}
		c.Fix()
		if v.stuck || v.err != nil {
			return
		}
	}
}

// hardFields have what clients often encode wrongly, or lose: numbers that no float64 has, or that are
// written as whole ones are not, escapes, and names and values that are empty.
const hardFields storefront.Fields = `{"zip":"01067","big":9007199254740993,"long":0.1234567890123456789012345,` +
	`"whole":2.0,"price":24.50,"huge":1E400,"tiny":1e-400,"zero":-0,"": {"":[[],{},null,true,false,""]},` +
	`"a/b~c":"<b>\u00e9\u2028\ud83c\udf75 \"\\\/\n&","é":"e\u0301"," b\u0061d ":"\u007f"}`

// otherFields are an object without members, and one of 100 levels, of which jq 1.6 reads few more.
var otherFields = []storefront.Fields{"{}", storefront.Fields(strings.Repeat(`{"a":[`, 50) +
	strings.Repeat("]}", 50))}

// resume goes on with an order as the program would: when what was wrong is put right, and as the
// queue of a client with [Client.Patience].
func (v *visit) resume(c *faults.Call, err error) {
	queue := 0 // for how many times more
	if c.Patience = v.client.Patience; c.Patience > 0 {
		queue = mostResumptions
	}
	over := func() bool {
		return err == nil || errors.Is(err, conformance.ErrNotCreated) || v.stuck || v.err != nil
	}
	for mayFix := v.Fault.Final && !v.Fault.Forever; !over(); {
		final, wait := true, v.run.Pace.MaxAge()
		v.shop.View(func() {
			if last := c.Last(); last != nil {
				final = last.Meaning() != conformance.Retryable && last.Meaning() != conformance.Created
				wait = max(wait, last.Answer.RetryAfter())
			}
		})
		switch {
		case queue > 0 && !final:
			queue--
			sleep(v.ctx, wait)
		case mayFix:
			mayFix = false
			sleep(v.ctx, v.Fault.Later)
			c.Fix()
		default:
			return
		}
		before := err
		err = v.ask(c, "ResumeOrder(ctx, err)", "", func(ctx context.Context, r *conformance.Result) {
			r.ID, r.Err = v.client.ResumeOrder(ctx, before)
		})
	}
}

// mostResumptions is more than any fault needs that has an end.
const mostResumptions = 30

// walk walks through a list.
func (v *visit) walk(name string, list func(context.Context) ([]string, error)) {
	v.ask(v.begin(), name+"(ctx)", "", func(ctx context.Context, r *conformance.Result) {
		r.IDs, r.Err = list(ctx)
	})
}

// read reads a product four times. Its name changes in between, but not before the third time,
// and the fourth is when all that was kept is too old. Where nothing is wrong, it reads two
// more products, whose IDs differ in case, and have to be escaped.
func (v *visit) read() {
	c := v.begin()
	get := func(id, want string) {
		v.ask(c, fmt.Sprintf("GetProduct(ctx, %q)", id), want, func(ctx context.Context, r *conformance.Result) {
			r.Text, r.Err = v.client.GetProduct(ctx, id)
		})
	}
	if v.Fault.Name == faults.Missing {
		get("samovar", "")
		return
	}
	for i, name := range []string{"Teapot", "Teapot, blue", "Teapot, blue", "Teapot, green"} {
		v.shop.PutProduct("teapot", name)
		switch i {
		case 0:
		case 3:
			sleep(v.ctx, 2*v.run.Pace.MaxAge())
		default:
			sleep(v.ctx, v.Fault.Pause(v.run.Pace))
		}
		get("teapot", name)
	}
	if v.Fault.None() {
		for _, id := range []string{"Teapot", "a/b c+d%20?ü"} {
			v.shop.PutProduct(id, id)
			get(id, id)
		}
	}
}

// look places an order that has no answer, and looks for it. A client that says that it knows what became
// of the order is judged elsewhere.
func (v *visit) look() {
	lost := v.shop.Begin(conformance.Orders, faults.Unanswered)
	v.calls = append(v.calls, &lost.Call)
	err := v.call(func(ctx context.Context, r *conformance.Result) {
		_, r.Err = v.client.CreateOrder(ctx, "teapot", 2)
	}).Err
	v.calls = nil
	if err == nil || errors.Is(err, conformance.ErrNotCreated) || v.stuck || v.err != nil {
		return
	}
	c := v.begin()
	find := func() {
		want := strings.Join(lost.Created(), " ")
		v.ask(c, "FindOrder(ctx, err)", want, func(ctx context.Context, r *conformance.Result) {
			r.ID, r.Err = v.client.FindOrder(ctx, err)
		})
	}
	if v.Fault.None() {
		find()
	}
	lost.Fix()
	find()
}

func (v *visit) begin() *faults.Call {
	c := v.shop.Begin(v.Kind, v.Fault)
	v.calls = append(v.calls, &c.Call)
	return c
}

// errStuck is what a method returned that did not come to its end.
var errStuck = errors.New("(it did not return, and was stopped)")

// ask calls a method of the client, unless an earlier call has not returned, and records what it said.
func (v *visit) ask(c *faults.Call, name, want string,
	method func(context.Context, *conformance.Result)) error {
	if v.stuck || v.err != nil {
		return errStuck
	}
	said := c.Asked(name)
	r := v.call(method)
	r.Want = want
	said(r)
	return r.Err
}

// call calls a method of the client, and ends it if it does not return: two minutes after its last
// request, or where time passes in a bubble, a day and six hours after the call.
func (v *visit) call(method func(context.Context, *conformance.Result)) *conformance.Result {
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	returned := make(chan *conformance.Result, 1)
	go func() {
		r := &conformance.Result{Err: errStuck}
		defer func() { returned <- r }() // also if the transport ends the goroutine
		method(ctx, r)
	}()
	patience, active := 2*time.Minute, v.active
	if v.run.Bubble() {
		patience, active = 30*time.Hour, func() time.Time { return time.Time{} }
	}
	r, ok := await(returned, patience, active)
	if !ok {
		cancel()
		v.transport.stop()
		if v.run.Bubble() { // where nothing may be left running
			<-returned
		}
		r = &conformance.Result{Err: errStuck}
	} else if broken, ok := errors.AsType[*brokenError](r.Err); ok {
		v.err = broken
	}
	v.stuck = r.Err == errStuck
	r.Stuck = v.stuck
	v.err = cmp.Or(v.err, v.ctx.Err())
	return r
}

// active returns when the client has last sent a request of the latest call, or got an answer.
func (v *visit) active() (at time.Time) {
	v.shop.View(func() {
		if exchanges := v.calls[len(v.calls)-1].Exchanges; len(exchanges) > 0 {
			last := exchanges[len(exchanges)-1]
			at = last.At
			if last.Ended.After(at) {
				at = last.Ended
			}
		}
	})
	return at
}

// await returns what comes from a channel, or false if nothing does for so long, and for so long after
// what active returns. A slow machine must not make a client wrong that goes on.
func await[T any](from <-chan T, patience time.Duration, active func() time.Time) (result T, ok bool) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case result = <-from:
			return result, true
		case <-timer.C:
		}
		left := patience - time.Since(active())
		if left <= 0 {
			return result, false
		}
		timer.Reset(left)
	}
}

// A transport ends goroutines that send too many requests: a client that goes on for ever
// cannot be stopped in another way.
type transport struct {
	*http.Transport
	left atomic.Int64
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.left.Add(-1) < 0 {
		runtime.Goexit()
	}
	return t.Transport.RoundTrip(r)
}

func (t *transport) stop() { t.left.Store(0) }

// Explain says what a client did wrong. Of the stories, which are long, two of a check are enough.
func (r *Run) Explain(check *conformance.Check, v conformance.Violation) string {
	text := fmt.Sprintf("%s\nThe broken promise (%v): %s", v.Text, check.Weight, check.Promise)
	if r.told == nil {
		r.told = make(map[string]int)
	}
	if r.told[check.Name]++; r.told[check.Name] <= 2 {
		text += fmt.Sprintf("\nWhat that can cost: %s\nWhat was sent, with the fault %q and %s:\n%s",
			check.Harm, v.Call.Fault, r.Chance, strings.TrimRight(v.Call.Story(), "\n"))
	}
	return printable(text)
}

// printable replaces what could disturb a terminal, or turn a line around.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
