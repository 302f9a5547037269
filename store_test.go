package storefront

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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
		want   string // "" for an error
	}{
		{"nil", "a", nil, `{"id":"a"}`},
		{"nil pointer", "a", (*price)(nil), `{"id":"a"}`},
		{"nil map", "a", map[string]any(nil), `{"id":"a"}`},
		{"null", "a", json.RawMessage(`null`), `{"id":"a"}`},
		{"empty object", "a", json.RawMessage(`{}`), `{"id":"a"}`},
		{"struct", "a", price{Amount: "1.50"}, `{"id":"a","amount":"1.50"}`},
		{"pointer", "a", &price{Amount: "1", Note: "n"}, `{"id":"a","amount":"1","note":"n"}`},
		{"map", "a", map[string]any{"z": 1, "b": []int{2}}, `{"id":"a","b":[2],"z":1}`},
		{"raw text in its own order", "a", json.RawMessage("{ \"z\" : 1.0 ,\n\"b\":{\t} }"), `{"id":"a","z":1.0,"b":{}}`},
		{"number as it was written", "a", json.RawMessage(`{"n":1.50e+2}`), `{"id":"a","n":1.50e+2}`},
		{"strings rendered anew", "a", json.RawMessage(`{"\u006e":["\u00e9\/"]}`), `{"id":"a","n":["é/"]}`},
		{"no HTML escaping", "<a>&", map[string]string{"<": "&>"}, `{"id":"<a>&","<":"&>"}`},
		{"another Resource of this ID", "a", MustResource("a", price{Amount: "1"}), `{"id":"a","amount":"1"}`},
		{"same id first", "a", json.RawMessage(`{"id":"a","x":1}`), `{"id":"a","x":1}`},
		{"same id last", "a", json.RawMessage(`{"x":1,"id":"a"}`), `{"id":"a","x":1}`},
		{"same id in the middle", "a", json.RawMessage(`{"x":1,"id":"a","y":2}`), `{"id":"a","x":1,"y":2}`},
		{"same id, escaped", "a", json.RawMessage(`{"i\u0064":"\u0061","x":1}`), `{"id":"a","x":1}`},
		{"other case of id is another member", "a", json.RawMessage(`{"ID":"b","Id":7}`), `{"id":"a","ID":"b","Id":7}`},
		{"id further in is another member", "a", json.RawMessage(`{"of":{"id":7}}`), `{"id":"a","of":{"id":7}}`},
		{"same name in two objects", "a", json.RawMessage(`{"x":{"n":1},"y":{"n":1}}`), `{"id":"a","x":{"n":1},"y":{"n":1}}`},
		{"surrogate pair", "a", json.RawMessage(`{"x":"\ud83d\uDE00"}`), `{"id":"a","x":"😀"}`},
		{"escaped backslash before u", "a", json.RawMessage(`{"x":"\\ud800"}`), `{"id":"a","x":"\\ud800"}`},
		{"ID of another script", "日本", nil, `{"id":"日本"}`},
		{"ID with a quote and a backslash", `"\`, nil, `{"id":"\"\\"}`},
		{"ID of 255 bytes", strings.Repeat("é", 127) + "x", nil, `{"id":"` + strings.Repeat("é", 127) + `x"}`},
		{"ID with U+FFFD", "\uFFFD", nil, "{\"id\":\"\uFFFD\"}"},
		{"ID of a space", " ", nil, `{"id":" "}`},

		{"other id", "a", json.RawMessage(`{"id":"b"}`), ""},
		{"id of a struct", "a", struct {
			ID string `json:"id"`
		}{"b"}, ""},
		{"empty id", "a", json.RawMessage(`{"id":""}`), ""},
		{"id is a number", "1", json.RawMessage(`{"id":1}`), ""},
		{"id is null", "a", json.RawMessage(`{"id":null}`), ""},
		{"id twice", "a", json.RawMessage(`{"id":"a","id":"a"}`), ""},
		{"array", "a", []int{1}, ""},
		{"string", "a", "text", ""},
		{"number", "a", 1, ""},
		{"bool", "a", json.RawMessage(`true`), ""},
		{"zero Resource", "a", Resource{}, ""},
		{"what JSON cannot say", "a", map[string]any{"c": make(chan int)}, ""},
		{"malformed raw text", "a", json.RawMessage(`{"x":}`), ""},
		{"empty raw text", "a", json.RawMessage(``), ""},
		{"two values", "a", json.RawMessage(`{}{}`), ""},
		{"member twice", "a", json.RawMessage(`{"x":1,"x":1}`), ""},
		{"member twice, once escaped", "a", json.RawMessage(`{"x":1,"\u0078":1}`), ""},
		{"member twice further in", "a", json.RawMessage(`{"x":[{"y":1,"y":2}]}`), ""},
		{"lone high surrogate", "a", json.RawMessage(`{"x":"\ud800"}`), ""},
		{"lone low surrogate", "a", json.RawMessage(`{"x":"\udc00"}`), ""},
		{"surrogates in the wrong order", "a", json.RawMessage(`{"x":"\udc00\ud800"}`), ""},
		{"lone surrogate in a name", "a", json.RawMessage(`{"\ud800":1}`), ""},
		{"noncharacter", "a", map[string]any{"x": "\uffff"}, ""},
		{"escaped noncharacter", "a", json.RawMessage(`{"x":"\ufdd0"}`), ""},
		{"noncharacter beyond the BMP", "a", json.RawMessage(`{"x":"\ud83f\udffe"}`), ""},
		{"invalid UTF-8", "a", json.RawMessage("{\"x\":\"\xff\"}"), ""},
		{"invalid UTF-8 in a name", "a", json.RawMessage("{\"\xc3\":1}"), ""},

		{"no ID", "", nil, ""},
		{"no ID, but a member", "", json.RawMessage(`{"id":"a"}`), ""},
		{"ID of 256 bytes", strings.Repeat("é", 128), nil, ""},
		{"a member id of 257 bytes, whose low byte is 1", "a", json.RawMessage(`{"id":"` + strings.Repeat("a", 257) + `"}`), ""},
		{"ID with invalid UTF-8", "a\xff", nil, ""},
		{"ID with an encoded surrogate", "\xed\xa0\x80", nil, ""},
		{"ID with NUL", "a\x00", nil, ""},
		{"ID with a line feed", "a\nb", nil, ""},
		{"ID with DEL", "\x7f", nil, ""},
		{"ID with a C1 control", "\u0085", nil, ""},
		{"ID with a noncharacter", "\ufffe", nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := NewResource(row.id, row.fields)
			if row.want == "" {
				if err == nil || !strings.HasPrefix(err.Error(), "storefront: ") || r != (Resource{}) {
					t.Errorf("got %v and the error %v, want the zero Resource and one of storefront", r, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.String() != row.want || r.ID() != row.id {
				t.Errorf("got %s with the ID %q, want %s", r, r.ID(), row.want)
			}
			var again Resource
			if err := again.UnmarshalJSON([]byte(row.want)); err != nil || !again.Equal(r) || again.ETag() != r.ETag() || again.ID() != row.id {
				t.Errorf("what it renders to is read as %v with the error %v", again, err)
			}
		})
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

func TestResourceJSON(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"compact", `{"id":"a","x":[1,2]}`, `{"id":"a","x":[1,2]}`},
		{"spread out", " {\r\n\t\"x\" : [ 1 , 2 ] ,\n\"id\" : \"a\" } \n", `{"id":"a","x":[1,2]}`},
		{"spaces in strings", `{"id":"a b", "x" : {" y " : [ " z \" ] " , true ] } }`, `{"id":"a b","x":{" y ":[" z \" ] ",true]}}`},
		{"HTML", `{"id":"<&>"}`, `{"id":"<&>"}`},
		{"line separator", "{\"id\":\"\u2028\"}", "{\"id\":\"\\u2028\"}"},
		{"null", `null`, ""},
		{"no id", `{"x":1}`, ""},
		{"id is not a string", `{"id":1}`, ""},
		{"bad id", `{"id":"\n"}`, ""},
		{"not an object", `["id"]`, ""},
		{"member twice", `{"id":"a","x":1,"x":2}`, ""},
		{"BOM", "\ufeff{\"id\":\"a\"}", ""},
		{"malformed", `{"id":"a"`, ""},
		{"nothing", ``, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := MustResource("before", nil)
			r := before
			err := r.UnmarshalJSON([]byte(row.text))
			if row.want == "" {
				if err == nil || !r.Equal(before) {
					t.Errorf("got %v and the error %v, want an error and no change", r, err)
				}
				return
			}
			if err != nil || r.String() != row.want {
				t.Errorf("got %v and the error %v, want %s", r, err, row.want)
			}
		})
	}
}

func TestResourceInsideOtherJSON(t *testing.T) {
	type page struct {
		Items []Resource           `json:"items"`
		ByID  map[string]*Resource `json:"by_id"`
	}
	pageOf := func(b Resource) page {
		return page{[]Resource{MustResource("a", nil), b}, map[string]*Resource{"b": &b}}
	}
	text, err := json.MarshalIndent(pageOf(MustResource("b", map[string]any{"x": "<"})), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var got page
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	// json.Marshal writes < as an escape, which is another rendering.
	want := pageOf(MustResource("b", json.RawMessage(`{"x":"\u003c"}`)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestResourceEqual(t *testing.T) {
	a := MustResource("a", map[string]any{"x": 1})
	for _, row := range []struct {
		name  string
		other Resource
		want  bool
	}{
		{"itself", a, true},
		{"made in another way", MustResource("a", json.RawMessage(`{ "id":"a", "x":1 }`)), true},
		{"other ID", MustResource("b", map[string]any{"x": 1}), false},
		{"other value", MustResource("a", map[string]any{"x": 2}), false},
		{"other bytes of the same value", MustResource("a", json.RawMessage(`{"x":1.0}`)), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if a.Equal(row.other) != row.want || row.other.Equal(a) != row.want {
				t.Errorf("%v and %v: want equal %t", a, row.other, row.want)
			}
			if (a.ETag() == row.other.ETag()) != row.want {
				t.Errorf("the tags are %s and %s", a.ETag(), row.other.ETag())
			}
		})
	}
}

// A tag that changed with a release would have every client read again.
func TestETagOfBytesIsForever(t *testing.T) {
	const want = `"MSqn6ktuDORMjvj1OdDjcA"`
	if got := MustResource("teapot", map[string]any{"price": "24.50"}).ETag(); got != want {
		t.Errorf("ETag %s, want %s", got, want)
	}
}

func TestResourceIsImmutable(t *testing.T) {
	const want = `{"id":"a","x":"yyyy"}`
	check := func(t *testing.T, r Resource, written []byte) {
		t.Helper()
		for i := range written {
			written[i] = '!'
		}
		if text, err := r.MarshalJSON(); string(text) != want || err != nil || r.ID() != "a" {
			t.Errorf("it has become %s with the ID %q: %v", text, r.ID(), err)
		}
	}
	t.Run("what MarshalJSON returned is the caller's", func(t *testing.T) {
		r := MustResource("a", json.RawMessage(want))
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		_ = append(text, "more"...)
		check(t, r, text)
	})
	t.Run("what NewResource was given is the caller's", func(t *testing.T) {
		fields := json.RawMessage(want)
		check(t, MustResource("a", fields), fields)
	})
	t.Run("what UnmarshalJSON was given is the caller's", func(t *testing.T) {
		data := []byte(want)
		var r Resource
		if err := r.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		check(t, r, data)
	})
	t.Run("UnmarshalJSON leaves copies alone", func(t *testing.T) {
		r := MustResource("a", json.RawMessage(want))
		first := r
		if err := r.UnmarshalJSON([]byte(`{"id":"b"}`)); err != nil {
			t.Fatal(err)
		}
		check(t, first, nil)
	})
}

func sameResources(a, b []Resource) bool { return slices.EqualFunc(a, b, Resource.Equal) }

func TestPutOfTheZeroResourcePanicsAndChangesNothing(t *testing.T) {
	var c Collection
	c.Put(MustResource("a", nil))
	func() {
		defer func() {
			if v := recover(); v != "storefront: Put of the zero Resource" {
				t.Errorf("panic %v", v)
			}
		}()
		c.Put(MustResource("b", nil), Resource{})
	}()
	c.Put(MustResource("c", nil)) // is not locked out
	want := []Resource{MustResource("a", nil), MustResource("c", nil)}
	if got := slices.Collect(c.All()); !sameResources(got, want) {
		t.Errorf("the collection has %v, want %v", got, want)
	}
}

// A reader that waited for the lock would wait for ever.
func TestReadersDoNotWaitForOrders(t *testing.T) {
	var m MemStore
	for _, c := range []*Collection{&m.Users, &m.Products, &m.Widgets} {
		c.Put(MustResource("a", nil))
	}
	turn, _ := m.enter(t.Context())
	defer m.leave(turn)
	users, _ := m.ListUsers(t.Context(), "", 9)
	widgets, _ := m.ListWidgets(t.Context(), "", 9)
	product, _ := m.GetProduct(t.Context(), "a")
	all := slices.Collect(m.Users.All())
	if len(users) != 1 || len(widgets) != 1 || product.ID() != "a" || len(all) != 1 {
		t.Errorf("got %v, %v, %v and %v, want the one resource", users, widgets, product, all)
	}
}

// In a bubble, time passes only while whoever waits for a turn waits on a channel.
func TestMemStoreCallersLeaveWhileAnotherTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := MemStore{Accept: func(context.Context, IdempotencyKey, Order) error {
			time.Sleep(time.Minute)
			return nil
		}}
		create := func(ctx context.Context, name string) error {
			_, err := m.CreateOrder(ctx, IdempotencyKey{Value: name}, Order{ID: name})
			return err
		}
		began := time.Now()
		first := make(chan error)
		go func() { first <- create(t.Context(), "first") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := create(ctx, "second"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("the call whose time was up returned %v after %v, want its deadline after 1s", err, time.Since(began))
		}
		if err := create(t.Context(), "third"); err != nil || time.Since(began) != 2*time.Minute {
			t.Errorf("the one that waited for its turn returned %v after %v", err, time.Since(began))
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		if orders := m.Orders(); len(orders) != 2 || orders[0].ID != "first" || orders[1].ID != "third" {
			t.Errorf("the orders are %v, want the first and the third", orders)
		}
	})
}

// As one that is given its channel by the first bubble that it is used in would.
func TestMemStoreGoesFromOneBubbleToAnother(t *testing.T) {
	m := MemStore{Accept: func(context.Context, IdempotencyKey, Order) error {
		time.Sleep(time.Minute)
		return nil
	}}
	for _, bubble := range []string{"a", "b"} {
		synctest.Test(t, func(t *testing.T) {
			for i := range 3 {
				name := fmt.Sprint(bubble, i)
				go m.CreateOrder(t.Context(), IdempotencyKey{Value: name}, Order{ID: name})
			}
			time.Sleep(time.Hour)
		})
		if got := len(m.Orders()); got != 3 && bubble == "a" || got != 6 && bubble == "b" {
			t.Errorf("%d orders after the bubble %s", got, bubble)
		}
	}
}

// A caller whose turn comes when its context is done has left.
func TestMemStoreCreatesNothingForACallerWhoLeft(t *testing.T) {
	var m MemStore
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // a select takes one of two that are ready
		if _, err := m.CreateOrder(ctx, IdempotencyKey{Value: "k"}, Order{ID: "ord_1"}); !errors.Is(err, context.Canceled) {
			t.Fatalf("CreateOrder returned %v", err)
		}
	}
	if orders := m.Orders(); len(orders) != 0 {
		t.Errorf("there are the orders %v", orders)
	}
}

func TestZeroMemStoreIsEmptyAndReady(t *testing.T) {
	var m MemStore
	if users, err := m.ListUsers(t.Context(), "", 1); len(users) != 0 || err != nil {
		t.Errorf("ListUsers: %v, %v", users, err)
	}
	if widgets, err := m.ListWidgets(t.Context(), "x", 1); len(widgets) != 0 || err != nil {
		t.Errorf("ListWidgets: %v, %v", widgets, err)
	}
	if _, err := m.GetProduct(t.Context(), "p"); !errors.Is(err, ErrNotFound) {
		t.Errorf("GetProduct: %v, want ErrNotFound", err)
	}
	if orders := m.Orders(); len(orders) != 0 {
		t.Errorf("Orders: %v", orders)
	}
	m.Users.Delete("x")
	order := Order{ID: "ord_1", Item: "teapot", Qty: 1, CreatedAt: time.Now()}
	if got, err := m.CreateOrder(t.Context(), IdempotencyKey{Value: "k"}, order); got != order || err != nil {
		t.Errorf("CreateOrder: %v, %v", got, err)
	}
}

func TestListPositions(t *testing.T) {
	var m MemStore
	for _, id := range []string{"a", "ab", "b", "d"} {
		m.Users.Put(MustResource(id, nil))
		m.Widgets.Put(MustResource(id, nil))
	}
	for _, row := range []struct {
		position       string
		limit          int
		users, widgets string
	}{
		{"", 9, "a ab b d", "a ab b d"},
		{"", 2, "a ab", "a ab"},
		{"a", 2, "ab b", "a ab"},
		{"aa", 2, "ab b", "ab b"},
		{"c", 9, "d", "d"}, // is gone and still a position
		{"d", 9, "", "d"},
		{"e", 9, "", ""},
	} {
		t.Run(fmt.Sprintf("%q %d", row.position, row.limit), func(t *testing.T) {
			users, err := m.ListUsers(t.Context(), row.position, row.limit)
			if got := joinIDs(users); got != row.users || err != nil {
				t.Errorf("users after: %s, want %s", got, row.users)
			}
			widgets, err := m.ListWidgets(t.Context(), row.position, row.limit)
			if got := joinIDs(widgets); got != row.widgets || err != nil {
				t.Errorf("widgets from: %s, want %s", got, row.widgets)
			}
			clear(users) // the slices are the caller's
			clear(widgets)
		})
	}
}

func joinIDs(resources []Resource) string {
	var ids []string
	for _, r := range resources {
		ids = append(ids, r.ID())
	}
	return strings.Join(ids, " ")
}

func TestMemStoreHonoursADoneContext(t *testing.T) {
	var m MemStore
	m.Products.Put(MustResource("p", nil))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, late} {
		for name, call := range map[string]func() error{
			"ListUsers":   func() error { _, err := m.ListUsers(ctx, "", 1); return err },
			"ListWidgets": func() error { _, err := m.ListWidgets(ctx, "", 1); return err },
			"GetProduct":  func() error { _, err := m.GetProduct(ctx, "p"); return err },
			"CreateOrder": func() error { _, err := m.CreateOrder(ctx, IdempotencyKey{}, Order{ID: "o"}); return err },
		} {
			if err := call(); !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: %v, want %v", name, err, ctx.Err())
			}
		}
	}
	if orders := m.Orders(); len(orders) > 0 {
		t.Errorf("a done context has created %v", orders)
	}
}

func TestOrdersReturnsACopy(t *testing.T) {
	var m MemStore
	for _, id := range []string{"ord_1", "ord_2"} {
		if _, err := m.CreateOrder(t.Context(), IdempotencyKey{Value: id}, Order{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	orders := m.Orders()
	orders[0].ID = "changed"
	_ = append(orders[:1], Order{ID: "appended"})
	want := []Order{{ID: "ord_1"}, {ID: "ord_2"}}
	if diff := cmp.Diff(want, m.Orders()); diff != "" {
		t.Errorf("orders in the sequence of their creation, -want +got:\n%s", diff)
	}
}

func TestOrdersOfAnySizeAreKept(t *testing.T) {
	var m MemStore
	var want []Order
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 3000 {
		order := Order{ID: fmt.Sprint("ord_", i), Item: strings.Repeat(string(rune('a'+i%26)), i*i%1021), Qty: int64(i), CreatedAt: at.Add(time.Duration(i))}
		if i%500 == 0 { // no client can send that much, but a program may
			order.Item = strings.Repeat("long", 50_000)
		}
		want = append(want, order)
		if got, err := m.CreateOrder(t.Context(), IdempotencyKey{Scope: "s", Value: order.ID}, order); got != order || err != nil {
			t.Fatalf("CreateOrder: %v, %v", got.ID, err)
		}
	}
	if !slices.Equal(m.Orders(), want) {
		t.Error("Orders are not those that were created")
	}
	for _, order := range want {
		replayed, err := m.CreateOrder(t.Context(), IdempotencyKey{Scope: "s", Value: order.ID}, Order{ID: "other"})
		if replayed != order || err != nil {
			t.Fatalf("the replay of %s is %.80v, %v", order.ID, replayed, err)
		}
	}
}

func TestMemStoreUnderSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m MemStore
		create := func(scope, id string) (string, error) {
			got, err := m.CreateOrder(t.Context(), IdempotencyKey{Scope: scope, Value: "k"}, Order{ID: id})
			return got.ID, err
		}
		create("", "first")
		create("other", "other")
		time.Sleep(KeyLifetime)
		if id, err := create("", "second"); id != "first" || err != nil {
			t.Errorf("at the end of the key's lifetime: %s, %v, want the first order", id, err)
		}
		time.Sleep(time.Nanosecond)
		if id, err := create("", "third"); id != "third" || err != nil {
			t.Errorf("after the key's lifetime: %s, %v, want a new order", id, err)
		}
		if len(m.keys) != 1 {
			t.Errorf("%d keys are remembered, want the one that is not past its lifetime", len(m.keys))
		}
		if len(m.Orders()) != 3 {
			t.Errorf("orders are forgotten with their keys: %v", m.Orders())
		}
	})
}

func TestAccept(t *testing.T) {
	key := func(value string) IdempotencyKey { return IdempotencyKey{Value: value} }
	order := func(id string) Order { return Order{ID: id, Item: "teapot", Qty: 1} }
	t.Run("is given the key and the order that is about to be created", func(t *testing.T) {
		type contextKey struct{}
		ctx := context.WithValue(t.Context(), contextKey{}, "ann")
		calls := 0
		m := &MemStore{Accept: func(ctx context.Context, k IdempotencyKey, o Order) error {
			calls++
			if ctx.Value(contextKey{}) != "ann" || !reflect.DeepEqual(k, key("k")) || o != order("ord_1") {
				t.Errorf("it was given %v, %v and %v", ctx, k, o)
			}
			return nil
		}}
		if got, err := m.CreateOrder(ctx, key("k"), order("ord_1")); got != order("ord_1") || err != nil || calls != 1 {
			t.Errorf("%v, %v after %d calls", got, err, calls)
		}
	})
	t.Run("its error is returned as it is, and nothing is created", func(t *testing.T) {
		want := fmt.Errorf("no: %w", &Refusal{Reason: "no"})
		m := &MemStore{Accept: func(context.Context, IdempotencyKey, Order) error { return want }}
		if got, err := m.CreateOrder(t.Context(), key("k"), order("ord_1")); got != (Order{}) || err != want {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
		if orders := m.Orders(); len(orders) > 0 || len(m.keys) > 0 {
			t.Errorf("there are the orders %v and %d keys", orders, len(m.keys))
		}
	})
	t.Run("is not called for what is not about to be created", func(t *testing.T) {
		calls := 0
		m := &MemStore{Accept: func(context.Context, IdempotencyKey, Order) error { calls++; return nil }}
		m.CreateOrder(t.Context(), key("k"), order("ord_1"))
		m.CreateOrder(t.Context(), key("k"), order("ord_2")) // a replay
		reused := key("k")
		reused.Fingerprint[0] = 1
		m.CreateOrder(t.Context(), reused, order("ord_3"))
		done, cancel := context.WithCancel(t.Context())
		cancel()
		m.CreateOrder(done, key("other"), order("ord_4"))
		if calls != 1 {
			t.Errorf("%d calls, want the one for the first order", calls)
		}
	})
	t.Run("may use the collections", func(t *testing.T) {
		var m MemStore
		m.Products.Put(MustResource("teapot", nil))
		m.Accept = func(_ context.Context, _ IdempotencyKey, o Order) error {
			if _, ok := m.Products.Get(o.Item); !ok {
				return &Refusal{Reason: "no-such-item", Pointer: "#/item"}
			}
			m.Products.Delete(o.Item)
			m.Widgets.Put(MustResource(o.ID, nil))
			return nil
		}
		if _, err := m.CreateOrder(t.Context(), key("1"), order("ord_1")); err != nil {
			t.Error(err)
		}
		if _, err := m.CreateOrder(t.Context(), key("2"), order("ord_2")); !errors.As(err, new(*Refusal)) {
			t.Errorf("error %v, want a Refusal", err)
		}
		if _, ok := m.Widgets.Get("ord_1"); !ok {
			t.Error("what Accept has put is not there")
		}
	})
	t.Run("that panics creates nothing and locks nobody out", func(t *testing.T) {
		panics := true
		m := &MemStore{Accept: func(context.Context, IdempotencyKey, Order) error {
			if panics {
				panic("oops")
			}
			return nil
		}}
		h := quiet(m)
		postOrder(h, "k", teapots).wantProblem(t, 500, "internal-error")
		panics = false
		if r := postOrder(h, "k", teapots); r.status != 201 || len(m.Orders()) != 1 {
			t.Errorf("status %d with %d orders, want 201 with one", r.status, len(m.Orders()))
		}
	})
	t.Run("decides anew once the key has expired", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			m := &MemStore{Accept: func(context.Context, IdempotencyKey, Order) error { calls++; return nil }}
			m.CreateOrder(t.Context(), key("k"), order("ord_1"))
			time.Sleep(KeyLifetime + 1)
			m.CreateOrder(t.Context(), key("k"), order("ord_2"))
			if calls != 2 {
				t.Errorf("%d calls, want 2", calls)
			}
		})
	})
}

func TestKeysExpireHoweverManyDoAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m MemStore
		create := func(value, id string) string {
			got, err := m.CreateOrder(t.Context(), IdempotencyKey{Value: value}, Order{ID: id})
			if err != nil {
				t.Fatal(err)
			}
			return got.ID
		}
		for i := range 40 {
			create(fmt.Sprint("k", i), "old")
		}
		time.Sleep(KeyLifetime + 1)
		if id := create("k39", "new"); id != "new" {
			t.Errorf("the last of 40 expired keys has the order %s, want a new one", id)
		}
		for i := range 5 {
			create(fmt.Sprint("x", i), "x")
		}
		if id := create("k39", "again"); id != "new" {
			t.Errorf("then it has the order %s, want the one that was created since", id)
		}
	})
}

func TestLoad(t *testing.T) {
	for _, row := range []struct{ name, text, users, products, widgets string }{
		{"all collections", `{"users":[{"id":"u"}],"products":[{"id":"q"},{"id":"p"}],"widgets":[{"id":"w"}]}`, "old u", "old p q", "old w"},
		{"one collection", `{"widgets":[{"id":"w"}]}`, "old", "old", "old w"},
		{"no collection", `{}`, "old", "old", "old"},
		{"empty collection", `{"users":[]}`, "old", "old", "old"},
		{"white space", " \r\n\t{ \"users\" : [ { \"id\" : \"u\" } ] } \n ", "old u", "old", "old"},
		{"the same ID in two collections", `{"users":[{"id":"x"}],"widgets":[{"id":"x"}]}`, "old x", "old", "old x"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := oldStore()
			if err := m.Load(strings.NewReader(row.text)); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				*Collection
				want string
			}{{&m.Users, row.users}, {&m.Products, row.products}, {&m.Widgets, row.widgets}} {
				if got := joinIDs(slices.Collect(c.All())); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
			}
		})
	}
}

func oldStore() *MemStore {
	m := new(MemStore)
	for _, c := range []*Collection{&m.Users, &m.Products, &m.Widgets} {
		c.Put(MustResource("old", map[string]any{"old": true}))
	}
	return m
}

func TestLoadReplacesAResourceOfTheSameID(t *testing.T) {
	m := oldStore()
	if err := m.Load(strings.NewReader(`{"products":[{"new":true,"id":"old"}]}`)); err != nil {
		t.Fatal(err)
	}
	if got, _ := m.Products.Get("old"); got.String() != `{"id":"old","new":true}` {
		t.Errorf("got %s", got)
	}
}

func TestLoadOfABadFileNamesThePlaceAndChangesNothing(t *testing.T) {
	const good = `{"users":[{"id":"new"},{"id":"old"}],`
	for _, row := range []struct {
		name, text string
		says       []string
	}{
		{"empty", ``, []string{"line 1, column 1", "unexpected end"}},
		{"BOM", "\ufeff{}", []string{"byte order mark"}},
		{"array", `[{"id":"a"}]`, []string{"not a JSON object"}},
		{"null", `null`, []string{"not a JSON object"}},
		{"text", `users`, []string{"line 1, column 1", "invalid character 'u'"}},
		{"unknown collection", good + `"orders":[]}`, []string{`"orders"`, "users, products and widgets"}},
		{"collection in another case", good + `"Products":[]}`, []string{`"Products"`}},
		{"collection twice", good + `"users":[]}`, []string{"users", "duplicate"}},
		{"collection twice, escaped", good + `"\u0075sers":[]}`, []string{"users", "duplicate"}},
		{"collection is an object", good + `"products":{"id":"a"}}`, []string{"products", "not an array"}},
		{"collection is null", good + `"products":null}`, []string{"products", "not an array"}},
		{"collection is missing", good + `"products":`, []string{"line 1, column 48", "unexpected end"}},
		{"resource is null", good + `"products":[{"id":"a"},null]}`, []string{"products[1]", "not a JSON object"}},
		{"resource is a string", good + `"products":["a"]}`, []string{"products[0]", "not a JSON object"}},
		{"no id", good + `"products":[{"id":"a"},{"name":"x"}]}`, []string{"products[1]", "ID is missing"}},
		{"id is not a string", good + `"widgets":[{"id":1}]}`, []string{"widgets[0]", `"id" is not a string`}},
		{"id is empty", good + `"widgets":[{"id":""}]}`, []string{"widgets[0]", "ID is missing or empty"}},
		{"id has a control character", good + `"widgets":[{"id":"\n"}]}`, []string{"widgets[0]", "control character"}},
		{"id is long", good + `"widgets":[{"id":"` + strings.Repeat("x", 256) + `"}]}`, []string{"widgets[0]", "256 bytes"}},
		{"id is longer, and its low byte is not", good + `"widgets":[{"id":"` + strings.Repeat("x", 300) + `"}]}`, []string{"widgets[0]", "300 bytes"}},
		{"ID twice", good + `"products":[{"id":"a"},{"id":"b"},{"id":"a","x":1}]}`, []string{"products[2]", `"a"`, "[0]"}},
		{"member twice", good + `"products":[{"id":"a","x":{"y":1,"y":2}}]}`, []string{"products[0]", "#/x/y", "duplicate"}},
		{"lone surrogate", good + `"products":[{"id":"a","x":"\ud800"}]}`, []string{"products[0]", "#/x", "surrogate"}},
		{"invalid UTF-8", good + "\"products\":[{\"id\":\"a\",\"x\":\"\xff\"}]}", []string{"products[0]", "UTF-8"}},
		{"syntax in a resource", good + `"products":[{"id":"a"},{"id":"b",}]}`, []string{"line 1, column 71", "invalid character '}'"}},
		{"no comma", good + `"products":[{"id":"a"} {"id":"b"}]}`, []string{"line 1, column 61", "invalid character '{'"}},
		{"comma at the end", good + `"products":[{"id":"a"},]}`, []string{"line 1, column 61", "invalid character ']'"}},
		{"comma at the very end", good + `"products":[],}`, []string{"invalid character"}},
		{"truncated in a resource", good + `"products":[{"id":"a"},{"id":"b`, []string{"line 1, column 68", "unexpected end"}},
		{"truncated in a collection", good + `"products":[{"id":"a"}`, []string{"line 1, column 59", "unexpected end"}},
		{"truncated after a collection", good + `"products":[{"id":"a"}]`, []string{"line 1, column 60", "unexpected end"}},
		{"truncated in a name", good + `"prod`, []string{"line 1, column 42", "unexpected end"}},
		{"wrong bracket", good + `"products":[{"id":"a"}}`, []string{"line 1, column 60", "invalid character '}'"}},
		{"another object", good + `"products":[]} {}`, []string{"line 1, column 53", "invalid character"}},
		{"trailing text", good + `"products":[]} x`, []string{"line 1, column 53", "invalid character"}},
		{"trailing bracket", good + `"products":[]}]`, []string{"line 1, column 52", "invalid character"}},
		{"in a later line", "{\n\t\"users\": [\n\t\t{\"id\": \"a\"},\n\t\t{\"id\": oops}\n\t]\n}", []string{"line 4, column 10", "invalid character 'o'"}},
		{"after characters of many bytes", "{\n\"users\": [{\"id\": \"日本😀\"}}", []string{"line 2, column 24", "invalid character '}'"}},
		{"at the end of a later line", "{\n\"users\":\n", []string{"line 2, column 9", "unexpected end"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := oldStore()
			wantLoadToFail(t, m, strings.NewReader(row.text), row.says...)
			wantLoadToFail(t, m, iotest.OneByteReader(strings.NewReader(row.text)), row.says...)
		})
	}
}

