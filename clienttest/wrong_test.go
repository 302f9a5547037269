package clienttest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
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

	"example.com/storefront/clienttest"
)

// A wrongClient breaks promises: exactly those of caught.
type wrongClient struct {
	name   string
	change func(c *client)
	caught []string
}

// also is a judge that takes some answers for something else.
func also(v verdict, is func(answer) bool) func(*client) {
	return func(c *client) {
		c.judge = func(a answer) (string, verdict) {
			if !is(a) {
				return judge(a)
			}
			var order struct{ ID string }
			if json.Unmarshal(a.body, &order); order.ID == "" {
				order.ID = "unknown"
			}
			return order.ID, v
		}
	}
}

func status(codes ...int) func(answer) bool {
	return func(a answer) bool { return slices.Contains(codes, a.status) }
}

// tries changes the tries of an order, which are counted from 1.
func tries(change func(try int, key string, body []byte) (string, []byte)) func(*client) {
	return func(c *client) {
		count := make(map[string]int) // by key
		c.try = func(ctx context.Context, key string, body []byte) answer {
			count[key]++
			key, body = change(count[key], key, body)
			return c.send(ctx, key, body)
		}
	}
}

var wrongClients = []wrongClient{
	{"a key for each try", tries(func(_ int, _ string, body []byte) (string, []byte) { return rand.Text(), body }),
		[]string{"agreement", "one-key"}},
	{"a key that is a hash of what is ordered", func(c *client) {
		c.key = func(item string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(item))) }
	}, []string{"own-key"}},
	{"a key with 32 bits", func(c *client) {
		c.key = func(string) string { return fmt.Sprintf("order-2026-%08x", mathrand.Uint32()) }
	}, []string{"random-key"}},
	{"no key", tries(func(_ int, _ string, body []byte) (string, []byte) { return "", body }),
		[]string{"request"}},
	{"its time begins anew when it goes on", resumes(func(ctx context.Context, c *client, open *openError) (string, error) {
		return c.place(ctx, open.key, open.body, time.Now())
	}), []string{"agreement", "ends"}},
	{"the quantity of retries changes", tries(func(try int, key string, body []byte) (string, []byte) {
		if try > 1 {
			body = bytes.Replace(body, []byte(`"qty":2}`), []byte(`"qty":1}`), 1)
		}
		return key, body
	}), []string{"same-order"}},
	{"the numbers of fields are floats", func(c *client) {
		c.encode = func(fields string) (v any) {
			json.Unmarshal([]byte(regexp.MustCompile("1E400|1e-400").ReplaceAllString(fields, "1")), &v)
			return v
		}
	}, []string{"request"}},
	{"it gives up when the connection breaks", also(final, status(0)), []string{"goes-on"}},
	{"it gives up after a minute", func(c *client) { c.end = time.Minute }, []string{"goes-on"}},
	{"its queue takes over before it says", queues(5*time.Minute, 10*time.Second), []string{"goes-on"}},
	{"its queue sends nothing", func(c *client) {
		queues(30*time.Second, 30*time.Second)(c)
		c.resume = func(_ context.Context, open *openError) (string, error) { return "", open }
	}, []string{"goes-on"}},
	{"it gives up at 409", also(final, status(409)), []string{"goes-on"}},
	{"it gives up at 201 without an order", also(final, func(a answer) bool {
		_, v := judge(a)
		return a.status == 201 && v == again
	}), []string{"goes-on"}},
	{"it tries again after each 4xx", also(again, func(a answer) bool { return a.status/100 == 4 }),
		[]string{"stops"}},
	{"it sends the order again to be sure", func(c *client) {
		c.try = func(ctx context.Context, key string, body []byte) answer {
			a := c.send(ctx, key, body)
			if a.status == 201 {
				time.Sleep(time.Second)
				c.send(ctx, key, body)
			}
			return a
		}
	}, []string{"stops"}},
	{"it goes on in the background", func(c *client) {
		c.judge = func(a answer) (string, verdict) {
			id, v := judge(a)
			if a.status == 503 {
				return "", final
			}
			return id, v
		}
		c.try = func(ctx context.Context, key string, body []byte) answer {
			a := c.send(ctx, key, body)
			if a.status == 503 {
				go func() {
					time.Sleep(time.Minute)
					c.send(context.WithoutCancel(ctx), key, body)
				}()
			}
			return a
		}
	}, []string{"goes-on", "silence"}},
	{"it never gives up", func(c *client) {
		c.end = 1e6 * time.Hour
		c.pause = func(tries int, a answer) time.Duration {
			if tries > 10 {
				return time.Hour
			}
			return pause(tries, a)
		}
	}, []string{"agreement", "ends"}},
	{"it takes 202 for success", also(created, status(202)), []string{"success"}},
	{"it takes 201 with anything for success", also(created, status(201)), []string{"right-id", "success"}},
	{"it takes an order with other fields for its own", also(created, func(a answer) bool {
		order, sent := decode(a.body), decode(a.sent)
		return a.status == 201 && order.ID != "" && order.Item == sent.Item && order.Qty == sent.Qty
	}), []string{"success"}},
	{"a 100 that was not asked for is an error", func(c *client) {
		whole := c.http.Transport
		c.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				if code == http.StatusContinue {
					return errors.New("bad response") // as undici says
				}
				return nil
			}}
			return whole.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		})
	}, []string{"finds", "interim", "reads", "walks"}},
	{"it looks where Location leads", func(c *client) {
		c.try = func(ctx context.Context, key string, body []byte) answer {
			a := c.send(ctx, key, body)
			if to := a.header.Get("Location"); a.status == 201 && strings.HasPrefix(to, "/") {
				c.fetch(ctx, to, "")
			}
			return a
		}
	}, []string{"redirects"}},
	{"an answer may have any length", func(c *client) { c.whole = true },
		[]string{"read-ends", "try-limit", "walk-ends"}},
	{"it takes a replay for an error",
		also(final, func(a answer) bool { return a.header.Get("Idempotent-Replayed") != "" }),
		[]string{"takes-order"}},
	{"it makes IDs of its own", func(c *client) {
		c.judge = func(a answer) (string, verdict) {
			_, v := judge(a)
			return "order-1", v
		}
	}, []string{"right-id"}},
	{"it says that nothing was created whenever an answer is final", func(c *client) {
		c.refused = func(_ int, open *openError) error {
			return fmt.Errorf("%w: %w", clienttest.ErrNotCreated, open)
		}
	}, []string{"no-refusal", "not-created"}},
	{"no chance in the waits",
		pauses(func(tries int, a answer) time.Duration { return told(a) + waitLimit(tries) }),
		[]string{"waits-differ"}},
	{"the waits do not grow",
		pauses(func(_ int, a answer) time.Duration { return told(a) + 20*time.Second + mathrand.N(20*time.Second) }),
		[]string{"waits-grow"}},
	{"it does not wait after 503", pauses(func(tries int, a answer) time.Duration {
		if a.status == 503 {
			return 0
		}
		return pause(tries, a)
	}),
		[]string{"ends", "retry-after", "waits-differ", "waits-grow"}},
	{"Retry-After is taken for 10 seconds at most", pauses(func(tries int, a answer) time.Duration {
		return min(told(a), 10*time.Second) + pause(tries, answer{})
	}), []string{"retry-after"}},
	{"a date as Retry-After without a limit", pauses(func(tries int, a answer) time.Duration {
		if at, err := http.ParseTime(a.header.Get("Retry-After")); err == nil {
			return time.Until(at)
		}
		return pause(tries, a)
	}), []string{"comes-back"}},
	{"a try has no limit", func(c *client) { c.http.Timeout = 0 }, []string{"try-limit"}},
	{"redirects are followed", func(c *client) { c.http.CheckRedirect = nil }, []string{"redirects", "success"}},

	{"cursors are in capitals", pages(func(ids []string, next string, err error) ([]string, string, error) {
		return ids, strings.ToUpper(next), err
	}), []string{"cursor", "walks"}},
	{"a page needs no has_more", func(c *client) {
		c.page = func(a answer) (ids []string, next string, err error) {
			if !bytes.Contains(a.body, []byte(`"has_more":`)) {
				a.body = bytes.Replace(a.body, []byte("]}"), []byte(`],"has_more":false}`), 1)
			}
			return readPage(a)
		}
	}, []string{"lookup", "whole-list"}},
	{"a list may go round", func(c *client) { c.round = true }, []string{"each-once", "walk-ends"}},
	{"a look that fails has found nothing", func(c *client) {
		c.find = func(ctx context.Context, key string) (string, error) {
			if id, err := c.look(ctx, key); err == nil {
				return id, nil
			}
			return "", clienttest.ErrNotCreated
		}
	}, []string{"lookup"}},
	{"it looks by sending the order again", func(c *client) {
		c.find = func(ctx context.Context, key string) (string, error) {
			return c.place(ctx, key, []byte(`{"item":"teapot","qty":2}`), time.Now())
		}
	}, []string{"lookup", "lookup-request"}},
	{"a walk stops at an empty page", func(c *client) {
		c.page = func(a answer) (ids []string, next string, err error) {
			if ids, next, err = readPage(a); len(ids) == 0 {
				next = ""
			}
			return ids, next, err
		}
	}, []string{"whole-list"}},
	{"a walk stops at an error", pages(func(ids []string, next string, err error) ([]string, string, error) {
		if err != nil {
			return nil, "", nil
		}
		return ids, next, nil
	}), []string{"whole-list"}},
	{"lists are turned around", func(c *client) {
		c.list = func(ctx context.Context, path, cursor string) ([]string, error) {
			ids, err := c.walk(ctx, path, cursor)
			slices.Reverse(ids)
			return ids, err
		}
	}, []string{"in-sequence"}},
	{"a page is taken twice", pages(func(ids []string, next string, err error) ([]string, string, error) {
		return append(ids, ids...), next, err
	}), []string{"each-once"}},
	{"reads have no limit", func(c *client) {
		c.http.Timeout = 0
		c.try = func(ctx context.Context, key string, body []byte) answer {
			ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
			defer cancel()
			return c.send(ctx, key, body)
		}
	}, []string{"read-ends", "walk-ends"}},
	{"reads are tried again after 4xx",
		rereads(func(a answer) bool { return a.status/100 == 4 && a.status != 429 }),
		[]string{"read-stops", "walk-stops"}},
	{"reads ignore Retry-After with 503", rereads(status(503)), []string{"read-waits", "walk-waits"}},
	{"the limit is above the highest", func(c *client) { c.limit = 1000 }, []string{"list-request", "walks"}},

	{"Age is ignored", func(c *client) {
		kept := newCache(c)
		c.get = func(ctx context.Context, id string) (string, error) {
			before := kept.until
			name, err := kept.get(ctx, id)
			if kept.until != before && !kept.until.IsZero() {
				kept.until = time.Now().Add(time.Minute)
			}
			return name, err
		}
	}, []string{"fresh"}},
	{"no-cache is ignored", func(c *client) {
		newCache(c).useless = func(answer) bool { return false }
	}, []string{"fresh"}},
	{"IDs are not escaped", gets(func(ctx context.Context, c *client, id string) (string, error) {
		return c.product(ctx, strings.ReplaceAll(id, "+", " "))
	}), []string{"reads"}},
	{"tags are made", gets(func(ctx context.Context, c *client, id string) (string, error) {
		c.fetch(ctx, "/v1/products/"+id, `"1"`)
		return c.product(ctx, id)
	}), []string{"tag"}},
	{"whatever comes is a product", gets(func(ctx context.Context, c *client, id string) (string, error) {
		var product struct{ Name string }
		json.Unmarshal(c.fetch(ctx, "/v1/products/"+id, "").body, &product)
		return product.Name, nil
	}), []string{"product"}},
	{"products are asked for by POST", gets(func(ctx context.Context, c *client, id string) (string, error) {
		req, _ := http.NewRequestWithContext(ctx, "POST", c.url+"/v1/products/"+id, nil)
		c.do(req)
		return c.product(ctx, id)
	}), []string{"product-request"}},
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// rereads is a client that asks for pages and products three times more after some answers,
// whatever Retry-After says.
func rereads(is func(answer) bool) func(*client) {
	return func(c *client) {
		fetch := func(ctx context.Context, target string) (a answer) {
			for tries := range 4 {
				if a = c.fetch(ctx, target, ""); !is(a) || sleep(ctx, pause(tries, answer{})) != nil {
					break
				}
			}
			return a
		}
		c.listBy(fetch)
		c.get = func(ctx context.Context, id string) (string, error) {
			return nameIn(fetch(ctx, productPath(id)), id)
		}
	}
}

