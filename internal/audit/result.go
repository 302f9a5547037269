package audit

import (
	"maps"
	"slices"
	"time"
)

// A Result is what an Audit has found.
type Result struct {
	Progress
	Began     time.Time
	Creating  time.Duration // how long it took
	Replaying time.Duration

	Outcomes [Outcomes]int // of the requests of the creating
	Statuses map[int]int   // of those that say to try again
	Replays  int           // acknowledgements of the creating that were marked as replays
	Retries  int           // times that an order was sent again
	Read     int           // times that a shop that serves orders has shown an acknowledged one, or none
	Again    int           // times that a key was sent again because it was not answered, in the replaying
	Old      int           // keys that were too old to be sent again, times replicas

	// LongestGap is the longest time of the creating in which no order was
	// acknowledged, and GapBegan is when it did, since the creating began.
	LongestGap, GapBegan time.Duration

	Latencies []time.Duration // of the orders, from the first try to the acknowledgement, ascending

	Broken [Kinds]int     // promises, by kind
	Faults [Kinds][]Fault // the first of each kind
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
	r.Latencies = slices.Sorted(slices.Values(r.Latencies))
	return &r
}
