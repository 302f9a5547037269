package faultreport

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/faults"
	"example.com/storefront/internal/pipes"
)

// A world is a shop and the way to it, in memory.
type world struct {
	t     *testing.T
	shop  *Server
	store *storefront.MemStore
	pipes *pipes.Listener
}

// inWorld runs a test where time passes only while all wait. The buyer's name is b.
func inWorld(t *testing.T, test func(w *world, b *buyer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: new(storefront.MemStore), pipes: pipes.Listen()}
		w.fill(3)
		w.shop = New(7, w.store)
		server := &http.Server{Handler: w.shop, ErrorLog: log.New(io.Discard, "", 0)}
		go server.Serve(w.pipes)
		defer server.Close()
		defer w.shop.EndWaits()
		test(w, w.buyer("b"))
	})
}

// fill gives the store lists of n items and two products.
func (w *world) fill(n int) {
	for i := range n {
		w.store.Users.Put(storefront.MustResource(fmt.Sprint("u", i), nil))
		w.store.Widgets.Put(storefront.MustResource(fmt.Sprint("w", i), nil))
	}
	w.store.Products.Put(storefront.MustResource("teapot", map[string]string{"name": "Teapot"}))
}

// A buyer does what docs/wire.md says, but for its habits.
type buyer struct {
	http  *http.Client
	agent string
	// habits
	keyPerTry   bool
	quotesLater bool // puts the key in quotes from the second try on
	reports     bool // its outcomes
	tries       int  // 0: as many as it takes
	pause       func(limit time.Duration) time.Duration
}

