package explorer_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/storefront/explorer"
)

func get(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPageIsUnder60KiB(t *testing.T) {
	if n := get(explorer.Handler(""), "GET", "/").Body.Len(); n > 60<<10 {
		t.Errorf("the page has %d bytes", n)
	}
}

func TestLinesOfThePageCanBeRead(t *testing.T) {
	for _, text := range []string{*explorer.Page, *explorer.Style, *explorer.Script} {
		for line := range strings.Lines(text) {
			if n := len([]rune(strings.TrimRight(line, "\r\n"))); n >= 120 {
				t.Errorf("%d characters: %s", n, line)
			}
		}
	}
}

// Only the script makes the buttons do something, so only the script enables them.
func TestWithoutScriptNoButtonCanBePressed(t *testing.T) {
	body := get(explorer.Handler(""), "GET", "/").Body.String()
	html, _, _ := strings.Cut(body, "<script")
	buttons := regexp.MustCompile(`<button[^>]*>`).FindAllString(html, -1)
	for _, button := range buttons {
		if !strings.Contains(button, " disabled") {
			t.Errorf("%s is not disabled", button)
		}
	}
	if len(buttons) == 0 || !strings.Contains(html, "<noscript>") {
		t.Errorf("the page has %d buttons, and perhaps no word for those without a script", len(buttons))
	}
}

func TestPageIsServedAtAnyPath(t *testing.T) {
	want := get(explorer.Handler(""), "GET", "/")
	if want.Code != 200 || want.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("the answer is %d, %s", want.Code, want.Header().Get("Content-Type"))
	}
	for _, path := range []string{"/try", "/a/b/", "/index.html"} {
		if got := get(explorer.Handler(""), "GET", path); got.Code != 200 || got.Body.String() != want.Body.String() {
			t.Errorf("%s: the answer is %d, with another page", path, got.Code)
		}
	}
}

func TestPageHasNoSourceButItself(t *testing.T) {
	body := get(explorer.Handler(""), "GET", "/").Body.String()
	for _, m := range regexp.MustCompile(`(?i)\b(?:src|href|action|url|import)\b\s*[=(]\s*["']?(?:https?:)?//[^"' )>]+`).FindAllString(body, -1) {
		t.Errorf("the page refers to %s", m)
	}
}

// The browser runs the page's own style and script and nothing else, as their hashes are
// in the policy.
func TestPolicyAllowsThePageAlone(t *testing.T) {
	t.Run("LF", testPolicy)
	for _, file := range []*string{explorer.Page, explorer.Style, explorer.Script} {
		original := *file
		defer func() { *file = original }()
		*file = strings.ReplaceAll(original, "\n", "\r\n")
	}
	t.Run("CR LF", testPolicy)
}

func testPolicy(t *testing.T) {
	w := get(explorer.Handler(""), "GET", "/")
	policy := w.Header().Get("Content-Security-Policy")
	for name, element := range map[string]string{"style-src": `(?s)<style>(.*?)</style>`, "script-src": `(?s)<script type="module">(.*?)</script>`} {
		found := regexp.MustCompile(element).FindAllStringSubmatch(w.Body.String(), -1)
		if len(found) != 1 {
			t.Fatalf("%s: the page has %d such elements, want 1", name, len(found))
		}
		sum := sha256.Sum256([]byte(strings.ReplaceAll(found[0][1], "\r\n", "\n"))) // as browsers do
		if want := name + " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"; !strings.Contains(policy, want) {
			t.Errorf("the policy is %s, want %s in it", policy, want)
		}
	}
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy is %s, want %s in it", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %s", policy)
	}
}

func TestPageIsRevalidated(t *testing.T) {
	w := get(explorer.Handler(""), "GET", "/")
	tag := w.Header().Get("Etag")
	if got := w.Header().Get("Cache-Control"); got != "no-cache" {
		t.Errorf("Cache-Control is %q", got)
	}
	if got := get(explorer.Handler(""), "GET", "/", "If-None-Match", tag); got.Code != 304 || got.Body.Len() != 0 {
		t.Errorf("with its own tag %s, the answer is %d", tag, got.Code)
	}
	if got := get(explorer.Handler("/shop"), "GET", "/", "If-None-Match", tag); got.Code != 200 {
		t.Errorf("with the tag of a page for another base, the answer is %d", got.Code)
	}
}

func TestHeadHasNoBody(t *testing.T) {
	if w := get(explorer.Handler(""), "HEAD", "/"); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") == "" {
		t.Errorf("the answer is %d, %d bytes, Content-Length %q", w.Code, w.Body.Len(), w.Header().Get("Content-Length"))
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		w := get(explorer.Handler(""), method, "/")
		if w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: the answer is %d, Allow %q, %s", method, w.Code, w.Header().Get("Allow"), w.Header().Get("Content-Type"))
		}
	}
}

