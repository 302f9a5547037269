package clienttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/faults"
	"example.com/storefront/internal/pipes"
)

// A meeting is that of a fault and the clients that meet it at the same time.
type meeting struct {
	*suite
	kind   conformance.Kind
	fault  *faults.Fault
	visits []*visit
	calls  []*conformance.Call // once it is over
	over   chan struct{}       // not nil: it has been started
}

// A visit is a client and its shop.
type visit struct {
	*meeting
	shop      *faults.Shop
	server    *http.Server
	transport *transport
	client    Client
	calls     []*conformance.Call
}

// start opens the meeting and holds it in the background.
func (m *meeting) start(t *testing.T) {
	m.open(t)
	m.over = make(chan struct{})
	go func() {
		defer close(m.over)
		m.places <- struct{}{}
		m.visit()
		<-m.places
	}()
}

// hold returns when the meeting is over.
func (m *meeting) hold(t *testing.T) {
	if m.bubble() {
		m.holdInBubble(t)
		return
	}
	if m.over == nil {
		m.start(t)
	}
	m.wait()
}

// holdInBubble notes what the client has left running, for which synctest panics.
func (m *meeting) holdInBubble(t *testing.T) {
	var bubble string
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if m.calls == nil || !strings.Contains(fmt.Sprint(p), "blocked goroutines remain") {
			panic(p)
		}
		for _, c := range m.calls {
			c.Running = cmp.Or(leftIn(bubble), "(no stack could be read)")
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		var head [100]byte // the first line
		bubble = bubbleOf(string(head[:runtime.Stack(head[:], false)]))
		m.open(t)
		m.visit()
	})
}

// bubbleOf returns the name of a goroutine's bubble, such as "synctest bubble 13]", and "" if
// it is in none.
func bubbleOf(stack string) string {
	head, _, _ := strings.Cut(stack, "\n")
	if i := strings.Index(head, "synctest bubble "); i >= 0 {
		return head[i:]
	}
	return ""
}

