package storefront

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// A shelf is a store of products that counts: the n-th call of GetProduct returns
// the version n of whatever it is asked for, unless fail says otherwise.
type shelf struct {
	stubStore
	handler http.Handler

	mu    sync.Mutex
	calls int
	fail  error
}

// newShelf returns a shelf and the handler on it. wait, if it is not nil, is what
// the n-th call does before it returns.
func newShelf(opts *Options, wait func(ctx context.Context, n int) error) *shelf {
	s := new(shelf)
	s.getProduct = func(ctx context.Context, id string) (Resource, error) {
		s.mu.Lock()
		s.calls++
		n, err := s.calls, s.fail
		s.mu.Unlock()
		if wait != nil && err == nil {
			err = wait(ctx, n)
		}
		if err != nil {
			return Resource{}, err
		}
		return productVersion(id, n), nil
	}
	var quiet Options
	if opts != nil {
		quiet = *opts
	}
	quiet.Logger = slog.New(slog.DiscardHandler)
	s.handler = NewWithOptions(s, &quiet)
	return s
}

func productVersion(id string, n int) Resource {
	return MustResource(id, map[string]int{"version": n})
}

func (s *shelf) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// get reads the product p1 with Cache-Control lines.
func (s *shelf) get(cacheControl ...string) response {
	return get(s.handler, "/v1/products/p1", cacheControlLines(cacheControl)...)
}

func cacheControlLines(values []string) []string {
	var lines []string
	for _, value := range values {
		lines = append(lines, "Cache-Control: "+value)
	}
	return lines
}

// start begins what get does, in its own goroutine. A panic of the handler is
// sent as the body of a response without status.
func (s *shelf) start(ctx context.Context, cacheControl ...string) <-chan response {
	done := make(chan response, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- response{body: fmt.Sprint(v)}
			}
		}()
		r := httptest.NewRequestWithContext(ctx, "GET", "/v1/products/p1", nil)
		if len(cacheControl) > 0 {
			r.Header["Cache-Control"] = cacheControl
		}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		done <- response{w.Code, w.Header(), w.Body.String()}
	}()
	return done
}

// wantVersion checks that the response is this version of p1.
func (r response) wantVersion(t *testing.T, n int) {
	t.Helper()
	if want := productVersion("p1", n).String(); r.status != http.StatusOK || r.body != want {
		t.Errorf("status %d with %s, want 200 with %s", r.status, r.body, want)
	}
}

// wantCalls checks how often the store was asked.
func (s *shelf) wantCalls(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls != want {
		t.Errorf("%d calls of the store, want %d", s.calls, want)
	}
}

