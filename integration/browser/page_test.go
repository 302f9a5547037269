package browser

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.com/storefront"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/node"
)

// The log is true if the line to copy sends what the page has sent.
func TestCurlLinesSendTheSameRequests(t *testing.T) {
	need.Programs(t, need.Tools, "curl", "bash")
	s := newShop(t)
	s.base, s.prefix = "/it's-a-[1-2]-shop", "/it's-a-[1-2]-shop"
	p := open(t, s, desktop)
	p.set("#item", `it's a "théière", \n $HOME !!`)
	p.click("#ten", 10)
	p.click("#other", 11)
	p.tab("pages")
	p.click("#first-page", 12)
	p.click("#next-page", 13)
	p.tab("caching")
	p.click("#read", 14)
	p.click("#revalidate", 15)
	p.click("#ask", 16)
	p.tab("break")
	p.click("#break-all", 36)
	p.tab("all")
	p.operation("getProduct")
	p.set("#getProduct-product_id", `{a,b} [1-2]/'é'?`, "#getProduct-if-none-match", `"a", W/"b"`)
	p.click("#operation-getProduct button", 37)

	sent := p.take()
	p.unfoldLog(len(sent))
	lines := p.texts("#log pre:first-of-type")
	slices.Reverse(lines)
	for i, line := range lines {
		if strings.Contains(line, "in all)") {
			continue // too long to show; it is copied in full
		}
		if out, err := exec.Command("bash", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		got, want := p.take()[0], sent[i]
		p.want("request of "+line, []string{got.method, got.target, got.body}, []string{want.method, want.target, want.body})
		for _, name := range []string{"Idempotency-Key", "Content-Type", "If-None-Match", "If-Match", "Cache-Control"} {
			p.want(name+" of "+line, got.header.Values(name), want.header.Values(name))
		}
	}

	// What is not sent would have been answered with its fault.
	p.tab("orders")
	p.set("#key", "clé")
	p.click("#order", 38)
	out, err := exec.Command("bash", "-c", p.texts("#log pre")[0]).Output()
	if err != nil || !strings.Contains(string(out), "urn:problem-type:storefront:idempotency-key-invalid") {
		t.Errorf("the line of the order that was not sent: %v\n%s", err, out)
	}
}

// The format is HAR 1.2, which developer tools import.
func TestLogCanBeExported(t *testing.T) {
	p := open(t, newShop(t), desktop)
	p.click("#order", 1)
	p.click("#retry", 2)
	folder, done := t.TempDir(), make(chan struct{}, 10)
	p.must(chromedp.ListenBrowser(p.ctx, func(event any) {
		if e, ok := event.(*cdpbrowser.EventDownloadProgress); ok && e.State == cdpbrowser.DownloadProgressStateCompleted {
			done <- struct{}{}
		}
	}))
	events := true
	_, err := chromedp.CallBrowser(p.ctx, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: folder, EventsEnabled: &events,
		BrowserContextID: chromedp.FromContext(p.ctx).BrowserContextID,
	})
	p.must(err)
	p.click("#export", 2)
	<-done
	text, err := os.ReadFile(filepath.Join(folder, "storefront.har"))
	p.must(err)
	type har struct {
		Log struct {
			Version string
			Entries []struct {
				Request struct {
					Method, URL string
					PostData    struct{ Text string }
				}
				Response struct {
					Status  int
					Content struct{ Text string }
				}
			}
		}
	}
	var got har
	p.must(json.Unmarshal(text, &got))
	order, err := json.Marshal(p.store.Orders()[0])
	p.must(err)
	p.want("version", got.Log.Version, "1.2")
	p.want("entries, with that of openapi.json", len(got.Log.Entries), 3)
	for _, e := range got.Log.Entries[1:] {
		p.want("entry", []any{e.Request.Method, e.Request.URL, e.Request.PostData.Text, e.Response.Status, e.Response.Content.Text},
			[]any{"POST", p.URL + "/v1/orders", `{"item":"teapot","qty":2}`, 201, string(order)})
	}
}