func TestLoadReturnsTheErrorOfItsReader(t *testing.T) {
	const text = ` {"users": [{"id": "new"}, {"id": "old"}]} `
	broken := errors.New("disk on fire")
	for n := range len(text) + 1 {
		for name, r := range map[string]io.Reader{
			"at once":             io.MultiReader(strings.NewReader(text[:n]), iotest.ErrReader(broken)),
			"byte by byte":        io.MultiReader(iotest.OneByteReader(strings.NewReader(text[:n])), iotest.ErrReader(broken)),
			"with the last bytes": iotest.DataErrReader(io.MultiReader(strings.NewReader(text[:n]), iotest.ErrReader(broken))),
		} {
			if err := wantLoadToFail(t, oldStore(), r); !errors.Is(err, broken) {
				t.Errorf("%s, after %d bytes: error %v, want that of the reader", name, n, err)
			}
		}
	}
	if err := wantLoadToFail(t, oldStore(), iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(text)))); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("error %v, want that of the reader", err)
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
	want := []Resource{MustResource("old", map[string]any{"old": true})}
	for name, c := range map[string]*Collection{"users": &m.Users, "products": &m.Products, "widgets": &m.Widgets} {
		if got := slices.Collect(c.All()); !sameResources(got, want) {
			t.Errorf("%s has become %v", name, got)
		}
	}
	return err
}

