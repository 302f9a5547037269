// Package browser tests the explorer in real browsers, Chromium and Firefox, without a
// screen. The name of a subtest says which: -run /firefox chooses one.
//
// With -artifacts, pictures of the states that the tests bring about are kept, for
// people to look at.
package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/explorer"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/need"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, stop := range stops {
		stop()
	}
	os.Exit(code)
}

// stops are called when the tests have ended.
var stops []func()

// A browser is one process for all tests.
type browser interface {
	// open opens a window with a profile of its own. It calls noticed, perhaps at the same
	// time as another method, with each thing that the tests judge.
	open(noticed func(notice)) (window, error)
}

// browsers are those that the tests run in.
var browsers = []struct {
	name  string
	start func() (browser, error)
}{
	{"chromium", startChromium},
	{"firefox", startFirefox},
}

// inEachBrowser runs the test as subtests, one for each browser, in which are the pages
// that the subtest opens. In the short run it is the first browser alone.
func inEachBrowser(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for i, b := range browsers {
		t.Run(b.name, func(t *testing.T) {
			if i > 0 {
				long.Test(t)
			}
			test(t)
		})
	}
}

// browserOf returns the browser that is named in the name of the test.
func browserOf(t *testing.T) (string, browser) {
	t.Helper()
	for _, b := range browsers {
		if strings.Contains(t.Name()+"/", "/"+b.name+"/") {
			started, err := b.start()
			if err != nil {
				need.Missing(t, need.Browser, err)
			}
			return b.name, started
		}
	}
	t.Fatal("only subtests of inEachBrowser open pages")
	return "", nil
}

// A window shows a page. Its methods give up after the time patience.
type window interface {
	// look gives the window the size and the colours of the view. The error is
	// errors.ErrUnsupported if this browser cannot do that.
	look(v view) error
	// navigate and reload return when the page has been loaded.
	navigate(url string) error
	reload() error
	// evaluate returns the JSON of what a JavaScript expression yields, perhaps as a
	// promise; undefined is null.
	evaluate(expression string) ([]byte, error)
	// click clicks with the mouse at a place of what is seen.
	click(x, y float64) error
	// keys presses the keys of a text one after the other. Those that stand for no
	// character are those of the package kb.
	keys(text string) error
	// screenshot returns a PNG of the whole page.
	screenshot() ([]byte, error)
	// downloads puts what is downloaded into the folder. The channel is closed when a file
	// is complete.
	downloads(folder string) (<-chan struct{}, error)
	close()
}

// A notice is something that happens in a window.
type notice struct {
	kind noticeKind
	text string
}

type noticeKind int

const (
	onConsole noticeKind = iota // written there, by the page or by the browser, or an exception
	onNetwork                   // written there by the browser about an answer, or about none
	request                     // asked for; the text is its URL
)

const patience = 2 * time.Minute

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

const height = 625 // of every view: that of a usual laptop

var desktop = view{width: 1366}

// views returns how the page is looked at: in the short run, on a small screen in the dark.
func views() []view {
	if long.Run() || keepsPictures() {
		return []view{desktop, {width: 1366, dark: true}, {width: 390}, {width: 390, dark: true}}
	}
	return []view{{width: 390, dark: true}}
}

func (v view) String() string {
	if v.dark {
		return fmt.Sprintf("%d-dark", v.width)
	}
	return fmt.Sprintf("%d-light", v.width)
}

// A page is the explorer in a window.
type page struct {
	t      *testing.T
	in     string // the name of the browser
	window window
	*shop
	mayFail bool // the server may be gone, which the browser notes on the console
}

// open opens the explorer of the shop. When the test ends, nothing may have been
// written to the console, asked of another host, or refused by the page's policy.
func open(t *testing.T, s *shop, v view) *page {
	t.Helper()
	p := &page{t: t, shop: s}
	var mu sync.Mutex
	var complaints []string
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range complaints {
			t.Error(c)
		}
	})
	host := strings.TrimPrefix(s.URL, "http://")
	name, b := browserOf(t)
	p.in = name
	var err error
	p.window, err = b.open(func(n notice) {
		mu.Lock()
		defer mu.Unlock()
		switch n.kind {
		case onConsole:
			complaints = append(complaints, "console: "+n.text)
		case onNetwork:
			// The browser itself notes each answer of 400 and above, and each that does not
			// come, which are what the page is there to show.
			if !strings.Contains(n.text, "status of") && !p.mayFail {
				complaints = append(complaints, "console: "+n.text)
			}
		case request:
			u, err := url.Parse(n.text)
			if err != nil || u.Host != host && u.Scheme != "data" && u.Scheme != "blob" {
				complaints = append(complaints, "a request to another host: "+n.text)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.window.close)
	if err := p.window.look(v); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	} else {
		p.must(err)
	}
	p.must(p.window.navigate(s.URL + s.path))
	p.waitLoaded()
	return p
}

// waitLoaded waits for the last that the page does by itself.
func (p *page) waitLoaded() {
	p.t.Helper()
	p.waitFor(`!document.querySelector("#operations").textContent.startsWith("Reading")`)
}

func (p *page) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// A step is something that is done to a page.
type step func(p *page)

func (p *page) do(steps ...step) {
	p.t.Helper()
	for _, s := range steps {
		s(p)
	}
}

// eval returns what a JavaScript expression yields, perhaps as a promise.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	text, err := p.window.evaluate(expression)
	if err != nil {
		p.t.Fatal(err)
	}
	var v *T
	if err := json.Unmarshal(text, &v); err != nil {
		p.t.Fatal(err)
	}
	if v == nil {
		v = new(T)
		if reflect.TypeFor[T]().Kind() != reflect.Interface {
			p.t.Fatalf("%s yields nothing", expression)
		}
	}
	return *v
}

