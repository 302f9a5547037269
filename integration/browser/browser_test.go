// Package browser tests the explorer in Chromium, without a screen, and the journal of sdk/javascript in a
// page.
package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
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
	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
	"example.com/storefront/internal/trypage"
)

func TestMain(m *testing.M) {
	code := m.Run()
	stop()
	os.Exit(code)
}

// stop ends the browser.
var stop = func() {}

// chromium is one process for all tests.
var chromium = sync.OnceValues(func() (context.Context, error) {
	// Without any windows, it takes a quarter of the work.
	path, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		path, err = exec.LookPath("chromium")
	}
	if err != nil {
		return nil, fmt.Errorf("%w (Debian: apt-get install chromium-headless-shell)", err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(5*time.Minute), // it may start beside other tests
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-quic", true))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	stop = func() { cancel(); end() }
	return ctx, chromedp.Do(ctx)
})

// A shop is a server with the explorer and the service, which keeps what it is sent.
type shop struct {
	*httptest.Server
	store *storefront.MemStore
	base  string // where the explorer, at /, is told that the service is

	mu       sync.Mutex
	before   answerer
	received []received
}

// An answerer is called before each request to the service. It may answer it, and returns false if it has.
type answerer func(w http.ResponseWriter, r *http.Request) bool

// answerBefore has before called before each request from then on; nil: nothing is.
func (s *shop) answerBefore(before answerer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// A received is a request as the server has got it.
type received struct {
	method, target, body string
	header               http.Header
}

// newShop makes a shop whose service may have more options.
func newShop(t *testing.T, sets ...func(*storefront.MemStore, *storefront.Options)) *shop {
	t.Helper()
	s := &shop{store: new(storefront.MemStore)}
	for _, id := range []string{"ada", "barbara", "edsger", "grace", "linus"} {
		s.store.Users.Put(storefront.MustResource(id, nil))
		s.store.Widgets.Put(storefront.MustResource("w-"+id, map[string]any{"of": id}))
	}
	s.store.Products.Put(storefront.MustResource("teapot", map[string]any{
		"name": "Teapot", "price": map[string]any{"amount": "24.50", "currency": "EUR"}}))
	opts := &storefront.Options{Logger: slog.New(slog.DiscardHandler)}
	for _, set := range sets {
		set(s.store, opts)
	}
	service := storefront.NewWithOptions(s.store, opts)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			trypage.Handler(s.base, &trypage.Options{Sample: s.store}).ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		s.mu.Lock()
		s.received = append(s.received, received{r.Method, r.RequestURI, string(body), r.Header.Clone()})
		before := s.before
		s.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		if before != nil && !before(w, r) {
			return
		}
		http.StripPrefix(s.base, service).ServeHTTP(w, r)
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

// take returns what was received since the last take.
func (s *shop) take() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.received
	s.received = nil
	return list
}

// A page is the explorer in a window with a profile of its own.
type page struct {
	t   *testing.T
	ctx context.Context
	*shop
	mayFail bool // the server may be gone, which the browser notes on the console
}

// newPage opens a page without anything.
func newPage(t *testing.T) *page {
	t.Helper()
	browser, err := chromium()
	if err != nil {
		need.Missing(t, need.Browser, err)
	}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	must.OK(t, chromedp.Do(ctx)) // which must not have a time limit
	return &page{t: t, ctx: ctx}
}

// open opens the explorer of the shop. When the test ends, nothing may have been
// written to the console, asked of another host, or refused by the page's policy.
func open(t *testing.T, s *shop) *page {
	t.Helper()
	p := newPage(t)
	p.shop = s
	var mu sync.Mutex
	var complaints []string
	complain := func(kind string, what any) {
		text, _ := json.Marshal(what)
		mu.Lock()
		defer mu.Unlock()
		complaints = append(complaints, kind+": "+string(text))
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range complaints {
			t.Error(c)
		}
	})
	must.OK(t, chromedp.Listen(p.ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			complain("exception", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			complain("console", e.Args)
		case *log.EventEntryAdded:
			// The browser itself notes each answer of 400 and above, and each that does not
			// come, which are what the page is there to show.
			of := e.Entry.Source == log.EntrySourceNetwork
			if !of || !strings.Contains(e.Entry.Text, "status of") && !p.mayFail {
				complain("log", e.Entry)
			}
		case *network.EventRequestWillBeSent:
			u, err := url.Parse(e.Request.URL)
			if err != nil || "http://"+u.Host != s.URL && u.Scheme != "data" && u.Scheme != "blob" {
				complain("a request to another host", e.Request.URL)
			}
		}
	}))
	call(p, log.Enable, cdp.Empty{})
	call(p, network.Enable, network.EnableParams{})
	p.look(1366, "light")
	p.send(chromedp.Navigate(s.URL))
	p.waitFor(`!document.querySelector("#operations").textContent.startsWith("Reading")`) // what it does by itself
	return p
}

