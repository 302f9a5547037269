package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
)

// A shop has two replicas, and may break promises.
type shop struct {
	audit *Audit
	good  http.Handler // which they share
	reads http.Handler // the same, which serves orders, too
	other http.Handler // which knows nothing of its orders

	mu   sync.Mutex
	sent map[string]int // requests by key
}

// A handler answers a request, usually as s.good does.
type handler func(s *shop, w http.ResponseWriter, r *http.Request, c call)

// A call is what a handler is told of a request.
type call struct {
	key       string
	replica   int
	replaying bool  // it is of Replay, and not of a client of Create who hung up before it came here
	before    int   // how often the key was sent before
	conn      int64 // the number of its connection; ports are used again
}

const keys = 80

// replaying is a header that the requests of Replay have, and no others.
const replaying = "Replaying"

type connKey struct{}

func newShop(t *testing.T, handle handler) *shop {
	t.Helper()
	store := new(storefront.MemStore)
	s := &shop{good: newHandler(store, nil), reads: newHandler(store, store), sent: make(map[string]int),
		other: newHandler(new(storefront.MemStore), nil)}
	var urls []string
	var conns atomic.Int64
	for i := range 2 {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := call{key: r.Header.Get("Idempotency-Key"), replica: i, replaying: r.Header.Get(replaying) != ""}
			c.conn = r.Context().Value(connKey{}).(int64)
			s.mu.Lock()
			c.before = s.sent[c.key]
			s.sent[c.key]++
			s.mu.Unlock()
			handle(s, w, r, c)
		}))
		server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conns.Add(1))
		}
		server.Start()
		t.Cleanup(server.Close)
		urls = append(urls, server.URL)
	}
	s.audit = New(Config{URLs: urls, Orders: keys, Clients: 8, Seed: 1, Prefix: "key-", Timeout: time.Hour, Patience: time.Hour,
		Fields: `{"of":"{key}"}`})
	return s
}

func newHandler(store storefront.Store, orders storefront.OrderReader) http.Handler {
	return storefront.NewWithOptions(store, &storefront.Options{Logger: slog.New(slog.DiscardHandler), OrderFields: true,
		Orders: orders, Scope: func(*http.Request) string { return "all" }})
}

func (s *shop) run(t *testing.T) *Result {
	t.Helper()
	s.audit.Create(t.Context())
	s.replay(t)
	return s.audit.Result()
}

// wantKept checks that all orders are acknowledged and replayed, and no promise is broken.
func (s *shop) wantKept(t *testing.T) *Result {
	t.Helper()
	r := s.run(t)
	if r.Broken != [Kinds]int{} || r.Progress.Faults != 0 {
		t.Errorf("faults are reported: %v", r.Faults)
	}
	if r.Sent != keys || r.Acknowledged != keys || r.Replayed != 2*keys || r.Retrying != 0 || r.GaveUp {
		t.Errorf("%+v, want %d orders acknowledged, and replayed by both replicas", r.Progress, keys)
	}
	return r
}

func (s *shop) replay(t *testing.T) {
	s.audit.Config.Header = http.Header{replaying: {"yes"}}
	s.audit.Replay(t.Context())
}

// change answers as a handler does, but for what f does to it.
func (s *shop) change(as http.Handler, w http.ResponseWriter, r *http.Request, f func(h http.Header, body []byte) []byte) {
	recorded := httptest.NewRecorder()
	as.ServeHTTP(recorded, r)
	recorded.Header().Del("Content-Length")
	body := f(recorded.Header(), recorded.Body.Bytes())
	maps.Copy(w.Header(), recorded.Header())
	w.WriteHeader(recorded.Code)
	w.Write(body)
}

// unlessReported answers with a status until that was reported as a fault, because
// a client may hang up before it is told.
func (s *shop) unlessReported(w http.ResponseWriter, r *http.Request, status int) {
	if s.audit.Progress().Faults == 0 {
		w.WriteHeader(status)
		return
	}
	s.good.ServeHTTP(w, r)
}

