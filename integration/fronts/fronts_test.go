package fronts

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "16") // for they wait, mostly
	os.Exit(m.Run())
}

func TestProxies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		config             string
		start              func(t *testing.T, config string) *front
		caches, compresses bool
	}{
		{"nginx.conf", startNginx, false, true},
		{"nginx-cache.conf", startNginx, true, true},
		{"varnish.vcl", startVarnish, true, false},
		{"haproxy.cfg", startHAProxy, false, false},
		{"apache.conf", startApache, false, true},
		{"lighttpd.conf", startLighttpd, false, false},
		{"Caddyfile", startCaddy, false, true},
	} {
		t.Run(row.config, func(t *testing.T) {
			t.Parallel()
			f := row.start(t, documented(t, row.config))
			testProxy(t, f)
			if row.caches {
				testCache(t, f)
			} else {
				testPassing(t, f)
			}
			if row.compresses {
				testCompression(t, f)
			}
		})
	}
}

// Behind a prefix, all is as at the root: pages, paths that are escaped, and what stays inside.
func TestPrefix(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *front{
		"nginx": func(t *testing.T) *front { return startNginx(t, documented(t, "nginx-prefix.conf")) },
		"Apache": func(t *testing.T) *front { // as docs/operations.md has it
			return startApache(t, replaced(t, documented(t, "apache.conf"),
				"ProxyPass /metrics !", "ProxyPass /shop/metrics !", "ProxyPass / http", "ProxyPass /shop/ http"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t).open(t, nil)
			s.addUsers("a", "c", "e", "g", "i")
			s.wantWalk(t, "/shop/v1/users?limit=2", "a", "c", "e", "g", "i")
			s.store.Products.Put(storefront.MustResource("a/b ü", nil))
			if r := s.send(t, "GET", "/shop/v1/products/a%2Fb%20%C3%BC", ""); r.status != http.StatusOK {
				t.Errorf("a product with an escaped slash is answered with %d", r.status)
			}
			arrived := s.arrived()
			for _, path := range []string{"/v1/users", "/shop/metrics", "/shop//metrics", "/shop/%6detrics", "/%73hop/metrics"} {
				r := s.send(t, "GET", path, "")
				if r.status < 400 || s.arrived() > arrived && s.last().URL.EscapedPath() == "/metrics" {
					t.Errorf("%s is answered with %d", path, r.status)
				}
			}
		})
	}
}

// With a database that is away, all replicas are unready, and it is they who answer 503
// with Retry-After, as the second backend has the requests.
func TestHAProxyNeedsTheSecondBackend(t *testing.T) {
	t.Parallel()
	f := startHAProxy(t, documented(t, "haproxy.cfg"))
	s := f.open(t, nil)
	f.unready.Store(true)
	wait(t, "a check after the three that take a server out", func() bool { return f.refused.Load() > 3 })
	if r := s.get(t); r.status != http.StatusOK || s.arrived() != 1 {
		t.Errorf("the client got %d, and %d requests arrived, want that it does", r.status, s.arrived())
	}
}

// A replica that has just been restarted refuses connections until a check finds out. Its
// requests go to another one.
func TestHAProxyNeedsRedispatch(t *testing.T) {
	t.Parallel()
	const server = "#server b 127.0.0.1:8081 check\n\nbackend unready"
	config := replaced(t, documented(t, "haproxy.cfg"), server, "server down 127.0.0.1:1\n\nbackend unready")
	s := startHAProxy(t, config).open(t, nil)
	for range 4 { // in turn to the one and to the other
		if r := s.get(t); r.status != http.StatusOK {
			t.Errorf("with one of two replicas down, the client got %d", r.status)
		}
	}
}

