// Command storefront serves a shop from memory: a sample, or the users, products
// and widgets in a JSON file. Copy this file as the start of your own program.
//
// Usage:
//
//	storefront [-addr host:port] [-data shop.json] [-shutdown-delay duration] [-trouble seed]
//
// The file is read once, at startup:
//
//	{"users": [{"id": "u1", …}, …], "products": […], "widgets": […]}
//
// Its address, opened in a browser, is a page to try it on. With the sample, the page
// can also change the lists.
//
// With -trouble, it tries clients: each order, walk through a list and read of a product
// meets a trouble, such as an answer that is lost, in a sequence by the seed. The page
// /-/trouble says, at any time, which checks each client has passed, failed or not met,
// and /-/trouble.json says the same to programs. A summary is printed at the end.
//
// Orders are kept until the process ends. On SIGINT or SIGTERM it finishes the
// requests in flight, for up to a minute, and exits; a second signal ends it at
// once. After SIGTERM it first serves for the time of -shutdown-delay, a second unless it is
// set, and closes the connection after each answer, so that a client that keeps connections
// and never retries sees none break if it sends anything in that time. The exit status is 2
// for a bad flag or file and 1 for any other failure.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"example.com/storefront"
	"example.com/storefront/explorer"
)

const sample = `{
	"users": [
		{"id": "ada", "name": "Ada", "since": 2024},
		{"id": "grace", "name": "Grace", "since": 2025},
		{"id": "linus", "name": "Linus", "since": 2026}
	],
	"products": [
		{"id": "kettle", "name": "Kettle", "price": {"amount": "39.00", "currency": "EUR"}},
		{"id": "teapot", "name": "Teapot", "price": {"amount": "24.50", "currency": "EUR"}}
	],
	"widgets": [
		{"id": "w1", "colour": "red"},
		{"id": "w2", "colour": "green"},
		{"id": "w3", "colour": "blue"}
	]
}`

// inTrouble puts troubles before the service. It is set by trouble.go, which a copy of this
// file does without. The function that it returns is called when the server has ended.
var inTrouble = func(*http.Server, *storefront.MemStore, net.Addr) (end func()) { return func() {} }

func main() {
	addr := flag.String("addr", "localhost:8080", "`host:port` to listen on")
	data := flag.String("data", "", "JSON `file` to serve instead of the sample shop")
	delay := flag.Duration("shutdown-delay", time.Second, "`time` from SIGTERM until it stops listening")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(2, fmt.Errorf("unexpected argument %q", flag.Arg(0)))
	}
	if _, port, err := net.SplitHostPort(*addr); err != nil || port == "" { // net.Listen would choose a port
		fail(2, fmt.Errorf("-addr %q is not host:port", *addr))
	}
	if *delay < 0 {
		fail(2, fmt.Errorf("-shutdown-delay %v is negative", *delay))
	}
	store := new(storefront.MemStore)
	if err := load(store, *data); err != nil {
		fail(2, err)
	}
	page := &explorer.Options{Product: product(store)}
	if *data == "" {
		page.Change = changeSample(store)
	}
	if err := serve(untilSignal(), *addr, *delay, store, page); err != nil {
		fail(1, err)
	}
}

func fail(status int, err error) {
	fmt.Fprintln(os.Stderr, "storefront:", err)
	os.Exit(status)
}

// load fills the store from the named file, or with the sample shop if name is
// empty.
func load(store *storefront.MemStore, name string) error {
	if name == "" {
		return store.Load(strings.NewReader(sample))
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := store.Load(f); err != nil {
		return fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "storefront: load: "))
	}
	return nil
}

// changeSample returns what lets the explorer change the lists.
func changeSample(store *storefront.MemStore) func(ctx context.Context, change explorer.Change) error {
	return func(_ context.Context, change explorer.Change) error {
		var items *storefront.Collection
		switch change.List {
		case "users":
			items = &store.Users
		case "products":
			items = &store.Products
		case "widgets":
			items = &store.Widgets
		default:
			return explorer.ErrUnknownList
		}
		if change.Deleted {
			items.Delete(change.ID)
			return nil
		}
		fields := make(map[string]any)
		if old, ok := items.Get(change.ID); !ok {
			fields["name"] = change.ID
		} else if err := json.Unmarshal([]byte(old.String()), &fields); err != nil { // which keeps its members
			return err
		}
		fields["changed_at"] = time.Now().UTC() // so that it has another entity tag
		item, err := storefront.NewResource(change.ID, fields)
		if err == nil {
			items.Put(item)
		}
		return err
	}
}

