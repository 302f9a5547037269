package faults

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/httpfield"
	"example.com/storefront/internal/orderid"
)

// A Shop is an [http.Handler]. Its server must not close connections by itself before 3
// minutes have passed, and each connection should be for one request only: some clients send
// a request again by themselves where a connection that they kept breaks.
type Shop struct {
	Service http.Handler // without faults

	store  *storefront.MemStore
	closed chan struct{}
	open   sync.WaitGroup // requests

	mu      sync.Mutex
	dice    Dice
	current *Call
	cursors map[string]string // those that were given out, and those of the service
}

// perPage is how many items a page has, of lists of three pages.
const perPage = 3

// New returns a shop for one client. The seed and the name decide what is left to chance.
// Requests belong to the call that has begun last.
func New(seed uint64, name string, pace Pace) *Shop {
	store := new(storefront.MemStore)
	for _, id := range []string{"007", "ada", "barbara", `edsger  w. "d", jr.`, "grace", "li\u0301nus", "tony"} {
		store.Users.Put(storefront.MustResource(id, nil))
	}
	for i := range 7 {
		store.Widgets.Put(storefront.MustResource(fmt.Sprint("w", i+1), nil))
	}
	s := &Shop{
		store: store, closed: make(chan struct{}), dice: newDice(seed, name, pace),
		cursors: make(map[string]string),
		Service: storefront.NewWithOptions(store, &storefront.Options{
			MaxAge: pace.MaxAge(), Logger: slog.New(slog.DiscardHandler), OrderFields: true,
			Orders: store, Scope: func(*http.Request) string { return account },
		}),
	}
	for i := range 8 {
		s.putOrder([]string{account, "another"}[i/7])
	}
	s.PutProduct("teapot", "Teapot")
	return s
}

// account is whose orders a client places and lists, whatever it signs in with.
const account = "client"

// putOrder creates an order, and returns its ID.
func (s *Shop) putOrder(scope string) (id string) {
	now := time.Now()
	order := storefront.Order{ID: orderid.New(now), Item: "kettle", Qty: 1, CreatedAt: now}
	s.store.CreateOrder(context.Background(), storefront.IdempotencyKey{Scope: scope, Value: order.ID}, order)
	return order.ID
}

// PutProduct changes the name of a product.
func (s *Shop) PutProduct(id, name string) {
	s.store.Products.Put(storefront.MustResource(id, map[string]string{"name": name}))
}

// Begin begins a call.
func (s *Shop) Begin(kind conformance.Kind, f *Fault) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Call{shop: s, fault: f, Call: conformance.Call{
		Kind: kind, Began: time.Now(),
		Fault: f.Name, Lasting: f.Forever || f.Later > 0, Clean: !f.Final,
		Outage: f.Name == Outage && s.dice.pace != Seconds, // in real time, a busy machine doubles waits
	}}
	if kind.IsList() {
		c.Items = s.items(kind)
	}
	if f.steps != nil {
		c.steps = f.steps(s.dice)
	}
	for _, st := range c.steps {
		c.Clean = c.Clean && st.answer == nil && st.delivery == conformance.Whole && !st.stale
	}
	s.current = c
	return c
}

// items returns the IDs of a list.
func (s *Shop) items(kind conformance.Kind) (ids []string) {
	if kind == conformance.History {
		orders, _ := s.store.ListOrders(context.Background(), account, "", 100) // has no errors
		for _, o := range orders {
			ids = append(ids, o.ID())
		}
		return ids
	}
	for item := range s.list(kind).All() {
		ids = append(ids, item.ID())
	}
	return ids
}

func (s *Shop) list(kind conformance.Kind) *storefront.Collection {
	if kind == conformance.Widgets {
		return &s.store.Widgets
	}
	return &s.store.Users
}

// View calls f, during which no call changes.
func (s *Shop) View(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Close ends the requests that are under way.
func (s *Shop) Close() {
	close(s.closed)
	s.open.Wait()
}

// ServeHTTP answers as the fault says.
func (s *Shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.open.Add(1)
	defer s.open.Done()
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(time.Minute)) // for the body
	control.SetWriteDeadline(time.Time{})
	w.Header().Set("Connection", "close")
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<17)) // of which the service refuses half
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	control.SetReadDeadline(time.Time{})
	e := &conformance.Exchange{
		At: time.Now(), Method: r.Method, Target: r.URL.RequestURI(),
		Key:  key(r.Header.Get("Idempotency-Key")),
		Body: body, Tag: r.Header.Get("If-None-Match"), Path: r.URL.Path,
		Credentials: r.Header.Get("Authorization") + "\n" + r.Header.Get("Cookie"),
	}
	a, st := s.take(r, e)

	// A client that has an answer may be quicker than this goroutine: when the answer comes is
	// noted before it is sent.
	left := s.leaves(r.Context()) ||
		st.delivery == conformance.Late && !s.wait(r.Context(), 35*time.Second) ||
		st.delivery == conformance.Silent && !s.wait(r.Context(), conformance.LongestTry)
	s.mu.Lock()
	e.Left, e.Ended, e.Interim = left, time.Now(), st.interim != nil && !left
	s.mu.Unlock()
	if left { // or the shop closes, and the client is still there
		panic(http.ErrAbortHandler)
	}
	if s.send(w, a, st) {
		return
	}
	s.mu.Lock()
	e.Left = true
	s.mu.Unlock()
}

