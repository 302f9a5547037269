package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"example.com/storefront"
	"example.com/storefront/internal/must"
)

// An answer is the order of a draft if its fields have the value that was sent, in whatever form: numbers are
// compared exactly.
func TestFieldsAreComparedByValue(t *testing.T) {
	const sent = `{"id":9007199254740993,"a":{"b":2.0,"c":[0.10,"\u00e9\/\"",null]},"":{}}`
	changed := func(old, new string) string { return strings.Replace(sent, old, new, 1) }
	inLanguages(t, func(t *testing.T, l language) {
		shop := newFolderShop(t)
		r := l.start(t, shop.URL, "JOURNAL="+t.TempDir(), oneTry)
		for i, c := range []struct {
			sent, answer string
			same         bool
		}{
			{sent, sent, true},
			{sent, ` { "":{},"a":{"c":[1e-1,"é/\u0022",null],"b":20e-1},"id":9007199254740993.0}`, true},
			{sent, changed("993", "992"), false},
			{sent, changed("0.10", "0.1000000000000000000000001"), false},
			{sent, changed("2.0", `"2.0"`), false},
			{sent, changed(`"":{}`, `"x":{}`), false},
			{sent, ``, false},
			{``, sent, false},
			{`{}`, ``, false},
			{`{"n":[1,0]}`, `{"n":[true,false]}`, false},
			{`{"n":[-0,1e400,1e99999999999999999999]}`, `{"n":[0,10e399,1e99999999999999999999]}`, true},
			{`{"n":` + strings.Repeat("[", 150) + "1" + strings.Repeat("]", 150) + `}`,
				`{"n":` + strings.Repeat("[", 150) + "1" + strings.Repeat("]", 150) + `}`, true},
			{`{"n":1` + strings.Repeat("0", 5000) + `1}`, `{"n":1` + strings.Repeat("0", 5000) + `2}`, false},
		} {
			shop.answers(func(w http.ResponseWriter, r *http.Request) {
				var order struct{ Item, Fields json.RawMessage }
				if must.OK(t, json.NewDecoder(r.Body).Decode(&order)); string(order.Fields) != c.sent {
					t.Errorf("it sends the fields %.200s, want %.200s", order.Fields, c.sent)
				}
				fields := ""
				if c.answer != "" {
					fields = `,"fields":` + c.answer
				}
				w.WriteHeader(http.StatusCreated)
				fmt.Fprintf(w, `{"id":"ord_1","item":%s,"qty":2.0%s}`, order.Item, fields)
			})
			ask := outcome{Item: fmt.Sprint("item ", i), Qty: 2, Fields: c.sent}
			id, failed := orderID(t, r, ask)
			if c.same != (id == "ord_1") || c.same == strings.HasPrefix(failed, "Unknown") {
				t.Errorf("sent %.200s\nanswered %.200s\nit says %q, %.500s", c.sent, c.answer, id, failed)
			}
			if !c.same {
				continue
			}
			shop.answers(http.NotFound)
			if id, failed := orderID(t, r, ask); id != "ord_1" {
				t.Errorf("its journal has the order with %.200s no more: %s", c.answer, failed)
			}
			ask.Fields = `{"other":true}`
			if id, failed := orderID(t, r, ask); failed == "" {
				t.Errorf("with other fields, its order is %s", id)
			}
		}
	})
}

// What cannot be the fields of an order is refused before anything is kept or sent.
func TestFieldsThatAreNone(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop := newFolderShop(t)
		r := l.start(t, shop.URL, "JOURNAL="+t.TempDir(), oneTry)
		for _, fields := range []string{`[]`, `null`, `{`, `{} {}`, `{},"x":1`, `{}},{{}`,
			`{"a":` + strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5) + `}`} {
			if l.name == "javascript" && len(fields) > 1e5 {
				continue // it reads them, and the shop refuses them
			}
			_, failed := orderID(t, r, outcome{Item: "a", Qty: 2, Fields: fields})
			if !strings.Contains(failed, "fields") || shop.requests.Load() > 0 {
				t.Errorf("%.50s: %.200s", fields, failed)
			}
		}
		if got := pending(t, r); len(got) > 0 {
			t.Errorf("it keeps %q", got)
		}
	})
}

