package engines

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"example.com/storefront"
	"example.com/storefront/integration/internal/apidoc"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/testdb"
)

// A creation is a request that creates an order.
type creation struct {
	key   string
	order string // the body
}

// An outcome is what a client knows of a creation.
type outcome struct {
	kind  outcomeKind
	order string // if created or replayed: the body
}

type outcomeKind int

const (
	unknown  outcomeKind = iota // no response, or one that says to try again
	created                     // 201
	replayed                    // 201 with Idempotent-Replayed
	reused                      // 422
)

func (k outcomeKind) String() string {
	return [...]string{"unknown", "created", "replayed", "reused"}[k]
}

// A keyState is what the service remembers of a key.
type keyState struct {
	asked string // the body of the request that created the order, or ""
	order string // the order, or "" if no client has seen it yet
}

// oneKey is how the service must behave to those who use one key: as if one
// request was served after the other.
//
// A request of unknown outcome may have had its effect at any time since, or may
// never have. As it never returned, its place may also be after everything else,
// when the key has its order and the request changes nothing.
var oneKey = porcupine.Model{
	Init: func() any { return keyState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(keyState), input.(creation), output.(outcome)
		switch out.kind {
		case unknown:
			if s.asked == "" {
				s.asked = in.order
			}
			return true, s
		case created:
			return s.asked == "" && answers(in.order, out.order), keyState{in.order, out.order}
		case replayed:
			same := s.order == out.order || s.order == "" && answers(in.order, out.order)
			return s.asked == in.order && same, keyState{in.order, out.order}
		default:
			return s.asked != "" && s.asked != in.order, s
		}
	},
}

// answers reports whether order is what was asked for.
func answers(asked, order string) bool {
	var a, o storefront.Order
	if json.Unmarshal([]byte(asked), &a) != nil || json.Unmarshal([]byte(order), &o) != nil {
		return false
	}
	return o.ID != "" && !o.CreatedAt.IsZero() && o.Item == a.Item && o.Qty == a.Qty
}

// A history is what clients did and what came of it.
type history []porcupine.Operation

// checkLinearizable returns an error unless there is a sequence of the requests
// that explains what every client saw and keeps each request between its call
// and its return. No key has to do with another, so each is checked by itself.
func (h history) checkLinearizable() error {
	keys := make(map[string]history)
	for _, op := range h {
		key := op.Input.(creation).key
		keys[key] = append(keys[key], op)
	}
	var faults []error
	for key, ops := range keys {
		if result := porcupine.CheckOperationsTimeout(oneKey, ops, time.Minute); result != porcupine.Ok {
			faults = append(faults, fmt.Errorf("the key %s: %v\n%v", key, result, ops))
		}
	}
	return errors.Join(faults...)
}

func (h history) String() string {
	var b strings.Builder
	for _, op := range slices.SortedFunc(slices.Values(h), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) }) {
		in, out := op.Input.(creation), op.Output.(outcome)
		until := time.Duration(op.Return).String()
		if op.Return == math.MaxInt64 {
			until = "?"
		}
		fmt.Fprintf(&b, "client %d, %v to %s: %s: %v %s\n", op.ClientId, time.Duration(op.Call), until, in.order, out.kind, out.order)
	}
	return b.String()
}

const (
	linearizableSeed     = 1
	linearizableClients  = 8
	linearizableRequests = 4 // of each client in a round
	linearizableKeys     = 3 // in a round
)

// TestCreateOrderIsLinearizable has clients that create orders under few keys, at
// the same time and through several replicas, and that do not always wait for the
// response.
func TestCreateOrderIsLinearizable(t *testing.T) {
	testdb.OnEveryEngine(t, func(t *testing.T, d testdb.Engine) {
		t.Parallel()
		replicas := []storefront.Store{d.Open(t), d.Open(t), d.Open(t)}
		rounds := long.Of(10, 30)
		h := createConcurrently(t, replicas, rounds)
		if err := h.checkLinearizable(); err != nil {
			t.Error(err)
		}

		// The history cannot show that nothing was created beside.
		stored := make(map[string]bool)
		for _, order := range d.Open(t).Orders() {
			text, err := json.Marshal(order)
			if err != nil {
				t.Fatal(err)
			}
			stored[string(text)] = true
		}
		if keys := rounds * linearizableKeys; len(stored) != keys {
			t.Errorf("the store has %d orders of %d keys", len(stored), keys)
		}
		kinds := make(map[outcomeKind]int)
		for _, op := range h {
			out := op.Output.(outcome)
			kinds[out.kind]++
			if out.order != "" && !stored[out.order] {
				t.Errorf("the store does not have the order %s", out.order)
			}
		}
		t.Logf("seed %d: %d requests for %d keys: %v", linearizableSeed, len(h), len(stored), kinds)
		for _, kind := range []outcomeKind{unknown, created, replayed, reused} {
			if kinds[kind] == 0 {
				t.Errorf("the outcome %v did not occur, so it was not tested", kind)
			}
		}
	})
}

