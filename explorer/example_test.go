package explorer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

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

// A program lets the page change what it has, and refuses what it does not know.
func ExampleHandlerWithOptions() {
	store := new(storefront.MemStore)
	page := explorer.HandlerWithOptions("", &explorer.Options{
		Change: func(_ context.Context, change explorer.Change) error {
			if change.List != "products" {
				return explorer.ErrUnknownList
			}
			if change.Deleted {
				store.Products.Delete(change.ID)
				return nil
			}
			fields := make(map[string]any)
			if old, ok := store.Products.Get(change.ID); ok {
				if err := json.Unmarshal([]byte(old.String()), &fields); err != nil {
					return err
				}
			}
			fields["changed_at"] = time.Now()
			product, err := storefront.NewResource(change.ID, fields)
			if err == nil {
				store.Products.Put(product)
			}
			return err
		},
	})

	for _, form := range []string{"list=products&id=teapot&op=put", "list=users&id=ada&op=put"} { // what its buttons send
		r := httptest.NewRequest("POST", "/", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		fmt.Println(form, w.Code)
	}
	// Output:
	// list=products&id=teapot&op=put 204
	// list=users&id=ada&op=put 400
}

func show(handler http.Handler, path string) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	fmt.Println(path, w.Code, w.Header().Get("Content-Type"))
}
