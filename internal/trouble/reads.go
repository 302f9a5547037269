package trouble

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const listChanges = "the list changes during the walk"

// TwoWalks is the name of the trouble whose client walks twice, and whose list changes in
// between.
const TwoWalks = "the list changes between two walks"

var walkTroubles = []Trouble{
	{Name: "nothing is wrong"},
	{Name: "a page is empty and has a next", steps: always(step{times: 1}, step{times: 1, empty: true})},
	{Name: "the first page is empty and has a next", steps: always(step{times: 1, empty: true})},
	{Name: listChanges, steps: always(step{times: 1}, step{times: 1, change: true})},
	{Name: TwoWalks},
	{Name: "a page has another Link, too", steps: always(step{times: 1, edit: linked}, step{times: 1, edit: linked})},
	{Name: "503 in the middle", steps: func(d dice) []step { return []step{{times: 1}, unavailable(d.retryAfter())} }},
	{Name: "429 in the middle", steps: func(d dice) []step { return []step{{times: 1}, says(429, html, "Retry-After", d.retryAfter())} }},
	{Name: "a page is cut", steps: cuts(whole, cutBody)},
	{Name: "a page is lost", steps: always(step{times: 1}, comes(nothing))},
	{Name: "200 with a page to sign in", steps: always(step{times: 1}, says(200, signIn))},
	{Name: "200 with JSON that is no page", steps: func(d dice) []step {
		return []step{{times: 1}, says(200, d.oneOf(`{"page":"sign in"}`, `{}`, `null`, `[]`, `{"data":null}`, `{"data":{}}`), "Content-Type", "application/json")}
	}},
	{Name: "the first page is no page", steps: func(d dice) []step {
		return []step{says(200, d.oneOf(`{"page":"sign in"}`, `{}`, `null`, `[]`, signIn), "Content-Type", "application/json")}
	}},
	{Name: "304 that was not asked for", steps: always(step{times: 1}, says(304, ""))},
	{Name: "a page never ends", takes: Minutes, steps: always(step{times: 1}, comes(endless))},
	{Name: "the cursor becomes invalid", Final: true, steps: always(step{times: 1}, problem(400, "invalid-query", "The query is not valid for this list.", `,"errors":[{"detail":"The cursor is not valid.","parameter":"after"}]`))},
	{Name: "302 to a page to sign in", Final: true, steps: always(step{times: 1}, says(302, "", "Location", "/sign-in"))},
	{Name: "the password expires during the walk", Final: true, steps: always(step{times: 1}, says(401, html, "WWW-Authenticate", "Basic"))},
	{Name: "an outage without end", takes: Days, Final: true, forever: true, steps: always(step{times: 1}, says(503, html))},
}

// linked adds a link before that to the next page, as a program around the service may.
func linked(a *answer) {
	link := `</help>; rel="help"`
	if next := a.header.Get("Link"); next != "" {
		link += ", " + next
	}
	a.header.Set("Link", link)
}

