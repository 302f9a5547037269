package storefront

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func threeWidgets() *MemStore {
	store := new(MemStore)
	store.Widgets.Put(
		MustResource("a1", map[string]any{"name": "Ann"}),
		MustResource("a2", map[string]any{"name": "Bob"}),
		MustResource("a3", map[string]any{"name": "Cy"}))
	return store
}

func TestWidgetsPageToTheByte(t *testing.T) {
	tests := []struct {
		name, target string
		want         response
	}{
		{"first", "/v2/widgets?limit=2", response{http.StatusOK, http.Header{
			"Content-Type":           {"application/json"},
			"Content-Length":         {"97"},
			"X-Content-Type-Options": {"nosniff"},
			"Cache-Control":          {"private, max-age=60"},
			"Etag":                   {`"Xlli8zYV5RHt94Vc-UeElQ"`},
			"Link":                   {`<?limit=2&start=AXdhMwtw_Vw>; rel="next"`},
		}, `{"data":[{"id":"a1","name":"Ann"},{"id":"a2","name":"Bob"}],"has_more":true,"next":"AXdhMwtw_Vw"}`}},
		{"last", "/v2/widgets?limit=2&start=AXdhMwtw_Vw", response{http.StatusOK, http.Header{
			"Content-Type":           {"application/json"},
			"Content-Length":         {"51"},
			"X-Content-Type-Options": {"nosniff"},
			"Cache-Control":          {"private, max-age=60"},
			"Etag":                   {`"XMlZifkOhA0KVE_DuLl6bQ"`},
		}, `{"data":[{"id":"a3","name":"Cy"}],"has_more":false}`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := get(New(threeWidgets()), test.target)
			if diff := test.want.diff(got); diff != "" {
				t.Errorf("GET %s (-want +got):\n%s", test.target, diff)
			}
		})
	}
}

func TestWidgetsLimitIsRequired(t *testing.T) {
	for _, query := range []string{"", "?", "?&", "?start=" + widgetsList.cursor("a1")} {
		faults := get(New(&stubStore{}), "/v2/widgets"+query).wantQueryFaults(t, "limit")
		if f := faults[0]; !strings.Contains(f.Detail, "required") || where([]Fault{f}) != "limit[1,500]" {
			t.Errorf("%q: want a fault that says that limit is required, from 1 to 500: %+v", query, f)
		}
	}
}

func TestWidgetsLimitIsRequiredWhateverThePageSize(t *testing.T) {
	h := NewWithOptions(&stubStore{}, &Options{PageSize: 5, MaxPageSize: 10})
	if f := get(h, "/v2/widgets").wantQueryFaults(t, "limit")[0]; where([]Fault{f}) != "limit[1,10]" {
		t.Errorf("the maximum is %d, want 10", f.Maximum)
	}
}

func TestWidgetsStartIsInclusive(t *testing.T) {
	h := New(threeWidgets())
	for position, want := range map[string]string{
		"a":   "[a1 a2 a3]",
		"a1":  "[a1 a2 a3]",
		"a1!": "[a2 a3]",
		"a2":  "[a2 a3]",
		"a3":  "[a3]",
		"a9":  "[]",
	} {
		target := "/v2/widgets?limit=9&start=" + widgetsList.cursor(position)
		if got := fmt.Sprint(getPage(t, h, target).ids()); got != want {
			t.Errorf("from %s: %s, want %s", position, got, want)
		}
	}
}

func TestWidgetsNextNamesTheFirstItemOfTheNextPage(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Collection)
		want   string
	}{
		{"nothing changes", func(*Collection) {}, "[a3]"},
		{"that item is deleted", func(widgets *Collection) { widgets.Delete("a3") }, "[]"},
		{"that item is deleted and one follows", func(widgets *Collection) {
			widgets.Delete("a3")
			widgets.Put(MustResource("a4", nil))
		}, "[a4]"},
		{"the page is deleted", func(widgets *Collection) { widgets.Delete("a1", "a2") }, "[a3]"},
		{"one comes right before it", func(widgets *Collection) { widgets.Put(MustResource("a2z", nil)) }, "[a3]"},
		{"one comes right behind it", func(widgets *Collection) { widgets.Put(MustResource("a3!", nil)) }, "[a3 a3!]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			store := threeWidgets()
			h := New(store)
			first := getPage(t, h, "/v2/widgets?limit=2")
			if position, _ := widgetsList.position(*first.Next); position != "a3" {
				t.Fatalf("next names %q, want a3", position)
			}
			test.change(&store.Widgets)
			if got := fmt.Sprint(getPage(t, h, "/v2/widgets?limit=2&start="+*first.Next).ids()); got != test.want {
				t.Errorf("the next page is %s, want %s", got, test.want)
			}
		})
	}
}
