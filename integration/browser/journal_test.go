package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
)

// The journal of sdk/javascript/storefront.mjs outlives its page: another page goes on with a draft, but
// not while it is being sent.
func TestJournalOfAPage(t *testing.T) {
	var store storefront.MemStore
	service := storefront.New(&store)
	arrived := make(chan string, 100) // keys
	var requests, sending atomic.Int32
	const opening = `globalThis.opened = new Shop(location.origin).journal("orders");`
	p := openWith(t, opening, func(w http.ResponseWriter, r *http.Request) {
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
	})
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
	yields(p, `opened.then((journal) => journal.close()).then(() => new Promise((done) => {
		const deleting = indexedDB.deleteDatabase("storefront orders");
		deleting.onsuccess = () => done("deleted");
		deleting.onblocked = () => done("it is still open");
	}))`, "deleted")
}

// A page has the orders of who has signed in. A draft of another account, or of another shop, is neither listed
// nor sent.
func TestJournalOfAPageIsOfItsAccount(t *testing.T) {
	var store storefront.MemStore
	service := storefront.NewWithOptions(&store, &storefront.Options{
		Scope: func(r *http.Request) string { return r.Header.Get("Authorization") }})
	var mu sync.Mutex
	var requests []string
	p := openWith(t, `
		let account;
		const opened = new Shop(location.origin, {
			account: () => account, headers: () => ({ Authorization: account }), patience: 0,
		}).journal("orders");
		const elsewhere = new Shop("http://shop.example", { account: () => account, patience: 0 }).journal("orders");
		globalThis.signIn = (name) => (account = name);
		globalThis.pending = async () => (await (await opened).pending()).concat(await (await elsewhere).pending());
		globalThis.order = async (...asked) => {
			try {
				return (await (await opened).order(...asked)).id;
			} catch (err) {
				return err.name;
			}
		};`, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, r.Header.Get("Authorization"))
		if len(requests) > 1 {
			service.ServeHTTP(w, r)
			return
		}
		service.ServeHTTP(httptest.NewRecorder(), r) // and the answer is lost
		w.WriteHeader(http.StatusBadGateway)
	})
	drafts := func(want ...string) {
		t.Helper()
		p.want("the drafts", eval[[]string](p, `pending()`), append([]string{}, want...))
	}
	eval[string](p, `signIn("alice")`)
	yields(p, `order("basket 17", "teapot", 2)`, "Unknown")
	drafts("basket 17")
	eval[string](p, `signIn("bob")`)
	drafts()
	yields(p, `order("basket 17")`, "RangeError")
	bobs := eval[string](p, `order("basket 17", "teapot", 2)`)
	eval[string](p, `signIn("alice")`)
	drafts("basket 17")
	alices := eval[string](p, `order("basket 17")`)
	drafts()
	mu.Lock()
	defer mu.Unlock()
	p.want("who has sent", requests, []string{"alice", "bob", "alice"})
	if created := store.Orders(); len(created) != 2 || alices == bobs {
		t.Errorf("alice has the order %s, bob %s; there are %v", alices, bobs, created)
	}
}

