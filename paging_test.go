package storefront

import (
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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func (p listPage) ids() []string {
	ids := make([]string, len(p.Data))
	for i, item := range p.Data {
		ids[i] = item.ID()
	}
	return ids
}

// getPage gets a page and checks what holds for every one of them.
func getPage(t *testing.T, h http.Handler, target string) listPage {
	t.Helper()
	got := get(h, target)
	if got.status != http.StatusOK {
		t.Fatalf("GET %s: status %d\n%s", target, got.status, got.body)
	}
	var p listPage
	dec := json.NewDecoder(strings.NewReader(got.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatalf("GET %s: %v\n%s", target, err, got.body)
	}
	if p.Data == nil || p.HasMore == nil {
		t.Fatalf("GET %s: data and has_more are on every page, and data is never null\n%s", target, got.body)
	}
	if hasLink := got.header["Link"] != nil; *p.HasMore != (p.Next != nil) || *p.HasMore != hasLink {
		t.Fatalf("GET %s: next and Link are there if and only if has_more is true\nLink: %q\n%s", target, got.header["Link"], got.body)
	}
	return p
}

// walk returns the IDs on the pages from the first to the last, each of which
// one of the handlers answers. Between two pages it calls between, unless nil.
func (l pagedList) walk(t *testing.T, limit int, between func(seen []string), handlers ...http.Handler) []string {
	t.Helper()
	var seen []string
	position := ""
	for i := 0; ; i++ {
		p := getPage(t, handlers[i%len(handlers)], l.at(limit, position))
		if len(p.Data) > limit {
			t.Fatalf("%d items on a page of %d", len(p.Data), limit)
		}
		seen = append(seen, p.ids()...)
		if p.Next == nil {
			return seen
		}
		if i == 1000 {
			t.Fatalf("a walk without end, now at %s", seen[len(seen)-1])
		}
		if len(p.Data) < limit {
			t.Fatalf("%d items on a page of %d that is not the last", len(p.Data), limit)
		}
		position = *p.Next
		if between != nil {
			between(seen)
		}
	}
}

// wantQueryFaults checks that the response refuses the query because of these
// parameters, and no others, and returns the faults.
func (r response) wantQueryFaults(t *testing.T, parameters ...string) []Fault {
	t.Helper()
	faults := r.wantProblem(t, http.StatusBadRequest, "invalid-query").Errors
	var got []string
	for _, f := range faults {
		if f.Detail == "" || f.Header != "" || f.Pointer != "" {
			t.Errorf("want a detail and a parameter alone in the fault %+v", f)
		}
		got = append(got, f.Parameter)
	}
	// A value with two faults may be named for each.
	if diff := cmp.Diff(parameters, slices.Compact(got)); diff != "" {
		t.Errorf("faulty parameters (-want +got):\n%s%s", diff, r.body)
	}
	return faults
}

func TestLimit(t *testing.T) {
	const refused = 0
	tests := []struct {
		value string // as it stands in the query
		want  int
		why   string
	}{
		{"1", 1, "the least"},
		{"500", 500, "the most"},
		{"007", 7, "leading zeros are decimal digits"},
		{strings.Repeat("0", 400) + "9", 9, "so are many of them"},
		{"%35%30", 50, "escapes stand for what they say"},

		{"", refused, "empty"},
		{"0", refused, "below the least"},
		{"501", refused, "one above the most"},
		{"-1", refused, "negative"},
		{"%2B5", refused, "a sign"},
		{"+5", refused, "a + is a space"},
		{"%205", refused, "a space before"},
		{"5%0A", refused, "a newline behind"},
		{"1.0", refused, "not an integer"},
		{"0x10", refused, "hexadecimal"},
		{"1_0", refused, "Go's digit separator"},
		{"%EF%BC%95", refused, "a full-width 5"},
		{"%FF", refused, "not UTF-8"},
		{"4294967297", refused, "2^32+1, 1 if it wrapped around"},
		{"9223372036854775808", refused, "2^63"},
		{"18446744073709551617", refused, "2^64+1, 1 if it wrapped around"},
		{strings.Repeat("9", 400), refused, "huge"},
	}
	onBothLists(t, func(t *testing.T, l pagedList) {
		for _, test := range tests {
			t.Run(test.why, func(t *testing.T) {
				asked := refused
				h := New(l.stub(func(_ context.Context, _ string, limit int) ([]Resource, error) {
					asked = limit - 1
					return nil, nil
				}))
				got := get(h, l.path+"?limit="+test.value)
				if asked != test.want {
					t.Errorf("limit=%s was taken for %d, want %d", test.value, asked, test.want)
				}
				if test.want == refused {
					faults := got.wantQueryFaults(t, "limit")
					if len(faults) != 1 || where(faults) != "limit[1,500]" {
						t.Errorf("want one fault with the minimum 1 and the maximum 500: %s", got.body)
					}
				}
			})
		}
	})
}

func TestPageSizes(t *testing.T) {
	tests := []struct {
		opts       Options
		size, most int
	}{
		{Options{}, 50, 500},
		{Options{PageSize: 1}, 1, 500},
		{Options{MaxPageSize: 49}, 49, 49},
		{Options{MaxPageSize: 501}, 50, 501},
		{Options{PageSize: 3, MaxPageSize: 5}, 3, 5},
		{Options{PageSize: 1_000_000, MaxPageSize: 1_000_000}, 1_000_000, 1_000_000},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("PageSize %d, MaxPageSize %d", test.opts.PageSize, test.opts.MaxPageSize), func(t *testing.T) {
			asked := 0
			list := func(_ context.Context, _ string, limit int) ([]Resource, error) {
				asked = limit - 1
				return nil, nil
			}
			h := NewWithOptions(&stubStore{listUsers: list, listWidgets: list}, &test.opts)
			if get(h, "/v1/users"); asked != test.size {
				t.Errorf("a page of users has %d items, want %d", asked, test.size)
			}
			for _, l := range pagedLists {
				if get(h, l.at(test.most, "")); asked != test.most {
					t.Errorf("limit=%d was taken for %d", test.most, asked)
				}
				faults := get(h, l.at(test.most+1, "")).wantQueryFaults(t, "limit")
				if where(faults) != fmt.Sprintf("limit[1,%d]", test.most) || !strings.Contains(faults[0].Detail, strconv.Itoa(test.most)) {
					t.Errorf("want the maximum %d in %+v", test.most, faults[0])
				}
			}
		})
	}
}

func TestQueryIsParsedStrictly(t *testing.T) {
	const (
		unknown  = "Unknown parameter"
		repeated = "more than once"
		escape   = "hexadecimal"
		semi     = "semicolon"
	)
	tests := []struct {
		query  string
		faults []string // the parameters
		detail string   // a part of that of the first fault
	}{
		{"limit=2&limit=3", []string{"limit"}, repeated},
		{"limit=2&limit", []string{"limit"}, repeated},
		{"limit", []string{"limit"}, "from 1 to 500"},
		{"limit=2&&&limit=2", []string{"limit"}, repeated},
		{"limit=2&%6Cimit=2", []string{"limit"}, repeated},

		{"limit=2&x=1", []string{"x"}, unknown},
		{"limit=2&x=1&y=2&x=3", []string{"x", "y", "x"}, unknown},
		{"limit=2&Limit=2", []string{"Limit"}, unknown},
		{"limit=2&limit[]=2", []string{"limit[]"}, unknown},
		{"limit=2&+limit=2", []string{" limit"}, unknown},
		{"limit=2&%FF=1", []string{"\ufffd"}, unknown},
		{"limit=2&=5", []string{"=5"}, unknown}, // a fault always says where it is

		{"limit=%zz", []string{"limit"}, escape},
		{"limit=2%", []string{"limit"}, escape},
		{"limit=2&x=%zz", []string{"x"}, escape},
		{"limit=2&%zz=1", []string{"%zz"}, escape},

		{"limit=2;", []string{"limit"}, semi},
		{"limit=2&;", []string{";"}, semi},
		{"limit=2&x;y=1", []string{"x;y"}, semi},
	}
	onBothLists(t, func(t *testing.T, l pagedList) {
		for _, test := range tests {
			t.Run(test.query, func(t *testing.T) {
				faults := get(New(&stubStore{}), l.path+"?"+test.query).wantQueryFaults(t, test.faults...)
				if !strings.Contains(faults[0].Detail, test.detail) {
					t.Errorf("the first fault's detail is %q, want one with %q", faults[0].Detail, test.detail)
				}
			})
		}
	})
}

func TestQueryFaultsAreAllReportedAtOnce(t *testing.T) {
	got := get(New(&stubStore{}), "/v2/widgets?limit=0&x=1&start=&limit=3&after=y&a;b&c=%zz")
	got.wantQueryFaults(t, "x", "limit", "after", "a;b", "c", "limit", "start")

	got = get(New(&stubStore{}), "/v2/widgets?start=&x=1")
	got.wantQueryFaults(t, "x", "limit", "start")
}

func TestParameterOfTheOtherListIsUnknown(t *testing.T) {
	for target, known := range map[string]string{"/v1/users?start=AXcxzyNcLg": "limit, after", "/v2/widgets?limit=1&after=AXUx_RU-rA": "limit, start"} {
		faults := get(New(&stubStore{}), target).wantProblem(t, 400, "invalid-query").Errors
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Detail, "Unknown parameter") || !strings.Contains(faults[0].Detail, known) {
			t.Errorf("%s: want one fault that names the parameters %s: %+v", target, known, faults)
		}
	}
}

