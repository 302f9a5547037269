package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium is driven by the DevTools protocol.
type chromium struct{ ctx context.Context }

var startChromium = sync.OnceValues(func() (browser, error) {
	// Without any windows, it takes a quarter of the work.
	path, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		path, err = exec.LookPath("chromium")
	}
	if err != nil {
		return nil, fmt.Errorf("%w (Debian: apt-get install chromium-headless-shell)", err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(5*time.Minute), // it may start beside other tests
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-quic", true))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	stops = append(stops, func() { cancel(); end() })
	if err := chromedp.Do(ctx); err != nil {
		return nil, err
	}
	return chromium{ctx}, nil
})

// A chromiumWindow is one of a browser context of its own.
type chromiumWindow struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func (b chromium) open(noticed func(notice)) (window, error) {
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	w := chromiumWindow{ctx, cancel}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			noticed(notice{onConsole, "exception: " + inJSON(e.ExceptionDetails)})
		case *runtime.EventConsoleAPICalled:
			noticed(notice{onConsole, string(e.Type) + ": " + inJSON(e.Args)})
		case *log.EventEntryAdded:
			kind := onConsole
			if e.Entry.Source == log.EntrySourceNetwork {
				kind = onNetwork
			}
			noticed(notice{kind, fmt.Sprint(e.Entry.Source, ": ", e.Entry.Text)})
		case *network.EventRequestWillBeSent:
			noticed(notice{request, e.Request.URL})
		}
	})
	if err == nil {
		err = w.do(command(log.Enable, cdp.Empty{}), command(network.Enable, network.EnableParams{}))
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return w, nil
}

func inJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (w chromiumWindow) close() { w.cancel() }

func (w chromiumWindow) do(actions ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	return chromedp.Do(ctx, actions...)
}

func (w chromiumWindow) get(action chromedp.Action[[]byte]) ([]byte, error) {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, action)
}

// command returns the action that sends a command of the protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	})
}

func (w chromiumWindow) look(v view) error {
	scheme := "light"
	if v.dark {
		scheme = "dark"
	}
	return w.do(
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.width, Height: height, DeviceScaleFactor: 1, Mobile: v.width < 600}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
	)
}

func (w chromiumWindow) navigate(url string) error { return w.do(chromedp.Navigate(url)) }

func (w chromiumWindow) reload() error { return w.do(chromedp.Reload()) }

func (w chromiumWindow) evaluate(expression string) ([]byte, error) {
	text, err := w.get(chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	if text == nil {
		text = []byte("null")
	}
	return text, err
}

func (w chromiumWindow) click(x, y float64) error { return w.do(chromedp.MouseClickXY(x, y)) }

func (w chromiumWindow) keys(text string) error { return w.do(chromedp.KeyEvent(text)) }

func (w chromiumWindow) screenshot() ([]byte, error) { return w.get(chromedp.FullScreenshot(100)) }

// top returns a picture, with half as many pixels again, of so much of the page.
func (w chromiumWindow) top(v view, pixels int64) ([]byte, error) {
	err := w.do(command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.width, Height: height, DeviceScaleFactor: 1.5}))
	if err != nil {
		return nil, err
	}
	return w.get(func(ctx context.Context, target *chromedp.Target) ([]byte, error) {
		beyond := true
		picture, err := cdp.Call(ctx, target, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{
			CaptureBeyondViewport: &beyond,
			Clip:                  &cdppage.Viewport{Width: float64(v.width), Height: float64(pixels), Scale: 1},
		})
		if err != nil {
			return nil, err
		}
		return picture.Data, nil
	})
}

func (w chromiumWindow) downloads(folder string) (<-chan struct{}, error) {
	done := make(chan struct{})
	var once sync.Once
	err := chromedp.ListenBrowser(w.ctx, func(event any) {
		if e, ok := event.(*cdpbrowser.EventDownloadProgress); ok && e.State == cdpbrowser.DownloadProgressStateCompleted {
			once.Do(func() { close(done) })
		}
	})
	if err != nil {
		return nil, err
	}
	events := true
	_, err = chromedp.CallBrowser(w.ctx, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: folder, EventsEnabled: &events,
		BrowserContextID: chromedp.FromContext(w.ctx).BrowserContextID,
	})
	return done, err
}
