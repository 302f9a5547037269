package storefront

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/storefront/internal/ijson"
)

// A pagedList is what the tests of both lists need to know of one.
type pagedList struct {
	path, param string
	kind        listKind
	collection  func(*MemStore) *Collection
	stub        func(listFunc) *stubStore
}

type listFunc func(ctx context.Context, position string, limit int) ([]Resource, error)

var pagedLists = map[string]pagedList{
	"users": {
		"/v1/users", "after", usersList,
		func(m *MemStore) *Collection { return &m.Users },
		func(list listFunc) *stubStore { return &stubStore{listUsers: list} },
	},
	"widgets": {
		"/v2/widgets", "start", widgetsList,
		func(m *MemStore) *Collection { return &m.Widgets },
		func(list listFunc) *stubStore { return &stubStore{listWidgets: list} },
	},
}

func onBothLists(t *testing.T, test func(t *testing.T, l pagedList)) {
	for name, l := range pagedLists {
		t.Run(name, func(t *testing.T) { test(t, l) })
	}
}

// at returns the target of a page; no position is the first one.
func (l pagedList) at(limit int, position string) string {
	target := l.path + "?limit=" + strconv.Itoa(limit)
	if position != "" {
		target += "&" + l.param + "=" + position
	}
	return target
}

// store returns a store in which the list has bare items with these IDs.
func (l pagedList) store(ids ...string) *MemStore {
	store := new(MemStore)
	l.collection(store).Put(bareResources(ids...)...)
	return store
}

// bareResources returns resources that have an ID and nothing else.
func bareResources(ids ...string) []Resource {
	resources := make([]Resource, len(ids))
	for i, id := range ids {
		resources[i] = MustResource(id, nil)
	}
	return resources
}

// A listPage is a page as a client decodes it.
type listPage struct {
	Data    []Resource `json:"data"`
	HasMore *bool      `json:"has_more"`
	Next    *string    `json:"next"`
}

