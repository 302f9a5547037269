package audit

import (
	"maps"
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

	Outcomes [Outcomes]int // of the requests of the creating
	Statuses map[int]int
	Timeouts int    // requests without an answer that took too long
	Failure  string // the last reason for having no answer
	Replays  int    // acknowledgements of the creating that were marked as replays
	Retries  int    // times that an order was sent again
	Read     int    // times that a shop that serves orders was asked for an acknowledged one, and answered
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
	r := a.result
	r.Progress = a.current()
	r.Statuses = maps.Clone(r.Statuses)
	for kind, faults := range r.Faults {
		r.Faults[kind] = slices.Clone(faults)
	}
	r.RequestLatencies = slices.Sorted(slices.Values(r.RequestLatencies))
	r.OrderLatencies = slices.Sorted(slices.Values(r.OrderLatencies))
	return &r
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