// A replay uses no connection that is left from the creating: it may be a broken one.
func TestGoodShop(t *testing.T) {
	var creating sync.Map // the connections
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
		// The first who hangs up does so before the answer: of these clients, one begins by that.
		s.audit.Wait(r.Context(), func(Progress) bool { return s.audit.Result().Retries > 0 })
		if !c.replaying {
			creating.Store(c.conn, true)
		} else if _, is := creating.Load(c.conn); is {
			t.Errorf("%s is sent again over a connection of before", c.key)
		}
		s.reads.ServeHTTP(w, r)
	})
	s.audit.Config.OnFault = func(f Fault) { t.Error(f) }
	r := s.wantKept(t)
	if r.Again != 0 || r.Failed != 0 || r.Read < 2*keys {
		t.Errorf("%d keys were sent again, %d requests failed, and %d orders were read", r.Again, r.Failed, r.Read)
	}
	acknowledged := r.Outcomes[Acknowledged]
	want := [Outcomes]int{Acknowledged: acknowledged, HungUp: r.Retries}
	if r.Replays == 0 || r.Retries == 0 || r.Outcomes != want {
		t.Errorf("the requests are %v, with %d replays and %d retries; some should be sent twice at once, "+
			"and some hung up", r.Outcomes, r.Replays, r.Retries)
	}
	if len(r.RequestLatencies) != acknowledged || len(r.OrderLatencies) != keys {
		t.Errorf("there are %d latencies of requests and %d of orders, want %d and %d",
			len(r.RequestLatencies), len(r.OrderLatencies), acknowledged, keys)
	}
	ids := make(map[string]bool)
	for _, o := range s.audit.Orders() {
		var order storefront.Order
		err := json.Unmarshal(o.Body, &order)
		if err != nil || order.Item != o.Key || order.Item != o.Item || order.Qty != o.Qty ||
			string(order.Fields) != `{"of":"`+o.Key+`"}` {
			t.Errorf("the order %+v was acknowledged as %s: %v", o, o.Body, err)
		}
		ids[order.ID] = true
	}
	if len(ids) != keys {
		t.Errorf("there are %d orders, want %d", len(ids), keys)
	}
}

// Each way to break a promise is reported as what it is, and as nothing else.
func TestBrokenPromises(t *testing.T) {
	const key, another = "key-7", "key-8"
	answers := func(status int) handler {
		return func(s *shop, w http.ResponseWriter, r *http.Request, _ call) { s.unlessReported(w, r, status) }
	}
	changes := func(f func(s *shop, c call, h http.Header, body []byte) []byte) handler {
		return func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			s.change(s.good, w, r, func(h http.Header, body []byte) []byte { return f(s, c, h, body) })
		}
	}
	// edits changes the bodies of some requests.
	edits := func(some func(c call) bool, f func(body []byte) []byte) handler {
		return changes(func(_ *shop, c call, _ http.Header, body []byte) []byte {
			if some(c) {
				return f(body)
			}
			return body
		})
	}
	// shows changes the page in which an order is read by its key.
	shows := func(f func(page []byte) []byte) handler {
		return func(s *shop, w http.ResponseWriter, r *http.Request, _ call) {
			s.change(s.reads, w, r, func(_ http.Header, body []byte) []byte {
				if r.URL.RawQuery == "idempotency_key="+key {
					return f(body)
				}
				return body
			})
		}
	}
	isKey := func(c call) bool { return c.key == key }
	replaysKey := func(c call) bool { return c.replaying && c.key == key }
	for _, row := range []struct {
		name   string
		kind   Kind
		handle handler
	}{
		{"loses an order", Lost, func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			if replaysKey(c) {
				s.other.ServeHTTP(w, r)
				return
			}
			s.good.ServeHTTP(w, r)
		}},
		{"refuses what it has acknowledged", Lost, func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			if replaysKey(c) {
				r.Body = io.NopCloser(strings.NewReader(`{"item":"another","qty":1}`)) // the key is reused, then
			}
			s.good.ServeHTTP(w, r)
		}},
		{"replays another body", Changed, edits(replaysKey, func(body []byte) []byte { return append(body, ' ') })},
		{"creates twice", Duplicated, changes(func(_ *shop, c call, h http.Header, body []byte) []byte {
			if !c.replaying {
				h.Del("Idempotent-Replayed")
			}
			return body
		})},
		{"acknowledges another quantity", Wrong, edits(isKey, func(body []byte) []byte {
			return bytes.Replace(body, []byte(`"qty":`), []byte(`"qty":1`), 1)
		})},
		{"drops fields", Wrong, edits(isKey, func(body []byte) []byte {
			return bytes.Replace(body, []byte(`,"fields":{"of":"`+key+`"}`), nil, 1)
		})},
		{"does not show an order that it has acknowledged", Lost, shows(func([]byte) []byte {
			return []byte(`{"data":[],"has_more":false}`)
		})},
		{"shows another order than it has acknowledged", Changed, shows(func(page []byte) []byte {
			return bytes.Replace(page, []byte(`"qty":`), []byte(`"qty":1`), 1)
		})},
		{"has one order for two keys", Wrong, edits(func(c call) bool { return c.key == key || c.key == another }, func(body []byte) []byte {
			return regexp.MustCompile(`ord_[0-9a-v]+`).ReplaceAll(body, []byte("ord_SHARED"))
		})},
		{"answers 500", Unexpected, answers(http.StatusInternalServerError)},
		{"answers 503 without Retry-After", Unexpected, answers(http.StatusServiceUnavailable)},
		{"answers 502 without a proxy", Unexpected, answers(http.StatusBadGateway)},
		{"is itself unavailable without Retry-After, behind proxies", Unexpected,
			func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
				w.Header().Set("Content-Type", "application/problem+json")
				s.unlessReported(w, r, http.StatusServiceUnavailable)
			}},
		{"redirects", Unexpected, func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			if r.Method == http.MethodGet { // the redirect was followed
				w.WriteHeader(http.StatusCreated)
				return
			}
			w.Header().Set("Location", r.URL.Path)
			s.unlessReported(w, r, http.StatusSeeOther)
		}},
		{"refuses all orders", Unexpected, func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			r.Header.Set("Content-Type", "text/plain")
			s.good.ServeHTTP(w, r)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newShop(t, row.handle)
			var faults atomic.Int64
			s.audit.Config.OnFault = func(Fault) { faults.Add(1) }
			s.audit.Config.Proxies = strings.HasSuffix(row.name, "proxies")
			r := s.run(t)
			n, several := r.Broken[row.kind], row.kind == Duplicated || row.kind == Unexpected
			var want [Kinds]int
			want[row.kind] = n
			if r.Broken != want || n == 0 || n > 1 && !several {
				t.Errorf("by kind, %v keys are broken, want some of %v alone", r.Broken, row.kind)
			}
			if reported := int(faults.Load()); reported != n || r.Progress.Faults != n {
				t.Errorf("%d faults were reported, and %d are the progress, want %d", reported, r.Progress.Faults, n)
			}
			if kept := len(r.Faults[row.kind]); kept != min(n, keptFaults) {
				t.Errorf("%d faults are kept of %d", kept, n)
			}
		})
	}
}

