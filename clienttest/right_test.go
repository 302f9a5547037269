package clienttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/client"
	"example.com/storefront/clienttest"
	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/conformance/drive"
	"example.com/storefront/internal/httpfield"
)

// A subject is package client, which breaks no promise, until something is changed: one of its functions, or
// the way of its requests.
type subject struct {
	*drive.Client
	shop *client.Client
	net  http.RoundTripper
	way  func(r *http.Request, sent []byte) answer

	longest int64 // bytes of an answer
}

// An answer with an error did not come, or not whole.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

func newSubject(service clienttest.Service) *subject {
	s := &subject{net: service.Transport, longest: 1 << 20}
	s.way = s.send
	shop, err := client.New(service.URL, &client.Options{HTTPClient: &http.Client{Transport: s},
		Patience: 15 * time.Minute, PageSize: 3, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	s.shop = shop
	s.Client = &drive.Client{
		CreateOrder: func(ctx context.Context, item string, qty int64) (string, error) {
			return s.order(ctx, client.NewDraft(item, qty))
		},
		CreateOrderWithFields: func(ctx context.Context, item string, qty int64, fields string) (string, error) {
			draft, err := client.NewDraftWithOptions(item, qty, &client.DraftOptions{Fields: json.RawMessage(fields)})
			if err != nil {
				return "", err
			}
			return s.order(ctx, draft)
		},
		ResumeOrder: func(ctx context.Context, err error) (string, error) { return s.order(ctx, draftOf(err)) },
		FindOrder: func(ctx context.Context, err error) (string, error) {
			order, err := shop.GetOrderByKey(ctx, draftOf(err).Key())
			if errors.Is(err, storefront.ErrNotFound) {
				err = clienttest.ErrNotCreated
			}
			return order.ID, err
		},
		ListUsers: func(ctx context.Context) ([]string, error) {
			return idsOf(shop.Users(ctx), storefront.Resource.ID)
		},
		ListWidgets: func(ctx context.Context) ([]string, error) {
			return idsOf(shop.Widgets(ctx), storefront.Resource.ID)
		},
		ListOrders: func(ctx context.Context) ([]string, error) {
			return idsOf(shop.Orders(ctx), func(o client.Order) string { return o.ID })
		},
		GetProduct: func(ctx context.Context, id string) (string, error) {
			product, err := shop.Product(ctx, id, nil)
			return nameIn(product.String()), err
		},
	}
	return s
}

func (s *subject) order(ctx context.Context, draft *client.Draft) (string, error) {
	order, err := s.shop.Order(ctx, draft)
	return order.ID, err
}

// draftOf returns the draft of an error of Order.
func draftOf(err error) *client.Draft {
	if refused, ok := errors.AsType[*client.RefusedError](err); ok {
		return refused.Draft
	}
	if blocked, ok := errors.AsType[*client.BlockedError](err); ok {
		return blocked.Draft
	}
	unknown, _ := errors.AsType[*client.UnknownError](err)
	return unknown.Draft
}

func idsOf[T any](list iter.Seq2[T, error], id func(T) string) (ids []string, err error) {
	for item, err := range list {
		if err != nil {
			return ids, err
		}
		ids = append(ids, id(item))
	}
	return ids, nil
}

func nameIn(product string) string {
	var p struct{ Name string }
	json.Unmarshal([]byte(product), &p)
	return p.Name
}

// RoundTrip has a request go its way.
func (s *subject) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a := s.way(r.Clone(r.Context()), sent)
	if a.err != nil {
		return nil, a.err
	}
	body := io.NopCloser(bytes.NewReader(a.body))
	return &http.Response{StatusCode: a.status, Header: a.header, Body: body}, nil
}

func (s *subject) send(r *http.Request, sent []byte) answer {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(sent)), int64(len(sent))
	res, err := s.net.RoundTrip(r)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	if a.status != http.StatusSwitchingProtocols { // what follows has no end
		a.body, a.err = io.ReadAll(http.MaxBytesReader(nil, res.Body, s.longest))
	}
	return a
}

