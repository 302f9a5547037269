package faultreport

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/faults"
)

func TestWhatAClientBelievesIsJudged(t *testing.T) {
	const orders, users, products = conformance.Orders, conformance.Users, conformance.Products
	ordered := func(fault string, members map[string]any) func(w *world, b *buyer) {
		return func(w *world, b *buyer) {
			_, item := b.until(w, fault)
			members["item"] = item
			b.mustReport(members)
		}
	}
	walked := func(members map[string]any) func(w *world, b *buyer) {
		return func(_ *world, b *buyer) {
			b.walk("/v1/users", "after")
			members["list"] = "users"
			b.mustReport(members)
		}
	}
	read := func(after time.Duration, members map[string]any) func(w *world, b *buyer) {
		return func(_ *world, b *buyer) {
			b.name("teapot")
			b.reportName("teapot", "Teapot", true)
			time.Sleep(after)
			members["product"] = "teapot"
			b.mustReport(members)
		}
	}
	leaves := func(patience time.Duration) func(w *world, b *buyer) {
		return func(w *world, b *buyer) {
			w.shop.Patience = patience
			b.tries, b.reports = 1, true
			b.until(w, "the answer never comes") // for 40 s, after which it leaves the order
			cl := w.shop.clients[0]
			cl.calls = cl.calls[len(cl.calls)-1:]
		}
	}
	inWorlds(t, []row{
		{"200 is an order", ordered("200 with an order", map[string]any{"id": "ord_FORGED"}), orders,
			"success"},
		{"200 is none", ordered("200 with an order", map[string]any{"error": "200"}), orders, ""},
		{"another ID", ordered("nothing is wrong", map[string]any{"id": "ord_1"}), orders, "right-id"},
		{"no ID", ordered("nothing is wrong", map[string]any{}), orders, "right-id"},
		{"a replay is an error", ordered("three answers are lost", map[string]any{"error": "409"}), orders,
			"takes-order"},
		{"sent after all", func(w *world, b *buyer) {
			key, item := b.until(w, "a proxy forbids: 403")
			b.mustReport(map[string]any{"item": item, "error": "403"})
			b.orderAs(key, item)
		}, orders, "silence"},
		{"gone on with", func(w *world, b *buyer) {
			key, item := b.until(w, "a proxy forbids: 403")
			b.mustReport(map[string]any{"item": item, "qty": 2, "error": "403"})
			b.reports = true
			b.orderAs(key, item)
		}, orders, ""},
		{"left to a queue", leaves(30 * time.Second), orders, ""},
		{"left too soon", leaves(time.Minute), orders, "goes-on"},
		{"an item twice", walked(map[string]any{"ids": strings.Fields("u0 u1 u1 u2")}), users, "each-once"},
		{"an item of another list", walked(map[string]any{"ids": strings.Fields("u0 u1 u2 w0")}), users,
			"each-once"},
		{"the first page", walked(map[string]any{"ids": strings.Fields("u0")}), users, "whole-list"},
		{"no walk", walked(map[string]any{"error": "?"}), users, "walks"},
		{"the whole list", walked(map[string]any{"ids": strings.Fields("u0 u1 u2")}), users, ""},
		{"another product", read(0, map[string]any{"name": "Kettle"}), products, "product"},
		{"no product", read(0, map[string]any{"error": "?"}), products, "reads"},
		{"asked again, and not looked at", func(_ *world, b *buyer) {
			for range 2 {
				b.name("teapot")
				b.reportName("teapot", "Teapot", true)
			}
		}, products, "product"},
		{"kept while it is fresh", read(time.Second, map[string]any{"name": "Teapot"}), products, ""},
		{"kept too long", read(time.Minute, map[string]any{"name": "Teapot"}), products, "fresh"},
	})
}

// A list that changes for one walk changes for another, too.
func TestWalksAtTheSameTimeAreRight(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		b.walk("/v1/users", "after") // in which nothing is wrong
		cl := w.shop.clients[0]
		r := cl.rounds[conformance.Users]
		i := slices.IndexFunc(r.rest, func(f *faults.Fault) bool { return f.Name == faults.ListChanges })
		r.rest = []*faults.Fault{{Name: "nothing is wrong"}, r.rest[i]}
		var first struct{ Next string }
		_, _, answer := b.send("GET", "/v1/users", nil)
		json.Unmarshal(answer, &first)
		ids, ok := b.walk("/v1/users", "after")
		b.reportWalk("users", ids, ok)
		b.send("GET", "/v1/users?after="+first.Next, nil)
		b.reportWalk("users", []string{"u0", "u1", "z9"}, true)
		if failed := w.failed("b", conformance.Users); failed != nil {
			t.Errorf("failed are %q\n%s", failed, w.shop.Summary())
		}
	})
}

