// Package trypage is the page of package explorer, with buttons for programs that can change their lists.
package trypage

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"example.com/storefront"
)

var (
	//go:embed page.html
	text string
	//go:embed page.css
	style string
	//go:embed page.js
	script string
)

// notes are for who changes the script: comments, and indents. No text has " // " there, or goes over a line.
var notes = regexp.MustCompile(`(?m)^\t*(//.*\n)?| // .*$`)

// Options are what a program adds to the page.
type Options struct {
	// Product is the ID of the product that the page begins with. Empty: that of the
	// samples, "teapot".
	Product string
	// Sample, if it is not nil, is the store of the service, a sample: the page has buttons that change a
	// list in the middle of a walk from page to page, and a product between two reads. Whoever can open
	// the page can change the sample.
	Sample *storefront.MemStore
}

// Handler returns the page of a service at a base, as explorer.Handler does; nil options stand for none.
// With Sample, it also answers POST, which browsers can send only from pages of the same origin, see
// [http.CrossOriginProtection]: over plain HTTP, a proxy in front must pass the Host on.
func Handler(base string, opts *Options) http.Handler {
	if u, err := url.Parse(base); err != nil || u.Path != base && u.EscapedPath() != base ||
		strings.HasPrefix(base, "//") || strings.Contains(base, `\`) { // browsers take \ for /

		panic("explorer: the base is not a path: " + base)
	}
	e := &handler{allow: "GET, HEAD"}
	if opts == nil {
		opts = new(Options)
	}
	changes := ""
	if opts.Sample != nil {
		e.sample = opts.Sample
		e.allow += ", POST"
		changes = "yes"
	}
	script := notes.ReplaceAllString(script, "")
	served := strings.NewReplacer(
		"{{base}}", html.EscapeString(base), "{{product}}", html.EscapeString(opts.Product),
		"{{changes}}", changes, "{{style}}", style, "{{script}}", script,
	).Replace(text)
	e.page = served
	e.tag = `"` + hash(served) + `"`
	e.policy = "default-src 'none'; script-src 'sha256-" + hash(script) + "'; style-src 'sha256-" +
		hash(style) + "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'" +
		"; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(storefront.Problem{Status: http.StatusForbidden,
		Detail: "A page of another origin may not do that."})
	return sameOrigin.Handler(e)
}

// hash returns the SHA-256 of a text in base64.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

type handler struct {
	page   string
	tag    string
	policy string // Content-Security-Policy (CSP Level 3): the page's own script and style, and host
	allow  string
	sample *storefront.MemStore // nil: none
}

func (e *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		e.servePage(w, r)
	case r.Method == http.MethodPost && e.sample != nil:
		e.serveChange(w, r)
	default:
		w.Header().Set("Allow", e.allow)
		storefront.Problem{Status: http.StatusMethodNotAllowed,
			Detail: "This is a page to look at: " + e.allow + "."}.ServeHTTP(w, r)
	}
}

func (e *handler) servePage(w http.ResponseWriter, r *http.Request) {
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
func (e *handler) serveChange(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, detail string) {
		storefront.Problem{Status: status, Detail: detail}.ServeHTTP(w, r)
	}
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	if err := r.ParseForm(); err != nil {
		refuse(http.StatusBadRequest, "The body is not a form of at most 16 KiB.")
		return
	}
	items := map[string]*storefront.Collection{"users": &e.sample.Users, "products": &e.sample.Products,
		"widgets": &e.sample.Widgets}[r.PostFormValue("list")]
	id, op := r.PostFormValue("id"), r.PostFormValue("op")
	if items == nil || op != "put" && op != "delete" {
		refuse(http.StatusBadRequest, "The list is users, products or widgets, and op is put or delete.")
		return
	}
	fields := map[string]any{"name": id}
	if old, ok := items.Get(id); ok { // whose members stay
		clear(fields)
		json.Unmarshal([]byte(old.String()), &fields)
	}
	fields["changed_at"] = time.Now().UTC() // so that it has another entity tag
	item, err := storefront.NewResource(id, fields)
	switch {
	case err != nil:
		refuse(http.StatusUnprocessableEntity,
			"An ID has 1 to 255 bytes of UTF-8 without control characters.")
		return
	case op == "delete":
		items.Delete(id)
	default:
		items.Put(item)
	}
	w.WriteHeader(http.StatusNoContent)
}