func (w *world) buyer(name string) *buyer {
	return &buyer{agent: name, tries: 1000, http: &http.Client{
		Transport:     &http.Transport{DialContext: w.pipes.Dial, DisableKeepAlives: true},
		Timeout:       40 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, pause: func(limit time.Duration) time.Duration { return limit/2 + mathrand.N(limit/2) }}
}

// order returns the last status, and 0 if there is none.
func (b *buyer) order(item string) (status int) { return b.orderAs(rand.Text(), item) }

func (b *buyer) orderAs(key, item string) (status int) {
	status, answer := b.place(key, item)
	if b.reports {
		members := map[string]any{"item": item, "id": conformance.OrderID(answer)}
		if status != 201 {
			members = map[string]any{"item": item, "error": fmt.Sprint(status)}
		}
		b.mustReport(members)
	}
	return status
}

func (b *buyer) place(key, item string) (status int, answer []byte) {
	body, _ := json.Marshal(map[string]any{"item": item, "qty": 2})
	limit := time.Second / 4
	for try := range b.tries {
		if b.keyPerTry {
			key = rand.Text()
		}
		if b.quotesLater && try == 1 {
			key = `"` + key + `";try=2`
		}
		status, header, answer := b.send("POST", "/v1/orders", body, "Content-Type", "application/json",
			"Idempotency-Key", key)
		switch {
		case status == 201 && conformance.OrderID(answer) != "":
			return status, answer
		case status == 201, status == 0, status == 408, status == 409, status == 429, status >= 500 &&
			status != 501:
		default:
			return status, answer
		}
		wait, _ := strconv.Atoi(header.Get("Retry-After"))
		time.Sleep(time.Duration(min(max(wait, 0), 3600))*time.Second + b.pause(limit))
		limit = min(2*limit, time.Minute)
	}
	return 0, nil
}

// orders places n orders, each of another item.
func (b *buyer) orders(n int) {
	for i := range n {
		b.order(fmt.Sprint("teapot ", i))
	}
}

func (b *buyer) send(method, target string, body []byte, fields ...string) (status int, header http.Header,
	answer []byte) {
	r, err := http.NewRequest(method, "http://shop.test"+target, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.Header.Set("User-Agent", b.agent)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	response, err := b.http.Do(r)
	if err != nil {
		return 0, nil, nil
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return 0, nil, nil
	}
	return response.StatusCode, response.Header, answer
}

// walk returns the IDs of a list, and ok if it came to its end.
func (b *buyer) walk(list, name string) (ids []string, ok bool) {
	query := url.Values{"limit": {"100"}}
	for tries := 0; tries < 10; tries++ {
		status, header, answer := b.send("GET", list+"?"+query.Encode(), nil)
		if status/100 == 4 && status != 429 {
			return nil, false
		}
		wait, _ := strconv.Atoi(header.Get("Retry-After"))
		time.Sleep(time.Duration(wait) * time.Second)
		var page struct {
			Data []struct{ ID string }
			Next string
		}
		if status != 200 || json.Unmarshal(answer, &page) != nil || page.Data == nil {
			continue
		}
		for _, item := range page.Data {
			ids = append(ids, item.ID)
		}
		if page.Next == "" {
			return ids, true
		}
		query.Set(name, page.Next)
	}
	return nil, false
}

func (b *buyer) read(product string, fields ...string) http.Header {
	_, header, _ := b.send("GET", "/v1/products/"+product, nil, fields...)
	return header
}

// name reads the name of a product.
func (b *buyer) name(product string) (name string, ok bool) {
	for range 10 {
		status, header, answer := b.send("GET", "/v1/products/"+url.PathEscape(product), nil)
		var p struct{ ID, Name string }
		if status == 200 && json.Unmarshal(answer, &p) == nil && p.ID != "" {
			return p.Name, true
		}
		if status/100 == 4 && status != 429 {
			return "", false
		}
		wait, _ := strconv.Atoi(header.Get("Retry-After"))
		time.Sleep(time.Duration(wait) * time.Second)
	}
	return "", false
}

// report reports an outcome, and returns the status.
func (b *buyer) report(members any) (status int, answer []byte) {
	body, _ := json.Marshal(members)
	status, _, answer = b.send("POST", OutcomesPath, body)
	return status, answer
}

func (b *buyer) mustReport(members map[string]any) {
	if status, answer := b.report(members); status != 204 {
		panic(fmt.Sprint(members, ": ", string(answer)))
	}
}

func (b *buyer) reportWalk(list string, ids []string, ok bool) {
	members := map[string]any{"list": list, "ids": append([]string{}, ids...)}
	if !ok {
		members = map[string]any{"list": list, "error": "no page"}
	}
	b.mustReport(members)
}

func (b *buyer) reportName(product, name string, ok bool) {
	members := map[string]any{"product": product, "name": name}
	if !ok {
		members = map[string]any{"product": product, "error": "no product"}
	}
	b.mustReport(members)
}

// client returns what the shop reports of a client.
func (w *world) client(name string) clientReport {
	w.t.Helper()
	synctest.Wait() // the shop may be behind a client that has got its answer
	for _, c := range w.shop.report().Clients {
		if c.Name == name {
			return c
		}
	}
	w.t.Fatalf("no client %q", name)
	panic("unreachable")
}

// failed returns the names of the checks of a client that have failed.
func (w *world) failed(name string, kind conformance.Kind) (checks []string) {
	w.t.Helper()
	for _, k := range w.client(name).Kinds {
		for _, v := range k.Checks {
			if k.Kind == kind && v.Verdict == "failed" {
				checks = append(checks, v.Check)
			}
		}
	}
	return checks
}

func newClient(seed uint64) *client {
	dice := faults.NewDice(seed, "", faults.Minutes)
	return &client{server: new(Server), dice: dice, rounds: make(map[conformance.Kind]*round)}
}

// ofARound is how many orders a round has.
func ofARound() int { return len(newClient(7).aRound(conformance.Orders)) }

// aRound takes the faults of a round.
func (cl *client) aRound(kind conformance.Kind) (names []string) {
	for names = append(names, cl.next(kind).Name); len(cl.rounds[kind].rest) > 0; {
		names = append(names, cl.next(kind).Name)
	}
	return names
}

func TestRightClientPassesARound(t *testing.T) {
	for _, reports := range []bool{false, true} {
		inWorld(t, func(w *world, b *buyer) {
			b.reports = reports
			b.orders(ofARound())
			for range 40 {
				for _, list := range [][2]string{{"/v1/users", "after"}, {"/v2/widgets", "start"}} {
					if ids, ok := b.walk(list[0], list[1]); reports {
						b.reportWalk(list[0][4:], ids, ok)
					}
				}
				if name, ok := b.name("teapot"); reports {
					b.reportName("teapot", name, ok)
				}
			}
			for _, k := range w.client("b").Kinds {
				for _, v := range k.Checks {
					want := "passed"
					switch {
					case v.Check == "tag":
						want = "not met" // it keeps nothing
					case !reports && slices.Contains(byOutcome, v.Check):
						want = "not judged"
					}
					if v.Verdict != want {
						t.Errorf("%s: %s is %s, want %s: %s\n%s", k.Kind, v.Check, v.Verdict, want, v.Fault,
							v.Story)
					}
				}
			}
		})
	}
}

func TestEachFaultOfARoundComesAndOutagesThrice(t *testing.T) {
	cl := newClient(7)
	first, second := cl.aRound(conformance.Orders), cl.aRound(conformance.Orders)
	for _, names := range [][]string{first, second} {
		if names[0] != "nothing is wrong" {
			t.Errorf("a round begins with %q", names[0])
		}
		count := make(map[string]int)
		for _, name := range names {
			count[name]++
		}
		for _, fault := range faults.Of(conformance.Orders, faults.Minutes) {
			want := 1
			if fault.Name == "an outage" {
				want = 3
			}
			if count[fault.Name] != want {
				t.Errorf("%q comes %d times, want %d", fault.Name, count[fault.Name], want)
			}
		}
	}
	if slices.Equal(first, second) {
		t.Error("two rounds are the same")
	}
}

func TestSeedDecidesTheSequence(t *testing.T) {
	names := func(seed uint64) []string { return newClient(seed).aRound(conformance.Orders) }
	if !slices.Equal(names(7), names(7)) || slices.Equal(names(7), names(8)) {
		t.Errorf("7: %q\n7: %q\n8: %q", names(7), names(7), names(8))
	}
}

// until places orders until one meets the fault, and returns the item of that.
func (b *buyer) until(w *world, fault string) (key, item string) {
	for i := range ofARound() {
		key, item := rand.Text(), fmt.Sprint("teapot ", i)
		b.orderAs(key, item)
		synctest.Wait()
		if c := w.shop.clients[0].calls[i]; c.Fault == fault {
			return key, item
		}
	}
	panic("no order met " + fault)
}

// A row is what a buyer does, and a check that fails.
type row struct {
	name   string
	does   func(w *world, b *buyer)
	kind   conformance.Kind
	failed string // "" if all is right
}

// inWorlds has buyers do what rows say, each in a world of its own.
func inWorlds(t *testing.T, rows []row) {
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inWorld(t, func(w *world, b *buyer) {
				row.does(w, b)
				failed := w.failed("b", row.kind)
				if right := failed == nil; right != (row.failed == "") ||
					!right && !slices.Contains(failed, row.failed) {
					t.Errorf("failed are %q, want %q", failed, row.failed)
				}
			})
		})
	}
}