func TestEndpointsWithoutParametersRefuseAny(t *testing.T) {
	store := new(MemStore)
	store.Products.Put(MustResource("p1", nil))
	for _, endpoint := range []trial{
		read(200, "/v1/products/p1"),
		read(200, "/openapi.json"),
		order(201, teapots),
	} {
		t.Run(endpoint.target, func(t *testing.T) {
			with := func(store Store, query string) response {
				r := endpoint
				r.target += query
				return r.send(New(store))
			}
			for query, parameters := range map[string][]string{
				"?limit=1":         {"limit"},
				"?product_id=p1":   {"product_id"},
				"?a=1&b=2":         {"a", "b"},
				"?a=1&a=1":         {"a"},
				"?a":               {"a"},
				"?;":               {";"},
				"?%":               {"%"},
				"?=":               {"="},
				"?x=1&%67oat=%zz":  {"x", "goat"},
				"?qty=1&item=cake": {"qty", "item"},
			} {
				with(&stubStore{}, query).wantQueryFaults(t, parameters...)
			}
			for _, query := range []string{"?", "?&", "?&&"} {
				with(store, query).wantStatus(t, endpoint.status)
			}
		})
	}
}

// named returns a store in which the list has the items a1, a2 and a3, with names.
func (l pagedList) named() *MemStore {
	store := new(MemStore)
	for id, name := range map[string]string{"a1": "Ann", "a2": "Bob", "a3": "Cy"} {
		l.collection(store).Put(MustResource(id, map[string]any{"name": name}))
	}
	return store
}