// wantStored checks which version of p1 the cache has; 0 is none.
func (s *shelf) wantStored(t *testing.T, n int) {
	t.Helper()
	r := s.get("only-if-cached, max-stale")
	if n == 0 {
		if r.status != http.StatusGatewayTimeout {
			t.Errorf("the cache has %s, want nothing", r.body)
		}
		return
	}
	r.wantVersion(t, n)
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestProductIsTheStoresBytes(t *testing.T) {
	h := New(newCacheableStore())
	const want = `{"id":"p1","name":"Teapot"}`
	for _, method := range []string{"GET", "HEAD"} {
		r := send(h, method, "/v1/products/p1", "")
		if r.status != http.StatusOK || method == "GET" && r.body != want || method == "HEAD" && r.body != "" {
			t.Errorf("%s: status %d with %q", method, r.status, r.body)
		}
		for name, want := range map[string]string{
			"Content-Type":           "application/json",
			"Content-Length":         strconv.Itoa(len(want)),
			"X-Content-Type-Options": "nosniff",
			"Etag":                   productTag,
		} {
			if got := r.header.Get(name); got != want {
				t.Errorf("%s: %s %q, want %q", method, name, got, want)
			}
		}
	}
}

func TestProductIDIsAnySegment(t *testing.T) {
	store := new(MemStore)
	h := New(store)
	for id, path := range map[string]string{
		"a/b":                    "a%2Fb",
		"ä €":                    "%C3%A4%20%E2%82%AC",
		"50%":                    "50%25",
		"a+b":                    "a+b",
		"..x":                    "..x",
		strings.Repeat("x", 255): strings.Repeat("x", 255),
	} {
		store.Products.Put(MustResource(id, nil))
		if r := get(h, "/v1/products/"+path); r.status != http.StatusOK || r.body != MustResource(id, nil).String() {
			t.Errorf("%s: status %d with %s", path, r.status, r.body)
		}
	}
}

func TestStoreIsNotAskedForAnIDThatNoProductCanHave(t *testing.T) {
	h := New(&stubStore{})
	for _, path := range []string{strings.Repeat("x", 256), "%00", "a%0Ab", "%7F", "%C2%85", "%FF", "%ED%A0%80"} {
		for _, line := range []string{"Accept: */*", "Cache-Control: max-age=5", "Cache-Control: only-if-cached"} {
			r := get(h, "/v1/products/"+path, line)
			r.wantProblem(t, http.StatusNotFound, "product-not-found")
			if got := r.header["Cache-Status"]; got != nil {
				t.Errorf("Cache-Status %q, want none: neither cache nor store was asked", got)
			}
		}
	}
}

// What a request with max-age asks of the store is answered like what one without
// does.
func TestProductFailures(t *testing.T) {
	for _, line := range []string{"", "max-age=60", "no-store"} {
		for _, test := range []struct {
			name   string
			err    error
			status int
			code   string
			retry  string
		}{
			{"ErrNotFound", ErrNotFound, 404, "product-not-found", ""},
			{"wrapped ErrNotFound", fmt.Errorf("secret: %w", ErrNotFound), 404, "product-not-found", ""},
			{"ErrUnavailable", fmt.Errorf("secret: %w", ErrUnavailable), 503, "unavailable", "1"},
			{"deadline", fmt.Errorf("secret: %w", context.DeadlineExceeded), 503, "unavailable", "1"},
			{"any other", errors.New("secret"), 500, "internal-error", ""},
			{"cancelled by the store itself", context.Canceled, 500, "internal-error", ""},
		} {
			t.Run(line+"/"+test.name, func(t *testing.T) {
				s := newShelf(nil, nil)
				s.failWith(test.err)
				r := s.get(line)
				p := r.wantProblem(t, test.status, test.code)
				if strings.Contains(r.body, "secret") {
					t.Errorf("the error's text is in %s", r.body)
				}
				if got := r.header.Get("Retry-After"); got != test.retry {
					t.Errorf("Retry-After %q, want %q", got, test.retry)
				}
				if hasInstance := p.Instance != ""; hasInstance != (test.status >= 500) {
					t.Errorf("instance %q", p.Instance)
				}
			})
		}
		t.Run(line+"/zero Resource", func(t *testing.T) {
			h := NewWithOptions(&stubStore{getProduct: func(context.Context, string) (Resource, error) {
				return Resource{}, nil
			}}, &Options{Logger: slog.New(slog.DiscardHandler)})
			r := get(h, "/v1/products/p1", "Cache-Control: "+line)
			r.wantProblem(t, http.StatusInternalServerError, "internal-error")
		})
	}
}

// What becomes of a request for a product.
const (
	fromCache  = "answered from the cache"
	asked      = "asked of the store, and kept"
	askedOnly  = "asked of the store, and not kept"
	unanswered = "504, and the store not asked"
)

// requestDirectiveCases are requests for a product that the cache has, of this age
// in seconds, where MaxAge is 60 seconds.
var requestDirectiveCases = []struct {
	name  string
	age   float64
	want  string
	lines []string
}{
	{"none", 0, askedOnly, nil},
	{"none", 30, askedOnly, nil},
	{"empty", 0, asked, []string{``}},
	{"only commas", 0, asked, []string{`, ,`}},
	{"unknown", 0, asked, []string{`x`}},
	{"unknown with argument", 0, asked, []string{`x=60, y="60"`}},
	{"no-transform", 0, asked, []string{`no-transform`}},
	{"those of responses", 0, asked, []string{`public, private, must-revalidate, s-maxage=60, immutable, stale-while-revalidate=60`}},
	{"stale-if-error accepts no age", 0, asked, []string{`stale-if-error=60`}},

	{"max-age above the age", 29, fromCache, []string{`max-age=30`}},
	{"max-age of a new one", 0, fromCache, []string{`max-age=1`}},
	{"age exactly max-age", 30, fromCache, []string{`max-age=30`}},
	{"age a little above max-age", 30.001, asked, []string{`max-age=30`}},
	{"age above max-age", 31, asked, []string{`max-age=30`}},
	{"age just below MaxAge", 59.999, fromCache, []string{`max-age=60`}},
	{"age exactly MaxAge", 60, asked, []string{`max-age=60`}},
	{"age exactly MaxAge with more max-age", 60, asked, []string{`max-age=3600`}},
	{"age below MaxAge with more max-age", 59, fromCache, []string{`max-age=3600`}},
	{"leading zeros", 30, fromCache, []string{`max-age=0030`}},
	{"max-age=0", 0, asked, []string{`max-age=0`}},
	{"max-age=0 later", 30, asked, []string{`max-age=0`}},
	{"max-age=000", 0, asked, []string{`max-age=000`}},

	{"no-cache", 0, asked, []string{`no-cache`}},
	{"no-cache with argument", 0, asked, []string{`max-age=60, no-cache="x"`}},
	{"no-cache wins over max-age", 0, asked, []string{`max-age=60, no-cache`}},
	{"no-cache wins over max-stale", 0, asked, []string{`no-cache, max-stale`}},
	{"max-age=0 wins over max-stale", 0, asked, []string{`max-age=0, max-stale`}},

	{"no-store", 0, askedOnly, []string{`no-store`}},
	{"no-store with no-cache", 0, askedOnly, []string{`no-cache, no-store`}},
	{"no-store with max-age=0", 0, askedOnly, []string{`no-store, max-age=0`}},
	{"no-store does not apply to what is stored", 30, fromCache, []string{`no-store, max-age=30`}},
	{"no-store with max-age that does not accept", 31, askedOnly, []string{`max-age=30, no-store`}},
	{"no-store with argument", 0, askedOnly, []string{`no-store=x`}},

	{"min-fresh exactly left", 40, fromCache, []string{`min-fresh=20`}},
	{"min-fresh a little more than left", 40.001, asked, []string{`min-fresh=20`}},
	{"min-fresh more than left", 41, asked, []string{`min-fresh=20`}},
	{"min-fresh=0", 59, fromCache, []string{`min-fresh=0`}},
	{"min-fresh=0 of a stale one", 60, asked, []string{`min-fresh=0`}},
	{"min-fresh of all of MaxAge", 0, fromCache, []string{`min-fresh=60`}},
	{"min-fresh above MaxAge", 0, asked, []string{`min-fresh=61`}},

	{"max-stale of a fresh one", 59, fromCache, []string{`max-stale=0`}},
	{"max-stale without argument", 60, fromCache, []string{`max-stale`}},
	{"max-stale without argument, very old", 1e7, fromCache, []string{`max-stale`}},
	{"stale for exactly max-stale", 70, fromCache, []string{`max-stale=10`}},
	{"stale for a little more than max-stale", 70.001, asked, []string{`max-stale=10`}},
	{"stale for more than max-stale", 71, asked, []string{`max-stale=10`}},

	{"only-if-cached", 59, fromCache, []string{`only-if-cached`}},
	{"only-if-cached of a stale one", 60, unanswered, []string{`only-if-cached`}},
	{"only-if-cached, max-age", 30, fromCache, []string{`only-if-cached, max-age=30`}},
	{"only-if-cached, older than max-age", 31, unanswered, []string{`only-if-cached, max-age=30`}},
	{"only-if-cached, max-stale", 70, fromCache, []string{`only-if-cached, max-stale=10`}},
	{"only-if-cached, stale for more than max-stale", 71, unanswered, []string{`only-if-cached, max-stale=10`}},
	{"only-if-cached, min-fresh", 31, unanswered, []string{`only-if-cached, min-fresh=30`}},
	{"only-if-cached, no-cache", 0, unanswered, []string{`only-if-cached, no-cache`}},
	{"only-if-cached, max-age=0", 0, unanswered, []string{`only-if-cached, max-age=0`}},
	{"only-if-cached, no-store", 59, fromCache, []string{`only-if-cached, no-store`}},
	{"only-if-cached, invalid argument", 0, unanswered, []string{`only-if-cached, max-age=x`}},

	{"max-age and min-fresh", 30, fromCache, []string{`max-age=30, min-fresh=30`}},
	{"max-age and min-fresh, older than max-age", 31, asked, []string{`max-age=30, min-fresh=20`}},
	{"max-age and min-fresh, less than min-fresh left", 41, asked, []string{`max-age=50, min-fresh=20`}},
	{"max-age and max-stale", 80, fromCache, []string{`max-age=100, max-stale=30`}},
	{"max-age and max-stale, stale for more than max-stale", 91, asked, []string{`max-age=100, max-stale=30`}},
	{"max-age and max-stale, older than max-age", 71, asked, []string{`max-age=70, max-stale=30`}},
	{"min-fresh and max-stale", 50, fromCache, []string{`min-fresh=10, max-stale=10`}},
	{"min-fresh and max-stale, less than min-fresh left", 51, asked, []string{`min-fresh=10, max-stale=10`}},
	{"unknown ones beside max-age", 30, fromCache, []string{`x, max-age=30, y="z"`}},

	{"two max-age, the second less", 20, asked, []string{`max-age=30, max-age=10`}},
	{"two max-age, the first less", 20, asked, []string{`max-age=10, max-age=30`}},
	{"two max-age, both accept", 10, fromCache, []string{`max-age=30, max-age=10`}},
	{"two max-age, one 0", 0, asked, []string{`max-age=0, max-age=30`}},
	{"two max-age, one invalid", 0, asked, []string{`max-age=30, max-age=x`}},
	{"two min-fresh, the second more", 45, asked, []string{`min-fresh=10, min-fresh=20`}},
	{"two min-fresh, the first more", 45, asked, []string{`min-fresh=20, min-fresh=10`}},
	{"two max-stale, the second less", 80, asked, []string{`max-stale=30, max-stale=10`}},
	{"two max-stale, the first less", 80, asked, []string{`max-stale=10, max-stale=30`}},
	{"two max-stale, one without argument", 80, asked, []string{`max-stale=10, max-stale`}},
	{"two max-stale, the first without argument", 80, asked, []string{`max-stale, max-stale=10`}},

	{"MAX-AGE", 30, fromCache, []string{`MAX-AGE=30`}},
	{"Min-Fresh", 41, asked, []string{`Min-Fresh=20, max-age=60`}},
	{"mAx-StAlE", 100, fromCache, []string{`mAx-StAlE`}},
	{"No-Cache", 0, asked, []string{`max-age=30, No-Cache`}},
	{"NO-STORE", 0, askedOnly, []string{`NO-STORE`}},
	{"Only-If-Cached", 60, unanswered, []string{`Only-If-Cached`}},

	{"no-cache in a second line", 0, asked, []string{`max-age=30`, `no-cache`}},
	{"no-store in a second line", 31, askedOnly, []string{`max-age=30`, `no-store`}},
	{"max-age in a second line", 30, fromCache, []string{`x`, `max-age=30`}},
	{"max-age after an empty line", 30, fromCache, []string{``, `max-age=30`}},
	{"less max-age in a second line", 20, asked, []string{`max-age=30`, `max-age=10`}},
	{"more max-age in a second line", 20, asked, []string{`max-age=10`, `max-age=30`}},

	{"empty elements and white space", 30, fromCache, []string{" ,\t, max-age=30 ,\t,"}},
	{"no white space", 0, asked, []string{`max-age=30,no-cache`}},
	{"quoted argument", 30, fromCache, []string{`max-age="30"`}},
	{"quoted argument, older", 31, asked, []string{`max-age="30"`}},
	{"quoted argument of max-stale", 71, asked, []string{`max-stale="10"`}},
	{"comma in a quoted string", 30, fromCache, []string{`x="a, no-cache", max-age=30`}},
	{"max-age in a quoted string", 0, asked, []string{`x="a, max-age=30"`}},
	{"escaped quote in a quoted string", 30, fromCache, []string{`x="a\", no-cache", max-age=30`}},
	{"escaped backslash in a quoted string", 0, asked, []string{`x="a\\", no-cache, max-age=30, y="z"`}},

	{"max-age without argument", 0, asked, []string{`max-age`}},
	{"empty argument", 0, asked, []string{`max-age=`}},
	{"empty quoted argument", 0, asked, []string{`max-age=""`}},
	{"minus", 0, asked, []string{`max-age=-1`}},
	{"plus", 0, asked, []string{`max-age=+30`}},
	{"fraction", 0, asked, []string{`max-age=30.0`}},
	{"exponent", 0, asked, []string{`max-age=3e1`}},
	{"hexadecimal", 0, asked, []string{`max-age=0x1E`}},
	{"letters", 0, asked, []string{`max-age=x`}},
	{"unit", 0, asked, []string{`max-age=30s`}},
	{"underscore", 0, asked, []string{`max-age=3_0`}},
	{"digits that are not ASCII", 0, asked, []string{`max-age=٣٠`}},
	{"white space before the equals sign", 0, asked, []string{`max-age =30`}},
	{"white space behind the equals sign", 0, asked, []string{`max-age= 30`}},
	{"white space in the quotes", 0, asked, []string{`max-age=" 30"`}},
	{"single quotes", 0, asked, []string{`max-age='30'`}},
	{"no closing quote", 0, asked, []string{`max-age="30`}},
	{"no opening quote", 0, asked, []string{`max-age=30"`}},
	{"two arguments", 0, asked, []string{`max-age=30=30`}},
	{"colon", 0, asked, []string{`max-age:30`}},
	{"semicolon", 0, asked, []string{`max-age=30; x`}},
	{"no comma", 0, asked, []string{`max-age=30 max-stale=30`}},
	{"min-fresh without argument", 0, asked, []string{`max-age=30, min-fresh`}},
	{"min-fresh with letters", 0, asked, []string{`max-age=30, min-fresh=x`}},
	{"max-stale with empty argument", 0, asked, []string{`max-age=30, max-stale=`}},
	{"max-stale with letters", 0, asked, []string{`max-age=30, max-stale=x`}},
	{"max-stale with minus", 0, asked, []string{`max-age=30, max-stale=-1`}},
	{"stale-if-error with letters", 0, asked, []string{`max-age=30, stale-if-error=x`}},
	{"invalid argument beside no-store", 0, askedOnly, []string{`max-age=x, no-store`}},
	{"what is no directive", 0, asked, []string{`max-age=30, @`}},
	{"unterminated quote swallows", 0, asked, []string{`max-age=30, x="a, y`}},
	{"escaped quote does not terminate", 0, asked, []string{`max-age=30, x="a\"`}},
	{"quotes inside an argument swallow", 0, asked, []string{`max-age=30, x="a"b", max-age=0, y="c"`}},

	{"more than 31 bits", 59, fromCache, []string{`max-age=2147483648`}},
	{"more nanoseconds than 63 bits", 59, fromCache, []string{`max-age=9223372037`}},
	{"more than 64 bits", 59, fromCache, []string{`max-age=99999999999999999999`}},
	{"more than 64 bits, but stale", 60, asked, []string{`max-age=99999999999999999999`}},
	{"huge max-stale", 1e7, fromCache, []string{`max-stale=99999999999999999999`}},
	{"huge min-fresh", 0, asked, []string{`min-fresh=99999999999999999999`}},
}

func TestRequestCacheControl(t *testing.T) {
	for _, test := range requestDirectiveCases {
		t.Run(fmt.Sprintf("%s, age %v", test.name, test.age), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(nil, nil)
				s.get("no-cache").wantVersion(t, 1)
				time.Sleep(time.Duration(test.age * float64(time.Second)))
				r := s.get(test.lines...)
				calls, answer, stored := 1, 1, 1
				switch test.want {
				case asked:
					calls, answer, stored = 2, 2, 2
				case askedOnly:
					calls, answer = 2, 2
				case unanswered:
					r.wantProblem(t, http.StatusGatewayTimeout, "not-cached")
					answer = 0
				}
				if answer > 0 {
					r.wantVersion(t, answer)
				}
				s.wantCalls(t, calls)
				s.wantStored(t, stored)
				if t.Failed() {
					t.Errorf("%q at the age of %v s: want it %s", test.lines, test.age, test.want)
				}
			})
		})
	}
}