func TestOutcomesAreTakenOrRefused(t *testing.T) {
	inWorld(t, func(w *world, b *buyer) {
		b.order("tea & pot")
		b.walk("/v1/users", "after")
		w.buyer("c").order("kettle")
		w.buyer("d").order("kettle")
		script := w.buyer("a script")
		for _, row := range []struct {
			body   string
			status int
			says   string
		}{
			{"item=tea+%26+pot&id=ord_1&qty=2", 204, ""},
			{"list=users&ids=u0&ids=u1", 204, ""},
			{`{"item":"tea & pot","error":"x","id":null}` + "\n" + `{"item":"tea & pot","id":"1"}`, 204, ""},
			{`{"item":"kettle","id":"ord_1","client":"c"}`, 204, ""},
			{`{"item":"kettle","id":"ord_1"}`, 404, "Several clients"},
			{`{"item":"kettle","id":"ord_1","client":"b"}`, 404, "No such client"},
			{`{"item":"tea & pot","qty":3,"id":"ord_1"}`, 404, `\"qty\":3}`},
			{`{"item":"tea & pot","id":"ord_1"} {"item":"coffee","id":"ord_1"}`, 404, "Object 2"},
			{`{"list":"users","ids":[]}`, 404, "users"}, // which has an outcome
			{"", 422, "one of item, list and product"},
			{`item=teapot&item=kettle&id=1`, 422, `#/item`},
			{"item=teapot&id=%ZZ", 422, "neither JSON nor a form"},
			{"item=teapot&id=1&qty=two", 422, "#/qty"},
			{`{"item":"teapot","id":"1","ID":"1"}`, 422, "#/ID"},
			{`{"item":"teapot","id":"1","id":"2"}`, 422, "duplicate"},
			{`{"item":"teapot","id":"1","error":"2"}`, 422, "either id or error"},
			{`{"item":"teapot"}`, 404, "teapot"},
			{`{"item":"teapot","list":"users","id":"1"}`, 422, "#/list"},
			{`{"item":7,"id":"1"}`, 422, "#/item"},
			{`{"item":"teapot","id":"1","qty":0}`, 422, "#/qty"},
			{`{"list":"orders","ids":[]}`, 422, "users or widgets"},
			{`{"list":"users","ids":["ada",null]}`, 422, "#/ids"},
			{`{"product":"teapot","id":"1"}`, 422, "#/id"},
			{`{"item":"tea & pot","id":"1"} {"item"`, 422, "Object 2"},
			{`[]`, 422, "object"},
			{strings.Repeat(`{"item":"tea & pot","id":"1"}`, mostOutcomes), 422, "at most"},
			{`{"item":"` + strings.Repeat("x", mostOutcomeBytes), 413, "1 MiB"},
		} {
			status, _, answer := script.send("POST", OutcomesPath, []byte(row.body))
			if status != row.status || !strings.Contains(string(answer), row.says) ||
				status != 204 && !json.Valid(answer) {
				t.Errorf("%.100s is answered %d %s, want %d with %s", row.body, status, answer, row.status,
					row.says)
			}
		}
		if status, _, _ := script.send("GET", OutcomesPath, nil); status != 405 {
			t.Errorf("GET is answered %d, want 405", status)
		}
		w.shop.clients[1].store = nil // a program that the shop calls
		status, _ := script.report(map[string]any{"item": "kettle", "client": "c", "id": "1"})
		if status != 404 {
			t.Errorf("an outcome of a program is answered %d, want 404", status)
		}
		for range mostResults {
			script.send("POST", OutcomesPath, []byte(`{"item":"tea & pot","id":"1"}`))
		}
		if n := len(w.shop.clients[0].calls[0].Results); n != mostResults {
			t.Errorf("%d outcomes of an order are remembered, want %d", n, mostResults)
		}
		time.Sleep(time.Second) // in which net/http waits for a client whose body was too large
	})
}

// Whatever is reported, an outcome that is taken says one thing, and of which call.
func FuzzOutcomes(f *testing.F) {
	f.Add([]byte(`{"item":"teapot 7","qty":2,"id":"ord_1"}`))
	f.Add([]byte(`{"list":"users","ids":["ada"]}` + "\n" + `{"product":"teapot","error":"x","client":"c"}`))
	f.Add([]byte("item=teapot&qty=2&error=x&ids=1&ids=2"))
	f.Add([]byte(`{"item":null}{}[`))
	store := new(storefront.MemStore)
	f.Fuzz(func(t *testing.T, body []byte) {
		outcomes, faults := parseOutcomes(body)
		if (outcomes == nil) != (faults != nil) {
			t.Fatalf("%d outcomes and %v", len(outcomes), faults)
		}
		s := New(7, store)
		for _, o := range outcomes {
			if !json.Valid([]byte(o.ask())) || !slices.Contains(kinds, o.kind) || s.take(o, "c") == "" {
				t.Errorf("%s: %q", o.ask(), fmt.Sprint(o))
			}
		}
	})
}

// A client that was stalled for 10 seconds may have read what it kept before that.
func TestAnswerThatIsTooOldToBeUsed(t *testing.T) {
	for _, row := range []struct {
		control, age string
		delivery     conformance.Delivery
		after        time.Duration
		old          bool
	}{
		{"private, max-age=60", "", conformance.Whole, 65 * time.Second, false},
		{"max-age=60, private", "", conformance.Whole, 65 * time.Second, false},
		{"private, max-age=60", "", conformance.Whole, 75 * time.Second, true},
		{"private, max-age=60", "50", conformance.Whole, 15 * time.Second, false},
		{"private, max-age=60", "50", conformance.Whole, 25 * time.Second, true},
		{"private, max-age=60", "", conformance.CutBody, 0, true},
		{"private, max-age=60, no-cache", "", conformance.Whole, 0, true},
		{"private, max-age=60, no-store", "", conformance.Whole, 0, true},
		{"private", "", conformance.Whole, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := &conformance.Exchange{Ended: time.Now().Add(-row.after), Delivery: row.delivery}
			e.Answer.Header = http.Header{"Cache-Control": {row.control}, "Age": {row.age}}
			if old := tooOld(e); old != row.old {
				t.Errorf("%q, Age %q, %q, after %v: too old is %t", row.control, row.age, row.delivery,
					row.after, old)
			}
		})
	}
}
