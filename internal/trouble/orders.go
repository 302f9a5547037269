package trouble

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

var orderTroubles = []Trouble{
	{Name: "nothing is wrong", Calls: 3},
	{Name: "the answer is lost after the order was created", steps: always(comes(nothing))},
	{Name: "the request is lost before the service", steps: always(lost())},
	{Name: "three answers are lost", Hard: true, steps: always(repeat(3, comes(nothing))...)},
	{Name: "the answer is cut in its head", steps: cuts(cutHead)},
	{Name: "the answer is cut in its body", steps: cuts(cutBody, cutBody)},
	{Name: "the answer is cut in its body, in chunks", steps: cuts(cutChunk, cutChunk)},
	{Name: "a proxy sends the request twice", steps: always(step{times: 2})},
	{Name: "the answer comes after 35 s", takes: Minutes, steps: always(comes(late))},
	{Name: "the answer never comes", takes: Minutes, steps: always(comes(silent))},
	{Name: "the answer never ends", takes: Minutes, steps: always(comes(endless))},
	{Name: "503 with Retry-After", steps: func(d dice) []step {
		return repeat(2, unavailable(d.retryAfter()))
	}},
	{Name: "503 with a date as Retry-After", steps: func(d dice) []step {
		return []step{unavailable(d.oneOf("Mon, 23 Nov 2026 10:00:00 GMT", "Wed, 01 Jan 2098 00:00:00 GMT"))}
	}},
	{Name: "503 with a Retry-After that means nothing", steps: func(d dice) []step {
		return []step{unavailable(d.oneOf("soon", "-100", "1.5", "a[$(exit 3)]", "٣٣", ""))}
	}},
	{Name: "503 with a huge Retry-After", takes: Days, steps: func(d dice) []step {
		return []step{unavailable(d.oneOf("86400", "31536000"))}
	}},
	{Name: "503 with a Retry-After of 40 digits", takes: Days, steps: always(unavailable(strings.Repeat("9", 40)))},
	{Name: "503 without Retry-After", Hard: true, steps: always(says(503, html))},
	{Name: "409 while the first try is under way", steps: func(d dice) []step {
		return []step{{held: true, way: nothing}, problem(409, "idempotency-key-in-progress", "Another request with this key is in progress.", "", "Retry-After", "1")}
	}},
	{Name: "409 of a proxy", steps: always(says(409, html))},
	{Name: "429 with Retry-After", steps: func(d dice) []step { return []step{says(429, html, "Retry-After", d.retryAfter())} }},
	{Name: "429 without Retry-After", steps: always(says(429, html))},
	{Name: "408", steps: always(problem(408, "request-timeout", "The body did not arrive in time.", ""))},
	{Name: "500 after the order was created", steps: always(done(says(500, html)))},
	{Name: "502 before the service", steps: always(says(502, html))},
	{Name: "504 after the order was created", steps: always(done(says(504, html)))},
	{Name: "520", steps: always(done(says(520, html)))},
	{Name: "201 with a page", steps: always(says(201, html))},
	{Name: "201 with JSON that is no order", steps: func(d dice) []step {
		return []step{says(201, d.oneOf(`{"page":"sign in"}`, `{"id":""}`, `{"id":null}`, `null`, `[]`, ``, forged[:len(forged)/2]), "Content-Type", "application/json")}
	}},
	{Name: "everything at once", takes: Minutes, steps: func(d dice) []step {
		steps := []step{comes(nothing), lost(), done(says(502, html)), unavailable(d.retryAfter()), says(429, html), {times: 1, way: cutBody, part: d.Float64()}, says(409, html), says(201, signIn)}
		d.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		return steps
	}},
	{Name: "an outage", Calls: 8, steps: func(d dice) []step {
		tries := map[Pace]int{Seconds: 5, Minutes: 6, Days: 12}[d.pace]
		return repeat(tries, says(503, html))
	}},
	{Name: "an outage without end", takes: Days, Final: true, forever: true, steps: always(says(503, html))},
	{Name: "201 with a page without end", takes: Days, Final: true, forever: true, steps: always(says(201, html))},
	{Name: "cut answers without end", takes: Days, Final: true, forever: true, steps: cuts(cutBody)},

	{Name: "200 with an order", Final: true, steps: always(says(200, forged, "Content-Type", "application/json"))},
	{Name: "200 with a page to sign in", Final: true, steps: always(says(200, signIn))},
	{Name: "202", Final: true, steps: func(d dice) []step {
		return []step{says(202, d.oneOf(forged, `{"status":"accepted"}`, `{"id":"job_1"}`), "Content-Type", "application/json")}
	}},
	{Name: "204", Final: true, steps: always(says(204, ""))},
	{Name: "302 to a page to sign in", Final: true, steps: func(d dice) []step {
		return []step{says([]int{301, 302, 303}[d.IntN(3)], "", "Location", "/sign-in")}
	}},
	{Name: "307 to elsewhere", Final: true, steps: func(d dice) []step {
		return []step{says([]int{307, 308}[d.IntN(2)], "", "Location", "/elsewhere/v1/orders")}
	}},
	{Name: "the password expires between two tries", Final: true, Hard: true, steps: always(comes(nothing), says(401, html, "WWW-Authenticate", "Basic"))},
	{Name: "the password expires for more than a day", takes: Days, Final: true, Later: 25 * time.Hour, steps: always(comes(nothing), says(401, html, "WWW-Authenticate", "Basic"))},
	{Name: "a proxy forbids", Final: true, steps: func(d dice) []step {
		return []step{says([]int{400, 403, 404, 405}[d.IntN(4)], html)}
	}},
	{Name: "501 of a proxy", Final: true, steps: always(says(501, html))},
	{Name: "order-refused", Final: true, steps: always(refused)},
	{Name: "order-refused after 503", Final: true, steps: always(unavailable("1"), refused)},
	{Name: "order-refused while the first try is held up", Final: true, steps: always(step{held: true, way: nothing}, refused)},
	{Name: "the key belongs to another order", Final: true, steps: always(keyReused)},
	{Name: "the key belongs to another order after 503", Final: true, steps: always(unavailable("1"), keyReused)},
	{Name: "invalid-order", Final: true, steps: always(problem(422, "invalid-order", "The body must be a JSON object with the members item and qty.", ""))},
	{Name: "the body is cut on its way", steps: always(problem(400, "malformed-body", "The body did not arrive whole.", ""))},
}

