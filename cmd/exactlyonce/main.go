// Command exactlyonce tells whether a shop keeps every order that it acknowledges,
// and creates none twice, while you make it fail. Run it against your deployment
// before you trust it.
//
// It creates real orders: use a deployment that may have them.
//
// Usage:
//
//	exactlyonce -url http://a:8080,http://b:8080 [-orders 10000] [-clients 64] [-item teapot]
//		[-fields '{"note":"order {key}"}'] [-header 'Authorization: Bearer …']
//
// A URL has the prefix of the service, such as http://a:8080/shop, and not /v1/orders. Without
// -item, each order is of an item of its own. If the shop refuses items that it does not know,
// name one that it has, with 5 pieces in stock for each order. If its orders have fields, such as
// an address, say which: in them, {key} stands for the key of each order.
//
// It sends one order first, and the others only once a URL has acknowledged that. If
// nobody answers, or the answer says to try again, it asks every half second for as long
// as -wait allows, so that a deployment may come up after this program. Any other answer
// to the first order ends the program at once: a page, a redirect, 401 or 404 mean that
// the URL is wrong or that a -header is missing.
//
// While it runs, kill, freeze and cut off whatever you like: replicas, databases,
// networks. Its clients create orders through all the URLs in turn and send each
// again, with its key, until it is acknowledged; some send it twice at once, some
// hang up early. Then bring everything back: once all orders are acknowledged, every
// key is sent to every URL once more. Ctrl-C ends the creating early and goes on to
// the replaying; a second one ends that, too.
//
// A shop need not remember a key for longer than 24 hours. So the creating ends by itself after 20,
// and no key is sent again that is older than 23: it could create another order, and would prove nothing.
//
// # How to read the result
//
// The exit status is 0 if every promise was kept. The flag -help prints the others.
//
// Each of these is a broken promise if it is not 0, but for the last two, of which unanswered may be one:
//
//   - lost: orders that were acknowledged, and whose key creates another order at
//     the end or is refused, or shows no order where the shop serves orders. A database that
//     acknowledges what it has not written to the disk, or to its standby, loses orders when it
//     fails over.
//   - replayed differently: keys that were answered with one order and then with
//     another one.
//   - created twice: keys for which two responses say that they have created the
//     order. So they do where something on the way drops the header Idempotent-Replayed.
//   - acknowledged as another order: responses with another item or quantity, or other fields
//     than were ordered, or with an order that another key has.
//   - unanswered: keys that got no answer, for as long as -patience allows. Their
//     orders may be safe; nobody can tell until the URL answers.
//   - answered unexpectedly: responses that neither acknowledge an order nor say to
//     try again, such as 500: the shop has failed, and may have kept its promises. While things
//     fail, 201 is right, and so are 409 and 503 with Retry-After. 408, 429, 502 and 504,
//     and a 503 without a problem document, are taken as those of a proxy in front of the
//     shop.
//
// If every promise was kept, and no request failed meanwhile, it asks whether you made anything fail: a
// shop may take 10,000 orders within 2 seconds, so let -orders be many. What the shop hides by trying
// again, as after a short outage of its database, is no failure.
//
// The rest is how well it went, for you to judge. Requests without an answer are
// usual while things are killed. The longest gap is the longest time in which no
// order was acknowledged: how long a fail-over keeps customers waiting. The latency
// of an order is from its first try to its acknowledgement, with all pauses. A client
// waits for its order before it sends the next, so that an outage is at most as many
// slow orders as there are clients, however long it takes: look at the gap, and not
// only at percentiles.
//
// The clients are less patient than they should be, on purpose: they honour
// Retry-After for a tenth of a second at most.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"example.com/storefront/internal/audit"
)

func main() {
	c := audit.Config{
		Header:  make(http.Header),
		Prefix:  "exactlyonce-" + rand.Text()[:8] + "-", // so that no run meets the keys of another
		Proxies: true,
	}
	var urls, headers []string // package flag would print a wrong one, which may have a password
	flag.Func("url", "where the shop is: `http://host:port`, or several with commas\nbetween them, "+
		"with its prefix and without /v1/orders",
		func(value string) error { urls = append(urls, value); return nil })
	flag.IntVar(&c.Orders, "orders", 10_000, "how `many` orders to create")
	flag.IntVar(&c.Clients, "clients", 64, "how `many` clients create them at the same time")
	flag.Uint64Var(&c.Seed, "seed", 1, "of the clients' random choices")
	flag.StringVar(&c.Item, "item", "", "what to order; without it, every order is of an item of its own")
	flag.Func("fields", "a JSON `object` that each order has; {key} in it is the order's key",
		func(value string) error {
			if err := c.Fields.UnmarshalJSON([]byte(value)); err != nil || c.Fields != "" {
				return err
			}
			return errors.New("null is no object")
		})
	flag.Func("header", "`'Name: value'` to send with every request, such as\nAuthorization; may be repeated",
		func(value string) error { headers = append(headers, value); return nil })
	wait := flag.Duration("wait", 30*time.Second,
		"how long the shop may take to come up and acknowledge the first\norder")
	flag.DurationVar(&c.Timeout, "timeout", 5*time.Second, "how long a client waits for a response")
	flag.DurationVar(&c.Patience, "patience", 5*time.Minute,
		"how long nothing may be acknowledged, or a URL not replay,\nbefore this ends")
	flag.Usage = usage
	flag.Parse()
	var wrong []error
	for _, value := range urls {
		wrong = append(wrong, addURLs(&c, value))
	}
	for _, line := range headers {
		wrong = append(wrong, addHeader(c.Header, line))
	}
	if err := cmp.Or(append(wrong, check(c, *wait))...); err != nil {
		fail(statusFlags, err)
	}

	signal.Ignore(syscall.SIGPIPE) // the result counts, whoever has ended that read the progress
	fmt.Fprintf(os.Stderr, "This creates up to %d real orders at %s,\nwith keys that begin with %s.\n"+
		"Make it fail meanwhile. Ctrl-C ends the creating early.\n",
		c.Orders, strings.Join(shownURLs(c), ", "), c.Prefix)
	a := audit.New(c)
	notStarted := run(a, *wait)
	status, err := report(os.Stdout, c, a.Result(), notStarted)
	if err != nil {
		fail(cmp.Or(status, statusUnwritten), err)
	}
	os.Exit(status)
}

