// Package audit creates orders through the replicas of a shop while someone makes
// them fail, and then holds the shop to what it has acknowledged. It knows what a
// client sees, and nothing else.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"example.com/storefront"
	"example.com/storefront/internal/elapsed"
	"example.com/storefront/internal/ijson"
)

// A Config says what an Audit does.
type Config struct {
	URLs     []string          // of the replicas, without /v1/orders: at least one
	Orders   int               // to create
	Clients  int               // that create them at the same time
	Seed     uint64            // of the clients' random choices
	Prefix   string            // of the keys; a number follows
	Item     string            // of every order; if empty, each is of an item named like its key
	Header   http.Header       // of every request, beside what an order needs
	Fields   storefront.Fields // of every order, or ""; in them, {key} stands for its key
	Timeout  time.Duration     // of a request
	Patience time.Duration     // how long nothing may be acknowledged before the audit gives up

	// Proxies says that others may answer in the shop's place. A client takes 408,
	// 429, 502, 504 and any 503 from them as a reason to try again; where there are
	// no proxies, they are faults, and so is a 503 without Retry-After.
	Proxies bool

	// Before, unless it is nil, is called before an order is sent for the first time,
	// by several goroutines. It may wait, until ctx is done.
	Before func(ctx context.Context)

	// OnFault, unless it is nil, is called for every fault, by several goroutines.
	OnFault func(Fault)
}

// A Kind is a way to break a promise; Unanswered may be one, and Unexpected is a failure that may break none.
type Kind int

const (
	Lost       Kind = iota // the key of an acknowledged order creates another one, is refused, or shows none
	Changed                // a key is answered with another body than before
	Duplicated             // two responses say that they have created the order of one key
	Wrong                  // what is acknowledged is not what was ordered, or is another key's order
	Unanswered             // a key has no answer, however often it is sent
	Unexpected             // a response that neither acknowledges nor says to try again
	Kinds                  // how many there are
)

func (k Kind) String() string {
	return [...]string{"lost", "replayed differently", "created twice", "acknowledged as another order",
		"unanswered", "answered unexpectedly"}[k]
}

// A Fault is a promise that was broken. There is one of each kind for a key, but
// one for each response that is unexpected.
type Fault struct {
	Kind   Kind
	Key    string
	Detail string // for people
	Body   []byte // of the response, if there is one
}

func (f Fault) String() string { return fmt.Sprintf("%s is %s: %s", f.Key, f.Kind, f.Detail) }

// An Order is an order that was sent.
type Order struct {
	Key, Item string
	Qty       int64
	Fields    storefront.Fields
	Body      []byte // of the first response that acknowledged it, or nil
}

// An order is an Order and what else is known of it, which the Audit's mutex
// guards.
type order struct {
	Order
	began   time.Time // when it was sent for the first time
	created int       // how many responses say that they have created it
	broken  [Kinds]bool
}

// An Outcome is what became of a request.
type Outcome uint8

const (
	NoAnswer     Outcome = iota // none at all, or not all of it, in time
	Acknowledged                // 201, which was read to its end
	TryAgain                    // 409 or 503, or what proxies say
	Odd                         // any other response
	HungUp                      // the client did, on purpose
	Outcomes                    // how many there are
)

// An Audit creates orders and then replays them. Call First, if it is not known that
// orders are acknowledged at all, then Create, then Replay, each once, and then Result;
// the other methods may be called at any time.
type Audit struct {
	Config  Config
	client  http.Client
	typical atomic.Int64 // how many nanoseconds an acknowledged request takes

	mu       sync.Mutex
	changed  chan struct{}     // closed and replaced when Progress has changed
	orders   []*order          // that were sent
	keys     map[string]string // by the ID of the order
	result   Result            // without what current adds
	lastAck  time.Time         // or when the creating began
	patience *time.Timer       // which ends the creating; nil before
}

// A Progress is how far an Audit has come.
type Progress struct {
	Sent         int           // orders that were sent
	Acknowledged int           // orders that were acknowledged
	Failed       int           // requests of the creating that were not, unless the client hung up
	Failure      string        // of the last request that failed, in few words
	Gap          time.Duration // since an order was last acknowledged
	Created      bool          // no more orders are sent
	Replayed     int           // keys that a replica has replayed as it should, times replicas
	Faults       int
}

