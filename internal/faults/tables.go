package faults

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
)

// Outage is the name of the fault in which the waits of several clients are compared.
const Outage = "an outage"

var orderFaults = []Fault{
	{Name: "nothing is wrong"},
	{Name: "the answer is lost after the order was created", steps: always(comes(conformance.NoAnswer))},
	{Name: "the request is lost before the service", steps: always(lost())},
	{Name: "three answers are lost", Hard: true, steps: always(repeat(3, comes(conformance.NoAnswer))...)},
	{Name: "the answer is cut in its head", steps: cuts(conformance.CutHead)},
	{Name: "the answer is cut in its body", steps: cuts(conformance.CutBody, conformance.CutBody)},
	{Name: "the answer is cut in its body, in chunks",
		steps: cuts(conformance.CutChunk, conformance.CutChunk)},
	{Name: "a proxy sends the request twice", steps: always(step{times: 2})},
	{Name: "the answer comes after 35 s", takes: Minutes, steps: always(comes(conformance.Late))},
	{Name: "the answer never comes", takes: Minutes, steps: always(comes(conformance.Silent))},
	{Name: "the answer never ends", takes: Minutes, steps: always(comes(conformance.Endless))},
	{Name: "the answer has no end, as fast as it is read", variants: flooded},
	{Name: "102 and 103, and other 1xx, before the answer", steps: always(interim, served)},
	{Name: "100 Continue, which nobody has asked for", steps: always(repeat(3, continued)...)},
	{Name: "101, and what is no HTTP any more", takes: Minutes, Final: true,
		steps: always(step{answer: says(101, "", "Connection", "Upgrade", "Upgrade", "websocket").answer,
			delivery: conformance.Endless})},
	{Name: "201 with a Location that leads to a page to sign in",
		steps: always(step{times: 1, edit: func(a *conformance.Answer) {
			a.Header.Set("Location", conformance.SignInPath)
		}})},
	{Name: "503 with Retry-After", steps: always(repeat(2, unavailable("3"))...)},
	{Name: "503 with a date as Retry-After",
		variants: each(unavailable, "Mon, 23 Nov 2026 10:00:00 GMT", "Wed, 01 Jan 2098 00:00:00 GMT")},
	{Name: "503 with a Retry-After that means nothing",
		variants: each(unavailable, "soon", "-100", "1.5", "a[$(exit 3)]", "٣٣", "")},
	{Name: "503 with a huge Retry-After", takes: Days,
		variants: times(3, each(unavailable, "86400", strings.Repeat("9", 40)))},
	{Name: "503 without Retry-After", Hard: true, steps: always(says(503, html))},
	{Name: "409 while the first try is under way",
		steps: always(step{held: true, delivery: conformance.NoAnswer}, problem(409, "idempotency-key-in-progress",
			"Another request with this key is in progress.", "", "Retry-After", "1"))},
	{Name: "409 of a proxy", steps: always(says(409, html))},
	{Name: "429 with Retry-After", steps: always(says(429, html, "Retry-After", "2"))},
	{Name: "408", steps: always(problem(408, "request-timeout", "The body did not arrive in time.", ""))},
	{Name: "500 after the order was created", steps: always(done(says(500, html)))},
	{Name: "520", steps: always(done(says(520, html)))},
	{Name: "201 with a page", steps: always(says(201, html))},
	{Name: "201 with JSON that is no order",
		variants: each(saysJSON(201), `{"page":"sign in"}`, `{"id":""}`, `{"id":null}`, `null`, `[]`, ``,
			forged[:len(forged)/2])},
	{Name: "201 with somebody else's order", variants: []variant{
		{"another item", always(mixedUp(func(o *storefront.Order) { o.Item = "samovar" }))},
		{"another quantity", always(mixedUp(func(o *storefront.Order) { o.Qty++ }))}}},
	{Name: Outage, steps: func(d Dice) []step {
		tries := map[Pace]int{Seconds: 5, Minutes: 6, Days: 18}[d.pace]
		return repeat(tries, says(503, html))
	}},
	{Name: "an outage without end", takes: Days, Final: true, Forever: true, steps: always(says(503, html))},
	{Name: "201 with a page without end", takes: Days, Final: true, Forever: true,
		steps: always(says(201, html))},

	{Name: "200 with an order", Final: true, steps: always(saysJSON(200)(forged))},
	{Name: "200 with a page to sign in", Final: true, steps: always(says(200, signIn))},
	{Name: "202", Final: true,
		variants: each(saysJSON(202), forged, `{"status":"accepted"}`, `{"id":"job_1"}`)},
	{Name: "204", Final: true, steps: always(says(204, ""))},
	{Name: "a redirect to a page to sign in", Final: true,
		variants: each(status("", "Location", "/sign-in"), "301", "302", "303")},
	{Name: "a redirect to elsewhere", Final: true,
		variants: each(status("", "Location", "/elsewhere/v1/orders"), "307", "308")},
	{Name: "the password expires between two tries", Final: true, Hard: true,
		steps: always(comes(conformance.NoAnswer), says(401, html, "WWW-Authenticate", "Basic"))},
	{Name: "the password expires for more than a day", takes: Days, Final: true, Later: 25 * time.Hour,
		steps: always(comes(conformance.NoAnswer), says(401, html, "WWW-Authenticate", "Basic"))},
	{Name: "a proxy forbids", Final: true, variants: each(status(html), "400", "403", "404", "405")},
	{Name: "501 of a proxy", Final: true, steps: always(says(501, html))},
	{Name: "order-refused", Final: true, steps: always(refused)},
	{Name: "order-refused after 503", Final: true, steps: always(unavailable("1"), refused)},
	{Name: "order-refused while the first try is held up", Final: true,
		steps: always(step{held: true, delivery: conformance.NoAnswer}, refused)},
	{Name: "the key belongs to another order after 503", Final: true,
		steps: always(unavailable("1"), keyReused)},
	{Name: "invalid-order", Final: true,
		steps: always(problem(422, "invalid-order",
			"The body must be a JSON object with the members item and qty.", ""))},
	{Name: "the request is changed on its way", Final: true, variants: []variant{
		changed("without its Idempotency-Key", func(r *http.Request) { r.Header.Del("Idempotency-Key") }),
		changed("with two of Idempotency-Key", func(r *http.Request) { r.Header.Add("Idempotency-Key", "1") }),
		changed("without its Content-Type", func(r *http.Request) { r.Header.Del("Content-Type") }),
		changed("with a query", func(r *http.Request) { r.URL.RawQuery = "from=proxy" }),
		changed("with another path", func(r *http.Request) { r.URL.Path = "/api/v1/orders" })}},
	{Name: "the body is cut on its way",
		steps: always(problem(400, "malformed-body", "The body did not arrive whole.", ""))},
}

