package storefront

import (
	"net/http"
	"strings"
	"testing"
)

// cacheableTargets are all reads, of the store that newCacheableStore makes. The
// lists have a next page.
var cacheableTargets = []string{"/v1/users?limit=1", "/v1/products/p1", "/v2/widgets?limit=1",
	"/openapi.json"}

func newCacheableStore() *MemStore {
	store := new(MemStore)
	store.Users.Put(bareResources("u1", "u2")...)
	store.Products.Put(bareResources("p1")...)
	store.Widgets.Put(bareResources("w1", "w2")...)
	return store
}

func TestPreconditions(t *testing.T) {
	h := New(newCacheableStore())
	for _, target := range cacheableTargets {
		full := get(h, target)
		tag := full.header.Get("ETag")
		if vary := full.header["Vary"]; vary != nil {
			t.Errorf("%s: Vary %q, want none by default", target, vary)
		}
		for _, test := range []struct {
			ifMatch, ifNoneMatch string // empty is none
			status               int
		}{
			{"", tag, 304}, {"", "W/" + tag, 304}, {"", "*", 304}, {"", `"a", ` + tag, 304},
			{"", `"other"`, 200}, {"", strings.Trim(tag, `"`), 200}, {"", "", 200},
			{tag, "", 200}, {"*", "", 200}, {`"a", ` + tag, "", 200},
			{`"other"`, "", 412}, {"W/" + tag, "", 412}, {",,", "", 412}, {strings.Trim(tag, `"`), "", 412},
			{tag, tag, 304}, {tag, `"other"`, 200}, {`"other"`, tag, 412}, {`"other"`, `"other"`, 412},
		} {
			r := get(h, target, "If-None-Match: "+test.ifNoneMatch, "If-Match: "+test.ifMatch)
			body := map[int]string{200: full.body, 304: "", 412: r.body}[test.status]
			if r.status != test.status || r.body != body || (r.header["Etag"] == nil) != (r.status == 412) {
				t.Errorf("%s, If-Match %s, If-None-Match %s: status %d, header %v, body %q, want status %d",
					target, test.ifMatch, test.ifNoneMatch, r.status, r.header, r.body, test.status)
			}
		}
		get(h, target, "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT").wantStatus(t, http.StatusOK)
	}
}

func TestErrorsWinOverPreconditions(t *testing.T) {
	for target, want := range map[string]int{
		"/v1/products/none": 404, "/v1/products/p1?x=y": 400, "/v1/users?limit=x": 400, "/v2/widgets": 400,
		"/openapi.json?x=y": 400,
	} {
		for _, line := range []string{"If-Match: *", `If-Match: "a"`, "If-None-Match: *",
			`If-None-Match: "a"`} {
			r := get(New(newCacheableStore()), target, line)
			if r.status != want || r.header["Etag"] != nil {
				t.Errorf("%s with %s: %d with ETag %q, want %d", target, line, r.status,
					r.header["Etag"], want)
			}
		}
	}
}
