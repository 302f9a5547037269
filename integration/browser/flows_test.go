package browser

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"example.com/storefront"
	"example.com/storefront/explorer"
)

// answers has a shop answer what matches, a method or a path, by h in place of the service.
func answers(matches string, h http.HandlerFunc) func(*shop) {
	return func(s *shop) {
		s.answerBefore(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != matches && r.URL.Path != matches {
				return true
			}
			h(w, r)
			return false
		})
	}
}

func asks(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}

// What a visitor does, and what the page then says, has sent, and keeps.
func TestExplorer(t *testing.T) {
	all := []string{"ada", "barbara", "edsger", "grace", "linus"}
	const seen = "#seen td:nth-child(2)"
	for _, flow := range []struct {
		name  string
		setUp func(*shop)
		do    func(*page)
	}{
		{"each new order has its own key, or the one that was typed", nil, func(p *page) {
			p.click("#order", 1)
			p.click("#order", 2)
			p.set("#key", "my-key")
			p.click("#order", 3)
			p.statuses("201", "201", "201")
			sent := p.requests("/v1/orders")
			key := func(i int) string { return sent[i].header.Get("Idempotency-Key") }
			if key(0) == "" || key(0) == key(1) || key(2) != "my-key" {
				p.t.Errorf("the keys are %q, %q and %q", key(0), key(1), key(2))
			}
			p.created(3)
		}},
		{"a retry replays, and another body is refused", nil, func(p *page) {
			p.click("#order", 1)
			p.click("#retry", 2)
			id := p.store.Orders()[0].ID
			p.want("answers", p.texts("#tries td:last-child"), []string{id + " created", id + " the same order, replayed"})
			p.said("#orders-said", "Idempotent-Replayed")
			if newest := p.texts("#log pre")[1]; !strings.Contains(newest, "Idempotent-Replayed: true") {
				p.t.Errorf("the log does not show that it was replayed:\n%s", newest)
			}
			p.click("#other", 3)
			p.said("#orders-said", "this key stands for another order")
			p.click("#retry", 4)
			p.statuses("201", "422", "201", "201")
			p.created(1)
		}},
		{"a retry sends what is shown", nil, func(p *page) {
			p.click("#order", 1)
			p.set("#qty", "3")
			p.click("#retry", 2)
			p.statuses("422", "201")
			p.set("#key", "another-key")
			p.click("#retry", 3)
			last := p.requests("/v1/orders")[2]
			p.want("the last request", []string{last.header.Get("Idempotency-Key"), last.body},
				[]string{"another-key", `{"item":"teapot","qty":3}`})
			p.want("answers to that key", len(p.texts("#tries tbody tr")), 1)
		}},
		{"ten at once are one order", nil, func(p *page) {
			p.click("#ten", 10)
			p.statuses(slices.Repeat([]string{"201"}, 10)...)
			p.created(1)
			p.said("#orders-said", "1 order created, and all ten got that one back")
			p.said("#orders-said", "Browsers send six at a time over HTTP/1.1; the others queue.")
			p.want("rows that are marked", p.texts("#tries .created .chip"), []string{"201"})
			yields(p, `(() => {
				const row = document.querySelector("#tries .created").getBoundingClientRect();
				const box = document.querySelector("#tries").parentNode.getBoundingClientRect();
				return row.top >= box.top && row.bottom <= box.bottom;
			})()`, true)
		}},
		{"a refused order shows its faults and does not use up its key", nil, func(p *page) {
			p.set("#item", "", "#qty", "many")
			p.click("#order", 1)
			p.want("faults", len(p.texts("#tries .fault")), 2)
			const marked = `[...document.querySelectorAll("#orders [aria-invalid=true]")].map(f => f.id)`
			yields(p, marked, []string{"item", "qty"})
			p.click("#other", 2)
			p.said("#orders-said", "422, Invalid order. A refused request does not use up its key.")
			p.set("#item", "teapot", "#qty", "2")
			p.click("#retry", 3)
			yields(p, marked, []string{})
			p.statuses("201", "422", "422")
		}},
		{"a quantity is sent as it was typed", nil, func(p *page) {
			for i, c := range [][2]string{{"2.0", "2.0"}, {"1e3", "1e3"}, {"-1", "-1"}, {"20E-1", "20E-1"},
				{"007", `"007"`}, {"1.", `"1."`}, {"0x10", `"0x10"`}, {"", `""`}} {
				p.tab("orders")
				p.set("#qty", c[0])
				p.click("#order", 2*i+1)
				p.tab("all")
				p.operation("createOrder")
				p.set("#createOrder-qty", c[0])
				p.click("#operation-createOrder button", 2*i+2)
				sent := p.take()
				p.want("the order", sent[len(sent)-2].body, `{"item":"teapot","qty":`+c[1]+`}`)
				if c[0] != "" { // else it is not sent there
					p.want("the request", sent[len(sent)-1].body, `{"item":"teapot","qty":`+c[1]+`}`)
				}
			}
		}},
		{"a refusal shows its reason", func(s *shop) {
			s.store.Accept = func(context.Context, storefront.IdempotencyKey, storefront.Order) error {
				return &storefront.Refusal{Reason: "sold-out", Detail: "Teapots are back on Monday."}
			}
		}, func(p *page) {
			p.click("#order", 1)
			p.said("#orders-said", "422, Order refused (sold-out).")
			p.said("#tries td:last-child", "422, Order refused (sold-out)\n\nTeapots are back on Monday.")
			p.said("#log summary", "order-refused: sold-out")
			p.tab("all")
			p.operation("createOrder")
			p.click("#operation-createOrder button", 2)
			p.said("#operation-createOrder .outcome", "reason: sold-out")
		}},
		{"pages lead to the end", nil, func(p *page) {
			p.tab("pages")
			p.set("#limit", "2")
			for n := 1; n <= 3; n++ {
				p.click([]string{"#first-page", "#next-page", "#next-page"}[n-1], n)
				p.want("seen", p.texts(seen), all[:min(2*n, 5)])
			}
			p.said("#pages-said", "5 items on 3 pages, none of them twice. That is the end")
			yields(p, `document.querySelector("#next-page").disabled`, true)
			p.set("#list", "widgets", "#limit", "1")
			p.click("#first-page", 4)
			p.click("#to-the-end", 8)
			p.want("seen", p.texts(seen), []string{"w-ada", "w-barbara", "w-edsger", "w-grace", "w-linus"})
		}},
		{"changes meanwhile repeat and skip nothing", nil, func(p *page) {
			p.tab("pages")
			p.set("#limit", "2")
			p.click("#first-page", 1) // ada, barbara
			for _, c := range [][3]string{
				{"#put", "abe", "Put: abe. The walk is past its place in the order of IDs"},
				{"#put", "frances", "Put: frances. Its place is still ahead."},
				{"#delete", "barbara", "Deleted: barbara. The walk is past its place"}, // where the cursor stands
				{"#delete", "grace", "Deleted: grace."},
			} {
				p.set("#change-id", c[1])
				p.click(c[0], 1)
				p.said("#pages-said", c[2])
			}
			p.click("#to-the-end", 3)
			p.want("seen", p.texts(seen), []string{"ada", "barbara", "edsger", "frances", "linus"})
			p.said("#pages-said", "none of them twice")
			p.want("its own in the log", p.texts("#log li.own summary code"),
				[]string{"POST /", "POST /", "POST /", "POST /", "GET /openapi.json"})
		}},
		{"nothing can be changed unless the host lets one", func(s *shop) { s.change = nil }, func(p *page) {
			for tab, buttons := range map[string]string{"pages": "#change", "caching": "#change-product"} {
				p.tab(tab)
				yields(p, fmt.Sprintf(`document.querySelector(%q).checkVisibility()`, buttons), false)
			}
		}},
		{"a refused change is said", func(s *shop) {
			s.change = func(context.Context, explorer.Change) error { return explorer.ErrUnknownList }
		}, func(p *page) {
			p.tab("pages")
			p.click("#put", 0)
			p.said("#pages-said", "That did not work: This program does not change users.")
			p.tab("caching")
			p.click("#delete-product", 0)
			p.said("#revalidate-said", "That did not work: This program does not change products.")
		}},
		{"what a client has is asked about, until it changes or goes", nil, func(p *page) {
			p.tab("caching")
			p.click("#read", 1)
			p.click("#revalidate", 2)
			p.click("#revalidate", 3)
			teapot, _ := p.store.Products.Get("teapot")
			p.said("#revalidate-said", fmt.Sprintf("%d bytes saved", 2*len(teapot.String())))
			p.want("If-None-Match", p.requests("/v1/products/teapot")[1].header.Get("If-None-Match"), teapot.ETag())
			p.click("#put-product", 3)
			p.said("#revalidate-said", "Changed.")
			p.click("#revalidate", 4)
			p.said("#revalidate-said", "it has changed")
			p.click("#delete-product", 4)
			p.said("#revalidate-said", "Deleted.")
			p.click("#revalidate", 5)
			p.said("#revalidate-said", "404, Product not found")
			p.statuses("404", "200", "304", "304", "200")
			p.set("#product", "it's new")
			p.click("#put-product", 5)
			p.click("#read", 6)
			p.statuses("200", "404", "200", "304", "304", "200")
		}},
		{"an answer is from memory while its age is allowed", nil, func(p *page) {
			p.run(`const now = Date.now(); Date.now = () => now;`) // one mark for what is of one instant
			p.tab("caching")
			p.set("#max-age", "42")
			p.said("#max-age-value", "42")
			p.click("#ask", 1)
			p.said("#age-said", "From the store. Cache-Status: storefront; fwd=")
			p.click("#put-product", 1)
			p.click("#ask", 2)
			p.said("#age-said", "From memory, ")
			p.said("#age-said", "up to 42 were allowed. Cache-Status: storefront; hit; ttl=")
			p.click("#ask", 3)
			for _, r := range p.requests("/v1/products/teapot") {
				p.want("Cache-Control", r.header.Values("Cache-Control"), []string{"max-age=42"})
			}
			yields(p, `["rect.store", "circle.hit"].map(s => document.querySelectorAll("#time " + s).length)`, []int{1, 2})
			yields(p, `[...document.querySelectorAll("#time text")].filter(t => /^\d+ s$/.test(t.textContent)).length`, 1)
		}},
		{"each way to break it has its status", nil, func(p *page) {
			p.tab("break")
			p.click("#break-all", 20) // and the order whose key is used again
			p.said("#break-said", "19 of 19 had the expected status.")
			told := strings.Join(p.texts("#breaks .chip"), " ")
			if want := "400 ✓ 400 ✓ 400 ✓ 400 ✓ 400 ✓ 400 ✓ 422 ✓ 422 ✓ 422 ✓ 400 ✓ 400 ✓ 415 ✓ 413 ✓ 404 ✓ 404 ✓ 405 ✓ 501 ✓ 412 ✓ 504 ✓"; told != want {
				p.t.Errorf("the statuses are\n%s, want\n%s", told, want)
			}
			p.click("#breaks li:nth-child(8) button", 21)
			p.said("#broken h4", "422 Invalid order")
			rows := eval[[][]string](p, `[...document.querySelectorAll("#broken tbody tr")].map(r => [...r.cells].map(c => c.innerText))`)
			for i, want := range [][]string{{"#/qty body", `"3"`, "qty "}, {"#/colour body", `"red"`, "Unknown "}, {"#/item body", "not sent", "item "}} {
				if got := rows[2+i]; got[0] != want[0] || got[1] != want[1] || !strings.HasPrefix(got[2], want[2]) {
					p.t.Errorf("beside the fault is %q, want %q", got, want)
				}
			}
		}},
		{"an unexpected status is marked", answers("/v2/widgets", storefront.Problem{Status: 429}.ServeHTTP), func(p *page) {
			p.tab("break")
			p.click("#break-all", 20)
			p.said("#break-said", "17 of 19 had the expected status.")
			p.said("#breaks .chip", "429 ✗ not 400")
		}},
		{"every operation of the document is offered", nil, func(p *page) {
			p.tab("all")
			p.want("operations", p.texts(".operation summary code"),
				[]string{"GET /v1/users", "POST /v1/orders", "GET /v1/products/{product_id}", "GET /v2/widgets"})
			yields(p, `[...document.querySelectorAll(".operation label")].map(e => e.textContent)`, []string{
				"limit (query)", "after (query)", "If-None-Match (header)", "If-Match (header)",
				"Idempotency-Key (header, required)", "Content-Encoding (header)", "If-Match (header)", "item (body, required)", "qty (body, required)",
				"product_id (path, required)", "If-None-Match (header)", "If-Match (header)", "Cache-Control (header)",
				"limit (query, required)", "start (query)", "If-None-Match (header)", "If-Match (header)",
			})
			for i, id := range []string{"listUsers", "createOrder", "getProduct", "listWidgets"} {
				p.operation(id)
				p.click(fmt.Sprintf("#operation-%s button", id), i+1)
			}
			p.statuses("200", "200", "201", "200")
			p.set("#listWidgets-limit", "0")
			p.click("#operation-listWidgets button", 5)
			p.said("#listWidgets-limit-fault", "limit must be a whole number from 1 to 500")
			p.want("fields that are marked as invalid", len(p.texts(`.operation input[aria-invalid=true]`)), 1)
			p.set("#listWidgets-limit", "1")
			p.click("#operation-listWidgets button", 6)
			p.want("fault, once it is mended", p.text("#listWidgets-limit-fault"), "")
		}},
		{"headers are sent with every request, and not shown", nil, func(p *page) {
			p.set("#extra", "Authorization: Bearer secret\nX-Tenant: a:b\n2fa: 1\nX_Tenant: 3\nit's: 4\nCookie: a=b\nContent-Type: text/plain")
			p.click("#order", 1)
			got := p.requests("/v1/orders")[0].header
			p.want("headers", []string{got.Get("Authorization"), got.Get("X-Tenant"), got.Get("Content-Type")}, []string{"Bearer secret", "a:b", "text/plain"})
			curl := p.texts("#log li:not(.own) pre")[0]
			for _, want := range []string{`-H 'Authorization: '"${H_AUTHORIZATION:?}"`, `-H 'X-Tenant: '"${H_X_TENANT:?}"`,
				`-H '2fa: '"${H_2FA:?}"`, `-H 'X_tenant: '"${H_X_TENANT_:?}"`, `-H 'It'\''s: '"${H_IT_S:?}"`} {
				if !strings.Contains(curl, want) {
					p.t.Errorf("the curl line is\n%s\nwant %s in it", curl, want)
				}
			}
			if strings.Contains(curl, "Cookie") {
				p.t.Errorf("no page may send a Cookie, but the log has\n%s", curl)
			}
		}},
		{"what the browser changes is shown as it was sent", nil, func(p *page) {
			p.tab("caching")
			p.set("#product", "..")
			p.click("#read", 1)
			p.said("#log summary code", "GET /v1/")
			p.want("requests", len(p.requests("/v1/")), 1)
		}},
		{"what is no header is neither sent nor shown", nil, func(p *page) {
			for i, line := range []string{"sk-live-1234567890abcdef", "Bearer abcdef", "`touch x`: y", "$(touch x): y", `"; touch x; echo ": y`, ": y"} {
				p.set("#extra", "X-Fine: 1\n"+line)
				p.click("#order", i+1)
				p.said("#orders-said", "Not sent: line 2 of the headers is not “Name: value”")
				p.said("#headers-button", "Headers: wrong")
				if shown := p.text("body"); strings.Contains(shown, line) && line != ": y" {
					p.t.Errorf("with %q, the page shows the line:\n%s", line, shown)
				}
			}
			p.set("#extra", "", "#key", "clé") // which a browser would send in another encoding than curl does
			p.click("#order", 7)
			p.said("#orders-said", "Not sent: Idempotency-Key has a character that is not printable ASCII.")
			p.want("orders that were sent", len(p.requests("/v1/orders")), 0)
		}},
		{"credentials are not shown wherever they are typed", nil, func(p *page) {
			const token, jwt, typed = "Bearer abc123def456ghi7", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "typed-secret-value"
			p.set("#extra", "X-Api-Key: "+typed, "#item", token, "#key", jwt)
			p.click("#order", 1)
			p.want("what was sent", p.requests("/v1/orders")[0].header.Get("X-Api-Key"), typed)
			p.tab("caching")
			p.set("#product", typed)
			p.click("#read", 2)
			p.tab("pages")
			p.set("#limit", token)
			p.click("#first-page", 3)
			p.tab("all")
			p.operation("createOrder")
			p.set("#createOrder-item", jwt, "#createOrder-qty", "x", "#createOrder-if-match", token)
			p.click("#operation-createOrder button", 4)
			p.unfoldLog(5)
			shown := eval[string](p, `document.body.textContent`)
			for _, secret := range []string{"abc123def456ghi7", jwt, typed} {
				if strings.Contains(shown, secret) {
					p.t.Errorf("the page shows %s", secret)
				}
			}
		}},
		{"the log has the whole answer", nil, func(p *page) {
			p.tab("caching")
			p.click("#read", 1)
			answer := p.texts("#log pre")[1]
			response, err := http.Get(p.URL + "/v1/products/teapot")
			p.must(err)
			response.Body.Close()
			for name := range response.Header {
				if !strings.Contains(answer, "\n"+name+": ") {
					p.t.Errorf("%s is not in the answer:\n%s", name, answer)
				}
			}
			const pretty = "\n\n{\n  \"id\": \"teapot\",\n  \"name\": \"Teapot\",\n  \"price\": {\n    \"amount\": \"24.50\",\n    \"currency\": \"EUR\"\n  }\n}"
			if !strings.HasPrefix(answer, "HTTP/1.1 200 OK\n") || !strings.HasSuffix(answer, pretty) {
				p.t.Errorf("the answer is shown as\n%s", answer)
			}
			teapot, _ := p.store.Products.Get("teapot")
			p.run(`[...document.querySelectorAll("#log li button")].find(b => b.textContent === "As it came").click()`)
			if answer := p.texts("#log pre")[1]; !strings.HasSuffix(answer, "\n\n"+teapot.String()) {
				p.t.Errorf("as it came, the answer is shown as\n%s", answer)
			}
			summary := regexp.MustCompile(`200\s+GET /v1/products/teapot\s+[\d.]+ ms(, [\d.]+ ms of it before it was sent)? · ` + fmt.Sprint(len(teapot.String())) + ` bytes`)
			if text := p.text("#log li:not(.own) summary"); !summary.MatchString(text) {
				p.t.Errorf("the log has %q, want status, method, target, time and size", text)
			}
			p.click("#clear", 0)
			p.want("the log", p.text("#log"), "Nothing was sent since it was cleared.")
			yields(p, `document.querySelector("#export").disabled`, true)
		}},
		{"an entry that is read stays unfolded", nil, func(p *page) {
			p.click("#order", 1)
			p.click("#retry", 2)
			p.waitFor(`document.querySelectorAll("#log details[open]").length === 1`)
			p.run(`document.querySelector("#log pre").focus(); document.querySelector("#retry").click()`)
			p.logged("#retry", 3)
			yields(p, `document.querySelectorAll("#log details[open]").length`, 2)
		}},
		{"a server that stopped is said", nil, func(p *page) {
			p.mayFail = true
			p.click("#order", 1)
			p.Listener.Close() // first, or the browser may be let in again
			p.CloseClientConnections()
			p.click("#retry", 2)
			p.statuses("none", "201")
			p.said("#orders-said", "No answer")
			p.tab("break")
			p.click("#break-all", 22)
			p.said("#break-said", "0 of 19 had the expected status. No answer came to 19 of them.")
		}},
		// An order whose answer got lost may be there. Whoever is told that it is not orders twice.
		{"an unknown outcome is said", func(s *shop) {
			service := storefront.New(s.store)
			answers("POST", func(w http.ResponseWriter, r *http.Request) {
				service.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			})(s)
		}, func(p *page) {
			p.mayFail = true
			p.click("#order", 1)
			p.said("#orders-said", "It may have been created or not: Retry finds out")
			p.answerBefore(nil)
			p.click("#retry", 2)
			p.said("#orders-said", "The same order came back")
			p.created(1)
		}},
		{"an answer to an earlier key is not shown under the next", nil, func(p *page) {
			p.click("#order", 1)
			release, _ := p.hold()
			p.clickOn("#retry")
			p.waitForRequests("/v1/orders", 2)
			p.answerBefore(nil)
			p.clickOn("#order")
			p.waitFor(`document.querySelectorAll("#tries tbody tr").length === 1 && !document.querySelector("#order").hasAttribute("aria-busy")`)
			release()
			p.logged("#retry", 3)
			p.want("answers to the key", len(p.texts("#tries tbody tr")), 1)
			p.said("#orders-said", "Created. Suppose the answer was lost")
			p.created(2)
		}},
		{"the next page may be asked for while the walk goes on", nil, func(p *page) {
			p.tab("pages")
			p.click("#first-page", 1)
			release, _ := p.hold()
			p.clickOn("#to-the-end")
			p.waitForRequests("/v1/users", 2)
			p.clickOn("#next-page")
			release()
			p.logged("#to-the-end", 5)
			p.want("seen", p.texts(seen), all)
			p.said("#pages-said", "none of them twice")
		}},
		{"one of several is cancelled in the log", nil, func(p *page) {
			release, left := p.hold()
			p.clickOn("#order")
			p.waitForRequests("/v1/orders", 1)
			p.clickOn("#retry")
			p.waitForRequests("/v1/orders", 2)
			p.said("#orders-said", "Sent; no answer yet to 2 requests.")
			p.run(`document.querySelector("#log li.waiting > button").click()`) // the retry
			p.waitFor(`document.querySelectorAll("#log li.waiting").length === 1 &&
				document.querySelector("#orders-said").textContent.includes("It may have been created or not")`)
			p.said("#orders-said", "Sent; no answer yet.")
			<-left // so that it is not the one that creates
			release()
			p.logged("#order", 2)
			p.statuses("none", "201")
			p.said("#orders-said", "Created.")
		}},
		{"a service that wants authorization gets it", func(s *shop) {
			s.answerBefore(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Authorization") == "Bearer secret" {
					return true
				}
				storefront.Problem{Status: 401, Detail: "Sign in."}.ServeHTTP(w, r)
				return false
			})
		}, func(p *page) {
			const how = "401, Unauthorized. It asks who you are. Sign in, in another tab, and tick Send my sign-in at the top, or give a header there, such as Authorization."
			p.said("#unread", "cannot be read: "+how) // before anything is sent
			p.click("#order", 1)
			p.said("#orders-said", how)
			p.clickOn("#headers-button")
			p.clickOn("#extra")
			p.press("Authorization: Bearer secret")
			p.clickOn("#cookies")
			p.waitFor(`document.querySelectorAll(".operation").length === 4 && !document.querySelector("#unread").checkVisibility()`)
			p.click("#retry", 2)
			p.statuses("201", "401")
		}},
		{"the page tries again after a sign-in elsewhere", answers("/openapi.json", asks), func(p *page) {
			p.said("#unread", "Is it to a sign-in page? Sign in, in another tab")
			p.answerBefore(nil)
			p.run(`dispatchEvent(new Event("focus"))`) // of the window
			p.waitFor(`document.querySelectorAll(".operation").length === 4 && !document.querySelector("#unread").checkVisibility()`)
		}},
		{"what was typed is forgotten with the page", nil, func(p *page) {
			p.set("#extra", "X-Secret: secret", "#key", "typed")
			p.clickOn("#cookies")
			yields(p, `["#extra", "#cookies"].map(s => document.querySelector(s).getAttribute("autocomplete"))`, []string{"off", "off"})
			p.reload()
			p.waitFor(`document.querySelectorAll(".operation").length === 4`)
			yields(p, `document.querySelector("#extra").value + document.querySelector("#cookies").checked`, "false")
			yields(p, `[...document.querySelectorAll("main button:disabled")].map(b => b.id)`, []string{"retry", "other", "next-page", "to-the-end", "revalidate"})
		}},
		{"the product of the options is on all tabs", func(s *shop) {
			s.product = `p"1`
			s.store.Products.Put(storefront.MustResource(s.product, nil))
		}, func(p *page) {
			yields(p, `["#item", "#product", "#createOrder-item", "#getProduct-product_id"].map(f => document.querySelector(f).value)`,
				slices.Repeat([]string{p.product}, 4))
			p.tab("break")
			p.click("#break-all", 20)
			p.said("#break-said", "19 of 19 had the expected status.")
			for _, r := range p.requests("/v1/orders") {
				if strings.Contains(r.body, "teapot") {
					p.t.Errorf("the page sends %s", r.body)
				}
			}
		}},
		{"an address leads to a tab, and to a request", nil, func(p *page) {
			p.tab("caching")
			yields(p, `location.hash`, "#caching")
			p.run(`location.hash = "#all/createOrder"`)
			const there = `document.querySelector("#operation-createOrder")?.open && document.querySelector("#all").checkVisibility()`
			p.waitFor(there)
			p.want("unfolded", p.texts(".operation[open] h3"), []string{"Create an order"})
			p.reload()
			p.waitFor(there)
			p.run(`location.hash = "#caching"`)
			p.waitFor(`document.querySelector("#caching").checkVisibility()`)
			yields(p, `document.querySelector(".tabs").getBoundingClientRect().top >= 0`, true)
		}},
		{"the keyboard is enough", nil, func(p *page) {
			focused := func(want string) {
				p.t.Helper()
				yields(p, `document.activeElement.id || document.activeElement.textContent.trim()`, want)
			}
			tabTo := func(id string) {
				p.t.Helper()
				for range 200 {
					if p.press(kb.Tab); eval[string](p, `document.activeElement.id`) == id {
						return
					}
				}
				p.t.Fatalf("the Tab key does not lead to %s", id)
			}
			p.press(kb.Tab)
			focused("Skip to the requests")
			p.press(kb.Enter)
			tabTo("order")
			p.press(kb.Enter)
			p.logged("#order", 1)
			tabTo("retry")
			p.press(" ")
			p.logged("#retry", 2)
			focused("retry")
			p.statuses("201", "201")
			tabTo("log")
			p.reload() // what follows the log is the browser's own
			tabTo("tab-orders")
			for _, step := range [][2]string{{kb.ArrowRight, "tab-pages"}, {kb.End, "tab-all"}, {kb.ArrowRight, "tab-orders"},
				{kb.ArrowLeft, "tab-all"}, {kb.ArrowLeft, "tab-break"}, {kb.ArrowLeft, "tab-caching"}} {
				p.press(step[0])
				focused(step[1])
			}
			yields(p, `[...document.querySelectorAll("[role=tabpanel]")].filter(e => e.checkVisibility()).map(e => e.id)`, []string{"caching"})
			tabTo("max-age")
			p.press(kb.ArrowRight)
			p.want("max-age", p.text("#max-age-value"), "11")
			tabTo("ask")
			p.press(kb.Enter)
			p.logged("#ask", 1)
		}},
	} {
		t.Run(flow.name, func(t *testing.T) {
			s := newShop(t)
			if flow.setUp != nil {
				flow.setUp(s)
			}
			flow.do(open(t, s, desktop))
		})
	}
}

