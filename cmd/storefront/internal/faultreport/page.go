package faultreport

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/faults"
	"example.com/storefront/internal/inline"
)

// Where a [Server] says what it saw: a page, which is JSON for requests that accept that and
// no HTML, and JSON.
const (
	PagePath = "/-/trouble"
	JSONPath = PagePath + ".json"
)

var kinds = []conformance.Kind{conformance.Orders, conformance.Users, conformance.Widgets,
	conformance.Products}

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
		"lines":  func(story string) []string { return strings.Split(strings.TrimSuffix(story, "\n"), "\n") },
	}).Parse(pageHTML))
)

// takesADay is a check that no client can meet here.
const takesADay = "ends"

// byOutcome are the checks that need to know what a client believes, or which requests are of one read.
var byOutcome = []string{
	"silence", "success", "right-id", "takes-order",
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
		"after the try, that is seen as such.", conformance.Doubt),
}

type report struct {
	Seed       uint64         `json:"seed"`
	NotJudged  []string       `json:"not_judged"` // checks that need outcomes, and have none
	Clients    []clientReport `json:"clients"`
	Latest     []callReport   `json:"latest"`      // calls, the newest first
	NotCounted int            `json:"not_counted"` // requests of clients that were too many

	MostClients, MostCalls, MostExchanges, MostMegabytes int `json:"-"`

	Orders   int    `json:"-"` // of a round
	Outcomes string `json:"-"` // where they are reported
}

type clientReport struct {
	Name       string         `json:"client"`
	Kinds      []kindReport   `json:"kinds"`
	Created    []createdOrder `json:"created"`
	NotCounted int            `json:"not_counted"`       // requests after a bound was reached
	Without    []string       `json:"without,omitempty"` // what a program says that it does not do
	asked      bool           // it is a program
}

type kindReport struct {
	Kind   conformance.Kind `json:"kind"`
	Silent int              `json:"without_outcome"` // calls that have ended
	Round  int              `json:"round"`
	Met    int              `json:"met"` // faults of the round
	Of     int              `json:"of"`
	States map[string]int   `json:"states"` // how many calls are in each
	Checks []verdict        `json:"checks"`
}

