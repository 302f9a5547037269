package clienttest_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
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

func says(text string) func(answer) bool {
	return func(a answer) bool { return strings.Contains(string(a.body), text) }
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

// anew is a client that takes another key after some answers, and goes on.
func anew(is func(answer) bool) func(*client) {
	return func(c *client) {
		keys := make(map[string]string) // in place of the first
		c.try = func(ctx context.Context, first string, body []byte) answer {
			a := c.send(ctx, cmp.Or(keys[first], first), body)
			if is(a) {
				keys[first], a = rand.Text(), answer{}
			}
			return a
		}
	}
}

var wrongClients = []wrongClient{
	{"a key for each try", tries(func(_ int, _ string, body []byte) (string, []byte) { return rand.Text(), body }),
		[]string{"agreement", "one-key"}},
	{"a key for each client", func(c *client) {
		key := rand.Text()
		c.key = func(string) string { return key }
	}, []string{"own-key"}},
	{"a key that is a hash of what is ordered", func(c *client) {
		c.key = func(item string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(item))) }
	}, []string{"own-key"}},
	{"a key with 32 bits", func(c *client) {
		c.key = func(string) string { return fmt.Sprintf("order-2026-%08x", mathrand.Uint32()) }
	}, []string{"random-key"}},
	{"no key", tries(func(_ int, _ string, body []byte) (string, []byte) { return "", body }),
		[]string{"request"}},
	{"another key after order-refused", anew(says("order-refused")), []string{"agreement", "one-key"}},
	{"another key once it has signed in", anew(status(401)), []string{"agreement", "one-key"}},
	{"another key when it goes on", resumes(func(ctx context.Context, c *client, open *openError) (string, error) {
		return c.place(ctx, rand.Text(), open.body, open.first)
	}), []string{"agreement", "one-key"}},
	{"its time begins anew when it goes on", resumes(func(ctx context.Context, c *client, open *openError) (string, error) {
		return c.place(ctx, open.key, open.body, time.Now())
	}), []string{"agreement", "ends"}},
	{"it does not go on", func(c *client) {
		c.resume = func(_ context.Context, open *openError) (string, error) { return "", open }
	}, []string{"goes-on"}},
	{"the quantity of retries changes", tries(func(try int, key string, body []byte) (string, []byte) {
		if try > 1 {
			body = bytes.Replace(body, []byte(`"qty":2}`), []byte(`"qty":1}`), 1)
		}
		return key, body
	}), []string{"same-order"}},
	{"the item changes its form when it goes on", resumes(func(ctx context.Context, c *client, open *openError) (string, error) {
		return c.place(ctx, open.key, bytes.ReplaceAll(open.body, []byte("é"), []byte("e\u0301")), open.first)
	}), []string{"same-order"}},
	{"the quantity is a float", tries(func(_ int, key string, body []byte) (string, []byte) {
		return key, bytes.Replace(body, []byte("9007199254740991"), []byte("9007199254740990"), 1)
	}), []string{"request"}},
	{"it gives up at the first 503", also(final, status(503)), []string{"goes-on"}},
	{"it gives up when the connection breaks", also(final, status(0)), []string{"goes-on"}},
	{"it gives up after a minute", func(c *client) { c.end = time.Minute }, []string{"goes-on"}},
	{"its queue takes over before it says", queues(30*time.Second, 20*time.Second), []string{"goes-on"}},
	{"its queue sends nothing", func(c *client) {
		queues(30*time.Second, 30*time.Second)(c)
		c.resume = func(_ context.Context, open *openError) (string, error) { return "", open }
	}, []string{"goes-on"}},
	{"its queue takes a new key", func(c *client) {
		queues(30*time.Second, 30*time.Second)(c)
		resume := c.resume
		c.resume = func(ctx context.Context, open *openError) (string, error) {
			return resume(ctx, &openError{rand.Text(), open.body, open.first, ""})
		}
	}, []string{"agreement", "one-key"}},
	{"it gives up at 409", also(final, status(409)), []string{"goes-on"}},
	{"it gives up at 429", also(final, status(429)), []string{"goes-on"}},
	{"it gives up at 408", also(final, status(408)), []string{"goes-on"}},
	{"it gives up at 500", also(final, status(500)), []string{"goes-on"}},
	{"it gives up at 201 without an order", also(final, func(a answer) bool {
		_, v := judge(a)
		return a.status == 201 && v == again
	}), []string{"goes-on"}},
	{"it tries again after 401", also(again, status(401)), []string{"stops"}},
	{"it tries again after each 4xx", also(again, func(a answer) bool { return a.status/100 == 4 }),
		[]string{"stops"}},
	{"it tries again after 404 alone", also(again, status(404)), []string{"stops"}},
	{"it tries again after 501", also(again, status(501)), []string{"stops"}},
	{"it tries again after order-refused", also(again, says("order-refused")), []string{"stops"}},
	{"it tries again after 302", also(again, status(301, 302, 303)), []string{"stops"}},
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
	{"it goes on in the background for long", func(c *client) {
		c.judge = func(a answer) (string, verdict) {
			if a.status == 401 {
				go time.Sleep(24 * time.Hour)
			}
			return judge(a)
		}
	}, []string{"silence"}},
	{"it never gives up", func(c *client) { c.end = 1e6 * time.Hour }, []string{"agreement", "ends"}},
	{"it takes 200 for success", also(created, status(200)), []string{"success"}},
	{"it takes 202 for success", also(created, status(202)), []string{"success"}},
	{"it takes 204 for success", also(created, status(204)), []string{"success"}},
	{"it takes 201 with anything for success", also(created, status(201)), []string{"right-id", "success"}},
	{"it takes 409 for success", also(created, status(409)), []string{"right-id", "success"}},
	{"it takes 422 for success", also(created, status(422)), []string{"success"}},
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
	}, []string{"not-created"}},
	{"no chance in the waits",
		pauses(func(tries int, a answer) time.Duration { return told(a) + waitLimit(tries) }),
		[]string{"waits-differ"}},
	{"the waits do not grow",
		pauses(func(_ int, a answer) time.Duration { return pause(7, a) }), []string{"waits-grow"}},
	{"it does not wait", pauses(func(int, answer) time.Duration { return 0 }),
		[]string{"ends", "retry-after", "waits-differ", "waits-grow"}},
	{"Retry-After is ignored",
		pauses(func(tries int, _ answer) time.Duration { return pause(tries, answer{}) }),
		[]string{"retry-after"}},
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
	{"only the head of an answer has a limit", func(c *client) {
		whole := c.http.Transport
		c.http.Timeout = 0
		c.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			ctx, cancel := context.WithCancel(r.Context())
			defer time.AfterFunc(40*time.Second, cancel).Stop()
			return whole.RoundTrip(r.WithContext(ctx))
		})
	}, []string{"try-limit"}},
	{"redirects are followed", func(c *client) { c.http.CheckRedirect = nil }, []string{"redirects", "success"}},
	{"the path ends in a slash", func(c *client) {
		c.try = func(ctx context.Context, key string, body []byte) answer {
			other := *c
			other.url = strings.Replace(c.url, "shop.test", "shop.test/", 1)
			return other.send(ctx, key, body)
		}
	}, []string{"request"}},

	{"cursors are in capitals", pages(func(ids []string, next string, err error) ([]string, string, error) {
		return ids, strings.ToUpper(next), err
	}), []string{"cursor", "walks"}},
	{"Link is resolved against the base URL", func(c *client) {
		c.followLink(func(*url.URL) *url.URL { return &url.URL{Path: "/"} })
	}, []string{"list-request", "walks"}},
	{"a walk stops at an empty page", stopsIf(func(ids []string) bool { return len(ids) == 0 }),
		[]string{"whole-list"}},
	{"a walk stops at a page that is not full", stopsIf(func(ids []string) bool { return len(ids) < 100 }),
		[]string{"whole-list"}},
	{"a walk stops at an error", pages(func(ids []string, next string, err error) ([]string, string, error) {
		if err != nil {
			return nil, "", nil
		}
		return ids, next, nil
	}), []string{"whole-list"}},
	{"a walk starts anew and keeps what it has", func(c *client) {
		c.list = func(ctx context.Context, path, cursor string) (ids []string, err error) {
			for query := (url.Values{"limit": {"100"}}); ; {
				some, next, err := readPage(c.fetch(ctx, path+"?"+query.Encode(), ""))
				switch {
				case err != nil:
					query.Del(cursor)
					if err := sleep(ctx, time.Minute); err != nil {
						return nil, err
					}
					continue
				case next == "":
					return append(ids, some...), nil
				}
				ids = append(ids, some...)
				query.Set(cursor, next)
			}
		}
	}, []string{"each-once", "walk-ends"}},
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
	{"reads are tried again after 404", rereads(status(404)), []string{"read-stops"}},
	{"reads ignore Retry-After with 503", rereads(status(503)), []string{"read-waits", "walk-waits"}},
	{"reads ignore Retry-After with 429", rereads(status(429)), []string{"read-waits", "walk-waits"}},
	{"the limit is above the highest", func(c *client) { c.limit = 1000 }, []string{"list-request", "walks"}},
	{"users and widgets change places", func(c *client) {
		c.list = func(ctx context.Context, path, cursor string) ([]string, error) {
			if path == "/v1/users" {
				return c.walk(ctx, "/v2/widgets", "start")
			}
			return c.walk(ctx, "/v1/users", "after")
		}
	}, []string{"each-once", "list-request", "whole-list"}},

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
	{"max-age is always a minute", func(c *client) {
		newCache(c).useless = func(a answer) bool {
			return !strings.HasPrefix(a.header.Get("Cache-Control"), "private, max-age=") ||
				strings.Contains(a.header.Get("Cache-Control"), "no-")
		}
	}, []string{"fresh"}},
	{"IDs are not escaped", gets(func(ctx context.Context, c *client, id string) (string, error) {
		a := c.fetch(ctx, "/v1/products/"+strings.ReplaceAll(id, " ", "+"), "")
		var product struct{ Name string }
		if err := json.Unmarshal(a.body, &product); err == nil && product.Name != "" {
			return product.Name, nil
		}
		return c.product(ctx, "")
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
	{"null is a product", gets(func(ctx context.Context, c *client, id string) (name string, err error) {
		err = c.ask(ctx, productPath(id), "", func(a answer) (err error) {
			if name, err = nameIn(a, id); string(a.body) == "null" {
				return nil
			}
			return err
		})
		return name, err
	}), []string{"product"}},
	{"a product that is not there has no name", gets(func(ctx context.Context, c *client, id string) (string, error) {
		name, err := c.product(ctx, id)
		if err != nil && strings.HasPrefix(err.Error(), "404") {
			return "", nil
		}
		return name, err
	}), []string{"product"}},
	{"a product is asked for until it is there", gets(func(ctx context.Context, c *client, id string) (string, error) {
		for {
			if name, err := c.product(ctx, id); err == nil {
				return name, nil
			}
			if err := sleep(ctx, time.Second); err != nil {
				return "", err
			}
		}
	}), []string{"read-ends", "read-stops"}},
	{"the product is behind a slash", gets(func(ctx context.Context, c *client, id string) (string, error) {
		return c.product(ctx, "/"+id)
	}), []string{"reads"}},
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

// stopsIf makes walks end at some pages.
func stopsIf(last func(ids []string) bool) func(*client) {
	return pages(func(ids []string, next string, err error) ([]string, string, error) {
		if last(ids) {
			next = ""
		}
		return ids, next, err
	})
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
			if got := clienttest.Broken(t, 1, w.caught, w.new); !slices.Equal(got, w.caught) {
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

// A seed decides what is left to chance but for the clients' own, which decides nothing.
func TestSeedHasTheSameVerdictTwice(t *testing.T) {
	right := wrongClient{change: func(*client) {}}
	same := func(t *testing.T, seed uint64, w wrongClient) {
		checks := w.caught
		if checks == nil {
			checks = clienttest.Checks()
		}
		first := clienttest.Broken(t, seed, checks, w.new)
		if again := clienttest.Broken(t, seed, checks, w.new); !slices.Equal(first, again) ||
			len(first) == 0 != (w.caught == nil) {
			t.Errorf("%q: caught by %q, and again by %q", w.name, first, again)
		}
	}
	for first := uint64(0); first < *seeds; first += 100 {
		// testing keeps what ran in parallel until the test around it ends: some megabytes a seed.
		t.Run(fmt.Sprint("from ", first), func(t *testing.T) {
			for seed := first; seed < min(first+100, *seeds); seed++ {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					t.Parallel()
					same(t, seed, right)
					same(t, seed, wrongClients[seed%uint64(len(wrongClients))])
				})
			}
		})
	}
}

var seeds = flag.Uint64("seeds", 3, "how many seeds TestSeedHasTheSameVerdictTwice tries")
