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
	"regexp"
	"slices"
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
	audit  *Audit
	good   http.Handler // which the replicas share
	reads  http.Handler // the same, which serves orders, too
	other  http.Handler // which knows nothing of its orders
	handle handler

	mu   sync.Mutex
	sent map[string]int // requests by key
}

// A handler answers a request, usually as s.good does.
type handler func(s *shop, w http.ResponseWriter, r *http.Request, c call)

// A call is what a handler is told of a request.
type call struct {
	key       string
	replica   int
	reads     bool // it asks for the order of the key
	replaying bool // it is of Replay, and not of a client of Create who hung up before it came here
	before    int  // how often the key was sent before
}

const keys = 80

// replaying is a header that the requests of Replay have, and no others.
const replaying = "Replaying"

// newShop returns a shop without a network. A request is on its way for a millisecond, and so is the answer.
func newShop(handle handler) *shop {
	store, other := new(storefront.MemStore), new(storefront.MemStore)
	s := &shop{good: newHandler(store, nil), reads: newHandler(store, store), sent: make(map[string]int),
		other: newHandler(other, other), handle: handle}
	s.audit = New(Config{URLs: []string{"http://0", "http://1"}, Orders: keys, Clients: 8, Prefix: "key-",
		Timeout: time.Hour, Patience: time.Minute, Fields: `{"of":"{key}"}`})
	s.audit.client.Transport = transport(func(r *http.Request) (*http.Response, error) {
		time.Sleep(time.Millisecond)
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		response, err := serve(s.ServeHTTP)(r)
		time.Sleep(time.Millisecond)
		return response, errors.Join(err, r.Context().Err())
	})
	return s
}

func newHandler(store storefront.Store, orders storefront.OrderReader) http.Handler {
	return storefront.NewWithOptions(store, &storefront.Options{Logger: slog.New(slog.DiscardHandler),
		OrderFields: true, Orders: orders, Scope: func(*http.Request) string { return "all" }})
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := call{key: r.Header.Get("Idempotency-Key") + r.URL.Query().Get("idempotency_key"),
		reads: r.Method == http.MethodGet, replaying: r.Header.Get(replaying) != ""}
	c.replica, _ = strconv.Atoi(r.URL.Host)
	s.mu.Lock()
	c.before = s.sent[c.key]
	s.sent[c.key]++
	s.mu.Unlock()
	s.handle(s, w, r, c)
}

// A transport answers requests without a network, so that tests may have clocks of their own.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// serve has a handler answer, as a server would.
func serve(handler http.HandlerFunc) transport {
	return func(r *http.Request) (response *http.Response, err error) {
		defer func() {
			if v := recover(); v == http.ErrAbortHandler {
				err = io.ErrUnexpectedEOF
			} else if v != nil {
				panic(v)
			}
		}()
		r = r.Clone(r.Context())
		r.Header["Idempotency-Key"] = r.Header[strings.ToLower("Idempotency-Key")]
		w := httptest.NewRecorder()
		handler(w, r)
		return w.Result(), nil
	}
}

func (s *shop) run(t *testing.T) *Result {
	t.Helper()
	s.audit.Create(t.Context())
	s.audit.Config.Header = http.Header{replaying: {"yes"}}
	s.audit.Replay(t.Context())
	return s.audit.Result()
}

// wantKept checks that all orders are acknowledged and replayed, and no promise is broken.
func (s *shop) wantKept(t *testing.T) *Result {
	t.Helper()
	r := s.run(t)
	if r.Broken != [Kinds]int{} || r.Progress.Faults != 0 {
		t.Errorf("faults are reported: %v", r.Faults)
	}
	if r.Sent != keys || r.Acknowledged != keys || r.Replayed != 2*keys {
		t.Errorf("%+v, want %d orders acknowledged, and replayed by both replicas", r.Progress, keys)
	}
	return r
}

