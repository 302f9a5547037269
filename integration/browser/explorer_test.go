package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/explorer"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/node"
)

// statuses returns those in the log, the newest first.
func (p *page) statuses() []string {
	p.t.Helper()
	return p.texts("#log li:not(.own) summary .chip")
}

func (p *page) want(what string, got, want any) {
	p.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wantSaid checks what the page says below the buttons.
func (p *page) wantSaid(selector, want string) {
	p.t.Helper()
	if got := p.text(selector); !strings.Contains(got, want) {
		p.t.Errorf("the page says %q, want %q in it", got, want)
	}
}

func TestNewOrderHasItsOwnKey(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.click("#order", 1)
		p.click("#order", 2)
		p.want("statuses", p.statuses(), []string{"201", "201"})
		sent := p.requests("/v1/orders")
		if a, b := sent[0].header.Get("Idempotency-Key"), sent[1].header.Get("Idempotency-Key"); a == "" || a == b {
			t.Errorf("two orders have the keys %q and %q", a, b)
		}
		p.want("orders created", len(p.store.Orders()), 2)
	})
}

func TestTypedKeyIsUsed(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.do(p.set("#key", "my-key"))
		p.click("#order", 1)
		p.want("key", p.requests("/v1/orders")[0].header.Get("Idempotency-Key"), "my-key")
	})
}

func TestRetryReplays(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.click("#order", 1)
		p.click("#retry", 2)
		p.click("#retry", 3)
		p.want("statuses", p.statuses(), []string{"201", "201", "201"})
		p.want("orders created", len(p.store.Orders()), 1)
		id := p.store.Orders()[0].ID
		p.want("answers", p.texts("#tries td:last-child"), []string{id + " created", id + " the same order, replayed", id + " the same order, replayed"})
		p.wantSaid("#orders-said", "Idempotent-Replayed")
		if newest := p.texts("#log pre")[1]; !strings.Contains(newest, "Idempotent-Replayed: true") {
			t.Errorf("the log does not show that it was replayed:\n%s", newest)
		}
	})
}

func TestRetryWithAnotherBodyIsRefused(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.click("#order", 1)
		p.click("#other", 2)
		p.want("statuses", p.statuses(), []string{"422", "201"})
		p.wantSaid("#orders-said", "this key stands for another order")
		p.click("#retry", 3)
		p.want("statuses", p.statuses(), []string{"201", "422", "201"})
		p.want("orders created", len(p.store.Orders()), 1)
	})
}

func TestTenAtOnceAreOneOrder(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.click("#ten", 10)
		p.want("statuses", p.statuses(), slices.Repeat([]string{"201"}, 10))
		p.want("orders created", len(p.store.Orders()), 1)
		p.wantSaid("#orders-said", "1 order created, and all ten got that one back")
	})
}

func TestRefusedOrderShowsItsFaults(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.do(p.set("#item", ""), p.set("#qty", "many"))
		p.click("#order", 1)
		p.want("statuses", p.statuses(), []string{"422"})
		if faults := p.texts("#tries .fault"); len(faults) != 2 {
			t.Errorf("the faults are %q, want one of item and one of qty", faults)
		}
	})
}

// A number goes out as it was typed, so that one can see how each is taken.
func TestQuantityIsSentAsTyped(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		for i, c := range [][2]string{{"3", "3"}, {"2.0", "2.0"}, {"1e3", "1e3"}, {"-1", "-1"}, {"20E-1", "20E-1"}, {"007", `"007"`}, {"1.", `"1."`}, {"0x10", `"0x10"`}, {"", `""`}} {
			p.tab("orders")
			p.do(p.set("#qty", c[0]))
			p.click("#order", 2*i+1)
			p.tab("all")
			p.operation("createOrder")
			p.do(p.set("#createOrder-qty", c[0]))
			p.click("#operation-createOrder button", 2*i+2)
			sent := p.take()
			p.want("the order", sent[len(sent)-2].body, `{"item":"teapot","qty":`+c[1]+`}`)
			if c[0] != "" { // else it is not sent there
				p.want("the request", sent[len(sent)-1].body, `{"item":"teapot","qty":`+c[1]+`}`)
			}
		}
	})
}

func TestRefusalShowsItsReason(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		s.store.Accept = func(context.Context, storefront.IdempotencyKey, storefront.Order) error {
			return &storefront.Refusal{Reason: "sold-out", Detail: "Teapots are back on Monday."}
		}
		p := open(t, s, desktop)
		p.click("#order", 1)
		p.wantSaid("#orders-said", "422, Order refused (sold-out).")
		p.want("the answer", p.text("#tries td:last-child"), "422, Order refused (sold-out)\n\nTeapots are back on Monday.")
		p.wantSaid("#log summary", "order-refused: sold-out")
		p.tab("all")
		p.operation("createOrder")
		p.click("#operation-createOrder button", 2)
		p.wantSaid("#operation-createOrder .outcome", "reason: sold-out")
	})
}

// ids returns those that the walk has seen.
func (p *page) ids() []string {
	p.t.Helper()
	return p.texts("#seen td:nth-child(2)")
}

func TestNextPageWalksToTheEnd(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		for list, want := range map[string][]string{
			"users":   {"ada", "barbara", "edsger", "grace", "linus"},
			"widgets": {"w-ada", "w-barbara", "w-edsger", "w-grace", "w-linus"},
		} {
			t.Run(list, func(t *testing.T) {
				p := open(t, newShop(t), desktop)
				p.tab("pages")
				p.do(p.set("#list", list), p.set("#limit", "2"))
				p.click("#first-page", 1)
				p.want("first page", p.ids(), want[:2])
				p.click("#next-page", 2)
				p.want("second page", p.ids(), want[:4])
				p.click("#next-page", 3)
				p.want("third page", p.ids(), want)
				p.wantSaid("#pages-said", "5 items on 3 pages, none of them twice. That is the end")
				p.want("next page can be asked for", eval[bool](p, `!document.querySelector("#next-page").disabled`), false)
			})
		}
	})
}

func TestWalkToTheEndInOneGo(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("pages")
		p.click("#first-page", 1)
		p.click("#to-the-end", 5)
		p.want("seen", p.ids(), []string{"ada", "barbara", "edsger", "grace", "linus"})
	})
}

func TestChangesMeanwhileRepeatAndSkipNothing(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("pages")
		p.do(p.set("#limit", "2"))
		p.click("#first-page", 1) // ada, barbara
		change := func(button, id, said string) {
			t.Helper()
			p.do(p.set("#change-id", id))
			p.click(button, 1)
			p.wantSaid("#pages-said", said)
		}
		change("#put", "abe", "Put: abe. The walk is past its place in the order of IDs")
		change("#put", "frances", "Put: frances. Its place is still ahead.")
		change("#delete", "barbara", "Deleted: barbara. The walk is past its place") // where the cursor stands
		change("#delete", "grace", "Deleted: grace.")
		p.click("#to-the-end", 3)
		p.want("seen", p.ids(), []string{"ada", "barbara", "edsger", "frances", "linus"})
		p.wantSaid("#pages-said", "none of them twice")
	})
}