// createConcurrently serves each of the stores, has clients create orders for some
// rounds, and returns their history. At the end, every key is asked for once more.
func createConcurrently(t *testing.T, replicas []storefront.Store, rounds int) history {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: linearizableClients}
	t.Cleanup(transport.CloseIdleConnections)
	c := &creator{client: &http.Client{Transport: transport}, start: time.Now()}
	for _, store := range replicas {
		h := storefront.NewWithOptions(store, &storefront.Options{Logger: slog.New(slog.DiscardHandler)})
		server := httptest.NewServer(apidoc.Validated(t, h))
		t.Cleanup(server.Close)
		c.urls = append(c.urls, server.URL+"/v1/orders")
	}
	for round := range rounds {
		var clients sync.WaitGroup
		for client := range linearizableClients {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(linearizableSeed, uint64(round*linearizableClients+client)))
				for range linearizableRequests {
					if err := c.create(client, keyOf(round, random.IntN(linearizableKeys)), random); err != nil {
						t.Error(err)
					}
				}
			})
		}
		clients.Wait()
	}
	random := rand.New(rand.NewPCG(linearizableSeed, math.MaxUint64))
	for round := range rounds {
		for n := range linearizableKeys {
			if err := c.send(0, c.urls[0], creation{keyOf(round, n), orderOf(random)}, never); err != nil {
				t.Error(err)
			}
		}
	}
	return c.history
}

func keyOf(round, n int) string { return fmt.Sprintf("%d-%d", round, n) }

func orderOf(random *rand.Rand) string {
	return `{"item":"teapot","qty":` + strconv.Itoa(1+random.IntN(2)) + `}`
}

// A creator sends creations and keeps their history.
type creator struct {
	client *http.Client
	urls   []string
	start  time.Time

	mu      sync.Mutex
	history history
}

// A moment is when a client goes away.
type moment int

const (
	connected moment = iota // before the request is written
	written
	answered // when the first byte of the response arrives
	moments
	never moment = -1
)

// create sends one of a few orders to one of the replicas. One in four clients
// goes away meanwhile.
func (c *creator) create(client int, key string, random *rand.Rand) error {
	url, order, gone := c.urls[random.IntN(len(c.urls))], orderOf(random), never
	if random.IntN(4) == 0 {
		gone = moment(random.IntN(int(moments)))
	}
	return c.send(client, url, creation{key, order}, gone)
}

func (c *creator) send(client int, url string, in creation, gone moment) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	at := func(m moment) {
		if m == gone {
			cancel()
		}
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { at(connected) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { at(written) },
		GotFirstResponseByte: func() { at(answered) },
	})
	// A body of this type cannot be sent again, or the transport might do that
	// by itself, because of the key, and get as a replay what it has created.
	body := io.MultiReader(strings.NewReader(in.order))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err
	}
	r.ContentLength = int64(len(in.order))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", in.key)

	op := porcupine.Operation{ClientId: client, Input: in, Call: int64(time.Since(c.start))}
	out, err := c.outcome(r)
	if err != nil && ctx.Err() == nil {
		return err
	}
	op.Output, op.Return = out, int64(time.Since(c.start))
	if out.kind == unknown {
		op.Return = math.MaxInt64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, op)
	return nil
}