func TestPageToTheByte(t *testing.T) {
	const lastTag, lastPage = `"XMlZifkOhA0KVE_DuLl6bQ"`, `{"data":[{"id":"a3","name":"Cy"}],"has_more":false}`
	for _, test := range []struct{ list, target, etag, link, body string }{
		{"users", "/v1/users?limit=2", `"E8zxS3yS0dbPRXg9wjbDeQ"`, `<users?limit=2&after=AXVhMn_zGaQ>; rel="next"`,
			`{"data":[{"id":"a1","name":"Ann"},{"id":"a2","name":"Bob"}],"has_more":true,"next":"AXVhMn_zGaQ"}`},
		{"users", "/v1/users?limit=2&after=AXVhMn_zGaQ", lastTag, "", lastPage},
		{"widgets", "/v2/widgets?limit=%30%32", `"Xlli8zYV5RHt94Vc-UeElQ"`, `<widgets?limit=2&start=AXdhMwtw_Vw>; rel="next"`,
			`{"data":[{"id":"a1","name":"Ann"},{"id":"a2","name":"Bob"}],"has_more":true,"next":"AXdhMwtw_Vw"}`},
		{"widgets", "/v2/widgets?limit=2&start=AXdhMwtw_Vw", lastTag, "", lastPage},
	} {
		t.Run(test.target, func(t *testing.T) {
			want := response{http.StatusOK, http.Header{
				"Content-Type":           {"application/json"},
				"Content-Length":         {strconv.Itoa(len(test.body))},
				"X-Content-Type-Options": {"nosniff"},
				"Cache-Control":          {"private, no-cache"},
				"Etag":                   {test.etag},
			}, test.body}
			if test.link != "" {
				want.header.Set("Link", test.link)
			}
			if diff := want.diff(get(New(pagedLists[test.list].named()), test.target)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestUsersLimitIsOptional(t *testing.T) {
	for _, query := range []string{"", "?", "?after=" + usersList.encodeCursor("a1")} {
		asked := 0
		h := New(&stubStore{listUsers: func(_ context.Context, _ string, limit int) ([]Resource, error) {
			asked = limit
			return nil, nil
		}})
		if get(h, "/v1/users"+query); asked != 50+1 {
			t.Errorf("%q: the store was asked for %d users, want 51", query, asked)
		}
	}
	h := NewWithOptions(pagedLists["users"].named(), &Options{PageSize: 2})
	if got, want := get(h, "/v1/users").header.Get("Link"), `<users?limit=2&after=AXVhMn_zGaQ>; rel="next"`; got != want {
		t.Errorf("Link: %s, want %s", got, want)
	}
}

func TestWidgetsLimitIsRequired(t *testing.T) {
	for want, opts := range map[string]*Options{"limit[1,500]": nil, "limit[1,10]": {PageSize: 5, MaxPageSize: 10}} {
		for _, query := range []string{"", "?", "?&", "?start=" + widgetsList.encodeCursor("a1")} {
			faults := get(NewWithOptions(&stubStore{}, opts), "/v2/widgets"+query).wantQueryFaults(t, "limit")
			if !strings.Contains(faults[0].Detail, "required") || where(faults) != want {
				t.Errorf("%q: want a fault that says that limit is required, %s: %+v", query, want, faults)
			}
		}
	}
}

func TestPageIsTheLastWhenNothingFollows(t *testing.T) {
	onBothLists(t, func(t *testing.T, l pagedList) {
		h := New(l.store("a", "b", "c"))
		for limit, more := range map[int]bool{1: true, 2: true, 3: false, 4: false, 500: false} {
			if p := getPage(t, h, l.at(limit, "")); *p.HasMore != more {
				t.Errorf("limit=%d of 3 items: has_more is %t", limit, *p.HasMore)
			}
		}
	})
}

func TestItemsStandInAPageAsTheyWereRendered(t *testing.T) {
	onBothLists(t, func(t *testing.T, l pagedList) {
		store := new(MemStore)
		items := []Resource{
			MustResource(`a"\b`, map[string]any{"text": "<&> \u2028 \" ü", "n": json.Number("1.50")}),
			MustResource("b", json.RawMessage(`{"z": 1, "a": [ ], "next": "no cursor", "data": null}`)),
		}
		l.collection(store).Put(items...)
		want := `{"data":[` + items[0].String() + `,` + items[1].String() + `],"has_more":false}`
		if got := get(New(store), l.at(5, "")); got.body != want {
			t.Errorf("got  %s\nwant %s", got.body, want)
		}
	})
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
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Errorf("calls of the store (-want +got):\n%s", diff)
		}
	})
}

func TestStoreThatReturnsMoreThanItWasAskedFor(t *testing.T) {
	onBothLists(t, func(t *testing.T, l pagedList) {
		list := func(ctx context.Context, position string, limit int) ([]Resource, error) {
			if l.kind == usersList {
				return l.store("a", "b", "c", "d", "e").ListUsers(ctx, position, 100)
			}
			return l.store("a", "b", "c", "d", "e").ListWidgets(ctx, position, 100)
		}
		got := l.walk(t, 2, nil, New(l.stub(list)))
		if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, got); diff != "" {
			t.Errorf("walk (-want +got):\n%s", diff)
		}
	})
}

// A walk over such pages might never end, or leave items out.
func TestStoreWhosePagesDoNotAdvance(t *testing.T) {
	onBothLists(t, func(t *testing.T, l pagedList) {
		for _, test := range []struct {
			name, position, ids string // "0" is the zero Resource
			says                string // in the log
		}{
			{"before the position", "m", "a n", `"a" for the position "m"`},
			{"just before the position", "m", "l\u00ff", `for the position "m"`},
			{"not ascending", "", "a c b", `"b" behind "c"`},
			{"not ascending byte by byte", "", "a B", `"B" behind "a"`},
			{"not ascending behind the page", "", "a c d b", `"b" behind "d"`},
			{"an ID twice", "", "a a", `"a" twice`},
			{"the zero Resource alone", "", "0", "the zero Resource"},
			{"the zero Resource on the page", "", "a 0", "the zero Resource"},
			{"the zero Resource behind the page", "", "a b c 0", "the zero Resource"}, // next would be of it
		} {
			t.Run(test.name, func(t *testing.T) {
				items := bareResources(strings.Fields(test.ids)...)
				if strings.HasSuffix(test.ids, "0") {
					items[len(items)-1] = Resource{}
				}
				h, log := logged(l.stub(func(context.Context, string, int) ([]Resource, error) { return items, nil }))
				cursor := ""
				if test.position != "" {
					cursor = l.kind.encodeCursor(test.position)
				}
				p := get(h, l.at(3, cursor)).wantProblem(t, http.StatusInternalServerError, "internal-error")
				if lines := log.incidents(t); len(lines) != 1 || lines[0].Incident != p.Instance || !strings.Contains(lines[0].Error, test.says) {
					t.Errorf("want the incident %s and %s in the log: %s", p.Instance, test.says, log)
				}
			})
		}
		t.Run("at the position", func(t *testing.T) {
			h := quiet(l.stub(func(context.Context, string, int) ([]Resource, error) { return bareResources("m"), nil }))
			want := map[listKind]int{usersList: http.StatusInternalServerError, widgetsList: http.StatusOK}[l.kind]
			get(h, l.at(3, l.kind.encodeCursor("m"))).wantStatus(t, want)
		})
	})
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
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder(), meanwhile: func() { get(h, "/v1/users?limit=1") }}
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
	states := map[string][]Resource{
		"empty":               {},
		"one":                 bareResources("a"),
		"two":                 bareResources("a", "b"),
		"three":               bareResources("a", "b", "c"),
		"four":                bareResources("a", "b", "c", "d"),
		"a field":             {with("a", "red"), with("b", "red")},
		"another field":       {with("a", "red"), with("b", "blue")},
		"fields swapped":      {with("a", "blue"), with("b", "red")},
		"IDs that look alike": bareResources("a\",\"b", "ab"),
	}
	onBothLists(t, func(t *testing.T, l pagedList) {
		type page struct{ name, body, etag string }
		var pages []page
		for name, items := range states {
			// Two replicas, filled in different order.
			first, second := new(MemStore), new(MemStore)
			l.collection(first).Put(items...)
			slices.Reverse(items)
			l.collection(second).Put(items...)
			for replica, store := range []*MemStore{first, second} {
				for limit := 1; limit <= 4; limit++ {
					got := get(New(store), l.at(limit, ""))
					pages = append(pages, page{fmt.Sprintf("%s, limit %d, replica %d", name, limit, replica), got.body, got.header.Get("Etag")})
				}
			}
		}
		strong := regexp.MustCompile(`^"[!#-~]+"$`)
		for i, p := range pages {
			if !strong.MatchString(p.etag) {
				t.Errorf("%s: the ETag is %s, want a strong one", p.name, p.etag)
			}
			for _, q := range pages[:i] {
				if (p.etag == q.etag) != (p.body == q.body) {
					t.Errorf("%s: %s %s\n%s: %s %s", p.name, p.etag, p.body, q.name, q.etag, q.body)
				}
			}
		}
	})
}