func TestListsCannotBeChangedUnlessTheHostLetsOne(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		s.change = nil
		p := open(t, s, desktop)
		p.tab("pages")
		p.want("buttons that change a list", eval[bool](p, `document.querySelector("#change").offsetParent !== null`), false)
		p.tab("caching")
		p.want("buttons that change a product", eval[bool](p, `document.querySelector("#change-product").offsetParent !== null`), false)
	})
}

func TestRefusedChangeIsSaid(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		s.change = func(context.Context, explorer.Change) error { return explorer.ErrUnknownList }
		p := open(t, s, desktop)
		p.tab("pages")
		p.click("#put", 0)
		p.wantSaid("#pages-said", "That did not work: This program does not change users.")
		p.tab("caching")
		p.click("#delete-product", 0)
		p.wantSaid("#revalidate-said", "That did not work: This program does not change products.")
	})
}

func TestRevalidate(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("caching")
		p.click("#read", 1)
		p.click("#revalidate", 2)
		p.click("#revalidate", 3)
		p.want("statuses", p.statuses(), []string{"304", "304", "200"})
		teapot, _ := p.store.Products.Get("teapot")
		p.wantSaid("#revalidate-said", fmt.Sprintf("%d bytes saved", 2*len(teapot.String())))
		p.want("If-None-Match", p.requests("/v1/products/teapot")[1].header.Get("If-None-Match"), teapot.ETag())

		p.store.Products.Put(storefront.MustResource("teapot", map[string]any{"name": "Teapot, new"}))
		p.click("#revalidate", 4)
		p.want("statuses", p.statuses()[:1], []string{"200"})
		p.wantSaid("#revalidate-said", "it has changed")
	})
}

func TestChangedProductIsSeenByWhoAsksTheStore(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("caching")
		p.do(p.set("#max-age", "60"))
		p.click("#read", 1)
		p.click("#ask", 2)
		p.click("#put-product", 2)
		p.wantSaid("#revalidate-said", "Changed.")
		p.click("#ask", 3)
		p.wantSaid("#age-said", "From memory, ")
		p.click("#revalidate", 4)
		p.wantSaid("#revalidate-said", "it has changed")
		p.click("#delete-product", 4)
		p.wantSaid("#revalidate-said", "Deleted.")
		p.click("#revalidate", 5)
		p.wantSaid("#revalidate-said", "404, Product not found")
		p.want("statuses", p.statuses(), []string{"404", "200", "200", "200", "200"})

		p.do(p.set("#product", "it's new"))
		p.click("#put-product", 5)
		p.click("#read", 6)
		p.want("status of what was put", p.statuses()[0], "200")
	})
}

// stopClock is the step after which each mark on the time line of the page is of one instant,
// however long the test takes.
func stopClock(p *page) {
	p.t.Helper()
	eval[any](p, `(now => { Date.now = () => now; })(Date.now())`)
}

func TestHowOldMayItBe(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.do(stopClock)
		p.tab("caching")
		p.want("slider", eval[string](p, `(() => { const s = document.querySelector("#max-age"); s.value = 42; s.dispatchEvent(new Event("input")); return document.querySelector("#max-age-value").textContent; })()`), "42")
		p.click("#ask", 1)
		p.wantSaid("#age-said", "From the store. Cache-Status: storefront; fwd=")
		p.click("#ask", 2)
		p.wantSaid("#age-said", "From memory, ")
		p.wantSaid("#age-said", "up to 42 were allowed. Cache-Status: storefront; hit; ttl=")
		for _, r := range p.requests("/v1/products/teapot") {
			p.want("Cache-Control", r.header.Values("Cache-Control"), []string{"max-age=42"})
		}
		p.want("marks of the store and of memory", eval[[]int](p, `["rect.store", "circle.hit"].map(s => document.querySelectorAll("#time " + s).length)`), []int{1, 1})
		p.want("statuses", p.statuses(), []string{"200", "200"})
	})
}

func TestBreakIt(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("break")
		logged := 0
		titles := map[string]string{}
		for i, title := range p.texts("#breaks button") {
			if strings.HasPrefix(title, "The key of") {
				logged++ // the order whose key it is
			}
			logged++
			p.click(fmt.Sprintf("#breaks li:nth-child(%d) button", i+1), logged)
			p.waitFor(fmt.Sprintf(`document.querySelector("#breaks li:nth-child(%d) .chip").textContent !== ""`, i+1))
			told, _ := strings.CutPrefix(p.text("#broken h4"), p.statuses()[0])
			titles[title] = p.text(fmt.Sprintf("#breaks li:nth-child(%d) .chip", i+1)) + told
			if got := p.statuses()[0]; !strings.HasPrefix(titles[title], got) {
				t.Errorf("%s: the log has status %s, the page %s", title, got, titles[title])
			}
		}
		squeeze := regexp.MustCompile(`\s+`)
		for title, told := range titles {
			titles[title] = squeeze.ReplaceAllString(told, " ")
		}
		p.want("what each was told", titles, map[string]string{
			"A required parameter is missing":        "400 ✓ Invalid query",
			"Three faults in one query":              "400 ✓ Invalid query",
			"A changed cursor":                       "400 ✓ Invalid query",
			"The cursor of another list":             "400 ✓ Invalid query",
			"No Idempotency-Key":                     "400 ✓ Idempotency-Key missing",
			"Two keys in one":                        "400 ✓ Idempotency-Key invalid",
			"The key of another order":               "422 ✓ Idempotency-Key reused",
			"Three faults in one order":              "422 ✓ Invalid order",
			"A quantity with a fraction":             "422 ✓ Invalid order",
			"The same member twice":                  "400 ✓ Malformed body",
			"JSON that is cut off":                   "400 ✓ Malformed body",
			"A body that is not JSON":                "415 ✓ Unsupported media type",
			"A body that is too large":               "413 ✓ Body too large",
			"A product that does not exist":          "404 ✓ Product not found",
			"A path that does not exist":             "404 ✓ Not found",
			"A method that is not allowed":           "405 ✓ Method not allowed",
			"A method that no one knows":             "501 ✓ Method not implemented",
			"Only if it has not changed, but it has": "412 ✓ Precondition failed",
			"Only from memory, but it is not there":  "504 ✓ Not cached",
		})
	})
}

func TestFaultsStandBesideWhatTheyAreAbout(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("break")
		for i, title := range p.texts("#breaks button") {
			if title != "Three faults in one order" {
				continue
			}
			p.click(fmt.Sprintf("#breaks li:nth-child(%d) button", i+1), 1)
			p.waitFor(`document.querySelector("#broken tbody") !== null`)
			var rows [][2]string // the part, and whether something is wrong with it
			for _, row := range eval[[][]string](p, `[...document.querySelectorAll("#broken tbody tr")].map(r => [...r.cells].map(c => c.innerText))`) {
				rows = append(rows, [2]string{row[0] + ": " + row[1], strings.SplitAfter(row[2], " ")[0]})
			}
			p.want("parts and faults", rows[2:], [][2]string{
				{`#/qty body: "3"`, "qty "},
				{`#/colour body: "red"`, "Unknown "},
				{`#/item body: not sent`, "item "},
			})
			return
		}
		t.Error("there is no such button")
	})
}