func TestWhatAClientDoesIsJudged(t *testing.T) {
	const orders, users, widgets = conformance.Orders, conformance.Users, conformance.Widgets
	goOn := func(after time.Duration) func(w *world, b *buyer) {
		return func(w *world, b *buyer) {
			key, item := b.until(w, "a proxy forbids: 403")
			time.Sleep(after)
			if status := b.orderAs(key, item); status != 201 {
				t.Errorf("the order is answered %d", status)
			}
		}
	}
	list := func(target string) func(w *world, b *buyer) {
		return func(_ *world, b *buyer) {
			if status, _, _ := b.send("GET", target, nil); status != 400 {
				t.Errorf("%s: %d, want 400", target, status)
			}
		}
	}
	inWorlds(t, []row{
		{"has given orders up just now", func(_ *world, b *buyer) { b.tries = 1; b.orders(10) }, orders, ""},
		{"has given orders up", func(_ *world, b *buyer) {
			b.tries = 1
			b.orders(10)
			time.Sleep(3 * time.Minute)
		}, orders, "goes-on"},
		{"goes on at once", goOn(time.Second), orders, "stops"},
		{"goes on later, as somebody may", goOn(time.Minute), orders, ""},
		{"uses the key of another order", func(_ *world, b *buyer) {
			b.orderAs("constant", "teapot")
			b.orderAs("constant", "kettle")
		}, orders, "own-key"},
		{"puts the key in quotes later", func(_ *world, b *buyer) {
			b.quotesLater = true
			b.orders(ofARound())
		}, orders, ""},
		{"orders the same again", func(_ *world, b *buyer) {
			for range 3 * ofARound() {
				b.order("teapot")
			}
		}, orders, "one-key"},
		{"orders with a new key once it has signed in", func(w *world, b *buyer) {
			_, item := b.until(w, "the password expires between two tries")
			b.order(item)
		}, orders, "agreement"},
		{"takes a new key for an answer that never ends", func(w *world, b *buyer) {
			b.keyPerTry = true
			b.until(w, "the answer never ends")
			for i := range w.shop.clients[0].calls {
				b.order(fmt.Sprint("teapot ", i))
			}
			time.Sleep(3 * time.Minute)
			if slices.Contains(w.failed("b", orders), "goes-on") {
				t.Error("an order counts as given up")
			}
		}, orders, "one-key"},
		{"follows redirects", func(_ *world, b *buyer) {
			b.http.CheckRedirect = nil
			b.orders(ofARound())
		}, orders, "redirects"},
		{"sends no limit", list("/v2/widgets"), widgets, "list-request"},
		{"sends a limit above the maximum", list("/v2/widgets?limit=501"), widgets, "list-request"},
		{"sends a limit twice", list("/v2/widgets?limit=2&limit=2"), widgets, "list-request"},
		{"sends no number", list("/v1/users?limit=x"), users, "list-request"},
		{"sends another parameter", list("/v1/users?limit=2&colour=red"), users, "list-request"},
		{"makes up a cursor", func(_ *world, b *buyer) {
			b.send("GET", "/v1/users?limit=1", nil)
			b.send("GET", "/v1/users?limit=1&after=mine", nil)
		}, users, "cursor"},
		{"has a tag of an earlier read", func(w *world, b *buyer) {
			tag := b.read("teapot").Get("ETag")
			w.shop.clients[0].rename("teapot")
			for range 10 {
				b.read("teapot", "If-None-Match", tag)
			}
		}, conformance.Products, ""},
	})
}