// The orders of an account are listed, read and found by their keys, to nobody else, and with the numbers that the
// shop has sent where the language has them. A shop that serves none is told apart.
func TestOrdersAreReadBack(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, without, dir := newFolderShop(t), newFolderShop(t), t.TempDir()
		without.answers(storefront.New(&without.store).ServeHTTP)
		signIn := func(r *http.Request) string { return r.Header.Get("Authorization") }
		service := storefront.NewWithOptions(&shop.store,
			&storefront.Options{Scope: signIn, Orders: &shop.store, OrderFields: true, PageSize: 2})
		var mu sync.Mutex
		lost := 0
		shop.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/orders/a%2Fb" || r.URL.Path == "/v1/orders/a/b" {
				io.WriteString(w, `{"id":"a/b","item":"x","qty":1,"fields":{"n":9007199254740993},"state":"sent"}`)
				return
			}
			mu.Lock()
			if r.Method == "POST" {
				lost++
			}
			isLost := r.Method == "POST" && lost == 4
			mu.Unlock()
			if isLost {
				service.ServeHTTP(discard{http.Header{}}, r)
				panic(http.ErrAbortHandler)
			}
			service.ServeHTTP(w, r)
		})
		runProgram(t, l, shop.URL+"\n"+without.URL, dir, map[string]string{
			"bash": `
				mapfile -t urls <<<"$STOREFRONT_URL"
				export STOREFRONT_URL=${urls[0]} STOREFRONT_CONFIG=config STOREFRONT_ACCOUNT=alice
				echo 'header = "Authorization: alice"' >config
				is() { [[ $2 == "$3" ]] || echo "$1: $2, want $3"; }
				client() { bash storefront.sh "$@" 2>>errors; }
				for n in 1 2 3; do ids[$n]=$(client order "$n" teapot "$n" | jq -r .id); done
				client order lost teapot 4 '{"a": 2.0}'
				is 'after a lost answer' $? 5
				found=$(client find-order lost)
				is 'the order of a draft' "$(jq -c '[.item, .qty, .fields]' <<<"$found")" '["teapot",4,{"a":2}]'
				is 'all orders' "$(client orders | jq -r .id | paste -sd,)" "$(jq -r .id <<<"$found"),${ids[3]},${ids[2]},${ids[1]}"
				is 'an order' "$(client get-order "${ids[2]}" | jq -c '[.item, .qty]')" '["teapot",2]'
				is 'an ID with a slash' "$(client get-order a/b)" '{"id":"a/b","item":"x","qty":1,"fields":{"n":9007199254740993},"state":"sent"}'
				client get-order ord_none; is 'no order' $? 3
				client get-order ..; is 'no ID' $? 2
				client find-order none; is 'no draft' $? 2
				http_proxy=http://127.0.0.1:1 client order open teapot 5
				is 'of a draft without an order' "$(client find-order open; echo $?)" 0
				echo 'header = "Authorization: bob"' >config
				is 'the orders of bob' "$(client orders; echo $?)" 0
				STOREFRONT_URL=${urls[1]}
				for ask in orders 'get-order x'; do
					client $ask; is "$ask where there are none" $? 3
					[[ $(tail -1 errors) == 'Refused: this shop does not let clients read orders'* ]] || tail -1 errors
				done; :`,
			"javascript": `
				import { Draft, Shop } from "./storefront.mjs";
				import { isDeepStrictEqual } from "node:util";
				const [url, without] = process.env.STOREFRONT_URL.split("\n");
				const is = (what, got, want) => isDeepStrictEqual(got, want) || console.log(what, got, "want", want);
				const all = async (list) => { const found = []; for await (const { id } of list) found.push(id); return found; };
				let account = "alice";
				const options = { patience: 0, account: () => account, headers: () => ({ Authorization: account }) };
				const shop = new Shop(url, options), journal = await shop.journal(process.env.JOURNAL);
				const ids = [];
				for (const n of [1, 2, 3]) ids.unshift((await journal.order("basket " + n, "teapot", n)).id);
				const lost = await journal.order("lost", "teapot", 4, { fields: { a: 2 } }).catch((err) => err);
				is("after a lost answer", lost.name, "Unknown");
				const { id, fields } = await journal.findOrder("lost");
				is("the order of a draft", [fields, (await shop.findOrder(await journal.read("lost"))).id], [{ a: 2 }, id]);
				is("of a draft without an order", await shop.findOrder(new Draft("teapot", 2)), undefined);
				is("of a name with its order", (await journal.findOrder("basket 1")).id, ids[2]);
				is("all orders", await all(shop.orders()), [id, ...ids]);
				is("orders of a page each", await all(shop.orders({ limit: 1 })), [id, ...ids]);
				is("an order", (await shop.getOrder(ids[0])).qty, 3);
				const parse = (text) => JSON.parse(text.replace(/:(\d{16,})/g, ':"$1"'));
				const { state, fields: { n } } = await new Shop(url, { ...options, parse }).getOrder("a/b");
				is("an ID with a slash", [state, n], ["sent", "9007199254740993"]);
				const fails = (what) => what.then((got) => got, (err) => err.code || err.name);
				is("no order", await fails(shop.getOrder("ord_none")), "order-not-found");
				is("no ID", await fails(shop.getOrder("..")), "RangeError");
				is("no draft", await fails(journal.findOrder("none")), "RangeError");
				const walk = shop.orders();
				await walk.next();
				account = "bob";
				is("a walk whose account changes", await fails((async () => { for await (const _ of walk); })()), "Unknown");
				is("the orders of bob", await all(shop.orders()), []);
				for (const read of [() => all(new Shop(without).orders()), () => new Shop(without).getOrder("x"),
					() => new Shop(without).findOrder(new Draft("a", 1))]) {
					const err = await read().catch((err) => err);
					is("where there are none", [err.name, err.message.split(":")[0]],
						["Refused", "this shop does not let clients read orders"]);
				}`,
			"python": `
import os, storefront
url, without = os.environ["STOREFRONT_URL"].split("\n")
def check(what, got, want):
    if got != want:
        print(what, got, "want", want)
def fails(what):
    try:
        return what()
    except Exception as err:
        return getattr(err, "code", "") or type(err).__name__
account = "alice"
shop = storefront.Shop(url, patience=0, account=lambda: account, headers=lambda: {"Authorization": account})
journal = shop.journal(os.environ["JOURNAL"])
ids = [journal.order(f"basket {n}", "teapot", n)["id"] for n in (1, 2, 3)][::-1]
check("after a lost answer", fails(lambda: journal.order("lost", "teapot", 4, {"a": 2})), "Unknown")
found = journal.find_order("lost")
check("the order of a draft", found["fields"], {"a": 2})
check("of a draft without an order", shop.find_order(storefront.Draft("teapot", 2)), None)
check("of a name with its order", journal.find_order("basket 1")["id"], ids[2])
check("all orders", [order["id"] for order in shop.orders()], [found["id"], *ids])
check("orders of a page each", [order["id"] for order in shop.orders(1)], [found["id"], *ids])
check("an order", shop.get_order(ids[0])["qty"], 3)
check("an ID with a slash", shop.get_order("a/b")["fields"]["n"], 9007199254740993)
check("no order", fails(lambda: shop.get_order("ord_none")), "order-not-found")
check("no ID", fails(lambda: shop.get_order("..")), "ValueError")
check("no draft", fails(lambda: journal.find_order("none")), "KeyError")
walk = shop.orders()
next(walk)
account = "bob"
check("a walk whose account changes", fails(lambda: list(walk)), "Unknown")
check("the orders of bob", list(shop.orders()), [])
closed = storefront.Shop(without)
for read in lambda: list(closed.orders()), lambda: closed.get_order("x"), lambda: closed.find_order(storefront.Draft("a", 1)):
    try:
        print("where there are none:", read())
    except storefront.Refused as err:
        check("where there are none", str(err).split(":")[0], "this shop does not let clients read orders")`,
		})
	})
}