// Later releases go on with the journal that version 1 of the format has recorded, with only its times put into the
// present, and leave one of another version as it is.
func TestRecordedJournalOfAPage(t *testing.T) {
	recorded := string(must.Get(os.ReadFile("testdata/formats/1/journal.json"))(t))
	var store storefront.MemStore
	service := storefront.New(&store)
	var requests atomic.Int32
	p := openWith(t, `
		globalThis.open = async (recorded) => {
			const opening = indexedDB.open("storefront recorded", 1);
			opening.onupgradeneeded = () => opening.result.createObjectStore("drafts");
			await new Promise((done) => (opening.onsuccess = done));
			const transaction = opening.result.transaction("drafts", "readwrite");
			for (const [key, text] of recorded) transaction.objectStore("drafts").put(text, key);
			await new Promise((done) => (transaction.oncomplete = done));
			return new Shop("http://shop.example/base", {
				account: "alice", patience: 0,
				fetch: (url, init) => fetch(url.replace("http://shop.example/base", location.origin), init),
			}).journal("recorded");
		};
		globalThis.texts = () => new Promise((done) => {
			indexedDB.open("storefront recorded", 1).onsuccess = ({ target: { result } }) => {
				const all = result.transaction("drafts").objectStore("drafts").getAll();
				all.onsuccess = () => done(all.result);
			};
		});`, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		service.ServeHTTP(w, r)
	})
	foreign := strings.ReplaceAll(recorded, `{\"version\":1`, `{\"version\":2`)
	drafts := func(text string) []string {
		return eval[[]string](p, `open(`+text+`).then((opened) => (globalThis.opened = opened).pending())`)
	}
	order := func(name string) string {
		return eval[string](p, fmt.Sprintf(`opened.order(%q).then((order) => order.id, (err) => err.name)`, name))
	}
	p.want("the drafts of another version", drafts(foreign), []string{})
	for _, name := range []string{"basket 17", "done", "refused"} {
		p.want("the order of another version", order(name), "RangeError")
	}
	var entries [][2]string
	must.OK(t, json.Unmarshal([]byte(foreign), &entries))
	var texts []string
	for _, entry := range entries {
		texts = append(texts, entry[1])
	}
	got := eval[[]string](p, `texts()`)
	slices.Sort(got)
	slices.Sort(texts)
	p.want("the texts of another version", got, texts)
	times := regexp.MustCompile(`(\\"(?:made|begun)\\"):[0-9.]+`)
	present := times.ReplaceAllString(recorded, fmt.Sprint("$1:", time.Now().Unix()))
	p.want("the drafts", drafts(present), []string{"basket 17"})
	p.want("an order that is there", order("done"), "ord_7QENBZL6CRJS5EO3WE754CT5PY")
	p.want("requests", requests.Load(), int32(0))
	id, again := order("basket 17"), order("refused")
	if created := store.Orders(); len(created) != 2 || created[0].ID != id || created[1].ID != again {
		t.Errorf("it has the orders %s and %s; there are %v", id, again, created)
	}
}

// A product that one account has read is not what another gets, not even out of the browser's cache.
func TestProductOfAPageIsNotAnothers(t *testing.T) {
	p := openWith(t, `
		globalThis.shops = [0, 10].map((remember) => new Shop(location.origin, { remember }));
		globalThis.read = async (shop, account) => {
			document.cookie = `+"`account=${account}`"+`;
			return (await shop.product("teapot", { maxAge: 3600 })).name;
		};`, func(w http.ResponseWriter, r *http.Request) {
		cookie := must.Get(r.Cookie("account"))(t)
		tag := `"` + cookie.Value + `"`
		w.Header().Set("ETag", tag)
		w.Header().Set("Cache-Control", "private, max-age=60")
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprintf(w, `{"id":"teapot","name":%q}`, cookie.Value)
	})
	for _, shop := range []string{"shops[0]", "shops[1]"} {
		for _, account := range []string{"ada", "grace", "grace", "ada"} {
			p.want("the product's account", eval[string](p, fmt.Sprintf("read(%s, %q)", shop, account)), account)
		}
	}
}

// openWith opens a page with a script that has the Shop of sdk/javascript/storefront.mjs, on a server that answers
// all other requests by shop.
func openWith(t *testing.T, script string, shop http.HandlerFunc) *page {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, `<link rel=icon href="data:,"><body></body><script type=module>
				import { Shop } from "/storefront.mjs";`+script+`</script>`)
		case "/storefront.mjs":
			w.Header().Set("Content-Type", "text/javascript")
			http.ServeFile(w, r, "../../sdk/javascript/storefront.mjs")
		default:
			shop(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return openAt(t, server.URL)
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
