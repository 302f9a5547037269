package clienttest_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/client"
	"example.com/storefront/clienttest"
)

// blocked is an answer that is final.
var blocked = answer{status: http.StatusForbidden}

// created is the answer that there is an order, with the ID of the answer that is taken for it.
func created(sent []byte, a answer) answer {
	var order struct{ ID string }
	json.Unmarshal(a.body, &order)
	if order.ID == "" {
		order.ID = "unknown"
	}
	a.status = http.StatusCreated
	a.body = fmt.Appendf(nil, `{"id":%q,%s`, order.ID, bytes.TrimPrefix(sent, []byte("{")))
	return a
}

// keyed makes a client send other keys.
func keyed(key func(was string, sent []byte) string) func(*subject) {
	return sends(func(r *http.Request, sent []byte) []byte {
		if was := r.Header.Get("Idempotency-Key"); was != "" {
			r.Header.Set("Idempotency-Key", key(was, sent))
		}
		return sent
	})
}

// walks changes what comes of a walk through users or widgets.
func walks(change func(ids []string, err error) ([]string, error)) func(*subject) {
	return func(s *subject) {
		for _, list := range []*func(context.Context) ([]string, error){&s.ListUsers, &s.ListWidgets} {
			walk := *list
			*list = func(ctx context.Context) ([]string, error) { return change(walk(ctx)) }
		}
	}
}

// finds changes the errors of looks for an order.
func finds(change func(error) error) func(*subject) {
	return func(s *subject) {
		find := s.FindOrder
		s.FindOrder = func(ctx context.Context, err error) (string, error) {
			id, err := find(ctx, err)
			if err != nil {
				err = change(err)
			}
			return id, err
		}
	}
}

// isRead reports whether a request reads.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet }

// endless takes the limit of a try from a request.
func endless(r *http.Request) *http.Request { return r.WithContext(context.WithoutCancel(r.Context())) }

