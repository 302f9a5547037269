package trypage_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/internal/trypage"
)

func send(h http.Handler, method, target, form string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	return send(h, "GET", path, "", header...)
}

func pageFor(base string) string { return get(trypage.Handler(base, nil), "/").Body.String() }

// wantProblem checks that an answer is a problem of a status.
func wantProblem(t *testing.T, what string, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if kind := w.Header().Get("Content-Type"); w.Code != want || kind != "application/problem+json" {
		t.Errorf("%.40s: the answer is %d, %s, want a problem of %d", what, w.Code, kind, want)
	}
}

// The browser runs the page's own style and script and nothing else, as their hashes are
// in the policy.
func TestPolicyAllowsThePageAlone(t *testing.T) {
	w := get(trypage.Handler("", nil), "/")
	policy := w.Header().Get("Content-Security-Policy")
	wants := []string{"default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
		"frame-ancestors 'none'", "require-trusted-types-for 'script'"}
	for name, element := range map[string]string{
		"style-src": `(?s)<style>(.*?)</style>`, "script-src": `(?s)<script type="module">(.*?)</script>`,
	} {
		found := regexp.MustCompile(element).FindAllStringSubmatch(w.Body.String(), -1)
		if len(found) != 1 {
			t.Fatalf("%s: the page has %d such elements, want 1", name, len(found))
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		wants = append(wants, name+" 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';")
	}
	for _, want := range wants {
		if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			t.Errorf("the policy is %s, want %s in it", policy, want)
		}
	}
}

func TestMethods(t *testing.T) {
	w := send(trypage.Handler("", nil), "HEAD", "/", "")
	if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: %d, %d bytes, %v", w.Code, w.Body.Len(), w.Header())
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		w := send(trypage.Handler("", nil), method, "/", "")
		wantProblem(t, method, w, 405)
		if allow := w.Header().Get("Allow"); allow != "GET, HEAD" {
			t.Errorf("%s: Allow is %q", method, allow)
		}
	}
}

func TestBaseAndProductAreWrittenIntoThePage(t *testing.T) {
	for base, want := range map[string]string{
		"": "", "/": "/", "/shop": "/shop", "../shop/": "../shop/", "/a&b'c": "/a&amp;b&#39;c",
		"/%22": "/%22",
	} {
		if !strings.Contains(pageFor(base), `<meta name="storefront-base" content="`+want+`">`) {
			t.Errorf("the base %q is not in the page as %q", base, want)
		}
	}
	h := trypage.Handler("", &trypage.Options{Product: `a"b`})
	const want = `<meta name="storefront-product" content="a&#34;b">`
	if body := get(h, "/").Body.String(); !strings.Contains(body, want) {
		t.Error("the product is not in the page")
	}
}

func TestBaseThatIsNotAPathPanics(t *testing.T) {
	for _, base := range []string{
		"http://shop.example", "//shop.example/", "/a?b", `/\evil.example`,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for the base %q", base)
				}
			}()
			trypage.Handler(base, nil)
		}()
	}
}

func TestSampleIsChanged(t *testing.T) {
	store := new(storefront.MemStore)
	page := trypage.Handler("", &trypage.Options{Sample: store})
	for list, items := range map[string]*storefront.Collection{
		"users": &store.Users, "products": &store.Products, "widgets": &store.Widgets} {
		items.Put(storefront.MustResource("b/ü", map[string]int{"price": 7}))
		for form, want := range map[string]string{
			"id=bob&op=put":           `{"id":"bob","changed_at":"[^"]*","name":"bob"}`,
			"id=b%2F%C3%BC&op=put":    `{"id":"b/ü","changed_at":"[^"]*","price":7}`,
			"id=b%2F%C3%BC&op=delete": `^$`,
		} {
			w := send(page, "POST", "/", form+"&list="+list)
			id := must.Get(url.ParseQuery(form))(t).Get("id")
			if got, _ := items.Get(id); w.Code != 204 || !regexp.MustCompile(want).MatchString(got.String()) {
				t.Errorf("%s of %s: the answer is %d, and the item is %s, want %s", form, list, w.Code, got, want)
			}
			items.Put(storefront.MustResource("b/ü", map[string]int{"price": 7}))
		}
	}
}

func TestWrongChangeIsRefused(t *testing.T) {
	store := new(storefront.MemStore)
	page := trypage.Handler("", &trypage.Options{Sample: store})
	for form, want := range map[string]int{
		"":                         400,
		"list=orders&id=a&op=put":  400,
		"list=users&id=a&op=x":     400,
		"list=users&id=%00&op=put": 422,
		"list=users&op=put&id=" + strings.Repeat("a", 256):    422,
		"list=users&op=put&id=" + strings.Repeat("a", 20_000): 400,
	} {
		wantProblem(t, form, send(page, "POST", "/", form), want)
	}
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://evil"} {
		wantProblem(t, value, send(page, "POST", "/", "list=users&id=bob&op=put", name, value), 403)
	}
	for user := range store.Users.All() {
		t.Errorf("there is %v", user)
	}
}