// longestPause is between two tries. It is short on purpose: a gap is measured as
// finely, and what has just come back has as much to do.
const longestPause = 100 * time.Millisecond

// A shop may forget a key after storefront.KeyLifetime, and what is sent with it then is another order. So no
// key is replayed that is older than OldestKey, an hour less, as requests take time; and no order is sent for
// the first time after LongestCreating, so that there is time for the replaying.
const (
	OldestKey       = storefront.KeyLifetime - time.Hour
	LongestCreating = 20 * time.Hour
)

// firstPause is between two rounds of tries of the first order.
const firstPause = time.Second / 2

// keptFaults is how many faults of each kind are kept.
const keptFaults = 3

// New returns an Audit that has not done anything yet.
func New(c Config) *Audit {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns = 0                    // no limit
	transport.MaxIdleConnsPerHost = 2 * c.Clients // some send two requests at once
	a := &Audit{
		Config: c,
		client: http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		changed: make(chan struct{}),
		keys:    make(map[string]string),
		result:  Result{Statuses: make(map[int]int)},
	}
	a.typical.Store(int64(2 * time.Millisecond))
	return a
}

// Progress returns how far the audit has come.
func (a *Audit) Progress() Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current()
}

func (a *Audit) current() Progress {
	p := a.result.Progress
	if !a.result.Began.IsZero() && !p.Created {
		p.Gap = time.Since(a.lastAck)
	}
	return p
}