func TestBaseIsWrittenIntoThePage(t *testing.T) {
	for base, want := range map[string]string{"": "", "/": "/", "/shop": "/shop", "../shop/": "../shop/", "/a&b'c": "/a&amp;b&#39;c", "/%22": "/%22"} {
		if body := get(explorer.Handler(base), "GET", "/").Body.String(); !strings.Contains(body, `<meta name="storefront-base" content="`+want+`">`) {
			t.Errorf("the base %q is not in the page as %q", base, want)
		}
	}
}

func TestPageBeginsWithTheProduct(t *testing.T) {
	h := explorer.HandlerWithOptions("", &explorer.Options{Product: `a"b`})
	if body := get(h, "GET", "/").Body.String(); !strings.Contains(body, `<meta name="storefront-product" content="a&#34;b">`) {
		t.Error("the product is not in the page")
	}
}

func TestBaseThatIsNotAPathPanics(t *testing.T) {
	for _, base := range []string{"http://shop.example", "//shop.example/", "mailto:a", "?a", "/a?b", "#a", "/a#b", "%zz", "/a\n", `/\evil.example`, `\\evil.example`} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for the base %q", base)
				}
			}()
			explorer.Handler(base)
		}()
	}
}

// A recorder records the changes that it is asked for.
type recorder struct {
	changes []explorer.Change
	err     error
}

func (c *recorder) change(_ context.Context, change explorer.Change) error {
	c.changes = append(c.changes, change)
	return c.err
}

func post(h http.Handler, form string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestChangeIsCalled(t *testing.T) {
	c := new(recorder)
	h := explorer.HandlerWithOptions("", &explorer.Options{Change: c.change})
	for _, form := range []string{"list=users&id=bob&op=put", "list=products&id=teapot&op=put", "list=widgets&id=a%2Fb&op=delete"} {
		if w := post(h, form); w.Code != 204 {
			t.Errorf("%s: the answer is %d", form, w.Code)
		}
	}
	want := []explorer.Change{{List: "users", ID: "bob"}, {List: "products", ID: "teapot"}, {List: "widgets", ID: "a/b", Deleted: true}}
	if !slices.Equal(c.changes, want) {
		t.Errorf("the changes are %+v, want %+v", c.changes, want)
	}
}

func TestWrongChangeIsRefused(t *testing.T) {
	c := new(recorder)
	h := explorer.HandlerWithOptions("", &explorer.Options{Change: c.change})
	for form, want := range map[string]int{
		"":                         400,
		"list=orders&id=a&op=put":  400,
		"list=users&id=a":          400,
		"list=users&id=a&op=x":     400,
		"list=users&op=put":        422,
		"list=users&id=%00&op=put": 422,
		"list=users&id=%ff&op=put": 422,
		"list=users&op=put&id=" + strings.Repeat("a", 256):    422,
		"list=users&op=put&id=" + strings.Repeat("a", 20_000): 400,
	} {
		if w := post(h, form); w.Code != want || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.40s: the answer is %d, %s, want %d", form, w.Code, w.Header().Get("Content-Type"), want)
		}
	}
	if len(c.changes) > 0 {
		t.Errorf("it was asked to change %+v", c.changes)
	}
}

func TestChangeFromAnotherOriginIsRefused(t *testing.T) {
	c := new(recorder)
	h := explorer.HandlerWithOptions("", &explorer.Options{Change: c.change})
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://evil.example"}} {
		if w := post(h, "list=users&id=bob&op=put", header...); w.Code != 403 || w.Header().Get("Content-Type") != "application/problem+json" || len(c.changes) > 0 {
			t.Errorf("%s: the answer is %d, %s, the changes are %+v", header, w.Code, w.Header().Get("Content-Type"), c.changes)
		}
	}
}

// logged has the default logger write into what it returns.
func logged(t *testing.T) *strings.Builder {
	text := new(strings.Builder)
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return text
}

// A function that a program has written for the lists of today is asked for those of a
// later version, and it is nobody's failure.
func TestListThatTheProgramDoesNotKnowIsRefused(t *testing.T) {
	for _, err := range []error{explorer.ErrUnknownList, fmt.Errorf("secret: %w", explorer.ErrUnknownList)} {
		log := logged(t)
		c := &recorder{err: err}
		w := post(explorer.HandlerWithOptions("", &explorer.Options{Change: c.change}), "list=products&id=teapot&op=put")
		if w.Code != 400 || w.Header().Get("Content-Type") != "application/problem+json" || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%v: the answer is %d, %s, %s, want 400 and a problem", err, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
		if log.Len() > 0 {
			t.Errorf("%v: the log has %s", err, log)
		}
	}
}

func TestFailedChangeIsLoggedAndNotTold(t *testing.T) {
	c := &recorder{err: errors.New("secret")}
	log := logged(t)
	w := post(explorer.HandlerWithOptions("", &explorer.Options{Change: c.change}), "list=users&id=bob&op=put")
	if w.Code != 500 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(log.String(), "secret") {
		t.Errorf("the answer is %d, %s; the log has %s", w.Code, w.Body, log)
	}
}
