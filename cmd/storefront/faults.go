package main

import (
	"fmt"
	"net"
	"net/http"

	"example.com/storefront"
	"example.com/storefront/cmd/storefront/internal/faultreport"
	"example.com/storefront/internal/demo"
)

// injectFaults puts faults before the service. The function that it returns is called when
// the server has ended.
func injectFaults(server *http.Server, store *storefront.MemStore, listening net.Addr,
	seed uint64) (end func()) {
	shop := faultreport.New(seed, store)
	server.Handler = demo.WithExplorer(shop, server.Handler)
	fmt.Printf("\nInjecting faults (seed %d). What each client does right and wrong:\n\n  http://%s%s\n",
		seed, listening, faultreport.PagePath)
	server.RegisterOnShutdown(shop.EndWaits)
	return func() { fmt.Print(shop.Summary()) }
}
