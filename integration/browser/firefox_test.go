package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/chromedp/chromedp/kb"
	"github.com/coder/websocket"

	"example.com/storefront/integration/internal/process"
)

// firefox is driven by WebDriver BiDi: https://www.w3.org/TR/webdriver-bidi/.
type firefox struct {
	conn *websocket.Conn

	mu      sync.Mutex
	ended   error // why conn was, once it is
	last    int   // the ID of the newest command
	answers map[int]chan answer
	windows map[string]*firefoxWindow
}

// An answer is what a command comes to, or an event.
type answer struct {
	ID             int
	Type           string
	Result         json.RawMessage
	Error, Message string
	Method         string
	Params         json.RawMessage
}

// The preferences that must be there when it starts; it has those for automation itself.
const firefoxPrefs = `
user_pref("app.normandy.enabled", false);
user_pref("app.shield.optoutstudies.enabled", false);
user_pref("browser.aboutwelcome.enabled", false);
user_pref("browser.newtabpage.enabled", false);
user_pref("browser.startup.homepage", "about:blank");
user_pref("browser.startup.page", 0);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("datareporting.policy.dataSubmissionPolicyBypassNotification", true);
user_pref("layout.css.prefers-color-scheme.content-override", 1);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("network.dns.disablePrefetch", true);
user_pref("network.trr.mode", 5);
user_pref("services.settings.server", "data:,");
user_pref("toolkit.telemetry.enabled", false);
`

var startFirefox = sync.OnceValues(func() (browser, error) {
	path, err := exec.LookPath("firefox-esr")
	if err != nil {
		return nil, fmt.Errorf("%w (Debian: apt-get install firefox-esr)", err)
	}
	runner, err := process.NewRunner()
	if err != nil {
		return nil, err
	}
	home, err := runner.Folder("firefox")
	if err != nil {
		return nil, err
	}
	profile := filepath.Join(home, "profile")
	if err := errors.Join(os.Mkdir(profile, 0o700), os.WriteFile(filepath.Join(profile, "user.js"), []byte(firefoxPrefs), 0o600)); err != nil {
		return nil, err
	}
	cmd := runner.Command(path, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port=0")
	cmd.Env = append(cmd.Env, "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home, "MOZ_CRASHREPORTER_DISABLE=1")
	printed, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stops = append(stops, func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	address, err := firefoxAddress(printed)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, address+"/session", nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(-1)
	f := &firefox{conn: conn, answers: make(map[int]chan answer), windows: make(map[string]*firefoxWindow)}
	go f.read()
	_, err = call[any](f, "session.new", object{"capabilities": object{}})
	if err == nil {
		_, err = call[any](f, "session.subscribe", object{"events": []string{"log.entryAdded", "network.beforeRequestSent", "browsingContext.downloadEnd"}})
	}
	return f, err
})

// firefoxAddress returns where the browser listens, as it says when it does.
func firefoxAddress(printed io.Reader) (string, error) {
	lines := bufio.NewScanner(printed)
	var before []string
	for lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), "WebDriver BiDi listening on "); ok {
			go io.Copy(io.Discard, printed)
			return address, nil
		}
		before = append(before, lines.Text())
	}
	return "", fmt.Errorf("Firefox does not listen: %v\n%s", lines.Err(), strings.Join(before, "\n"))
}

type object = map[string]any