func TestRequestCacheControlWhenNothingIsStored(t *testing.T) {
	for line, want := range map[string]string{
		"":                                asked,
		"x":                               asked,
		"no-cache":                        asked,
		"max-age=0":                       asked,
		"max-age=30":                      asked,
		"min-fresh=30":                    asked,
		"min-fresh=61":                    asked,
		"max-stale":                       asked,
		"stale-if-error=5":                asked,
		"max-age=x":                       asked,
		"no-store":                        askedOnly,
		"no-store, max-age=30":            askedOnly,
		"only-if-cached":                  unanswered,
		"only-if-cached, max-stale":       unanswered,
		"only-if-cached, no-cache":        unanswered,
		"only-if-cached, no-store, x=y":   unanswered,
		"only-if-cached, max-age=invalid": unanswered,
	} {
		t.Run(line, func(t *testing.T) {
			s := newShelf(nil, nil)
			r := s.get(line)
			if want == unanswered {
				p := r.wantProblem(t, http.StatusGatewayTimeout, "not-cached")
				if !strings.HasPrefix(p.Instance, "urn:storefront:incident:") {
					t.Errorf("instance %q of a 504", p.Instance)
				}
				s.wantCalls(t, 0)
				return
			}
			r.wantVersion(t, 1)
			s.wantCalls(t, 1)
			if want == askedOnly {
				s.wantStored(t, 0)
			} else {
				s.wantStored(t, 1)
			}
		})
	}
}

func TestHEADIsAnsweredFromTheCache(t *testing.T) {
	s := newShelf(nil, nil)
	send(s.handler, "HEAD", "/v1/products/p1", "", "Cache-Control: no-cache")
	r := send(s.handler, "HEAD", "/v1/products/p1", "", "Cache-Control: max-age=30")
	if r.status != http.StatusOK || r.body != "" || r.header.Get("Age") != "0" || r.header.Get("Etag") != productVersion("p1", 1).ETag() {
		t.Errorf("status %d, header %v, body %q", r.status, r.header, r.body)
	}
	s.get("max-age=30").wantVersion(t, 1)
	s.wantCalls(t, 1)
}

func TestAgeAndDateAreThoseOfTheStoredAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, nil)
		r := s.get("max-age=60")
		for _, name := range []string{"Age", "Date"} {
			if got, ok := r.header[name]; ok { // a nil Date would keep the server from adding its own
				t.Errorf("%s %q of what the store has just said, want none", name, got)
			}
		}
		date := time.Now().UTC().Format(http.TimeFormat)
		for _, step := range []struct {
			wait time.Duration
			age  string
		}{{0, "0"}, {999 * time.Millisecond, "0"}, {time.Millisecond, "1"}, {58 * time.Second, "59"}, {41 * time.Second, "100"}} {
			time.Sleep(step.wait)
			hit := s.get("max-stale")
			if !slices.Equal(hit.header["Age"], []string{step.age}) || !slices.Equal(hit.header["Date"], []string{date}) {
				t.Errorf("status %d with Age %q and Date %q, want %s and %s", hit.status, hit.header["Age"], hit.header["Date"], step.age, date)
			}
		}
	})
}

// A cache on the way that forwards max-stale but ignores Age would otherwise keep a
// stale product for everybody, and take a 304 as a renewal of it.
func TestAnswersPastTheirLifetimeAreMarkedNoCacheAndGoOutInFull(t *testing.T) {
	for _, test := range []struct {
		name   string
		opts   Options
		age    time.Duration
		want   string
		status int // with the entity tag in If-None-Match
	}{
		{"just below the lifetime", Options{}, 60*time.Second - 1, "private, max-age=60", 304},
		{"at the lifetime", Options{}, 60 * time.Second, "private, no-cache", 200},
		{"past the lifetime", Options{}, time.Hour, "private, no-cache", 200},
		{"shared, below", Options{Shared: true}, 59 * time.Second, "max-age=60", 304},
		{"shared, past", Options{Shared: true}, 61 * time.Second, "no-cache", 200},
		{"when Age reaches the max-age that is sent", Options{MaxAge: 1900 * time.Millisecond}, time.Second, "private, no-cache", 200},
		{"with a max-age that is sent as 0", Options{MaxAge: time.Millisecond}, 0, "private, no-cache", 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(&test.opts, nil)
				s.get("max-age=60")
				time.Sleep(test.age)
				r := s.get("max-stale")
				r.wantVersion(t, 1)
				if got := r.header["Cache-Control"]; !slices.Equal(got, []string{test.want}) {
					t.Errorf("Cache-Control %q, want %s", got, test.want)
				}
				for _, line := range []string{"If-None-Match: " + r.header.Get("ETag"), "If-None-Match: *"} {
					again := get(s.handler, "/v1/products/p1", "Cache-Control: max-stale", line)
					if got := again.header["Cache-Control"]; again.status != test.status || !slices.Equal(got, []string{test.want}) {
						t.Errorf("%s: status %d with Cache-Control %q, want %d with %s", line, again.status, got, test.status, test.want)
					}
				}
				s.wantCalls(t, 1)
			})
		})
	}
}

