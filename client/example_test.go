package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"example.com/storefront"
	"example.com/storefront/client"
)

func Example() {
	server := httptest.NewServer(storefront.New(new(storefront.MemStore)))
	defer server.Close()

	shop, err := client.New(server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	draft := client.NewDraft("teapot", 2)
	order, err := shop.Order(context.Background(), draft)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(order.Qty, order.Item)
	// Output: 2 teapot
}

// A program that answers its customer within 30 seconds, and leaves what then is open to a journal.
func ExampleJournal() {
	store := new(storefront.MemStore)
	server := httptest.NewServer(storefront.New(store))
	defer server.Close()
	shop, err := client.New(server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "drafts")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	journal, err := client.OpenJournal(dir, shop)
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = journal.Order(ctx, client.NewDraft("teapot", 2))
	if refused, ok := errors.AsType[*client.RefusedError](err); ok {
		fmt.Println("The shop says no:", refused.Problem.Detail)
	} else if err != nil {
		fmt.Println("We have your order, and will write to you.")
	}

	// When the program starts, and from time to time. What fails for a minute has its turn the next time.
	ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for entry, err := range journal.Resume(ctx) {
		if err != nil {
			log.Print(err)
			continue
		}
		fmt.Println("created:", entry.Order.Qty, entry.Order.Item) // keep it, and then
		if err := entry.Remove(); err != nil {
			log.Print(err)
		}
	}
	// Output: created: 2 teapot
}

// An order with an address. The shop adds a state to orders that are read.
func ExampleClient_Orders() {
	store := new(storefront.MemStore)
	server := httptest.NewServer(storefront.NewWithOptions(store, &storefront.Options{OrderFields: true,
		Orders: store, Scope: func(r *http.Request) string { return r.Header.Get("Authorization") }}))
	defer server.Close()
	shop, err := client.New(server.URL, &client.Options{Account: "ada", SignIn: func(r *http.Request) error {
		r.Header.Set("Authorization", "ada")
		return nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	type address struct {
		Street string `json:"street"`
		Zip    string `json:"zip"`
	}
	draft, err := client.NewDraftWithOptions("teapot", 2, &client.DraftOptions{Fields: address{"Long Lane 7", "EC1A"}})
	if err != nil {
		log.Fatal(err) // a programmer's mistake: it is no object
	}
	if _, err := shop.Order(context.Background(), draft); err != nil {
		log.Fatal(err)
	}

	for order, err := range shop.Orders(context.Background()) {
		if err != nil {
			log.Fatal(err) // the list was not read to its end
		}
		var more struct {
			Fields address
			State  string // of the shop's own; this one has none
		}
		if err := json.Unmarshal([]byte(order.Resource.String()), &more); err != nil {
			log.Fatal(err)
		}
		fmt.Println(order.Qty, order.Item, "to", more.Fields.Street)
	}
	// Output: 2 teapot to Long Lane 7
}

func ExampleClient_Product() {
	store := new(storefront.MemStore)
	store.Products.Put(storefront.MustResource("teapot", map[string]string{"name": "Teapot"}))
	server := httptest.NewServer(storefront.New(store))
	defer server.Close()
	shop, err := client.New(server.URL, &client.Options{Products: 1000})
	if err != nil {
		log.Fatal(err)
	}

	teapot, err := shop.Product(context.Background(), "teapot", &client.ProductOptions{MaxAge: 5 * time.Second})
	fmt.Println(teapot, err)
	_, err = shop.Product(context.Background(), "kettle", nil)
	fmt.Println(errors.Is(err, storefront.ErrNotFound))
	// Output:
	// {"id":"teapot","name":"Teapot"} <nil>
	// true
}