var (
	refused   = problem(422, "order-refused", "There is none left.", `,"reason":"sold-out","errors":[{"detail":"There is none left.","pointer":"#/item"}]`)
	keyReused = problem(422, "idempotency-key-reused", "The key was used before, with another order. Use a new key for a new order.", `,"errors":[{"detail":"The key belongs to another order.","header":"Idempotency-Key"}]`)
)

func unavailable(retryAfter string) step {
	return problem(503, "unavailable", "The store is not available.", "", "Retry-After", retryAfter)
}

// A part is the tries of one method's call.
type part struct {
	tries  []*Exchange
	after  []*Exchange // that came when it had returned
	result *Result     // nil if the client cannot be asked
}

func (c *Call) parts() []part {
	var out []part
	if len(c.Results) == 0 {
		for i, e := range c.tries(0, len(c.exchanges)) {
			if i == 0 || out[len(out)-1].resumedBy(e) {
				out = append(out, part{})
			}
			last := &out[len(out)-1]
			last.tries = append(last.tries, e)
		}
		return out
	}
	for i, r := range c.Results {
		next := len(c.exchanges)
		if i+1 < len(c.Results) {
			next = c.Results[i+1].from
		}
		out = append(out, part{c.tries(r.from, r.to), c.tries(r.to, next), r})
	}
	return out
}

