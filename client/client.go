// Package client calls a storefront from a Go program, and loses no order.
//
// A program makes a draft, and sends it until it is an order:
//
//	shop, err := client.New("https://shop.example/shop", nil)
//	draft := client.NewDraft("teapot", 2)
//	order, err := shop.Order(ctx, draft)
//
// One draft becomes one order at most, however often it is sent and by whatever process, as it
// has an Idempotency-Key of its own. Order goes on until an answer is final: the network may lose
// answers, the shop may be down for hours. What cannot be settled is an error whose type says
// what the program can do next:
//
//   - [*RefusedError]: the service has refused the order, and nothing was created.
//   - [*BlockedError]: something between client and service has answered, such as a page to sign
//     in, or changes what is sent. Put it right, and go on with the same draft.
//   - [*UnknownError]: the order may exist. Keep the draft, and go on with it later.
//
// A draft that is only in memory is lost with the program, and with it the only way to learn
// whether its order exists. A [Journal] keeps drafts in a folder. A program with a database can
// keep them there: a Draft has a text for that, to be stored before the first try. docs/formats.md
// has the format of both, which later releases read.
//
// A shop may take more than item and quantity (see [DraftOptions]), and may let orders be read back (see
// [Client.Orders]), which is no substitute for the key: only Order says that a draft has become an order.
//
// Lists are iterators, which read pages as they are needed:
//
//	for user, err := range shop.Users(ctx) {
//		if err != nil {
//			return err // the list was not read to its end
//		}
//		…
//	}
//
// The rules that the package follows are in docs/wire.md. The statuses are those of RFC 9110, the
// problem documents those of RFC 9457.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"example.com/storefront"
)

// Options are the options of a [Client]. Their zero values are the defaults.
type Options struct {
	// HTTPClient sends the requests. Its Transport, Jar and Timeout are used, but no redirect is
	// followed. nil: http.DefaultClient.
	HTTPClient *http.Client
	// SignIn is called before each try of a request and adds what the shop asks for, such as
	// Authorization. After an error the request is not sent, and tried again as if no answer had come.
	SignIn func(*http.Request) error
	// OnTry is called after each try of a request with what came of it, such as for metrics, or to tell
	// somebody who waits. What the call does next waits for it. nil: nothing is called.
	OnTry func(ctx context.Context, t Try)
	// Account is a label of the account with which requests are sent, such as its number: what is
	// permanent, never a token. A [Journal] keeps it with each draft, and leaves those of other accounts
	// alone. A Client is of one account: make another one for whoever signs in next, and let SignIn of this
	// one return an error from then on. "": the user in the base URL, if it has one.
	Account string
	// Patience is for how long one call of [Client.Order] goes on without a final answer. It is from
	// 10 minutes to 20 hours; 0: 12 hours. To wait for less, end the call's context.
	Patience time.Duration
	// PageSize is how many items of a list one request asks for. A shop that allows fewer gets what
	// it allows. 0: 50.
	PageSize int
	// Products is how many products the client remembers, with their entity tags, so that those which
	// have not changed are not sent again to requests with the same header fields. The shop is asked each
	// time. 0: none.
	Products int
	// Logger gets a record of each try that has to be repeated, without keys and bodies. nil:
	// slog.Default().
	Logger *slog.Logger
}

// A Try is one try of a request. Calls try several times.
type Try struct {
	Method, Path string        // of the request; the path begins behind the base URL, and has no query
	Draft        *Draft        // nil: it was a read
	Status       int           // of the answer; 0: none came, or a part of one
	Err          error         // why
	Duration     time.Duration // with the body of the answer
}

// A Client calls one shop. Its methods may be called concurrently.
type Client struct {
	base string // without a slash at its end
	shop string // the same in one form, without a user
	http http.Client
	opts Options

	mu       sync.Mutex
	products map[string]remembered // by path
}