// change answers as s.good does, but for what f does to it.
func (s *shop) change(w http.ResponseWriter, r *http.Request, f func(h http.Header, body []byte) []byte) {
	recorded := httptest.NewRecorder()
	s.good.ServeHTTP(recorded, r)
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

func TestGoodShop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			s.change(w, r, func(_ http.Header, body []byte) []byte {
				if c.reads { // to encoding/json, what this shop adds has the name that an order has
					return bytes.Replace(body, []byte(`}]`), []byte(`,"State":"new","Qty":0}]`), 1)
				}
				return body
			})
		})
		s.good = s.reads
		s.audit.Config.OnFault = func(f Fault) { t.Error(f) }
		r := s.wantKept(t)
		if r.Again != 0 || r.Failed != 0 || r.Read < 2*keys {
			t.Errorf("%d keys were sent again, %d requests failed, and %d orders were read", r.Again, r.Failed, r.Read)
		}
		want := [Outcomes]int{Acknowledged: r.Outcomes[Acknowledged], HungUp: r.Retries}
		if r.Replays == 0 || r.Retries == 0 || r.Outcomes != want || len(r.Latencies) != keys {
			t.Errorf("the requests are %v, with %d replays, %d retries and %d latencies; some should be sent twice "+
				"at once, and some hung up", r.Outcomes, r.Replays, r.Retries, len(r.Latencies))
		}
		ids, pieces := make(map[string]bool), int64(0)
		for _, o := range s.audit.Orders() {
			var order storefront.Order
			err := json.Unmarshal(o.Body, &order)
			if err != nil || order.Item != o.Key || order.Item != o.Item || order.Qty != o.Qty ||
				string(order.Fields) != `{"of":"`+o.Key+`"}` {
				t.Errorf("the order %+v was acknowledged as %s: %v", o, o.Body, err)
			}
			ids[order.ID] = true
			pieces += order.Qty
		}
		if len(ids) != keys || pieces > 5*keys {
			t.Errorf("there are %d orders of %d pieces, want %d, of 5 on average at most", len(ids), pieces, keys)
		}
	})
}