// The age of an answer counts from when the store was asked: what it says may be
// as old as that.
func TestAgeCountsFromTheBeginningOfTheCall(t *testing.T) {
	for _, line := range []string{"", "max-age=60"} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, 5*time.Second) })
			date := time.Now().UTC().Format(http.TimeFormat)
			s.get(line).wantVersion(t, 1)
			time.Sleep(10 * time.Second)
			r := s.get("only-if-cached")
			if r.header.Get("Age") != "15" || r.header.Get("Date") != date {
				t.Errorf("after %q: Age %s and Date %s, want 15 and %s", line, r.header.Get("Age"), r.header.Get("Date"), date)
			}
		})
	}
}

func TestCacheStatus(t *testing.T) {
	const first = -1 // nothing is stored
	for _, test := range []struct {
		age  float64
		line string
		want string
	}{
		{first, "Cache-Control: max-age=30", "storefront; fwd=uri-miss"},
		{first, "Cache-Control: no-store", "storefront; fwd=uri-miss"},
		{0, "Cache-Control: max-age=30", "storefront; hit; ttl=60"},
		{10, "Cache-Control: max-age=30", "storefront; hit; ttl=50"},
		{10.5, "Cache-Control: max-age=30", "storefront; hit; ttl=49"},
		{59.5, "Cache-Control: max-age=60", "storefront; hit; ttl=0"},
		{60, "Cache-Control: max-stale", "storefront; hit; ttl=0"},
		{70, "Cache-Control: max-stale", "storefront; hit; ttl=-10"},
		{10, "Cache-Control: max-age=5", "storefront; fwd=request"},
		{10, "Cache-Control: no-cache", "storefront; fwd=request"},
		{10, "Cache-Control: no-store", "storefront; fwd=request"},
		{60, "Cache-Control: max-age=60", "storefront; fwd=stale"},
		{60, "Cache-Control: x", "storefront; fwd=stale"},
	} {
		t.Run(fmt.Sprintf("%s, age %v", test.line, test.age), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(nil, nil)
				if test.age != first {
					s.get("no-cache")
					time.Sleep(time.Duration(test.age * float64(time.Second)))
				}
				r := get(s.handler, "/v1/products/p1", test.line)
				if got := r.header["Cache-Status"]; !slices.Equal(got, []string{test.want}) {
					t.Errorf("Cache-Status %q, want %q", got, test.want)
				}
			})
		})
	}
	t.Run("of a request that bypasses the cache", func(t *testing.T) {
		for _, line := range []string{"Authorization: Basic eDp5", "Cookie: a=b"} {
			r := get(New(newCacheableStore()), "/v1/products/p1", line, "Cache-Control: max-age=5")
			if got := r.header.Get("Cache-Status"); got != "storefront; fwd=bypass" {
				t.Errorf("%s: Cache-Status %q", line, got)
			}
		}
	})
	t.Run("of a 404", func(t *testing.T) {
		r := get(New(newCacheableStore()), "/v1/products/none", "Cache-Control: max-age=5")
		if got := r.header.Get("Cache-Status"); got != "storefront; fwd=uri-miss" {
			t.Errorf("Cache-Status %q", got)
		}
	})
	t.Run("only of products", func(t *testing.T) {
		h := New(newCacheableStore())
		for _, target := range cacheableTargets {
			if got := get(h, target, "Cache-Control: no-cache").header["Cache-Status"]; (got != nil) != (target == "/v1/products/p1") {
				t.Errorf("%s: Cache-Status %q", target, got)
			}
		}
	})
}

// Every header costs every client, and a proxy, that did not ask.
func TestCacheStatusIsOnlyForRequestsWithCacheControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(newCacheableStore())
		for _, age := range []time.Duration{0, 10 * time.Second, 60 * time.Second} {
			time.Sleep(age)
			for _, target := range []string{"/v1/products/p1", "/v1/products/none"} {
				if got := get(h, target).header["Cache-Status"]; got != nil {
					t.Errorf("%s: Cache-Status %q", target, got)
				}
			}
		}
	})
}

func TestNoCacheMayBeAnsweredWith304AndRefreshesTheCache(t *testing.T) {
	for _, line := range []string{"no-cache", "max-age=0"} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			product := MustResource("p1", nil)
			h := New(&stubStore{getProduct: func(context.Context, string) (Resource, error) {
				calls++
				return product, nil
			}})
			get(h, "/v1/products/p1", "Cache-Control: no-cache")
			time.Sleep(30 * time.Second)
			r := get(h, "/v1/products/p1", "Cache-Control: "+line, "If-None-Match: "+product.ETag())
			if r.status != http.StatusNotModified || r.header["Age"] != nil || calls != 2 {
				t.Errorf("%s: status %d, Age %q after %d calls, want 304 and the second call", line, r.status, r.header["Age"], calls)
			}
			if age := get(h, "/v1/products/p1", "Cache-Control: only-if-cached").header.Get("Age"); age != "0" {
				t.Errorf("%s: Age %s afterwards, want 0", line, age)
			}
		})
	}
}

// A cache does not evaluate If-Match (RFC 9111, Section 4.3.2): it is about the
// product as it is now.
func TestIfMatchIsNotEvaluatedFromTheCache(t *testing.T) {
	s := newShelf(nil, nil)
	s.get().wantVersion(t, 1)
	r := get(s.handler, "/v1/products/p1", "Cache-Control: max-age=60", "If-Match: "+productVersion("p1", 2).ETag())
	r.wantVersion(t, 2)
	r = get(s.handler, "/v1/products/p1", "Cache-Control: max-age=60", "If-Match: "+productVersion("p1", 2).ETag())
	r.wantProblem(t, http.StatusPreconditionFailed, "precondition-failed")
	s.wantCalls(t, 3)
	s.wantStored(t, 3)
	s.failWith(ErrUnavailable)
	r = get(s.handler, "/v1/products/p1", "Cache-Control: stale-if-error=60", "If-Match: "+productVersion("p1", 3).ETag())
	r.wantProblem(t, http.StatusServiceUnavailable, "unavailable")
}

