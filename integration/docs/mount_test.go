package docs

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/explorer"
)

// TestDocumentedMount mounts a service as docs/embedding.md does, on a mux and before it, where
// the service answers for all paths below its prefix, those that a mux would redirect, too.
func TestDocumentedMount(t *testing.T) {
	service := storefront.New(new(storefront.MemStore))
	shop := http.StripPrefix("/shop", service)
	mux := http.NewServeMux()
	mux.Handle("/shop/", shop)
	mux.Handle("/try", explorer.Handler("/shop"))
	onMux := mux
	mux = http.NewServeMux() // which needs no /shop/
	mux.Handle("/try", explorer.Handler("/shop"))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/shop/") {
			shop.ServeHTTP(w, r)
		} else {
			mux.ServeHTTP(w, r)
		}
	})
	for _, row := range []struct {
		path           string
		onMux, handled int
	}{
		{"/shop/v1/users", http.StatusOK, http.StatusOK},
		{"/try", http.StatusOK, http.StatusOK},
		{"/shop//v1/users", http.StatusTemporaryRedirect, http.StatusNotFound},
		{"/shop/v1/../v1/users", http.StatusTemporaryRedirect, http.StatusNotFound},
		{"//shop/v1/users", http.StatusTemporaryRedirect, http.StatusTemporaryRedirect},
		{"/%73hop/v1/users", http.StatusNotFound, http.StatusNotFound},
	} {
		for _, h := range []struct {
			name    string
			handler http.Handler
			want    int
		}{{"the mux", onMux, row.onMux}, {"the handler before it", handler, row.handled}} {
			w := httptest.NewRecorder()
			h.handler.ServeHTTP(w, httptest.NewRequest("GET", row.path, nil))
			if w.Code != h.want {
				t.Errorf("%s: %s answers %d, want %d", row.path, h.name, w.Code, h.want)
			}
			plain := strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain")
			if plain != strings.HasPrefix(row.path, "/%73") {
				t.Errorf("%s: %s answers in plain text: %v", row.path, h.name, plain)
			}
		}
	}
}
