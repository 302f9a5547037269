package releases

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"example.com/storefront"
)

// account is the header by which the shop tells its scopes.
const account = "X-Account"

// serve serves a store, and logs nothing.
func serve(store storefront.Store) http.Handler {
	return storefront.NewWithOptions(store, &storefront.Options{
		Logger:      slog.New(slog.DiscardHandler),
		Scope:       func(r *http.Request) string { return r.Header.Get(account) },
		OrderFields: true,
	})
}

// get requests a path.
func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	return do(h, httptest.NewRequest("GET", path, nil), headers)
}

// post sends an order.
func post(h http.Handler, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(body))
	return do(h, r, append(headers, "Content-Type", "application/json"))
}

// do sends a request with headers, each a name and a value.
func do(h http.Handler, r *http.Request, headers []string) *httptest.ResponseRecorder {
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// lists are the paged lists: their paths, and which parameter takes a cursor.
var lists = map[string][2]string{"users": {"/v1/users", "after"}, "widgets": {"/v2/widgets", "start"}}

// An observer is a store that notes what the service asks of it.
type observer struct {
	storefront.Store
	list     []storefront.Resource // what lists return
	position string
	key      storefront.IdempotencyKey
}

func (o *observer) ListUsers(_ context.Context, after string, _ int) ([]storefront.Resource, error) {
	o.position = after
	return o.list, nil
}

func (o *observer) ListWidgets(_ context.Context, start string, _ int) ([]storefront.Resource, error) {
	o.position = start
	return o.list, nil
}

func (o *observer) CreateOrder(
	_ context.Context, key storefront.IdempotencyKey, order storefront.Order,
) (storefront.Order, error) {
	o.key = key
	return order, nil
}

// A cursor leads to a position in a list.
type cursor struct{ List, Position, Cursor string }

func recordCursors(t *testing.T, last, release string) {
	cursors := fromJSON[[]cursor](t, last, "cursors.json")
	first, end := storefront.MustResource(" ", nil), storefront.MustResource("\U0010fffd", nil) // by their IDs
	for i, c := range cursors {
		at := storefront.MustResource(c.Position, nil)
		// Of users, next names the last item of this page, and of widgets the first of the next.
		pages := map[string][]storefront.Resource{"users": {at, end}, "widgets": {first, at}}
		w := get(serve(&observer{list: pages[c.List]}), lists[c.List][0]+"?limit=1")
		var page struct{ Next string }
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || page.Next == "" {
			t.Fatalf("no cursor for %q: %d %s", c.Position, w.Code, w.Body)
		}
		cursors[i].Cursor = page.Next
	}
	write(t, release, "cursors.json", toJSON(t, cursors))
}

// checkCursors follows the released cursors.
func checkCursors(t *testing.T, release string) (lines []string) {
	for _, c := range fromJSON[[]cursor](t, release, "cursors.json") {
		store := new(observer)
		w := get(serve(store), lists[c.List][0]+"?limit=1&"+lists[c.List][1]+"="+c.Cursor)
		if w.Code != http.StatusOK || store.position != c.Position {
			lines = append(lines, fmt.Sprintf("the cursor %s of %s leads to %q with status %d, and not to %q",
				c.Cursor, c.List, store.position, w.Code, c.Position))
		}
	}
	return lines
}

// tags are entity tags and what they are of.
type tags struct {
	Resources []struct {
		ID, Members    string // of which a program makes the resource
		Resource, ETag string
	}
	Pages []struct{ Path, Body, ETag string } // of users and widgets that are the resources
}

// service serves the resources, as programs have stored them.
func (tags *tags) service(t *testing.T) http.Handler {
	t.Helper()
	store := new(storefront.MemStore)
	for _, tagged := range tags.Resources {
		r := resource(t, tagged.Resource)
		store.Users.Put(r)
		store.Products.Put(r)
		store.Widgets.Put(r)
	}
	return serve(store)
}

// resource returns the resource that is stored as a text.
func resource(t *testing.T, text string) (r storefront.Resource) {
	t.Helper()
	if err := r.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatalf("the resource %s is refused: %v", text, err)
	}
	return r
}