// walk returns the IDs on the pages from the first to the last, each of which one of the
// handlers answers, and checks what holds for every page. Between two it calls between, unless nil.
func (l pagedList) walk(t *testing.T, limit int, between func(seen []string),
	handlers ...http.Handler) (seen []string) {
	t.Helper()
	position := ""
	for i := 0; ; i++ {
		r := get(handlers[i%len(handlers)], l.at(limit, position))
		var p listPage
		dec := json.NewDecoder(strings.NewReader(r.body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&p); err != nil || p.Data == nil || p.HasMore == nil || i == 1000 {
			t.Fatalf("page %d: status %d: %v, want data and has_more\n%s", i, r.status, err, r.body)
		}
		if hasLink := r.header["Link"] != nil; *p.HasMore != (p.Next != nil) || *p.HasMore != hasLink {
			t.Fatalf("want next and Link if has_more is true alone\nLink: %q\n%s", r.header["Link"], r.body)
		}
		if len(p.Data) > limit || len(p.Data) < limit && *p.HasMore {
			t.Fatalf("%d items on a page of %d, has_more is %t", len(p.Data), limit, *p.HasMore)
		}
		for _, item := range p.Data {
			seen = append(seen, item.ID())
		}
		if p.Next == nil {
			return seen
		}
		position = *p.Next
		if between != nil {
			between(seen)
		}
	}
}

func TestLimit(t *testing.T) {
	accepted := map[string]int{"1": 1, "500": 500, "007": 7, strings.Repeat("0", 400) + "9": 9}
	for _, value := range []string{
		"", "0", "501", "-1", "+5", " 5", "5\n", "1.0", "0x10", "1_0", "５", "\xff", strings.Repeat("9", 400),
		"4294967297", "9223372036854775808", "18446744073709551617", // 1 if they wrapped around
	} {
		accepted[value] = 0
	}
	for value, want := range accepted {
		if got := parseLimit(value, 500); got != want {
			t.Errorf("limit=%q is %d, want %d, or 0 if it is refused", value, got, want)
		}
	}
}

func TestPageSizes(t *testing.T) {
	for _, test := range []struct {
		opts       Options
		size, most int
	}{
		{Options{}, 50, 500},
		{Options{PageSize: 1}, 1, 500},
		{Options{MaxPageSize: 49}, 49, 49},
		{Options{MaxPageSize: 501}, 50, 501},
		{Options{PageSize: 3, MaxPageSize: 5}, 3, 5},
		{Options{PageSize: 1_000_000, MaxPageSize: 1_000_000}, 1_000_000, 1_000_000},
	} {
		asked := 0
		list := func(_ context.Context, _ string, limit int) ([]Resource, error) {
			asked = limit - 1
			return nil, nil
		}
		h := NewWithOptions(&stubStore{listUsers: list, listWidgets: list}, &test.opts)
		if get(h, "/v1/users"); asked != test.size {
			t.Errorf("%+v: a page of users has %d items, want %d", test.opts, asked, test.size)
		}
		for _, l := range pagedLists {
			if get(h, l.at(test.most, "")); asked != test.most {
				t.Errorf("%+v: limit=%d was taken for %d", test.opts, test.most, asked)
			}
			refused := map[string]string{l.at(test.most+1, ""): "must be"}
			if l.kind == widgetsList {
				refused[l.path] = "is required"
			}
			for target, says := range refused {
				f := get(h, target).wantProblem(t, http.StatusBadRequest, "invalid-query").Errors
				if where(f) != fmt.Sprintf("limit[1,%d]", test.most) ||
					!strings.Contains(f[0].Detail, says) ||
					!strings.Contains(f[0].Detail, fmt.Sprintf("from 1 to %d", test.most)) {
					t.Errorf("%s: want the maximum %d in %+v", target, test.most, f)
				}
			}
		}
	}
}

func TestStoreIsAskedOnceForOneMoreThanThePage(t *testing.T) {
	type account struct{}
	onBothLists(t, func(t *testing.T, l pagedList) {
		var calls []string
		h := New(l.stub(func(ctx context.Context, position string, limit int) ([]Resource, error) {
			calls = append(calls, fmt.Sprintf("for %v from %q, %d", ctx.Value(account{}), position, limit))
			return nil, nil
		}))
		for _, target := range []string{l.at(7, ""), l.at(500, l.kind.encodeCursor("Zoë/1"))} {
			do(h, newRequest("GET", target, "").WithContext(context.WithValue(t.Context(), account{}, "ann")))
		}
		want := []string{`for ann from "", 8`, `for ann from "Zoë/1", 501`}
		if !slices.Equal(calls, want) {
			t.Errorf("calls of the store: %q, want %q", calls, want)
		}
	})
}

func TestStoreThatReturnsMoreThanItWasAskedFor(t *testing.T) {
	onBothLists(t, func(t *testing.T, l pagedList) {
		ids := []string{"a", "b", "c", "d", "e"}
		list := func(ctx context.Context, position string, _ int) ([]Resource, error) {
			if l.kind == usersList {
				return l.store(ids...).ListUsers(ctx, position, 100)
			}
			return l.store(ids...).ListWidgets(ctx, position, 100)
		}
		if got := l.walk(t, 2, nil, New(l.stub(list))); !slices.Equal(got, ids) {
			t.Errorf("a walk sees %q, want %q", got, ids)
		}
	})
}

// A walk over such pages might never end, or leave items out.
func TestStoreWhosePagesDoNotAdvance(t *testing.T) {
	for _, test := range []struct{ position, ids, says string }{ // "0" is the zero Resource
		{"m", "a n", `"a" for the position "m"`},
		{"m", "l\u00ff", `for the position "m"`},
		{"", "a c b", `"b" behind "c"`},
		{"", "a B", `"B" behind "a"`}, // byte by byte
		{"", "a a", `"a" twice`},
		{"", "0", "the zero Resource"},
		{"", "a 0", "the zero Resource"},
		{"m", "m", `"m" for the position "m"`}, // of users alone
		{"m", "m m", `"m"`},
		{"m", "mm n", ""},
	} {
		items := bareResources(strings.Fields(test.ids)...)
		if strings.HasSuffix(test.ids, "0") {
			items[len(items)-1] = Resource{}
		}
		for _, inclusive := range []bool{false, true} {
			says := test.says
			if inclusive && test.ids == "m" {
				says = ""
			}
			err := checkPage("List", items, test.position, inclusive)
			if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%s for the position %q, inclusive %t: %v", test.ids, test.position, inclusive, err)
			}
		}
	}
}