var walkChecks = []*Check{
	{
		Name: "list-request", Promise: "Each page is asked for by a request that the service takes.",
		Shop: "The list cannot be read at all.",
		each: func(c *Call) (bool, string) { return c.readsRightly() },
	},
	{
		Name: "cursor", Promise: "A cursor is what next or Link has said, byte for byte.",
		Shop: "A cursor that is made or changed is refused now, or leads elsewhere after the next release.",
		each: func(c *Call) (met bool, fault string) {
			for i, e := range c.exchanges {
				if e.Cursor == "" {
					continue
				}
				met = true
				if !e.cursorKnown {
					return true, fmt.Sprintf("The cursor of request %d, %q, was never given out.", i+1, cut(e.Cursor, 60))
				}
			}
			return met, ""
		},
	},
	{
		Name: "each-once", Promise: "A walk has each item once, and only items of the list.",
		Shop: "A report counts a customer twice.",
		each: func(c *Call) (met bool, fault string) {
			for _, r := range c.Results {
				if r.Err != nil {
					continue
				}
				met = true
				seen := make(map[string]bool)
				for _, id := range r.IDs {
					switch {
					case seen[id]:
						return true, fmt.Sprintf("%s returned %q twice.", r.Name, id)
					case !c.changed[id] && !slices.Contains(c.items(), id):
						return true, fmt.Sprintf("%s returned %q, which is no item of the list.", r.Name, id)
					}
					seen[id] = true
				}
			}
			return met, ""
		},
	},
	{
		Name: "whole-list", Promise: "A walk goes on as long as there is a next, or fails.",
		Shop: "A part of the list passes for the whole: whoever is not in it gets no invoice.",
		each: func(c *Call) (met bool, fault string) {
			for _, r := range c.Results {
				if r.Err != nil {
					continue
				}
				met = true
				for _, id := range c.items() {
					if !c.changed[id] && !slices.Contains(r.IDs, id) {
						return true, fmt.Sprintf("%s returned no error, but not %q, which was in the list throughout. %s", r.Name, id, c.whyNotWhole())
					}
				}
			}
			return met, ""
		},
	},
	{
		Name: "walks", Promise: "A walk through a list that is well does not fail.",
		Shop: "The list cannot be read at all.",
		each: func(c *Call) (met bool, fault string) {
			for _, r := range c.Results {
				met = met || c.well()
				if c.well() && r.Err != nil {
					return true, fmt.Sprintf("%s failed, although each answer was a page.", r.Name)
				}
			}
			return met, ""
		},
	},
	{
		Name: "walk-ends", Promise: "A walk ends, with an error if need be, and waits no longer than two minutes for a page.",
		Shop: "It reads the same page for ever, or waits for it.",
		each: func(c *Call) (bool, string) { return c.ends() },
	},
	{
		Name: "walk-stops", Promise: "A page is not asked for again after a 4xx but 408, 409 and 429.",
		Shop: "Requests that cannot succeed are a load on the shop, and look like an attack.",
		each: func(c *Call) (bool, string) { return c.stopsReading() },
	},
	{
		Name: "walk-waits", Promise: "A page is asked for again after the seconds of Retry-After, and where these are more than a minute, after a minute at least.",
		Shop: "A shop that is about to recover is kept busy with requests that it has to refuse.",
		each: func(c *Call) (bool, string) { return c.waitsToRead() },
	},
}

// well reports whether all that went wrong were changes and empty pages.
func (c *Call) well() bool {
	return !c.Trouble.Final && !slices.ContainsFunc(c.steps, func(s step) bool { return s.answer != nil || s.way != whole })
}

func (c *Call) readsRightly() (met bool, fault string) {
	for i, e := range c.exchanges {
		switch {
		case e.redirected():
		case !e.expected:
			return true, fmt.Sprintf("Request %d is another than one for %s.", i+1, c.Kind)
		case e.Method != http.MethodGet && e.Method != http.MethodHead:
			return true, fmt.Sprintf("Request %d is not a GET.", i+1)
		case e.own && e.answer.status >= 400 && (e.Cursor == "" || e.cursorKnown) && e.answer.status != http.StatusNotFound:
			return true, fmt.Sprintf("The service itself refuses request %d: %s", i+1, e.answer.why())
		}
	}
	if len(c.exchanges) == 0 {
		return true, "No request has come."
	}
	return true, ""
}

// whyNotWhole says by what the last answer was no end.
func (c *Call) whyNotWhole() string {
	i := len(c.exchanges) - 1
	if i < 0 {
		return "No request has come: it made the list of pages that it had kept, which say no-cache."
	}
	switch e := c.exchanges[i]; {
	case e.way != whole:
		return fmt.Sprintf("The answer to request %d, the last, did not come whole.", i+1)
	case !e.own || e.answer.status != http.StatusOK && e.answer.status != http.StatusNotModified:
		return fmt.Sprintf("The answer to request %d, the last, is no page.", i+1)
	case !e.last:
		return fmt.Sprintf("The walk ended after request %d, although its page has a next.", i+1)
	}
	return "The last page came."
}

