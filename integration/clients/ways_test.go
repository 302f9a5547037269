package clients

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"example.com/storefront"
)

// What is no page of a list is not taken for one, and nothing comes twice. A client may ask again, or give up.
func TestPageThatIsNone(t *testing.T) {
	page := func(rest string) []string { return []string{`{"data":[` + rest} }
	const a, b = `{"data":[{"id":"a"}],"has_more":true,"next":"A"}`, `{"data":[{"id":"b"}],"has_more":false}`
	inLanguages(t, func(t *testing.T, l language) {
		shop := newFolderShop(t)
		r := l.start(t, shop.URL)
		for _, pages := range [][]string{
			page(`]}`), page(`],"has_more":null}`), page(`],"has_more":0}`), page(`],"has_more":"false"}`),
			page(`{"id":"a"}],"has_more":true}`), page(`{"id":"a"}],"has_more":false,"next":"A"}`),
			page(`{"id":"a"},{"id":"a"}],"has_more":false}`), page(`{"id":"\ue000"},{"id":"\ud800\udc00"},{"id":"b"}],"has_more":false}`),
			{a, a}, {a, `{"data":[{"id":"A"}],"has_more":false}`},
			{a, strings.Replace(a, `{"id":"a"}`, ``, 1)}, {a, strings.NewReplacer(`{"id":"a"}`, ``, `"A"`, `"B"`).Replace(a),
				strings.Replace(a, `{"id":"a"}`, ``, 1)},
		} {
			var n atomic.Int32
			shop.answers(func(w http.ResponseWriter, r *http.Request) {
				i := int(n.Add(1)) - 1
				switch {
				case i < len(pages):
					io.WriteString(w, pages[i])
				case r.URL.RawQuery == "":
					io.WriteString(w, a)
				default:
					io.WriteString(w, b)
				}
			})
			got, _, err := r.ask(outcome{List: "users"})
			if err != nil || got.Error == "" && !slices.Equal(got.IDs, []string{"a", "b"}) {
				t.Errorf("%q: the list is %q (%s, %v)", pages, got.IDs, got.Error, err)
			}
			if got.Error == "" && int(n.Load()) == len(pages) {
				t.Errorf("%q is a list", pages)
			}
		}
	})
}

// A page that does not fit into the time of a try is asked for with half as many items.
func TestPageThatDoesNotFit(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		if l.name == "javascript" {
			return // javascript_test.go
		}
		shop := newFolderShop(t)
		var want []string
		for i := range 9 {
			shop.store.Users.Put(storefront.MustResource(fmt.Sprint("u", i), nil))
			want = append(want, fmt.Sprint("u", i))
		}
		service := storefront.New(&shop.store)
		var most atomic.Int32
		shop.answers(func(w http.ResponseWriter, r *http.Request) {
			limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
			if err == nil && int32(limit) <= most.Load() {
				service.ServeHTTP(w, r)
				return
			}
			io.WriteString(w, `{"data":[`)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		for limit, fits := range map[string]int32{"": 30, "8": 2} {
			most.Store(fits)
			runProgram(t, l, shop.URL, "", map[string]string{
				"bash": `
					source storefront.sh
					curl() { command curl "$@" --max-time 2; }
					[[ $(storefront users ` + limit + ` | jq -r .id | paste -sd,) == ` + strings.Join(want, ",") + ` ]] || echo wrong`,
				"python": `
import os, storefront
storefront.TRY = 2.0
got = [user["id"] for user in storefront.Shop(os.environ["STOREFRONT_URL"]).users(` + limit + `)]
if got != "` + strings.Join(want, ",") + `".split(","):
    print(got)`,
			})
		}
	})
}

// What the service says only to a request that was changed on its way is no refusal, and neither is an answer in
// a coding that nobody has asked for.
func TestReadThatWasChanged(t *testing.T) {
	const cursor = `{"type":"urn:problem-type:storefront:invalid-query","errors":[{"parameter":"after"}]}`
	const required = `{"type":"urn:problem-type:storefront:invalid-query","errors":[{"parameter":"limit","minimum":1,"maximum":500}]}`
	users, widgets, product := outcome{List: "users"}, outcome{List: "widgets"}, outcome{Product: "teapot"}
	inLanguages(t, func(t *testing.T, l language) {
		shop := newFolderShop(t)
		r := l.start(t, shop.URL)
		for _, c := range []struct {
			answer firstAnswer
			asks   []outcome
		}{
			{answers(400, cursor), []outcome{users, widgets, product}}, {answers(400, required), []outcome{users, widgets}},
			{problem(404, "not-found"), []outcome{users, product}}, {problem(405, "method-not-allowed"), []outcome{users}},
			{problem(412, "precondition-failed"), []outcome{product}},
			{answers(200, "\x1f\x8b\x00", "Content-Encoding", "zstd"), []outcome{users, product}},
		} {
			shop.answers(func(w http.ResponseWriter, r *http.Request) { c.answer(nil, w, r) })
			for i, ask := range c.asks {
				before := shop.requests.Load()
				got, _, err := r.ask(ask)
				if err != nil || !strings.HasPrefix(got.Error, "Blocked") || shop.requests.Load() != before+1 {
					t.Errorf("%d of %v: %q (%v) after %d tries", i, c.asks, got.Error, err, shop.requests.Load()-before)
				}
			}
		}
	})
}

// An order that is sent once, and changed on its way, is no order without a final answer.
func TestOrderThatWasChangedIsSentOnce(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop := newFolderShop(t)
		r := l.start(t, shop.URL, "JOURNAL="+t.TempDir(), oneTry)
		for code, want := range map[string]string{"idempotency-key-missing": "Blocked", "malformed-body": "Unknown"} {
			shop.answers(func(w http.ResponseWriter, r *http.Request) { problem(400, code)(nil, w, r) })
			if failed := order(t, r, code); !strings.HasPrefix(failed, want) {
				t.Errorf("%s: %s, want %s", code, failed, want)
			}
		}
	})
}
