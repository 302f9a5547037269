package storefront

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
			if a.Equal(row.other) != row.want || row.other.Equal(a) != row.want || cmp.Equal(a, row.other) != row.want {
				t.Errorf("%v and %v: want equal %t, by Equal and by go-cmp", a, row.other, row.want)
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

// A sortedMap is what a Collection must agree with: slow and obvious.
type sortedMap map[string]Resource

func (m sortedMap) page(from string, limit int) []Resource {
	var ids []string
	for id := range m {
		if id >= from {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var page []Resource
	for _, id := range ids[:min(limit, len(ids))] {
		page = append(page, m[id])
	}
	return page
}

func sameResources(a, b []Resource) bool { return slices.EqualFunc(a, b, Resource.Equal) }

// wantAgreement checks the whole of c, and single reads at some positions.
func wantAgreement(t *testing.T, c *Collection, want sortedMap, random *rand.Rand, ids []string) {
	t.Helper()
	if got, all := slices.Collect(c.All()), want.page("", len(want)); !sameResources(got, all) {
		t.Fatalf("All has %d resources, want %d: %s", len(got), len(all), cmp.Diff(all, got))
	}
	for range 5 {
		id := ids[random.IntN(len(ids))]
		got, ok := c.Get(id)
		if wanted, there := want[id]; ok != there || !got.Equal(wanted) {
			t.Fatalf("Get(%q) = %v, %t, want %v", id, got, ok, wanted)
		}
		limit := []int{1, 2, 63, 64, 65, 200, 2000}[random.IntN(7)]
		for _, from := range []string{id, id + "\x00", id[:len(id)-1], ""} {
			if got, wanted := c.page(from, limit), want.page(from, limit); !sameResources(got, wanted) {
				t.Fatalf("page(%q, %d): %s", from, limit, cmp.Diff(wanted, got))
			}
		}
	}
}

func (n *node) depth() int {
	if n.children == nil {
		return 1
	}
	return 1 + n.children[0].Load().depth()
}

func TestCollectionAgreesWithASortedMap(t *testing.T) {
	const n = 6000 // makes the tree three levels deep
	random := rand.New(rand.NewPCG(1, 2))
	numbered := make([]string, n)
	for i := range numbered {
		numbered[i] = fmt.Sprintf("product-%06d", i)
	}
	uneven := make(map[string]bool) // of many lengths and with long prefixes in common
	for len(uneven) < n {
		id := strings.Repeat("ab", random.IntN(6))
		for range 1 + random.IntN(8) {
			id += []string{"a", "b", " ", "é", "\U0010FFFD"}[random.IntN(5)]
		}
		uneven[id] = true
	}
	kinds := map[string][]string{"numbered": numbered, "uneven": sortedKeys(uneven)}
	for kind, ids := range kinds {
		descending := slices.Clone(ids)
		slices.Reverse(descending)
		shuffled := slices.Clone(ids)
		random.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for order, ids := range map[string][]string{"ascending": ids, "descending": descending, "random": shuffled} {
			t.Run(kind+" "+order, func(t *testing.T) {
				var c Collection
				want := make(sortedMap)
				for round := range 2 { // the second one after everything was deleted
					for i, id := range ids {
						r := MustResource(id, map[string]any{"round": round})
						c.Put(r)
						want[id] = r
						if i%1500 == 0 {
							wantAgreement(t, &c, want, random, ids)
						}
					}
					wantAgreement(t, &c, want, random, ids)
					if got := c.root.Load().depth(); got < 3 {
						t.Fatalf("the tree has %d levels: it tests too little", got)
					}
					for i, id := range ids {
						c.Delete(id)
						delete(want, id)
						if i%1500 == 0 {
							wantAgreement(t, &c, want, random, ids)
						}
					}
					wantAgreement(t, &c, want, random, ids)
					if c.root.Load() != nil {
						t.Fatal("an empty collection keeps nodes")
					}
				}
			})
		}
		t.Run(kind+" mixed", func(t *testing.T) {
			var c Collection
			want := make(sortedMap)
			for step := range 40_000 {
				// In turn the collection grows and shrinks.
				id := ids[random.IntN(n)]
				if random.IntN(10) < 3+4*(step/10_000%2) {
					c.Delete(id, "never there")
					delete(want, id)
				} else {
					r := MustResource(id, map[string]any{"step": step})
					c.Put(r)
					want[id] = r
				}
				if step%1000 == 0 {
					wantAgreement(t, &c, want, random, ids)
				}
			}
		})
	}
}

func sortedKeys(set map[string]bool) []string {
	var keys []string
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func TestEveryIDOfManyInRandomOrderIsFound(t *testing.T) {
	const n = 200_000
	resources := make([]Resource, n)
	for i := range resources {
		resources[i] = MustResource(fmt.Sprintf("%x", uint64(i)*0x9E3779B97F4A7C15), nil)
	}
	var c Collection
	c.Put(resources...)
	for _, r := range resources {
		if got, ok := c.Get(r.ID()); !ok || !got.Equal(r) {
			t.Fatalf("Get(%q) = %v, %t", r.ID(), got, ok)
		}
	}
	last, count := "", 0
	for r := range c.All() {
		if r.ID() <= last {
			t.Fatalf("All has %q after %q", r.ID(), last)
		}
		last = r.ID()
		count++
	}
	if count != n {
		t.Errorf("All has %d resources, want %d", count, n)
	}
}

func TestAllEndsWhenItsReaderDoes(t *testing.T) {
	var c Collection
	c.Put(MustResource("a", nil), MustResource("b", nil), MustResource("c", nil))
	seen := 0
	for range c.All() {
		if seen++; seen == 2 {
			break
		}
	}
	if seen != 2 {
		t.Errorf("%d resources were seen, want 2", seen)
	}
}

func TestCollectionMayBeChangedWhileAllIsRead(t *testing.T) {
	var c Collection
	for i := range 1000 {
		c.Put(MustResource(fmt.Sprintf("%04d", i), nil))
	}
	seen := 0
	for r := range c.All() {
		c.Delete(r.ID())
		seen++
	}
	if left := slices.Collect(c.All()); seen != 1000 || len(left) != 0 {
		t.Errorf("%d were seen and %v are left, want 1000 and none", seen, left)
	}
}

func TestPutReplacesTheResourceOfThatID(t *testing.T) {
	var c Collection
	given := []Resource{MustResource("a", nil), MustResource("a", map[string]any{"x": 1}), MustResource("b", nil)}
	c.Put(given...)
	given[1] = MustResource("other", nil) // the slice is the caller's
	want := []Resource{MustResource("a", map[string]any{"x": 1}), MustResource("b", nil)}
	if got := slices.Collect(c.All()); !sameResources(got, want) {
		t.Errorf("the collection has %v, want %v", got, want)
	}
}

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

// Readers beside a writer see ascending IDs, and each resource that was there
// throughout once.
func TestReadersBesideAWriter(t *testing.T) {
	const n = 6000
	id := func(i int) string { return fmt.Sprintf("%05d", i) }
	// Long stretches come and go, so that whole nodes do.
	stays := func(i int) bool { return i%7 == 0 && i/500%2 == 0 }
	var c Collection
	staying := 0
	for i := range n {
		if stays(i) {
			c.Put(MustResource(id(i), nil))
			staying++
		}
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	for seed := range uint64(3) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for first := true; first || !done.Load(); first = false {
				last, count := "", 0
				for r := range c.All() {
					if r.ID() <= last {
						t.Errorf("All has %q after %q", r.ID(), last)
						return
					}
					last = r.ID()
					if i := atoi(last); stays(i) {
						count++
					}
				}
				if count != staying {
					t.Errorf("All has %d of the %d resources that stay", count, staying)
					return
				}
				from := random.IntN(n)
				page := c.page(id(from), 1+random.IntN(2000))
				next := from
				for _, r := range page {
					i := atoi(r.ID())
					for ; next < i; next++ {
						if stays(next) {
							t.Errorf("a page from %s has not %s, which stays", id(from), id(next))
							return
						}
					}
					if i < next {
						t.Errorf("a page from %s has %s after %s", id(from), r.ID(), id(next-1))
						return
					}
					next++
				}
				for i := random.IntN(n); ; i = (i + 1) % n {
					if stays(i) {
						if _, ok := c.Get(id(i)); !ok {
							t.Errorf("Get has not %s, which stays", id(i))
						}
						break
					}
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(9, 9))
	for range 40 {
		from, length := random.IntN(n), 200+random.IntN(2000)
		put := random.IntN(2) == 0
		for i := from; i < min(n, from+length); i++ {
			switch {
			case stays(i):
				c.Put(MustResource(id(i), map[string]any{"x": length})) // another of that ID
			case put:
				c.Put(MustResource(id(i), nil))
			default:
				c.Delete(id(i))
			}
		}
	}
	done.Store(true)
	wg.Wait()
}

// A reader may still have a root whose last child is gone from the tree. What that
// child held last, it may meet twice: there, and where it was put since.
func TestReaderOfAnOldRootSeesNothingTwice(t *testing.T) {
	var c Collection
	for i := range 6000 {
		c.Put(MustResource(fmt.Sprintf("%05d", i), nil))
	}
	old := c.root.Load()
	begin := atoi(old.least[len(old.least)-1]) // of the last child's range
	for i := begin; i < 6000; i++ {
		c.Delete(fmt.Sprintf("%05d", i))
	}
	c.Put(MustResource("05999", nil))
	if c.root.Load() == old {
		t.Fatal("the root is the old one: this tests nothing")
	}
	page := old.appendFrom(nil, "", 10_000)
	if len(page) != begin+1 || page[begin].ID() != "05999" {
		t.Errorf("it sees %d resources, want %d", len(page), begin+1)
	}
}

func atoi(digits string) (n int) {
	for _, d := range []byte(digits) {
		n = 10*n + int(d-'0')
	}
	return n
}

// A reader that waited for the lock would wait for ever.
func TestReadersDoNotWaitForWriters(t *testing.T) {
	var m MemStore
	for _, c := range []*Collection{&m.Users, &m.Products, &m.Widgets} {
		c.Put(MustResource("a", nil))
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	users, _ := m.ListUsers(t.Context(), "", 9)
	widgets, _ := m.ListWidgets(t.Context(), "", 9)
	product, _ := m.GetProduct(t.Context(), "a")
	all := slices.Collect(m.Users.All())
	if len(users) != 1 || len(widgets) != 1 || product.ID() != "a" || len(all) != 1 {
		t.Errorf("got %v, %v, %v and %v, want the one resource", users, widgets, product, all)
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
		{"empty", ``, []string{"not a JSON object", "EOF"}},
		{"BOM", "\ufeff{}", []string{"byte order mark"}},
		{"array", `[{"id":"a"}]`, []string{"not a JSON object"}},
		{"null", `null`, []string{"not a JSON object"}},
		{"text", `users`, []string{"not a JSON object"}},
		{"unknown collection", good + `"orders":[]}`, []string{`"orders"`, "users, products and widgets"}},
		{"collection in another case", good + `"Products":[]}`, []string{`"Products"`}},
		{"collection twice", good + `"users":[]}`, []string{"users", "duplicate"}},
		{"collection twice, escaped", good + `"\u0075sers":[]}`, []string{"users", "duplicate"}},
		{"collection is an object", good + `"products":{"id":"a"}}`, []string{"products", "not an array"}},
		{"collection is null", good + `"products":null}`, []string{"products", "not an array"}},
		{"collection is missing", good + `"products":`, []string{"products", "not an array", "EOF"}},
		{"resource is null", good + `"products":[{"id":"a"},null]}`, []string{"products[1]", "not a JSON object"}},
		{"resource is a string", good + `"products":["a"]}`, []string{"products[0]", "not a JSON object"}},
		{"no id", good + `"products":[{"id":"a"},{"name":"x"}]}`, []string{"products[1]", "ID is missing"}},
		{"id is not a string", good + `"widgets":[{"id":1}]}`, []string{"widgets[0]", `"id" is not a string`}},
		{"id is empty", good + `"widgets":[{"id":""}]}`, []string{"widgets[0]", "ID is missing or empty"}},
		{"id has a control character", good + `"widgets":[{"id":"\n"}]}`, []string{"widgets[0]", "control character"}},
		{"id is long", good + `"widgets":[{"id":"` + strings.Repeat("x", 256) + `"}]}`, []string{"widgets[0]", "256 bytes"}},
		{"ID twice", good + `"products":[{"id":"a"},{"id":"b"},{"id":"a","x":1}]}`, []string{"products[2]", `"a"`, "[0]"}},
		{"member twice", good + `"products":[{"id":"a","x":{"y":1,"y":2}}]}`, []string{"products[0]", "#/x/y", "duplicate"}},
		{"lone surrogate", good + `"products":[{"id":"a","x":"\ud800"}]}`, []string{"products[0]", "#/x", "surrogate"}},
		{"invalid UTF-8", good + "\"products\":[{\"id\":\"a\",\"x\":\"\xff\"}]}", []string{"products[0]", "UTF-8"}},
		{"syntax in a resource", good + `"products":[{"id":"a"},{"id":"b",}]}`, []string{"products[1]", "invalid character"}},
		{"no comma", good + `"products":[{"id":"a"} {"id":"b"}]}`, []string{"products[1]", "comma"}},
		{"comma at the end", good + `"products":[{"id":"a"},]}`, []string{"products[1]", "invalid character"}},
		{"comma at the very end", good + `"products":[],}`, []string{"invalid character"}},
		{"truncated in a resource", good + `"products":[{"id":"a"},{"id":"b`, []string{"products[1]", "EOF"}},
		{"truncated in a collection", good + `"products":[{"id":"a"}`, []string{"products[1]", "EOF"}},
		{"truncated after a collection", good + `"products":[{"id":"a"}]`, []string{"EOF"}},
		{"truncated in a name", good + `"prod`, []string{"EOF"}},
		{"wrong bracket", good + `"products":[{"id":"a"}}`, []string{"products[1]", "invalid character"}},
		{"another object", good + `"products":[]} {}`, []string{"after the object"}},
		{"trailing text", good + `"products":[]} x`, []string{"after the object"}},
		{"trailing bracket", good + `"products":[]}]`, []string{"after the object"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := oldStore()
			wantLoadToFail(t, m, strings.NewReader(row.text), row.says...)
			wantLoadToFail(t, m, iotest.OneByteReader(strings.NewReader(row.text)), row.says...)
		})
	}
	t.Run("failing reader", func(t *testing.T) {
		broken := errors.New("disk on fire")
		r := io.MultiReader(strings.NewReader(good), iotest.ErrReader(broken))
		if err := wantLoadToFail(t, oldStore(), r); !errors.Is(err, broken) {
			t.Errorf("error %v, want that of the reader", err)
		}
	})
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
	for _, limit := range []int{2, 1 << 40, math.MaxInt} {
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

func TestRenderedResourcesAreRecognized(t *testing.T) {
	for _, text := range []string{
		`{"id":"a"}`,
		`{"id":"kettle","name":"Wasserkocher für Ästheten ☕","price":{"amount":"39.00","currency":"EUR"},"stock":0,"litres":1.7,"tags":[],"more":{},"old":null,"sale":true,"x":-1e-9}`,
	} {
		if _, ok := canonicalID([]byte(text)); !ok {
			t.Errorf("%s is not recognized", text)
		}
	}
}