// atOwnNames refuses changes under a name that the program does not listen on: a page of
// another site whose name is made to lead here (DNS rebinding) is of the same origin for a
// browser. No name leads to an address in digits, so any of these is right.
func atOwnNames(addr string, page http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(addr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		_, err := netip.ParseAddr(host)
		if r.Method == http.MethodPost && err != nil && !strings.EqualFold(host, "localhost") && !strings.EqualFold(host, own) {
			storefront.Problem{Status: http.StatusForbidden, Detail: "The sample is changed under the name that -addr has, localhost, or an address."}.ServeHTTP(w, r)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// withExplorer answers / with the explorer and all else with the service. An
// http.ServeMux would redirect paths such as //, which are the service's to refuse.
func withExplorer(service, page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			page.ServeHTTP(w, r)
		} else {
			service.ServeHTTP(w, r)
		}
	})
}

// serve serves the store until ctx is done.
func serve(ctx context.Context, addr string, delay time.Duration, store *storefront.MemStore, page *explorer.Options) error {
	server := &http.Server{
		Handler:           withExplorer(storefront.New(store), atOwnNames(addr, explorer.HandlerWithOptions("", page))),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      60 * time.Second, // longer than the 30 seconds that an order may take
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn),
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	tryThis(os.Stdout, listener.Addr(), page.Product)
	defer inTrouble(server, store, listener.Addr())()
	return serveUntil(ctx, server, listener, delay)
}

// serveUntil serves until ctx is done, after SIGTERM for another delay, and then finishes the
// requests in flight. Meanwhile, each answer tells the client to connect anew, perhaps to
// another process: at the end, net/http closes idle connections although a request may be on
// its way.
func serveUntil(ctx context.Context, server *http.Server, listener net.Listener, delay time.Duration) error {
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Connection", "close") // which net/http makes a GOAWAY over HTTP/2
		}
		handler.ServeHTTP(w, r)
	})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	if delay > 0 && context.Cause(ctx) == errTerminated {
		fmt.Printf("Serving for another %v, in which clients connect anew.\n", delay)
		select {
		case err := <-served:
			return err
		case <-time.After(delay):
		}
	}
	fmt.Println("Finishing the requests in flight.")
	grace, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}

// errTerminated is the cause of the end of a context that SIGTERM has ended.
var errTerminated = errors.New("SIGTERM")

// untilSignal returns a context that is done after SIGINT or SIGTERM. A second signal ends the
// program at once.
func untilSignal() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Reset()
		if s == syscall.SIGTERM {
			end(errTerminated)
		} else {
			end(nil)
		}
	}()
	return ctx
}

// product returns the ID of a product for examples, or "" if there is none that can be
// requested: see NewResource.
func product(store *storefront.MemStore) string {
	for p := range store.Products.All() {
		if id := p.ID(); id != "." && id != ".." && id != "/" {
			return id
		}
	}
	return ""
}

// tryThis prints example requests for the running server.
func tryThis(w io.Writer, listening net.Addr, product string) {
	host, port, _ := net.SplitHostPort(listening.String())
	switch host {
	case "0.0.0.0", "::", "127.0.0.1", "::1": // it leads there, but not to, say, 127.0.0.2
		host = "localhost"
	}
	base := (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}).String() // which escapes the zone of an address
	fmt.Fprintf(w, "Serving on %s/, which is a page to try it on in a browser. Or:\n\n", base)
	fmt.Fprintf(w, "  curl -i '%s/v1/users?limit=2'\n", base)
	fmt.Fprintf(w, "  curl -i '%s/v2/widgets?limit=2'\n", base)
	if product != "" {
		product = base + "/v1/products/" + url.PathEscape(product)
		fmt.Fprintf(w, "  curl -i '%s'\n", product)
		fmt.Fprintf(w, "  curl -i '%s' -H 'Cache-Control: max-age=60'\n", product)
	}
	fmt.Fprintf(w, "  curl -i '%s/v1/orders' -H 'Idempotency-Key: first-order' -H 'Content-Type: application/json' -d '{\"item\":\"teapot\",\"qty\":2}'\n", base)
	fmt.Fprintf(w, "  curl -i '%s/openapi.json'\n", base)
	fmt.Fprintln(w, "\nThe same order again creates nothing. Ctrl-C ends.")
}