// operation unfolds the operation, which folds the others.
func (p *page) operation(id string) {
	p.t.Helper()
	eval[any](p, fmt.Sprintf(`document.querySelector("#operation-%s").open || document.querySelector("#operation-%s summary").click()`, id, id))
}

func TestEveryOperationOfTheDocumentIsOffered(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("all")
		p.want("operations", p.texts(".operation summary code"), []string{"GET /v1/users", "POST /v1/orders", "GET /v1/products/{product_id}", "GET /v2/widgets"})
		p.want("parameters", eval[[]string](p, `[...document.querySelectorAll(".operation label")].map(e => e.textContent)`), []string{
			"limit (query)", "after (query)", "If-None-Match (header)", "If-Match (header)",
			"Idempotency-Key (header, required)", "Content-Encoding (header)", "If-Match (header)", "item (body, required)", "qty (body, required)",
			"product_id (path, required)", "If-None-Match (header)", "If-Match (header)", "Cache-Control (header)",
			"limit (query, required)", "start (query)", "If-None-Match (header)", "If-Match (header)",
		})
		for i, want := range []string{"200", "201", "200", "200"} {
			p.operation([]string{"listUsers", "createOrder", "getProduct", "listWidgets"}[i])
			p.click(fmt.Sprintf(".operation:nth-child(%d) button", i+1), i+1)
			p.want("status", p.statuses()[0], want)
		}
	})
}

func TestOperationShowsFaultsBesideItsFields(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("all")
		p.operation("listWidgets")
		p.do(p.set("#listWidgets-limit", "0"))
		p.click(".operation:nth-child(4) button", 1)
		p.want("status", p.statuses()[0], "400")
		p.wantSaid("#listWidgets-limit-fault", "limit must be a whole number from 1 to 500")
		p.want("marked as invalid", p.texts(`.operation input[aria-invalid=true]`), []string{""})
		p.do(p.set("#listWidgets-limit", "1"))
		p.click(".operation:nth-child(4) button", 2)
		p.want("fault, once it is mended", p.text("#listWidgets-limit-fault"), "")
	})
}

func TestHeadersForEveryRequest(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("all")
		p.do(p.set("#extra", "Authorization: Bearer secret\nX-Tenant: a:b"))
		p.tab("orders")
		p.click("#order", 1)
		got := p.requests("/v1/orders")[0].header
		p.want("headers", []string{got.Get("Authorization"), got.Get("X-Tenant")}, []string{"Bearer secret", "a:b"})
		curl := p.texts("#log pre")[0]
		for _, variable := range []string{`-H 'Authorization: '"${H_AUTHORIZATION:?}"`, `-H 'X-Tenant: '"${H_X_TENANT:?}"`} {
			if !strings.Contains(curl, variable) {
				t.Errorf("the curl line is %s, want %s", curl, variable)
			}
		}
	})
}

// The log is true if the line to copy sends what the page has sent.
func TestCurlLinesSendTheSameRequests(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		for _, command := range []string{"curl", "bash"} {
			if _, err := exec.LookPath(command); err != nil {
				t.Skip(err)
			}
		}
		s := newShop(t)
		s.base, s.prefix = "/it's-a-[1-2]-shop", "/it's-a-[1-2]-shop"
		p := open(t, s, desktop)
		p.do(p.set("#item", `it's a "théière", \n $HOME !!`))
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
		p.do(p.set("#getProduct-product_id", `{a,b} [1-2]/'é'?`), p.set("#getProduct-if-none-match", `"a", W/"b"`))
		p.click("#operation-getProduct button", 37)

		eval[any](p, `document.querySelectorAll("#log details").forEach(d => { d.open = true; })`)
		p.waitFor(`document.querySelectorAll("#log pre:first-of-type").length === document.querySelectorAll("#log details").length`)
		lines := p.texts("#log pre:first-of-type")
		slices.Reverse(lines)
		sent := p.take()
		if len(lines) != len(sent) {
			t.Fatalf("the log has %d exchanges, the server %d", len(lines), len(sent))
		}
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
		p.do(p.set("#key", "clé"))
		p.click("#order", 38)
		out, err := exec.Command("bash", "-c", p.texts("#log pre")[0]).Output()
		if err != nil || !strings.Contains(string(out), "urn:problem-type:storefront:idempotency-key-invalid") {
			t.Errorf("the line of the order that was not sent: %v\n%s", err, out)
		}
	})
}

// pressed presses the button of the newest entry of the log that has this text.
func (p *page) pressed(text string) {
	p.t.Helper()
	p.waitFor(fmt.Sprintf(`[...document.querySelectorAll("#log li button")].some(b => b.textContent === %q)`, text))
	eval[any](p, fmt.Sprintf(`[...document.querySelectorAll("#log li button")].find(b => b.textContent === %q).click()`, text))
}

func TestLogShowsTheWholeAnswer(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("caching")
		p.click("#read", 1)
		answer := p.texts("#log pre")[1]
		response, err := http.Get(p.URL + "/v1/products/teapot")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		for name := range response.Header {
			if !strings.Contains(answer, "\n"+name+": ") {
				t.Errorf("%s is not in the answer:\n%s", name, answer)
			}
		}
		teapot, _ := p.store.Products.Get("teapot")
		if !strings.HasPrefix(answer, "HTTP/1.1 200 OK\n") || !strings.HasSuffix(answer, "\n\n{\n  \"id\": \"teapot\",\n  \"name\": \"Teapot\",\n  \"price\": {\n    \"amount\": \"24.50\",\n    \"currency\": \"EUR\"\n  }\n}") {
			t.Errorf("the answer is shown as\n%s", answer)
		}
		p.pressed("As it came")
		if answer := p.texts("#log pre")[1]; !strings.HasSuffix(answer, "\n\n"+teapot.String()) {
			t.Errorf("as it came, the answer is shown as\n%s", answer)
		}
		if summary := p.text("#log li:not(.own) summary"); !regexp.MustCompile(fmt.Sprintf(`200\s+GET /v1/products/teapot\s+[\d.]+ ms(, [\d.]+ ms of it queued in the browser)? · %d bytes`, len(teapot.String()))).MatchString(summary) {
			t.Errorf("the log has %q, want status, method, target, time and size", summary)
		}
	})
}

func TestLogCanBeCleared(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.click("#order", 1)
		p.click("#clear", 0)
		p.want("the log", p.text("#log"), "Nothing was sent since it was cleared.")
		p.want("can be exported", eval[bool](p, `!document.querySelector("#export").disabled`), false)
		p.click("#retry", 1)
	})
}

// The format is HAR 1.2, which developer tools import.
func TestLogCanBeExported(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.click("#order", 1)
		p.click("#retry", 2)
		folder := t.TempDir()
		done, err := p.window.downloads(folder)
		p.must(err)
		p.click("#export", 2)
		<-done
		text, err := os.ReadFile(filepath.Join(folder, "storefront.har"))
		if err != nil {
			t.Fatal(err)
		}
		var archive struct {
			Log struct {
				Version string
				Entries []struct {
					Request struct {
						Method, URL string
						PostData    struct{ Text string }
					}
					Response struct {
						Status  int
						Headers []struct{ Name, Value string }
						Content struct{ Text string }
					}
				}
			}
		}
		if err := json.Unmarshal(text, &archive); err != nil {
			t.Fatal(err)
		}
		p.want("version", archive.Log.Version, "1.2")
		p.want("entries, with that of openapi.json", len(archive.Log.Entries), 3)
		order, err := json.Marshal(p.store.Orders()[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range archive.Log.Entries[1:] {
			p.want("request", []string{e.Request.Method, e.Request.URL, e.Request.PostData.Text}, []string{"POST", p.URL + "/v1/orders", `{"item":"teapot","qty":2}`})
			p.want("response", e.Response.Content.Text, string(order))
			p.want("status", e.Response.Status, 201)
		}
	})
}