// Each breaks promises: exactly those of caught.
var wrongClients = []struct {
	name   string
	change func(*subject)
	caught []string
}{
	{"a key for each try", keyed(func(string, []byte) string { return rand.Text() }),
		[]string{"agreement", "one-key"}},
	{"a key that is a hash of what is ordered", keyed(func(_ string, sent []byte) string {
		return fmt.Sprintf("%x", sha256.Sum256(sent))
	}), []string{"own-key"}},
	{"a key with 32 bits", keyed(func(was string, _ []byte) string {
		return fmt.Sprintf("order-2026-%08x", crc32.ChecksumIEEE([]byte(was)))
	}), []string{"random-key"}},
	{"no key", keyed(func(string, []byte) string { return "" }), []string{"request"}},
	{"its time begins anew when it goes on", func(s *subject) {
		first := make(map[string]string) // keys by those of later drafts
		keyed(func(was string, _ []byte) string { return cmp.Or(first[was], was) })(s)
		s.ResumeOrder = func(ctx context.Context, err error) (string, error) {
			old := draftOf(err)
			draft, _ := client.NewDraftWithOptions(old.Item(), old.Qty(), &client.DraftOptions{Fields: old.Fields()})
			first[draft.Key()] = cmp.Or(first[old.Key()], old.Key())
			return s.order(ctx, draft)
		}
	}, []string{"agreement", "ends"}},
	{"the quantity of retries changes", func(s *subject) {
		tries := make(map[string]int)
		sends(func(r *http.Request, sent []byte) []byte {
			key := r.Header.Get("Idempotency-Key")
			if tries[key]++; tries[key] > 1 {
				sent = bytes.Replace(sent, []byte(`"qty":2}`), []byte(`"qty":1}`), 1)
			}
			return sent
		})(s)
	}, []string{"same-order", "stops", "takes-order"}}, // as it takes no answer to its second order
	{"it gives up when the connection breaks", takes(func(_ *http.Request, _ []byte, a answer) answer {
		if a.err != nil {
			return blocked
		}
		return a
	}), []string{"goes-on"}},
	{"its queue takes over before it says", queues(5*time.Minute, 10*time.Second), []string{"goes-on"}},
	{"its queue sends nothing", func(s *subject) {
		queues(30*time.Second, 30*time.Second)(s)
		s.ResumeOrder = func(_ context.Context, err error) (string, error) { return "", err }
	}, []string{"goes-on"}},
	{"it tries again after each 4xx", takes(func(_ *http.Request, _ []byte, a answer) answer {
		if a.status/100 == 4 {
			a.status = http.StatusServiceUnavailable
		}
		return a
	}), []string{"read-stops", "stops", "walk-stops"}},
	{"it goes on in the background", func(s *subject) {
		s.way = func(r *http.Request, sent []byte) answer {
			a := s.send(r, sent)
			if a.status == http.StatusServiceUnavailable {
				go func() {
					time.Sleep(time.Minute)
					s.send(endless(r), sent)
				}()
				return blocked
			}
			return a
		}
	}, []string{"goes-on", "silence"}},
	{"it takes 201 with anything for success", takes(func(_ *http.Request, sent []byte, a answer) answer {
		if a.status == http.StatusCreated && a.err == nil {
			return created(sent, a)
		}
		return a
	}), []string{"success"}},
	{"it makes IDs of its own", takes(func(_ *http.Request, _ []byte, a answer) answer {
		a.body = bytes.Replace(a.body, []byte(`{"id":"ord_`), []byte(`{"id":"order-`), 1)
		return a
	}), []string{"right-id"}},
	{"it takes an order with other fields", takes(func(_ *http.Request, sent []byte, a answer) answer {
		var was, is storefront.Order
		if a.status == http.StatusCreated && json.Unmarshal(sent, &was) == nil &&
			json.Unmarshal(a.body, &is) == nil && is.ID != "" && is.Item == was.Item && is.Qty == was.Qty {
			return created(sent, a)
		}
		return a
	}), []string{"success"}},
	{"a 100 that was not asked for is an error", func(s *subject) {
		s.way = func(r *http.Request, sent []byte) answer {
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				if code == http.StatusContinue {
					return errors.New("bad response") // as undici says
				}
				return nil
			}}
			return s.send(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)), sent)
		}
	}, []string{"interim"}},
	{"it looks where Location leads", func(s *subject) {
		s.way = func(r *http.Request, sent []byte) answer {
			a := s.send(r, sent)
			if to := a.header.Get("Location"); strings.HasPrefix(to, "/") {
				next, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+r.URL.Host+to, nil)
				s.send(next, nil)
			}
			return a
		}
	}, []string{"redirects"}},
	{"an answer may have any length", func(s *subject) { s.longest = 1 << 40 },
		[]string{"read-ends", "try-limit", "walk-ends"}},
	{"it takes a replay for an error", takes(func(_ *http.Request, _ []byte, a answer) answer {
		if a.err == nil && a.header.Get("Idempotent-Replayed") != "" {
			return blocked
		}
		return a
	}), []string{"takes-order"}},
	{"it says that nothing was created whenever an answer is final", refuses(func(err error) bool {
		_, unknown := errors.AsType[*client.UnknownError](err)
		return !unknown
	}), []string{"no-refusal", "not-created"}},
	{"no chance in the waits",
		waits(func(tries int, a answer) time.Duration { return told(a) + waitLimit(tries) }),
		[]string{"waits-differ"}},
	{"the waits do not grow",
		waits(func(_ int, a answer) time.Duration { return told(a) + 20*time.Second + mathrand.N(20*time.Second) }),
		[]string{"waits-grow"}},
	{"it does not wait", waits(func(int, answer) time.Duration { return 0 }),
		[]string{"ends", "retry-after", "waits-differ", "waits-grow"}},
	{"Retry-After is taken for 10 seconds at most", waits(func(tries int, a answer) time.Duration {
		return min(told(a), 10*time.Second) + mathrand.N(waitLimit(tries))
	}), []string{"retry-after"}},
	{"a date as Retry-After without a limit", waits(func(tries int, a answer) time.Duration {
		if at, err := http.ParseTime(a.header.Get("Retry-After")); err == nil {
			return time.Until(at)
		}
		return told(a) + mathrand.N(waitLimit(tries))
	}), []string{"comes-back"}},
	{"a try has no limit", func(s *subject) {
		s.way = func(r *http.Request, sent []byte) answer { return s.send(endless(r), sent) }
	}, []string{"read-ends", "try-limit", "walk-ends"}},

	{"cursors are in capitals", sends(func(r *http.Request, sent []byte) []byte {
		cursor := regexp.MustCompile("(after|start)=([^&]*)").FindStringSubmatch(r.URL.RawQuery)
		if cursor != nil {
			r.URL.RawQuery = strings.Replace(r.URL.RawQuery, cursor[2], strings.ToUpper(cursor[2]), 1)
		}
		return sent
	}), []string{"cursor", "walks"}},
	{"a walk that fails begins again", func(s *subject) {
		walk := s.ListUsers
		s.ListUsers = func(ctx context.Context) (ids []string, err error) {
			for err = errors.New("not begun"); err != nil; ids, err = walk(ctx) {
			}
			return ids, nil
		}
	}, []string{"walk-ends"}},
	{"a walk stops at an error", walks(func(ids []string, err error) ([]string, error) { return ids, nil }),
		[]string{"whole-list"}},
	{"a page is taken twice", walks(func(ids []string, err error) ([]string, error) {
		return append(ids, ids[:min(3, len(ids))]...), err
	}), []string{"each-once"}},
	{"reads ignore Retry-After", takes(func(r *http.Request, _ []byte, a answer) answer {
		if isRead(r) {
			a.header.Del("Retry-After")
		}
		return a
	}), []string{"read-waits", "walk-waits"}},
	{"the limit is above the highest", sends(func(r *http.Request, sent []byte) []byte {
		r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "limit=3", "limit=1000", 1)
		return sent
	}), []string{"list-request", "walks"}},

	{"a look that fails has found nothing", finds(func(error) error { return clienttest.ErrNotCreated }),
		[]string{"lookup"}},
	{"that there is no order is an error", finds(func(error) error { return storefront.ErrNotFound }),
		[]string{"finds"}},
	{"it looks by sending the order again", func(s *subject) { s.FindOrder = s.ResumeOrder },
		[]string{"lookup", "lookup-request"}},

	{"a product is kept for a minute", keeps(func(http.Header) time.Duration { return time.Minute }),
		[]string{"fresh"}},
	{"IDs are not escaped", func(s *subject) {
		get := s.GetProduct
		s.GetProduct = func(ctx context.Context, id string) (string, error) {
			return get(ctx, strings.ReplaceAll(id, "+", " "))
		}
	}, []string{"reads"}},
	{"whatever comes is a product", takes(func(r *http.Request, _ []byte, a answer) answer {
		id, ok := strings.CutPrefix(r.URL.Path, "/v1/products/")
		if ok && a.err == nil && nameIn(string(a.body)) == "" {
			a.status, a.body = http.StatusOK, fmt.Appendf(nil, `{"id":%q}`, id)
		}
		return a
	}), []string{"product"}},
	{"products are asked for by POST", sends(func(r *http.Request, sent []byte) []byte {
		r.Method = http.MethodPost
		return sent
	}), []string{"product-request", "reads"}},
}

func TestWrongClientsAreCaught(t *testing.T) {
	for i, w := range wrongClients {
		if raceDetected() && i%4 > 0 { // it takes ten times as long, and sees nothing else in the others
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			if got := clienttest.TrialOf(w.caught).Broken(t, changed(w.change)); !slices.Equal(got, w.caught) {
				t.Errorf("caught by %q, want %q", got, w.caught)
			}
		})
	}
}

func raceDetected() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func TestEachCheckCatchesAWrongClient(t *testing.T) {
	unmet := clienttest.Checks()
	for _, w := range wrongClients {
		unmet = slices.DeleteFunc(unmet, func(check string) bool { return slices.Contains(w.caught, check) })
	}
	if len(unmet) > 0 {
		t.Errorf("%q catch none", unmet)
	}
}
