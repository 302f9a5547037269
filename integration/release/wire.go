package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"example.com/storefront"
)

// encode writes JSON that people read.
func encode(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func writeJSON(release, name string, v any) error {
	var b bytes.Buffer
	if err := encode(&b, v); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(release, name), b.Bytes(), 0o644)
}

func readJSON[T any](release, name string) (v T, err error) {
	text, err := os.ReadFile(filepath.Join(release, name))
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// An observer is a store that notes what the service asks of it.
type observer struct {
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

func (o *observer) CreateOrder(_ context.Context, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	o.key = key
	return order, nil
}

func (o *observer) GetProduct(context.Context, string) (storefront.Resource, error) {
	return storefront.Resource{}, storefront.ErrNotFound
}

// quiet are options for a service that logs nothing.
func quiet() *storefront.Options {
	return &storefront.Options{Logger: slog.New(slog.DiscardHandler)}
}

// get requests a path, with a header and its value for each pair of strings.
func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	return do(h, httptest.NewRequest("GET", path, nil), headers...)
}

// post sends an order.
func post(h http.Handler, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return do(h, r, headers...)
}

func do(h http.Handler, r *http.Request, headers ...string) *httptest.ResponseRecorder {
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// ids are positions and resources of all kinds.
var ids = []string{
	"ada", "0", "~", " ", `"`, "a/b", "a b&c=d#e", "%2F", "é", "e\u0301", "日本語", "😀", "\u00a0",
	strings.Repeat("x", 255), strings.Repeat("é", 127),
}

// A cursor leads to a position in a list.
type cursor struct{ List, Position, Cursor string }

// lists are the paged lists: their paths, and which parameter takes a cursor.
var lists = map[string][2]string{"users": {"/v1/users", "after"}, "widgets": {"/v2/widgets", "start"}}

func recordCursors(release, _ string) error {
	var cursors []cursor
	first, last := storefront.MustResource(" ", nil), storefront.MustResource("\U0010fffd", nil) // in the order of IDs
	for _, id := range ids {
		at, err := storefront.NewResource(id, nil)
		if err != nil {
			return err
		}
		for _, list := range []string{"users", "widgets"} {
			// Of users, next names the last item of this page, and of widgets the
			// first one of the next.
			pages := map[string][]storefront.Resource{"users": {at, last}, "widgets": {first, at}}
			if list == "widgets" && id == first.ID() {
				continue // no page comes before it
			}
			w := get(storefront.NewWithOptions(&observer{list: pages[list]}, quiet()), lists[list][0]+"?limit=1")
			var page struct{ Next string }
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || page.Next == "" {
				return fmt.Errorf("%s: no cursor for %q: %d %s", list, id, w.Code, w.Body)
			}
			cursors = append(cursors, cursor{list, id, page.Next})
		}
	}
	return writeJSON(release, "cursors.json", cursors)
}

// checkCursors follows the released cursors.
func checkCursors(release, _ string) ([]string, error) {
	cursors, err := readJSON[[]cursor](release, "cursors.json")
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, c := range cursors {
		list, ok := lists[c.List]
		if !ok {
			return nil, fmt.Errorf("cursors.json has the list %q", c.List)
		}
		store := new(observer)
		w := get(storefront.NewWithOptions(store, quiet()), list[0]+"?limit=1&"+list[1]+"="+c.Cursor)
		if w.Code != http.StatusOK || store.position != c.Position {
			lines = append(lines, fmt.Sprintf("the cursor %s of %s leads to %q with status %d, and not to %q", c.Cursor, c.List, store.position, w.Code, c.Position))
		}
	}
	return lines, nil
}

// tags are entity tags and what they are of.
type tags struct {
	Resources []taggedResource
	Pages     []taggedPage // of users and widgets that are the resources
	OpenAPI   string       // of openapi.json
}

// A taggedResource is a resource, as a program makes it of an ID and other members.
type taggedResource struct {
	ID, Members    string
	Resource, ETag string
}

// A taggedPage is the body at a path.
type taggedPage struct{ Path, Body, ETag string }

// members are what resources have besides their IDs.
var members = []string{
	`{}`, `{"name":"Ada","since":2024}`, `{"price":{"amount":"24.50","currency":"EUR"},"tags":["a",null,true]}`,
	`{"n":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}`, `{"text":"<b>&amp;</b> \u2028 \u0000 \" \\ \/ é 😀 \ud83d\ude00"}`,
	`{ "spaced" : [ 1 , 2 ] , "a" : { } , "":"" }`, `{"z":1,"a":2,"ID":"another member"}`,
}

func recordTags(release, _ string) error {
	var t tags
	for i, id := range ids {
		m := members[i%len(members)]
		r, err := storefront.NewResource(id, json.RawMessage(m))
		if err != nil {
			return err
		}
		t.Resources = append(t.Resources, taggedResource{id, m, r.String(), r.ETag()})
	}
	service, err := t.service()
	if err != nil {
		return err
	}
	for _, path := range []string{"/v1/users", "/v1/users?limit=1", "/v1/users?limit=500", "/v2/widgets?limit=1", "/v2/widgets?limit=10"} {
		w := get(service, path)
		t.Pages = append(t.Pages, taggedPage{path, w.Body.String(), w.Header().Get("ETag")})
	}
	empty := get(storefront.NewWithOptions(new(storefront.MemStore), quiet()), "/openapi.json")
	t.OpenAPI = empty.Header().Get("ETag")
	return writeJSON(release, "tags.json", t)
}

// service serves the resources, as programs have stored them.
func (t *tags) service() (http.Handler, error) {
	store := new(storefront.MemStore)
	for _, tagged := range t.Resources {
		var r storefront.Resource
		if err := r.UnmarshalJSON([]byte(tagged.Resource)); err != nil {
			return nil, fmt.Errorf("the resource %s is refused: %w", tagged.Resource, err)
		}
		store.Users.Put(r)
		store.Products.Put(r)
		store.Widgets.Put(r)
	}
	return storefront.NewWithOptions(store, quiet()), nil
}

// checkTags asks whether what has the released tags has been modified.
func checkTags(release, _ string) ([]string, error) {
	t, err := readJSON[tags](release, "tags.json")
	if err != nil {
		return nil, err
	}
	document, err := os.ReadFile(filepath.Join(release, "openapi.json"))
	if err != nil {
		return nil, err
	}
	service, err := t.service()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, tagged := range t.Resources {
		made, err := storefront.NewResource(tagged.ID, json.RawMessage(tagged.Members))
		if err != nil || made.String() != tagged.Resource || made.ETag() != tagged.ETag {
			lines = append(lines, fmt.Sprintf("NewResource makes %s with the tag %s (%v), and not %s with %s", made, made.ETag(), err, tagged.Resource, tagged.ETag))
		}
		lines = append(lines, tagFaults(service, "/v1/products/"+url.PathEscape(tagged.ID), tagged.Resource, tagged.ETag)...)
	}
	for _, page := range t.Pages {
		lines = append(lines, tagFaults(service, page.Path, page.Body, page.ETag)...)
	}
	lines = append(lines, tagFaults(service, "/openapi.json", string(document), t.OpenAPI)...)
	return lines, nil
}

// tagFaults returns what is wrong with the tag of a path that had a body and a tag.
// As long as the body is the same, so is the tag. What has got additions has
// another one.
func tagFaults(service http.Handler, path, body, etag string) []string {
	w := get(service, path)
	same := w.Body.String() == body
	switch now := w.Header().Get("ETag"); {
	case w.Code != http.StatusOK:
		return []string{fmt.Sprintf("%s is answered with %s", path, answer(w))}
	case same && now != etag:
		return []string{fmt.Sprintf("the tag of %s is %s, and was %s for the same bytes", path, now, etag)}
	case !same && now == etag:
		return []string{fmt.Sprintf("the tag of %s is still %s, but the bytes have changed", path, now)}
	case same && get(service, path, "If-None-Match", etag).Code != http.StatusNotModified:
		return []string{fmt.Sprintf("%s has %s, but is not 304 with that in If-None-Match", path, etag)}
	}
	return nil
}

// A fingerprint is what the service gave a store for a request.
type fingerprint struct{ Header, Body, Key, Fingerprint string }

// observed returns f with what the service gives a store for its request now.
func (f fingerprint) observed() (fingerprint, *httptest.ResponseRecorder) {
	store := new(observer)
	w := post(storefront.NewWithOptions(store, quiet()), f.Body, "Idempotency-Key", f.Header)
	f.Key, f.Fingerprint = store.key.Value, hex.EncodeToString(store.key.Fingerprint[:])
	return f, w
}

func recordFingerprints(release, _ string) error {
	var prints []fingerprint
	for _, f := range []fingerprint{
		{Header: "bare", Body: `{"item":"teapot","qty":2}`},
		{Header: `"bare"`, Body: `{ "qty": 2, "item": "\u0074eapot" }`},
		{Header: "0", Body: `{"item":"teapot","qty":1}`},
		{Header: strings.Repeat("~", 255), Body: `{"item":"teapot","qty":9007199254740991}`},
		{Header: `"a \"quoted\" \\ key, with a comma"`, Body: `{"item":" teapot ","qty":256}`},
		{Header: "8e03978e-40d5-43e8-bc93-6894a57f9324", Body: `{"item":"é 日本語 😀 \ud83d\ude00 \" \\ \u00a0x","qty":65536}`},
		{Header: "long", Body: `{"item":"` + strings.Repeat("é", 255) + `","qty":4294967296}`},
	} {
		now, w := f.observed()
		if w.Code != http.StatusCreated {
			return fmt.Errorf("%s with the key %s: %d %s", f.Body, f.Header, w.Code, w.Body)
		}
		prints = append(prints, now)
	}
	return writeJSON(release, "fingerprints.json", prints)
}

// checkFingerprints compares them with those that the service gives now.
func checkFingerprints(release, _ string) ([]string, error) {
	prints, err := readJSON[[]fingerprint](release, "fingerprints.json")
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, f := range prints {
		if now, w := f.observed(); w.Code != http.StatusCreated || now != f {
			lines = append(lines, fmt.Sprintf("%s with the key %s is %d with key %q and fingerprint %s, and was 201 with %q and %s",
				f.Body, f.Header, w.Code, now.Key, now.Fingerprint, f.Key, f.Fingerprint))
		}
	}
	return lines, nil
}