func TestStoppedServerIsSaid(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.mayFail = true
		p.click("#order", 1)
		p.Listener.Close() // first, or the browser may be let in again
		p.CloseClientConnections()
		p.click("#retry", 2)
		p.want("statuses", p.statuses(), []string{"none", "201"})
		p.wantSaid("#orders-said", "No answer")
	})
}

// An order whose answer got lost may be there. Whoever is told that it is not orders twice.
func TestUnknownOutcomeIsSaid(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		var lose atomic.Bool
		lose.Store(true)
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == "POST" && lose.Load() {
				storefront.New(s.store).ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			return true
		}
		p := open(t, s, desktop)
		p.mayFail = true
		p.click("#order", 1)
		p.wantSaid("#orders-said", "It may have been created or not: Retry finds out")
		lose.Store(false)
		p.click("#retry", 2)
		p.wantSaid("#orders-said", "The same order came back")
		p.want("orders created", len(p.store.Orders()), 1)
	})
}

func TestRetryOfARefusedOrderSaysSo(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.do(p.set("#item", ""))
		p.click("#order", 1)
		p.click("#other", 2)
		p.wantSaid("#orders-said", "422, Invalid order. A refused request does not use up its key.")
	})
}

func TestSomeOfTenAreRefused(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		var n atomic.Int32
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == "POST" && n.Add(1) > 5 {
				storefront.Problem{Status: 429}.ServeHTTP(w, r)
				return false
			}
			return true
		}
		p := open(t, s, desktop)
		p.click("#ten", 10)
		p.wantSaid("#orders-said", "1 order created, and 5 of them got that one back")
	})
}

func TestAnswerToAnEarlierKeyIsNotShownUnderTheNext(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		var orders atomic.Int32
		release := make(chan struct{})
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == "POST" && orders.Add(1) == 2 {
				<-release
			}
			return true
		}
		p := open(t, s, desktop)
		p.click("#order", 1)
		p.do(clickOn("#retry"))
		p.waitForRequests("/v1/orders", 2)
		p.do(clickOn("#order"))
		p.waitFor(`document.querySelectorAll("#tries tbody tr").length === 1 && !document.querySelector("#order").hasAttribute("aria-busy")`)
		close(release)
		p.logged("#retry", 3)
		p.want("answers to the key", len(p.texts("#tries tbody tr")), 1)
		p.wantSaid("#orders-said", "Created. Suppose the answer was lost")
		p.want("orders created", len(p.store.Orders()), 2)
	})
}

func TestNextPageWhileTheWalkGoesOn(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		release := make(chan struct{})
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.RawQuery, "after=") {
				<-release
			}
			return true
		}
		p := open(t, s, desktop)
		p.tab("pages")
		p.click("#first-page", 1)
		p.do(clickOn("#to-the-end"))
		p.waitForRequests("/v1/users", 2)
		p.do(clickOn("#next-page"))
		close(release)
		p.logged("#to-the-end", 5)
		p.want("seen", p.ids(), []string{"ada", "barbara", "edsger", "grace", "linus"})
		p.wantSaid("#pages-said", "none of them twice")
	})
}

func TestServiceThatWantsAuthorization(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Authorization") != "Bearer secret" {
				storefront.Problem{Status: 401, Detail: "Sign in."}.ServeHTTP(w, r)
				return false
			}
			return true
		}
		p := open(t, s, desktop)
		const how = "401, Unauthorized. It asks who you are. Sign in, in another tab, and tick Send my sign-in at the top, or give a header there, such as Authorization."
		p.wantSaid("#unread", "cannot be read: "+how) // before anything is sent
		p.click("#order", 1)
		p.wantSaid("#orders-said", how)
		p.do(clickOn("#headers-button"), typeInto("#extra", "Authorization: Bearer secret"), clickOn("#cookies"))
		p.waitFor(`document.querySelectorAll(".operation").length === 4 && !document.querySelector("#unread").checkVisibility()`)
		p.click("#retry", 2)
		p.want("statuses", p.statuses(), []string{"201", "401"})
	})
}

func TestPageTriesAgainAfterASignInElsewhere(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		var signedIn atomic.Bool
		s := newShop(t)
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if !signedIn.Load() {
				http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
			}
			return signedIn.Load()
		}
		p := open(t, s, desktop)
		p.wantSaid("#unread", "Is it to a sign-in page? Sign in, in another tab")
		signedIn.Store(true)
		eval[any](p, `dispatchEvent(new Event("focus")), null`) // of the window
		p.waitFor(`document.querySelectorAll(".operation").length === 4 && !document.querySelector("#unread").checkVisibility()`)
	})
}

// What stands around the service may answer in a form of its own.
func TestAnswersOfOthers(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		for _, other := range []struct {
			name, said string
			answer     func(w http.ResponseWriter, r *http.Request)
		}{
			{"JSON that is no problem", "403, Forbidden. Is it for those who have signed in? Sign in, in another tab, and tick Send my sign-in", func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(403)
				io.WriteString(w, `{"type":3,"errors":{"token":["missing"]}}`)
			}},
			{"HTML", "403, Forbidden. Is it for those who have signed in? Sign in, in another tab, and tick Send my sign-in", func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(403)
				io.WriteString(w, "<p>No.</p>")
			}},
			{"HTML with 200", "200, with an HTML page and not an order. Is that a sign-in page?", func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "<p>Sign in.</p>")
			}},
			{"a redirect", "The answer is a redirect, and browsers do not tell a page where to. Is it to a sign-in page?", func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
			}},
		} {
			t.Run(other.name, func(t *testing.T) {
				s := newShop(t)
				s.before = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method == "POST" {
						other.answer(w, r)
					}
					return r.Method != "POST"
				}
				p := open(t, s, desktop)
				p.click("#order", 1)
				p.wantSaid("#orders-said", other.said)
				p.want("answers", len(p.texts("#tries tbody tr")), 1)
			})
		}
	})
}

// What the browser changes is shown as it was sent.
func TestLogHasWhatTheBrowserSent(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("all")
		p.do(p.set("#extra", "Cookie: a=b\nContent-Type: text/plain"))
		p.tab("orders")
		p.click("#order", 1)
		if curl := p.texts("#log pre")[0]; strings.Contains(curl, "Cookie") {
			t.Errorf("no page may send a Cookie, but the log has\n%s", curl)
		}
		p.want("Content-Type", p.requests("/v1/orders")[0].header.Values("Content-Type"), []string{"text/plain"})
		p.tab("caching")
		p.do(p.set("#product", ".."))
		p.click("#read", 2)
		p.want("the newest in the log", p.text("#log summary code"), "GET /v1/")
		p.want("requests", len(p.requests("/v1/")), 1)
	})
}

