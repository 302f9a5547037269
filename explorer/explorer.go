// Package explorer serves one web page on which the service of package storefront is
// tried by hand: orders and their retries, pages, revalidation, what caches may do,
// and what is answered to wrong requests. Each exchange is shown as it went over the
// wire, with a curl line to copy.
//
// The page is part of the program: it has no build step, asks no other host, works
// offline, and is served with a strict Content-Security-Policy. It can do nothing that
// any client of the service could not do; who may open it is up to the program, as
// with the service itself.
package explorer

import (
	"net/http"

	"example.com/storefront/internal/trypage"
)

// Options are what a program adds to the page.
type Options struct {
	// Product is the ID of the product that the page begins with. Empty: that of the
	// samples, "teapot".
	Product string
}

// Handler returns the page. It answers GET and HEAD with it, whatever the path, so
// that it can be mounted anywhere.
//
// The base is where the browser finds the service: a path such as "/shop", or a
// relative one, which starts from the folder of the page; "" is that folder. So "" is
// right for a page at / and a service at the root, and it stays right where both are
// behind a proxy that adds a prefix. Handler panics if base is not a path: the page
// may connect to its own host only.
func Handler(base string) http.Handler {
	return HandlerWithOptions(base, nil)
}

// HandlerWithOptions is [Handler] with options; nil stands for none.
func HandlerWithOptions(base string, opts *Options) http.Handler {
	if opts == nil {
		opts = new(Options)
	}
	return trypage.Handler(base, &trypage.Options{Product: opts.Product})
}