func (c *Call) ends() (bool, string) {
	if n := len(c.exchanges); n >= MostRequests {
		return true, fmt.Sprintf("After %d requests, it was stopped.", n)
	}
	for _, r := range c.Results {
		if r.Stuck {
			return true, fmt.Sprintf("After %v and %d requests, %s was stopped.", rounded(r.at.Sub(r.asked)), r.to-r.from, r.Name)
		}
	}
	if met, fault := c.leaves(); fault != "" {
		return met, fault
	}
	return len(c.Results) > 0, c.stillRunning()
}

// A reread is an answer to a read, and the request that asks for the same in the same call of a
// method, nil if there is none. Between two calls, the program may ask whenever it likes.
type reread struct{ first, again *Exchange }

func (c *Call) rereads() (out []reread) {
	for _, r := range c.Results {
		for i := r.from; i < r.to; i++ {
			e := c.exchanges[i]
			if e.way != whole || e.left {
				continue
			}
			pair := reread{first: e}
			same := func(n *Exchange) bool {
				return n.Method == e.Method && n.Target == e.Target && n.Tag == e.Tag && n.authorization == e.authorization && !n.At.Before(e.ended)
			}
			if n := slices.IndexFunc(c.exchanges[i+1:r.to], same); n >= 0 {
				pair.again = c.exchanges[i+1+n]
			}
			out = append(out, pair)
		}
	}
	return out
}

func (c *Call) stopsReading() (met bool, fault string) {
	for _, p := range c.rereads() {
		if status := p.first.answer.status; status/100 != 4 || p.first.answer.meaning() == Again {
			continue
		}
		met = true
		if p.again != nil {
			return true, fmt.Sprintf("Request %d was sent although the answer to request %d was final: %s", c.number(p.again), c.number(p.first), whyFinal(p.first))
		}
	}
	return met, ""
}

func (c *Call) waitsToRead() (met bool, fault string) {
	for _, p := range c.rereads() {
		if p.again != nil && p.first.answer.retryAfter() > 0 {
			met = true
			if fault := c.tooSoon(p.first, p.again); fault != "" {
				return true, fault
			}
		}
	}
	return met, ""
}

// Missing is the name of the trouble whose client reads a product that is not there.
const Missing = "there is no such product"

// The client reads a product, whose name then changes, and reads it again.
var productTroubles = []Trouble{
	{Name: "nothing is wrong"},
	{Name: "the answer has an Age", takes: Minutes, steps: always(step{times: 1, edit: func(a *answer) { a.header.Set("Age", "55") }}), pause: 10 * time.Second},
	{Name: "the answer is fresh for 5 s", takes: Minutes, steps: always(controlled("private, max-age=5")), pause: 10 * time.Second},
	{Name: "the answer is not to be reused", steps: always(controlled("private, max-age=60, no-cache")), pause: time.Millisecond},
	{Name: "the answer is not to be kept", steps: always(controlled("private, max-age=60, no-store")), pause: time.Millisecond},
	{Name: "503", steps: func(d dice) []step { return []step{unavailable(d.retryAfter())} }},
	{Name: "503 between", steps: func(d dice) []step { return []step{{times: 1}, unavailable(d.retryAfter())} }},
	{Name: "429", steps: func(d dice) []step { return []step{says(429, html, "Retry-After", d.retryAfter())} }},
	{Name: "the answer is cut", steps: cuts(cutBody)},
	{Name: "the answer is lost", steps: always(comes(nothing))},
	{Name: "the answer never ends", takes: Minutes, steps: always(comes(endless))},
	{Name: "200 with a page to sign in", steps: always(says(200, signIn), says(200, signIn))},
	{Name: "200 with JSON that is no product", steps: func(d dice) []step {
		return repeat(2, says(200, d.oneOf(`null`, `[]`, `"teapot"`, ``), "Content-Type", "application/json"))
	}},
	{Name: "304 that was not asked for", steps: always(says(304, ""))},
	{Name: "302 to a page to sign in", Final: true, steps: always(says(302, "", "Location", "/sign-in"))},
	{Name: "403", Final: true, steps: always(says(403, html))},
	{Name: "403 between", Final: true, steps: always(step{times: 1}, says(403, html))},
	{Name: "an outage between", takes: Days, Final: true, forever: true, steps: always(step{times: 1}, says(503, html))},
	{Name: Missing, Final: true},
}

