package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/storefront"
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

func TestOrderAndItsRetry(t *testing.T) {
	p := open(t, newShop(t))
	p.click("#order", 1)
	p.click("#retry", 2)
	id := p.store.Orders()[0].ID
	p.want("answers", p.texts("#tries td:last-child"), []string{id + " created", id + " the same order, replayed"})
	p.said("#orders-said", "Idempotent-Replayed")
	if newest := p.texts("#log pre")[1]; !strings.Contains(newest, "Idempotent-Replayed: true") {
		t.Errorf("the log does not show that it was replayed:\n%s", newest)
	}
	p.click("#other", 3)
	p.said("#orders-said", "this key stands for another order")
	p.set("#qty", "3")
	p.click("#retry", 4) // sends what is shown
	p.said("#orders-said", "this key stands for another order")
	p.statuses("422", "422", "201", "201")
	p.created(1)

	p.click("#order", 5) // has a new key
	p.set("#key", "my-key")
	p.click("#order", 6)
	sent := p.requests("/v1/orders")
	key := func(i int) string { return sent[i].header.Get("Idempotency-Key") }
	if key(0) == "" || key(0) != key(1) || key(0) == key(4) || key(5) != "my-key" {
		t.Errorf("the keys are %q, %q, %q and %q", key(0), key(1), key(4), key(5))
	}
	p.created(3)

	p.set("#item", "", "#qty", "many")
	p.click("#order", 7)
	p.want("faults", len(p.texts("#tries .fault")), 2)
	p.click("#retry", 8)
	yields(p, `[...document.querySelectorAll("#orders [aria-invalid=true]")].map(f => f.id)`, []string{"item", "qty"})
	p.set("#item", "teapot", "#qty", "2")
	p.click("#retry", 9) // as a refused request does not use up its key
	p.created(4)
}

// withOrders has a service whose orders have fields and are read back.
func withOrders(store *storefront.MemStore, opts *storefront.Options) {
	opts.OrderFields, opts.Orders, opts.PageSize = true, store, 2
	opts.Scope = func(*http.Request) string { return "everybody" }
	store.Accept = func(_ context.Context, _ storefront.IdempotencyKey, o storefront.Order) error {
		if strings.Contains(string(o.Fields), "zip") {
			return &storefront.Refusal{Detail: "Not known.", Pointer: "#/fields/address/zip"}
		}
		return nil
	}
}

func TestOrdersAreReadBack(t *testing.T) {
	p := open(t, newShop(t, withOrders))
	p.set("#fields", `{"note": "2.0", "n": 9007199254740993}`)
	p.click("#order", 1)
	p.set("#fields", "", "#key", "a +b")
	p.click("#order", 2)
	p.set("#key", "c")
	for i, wrong := range []string{"{", "7", `{"address": {"zip": "?"}}`} {
		p.set("#fields", wrong)
		p.click("#retry", 3+i)
		yields(p, `[...document.querySelectorAll("#orders [aria-invalid=true]")].map(f => f.id)`, []string{"fields"})
	}
	p.want("faults", p.texts("#tries tr:last-child .fault"), []string{"address/zip: Not known."})
	p.set("#fields", "")
	p.click("#retry", 6)
	p.created(3)
	ids := make([]string, 3)
	for i, o := range p.store.Orders() {
		ids[2-i] = o.ID
	}
	p.click("#my-orders", 7)
	p.want("a page", p.texts("#mine button"), ids[:2])
	p.said("#history-said", "2 orders. There are more.")
	p.click("#more-orders", 8)
	p.want("all", p.texts("#mine button"), ids)
	p.said("#history-said", "3 orders. That is the end")
	p.click("#mine tr:last-child button", 9)
	p.said("#opened", `"n": 9007199254740993`)
	p.set("#key", "a +b")
	p.click("#of-key", 10)
	p.want("that of a key", p.texts("#mine button"), ids[1:2])
	for i, typed := range []string{`"a\"b"`, `"a\"b";v=1 `, ` "\\"`, `a\ b `} {
		p.set("#key", typed)
		p.click("#order", 11+2*i)
		p.click("#of-key", 12+2*i)
		orders := p.store.Orders()
		p.want("that of "+typed, p.texts("#mine button"), []string{orders[len(orders)-1].ID})
	}
	p.set("#key", "none")
	p.click("#of-key", 19)
	p.said("#history-said", "0 orders.")
	p.want("the opened order", p.text("#opened"), "")
	p.statuses("200", "200", "201", "200", "201", "200", "201", "200", "201", "200", "200", "200", "200",
		"201", "422", "422", "400", "201", "201")

	without := open(t, newShop(t))
	for _, hidden := range []string{"#history", "#with-fields"} {
		yields(without, fmt.Sprintf(`document.querySelector(%q).checkVisibility()`, hidden), false)
	}
}

