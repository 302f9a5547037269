// Package demo has what the commands of this repository show to somebody who tries them: the
// sample shop, the explorer, and example requests.
package demo

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"example.com/storefront"
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

// Load returns the shop in the named file, or the sample shop if name is empty.
func Load(name string) (*storefront.MemStore, error) {
	shop := new(storefront.MemStore)
	if name == "" {
		return shop, shop.Load(strings.NewReader(sample))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := shop.Load(f); err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "storefront: load: "))
	}
	return shop, nil
}

// CheckFlags returns an error if addr, the flag -addr, is not host:port, or if delay, the flag
// -shutdown-delay, is negative. For an address without a port, net.Listen would choose one.
func CheckFlags(addr string, delay time.Duration) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return fmt.Errorf("-addr %q is not host:port", addr)
	}
	if delay < 0 {
		return fmt.Errorf("-shutdown-delay %v is negative", delay)
	}
	return nil
}

// CanBeRequested reports whether a URL leads to the product with an ID: see
// storefront.NewResource.
func CanBeRequested(id string) bool { return id != "." && id != ".." && id != "/" }

// WithExplorer answers / with the explorer and all else with the service. An http.ServeMux
// would redirect paths such as //, which are the service's to refuse.
func WithExplorer(service, page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			page.ServeHTTP(w, r)
		} else {
			service.ServeHTTP(w, r)
		}
	})
}

// URL returns the base URL of a server that listens there.
func URL(listening net.Addr) string {
	host, port, _ := net.SplitHostPort(listening.String())
	switch host {
	case "0.0.0.0", "::", "127.0.0.1", "::1": // it leads there, but not to, say, 127.0.0.2
		host = "localhost"
	}
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}).String() // which escapes a zone
}

// TryThis prints example requests for a server that listens there. The product is the ID of one
// that it has, or empty.
func TryThis(w io.Writer, listening net.Addr, product string) {
	base := URL(listening)
	fmt.Fprintf(w, "Serving on %s/, which is a page to try it on in a browser. Or:\n\n", base)
	fmt.Fprintf(w, "  curl -i '%s/v1/users?limit=2'\n", base)
	fmt.Fprintf(w, "  curl -i '%s/v2/widgets?limit=2'\n", base)
	if product != "" {
		product = base + "/v1/products/" + url.PathEscape(product)
		fmt.Fprintf(w, "  curl -i '%s'\n", product)
		fmt.Fprintf(w, "  curl -i '%s' -H 'Cache-Control: max-age=60'\n", product)
	}
	fmt.Fprintf(w, "  curl -i '%s/v1/orders' -H 'Idempotency-Key: first-order'"+
		" -H 'Content-Type: application/json' -d '{\"item\":\"teapot\",\"qty\":2}'\n", base)
	fmt.Fprintf(w, "  curl -i '%s/openapi.json'\n", base)
	fmt.Fprintln(w, "\nThe same order again creates nothing. Ctrl-C ends.")
}