// waitFor waits until the JavaScript condition holds.
func (p *page) waitFor(condition string) {
	p.t.Helper()
	waitFor[any](p, condition)
}

// waitFor waits until a JavaScript expression yields what a condition takes for true, and
// returns it.
func waitFor[T any](p *page, expression string) T {
	p.t.Helper()
	text, err := p.window.evaluate(`new Promise(done => { (function look() { const v = (` + expression + `); if (v) done(v); else setTimeout(look, 10); })(); })`)
	if err != nil {
		p.t.Fatalf("waiting for %s: %v\nthe page:\n%s", expression, err, eval[string](p, "document.body.innerText"))
	}
	var v T
	p.must(json.Unmarshal(text, &v))
	return v
}

// clickOn returns the step that clicks an element with the mouse, once it is there to be
// clicked: shown, enabled and covered by nothing.
func clickOn(selector string) step {
	return func(p *page) {
		p.t.Helper()
		place := waitFor[[2]float64](p, fmt.Sprintf(`(e => {
			if (!e || !e.checkVisibility({visibilityProperty: true}) || e.matches(":disabled")) return;
			const middle = () => (r => [r.x + r.width / 2, r.y + r.height / 2])(e.getClientRects()[0]);
			const hit = () => e.contains(document.elementFromPoint(...middle()));
			if (!hit()) e.scrollIntoView({block: "center", behavior: "instant"});
			return hit() && middle();
		})(document.querySelector(%q))`, selector))
		p.must(p.window.click(place[0], place[1]))
	}
}

// typeInto returns the step that clicks a field and types the text.
func typeInto(selector, text string) step {
	return func(p *page) {
		p.t.Helper()
		p.do(clickOn(selector))
		p.must(p.window.keys(text))
	}
}

// reload loads the page again, as its user may.
func reload(p *page) {
	p.t.Helper()
	p.must(p.window.reload())
	p.waitLoaded()
}

// click clicks the button, with the mouse, and waits until n exchanges are in the log
// and the button can be used again.
func (p *page) click(button string, n int) {
	p.t.Helper()
	p.do(clickOn(button))
	p.logged(button, n)
}

func (p *page) logged(button string, n int) {
	p.t.Helper()
	p.waitFor(fmt.Sprintf(`document.querySelectorAll("#log > li:not(.empty, .own, .waiting)").length === %d && !document.querySelector(%q).hasAttribute("aria-busy")`, n, button))
}

// set returns the step that puts the value into a field.
func (p *page) set(selector, value string) step {
	return func(p *page) {
		p.t.Helper()
		eval[any](p, fmt.Sprintf(`(f => { f.value = %q; f.dispatchEvent(new Event("input", {bubbles: true})); })(document.querySelector(%q))`, value, selector))
	}
}

// tab chooses a tab.
func (p *page) tab(name string) {
	p.t.Helper()
	p.do(clickOn("#tab-" + name))
	p.waitShown("#" + name)
}

// waitShown waits until an element is shown.
func (p *page) waitShown(selector string) {
	p.t.Helper()
	p.waitFor(fmt.Sprintf(`document.querySelector(%q)?.checkVisibility()`, selector))
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
		p.write(name+"-"+p.in+"-"+v.String()+".png", p.window.screenshot)
	}
}

// picture writes the picture that the README has, if pictures are kept: in Chromium, down to
// the end of a card, and with the address that the README has.
func (p *page) picture(v view) {
	p.t.Helper()
	chromium, ok := p.window.(chromiumWindow)
	if !ok || !keepsPictures() || v.width != desktop.width {
		return
	}
	name := "explorer-light.png"
	if v.dark {
		name = "explorer-dark.png"
	}
	const margin = 20
	cards := eval[float64](p, `scrollTo(0, 0), Math.max(...[...document.querySelectorAll("main section:not([hidden]), aside")].map(e => e.getBoundingClientRect().bottom))`)
	p.rename("location.origin", "'http://localhost:8080'")
	p.write(name, func() ([]byte, error) { return chromium.top(v, int64(cards)+margin) })
	p.must(p.window.look(v))
	p.rename("'http://localhost:8080'", "location.origin")
}

// rename replaces one text by another wherever the page shows it; both are JavaScript.
func (p *page) rename(old, new string) {
	p.t.Helper()
	eval[any](p, `(() => {
		for (const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); texts.nextNode();) {
			const text = texts.currentNode.data.replaceAll(`+old+`, `+new+`);
			if (text !== texts.currentNode.data) texts.currentNode.data = text;
		}
	})()`)
}

func (p *page) write(name string, take func() ([]byte, error)) {
	p.t.Helper()
	picture, err := take()
	p.must(err)
	p.must(os.WriteFile(filepath.Join(p.t.ArtifactDir(), name), picture, 0o666))
}