func TestHeldRequestArrivesBeforeTheNextOrder(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		_, item := b.until(w, "order-refused while the first try is held up")
		has := func() bool {
			return slices.ContainsFunc(w.shop.clients[0].store.Orders(),
				func(o storefront.Order) bool { return o.Item == item })
		}
		if has() {
			t.Error("the order was created at once")
		}
		b.order("another")
		if !has() {
			t.Error("the order was not created")
		}
	})
}

func TestClientIsItsUserAgentOrItsAddress(t *testing.T) {
	shop := New(7, new(storefront.MemStore))
	for i, from := range []struct{ agent, address string }{{"a", "192.0.2.1:1"}, {"a", "192.0.2.2:1"},
		{"b", "192.0.2.1:1"}, {"", "192.0.2.1:1"}, {"", "192.0.2.1:2"}, {"", "192.0.2.2:1"}} {
		r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(fmt.Sprintf(`{"item":"%d","qty":1}`, i)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", fmt.Sprint(i))
		r.Header.Set("User-Agent", from.agent)
		r.RemoteAddr = from.address
		func() {
			defer func() { recover() }() // no answer
			shop.ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
	got := make(map[string]int)
	for _, c := range shop.clients {
		got[c.name] = len(c.calls)
	}
	if want := map[string]int{"a": 2, "b": 1, "no User-Agent, 192.0.2.1": 2,
		"no User-Agent, 192.0.2.2": 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the clients and their orders are %v, want %v", got, want)
	}
}

func TestMemoryHasABound(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		b.pause = func(time.Duration) time.Duration { return 0 }
		b.orders(mostCalls)
		for i := range 50 {
			if status := b.order(fmt.Sprint("beyond ", i)); status != 201 {
				t.Errorf("beyond the bound, order %d is answered %d", i, status)
			}
		}
		for i := range mostClients + 3 {
			w.buyer(fmt.Sprint("client ", i)).order("teapot")
		}
		same := w.buyer("client 0")
		for range mostExchanges + 10 {
			same.orderAs("k", "kettle")
		}
		large := w.buyer("client 1")
		for i := range 2 * mostBytes >> 15 {
			large.order(fmt.Sprint(strings.Repeat(" ", 1<<15), i))
		}
		c := w.client("b")
		if c.NotCounted != 50 || c.Kinds[0].Round == 0 {
			t.Errorf("%d requests were not counted, want 50", c.NotCounted)
		}
		if n := len(w.shop.clients); n != mostClients {
			t.Errorf("%d clients are remembered, want %d", n, mostClients)
		}
		for _, cl := range w.shop.clients {
			for _, c := range cl.calls {
				if n := len(c.Exchanges); n > mostExchanges {
					t.Errorf("%s: a call has %d requests", cl.name, n)
				}
			}
			if n := len(cl.calls); n > mostCalls {
				t.Errorf("%s has %d calls", cl.name, n)
			}
			if n := cl.size(); n > 2*mostBytes+1<<18 {
				t.Errorf("%s takes %d bytes", cl.name, n)
			}
		}
	})
}

func TestListsOfAnyLength(t *testing.T) {
	for n := range 8 {
		inWorld(t, func(w *world, b *buyer) {
			for i := range 3 {
				w.store.Users.Delete(fmt.Sprint("u", i))
				w.store.Widgets.Delete(fmt.Sprint("w", i))
			}
			w.fill(n)
			for range 20 {
				for _, list := range [][2]string{{"/v1/users", "after"}, {"/v2/widgets", "start"}} {
					ids, ok := b.walk(list[0], list[1])
					b.reportWalk(list[0][4:], ids, ok)
				}
			}
			for _, kind := range []conformance.Kind{conformance.Users, conformance.Widgets} {
				if failed := w.failed("b", kind); failed != nil {
					t.Errorf("%d items: %s: failed are %q", n, kind, failed)
				}
			}
		})
	}
}

func TestFirstPageAskedForAgainIsTheSameWalk(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		for range 20 {
			if _, ok := b.walk("/v1/users", "after"); ok {
				continue
			}
			time.Sleep(time.Minute)
		}
		if n := len(w.shop.clients[0].calls); n != 20 {
			t.Errorf("20 walks are %d", n)
		}
	})
}