// Wait waits until the progress is enough, and returns whether it is: it may never
// be if ctx is done or no more orders are sent.
func (a *Audit) Wait(ctx context.Context, enough func(Progress) bool) bool {
	for {
		a.mu.Lock()
		p, changed := a.current(), a.changed
		a.mu.Unlock()
		switch {
		case enough(p):
			return true
		case p.Created:
			return false
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// change changes what the mutex guards, and tells those who wait.
func (a *Audit) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

// Orders returns the orders that were sent.
func (a *Audit) Orders() (orders []Order) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.orders {
		orders = append(orders, o.Order)
	}
	return orders
}

// A NotStarted is why the first order was not acknowledged.
type NotStarted struct {
	URL     string // of the replica that was asked last, without a password
	Status  int    // of its response, or 0
	Failure string // in few words
	Detail  string
}

func (e *NotStarted) Error() string { return e.Detail }

// First sends the first order alone, in rounds: once to each replica in turn, until one
// acknowledges it. So a wrong URL or a missing sign-in costs few requests, and is no
// broken promise. It returns a *NotStarted, after which there is nothing to create or
// replay, if a response is neither the order nor a reason to try again, if no replica
// has acknowledged the order for as long as wait, or if ctx is done. The creating begins
// with the last round.
func (a *Audit) First(ctx context.Context, wait time.Duration) error {
	asked := time.Now()
	o := a.newOrder(1)
	for {
		var failed *NotStarted
		a.change(func() {
			a.begin()
			o.began = a.lastAck
		})
		for _, url := range a.Config.URLs {
			answer := a.exchange(ctx, o, url)
			var got storefront.Order // be it the one that was sent or not
			isOrder := json.Unmarshal(answer.body, &got) == nil && got.ID != ""
			if answer.outcome == Acknowledged && isOrder {
				a.record(answer)
				a.acknowledge(o, url, answer, false)
				continue
			}
			if answer.outcome == Acknowledged {
				answer.problem += ", which is no order"
			}
			a.change(func() { a.result.Failure = answer.brief })
			failed = &NotStarted{URL: Shown(url), Status: answer.status, Failure: answer.brief,
				Detail: printable(answer.problem)}
			if answer.final || answer.outcome == Acknowledged {
				return failed
			}
		}
		switch {
		case a.isAcknowledged(o):
			a.change(func() { a.sent(o) })
			return nil
		case time.Since(asked) >= wait:
			return failed
		}
		select {
		case <-ctx.Done():
			return failed
		case <-time.After(firstPause):
		}
	}
}

// begin begins the creating. The mutex is locked.
func (a *Audit) begin() {
	a.lastAck = time.Now()
	a.result.Began = a.lastAck
}

// errImpatient ends the creating when nothing was acknowledged for long.
var errImpatient = errors.New("nothing was acknowledged for long")

// Create creates the orders, or as many as it can send within LongestCreating. It returns once all are
// acknowledged or refused, ctx is done, or nothing was acknowledged for as long as it is patient.
func (a *Audit) Create(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var taken atomic.Int64
	var began time.Time
	a.change(func() {
		if len(a.orders) == 0 {
			a.begin()
		}
		began = a.result.Began
		taken.Store(int64(len(a.orders)))
		a.patience = time.AfterFunc(a.Config.Patience, func() { cancel(errImpatient) })
	})
	var clients sync.WaitGroup
	for i := range a.Config.Clients {
		rng := rand.New(rand.NewPCG(a.Config.Seed, uint64(i+1)))
		clients.Go(func() {
			for ctx.Err() == nil {
				n := int(taken.Add(1))
				if n > a.Config.Orders {
					return
				}
				if a.Config.Before != nil {
					a.Config.Before(ctx)
				}
				if elapsed.Since(began) > LongestCreating {
					return
				}
				a.create(ctx, n, rng)
			}
		})
	}
	clients.Wait()
	a.change(func() {
		a.patience.Stop()
		now := time.Now()
		a.result.Creating = now.Sub(a.result.Began)
		a.result.Created = true
		a.endGap(now)
	})
}

// endGap notes how long no order was acknowledged until now. The mutex is locked.
func (a *Audit) endGap(now time.Time) {
	if gap := now.Sub(a.lastAck); gap > a.result.LongestGap {
		a.result.GapBegan, a.result.LongestGap = a.lastAck.Sub(a.result.Began), gap
	}
	a.lastAck = now
}

// newOrder returns the order with a number, from 1 on. The first n orders want 5n pieces at most, as
// cmd/exactlyonce says.
func (a *Audit) newOrder(n int) *order {
	key := a.Config.Prefix + strconv.Itoa(n)
	o := &order{Order: Order{Key: key, Item: a.Config.Item, Qty: int64(1 + (n-1)%9)}, began: time.Now()}
	if o.Item == "" {
		o.Item = o.Key
	}
	o.Fields = storefront.Fields(strings.ReplaceAll(string(a.Config.Fields), "{key}", o.Key))
	return o
}

// sent notes an order that is sent. The mutex is locked.
func (a *Audit) sent(o *order) {
	a.orders = append(a.orders, o)
	a.result.Sent++
}

// create sends an order, in the ways that clients do, until it is acknowledged.
func (a *Audit) create(ctx context.Context, n int, rng *rand.Rand) {
	o := a.newOrder(n)
	a.change(func() { a.sent(o) })
	problem := "no answer yet"
	for pause, try := time.Millisecond, n; ; pause, try = min(2*pause, longestPause), try+1 {
		if elapsed.Since(o.began) > OldestKey {
			a.fault(Unanswered, o, nil, "its key is older than %v: %s", OldestKey, problem)
			return
		}
		var first, second answer
		switch rng.IntN(10) {
		case 0: // twice at once
			var twin sync.WaitGroup
			twin.Go(func() { second = a.send(ctx, o, a.url(try+1), false) })
			first = a.send(ctx, o, a.url(try), false)
			twin.Wait()
		case 1: // hang up early
			hangUp, cancel := context.WithTimeout(ctx, time.Duration(2*rng.Float64()*float64(a.typical.Load())))
			first = a.send(hangUp, o, a.url(try), false)
			cancel()
		default:
			first = a.send(ctx, o, a.url(try), false)
		}
		if first.outcome == Acknowledged || second.outcome == Acknowledged || first.final {
			return
		}
		if first.outcome != HungUp {
			problem = first.problem
		}
		a.change(func() { a.result.Retries++ })
		wait := rand.N(pause)
		if first.says {
			wait = longestPause
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			if context.Cause(ctx) == errImpatient {
				a.fault(Unanswered, o, nil, "nothing was acknowledged for %v: %s", a.Config.Patience, problem)
			}
			return
		}
	}
}

func (a *Audit) url(try int) string { return a.Config.URLs[try%len(a.Config.URLs)] }

// An answer is what came of a request.
type answer struct {
	outcome  Outcome
	took     time.Duration
	status   int    // of the response, or 0
	body     []byte // of the response
	replayed bool   // the response says that the order was there
	readable bool   // it says that the shop serves orders
	says     bool   // it says when to try again, in seconds
	final    bool   // the order is not to be sent again, although it is not acknowledged
	brief    string // why it is not acknowledged, in few words
	problem  string // the same with more words
}

// send sends an order to a replica and checks the response.
func (a *Audit) send(ctx context.Context, o *order, url string, replaying bool) answer {
	acknowledged := a.isAcknowledged(o) // not afterwards: of two tries at once, the other one may be by then
	result := a.exchange(ctx, o, url)
	switch {
	case result.outcome == Acknowledged:
		a.acknowledge(o, url, result, replaying)
		if result.readable {
			a.readBack(ctx, o, url)
		}
	case result.status == http.StatusUnprocessableEntity && acknowledged:
		a.fault(Lost, o, result.body, "it was acknowledged, and then %s", result.problem)
	case result.outcome == Odd:
		a.fault(Unexpected, o, result.body, "%s", result.problem)
	}
	if !replaying {
		a.record(result)
	}
	return result
}

// exchange sends an order to a replica. The order is acknowledged if the response says
// so and was read to its end.
func (a *Audit) exchange(ctx context.Context, o *order, url string) answer {
	began := time.Now()
	text, err := json.Marshal(struct {
		Item   string            `json:"item"`
		Qty    int64             `json:"qty"`
		Fields storefront.Fields `json:"fields,omitempty"`
	}{o.Item, o.Qty, o.Fields})
	var w *http.Response
	var body []byte
	if err == nil {
		// In its usual case, the key would have the transport send a request again by itself when a connection
		// breaks. What no server has processed, as after GOAWAY, it sends again as it is.
		w, body, err = a.do(ctx, http.MethodPost, url+"/v1/orders", text,
			http.Header{"Content-Type": {"application/json"}, "idempotency-key": {o.Key}})
	}
	deadline, ok := ctx.Deadline() // dialing may end at it before ctx does
	switch {
	case err == nil:
	case ctx.Err() != nil || ok && !time.Now().Before(deadline):
		return answer{outcome: HungUp, brief: "interrupted", problem: "the client hung up"}
	case errors.Is(err, context.DeadlineExceeded):
		return answer{brief: fmt.Sprintf("no answer within %v", a.Config.Timeout), problem: err.Error()}
	default:
		return answer{brief: rootOf(err).Error(), problem: err.Error()}
	}
	code, retryAfter := w.StatusCode, w.Header.Get("Retry-After")
	seconds, err := strconv.Atoi(retryAfter)
	result := answer{
		took: time.Since(began), status: code, body: body,
		replayed: w.Header.Get("Idempotent-Replayed") == "true",
		readable: w.Header.Get("Location") != "",
		says:     err == nil && seconds > 0,
		brief:    strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code))),
		problem:  fmt.Sprintf("%s answers %s: %.500s", Shown(url), w.Status, body),
	}
	again := false
	switch code {
	case http.StatusCreated:
		result.outcome = Acknowledged
		return result
	case http.StatusConflict, http.StatusServiceUnavailable:
		again = result.says || a.Config.Proxies && code == http.StatusServiceUnavailable &&
			w.Header.Get("Content-Type") != "application/problem+json"
		result.problem += fmt.Sprintf(" (with Retry-After %q)", retryAfter)
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout:
		again = a.Config.Proxies
	default:
		result.final = code < 500 || code == http.StatusNotImplemented
	}
	if result.outcome = Odd; again {
		result.outcome = TryAgain
	}
	return result
}