// testProxy tests what any proxy in front of the service must do.
func testProxy(t *testing.T, f *front) {
	const tries = 10
	t.Run("an order is created once whatever the proxy retries", func(t *testing.T) {
		s := f.open(t, nil)
		s.order(t, "before")   // leaves the proxy a connection to use again
		s.breakOff.Store(true) // once the order has been created
		if first := s.order(t, "key"); first.status < 500 {
			t.Errorf("the connection broke before the answer, and the client got %d", first.status)
		}
		if n := s.arrived(); n != 2 && !f.resends {
			t.Errorf("an order of which nothing is known was sent %d times", n-1)
		}
		s.breakOff.Store(false)
		second := s.order(t, "key")
		if second.status != http.StatusCreated || second.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the retry is answered with %d %v, want the order that was created", second.status, second.header)
		}
		if n := len(s.store.Orders()); n != 2 {
			t.Errorf("there are %d orders, want 2", n)
		}
	})
	t.Run("the metrics, which tell how many orders there are, stay inside", func(t *testing.T) {
		s := f.open(t, nil)
		for _, path := range []string{"/metrics", "/metrics?x=1", "//metrics", "/./metrics", "/%6detrics"} {
			r := s.send(t, "GET", path, "")
			if n := s.arrived(); n > 0 && s.last().URL.EscapedPath() == "/metrics" || r.status < 400 {
				t.Errorf("GET %s is answered with %d, and arrives", path, r.status)
			}
		}
	})
	t.Run("an answer to an order is never given to another", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, &storefront.Options{Shared: true})
		for i := range 3 {
			if r := s.order(t, fmt.Sprint("key-", i)); r.status != http.StatusCreated || r.header.Get("Idempotent-Replayed") != "" {
				t.Fatalf("order %d is answered with %d %v", i, r.status, r.header)
			}
		}
		if n := len(s.store.Orders()); n != 3 {
			t.Errorf("there are %d orders, want 3", n)
		}
	})
	t.Run("the service's answer to a body that is too large arrives", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, nil)
		for _, size := range []int{64<<10 + 1, 200 << 10, 1000 << 10} {
			if size > 256<<10 && f.streams {
				continue // net/http reads no more than this from who sends on after an answer
			}
			for range tries {
				r := s.send(t, "POST", "/v1/orders", strings.Repeat(" ", size), "Content-Type: application/json", "Idempotency-Key: key")
				r.wantProblem(t, http.StatusRequestEntityTooLarge, "body-too-large")
			}
		}
	})
	t.Run("an answer that comes before the body arrives", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, nil)
		for range tries {
			r := s.send(t, "POST", "/v1/orders", strings.Repeat(" ", 60<<10), "Content-Type: text/plain", "Idempotency-Key: key")
			r.wantProblem(t, http.StatusUnsupportedMediaType, "unsupported-media-type")
		}
	})
	t.Run("paths and problems arrive as they are", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, nil)
		s.store.Products.Put(storefront.MustResource("a/b ü", nil))
		if r := s.send(t, "GET", "/v1/products/a%2Fb%20%C3%BC", ""); r.status != http.StatusOK {
			t.Errorf("a product with an escaped slash is answered with %d", r.status)
		}
		s.send(t, "GET", "/v1//users", "").wantProblem(t, http.StatusNotFound, "not-found")
		s.send(t, "GET", "/v1/users/../users", "").wantProblem(t, http.StatusNotFound, "not-found")
		s.send(t, "GET", "/v2/widgets", "").wantProblem(t, http.StatusBadRequest, "invalid-query")
		s.send(t, "PUT", "/v1/orders", "{}").wantProblem(t, http.StatusMethodNotAllowed, "method-not-allowed")
	})
	t.Run("a client is told that what all share is current", func(t *testing.T) {
		t.Parallel()
		f.open(t, &storefront.Options{Shared: true}).wantNotModified(t)
	})
}

// testPassing tests what a proxy without a cache must do, too.
func testPassing(t *testing.T, f *front) {
	t.Run("who asks and how arrives, and the whole answer", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, nil)
		r := s.get(t, "Authorization: Bearer token", "Range: bytes=0-1", "X-Account: ada")
		if cut := r.status == http.StatusPartialContent; cut != f.cuts || r.status != http.StatusOK && !cut {
			t.Errorf("with Range, the answer is %d", r.status)
		}
		if h := s.last().Header; h.Get("Authorization") != "Bearer token" || h.Get("X-Account") != "ada" {
			t.Errorf("the service was asked with %v", h)
		}
	})
	t.Run("a client is told whether an answer came from memory", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, nil)
		s.get(t, "Cache-Control: max-age=60")
		r := s.get(t, "Cache-Control: max-age=60")
		if !strings.HasPrefix(r.header.Get("Cache-Status"), "storefront; hit") || r.header.Get("Age") == "" {
			t.Errorf("the answer has %v, want a hit and its Age", r.header)
		}
	})
}