// leftIn returns the stacks of the goroutines in a bubble.
func leftIn(bubble string) string {
	var left []string
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		if bubble != "" && bubbleOf(stack) == bubble {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

// wait returns when the meeting is over, if it was started.
func (m *meeting) wait() {
	if m.over != nil {
		<-m.over
	}
}

// listen takes an address that no client of another test, which goes on for long, has had.
func listen(t *testing.T) net.Listener {
	t.Helper()
	own := net.IPv4(127, byte(1+rand.N(254)), byte(rand.N(256)), byte(1+rand.N(254)))
	listener, err := net.Listen("tcp", net.JoinHostPort(own.String(), "0"))
	if err != nil { // not all systems have more than one
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// clients is how many meet the fault.
func (m *meeting) clients() int {
	if m.bubble() {
		return max(1, m.fault.Clients)
	}
	return max(1, min(8, m.fault.Clients))
}

// stagger makes clients begin at times of their own in a bubble: some take their chance from the
// clock.
func (m *meeting) stagger(i int) {
	if m.bubble() {
		time.Sleep(time.Duration(i) * 2718281828)
	}
}

// open makes the shops and the clients.
func (m *meeting) open(t *testing.T) {
	t.Helper()
	for i := range m.clients() {
		if i > 0 {
			m.stagger(1)
		}
		v := &visit{meeting: m, shop: faults.New(m.seed, fmt.Sprint(m.kind, m.fault.Name, i), m.pace)}
		v.server = &http.Server{Handler: v.shop, ErrorLog: log.New(io.Discard, "", 0)}
		v.server.SetKeepAlivesEnabled(false)
		var listener net.Listener
		var service Service
		client := &http.Transport{DisableKeepAlives: true}
		if m.bubble() {
			shop := pipes.Listen()
			client.DialContext = shop.Dial
			listener, service.URL = shop, "http://shop.test"
		} else {
			listener = listen(t)
			service.URL = "http://" + listener.Addr().String()
		}
		go v.server.Serve(listener)
		v.transport = newTransport(client)
		service.Transport = v.transport
		if v.client = m.newClient(t, service); v.client == nil {
			t.Fatal("newClient returned nil.")
		}
		m.visits = append(m.visits, v)
	}
}

// visit has all clients do what they are to do, and closes the shops.
func (m *meeting) visit() {
	var wg sync.WaitGroup
	for i, v := range m.visits {
		wg.Go(func() {
			m.stagger(i)
			switch m.kind {
			case conformance.Orders:
				v.order()
			case conformance.Users:
				v.walk("ListUsers", v.client.(Lister).ListUsers)
			case conformance.Widgets:
				v.walk("ListWidgets", v.client.(Lister).ListWidgets)
			case conformance.Products:
				v.read()
			}
		})
	}
	wg.Wait()
	// A client that goes on after it has said that it gave up is seen.
	if m.bubble() {
		time.Sleep(2 * time.Hour)
	} else {
		time.Sleep(time.Second)
	}
	m.close()
	for _, v := range m.visits {
		m.calls = append(m.calls, v.calls...)
	}
}

func (m *meeting) close() {
	for _, v := range m.visits {
		v.transport.stop()
		v.shop.Close()
		v.server.Close()
		v.transport.idle()
	}
}

// order places orders, and goes on with those that end with an error.
func (v *visit) order() {
	type order struct {
		item string
		qty  int64
	}
	easy, hard := order{"teapot", 2}, order{`Café "Ötzi" <b>& 茶`, 1<<53 - 1}
	orders := []order{easy}
	switch {
	case v.fault.None():
		orders = append(orders, easy, hard)
	case v.fault.Hard:
		orders[0] = hard
	}
	for _, o := range orders {
		c := v.begin()
		c.Item, c.Qty = o.item, o.qty
		said := c.Asked(fmt.Sprintf("CreateOrder(ctx, %q, %d)", o.item, o.qty))
		id, err := call(v, func(ctx context.Context) (string, error) {
			return v.client.CreateOrder(ctx, o.item, o.qty)
		})
		said(&conformance.Result{ID: id, Err: err, Stuck: errors.Is(err, errStuck)})
		if resumer, ok := v.client.(Resumer); ok {
			v.resume(c, resumer, err)
		}
		c.Fix()
	}
}

// resume goes on with an order as the program would: when what was wrong is put right, and as the
// queue of a Patient.
func (v *visit) resume(c *faults.Call, client Resumer, err error) {
	queue := 0 // for how many times more
	if p, ok := client.(Patient); ok {
		c.Patience, queue = p.Patience(), mostResumptions
	}
	for mayFix := v.fault.Final && !v.fault.Endless(); err != nil && !errors.Is(err, errStuck); {
		final, wait := true, v.pace.MaxAge()
		v.shop.View(func() {
			if last := c.Last(); last != nil {
				final = last.Meaning() != conformance.Retryable && last.Meaning() != conformance.Created
				wait = max(wait, last.Answer.RetryAfter())
			}
		})
		switch {
		case queue > 0 && !final:
			queue--
			time.Sleep(wait)
		case mayFix:
			mayFix = false
			time.Sleep(v.fault.Later)
			c.Fix()
		default:
			return
		}
		said := c.Asked("ResumeOrder(ctx, err)")
		var id string
		id, err = call(v, func(ctx context.Context) (string, error) { return client.ResumeOrder(ctx, err) })
		said(&conformance.Result{ID: id, Err: err, Stuck: errors.Is(err, errStuck)})
	}
}

// mostResumptions is more than any fault needs that has an end.
const mostResumptions = 30

// walk walks through a list, twice where it changes in between.
func (v *visit) walk(name string, list func(context.Context) ([]string, error)) {
	walk := func() *faults.Call {
		c := v.begin()
		said := c.Asked(name + "(ctx)")
		ids, err := call(v, list)
		said(&conformance.Result{IDs: ids, Err: err, Stuck: errors.Is(err, errStuck)})
		return c
	}
	if first := walk(); v.fault.Name == faults.TwoWalks {
		first.Change()
		walk()
	}
}

// read reads a product four times. Its name changes in between, but not before the third time,
// and the fourth is when all that was kept is too old. Where nothing is wrong, it reads two
// more products, whose IDs differ in case, and have to be escaped.
func (v *visit) read() {
	c := v.begin()
	get := func(id, want string) {
		said := c.Asked(fmt.Sprintf("GetProduct(ctx, %q)", id))
		got, err := call(v, func(ctx context.Context) (string, error) {
			return v.client.(ProductGetter).GetProduct(ctx, id)
		})
		said(&conformance.Result{Text: got, Want: want, Err: err, Stuck: errors.Is(err, errStuck)})
	}
	if v.fault.Name == faults.Missing {
		get("samovar", "")
		return
	}
	for i, name := range []string{"Teapot", "Teapot, blue", "Teapot, blue", "Teapot, green"} {
		v.shop.PutProduct("teapot", name)
		switch i {
		case 0:
		case 3:
			time.Sleep(2 * v.pace.MaxAge())
		default:
			time.Sleep(v.fault.Pause(v.pace))
		}
		get("teapot", name)
	}
	if v.fault.None() {
		for _, id := range []string{"Teapot", "a/b c+d%20?ü"} {
			v.shop.PutProduct(id, id)
			get(id, id)
		}
	}
}

func (v *visit) begin() *faults.Call {
	c := v.shop.Begin(v.kind, v.fault)
	v.calls = append(v.calls, &c.Call)
	return c
}

// errStuck is what a method returned that did not come to its end.
var errStuck = errors.New("(it did not return, and was stopped)")

// call calls a method of the client, and ends it if it does not return: two minutes after its last
// request, or where time passes in a bubble, a day and six hours after the call.
func call[T any](v *visit, method func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	returned := make(chan result, 1)
	go func() {
		r := result{err: errStuck}
		defer func() { returned <- r }() // also if the transport ends the goroutine
		r.value, r.err = method(ctx)
	}()
	patience, active := 2*time.Minute, v.active
	if v.bubble() {
		patience, active = 30*time.Hour, func() time.Time { return time.Time{} }
	}
	if r, ok := await(returned, patience, active); ok {
		return r.value, r.err
	}
	cancel()
	v.transport.stop()
	if v.bubble() { // where nothing may be left running
		<-returned
	}
	return *new(T), errStuck
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

func newTransport(t *http.Transport) *transport {
	limited := &transport{Transport: t}
	limited.left.Store(conformance.MostRequests)
	return limited
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.left.Add(-1) < 0 {
		runtime.Goexit()
	}
	return t.Transport.RoundTrip(r)
}

func (t *transport) stop() { t.left.Store(0) }
func (t *transport) idle() { t.CloseIdleConnections() }
