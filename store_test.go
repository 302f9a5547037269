package storefront

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront/internal/must"
)

func TestNewResource(t *testing.T) {
	type price struct {
		Amount string `json:"amount"`
		Note   string `json:"note,omitempty"`
	}
	for _, row := range []struct {
		name   string
		id     string
		fields any
		want   string
	}{
		{"nil", "a", nil, `{"id":"a"}`},
		{"null", "a", json.RawMessage(`null`), `{"id":"a"}`},
		{"struct", "a", price{Amount: "1.50"}, `{"id":"a","amount":"1.50"}`},
		{"map", "a", map[string]any{"z": 1, "b": []int{2}}, `{"id":"a","b":[2],"z":1}`},
		{"raw text in its own order", "a", json.RawMessage("{ \"z\" : 1.0 ,\n\"b\":{\t} }"),
			`{"id":"a","z":1.0,"b":{}}`},
		{"white space in strings", "a b", json.RawMessage("{\r\n\t\"x\" : {\" y \" : [ \" z \\\" ] \" ] } }\n"),
			`{"id":"a b","x":{" y ":[" z \" ] "]}}`},
		{"strings rendered anew", "a", json.RawMessage(`{"\u006e":["\u00e9\/"]}`), `{"id":"a","n":["é/"]}`},
		{"another Resource", "a", MustResource("a", price{Amount: "1"}),
			`{"id":"a","amount":"1"}`},
		{"same id first", "a", json.RawMessage(`{"id":"a","x":1}`), `{"id":"a","x":1}`},
		{"same id last", "a", json.RawMessage(`{"x":1,"id":"a"}`), `{"id":"a","x":1}`},
		{"same id in the middle", "a", json.RawMessage(`{"x":1,"id":"a","y":2}`), `{"id":"a","x":1,"y":2}`},
		{"other case of id", "a", json.RawMessage(`{"ID":"b","Id":7}`),
			`{"id":"a","ID":"b","Id":7}`},
		{"id further in", "a", json.RawMessage(`{"of":{"id":7}}`),
			`{"id":"a","of":{"id":7}}`},
		{"ID with a quote and a backslash", `"\`, nil, `{"id":"\"\\"}`},
		{"ID of 255 bytes", strings.Repeat("é", 127) + "x", nil, `{"id":"` + strings.Repeat("é", 127) +
			`x"}`},
		{"ID with U+FFFD", "\uFFFD", nil, "{\"id\":\"\uFFFD\"}"},
		{"ID of a space", " ", nil, `{"id":" "}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := NewResource(row.id, row.fields)
			if err != nil || r.String() != row.want || r.ID() != row.id {
				t.Errorf("got %s with the ID %q and the error %v, want %s", r, r.ID(), err, row.want)
			}
			var again Resource
			if err := again.UnmarshalJSON([]byte(row.want)); err != nil || !again.Equal(r) ||
				again.ETag() != r.ETag() || again.ID() != row.id {
				t.Errorf("what it renders to is read as %v with the error %v", again, err)
			}
		})
	}
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	type hasID struct {
		ID string `json:"id"`
	}
	for _, bad := range []struct {
		id     string
		fields any
	}{
		{"a", raw(`{"id":"b"}`)}, {"a", hasID{"b"}}, {"1", raw(`{"id":1}`)},
		{"a", raw(`{"id":"a","id":"a"}`)},
		{"a", []int{1}}, {"a", 1}, {"a", Resource{}}, {"a", map[string]any{"c": make(chan int)}},
		{"a", raw(`{"x":}`)}, {"a", raw(`{"x":1,"x":1}`)}, {"a", raw("{\"x\":\"\xff\"}")},
		{"", nil}, {"", raw(`{"id":"a"}`)}, {strings.Repeat("é", 128), nil},
		{"a", raw(`{"id":"` + strings.Repeat("a", 257) + `"}`)}, // whose low byte is 1
		{"a\xff", nil}, {"a\x00", nil}, {"a\nb", nil}, {"\u0085", nil}, {"\ufffe", nil},
	} {
		r, err := NewResource(bad.id, bad.fields)
		if err == nil || !strings.HasPrefix(err.Error(), "storefront: ") || r != (Resource{}) {
			t.Errorf("%q, %v: got %v and the error %v, want none and one", bad.id, bad.fields, r, err)
		}
	}
}

func TestMustResourcePanicsWhereNewResourceFails(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "missing or empty") {
			t.Errorf("got %v, want NewResource's error", err)
		}
	}()
	MustResource("", nil)
}

func TestZeroResource(t *testing.T) {
	var zero Resource
	if zero.ID() != "" || zero.String() != "" || zero.ETag() != "" {
		t.Errorf("it has the ID %q, the text %q and the tag %q", zero.ID(), zero, zero.ETag())
	}
	if !zero.Equal(Resource{}) || zero.Equal(MustResource("a", nil)) || MustResource("a", nil).Equal(zero) {
		t.Error("it must equal itself alone")
	}
	if text, err := json.Marshal([]Resource{zero}); err == nil {
		t.Errorf("it is rendered as %s", text)
	}
}

func TestResourceEqual(t *testing.T) {
	a := MustResource("a", map[string]any{"x": 1})
	for other, want := range map[Resource]bool{
		MustResource("a", json.RawMessage(`{ "id":"a", "x":1 }`)): true,
		MustResource("b", map[string]any{"x": 1}):                 false,
		MustResource("a", map[string]any{"x": 2}):                 false,
		MustResource("a", json.RawMessage(`{"x":1.0}`)):           false, // other bytes of the same value
	} {
		if a.Equal(other) != want || other.Equal(a) != want || (a.ETag() == other.ETag()) != want {
			t.Errorf("%v and %v: want equal %t", a, other, want)
		}
	}
}

func TestResourceIsImmutable(t *testing.T) {
	const want = `{"id":"a","x":"yyyy"}`
	given, text := []byte(want), []byte(want)
	made := MustResource("a", json.RawMessage(given))
	var read Resource
	must.OK(t, read.UnmarshalJSON(text))
	rendered := must.Get(made.MarshalJSON())(t)
	copied := read
	for _, bad := range []string{`null`, `["id"]`, `{"id":"\n"}`, "\ufeff{\"id\":\"a\"}"} {
		if err := read.UnmarshalJSON([]byte(bad)); err == nil || !read.Equal(copied) {
			t.Errorf("after %s it is %v, with the error %v", bad, read, err)
		}
	}
	must.OK(t, read.UnmarshalJSON([]byte(`{"id":"b"}`)))
	for _, written := range [][]byte{given, text, append(rendered, "more"...), rendered} {
		for i := range written { // all of which are the caller's
			written[i] = '!'
		}
	}
	for name, r := range map[string]Resource{"what NewResource made": made,
		"the copy of what UnmarshalJSON read": copied} {
		if text, err := r.MarshalJSON(); string(text) != want || err != nil || r.ID() != "a" {
			t.Errorf("%s has become %s with the ID %q: %v", name, text, r.ID(), err)
		}
	}
}

func TestPutOfTheZeroResourcePanicsAndChangesNothing(t *testing.T) {
	var c Collection
	func() {
		defer func() {
			if v := recover(); v != "storefront: Put of the zero Resource" {
				t.Errorf("panic %v", v)
			}
		}()
		c.Put(MustResource("b", nil), Resource{})
	}()
	if c.Put(MustResource("c", nil)); idsOf(&c) != "c" { // is not locked out
		t.Errorf("the collection has %s, want c", idsOf(&c))
	}
}

// A reader that waited for the lock would wait for ever.
func TestReadersDoNotWaitForOrders(t *testing.T) {
	var m MemStore
	for _, c := range []*Collection{&m.Users, &m.Products, &m.Widgets} {
		c.Put(MustResource("a", nil))
	}
	m.lock.Acquire(t.Context())
	defer m.lock.Release()
	users, _ := m.ListUsers(t.Context(), "", 9)
	widgets, _ := m.ListWidgets(t.Context(), "", 9)
	product, _ := m.GetProduct(t.Context(), "a")
	if len(users) != 1 || len(widgets) != 1 || product.ID() != "a" || idsOf(&m.Users) != "a" {
		t.Errorf("got %v, %v, %v and %s, want the one resource", users, widgets, product, idsOf(&m.Users))
	}
}

func TestWhoWaitsForAnOrderMayLeave(t *testing.T) {
	var m MemStore
	m.lock.Acquire(t.Context())
	defer m.lock.Release()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, created := m.CreateOrder(gone, IdempotencyKey{}, Order{})
	_, byID := m.GetOrder(gone, "ann", "ord_1")
	_, byKey := m.GetOrderByKey(gone, "ann", "k")
	_, list := m.ListOrders(gone, "ann", "", 9)
	for _, err := range []error{created, byID, byKey, list} {
		if err != context.Canceled {
			t.Errorf("a call that was cancelled returned %v", err)
		}
	}
}

func idsOf(c *Collection) string {
	var ids []string
	for r := range c.All() {
		ids = append(ids, r.ID())
	}
	return strings.Join(ids, " ")
}

func TestOrdersReturnsACopyInTheSequenceOfCreation(t *testing.T) {
	var m MemStore
	var want []Order
	for i := range 3 * ordersPerBlock {
		order := Order{ID: fmt.Sprint("ord_", i), Item: "teapot", Qty: int64(i),
			CreatedAt: time.Unix(int64(i), 0)}
		must.Get(m.CreateOrder(t.Context(), IdempotencyKey{Value: order.ID}, order))(t)
		want = append(want, order)
	}
	orders := m.Orders()
	orders[0].ID = "changed"
	_ = append(orders[:1], Order{ID: "appended"})
	if diff := cmp.Diff(want, m.Orders()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMemStoreRemembersAKeyForItsLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day, keys = 24 * time.Hour, 3 * ordersPerBlock // one a minute
		pause := 29 * time.Second
		m := MemStore{Accept: func(context.Context, IdempotencyKey, Order) error {
			time.Sleep(pause)
			return nil
		}}
		create := func(key int, id string) string {
			got := must.Get(m.CreateOrder(t.Context(), IdempotencyKey{Value: strconv.Itoa(key)}, Order{ID: id}))(t)
			return got.ID
		}
		for i := range keys {
			create(i, fmt.Sprint("first ", i))
			time.Sleep(time.Minute - pause)
		}
		// The first key is of the day before, to the nanosecond: it lives from the end of Accept.
		time.Sleep(day - keys*time.Minute + pause)
		pause = 0
		for i := range keys {
			if got, want := create(i, "second"), fmt.Sprint("first ", i); got != want {
				t.Errorf("a key of a day ago or less has the order %s, want %s", got, want)
			}
		}
		time.Sleep(time.Hour + 1) // and no replay has prolonged its lifetime
		for i := range keys {
			want := fmt.Sprint("first ", i)
			if i <= 60 {
				want = "third"
			}
			if got := create(i, "third"); got != want {
				t.Errorf("the key of minute %d has the order %s, want %s", i, got, want)
			}
		}
		if len(m.keys) != keys {
			t.Errorf("%d keys are remembered, want %d", len(m.keys), keys)
		}
		time.Sleep(day + 1)
		create(keys, "last") // has all the others forgotten, however many
		if len(m.keys) != 1 || len(m.Orders()) != keys+61+1 {
			t.Errorf("%d keys and %d orders, want 1 and %d", len(m.keys), len(m.Orders()), keys+61+1)
		}
	})
}

func TestAccept(t *testing.T) {
	key := func(value string) IdempotencyKey { return IdempotencyKey{Value: value} }
	order := func(id string) Order { return Order{ID: id, Item: "teapot", Qty: 1} }
	t.Run("may use the collections", func(t *testing.T) {
		m := oldStore()
		m.Accept = func(_ context.Context, _ IdempotencyKey, o Order) error {
			if _, ok := m.Products.Get("old"); !ok {
				return &Refusal{Reason: "no-such-item"}
			}
			m.Products.Delete("old")
			m.Widgets.Put(MustResource(o.ID, nil))
			return nil
		}
		_, first := m.CreateOrder(t.Context(), key("1"), order("ord_1"))
		_, second := m.CreateOrder(t.Context(), key("2"), order("ord_2"))
		if first != nil || !errors.As(second, new(*Refusal)) || idsOf(&m.Widgets) != "old ord_1" {
			t.Errorf("%v, %v, widgets %s, want one order and a Refusal", first, second, idsOf(&m.Widgets))
		}
	})
	t.Run("is called for one order at a time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			pieces := 1
			m := &MemStore{Accept: func(context.Context, IdempotencyKey, Order) error {
				if pieces == 0 {
					return &Refusal{Reason: "sold-out"}
				}
				time.Sleep(time.Second) // others would look meanwhile
				pieces--
				return nil
			}}
			var calls sync.WaitGroup
			for i := range 3 {
				calls.Go(func() { m.CreateOrder(t.Context(), key(fmt.Sprint(i)), order(fmt.Sprint("ord_", i))) })
			}
			calls.Wait()
			if len(m.Orders()) != 1 || pieces != 0 {
				t.Errorf("one piece was sold to %d, and %d are left", len(m.Orders()), pieces)
			}
		})
	})
	t.Run("that panics creates nothing and locks nobody out", func(t *testing.T) {
		fail := func() { panic("oops") }
		m := &MemStore{Accept: func(context.Context, IdempotencyKey, Order) error { fail(); return nil }}
		synctest.Test(t, func(t *testing.T) { // which tells a caller that is locked out at once
			postOrder(quiet(m), "k", teapots).wantProblem(t, 500, "internal-error")
			fail = func() {}
			if r := postOrder(quiet(m), "k", teapots); r.status != 201 || len(m.Orders()) != 1 {
				t.Errorf("status %d with %d orders, want 201 with one", r.status, len(m.Orders()))
			}
		})
	})
}

func TestLoad(t *testing.T) {
	for _, row := range []struct{ text, users, products, widgets string }{
		{`{"users":[{"id":"u"}],"products":[{"id":"q"},{"id":"p"}],"widgets":[{"id":"w"}]}`, "old u",
			"old p q", "old w"},
		{`{"widgets":[{"id":"w"}]}`, "old", "old", "old w"},
		{`{}`, "old", "old", "old"},
		{`{"users":[]}`, "old", "old", "old"},
		{" \r\n\t{ \"users\" : [ { \"id\" : \"u\" } ] } \n ", "old u", "old", "old"},
		{`{"users":[{"id":"x"}],"widgets":[{"id":"x"}]}`, "old x", "old", "old x"},
	} {
		m := oldStore()
		must.OK(t, m.Load(strings.NewReader(row.text)))
		if idsOf(&m.Users) != row.users || idsOf(&m.Products) != row.products ||
			idsOf(&m.Widgets) != row.widgets {
			t.Errorf("after %s: %s, %s and %s", row.text, idsOf(&m.Users), idsOf(&m.Products),
				idsOf(&m.Widgets))
		}
	}
	m := oldStore()
	must.OK(t, m.Load(strings.NewReader(`{"products":[{"new":true,"id":"old"}]}`)))
	if got, _ := m.Products.Get("old"); got.String() != `{"id":"old","new":true}` {
		t.Errorf("a resource of the same ID is replaced by %s", got)
	}
}

func oldStore() *MemStore {
	m := new(MemStore)
	for _, c := range []*Collection{&m.Users, &m.Products, &m.Widgets} {
		c.Put(MustResource("old", map[string]any{"old": true}))
	}
	return m
}

func TestLoadOfABadFileNamesThePlaceAndChangesNothing(t *testing.T) {
	const good = `{"users":[{"id":"new"},{"id":"old"}],`
	for _, row := range []struct {
		name, text string
		says       []string
	}{
		{"empty", ``, []string{"line 1, column 1", "unexpected end"}},
		{"array", `[{"id":"a"}]`, []string{"not a JSON object"}},
		{"unknown collection", good + `"orders":[]}`, []string{`"orders"`, "users, products and widgets"}},
		{"collection in another case", good + `"Products":[]}`, []string{`"Products"`}},
		{"collection twice", good + `"users":[]}`, []string{"users", "duplicate"}},
		{"collection is an object", good + `"products":{"id":"a"}}`, []string{"products", "not an array"}},
		{"resource is null", good + `"products":[{"id":"a"},null]}`,
			[]string{"products[1]", "not a JSON object"}},
		{"no id", good + `"products":[{"id":"a"},{"name":"x"}]}`, []string{"products[1]", "ID is missing"}},
		{"id is not a string", good + `"widgets":[{"id":1}]}`,
			[]string{"widgets[0]", `"id" is not a string`}},
		{"id has a control character", good + `"widgets":[{"id":"\n"}]}`,
			[]string{"widgets[0]", "control character"}},
		{"id is longer, and its low byte is not", good + `"widgets":[{"id":"` + strings.Repeat("x", 300) +
			`"}]}`, []string{"widgets[0]", "300 bytes"}},
		{"ID twice", good + `"products":[{"id":"a"},{"id":"b"},{"id":"a","x":1}]}`,
			[]string{"products[2]", `"a"`, "[0]"}},
		{"member twice", good + `"products":[{"id":"a","x":{"y":1,"y":2}}]}`,
			[]string{"products[0]", "#/x/y", "duplicate"}},
		{"syntax in a resource", good + `"products":[{"id":"a"},{"id":"b",}]}`,
			[]string{"line 1, column 71", "invalid character '}'"}},
		{"in a later line", "{\n\t\"users\": [\n\t\t{\"id\": \"a\"},\n\t\t{\"id\": oops}\n\t]\n}",
			[]string{"line 4, column 10", "invalid character 'o'"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := oldStore()
			wantLoadToFail(t, m, iotest.OneByteReader(strings.NewReader(row.text)), row.says...)
		})
	}
}

