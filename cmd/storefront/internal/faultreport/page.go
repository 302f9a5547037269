package faultreport

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/inline"
)

// Where a [Server] says what it saw: a page, which is JSON for requests that accept that and
// no HTML, and JSON.
const (
	PagePath = "/-/trouble"
	JSONPath = PagePath + ".json"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	style  = inline.Text(pageCSS)
	script = inline.Text(pageJS)
	policy = inline.Policy(script, style)
	page   = template.Must(template.New("").Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(style) },
		"script": func() template.JS { return template.JS(script) },
		"join":   func(texts []string) string { return strings.Join(texts, ", ") },
		"lines":  func(story string) []string { return strings.Split(strings.TrimSuffix(story, "\n"), "\n") },
	}).Parse(pageHTML))
)

// unjudged are the checks that need to know what a client believes, or which requests are of
// one read, or take a day.
var unjudged = []string{
	"silence", "success", "right-id", "takes-order", "ends",
	"each-once", "whole-list", "walks", "walk-ends", "walk-stops", "walk-waits",
	"fresh", "product", "reads", "read-ends", "read-stops", "read-waits",
}

const anotherItem = " If it was to be another order: let each one here have another item."

// unless says when a fault is none that the shop cannot tell from one.
var unless = map[string]string{
	"one-key":   anotherItem,
	"agreement": anotherItem,
	"goes-on":   " If its program was ended meanwhile: start it again, and it must go on.",
	"stops": fmt.Sprintf(" If somebody had put right what was wrong and had the client go on: from %v "+
		"after the answer, that is seen as such.", conformance.Resumption),
}

type report struct {
	Seed       uint64         `json:"seed"`
	NotJudged  []string       `json:"not_judged"` // checks
	Clients    []clientReport `json:"clients"`
	Latest     []callReport   `json:"latest"`      // calls, the newest first
	NotCounted int            `json:"not_counted"` // requests of clients that were too many

	MostClients, MostCalls, MostExchanges, MostMegabytes int `json:"-"`
}

type clientReport struct {
	Name       string         `json:"client"`
	Kinds      []kindReport   `json:"kinds"`
	Created    []createdOrder `json:"created"`
	NotCounted int            `json:"not_counted"` // requests after a bound was reached
}

type kindReport struct {
	Kind   conformance.Kind `json:"kind"`
	Round  int              `json:"round"`
	Met    int              `json:"met"` // faults of the round
	Of     int              `json:"of"`
	States map[string]int   `json:"states"` // how many calls are in each
	Checks []verdict        `json:"checks"`
}

type verdict struct {
	Check   string `json:"check"`
	Promise string `json:"promise"`
	Shop    string `json:"otherwise"`
	Verdict string `json:"verdict"`         // passed, failed, not met
	Calls   int    `json:"calls,omitempty"` // that failed
	Fault   string `json:"fault,omitempty"` // of the first of them
	Call    string `json:"call,omitempty"`
	Trouble string `json:"trouble,omitempty"`
	Story   string `json:"story,omitempty"`
}

type createdOrder struct {
	ID   string `json:"id"`
	Item string `json:"item"`
	Qty  int64  `json:"qty"`
	Call string `json:"call"`
}

type callReport struct {
	Client  string    `json:"client"`
	Call    string    `json:"call"`
	Trouble string    `json:"trouble"`
	State   string    `json:"state"`
	At      time.Time `json:"at"` // of its last request
	Story   string    `json:"story"`
}

const latestCalls = 20

func (s *Server) report() (r *report) {
	s.shop.View(func() { r = s.reportNow() })
	return r
}

func (s *Server) reportNow() *report {
	r := &report{
		Seed: s.seed, NotJudged: unjudged, NotCounted: s.beyond,
		Clients: []clientReport{}, Latest: []callReport{},
		MostClients: mostClients, MostCalls: mostCalls, MostExchanges: mostExchanges,
		MostMegabytes: mostBytes >> 20,
	}
	type named struct {
		*conformance.Call
		client, name string
	}
	var all []named
	for _, cl := range s.clients {
		names := cl.names()
		cr := clientReport{Name: cl.name, Created: []createdOrder{}, NotCounted: cl.beyond}
		for _, kind := range []conformance.Kind{conformance.Orders, conformance.Users, conformance.Widgets,
			conformance.Products} {
			cr.Kinds = append(cr.Kinds, cl.judge(kind, names))
		}
		for _, c := range cl.calls {
			all = append(all, named{&c.Call, cl.name, names[&c.Call]})
			for _, e := range c.Exchanges {
				if e.Created != "" {
					item, qty := e.Order()
					cr.Created = append(cr.Created,
						createdOrder{e.Created, printable(item), qty, names[&c.Call]})
				}
			}
		}
		r.Clients = append(r.Clients, cr)
	}
	at := func(c *conformance.Call) time.Time { return c.Exchanges[len(c.Exchanges)-1].At }
	slices.SortStableFunc(all, func(a, b named) int { return at(b.Call).Compare(at(a.Call)) })
	for _, c := range all[:min(latestCalls, len(all))] {
		r.Latest = append(r.Latest, callReport{
			c.client, c.name, c.Fault, stateOf(c.Call), at(c.Call), printable(c.Story()),
		})
	}
	return r
}