// do sends a request with the headers that each has, and reads the response to its end.
func (a *Audit) do(ctx context.Context, method, url string, body []byte, header http.Header) (*http.Response,
	[]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Config.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(r.Header, a.Config.Header)
	maps.Copy(r.Header, header)
	r.Host = r.Header.Get("Host")
	w, err := a.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		err = fmt.Errorf("the response %s ends early: %w", w.Status, err)
	}
	return w, text, err
}

// readBack asks a replica for the order of a key that was acknowledged. What is no page says nothing: the
// replica may have failed since.
func (a *Audit) readBack(ctx context.Context, o *order, replica string) {
	query := "?idempotency_key=" + url.QueryEscape(o.Key)
	w, body, err := a.do(ctx, http.MethodGet, replica+"/v1/orders"+query, nil, nil)
	var page struct{ Data []json.RawMessage }
	if err != nil || w.StatusCode != http.StatusOK || json.Unmarshal(body, &page) != nil || page.Data == nil {
		return
	}
	var shown, acknowledged storefront.Order
	if len(page.Data) > 0 && ijson.Unmarshal(page.Data[0], &shown) != nil { // which the shop may have added to
		return
	}
	a.change(func() {
		a.result.Read++
		err = json.Unmarshal(o.Body, &acknowledged)
	})
	switch {
	case len(page.Data) == 0:
		a.fault(Lost, o, body, "it was acknowledged as\n%s\nand then %s shows no order of its key", o.Body,
			Shown(replica))
	case err == nil && !shown.Equal(acknowledged):
		a.fault(Changed, o, body, "it was first acknowledged as\n%s\nand then %s shows\n%s", o.Body,
			Shown(replica), body)
	}
}

