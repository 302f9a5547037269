package browser

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/chromedp"

	"example.com/storefront"
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
	yields(p, `opened.then((journal) => journal.order("basket 17", undefined, undefined, { signal: AbortSignal.abort() }))
		.catch((err) => err.name)`, "Unknown")
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

// telling has what a call of the client ends with: an ID, or the names of an error and of its cause, and changed,
// which is what another page does with the database: to delete it, or to upgrade it.
const telling = `
	globalThis.tell = (work) => Promise.resolve(work).then((got) => got?.id ?? JSON.stringify(got), (err) => {
		globalThis.said = err.message;
		return err.name + (err.cause ? " " + err.cause.name : "");
	});
	globalThis.changed = (request) => new Promise((done) => {
		request.onsuccess = () => (request.result?.close(), done("changed"));
		request.onblocked = () => done("it is open elsewhere");
	});
	const name = "storefront orders";
	globalThis.deleted = () => changed(indexedDB.deleteDatabase(name));
	globalThis.upgraded = () => changed(indexedDB.open(name, 2));
	let after = async () => {}; // is called between an answer and the client
	globalThis.afterAnswer = (call) => (after = call);
	globalThis.opened = new Shop(location.origin, { patience: 2, fetch: async (...request) => {
		const answer = await fetch(...request);
		await after();
		return answer;
	} }).journal("orders");
	globalThis.order = async (name) => tell((await opened).order(name, "teapot", 2));
	globalThis.pending = async () => tell((await opened).pending());`

// A page keeps no other from deleting or upgrading the database. It opens it again, and returns what the shop has
// said even if there is none any more.
func TestJournalOfAPageLetsGo(t *testing.T) {
	var store storefront.MemStore
	service := storefront.New(&store)
	var requests, failing atomic.Int32
	p := openWith(t, telling, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if failing.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		service.ServeHTTP(w, r)
	})
	created := func(name string) {
		t.Helper()
		got, orders := eval[string](p, `order("`+name+`")`), store.Orders()
		if n := len(orders); n == 0 || got != orders[n-1].ID {
			t.Errorf("%s: %s %s, of %v", name, got, eval[any](p, `globalThis.said`), orders)
		}
	}
	created("basket 1")
	yields(p, `deleted()`, "changed")
	yields(p, `pending()`, "[]")
	created("basket 2")
	yields(p, `opened.then((journal) => journal.close())`, any(nil))
	created("basket 3")

	yields(p, `afterAnswer(deleted) && 0`, 0)
	created("basket 4") // of which the database has the order, and nothing else
	before := requests.Load()
	created("basket 4")
	failing.Store(1)
	yields(p, `order("deleted")`, "Unknown")
	p.want("requests for a draft that has gone", requests.Load()-before, int32(1))

	yields(p, `afterAnswer(upgraded) && 0`, 0)
	created("basket 5")
	yields(p, `pending()`, "JournalError VersionError")
	yields(p, `order("basket 6")`, "JournalError VersionError")
	yields(p, `said.includes("load the page again")`, true)
}

// A journal for which there is no room is said to be so, before anything is sent.
func TestJournalOfAPageFails(t *testing.T) {
	var store storefront.MemStore
	var requests atomic.Int32
	p := openWith(t, telling, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		storefront.New(&store).ServeHTTP(w, r)
	})
	origin := eval[string](p, `location.origin`)
	quota := func(size float64) {
		call(p, storage.OverrideQuotaForOrigin,
			storage.OverrideQuotaForOriginParams{Origin: origin, QuotaSize: &size})
	}
	yields(p, `pending()`, "[]")
	quota(1)
	yields(p, `order("basket 17")`, "JournalError QuotaExceededError")
	yields(p, `said`, "the journal has failed; there is no more room for this site: free some: QuotaExceededError")
	p.want("requests", requests.Load(), int32(0))
	quota(1e9)
	if id := eval[string](p, `order("basket 17")`); len(store.Orders()) != 1 || id != store.Orders()[0].ID {
		t.Errorf("with room again, it says %s", id)
	}
}

// Later releases go on with the journal that version 1 of the format has recorded, with only its times put
// into the present. That they leave one of another version as it is, is tested on the folder.
func TestRecordedJournalOfAPage(t *testing.T) {
	recorded := string(must.Get(os.ReadFile("testdata/formats/1/journal.json"))(t))
	times := regexp.MustCompile(`(\\"(?:made|begun)\\"):[0-9.]+`)
	recorded = times.ReplaceAllString(recorded, fmt.Sprint("$1:", time.Now().Unix()))
	var store storefront.MemStore
	service := storefront.New(&store)
	var requests atomic.Int32
	p := openWith(t, `
		globalThis.opened = (async () => {
			const opening = indexedDB.open("storefront recorded", 1);
			opening.onupgradeneeded = () => opening.result.createObjectStore("drafts");
			await new Promise((done) => (opening.onsuccess = done));
			const transaction = opening.result.transaction("drafts", "readwrite");
			for (const [key, text] of `+recorded+`) transaction.objectStore("drafts").put(text, key);
			await new Promise((done) => (transaction.oncomplete = done));
			return new Shop("http://shop.example/base", {
				account: "alice", patience: 0,
				fetch: (url, init) => fetch(url.replace("http://shop.example/base", location.origin), init),
			}).journal("recorded");
		})();`, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		service.ServeHTTP(w, r)
	})
	order := func(name string) string {
		const order = `opened.then((journal) => journal.order(%q)).then((order) => order.id)`
		return eval[string](p, fmt.Sprintf(order, name))
	}
	yields(p, `opened.then((journal) => journal.pending())`, []string{"basket 17"})
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
	p := newPage(t)
	p.send(chromedp.Navigate(server.URL))
	return p
}