// Each way to break a promise is reported as what it is, and as nothing else.
func TestBrokenPromises(t *testing.T) {
	const key = "key-7"
	answers := func(status int) handler {
		return func(s *shop, w http.ResponseWriter, r *http.Request, _ call) { s.unlessReported(w, r, status) }
	}
	// edits answers some calls with another text in place of a pattern.
	edits := func(some func(c call) bool, pattern, text string) handler {
		return func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			s.change(w, r, func(_ http.Header, body []byte) []byte {
				if some(c) {
					return regexp.MustCompile(pattern).ReplaceAll(body, []byte(text))
				}
				return body
			})
		}
	}
	// says replays as it should, but says so for some calls alone, and for all of them.
	says := func(some func(c call) bool) handler {
		return func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			s.change(w, r, func(h http.Header, body []byte) []byte {
				h.Set("Idempotent-Replayed", strconv.FormatBool(some(c)))
				return body
			})
		}
	}
	// isTwin tells whether a client has sent an order twice at once. The other answer was read by then.
	isTwin := func(s *shop, c call) bool {
		if c.before == 0 || c.reads || c.replaying {
			return false
		}
		time.Sleep(time.Second)
		return slices.ContainsFunc(s.audit.Orders(), func(o Order) bool { return o.Key == c.key && o.Body != nil })
	}
	isKey := func(c call) bool { return c.key == key }
	replaysKey := func(c call) bool { return c.replaying && c.key == key }
	readsKey := func(c call) bool { return c.reads && c.key == key }
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
		{"replays another body", Changed, edits(replaysKey, "$", " ")},
		{"creates twice", Duplicated, func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			if isTwin(s, c) {
				s.other.ServeHTTP(w, r)
				return
			}
			s.good.ServeHTTP(w, r)
		}},
		{"refuses one of two tries and creates by the other", Unexpected,
			func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
				if isTwin(s, c) {
					w.WriteHeader(http.StatusUnprocessableEntity)
					return
				}
				s.good.ServeHTTP(w, r)
			}},
		{"says that it replays only at the end", Duplicated, says(func(c call) bool { return c.replaying })},
		{"says that it replays, but not at the end", Duplicated, says(func(c call) bool { return !c.replaying })},
		{"acknowledges another quantity", Wrong, edits(isKey, `"qty":`, `"qty":1`)},
		{"drops fields", Wrong, edits(isKey, `,"fields":{[^}]*}`, "")},
		{"does not show an order that it has acknowledged", Lost, edits(readsKey, `\[.*\]`, "[]")},
		{"shows another order than it has acknowledged", Changed, edits(readsKey, `"qty":`, `"qty":1`)},
		{"has one order for two keys", Wrong, edits(func(c call) bool { return isKey(c) || c.key == "key-8" },
			`ord_[0-9a-v]+`, "ord_SHARED")},
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
			synctest.Test(t, func(t *testing.T) {
				s := newShop(row.handle)
				var faults atomic.Int64
				s.audit.Config.OnFault = func(Fault) { faults.Add(1) }
				s.audit.Config.Proxies = strings.HasSuffix(row.name, "proxies")
				if strings.Contains(row.name, "show") {
					s.good = s.reads
				}
				r := s.run(t)
				n, several := r.Broken[row.kind], row.kind == Duplicated || row.kind == Unexpected
				var want [Kinds]int
				want[row.kind] = n
				if r.Broken != want || n == 0 || n > 1 && !several {
					t.Errorf("by kind, %v keys are broken, want some of %v alone", r.Broken, row.kind)
				}
				reported, kept := int(faults.Load()), len(r.Faults[row.kind])
				if reported != n || r.Progress.Faults != n || kept != min(n, keptFaults) {
					t.Errorf("%d faults were reported, %d are the progress, and %d are kept, want %d",
						reported, r.Progress.Faults, kept, n)
				}
				named := strings.Contains(fmt.Sprint(r.Faults), "Idempotent-Replayed")
				if named != strings.Contains(row.name, "says that it replays") {
					t.Errorf("whether the missing header is named: %t; %v", named, r.Faults)
				}
			})
		})
	}
}

// A replica that does not come back is not waited for without end, nor is a key that stays in progress. The
// other replica, and the other keys, are still checked.
func TestUnansweredKeys(t *testing.T) {
	for status, unanswered := range map[int]int{http.StatusServiceUnavailable: keys, http.StatusConflict: 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
				if c.replaying && c.replica == 1 && (unanswered == keys || c.key == "key-7") {
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(status)
					return
				}
				s.good.ServeHTTP(w, r)
			})
			r := s.run(t)
			want := [Kinds]int{Unanswered: unanswered}
			if r.Broken != want || r.Replayed != 2*keys-unanswered || r.Again == 0 {
				t.Errorf("%d: faults are %v, want %v; %+v", status, r.Broken, want, r.Progress)
			}
		})
	}
}

// Each replica has as much time as there is patience, although all clients wait for the other one first.
func TestReplicasThatComeBackInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replayingBegan := sync.OnceValue(time.Now)
		newShop(func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			if c.replaying && time.Since(replayingBegan()) < time.Duration(c.replica+1)*50*time.Second {
				panic(http.ErrAbortHandler)
			}
			s.good.ServeHTTP(w, r)
		}).wantKept(t)
	})
}

// A shop that comes back has broken no promise. How long it was away is the longest gap.
func TestShopThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const away = 20
		var replays atomic.Int64
		began := time.Now()
		s := newShop(func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			since := time.Since(began).Seconds()
			if since > 4.5 && since < 34 || c.replaying && replays.Add(1) <= away {
				panic(http.ErrAbortHandler) // closes the connection
			}
			s.good.ServeHTTP(w, r)
		})
		s.audit.Config.Before = func(context.Context) { time.Sleep(time.Second) }
		r := s.wantKept(t)
		gap, from := r.LongestGap.Round(time.Second), r.GapBegan.Round(time.Second)
		if r.Again != away || gap != 30*time.Second || from != 4*time.Second {
			t.Errorf("%d keys were sent again, want %d; the longest gap is %v from %v on", r.Again, away, gap, from)
		}
	})
}

