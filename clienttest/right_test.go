package clienttest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront/clienttest"
	"example.com/storefront/internal/conformance"
)

// A client does what docs/wire.md says. Wrong clients do one thing in another way, which is
// a function or a field.
type client struct {
	http *http.Client
	url  string

	key    func(item string) string
	encode func(fields string) any
	try    func(ctx context.Context, key string, body []byte) answer
	judge  func(answer) (id string, v verdict)
	pause  func(tries int, a answer) time.Duration
	end    time.Duration
	resume func(ctx context.Context, open *openError) (string, error)
	page   func(answer) (ids []string, next string, err error)
	list   func(ctx context.Context, path, cursor string) ([]string, error)
	get    func(ctx context.Context, id string) (string, error)
	find   func(ctx context.Context, key string) (string, error)
	limit  int
	round  bool // whether a list may go round

	whole    bool          // whether an answer is read to its end, however long it is
	patience time.Duration // 0: it leaves nothing to a queue
	refused  func(tries int, open *openError) error
}

// asked returns the client with the methods that it has.
func (c *client) asked() clienttest.Client {
	if c.patience > 0 {
		return patientClient{c}
	}
	return c
}

type patientClient struct{ *client }

var _ clienttest.Patient = patientClient{}

func (c patientClient) Patience() time.Duration { return c.patience }

// queues makes a client leave an order to a queue after some time, and send it once each time
// that the queue asks.
func queues(patience, after time.Duration) func(*client) {
	return func(c *client) {
		c.patience, c.end = patience, after
		c.resume = func(ctx context.Context, open *openError) (string, error) {
			if time.Since(open.first) > 12*time.Hour {
				return "", open
			}
			id, v := c.judge(c.try(ctx, open.key, open.body))
			if v == created {
				return id, nil
			}
			return "", open
		}
	}
}

// an answer whose status is 0 is none, or did not come whole
type answer struct {
	status int
	header http.Header
	body   []byte
	sent   []byte
}

type verdict int

const (
	again verdict = iota
	created
	final
)

// An openError is that of an order of which nobody knows what became of it.
type openError struct {
	key   string
	body  []byte
	first time.Time // try
	text  string
}

func (e *openError) Error() string { return "the order with the key " + e.key + ": " + e.text }

func newClient(service clienttest.Service) *client {
	c := &client{url: service.URL, end: 15 * time.Minute, limit: 100, http: &http.Client{
		Transport: service.Transport, Timeout: 40 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.key = func(string) string { return rand.Text() }
	c.encode = func(fields string) any { return json.RawMessage(fields) }
	c.try = c.send
	c.judge = judge
	c.pause = pause
	c.resume = func(ctx context.Context, open *openError) (string, error) {
		return c.place(ctx, open.key, open.body, open.first)
	}
	c.refused = func(_ int, open *openError) error { return open }
	c.page = readPage
	c.list = c.walk
	c.get = c.product
	c.find = c.look
	return c
}

func (c *client) CreateOrder(ctx context.Context, item string, qty int64) (string, error) {
	body, err := json.Marshal(map[string]any{"item": item, "qty": qty})
	if err != nil {
		return "", err
	}
	return c.place(ctx, c.key(item), body, time.Now())
}

func (c *client) CreateOrderWithFields(ctx context.Context, item string, qty int64, fields string) (string, error) {
	body, err := json.Marshal(map[string]any{"item": item, "qty": qty, "fields": c.encode(fields)})
	if err != nil {
		return "", err
	}
	return c.place(ctx, c.key(item), body, time.Now())
}

func (c *client) ResumeOrder(ctx context.Context, err error) (string, error) {
	open, ok := errors.AsType[*openError](err)
	if !ok {
		return "", err
	}
	return c.resume(ctx, open)
}

func (c *client) place(ctx context.Context, key string, body []byte, first time.Time) (string, error) {
	end := first.Add(c.end)
	for tries := 0; time.Now().Before(end); tries++ {
		a := c.try(ctx, key, body)
		switch id, v := c.judge(a); v {
		case created:
			return id, nil
		case final:
			return "", c.refused(tries, &openError{key, body, first, fmt.Sprintf("%d: %s", a.status, a.body)})
		}
		if err := sleep(ctx, c.pause(tries, a)); err != nil {
			return "", &openError{key, body, first, err.Error()}
		}
	}
	return "", &openError{key, body, first, "no answer"}
}

func judge(a answer) (string, verdict) {
	switch s := a.status; {
	case s == 201:
		order, sent := decode(a.body), decode(a.sent)
		if order.ID != "" && order.Item == sent.Item && order.Qty == sent.Qty &&
			reflect.DeepEqual(order.Fields, sent.Fields) {
			return order.ID, created
		}
		return "", again
	case s == 0, s == 408, s == 409, s == 429, s >= 500 && s != 501:
		return "", again
	}
	return "", final
}

type order struct {
	ID, Item string
	Qty      json.Number
	Fields   any // with numbers as they are written
}

// decode returns the zero value for what is no order.
func decode(body []byte) (o order) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&o) != nil {
		return order{}
	}
	return o
}