// The exit statuses.
const (
	statusKept = iota
	statusBroken
	statusFlags
	statusNotStarted
	statusUnwritten
	statusFailed
)

func usage() {
	out := flag.CommandLine.Output()
	fmt.Fprint(out, `exactlyonce creates orders while you make a shop fail, and tells whether it
keeps every order that it acknowledges, and creates none twice. The orders are
real ones. They are created within 20 hours, as a shop need not remember a key
for longer than 24.

Usage: exactlyonce -url http://a:8080,http://b:8080 [flags]

`)
	flag.PrintDefaults()
	fmt.Fprint(out, `
The exit status is
  0  if every promise was kept
  1  if one was broken, or it is not known whether each was kept
  2  for bad flags
  3  if a URL did not acknowledge the first order: nothing else was tried
  4  if every promise was kept, but the result could not be written
  5  if none was found broken, but the shop failed: it answered unexpectedly,
     such as with 500
"go run" ends with 1 for each of them but 0: build the program where the status
matters.
`)
}

func fail(status int, err error) {
	fmt.Fprintln(os.Stderr, "exactlyonce:", err)
	os.Exit(status)
}

// addURLs adds URLs with commas between them.
func addURLs(c *audit.Config, value string) error {
	for text := range strings.SplitSeq(value, ",") {
		u, err := url.Parse(text)
		switch {
		case err != nil:
			return errors.New("-url: not a URL") // it may have a password, which err would show
		case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			return errors.New("-url: a URL begins with http:// or https:// and a host")
		case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
			return errors.New("-url: a URL of a shop has neither a query nor a fragment")
		}
		c.URLs = append(c.URLs, strings.TrimRight(text, "/"))
	}
	return nil
}

// shownURLs returns the URLs without passwords.
func shownURLs(c audit.Config) (shown []string) {
	for _, text := range c.URLs {
		shown = append(shown, audit.Shown(text))
	}
	return shown
}

var headerLine = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)$")

func addHeader(h http.Header, line string) error {
	parts := headerLine.FindStringSubmatch(line)
	if parts == nil {
		return errors.New("-header is not of the form 'Name: value'")
	}
	switch name := http.CanonicalHeaderKey(parts[1]); name {
	case "Content-Length", "Content-Type", "Idempotency-Key", "Transfer-Encoding":
		return fmt.Errorf("-header: %s is set by this program", name)
	}
	h.Add(parts[1], strings.TrimRight(parts[2], " \t"))
	return nil
}

func check(c audit.Config, wait time.Duration) error {
	switch {
	case flag.NArg() > 0:
		return errors.New("unexpected argument: is -url or -header missing?")
	case len(c.URLs) == 0:
		return errors.New("-url is missing: where is the shop?")
	case c.Orders < 1 || c.Clients < 1:
		return errors.New("-orders and -clients must be at least 1")
	case wait < 0:
		return errors.New("-wait must not be negative")
	case c.Timeout <= 0 || c.Patience <= 0:
		return errors.New("-timeout and -patience must be more than 0")
	}
	return nil
}

// run creates the orders and replays them. A signal ends what is being done. It returns
// why there was nothing to do, if the first order was not acknowledged.
func run(a *audit.Audit, wait time.Duration) *audit.NotStarted {
	creating, stop := notified()
	defer stop()
	end := show("the first order", a, func(p audit.Progress) string {
		if p.Acknowledged > 0 {
			return "acknowledged"
		}
		return cmp.Or(p.Failure, "no answer") + ", not acknowledged yet"
	})
	err := a.First(creating, wait)
	end()
	if notStarted, ok := errors.AsType[*audit.NotStarted](err); ok {
		return notStarted
	}
	end = show("creating", a, func(p audit.Progress) string {
		text := fmt.Sprintf("%d of %d acknowledged", p.Acknowledged, a.Config.Orders)
		if p.Gap >= time.Second {
			text += fmt.Sprintf(", the last %.1f s ago", p.Gap.Seconds())
		}
		if p.Failed > 0 {
			text += fmt.Sprintf(", %d requests failed, the last: %s", p.Failed, p.Failure)
		}
		return text
	})
	a.Create(creating)
	end()
	replaying, stop := notified()
	defer stop()
	if creating.Err() != nil {
		fmt.Fprintln(os.Stderr,
			"No more orders are created. What was acknowledged is replayed now; Ctrl-C ends that, too.")
	}
	end = show("replaying", a, func(p audit.Progress) string {
		return fmt.Sprintf("%d of %d replayed", p.Replayed, p.Acknowledged*len(a.Config.URLs))
	})
	a.Replay(replaying)
	end()
	return nil
}

// show shows how far something has come, as a line every two seconds and one at the end, until end is called.
func show(what string, a *audit.Audit, says func(audit.Progress) string) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for running := true; running; {
			select {
			case <-tick.C:
			case <-stop:
				running = false
			}
			p := a.Progress()
			text := says(p)
			if p.Faults > 0 {
				text += fmt.Sprintf(", %d FAULTS", p.Faults)
			}
			fmt.Fprintf(os.Stderr, "%s: %s\n", what, text)
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// notified returns a context that is done at the next signal to end.
func notified() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}
