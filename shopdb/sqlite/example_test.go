package sqlite_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/shopdb/sqlite"
	"example.com/storefront/sqlstore"
)

// A program that keeps the orders of its shop. On servers, it calls Open of postgres or mysql.
func Example() {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "shop.db")

	db, err := sqlite.Open(name, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store := sqlstore.New(db.DB, nil)
	starting, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := db.WaitFor(starting, store.Migrate); err != nil {
		log.Fatal(err)
	}
	db.ForgetKeysHourly(store)
	service := storefront.New(store)

	for range 2 { // the second time, it is a retry
		r := httptest.NewRequest(http.MethodPost, "/v1/orders", strings.NewReader(`{"item":"teapot","qty":2}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "first-order")
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		fmt.Println(w.Code, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	var orders int
	if err := db.QueryRow(`SELECT count(*) FROM storefront_orders`).Scan(&orders); err != nil {
		log.Fatal(err)
	}
	fmt.Println(orders, "order")

	// Output:
	// 201 replayed: false
	// 201 replayed: true
	// 1 order
}