// What meets no fault is answered as without the shop.
func TestOtherRequestsReachTheService(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		for _, row := range []struct {
			method, target string
			body           []byte
			want           int
		}{
			{"GET", "/openapi.json", nil, 200},
			{"GET", "/v1/orders", nil, 405},
			{"OPTIONS", "/v1/orders", nil, 204},
			{"GET", "//", nil, 404},
			{"DELETE", "/v1/users", nil, 405},
			{"HEAD", "/v1/users", nil, 200},
			{"POST", "/v1/orders", make([]byte, 100<<10), 413},
		} {
			if status, _, _ := b.send(row.method, row.target, row.body, "Content-Type", "application/json",
				"Idempotency-Key", "k"); status != row.want {
				t.Errorf("%s %s: %d, want %d", row.method, row.target, status, row.want)
			}
		}
	})
}

// A client that is left without an answer knows what to do, and so it gets none.
func TestWaitsEndWithTheShop(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		w.shop.EndWaits()
		b.tries = 1
		for i := range ofARound() {
			began := time.Now()
			status := b.order(fmt.Sprint(i))
			if waited := time.Since(began); waited > 30*time.Second {
				t.Errorf("order %d waited for %v", i, waited)
			}
			waits := []string{"the answer comes after 35 s", "the answer never comes"}
			if c := w.shop.clients[0].calls[i]; slices.Contains(waits, c.Fault) && status != 0 {
				t.Errorf("%q: the client is answered %d", c.Fault, status)
			}
		}
	})
}