// focused says what has the focus.
func (p *page) focused() string {
	p.t.Helper()
	return eval[string](p, `document.activeElement.id || document.activeElement.textContent.trim()`)
}

// press presses a key.
func (p *page) press(key string) {
	p.t.Helper()
	p.must(p.window.keys(key))
}

func (p *page) tabTo(id string) {
	p.t.Helper()
	for range 200 {
		if p.press(kb.Tab); p.focused() == id {
			return
		}
	}
	p.t.Fatalf("the Tab key does not lead to %s", id)
}

func TestKeyboardIsEnough(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.press(kb.Tab)
		p.want("first", p.focused(), "Skip to the requests")
		p.press(kb.Enter)
		p.tabTo("order")
		p.press(kb.Enter)
		p.logged("#order", 1)
		p.tabTo("retry")
		p.press(" ")
		p.logged("#retry", 2)
		p.want("focus after a click", p.focused(), "retry")
		p.want("statuses", p.statuses(), []string{"201", "201"})

		p.tabTo("log")
		p.do(reload) // what follows the log is the browser's own
		p.tabTo("tab-orders")
		p.press(kb.ArrowRight)
		p.want("tab", p.focused(), "tab-pages")
		p.press(kb.End)
		p.want("tab", p.focused(), "tab-all")
		p.press(kb.ArrowRight)
		p.want("tab", p.focused(), "tab-orders")
		p.press(kb.ArrowLeft)
		p.press(kb.ArrowLeft)
		p.want("tab", p.focused(), "tab-break")
		p.want("panels that are shown", eval[[]string](p, `[...document.querySelectorAll("[role=tabpanel]")].filter(e => e.offsetParent).map(e => e.id)`), []string{"break"})
		p.press(kb.ArrowLeft)
		p.tabTo("max-age")
		p.press(kb.ArrowRight)
		p.want("max-age", p.text("#max-age-value"), "11")
		p.tabTo("ask")
		p.press(kb.Enter)
		p.logged("#ask", 1)
	})
}

func TestAnyPathAndAnyBase(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		for _, m := range []struct{ path, base, prefix string }{
			{"/try", "", ""},
			{"/shop/", "", "/shop"},
			{"/try", "/shop", "/shop"},
			{"/tools/try", "../shop/", "/shop"},
			{"/tools/try", "/caf%C3%A9", "/café"},
		} {
			t.Run(m.path+" "+m.base, func(t *testing.T) {
				s := newShop(t)
				s.path, s.base, s.prefix = m.path, m.base, m.prefix
				p := open(t, s, desktop)
				p.click("#order", 1)
				p.tab("pages")
				p.click("#first-page", 2)
				p.click("#put", 2)
				p.wantSaid("#pages-said", "Put: zoe")
				p.want("statuses", p.statuses(), []string{"200", "201"})
			})
		}
	})
}

// The tab is in the address, so that a link leads to it.
func TestAddressNamesTheTab(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("caching")
		p.want("address", eval[string](p, `location.hash`), "#caching")
		p.do(reload)
		p.waitShown("#caching")
	})
}

// In each state, and each way of looking at it, nothing is wrong for those who cannot
// see it or have only a keyboard, nothing is cut off, and nothing has moved by itself.
func TestEveryState(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		axe, err := os.ReadFile(filepath.Join(node.Modules(t), "axe-core", "axe.min.js")) // which tests accessibility
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range views() {
			t.Run(v.String(), func(t *testing.T) {
				s := newShop(t)
				// The service answers the next request otherwise, if this is set.
				var otherwise atomic.Pointer[http.HandlerFunc]
				s.before = func(w http.ResponseWriter, r *http.Request) bool {
					answer := otherwise.Swap(nil)
					if answer != nil {
						(*answer)(w, r)
					}
					return answer == nil
				}
				p := open(t, s, v)
				eval[any](p, string(axe)+"; null")
				next := func(answer http.HandlerFunc) { otherwise.Store(&answer) }
				state := func(name string) {
					t.Helper()
					p.screenshot(v, name)
					for _, violation := range eval[[]string](p, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.map(n => n.html).join(" ")))`) {
						t.Errorf("%s: %s", name, violation)
					}
					if wide := eval[int](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
						t.Errorf("%s: the page is %d pixels wider than the window", name, wide)
					}
				}
				state("0-start")
				p.click("#order", 1)
				p.click("#retry", 2)
				state("1-retry")
				p.picture(v)
				p.click("#other", 3)
				state("2-another-body")
				p.click("#ten", 13)
				state("3-ten-at-once")
				p.tab("pages")
				state("4-pages-start")
				p.click("#first-page", 14)
				p.click("#put", 14)
				state("5-pages-changed")
				p.click("#to-the-end", 19)
				state("6-pages-end")
				p.tab("caching")
				state("7-caching-start")
				p.click("#read", 20)
				p.click("#revalidate", 21)
				p.click("#ask", 22)
				p.click("#ask", 23)
				p.click("#put-product", 23)
				state("8-caching")
				p.tab("break")
				state("9-break-start")
				p.click("#break-all", 43)
				p.click("#breaks li:nth-child(8) button", 44)
				state("a-break")
				p.tab("all")
				state("b-requests-start")
				p.operation("createOrder")
				p.do(p.set("#createOrder-qty", "many"))
				p.click(".operation:nth-child(2) button", 45)
				state("c-requests")
				p.do(clickOn("#headers-button"))
				state("c-headers")
				p.press(kb.Escape)
				p.click("#clear", 0)
				state("d-cleared")
				p.tab("orders")
				next(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
				p.do(clickOn("#order"))
				p.waitFor(`document.querySelector("#log li.waiting") !== null`)
				state("e-waiting")
				eval[any](p, `document.querySelector("#log li.waiting > button").click()`)
				p.logged("#order", 1)
				state("f-cancelled")
				next(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Www-Authenticate", `Bearer realm="shop"`)
					storefront.Problem{Status: 401, Detail: "Sign in."}.ServeHTTP(w, r)
				})
				p.click("#retry", 2)
				state("g-401")
				next(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/sign-in", http.StatusSeeOther) })
				p.click("#retry", 3)
				state("h-redirect")
				p.do(p.set("#extra", "a token of mine"))
				p.click("#retry", 4)
				state("i-not-sent")
				p.do(p.set("#extra", ""))
				p.tab("pages")
				next(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"data":[%s{"id":"z"}],"has_more":false}`, strings.Repeat(`{"id":"a","text":"`+strings.Repeat("long ", 100)+`"},`, 500))
				})
				p.click("#first-page", 5)
				state("j-big")
			})
		}
	})
}

