package storefront

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What can be seen on the wire of fields and of orders that are read back is recorded in testdata/contract.

// A stubReader is an OrderReader made of a function.
type stubReader func(scope, id, after, key string) ([]Resource, error)

func (read stubReader) one(page []Resource, err error) (Resource, error) {
	if err != nil {
		return Resource{}, err
	}
	return page[0], nil
}

func (read stubReader) GetOrder(_ context.Context, scope, id string) (Resource, error) {
	return read.one(read(scope, id, "", ""))
}

func (read stubReader) ListOrders(_ context.Context, scope, after string, _ int) ([]Resource, error) {
	return read(scope, "", after, "")
}

func (read stubReader) GetOrderByKey(_ context.Context, scope, key string) (Resource, error) {
	return read.one(read(scope, "", "", key))
}

func TestReadersThatBreakTheirContract(t *testing.T) {
	for target, pages := range map[string][]string{
		"/v1/orders":                      {"a b", "b b", "b ?"},
		"/v1/orders?idempotency_key=k":    {"?"},
		"/v1/orders/b":                    {"a", "?", "B"},
		"/v1/orders?limit=3&after=AFTER":  {"c", "d", "b c"},
		"/v1/orders?limit=1":              {"panic"},
		"/v1/orders/panic":                {"panic"},
		"/v1/orders?idempotency_key=kkkk": {"panic"},
	} {
		target = strings.Replace(target, "AFTER", ordersList.encodeCursor("c"), 1)
		for _, page := range pages {
			read := stubReader(func(string, string, string, string) (orders []Resource, _ error) {
				for _, id := range strings.Fields(page) {
					switch id {
					case "panic":
						panic("storeSecret")
					case "?":
						orders = append(orders, Resource{})
					default:
						orders = append(orders, MustResource(id, nil))
					}
				}
				return orders, nil
			})
			var log syncBuffer
			h := NewWithOptions(new(MemStore), &Options{
				Orders: read, Scope: func(*http.Request) string { return "ann" },
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			get(h, target).wantProblem(t, 500, "internal-error")
			says := log.String()
			if !strings.Contains(says, "broke its contract") && !strings.Contains(says, "panicked") {
				t.Errorf("%s, answered with %q: the log has %s", target, page, says)
			}
		}
	}
}

// A reader is asked for the scope of the request, never for nobody's or for an ID that no order has.
func TestWhatAReaderIsAsked(t *testing.T) {
	for target, want := range map[string]string{
		"/v1/orders":                             `"ann" "" "" ""`,
		"/v1/orders?limit=1":                     `"ann" "" "" ""`,
		"/v1/orders?idempotency_key=%22a%20b%22": `"ann" "" "" "a b"`,
		"/v1/orders/a%2Fb":                       `"ann" "a/b" "" ""`,
		"/v1/orders/%00":                         "",
		"/v1/orders/" + strings.Repeat("i", 256): "",
		"/v1/orders?limit=1&after=" + ordersList.encodeCursor("x"): `"ann" "" "x" ""`,
	} {
		for scope, want := range map[string]string{"ann": want, "": ""} {
			asked := ""
			read := stubReader(func(scope, id, after, key string) ([]Resource, error) {
				asked = fmt.Sprintf("%q %q %q %q", scope, id, after, key)
				return nil, ErrNotFound
			})
			get(NewWithOptions(new(MemStore), &Options{
				Orders: read, Scope: func(*http.Request) string { return scope },
			}), target)
			if asked != want {
				t.Errorf("%s of the scope %q: asked for %s, want %s", target, scope, asked, want)
			}
		}
	}
}

// A store keeps fields as they are, and a database's type for JSON does not.
func TestStoresThatChangeFields(t *testing.T) {
	const sent = `{"b":[1.0,2],"a":"é"}`
	for _, row := range []struct {
		stored Fields
		id     string // "": the one that was proposed
		status int
	}{
		{sent, "", 201},
		{sent, "ord_1", 201},
		{`{"a":"é","b":[1,2]}`, "ord_1", 201}, // of the first request, which was written in another way
		{`{"a":"é","b":[1,2]}`, "", 500},
		{"", "", 500},
		{"", "ord_1", 500},
		{`{"a": "é", "b": [1, 2]}`, "ord_1", 500},
		{`{"a":"\u00e9","b":[1,2]}`, "ord_1", 500},
		{`{"a":"é","b":[1,3]}`, "ord_1", 500},
		{`{"a":"é","b":[1,2]`, "ord_1", 500},
		{`[]`, "ord_1", 500},
	} {
		store := &stubStore{createOrder: func(_ context.Context, _ IdempotencyKey, order Order) (Order, error) {
			order.Fields = row.stored
			if row.id != "" {
				order.ID = row.id
			}
			return order, nil
		}}
		h := NewWithOptions(store, &Options{OrderFields: true})
		body := `{"item":"teapot","qty":2,"fields":` + sent + `}`
		if got := postOrder(h, "k", body); got.status != row.status {
			t.Errorf("%s, with the ID %q: %d, want %d", row.stored, row.id, got.status, row.status)
		}
	}
}

func TestFieldsAreJSON(t *testing.T) {
	var o Order
	text := `{"id":"ord_1","item":"teapot","qty":2,"fields":{"b" : 1.0, "a":"\u00e9<"},` +
		`"created_at":"2026-11-20T20:52:11.250Z"}`
	const kept = `{"b":1.0,"a":"é<"}`
	if err := json.Unmarshal([]byte(text), &o); err != nil || o.Fields != kept {
		t.Errorf("%s is read as %s, %v, want %s", text, o.Fields, err, kept)
	}
	var again Order
	if b, err := o.MarshalJSON(); err != nil || json.Unmarshal(b, &again) != nil || !again.Equal(o) {
		t.Errorf("%v is written as %s, %v", o, b, err)
	}
	o.Fields = kept
	if err := json.Unmarshal([]byte(`{"fields":null}`), &o); err != nil || o.Fields != kept {
		t.Errorf("null is read as %s, %v, and should change nothing", o.Fields, err)
	}
	for _, bad := range []Fields{"[]", "{", `{"a":1,"a":2}`, `{},"x":{}`, "null", "2"} {
		if b, err := bad.MarshalJSON(); err == nil {
			t.Errorf("%s is written as %s", bad, b)
		}
		if b, err := (Order{ID: "ord_1", Fields: bad}).MarshalJSON(); err == nil {
			t.Errorf("an order with the fields %s is written as %s", bad, b)
		}
		if r, err := NewResource("ord_1", &Order{ID: "ord_1", Fields: bad}); err == nil {
			t.Errorf("an order with the fields %s is the Resource %s", bad, r)
		}
		if bad != "null" && json.Unmarshal([]byte(bad), new(Fields)) == nil {
			t.Errorf("%s is read", bad)
		}
	}
	order := Order{ID: "ord_1", Item: "teapot", Fields: ` { "b" : 1.0 }`}
	if r, err := NewResource("ord_1", order); err != nil || !strings.Contains(r.String(), `"fields":{"b":1.0},`) {
		t.Errorf("%v is the Resource %s, %v", order, r, err)
	}
	if r, err := NewResource("ord_1", (*Order)(nil)); err != nil || r.String() != `{"id":"ord_1"}` {
		t.Errorf("no order is the Resource %s, %v", r, err)
	}
	if b, err := Fields("").MarshalJSON(); string(b) != "null" || err != nil {
		t.Errorf("no fields are written as %s, %v", b, err)
	}
}

// Each kind of what does not follow the rules of a Refusal's faults is left out, and named in the log.
func TestFaultsOfARefusal(t *testing.T) {
	most := strings.Repeat("x", 1000)
	many := slices.Repeat([]Fault{{Detail: most}}, 200)
	for _, row := range []struct {
		refusal Refusal
		sent    string
		named   string
	}{
		{Refusal{Faults: []Fault{{Detail: "A", Pointer: "#/item"},
			{Detail: "B", Minimum: new(int64(0)), Maximum: new(int64(9))}}},
			"#/item:A :B[0,9]", ""},
		{Refusal{Detail: "D", Pointer: "#/fields", Faults: []Fault{{Detail: "A", Pointer: "#/fields/a/0/~0~1%20é"}}},
			"#/fields:D :A", "Faults[0].Pointer"},
		{Refusal{Faults: []Fault{{Detail: "A", Pointer: "#/fields/a~1b/0/%C3%A9"}}}, "#/fields/a~1b/0/%C3%A9:A", ""},
		{Refusal{Faults: []Fault{{Detail: "A", Pointer: "#/fields/a~2"}, {Detail: "B", Pointer: "#/fields/%zz"},
			{Detail: "C", Pointer: "#/fieldsx"}, {Detail: "D", Pointer: "#/id"}, {Detail: "E", Pointer: "#/fields/%ff"},
			{Detail: "F", Pointer: "#/fields/" + strings.Repeat("a", 2048)}}},
			":A :B :C :D :E :F",
			"Faults[0].Pointer Faults[1].Pointer Faults[2].Pointer Faults[3].Pointer Faults[4].Pointer " +
				"Faults[5].Pointer"},
		{Refusal{Faults: []Fault{{Detail: "\n"}, {Pointer: "#/qty"}, {Detail: "A", Header: "X", Parameter: "p"}}},
			":A", "Faults[0].Detail Faults[2].Parameter Faults[2].Header"},
	} {
		h, log := logged(failing(&row.refusal))
		var sent []string
		before := fmt.Sprintf("%v", row.refusal)
		for _, f := range postOrder(h, "k", teapots).wantProblem(t, 422, "order-refused").Errors {
			text := f.Pointer + ":" + f.Detail
			if f.Minimum != nil {
				text += fmt.Sprintf("[%d,%d]", *f.Minimum, *f.Maximum)
			}
			sent = append(sent, text)
		}
		if got := strings.Join(sent, " "); got != row.sent {
			t.Errorf("%v: %q is sent, want %q", row.refusal, got, row.sent)
		}
		for _, name := range strings.Fields(row.named) {
			if !strings.Contains(log.String(), `"`+name+`"`) {
				t.Errorf("%v: the log does not name %s: %s", row.refusal, name, log)
			}
		}
		if after := fmt.Sprintf("%v", row.refusal); before != after {
			t.Errorf("the store's refusal has become %s", after)
		}
	}
	h, _ := logged(failing(&Refusal{Detail: strings.Repeat(`"`, 1000), Pointer: "#/item", Faults: many}))
	if got := postOrder(h, "k", teapots); len(got.body) > 16<<10 {
		t.Errorf("200 faults of 1,000 bytes are answered with %d bytes", len(got.body))
	}
}

func TestResourceWith(t *testing.T) {
	r := MustResource("ord_1", map[string]any{"item": "teapot", "qty": 2})
	for _, row := range []struct {
		fields any
		want   string // "": an error
	}{
		{nil, `{"id":"ord_1","item":"teapot","qty":2}`},
		{map[string]any{"state": "sent"}, `{"id":"ord_1","item":"teapot","qty":2,"state":"sent"}`},
		{map[string]any{"qty": 3, "id": "ord_1"}, `{"id":"ord_1","item":"teapot","qty":3}`},
		{map[string]any{"id": "ord_2"}, ""},
		{[]int{1}, ""},
		{func() {}, ""},
		{map[string]string{"a": "\uffff"}, ""},
	} {
		got, err := r.With(row.fields)
		if got.String() != row.want || (err == nil) != (row.want != "") {
			t.Errorf("with %v: %v, %v, want %s", row.fields, got, err, row.want)
		}
		var same Resource
		if err == nil && (json.Unmarshal([]byte(row.want), &same) != nil || got != same) {
			t.Errorf("with %v: it is not the resource of its text", row.fields)
		}
	}
	if got, err := (Resource{}).With(nil); err == nil {
		t.Errorf("the zero Resource with nothing: %v", got)
	}
}

func TestMemStoreReadsBackWhatItHas(t *testing.T) {
	var m MemStore
	create := func(scope, key, id string) {
		t.Helper()
		k := IdempotencyKey{Scope: scope, Value: key}
		if _, err := m.CreateOrder(t.Context(), k, Order{ID: id, Item: "teapot", Qty: 1}); err != nil {
			t.Fatal(err)
		}
	}
	page := func(scope, after string, limit int) (ids []string) {
		t.Helper()
		orders, err := m.ListOrders(t.Context(), scope, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range orders {
			ids = append(ids, o.ID())
		}
		return ids
	}
	create("ann", "1", "b")
	create("bob", "1", "a")
	create("ann", "2", "d")
	if diff := cmp.Diff([]string{"d", "b"}, page("ann", "", 9)); diff != "" {
		t.Error(diff)
	}
	create("ann", "3", "c") // between two that are there, after the first read
	for after, want := range map[string][]string{
		"": {"d", "c"}, "d": {"c", "b"}, "c": {"b"}, "bb": {"b"}, "a": nil} {
		if diff := cmp.Diff(want, page("ann", after, 2)); diff != "" {
			t.Errorf("after %q: %s", after, diff)
		}
	}
	if _, err := m.GetOrder(t.Context(), "ann", "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an order of bob's, for ann: %v", err)
	}
	if o, err := m.GetOrderByKey(t.Context(), "bob", "1"); err != nil || o.ID() != "a" {
		t.Errorf("by key: %v, %v", o, err)
	}
}