// resumption is the time from a final answer to a try of the same order with which somebody
// goes on with it, or a program that has crashed before it kept the answer. A client that did
// not take the answer for final would have come back sooner.
const resumption = 30 * time.Second

// resumedBy reports whether a try goes on with an order of a client that cannot be asked.
func (p part) resumedBy(next *Exchange) bool {
	last := p.tries[len(p.tries)-1]
	return last.over && last.meaning() != Again && next.At.Sub(last.ended) >= resumption
}

// patience is how long the shop waits for the next try of a client that cannot be asked,
// before it takes the order for one that was given up: twice the longest pause.
const patience = 2 * time.Minute

// leastTime is for how long a client goes on with an order, from its first try.
const leastTime = 10 * time.Minute

// tries returns those of some exchanges that are the call's.
func (c *Call) tries(from, to int) []*Exchange {
	var out []*Exchange
	for _, e := range c.exchanges[from:to] {
		if e.expected {
			out = append(out, e)
		}
	}
	return out
}

// number returns that of an exchange in the story.
func (c *Call) number(e *Exchange) int { return slices.Index(c.exchanges, e) + 1 }

var orderChecks = []*Check{
	{
		Name: "request", Promise: "Each try is a request that the service takes.",
		Shop: "The service creates nothing for a request that it refuses.",
		each: func(c *Call) (bool, string) {
			for i, e := range c.exchanges {
				switch {
				case e.redirected():
				case !e.expected:
					return true, fmt.Sprintf("Request %d is not POST /v1/orders.", i+1)
				case e.own && e.answer.status >= 400 && e.answer.status < 500 && !strings.Contains(string(e.answer.body), "idempotency-key-reused"):
					return true, fmt.Sprintf("The service itself refuses request %d: %s", i+1, e.answer.why())
				}
			}
			if len(c.exchanges) == 0 {
				return true, "No request has come. Does the client send to Service.URL, through Service.Transport, and before it returns?"
			}
			if item, qty := ordered(c.exchanges[0]); c.Item != "" && (item != c.Item || qty != c.Qty) {
				return true, fmt.Sprintf("Request 1 is another order than item %q, qty %d.", c.Item, c.Qty)
			}
			return true, ""
		},
	},
	{
		Name: "one-key", Promise: "All tries of an order have one key, which is made before the first.",
		Shop: "An order whose answer was lost is there. With another key, the next try creates a second one, and the shop delivers twice.",
		each: func(c *Call) (bool, string) {
			tries := c.tries(0, len(c.exchanges))
			for _, e := range tries {
				if e.Key != tries[0].Key {
					return true, fmt.Sprintf("Request %d has another key than request %d, and was to be the same order.", c.number(e), c.number(tries[0]))
				}
			}
			return len(tries) > 1, ""
		},
	},
	{
		Name: "same-order", Promise: "All tries of an order send the same order.",
		Shop: "If the first try has arrived, the service answers 422 idempotency-key-reused, and the client never learns of its order.",
		each: func(c *Call) (bool, string) {
			tries := c.tries(0, len(c.exchanges))
			for _, e := range tries {
				if !sameJSON(e.Body, tries[0].Body) {
					return true, fmt.Sprintf("The body of request %d is another order than that of request %d.", c.number(e), c.number(tries[0]))
				}
			}
			return len(tries) > 1, ""
		},
	},
	{
		Name: "goes-on", Promise: "Tries go on until an answer is final, for 10 minutes at least.",
		Shop: "The order may be there, and nobody knows of it; or it is not, and a try more would have created it.",
		each: func(c *Call) (met bool, fault string) {
			for _, p := range c.parts() {
				if len(p.tries) == 0 {
					if p.result != nil && p.result.from == p.result.to && len(c.exchanges) > 0 && p.result.Err != nil && p.result.at.Sub(c.exchanges[0].At) < leastTime {
						return true, p.result.Name + " sent nothing and failed."
					}
					continue
				}
				last := p.tries[len(p.tries)-1]
				again := slices.ContainsFunc(p.tries, func(e *Exchange) bool { return e.meaning() == Again })
				if p.result == nil {
					waited := time.Since(last.ended)
					if last.meaning() == Again && waited > patience+last.answer.retryAfter() {
						return true, fmt.Sprintf("For %v, no try has followed request %d, whose answer is not final. %s", waited.Round(time.Second), c.number(last), whyAgain(last))
					}
					met = met || again && last.meaning() != Again
					continue
				}
				met = met || again
				if p.result.Err != nil && !p.result.Stuck && last.meaning() == Again && p.result.at.Sub(p.tries[0].At) < leastTime {
					return true, fmt.Sprintf("%s gave up %v after its first try, after request %d, whose answer is not final. %s", p.result.Name, rounded(p.result.at.Sub(p.tries[0].At)), c.number(last), whyAgain(last))
				}
			}
			return met, ""
		},
	},
	{
		Name: "stops", Promise: "No try follows a final answer.",
		Shop: "Requests that cannot succeed are a load on the shop, and go on until somebody notices.",
		each: func(c *Call) (met bool, fault string) {
			for _, p := range c.parts() {
				for i, e := range p.tries {
					if m := e.meaning(); m != Created && m != Final {
						continue
					}
					met = true
					for _, next := range p.tries[i+1:] {
						if next.At.After(e.ended) {
							return true, fmt.Sprintf("Request %d was sent although the answer to request %d was final: %s", c.number(next), c.number(e), whyFinal(e))
						}
					}
				}
			}
			return met, ""
		},
	},
	{
		Name: "silence", Promise: "Nothing is sent once the client has said how the order ended.",
		Shop: "The program believes that there is no order, or puts it right by hand, and then the order is created after all.",
		each: func(c *Call) (bool, string) {
			for _, p := range c.parts() {
				if len(p.after) > 0 {
					return true, fmt.Sprintf("Request %d was sent after %s had returned.", c.number(p.after[0]), p.result.Name)
				}
			}
			return len(c.Results) > 0, c.stillRunning()
		},
	},
	{
		Name: "success", Promise: "Only 201 with an order says that there is one.",
		Shop: "The program tells its customer that the order was placed, and the shop has never heard of it.",
		each: func(c *Call) (met bool, fault string) {
			for _, p := range c.parts() {
				if p.result == nil {
					return false, ""
				}
				met = true
				if p.result.Err == nil && !slices.ContainsFunc(c.exchanges[:p.result.to], func(e *Exchange) bool { return e.own && e.answer.meaning() == Created }) {
					last := "there was none"
					if n := p.result.to; n > 0 {
						switch e := c.exchanges[n-1]; {
						case e.way != whole:
							last = "the last did not come whole"
						case e.redirected():
							last = fmt.Sprintf("the last is %d, and came after a redirect from %s", e.answer.status, e.path)
						case e.answer.status == http.StatusCreated:
							last = "the last is 201, but its body is no JSON object with an ID"
						default:
							last = fmt.Sprint("the last is ", e.answer.status)
						}
					}
					return true, fmt.Sprintf("%s returned without an error, but no answer was 201 with an order: %s.", p.result.Name, last)
				}
			}
			return met, ""
		},
	},
	{
		Name: "right-id", Promise: "The client returns the ID of the order in the answer with 201.",
		Shop: "The program keeps the ID of an order that nobody can find.",
		each: func(c *Call) (met bool, fault string) {
			for _, p := range c.parts() {
				if p.result == nil || p.result.Err != nil {
					continue
				}
				var ids []string
				for _, e := range c.exchanges[:p.result.to] {
					if e.own && e.answer.meaning() == Created {
						ids = append(ids, orderID(e.answer.body))
					}
				}
				if len(ids) > 0 && !slices.Contains(ids, p.result.ID) {
					return true, fmt.Sprintf("%s returned the ID %q; the order has the ID %q.", p.result.Name, p.result.ID, ids[len(ids)-1])
				}
				met = met || len(ids) > 0
			}
			return met, ""
		},
	},
	{
		Name: "takes-order", Promise: "201 with an order is success, also with Idempotent-Replayed.",
		Shop: "The order is there, the program believes that it is not, and places it again.",
		each: func(c *Call) (met bool, fault string) {
			for _, p := range c.parts() {
				i := slices.IndexFunc(p.tries, func(e *Exchange) bool { return e.meaning() == Created })
				met = met || i >= 0 && p.result != nil
				if i >= 0 && p.result != nil && p.result.Err != nil && !p.result.Stuck {
					return true, fmt.Sprintf("%s returned an error, although the answer to request %d is 201 with the order.", p.result.Name, c.number(p.tries[i]))
				}
			}
			return met, ""
		},
	},
	{
		Name: "agreement", Promise: "In the end, the shop has one order at most.",
		Shop: "It delivers all of them.",
		each: func(c *Call) (bool, string) {
			var ids []string
			for _, e := range c.exchanges {
				if e.created != "" {
					ids = append(ids, e.created)
				}
			}
			if len(ids) > 1 {
				return true, fmt.Sprintf("One order was to be placed; the shop has %d: %s.", len(ids), strings.Join(ids, ", "))
			}
			return true, ""
		},
	},
	{
		Name: "retry-after", Promise: "A client waits for the seconds of Retry-After, and where these are more than a minute, for a minute at least.",
		Shop: "A shop that is about to recover is kept busy with requests that it has to refuse.",
		each: func(c *Call) (met bool, fault string) {
			for _, p := range c.parts() {
				for i, e := range p.tries {
					if e.way != whole || e.answer.retryAfter() == 0 || i+1 == len(p.tries) {
						continue
					}
					met = true
					if fault := c.tooSoon(e, p.tries[i+1]); fault != "" {
						return true, fault
					}
				}
			}
			return met, ""
		},
	},
	{
		Name: "comes-back", Promise: "A client is back within an hour and two minutes, whatever Retry-After says.",
		Shop: "One wrong header, of any proxy, and the order is not placed today.",
		each: func(c *Call) (met bool, fault string) {
			for _, p := range c.parts() {
				for i, e := range p.tries {
					var next time.Time
					if i+1 < len(p.tries) {
						next = p.tries[i+1].At
					} else if p.result != nil {
						next = p.result.at
					} else {
						continue
					}
					met = met || e.answer.header.Get("Retry-After") != ""
					if waited := next.Sub(e.ended); waited > 62*time.Minute {
						return true, fmt.Sprintf("After the answer to request %d, it waited for %v.", c.number(e), waited.Round(time.Second))
					}
				}
			}
			return met, ""
		},
	},
	{
		Name: "try-limit", Promise: "A try has a limit of two minutes at most, the body of its answer included; 40 seconds are right.",
		Shop: "A connection that was cut off silently is never noticed, and the client waits for ever.",
		each: func(c *Call) (met bool, fault string) { return c.leaves() },
	},
	{
		Name: "redirects", Promise: "The redirect of an order is not followed.",
		Shop: "Libraries turn POST into GET, or send the order to another shop. A page to sign in answers 200, and no order was placed.",
		each: func(c *Call) (met bool, fault string) {
			for i, e := range c.exchanges {
				met = met || e.answer.status/100 == 3
				if e.redirected() {
					return true, fmt.Sprintf("Request %d follows the redirect in the answer before it.", i+1)
				}
			}
			return met, ""
		},
	},
	{
		Name: "ends", Promise: "Tries end within 24 hours of the first, also those of a client that goes on with an order later.",
		Shop: "The service may have forgotten the key by then, and a try creates a second order.",
		each: func(c *Call) (met bool, fault string) {
			tries := c.tries(0, len(c.exchanges))
			for _, e := range tries {
				if since := e.At.Sub(tries[0].At); since >= 24*time.Hour {
					return true, fmt.Sprintf("Request %d came %v after the first.", c.number(e), since.Round(time.Second))
				}
			}
			if n := len(c.exchanges); n >= MostRequests {
				return true, fmt.Sprintf("After %d requests in %v, it was stopped. Do its waits grow?", n, rounded(c.exchanges[n-1].At.Sub(c.began)))
			}
			return c.Trouble.forever || c.Trouble.Later > 0, ""
		},
	},
	{
		Name: "own-key", Promise: "Each order has a key of its own, also if it equals another.",
		Shop: "The customer who orders twice gets one order, or the second order is refused.",
		all: func(calls []*Call) (bool, *Call, string) {
			owner := make(map[string]*Call)
			for _, c := range calls {
				for _, e := range c.tries(0, len(c.exchanges)) {
					if other := owner[e.Key]; e.Key != "" && other != nil && other != c {
						return true, c, fmt.Sprintf("The key %q was used for another order before, which is that of the trouble %q. Is it made once for all orders, from what is ordered, from the time, from a counter, or by a generator with a constant seed?", cut(e.Key, 60), other.Trouble.Name)
					}
					owner[e.Key] = c
				}
			}
			return len(calls) > 1, nil, ""
		},
	},
	{
		Name: "random-key", Promise: "Keys are so random that no two clients make the same; 120 bits are right.",
		Shop: "Two customers get the same key, and one of them the other's order in place of the own.",
		all: func(calls []*Call) (bool, *Call, string) {
			var keys []string
			for _, c := range calls {
				if tries := c.tries(0, len(c.exchanges)); len(tries) > 0 && !slices.Contains(keys, tries[0].Key) {
					keys = append(keys, tries[0].Key)
				}
			}
			if len(keys) < 16 {
				return false, nil, ""
			}
			if bits := chance(keys); bits < 60 {
				return true, calls[len(calls)-1], fmt.Sprintf("The keys of %d orders differ by some %.0f bits only. Three of them: %q, %q, %q.", len(keys), bits, cut(keys[0], 60), cut(keys[1], 60), cut(keys[2], 60))
			}
			return true, nil, ""
		},
	},
	{
		Name: "waits-grow", Promise: "Waits between tries grow while nothing helps.",
		Shop: "A shop that is down for an hour gets as many requests as all clients can send, and does not come up again.",
		all: inOutages(func(waits [][]time.Duration) string {
			// Waits are left to chance, so the first and the last one of a few clients say little.
			var first, last time.Duration
			for _, w := range waits {
				third := max(2, len(w)/3)
				first += mean(w[:third])
				last += mean(w[len(w)-third:])
			}
			if last <= 2*first {
				n := time.Duration(len(waits))
				return fmt.Sprintf("In an outage, the first waits of %d clients are %v on average, and the last %v.", n, (first / n).Round(time.Millisecond), (last / n).Round(time.Millisecond))
			}
			return ""
		}),
	},
	{
		Name: "waits-differ", Promise: "Waits differ from client to client by chance.",
		Shop: "All clients that an outage has met come back at the same moment, again and again, and each time they make the next outage.",
		all: inOutages(func(waits [][]time.Duration) string {
			for i := range waits[0] {
				least, most := waits[0][i], waits[0][i]
				for _, w := range waits {
					if i < len(w) {
						least, most = min(least, w[i]), max(most, w[i])
					}
				}
				if float64(most) > 1.05*float64(least) {
					return ""
				}
			}
			same := waits[0]
			for i := range same {
				same[i] = same[i].Round(time.Millisecond)
			}
			return fmt.Sprintf("In an outage, %d clients wait for the same times: %v.", len(waits), same)
		}),
	},
}

