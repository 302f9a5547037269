package storefront

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// cacheableTargets are all reads, of the store that newCacheableStore makes. The
// lists have a next page.
var cacheableTargets = []string{"/v1/users?limit=1", "/v1/products/p1", "/v2/widgets?limit=1", "/openapi.json"}

func newCacheableStore() *MemStore {
	store := new(MemStore)
	name := func(name string) any { return map[string]string{"name": name} }
	store.Users.Put(MustResource("u1", name("Ada")), MustResource("u2", name("Grace")), MustResource("u3", name("Barbara")))
	store.Products.Put(MustResource("p1", name("Teapot")))
	store.Widgets.Put(MustResource("w1", name("Gear")), MustResource("w2", name("Gear")))
	return store
}

func TestReadsHaveAStrongETagAndCacheControl(t *testing.T) {
	strong := regexp.MustCompile(`^"[!#-~]{16,}"$`)
	const revalidate, minute = "private, no-cache", "private, max-age=60"
	tests := []struct {
		name       string
		opts       *Options
		list, want string // of lists, and of all else
	}{
		{"default", nil, revalidate, minute},
		{"MaxAge", &Options{MaxAge: 90 * time.Minute}, revalidate, "private, max-age=5400"},
		{"MaxAge that is not whole seconds", &Options{MaxAge: 1999 * time.Millisecond}, revalidate, "private, max-age=1"},
		{"MaxAge below a second", &Options{MaxAge: time.Millisecond}, revalidate, "private, max-age=0"},
		{"negative MaxAge", &Options{MaxAge: -1}, revalidate, revalidate},
		{"ListMaxAge", &Options{ListMaxAge: 90 * time.Minute}, "private, max-age=5400", minute},
		{"ListMaxAge that is not whole seconds", &Options{ListMaxAge: 1999 * time.Millisecond}, "private, max-age=1", minute},
		{"ListMaxAge below a second", &Options{ListMaxAge: time.Second - 1}, revalidate, minute},
		{"negative ListMaxAge", &Options{ListMaxAge: -time.Hour}, revalidate, minute},
		{"both", &Options{ListMaxAge: time.Second, MaxAge: -1}, "private, max-age=1", revalidate},
		{"Shared", &Options{Shared: true}, "no-cache", "max-age=60"},
		{"Shared with both", &Options{Shared: true, ListMaxAge: time.Second, MaxAge: -1}, "max-age=1", "no-cache"},
		{"Scope", &Options{Scope: func(*http.Request) string { return "a" }}, revalidate, minute},
	}
	for _, test := range tests {
		h := NewWithOptions(newCacheableStore(), test.opts)
		for _, target := range cacheableTargets {
			t.Run(test.name+target, func(t *testing.T) {
				r := get(h, target)
				r.wantStatus(t, http.StatusOK)
				want := test.want
				if strings.Contains(target, "limit") {
					want = test.list
				}
				for what, r := range map[string]response{"200": r, "304": get(h, target, "If-None-Match: *"), "HEAD": send(h, "HEAD", target, "")} {
					if got := r.header["Cache-Control"]; !slices.Equal(got, []string{want}) {
						t.Errorf("%s: Cache-Control %q, want %q", what, got, want)
					}
				}
				if got := r.header["Etag"]; len(got) != 1 || !strong.MatchString(got[0]) {
					t.Errorf("ETag %q, want one strong one", got)
				}
			})
		}
	}
}

const productTag = `"6FAs6adW5wJeg6ECtj1G4g"`

// Clients keep these tags over a release. To change what they are made of costs
// every client one full answer for everything it has.
func TestETagsAreFrozen(t *testing.T) {
	h := New(newCacheableStore())
	for target, want := range map[string]string{
		"/v1/products/p1":     productTag,
		"/v1/users?limit=2":   `"_8m4FwXW0Pg61QqCmLxIrA"`,
		"/v1/users?limit=3":   `"TJWCpNkZRxBCHnroYZcezw"`,
		"/v2/widgets?limit=1": `"HBMAag9PuxihhvkY27fgQw"`,
		"/v2/widgets?limit=1&start=" + widgetsList.encodeCursor("x"): `"47DEQpj8HBSa-_TImW-5JA"`,
	} {
		if got := get(h, target).header.Get("ETag"); got != want {
			t.Errorf("%s: ETag %s, want %s", target, got, want)
		}
	}
}

// tagLines returns header lines in which <tag> stands for an entity tag, and <opaque> for
// what is between its quotes.
func tagLines(name string, lines []string, etag string) (expanded []string) {
	replacer := strings.NewReplacer("<tag>", etag, "<opaque>", strings.Trim(etag, `"`))
	for _, line := range lines {
		expanded = append(expanded, name+": "+replacer.Replace(line))
	}
	return expanded
}

func TestIfNoneMatch(t *testing.T) {
	h := New(newCacheableStore())
	for _, target := range cacheableTargets {
		full := get(h, target)
		for _, test := range []struct {
			name   string
			lines  []string
			status int
		}{
			{"the tag", []string{`<tag>`}, 304},
			{"another tag", []string{`"other"`}, 200},
			{"the tag, weak: the comparison is weak", []string{`W/<tag>`}, 304},
			{"asterisk", []string{`*`}, 304},
			{"second line", []string{`"a"`, `<tag>`}, 304},
			{"no quotes", []string{`<opaque>`}, 200},
			{"empty is none", []string{``}, 200},
		} {
			t.Run(target+"/"+test.name, func(t *testing.T) {
				lines := tagLines("If-None-Match", test.lines, full.header.Get("ETag"))
				for method, body := range map[string]string{"GET": full.body, "HEAD": ""} {
					if test.status == http.StatusNotModified {
						body = ""
					}
					if r := send(h, method, target, "", lines...); r.status != test.status || r.body != body {
						t.Errorf("%s: status %d with %q, want %d with %q", method, r.status, r.body, test.status, body)
					}
				}
			})
		}
	}
}

