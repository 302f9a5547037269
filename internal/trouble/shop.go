package trouble

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/httpfield"
)

// A Shop is an [http.Handler]. Its server must not close connections by itself before 3
// minutes have passed, and each connection should be for one request only: some clients send
// a request again by themselves where a connection that they kept breaks.
type Shop struct {
	pace    Pace
	store   *storefront.MemStore
	perPage int // items; 0: a third of the list
	service http.Handler
	closed  chan struct{}
	open    sync.WaitGroup // requests

	mu      sync.Mutex
	dice    dice
	assign  func(*http.Request, *Exchange) *Call // finds the call to which a request belongs
	current *Call
	cursors map[string]string // those that were given out, and those of the service
	given   []string          // the former, in their sequence
}

// mostCursors are remembered.
const mostCursors = 10000

// MaxAge returns for how long a read is fresh.
func (p Pace) MaxAge() time.Duration {
	if p == Seconds {
		return time.Second
	}
	return time.Minute
}

// New returns a shop for one client. The seed and the name decide what is left to chance.
// Requests belong to the call that has begun last.
func New(seed uint64, name string, pace Pace) *Shop {
	s := newShop(seed, name, pace, new(storefront.MemStore))
	s.perPage = 3
	s.assign = func(*http.Request, *Exchange) *Call { return s.current }
	for _, id := range []string{"ada", "barbara", "edsger", "frances", "grace", "linus", "tony"} {
		s.store.Users.Put(storefront.MustResource(id, nil))
	}
	for i := range 7 {
		s.store.Widgets.Put(storefront.MustResource(fmt.Sprint("w", i+1), nil))
	}
	s.PutProduct("teapot", "Teapot")
	return s
}

func newShop(seed uint64, name string, pace Pace, store *storefront.MemStore) *Shop {
	return &Shop{
		pace: pace, store: store, closed: make(chan struct{}), dice: newDice(seed, name, pace), cursors: make(map[string]string),
		service: storefront.NewWithOptions(store, &storefront.Options{MaxAge: pace.MaxAge(), Logger: slog.New(slog.DiscardHandler)}),
	}
}

// PutProduct changes the name of a product.
func (s *Shop) PutProduct(id, name string) {
	s.store.Products.Put(storefront.MustResource(id, map[string]string{"name": name}))
}

// Begin begins a call.
func (s *Shop) Begin(kind Kind, t *Trouble) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = s.begin(kind, t, s.dice)
	return s.current
}

func (s *Shop) begin(kind Kind, t *Trouble, d dice) *Call {
	c := &Call{Kind: kind, Trouble: t, shop: s, began: time.Now()}
	if t.steps != nil {
		c.steps = t.steps(d)
	}
	return c
}

// Close ends the requests that are under way.
func (s *Shop) Close() {
	close(s.closed)
	s.open.Wait()
}

// ServeHTTP answers as the trouble says.
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
	e := &Exchange{
		At: time.Now(), Method: r.Method, Target: r.URL.RequestURI(), Key: key(r.Header.Get("Idempotency-Key")),
		Body: body, Tag: r.Header.Get("If-None-Match"), path: r.URL.Path, authorization: r.Header.Get("Authorization"),
	}
	a, st := s.take(r, e)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.over = true
	}()

	// A client that has an answer may be quicker than this goroutine: that the exchange is
	// over is noted before the answer is sent.
	left := st.way == late && !s.wait(r.Context(), 35*time.Second) || st.way == silent && !s.wait(r.Context(), longestTry)
	s.mu.Lock()
	e.left, e.ended, e.over = left, time.Now(), st.way != endless
	s.mu.Unlock()
	if left { // or the shop closes, and the client is still there
		panic(http.ErrAbortHandler)
	}
	if s.send(w, a, st) {
		return
	}
	s.mu.Lock()
	e.left = true
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
func (s *Shop) take(r *http.Request, e *Exchange) (*answer, step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.assign(r, e)
	st := call.take(e)
	if st.times > 0 {
		call.settle()
	}
	a := new(answer)
	for range st.times {
		a = s.get(call, e, r, st)
	}
	if st.held {
		call.held = append(call.held, held{e, r})
	}
	if st.answer != nil {
		a = st.answer
	}
	e.answer, e.way, e.own = *a, st.way, st.answer == nil
	return a, st
}

type held struct {
	e *Exchange
	r *http.Request
}

// get has the service answer a request as its step says.
func (s *Shop) get(c *Call, e *Exchange, r *http.Request, st step) *answer {
	if e.expected && (c.Kind == Users || c.Kind == Widgets) {
		return s.page(c, e, r, st)
	}
	a := s.ask(r, r.URL.RawQuery, e.Body)
	if id := created(a); id != "" {
		e.created = id
	}
	if st.edit != nil {
		st.edit(a)
	}
	if tag := a.header.Get("ETag"); tag != "" {
		c.tags = append(c.tags, e.path+" "+tag)
	}
	return a
}

// ask returns the answer of the service.
func (s *Shop) ask(r *http.Request, query string, body []byte) *answer {
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.URL.RawQuery = query
	r.Body = io.NopCloser(bytes.NewReader(body))
	a := &answer{header: make(http.Header)}
	s.service.ServeHTTP((*recorder)(a), r)
	return a
}

// A recorder is an answer that is written as a response.
type recorder answer