// rootOf returns the innermost of the errors that err wraps.
func rootOf(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// printable returns a text in which a response cannot control a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return '?'
		}
		return r
	}, text)
}

// Shown returns a URL with xxxxx in place of its password, for people to read. A text that is
// no URL is returned as it is.
func Shown(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return u.Redacted()
}

// record keeps what became of a request of the creating.
func (a *Audit) record(result answer) {
	a.change(func() {
		r := &a.result
		r.Outcomes[result.outcome]++
		switch result.outcome {
		case Acknowledged:
			a.typical.Add((int64(result.took) - a.typical.Load()) / 64)
			return
		case HungUp:
			return
		case TryAgain:
			r.Statuses[result.status]++
		}
		r.Failed++
		r.Failure = result.brief
	})
}

func (a *Audit) isAcknowledged(o *order) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return o.Body != nil
}

// acknowledge notes and checks a response that acknowledges an order.
func (a *Audit) acknowledge(o *order, url string, response answer, replaying bool) {
	body, replayed := response.body, response.replayed
	url = Shown(url)
	var got, first storefront.Order
	err := json.Unmarshal(body, &got)
	same, otherKey, created := true, "", 0
	a.change(func() {
		if o.Body == nil {
			now := time.Now()
			o.Body = body
			a.result.Latencies = append(a.result.Latencies, now.Sub(o.began))
			a.endGap(now)
			if a.patience != nil {
				a.patience.Reset(a.Config.Patience)
			}
			a.result.Acknowledged++
		}
		same = bytes.Equal(body, o.Body)
		if err == nil && got.ID != "" {
			if _, ok := a.keys[got.ID]; !ok {
				a.keys[got.ID] = o.Key
			}
			otherKey = a.keys[got.ID]
		}
		if replayed && !replaying {
			a.result.Replays++
		}
		if !replayed {
			o.created++
		}
		created = o.created
		if replaying && replayed && same {
			a.result.Replayed++
		}
	})
	another := json.Unmarshal(o.Body, &first) != nil || got.ID != first.ID
	switch {
	case err != nil || got.Item != o.Item || got.Qty != o.Qty || got.Fields != o.Fields || got.ID == "" ||
		got.CreatedAt.IsZero():
		a.fault(Wrong, o, body, "%d of %q with fields %q are acknowledged by %s as %.500s", o.Qty, o.Item, o.Fields,
			url, body)
	case otherKey != o.Key:
		a.fault(Wrong, o, body, "%s acknowledges it with the order of %s: %s", url, otherKey, body)
	case replaying && !replayed && another:
		a.fault(Lost, o, body, "it was acknowledged as\n%s\nand then %s has created\n%s", o.Body, url, body)
	case !replayed && !another && (replaying || created > 1):
		a.fault(Duplicated, o, body, "it was acknowledged before, and then %s answers with the same order, but "+
			"without Idempotent-Replayed: true, as if it had created it now. Does something on the way drop "+
			"that header?\n%s", url, body)
	case !replayed && created > 1:
		a.fault(Duplicated, o, body, "it was first acknowledged as\n%s\nand then %s has created\n%s", o.Body,
			url, body)
	case !same:
		a.fault(Changed, o, body, "it was first acknowledged as\n%s\nand then by %s as\n%s", o.Body, url,
			body)
	}
}

