// Package browser tests the explorer in a real browser: Chromium, without a window.
//
// With -artifacts, pictures of the states that the tests bring about are kept, for
// people to look at.
package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"example.com/storefront"
	"example.com/storefront/explorer"
	"example.com/storefront/integration/internal/need"
)

// chromium is one process for all tests, each of which has a profile of its own.
var chromium context.Context

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	path, err := exec.LookPath("chromium")
	if err != nil {
		if need.Required(need.Browser) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println("skipped: there is no Chromium (Debian: apt-get install chromium)")
		return 0
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(5*time.Minute), // it may start beside other tests
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-quic", true))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	var cancel context.CancelFunc
	chromium, cancel = chromedp.NewContext(allocator)
	defer cancel()
	if err := chromedp.Do(chromium); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// A shop is a server with the explorer and the service, which keeps what it is sent.
type shop struct {
	*httptest.Server
	store *storefront.MemStore
	// change is what the explorer may change the lists with.
	change func(ctx context.Context, change explorer.Change) error
	// path is the explorer's, base what it is told of the service, and prefix where that is.
	path, base, prefix string
	product            string // for the explorer to begin with
	// before is called before each request to the service; it may answer it, and returns
	// false if it has.
	before func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	received []received
	came     chan struct{} // has an element after each
}

// A received is a request as the server has got it.
type received struct {
	method, target, body string
	header               http.Header
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{store: new(storefront.MemStore), path: "/", came: make(chan struct{}, 10_000)}
	for _, id := range []string{"ada", "barbara", "edsger", "grace", "linus"} {
		s.store.Users.Put(storefront.MustResource(id, map[string]any{"name": strings.ToUpper(id[:1]) + id[1:]}))
		s.store.Widgets.Put(storefront.MustResource("w-"+id, map[string]any{"of": id}))
	}
	s.store.Products.Put(storefront.MustResource("teapot", map[string]any{"name": "Teapot", "price": map[string]any{"amount": "24.50", "currency": "EUR"}}))
	s.change = func(_ context.Context, change explorer.Change) error {
		items := map[string]*storefront.Collection{"users": &s.store.Users, "products": &s.store.Products, "widgets": &s.store.Widgets}[change.List]
		if change.Deleted {
			items.Delete(change.ID)
		} else {
			items.Put(storefront.MustResource(change.ID, nil))
		}
		return nil
	}
	service := storefront.New(s.store)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == s.path {
			explorer.HandlerWithOptions(s.base, &explorer.Options{Change: s.change, Product: s.product}).ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		s.mu.Lock()
		s.received = append(s.received, received{r.Method, r.RequestURI, string(body), r.Header.Clone()})
		s.mu.Unlock()
		s.came <- struct{}{}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if s.before != nil && !s.before(w, r) {
			return
		}
		http.StripPrefix(s.prefix, service).ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// requests returns what was received for this path.
func (s *shop) requests(path string) []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []received
	for _, r := range s.received {
		if p, _, _ := strings.Cut(r.target, "?"); p == path {
			list = append(list, r)
		}
	}
	return list
}

// waitForRequests waits until n requests for this path were received.
func (s *shop) waitForRequests(path string, n int) {
	for len(s.requests(path)) < n {
		<-s.came
	}
}

// take returns what was received since the last take.
func (s *shop) take() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.received
	s.received = nil
	return list
}

// A view is how a page is looked at.
type view struct {
	width int64
	dark  bool
}

var (
	desktop = view{width: 1366}
	views   = []view{desktop, {width: 1366, dark: true}, {width: 390}, {width: 390, dark: true}}
)

func (v view) String() string {
	if v.dark {
		return fmt.Sprintf("%d-dark", v.width)
	}
	return fmt.Sprintf("%d-light", v.width)
}

// emulate returns the action that gives the window the size of the view.
func (v view) emulate() chromedp.Action[chromedp.Void] {
	return command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.width, Height: 625, DeviceScaleFactor: 1, Mobile: v.width < 600})
}

// A page is the explorer in a browser.
type page struct {
	t   *testing.T
	ctx context.Context
	*shop
	mayFail bool // the server may be gone, which the browser notes on the console
}

