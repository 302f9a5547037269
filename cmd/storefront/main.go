// Command storefront serves a shop from memory: a sample, or the users, products
// and widgets in a JSON file. docs/embedding.md of the repository has a program to begin your
// own with.
//
// Usage:
//
//	storefront [-addr host:port] [-data shop.json] [-fields] [-orders] [-shutdown-delay duration]
//	storefront -faults number [-only regexp] [--] program [argument …]
//	storefront -faults list [-only regexp]
//
// The file is read once, at startup:
//
//	{"users": [{"id": "u1", …}, …], "products": […], "widgets": […]}
//
// Its address, opened in a browser, is a page to try it on. With the sample, the page
// can also change the lists. With -fields, orders may have fields; with -orders, they are read back. There is
// no sign-in, so that all callers are one account: they read each other's orders.
//
// With -faults, it serves nothing, but tries a client, as package clienttest does: the program meets
// faults, such as an answer that is lost, and what it did wrong is printed, what costs a shop most
// first. The program reads what it is asked for from its standard input, and prints what came of it,
// in lines of JSON: docs/testing.md of the repository has them. The number decides what is left to
// chance; -only chooses faults by kind and name, such as '^orders/.*lost'; list prints their names. The
// exit status is 0 if all that was tried is right. The flag -help prints the others.
//
// Orders are kept until the process ends. On SIGINT or SIGTERM it finishes the
// requests in flight, for up to a minute, and exits; a second signal ends it at
// once. After SIGTERM it first serves for the time of -shutdown-delay, a second unless it is
// set, and closes the connection after each answer, so that a client that keeps connections
// and never retries loses no request if it sends one in that time. The exit status is 2
// for a bad flag or file, and 1 for any other failure.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/graceful"
	"example.com/storefront/internal/demo"
	"example.com/storefront/internal/trypage"
)

func usage() {
	out := flag.CommandLine.Output()
	fmt.Fprint(out, `Usage:
  storefront [flags]                                     serves from memory
  storefront -faults number [-only regexp] [--] program  tries a client
  storefront -faults list [-only regexp]                 prints the faults

`)
	flag.PrintDefaults()
	fmt.Fprint(out, `
With -faults, the exit status is
  0  if all that was tried is right
  1  if a check failed, or the program did not answer as it must
  2  for a wrong flag, or if there is no such program
  3  if the program never said what came of a call, or a signal came before
     the end
Without, it is 2 for a wrong flag or file, and 1 for any other failure.
`)
}

func main() {
	addr := flag.String("addr", "localhost:8080", "`host:port` to listen on")
	data := flag.String("data", "", "JSON `file` to serve instead of the sample shop")
	fields := flag.Bool("fields", false, "let orders have fields, an object of the client's own")
	orders := flag.Bool("orders", false,
		"serve GET /v1/orders; there is no sign-in, so all callers are one\naccount and read each other's orders")
	delay := flag.Duration("shutdown-delay", time.Second, "`time` from SIGTERM until it stops listening")
	trial := defineTrial()
	flag.Usage = usage
	flag.Parse()
	if err := trial.check(); err != nil {
		fail(2, err)
	}
	if trial.list {
		trial.names(os.Stdout)
		return
	}
	if trial.set {
		ctx, stop := graceful.NotifyContext(context.Background())
		fmt.Println("The program meets the faults, which takes a minute or two. Ctrl-C ends.")
		status := trial.run(ctx, os.Stdout)
		stop()
		os.Exit(status)
	}
	if err := demo.CheckFlags(*addr, *delay); err != nil {
		fail(2, err)
	}
	store, err := demo.Load(*data)
	if err != nil {
		fail(2, err)
	}
	page := &trypage.Options{Product: product(store)}
	if *data == "" {
		page.Sample = store
	}
	ctx, stop := graceful.NotifyContext(context.Background())
	defer stop()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		fail(1, err)
	}
	service := &storefront.Options{OrderFields: *fields}
	if *orders {
		service.Orders = store
		service.Scope = func(*http.Request) string { return "everybody" }
	}
	server := &http.Server{Handler: demo.WithExplorer(
		storefront.NewWithOptions(store, service), atOwnNames(*addr, trypage.Handler("", page)))}
	opts := &graceful.Options{Delay: *delay}
	demo.TryThis(os.Stdout, listener.Addr(), page.Product)
	if err = graceful.Serve(ctx, server, listener, opts); err != nil {
		fail(1, err)
	}
}

func fail(status int, err error) {
	fmt.Fprintln(os.Stderr, "storefront:", err)
	os.Exit(status)
}

// atOwnNames refuses changes under a name that the program does not listen on: a page of
// another site whose name is made to lead here (DNS rebinding) is of the same origin for a
// browser. No name leads to an address in digits, so any of these is right.
func atOwnNames(addr string, page http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(addr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		_, err := netip.ParseAddr(host)
		isOwn := err == nil || strings.EqualFold(host, "localhost") || strings.EqualFold(host, own)
		if r.Method == http.MethodPost && !isOwn {
			const detail = "The sample is changed under the name that -addr has, localhost, or an address."
			storefront.Problem{Status: http.StatusForbidden, Detail: detail}.ServeHTTP(w, r)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// product returns the ID of a product for examples, or "" if there is none that can be
// requested.
func product(store *storefront.MemStore) string {
	for p := range store.Products.All() {
		if demo.CanBeRequested(p.ID()) {
			return p.ID()
		}
	}
	return ""
}