func TestNothingMovesByItself(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		for _, v := range views() {
			t.Run(v.String(), func(t *testing.T) {
				p := open(t, newShop(t), v)
				p.want("layout shift while it loads", eval[float64](p, `new Promise(done => {
				let sum = 0;
				new PerformanceObserver(list => { for (const e of list.getEntries()) sum += e.value; }).observe({type: "layout-shift", buffered: true});
				requestAnimationFrame(() => requestAnimationFrame(() => done(sum)));
			})`), 0.0)
				// Where the buttons are, the one under the pointer among them, they stay.
				places := `[...document.querySelectorAll("main button")].filter(b => b.offsetParent).map(b => b.textContent + " " + (b.getBoundingClientRect().top + scrollY).toFixed(2))`
				n := 0
				stays := func(button string, exchanges int) {
					t.Helper()
					before := eval[[]string](p, places)
					n += exchanges
					p.click(button, n)
					p.want("buttons after a click on "+button, eval[[]string](p, places), before)
				}
				stays("#order", 1)
				stays("#retry", 1)
				stays("#ten", 10)
				p.tab("pages")
				stays("#first-page", 1)
				stays("#to-the-end", 4)
				p.tab("caching")
				stays("#read", 1)
				stays("#revalidate", 1)
				stays("#ask", 1)
				stays("#put-product", 0)
				stays("#delete-product", 0)
			})
		}
	})
}

func TestFitsAPhone(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), view{width: 360})
		for _, tab := range []string{"orders", "pages", "caching", "break", "all"} {
			p.tab(tab)
			if wide := eval[int](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
				t.Errorf("%s is %d pixels wider than the window", tab, wide)
			}
		}
	})
}

// No box is there before it has something in it, and none is larger than that.
func TestBoxesAreAsLargeAsWhatTheyHave(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), view{width: 390})
		const boxes = `[...document.querySelectorAll(".scroll.tall, .outcome")].filter(e => e.checkVisibility())`
		for i, of := range []struct{ tab, button string }{{"orders", "#order"}, {"pages", "#first-page"}, {"break", "#breaks button"}, {"all", ".operation button"}} {
			p.tab(of.tab)
			p.want("boxes of "+of.tab, eval[int](p, boxes+".length"), 0)
			p.click(of.button, i+1)
			p.want("boxes of "+of.tab, eval[[]bool](p, boxes+`.map(e => e.lastElementChild.getBoundingClientRect().bottom >= e.getBoundingClientRect().bottom - 30)`), []bool{true})
		}
		p.tab("orders")
		if bottom := eval[float64](p, `document.querySelector("#tries tbody tr").getBoundingClientRect().bottom + scrollY`); bottom > 844 {
			t.Errorf("the first answer ends at %v, below the screen of a phone", bottom)
		}
	})
}

// holder returns a function that has the service keep every request from then on, but that
// for the document, until release. left has an element for each that left meanwhile.
func holder(s *shop) (hold func() (release func()), left <-chan struct{}) {
	var gate atomic.Pointer[chan struct{}]
	gone := make(chan struct{}, 100)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if held := gate.Load(); held != nil && r.URL.Path != "/openapi.json" {
			select {
			case <-*held:
			case <-r.Context().Done():
				gone <- struct{}{}
				return false
			}
		}
		return true
	}
	return func() func() {
		held := make(chan struct{})
		gate.Store(&held)
		return sync.OnceFunc(func() { close(held) })
	}, gone
}

// The places where something is sent, and where the page says what came of it.
var senders = []struct{ tab, button, said string }{
	{"orders", "#order", "#orders-said"},
	{"orders", "#ten", "#orders-said"},
	{"pages", "#first-page", "#pages-said"},
	{"caching", "#read", "#revalidate-said"},
	{"caching", "#ask", "#age-said"},
	{"break", "#breaks button", "#break-said"},
	{"all", ".operation button", ".operation .said p"},
}

// whileAwaited sends something in each of the places, in one page, and calls test once it is
// in the log. No answer comes before release.
func whileAwaited(t *testing.T, test func(p *page, button, said string, release func())) {
	t.Helper()
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		hold, _ := holder(s)
		p := open(t, s, desktop)
		for _, sender := range senders {
			release := hold()
			defer release()
			p.tab(sender.tab)
			p.do(clickOn(sender.button))
			p.waitFor(`document.querySelector("#log li.waiting") !== null`)
			test(p, sender.button, sender.said, release)
		}
	})
}

// Nobody is told of an earlier answer while the next one is awaited.
func TestWaitingIsSaidAndInTheLog(t *testing.T) {
	whileAwaited(t, func(p *page, button, said string, release func()) {
		p.wantSaid(said, "Sent; no answer yet")
		p.wantSaid("#live", "Sent; no answer yet")
		p.wantSaid("#log li.waiting summary", "no answer yet")
		release()
		p.waitFor(`document.querySelector("#log li.waiting") === null`)
		p.waitFor(fmt.Sprintf(`!document.querySelector(%q).hasAttribute("aria-busy")`, button))
		if text := p.text(said); text == "" || strings.Contains(text, "Sent; no answer yet") {
			p.t.Errorf("%s: with its answer, the page says %q", button, text)
		}
	})
}

func TestWhatIsAwaitedCanBeCancelled(t *testing.T) {
	whileAwaited(t, func(p *page, _, said string, _ func()) {
		eval[any](p, fmt.Sprintf(`document.querySelector(%q).parentNode.querySelector("button").click()`, said))
		p.waitFor(`document.querySelector("#log li.waiting") === null`)
		p.waitFor(fmt.Sprintf(`document.querySelector(%q).textContent.includes("Cancelled, before there was an answer")`, said))
		p.wantSaid("#log summary", "cancelled")
	})
}

func TestOneOfSeveralIsCancelledInTheLog(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		hold, left := holder(s)
		release := hold()
		defer release()
		p := open(t, s, desktop)
		p.do(clickOn("#order"))
		p.waitForRequests("/v1/orders", 1)
		p.do(clickOn("#retry"))
		p.waitForRequests("/v1/orders", 2)
		p.wantSaid("#orders-said", "Sent; no answer yet to 2 requests.")
		eval[any](p, `document.querySelector("#log li.waiting > button").click()`) // the retry
		p.waitFor(`document.querySelectorAll("#log li.waiting").length === 1 && document.querySelector("#orders-said").textContent.includes("It may have been created or not")`)
		p.wantSaid("#orders-said", "Sent; no answer yet.")
		<-left // so that it is not the one that creates
		release()
		p.logged("#order", 2)
		p.want("statuses", p.statuses(), []string{"none", "201"})
		p.wantSaid("#orders-said", "Created.")
	})
}

func TestRetrySendsWhatIsShown(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.click("#order", 1)
		p.do(p.set("#qty", "3"))
		p.click("#retry", 2)
		p.want("statuses", p.statuses(), []string{"422", "201"})
		p.do(p.set("#key", "another-key"))
		p.click("#retry", 3)
		last := p.requests("/v1/orders")[2]
		p.want("the last request", []string{last.header.Get("Idempotency-Key"), last.body}, []string{"another-key", `{"item":"teapot","qty":3}`})
		p.want("answers to that key", len(p.texts("#tries tbody tr")), 1)
	})
}

func TestTenAtOnceMarksTheOneThatCreated(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.click("#ten", 10)
		p.want("rows that are marked", len(p.texts("#tries .created")), 1)
		p.wantSaid("#tries .created", "created")
		p.want("it is in sight", eval[bool](p, `(() => {
		const row = document.querySelector("#tries .created").getBoundingClientRect(), box = document.querySelector("#tries").parentNode.getBoundingClientRect();
		return row.top >= box.top && row.bottom <= box.bottom;
	})()`), true)
		p.wantSaid("#orders-said", "Browsers send six at a time over HTTP/1.1; the others queue.")
	})
}

