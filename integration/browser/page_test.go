package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"example.com/storefront"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/node"
)

// The log is true if the line to copy sends what the page has sent.
func TestCurlLinesSendTheSameRequests(t *testing.T) {
	need.Programs(t, need.Tools, "curl", "bash")
	s := newShop(t)
	s.base = "/it's-a-[1-2]-shop"
	p := open(t, s, desktop)
	p.set("#item", `it's a "théière", \n $HOME !!`)
	p.click("#order", 1)
	p.tab("caching")
	p.click("#read", 2)
	p.click("#revalidate", 3)
	p.click("#ask", 4)
	p.tab("break")
	p.click("#break-all", 24)
	p.tab("all")
	p.operation("getProduct")
	p.set("#getProduct-product_id", `{a,b} [1-2]/'é'?`, "#getProduct-if-none-match", `"a", W/"b"`)
	p.click("#operation-getProduct button", 25)

	sent := p.take()
	p.unfoldLog()
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
	p.click("#order", 26)
	out, err := exec.Command("bash", "-c", p.texts("#log pre")[0]).Output()
	if err != nil || !strings.Contains(string(out), "urn:problem-type:storefront:idempotency-key-invalid") {
		t.Errorf("the line of the order that was not sent: %v\n%s", err, out)
	}
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
			var p *page
			for _, as := range []view{desktop, v} {
				p = open(t, newShop(t), as)
				yields(p, `new Promise(done => { // how far something has moved while the page was loaded
					let sum = 0;
					new PerformanceObserver(list => { for (const e of list.getEntries()) sum += e.value; })
						.observe({type: "layout-shift", buffered: true});
					requestAnimationFrame(() => requestAnimationFrame(() => done(sum)));
				})`, 0.0)
			}
			p.run(string(axe))
			state := func(name string) {
				t.Helper()
				p.screenshot(v, name)
				for _, violation := range eval[[]string](p, `axe.run(document, {
					resultTypes: ["violations"], rules: {"target-size": {enabled: true}},
				}).then(r => r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.map(n => n.html).join(" ")))`) {
					t.Errorf("%s: %s", name, violation)
				}
				p.want(name+": words that are broken", eval[[]string](p, `[...document.querySelectorAll(
					"a, button, th, td:first-child code")].filter(e => e.checkVisibility()).flatMap(e =>
					[...e.firstChild?.data?.matchAll(/[^\s-]+/g) || []].filter(({0: word, index}) => {
						const range = new Range();
						range.setStart(e.firstChild, index);
						range.setEnd(e.firstChild, index + word.length);
						return range.getClientRects().length > 1;
					}).map(([word]) => word))`), []string{})
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
			stays("#order", 1)
			stays("#retry", 1)
			stays("#other", 1)
			stays("#ten", 10)
			state("0-ten-at-once")
			p.tab("pages")
			stays("#first-page", 1)
			stays("#put", 0)
			stays("#to-the-end", 5)
			state("1-pages-end")
			p.tab("caching")
			stays("#read", 1)
			stays("#revalidate", 1)
			stays("#ask", 1)
			stays("#put-product", 0)
			stays("#delete-product", 0)
			state("2-caching")
			p.click("#clear", 0)
			p.tab("break")
			n = 20
			p.click("#break-all", n) // and the order whose key is used again
			p.said("#break-said", "19 of 19 had the expected status.")
			state("3-break")
			p.tab("all")
			p.operation("createOrder")
			p.set("#createOrder-qty", "many")
			n++
			p.click("#operation-createOrder button", n)
			state("4-requests")
			p.clickOn("#headers-button")
			state("5-headers")
			p.press(kb.Escape)
			p.click("#clear", 0)
			p.tab("orders")
			answers("POST", storefront.Problem{Status: 401, Detail: "Sign in."}.ServeHTTP)(p.shop)
			p.click("#retry", 1)
			state("6-401")
			p = open(t, newShopWith(t, withOrders), v)
			p.run(string(axe))
			p.click("#order", 1)
			p.click("#my-orders", 2)
			p.click("#mine button", 3)
			state("7-orders")
		})
	}
}