// Cursors that clients hold must stay good for ever: never change these.
func TestCursorFormatIsFrozen(t *testing.T) {
	tests := []struct{ id, users, widgets string }{
		{"1", "AXUx_RU-rA", "AXcxzyNcLg"},
		{"a1", "AXVhMeb6SB4", "AXdhMeV-nHA"},
		{"a b&c=d", "AXVhIGImYz1kM6KRNw", "AXdhIGImYz1kcYeWSg"},
		{"Zoë", "AXVab8OrDUSAjw", "AXdab8Ord4TT7w"},
		{"🫖", "AXXwn6uWbxqngA", "AXfwn6uWFdr04A"},
		{
			strings.Repeat("x", 255),
			"AXV4" + strings.Repeat("eHh4", 83) + "eHh4eHhCjTy3",
			"AXd4" + strings.Repeat("eHh4", 83) + "eHh4eHgFmtlg",
		},
	}
	for _, test := range tests {
		for name, cursor := range map[string]string{"users": test.users, "widgets": test.widgets} {
			t.Run(name+" "+test.id[:min(len(test.id), 20)], func(t *testing.T) {
				l := pagedLists[name]
				position := ""
				h := New(l.stub(func(_ context.Context, p string, _ int) ([]Resource, error) {
					position = p
					return nil, nil
				}))
				if get(h, l.at(1, cursor)); position != test.id {
					t.Errorf("%s is the position %q, want %q", cursor, position, test.id)
				}
				// It is the last of a page of users, and the first of the next page of widgets.
				items := map[string][]Resource{"users": bareResources(test.id, "\U0010FFFD"), "widgets": bareResources(" ", test.id)}
				h = New(l.stub(func(context.Context, string, int) ([]Resource, error) { return items[name], nil }))
				if p := getPage(t, h, l.at(1, "")); *p.Next != cursor {
					t.Errorf("next is %s, want %s", *p.Next, cursor)
				}
			})
		}
	}
}