// discard is an answer that is lost.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// The order of a key is believed only if it is that of the draft: something on the way has mixed up answers.
func TestFoundOrderIsTheDrafts(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		r := l.start(t, shop.URL, "JOURNAL="+dir, oneTry)
		order(t, r, "teapot")
		r.end()
		tries := 0
		var mu sync.Mutex
		shop.answers(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if tries++; tries > 1 {
				io.WriteString(w, `{"data":[{"id":"ord_1","item":"teapot","qty":2}],"has_more":false}`)
				return
			}
			io.WriteString(w, `{"data":[{"id":"ord_2","item":"teapot","qty":3}],"has_more":false}`)
		})
		runProgram(t, l, shop.URL, dir, map[string]string{
			"bash": `
				[[ $(bash storefront.sh find-order teapot) == '{"id":"ord_1","item":"teapot","qty":2}' ]] || echo wrong`,
			"javascript": `
				import { Shop } from "./storefront.mjs";
				const journal = await new Shop(process.env.STOREFRONT_URL).journal(process.env.JOURNAL);
				if ((await journal.findOrder("teapot")).id !== "ord_1") console.log("wrong");`,
			"python": `
import os, storefront
if storefront.Shop(os.environ["STOREFRONT_URL"]).journal(os.environ["JOURNAL"]).find_order("teapot")["id"] != "ord_1":
    print("wrong")`,
		})
	})
}