// An order that is acknowledged has the patience begin anew.
func TestNothingIsAcknowledgedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newShop(func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			if since := time.Since(began).Seconds(); since < 50 || since > 100 {
				panic(http.ErrAbortHandler)
			}
			s.good.ServeHTTP(w, r)
		})
		s.audit.Config.Before = func(context.Context) { time.Sleep(10 * time.Second) }
		s.audit.Create(t.Context())
		r := s.audit.Result()
		if r.Acknowledged == 0 || r.Broken != [Kinds]int{Unanswered: r.Sent - r.Acknowledged} {
			t.Errorf("%+v; faults %v", r.Progress, r.Broken)
		}
		if r.LongestGap < time.Minute || r.GapBegan+r.LongestGap != r.Creating {
			t.Errorf("the longest gap is %v from %v on, of %v", r.LongestGap, r.GapBegan, r.Creating)
		}
	})
}

// A shop may forget keys after a day, and has broken no promise then.
func TestOldKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(func(s *shop, w http.ResponseWriter, r *http.Request, c call) { s.good.ServeHTTP(w, r) })
		s.audit.Config.Patience = storefront.KeyLifetime
		s.audit.Config.Before = func(context.Context) { time.Sleep(6 * time.Hour) }
		s.audit.Create(t.Context()) // every client sends an order after 6, 12 and 18 hours
		time.Sleep(7 * time.Hour)   // until the first of them are 25 hours old
		s.audit.Replay(t.Context())
		r := s.audit.Result()
		if r.Broken != [Kinds]int{} || r.Acknowledged != 24 || r.Replayed != 2*16 || r.Old != 2*8 {
			t.Errorf("%+v, %d are old; faults %v, want of 24 orders the last 16 replayed", r.Progress, r.Old, r.Faults)
		}
	})
}