// key returns the key in a line of Idempotency-Key, which is the same bare and in quotes.
func key(line string) string {
	if unquoted, ok := httpfield.ParseStringItem(line); ok {
		return unquoted
	}
	return line
}

// take adds the exchange to its call, and returns the answer and how it is sent.
func (s *Shop) take(r *http.Request, e *conformance.Exchange) (*conformance.Answer, step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.current
	if len(call.Exchanges) >= call.Kind.MostRequests() {
		panic(http.ErrAbortHandler)
	}
	st := call.take(e)
	if st.times > 0 {
		call.arrive()
	}
	a := new(conformance.Answer)
	for range st.times {
		a = s.get(call, e, r, st)
	}
	if st.held {
		call.held, e.Held = append(call.held, heldRequest{e, r}), true
	}
	if st.answer != nil {
		a = st.answer
	}
	if string(a.Body) == forged {
		order := e.Order()
		order.ID, order.CreatedAt = "ord_FORGED", e.At
		body, _ := json.Marshal(order)
		a = &conformance.Answer{Status: a.Status, Header: a.Header, Body: body}
	}
	e.Answer, e.Delivery, e.FromService = *a, st.delivery, st.answer == nil && st.way == nil
	return a, st
}

// get has the service answer a request as its step says.
func (s *Shop) get(c *Call, e *conformance.Exchange, r *http.Request, st step) *conformance.Answer {
	if e.Expected && c.Kind.IsList() {
		return s.page(c, e, r, st)
	}
	if st.way != nil {
		r = r.Clone(r.Context())
		st.way(r)
	}
	a := s.ask(r, r.URL.RawQuery, e.Body)
	if id := created(a); id != "" {
		e.Created = id
	}
	if st.edit != nil {
		st.edit(a)
	}
	return a
}

// ask returns the answer of the service.
func (s *Shop) ask(r *http.Request, query string, body []byte) *conformance.Answer {
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.URL.RawQuery = query
	r.Body = io.NopCloser(bytes.NewReader(body))
	a := &conformance.Answer{Header: make(http.Header)}
	s.Service.ServeHTTP(recorder{a}, r)
	return a
}

// A recorder writes a response into an answer.
type recorder struct{ *conformance.Answer }

func (w recorder) Header() http.Header    { return w.Answer.Header }
func (w recorder) WriteHeader(status int) { w.Status = status } // which the service always does
func (w recorder) Write(b []byte) (int, error) {
	w.Body = append(w.Body, b...)
	return len(b), nil
}

// page answers with a page of a few items, and with cursors of its own. Its tag stands for
// the service's page: whoever has kept that has a cursor that is still good.
func (s *Shop) page(c *Call, e *conformance.Exchange, r *http.Request, st step) *conformance.Answer {
	if st.change {
		c.change()
	}
	name := "after"
	if c.Kind == conformance.Widgets {
		name = "start"
	}
	query := r.URL.Query()
	if query.Has(name) {
		e.Cursor = query.Get(name)
		if real, ok := s.cursors[e.Cursor]; ok {
			e.CursorKnown = true
			query.Set(name, real)
			if real == "" {
				query.Del(name)
			}
		}
	}
	if st.stale {
		query.Del(name)
	}
	position := query.Get(name)
	sent := r.URL.RawQuery
	if e.CursorKnown || st.stale {
		sent = query.Encode()
	}
	a := s.ask(r, sent, e.Body)
	limit := query.Get("limit")
	// What the service refuses stays refused.
	if n, _ := strconv.Atoi(limit); a.Status == http.StatusOK && (limit == "" || n > perPage) {
		query.Set("limit", strconv.Itoa(perPage))
		a = s.ask(r, query.Encode(), e.Body)
	}
	var page struct {
		Data    []json.RawMessage `json:"data"`
		HasMore bool              `json:"has_more"`
		Next    string            `json:"next,omitempty"`
	}
	if a.Status != http.StatusOK || len(a.Body) == 0 || json.Unmarshal(a.Body, &page) != nil {
		return a
	}
	if st.empty {
		page.Data, page.HasMore, page.Next = []json.RawMessage{}, true, position
	}
	a.Header.Del("Link")
	a.Header.Del("Content-Length")
	a.Body, _ = json.Marshal(page)
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(a.Body))
	a.Header.Set("ETag", tag)
	if strings.Contains(e.Tag, tag) {
		a.Status, a.Body = http.StatusNotModified, nil
		a.Header.Del("Content-Type")
		a.Header.Del("X-Content-Type-Options")
		return a
	}
	if page.HasMore {
		page.Next = s.cursor(page.Next)
		link := url.Values{"limit": {limit}}
		if limit == "" {
			link.Del("limit")
		}
		link.Set(name, page.Next)
		a.Header.Set("Link", "<"+path.Base(e.Path)+"?"+link.Encode()+`>; rel="next"`)
	}
	a.Body, _ = json.Marshal(page)
	if st.edit != nil {
		st.edit(a)
	}
	return a
}