// Nobody is told of an earlier answer while the next one is awaited, which can be cancelled.
func TestWhatIsAwaitedIsSaid(t *testing.T) {
	p := open(t, newShop(t), desktop)
	const none = `document.querySelector("#log li.waiting") === null`
	for _, sender := range []struct{ tab, button, said string }{
		{"orders", "#order", "#orders-said"},
		{"orders", "#ten", "#orders-said"},
		{"pages", "#first-page", "#pages-said"},
		{"caching", "#read", "#revalidate-said"},
		{"caching", "#ask", "#age-said"},
		{"break", "#breaks button", "#break-said"},
		{"all", ".operation button", ".operation .said p"},
	} {
		p.tab(sender.tab)
		for _, cancelled := range []bool{true, false} {
			release, _ := p.hold()
			defer release()
			p.clickOn(sender.button)
			p.waitFor(`document.querySelector("#log li.waiting") !== null`)
			for _, said := range []string{sender.said, "#live", "#log li.waiting summary"} {
				p.said(said, "no answer yet")
			}
			if cancelled {
				p.run(fmt.Sprintf(`document.querySelector(%q).parentNode.querySelector("button").click()`, sender.said))
				p.waitFor(fmt.Sprintf(`document.querySelector(%q).textContent.includes("Cancelled, before there was an answer")`, sender.said))
				p.said("#log summary", "cancelled")
			} else {
				release()
			}
			p.waitFor(none + fmt.Sprintf(` && !document.querySelector(%q).hasAttribute("aria-busy")`, sender.button))
			if text := p.text(sender.said); text == "" || strings.Contains(text, "no answer yet") {
				t.Errorf("%s: in the end, the page says %q", sender.button, text)
			}
		}
	}
}

// A walk by fetch goes through the browser's cache, as do those of any page.
func TestWalkThroughTheBrowsersCache(t *testing.T) {
	s := newShop(t)
	p := open(t, s, desktop)
	walk := func(want ...string) []received {
		t.Helper()
		s.take()
		yields(p, `(async () => {
			const ids = [];
			for (let page = new URL("/v1/users?limit=2", location); page;) {
				const answer = await fetch(page);
				ids.push(...(await answer.json()).data.map(user => user.id));
				const next = /<([^>]*)>; rel="next"/.exec(answer.headers.get("Link"));
				page = next && new URL(next[1], page);
			}
			return ids;
		})()`, want)
		return s.take()
	}
	walk("ada", "barbara", "edsger", "grace", "linus")
	again := walk("ada", "barbara", "edsger", "grace", "linus")
	anew := func(r received) bool { return r.header.Get("If-None-Match") == "" }
	if len(again) != 3 || slices.ContainsFunc(again, anew) {
		t.Errorf("the browser has 3 pages, and asked %+v, want whether each of them has changed", again)
	}
	s.store.Users.Put(storefront.MustResource("abe", nil))
	s.store.Users.Delete("ada")
	walk("abe", "barbara", "edsger", "grace", "linus")
}

// In each state, and each way of looking at it, nothing is wrong for those who cannot see it or
// have only a keyboard, nothing is cut off, and the buttons stay where they are when one is clicked.
func TestEveryState(t *testing.T) {
	axe, err := os.ReadFile(filepath.Join(node.Modules(t), "axe-core", "axe.min.js")) // which tests accessibility
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range views() {
		t.Run(v.String(), func(t *testing.T) {
			p := open(t, newShop(t), v)
			p.run(string(axe))
			yields(p, `new Promise(done => { // how far something has moved while the page was loaded
				let sum = 0;
				new PerformanceObserver(list => { for (const e of list.getEntries()) sum += e.value; })
					.observe({type: "layout-shift", buffered: true});
				requestAnimationFrame(() => requestAnimationFrame(() => done(sum)));
			})`, 0.0)
			state := func(name string) {
				t.Helper()
				p.screenshot(v, name)
				for _, violation := range eval[[]string](p, `axe.run(document, {resultTypes: ["violations"]}).then(r =>
					r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.map(n => n.html).join(" ")))`) {
					t.Errorf("%s: %s", name, violation)
				}
				if wide := eval[int](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
					t.Errorf("%s: the page is %d pixels wider than the window", name, wide)
				}
			}
			n := 0
			stays := func(button string, exchanges int) {
				t.Helper()
				const places = `[...document.querySelectorAll("main button")].filter(b => b.offsetParent).map(b =>
					b.textContent + " " + (b.getBoundingClientRect().top + scrollY).toFixed(2))`
				before := eval[[]string](p, places)
				n += exchanges
				p.click(button, n)
				p.want("buttons after a click on "+button, eval[[]string](p, places), before)
			}
			next := func(answer http.HandlerFunc) { answers("POST", answer)(p.shop) }
			state("0-start")
			stays("#order", 1)
			stays("#retry", 1)
			state("1-retry")
			stays("#other", 1)
			state("2-another-body")
			stays("#ten", 10)
			state("3-ten-at-once")
			p.tab("pages")
			state("4-pages-start")
			stays("#first-page", 1)
			stays("#put", 0)
			state("5-pages-changed")
			stays("#to-the-end", 5)
			state("6-pages-end")
			p.tab("caching")
			state("7-caching-start")
			stays("#read", 1)
			stays("#revalidate", 1)
			stays("#ask", 1)
			stays("#put-product", 0)
			stays("#delete-product", 0)
			state("8-caching")
			p.tab("break")
			state("9-break-start")
			n += 20
			p.click("#break-all", n)
			state("a-break")
			p.tab("all")
			state("b-requests-start")
			p.operation("createOrder")
			p.set("#createOrder-qty", "many")
			n++
			p.click("#operation-createOrder button", n)
			state("c-requests")
			p.clickOn("#headers-button")
			state("d-headers")
			p.press(kb.Escape)
			p.click("#clear", 0)
			state("e-cleared")
			p.tab("orders")
			next(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			p.clickOn("#order")
			p.waitFor(`document.querySelector("#log li.waiting") !== null`)
			state("f-waiting")
			p.run(`document.querySelector("#log li.waiting > button").click()`)
			p.logged("#order", 1)
			state("g-cancelled")
			next(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Www-Authenticate", `Bearer realm="shop"`)
				storefront.Problem{Status: 401, Detail: "Sign in."}.ServeHTTP(w, r)
			})
			p.click("#retry", 2)
			state("h-401")
			next(asks)
			p.click("#retry", 3)
			state("i-redirect")
			p.set("#extra", "a token of mine")
			p.click("#retry", 4)
			state("j-not-sent")
			p.set("#extra", "")
			answers("/v1/users", bigList(500))(p.shop)
			p.tab("pages")
			p.click("#first-page", 5)
			state("k-big")
		})
	}
}