// A replica that does not come back is not waited for without end, nor is a key that stays in progress. The
// other replica, and the other keys, are still checked.
func TestUnansweredKeys(t *testing.T) {
	for status, unanswered := range map[int]int{http.StatusServiceUnavailable: keys, http.StatusConflict: 1} {
		reported := make(chan struct{})
		var first atomic.Value // the key that the replica is sent first, as all clients may wait for the others
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			if c.replaying && c.replica == 1 {
				first.CompareAndSwap(nil, c.key)
				if unanswered == keys || first.Load() == c.key {
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(status)
					return
				}
				<-reported
			}
			s.good.ServeHTTP(w, r)
		})
		report := sync.OnceFunc(func() { close(reported) })
		s.audit.Config.OnFault = func(Fault) { report() }
		s.audit.Create(t.Context())
		s.audit.Config.Patience = 50 * time.Millisecond
		s.replay(t)
		r, want := s.audit.Result(), [Kinds]int{Unanswered: unanswered}
		if r.Broken != want || r.Replayed != 2*keys-unanswered || r.Again == 0 {
			t.Errorf("%d: faults are %v, want %v; %+v", status, r.Broken, want, r.Progress)
		}
	}
}

// A replica that comes back while keys are replayed has broken no promise.
func TestReplayWaits(t *testing.T) {
	const away = 20
	var replays atomic.Int64
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
		if c.replaying && replays.Add(1) <= away {
			panic(http.ErrAbortHandler) // closes the connection
		}
		s.good.ServeHTTP(w, r)
	})
	if r := s.wantKept(t); r.Again != away {
		t.Errorf("%d keys were sent again, want %d", r.Again, away)
	}
}

func TestNothingIsAcknowledged(t *testing.T) {
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, c call) { panic(http.ErrAbortHandler) })
	s.audit.Config.Patience = 50 * time.Millisecond
	r := s.run(t)
	if !r.GaveUp || r.Acknowledged != 0 || r.Broken != [Kinds]int{Unanswered: r.Sent} || r.Retrying != 0 {
		t.Errorf("%+v; faults %v", r.Progress, r.Broken)
	}
	if r.LongestGap != r.Creating {
		t.Errorf("the longest gap is %v of %v", r.LongestGap, r.Creating)
	}
}

