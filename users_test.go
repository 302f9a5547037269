package storefront

import (
	"context"
	"fmt"
	"net/http"
	"testing"
)

func threeUsers() *MemStore {
	store := new(MemStore)
	store.Users.Put(
		MustResource("a1", map[string]any{"name": "Ann"}),
		MustResource("a2", map[string]any{"name": "Bob"}),
		MustResource("a3", map[string]any{"name": "Cy"}))
	return store
}

func TestUsersPageToTheByte(t *testing.T) {
	tests := []struct {
		name, target string
		want         response
	}{
		{"first", "/v1/users?limit=2", response{http.StatusOK, http.Header{
			"Content-Type":           {"application/json"},
			"Content-Length":         {"97"},
			"X-Content-Type-Options": {"nosniff"},
			"Cache-Control":          {"private, max-age=60"},
			"Etag":                   {`"E8zxS3yS0dbPRXg9wjbDeQ"`},
			"Link":                   {`<?limit=2&after=AXVhMn_zGaQ>; rel="next"`},
		}, `{"data":[{"id":"a1","name":"Ann"},{"id":"a2","name":"Bob"}],"has_more":true,"next":"AXVhMn_zGaQ"}`}},
		{"last", "/v1/users?limit=2&after=AXVhMn_zGaQ", response{http.StatusOK, http.Header{
			"Content-Type":           {"application/json"},
			"Content-Length":         {"51"},
			"X-Content-Type-Options": {"nosniff"},
			"Cache-Control":          {"private, max-age=60"},
			"Etag":                   {`"XMlZifkOhA0KVE_DuLl6bQ"`},
		}, `{"data":[{"id":"a3","name":"Cy"}],"has_more":false}`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := get(New(threeUsers()), test.target)
			if diff := test.want.diff(got); diff != "" {
				t.Errorf("GET %s (-want +got):\n%s", test.target, diff)
			}
		})
	}
}

func TestUsersLimitIsOptional(t *testing.T) {
	for _, query := range []string{"", "?", "?after=" + usersList.cursor("a1")} {
		asked := 0
		h := New(&stubStore{listUsers: func(_ context.Context, _ string, limit int) ([]Resource, error) {
			asked = limit
			return nil, nil
		}})
		if get(h, "/v1/users"+query); asked != 50+1 {
			t.Errorf("%q: the store was asked for %d users, want 51", query, asked)
		}
	}
}

func TestUsersLinkNamesTheDefaultLimit(t *testing.T) {
	h := NewWithOptions(threeUsers(), &Options{PageSize: 2})
	if got, want := get(h, "/v1/users").header.Get("Link"), `<?limit=2&after=AXVhMn_zGaQ>; rel="next"`; got != want {
		t.Errorf("Link: %s, want %s", got, want)
	}
}

func TestUsersAfterIsExclusive(t *testing.T) {
	h := New(threeUsers())
	for position, want := range map[string]string{
		"a":  "[a1 a2 a3]",
		"a1": "[a2 a3]",
		"a2": "[a3]",
		"a3": "[]",
		"a9": "[]",
	} {
		target := "/v1/users?after=" + usersList.cursor(position)
		if got := fmt.Sprint(getPage(t, h, target).ids()); got != want {
			t.Errorf("after %s: %s, want %s", position, got, want)
		}
	}
}

func TestUsersNextNamesTheLastItemOfThePage(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Collection)
		want   string
	}{
		{"nothing changes", func(*Collection) {}, "[a3]"},
		{"that item is deleted", func(users *Collection) { users.Delete("a2") }, "[a3]"},
		{"the page is deleted", func(users *Collection) { users.Delete("a1", "a2") }, "[a3]"},
		{"all that follows is deleted", func(users *Collection) { users.Delete("a3") }, "[]"},
		{"everything is deleted", func(users *Collection) { users.Delete("a1", "a2", "a3") }, "[]"},
		{"one comes right before it", func(users *Collection) { users.Put(MustResource("a1z", nil)) }, "[a3]"},
		{"one comes right behind it", func(users *Collection) { users.Put(MustResource("a2!", nil)) }, "[a2! a3]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			store := threeUsers()
			h := New(store)
			first := getPage(t, h, "/v1/users?limit=2")
			if position, _ := usersList.position(*first.Next); position != "a2" {
				t.Fatalf("next names %q, want a2", position)
			}
			test.change(&store.Users)
			if got := fmt.Sprint(getPage(t, h, "/v1/users?limit=2&after="+*first.Next).ids()); got != test.want {
				t.Errorf("the next page is %s, want %s", got, test.want)
			}
		})
	}
}
