package faultreport

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/storefront/internal/conformance"
)

// quiet is how long nothing comes from clients that have done all before they count as done.
const quiet = 10 * time.Second

// Wait returns when clients have met all faults of what they do, and nothing more comes, or when none has
// come back for longer than a client pauses.
func (s *Server) Wait(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for !s.settled() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) settled() bool {
	var last time.Time
	all, open := true, 0
	s.mu.Lock()
	clients := slices.Clone(s.clients)
	s.mu.Unlock()
	for _, cl := range clients {
		cl.view(func() {
			for _, r := range cl.rounds {
				all = all && (r.number > 1 || len(r.rest) == 0)
			}
			for _, c := range cl.calls {
				at, reported := lastAt(&c.Call), false
				if n := len(c.Exchanges); n > 0 && c.Exchanges[n-1].Ended.After(at) {
					at = c.Exchanges[n-1].Ended
				}
				if n := len(c.Results); n > 0 {
					at, reported = latest(at, c.Results[n-1].At), c.Results[n-1].To == len(c.Exchanges)
				}
				last = latest(last, at)
				state := stateOf(&c.Call)
				all = all && (reported || state != notFinal)
				if state == underWay {
					open++
				}
			}
		})
	}
	since := time.Since(last)
	return len(clients) > 0 && open == 0 && (all && since >= quiet || since >= conformance.Patience+quiet)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Status returns the exit status of a program that judges clients: 1 if one has failed a check, else 3 if
// there are checks that could not be judged, or faults that were not met.
func (s *Server) Status() int {
	r := s.report()
	kinds := r.kinds()
	total, incomplete := count(kinds...), len(r.Clients) == 0
	for _, k := range kinds {
		incomplete = incomplete || k.Round == 1 && k.Met < k.Of
	}
	switch {
	case total["failed"] > 0:
		return 1
	case total["not judged"] > 0 || incomplete:
		return 3
	}
	return 0
}

// kinds returns what clients have done.
func (r *report) kinds() (all []kindReport) {
	for _, c := range r.Clients {
		for _, k := range c.Kinds {
			if k.Round > 0 {
				all = append(all, k)
			}
		}
	}
	return all
}

// Tally says how many checks have which verdict, once there is a client.
func (r *report) Tally() string {
	if len(r.Clients) == 0 {
		return ""
	}
	return count(r.kinds()...).String()
}

// A tally is how many checks have which verdict.
type tally map[string]int

func count(kinds ...kindReport) tally {
	verdicts := make(tally)
	for _, k := range kinds {
		for _, v := range k.Checks {
			verdicts[v.Verdict]++
		}
	}
	return verdicts
}

func (t tally) String() string {
	text := fmt.Sprintf("%d passed", t["passed"])
	for _, verdict := range []string{"failed", "not met", "not judged"} {
		if n := t[verdict]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, verdict)
		}
	}
	return text
}

// Summary says in lines which checks clients have failed, those that the shop's owner would mind most first.
func (s *Server) Summary() string {
	r := s.report()
	if len(r.Clients) == 0 {
		return "No client has met a fault.\n"
	}
	var b strings.Builder
	total := count(r.kinds()...)
	b.WriteString(total.String())
	alone := func(c clientReport) bool { return !c.asked }
	if total["not judged"] > 0 && slices.ContainsFunc(r.Clients, alone) {
		b.WriteString(": report your outcomes, by POST to " + OutcomesPath)
	}
	b.WriteString("\n")
	told := make(map[string]bool)
	for _, c := range r.Clients {
		var failed []verdict
		for _, k := range c.Kinds {
			if k.Round == 0 {
				continue
			}
			fmt.Fprintf(&b, "%s: %s (%s): %s", c.Name, k.Kind, k.Calls(), count(k))
			if c.asked && k.Met == 0 && k.Failed() != nil {
				b.WriteString("; the faults were not tried, as it fails where nothing is wrong")
			} else if k.Round == 1 && k.Met < k.Of {
				fmt.Fprintf(&b, "; %d of %d faults were not met", k.Of-k.Met, k.Of)
			}
			if k.Silent > 0 {
				fmt.Fprintf(&b, "; %d have no outcome", k.Silent)
			}
			b.WriteString("\n")
			k.name(&b, "not met")
			k.name(&b, "not judged")
			failed = append(failed, k.Failed()...)
		}
		for _, text := range c.Without {
			fmt.Fprintf(&b, "%s: not tried: %s\n", c.Name, text)
		}
		slices.SortStableFunc(failed, func(a, b verdict) int { return cmp.Compare(a.weight, b.weight) })
		for _, v := range failed {
			fmt.Fprintf(&b, "\n%s: failed %s in %s%s, with the fault “%s”: %s\n", v.Means, v.Check, v.Call,
				v.more(), v.Trouble, v.Fault)
			fmt.Fprintf(&b, "  The broken promise: %s\n  Otherwise: %s\n", v.Promise, v.Shop)
			if len(v.Also) > 0 {
				const most = 8
				fmt.Fprintf(&b, "  Also in %s", strings.Join(v.Also[:min(most, len(v.Also))], ";\n    "))
				if more := len(v.Also) - most; more > 0 {
					fmt.Fprintf(&b, ";\n    and with %d other faults", more)
				}
				b.WriteString("\n")
			}
			if story := c.Name + "\n" + v.Trouble; !told[story] {
				told[story] = true
				b.WriteString(v.Story)
			}
		}
	}
	return b.String()
}

// name names the checks that have a verdict.
func (k kindReport) name(b *strings.Builder, verdict string) {
	before := "  " + verdict + ": "
	for _, v := range k.with(verdict) {
		b.WriteString(before + v.Check)
		before = ", "
	}
	if before == ", " {
		b.WriteString("\n")
	}
}

// JSON returns the report.
func (s *Server) JSON() []byte { return s.report().json() }

func (r *report) json() []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	e.Encode(r)
	return []byte(b.String())
}

type (
	testSuites struct {
		XMLName xml.Name    `xml:"testsuites"`
		Suites  []testSuite `xml:"testsuite"`
	}
	testSuite struct {
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []testCase `xml:"testcase"`
	}
	testCase struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Failure *message `xml:"failure"`
		Skipped *message `xml:"skipped"`
	}
	message struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit returns the verdicts as CI systems read them.
func (s *Server) JUnit() []byte {
	var all testSuites
	for _, c := range s.report().Clients {
		for _, k := range c.Kinds {
			if k.Round == 0 {
				continue
			}
			suite := testSuite{Name: fmt.Sprintf("%s: %s", c.Name, k.Kind)}
			for _, v := range k.Checks {
				test := testCase{Class: string(k.Kind), Name: v.Check}
				switch v.Verdict {
				case "failed":
					suite.Failures++
					where := fmt.Sprintf("In %s%s, with the fault “%s”. ", v.Call, v.more(), v.Trouble)
					test.Failure = &message{v.Means + ": " + v.Fault, where + v.Promise + "\n" + v.Story}
				case "passed":
				default:
					suite.Skipped++
					test.Skipped = &message{Message: v.Verdict}
				}
				suite.Tests++
				suite.Cases = append(suite.Cases, test)
			}
			all.Suites = append(all.Suites, suite)
		}
	}
	text, _ := xml.MarshalIndent(all, "", "  ") // has no errors
	return append([]byte(xml.Header), append(text, '\n')...)
}