func TestFailureThatStaleIfErrorCoversIsLogged(t *testing.T) {
	var log strings.Builder
	var failure error
	h := NewWithOptions(&stubStore{getProduct: func(context.Context, string) (Resource, error) {
		return MustResource("p1", nil), failure
	}}, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	get(h, "/v1/products/p1", "Cache-Control: no-cache")
	failure = errors.New("disk on fire")
	r := get(h, "/v1/products/p1", "Cache-Control: stale-if-error=60")
	if r.status != http.StatusOK || !strings.Contains(log.String(), "disk on fire") {
		t.Errorf("status %d and the log %q, want 200 and the failure in the log", r.status, log.String())
	}
}

func TestStaleIfError(t *testing.T) {
	failure := errors.New("failed")
	for _, test := range []struct {
		name  string
		age   float64
		err   error
		want  int
		lines []string
	}{
		{"stale for less than the limit", 89, failure, 200, []string{"stale-if-error=30"}},
		{"stale for exactly the limit", 90, failure, 200, []string{"stale-if-error=30"}},
		{"stale for a little more than the limit", 90.001, failure, 500, []string{"stale-if-error=30"}},
		{"stale for more than the limit", 91, failure, 500, []string{"stale-if-error=30"}},
		{"fresh", 10, failure, 200, []string{"stale-if-error=30"}},
		{"fresh, limit 0", 10, failure, 200, []string{"stale-if-error=0"}},
		{"stale, limit 0", 61, failure, 500, []string{"stale-if-error=0"}},
		{"store unavailable", 90, ErrUnavailable, 200, []string{"stale-if-error=30"}},
		{"store unavailable, beyond the limit", 91, ErrUnavailable, 503, []string{"stale-if-error=30"}},
		{"deadline", 90, context.DeadlineExceeded, 200, []string{"stale-if-error=30"}},
		{"deadline, beyond the limit", 91, context.DeadlineExceeded, 503, []string{"stale-if-error=30"}},
		{"no such product", 61, ErrNotFound, 404, []string{"stale-if-error=30"}},
		{"no such product, with no-store", 61, ErrNotFound, 404, []string{"no-store, stale-if-error=30"}},
		{"not asked for", 61, failure, 500, nil},
		{"max-age is not a limit for errors", 90, failure, 200, []string{"max-age=5, stale-if-error=30"}},
		{"max-stale is not a limit for errors", 90, failure, 200, []string{"max-stale=5", "stale-if-error=30"}},
		{"no-cache asks first", 90, failure, 200, []string{"no-cache, stale-if-error=30"}},
		{"two, the second less", 80, failure, 500, []string{"stale-if-error=30, stale-if-error=10"}},
		{"two, the first less", 80, failure, 500, []string{"stale-if-error=10", "stale-if-error=30"}},
		{"quoted", 90, failure, 200, []string{`stale-if-error="30"`}},
		{"upper case", 90, failure, 200, []string{"STALE-IF-ERROR=30"}},
		{"huge", 1e7, failure, 200, []string{"stale-if-error=99999999999999999999"}},
		{"without argument", 61, failure, 500, []string{"stale-if-error"}},
		{"empty", 61, failure, 500, []string{"stale-if-error="}},
		{"minus", 61, failure, 500, []string{"stale-if-error=-30"}},
		{"letters", 61, failure, 500, []string{"stale-if-error=x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(nil, nil)
				s.get("no-cache")
				stored := time.Now()
				time.Sleep(time.Duration(test.age * float64(time.Second)))
				s.failWith(test.err)
				r := s.get(test.lines...)
				s.wantCalls(t, 2)
				if r.status != test.want {
					t.Fatalf("status %d, want %d", r.status, test.want)
				}
				if test.want != http.StatusOK {
					if r.header["Age"] != nil || r.header["Date"] != nil {
						t.Errorf("Age %q and Date %q on a problem", r.header["Age"], r.header["Date"])
					}
					return
				}
				r.wantVersion(t, 1)
				fwd := "stale"
				if test.age < 60 {
					fwd = "request"
				}
				cacheControl := "private, no-cache"
				if test.age < 60 {
					cacheControl = "private, max-age=60"
				}
				for name, want := range map[string]string{
					"Age":           strconv.Itoa(int(test.age)),
					"Date":          stored.UTC().Format(http.TimeFormat),
					"Cache-Status":  "storefront; fwd=" + fwd,
					"Cache-Control": cacheControl,
				} {
					if got := r.header.Get(name); got != want {
						t.Errorf("%s %q, want %q", name, got, want)
					}
				}
			})
		})
	}
	t.Run("nothing is stored", func(t *testing.T) {
		s := newShelf(nil, nil)
		s.failWith(failure)
		s.get("stale-if-error=30").wantProblem(t, http.StatusInternalServerError, "internal-error")
	})
	t.Run("the request's own deadline", func(t *testing.T) {
		for _, line := range []string{"stale-if-error=30", "max-age=5, stale-if-error=30"} {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(nil, func(ctx context.Context, n int) error {
					return pause(ctx, time.Duration(n-1)*time.Hour)
				})
				s.get("no-cache")
				time.Sleep(80 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				r := <-s.start(ctx, line)
				r.wantVersion(t, 1)
				if got := r.header.Get("Age"); got != "85" {
					t.Errorf("%s: Age %s, want 85", line, got)
				}
			})
		}
	})
	t.Run("304 is possible", func(t *testing.T) {
		s := newShelf(nil, nil)
		etag := s.get("no-cache").header.Get("ETag")
		s.failWith(failure)
		r := get(s.handler, "/v1/products/p1", "Cache-Control: stale-if-error=30", "If-None-Match: "+etag)
		if r.status != http.StatusNotModified {
			t.Errorf("status %d, want 304", r.status)
		}
	})
}

func TestErrNotFoundDropsWhatIsStored(t *testing.T) {
	for _, line := range []string{"", "no-cache", "max-age=5"} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(nil, nil)
			s.get("no-cache")
			time.Sleep(10 * time.Second)
			s.failWith(fmt.Errorf("wrapped: %w", ErrNotFound))
			s.get(line).wantProblem(t, http.StatusNotFound, "product-not-found")
			s.wantStored(t, 0)
		})
	}
}

func TestFailuresAreNotCachedAndDropNothing(t *testing.T) {
	for _, err := range []error{errors.New("failed"), ErrUnavailable, context.DeadlineExceeded, ErrNotFound} {
		for _, line := range []string{"", "max-age=60"} {
			s := newShelf(nil, nil)
			s.failWith(err)
			for range 2 {
				if r := s.get(line); r.status < 400 {
					t.Errorf("status %d for %v", r.status, err)
				}
			}
			s.wantCalls(t, 2)
			s.failWith(nil)
			s.get("max-age=60").wantVersion(t, 3)
			s.wantStored(t, 3)
			if err != ErrNotFound {
				s.failWith(err)
				s.get("no-cache")
				s.wantStored(t, 3)
			}
		}
	}
}

func TestCacheSizeBoundsTheCacheAndTheLeastRecentlyUsedGoes(t *testing.T) {
	stored := func(h http.Handler, ids ...string) (have []string) {
		for _, id := range ids {
			if get(h, "/v1/products/"+id, "Cache-Control: only-if-cached").status == http.StatusOK {
				have = append(have, id)
			}
		}
		return have
	}
	read := func(h http.Handler, ids ...string) {
		for _, id := range ids {
			get(h, "/v1/products/"+id, "Cache-Control: no-cache")
		}
	}
	for _, test := range []struct {
		name string
		size int
		use  func(h http.Handler)
		want []string
	}{
		{"room for all", 3, func(h http.Handler) { read(h, "a", "b", "c") }, []string{"a", "b", "c"}},
		{"one too many", 2, func(h http.Handler) { read(h, "a", "b", "c") }, []string{"b", "c"}},
		{"one", 1, func(h http.Handler) { read(h, "a", "b", "c") }, []string{"c"}},
		{"an answer from the cache is a use", 2, func(h http.Handler) {
			read(h, "a", "b")
			get(h, "/v1/products/a", "Cache-Control: max-age=30")
			read(h, "c")
		}, []string{"a", "c"}},
		{"a refresh is a use and takes no room", 2, func(h http.Handler) { read(h, "a", "b", "a", "a", "c") }, []string{"a", "c"}},
		{"no-store takes no room", 2, func(h http.Handler) {
			read(h, "a", "b")
			get(h, "/v1/products/c", "Cache-Control: no-store")
		}, []string{"a", "b"}},
		{"reads that accept age fill it", 2, func(h http.Handler) {
			for _, id := range []string{"a", "b", "c"} {
				get(h, "/v1/products/"+id, "Cache-Control: max-age=30")
			}
		}, []string{"b", "c"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newShelf(&Options{CacheSize: test.size}, nil)
			test.use(s.handler)
			if got := stored(s.handler, "a", "b", "c"); !slices.Equal(got, test.want) {
				t.Errorf("stored %q, want %q", got, test.want)
			}
		})
	}
	t.Run("10,000 is the default", func(t *testing.T) {
		s := newShelf(nil, nil)
		for i := range 10_001 {
			read(s.handler, strconv.Itoa(i))
		}
		if got := stored(s.handler, "0", "1", "10000"); !slices.Equal(got, []string{"1", "10000"}) {
			t.Errorf("stored %q, want all but the first", got)
		}
	})
	t.Run("products that are gone leave room", func(t *testing.T) {
		s := newShelf(&Options{CacheSize: 2}, nil)
		read(s.handler, "a", "b")
		s.failWith(ErrNotFound)
		read(s.handler, "b")
		s.failWith(nil)
		read(s.handler, "c")
		if got := stored(s.handler, "a", "b", "c"); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("stored %q", got)
		}
	})
}

// wantBypass checks that lines have the store asked each time, and leave nothing
// in the cache.
func (s *shelf) wantBypass(t *testing.T, lines ...string) {
	t.Helper()
	for n := 1; n <= 2; n++ {
		r := get(s.handler, "/v1/products/p1", append(lines, "Cache-Control: max-age=30")...)
		r.wantVersion(t, n)
		if got := r.header.Get("Cache-Status"); got != "storefront; fwd=bypass" {
			t.Errorf("Cache-Status %q", got)
		}
	}
	r := get(s.handler, "/v1/products/p1", append(lines, "Cache-Control: only-if-cached")...)
	r.wantProblem(t, http.StatusGatewayTimeout, "not-cached")
	s.wantCalls(t, 2)
	s.wantStored(t, 0)
}

func TestNegativeCacheSizeAndNegativeMaxAgeKeepNothing(t *testing.T) {
	for _, opts := range []*Options{{CacheSize: -1}, {MaxAge: -1}, {CacheSize: -1, Shared: true}, {MaxAge: -time.Hour, Shared: true}} {
		newShelf(opts, nil).wantBypass(t)
	}
}

func TestMaxAgeIsTheFreshnessOfWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, maxAge := range []time.Duration{500 * time.Millisecond, time.Second, 90 * time.Minute} {
			s := newShelf(&Options{MaxAge: maxAge}, nil)
			s.get("no-cache")
			time.Sleep(maxAge - time.Nanosecond)
			s.get("max-age=86400").wantVersion(t, 1)
			time.Sleep(time.Nanosecond)
			s.get("max-age=86400").wantVersion(t, 2)
		}
	})
}

