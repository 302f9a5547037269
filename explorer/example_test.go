package explorer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"example.com/storefront"
	"example.com/storefront/explorer"
)

// The page is at exactly /, and everything else is the service's.
func ExampleHandler() {
	service := storefront.New(new(storefront.MemStore))
	page := explorer.Handler("")
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			page.ServeHTTP(w, r)
		} else {
			service.ServeHTTP(w, r)
		}
	})

	show(handler, "/")
	show(handler, "/v1/users")
	show(handler, "/index.html")
	// Output:
	// / 200 text/html; charset=utf-8
	// /v1/users 200 application/json
	// /index.html 404 application/problem+json
}

// The page and the service are at paths of a program's own.
func ExampleHandler_prefix() {
	mux := http.NewServeMux()
	mux.Handle("/shop/", http.StripPrefix("/shop", storefront.New(new(storefront.MemStore))))
	mux.Handle("/internal/try", explorer.Handler("/shop"))

	show(mux, "/internal/try")
	show(mux, "/shop/v1/users")
	// Output:
	// /internal/try 200 text/html; charset=utf-8
	// /shop/v1/users 200 application/json
}

func show(handler http.Handler, path string) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	fmt.Println(path, w.Code, w.Header().Get("Content-Type"))
}