// Orders have fields if the fault is hard, or if there is none.
var fieldFaults = []Fault{
	{Name: "nothing is wrong"},
	{Name: "three answers are lost", Hard: true, steps: always(repeat(3, comes(conformance.NoAnswer))...)},
	{Name: "503 without Retry-After", Hard: true, steps: always(says(503, html))},
	{Name: "201 with somebody else's fields", Hard: true, variants: []variant{
		{"a number that was rounded", always(otherFields("9007199254740993", "9007199254740992"))},
		{"one more", always(otherFields("{", `{"gift":true,`))},
		{"none", always(mixedUp(func(o *storefront.Order) { o.Fields = "" }))}}},
	{Name: "201 with fields where none were sent",
		steps: always(mixedUp(func(o *storefront.Order) { o.Fields = `{"zip":"01067"}` }))},
	{Name: "the password expires between two tries", Final: true, Hard: true,
		steps: always(comes(conformance.NoAnswer), says(401, html, "WWW-Authenticate", "Basic"))},
	{Name: "order-refused after 503", Final: true, Hard: true, steps: always(unavailable("1"), refused)},
}

// otherFields is a step whose answer has these fields, in place of the own.
func otherFields(old, new string) step {
	return mixedUp(func(o *storefront.Order) {
		o.Fields = storefront.Fields(strings.Replace(string(o.Fields), old, new, 1))
	})
}

// flooded is an order, and a page, whose end does not come.
var flooded = []variant{
	{"201", always(comes(conformance.Flood))},
	{"403", always(step{answer: says(403, html).answer, delivery: conformance.Flood})},
}

// interim and continued are steps before whose answer, the service's, others come that are not final.
var (
	interim   = step{times: 1, interim: []int{http.StatusProcessing, http.StatusEarlyHints, 199}}
	continued = step{times: 1, interim: []int{http.StatusContinue, http.StatusContinue}}
)