func TestLoadReturnsTheErrorOfItsReader(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, text := range []string{"", `{"users": [{"id": "new"}`, `{"users": [{"id": "new"}]}`} {
		r := io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken))
		if err := wantLoadToFail(t, oldStore(), r); !errors.Is(err, broken) {
			t.Errorf("after %s: error %v, want that of the reader", text, err)
		}
	}
}

// wantLoadToFail checks the error that it returns, and that m is an oldStore.
func wantLoadToFail(t *testing.T, m *MemStore, r io.Reader, says ...string) error {
	t.Helper()
	err := m.Load(r)
	if err == nil || !strings.HasPrefix(err.Error(), "storefront: load: ") {
		t.Fatalf("error %v, want one of loading", err)
	}
	for _, what := range says {
		if !strings.Contains(err.Error(), what) {
			t.Errorf("the error does not say %s: %v", what, err)
		}
	}
	for name, c := range map[string]*Collection{"users": &m.Users, "products": &m.Products,
		"widgets": &m.Widgets} {
		if r, _ := c.Get("old"); r.String() != `{"id":"old","old":true}` || idsOf(c) != "old" {
			t.Errorf("%s has become %s with %v", name, idsOf(c), r)
		}
	}
	return err
}

// A text that is taken for rendered must be the text that rendering makes of it.
func FuzzCanonicalResource(f *testing.F) {
	for _, text := range []string{
		`{"id":"a"}`, `{"id":"a","x":[1,-2.5e+3,{"y":null,"z":""}],"t":true,"f":false}`, `{"id":"ä 😀"}`,
		`{"id":"a","b":"\u0000"}`, `{"id":"a","x":1,"x":2}`, `{"id":"a","x":01}`, `{"id":"a","x":1.}`,
		`{"id":"a","x":-}`, `{"id":"a","x":1e}`, `{"id":"a","x":[1,]}`, `{"id":"a",}`, `{"id":"a"}x`,
		`{"id":"a" }`, `{"id":"a","x":nul}`, `{"id":""}`, `{"id":"\u007f"}`, "{\"id\":\"\u2028\"}",
		"{\"id\":\"a\",\"x\":\"\ufdd0\"}", "{\"id\":\"a\",\"x\":\"\xff\"}", "{\"id\":\"a\",\"x\":\"\n\"}",
		`{"id":"a","x":{"id":"b"}}`, `{"x":1,"id":"a"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := renderResource("", text)
		// White space at the end makes it take the long way.
		long, longErr := renderResource("", append(bytes.Clone(text), ' '))
		if (err == nil) != (longErr == nil) || !r.Equal(long) || r.ID() != long.ID() ||
			r.ETag() != long.ETag() {
			t.Errorf("%q is %v with the ID %q, and in the long way %v with the ID %q; %v; %v", text, r,
				r.ID(), long, long.ID(), err, longErr)
		}
		if err != nil {
			return
		}
		again, err := renderResource("", []byte(r.String()))
		if err != nil || !again.Equal(r) || again.ID() != r.ID() || again.ETag() != r.ETag() {
			t.Errorf("%v with the ID %q becomes %v with the ID %q: %v", r, r.ID(), again, again.ID(), err)
		}
	})
}