// bigList answers with a page of so many long items, and one more.
func bigList(n int) http.HandlerFunc {
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, `{"id":"%05d","text":%q},`, i, strings.Repeat("t ", 250))
	}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"data":[`+list.String()+`{"id":"z"}],"has_more":false}`)
	}
}

// What is to be read is in sight: on the screen of a usual laptop without scrolling, and on a
// phone in boxes that are not there before they have something in them, nor larger than that.
func TestWhatIsReadIsInSight(t *testing.T) {
	p := open(t, newShop(t), desktop)
	bottomOf := func(element string) float64 {
		return eval[float64](p, `document.querySelector(`+element+`).getBoundingClientRect().bottom + scrollY`)
	}
	for tab, said := range map[string]string{"orders": "orders", "pages": "pages", "caching": "revalidate", "break": "break"} {
		p.tab(tab)
		if bottom := bottomOf(`".said:has(#` + said + `-said)"`); bottom > height {
			t.Errorf("what %s says ends at %v, below the screen", tab, bottom)
		}
	}
	p.look(view{width: 390})
	const boxes = `[...document.querySelectorAll(".scroll.tall, .outcome")].filter(e => e.checkVisibility())`
	for i, of := range []struct{ tab, button string }{{"orders", "#order"}, {"pages", "#first-page"}, {"break", "#breaks button"}, {"all", ".operation button"}} {
		p.tab(of.tab)
		yields(p, boxes+".length", 0)
		p.click(of.button, i+1)
		yields(p, boxes+`.map(e => e.lastElementChild.getBoundingClientRect().bottom >= e.getBoundingClientRect().bottom - 30)`, []bool{true})
	}
	p.tab("orders")
	if bottom := bottomOf(`"#tries tbody tr"`); bottom > 844 {
		t.Errorf("the first answer ends at %v, below the screen of a phone", bottom)
	}
	p.look(view{width: 360})
	for _, tab := range []string{"orders", "pages", "caching", "break", "all"} {
		p.tab(tab)
		yields(p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`, 0)
	}
}

// What a page shows is bounded, however much comes back: thousands of rows would take a
// browser minutes.
func TestWhatIsShownIsBounded(t *testing.T) {
	s := newShop(t)
	answers("/v1/users", bigList(10_000))(s)
	p := open(t, s, desktop)
	p.tab("pages")
	p.click("#first-page", 1)
	p.said("#pages-said", "10,001 items on 1 page, none of them twice.")
	yields(p, `document.querySelectorAll("#seen tbody tr").length`, 200)
	p.said("#earlier", "Not shown: 9,801 rows before these")
	if n := eval[int](p, `document.body.textContent.length`); n > 500_000 {
		t.Errorf("the page has %d characters of text", n)
	}
	p.said("#log", "characters in all")
	yields(p, `[...document.querySelectorAll("#log button")].some(b => b.textContent === "Save all")`, true)
	// Of a long log, only the newest entries are in the document, and nothing of what is folded.
	for range 51 {
		p.run(`document.querySelector("#ten").click()`)
		p.waitFor(`!document.querySelector("#ten").ariaBusy`)
	}
	yields(p, `document.querySelectorAll("#log > li").length`, 500)
	p.waitFor(`document.querySelectorAll("#log pre").length === 2`)
	if n := eval[int](p, `document.querySelectorAll("#log *").length`); n > 500*10 {
		t.Errorf("the log has %d elements", n)
	}
}
