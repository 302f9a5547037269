package main

import (
	"fmt"
	"net"
	"net/http"

	"example.com/storefront"
	"example.com/storefront/internal/demo"
	"example.com/storefront/internal/trouble"
)

// inTrouble puts troubles before the service of a server. It returns what ends them, once the
// server has ended.
func inTrouble(seed uint64, server *http.Server, store *storefront.MemStore, listening net.Addr) (end func()) {
	shop := trouble.NewClients(seed, store)
	server.Handler = demo.WithExplorer(shop, server.Handler)
	fmt.Printf("\nClients get trouble, by the seed %d. How they take it, a page says:\n\n  http://%s%s\n",
		seed, listening, trouble.PagePath)
	server.RegisterOnShutdown(shop.Hurry)
	return func() { fmt.Print(shop.Summary()) }
}