const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;` + "\u202e"

func TestPageEscapesWhatClientsSend(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		b.agent = hostile
		b.keyPerTry = true
		for i := range 20 {
			b.order(hostile + fmt.Sprint(i))
		}
		b.read(url.PathEscape(hostile), "If-None-Match", hostile)
		status, header, answer := b.send("GET", PagePath, nil)
		text := string(answer)
		if status != 200 || !strings.Contains(text, "alert(1)") {
			t.Fatalf("%d: %s", status, text)
		}
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "<img") ||
			strings.Contains(text, "\u202e") {
			t.Error("it has what the client sent as it was sent")
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			"Content-Type": "text/html; charset=utf-8"} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if got := header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'; "+
			"script-src 'sha256-") || strings.Contains(got, "unsafe") {
			t.Errorf("Content-Security-Policy: %s", got)
		}
	})
}

func TestReportIsJSONForThoseWhoAcceptIt(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		b.orders(3)
		synctest.Wait()
		for _, ask := range [][2]string{{PagePath, "application/json"}, {JSONPath, "*/*"}} {
			status, header, answer := b.send("GET", ask[0], nil, "Accept", ask[1])
			var r report
			if err := json.Unmarshal(answer, &r); status != 200 || header.Get("Content-Type") != "application/json" ||
				err != nil || len(r.Clients) != 1 || r.Clients[0].Kinds[0].Met != 3 {
				t.Errorf("%q: %d, %v: %s", ask, status, err, answer)
			}
		}
	})
}

func TestPageSaysWhatItsWordsMean(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		b.orders(3)
		synctest.Wait()
		_, _, page := b.send("GET", PagePath, nil)
		for _, want := range []string{
			`<p id="tally">[0-9]+ passed, [0-9]+ not met, [0-9]+ not judged</p>`,
			`<dt>one-key<dd>[A-Z].*\.\n`, // passed
			`<dt>silence<dd>[A-Z].*\.\n`, // not judged
			`<dt>stops<dd>[A-Z].*\.\n`,   // not met
		} {
			if len(regexp.MustCompile(want).FindAll(page, -1)) != 1 {
				t.Errorf("not once in the page: %s\n%s", want, page)
			}
		}
	})
}

func TestReportHasTheOrdersThatTheShopCreated(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		b.orders(ofARound())
		b.order("the last")
		got, want := make(map[string]bool), make(map[string]bool)
		for _, o := range w.client("b").Created {
			got[o.ID] = true
		}
		for _, o := range w.shop.clients[0].store.Orders() {
			want[o.ID] = true
		}
		if !maps.Equal(got, want) || len(got) < 20 {
			t.Errorf("%d orders are reported, %d are there", len(got), len(want))
		}
	})
}

// A page is made while clients order.
func TestClientsAtTheSameTime(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				b := w.buyer(fmt.Sprint("client ", i%2))
				for k := range 30 {
					b.order(fmt.Sprint(i, " ", k))
					b.walk("/v1/users", "after")
					b.read("teapot")
					b.send("GET", PagePath, nil)
				}
			})
		}
		wg.Wait()
		for i := range 2 {
			for _, kind := range []conformance.Kind{conformance.Orders, conformance.Users, conformance.Products} {
				if failed := w.failed(fmt.Sprint("client ", i), kind); failed != nil {
					t.Errorf("%s: failed are %q", kind, failed)
				}
			}
		}
	})
}

func TestSummaryNamesTheFailedChecks(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		b.keyPerTry, b.agent = true, "wrong\u009b2J"
		b.orders(20)
		w.buyer("right").orders(20)
		synctest.Wait()
		text := w.shop.Summary()
		for _, want := range []string{"right: orders (", "wrong\ufffd2J: orders (", "failed one-key in order "} {
			if strings.Count(text, want) != 1 {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	})
}