// A slowWriter lets something happen while a body is written.
type slowWriter struct {
	*httptest.ResponseRecorder
	meanwhile func()
	room      int // of the buffer that the body is in
}

func (w *slowWriter) Write(body []byte) (int, error) {
	w.meanwhile()
	w.room = cap(body)
	return w.ResponseRecorder.Write(body)
}

func TestPageThatIsBeingWrittenIsNotWrittenOver(t *testing.T) {
	h := New(pagedLists["users"].store("ada", "grace", "linus"))
	want := get(h, "/v1/users").body
	for range 20 { // a sync.Pool does not always give back what it has
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder(),
			meanwhile: func() { get(h, "/v1/users?limit=1") }}
		h.ServeHTTP(w, newRequest("GET", "/v1/users", ""))
		if got := w.Body.String(); got != want {
			t.Fatalf("while another page was written, this one became %s, want %s", got, want)
		}
	}
}

func TestMemoryOfALargePageIsNotKept(t *testing.T) {
	store := pagedLists["users"].store("ada")
	store.Users.Put(MustResource("large", map[string]string{"text": strings.Repeat("x", 2<<20)}))
	h := New(store)
	for range 5 { // as above
		get(h, "/v1/users")
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder(), meanwhile: func() {}}
		h.ServeHTTP(w, newRequest("GET", "/v1/users?limit=1", ""))
		if w.room > 1<<20 {
			t.Fatalf("after a large page, %d bytes are kept for a small one", w.room)
		}
	}
}

func TestListETagChangesIfAndOnlyIfTheBytesDo(t *testing.T) {
	with := func(id, color string) Resource { return MustResource(id, map[string]any{"color": color}) }
	onBothLists(t, func(t *testing.T, l pagedList) {
		bodies, tags := make(map[string]string), make(map[string]string) // the tags by body, and vice versa
		for _, items := range [][]Resource{
			{}, bareResources("a"), bareResources("a", "b"), bareResources("a", "b", "c"),
			bareResources("a", "b", "c", "d"),
			{with("a", "red"), with("b", "red")}, {with("a", "red"), with("b", "blue")},
			{with("a", "blue"), with("b", "red")},
			bareResources("a\",\"b", "ab"), // IDs that look alike
		} {
			for range 2 { // replicas, filled in different order
				store := new(MemStore)
				l.collection(store).Put(items...)
				slices.Reverse(items)
				for limit := 1; limit <= 4; limit++ {
					r := get(New(store), l.at(limit, ""))
					tag := r.header.Get("Etag")
					if was, ok := bodies[r.body]; ok && was != tag || tag == "" {
						t.Errorf("the tags %s and %s of %s", was, tag, r.body)
					}
					if was, ok := tags[tag]; ok && was != r.body {
						t.Errorf("the tag %s of %s and %s", tag, was, r.body)
					}
					bodies[r.body], tags[tag] = tag, r.body
				}
			}
		}
	})
}

// Cursors that clients hold must stay good for ever: never change these.
func TestCursorFormatIsFrozen(t *testing.T) {
	for id, cursors := range map[string]map[listKind]string{
		"1":       {usersList: "AXUx_RU-rA", widgetsList: "AXcxzyNcLg"},
		"a1":      {usersList: "AXVhMeb6SB4", widgetsList: "AXdhMeV-nHA"},
		"a b&c=d": {usersList: "AXVhIGImYz1kM6KRNw", widgetsList: "AXdhIGImYz1kcYeWSg"},
		"Zoë":     {usersList: "AXVab8OrDUSAjw", widgetsList: "AXdab8Ord4TT7w"},
		"🫖":       {usersList: "AXXwn6uWbxqngA", widgetsList: "AXfwn6uWFdr04A"},
		strings.Repeat("x", 255): {
			usersList:   "AXV4" + strings.Repeat("eHh4", 83) + "eHh4eHhCjTy3",
			widgetsList: "AXd4" + strings.Repeat("eHh4", 83) + "eHh4eHgFmtlg",
		},
	} {
		for kind, cursor := range cursors {
			position, ok := kind.decodeCursor(cursor)
			if made := kind.encodeCursor(id); !ok || position != id || made != cursor {
				t.Errorf("%s is %q, %t, and the cursor of %q is %s", cursor, position, ok, id, made)
			}
		}
	}
}