// An answer that is too long is none, however it begins.
func TestAnswerThatIsTooLongIsNone(t *testing.T) {
	s := newShop(t, func(_ *shop, w http.ResponseWriter, _ *http.Request, _ call) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"id":"ord_1"}`+strings.Repeat(" ", mostAnswer))
	})
	s.audit.Config.Patience = 50 * time.Millisecond
	if r := s.run(t); !r.GaveUp || r.Acknowledged != 0 {
		t.Errorf("%+v", r.Progress)
	}
}

// A transport answers requests without a network, so that tests may have clocks of their own.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := f(r)
	if r.Body != nil {
		r.Body.Close()
	}
	return response, err
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// The first order is sent alone until it is acknowledged. What is no reason to try again
// ends that at once, and the rest after a while, with few requests and no fault.
func TestFirst(t *testing.T) {
	const wait = 30 * time.Second
	good := newHandler(new(storefront.MemStore), nil)
	serve := func(handler http.HandlerFunc) transport {
		return func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			r.Header.Set("Idempotency-Key", r.Header[strings.ToLower("Idempotency-Key")][0]) // as a server would
			handler(w, r)
			return w.Result(), nil
		}
	}
	says := func(status int, body string) transport {
		return serve(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
	}
	refused := transport(func(*http.Request) (*http.Response, error) { return nil, errRefused })
	type row struct {
		name    string
		a, b    transport // of the replicas, until since
		until   time.Duration
		failure string // none if the order is acknowledged
		took    time.Duration
	}
	rows := []row{
		{"both are good", serve(good.ServeHTTP), serve(good.ServeHTTP), 0, "", 0},
		{"both come up later", refused, says(503, ""), 10 * time.Second, "", 10 * time.Second},
		{"one is down", refused, serve(good.ServeHTTP), time.Hour, "", 0},
		{"nobody listens", refused, refused, time.Hour, "connection refused", wait},
		{"it is unavailable", says(503, ""), says(503, ""), time.Hour, "503 Service Unavailable", wait},
		{"it fails", says(500, "<p>"), says(500, "<p>"), time.Hour, "500 Internal Server Error", wait},
		{"a wrong path of one", serve(good.ServeHTTP), says(404, "<p>"), time.Hour, "404 Not Found", 0},
	}
	for _, status := range []int{404, 302, 501, 201} { // is no reason to try again
		text := fmt.Sprint(status, " ", http.StatusText(status))
		rows = append(rows, row{text, says(status, "\x1b[2J"), refused, time.Hour, text, 0})
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := New(Config{
					URLs: []string{"http://user:secret@a", "http://b"}, Orders: keys, Clients: 8, Prefix: t.Name() + "-",
					Timeout: time.Minute, Patience: time.Minute, Proxies: true,
				})
				began, sent := time.Now(), 0
				var mu sync.Mutex
				a.client.Transport = transport(func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					sent++
					mu.Unlock()
					switch {
					case time.Since(began) >= row.until:
						return serve(good.ServeHTTP)(r)
					case r.URL.Host == "a":
						return row.a(r)
					}
					return row.b(r)
				})
				err := a.First(t.Context(), wait)
				took := time.Since(began)
				if took != row.took {
					t.Errorf("it takes %v, want %v", took, row.took)
				}
				if most := 2 * (1 + int(took/firstPause)); sent > most {
					t.Errorf("%d requests are sent in %v, want at most %d", sent, took, most)
				}
				if row.failure != "" {
					failed, ok := errors.AsType[*NotStarted](err)
					if !ok || failed.Failure != row.failure || strings.ContainsAny(failed.Detail, "\x1b") || strings.Contains(failed.Detail+failed.URL, "secret") {
						t.Errorf("it fails with %+v, want %s, and no password or code of a terminal", failed, row.failure)
					}
					if p := a.Progress(); p.Failure != row.failure || p.Faults != 0 {
						t.Errorf("%+v, want no fault and the failure %s", p, row.failure)
					}
					return
				}
				must.OK(t, err)
				mu.Lock()
				row.until = 0
				mu.Unlock()
				a.Create(t.Context())
				a.Replay(t.Context())
				r := a.Result()
				if r.Broken != [Kinds]int{} || r.Sent != keys || r.Acknowledged != keys || r.Replayed != 2*keys || len(r.OrderLatencies) != keys {
					t.Errorf("%+v and faults %v, want %d orders that are kept", r.Progress, r.Faults, keys)
				}
				if r.LongestGap >= 10*time.Second {
					t.Errorf("the longest gap is %v: it has the time before the first order", r.LongestGap)
				}
			})
		})
	}
}

// What was acknowledged when the creating ends early is replayed, and what was not
// is no fault.
func TestEndingEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, c call) { s.good.ServeHTTP(w, r) })
	go func() {
		s.audit.Wait(ctx, func(p Progress) bool { return p.Acknowledged >= keys/4 })
		cancel()
	}()
	s.audit.Config.Orders = 1_000_000
	s.audit.Create(ctx)
	s.replay(t)
	r := s.audit.Result()
	if r.Broken != [Kinds]int{} || r.Acknowledged < keys/4 || r.Acknowledged == 1_000_000 || r.Replayed != 2*r.Acknowledged || r.Retrying != 0 {
		t.Errorf("%+v, faults %v", r.Progress, r.Faults)
	}
}

// What proxies say in the shop's place is no fault, and is counted.
func TestProxies(t *testing.T) {
	statuses := []int{http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
		n, err := strconv.Atoi(strings.TrimPrefix(c.key, "key-"))
		if err != nil {
			panic(err)
		}
		if !c.replaying && c.before < 5 {
			// With a body: net/http may give the connection of a client that hangs
			// up to another request too early, if a response has none.
			http.Error(w, "from a proxy", statuses[n%len(statuses)])
			return
		}
		s.good.ServeHTTP(w, r)
	})
	s.audit.Config.Proxies = true
	r := s.wantKept(t)
	total := 0
	for _, status := range statuses {
		if r.Statuses[status] == 0 {
			t.Errorf("%d is not counted", status)
		}
		total += r.Statuses[status]
	}
	if total != r.Failed {
		t.Errorf("%d answers are counted, of %d; %s", total, r.Failed, r.Failure)
	}
}

// A request is one that the shop gets: nothing sends it again unseen, and a response
// that is cut off acknowledges nothing.
func TestRequestsAreSentOnce(t *testing.T) {
	var got atomic.Int64
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
		if got.Add(1); c.replaying || c.before%2 == 1 {
			s.good.ServeHTTP(w, r)
			return
		}
		s.change(s.good, w, r, func(h http.Header, body []byte) []byte {
			h.Set("Content-Length", strconv.Itoa(len(body)+1))
			if len(c.key)%2 == 0 {
				panic(http.ErrAbortHandler)
			}
			return body
		})
	})
	s.audit.Create(t.Context())
	sent := got.Load()
	s.replay(t)
	r := s.audit.Result()
	if r.Broken != [Kinds]int{} || r.Acknowledged != keys {
		t.Errorf("%d orders were acknowledged, want %d; faults: %v", r.Acknowledged, keys, r.Faults)
	}
	requests := int64(0)
	for _, n := range r.Outcomes {
		requests += int64(n)
	}
	if sent > requests {
		t.Errorf("the shop got %d requests, of %d", sent, requests)
	}
	// The first request for a key is answered badly, unless the client hangs up.
	if bad := int(requests) - len(r.RequestLatencies); bad < keys || r.Failed == 0 || r.Failure == "" {
		t.Errorf("%d requests were not acknowledged, want %d or more; %d failed; the last: %q", bad, keys, r.Failed, r.Failure)
	}
}

func TestLongestGap(t *testing.T) {
	for _, row := range []struct {
		name       string
		times      []time.Duration
		end        time.Duration
		began, gap time.Duration
	}{
		{"nothing", nil, 5, 0, 5},
		{"at the begin", []time.Duration{4, 5}, 6, 0, 4},
		{"in between", []time.Duration{1, 2, 5, 7}, 8, 2, 3},
		{"at the end", []time.Duration{1, 2, 3}, 9, 3, 6},
	} {
		a := New(Config{})
		a.begin()
		for _, at := range append(row.times, row.end) {
			a.endGap(a.result.Began.Add(at))
		}
		if r := a.Result(); r.GapBegan != row.began || r.LongestGap != row.gap {
			t.Errorf("%s: %v from %v on, want %v from %v on", row.name, r.LongestGap, r.GapBegan, row.gap, row.began)
		}
	}
}