// fault notes a fault.
func (a *Audit) fault(kind Kind, o *order, body []byte, format string, args ...any) {
	f := Fault{Kind: kind, Key: o.Key, Detail: printable(fmt.Sprintf(format, args...)), Body: body}
	known := false
	a.change(func() {
		known = o.broken[kind] && kind != Unexpected ||
			kind == Changed && o.broken[Lost] // what the key has created instead is replayed and shown since then
		if known {
			return
		}
		o.broken[kind] = true
		r := &a.result
		r.Broken[kind]++
		r.Progress.Faults++
		if len(r.Faults[kind]) < keptFaults {
			r.Faults[kind] = append(r.Faults[kind], f)
		}
	})
	if !known && a.Config.OnFault != nil {
		a.Config.OnFault(f)
	}
}

// Replay sends the key of every acknowledged order to every replica once more. A
// replica that does not answer is given as much time as there is patience, from when it was asked or
// has last answered. Replay leaves out what is older than OldestKey, and returns early if ctx is done.
func (a *Audit) Replay(ctx context.Context) {
	// What is left of the faults is not what a replay is to meet.
	a.client.CloseIdleConnections()
	began := time.Now()
	var orders []*order
	a.mu.Lock()
	for _, o := range a.orders {
		if o.Body != nil {
			orders = append(orders, o)
		}
	}
	a.mu.Unlock()
	replicas := make([]*replica, len(a.Config.URLs))
	for i, url := range a.Config.URLs {
		replicas[i] = &replica{url: url}
	}
	var clients sync.WaitGroup
	var taken atomic.Int64
	for range a.Config.Clients {
		clients.Go(func() {
			for ctx.Err() == nil {
				n := int(taken.Add(1)) - 1
				if n >= len(orders) {
					return
				}
				for _, r := range replicas {
					a.replay(ctx, orders[n], r)
				}
			}
		})
	}
	clients.Wait()
	a.client.CloseIdleConnections()
	a.change(func() { a.result.Replaying = time.Since(began) })
}

// A replica is one that keys are sent to again. The Audit's mutex guards it.
type replica struct {
	url      string
	answered time.Time // the last time
	problem  string    // unless it is empty, the replica is given up
}

// replay sends a key to a replica until it answers.
func (a *Audit) replay(ctx context.Context, o *order, r *replica) {
	asked := time.Now() // perhaps long after an answer: all clients may have waited for another replica
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		a.mu.Lock()
		problem, old := r.problem, elapsed.Since(o.began) > OldestKey
		a.mu.Unlock()
		if old {
			a.change(func() { a.result.Old++ })
			return
		}
		if problem != "" {
			a.fault(Unanswered, o, nil, "it was acknowledged, and at the end %s does not replay it: %s", Shown(r.url),
				problem)
			return
		}
		answer := a.send(ctx, o, r.url, true)
		if answer.outcome == HungUp {
			return
		}
		done := answer.outcome == Acknowledged || answer.final
		a.change(func() {
			if done {
				r.answered = time.Now()
				return
			}
			a.result.Again++
			if min(time.Since(r.answered), time.Since(asked)) > a.Config.Patience {
				r.problem = answer.problem
			}
		})
		if done {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