// sends changes what is sent.
func sends(change func(r *http.Request, sent []byte) []byte) func(*subject) {
	return func(s *subject) {
		s.way = func(r *http.Request, sent []byte) answer { return s.send(r, change(r, sent)) }
	}
}

// takes changes what an answer is taken for.
func takes(change func(r *http.Request, sent []byte, a answer) answer) func(*subject) {
	return func(s *subject) {
		s.way = func(r *http.Request, sent []byte) answer { return change(r, sent, s.send(r, sent)) }
	}
}

// waits changes the waits between the tries of an order.
func waits(pause func(tries int, a answer) time.Duration) func(*subject) {
	return func(s *subject) {
		s.way = func(r *http.Request, sent []byte) (a answer) {
			for tries, began := 0, time.Now(); time.Since(began) < 15*time.Minute; tries++ {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 40*time.Second)
				a = s.send(r.Clone(ctx), sent)
				cancel()
				if r.Method != http.MethodPost || a.err == nil && !slices.Contains([]int{408, 409, 429, 503}, a.status) {
					break
				}
				time.Sleep(pause(tries, a))
			}
			return a
		}
	}
}

// waitLimit is the limit of a wait without Retry-After.
func waitLimit(tries int) time.Duration { return min(time.Second/4<<min(tries, 20), time.Minute) }

// told is what Retry-After says.
func told(a answer) time.Duration {
	seconds, _ := strconv.Atoi(a.header.Get("Retry-After"))
	return time.Duration(min(max(seconds, 0), 3600)) * time.Second
}

// queues makes a client leave an order to a queue after some time, and go on for as long each time that the
// queue asks.
func queues(patience, after time.Duration) func(*subject) {
	return func(s *subject) {
		s.Patience = patience
		create, resume := s.CreateOrder, s.ResumeOrder
		s.CreateOrder = func(ctx context.Context, item string, qty int64) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, after)
			defer cancel()
			return create(ctx, item, qty)
		}
		s.ResumeOrder = func(ctx context.Context, err error) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, after)
			defer cancel()
			return resume(ctx, err)
		}
	}
}

// refuses makes a client say of some errors that no order was created.
func refuses(is func(error) bool) func(*subject) {
	return func(s *subject) {
		create := s.CreateOrder
		s.CreateOrder = func(ctx context.Context, item string, qty int64) (string, error) {
			id, err := create(ctx, item, qty)
			if err != nil && is(err) {
				err = fmt.Errorf("%w: %w", clienttest.ErrNotCreated, err)
			}
			return id, err
		}
	}
}

// keeps makes a client use an answer for some time without a question.
func keeps(fresh func(http.Header) time.Duration) func(*subject) {
	return func(s *subject) {
		kept, until := make(map[string]answer), make(map[string]time.Time)
		s.way = func(r *http.Request, sent []byte) answer {
			path := r.URL.Path
			if time.Now().Before(until[path]) {
				return kept[path]
			}
			a := s.send(r, sent)
			if a.status == http.StatusOK && a.err == nil && nameIn(string(a.body)) != "" {
				kept[path], until[path] = a, time.Now().Add(fresh(a.header))
			}
			return a
		}
	}
}

var (
	orders   = []conformance.Kind{conformance.Orders}
	bodies   = []conformance.Kind{conformance.Orders, conformance.Fields}
	lists    = []conformance.Kind{conformance.Users, conformance.Widgets, conformance.History}
	products = []conformance.Kind{conformance.Products}
	reads    = append(slices.Clone(lists), conformance.Products, conformance.Lookups)
	someKind = []conformance.Kind{conformance.Orders, conformance.Users, conformance.Products}

	changedOnItsWay = regexp.MustCompile(`"urn:problem-type:storefront:(invalid-query|not-found)"`)

	nextInLink = regexp.MustCompile(`<[^>]*(?:after|start)=([^>&]*)>; rel="next"`)
	nextInBody = regexp.MustCompile(`"next":"[^"]*"`)
)