// call sends a command and returns its result.
func call[T any](f *firefox, method string, params object) (T, error) {
	var result T
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	came := make(chan answer, 1)
	f.mu.Lock()
	f.last++
	id := f.last
	f.answers[id] = came
	ended := f.ended
	f.mu.Unlock()
	if ended != nil {
		return result, ended
	}
	text, err := json.Marshal(object{"id": id, "method": method, "params": params})
	if err != nil {
		return result, err
	}
	if err := f.conn.Write(ctx, websocket.MessageText, text); err != nil {
		return result, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case a := <-came:
		if a.Type != "success" {
			return result, fmt.Errorf("%s: %s: %s", method, a.Error, a.Message)
		}
		return result, json.Unmarshal(a.Result, &result)
	case <-ctx.Done():
		return result, fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// read takes what the browser sends until the connection ends.
func (f *firefox) read() {
	for {
		_, text, err := f.conn.Read(context.Background())
		var a answer
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		f.mu.Lock()
		if err != nil {
			f.ended = err
			for _, came := range f.answers {
				came <- answer{Error: err.Error()}
			}
			f.mu.Unlock()
			return
		}
		if came := f.answers[a.ID]; came != nil {
			delete(f.answers, a.ID)
			came <- a
		}
		f.mu.Unlock()
		if a.Type == "event" {
			f.event(a.Method, a.Params)
		}
	}
}

func (f *firefox) event(method string, params json.RawMessage) {
	var e struct {
		Context string
		Source  struct{ Context string }
		Type    string
		Method  string
		Level   string
		Text    string
		Request struct{ URL string }
		Status  string
	}
	if err := json.Unmarshal(params, &e); err != nil {
		panic(fmt.Sprintf("%s: %v", params, err)) // the tests were blind to it
	}
	f.mu.Lock()
	w := f.windows[e.Context+e.Source.Context]
	f.mu.Unlock()
	if w == nil {
		return // one that is being opened or closed
	}
	switch method {
	case "log.entryAdded":
		w.noticed(notice{onConsole, strings.Join([]string{e.Type, e.Method, e.Level, e.Text}, " ")})
	case "network.beforeRequestSent":
		w.noticed(notice{request, e.Request.URL})
	case "browsingContext.downloadEnd":
		if e.Status == "complete" {
			w.downloaded()
		}
	}
}

// A firefoxWindow is a tab in a user context of its own.
type firefoxWindow struct {
	*firefox
	user, context string
	noticed       func(notice)
	downloaded    func() // closes done
	done          chan struct{}
}

func (f *firefox) open(noticed func(notice)) (window, error) {
	user, err := call[struct{ UserContext string }](f, "browser.createUserContext", object{})
	if err != nil {
		return nil, err
	}
	tab, err := call[struct{ Context string }](f, "browsingContext.create", object{"type": "tab", "userContext": user.UserContext})
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	w := &firefoxWindow{firefox: f, user: user.UserContext, context: tab.Context, noticed: noticed, done: done, downloaded: sync.OnceFunc(func() { close(done) })}
	f.mu.Lock()
	f.windows[w.context] = w
	f.mu.Unlock()
	return w, nil
}

func (w *firefoxWindow) do(method string, params object) error {
	params["context"] = w.context
	_, err := call[any](w.firefox, method, params)
	return err
}

func (w *firefoxWindow) close() {
	call[any](w.firefox, "browser.removeUserContext", object{"userContext": w.user})
	w.mu.Lock()
	delete(w.windows, w.context)
	w.mu.Unlock()
}

func (w *firefoxWindow) look(v view) error {
	if v.dark {
		return fmt.Errorf("dark: %w by Firefox's BiDi", errors.ErrUnsupported)
	}
	return w.do("browsingContext.setViewport", object{"viewport": object{"width": v.width, "height": height}, "devicePixelRatio": 1})
}

func (w *firefoxWindow) navigate(url string) error {
	return w.do("browsingContext.navigate", object{"url": url, "wait": "complete"})
}

func (w *firefoxWindow) reload() error {
	return w.do("browsingContext.reload", object{"wait": "complete"})
}

// A remoteValue is how the protocol writes one of JavaScript.
type remoteValue struct {
	Type  string
	Value json.RawMessage
}

// plain returns what JSON makes of the value.
func (v remoteValue) plain() (any, error) {
	switch v.Type {
	case "undefined", "null":
		return nil, nil
	case "string", "boolean", "number":
		return v.Value, nil
	case "array":
		var of []remoteValue
		err := json.Unmarshal(v.Value, &of)
		list := make([]any, len(of))
		for i := range of {
			var e error
			list[i], e = of[i].plain()
			err = errors.Join(err, e)
		}
		return list, err
	case "object":
		var of [][2]json.RawMessage
		err := json.Unmarshal(v.Value, &of)
		members := make(object)
		for _, m := range of {
			var name string
			var value remoteValue
			err = errors.Join(err, json.Unmarshal(m[0], &name), json.Unmarshal(m[1], &value))
			var e error
			members[name], e = value.plain()
			err = errors.Join(err, e)
		}
		return members, err
	}
	return nil, fmt.Errorf("%s is no JSON", v.Type)
}

func (w *firefoxWindow) evaluate(expression string) ([]byte, error) {
	got, err := call[struct {
		Result           remoteValue
		ExceptionDetails *struct{ Text string }
	}](w.firefox, "script.evaluate", object{"expression": expression, "target": object{"context": w.context}, "awaitPromise": true})
	if err != nil {
		return nil, err
	}
	if got.ExceptionDetails != nil {
		return nil, errors.New(got.ExceptionDetails.Text)
	}
	v, err := got.Result.plain()
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func (w *firefoxWindow) click(x, y float64) error {
	return w.do("input.performActions", object{"actions": []object{{"type": "pointer", "id": "mouse", "actions": []object{
		{"type": "pointerMove", "x": x, "y": y},
		{"type": "pointerDown", "button": 0},
		{"type": "pointerUp", "button": 0},
	}}}})
}

// firefoxKeys are the keys that stand for no character.
var firefoxKeys = map[string]string{
	kb.Tab: "\ue004", kb.Enter: "\ue007", kb.Escape: "\ue00c", kb.Backspace: "\ue003", kb.Delete: "\ue017",
	kb.ArrowLeft: "\ue012", kb.ArrowUp: "\ue013", kb.ArrowRight: "\ue014", kb.ArrowDown: "\ue015",
	kb.Home: "\ue011", kb.End: "\ue010", kb.PageUp: "\ue00e", kb.PageDown: "\ue00f",
}

func (w *firefoxWindow) keys(text string) error {
	var actions []object
	for _, r := range text {
		key := string(r)
		if k, ok := firefoxKeys[key]; ok {
			key = k
		}
		actions = append(actions, object{"type": "keyDown", "value": key}, object{"type": "keyUp", "value": key})
	}
	return w.do("input.performActions", object{"actions": []object{{"type": "key", "id": "keyboard", "actions": actions}}})
}

func (w *firefoxWindow) screenshot() ([]byte, error) {
	got, err := call[struct{ Data string }](w.firefox, "browsingContext.captureScreenshot", object{"context": w.context, "origin": "document"})
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(got.Data)
}

func (w *firefoxWindow) downloads(folder string) (<-chan struct{}, error) {
	_, err := call[any](w.firefox, "browser.setDownloadBehavior", object{
		"downloadBehavior": object{"type": "allowed", "destinationFolder": folder}, "userContexts": []string{w.user},
	})
	return w.done, err
}
