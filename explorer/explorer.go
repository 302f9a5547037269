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
	"context"
	_ "embed"
	"errors"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/inline"
)

var (
	//go:embed page.html
	page string
	//go:embed page.css
	style string
	//go:embed page.js
	script string
)

// Options are what a program adds to the page.
type Options struct {
	// Product is the ID of the product that the page begins with. Empty: that of the
	// samples, "teapot".
	Product string
	// Change, if it is not nil, puts an item into a list, in place of one with the same
	// ID, or deletes it if it is there. With it, the page has buttons that change a list
	// in the middle of a walk from page to page, and a product between two reads; so an
	// item that is put should keep the members that it has and get something new, such as
	// the time. It is for
	// samples: whoever can open the page can change the lists. It is called from many
	// goroutines at the same time.
	//
	// For a list that it does not know, it must change nothing and return
	// [ErrUnknownList], which is answered with 400: later versions of the page may have
	// more lists. Any other error is logged to [slog.Default] and answered with 500.
	Change func(ctx context.Context, change Change) error
}

// A Change is what a button of the page asks for. Later versions may add fields.
type Change struct {
	// List is "users", "products" or "widgets". Later versions may add lists.
	List string
	// ID is the ID of the item. It follows the rules of [storefront.NewResource].
	ID string
	// Deleted says that the item is to be deleted; otherwise it is to be put.
	Deleted bool
}

// ErrUnknownList is what [Options].Change returns, perhaps wrapped, for a list that it
// does not know.
var ErrUnknownList = errors.New("explorer: unknown list")

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

// HandlerWithOptions is [Handler] with options; nil stands for none. With Change, it
// also answers POST, which browsers can send only from pages of the same origin, see
// [http.CrossOriginProtection]: over plain HTTP, a proxy in front must pass the Host on.
func HandlerWithOptions(base string, opts *Options) http.Handler {
	if u, err := url.Parse(base); err != nil || u.Path != base && u.EscapedPath() != base ||
		strings.HasPrefix(base, "//") || strings.Contains(base, `\`) { // browsers take \ for /

		panic("explorer: the base is not a path: " + base)
	}
	e := &explorer{allow: "GET, HEAD"}
	if opts == nil {
		opts = new(Options)
	}
	changes := ""
	if opts.Change != nil {
		e.change = opts.Change
		e.allow += ", POST"
		changes = "yes"
	}
	style, script := inline.Text(style), inline.Text(script)
	text := strings.NewReplacer(
		"{{base}}", html.EscapeString(base), "{{product}}", html.EscapeString(opts.Product),
		"{{changes}}", changes, "{{style}}", style, "{{script}}", script,
	).Replace(inline.Text(page))
	e.page = text
	e.tag = `"` + inline.Hash(text) + `"`
	e.policy = inline.Policy(script, style)
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(storefront.Problem{Status: http.StatusForbidden,
		Detail: "A page of another origin may not do that."})
	return sameOrigin.Handler(e)
}

type explorer struct {
	page   string
	tag    string
	policy string
	allow  string
	change func(ctx context.Context, change Change) error // nil: none
}

func (e *explorer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		e.servePage(w, r)
	case r.Method == http.MethodPost && e.change != nil:
		e.serveChange(w, r)
	default:
		w.Header().Set("Allow", e.allow)
		storefront.Problem{Status: http.StatusMethodNotAllowed,
			Detail: "This is a page to look at: " + e.allow + "."}.ServeHTTP(w, r)
	}
}

func (e *explorer) servePage(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", e.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	h.Set("Etag", e.tag)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(e.page))
}

// serveChange answers the page's form: list, id, and op, which is put or delete.
func (e *explorer) serveChange(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, detail string) {
		storefront.Problem{Status: status, Detail: detail}.ServeHTTP(w, r)
	}
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	if err := r.ParseForm(); err != nil {
		refuse(http.StatusBadRequest, "The body is not a form of at most 16 KiB.")
		return
	}
	op := r.PostFormValue("op")
	change := Change{List: r.PostFormValue("list"), ID: r.PostFormValue("id"), Deleted: op == "delete"}
	if !slices.Contains([]string{"users", "products", "widgets"}, change.List) ||
		op != "put" && op != "delete" {
		refuse(http.StatusBadRequest, "The list is users, products or widgets, and op is put or delete.")
		return
	}
	if _, err := storefront.NewResource(change.ID, nil); err != nil {
		refuse(http.StatusUnprocessableEntity,
			"An ID has 1 to 255 bytes of UTF-8 without control characters.")
		return
	}
	switch err := e.change(r.Context(), change); {
	case errors.Is(err, ErrUnknownList):
		refuse(http.StatusBadRequest, "This program does not change "+change.List+".")
	case err != nil:
		slog.ErrorContext(r.Context(), "explorer: the change failed", slog.Any("error", err))
		refuse(http.StatusInternalServerError, "The change failed.")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