// What is typed in the wrong place is not sent, and not repeated where others see it.
func TestLineThatIsNoHeaderIsRefused(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		for i, line := range []string{"sk-live-1234567890abcdef", "Bearer abcdef", "`touch x`: y", "$(touch x): y", `"; touch x; echo ": y`, ": y"} {
			p.do(p.set("#extra", "X-Fine: 1\n"+line))
			p.click("#order", i+1)
			p.want("orders that were sent", len(p.requests("/v1/orders")), 0)
			p.wantSaid("#orders-said", "Not sent: line 2 of the headers is not “Name: value”")
			p.want("the button", p.text("#headers-button"), "Headers: wrong")
			if shown := p.text("body"); strings.Contains(shown, line) && line != ": y" {
				t.Errorf("with %q, the page shows the line:\n%s", line, shown)
			}
		}
	})
}

func TestCredentialsAreNotShownWhereverTheyAreTyped(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		const token, jwt, typed = "Bearer abc123def456ghi7", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "typed-secret-value"
		p := open(t, newShop(t), desktop)
		p.do(p.set("#extra", "X-Api-Key: "+typed), p.set("#item", token), p.set("#key", jwt))
		p.click("#order", 1)
		p.want("what was sent is what was typed", p.requests("/v1/orders")[0].header.Get("X-Api-Key"), typed)
		p.tab("caching")
		p.do(p.set("#product", typed))
		p.click("#read", 2)
		p.tab("pages")
		p.do(p.set("#limit", token))
		p.click("#first-page", 3)
		p.tab("all")
		p.operation("createOrder")
		p.do(p.set("#createOrder-item", jwt), p.set("#createOrder-qty", "x"), p.set("#createOrder-if-match", token))
		p.click(".operation:nth-child(2) button", 4)
		eval[any](p, `document.querySelectorAll("#log details").forEach(d => { d.open = true; })`)
		p.waitFor(`document.querySelectorAll("#log pre:first-of-type").length === 5`)
		shown := eval[string](p, `document.body.textContent`)
		for _, secret := range []string{"abc123def456ghi7", jwt, typed} {
			if strings.Contains(shown, secret) {
				t.Errorf("the page shows %s", secret)
			}
		}
	})
}

func TestMaskedHeadersHaveVariablesOfTheirOwn(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.do(p.set("#extra", "2fa: 1\nX-Two: 2\nX_Two: 3\nit's: 4"))
		p.click("#order", 1)
		curl := p.texts("#log li:not(.own) pre")[0]
		for _, want := range []string{`-H '2fa: '"${H_2FA:?}"`, `-H 'X-Two: '"${H_X_TWO:?}"`, `-H 'X_two: '"${H_X_TWO_:?}"`, `-H 'It'\''s: '"${H_IT_S:?}"`} {
			if !strings.Contains(curl, want) {
				t.Errorf("the curl line is\n%s\nwant %s in it", curl, want)
			}
		}
	})
}

// A browser would send it in another encoding than curl does.
func TestKeyThatIsNotASCIIIsNotSent(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.do(p.set("#key", "clé"))
		p.click("#order", 1)
		p.wantSaid("#orders-said", "Not sent: Idempotency-Key has a character that is not printable ASCII.")
		p.want("orders that were sent", len(p.requests("/v1/orders")), 0)
	})
}

func TestProductOfTheOptionsIsOnAllTabs(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		s.product = `p"1`
		s.store.Products.Put(storefront.MustResource(s.product, nil))
		p := open(t, s, desktop)
		p.want("fields", eval[[]string](p, `["#item", "#product", "#createOrder-item", "#getProduct-product_id"].map(f => document.querySelector(f).value)`), slices.Repeat([]string{s.product}, 4))
		p.tab("break")
		p.click("#break-all", 20)
		p.wantSaid("#break-said", "19 of 19 had the expected status.")
		for _, r := range p.requests("/v1/orders") {
			if strings.Contains(r.body, "teapot") {
				t.Errorf("the page sends %s", r.body)
			}
		}
	})
}

func TestUnexpectedStatusIsMarked(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v2/widgets" {
				storefront.Problem{Status: 429}.ServeHTTP(w, r)
			}
			return r.URL.Path != "/v2/widgets"
		}
		p := open(t, s, desktop)
		p.tab("break")
		p.click("#break-all", 20)
		p.wantSaid("#break-said", "17 of 19 had the expected status.")
		p.want("chip", p.text("#breaks .chip"), "429 ✗ not 400")
	})
}

func TestLogHasThePagesOwnRequests(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.tab("pages")
		p.click("#put", 0)
		p.click("#delete", 0)
		p.want("its own", p.texts("#log li.own summary code"), []string{"POST /", "POST /", "GET /openapi.json"})
	})
}

// A host, or what stands in front of it, may answer anything: open fails the test if that throws.
func TestForeignAnswers(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		var header http.Header
		var body string
		s := newShop(t)
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if header != nil {
				for name, values := range header {
					w.Header()[name] = values
				}
				io.WriteString(w, body)
			}
			return header == nil
		}
		p := open(t, s, desktop)
		n := 0
		answer := func(tab, button, h, b, said, want string) {
			t.Helper()
			header, body = http.Header{"Content-Type": {"application/json"}, "Age": {h}, "Cache-Status": {"storefront; hit"}}, b
			p.tab(tab)
			n++
			p.click(button, n)
			p.wantSaid(said, want)
		}
		for _, b := range []string{`null`, `5`, `"x"`, `[]`, `{"data":{}}`, `{"data":null}`, `{"errors":[{"header":5,"detail":"x"}],"title":{},"data":3}`} {
			answer("pages", "#first-page", "0", b, "#pages-said", "200, with an answer that is not a list.")
			answer("orders", "#order", "0", b, "#orders-said", "200, with an answer that is not an order.")
			answer("break", "#breaks button", "0", b, "#break-said", "400 was expected.")
			answer("all", ".operation button", "0", b, ".operation .said p", "200")
		}
		answer("pages", "#first-page", "0", `{"data":[null,3,{"id":5},{"id":"a"}],"has_more":true,"next":7}`, "#pages-said", "There are more, but no next.")
		p.want("rows", len(p.texts("#seen tbody tr")), 4)
		answer("caching", "#read", "soon", `{"id":"teapot"}`, "#revalidate-said", "200, without an ETag")
		answer("caching", "#ask", "soon", `{"id":"teapot"}`, "#age-said", "of an age that it does not say")
	})
}

func TestForeignDocumentIsSaid(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		var document string
		s := newShop(t)
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/openapi.json" {
				io.WriteString(w, document)
			}
			return r.URL.Path != "/openapi.json"
		}
		p := open(t, s, desktop)
		for _, of := range [][3]string{
			{`null`, "#unread", "cannot be read"},
			{`{"paths":5}`, "#unread", "cannot be read"},
			{`{"paths":{"/x":{"get":5}}}`, "#operations", "GET /x"},
			{`{"paths":{"/x":{"get":{"parameters":[{"$ref":"#/a"}]}}}}`, "#unread", "cannot be read"},
			{`<p>Sign in</p>`, "#unread", "cannot be read"},
		} {
			document = of[0]
			p.do(reload)
			p.wantSaid(of[1], of[2])
			p.click("#order", 1)
			p.want("status", p.statuses(), []string{"201"})
		}
	})
}