// controlled is a step whose answer, the service's, has this Cache-Control.
func controlled(value string) step {
	return step{times: 1, edit: func(a *answer) { a.header.Set("Cache-Control", value) }}
}

var productChecks = []*Check{
	{
		Name: "product-request", Promise: "A product is asked for by a request that the service takes.",
		Shop: "The product cannot be read at all.",
		each: func(c *Call) (bool, string) { return c.readsRightly() },
	},
	{
		Name: "tag", Promise: "If-None-Match has tags that the service gave for the product.",
		Shop: "The service says 304 for what the client does not have, and it shows another product.",
		each: func(c *Call) (met bool, fault string) {
			for i, e := range c.exchanges {
				if e.Tag == "" {
					continue
				}
				met = true
				for tag := range strings.SplitSeq(e.Tag, ",") {
					tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
					if !slices.Contains(c.tags, e.path+" "+tag) {
						return true, fmt.Sprintf("The tag %s of request %d was never given for the product.", cut(tag, 60), i+1)
					}
				}
			}
			return met, ""
		},
	},
	{
		Name: "fresh", Promise: "A product that the client has kept is used for no longer than its max-age, less its Age, and not with no-cache.",
		Shop: "The customer sees yesterday's price.",
		each: func(c *Call) (met bool, fault string) {
			for i, r := range c.Results {
				if r.Err != nil || r.Want == "" {
					continue
				}
				met = met || i > 0
				if r.Text != r.Want && slices.ContainsFunc(c.Results[:i], func(old *Result) bool { return old.Want == r.Text }) {
					return true, fmt.Sprintf("%s returned the name %q, which the product had before; it is %q now, and what the client kept is too old.", r.Name, r.Text, r.Want)
				}
			}
			return met, ""
		},
	},
	{
		Name: "product", Promise: "Only 200 with the product, or 304 for one that was kept, is a product.",
		Shop: "A page to sign in, or half an answer, passes for a product.",
		each: func(c *Call) (met bool, fault string) {
			for i, r := range c.Results {
				met = true
				if r.Err == nil && r.Want == "" {
					return true, fmt.Sprintf("%s returned no error, and there is no such product.", r.Name)
				}
				if r.Err == nil && r.Text != r.Want && !slices.ContainsFunc(c.Results[:i], func(old *Result) bool { return old.Want == r.Text }) {
					return true, fmt.Sprintf("%s returned the name %q; the product has %q.", r.Name, r.Text, r.Want)
				}
			}
			return met, ""
		},
	},
	{
		Name: "reads", Promise: "A product that is there, and whose answers come, is read.",
		Shop: "The customer sees an error in place of the product.",
		each: func(c *Call) (met bool, fault string) {
			for _, r := range c.Results {
				met = met || c.well()
				if c.well() && r.Err != nil {
					return true, fmt.Sprintf("%s failed, although nothing was wrong.", r.Name)
				}
			}
			return met, ""
		},
	},
	{
		Name: "read-ends", Promise: "The reading of a product ends, with an error if need be, and waits no longer than two minutes for an answer.",
		Shop: "The customer's page never comes.",
		each: func(c *Call) (bool, string) { return c.ends() },
	},
	{
		Name: "read-stops", Promise: "A product is not asked for again after a 4xx but 408, 409 and 429.",
		Shop: "Requests that cannot succeed are a load on the shop, and look like an attack.",
		each: func(c *Call) (bool, string) { return c.stopsReading() },
	},
	{
		Name: "read-waits", Promise: "A product is asked for again after the seconds of Retry-After, and where these are more than a minute, after a minute at least.",
		Shop: "A shop that is about to recover is kept busy with requests that it has to refuse.",
		each: func(c *Call) (bool, string) { return c.waitsToRead() },
	},
}