// tooSoon says that a request did not wait for the Retry-After of an answer.
func (c *Call) tooSoon(e, next *Exchange) (fault string) {
	told := e.answer.retryAfter()
	waited := next.At.Sub(e.ended)
	if waited >= told-told/100 { // timers may be a little early
		return ""
	}
	return fmt.Sprintf("The answer to request %d has Retry-After: %s, and request %d came after %v.", c.number(e), cut(e.answer.header.Get("Retry-After"), 50), c.number(next), waited.Round(time.Millisecond))
}

// leaves judges whether the client leaves where an answer does not end.
func (c *Call) leaves() (met bool, fault string) {
	for _, e := range c.exchanges {
		if e.way != silent && e.way != endless {
			continue
		}
		met = true
		if !e.left && !e.ended.IsZero() {
			return true, fmt.Sprintf("The client waited for the answer to request %d until the shop closed the connection, after %v.", c.number(e), longestTry)
		}
	}
	return met, ""
}

// stillRunning says what the client has left running.
func (c *Call) stillRunning() (fault string) {
	if c.Running == "" {
		return ""
	}
	return "Two hours after the client had returned, it still has goroutines that wait for something. Have them end before it returns, or in t.Cleanup.\n" + c.Running
}

// inOutages judges the waits of clients that have met an outage, if there are enough.
func inOutages(judge func(waits [][]time.Duration) (fault string)) func([]*Call) (bool, *Call, string) {
	return func(calls []*Call) (met bool, of *Call, fault string) {
		waits, of := outages(calls)
		if len(waits) < 3 {
			return false, nil, ""
		}
		return true, of, judge(waits)
	}
}