func (c *creator) outcome(r *http.Request) (outcome, error) {
	w, err := c.client.Do(r)
	if err != nil {
		return outcome{}, err
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	switch {
	case err != nil:
		return outcome{}, err
	case w.StatusCode == http.StatusCreated && w.Header.Get("Idempotent-Replayed") == "":
		return outcome{created, string(body)}, nil
	case w.StatusCode == http.StatusCreated:
		return outcome{replayed, string(body)}, nil
	case w.StatusCode == http.StatusUnprocessableEntity && bytes.Contains(body, []byte(`:idempotency-key-reused"`)):
		return outcome{kind: reused}, nil
	case w.StatusCode == http.StatusConflict, w.StatusCode == http.StatusServiceUnavailable:
		return outcome{kind: unknown}, nil
	}
	return outcome{}, fmt.Errorf("key %s: %s %s", r.Header.Get("Idempotency-Key"), w.Status, body)
}

func TestLinearizableHistoriesAreToldFromOthers(t *testing.T) {
	const (
		a, b  = `{"item":"teapot","qty":1}`, `{"item":"teapot","qty":2}`
		a1    = `{"id":"ord_1","item":"teapot","qty":1,"created_at":"2026-01-02T15:04:05Z"}`
		a2    = `{"id":"ord_2","item":"teapot","qty":1,"created_at":"2026-01-02T15:04:05Z"}`
		later = `{"id":"ord_1","item":"teapot","qty":1,"created_at":"2026-01-02T15:04:06Z"}`
	)
	// An event is a request and its outcome, from one time to another.
	type event struct {
		from, to int64
		asked    string
		kind     outcomeKind
		order    string
	}
	const end = math.MaxInt64
	for _, c := range []struct {
		name   string
		events []event
		want   bool
	}{
		{"created and replayed", []event{{1, 2, a, created, a1}, {3, 4, a, replayed, a1}}, true},
		{"created and reused", []event{{1, 2, a, created, a1}, {3, 4, b, reused, ""}, {5, 6, a, replayed, a1}}, true},
		{"the second of two at once creates", []event{{1, 4, a, replayed, a1}, {2, 3, a, created, a1}}, true},
		{"an unknown request has created", []event{{1, end, a, unknown, ""}, {2, 3, a, replayed, a1}, {4, 5, a, replayed, a1}}, true},
		{"an unknown request has created, and another order comes", []event{{1, end, a, unknown, ""}, {2, 3, b, reused, ""}, {4, 5, a, replayed, a1}}, true},
		{"an unknown request has no effect", []event{{1, end, b, unknown, ""}, {2, 3, a, created, a1}}, true},
		{"one of two unknown requests has created", []event{{1, end, a, unknown, ""}, {2, end, b, unknown, ""}, {3, 4, b, reused, ""}}, true},
		{"an unknown request creates late", []event{{1, end, a, unknown, ""}, {2, 4, b, reused, ""}, {3, 5, a, replayed, a1}}, true},

		{"created twice", []event{{1, 2, a, created, a1}, {3, 4, a, created, a2}}, false},
		{"created twice at once", []event{{1, 3, a, created, a1}, {2, 4, a, created, a2}}, false},
		{"created twice at once, with another order", []event{{1, 3, a, created, a1}, {2, 4, b, created, a2}}, false},
		{"replayed before it was created", []event{{1, 2, a, replayed, a1}, {3, 4, a, created, a1}}, false},
		{"replayed and never created", []event{{1, 2, a, replayed, a1}}, false},
		{"replayed with another ID", []event{{1, 2, a, created, a1}, {3, 4, a, replayed, a2}}, false},
		{"replayed with another time", []event{{1, 2, a, created, a1}, {3, 4, a, replayed, later}}, false},
		{"replayed for another order", []event{{1, 2, a, created, a1}, {3, 4, b, replayed, a1}}, false},
		{"created as another order", []event{{1, 2, b, created, a1}}, false},
		{"reused for the same order", []event{{1, 2, a, created, a1}, {3, 4, a, reused, ""}}, false},
		{"reused before it was used", []event{{1, 2, b, reused, ""}, {3, 4, a, created, a1}}, false},
		{"an unknown request has created, and another one after it", []event{{1, end, a, unknown, ""}, {2, 3, a, replayed, a1}, {4, 5, a, created, a2}}, false},
		{"an unknown request has created two orders", []event{{1, end, a, unknown, ""}, {2, 3, a, replayed, a1}, {4, 5, a, replayed, a2}}, false},
		{"an unknown request has created another order", []event{{1, end, b, unknown, ""}, {2, 3, a, replayed, a1}}, false},
		{"an effect before the unknown request", []event{{1, 2, a, replayed, a1}, {3, end, a, unknown, ""}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h history
			for _, e := range c.events {
				h = append(h, porcupine.Operation{Input: creation{"k", e.asked}, Call: e.from, Output: outcome{e.kind, e.order}, Return: e.to})
			}
			if err := h.checkLinearizable(); (err == nil) != c.want {
				t.Errorf("linearizable: %v, want %v\n%v", err == nil, c.want, h)
			}
		})
	}
}

// A keyedStore creates orders as its function create does, with find and insert.
type keyedStore struct {
	storefront.MemStore
	create func(s *keyedStore, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error)

	mu     sync.Mutex
	orders map[string]keyedOrder
	uses   map[string]int
}

type keyedOrder struct {
	order       storefront.Order
	fingerprint [32]byte
}

func (s *keyedStore) CreateOrder(_ context.Context, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	return s.create(s, key, order)
}

// find returns the order under the key, and how often it was asked for before.
func (s *keyedStore) find(key storefront.IdempotencyKey) (o keyedOrder, uses int, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, found = s.orders[key.Value]
	uses = s.uses[key.Value]
	s.uses[key.Value]++
	return o, uses, found
}

func (s *keyedStore) insert(key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders[key.Value] = keyedOrder{order, key.Fingerprint}
	return order, nil
}

// replay is what is right to return if there is an order.
func (o keyedOrder) replay(key storefront.IdempotencyKey) (storefront.Order, error) {
	if o.fingerprint != key.Fingerprint {
		return storefront.Order{}, storefront.ErrKeyReused
	}
	return o.order, nil
}

func TestHistoriesOfWrongStoresAreNotLinearizable(t *testing.T) {
	type (
		key   = storefront.IdempotencyKey
		order = storefront.Order
	)
	var one sync.Mutex // held by those that are not wrong by a race
	for _, c := range []struct {
		name   string
		create func(s *keyedStore, k key, proposed order) (order, error)
		want   bool
	}{
		{"right", func(s *keyedStore, k key, proposed order) (order, error) {
			one.Lock()
			defer one.Unlock()
			o, _, found := s.find(k)
			if !found {
				return s.insert(k, proposed)
			}
			return o.replay(k)
		}, true},
		{"right, but unavailable once it has created", func(s *keyedStore, k key, proposed order) (order, error) {
			one.Lock()
			defer one.Unlock()
			o, _, found := s.find(k)
			if !found {
				s.insert(k, proposed)
				return order{}, storefront.ErrUnavailable
			}
			return o.replay(k)
		}, true},
		{"first SELECT, then INSERT", func(s *keyedStore, k key, proposed order) (order, error) {
			o, _, found := s.find(k)
			if !found {
				for range 100 {
					runtime.Gosched()
				}
				return s.insert(k, proposed)
			}
			return o.replay(k)
		}, false},
		{"forgets", func(s *keyedStore, k key, proposed order) (order, error) {
			one.Lock()
			defer one.Unlock()
			o, uses, found := s.find(k)
			if !found || uses == 7 {
				return s.insert(k, proposed)
			}
			return o.replay(k)
		}, false},
		{"loses what it has confirmed", func(s *keyedStore, k key, proposed order) (order, error) {
			one.Lock()
			defer one.Unlock()
			o, uses, found := s.find(k)
			switch {
			case uses == 0:
				return proposed, nil
			case !found:
				return s.insert(k, proposed)
			}
			return o.replay(k)
		}, false},
		{"replays another ID", func(s *keyedStore, k key, proposed order) (order, error) {
			one.Lock()
			defer one.Unlock()
			o, uses, found := s.find(k)
			if !found {
				return s.insert(k, proposed)
			}
			o.order.ID += strconv.Itoa(uses)
			return o.replay(k)
		}, false},
		{"replays another time", func(s *keyedStore, k key, proposed order) (order, error) {
			one.Lock()
			defer one.Unlock()
			o, uses, found := s.find(k)
			if !found {
				return s.insert(k, proposed)
			}
			o.order.CreatedAt = o.order.CreatedAt.Add(time.Duration(uses) * time.Millisecond)
			return o.replay(k)
		}, false},
		{"refuses retries", func(s *keyedStore, k key, proposed order) (order, error) {
			one.Lock()
			defer one.Unlock()
			if _, _, found := s.find(k); !found {
				return s.insert(k, proposed)
			}
			return order{}, storefront.ErrKeyReused
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &keyedStore{create: c.create, orders: make(map[string]keyedOrder), uses: make(map[string]int)}
			h := createConcurrently(t, []storefront.Store{s}, 5)
			if err := h.checkLinearizable(); (err == nil) != c.want {
				t.Errorf("linearizable: %v, want %v\n%v", err == nil, c.want, h)
			}
		})
	}
}