// An order whose answer got lost may be there. Whoever is told that it is not orders twice.
func TestUnknownOutcomeIsSaid(t *testing.T) {
	s := newShop(t)
	service := storefront.New(s.store)
	answers("POST", func(w http.ResponseWriter, r *http.Request) {
		service.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})(s)
	p := open(t, s)
	p.mayFail = true
	p.click("#order", 1)
	p.said("#orders-said", "It may have been created or not: Retry finds out")
	p.answerBefore(nil)
	p.click("#retry", 2)
	p.said("#orders-said", "The same order came back")
	p.created(1)
}

func TestPagesLeadToTheEndThoughItemsComeAndGo(t *testing.T) {
	const seen = "#seen td:nth-child(2)"
	p := open(t, newShop(t))
	p.tab("pages")
	p.set("#limit", "2")
	p.click("#first-page", 1)
	p.want("seen", p.texts(seen), []string{"ada", "barbara"})
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
	p.click("#next-page", 2)
	p.click("#to-the-end", 3)
	p.want("seen", p.texts(seen), []string{"ada", "barbara", "edsger", "frances", "linus"})
	p.said("#pages-said", "none of them twice")
	yields(p, `document.querySelector("#next-page").disabled`, true)
}

func TestWhatAClientHasIsAskedAbout(t *testing.T) {
	p := open(t, newShop(t))
	p.tab("caching")
	p.click("#read", 1)
	p.click("#revalidate", 2)
	teapot, _ := p.store.Products.Get("teapot")
	p.said("#revalidate-said", fmt.Sprintf("%d bytes saved", len(teapot.String())))
	p.want("If-None-Match", p.requests("/v1/products/teapot")[1].header.Get("If-None-Match"), teapot.ETag())
	p.click("#put-product", 2)
	p.click("#revalidate", 3)
	p.said("#revalidate-said", "it has changed")
	p.click("#delete-product", 3)
	p.click("#revalidate", 4)
	p.said("#revalidate-said", "404, Product not found")
	p.statuses("404", "200", "304", "200")

	p.click("#put-product", 4)
	p.set("#max-age", "42")
	p.click("#ask", 5)
	p.said("#age-said", "From the store. Cache-Status: storefront; fwd=")
	p.click("#ask", 6)
	p.said("#age-said", "From memory, ")
	p.said("#age-said", "up to 42 were allowed. Cache-Status: storefront; hit; ttl=")
}

// The page has no credentials of its own. What its visitor types as such is sent, and nowhere shown.
func TestCredentialsAreSentAndNotShown(t *testing.T) {
	const token, jwt, typed = "Bearer abc123def456ghi7", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "typed-secret-value"
	s := newShop(t)
	s.answerBefore(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == typed {
			return true
		}
		storefront.Problem{Status: 401, Detail: "Sign in."}.ServeHTTP(w, r)
		return false
	})
	p := open(t, s)
	const how = "401, Unauthorized. It asks who you are. Sign in, in another tab, and tick Send my sign-in at the top, or give a header there, such as Authorization."
	p.said("#unread", "cannot be read: "+how) // before anything is sent
	p.click("#order", 1)
	p.said("#orders-said", how)
	p.set("#extra", "Authorization: "+typed+"\nX-Tenant: a:b\nit's: 4\nCookie: a=b", "#item", token, "#key", jwt)
	p.clickOn("#headers-button")
	p.clickOn("#cookies")
	p.waitFor(`document.querySelectorAll(".operation").length === 4`) // and no warning is left
	p.click("#order", 2)
	p.statuses("201", "401")
	p.want("a header", p.requests("/v1/orders")[1].header.Get("X-Tenant"), "a:b")
	curl := p.texts("#log li:not(.own) pre")[0]
	for _, want := range []string{`-H 'Authorization: '"${H_AUTHORIZATION:?}"`, `-H 'It'\''s: '"${H_IT_S:?}"`} {
		if !strings.Contains(curl, want) {
			t.Errorf("the curl line is\n%s\nwant %s in it", curl, want)
		}
	}
	p.tab("caching")
	p.set("#product", typed)
	p.click("#read", 3)
	p.tab("all")
	p.operation("createOrder")
	p.set("#createOrder-item", jwt, "#createOrder-qty", "x")
	p.click("#operation-createOrder button", 4)
	p.unfoldLog()
	p.tab("orders")
	p.set("#extra", "Bearer def-456-no-header")
	p.click("#order", 5)
	p.said("#orders-said", "Not sent: line 1 of the headers is not “Name: value”")
	shown := eval[string](p, `document.body.textContent`)
	for _, secret := range []string{"abc123def456ghi7", jwt, typed, "def-456-no-header"} {
		if strings.Contains(shown, secret) {
			t.Errorf("the page shows %s", secret)
		}
	}
}