// New returns a client of the shop at a base URL, such as https://shop.example/shop. The URL has
// the scheme http or https, a host, and neither a query nor a fragment. nil options are the
// defaults.
func New(baseURL string, opts *Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		// The text of err has the whole URL, and maybe a password.
		return nil, errors.New("client: the base URL cannot be parsed")
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16)
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, fmt.Errorf("client: the base URL %s does not begin with http:// or https:// and a host",
			u.Redacted())
	case port == 0, err != nil, strings.HasSuffix(u.Host, ":"):
		return nil, fmt.Errorf("client: the port of the base URL %s is not from 1 to 65535", u.Redacted())
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("client: the base URL %s has a query or a fragment", u.Redacted())
	}
	c := &Client{base: strings.TrimRight(u.String(), "/"), products: make(map[string]remembered)}
	if opts != nil {
		c.opts = *opts
	}
	c.opts.Account = cmp.Or(c.opts.Account, u.User.Username())
	u.User, u.Host = nil, strings.TrimSuffix(strings.ToLower(u.Host), defaultPort[u.Scheme])
	c.shop = strings.TrimRight(u.String(), "/")
	switch o := &c.opts; {
	case o.Patience != 0 && (o.Patience < 10*time.Minute || o.Patience > 20*time.Hour):
		return nil, fmt.Errorf("client: a Patience of %v is not from 10 minutes to 20 hours", o.Patience)
	case o.PageSize < 0 || o.Products < 0:
		return nil, errors.New("client: PageSize and Products cannot be negative")
	case !utf8.ValidString(o.Account):
		return nil, errors.New("client: Account is not valid UTF-8")
	}
	if c.opts.HTTPClient != nil {
		c.http = *c.opts.HTTPClient
	}
	// A redirect of an order would turn into a GET, or lead to another shop.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if c.opts.Patience == 0 {
		c.opts.Patience = 12 * time.Hour
	}
	if c.opts.PageSize == 0 {
		c.opts.PageSize = 50
	}
	if c.opts.Logger == nil {
		c.opts.Logger = slog.Default()
	}
	return c, nil
}

var defaultPort = map[string]string{"http": ":80", "https": ":443"}

// tryLimit is how long a try may take, with the body of its answer. The service gives up the commit
// of an order after 30 seconds.
const tryLimit = 40 * time.Second

const longestAnswer = 1 << 20 // bytes

// longestRead is how many bytes a page or product has at most. Tests set it.
var longestRead int64 = 16 << 20

// An answer is what a try got. Its status is 0 if no answer came, or a part of one.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error // why there is no answer, or only the beginning of its body, as that is too long

	unfit      bool // the body of a 200 is too long, or was not over when the try was, or after long
	wrongClock bool // its Date is not of the time of the try, by the clock here
}

// try sends a request once: an order, or a read if draft is nil. prepare gets it as SignIn has left it, right
// before it is sent, unless it returns an error.
func (c *Client) try(ctx context.Context, path string, draft *Draft,
	prepare func(*http.Request) error) answer {
	method, body, most := http.MethodGet, "", longestRead
	if draft != nil {
		method, body, most = http.MethodPost, draft.body, longestAnswer
	}
	began := time.Now()
	a := c.send(ctx, method, path, body, most, prepare)
	if c.opts.OnTry != nil {
		path, _, _ = strings.Cut(path, "?")
		c.opts.OnTry(ctx, Try{method, path, draft, a.status, a.err, time.Since(began)})
	}
	return a
}