const patience = 2 * time.Minute

// send has the browser do something.
func (p *page) send(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	must.OK(p.t, chromedp.Do(ctx, actions...))
}

// call sends a command of the protocol.
func call[P, R any](p *page, c cdp.Command[P, R], params P) {
	p.t.Helper()
	must.Get(chromedp.Call(p.ctx, c, params))(p.t)
}

// look gives the window a width, the height of that of a usual laptop, and a colour scheme.
func (p *page) look(width int64, scheme string) {
	p.t.Helper()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: 625, DeviceScaleFactor: 1, Mobile: width < 600})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

func (p *page) want(what string, got, want any) {
	p.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// eval returns what a JavaScript expression yields, perhaps as a promise.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	v, err := evaluate[T](p, expression)
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func evaluate[T any](p *page, expression string) (v T, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	if err == nil && text != nil {
		err = json.Unmarshal(text, &v)
	}
	return v, err
}

// run evaluates JavaScript for what it does.
func (p *page) run(expression string) {
	p.t.Helper()
	eval[any](p, "{"+expression+"}; null")
}

// waitFor waits until the JavaScript condition holds. The page's policy does not let chromedp.Poll do it.
func (p *page) waitFor(condition string) {
	p.t.Helper()
	_, err := evaluate[any](p, `new Promise(done => { (function look() {
		if (`+condition+`) done(); else setTimeout(look, 10);
	})(); })`)
	if err != nil {
		p.t.Fatalf("waiting for %s: %v\nthe page:\n%s", condition, err, eval[string](p, "document.body.innerText"))
	}
}

// clickOn clicks an element with the mouse, once it is there and enabled.
func (p *page) clickOn(selector string) {
	p.t.Helper()
	p.waitFor(fmt.Sprintf(`document.querySelector(%q)?.matches(":not(:disabled)")`, selector))
	p.send(chromedp.Click(chromedp.CSS(selector)))
}

// click clicks the button and waits until n exchanges are in the log and the button can be used again.
func (p *page) click(button string, n int) {
	p.t.Helper()
	p.clickOn(button)
	p.waitFor(fmt.Sprintf(`document.querySelectorAll("#log > li:not(.empty, .own, .waiting)").length === %d &&
		!document.querySelector(%q).hasAttribute("aria-busy")`, n, button))
}

// set puts values into fields: a selector, its value, and so on.
func (p *page) set(selectorsAndValues ...string) {
	p.t.Helper()
	for pair := range slices.Chunk(selectorsAndValues, 2) {
		p.run(fmt.Sprintf(`const f = document.querySelector(%q); f.value = %q;
			f.dispatchEvent(new Event("input", {bubbles: true}))`, pair[0], pair[1]))
	}
}

// tab chooses a tab.
func (p *page) tab(name string) {
	p.t.Helper()
	p.clickOn("#tab-" + name)
	p.waitFor(fmt.Sprintf(`document.querySelector("#%s").checkVisibility()`, name))
}

// operation unfolds the operation, which folds the others.
func (p *page) operation(id string) {
	p.t.Helper()
	p.run(fmt.Sprintf(`document.querySelector("#operation-%[1]s").open ||
		document.querySelector("#operation-%[1]s summary").click()`, id))
}

func (p *page) text(selector string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf(`document.querySelector(%q).innerText`, selector))
}

func (p *page) texts(selector string) []string {
	p.t.Helper()
	return eval[[]string](p, fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.innerText)`, selector))
}

// said checks that an element has a text.
func (p *page) said(selector, want string) {
	p.t.Helper()
	if got := p.text(selector); !strings.Contains(got, want) {
		p.t.Errorf("%s says %q, want %q in it", selector, got, want)
	}
}

// statuses checks those in the log, the newest first.
func (p *page) statuses(want ...string) {
	p.t.Helper()
	p.want("statuses", p.texts("#log li:not(.own) summary .chip"), want)
}

// created checks how many orders there are.
func (p *page) created(n int) {
	p.t.Helper()
	p.want("orders created", len(p.store.Orders()), n)
}

// yields checks what JavaScript yields.
func yields[T any](p *page, expression string, want T) {
	p.t.Helper()
	p.want(expression, eval[T](p, expression), want)
}

// unfoldLog unfolds the log, whose entries all have requests.
func (p *page) unfoldLog() {
	p.t.Helper()
	p.run(`document.querySelectorAll("#log details").forEach(d => { d.open = true; })`)
	p.waitFor(`[...document.querySelectorAll("#log details")].every(d => d.querySelector("pre"))`)
}