// What stands around the service may answer in a form of its own.
func TestAnswersOfOthers(t *testing.T) {
	const whose = "403, Forbidden. Is it for those who have signed in? Sign in, in another tab, and tick Send my sign-in"
	for _, other := range []struct {
		name, said string
		answer     http.HandlerFunc
	}{
		{"JSON that is no problem", whose, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			io.WriteString(w, `{"type":3,"errors":{"token":["missing"]}}`)
		}},
		{"HTML", whose, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			io.WriteString(w, "<p>No.</p>")
		}},
		{"HTML with 200", "200, with an HTML page and not an order. Is that a sign-in page?", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "<p>Sign in.</p>")
		}},
		{"a redirect", "The answer is a redirect, and browsers do not tell a page where to. Is it to a sign-in page?", asks},
	} {
		t.Run(other.name, func(t *testing.T) {
			s := newShop(t)
			answers("POST", other.answer)(s)
			p := open(t, s, desktop)
			p.click("#order", 1)
			p.said("#orders-said", other.said)
			p.want("answers", len(p.texts("#tries tbody tr")), 1)
		})
	}
}

// A host, or what stands in front of it, may answer anything: open fails the test if that throws.
func TestForeignAnswers(t *testing.T) {
	header, body := http.Header{}, ""
	s := newShop(t)
	p := open(t, s, desktop)
	s.answerBefore(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header()["Content-Type"], w.Header()["Age"] = []string{"application/json"}, header["Age"]
		w.Header().Set("Cache-Status", "storefront; hit")
		io.WriteString(w, body)
		return false
	})
	n := 0
	answer := func(tab, button, age, b, said, want string) {
		t.Helper()
		header, body = http.Header{"Age": {age}}, b
		p.tab(tab)
		n++
		p.click(button, n)
		p.said(said, want)
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

	for _, of := range [][3]string{
		{`null`, "#unread", "cannot be read"},
		{`{"paths":5}`, "#unread", "cannot be read"},
		{`{"paths":{"/x":{"get":5}}}`, "#operations", "GET /x"},
		{`{"paths":{"/x":{"get":{"parameters":[{"$ref":"#/a"}]}}}}`, "#unread", "cannot be read"},
		{`<p>Sign in</p>`, "#unread", "cannot be read"},
	} {
		answers("/openapi.json", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, of[0]) })(s)
		p.reload()
		p.said(of[1], of[2])
		p.tab("orders")
		p.click("#order", 1)
		p.statuses("201")
	}
}

func TestAnyPathAndAnyBase(t *testing.T) {
	for _, m := range []struct{ path, base, prefix string }{
		{"/try", "", ""},
		{"/shop/", "", "/shop"},
		{"/tools/try", "../shop/", "/shop"},
		{"/tools/try", "/caf%C3%A9", "/café"},
		{"//evil.example/", "/shop", "/shop"},
	} {
		t.Run(m.path+" "+m.base, func(t *testing.T) {
			s := newShop(t)
			s.path, s.base, s.prefix = m.path, m.base, m.prefix
			p := open(t, s, desktop)
			p.click("#order", 1)
			p.tab("pages")
			p.click("#first-page", 2)
			p.statuses("200", "201")
			link := eval[string](p, `document.querySelector("#openapi").href`)
			p.want("the document is there", eval[int](p, `fetch(document.querySelector("#openapi").href).then(r => r.status)`), 200)
			if !strings.HasPrefix(link, s.URL+"/") {
				t.Errorf("the document is linked at %s", link)
			}
			if m.path != "//evil.example/" {
				p.click("#put", 2)
				p.said("#pages-said", "Put: zoe")
			}
		})
	}
}