func (c *Client) send(ctx context.Context, method, path, body string, most int64,
	prepare func(*http.Request) error) answer {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	if c.opts.SignIn != nil {
		if err := c.opts.SignIn(req); err != nil {
			return answer{err: fmt.Errorf("signing in: %w", err)}
		}
	}
	if err := prepare(req); err != nil {
		return answer{err: err}
	}
	began := time.Now()
	res, err := c.http.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			failed.URL, _, _ = strings.Cut(failed.URL, "?") // in which a key may be
		}
		return answer{err: err}
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	if date, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		a.wrongClock = date.Before(began.Add(-clockError)) || date.After(time.Now().Add(clockError))
	}
	if res.StatusCode == http.StatusSwitchingProtocols { // what follows is no body, and does not end with ctx
		return a
	}
	defer context.AfterFunc(ctx, func() { res.Body.Close() })() // a Transport may only begin with ctx
	if res.StatusCode != http.StatusOK {
		most = longestAnswer
	}
	a.body, a.err = io.ReadAll(io.LimitReader(res.Body, most+1))
	long := time.Since(began) >= tryLimit/4 // something on the way may have a lower limit
	switch {
	case a.err != nil:
		a = answer{err: a.err, unfit: long && a.status == http.StatusOK, wrongClock: a.wrongClock}
	case int64(len(a.body)) > most:
		a.body, a.err = a.body[:most], fmt.Errorf("the answer is longer than %d bytes", most)
		a.unfit = a.status == http.StatusOK
	}
	return a
}

// coded reports whether the body has a content coding, which no Transport leaves that has asked for it.
func (a *answer) coded() bool {
	coding := a.header.Get("Content-Encoding")
	return coding != "" && !strings.EqualFold(coding, "identity")
}

// repeatable reports whether the same request is sent again after the answer, whatever was asked.
func (a *answer) repeatable() bool {
	switch a.status {
	case 0, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented:
		return false
	}
	return a.status >= 500
}

const problemPrefix = "urn:problem-type:storefront:"

// problem returns the problem document of the service, if the answer is one.
func (a *answer) problem() (p storefront.Problem, ok bool) {
	if a.err != nil || json.Unmarshal(a.body, &p) != nil || !strings.HasPrefix(p.Type, problemPrefix) {
		return storefront.Problem{}, false
	}
	return p, true
}

// changed reports whether the service refuses what only something on the way can have made of a request of
// this client. orders are what is read, which a shop need not serve.
func changed(p storefront.Problem, orders bool) bool {
	switch strings.TrimPrefix(p.Type, problemPrefix) {
	case "idempotency-key-missing", "idempotency-key-invalid", "unsupported-media-type", "precondition-failed":
		return true
	case "invalid-query": // the key to look for is the program's
		ofKey := func(f storefront.Fault) bool { return f.Parameter == "idempotency_key" }
		return !slices.ContainsFunc(p.Errors, ofKey)
	case "not-found", "method-not-allowed":
		return !orders
	}
	return false
}

// retryAfter returns how long the answer tells the client to wait: seconds, or a date (RFC 9110,
// Section 10.2.3). Anything else is 0, as proxies write what they like, and so is a date that is more
// than a day away, which only a wrong clock can mean.
func (a *answer) retryAfter() time.Duration {
	value := a.header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(a.header.Get("Date")) // of the clock that wrote the other
	if err != nil {
		now = time.Now()
	}
	if wait := at.Sub(now); wait < 24*time.Hour {
		return max(0, wait)
	}
	return 0
}

// String says what came, for logs and errors: no body, which may be a page.
func (a *answer) String() string {
	if a.status == 0 {
		return "no answer: " + a.err.Error()
	}
	if p, ok := a.problem(); ok {
		return fmt.Sprintf("%d %s", a.status, strings.TrimPrefix(p.Type, problemPrefix))
	}
	text := strings.TrimSpace(fmt.Sprint(a.status, " ", http.StatusText(a.status)))
	if a.err != nil {
		text += ": " + a.err.Error()
	}
	return text
}

// pauses are those between the tries of one call: random, up to a limit that doubles, so that
// clients which failed together do not return together.
type pauses struct{ limit time.Duration }

// wait waits before the next try, for Retry-After as well, up to most of it. It returns an error if
// ctx is done, also if it was done before.
func (p *pauses) wait(ctx context.Context, told, most time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.limit = min(max(2*p.limit, time.Second/4), time.Minute)
	timer := time.NewTimer(min(told, most) + rand.N(p.limit))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// done returns why ctx is done: its error and its cause.
func done(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
