package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/storefront/internal/audit"
)

// A summary is what a result comes to, for people.
type summary struct {
	Status     int    // the exit status
	Verdict    string // says it in words
	Detail     string // of the verdict: why nothing was acknowledged
	Began      time.Time
	Parameters []figure
	Promises   []figure
	Requests   []figure
	Latencies  []latency
	Result     *audit.Result
}

// A figure is something that was counted, measured or given.
type figure struct {
	Name, Value string
	Note        string // what it has to do with
}

// A latency is a percentile of latencies.
type latency struct {
	Name    string
	Request string // of the acknowledged requests
	Order   string // of the orders, from the first try to the acknowledgement
}

// summarize takes why the audit was not started, if it was not.
func summarize(c audit.Config, r *audit.Result, notStarted *audit.NotStarted) *summary {
	s := &summary{Began: r.Began.UTC().Round(time.Second), Result: r}
	count := func(n int) string { return fmt.Sprint(n) }
	replays := r.Acknowledged * len(c.URLs)

	note := ""
	if n := r.Sent - r.Acknowledged; n > 0 {
		note = fmt.Sprintf("%d others were sent, but not acknowledged", n)
	}
	s.Promises = append(s.Promises,
		figure{"acknowledged", fmt.Sprintf("%d of %d", r.Acknowledged, c.Orders), note})
	var broken, open []string // open: what may be all right
	for kind, n := range r.Broken {
		kind := audit.Kind(kind)
		s.Promises = append(s.Promises, figure{kind.String(), count(n), ""})
		switch text := fmt.Sprintf("%d %s", n, kind); {
		case n == 0:
		case kind >= audit.Unanswered:
			open = append(open, text)
		default:
			broken = append(broken, text)
		}
	}
	switch {
	case broken != nil:
		s.Status, s.Verdict = statusBroken, "Promises were broken: "+strings.Join(broken, ", ")+"."
	case notStarted != nil:
		s.Status, s.Verdict = statusNotStarted, notStartedVerdict(notStarted, r.Acknowledged)
		s.Detail = strings.TrimSpace(notStarted.Detail)
	case r.Broken[audit.Unanswered] > 0:
		s.Status, s.Verdict = statusBroken, "Not known whether every promise was kept: "+
			strings.Join(open, ", ")+"."
	case r.Replayed < replays:
		s.Status, s.Verdict = statusBroken, "Not known whether every promise was kept: "+
			"the replaying was ended early."
	case open != nil:
		s.Status, s.Verdict = statusFailed, "The shop failed: "+open[0]+
			". No order was found lost, created twice or changed."
	default:
		s.Status, s.Verdict = statusKept, "Every promise was kept."
	}

	failed, requests := r.Outcomes[audit.NoAnswer], 0
	for _, n := range r.Outcomes {
		requests += n
	}
	var statuses []string
	for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
		if status != http.StatusConflict { // which is right while an order is sent twice at once
			failed += r.Statuses[status]
		}
		statuses = append(statuses, fmt.Sprintf("%d: %d", status, r.Statuses[status]))
	}
	if s.Status == statusKept && failed == 0 {
		s.Verdict += " But no request failed meanwhile: did you make anything fail?"
	}
	failure := ""
	if r.Failure != "" {
		failure = "the last: " + r.Failure
		if r.Timeouts > 0 {
			failure = fmt.Sprintf("%d timed out; %s", r.Timeouts, failure)
		}
	}
	gap, longest := "", "–"
	if r.LongestGap > 0 {
		gap, longest = "from the start", showDuration(r.LongestGap)
		if r.GapBegan > 0 {
			gap = fmt.Sprintf("from %s to %s after the start", showDuration(r.GapBegan),
				showDuration(r.GapBegan+r.LongestGap))
		}
	}
	s.Requests = []figure{
		{"requests", count(requests), "while orders were created"},
		{"acknowledged", count(r.Outcomes[audit.Acknowledged]), fmt.Sprintf("%d as replays", r.Replays)},
		{"told to try again", count(r.Outcomes[audit.TryAgain]), strings.Join(statuses, ", ")},
		{"no answer", count(r.Outcomes[audit.NoAnswer]), failure},
		{"unexpected answers", count(r.Outcomes[audit.Odd]), ""},
		{"hung up early, on purpose", count(r.Outcomes[audit.HungUp]), ""},
		{"retries of orders", count(r.Retries), ""},
		{"orders read", count(r.Read), "by their keys, if the shop serves orders"},
		{"keys replayed", fmt.Sprintf("%d of %d", r.Replayed, replays), "each key by each URL"},
		{"longest gap", longest, gap},
	}
	for _, p := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}} {
		s.Latencies = append(s.Latencies, latency{
			p.name,
			showPercentile(r.RequestLatencies, p.share),
			showPercentile(r.OrderLatencies, p.share),
		})
	}

	item := c.Item
	if item == "" {
		item = "each order its own"
	}
	s.Parameters = []figure{
		{"URLs", strings.Join(shownURLs(c), ", "), ""},
		{"orders", count(c.Orders), ""},
		{"clients", count(c.Clients), ""},
		{"seed", fmt.Sprint(c.Seed), ""},
		{"keys", c.Prefix + "…", ""},
		{"item", item, ""},
		{"fields", string(c.Fields), ""},
		// without values, as some are secret
		{"headers", strings.Join(slices.Sorted(maps.Keys(c.Header)), ", "), ""},
		{"timeout", c.Timeout.String(), ""},
		{"patience", c.Patience.String(), ""},
		{"creating", showDuration(r.Creating), ""},
		{"replaying", showDuration(r.Replaying), ""},
	}
	s.Parameters = slices.DeleteFunc(s.Parameters,
		func(f figure) bool { return f.Value == "" })
	return s
}

