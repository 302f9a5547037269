package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
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