func TestCredentialsBypassTheCacheUnlessScopeOrSharedIsSet(t *testing.T) {
	for _, line := range []string{"Authorization: Bearer a", "Cookie: a=b", "Authorization: "} {
		newShelf(nil, nil).wantBypass(t, line)
		for _, opts := range []*Options{{Shared: true}, {Scope: func(*http.Request) string { return "a" }}} {
			s := newShelf(opts, nil)
			for range 2 {
				get(s.handler, "/v1/products/p1", line, "Cache-Control: max-age=30").wantVersion(t, 1)
			}
			s.wantCalls(t, 1)
		}
	}
	t.Run("what others have stored is not given to them", func(t *testing.T) {
		s := newShelf(nil, nil)
		s.get("no-cache")
		get(s.handler, "/v1/products/p1", "Authorization: Bearer a", "Cache-Control: max-age=30").wantVersion(t, 2)
		s.wantStored(t, 1)
	})
}

func TestScopesShareNeitherAnEntryNorACallUnlessTheyShareAllProducts(t *testing.T) {
	scope := func(r *http.Request) string { return r.Header.Get("Tenant") }
	tenants := []string{"", "a", "b", "ap1", "a/p1"}
	for _, test := range []struct {
		opts  Options
		calls int
	}{{Options{Scope: scope}, len(tenants)}, {Options{Scope: scope, Shared: true}, 1}} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(&test.opts, func(ctx context.Context, _ int) error { return pause(ctx, time.Second) })
			var wg sync.WaitGroup
			bodies := make([]string, len(tenants))
			for i, tenant := range tenants {
				wg.Go(func() {
					bodies[i] = get(s.handler, "/v1/products/p1", "Tenant: "+tenant, "Cache-Control: max-age=30").body
				})
			}
			wg.Wait()
			s.wantCalls(t, test.calls)
			for i, tenant := range tenants {
				r := get(s.handler, "/v1/products/p1", "Tenant: "+tenant, "Cache-Control: only-if-cached")
				if r.status != http.StatusOK || r.body != bodies[i] {
					t.Errorf("tenant %q: status %d with %s, want %s", tenant, r.status, r.body, bodies[i])
				}
			}
		})
	}
}

func TestProductsShareNeitherAnEntryNorACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, time.Second) })
		var wg sync.WaitGroup
		for _, id := range []string{"a", "b", "c"} {
			wg.Go(func() {
				r := get(s.handler, "/v1/products/"+id, "Cache-Control: max-age=30")
				if !strings.HasPrefix(r.body, `{"id":"`+id+`"`) {
					t.Errorf("%s for %s", r.body, id)
				}
			})
		}
		wg.Wait()
		s.wantCalls(t, 3)
	})
}

func TestConcurrentReadsThatAcceptAgeShareOneCall(t *testing.T) {
	for _, lines := range [][]string{
		{"max-age=60"},
		{"max-age=1"}, // the call takes longer, but none of them came after it began
		{"max-age=60", "max-stale", "min-fresh=5", "max-age=10, stale-if-error=5"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, 5*time.Second) })
			var pending []<-chan response
			for i := range 50 {
				pending = append(pending, s.start(t.Context(), lines[i%len(lines)]))
			}
			collapsed := 0
			for _, p := range pending {
				r := <-p
				r.wantVersion(t, 1)
				switch got := r.header.Get("Cache-Status"); got {
				case "storefront; fwd=uri-miss; collapsed":
					collapsed++
				case "storefront; fwd=uri-miss":
				default:
					t.Errorf("Cache-Status %q", got)
				}
			}
			s.wantCalls(t, 1)
			if collapsed != 49 {
				t.Errorf("%d of 50 responses are marked as collapsed, want all but one", collapsed)
			}
		})
	}
}

// To whoever keeps the answer of a shared call, it is as old as the call.
func TestAgeOfASharedCallsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, 50*time.Second) })
		date := time.Now().UTC().Format(http.TimeFormat)
		first := s.start(t.Context(), "max-age=60")
		time.Sleep(49 * time.Second)
		joined := <-s.start(t.Context(), "max-age=60")
		if joined.header.Get("Age") != "50" || joined.header.Get("Date") != date || joined.header.Get("Cache-Status") != "storefront; fwd=uri-miss; collapsed" {
			t.Errorf("Age %s, Date %s, Cache-Status %s", joined.header.Get("Age"), joined.header.Get("Date"), joined.header.Get("Cache-Status"))
		}
		if own := <-first; own.header["Age"] != nil {
			t.Errorf("the request that began the call got Age %s", own.header["Age"])
		}
	})
}

func TestAReadThatDoesNotAcceptAgeNeverJoinsACall(t *testing.T) {
	for _, line := range []string{"", "x", "no-cache", "max-age=0", "no-store", "no-store, max-age=60", "max-age=x", "min-fresh=61", "stale-if-error=60"} {
		t.Run(line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, 5*time.Second) })
				first := s.start(t.Context(), "max-age=60")
				time.Sleep(time.Second)
				second := s.start(t.Context(), line)
				synctest.Wait()
				s.wantCalls(t, 2)
				(<-first).wantVersion(t, 1)
				(<-second).wantVersion(t, 2)
			})
		})
	}
}

func TestASharedCallIsNotGivenToAReadForWhichItBeganTooLongAgo(t *testing.T) {
	for _, test := range []struct {
		name    string
		arrives time.Duration
		line    string
		version int
		takes   time.Duration
	}{
		{"it is young enough when it is done", time.Second, "max-age=5", 1, 4 * time.Second},
		{"it is too old when it is done", time.Second, "max-age=4", 2, 9 * time.Second},
		{"it is too old to join", 3 * time.Second, "max-age=2", 2, 5 * time.Second},
		{"it leaves too little freshness when it is done", time.Second, "min-fresh=56", 2, 9 * time.Second},
		{"it leaves just enough freshness when it is done", time.Second, "min-fresh=55", 1, 4 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, 5*time.Second) })
				first := s.start(t.Context(), "max-age=60")
				time.Sleep(test.arrives)
				arrived := time.Now()
				(<-s.start(t.Context(), test.line)).wantVersion(t, test.version)
				if took := time.Since(arrived); took != test.takes {
					t.Errorf("it took %v, want %v", took, test.takes)
				}
				(<-first).wantVersion(t, 1)
				s.wantCalls(t, test.version)
			})
		})
	}
	t.Run("those that ask again share the second call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, 5*time.Second) })
			pending := []<-chan response{s.start(t.Context(), "max-age=60")}
			began := time.Now()
			time.Sleep(time.Second / 2)
			for range 20 {
				pending = append(pending, s.start(t.Context(), "max-age=1"))
			}
			for _, p := range pending {
				<-p
			}
			s.wantCalls(t, 2)
			if took := time.Since(began); took != 10*time.Second {
				t.Errorf("it took %v, want that of two calls, 10s", took)
			}
		})
	})
	t.Run("that there is no such product is an answer, too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(nil, func(ctx context.Context, n int) error {
				if err := pause(ctx, 5*time.Second); err != nil || n > 1 {
					return err
				}
				return ErrNotFound
			})
			first := s.start(t.Context(), "max-age=60")
			time.Sleep(time.Second)
			(<-s.start(t.Context(), "max-age=3")).wantVersion(t, 2)
			(<-first).wantProblem(t, http.StatusNotFound, "product-not-found")
		})
	})
}

func TestCancellationOfOneCallerDoesNotFailTheOthers(t *testing.T) {
	for _, who := range []int{0, 1, 2} {
		t.Run("caller "+strconv.Itoa(who), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, 5*time.Second) })
				gone, cancel := context.WithCancel(t.Context())
				var pending []<-chan response
				for i := range 3 {
					ctx := t.Context()
					if i == who {
						ctx = gone
					}
					pending = append(pending, s.start(ctx, "max-age=60"))
					synctest.Wait()
				}
				time.Sleep(time.Second)
				cancel()
				for i, p := range pending {
					if r := <-p; i == who {
						r.wantProblem(t, http.StatusServiceUnavailable, "unavailable")
					} else {
						r.wantVersion(t, 1)
					}
				}
				s.wantCalls(t, 1)
				s.wantStored(t, 1)
			})
		})
	}
}

func TestADeadlineOfOneCallerIsOnlyIts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, func(ctx context.Context, _ int) error { return pause(ctx, 5*time.Second) })
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		hurried := s.start(ctx, "max-age=60")
		synctest.Wait()
		patient := s.start(t.Context(), "max-age=60")
		r := <-hurried
		r.wantProblem(t, http.StatusServiceUnavailable, "unavailable")
		if took := time.Since(began); took != 2*time.Second || r.header.Get("Retry-After") != "1" {
			t.Errorf("answered after %v with Retry-After %q, want 2s and 1", took, r.header.Get("Retry-After"))
		}
		(<-patient).wantVersion(t, 1)
		s.wantCalls(t, 1)
	})
}