// names returns those by which the page calls the calls, such as "order 3".
func (cl *client) names() map[*conformance.Call]string {
	names, count := make(map[*conformance.Call]string), make(map[conformance.Kind]int)
	for _, c := range cl.calls {
		count[c.Kind]++
		what := map[conformance.Kind]string{
			conformance.Orders: "order", conformance.Users: "walk through users",
			conformance.Widgets: "walk through widgets", conformance.Products: "product",
		}[c.Kind]
		names[&c.Call] = fmt.Sprint(what, " ", count[c.Kind])
	}
	return names
}

// judge judges what has ended.
func (cl *client) judge(kind conformance.Kind, names map[*conformance.Call]string) kindReport {
	kr := kindReport{Kind: kind, States: make(map[string]int)}
	if r := cl.rounds[kind]; r != nil {
		kr.Round, kr.Met, kr.Of = r.number, r.of-len(r.rest), r.of
	}
	var calls []*conformance.Call
	for _, c := range cl.calls {
		if c.Kind != kind {
			continue
		}
		state := stateOf(&c.Call)
		kr.States[state]++
		if state != underWay {
			calls = append(calls, &c.Call)
		}
	}
	for _, check := range conformance.Checks(kind) {
		v := verdict{Check: check.Name, Promise: check.Promise, Shop: check.Harm, Verdict: "not met"}
		met, violations := check.Judge(calls)
		switch {
		case violations != nil:
			of := violations[0].Call
			v.Verdict, v.Calls, v.Fault = "failed", len(violations), printable(violations[0].Text)
			v.Call, v.Trouble, v.Story = names[of], of.Fault, printable(of.Story())
			v.Fault += unless[check.Name]
		case met:
			v.Verdict = "passed"
		}
		kr.Checks = append(kr.Checks, v)
	}
	return kr
}

const underWay = "under way"

// stateOf says how far a call of a client is that cannot be asked.
func stateOf(c *conformance.Call) string {
	switch last := c.Last(); {
	case slices.ContainsFunc(c.Exchanges, func(e *conformance.Exchange) bool { return !e.Done }):
		return underWay
	case last.Meaning() == conformance.Retryable && c.Kind == conformance.Orders:
		return "not final"
	case last.Meaning() == conformance.Created:
		return "created"
	case c.Kind == conformance.Orders:
		return "final without an order"
	}
	return "answered"
}

func (k kindReport) Failed() []verdict { return k.with("failed") }
func (k kindReport) Passed() []verdict { return k.with("passed") }

// NotMet leaves out the checks that no client can meet here.
func (k kindReport) NotMet() []verdict { return k.with("not met") }

func (k kindReport) with(verdict string) (out []verdict) {
	for _, v := range k.Checks {
		if v.Verdict == verdict && !slices.Contains(unjudged, v.Check) {
			out = append(out, v)
		}
	}
	return out
}

// Calls says how many there are in each state.
func (k kindReport) Calls() string {
	var out []string
	for _, state := range slices.Sorted(maps.Keys(k.States)) {
		out = append(out, fmt.Sprint(k.States[state], " ", state))
	}
	return strings.Join(out, ", ")
}

// more says how many calls failed besides the one that is told.
func (v verdict) more() string {
	if v.Calls < 2 {
		return ""
	}
	return fmt.Sprint(" and ", v.Calls-1, " more")
}

// Summary says in lines which checks each client has failed.
func (s *Server) Summary() string {
	r := s.report()
	var b strings.Builder
	if len(r.Clients) == 0 {
		b.WriteString("No client has met a fault.\n")
	}
	for _, c := range r.Clients {
		for _, k := range c.Kinds {
			if k.Round == 0 {
				continue
			}
			fmt.Fprintf(&b, "%s: %s (%s): %d checks passed, %d failed, %d not met\n", c.Name, k.Kind,
				k.Calls(), len(k.Passed()), len(k.Failed()), len(k.NotMet()))
			for _, v := range k.Failed() {
				fmt.Fprintf(&b, "  failed %s in %s%s: %s\n    The broken promise: %s\n", v.Check, v.Call,
					v.more(), v.Fault, v.Promise)
			}
		}
	}
	return b.String()
}

func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Connection", "close")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		storefront.Problem{Status: http.StatusMethodNotAllowed,
			Detail: "This is a page to look at: GET, HEAD."}.ServeHTTP(w, r)
		return
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	var b bytes.Buffer
	accept := r.Header.Get("Accept")
	if r.URL.Path == JSONPath || strings.Contains(accept, "application/json") &&
		!strings.Contains(accept, "text/html") {
		h.Set("Content-Type", "application/json")
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		e.Encode(s.report())
	} else {
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		if err := page.Execute(&b, s.report()); err != nil {
			storefront.Problem{Status: http.StatusInternalServerError}.ServeHTTP(w, r)
			return
		}
	}
	w.Write(b.Bytes())
}