func TestResourceIsTheSameAfterEncodingJSON(t *testing.T) {
	for _, fields := range []any{
		map[string]string{"<&>": "<&>\u2028é\t\"\\"},
		json.RawMessage(`{"x":["\u003c\u2028", "\u00e9\/\ud83d\ude00", {"\u0026": 1.50}]}`),
		json.RawMessage("{\"x\":\"\u2028\x7f\"}"),
	} {
		want := MustResource("<a>", fields)
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Resource
		if err := json.Unmarshal(text, &got); err != nil || !got.Equal(want) || got.ETag() != want.ETag() {
			t.Errorf("%v came back as %v, %v", want, got, err)
		}
	}
}

func TestListOfAnyLimit(t *testing.T) {
	var m MemStore
	m.Users.Put(MustResource("a", nil), MustResource("b", nil))
	for _, limit := range []int{2, 1 << 30, math.MaxInt} {
		if users, err := m.ListUsers(t.Context(), "a", limit); len(users) != 1 || err != nil {
			t.Errorf("limit %d: %v, %v, want one user", limit, users, err)
		}
	}
}

// What is recognized as rendered must be what rendering it makes of it.
func FuzzCanonicalResource(f *testing.F) {
	for _, text := range []string{
		`{"id":"a"}`, `{"id":"a","x":[1,-2.5e+3,{"y":null,"z":""}],"t":true,"f":false}`, `{"id":"ä 😀"}`, `{"id":"a","b":"\u0000"}`,
		`{"id":"a","x":1,"x":2}`, `{"id":"a","x":01}`, `{"id":"a","x":1.}`, `{"id":"a","x":-}`, `{"id":"a","x":1e}`, `{"id":"a","x":[1,]}`,
		`{"id":"a",}`, `{"id":"a"}x`, `{"id":"a" }`, `{"id":"a","x":nul}`, `{"id":""}`, `{"id":"\u007f"}`, "{\"id\":\"\u2028\"}",
		"{\"id\":\"a\",\"x\":\"\ufdd0\"}", "{\"id\":\"a\",\"x\":\"\xff\"}", "{\"id\":\"a\",\"x\":\"\n\"}", `{"id":"a","x":{"id":"b"}}`, `{"x":1,"id":"a"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := renderResource("", text)
		// White space at the end makes it take the long way.
		long, longErr := renderResource("", append(bytes.Clone(text), ' '))
		if (err == nil) != (longErr == nil) || !r.Equal(long) || r.ID() != long.ID() || r.ETag() != long.ETag() {
			t.Errorf("%q is %v with the ID %q, and in the long way %v with the ID %q; %v; %v", text, r, r.ID(), long, long.ID(), err, longErr)
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