// cursor returns a cursor that stands for one of the service.
func (s *Shop) cursor(real string) string {
	b := make([]byte, 12)
	for i := range b {
		b[i] = byte(s.dice.IntN(256))
	}
	name := base64.RawURLEncoding.EncodeToString(b)
	s.cursors[name] = real
	return name
}

// underWay is more than what the two ends of a connection hold that a client has not read: on Linux, up to
// 36 MiB (tcp_rmem and tcp_wmem), and nothing where connections are in memory.
func (s *Shop) underWay() int {
	if s.dice.pace == Days {
		return 1 << 20
	}
	return 64 << 20
}

// send reports whether the client has stayed until the answer ended.
func (s *Shop) send(w http.ResponseWriter, a *conformance.Answer, st step) bool {
	if st.delivery == conformance.Whole || st.delivery == conformance.Late {
		for _, status := range st.interim {
			w.Header().Del("Connection") // which Node.js takes for the end of all, behind 1xx
			if status == http.StatusEarlyHints {
				w.Header().Set("Link", "</style.css>; rel=preload")
			}
			w.WriteHeader(status)
			w.Header().Del("Link")
			w.Header().Set("Connection", "close")
		}
		return writeTo(w, a)
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	raw, sent := raw(a, st.delivery), 0
	head := bytes.Index(raw, []byte("\r\n\r\n")) + 4
	switch st.delivery {
	case conformance.CutHead:
		conn.Write(raw[:int(float64(head)*st.part)])
	case conformance.CutBody, conformance.CutChunk:
		conn.Write(raw[:head+int(float64(len(raw)-head)*st.part)])
	case conformance.Flood:
		conn.SetWriteDeadline(time.Now().Add(conformance.LongestTry))
		_, err := conn.Write(raw)
		for block := bytes.Repeat([]byte(" "), 1<<16); err == nil; _, err = conn.Write(block) {
			if sent += len(block); sent > conformance.LongestAnswer+s.underWay() {
				return true
			}
		}
		return errors.Is(err, os.ErrDeadlineExceeded)
	case conformance.Endless:
		if _, err := conn.Write(raw[:head+(len(raw)-head)/2]); err != nil {
			return false
		}
		for end := time.Now().Add(conformance.LongestTry); time.Now().Before(end); {
			if !s.wait(context.Background(), 5*time.Second) {
				return false
			}
			if _, err := conn.Write([]byte(" ")); err != nil {
				return false
			}
		}
	}
	return true
}

// leaves reports whether the client leaves as soon as it has sent its request: after a stall, it
// may do all at once for which the time has come.
func (s *Shop) leaves(ctx context.Context) bool {
	s.wait(ctx, 20*time.Millisecond)
	return ctx.Err() != nil
}

// wait reports whether the client and the shop have stayed for so long.
func (s *Shop) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-s.closed:
	}
	return false
}

// writeTo reports whether the client has stayed.
func writeTo(w http.ResponseWriter, a *conformance.Answer) bool {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	// What the service answers to HEAD has the length of what GET is answered.
	if a.Status != http.StatusNoContent && a.Status != http.StatusNotModified &&
		a.Header.Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
	_, err := w.Write(a.Body)
	return err == nil && http.NewResponseController(w).Flush() == nil
}

// raw returns the bytes of the answer.
func raw(a *conformance.Answer, how conformance.Delivery) []byte {
	res := &http.Response{
		StatusCode: a.Status, ProtoMajor: 1, ProtoMinor: 1, Header: a.Header.Clone(),
		Body: io.NopCloser(bytes.NewReader(a.Body)), ContentLength: int64(len(a.Body)), Close: true,
	}
	if res.Header == nil {
		res.Header = make(http.Header)
	}
	res.Header.Del("Content-Length")
	switch how {
	case conformance.CutChunk:
		res.ContentLength, res.TransferEncoding = -1, []string{"chunked"}
	case conformance.Endless:
		if res.ContentLength += 1 << 20; a.Status == http.StatusSwitchingProtocols {
			res.ContentLength, res.Close = 0, false
		}
	case conformance.Flood:
		res.ContentLength = -1
	}
	var b bytes.Buffer
	res.Write(&b) // it says that an endless body is too short
	return b.Bytes()
}

// created returns the ID of the order that the service has created now.
func created(a *conformance.Answer) string {
	if a.Status != http.StatusCreated || a.Header.Get("Idempotent-Replayed") != "" {
		return ""
	}
	return conformance.OrderID(a.Body)
}