// pages changes what a client reads from a page.
func pages(change func(ids []string, next string, err error) ([]string, string, error)) func(*client) {
	return func(c *client) { c.page = func(a answer) ([]string, string, error) { return change(readPage(a)) } }
}

// gets changes how a client reads a product.
func gets(get func(ctx context.Context, c *client, id string) (string, error)) func(*client) {
	return func(c *client) {
		c.get = func(ctx context.Context, id string) (string, error) { return get(ctx, c, id) }
	}
}

// resumes changes how a client goes on with an order.
func resumes(resume func(ctx context.Context, c *client, open *openError) (string, error)) func(*client) {
	return func(c *client) {
		c.resume = func(ctx context.Context, open *openError) (string, error) { return resume(ctx, c, open) }
	}
}

func TestWrongClientsAreCaught(t *testing.T) {
	for i, w := range wrongClients {
		if raceDetected() && i%4 > 0 { // it takes ten times as long, and sees nothing else in the others
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			if got := clienttest.TrialOf(w.caught).Broken(t, w.new); !slices.Equal(got, w.caught) {
				t.Errorf("caught by %q, want %q", got, w.caught)
			}
		})
	}
}

func raceDetected() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func (w wrongClient) new(_ *testing.T, s clienttest.Service) clienttest.Client {
	c := newClient(s)
	w.change(c)
	return c.asked()
}

func TestEachCheckCatchesAWrongClient(t *testing.T) {
	for _, check := range clienttest.Checks() {
		if !slices.ContainsFunc(wrongClients,
			func(w wrongClient) bool { return slices.Contains(w.caught, check) }) {
			t.Errorf("%s catches none", check)
		}
	}
}