func pause(tries int, a answer) time.Duration { return told(a) + mathrand.N(waitLimit(tries)) }

// waitLimit is the limit of a wait without Retry-After.
func waitLimit(tries int) time.Duration { return min(time.Second/4<<min(tries, 20), time.Minute) }

// told is what Retry-After says.
func told(a answer) time.Duration {
	seconds, _ := strconv.Atoi(a.header.Get("Retry-After"))
	return time.Duration(min(max(seconds, 0), 3600)) * time.Second
}

// pauses changes the waits of a client.
func pauses(pause func(tries int, a answer) time.Duration) func(*client) {
	return func(c *client) { c.pause = pause }
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *client) send(ctx context.Context, key string, body []byte) answer {
	req, _ := http.NewRequestWithContext(ctx, "POST", c.url+"/v1/orders", bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	a := c.do(req)
	a.sent = body
	return a
}

// longest is how many bytes of an answer a client reads.
const longest = 1 << 20

func (c *client) do(req *http.Request) answer {
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}
	}
	defer res.Body.Close()
	if res.StatusCode == 101 { // what follows is not bounded by a Timeout
		return answer{status: 101}
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, longest))
	if err != nil || len(body) == longest {
		if c.whole {
			io.Copy(io.Discard, res.Body)
		}
		return answer{}
	}
	return answer{status: res.StatusCode, header: res.Header, body: body}
}

func (c *client) ListUsers(ctx context.Context) ([]string, error) {
	return c.list(ctx, "/v1/users", "after")
}

func (c *client) ListWidgets(ctx context.Context) ([]string, error) {
	return c.list(ctx, "/v2/widgets", "start")
}

func (c *client) ListOrders(ctx context.Context) ([]string, error) {
	return c.list(ctx, "/v1/orders", "after")
}

func (c *client) walk(ctx context.Context, path, cursor string) ([]string, error) {
	return c.walkBy(path, cursor, func(target string) (ids []string, next string, err error) {
		err = c.ask(ctx, target, "", func(a answer) (err error) {
			ids, next, err = c.page(a)
			return err
		})
		return ids, next, err
	})
}

func (c *client) walkBy(path, cursor string,
	read func(target string) ([]string, string, error)) ([]string, error) {
	query := url.Values{"limit": {strconv.Itoa(c.limit)}}
	return c.pages(path+"?"+query.Encode(), func(target string) (ids []string, next string, err error) {
		if ids, next, err = read(target); next != "" {
			query.Set(cursor, next)
			next = path + "?" + query.Encode()
		}
		return ids, next, err
	})
}

// pages returns the items of all pages, each of which read returns with the target of the next, or "".
func (c *client) pages(target string,
	read func(target string) ([]string, string, error)) (ids []string, _ error) {
	for target != "" {
		some, next, err := read(target)
		if err != nil {
			return nil, err
		}
		if !c.round && slices.ContainsFunc(some, func(id string) bool { return slices.Contains(ids, id) }) {
			return nil, fmt.Errorf("%s is not behind the page before", some)
		}
		ids, target = append(ids, some...), next
	}
	return ids, nil
}

