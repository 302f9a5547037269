package storefront

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
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

// The orders of the scope "" are nobody's, so that there is no place to read one back.
func TestLocationIsWhereTheOrderIs(t *testing.T) {
	for _, scope := range []string{"ann", ""} {
		m := new(MemStore)
		h := NewWithOptions(m, &Options{Orders: m, Scope: func(*http.Request) string { return scope }})
		for range 2 { // the second one is a replay
			location, want := postOrder(h, "k", teapots).header.Get("Location"), ""
			if scope != "" {
				want = "orders/" + m.Orders()[0].ID
			}
			if location != want || want != "" && get(h, "/v1/"+location).status != 200 {
				t.Errorf("an order of the scope %q has the Location %q, want %q, which is read", scope, location, want)
			}
		}
	}
}

// A reader is asked for the scope of the request, never for nobody's or for an ID that no order has.
func TestWhatAReaderIsAsked(t *testing.T) {
	for target, want := range map[string]string{
		"/v1/orders":                                               `"ann" "" "" ""`,
		"/v1/orders?limit=1":                                       `"ann" "" "" ""`,
		"/v1/orders?idempotency_key=%22a%20b%22":                   `"ann" "" "" "a b"`,
		"/v1/orders?idempotency_key=k&limit=1":                     "",
		"/v1/orders/a%2Fb":                                         `"ann" "a/b" "" ""`,
		"/v1/orders/%00":                                           "",
		"/v1/orders/" + strings.Repeat("i", 256):                   "",
		"/v1/orders?limit=1&after=" + ordersList.encodeCursor("x"): `"ann" "" "x" ""`,
		"/v1/orders?idempotency_key=k&after=" + ordersList.encodeCursor("x"): "",
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

// A store keeps fields as they are, and a database's type for JSON does not: a replay has their value then, in
// the form of the service.
func TestStoresThatChangeFields(t *testing.T) {
	const sent, other = `{"b":[1.0,2e1],"a":"é"}`, `{"a":"é","b":[1.0,20]}`
	for _, row := range []struct {
		stored Fields
		id     string // "": the one that was proposed
		answer string // its fields; "": 500
	}{
		{sent, "", sent},
		{sent, "ord_1", sent},
		{other, "ord_1", other}, // of the first request, which was written in another way
		{other, "", ""},
		{"", "", ""},
		{"", "ord_1", ""},
		{`{"a": "é", "b": [1.0, 20]}`, "ord_1", other}, // as jsonb of PostgreSQL has it
		{"\n" + `{"b" :[1.0,2e1],"a":"\u00e9"}`, "ord_1", sent},
		{`{"a": "é", "b": [1.0, 20]}`, "", ""},
		{`{"a":"é","b":[1,3]}`, "ord_1", ""},
		{`{"a":"é","b":[1,20],"c":null}`, "ord_1", ""},
		{`{"a":"é","b":[1,20],"b":[1,20]}`, "ord_1", ""},
		{`{"a":"é","b":[1,20]`, "ord_1", ""},
		{`[]`, "ord_1", ""},
	} {
		store := &stubStore{createOrder: func(_ context.Context, _ IdempotencyKey, order Order) (Order, error) {
			order.Fields = row.stored
			if row.id != "" {
				order.ID = row.id
			}
			return order, nil
		}}
		h := NewWithOptions(store, &Options{OrderFields: true})
		got := postOrder(h, "k", `{"item":"teapot","qty":2,"fields":`+sent+`}`)
		want := fmt.Sprint("201 ", true)
		if row.answer == "" {
			want = fmt.Sprint("500 ", false)
		}
		answered := strings.Contains(got.body, `,"fields":`+row.answer+`,"created_at":`)
		if fmt.Sprint(got.status, " ", answered) != want {
			t.Errorf("%s, with the ID %q: %d %s, want the fields %q", row.stored, row.id, got.status, got.body, row.answer)
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