// Nor is a key sent again in the creating: a try without an answer may have created its order.
func TestOldKeysInTheCreating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newShop(func(_ *shop, _ http.ResponseWriter, r *http.Request, _ call) {
			if time.Since(began) > OldestKey {
				t.Errorf("a key is sent after %v", time.Since(began))
			}
			<-r.Context().Done()
		})
		s.audit.Config.Timeout, s.audit.Config.Patience = time.Hour, 2*storefront.KeyLifetime
		s.audit.Create(t.Context())
		if r := s.audit.Result(); r.Broken[Unanswered] != r.Sent || r.Sent == 0 || time.Since(began) > storefront.KeyLifetime {
			t.Errorf("after %v: %+v; faults %v, want all unanswered", time.Since(began), r.Progress, r.Faults)
		}
	})
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// The first order is sent alone until it is acknowledged. What is no reason to try again
// ends that at once, and the rest after a while, with few requests and no fault.
func TestFirst(t *testing.T) {
	const wait = 30 * time.Second
	says := func(status int, body string) transport {
		return serve(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
	}
	good := serve(newHandler(new(storefront.MemStore), nil).ServeHTTP)
	refused := transport(func(*http.Request) (*http.Response, error) { return nil, errRefused })
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of the clock of each test
	later := func(r *http.Request) (*http.Response, error) {
		if time.Since(begin) < 10*time.Second {
			return says(503, "")(r)
		}
		return good(r)
	}
	for _, row := range []struct {
		name    string
		a, b    transport // of the replicas
		failure string    // none if the order is acknowledged
		took    time.Duration
	}{
		{"both are good", good, good, "", 0},
		{"one comes up later", refused, later, "", 10 * time.Second},
		{"nobody listens", refused, refused, "connection refused", wait},
		{"it fails", says(500, "<p>"), says(500, "<p>"), "500 Internal Server Error", wait},
		{"a wrong path of one", good, says(404, "<p>"), "404 Not Found", 0},
		{"not implemented", says(501, "\x1b[2J"), refused, "501 Not Implemented", 0},
		{"a page", says(201, "\x1b[2J"), refused, "201 Created", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := New(Config{
					URLs: []string{"http://user:secret@a", "http://b"}, Orders: keys, Clients: 8, Prefix: t.Name() + "-",
					Timeout: time.Minute, Patience: time.Minute, Proxies: true,
				})
				var sent atomic.Int64
				a.client.Transport = transport(func(r *http.Request) (*http.Response, error) {
					if sent.Add(1); r.URL.Host == "a" {
						return row.a(r)
					}
					return row.b(r)
				})
				err := a.First(t.Context(), wait)
				took := time.Since(begin)
				if most := 2 * (1 + int64(took/firstPause)); took != row.took || sent.Load() > most {
					t.Errorf("it takes %v and %d requests, want %v, and at most %d", took, sent.Load(), row.took, most)
				}
				if row.failure != "" {
					failed, ok := errors.AsType[*NotStarted](err)
					if !ok || failed.Failure != row.failure || strings.Contains(failed.Detail, "\x1b") ||
						strings.Contains(failed.Detail+failed.URL, "secret") {
						t.Errorf("it fails with %+v, want %s, and no password or code of a terminal", failed, row.failure)
					}
					if p := a.Progress(); p.Failure != row.failure || p.Faults != 0 {
						t.Errorf("%+v, want no fault and the failure %s", p, row.failure)
					}
					return
				}
				must.OK(t, err)
				a.Config.URLs = a.Config.URLs[1:]
				a.Create(t.Context())
				a.Replay(t.Context())
				r := a.Result()
				if r.Broken != [Kinds]int{} || r.Sent != keys || r.Replayed != keys || len(r.Latencies) != keys ||
					r.Failed > 0 || r.LongestGap >= 10*time.Second {
					t.Errorf("%+v and faults %v, want %d orders that are kept, and no failure or gap of before",
						r.Progress, r.Faults, keys)
				}
			})
		})
	}
}

// What proxies say in the shop's place is no fault, and is counted.
func TestProxies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		statuses := []int{http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout}
		var n atomic.Int64
		s := newShop(func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
			if !c.replaying && c.before < 5 {
				w.WriteHeader(statuses[int(n.Add(1))%len(statuses)])
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
	})
}

// A request is one that the shop gets: nothing sends it again unseen, and a response
// that is cut off acknowledges nothing.
func TestRequestsAreSentOnce(t *testing.T) {
	var sent, replayed atomic.Int64
	s := newShop(func(s *shop, w http.ResponseWriter, r *http.Request, c call) {
		if sent.Add(1); c.replaying {
			replayed.Add(1)
		}
		if c.replaying || c.before%2 == 1 {
			s.good.ServeHTTP(w, r)
			return
		}
		s.change(w, r, func(h http.Header, body []byte) []byte {
			h.Set("Content-Length", strconv.Itoa(len(body)+1))
			if len(c.key)%2 == 0 {
				panic(http.ErrAbortHandler)
			}
			return body
		})
	})
	server := httptest.NewServer(s)
	defer server.Close()
	s.audit.client.Transport, s.audit.Config.URLs = nil, []string{server.URL, server.URL}
	r := s.wantKept(t)
	requests := 0
	for _, n := range r.Outcomes {
		requests += n
	}
	if created := int(sent.Load() - replayed.Load()); created > requests {
		t.Errorf("the shop got %d requests, of %d", created, requests)
	}
	// The first request for a key is answered badly, unless the client hangs up.
	if bad := requests - r.Outcomes[Acknowledged]; bad < keys || r.Failed == 0 || r.Failure == "" {
		t.Errorf("%d requests were not acknowledged, want %d or more; %d failed; the last: %q", bad, keys, r.Failed,
			r.Failure)
	}
}