// That no goroutine remains, synctest sees to: it fails when one does.
func TestACallForWhichNobodyWaitsIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		s := newShelf(nil, func(ctx context.Context, n int) error {
			if n > 1 {
				return nil
			}
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		timed, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		first, second := s.start(ctx, "max-age=60"), s.start(timed, "max-age=60")
		synctest.Wait()
		cancel()
		<-first
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the call was cancelled while somebody waited for it")
		}
		<-second
		if err := <-ended; err != context.Canceled {
			t.Errorf("the call ended with %v, want its context cancelled", err)
		}
		(<-s.start(t.Context(), "max-age=60")).wantVersion(t, 2)
	})
}

func TestACancelledCallIsNotJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{}) // the first call is slow to see that it is cancelled
		s := newShelf(nil, func(ctx context.Context, n int) error {
			if n == 1 {
				<-slow
			}
			return ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		first := s.start(ctx, "max-age=60")
		synctest.Wait()
		cancel()
		<-first
		(<-s.start(t.Context(), "max-age=60")).wantVersion(t, 2)
		close(slow)
		synctest.Wait()
		s.wantStored(t, 2)
	})
}

func TestContextOfASharedCallEndsWithIt(t *testing.T) {
	var seen context.Context
	s := newShelf(nil, func(ctx context.Context, _ int) error {
		seen = ctx
		return nil
	})
	s.get("max-age=60")
	if seen.Err() == nil {
		t.Error("the context is not cancelled after the call: what hangs on it is leaked")
	}
}

func TestContextValuesReachTheStore(t *testing.T) {
	type key struct{}
	for _, line := range []string{"", "max-age=60", "no-store"} {
		var got any
		s := newShelf(nil, func(ctx context.Context, _ int) error {
			got = ctx.Value(key{})
			return nil
		})
		<-s.start(context.WithValue(t.Context(), key{}, "trace"), line)
		if got != "trace" {
			t.Errorf("with %q the store sees %v, want the value of the request's context", line, got)
		}
	}
}

// The values of a context, such as a trace or an account, are those of whoever began the
// call, and never of another scope.
func TestASharedCallHasTheValuesOfTheRequestThatBeganIt(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		saw := make(chan string, 4)
		s := newShelf(&Options{Scope: func(r *http.Request) string { return r.Context().Value(key{}).(string)[:1] }}, func(ctx context.Context, _ int) error {
			err := pause(ctx, time.Second)
			saw <- ctx.Value(key{}).(string)
			return err
		})
		var pending []<-chan response
		for _, value := range []string{"a1", "a2", "b1"} {
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, value), time.Minute)
			defer cancel()
			if value == "a1" { // which has ended when the store answers
				ctx, cancel = context.WithTimeout(ctx, time.Second/2)
				defer cancel()
			}
			pending = append(pending, s.start(ctx, "max-age=60"))
			synctest.Wait()
		}
		for _, p := range pending {
			<-p
		}
		s.wantCalls(t, 2)
		if first, second := <-saw, <-saw; first+second != "a1b1" && first+second != "b1a1" {
			t.Errorf("the store saw the values %s and %s, want a1 and b1", first, second)
		}
	})
}

func TestAnOlderSlowerReadDoesNotReplaceANewerEntry(t *testing.T) {
	for _, older := range []string{"", "max-age=60"} {
		for _, newer := range []string{"", "no-cache", "max-age=1"} {
			for _, outcome := range []error{nil, ErrNotFound, errors.New("failed")} {
				synctest.Test(t, func(t *testing.T) {
					s := newShelf(nil, func(ctx context.Context, n int) error {
						if n > 1 {
							return nil
						}
						pause(ctx, 10*time.Second)
						return outcome
					})
					slow := s.start(t.Context(), older)
					time.Sleep(2 * time.Second)
					s.get(newer).wantVersion(t, 2)
					<-slow
					s.wantStored(t, 2)
					if t.Failed() {
						t.Errorf("after %q and %q, where the first ended with %v", older, newer, outcome)
					}
				})
			}
		}
	}
}

func TestAFailedSharedCallFailsThoseThatWaitAndNoneAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, func(ctx context.Context, n int) error {
			pause(ctx, time.Second)
			if n == 1 {
				return ErrUnavailable
			}
			return nil
		})
		incidents := make(map[string]bool)
		var pending []<-chan response
		for range 5 {
			pending = append(pending, s.start(t.Context(), "max-age=60"))
		}
		for _, p := range pending {
			incidents[(<-p).wantProblem(t, http.StatusServiceUnavailable, "unavailable").Instance] = true
		}
		if len(incidents) != 5 {
			t.Errorf("%d incidents for 5 responses", len(incidents))
		}
		s.wantCalls(t, 1)
		s.get("max-age=60").wantVersion(t, 2)
	})
}

func TestAPanicInASharedCallFailsThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, func(ctx context.Context, n int) error {
			pause(ctx, time.Second)
			if n == 1 {
				panic("broken store")
			}
			return nil
		})
		var pending []<-chan response
		for range 3 {
			pending = append(pending, s.start(t.Context(), "max-age=60"))
		}
		for _, p := range pending {
			(<-p).wantProblem(t, http.StatusInternalServerError, "internal-error")
		}
		s.wantCalls(t, 1)
		s.get("max-age=60").wantVersion(t, 2)
	})
}

func TestAnOlderReadDoesNotBringBackAProductThatIsGone(t *testing.T) {
	for _, older := range []string{"max-age=60", "no-cache", "max-age=0", "stale-if-error=5"} {
		for _, newer := range []string{"no-cache", "max-age=1"} {
			for _, wait := range []time.Duration{2 * time.Second, 0} { // 0: at one time of the clock
				if wait == 0 && newer != "no-cache" {
					continue // it would join the older one
				}
				synctest.Test(t, func(t *testing.T) {
					s := newShelf(nil, func(ctx context.Context, n int) error {
						if n == 1 {
							pause(ctx, 5*time.Second)
							return nil
						}
						return ErrNotFound
					})
					slow := s.start(t.Context(), older)
					synctest.Wait()
					time.Sleep(wait)
					s.get(newer).wantProblem(t, http.StatusNotFound, "product-not-found")
					s.get("max-age=60").wantProblem(t, http.StatusNotFound, "product-not-found")
					(<-slow).wantVersion(t, 1)
					s.wantStored(t, 0)
					if t.Failed() {
						t.Errorf("after %q and, %v later, %q", older, wait, newer)
					}
				})
			}
		}
	}
}

func TestGoexitInTheStoreHangsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, func(ctx context.Context, n int) error {
			pause(ctx, time.Second)
			if n == 1 {
				runtime.Goexit() // what t.FailNow does in a Store of a test
			}
			return nil
		})
		first, second := s.start(t.Context(), "max-age=60"), s.start(t.Context(), "max-age=60")
		(<-first).wantProblem(t, http.StatusInternalServerError, "internal-error")
		(<-second).wantProblem(t, http.StatusInternalServerError, "internal-error")
		s.get("max-age=60").wantVersion(t, 2)
	})
}

// Any mixture of requests is held against the one rule that there is: an answer
// is as new as the request's arrival, or no older than its max-age.
func TestNoAnswerIsOlderThanItsRequestAccepts(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var (
				mu    sync.Mutex
				began = []time.Time{{}} // by version
				slow  = rand.New(rand.NewPCG(seed, 1))
			)
			s := newShelf(&Options{MaxAge: 5 * time.Second}, func(ctx context.Context, n int) error {
				mu.Lock()
				for len(began) <= n {
					began = append(began, time.Now())
				}
				d, fails := time.Duration(slow.IntN(4000))*time.Millisecond, slow.IntN(10) == 0
				mu.Unlock()
				if err := pause(ctx, d); err != nil || fails {
					return errors.Join(ErrUnavailable, err)
				}
				return nil
			})
			var wg sync.WaitGroup
			answers := 0
			for range 300 {
				time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
				maxAge := time.Duration(random.IntN(4)) * time.Second
				line := ""
				if maxAge > 0 || random.IntN(2) == 0 {
					line = "max-age=" + strconv.Itoa(int(maxAge/time.Second))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(20_000))*time.Millisecond)
				wg.Go(func() {
					defer cancel()
					arrived := time.Now()
					r := <-s.start(ctx, line)
					if r.status != http.StatusOK {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					answers++
					version, _ := strconv.Atoi(strings.Trim(r.body[strings.LastIndex(r.body, ":"):], ":}"))
					asked := began[version]
					if asked.Before(arrived) && time.Since(asked) > maxAge {
						t.Errorf("seed %d: %q that arrived at %v was given at %v what the store was asked at %v",
							seed, line, arrived, time.Now(), asked)
					}
				})
			}
			wg.Wait()
			if calls := len(began) - 1; answers < 100 || calls >= 300 {
				t.Errorf("seed %d: %d answers of %d calls: this tests nothing", seed, answers, calls)
			}
		})
	}
}

