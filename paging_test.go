package storefront

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A pagedList is what the tests of both lists need to know of one.
type pagedList struct {
	path, param string
	kind        listKind
}

var pagedLists = map[string]pagedList{
	"users":   {"/v1/users", "after", usersList},
	"widgets": {"/v2/widgets", "start", widgetsList},
}

// at returns the target of a page; no position is the first one.
func (l pagedList) at(limit int, position string) string {
	target := l.path + "?limit=" + strconv.Itoa(limit)
	if position != "" {
		target += "&" + l.param + "=" + position
	}
	return target
}

// withUsers returns a store that has users.
func withUsers(ids ...string) *MemStore {
	store := new(MemStore)
	store.Users.Put(bareResources(ids...)...)
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
		}
	}
}

func TestStoreIsAskedOnceForOneMoreThanThePage(t *testing.T) {
	type account struct{}
	for name, l := range pagedLists {
		var calls []string
		list := func(ctx context.Context, position string, limit int) ([]Resource, error) {
			calls = append(calls, fmt.Sprintf("for %v from %q, %d", ctx.Value(account{}), position, limit))
			return nil, nil
		}
		h := New(&stubStore{listUsers: list, listWidgets: list})
		for _, target := range []string{l.at(7, ""), l.at(500, l.kind.encodeCursor("Zoë/1"))} {
			do(h, newRequest("GET", target, "").WithContext(context.WithValue(t.Context(), account{}, "ann")))
		}
		want := []string{`for ann from "", 8`, `for ann from "Zoë/1", 501`}
		if !slices.Equal(calls, want) {
			t.Errorf("%s: calls of the store: %q, want %q", name, calls, want)
		}
	}
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
}

func (w *slowWriter) Write(body []byte) (int, error) {
	w.meanwhile()
	return w.ResponseRecorder.Write(body)
}

func TestPageThatIsBeingWrittenIsNotWrittenOver(t *testing.T) {
	h := New(withUsers("ada", "grace", "linus"))
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

// forgedCursor returns the cursor of any bytes, with a good checksum.
func forgedCursor(version byte, kind listKind, position string) string {
	raw := append([]byte{version, byte(kind)}, position...)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(raw, crc32.ChecksumIEEE(raw)))
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
		if len(query) > 10_000 {
			t.Skip("url.ParseQuery may refuse so many pairs")
		}
		for _, names := range [][]string{{}, {"limit"}, {"limit", "after"}} {
			params, faults := parseQuery(query, names...)
			values, err := url.ParseQuery(query)
			good := err == nil
			for name, given := range values {
				good = good && slices.Contains(names, name) && len(given) == 1
			}
			if good != (faults == nil) || len(faults) > maxFaults {
				t.Errorf("%q, %q: faults %+v, want some: %t", query, names, faults, !good)
			}
			for i, name := range names {
				given := queryParam{values.Get(name), values.Has(name), false}
				if good && params[i] != given {
					t.Errorf("%q: %s is %+v, want %+v", query, name, params[i], given)
				}
			}
			for _, f := range faults {
				if f.Detail == "" || f.Parameter == "" || f.Header+f.Pointer != "" {
					t.Errorf("%q: want a detail and a parameter alone in the fault %+v", query, f)
				}
			}
		}
	})
}