// What a page shows is bounded, however much comes back: thousands of rows would take a
// browser minutes.
func TestBigListIsCut(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		var list strings.Builder
		list.WriteString(`{"data":[`)
		for i := range 10_000 {
			fmt.Fprintf(&list, `{"id":"%05d","text":%q},`, i, strings.Repeat("t", 500))
		}
		list.WriteString(`{"id":"z"}],"has_more":false}`)
		s := newShop(t)
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v1/users" {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, list.String())
			}
			return r.URL.Path != "/v1/users"
		}
		p := open(t, s, desktop)
		p.tab("pages")
		p.click("#first-page", 1)
		p.wantSaid("#pages-said", "10,001 items on 1 page, none of them twice.")
		p.want("rows", eval[int](p, `document.querySelectorAll("#seen tbody tr").length`), 200)
		p.wantSaid("#earlier", "Not shown: 9,801 rows before these")
		if n := eval[int](p, `document.body.textContent.length`); n > 500_000 {
			t.Errorf("the page has %d characters of text, of an answer of %d", n, list.Len())
		}
		p.wantSaid("#log", "characters in all")
		p.want("it can be saved", eval[bool](p, `[...document.querySelectorAll("#log button")].some(b => b.textContent === "Save all")`), true)
	})
}

// What is folded is not in the document, and of a long log only the newest entries are.
func TestLongLogIsCut(t *testing.T) {
	long.Test(t)
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		for range 51 {
			eval[any](p, `document.querySelector("#ten").click()`)
			p.waitFor(`!document.querySelector("#ten").ariaBusy`)
		}
		p.want("entries", eval[int](p, `document.querySelectorAll("#log > li").length`), 500)
		p.waitFor(`document.querySelectorAll("#log pre").length === 2`)
		if n := eval[int](p, `document.querySelectorAll("#log *").length`); n > 500*10 {
			t.Errorf("the log has %d elements", n)
		}
	})
}

func TestEntryThatIsReadStaysUnfolded(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.click("#order", 1)
		p.click("#retry", 2)
		p.waitFor(`document.querySelectorAll("#log details[open]").length === 1`)
		eval[any](p, `document.querySelector("#log pre").focus()`)
		eval[any](p, `document.querySelector("#retry").click()`)
		p.logged("#retry", 3)
		p.want("unfolded", eval[int](p, `document.querySelectorAll("#log details[open]").length`), 2)
	})
}

func TestCopiedIsNotSaidForGood(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.click("#order", 1)
		button := `document.querySelector("#log li:not(.own) .what button")`
		p.want("name", eval[string](p, button+`.ariaLabel`), "Copy (request 2: POST /v1/orders)")
		// The page's seconds are short here, and nobody looks too late.
		names := eval[[]string](p, `new Promise(done => {
			const later = setTimeout, button = `+button+`, names = [];
			setTimeout = (does, ms) => later(does, ms / 1000);
			new MutationObserver(() => { if (names.push(button.textContent) === 2) done(names); }).observe(button, {childList: true});
			button.click();
		})`)
		if !slices.Contains([]string{"Copied", "Selected"}, names[0]) || names[1] != "Copy" {
			t.Errorf("once pressed, the button is called %q", names)
		}
	})
}

// An address leads to a tab, and to a request, also in a page that is open already; and
// the tabs stay in sight.
func TestAddressLeadsToARequest(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), view{width: 390})
		eval[any](p, `(location.hash = "#all/createOrder", null)`)
		p.waitFor(`document.querySelector("#operation-createOrder").open && document.querySelector("#all").offsetParent !== null`)
		p.want("unfolded", p.texts(".operation[open] h3"), []string{"Create an order"})
		p.do(reload)
		p.waitFor(`document.querySelector("#operation-createOrder")?.open && document.querySelector("#all").offsetParent !== null`)
		eval[any](p, `(location.hash = "#caching", null)`)
		p.waitFor(`document.querySelector("#caching").offsetParent !== null`)
		p.want("the tabs are in sight", eval[bool](p, `document.querySelector(".tabs").getBoundingClientRect().top >= 0`), true)
	})
}

func TestDocumentIsLinkedOnItsOwnHost(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		s := newShop(t)
		s.path = "//evil.example/"
		s.base = "/shop"
		s.prefix = "/shop"
		p := open(t, s, desktop)
		p.want("link", eval[string](p, `document.querySelector("#openapi").href`), s.URL+"/shop/openapi.json")
		s.base, s.prefix = "", "//evil.example"
		p.do(reload)
		p.waitFor(`document.querySelector("#openapi").href.includes("evil")`)
		p.want("link", eval[string](p, `document.querySelector("#openapi").href`), s.URL+"//evil.example/openapi.json")
	})
}

// Who leaves the page open, or comes back to it, does not send what was typed once.
func TestReloadForgetsWhatWasTyped(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.do(p.set("#extra", "X-Secret: secret"), p.set("#key", "typed"), clickOn("#cookies"))
		p.want("autocomplete", eval[[]string](p, `["#extra", "#cookies"].map(s => document.querySelector(s).getAttribute("autocomplete"))`), []string{"off", "off"})
		p.do(reload)
		p.waitFor(`document.querySelectorAll(".operation").length === 4`)
		p.want("headers and cookies", eval[string](p, `document.querySelector("#extra").value + document.querySelector("#cookies").checked`), "false")
		p.want("buttons that cannot be pressed", eval[[]string](p, `[...document.querySelectorAll("main button:disabled")].map(b => b.id)`), []string{"retry", "other", "next-page", "to-the-end", "revalidate"})
	})
}

func TestTimeLineHasWhatWasReadFromTheStore(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		p.do(stopClock)
		p.tab("caching")
		p.do(p.set("#max-age", "60"))
		p.click("#read", 1)
		p.click("#ask", 2)
		p.click("#ask", 3)
		p.want("marks of the store and of memory", eval[[]int](p, `["rect.store", "circle.hit"].map(s => document.querySelectorAll("#time " + s).length)`), []int{1, 2})
		p.want("labels, which do not overlap", eval[int](p, `[...document.querySelectorAll("#time text")].filter(t => /^\d+ s$/.test(t.textContent)).length`), 1)
	})
}

// On the screen of a usual laptop, nobody has to scroll to read what came of a request.
func TestSentenceIsInSight(t *testing.T) {
	inEachBrowser(t, func(t *testing.T) {
		p := open(t, newShop(t), desktop)
		for _, s := range []struct{ tab, said string }{{"orders", "#orders-said"}, {"pages", "#pages-said"}, {"caching", "#revalidate-said"}, {"break", "#break-said"}} {
			p.tab(s.tab)
			if bottom := eval[float64](p, fmt.Sprintf(`document.querySelector(%q).parentNode.getBoundingClientRect().bottom + scrollY`, s.said)); bottom > height {
				t.Errorf("%s ends at %v, below the screen", s.said, bottom)
			}
		}
	})
}