// forgedCursor returns the cursor of any bytes, with a good checksum.
func forgedCursor(version byte, kind listKind, position string) string {
	raw := append([]byte{version, byte(kind)}, position...)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(raw, crc32.ChecksumIEEE(raw)))
}

func TestInvalidCursorsAreRefused(t *testing.T) {
	onBothLists(t, func(t *testing.T, l pagedList) {
		other := usersList + widgetsList - l.kind
		cursor := l.kind.encodeCursor("u2")
		for why, invalid := range map[string]string{
			"empty":                            "",
			"not a cursor":                     "page2",
			"an ID":                            "u2",
			"the other list's":                 other.encodeCursor("u2"),
			"no list's":                        forgedCursor(1, 'x', "u2"),
			"an earlier version":               forgedCursor(0, l.kind, "u2"),
			"a later version":                  forgedCursor(2, l.kind, "u2"),
			"an empty position":                forgedCursor(1, l.kind, ""),
			"a position of 256 bytes":          forgedCursor(1, l.kind, strings.Repeat("x", 256)),
			"over 512 bytes":                   forgedCursor(1, l.kind, strings.Repeat("x", 400)),
			"a position that is not UTF-8":     forgedCursor(1, l.kind, "u\xff"),
			"a position with a control":        forgedCursor(1, l.kind, "u\n"),
			"too short for a checksum":         base64.RawURLEncoding.EncodeToString([]byte{1, byte(l.kind), 0, 0, 0}),
			"a space before":                   " " + cursor,
			"lower case":                       strings.ToLower(cursor),
			"padded":                           l.kind.encodeCursor("1") + "==",
			"the other alphabet":               strings.NewReplacer("-", "+", "_", "/").Replace(l.kind.encodeCursor("1") + l.kind.encodeCursor("a1")),
			"a line break within":              cursor[:4] + "\r\n" + cursor[4:],
			"a character is missing":           cursor[:4] + cursor[5:],
			"two characters are swapped":       cursor[:4] + cursor[5:6] + cursor[4:5] + cursor[6:],
			"a cursor and a fragment of zeros": cursor + "AAAA",
			"a million bytes":                  strings.Repeat("A", 1_000_000),
		} {
			t.Run(why, func(t *testing.T) {
				faults := get(New(&stubStore{}), l.at(1, "x")[:len(l.at(1, "x"))-1]+url.QueryEscape(invalid)).wantQueryFaults(t, l.param)
				if len(faults) != 1 {
					t.Errorf("want one fault: %+v", faults)
				}
			})
		}
	})
}