// changed is a variant in which requests arrive in another way than they were sent, more often than a client
// may try that believes in an accident.
func changed(name string, way func(*http.Request)) variant {
	return variant{name, always(repeat(6, step{times: 1, way: way})...)}
}

var (
	refused = problem(422, "order-refused", "There is none left.",
		`,"reason":"sold-out","errors":[{"detail":"There is none left.","pointer":"#/item"}]`)
	keyReused = problem(422, "idempotency-key-reused",
		"The key was used before, with another order. Use a new key for a new order.",
		`,"errors":[{"detail":"The key belongs to another order.","header":"Idempotency-Key"}]`)
)

// mixedUp is a step whose answer is that to another request, as some proxies and caches mix them up.
func mixedUp(change func(*storefront.Order)) step {
	return step{times: 1, edit: func(a *conformance.Answer) {
		var order storefront.Order
		json.Unmarshal(a.Body, &order)
		order.ID = "ord_FORGED"
		change(&order)
		a.Body, _ = json.Marshal(order)
		a.Header.Del("Content-Length")
	}}
}

// each returns a variant with a step for each text.
func each(made func(text string) step, texts ...string) (out []variant) {
	for _, text := range texts {
		name := cmp.Or(conformance.Excerpt(text, 30), "empty")
		out = append(out, variant{name, always(made(text))})
	}
	return out
}

// second makes the step of each variant the second one, after an answer of the service.
func second(variants []variant) []variant {
	for i, v := range variants {
		variants[i].steps = always(served, v.steps(Dice{})[0])
	}
	return variants
}

// times makes the step of each variant come n times.
func times(n int, variants []variant) []variant {
	for i, v := range variants {
		variants[i].steps = always(repeat(n, v.steps(Dice{})[0])...)
	}
	return variants
}

// status is a step with this status, which is its name.
func status(body string, fields ...string) func(status string) step {
	return func(status string) step {
		code, _ := strconv.Atoi(status)
		return says(code, body, fields...)
	}
}

func saysJSON(status int) func(body string) step {
	return func(body string) step { return says(status, body, "Content-Type", "application/json") }
}

// served is a step that the service answers.
var served = step{times: 1}

func unavailable(retryAfter string) step {
	return problem(503, "unavailable", "The store is not available.", "", "Retry-After", retryAfter)
}

var walkFaults = []Fault{
	{Name: "nothing is wrong"},
	{Name: "a page is empty and has a next", steps: always(served, step{times: 1, empty: true})},
	{Name: "the first page is empty and has a next", steps: always(step{times: 1, empty: true})},
	{Name: "the list changes during the walk", steps: always(served, step{times: 1, change: true})},
	{Name: "a page has another Link, too",
		steps: always(step{times: 1, edit: linked}, step{times: 1, edit: linked})},
	{Name: "503 in the middle", steps: always(served, unavailable("3"))},
	{Name: "a page is cut", steps: cuts(conformance.Whole, conformance.CutBody)},
	{Name: "a page is lost", steps: always(served, comes(conformance.NoAnswer))},
	{Name: "200 with a page to sign in", steps: always(served, says(200, signIn))},
	{Name: "200 with JSON that is no page", variants: second(each(saysJSON(200), noPages...))},
	{Name: "the first page is no page", variants: each(saysJSON(200), append(noPages, signIn)...)},
	{Name: "the first page comes again", steps: always(served, step{times: 1, stale: true})},
	{Name: "the list goes round", Final: true, Forever: true, steps: always(served, step{times: 1, stale: true})},
	{Name: "304 that was not asked for", steps: always(served, says(304, ""))},
	{Name: "a page never ends", takes: Minutes, steps: always(served, comes(conformance.Endless))},
	{Name: "a page has no end, as fast as it is read", steps: always(served, comes(conformance.Flood))},
	{Name: "102 and 103, and other 1xx, before a page", steps: always(served, interim)},
	{Name: "100 Continue, which nobody has asked for", Forever: true, steps: always(continued)},
	{Name: "the cursor becomes invalid", Final: true,
		steps: always(served, problem(400, "invalid-query", "The query is not valid for this list.",
			`,"errors":[{"detail":"The cursor is not valid.","parameter":"after"}]`))},
	{Name: "302 to a page to sign in", Final: true,
		steps: always(served, says(302, "", "Location", "/sign-in"))},
	{Name: "the password expires during the walk", Final: true,
		steps: always(served, says(401, html, "WWW-Authenticate", "Basic"))},
	{Name: "an outage without end", takes: Days, Final: true, Forever: true,
		steps: always(served, says(503, html))},
}