func TestCacheDoesNotKeepRequestsAlive(t *testing.T) {
	c := productCache{opts: &Options{CacheSize: 9, MaxAge: time.Minute}}
	for range 2 { // the second one finds an entry
		requestLine := strings.Repeat("p", 1<<10)
		key := productKey{scope: requestLine[:3], id: requestLine[3:6]}
		c.end(c.begin(key), MustResource("p", nil), nil, true)
		for kept := range c.entries {
			entry := c.entries[kept].Value.(*productEntry)
			for _, text := range []string{kept.scope, kept.id, entry.key.scope, entry.key.id} {
				at := uintptr(unsafe.Pointer(unsafe.StringData(text)))
				line := uintptr(unsafe.Pointer(unsafe.StringData(requestLine)))
				if line <= at && at < line+uintptr(len(requestLine)) {
					t.Errorf("%q is part of a request line", text)
				}
			}
		}
		runtime.KeepAlive(requestLine)
	}
}

// In an address of its own, each shop is another one.
func TestProductsThatDependOnTheHostAreNotShared(t *testing.T) {
	store := &stubStore{getProduct: func(ctx context.Context, id string) (Resource, error) {
		return MustResource(id, map[string]any{"of": ctx.Value(http.LocalAddrContextKey)}), nil
	}}
	h := NewWithOptions(store, &Options{Vary: []string{"host"}})
	read := func(host string) response {
		r := newRequest("GET", "/v1/products/p", "", "Cache-Control: max-age=60")
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, host)))
		return response{w.Code, w.Header(), w.Body.String()}
	}
	for _, host := range []string{"a.example", "b.example", "a.example"} {
		if r := read(host); r.body != `{"id":"p","of":"`+host+`"}` || r.header.Get("Cache-Status") != "storefront; fwd=bypass" {
			t.Errorf("%s got %s, Cache-Status %s", host, r.body, r.header.Get("Cache-Status"))
		}
	}
}

func TestAProductThatWasNotAskedForIsTheStoresBug(t *testing.T) {
	for _, line := range []string{"Accept: */*", "Cache-Control: max-age=60", "Cache-Control: no-cache"} {
		var log syncBuffer
		h := NewWithOptions(&stubStore{getProduct: func(context.Context, string) (Resource, error) {
			return MustResource("kettle", nil), nil
		}}, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		p := get(h, "/v1/products/teapot", line).wantProblem(t, http.StatusInternalServerError, "internal-error")
		if !strings.Contains(log.String(), p.Instance) || !strings.Contains(log.String(), `\"kettle\" for the ID \"teapot\"`) {
			t.Errorf("%s: want the incident and both IDs in the log: %s", line, &log)
		}
		for _, id := range []string{"teapot", "kettle"} {
			get(h, "/v1/products/"+id, "Cache-Control: only-if-cached").wantProblem(t, http.StatusGatewayTimeout, "not-cached")
		}
	}
}

// What is read is as new as the answer, however long the body of the request takes.
func TestTheBodyOfAReadIsDroppedBeforeAnythingIsAsked(t *testing.T) {
	for _, target := range cacheableTargets {
		if target == "/openapi.json" {
			continue // which never changes
		}
		var read atomic.Bool
		store := newCacheableStore()
		check := func() {
			if !read.Load() {
				t.Errorf("%s: the store was asked before the body was read", target)
			}
		}
		h := New(&stubStore{
			getProduct: func(ctx context.Context, id string) (Resource, error) {
				check()
				return store.GetProduct(ctx, id)
			},
			listUsers: func(ctx context.Context, after string, limit int) ([]Resource, error) {
				check()
				return store.ListUsers(ctx, after, limit)
			},
			listWidgets: func(ctx context.Context, start string, limit int) ([]Resource, error) {
				check()
				return store.ListWidgets(ctx, start, limit)
			},
		})
		for _, line := range []string{"Accept: */*", "Cache-Control: no-cache", "Cache-Control: max-age=5"} {
			read.Store(false)
			r := newRequest("GET", target, "", line)
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("a body"), readerFunc(func([]byte) (int, error) {
				read.Store(true)
				return 0, io.EOF
			})))
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
}

// A body that takes longer than the client's max-age must not make an answer older.
func TestAgeIsThatOfWhenTheBodyHasArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, nil)
		s.get("no-cache").wantVersion(t, 1)
		time.Sleep(2 * time.Second)
		r := newRequest("GET", "/v1/products/p1", "", "Cache-Control: max-age=5")
		r.Body = io.NopCloser(readerFunc(func([]byte) (int, error) {
			time.Sleep(14 * time.Second)
			return 0, io.EOF
		}))
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		response{w.Code, w.Header(), w.Body.String()}.wantVersion(t, 2)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Whoever does not speak of caching has the store's answer, and leaves nothing behind.
func TestARequestWithoutCacheControlHasNothingToDoWithTheMemory(t *testing.T) {
	s := newShelf(&Options{Scope: func(r *http.Request) string {
		if r.Header["Cache-Control"] == nil {
			t.Error("it is asked for a scope")
		}
		return ""
	}}, nil)
	s.get().wantVersion(t, 1)
	s.wantStored(t, 0)
	s.get("max-age=60").wantVersion(t, 2)
	s.get().wantVersion(t, 3)
	s.wantStored(t, 2)
	s.failWith(ErrNotFound)
	s.get().wantProblem(t, http.StatusNotFound, "product-not-found")
	s.wantStored(t, 2)
}

func TestEveryAnswerOfAProductToARequestWithCacheControlHasCacheStatus(t *testing.T) {
	synctest.Test(t, testEveryCacheStatus) // as ttl tells of time
}

func testEveryCacheStatus(t *testing.T) {
	s := newShelf(nil, nil)
	tag := s.get("max-age=60").header.Get("Etag")
	for _, test := range []struct {
		fail   error
		lines  []string
		status int
		want   string
	}{
		{nil, []string{"Cache-Control: max-age=60", "If-None-Match: " + tag}, 304, "storefront; hit; ttl=60"},
		{nil, []string{"Cache-Control: no-cache", "If-None-Match: *"}, 304, "storefront; fwd=request"},
		{nil, []string{"Cache-Control: max-age=60", `If-Match: "x"`}, 412, "storefront; fwd=request"},
		{nil, []string{"Cache-Control: only-if-cached, no-cache"}, 504, "storefront"},
		{nil, []string{"Cache-Control: only-if-cached", "Cookie: a=b"}, 504, "storefront"},
		{ErrUnavailable, []string{"Cache-Control: no-cache"}, 503, "storefront; fwd=request"},
		{errors.New("x"), []string{"Cache-Control: no-cache"}, 500, "storefront; fwd=request"},
		{ErrNotFound, []string{"Cache-Control: no-cache"}, 404, "storefront; fwd=request"},
		{ErrNotFound, []string{"Cache-Control: only-if-cached"}, 504, "storefront"},
	} {
		s.failWith(test.fail)
		r := get(s.handler, "/v1/products/p1", test.lines...)
		if got := r.header["Cache-Status"]; r.status != test.status || !slices.Equal(got, []string{test.want}) {
			t.Errorf("%q: status %d with Cache-Status %q, want %d with %q", test.lines, r.status, got, test.status, test.want)
		}
	}
}

// A cache takes the age of a 304 for that of what it renews (RFC 9111, Section 4.3.4).
func TestNotModifiedFromTheMemoryHasItsAgeAndDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(nil, nil)
		tag := s.get("max-age=60").header.Get("Etag")
		date := time.Now().UTC().Format(http.TimeFormat)
		time.Sleep(10 * time.Second)
		r := get(s.handler, "/v1/products/p1", "Cache-Control: max-age=60", "If-None-Match: "+tag)
		want := response{304, http.Header{
			"Age": {"10"}, "Date": {date}, "Etag": {tag}, "Cache-Control": {"private, max-age=60"}, "Cache-Status": {"storefront; hit; ttl=50"},
		}, ""}
		if diff := want.diff(r); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		s.wantCalls(t, 1)
	})
}