// Each of these does in another way what may be done so, and breaks no promise.
var rightClients = []struct {
	name   string
	kinds  []conformance.Kind // that it does in another way
	change func(*subject)
}{
	{"retries have other white space, and their members another sequence", bodies, func(s *subject) {
		tries := 0
		sends(func(_ *http.Request, sent []byte) []byte {
			if tries++; tries%2 == 0 {
				var o struct {
					Fields json.RawMessage `json:"fields,omitempty"`
					Item   string          `json:"item"`
					Qty    json.Number     `json:"qty"`
				}
				json.Unmarshal(sent, &o)
				sent, _ = json.MarshalIndent(o, "", "\t")
			}
			return sent
		})(s)
	}},
	{"it waits for half of a limit at least, and up to a minute for Retry-After", orders,
		waits(func(tries int, a answer) time.Duration {
			limit := waitLimit(tries) / 2
			return min(told(a), time.Minute) + limit + mathrand.N(limit)
		})},
	{"it leaves an order to a queue after 30 s", orders, queues(30*time.Second, 30*time.Second)},
	{"it says that nothing was created if each try was refused", orders, refuses(func(err error) bool {
		_, refused := errors.AsType[*client.RefusedError](err)
		return refused
	})},
	{"it signs in after 401 and goes on", someKind, func(s *subject) {
		s.way = func(r *http.Request, sent []byte) answer {
			a := s.send(r, sent)
			if a.status == http.StatusUnauthorized {
				time.Sleep(time.Second)
				r.Header.Set("Authorization", "Bearer 1")
				a = s.send(r, sent)
			}
			return a
		}
	}},
	{"it looks around at each request", someKind, func(s *subject) {
		s.way = func(r *http.Request, sent []byte) answer {
			for _, look := range []string{"OPTIONS " + r.URL.EscapedPath(), "HEAD /openapi.json",
				"GET /v1/products/kettle"} {
				method, path, _ := strings.Cut(look, " ")
				if !strings.HasPrefix(r.URL.Path, "/v1/products/") || method != http.MethodGet { // which it reads anyway
					other, _ := http.NewRequestWithContext(r.Context(), method, "http://"+r.URL.Host+path, nil)
					s.send(other, nil)
				}
			}
			return s.send(r, sent)
		}
	}},
	{"it is stalled before it sends, and until it is too late for an answer", someKind, func(s *subject) {
		requests := 0
		s.way = func(r *http.Request, sent []byte) answer {
			requests++
			if requests%3 == 0 {
				time.Sleep(10 * time.Second)
			}
			a := s.send(r, sent)
			if requests%4 == 1 {
				time.Sleep(10 * time.Second)
				a.err = context.DeadlineExceeded
			}
			return a
		}
	}},
	{"products are kept", products, keeps(func(header http.Header) time.Duration {
		control := httpfield.ParseCacheControl(header.Values("Cache-Control"))
		if control.NoCache || control.NoStore {
			return 0
		}
		age, _ := strconv.Atoi(header.Get("Age"))
		return control.MaxAge - time.Duration(age)*time.Second
	})},
	{"it reads again what was changed on its way", reads, func(s *subject) {
		s.way = func(r *http.Request, sent []byte) answer {
			a := s.send(r, sent)
			for range 2 {
				if isRead(r) && a.err == nil && changedOnItsWay.Match(a.body) {
					time.Sleep(time.Second)
					a = s.send(r, sent)
				}
			}
			return a
		}
	}},
	{"walks follow Link", lists, takes(func(_ *http.Request, _ []byte, a answer) answer {
		if next := nextInLink.FindStringSubmatch(strings.Join(a.header["Link"], ", ")); next != nil {
			a.body = nextInBody.ReplaceAll(a.body, []byte(`"next":"`+next[1]+`"`))
		}
		return a
	})},
}

func TestRightClientsPass(t *testing.T) {
	for _, r := range rightClients {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			trial := clienttest.Trial{Kinds: r.kinds, Waits: true}
			if broken := trial.Broken(t, changed(r.change)); len(broken) > 0 {
				t.Errorf("It is accused of %q.", broken)
			}
		})
	}
}

// changed makes clients that do something in another way.
func changed(change func(*subject)) func(clienttest.Service) *drive.Client {
	return func(service clienttest.Service) *drive.Client {
		s := newSubject(service)
		change(s)
		return s.Client
	}
}