func (w *recorder) Header() http.Header    { return w.header }
func (w *recorder) WriteHeader(status int) { w.status = status } // which the service always does
func (w *recorder) Write(b []byte) (int, error) {
	w.body = append(w.body, b...)
	return len(b), nil
}

// page answers with a page of a few items, and with cursors of its own. Its tag stands for
// the service's page: whoever has kept that has a cursor that is still good.
func (s *Shop) page(c *Call, e *Exchange, r *http.Request, st step) *answer {
	if st.change {
		c.change()
	}
	name := "after"
	if c.Kind == Widgets {
		name = "start"
	}
	query := r.URL.Query()
	if query.Has(name) {
		e.Cursor = query.Get(name)
		if real, ok := s.cursors[e.Cursor]; ok {
			e.cursorKnown = true
			query.Set(name, real)
			if real == "" {
				query.Del(name)
			}
		}
	}
	position := query.Get(name)
	sent := r.URL.RawQuery
	if e.cursorKnown {
		sent = query.Encode()
	}
	a := s.ask(r, sent, e.Body)
	limit := query.Get("limit")
	perPage := s.perPage
	if perPage == 0 {
		perPage = max(1, len(c.items())/3)
	}
	// What the service refuses stays refused.
	if n, _ := strconv.Atoi(limit); a.status == http.StatusOK && (limit == "" || n > perPage) {
		query.Set("limit", strconv.Itoa(perPage))
		a = s.ask(r, query.Encode(), e.Body)
	}
	var page struct {
		Data    []json.RawMessage `json:"data"`
		HasMore bool              `json:"has_more"`
		Next    string            `json:"next,omitempty"`
	}
	if a.status != http.StatusOK || len(a.body) == 0 || json.Unmarshal(a.body, &page) != nil {
		return a
	}
	if st.empty {
		page.Data, page.HasMore, page.Next = []json.RawMessage{}, true, position
	}
	e.last = !page.HasMore
	a.header.Del("Link")
	a.header.Del("Content-Length")
	a.body, _ = json.Marshal(page)
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(a.body))
	a.header.Set("ETag", tag)
	if strings.Contains(e.Tag, tag) {
		a.status, a.body = http.StatusNotModified, nil
		a.header.Del("Content-Type")
		a.header.Del("X-Content-Type-Options")
		return a
	}
	if page.HasMore {
		page.Next = s.cursor(page.Next)
		link := url.Values{"limit": {limit}}
		if limit == "" {
			link.Del("limit")
		}
		link.Set(name, page.Next)
		a.header.Set("Link", "<"+path.Base(e.path)+"?"+link.Encode()+`>; rel="next"`)
	}
	a.body, _ = json.Marshal(page)
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
	if s.given = append(s.given, name); len(s.given) > mostCursors {
		delete(s.cursors, s.given[0])
		s.given = s.given[1:]
	}
	return name
}

// send reports whether the client has stayed until the answer ended.
func (s *Shop) send(w http.ResponseWriter, a *answer, st step) bool {
	if st.way == whole || st.way == late {
		return a.writeTo(w)
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	raw := a.raw(st.way)
	head := bytes.Index(raw, []byte("\r\n\r\n")) + 4
	switch st.way {
	case cutHead:
		conn.Write(raw[:int(float64(head)*st.part)])
	case cutBody, cutChunk:
		conn.Write(raw[:head+int(float64(len(raw)-head)*st.part)])
	case endless:
		if _, err := conn.Write(raw[:head+(len(raw)-head)/2]); err != nil {
			return false
		}
		for end := time.Now().Add(longestTry); time.Now().Before(end); {
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

// longestTry is how long a try may last before the shop ends it.
const longestTry = 150 * time.Second

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

// why says what the service has against a request.
func (a *answer) why() string {
	var problem storefront.Problem
	json.Unmarshal(a.body, &problem)
	text := fmt.Sprintf("%d %s. %s", a.status, strings.TrimPrefix(problem.Type, problemPrefix), problem.Detail)
	for _, e := range problem.Errors {
		text += fmt.Sprintf(" %s: %s", e.Pointer+e.Parameter+e.Header, e.Detail)
	}
	return cut(text, 500)
}

func (a *answer) writeTo(w http.ResponseWriter) bool {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	// What the service answers to HEAD has the length of what GET is answered.
	if a.status != http.StatusNoContent && a.status != http.StatusNotModified && a.header.Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	_, err := w.Write(a.body)
	return err == nil && http.NewResponseController(w).Flush() == nil
}

// raw returns the bytes of the answer.
func (a *answer) raw(how way) []byte {
	res := &http.Response{
		StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Header: a.header.Clone(),
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Close: true,
	}
	if res.Header == nil {
		res.Header = make(http.Header)
	}
	res.Header.Del("Content-Length")
	switch how {
	case cutChunk:
		res.ContentLength, res.TransferEncoding = -1, []string{"chunked"}
	case endless:
		res.ContentLength += 1 << 20
	}
	var b bytes.Buffer
	res.Write(&b) // it says that an endless body is too short
	return b.Bytes()
}

// orderID returns the ID if the body is a JSON object with one.
func orderID(body []byte) string {
	var order struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(body, &order) != nil {
		return ""
	}
	return order.ID
}

// created returns the ID of the order that the service has created now.
func created(a *answer) string {
	if a.status != http.StatusCreated || a.header.Get("Idempotent-Replayed") != "" {
		return ""
	}
	return orderID(a.body)
}
