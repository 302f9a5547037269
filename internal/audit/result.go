package audit

import (
	"math"
	"slices"
	"time"
)

// A Result is what an Audit has found.
type Result struct {
	Progress
	Began     time.Time
	Creating  time.Duration // how long it took
	Replaying time.Duration
	GaveUp    bool // the creating ended because nothing was acknowledged for long

	Requests []Request // of the creating, in the sequence in which they ended
	Statuses map[int]int
	Timeouts int    // requests without an answer that took too long
	Failure  string // the last reason for having no answer
	Replays  int    // acknowledgements of the creating that were marked as replays
	Retries  int    // times that an order was sent again
	Again    int    // times that a key was sent again because it was not answered, in the replaying

	// LongestGap is the longest time of the creating in which no order was
	// acknowledged, and GapBegan is when it did, since the creating began.
	LongestGap, GapBegan time.Duration

	RequestLatencies []time.Duration // of the acknowledged requests, ascending
	OrderLatencies   []time.Duration // of the orders, from the first try to the acknowledgement, ascending

	Broken [Kinds]int     // promises, by kind
	Faults [Kinds][]Fault // the first ten of each kind
}

// Result returns what was found so far.
func (a *Audit) Result() *Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &Result{
		Progress:       a.current(),
		Began:          a.began,
		Creating:       a.creating,
		Replaying:      a.replaying,
		GaveUp:         a.gaveUp,
		Requests:       slices.Clone(a.requests),
		Statuses:       make(map[int]int),
		Timeouts:       a.timeouts,
		Failure:        a.failure,
		Replays:        a.replays,
		Retries:        a.retries,
		Again:          a.again,
		OrderLatencies: slices.Sorted(slices.Values(a.latencies)),
		Broken:         a.broken,
	}
	for status, n := range a.statuses {
		r.Statuses[status] = n
	}
	for kind, faults := range a.faults {
		r.Faults[kind] = slices.Clone(faults)
	}
	for _, request := range r.Requests {
		if request.Outcome == Acknowledged {
			r.RequestLatencies = append(r.RequestLatencies, request.Took)
		}
	}
	slices.Sort(r.RequestLatencies)
	r.GapBegan, r.LongestGap = longestGap(a.acks, a.creating)
	return r
}

// longestGap returns the longest time between 0 and end without any of the times
// in it, which ascend.
func longestGap(times []time.Duration, end time.Duration) (began, gap time.Duration) {
	last := time.Duration(0)
	for _, at := range append(slices.Clone(times), end) {
		if at-last > gap {
			began, gap = last, at-last
		}
		last = at
	}
	return began, gap
}

// Percentile returns the value that a share p of the ascending values do not
// exceed, or 0 if there are none. A p of 1 is the greatest.
func Percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	rank := int(math.Ceil(p*float64(len(values)) - 1e-9)) // a product of floats may be a little too great
	return values[max(rank, 1)-1]
}
