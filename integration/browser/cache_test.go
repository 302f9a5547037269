package browser

import (
	"slices"
	"testing"

	"example.com/storefront"
)

// A walk by fetch goes through the browser's cache, as do those of any page.
func TestWalkThroughTheBrowsersCache(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		s.store.Users = storefront.Collection{}
		for _, id := range []string{"a", "c", "e", "g"} {
			s.store.Users.Put(storefront.MustResource(id, nil))
		}
		p := open(t, s, desktop)
		walk := func(want ...string) []received {
			t.Helper()
			s.take()
			p.want("the walk", eval[[]string](p, `(async () => {
				const ids = [];
				for (let page = new URL("/v1/users?limit=2", location); page;) {
					const answer = await fetch(page);
					ids.push(...(await answer.json()).data.map(user => user.id));
					const next = /<([^>]*)>; rel="next"/.exec(answer.headers.get("Link"));
					page = next && new URL(next[1], page);
				}
				return ids;
			})()`), want)
			return s.take()
		}
		walk("a", "c", "e", "g")

		again := walk("a", "c", "e", "g")
		anew := func(r received) bool { return r.header.Get("If-None-Match") == "" }
		if len(again) != 2 || slices.ContainsFunc(again, anew) {
			t.Errorf("the browser has 2 pages, and asked %+v, want whether each of them has changed", again)
		}
		s.store.Users.Put(storefront.MustResource("b", nil))
		s.store.Users.Delete("a")
		walk("b", "c", "e", "g")
	})
}