// listBy makes a walk fail at the first answer that is no page.
func (c *client) listBy(fetch func(ctx context.Context, target string) answer) {
	c.list = func(ctx context.Context, path, cursor string) ([]string, error) {
		return c.walkBy(path, cursor, func(target string) ([]string, string, error) {
			return readPage(fetch(ctx, target))
		})
	}
}

// ask reads, up to five times, until take takes the answer.
func (c *client) ask(ctx context.Context, target, tag string, take func(answer) error) (err error) {
	for tries := range 5 {
		a := c.fetch(ctx, target, tag)
		if err = take(a); err == nil {
			return nil
		}
		if _, v := judge(a); v == final && a.status != 200 {
			return err
		}
		if err := sleep(ctx, pause(tries, a)); err != nil {
			return err
		}
	}
	return err
}

func readPage(a answer) (ids []string, next string, err error) {
	var page struct {
		Data    []struct{ ID string }
		HasMore *bool `json:"has_more"`
		Next    string
	}
	if err := json.Unmarshal(a.body, &page); err != nil || a.status != 200 || page.Data == nil ||
		page.HasMore == nil || *page.HasMore != (page.Next != "") {
		return nil, "", fmt.Errorf("%d, no page: %v", a.status, err)
	}
	for _, item := range page.Data {
		ids = append(ids, item.ID)
	}
	return ids, page.Next, nil
}

func (c *client) FindOrder(ctx context.Context, err error) (string, error) {
	open, ok := errors.AsType[*openError](err)
	if !ok {
		return "", err
	}
	return c.find(ctx, open.key)
}