func TestWalkSeesEveryItemOnceAndInOrder(t *testing.T) {
	ids := []string{strings.Repeat("x", 255), strings.Repeat("日", 85), "/?#[]@!$&'()*+,;=%\"<>\\ ", "Zoë Ünal 日本語 🫖", "~"}
	for i := range 500 - len(ids) {
		ids = append(ids, "item"+strconv.Itoa(i)) // byte order is not that of the numbers
	}
	slices.Sort(ids)
	onBothLists(t, func(t *testing.T, l pagedList) {
		replicas := []http.Handler{New(l.store(ids...)), New(l.store(ids...)), New(l.store(ids...))}
		for _, limit := range []int{1, 2, 3, 7, 64, 65, 249, 250, 499, 500} {
			if diff := cmp.Diff(ids, l.walk(t, limit, nil, replicas...)); diff != "" {
				t.Errorf("limit=%d: walk (-want +got):\n%s", limit, diff)
			}
		}
	})
}

// checkWalk checks that a walk has seen all of there, of which nothing was
// deleted meanwhile, and nothing twice or out of order.
func checkWalk(t *testing.T, seen, there []string) {
	t.Helper()
	for i, id := range seen[1:] {
		if id <= seen[i] {
			t.Errorf("%s came after %s", id, seen[i])
		}
	}
	for _, id := range there {
		if _, found := slices.BinarySearch(seen, id); !found {
			t.Errorf("%s was there throughout and was not seen", id)
		}
	}
}

