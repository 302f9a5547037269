package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"

	"example.com/storefront"
	"example.com/storefront/internal/trouble"
)

func init() {
	seed := flag.Uint64("trouble", 0, "give clients trouble, in a sequence by the `seed`; 0: none")
	inTrouble = func(server *http.Server, store *storefront.MemStore, listening net.Addr) (end func()) {
		if *seed == 0 {
			return func() {}
		}
		shop := trouble.NewClients(*seed, store)
		server.Handler = withExplorer(shop, server.Handler)
		fmt.Printf("\nClients get trouble, by the seed %d. How they take it, a page says:\n\n  http://%s%s\n", *seed, listening, trouble.PagePath)
		server.RegisterOnShutdown(shop.Hurry)
		return func() { fmt.Print(shop.Summary()) }
	}
}