func TestIfMatch(t *testing.T) {
	h := New(newCacheableStore())
	for _, target := range cacheableTargets {
		etag := get(h, target).header.Get("ETag")
		for _, test := range []struct {
			name  string
			lines []string
			match bool
		}{
			{"the tag", []string{`<tag>`}, true},
			{"another tag", []string{`"other"`}, false},
			{"the tag, weak: the comparison is strong", []string{`W/<tag>`}, false},
			{"asterisk", []string{`*`}, true},
			{"second line", []string{`"a"`, `<tag>`}, true},
			{"only commas", []string{`,,`}, false},
			{"no quotes", []string{`<opaque>`}, false},
			{"empty is none", []string{``}, true},
		} {
			t.Run(target+"/"+test.name, func(t *testing.T) {
				r := get(h, target, tagLines("If-Match", test.lines, etag)...)
				if test.match {
					r.wantStatus(t, http.StatusOK)
					return
				}
				r.wantProblem(t, http.StatusPreconditionFailed, "precondition-failed")
				if got := r.header["Etag"]; got != nil {
					t.Errorf("ETag %s on a problem", got)
				}
			})
		}
	}
}

func TestIfMatchGoesFirst(t *testing.T) {
	h := New(newCacheableStore())
	for _, target := range cacheableTargets {
		etag := get(h, target).header.Get("ETag")
		for _, test := range []struct {
			ifMatch, ifNoneMatch string
			want                 int
		}{
			{`"other"`, etag, http.StatusPreconditionFailed},
			{`"other"`, `"other"`, http.StatusPreconditionFailed},
			{etag, etag, http.StatusNotModified},
			{etag, `"other"`, http.StatusOK},
		} {
			r := get(h, target, "If-None-Match: "+test.ifNoneMatch, "If-Match: "+test.ifMatch)
			if r.status != test.want {
				t.Errorf("%s with If-Match %s and If-None-Match %s: status %d, want %d", target, test.ifMatch, test.ifNoneMatch, r.status, test.want)
			}
		}
	}
}

func TestErrorsWinOverPreconditions(t *testing.T) {
	h := New(newCacheableStore())
	for target, want := range map[string]struct {
		status int
		code   string
	}{
		"/v1/products/none":   {http.StatusNotFound, "product-not-found"},
		"/v1/users?limit=x":   {http.StatusBadRequest, "invalid-query"},
		"/v1/products/p1?x=y": {http.StatusBadRequest, "invalid-query"},
		"/v2/widgets":         {http.StatusBadRequest, "invalid-query"},
		"/openapi.json?x=y":   {http.StatusBadRequest, "invalid-query"},
	} {
		for _, line := range []string{"If-Match: *", `If-Match: "a"`, "If-None-Match: *", `If-None-Match: "a"`} {
			r := get(h, target, line)
			r.wantProblem(t, want.status, want.code)
			if got := r.header["Etag"]; got != nil {
				t.Errorf("%s with %s: ETag %s on a problem", target, line, got)
			}
		}
	}
}

func TestNotModifiedHasTheHeadersThatItShould(t *testing.T) {
	service := New(newCacheableStore())
	wrapped := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept-Encoding")
		service.ServeHTTP(w, r)
	})
	server := httptest.NewServer(wrapped) // which adds headers, too
	defer server.Close()
	for _, target := range cacheableTargets {
		for _, method := range []string{"GET", "HEAD"} {
			t.Run(method+" "+target, func(t *testing.T) {
				full := get(wrapped, target)
				want := response{http.StatusNotModified, http.Header{"Vary": {"Accept-Encoding"}}, ""}
				for _, name := range []string{"Etag", "Cache-Control"} {
					want.header[name] = full.header[name]
				}
				if diff := want.diff(send(wrapped, method, target, "", "If-None-Match: *")); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				r := newRequest(method, server.URL+target, "", "If-None-Match: "+full.header.Get("ETag"))
				r.RequestURI = "" // or it is one that a server has received
				got, err := server.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got.Body.Close()
				got.Header.Del("Date")
				if diff := want.diff(response{got.StatusCode, got.Header, ""}); diff != "" {
					t.Errorf("over a socket: -want +got:\n%s", diff)
				}
			})
		}
	}
}

func TestIfModifiedSinceAndRangeAreIgnored(t *testing.T) {
	h := New(newCacheableStore())
	const future = "Fri, 31 Dec 9999 23:59:59 GMT"
	for _, target := range cacheableTargets {
		full := get(h, target)
		for _, lines := range [][]string{
			{"If-Modified-Since: " + future},
			{"If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT"},
			{"Range: bytes=0-1"},
			{"Range: bytes=0-1", "If-Range: " + full.header.Get("ETag")},
			{"If-Modified-Since: " + future, `If-None-Match: "other"`},
		} {
			r := get(h, target, lines...)
			if r.status != http.StatusOK || r.body != full.body || r.header["Accept-Ranges"] != nil || r.header["Content-Range"] != nil {
				t.Errorf("%s with %q: status %d, header %v, %d bytes; want what it is without", target, lines, r.status, r.header, len(r.body))
			}
		}
		get(h, target, "If-Modified-Since: "+future, "If-None-Match: "+full.header.Get("ETag")).wantStatus(t, http.StatusNotModified)
	}
}