// forgedCursor returns the cursor of any bytes, with a good checksum.
func forgedCursor(version byte, kind listKind, position string) string {
	raw := append([]byte{version, byte(kind)}, position...)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(raw, crc32.ChecksumIEEE(raw)))
}

func TestWalkSeesEveryItemOnceAndInOrder(t *testing.T) {
	ids := []string{strings.Repeat("x", 255), strings.Repeat("日", 85), "/?#[]@!$&'()*+,;=%\"<>\\ ",
		"Zoë Ünal 日本語 🫖", "~"}
	for i := range 500 - len(ids) {
		ids = append(ids, "item"+strconv.Itoa(i)) // byte order is not that of the numbers
	}
	slices.Sort(ids)
	onBothLists(t, func(t *testing.T, l pagedList) {
		replicas := []http.Handler{New(l.store(ids...)), New(l.store(ids...)), New(l.store(ids...))}
		for _, limit := range []int{1, 2, 3, 7, 64, 65, 249, 250, 499, 500} {
			if got := l.walk(t, limit, nil, replicas...); !slices.Equal(got, ids) {
				t.Errorf("limit=%d: a walk sees %q, want %q", limit, got, ids)
			}
		}
	})
}

// A walk sees what is there throughout, and nothing twice or out of order.
func TestWalkWhileItemsComeAndGoBetweenPages(t *testing.T) {
	id := func(i int) string { return fmt.Sprintf("i%03d", i) }
	onBothLists(t, func(t *testing.T, l pagedList) {
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 0))
			store := new(MemStore)
			items := l.collection(store)
			for i := range 200 {
				items.Put(MustResource(id(i), nil))
			}
			seen := l.walk(t, 1+random.IntN(40), func(seen []string) {
				near, _ := strconv.Atoi(seen[len(seen)-1][1:]) // where changes matter most
				for range 10 {
					switch i := max(0, near+random.IntN(11)-5); {
					case i%3 == 0: // is there throughout
						if _, there := items.Get(id(i)); there {
							items.Put(MustResource(id(i), map[string]any{"n": random.Int()}))
						}
					case random.IntN(2) == 0:
						items.Put(MustResource(id(i), nil))
					default:
						items.Delete(id(i))
					}
				}
			}, New(store))
			if !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(seen) {
				t.Errorf("seed %d: out of order or twice: %q", seed, seen)
			}
			for i := 0; i < 200; i += 3 {
				if !slices.Contains(seen, id(i)) {
					t.Errorf("seed %d: %s was there throughout and was not seen", seed, id(i))
				}
			}
		}
	})
}

