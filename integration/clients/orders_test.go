package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/need"
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
			{sent, ` { "":{},"a":{"c":[1e-1,"é/\u0022",null],"b":20e-1},"id":9007199254740993.0}`, true},
			{sent, changed("993", "992"), false},
			{sent, changed("2.0", `"2.0"`), false},
			{sent, ``, false},
			{``, sent, false},
			{`{}`, ``, false},
			{`{"n":[1,0]}`, `{"n":[true,false]}`, false},
			{`{"n":[-0,1e400,1e99999999999999999999]}`, `{"n":[0,10e399,1e99999999999999999999]}`, true},
			{`{"n":` + strings.Repeat("[", 150) + "1" + strings.Repeat("]", 150) + `}`,
				`{"n":` + strings.Repeat("[", 150) + "1" + strings.Repeat("]", 150) + `}`, true},
			{`{"n":1}`, `{"n":1},"state":"` + strings.Repeat("é", 1e5) + `"`, true},
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

// Numbers of any length and lists of any depth end no call with an error of Python's, and NaN is not JSON.
func TestPythonReadsAnyJSON(t *testing.T) {
	t.Parallel()
	python := languages[2]
	need.Programs(t, need.Tools, python.programs...)
	shop := newFolderShop(t)
	digits := strings.Repeat("9", 5000)
	shop.answers(func(w http.ResponseWriter, r *http.Request) {
		deep, _ := strconv.Atoi(r.Header.Get("Authorization"))
		switch {
		case r.Method == "POST":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprintf(w, "{\"type\":\"urn:problem-type:storefront:invalid-order\",\n\"errors\":[{\"maximum\":%s,\"a\":1e400}]}", digits)
		case r.URL.Path == "/v1/orders/a":
			io.WriteString(w, `{"id":"a","item":"x","qty":NaN}`)
		case r.URL.Path == "/v1/orders":
			state := strings.Repeat("[", deep) + strings.Repeat("]", deep)
			fmt.Fprintf(w, `{"data":[{"id":"a","item":"teapot","qty":2,"state":%s}],"has_more":false}`, state)
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("ETag", `"1"`)
			fmt.Fprintf(w, `{"id":"p","n":%s}`, digits)
		}
	})
	runProgram(t, python, shop.URL, t.TempDir(), map[string]string{"python": `
import decimal, os, time, storefront
late, deep, real = 0, 0, time.time
time.time = lambda: real() + late
shop = storefront.Shop(os.environ["STOREFRONT_URL"], headers=lambda: {"Authorization": str(deep)}, remember=1,
                       patience=0, read_patience=0)
journal, draft = shop.journal(os.environ["JOURNAL"]), storefront.Draft("teapot", 2)
def ends(call):
    try:
        return call()
    except Exception as err:
        return type(err).__name__, *(getattr(err, name, "") for name in ("status", "code"))
refused = "Refused", 422, "invalid-order"
for late in 0, 86400:
    if ends(lambda: journal.order("basket", "teapot", 2)) != refused or journal.pending():
        print("refused", late, ends(lambda: journal.order("basket", "teapot", 2)), journal.pending())
late = 0
if ends(lambda: shop.get_order("a")) != ("Unknown", 200, ""):
    print("NaN is", ends(lambda: shop.get_order("a")))
product = shop.product("p")
if ends(lambda: shop.product("p")) != product or product["n"] != decimal.Decimal("9" * 5000):
    print("the product is", product, "and then", ends(lambda: shop.product("p")))
for deep in range(100, 2000, 100):
    found = ends(lambda: shop.find_order(draft)["id"])
    if found not in ("a", ("Unknown", 200, "")):
        print(deep, "levels:", found)`})
}

// An order is read back, with the members and, where the language has them, the digits that the shop has sent. A
// shop that serves none is told apart.
func TestOrdersAreReadBack(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, without := newFolderShop(t), newFolderShop(t)
		shop.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.RequestURI != "/v1/orders/a%2Fb" {
				problem(404, "order-not-found")(w, r)
				return
			}
			io.WriteString(w, `{"id":"a/b","item":"x","qty":1,"fields":{"n":9007199254740993},"state":"sent"}`)
		})
		r := l.start(t, shop.URL)
		got, _, err := r.ask(outcome{Get: "a/b"})
		if err != nil || !strings.Contains(got.Got, "sent") ||
			l.name != "javascript" && !strings.Contains(got.Got, "9007199254740993") {
			t.Errorf("the order is %+v, %v", got, err)
		}
		for _, id := range []string{"ord_none", ".."} {
			got, _, err := r.ask(outcome{Get: id})
			if err != nil || got.Error == "" || strings.HasPrefix(got.Error, "Refused") != (id == "ord_none") {
				t.Errorf("the order %s is %+v, %v", id, got, err)
			}
		}
		if n := shop.requests.Load(); n != 2 {
			t.Errorf("%d requests were sent, and .. is no ID", n)
		}
		without.answers(storefront.New(&without.store).ServeHTTP)
		r = l.start(t, without.URL)
		for _, ask := range []outcome{{List: "orders"}, {Get: "x"}} {
			got, _, err := r.ask(ask)
			if err != nil || !strings.HasPrefix(got.Error, "Refused: this shop does not let clients read orders") {
				t.Errorf("where there are none: %+v, %v", got, err)
			}
		}
	})
}

// A problem whose errors are none ends with an error of the client, not of its language.
func TestErrorsOfAProblemAreNone(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop := newFolderShop(t)
		r := l.start(t, shop.URL)
		for _, errors := range []string{`{}`, `"limit"`, `7`, `[null]`, `[7]`} {
			shop.answers(problem(400, `invalid-query","errors":`+errors+`,"title":"`))
			got, _, err := r.ask(outcome{List: "users"})
			if kind, _, _ := strings.Cut(got.Error, ":"); err != nil || kind != "Blocked" && kind != "Refused" {
				t.Errorf("with %s: %s, %v", errors, got.Error, err)
			}
		}
	})
}

// The order of a key is believed only if it is that of the draft: something on the way has mixed up answers.
func TestFoundOrderIsTheDrafts(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop := newFolderShop(t)
		r := l.start(t, shop.URL, "JOURNAL="+t.TempDir(), oneTry)
		order(t, r, "teapot")
		shop.answers(func(w http.ResponseWriter, r *http.Request) {
			qty := 2
			if shop.requests.Load() == 2 {
				qty = 3
			}
			fmt.Fprintf(w, `{"data":[{"id":"ord_%d","item":"teapot","qty":%d}],"has_more":false}`, qty, qty)
		})
		if id, failed := orderID(t, r, outcome{Item: "teapot", Find: true}); id != "ord_2" {
			t.Errorf("it finds %q: %s", id, failed)
		}
		nobody := func(*http.Request) string { return "" }
		shop.answers(storefront.NewWithOptions(&shop.store, &storefront.Options{Orders: &shop.store, Scope: nobody}).ServeHTTP)
		if id, failed := orderID(t, r, outcome{Item: "teapot", Find: true}); !strings.HasPrefix(failed, "Refused") {
			t.Errorf("without an account, it finds %q: %s", id, failed)
		}
	})
}