func recordTags(t *testing.T, last, release string) {
	tags := fromJSON[tags](t, last, "tags.json")
	for i, tagged := range tags.Resources {
		r := storefront.MustResource(tagged.ID, json.RawMessage(tagged.Members))
		tags.Resources[i].Resource, tags.Resources[i].ETag = r.String(), r.ETag()
	}
	service := tags.service(t)
	for i, page := range tags.Pages {
		w := get(service, page.Path)
		tags.Pages[i].Body, tags.Pages[i].ETag = w.Body.String(), w.Header().Get("ETag")
	}
	write(t, release, "tags.json", toJSON(t, tags))
}

// checkTags asks whether what has the released tags has been modified.
func checkTags(t *testing.T, release string) (lines []string) {
	tags := fromJSON[tags](t, release, "tags.json")
	service := tags.service(t)
	for _, tagged := range tags.Resources {
		made, err := storefront.NewResource(tagged.ID, json.RawMessage(tagged.Members))
		if err != nil || made.String() != tagged.Resource || made.ETag() != tagged.ETag {
			lines = append(lines, fmt.Sprintf("NewResource makes %s with the tag %s (%v), and not %s with %s",
				made, made.ETag(), err, tagged.Resource, tagged.ETag))
		}
		path := "/v1/products/" + url.PathEscape(tagged.ID)
		lines = append(lines, tagFaults(service, path, tagged.Resource, tagged.ETag)...)
	}
	for _, page := range tags.Pages {
		lines = append(lines, tagFaults(service, page.Path, page.Body, page.ETag)...)
	}
	return lines
}

// tagFaults returns what is wrong with the tag of a path that had a body and a tag. As long as
// the body is the same, so is the tag. What has additions has another one.
func tagFaults(service http.Handler, path, body, etag string) []string {
	w := get(service, path)
	now, same := w.Header().Get("ETag"), w.Body.String() == body
	switch {
	case w.Code != http.StatusOK:
		return []string{fmt.Sprintf("%s is answered with %s", path, answer(w))}
	case same != (now == etag):
		return []string{fmt.Sprintf("the tag of %s is %s, and was %s: the same bytes: %t", path, now, etag, same)}
	case same && get(service, path, "If-None-Match", etag).Code != http.StatusNotModified:
		return []string{fmt.Sprintf("%s has %s, but is not 304 with that in If-None-Match", path, etag)}
	}
	return nil
}

// A fingerprint is what the service gave a store for a request.
type fingerprint struct{ Header, Body, Key, Fingerprint string }

// now returns f with what the service gives a store for its request now.
func (f fingerprint) now(t *testing.T) fingerprint {
	t.Helper()
	store := new(observer)
	if w := post(serve(store), f.Body, "Idempotency-Key", f.Header); w.Code != http.StatusCreated {
		t.Errorf("%s with the key %s: %d %s", f.Body, f.Header, w.Code, w.Body)
	}
	f.Key, f.Fingerprint = store.key.Value, hex.EncodeToString(store.key.Fingerprint[:])
	return f
}

func recordFingerprints(t *testing.T, last, release string) {
	prints := fromJSON[[]fingerprint](t, last, "fingerprints.json")
	for i, f := range prints {
		prints[i] = f.now(t)
	}
	write(t, release, "fingerprints.json", toJSON(t, prints))
}

func checkFingerprints(t *testing.T, release string) (lines []string) {
	for _, f := range fromJSON[[]fingerprint](t, release, "fingerprints.json") {
		if now := f.now(t); now != f {
			lines = append(lines, fmt.Sprintf("%s with the key %s has key %q and fingerprint %s, and had %q and %s",
				f.Body, f.Header, now.Key, now.Fingerprint, f.Key, f.Fingerprint))
		}
	}
	return lines
}