func (c *client) look(ctx context.Context, key string) (id string, err error) {
	var ids []string
	err = c.ask(ctx, "/v1/orders?idempotency_key="+url.QueryEscape(key), "", func(a answer) (err error) {
		ids, _, err = c.page(a)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", clienttest.ErrNotCreated
	}
	return ids[0], nil
}

func (c *client) GetProduct(ctx context.Context, id string) (string, error) { return c.get(ctx, id) }

func (c *client) product(ctx context.Context, id string) (name string, err error) {
	err = c.ask(ctx, productPath(id), "", func(a answer) (err error) {
		name, err = nameIn(a, id)
		return err
	})
	return name, err
}

func productPath(id string) string { return "/v1/products/" + url.PathEscape(id) }

// nameIn returns the name of the product in an answer.
func nameIn(a answer, id string) (string, error) {
	var product struct{ ID, Name string }
	if err := json.Unmarshal(a.body, &product); err != nil || a.status != 200 || product.ID != id {
		return "", fmt.Errorf("%d: %s", a.status, a.body)
	}
	return product.Name, nil
}

func (c *client) fetch(ctx context.Context, target, tag string) answer {
	req, _ := http.NewRequestWithContext(ctx, "GET", c.url+target, nil)
	if tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	return c.do(req)
}

// A cache keeps a product, the last, as RFC 9111 says.
type cache struct {
	*client
	id      string
	kept    answer
	until   time.Time
	name    string
	useless func(answer) bool // whether an answer may not be reused without a question
}

func (c *cache) get(ctx context.Context, id string) (string, error) {
	if id != c.id {
		c.id, c.kept, c.name = id, answer{}, ""
	}
	if c.name != "" && time.Now().Before(c.until) {
		return c.name, nil
	}
	err := c.ask(ctx, productPath(id), c.kept.header.Get("ETag"), func(a answer) error {
		if a.status == 304 {
			a.status, a.body = 200, c.kept.body
		}
		name, err := nameIn(a, id)
		if err != nil {
			return err
		}
		age, _ := strconv.Atoi(a.header.Get("Age"))
		c.kept, c.name = a, name
		if c.until = time.Now().Add(time.Minute - time.Duration(age)*time.Second); c.useless(a) {
			c.until = time.Time{}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return c.name, nil
}

func newCache(c *client) *cache {
	kept := &cache{client: c, useless: func(a answer) bool { return a.header.Get("Cache-Control") != "private, max-age=60" }}
	c.get = kept.get
	return kept
}

var nextLink = regexp.MustCompile(`<([^>]*)>; rel="next"`)

// followLink makes walks follow Link.
func (c *client) followLink() {
	c.list = func(ctx context.Context, path, _ string) ([]string, error) {
		return c.pages(path+"?limit=2", func(target string) ([]string, string, error) {
			a := c.fetch(ctx, target, "")
			ids, _, err := readPage(a)
			next := nextLink.FindStringSubmatch(strings.Join(a.header["Link"], ", "))
			if next == nil || err != nil {
				return ids, "", err
			}
			page, _ := url.Parse(target)
			to, err := page.Parse(next[1])
			if err != nil {
				return nil, "", err
			}
			return ids, to.RequestURI(), nil
		})
	}
}

var (
	orders    = []conformance.Kind{conformance.Orders}
	fields    = []conformance.Kind{conformance.Fields}
	bodies    = []conformance.Kind{conformance.Orders, conformance.Fields}
	lists     = []conformance.Kind{conformance.Users, conformance.Widgets, conformance.History}
	products  = []conformance.Kind{conformance.Products}
	oneOfEach = []conformance.Kind{conformance.Orders, conformance.Users, conformance.Products}
)

// Each of these does in another way what may be done so, and breaks no promise.
var rightClients = []struct {
	name   string
	kinds  []conformance.Kind // that it does in another way
	change func(c *client)
}{
	{"the bodies of retries have other white space, and their members another sequence", bodies, func(c *client) {
		tries := 0
		c.try = func(ctx context.Context, key string, body []byte) answer {
			if tries++; tries > 1 {
				var o struct {
					Fields json.RawMessage `json:"fields,omitempty"`
					Item   string          `json:"item"`
					Qty    json.Number     `json:"qty"`
				}
				json.Unmarshal(body, &o)
				body, _ = json.MarshalIndent(o, "", "\t")
			}
			return c.send(ctx, key, body)
		}
	}},
	{"fields are decoded and encoded again, with each number as it is", fields, func(c *client) {
		c.encode = func(fields string) any { return decode([]byte(`{"fields":` + fields + `}`)).Fields }
	}},
	{"keys begin with the time", orders, func(c *client) {
		c.key = func(string) string { return fmt.Sprint(time.Now().UnixNano(), "-", rand.Text()) }
	}},
	{"a wait is at least half of its limit", orders, pauses(func(tries int, a answer) time.Duration {
		limit := waitLimit(tries) / 2
		return told(a) + limit + mathrand.N(limit)
	})},
	{"Retry-After is waited for up to a minute", orders, pauses(func(tries int, a answer) time.Duration {
		return min(pause(tries, a), time.Minute+mathrand.N(time.Second))
	})},
	{"a try has 10 seconds", oneOfEach, func(c *client) { c.http.Timeout = 10 * time.Second }},
	{"it goes on for two hours", orders, func(c *client) { c.end = 2 * time.Hour }},
	{"it leaves an order to a queue after 30 s", orders, queues(30*time.Second, 30*time.Second)},
	{"what may have been changed on its way is sent again", orders, func(c *client) {
		c.judge = func(a answer) (string, verdict) {
			if bytes.Contains(a.body, []byte("malformed-body")) || bytes.Contains(a.body, []byte("missing")) {
				return "", again
			}
			return judge(a)
		}
	}},
	{"it signs in after 401 and goes on", orders, func(c *client) {
		c.try = func(ctx context.Context, key string, body []byte) answer {
			a := c.send(ctx, key, body)
			if a.status == 401 {
				shop, _ := url.Parse(c.url)
				c.http.Jar, _ = cookiejar.New(nil)
				c.http.Jar.SetCookies(shop, []*http.Cookie{{Name: "session", Value: "1"}})
				a = c.send(ctx, key, body)
			}
			return a
		}
	}},
	{"it says that nothing was created if the first answer is final and to what it sent", orders, func(c *client) {
		onWay := regexp.MustCompile("key-(missing|invalid)|unsupported-media-type|invalid-query|not-found")
		c.refused = func(tries int, open *openError) error {
			if tries == 0 && !onWay.MatchString(open.text) {
				return fmt.Errorf("%w: %w", clienttest.ErrNotCreated, open)
			}
			return open
		}
	}},
	{"it looks around at its first requests", oneOfEach, func(c *client) {
		whole, requests := c.http.Transport, 0
		c.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if requests++; requests > 3 {
				return whole.RoundTrip(r)
			}
			for _, look := range []string{"OPTIONS " + r.URL.EscapedPath(), "GET /openapi.json", "HEAD /openapi.json",
				"GET /v1/orders?limit=1", "GET /v1/orders/ord_1", "GET /v2/widgets?limit=1", "GET /v1/users",
				"GET /v1/products/kettle"} {
				method, target, _ := strings.Cut(look, " ")
				path, _, _ := strings.Cut(target, "?")
				if method != "OPTIONS" && strings.HasPrefix(r.URL.Path, strings.TrimSuffix(path, "kettle")) {
					continue // what it reads anyway
				}
				req, _ := http.NewRequestWithContext(r.Context(), method, c.url+target, nil)
				if res, err := whole.RoundTrip(req); err == nil {
					res.Body.Close()
				}
			}
			return whole.RoundTrip(r)
		})
	}},
	{"an answer that is too long is final by its status", orders, func(c *client) {
		whole := c.http.Transport
		c.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			res, err := whole.RoundTrip(r)
			if err == nil && res.StatusCode == 403 {
				res.Body = struct {
					io.Reader
					io.Closer
				}{io.LimitReader(res.Body, 1000), res.Body}
			}
			return res, err
		})
	}},
	{"reads are not tried again", lists, func(c *client) {
		c.limit = 2
		c.listBy(func(ctx context.Context, target string) answer { return c.fetch(ctx, target, "") })
	}},
	{"reads take another password after 401", lists, func(c *client) {
		c.listBy(func(ctx context.Context, target string) answer {
			a := c.fetch(ctx, target, "")
			if a.status == 401 {
				req, _ := http.NewRequestWithContext(ctx, "GET", c.url+target, nil)
				req.SetBasicAuth("ada", "secret")
				a = c.do(req)
			}
			return a
		})
	}},
	{"products are kept", products, func(c *client) { newCache(c) }},
	{"pages are kept, and asked for again each time", lists, func(c *client) {
		kept := make(map[string]answer)
		c.limit = 2
		c.listBy(func(ctx context.Context, target string) answer {
			a := c.fetch(ctx, target, kept[target].header.Get("ETag"))
			if a.status == 304 && kept[target].body != nil {
				return kept[target]
			}
			if a.status == 200 {
				kept[target] = a
			}
			return a
		})
	}},
	{"walks follow Link", lists, (*client).followLink},
}