// open opens the explorer of the shop. When the test ends, nothing may have been
// written to the console, asked of another host, or refused by the page's policy.
func open(t *testing.T, s *shop, v view) *page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	p := &page{t: t, ctx: ctx, shop: s}
	var mu sync.Mutex
	var complaints []string
	complain := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		complaints = append(complaints, fmt.Sprintf(format, args...))
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range complaints {
			t.Error(c)
		}
	})
	host := strings.TrimPrefix(s.URL, "http://")
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			complain("exception: %v", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			complain("console.%s: %v", e.Type, e.Args)
		case *log.EventEntryAdded:
			// The browser itself notes each answer of 400 and above, and each that does not
			// come, which are what the page is there to show.
			if e.Entry.Source != log.EntrySourceNetwork || !strings.Contains(e.Entry.Text, "status of") && !p.mayFail {
				complain("console: %s: %s", e.Entry.Source, e.Entry.Text)
			}
		case *network.EventRequestWillBeSent:
			u, err := url.Parse(e.Request.URL)
			if err != nil || u.Host != host && u.Scheme != "data" && u.Scheme != "blob" {
				complain("a request to another host: %s", e.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if v.dark {
		scheme = "dark"
	}
	p.do(
		command(log.Enable, cdp.Empty{}),
		command(network.Enable, network.EnableParams{}),
		v.emulate(),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		chromedp.Navigate(s.URL+s.path),
	)
	p.waitFor(`!document.querySelector("#operations").textContent.startsWith("Reading")`) // the last that the page does by itself
	return p
}

// command returns the action that sends a command of the protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	})
}

const patience = 2 * time.Minute

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

func get[T any](p *page, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// eval returns what a JavaScript expression yields, perhaps as a promise.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	return get(p, chromedp.Evaluate[T](expression, func(params *runtime.EvaluateParams) {
		wait := true
		params.AwaitPromise = &wait
	}))
}

// waitFor waits until the JavaScript condition holds.
func (p *page) waitFor(condition string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	held := chromedp.Evaluate[bool](`new Promise(done => { (function look() { if (`+condition+`) done(true); else setTimeout(look, 10); })(); })`, func(params *runtime.EvaluateParams) {
		wait := true
		params.AwaitPromise = &wait
	})
	if _, err := chromedp.Run(ctx, held); err != nil {
		p.t.Fatalf("waiting for %s: %v\nthe page:\n%s", condition, err, eval[string](p, "document.body.innerText"))
	}
}

// click clicks the button, with the mouse, and waits until n exchanges are in the log
// and the button can be used again.
func (p *page) click(button string, n int) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(button), chromedp.NodeEnabled))
	p.logged(button, n)
}

func (p *page) logged(button string, n int) {
	p.t.Helper()
	p.waitFor(fmt.Sprintf(`document.querySelectorAll("#log > li:not(.empty, .own, .waiting)").length === %d && !document.querySelector(%q).hasAttribute("aria-busy")`, n, button))
}

// set returns the action that puts the value into a field.
func (p *page) set(selector, value string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(f => { f.value = %q; f.dispatchEvent(new Event("input", {bubbles: true})); })(document.querySelector(%q))`, value, selector))
}

// tab chooses a tab.
func (p *page) tab(name string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS("#tab-"+name)), chromedp.WaitVisible(chromedp.CSS("#"+name)))
}

func (p *page) text(selector string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf(`document.querySelector(%q).innerText`, selector))
}

func (p *page) texts(selector string) []string {
	p.t.Helper()
	return eval[[]string](p, fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.innerText)`, selector))
}

// keepsPictures reports whether they were asked for.
func keepsPictures() bool { return flag.Lookup("test.artifacts").Value.String() == "true" }

// screenshot writes a picture of the whole page, if pictures are kept.
func (p *page) screenshot(v view, name string) {
	p.t.Helper()
	if keepsPictures() {
		p.write(name+"-"+v.String()+".png", get(p, chromedp.FullScreenshot(100)))
	}
}

// picture writes the picture that the README has, if pictures are kept.
func (p *page) picture(v view) {
	p.t.Helper()
	if !keepsPictures() || v.width != desktop.width {
		return
	}
	name := "explorer-light.png"
	if v.dark {
		name = "explorer-dark.png"
	}
	p.do(command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.width, Height: 760, DeviceScaleFactor: 1}))
	p.write(name, get(p, chromedp.CaptureScreenshot()))
	p.do(v.emulate())
}

func (p *page) write(name string, picture []byte) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.t.ArtifactDir(), name), picture, 0o666); err != nil {
		p.t.Fatal(err)
	}
}