// noPages are JSON, but no page.
var noPages = []string{`{"page":"sign in"}`, `{}`, `null`, `[]`, `{"data":null}`, `{"data":{}}`, `{"data":[]}`,
	`{"data":[],"has_more":"false"}`, `{"data":[],"has_more":true}`}

// Unanswered is the fault after which an order is looked for: the first request, which is held up, and no
// answer that is an order.
var Unanswered = &Fault{Final: true, Forever: true,
	steps: always(step{held: true, delivery: conformance.NoAnswer}, says(403, html))}

// readFaults are of any answer to a read that is no list.
var readFaults = []Fault{
	{Name: "the answer is cut", steps: cuts(conformance.CutBody)},
	{Name: "the answer is lost", steps: always(comes(conformance.NoAnswer))},
	{Name: "the answer never ends", takes: Minutes, steps: always(comes(conformance.Endless))},
	{Name: "the answer has no end, as fast as it is read", steps: always(comes(conformance.Flood))},
	{Name: "102 and 103, and other 1xx, before the answer", steps: always(interim)},
	{Name: "100 Continue, which nobody has asked for", Forever: true, steps: always(continued)},
}

// The order has arrived when the client looks for it. Where nothing is wrong, it looks before that, too.
var lookupFaults = slices.Concat([]Fault{
	{Name: "nothing is wrong"},
	{Name: "503 with Retry-After", steps: always(unavailable("3"))},
}, readFaults, []Fault{
	{Name: "200 with no page", variants: each(saysJSON(200), append(noPages, signIn)...)},
	{Name: "304 that was not asked for", steps: always(says(304, ""))},
	{Name: "a proxy forbids", Final: true, variants: each(status(html), "403", "404", "410")},
	{Name: "the shop lets no orders be read", Final: true,
		steps: always(problem(404, "not-found", "No resource has this path.", ""))},
})

// linked adds a link before that to the next page, as a program around the service may.
func linked(a *conformance.Answer) {
	link := `</help>; rel="help"`
	if next := a.Header.Get("Link"); next != "" {
		link += ", " + next
	}
	a.Header.Set("Link", link)
}

// Missing is the name of the fault whose client reads a product that is not there.
const Missing = "there is no such product"

// The client reads a product, whose name then changes, and reads it again.
var productFaults = slices.Concat([]Fault{
	{Name: "nothing is wrong"},
	{Name: "the answer has an Age", pause: 2 * time.Second,
		steps: always(step{times: 1, edit: func(a *conformance.Answer) {
			a.Header.Set("Cache-Control", "private, max-age=60")
			a.Header.Set("Age", "59")
		}})},
	{Name: "the answer is not to be reused", steps: always(controlled("private, max-age=60, no-cache")),
		pause: time.Millisecond},
	{Name: "the answer is not to be kept", steps: always(controlled("private, max-age=60, no-store")),
		pause: time.Millisecond},
	{Name: "503", steps: always(unavailable("3"))},
	{Name: "429", steps: always(says(429, html, "Retry-After", "2"))},
}, readFaults, []Fault{
	{Name: "200 with a page to sign in", steps: always(says(200, signIn), says(200, signIn))},
	{Name: "200 with JSON that is no product",
		variants: times(2, each(saysJSON(200), `null`, `[]`, `"teapot"`, ``))},
	{Name: "304 that was not asked for", steps: always(says(304, ""))},
	{Name: "302 to a page to sign in", Final: true, steps: always(says(302, "", "Location", "/sign-in"))},
	{Name: "403 between", Final: true, steps: always(served, says(403, html))},
	{Name: "an outage between", takes: Days, Final: true, Forever: true,
		steps: always(served, says(503, html))},
	{Name: Missing, Final: true},
})

// controlled is a step whose answer, the service's, has this Cache-Control.
func controlled(value string) step {
	return step{times: 1, edit: func(a *conformance.Answer) { a.Header.Set("Cache-Control", value) }}
}