// testCompression tests what a proxy that compresses must do for who has what it compressed.
func testCompression(t *testing.T, f *front) {
	t.Run("a client is told that what was compressed is current", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, &storefront.Options{Shared: true})
		r := s.send(t, "GET", "/openapi.json", "", "Accept-Encoding: gzip")
		if r.header.Get("Content-Encoding") != "gzip" || !strings.Contains(r.header.Get("Vary"), "Accept-Encoding") {
			t.Errorf("it is not compressed, or for everybody: %v", r.header)
		}
		again := s.send(t, "GET", "/openapi.json", "", "Accept-Encoding: gzip", "If-None-Match: "+r.header.Get("ETag"))
		if again.status != http.StatusNotModified {
			t.Errorf("with %s in If-None-Match, the answer is %d", r.header.Get("ETag"), again.status)
		}
	})
}

// testCache tests what a proxy with a cache must do, too.
func testCache(t *testing.T, f *front) {
	t.Run("a private answer is never stored", func(t *testing.T) {
		t.Parallel()
		f.open(t, nil).wantNotStored(t)
		for _, credentials := range []string{"Authorization: Bearer token", "Cookie: session=1"} {
			f.open(t, &storefront.Options{Shared: true}).wantNotStored(t, credentials)
		}
	})
	t.Run("a problem is never stored", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, &storefront.Options{Shared: true})
		s.store.Products.Delete(s.product)
		for range 3 {
			s.get(t).wantProblem(t, http.StatusNotFound, "product-not-found")
		}
		if n := s.arrived(); n != 3 {
			t.Errorf("of 3 requests, %d have reached the service", n)
		}
		s.change(t)
		s.wantNew(t)
	})
	t.Run("no stored answer is given for longer than MaxAge", func(t *testing.T) {
		t.Parallel()
		const maxAge = time.Second
		s := f.open(t, &storefront.Options{Shared: true, MaxAge: maxAge})
		s.get(t)
		s.change(t)
		<-time.After(maxAge + rounding)
		s.wantNew(t)
	})
	t.Run("a walk sees what is there", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, &storefront.Options{Shared: true})
		s.addUsers("a", "c", "e", "g")
		s.wantWalk(t, "/v1/users?limit=2", "a", "c", "e", "g")
		s.addUsers("b")
		s.store.Users.Delete("a")
		s.wantWalk(t, "/v1/users?limit=2", "b", "c", "e", "g")
	})
	t.Run("what a client says of caching does not reach the service", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, &storefront.Options{Shared: true})
		s.get(t, "Cache-Control: max-age=60", "If-Match: *", "If-None-Match: *")
		if h := s.last().Header; h.Get("Cache-Control") != "" || h.Get("If-Match") != "" || h.Get("If-None-Match") != "" {
			t.Errorf("the service was asked with %v", h)
		}
	})
	t.Run("a shared answer is stored, asked about and replaced", func(t *testing.T) {
		t.Parallel()
		s := f.open(t, &storefront.Options{Shared: true, MaxAge: time.Second})
		first := s.get(t)
		wait(t, "an answer that the service was not asked for", func() bool {
			before := s.arrived()
			r := s.get(t)
			if r.status != http.StatusOK || r.body != first.body || r.header.Get("ETag") != first.header.Get("ETag") {
				t.Fatalf("the answer is %+v, want %+v", r, first)
			}
			return s.arrived() == before
		})
		wait(t, "a request with If-None-Match", func() bool {
			if r := s.get(t); r.status != http.StatusOK || r.body != first.body {
				t.Fatalf("the answer is %+v, want %+v", r, first)
			}
			return s.last().Header.Get("If-None-Match") == first.header.Get("ETag")
		})
		wait(t, "an answer that the service was not asked for, again", func() bool {
			before := s.arrived()
			s.get(t)
			return s.arrived() == before
		})
		s.change(t)
		wait(t, "the new product", func() bool { return s.get(t).body != first.body })
		s.wantNew(t)
	})
}

// Caches count in whole seconds, so that an answer lives a second longer.
const rounding = 1100 * time.Millisecond
