package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.com/storefront"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/node"
	"example.com/storefront/internal/must"
)

// The log is true if the line to copy sends what the page has sent.
func TestCurlLinesSendTheSameRequests(t *testing.T) {
	need.Programs(t, need.Tools, "curl", "bash")
	s := newShop(t)
	s.base = "/it's-a-[1-2]-shop"
	p := open(t, s)
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
}

// In each state, on a small screen in the dark, nothing is wrong for those who cannot see it or have only a
// keyboard, and nothing is cut off.
func TestEveryState(t *testing.T) {
	// axe tests accessibility.
	axe := must.Get(os.ReadFile(filepath.Join(node.Modules(t), "axe-core", "axe.min.js")))(t)
	p := open(t, newShop(t, withOrders))
	p.look(390, "dark")
	p.run(string(axe))
	state := func(name string) {
		t.Helper()
		for _, violation := range eval[[]string](p, `axe.run(document, {
			resultTypes: ["violations"], rules: {"target-size": {enabled: true}},
		}).then(r => r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.map(n => n.html).join(" ")))`) {
			t.Errorf("%s: %s", name, violation)
		}
		const tooWide = `document.documentElement.scrollWidth - document.documentElement.clientWidth`
		if pixels := eval[int](p, tooWide); pixels > 0 {
			t.Errorf("%s: the page is %d pixels wider than the window", name, pixels)
		}
	}
	p.click("#ten", 10)
	p.created(1)
	p.said("#orders-said", "1 order created, and all ten got that one back")
	p.click("#my-orders", 11)
	p.click("#mine button", 12)
	state("orders")
	p.tab("pages")
	p.click("#first-page", 13)
	p.click("#put", 13)
	p.click("#to-the-end", 18)
	state("pages")
	p.tab("caching")
	p.click("#read", 19)
	p.click("#ask", 20)
	p.click("#delete-product", 20)
	state("caching")
	p.click("#clear", 0)
	p.tab("break")
	p.click("#break-all", 20) // and the order whose key is used again
	p.said("#break-said", "19 of 19 had the expected status.")
	state("break")
	p.tab("all")
	p.want("operations", p.texts(".operation summary code"), []string{"GET /v1/orders", "POST /v1/orders",
		"GET /v1/orders/{order_id}", "GET /v1/products/{product_id}", "GET /v1/users", "GET /v2/widgets"})
	p.operation("createOrder")
	p.set("#createOrder-qty", "many")
	p.click("#operation-createOrder button", 21)
	p.clickOn("#headers-button")
	state("headers")
	p.send(chromedp.KeyEvent(kb.Escape))
	p.tab("orders")
	answers("POST", storefront.Problem{Status: 401, Detail: "Sign in."}.ServeHTTP)(p.shop)
	p.click("#retry", 22)
	state("401")
}
