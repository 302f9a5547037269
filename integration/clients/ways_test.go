package clients

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"example.com/storefront"
)

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
		shop.answers(func(w http.ResponseWriter, r *http.Request) {
			limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
			if err == nil && limit < 20 {
				service.ServeHTTP(w, r)
				return
			}
			io.WriteString(w, `{"data":[`)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		got, _, err := l.start(t, shop.URL, "TRY=2").ask(outcome{List: "users"})
		if err != nil || !slices.Equal(got.IDs, want) {
			t.Errorf("the list is %q (%s, %v)", got.IDs, got.Error, err)
		}
	})
}