// notStartedVerdict says what happened, and for an answer that is not the shop's what is
// most likely wrong.
func notStartedVerdict(n *audit.NotStarted, acknowledged int) string {
	verdict := "Nothing was acknowledged, so there was no promise to keep."
	if acknowledged > 0 {
		verdict = "Nothing was tried but the first order, which another URL has acknowledged."
	}
	verdict += fmt.Sprintf(" %s: %s.", n.URL, n.Failure)
	switch {
	case n.Status == http.StatusUnauthorized, n.Status == http.StatusForbidden:
		verdict += " Is a -header missing that signs in?"
	case n.Status >= 300 && n.Status < 400:
		verdict += " Is the URL right, and is a -header missing that signs in?"
	case n.Status == http.StatusUnprocessableEntity:
		verdict += " Does the shop take such orders? -item and -fields say what is ordered."
	case n.Status == http.StatusRequestTimeout, n.Status == http.StatusConflict,
		n.Status == http.StatusTooManyRequests:
	case n.Status > 0 && n.Status < 500, n.Status == http.StatusNotImplemented:
		verdict += " Is the URL right?"
	}
	return verdict
}

// showPercentile writes a percentile, if there are values.
func showPercentile(values []time.Duration, p float64) string {
	if len(values) == 0 {
		return "–"
	}
	return showDuration(audit.Percentile(values, p))
}

// showDuration writes three digits of a duration, with a unit.
func showDuration(d time.Duration) string {
	value, unit := float64(d)/float64(time.Millisecond), "ms"
	if d >= time.Second {
		value, unit = d.Seconds(), "s"
	}
	decimals := 0
	switch {
	case value < 9.995:
		decimals = 2
	case value < 99.95:
		decimals = 1
	}
	return fmt.Sprintf("%.*f %s", decimals, value, unit)
}

// writeText writes the summary as it may be pasted into a ticket.
func (s *summary) writeText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	table := func(figures []figure) {
		for _, f := range figures {
			value := f.Value
			if f.Note != "" {
				value += " (" + f.Note + ")"
			}
			fmt.Fprintf(t, "%s\t%s\n", f.Name, value)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "exactlyonce, %s\n\n", s.Began.Format("2006-01-02 15:04:05 MST"))
	if s.Status != statusNotStarted { // else there is nothing to say but why
		table(s.Parameters)
		table(s.Promises)
		table(s.Requests)
		fmt.Fprintln(t, "latency\tacknowledged request\torder, first try to acknowledgement")
		for _, l := range s.Latencies {
			fmt.Fprintf(t, "%s\t%s\t%s\n", l.Name, l.Request, l.Order)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t, s.Verdict)
	if s.Detail != "" {
		fmt.Fprintf(t, "\n%s\n", s.Detail)
	}
	for _, faults := range s.Result.Faults { // of each kind
		for _, f := range faults[:min(3, len(faults))] {
			fmt.Fprintf(t, "\n%s\n", f)
		}
	}
	return t.Flush()
}