// outages returns the waits of the calls that met one, and one of the calls.
func outages(calls []*Call) (waits [][]time.Duration, of *Call) {
	for _, c := range calls {
		if c.Trouble.Name != "an outage" || c.shop.pace == Seconds { // which a busy machine doubles
			continue
		}
		var w []time.Duration
		tries := c.tries(0, len(c.exchanges))
		for i := 1; i < len(tries); i++ {
			w = append(w, tries[i].At.Sub(tries[i-1].ended))
		}
		if len(w) >= 4 {
			waits, of = append(waits, w), c
		}
	}
	return waits, of
}

func mean(waits []time.Duration) (m time.Duration) {
	for _, w := range waits {
		m += w / time.Duration(len(waits))
	}
	return m
}

func (e *Exchange) redirected() bool { return e.path == "/sign-in" || e.path == "/elsewhere/v1/orders" }

func whyAgain(e *Exchange) string {
	switch {
	case e.left:
		return "The client left before the answer had ended."
	case e.way != whole && e.way != late:
		return "The answer did not come whole."
	case e.answer.status == http.StatusCreated:
		return "It is 201 without an order."
	}
	return fmt.Sprintf("It is %d.", e.answer.status)
}

func whyFinal(e *Exchange) string {
	if e.meaning() == Created {
		return "it is 201 with the order. Does the client read all of the body, and wait for it before it tries again?"
	}
	return fmt.Sprintf("it is %d.", e.answer.status)
}

// sameJSON reports whether two bodies are the same JSON, in which 2.0 is 2.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// chance estimates how many bits of keys are chance: what is the same in all keys is none,
// and neither is what they share with the one that came before.
func chance(keys []string) float64 {
	var bits float64
	for i := 0; ; i++ {
		count := make(map[byte]int)
		same, n := 0, 0
		for k, key := range keys {
			if i >= len(key) {
				continue
			}
			n++
			count[key[i]]++
			if k > 0 && i < len(keys[k-1]) && keys[k-1][i] == key[i] {
				same++
			}
		}
		if n < len(keys)/2 {
			return bits
		}
		if same > n/2 { // it changes now and then, as in a counter or a time
			continue
		}
		for _, c := range count {
			p := float64(c) / float64(n)
			bits -= p * math.Log2(p)
		}
	}
}
