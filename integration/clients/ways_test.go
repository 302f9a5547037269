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
			page(`],"has_more":0}`), page(`{"id":"a"}],"has_more":false,"next":"A"}`),
			page(`{"id":"a"},{"id":"a"}],"has_more":false}`),
			page(`{"id":"\ue000"},{"id":"\ud800\udc00"},{"id":"b"}],"has_more":false}`),
			{a, `{"data":[{"id":"A"}],"has_more":false}`},
			{a, strings.NewReplacer(`{"id":"a"}`, ``, `"A"`, `"B"`).Replace(a), strings.Replace(a, `{"id":"a"}`, ``, 1)},
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
				"javascript": `
					import { Shop } from "./storefront.mjs";
					const real = setTimeout, got = [], limit = "` + limit + `" || undefined;
					globalThis.setTimeout = (f, ms, ...args) => real(f, ms === 40_000 ? 2_000 : ms, ...args);
					for await (const { id } of new Shop(process.env.STOREFRONT_URL).users({ limit })) got.push(id);
					if (got.join() !== "` + strings.Join(want, ",") + `") console.log(got);`,
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
