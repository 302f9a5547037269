package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/audit"
)

// report writes what a result comes to, as it may be pasted into a ticket, and returns the exit status. It
// takes why the audit was not started, if it was not.
func report(out io.Writer, c audit.Config, r *audit.Result, notStarted *audit.NotStarted) (status int,
	err error) {
	status, verdict := judge(r, r.Acknowledged*len(c.URLs), notStarted)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "exactlyonce, %s\n\n", r.Began.UTC().Format("2006-01-02 15:04:05 MST"))
	if status != statusNotStarted { // else there is nothing to say but why
		writeFigures(w, c, r)
	}
	fmt.Fprintln(w, verdict)
	for _, faults := range r.Faults { // of each kind
		for _, f := range faults {
			fmt.Fprintf(w, "\n%s\n", f)
		}
	}
	return status, w.Flush()
}

// judge returns the exit status and says it in words. There are so many replays if every key is replayed.
func judge(r *audit.Result, replays int, notStarted *audit.NotStarted) (status int, verdict string) {
	var broken []string
	for kind, n := range r.Broken[:audit.Unanswered] {
		if n > 0 {
			broken = append(broken, fmt.Sprintf("%d %s", n, audit.Kind(kind)))
		}
	}
	const unknown = "Not known whether every promise was kept: "
	unanswered, unexpected := r.Broken[audit.Unanswered], r.Broken[audit.Unexpected]
	switch {
	case broken != nil:
		return statusBroken, "Promises were broken: " + strings.Join(broken, ", ") + "."
	case notStarted != nil:
		return statusNotStarted, notStartedVerdict(notStarted, r.Acknowledged)
	case unanswered > 0:
		return statusBroken, fmt.Sprintf("%s%d %s.", unknown, unanswered, audit.Unanswered)
	case r.Old > 0:
		return statusBroken, unknown + fmt.Sprintf("of %d replays, %d were left out, as their keys were "+
			"older than %.0f hours.", replays, r.Old, audit.OldestKey.Hours())
	case r.Replayed < replays && unexpected > 0:
		return statusBroken, fmt.Sprintf("%s%d %s.", unknown, unexpected, audit.Unexpected)
	case r.Replayed < replays:
		return statusBroken, unknown + "the replaying was ended early."
	case unexpected > 0:
		return statusFailed, fmt.Sprintf("The shop failed: %d %s. "+
			"No order was found lost, created twice or changed.", unexpected, audit.Unexpected)
	case r.Failed == r.Statuses[http.StatusConflict]: // which is right while an order is sent twice at once
		return statusKept, "Every promise was kept. But no request failed meanwhile: did you make anything fail?"
	}
	return statusKept, "Every promise was kept."
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
	return verdict + "\n\n" + strings.TrimSpace(n.Detail)
}

func writeFigures(w io.Writer, c audit.Config, r *audit.Result) {
	line := func(name string, value any, note string) {
		if note != "" {
			note = " (" + note + ")"
		}
		fmt.Fprintf(w, "%s\t%v%s\n", name, value, note)
	}
	line("URLs", strings.Join(shownURLs(c), ", "), "")
	line("clients", c.Clients, fmt.Sprintf("seed %d, timeout %v, patience %v", c.Seed, c.Timeout, c.Patience))
	line("keys", c.Prefix+"…", "")
	line("item", cmp.Or(c.Item, "each order its own"), "")
	line("fields", cmp.Or(string(c.Fields), "none"), "")
	// without values, as some are secret
	line("headers", cmp.Or(strings.Join(slices.Sorted(maps.Keys(c.Header)), ", "), "none"), "")

	note := ""
	if n := r.Sent - r.Acknowledged; n > 0 {
		note = fmt.Sprintf("%d others were sent, but not acknowledged", n)
	}
	fmt.Fprintln(w)
	line("acknowledged", fmt.Sprintf("%d of %d", r.Acknowledged, c.Orders), note)
	for kind, n := range r.Broken {
		line(audit.Kind(kind).String(), n, "")
	}

	requests := 0
	for _, n := range r.Outcomes {
		requests += n
	}
	if note = ""; r.Failed > 0 {
		note = fmt.Sprintf("no answer: %d, ", r.Outcomes[audit.NoAnswer])
		for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
			note += fmt.Sprintf("%d: %d, ", status, r.Statuses[status])
		}
		note += "the last: " + r.Failure
	}
	fmt.Fprintln(w)
	line("requests", requests, "while orders were created")
	line("acknowledged", r.Outcomes[audit.Acknowledged], fmt.Sprintf("%d as replays", r.Replays))
	line("hung up early, on purpose", r.Outcomes[audit.HungUp], "")
	line("failed", r.Failed, note)
	line("retries of orders", r.Retries, "")
	line("orders read", r.Read, "by their keys, if the shop serves orders")
	line("keys replayed", fmt.Sprintf("%d of %d", r.Replayed, r.Acknowledged*len(c.URLs)),
		"each key by each URL")
	line("creating", rounded(r.Creating), fmt.Sprintf("at most %.0f hours, as a shop may forget keys after %.0f",
		audit.LongestCreating.Hours(), storefront.KeyLifetime.Hours()))
	line("replaying", rounded(r.Replaying), "")
	line("longest gap", rounded(r.LongestGap),
		fmt.Sprintf("from %v to %v after the start", rounded(r.GapBegan), rounded(r.GapBegan+r.LongestGap)))
	for _, p := range []float64{50, 90, 99, 99.9, 100} {
		line(fmt.Sprintf("latency of orders, p%v", p), percentile(r.Latencies, p), "")
	}
	fmt.Fprintln(w)
}

// percentile returns what so many percent of the ascending values do not exceed, or 0 if there are none.
func percentile(values []time.Duration, percent float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	return rounded(values[min(int(percent*float64(len(values))/100), len(values)-1)])
}

// rounded leaves out the digits that say nothing.
func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}