func TestWalkWhileItemsComeAndGoBetweenPages(t *testing.T) {
	id := func(i int) string { return fmt.Sprintf("i%03d", i) }
	onBothLists(t, func(t *testing.T, l pagedList) {
		for seed := range uint64(20) {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				store := new(MemStore)
				items := l.collection(store)
				var there []string
				for i := range 200 {
					if i%3 == 0 {
						there = append(there, id(i))
					}
					items.Put(MustResource(id(i), nil))
				}
				seen := l.walk(t, 1+random.IntN(40), func(seen []string) {
					// Changes near the position matter most.
					near, _ := strconv.Atoi(seen[len(seen)-1][1:])
					for range 10 {
						switch i := max(0, near+random.IntN(11)-5); {
						case i%3 == 0 && i < 200:
							items.Put(MustResource(id(i), map[string]any{"n": random.Int()}))
						case random.IntN(2) == 0:
							items.Put(MustResource(id(i), nil))
						default:
							items.Delete(id(i))
						}
					}
				}, New(store))
				checkWalk(t, seen, there)
			})
		}
	})
}

func FuzzCursor(f *testing.F) {
	for _, id := range []string{"", "1", "a1", "abc", "Zoë", "\xff", "\n", strings.Repeat("x", 255), strings.Repeat("x", 256)} {
		f.Add(id, usersList.encodeCursor(id), uint16(0), "A")
		f.Add(id, widgetsList.encodeCursor(id), uint16(3), "\n")
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
				if position, ok := kind.decodeCursor(candidate); ok && (forgedCursor(cursorVersion, kind, position) != candidate || len(candidate) > 512) {
					t.Fatalf("%q is accepted and is not the cursor of %q, which it is taken for", candidate, position)
				}
			}
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, query := range []string{
		"", "&", "=", "limit=2&after=x", "limit=2&limit=3", "%6cimit=%32", "a+b=c+d", "x",
		"a;b", "a=%zz", "%=", "%zz;", "limit=%ff&%ff=1", "\uffff&%F0%9F%BF%BE", "\ufdd0", "limit==2", "limit=+5", "=5",
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		if strings.Count(query, "&") >= maxFaults || len(query) > maxNameInFault {
			t.Skip("what faults say is cut")
		}
		for _, names := range [][]string{{}, {"limit"}, {"limit", "after"}} {
			params, faults := parseQuery(query, names...)
			for _, fault := range faults {
				if fault.Parameter == "" || fault.Detail == "" {
					t.Errorf("%q: the fault %+v says not where or what", query, fault)
				}
			}
			values, err := url.ParseQuery(query)
			if err != nil {
				if faults == nil {
					t.Errorf("%q is accepted, and url.ParseQuery says %v", query, err)
				}
				continue
			}
			given, refused := map[string]bool{}, map[string]int{} // how often, by name
			for name, all := range values {
				n := len(all)
				if slices.Contains(names, name) {
					n--
				}
				name = strings.Map(func(r rune) rune {
					if r&0xFFFE == 0xFFFE || 0xFDD0 <= r && r <= 0xFDEF { // a noncharacter
						return '\ufffd'
					}
					return r
				}, strings.ToValidUTF8(name, "\ufffd"))
				given[name] = true
				if n > 0 && name != "" {
					refused[name] += n
				}
			}
			for _, fault := range faults {
				if given[fault.Parameter] {
					refused[fault.Parameter]--
				} else if !values.Has("") {
					t.Errorf("%q: there is no parameter %q", query, fault.Parameter)
				}
			}
			for name, n := range refused {
				if n != 0 {
					t.Errorf("%q with %q: %d faults of %q too few", query, names, n, name)
				}
			}
			if nameless := values.Has(""); (len(refused) > 0 || nameless) != (faults != nil) {
				t.Errorf("%q with %q: faults %+v", query, names, faults)
			}
			for i, name := range names {
				if want := (queryParam{values.Get(name), values.Has(name), false}); params[i] != want {
					t.Errorf("%q: %s is %+v, want %+v", query, name, params[i], want)
				}
			}
		}
	})
}
