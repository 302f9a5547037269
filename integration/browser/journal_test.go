package browser

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
)

// The journal of sdk/javascript/storefront.mjs outlives its page: another page goes on with a draft, but
// not while it is being sent.
func TestJournalOfAPage(t *testing.T) {
	source := must.Get(os.ReadFile("../../sdk/javascript/storefront.mjs"))(t)
	var store storefront.MemStore
	service := storefront.New(&store)
	arrived := make(chan string, 100) // keys
	var requests, sending atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, `<link rel=icon href="data:,"><body></body><script type=module>
				import { Shop } from "/storefront.mjs";
				globalThis.opened = new Shop(location.origin).journal("orders");</script>`)
		case "/storefront.mjs":
			w.Header().Set("Content-Type", "text/javascript")
			w.Write(source)
		default:
			if sending.Add(1) > 1 {
				t.Error("two pages send a draft at the same time")
			}
			body, _ := io.ReadAll(r.Body) // after which the server sees that the page has gone
			r.Body = io.NopCloser(bytes.NewReader(body))
			first := requests.Add(1) == 1
			arrived <- r.Header.Get("Idempotency-Key")
			if first {
				<-r.Context().Done()
			} else {
				service.ServeHTTP(w, r)
			}
			sending.Add(-1)
		}
	}))
	t.Cleanup(server.Close)
	p := openAt(t, server.URL)
	// The first page is a frame, which another can remove.
	eval[int](p, `new Promise((done) => {
		globalThis.frame = document.body.appendChild(document.createElement("iframe"));
		frame.onload = () => done(0);
		frame.src = "/";
	})`)
	eval[int](p, `frame.contentWindow.opened.then((journal) => { journal.order("basket 17", "teapot", 2); return 0; })`)
	key := <-arrived
	p.want("the drafts", eval[[]string](p, `opened.then((journal) => journal.pending())`), []string{"basket 17"})
	eval[int](p, `opened.then((journal) => { globalThis.order = journal.order("basket 17"); return 0; })`)
	const waiting = `navigator.locks.query().then((locks) => locks.pending.length)`
	for requests.Load() == 1 && eval[int](p, waiting) == 0 {
	}
	eval[int](p, `frame.remove(), 0`)
	id := eval[string](p, `globalThis.order.then((order) => order.id)`)
	p.want("the key", <-arrived, key)
	const again = `opened.then((journal) => journal.order("basket 17", "teapot", 2)).then((order) => order.id)`
	p.want("the order, asked for again", eval[string](p, again), id)
	p.want("the drafts then", eval[[]string](p, `opened.then((journal) => journal.pending())`), []string{})
	if created := store.Orders(); len(created) != 1 || created[0].ID != id || requests.Load() != 2 {
		t.Errorf("it has the order %s; there are %v", id, created)
	}
}

// A product that one account has read is not what another gets, not even out of the browser's cache.
func TestProductOfAPageIsNotAnothers(t *testing.T) {
	source := must.Get(os.ReadFile("../../sdk/javascript/storefront.mjs"))(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, `<link rel=icon href="data:,"><script type=module>
				import { Shop } from "/storefront.mjs";
				globalThis.shops = [0, 10].map((remember) => new Shop(location.origin, { remember }));
				globalThis.read = async (shop, account) => {
					document.cookie = `+"`account=${account}`"+`;
					return (await shop.product("teapot", { maxAge: 3600 })).name;
				};</script>`)
		case "/storefront.mjs":
			w.Header().Set("Content-Type", "text/javascript")
			w.Write(source)
		default:
			cookie := must.Get(r.Cookie("account"))(t)
			tag := `"` + cookie.Value + `"`
			w.Header().Set("ETag", tag)
			w.Header().Set("Cache-Control", "private, max-age=60")
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			fmt.Fprintf(w, `{"id":"teapot","name":%q}`, cookie.Value)
		}
	}))
	t.Cleanup(server.Close)
	p := openAt(t, server.URL)
	for _, shop := range []string{"shops[0]", "shops[1]"} {
		for _, account := range []string{"ada", "grace", "grace", "ada"} {
			p.want("the product's account", eval[string](p, fmt.Sprintf("read(%s, %q)", shop, account)), account)
		}
	}
}

// openAt opens a page that is not the explorer.
func openAt(t *testing.T, url string) *page {
	t.Helper()
	browser, err := chromium()
	if err != nil {
		need.Missing(t, need.Browser, err)
	}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	must.OK(t, chromedp.Do(ctx)) // which must not have a time limit
	p := &page{t: t, ctx: ctx}
	p.send(chromedp.Navigate(url))
	return p
}