func TestRightClientPasses(t *testing.T) {
	t.Parallel()
	clienttest.RunSynctest(t, func(_ *testing.T, s clienttest.Service) clienttest.Client { return newClient(s) })
}

func TestRightClientsPass(t *testing.T) {
	for _, r := range rightClients {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			trial := clienttest.Trial{Seed: 1, Kinds: r.kinds, Waits: true}
			if broken := trial.Broken(t, func(_ *testing.T, s clienttest.Service) clienttest.Client {
				c := newClient(s)
				r.change(c)
				return c.asked()
			}); len(broken) > 0 {
				t.Errorf("It is accused of %q.", broken)
			}
		})
	}
}

// In real time, all faults are met over a real network at the same time.
func TestRightClientPassesInRealTime(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, func(t *testing.T, s clienttest.Service) clienttest.Client {
		c := newClient(s)
		c.http.Timeout = 10 * time.Second // so that the test takes half a minute
		return lister{c, t}
	})
}

// A lister fails if its test may end before a walk does: that of a walk, and of all, may not.
type lister struct {
	*client
	t *testing.T
}

func (l lister) ListUsers(ctx context.Context) ([]string, error) {
	if strings.Contains(l.t.Name(), "/orders") {
		return nil, fmt.Errorf("the client was made for %s", l.t.Name())
	}
	return l.client.ListUsers(ctx)
}