func FuzzCursor(f *testing.F) {
	for _, id := range []string{"", "1", "a1", "abc", "Zoë", "\xff", "\n", strings.Repeat("x", 255),
		strings.Repeat("x", 256)} {
		f.Add(id, usersList.encodeCursor(id), uint16(0), "A")
		f.Add(id, widgetsList.encodeCursor(id), uint16(3), "\n")
	}
	const cursor = "AXVhMeb6SB4" // of the user a1
	for _, invalid := range []string{
		"", "page2", "a1", forgedCursor(0, usersList, "a1"), forgedCursor(2, usersList, "a1"),
		forgedCursor(1, 'x', "a1"), forgedCursor(1, usersList, ""),
		forgedCursor(1, usersList, strings.Repeat("x", 400)), forgedCursor(1, usersList, "u\n"),
		base64.RawURLEncoding.EncodeToString([]byte{1, 'u', 0, 0, 0}), " " + cursor, strings.ToLower(cursor),
		cursor + "=", "AXUx/RU+rA", cursor[:4] + "\r\n" + cursor[4:], cursor[:4] + cursor[5:], "AXVhMe6bSB4",
		cursor + "AAAA", strings.Repeat("A", 1_000),
	} {
		f.Add("a1", invalid, uint16(5), "")
	}
	f.Fuzz(func(t *testing.T, id, any string, at uint16, with string) {
		for _, l := range pagedLists {
			kind, other := l.kind, usersList+widgetsList-l.kind
			cursor := kind.encodeCursor(id)
			if want := forgedCursor(cursorVersion, kind, id); cursor != want {
				t.Fatalf("the cursor of %q is %s, want %s", id, cursor, want)
			}
			position, ok := kind.decodeCursor(cursor)
			if isID := checkID(id) == nil; ok != isID || ok && position != id {
				t.Fatalf("%s, the cursor of %q, is %q, %t", cursor, id, position, ok)
			} else if isID && (len(cursor) > 512 || url.QueryEscape(cursor) != cursor) {
				t.Fatalf("the cursor %s has %d bytes or needs escaping", cursor, len(cursor))
			}
			if position, ok := other.decodeCursor(cursor); ok {
				t.Fatalf("%s is the position %q in the other list", cursor, position)
			}
			i := int(at) % (len(cursor) + 1)
			mutated := cursor[:i] + with + cursor[min(i+1, len(cursor)):]
			inserted := cursor[:i] + with + cursor[i:]
			for _, candidate := range []string{any, mutated, inserted} {
				if position, ok := kind.decodeCursor(candidate); ok &&
					(forgedCursor(cursorVersion, kind, position) != candidate || len(candidate) > 512) {
					t.Fatalf("%q is accepted and taken for %q", candidate, position)
				}
			}
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, query := range []string{
		"", "&", "=", "limit=2&after=x", "limit=2&limit=3", "%6cimit=%32", "a+b=c+d", "x", "a;b", "a=%zz",
		"%=", "%zz;", "limit=%ff&%ff=1", "\uffff&%F0%9F%BF%BE", "\ufdd0", "limit==2", "limit=+5", "=5",
		"limit=2&limit", "limit=2&&&limit=2", "limit=2&%6Cimit=2", "limit=2&x=1&y=2&x=3", "limit=2&Limit=2",
		"limit[]=2", "limit=2&+limit=2", "limit=%zz&limit=3", "limit=2%", "%zz=1", "limit=2;", "&;",
		"limit=0&x=1&after=&limit=3&a;b&c=%zz", strings.Repeat("x&", maxFaults+1),
		strings.Repeat("é", maxNameInFault),
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, names := range [][]string{{}, {"limit"}, {"limit", "after"}} {
			var want [2]queryParam
			var wantFaults []string
			for pair := range strings.SplitSeq(query, "&") {
				_, err := url.ParseQuery(pair)
				rawName, rawValue, _ := strings.Cut(pair, "=")
				name, nameErr := url.QueryUnescape(rawName)
				value, valueErr := url.QueryUnescape(rawValue)
				name = cmp.Or(name, rawName)
				i := slices.Index(names, name)
				bad := err != nil || i < 0 || want[i].given
				if pair == "" || len(wantFaults) == maxFaults {
					continue
				}
				if bad {
					escape := nameErr != nil || valueErr != nil
					name := ijson.Truncate(cmp.Or(name, pair), maxNameInFault)
					wantFaults = append(wantFaults, fmt.Sprintf("%s, of an escape: %t", name, escape))
				}
				if i >= 0 && !want[i].given {
					want[i] = queryParam{value, true, bad}
				}
			}
			params, faults := parseQuery(query, names...)
			var got []string
			known := " The parameters are: " + strings.Join(names, ", ") + "."
			for _, f := range faults {
				escape := strings.Contains(f.Detail, "hexadecimal")
				got = append(got, fmt.Sprintf("%s, of an escape: %t", f.Parameter, escape))
				unknown := len(names) > 0 && strings.HasPrefix(f.Detail, "Unknown parameter.")
				if f.Detail == "" || strings.HasSuffix(f.Detail, known) != unknown ||
					f.Header+f.Pointer != "" {
					t.Errorf("%q: want a detail and a parameter alone in the fault %+v", query, f)
				}
			}
			if !slices.Equal(got, wantFaults) || params != want {
				t.Errorf("%q, %q: %+v, faults %q, want %+v, %q", query, names, params, got, want, wantFaults)
			}
		}
	})
}