type verdict struct {
	Check   string `json:"check"`
	Means   string `json:"means"` // to the shop's owner
	Promise string `json:"promise"`
	Shop    string `json:"otherwise"`
	Verdict string `json:"verdict"`         // passed, failed, not met
	Calls   int    `json:"calls,omitempty"` // that failed
	Fault   string `json:"fault,omitempty"` // of the first of them
	Call    string `json:"call,omitempty"`
	Trouble string `json:"trouble,omitempty"`
	Story   string `json:"story,omitempty"`
	// Also has a failed call for each other fault.
	Also   []string `json:"also,omitempty"`
	weight conformance.Weight
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

func (s *Server) report() *report {
	s.mu.Lock()
	clients := slices.Clone(s.clients)
	r := &report{
		Seed: s.seed, NotJudged: []string{}, NotCounted: s.beyond,
		Clients: []clientReport{}, Latest: []callReport{},
		MostClients: mostClients, MostCalls: mostCalls, MostExchanges: mostExchanges,
		MostMegabytes: mostBytes >> 20,
		Orders:        len(s.faults(conformance.Orders, timesAlone)), Outcomes: OutcomesPath,
	}
	s.mu.Unlock()
	for _, cl := range clients {
		cl.view(func() { r.add(cl) })
	}
	slices.SortStableFunc(r.Latest, func(a, b callReport) int { return b.At.Compare(a.At) })
	r.Latest = r.Latest[:min(latestCalls, len(r.Latest))]
	slices.Sort(r.NotJudged)
	r.NotJudged = slices.Compact(r.NotJudged)
	return r
}

// add adds what there is of a client. Its caller is in view.
func (r *report) add(cl *client) {
	names := cl.names()
	cr := clientReport{Name: cl.name, Created: []createdOrder{}, NotCounted: cl.beyond, Without: cl.without,
		asked: cl.store == nil}
	for _, kind := range kinds {
		k := cl.judge(kind, names)
		cr.Kinds = append(cr.Kinds, k)
		for _, v := range k.NotJudged() {
			r.NotJudged = append(r.NotJudged, v.Check)
		}
	}
	for _, c := range cl.calls {
		for _, e := range c.Exchanges {
			if e.Created != "" {
				item, qty := e.Order()
				cr.Created = append(cr.Created, createdOrder{e.Created, printable(item), qty, names[&c.Call]})
			}
		}
	}
	r.Clients = append(r.Clients, cr)
	latest := slices.SortedStableFunc(slices.Values(cl.calls),
		func(a, b *faults.Call) int { return lastAt(&b.Call).Compare(lastAt(&a.Call)) })
	for _, c := range latest[:min(latestCalls, len(latest))] {
		r.Latest = append(r.Latest, callReport{
			cl.name, names[&c.Call], c.Fault, stateOf(&c.Call), lastAt(&c.Call), printable(c.Story()),
		})
	}
}

// lastAt returns when the last request of a call came, or the call began.
func lastAt(c *conformance.Call) time.Time {
	if n := len(c.Exchanges); n > 0 {
		return c.Exchanges[n-1].At
	}
	return c.Began
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
		if c.Item != "" {
			names[&c.Call] += fmt.Sprintf(" (%s)", shown(c.Item))
		}
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
		if state == underWay {
			continue
		}
		calls = append(calls, &c.Call)
		if c.Results == nil {
			kr.Silent++
		}
	}
	for _, check := range conformance.Checks(kind) {
		if check.Name == takesADay {
			continue
		}
		v := verdict{Check: check.Name, Promise: check.Promise, Shop: check.Harm, Verdict: "not met",
			Means: check.Weight.String(), weight: check.Weight}
		met, violations := check.Judge(calls)
		if check.Name == "whole-list" {
			violations = append(violations, left(calls)...)
		}
		switch {
		case violations != nil:
			of := violations[0].Call
			v.Verdict, v.Calls, v.Fault = "failed", len(violations), printable(violations[0].Text)
			v.Call, v.Trouble, v.Story = names[of], of.Fault, printable(of.Story())
			v.Fault += unless[check.Name]
			told := map[string]bool{of.Fault: true}
			for _, other := range violations {
				if f := other.Call.Fault; !told[f] {
					told[f] = true
					v.Also = append(v.Also, fmt.Sprintf("%s, with the fault “%s”", names[other.Call], f))
				}
			}
		case kr.Silent > 0 && slices.Contains(byOutcome, check.Name):
			v.Verdict = "not judged"
		case met:
			v.Verdict = "passed"
		}
		kr.Checks = append(kr.Checks, v)
	}
	return kr
}

// left returns the walks of a client that has no reason to fail, and stops after each first page, although
// it has a next. One that reports what it has read is judged by that.
func left(calls []*conformance.Call) (violations []conformance.Violation) {
	for _, c := range calls {
		if slices.ContainsFunc(c.Exchanges, asksForMore) {
			return nil
		}
		last := c.Last()
		if c.Clean && c.Results == nil && last.Answer.Status == http.StatusOK && !last.LastPage &&
			time.Since(last.At) >= quiet {
			violations = append(violations, conformance.Violation{Call: c, Text: fmt.Sprintf(
				"The walk ended after request %d, although its page has a next.", len(c.Exchanges))})
		}
	}
	if len(violations) < 3 { // which may be walks that the client goes on with
		return nil
	}
	return violations
}

const (
	underWay = "under way"
	notFinal = "not final"
)

// stateOf says how far a call of a client is that cannot be asked.
func stateOf(c *conformance.Call) string {
	switch last := c.Last(); {
	case last == nil && len(c.Results) > 0:
		return "nothing was sent"
	case last == nil:
		return underWay
	case slices.ContainsFunc(c.Exchanges, func(e *conformance.Exchange) bool { return !e.Done }):
		return underWay
	case last.Meaning() == conformance.Retryable && c.Kind == conformance.Orders:
		return notFinal
	case last.Meaning() == conformance.Created:
		return "created"
	case c.Kind == conformance.Orders:
		return "with a final answer but no order"
	}
	return "answered"
}

func (k kindReport) Failed() []verdict { return k.with("failed") }
func (k kindReport) Passed() []verdict { return k.with("passed") }

func (k kindReport) NotMet() []verdict    { return k.with("not met") }
func (k kindReport) NotJudged() []verdict { return k.with("not judged") }

func (k kindReport) with(verdict string) (out []verdict) {
	for _, v := range k.Checks {
		if v.Verdict == verdict {
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
		b.Write(s.JSON())
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
