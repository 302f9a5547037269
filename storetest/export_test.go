package storetest

import (
	"slices"
	"testing"
	"time"

	"example.com/storefront"
)

// Promises returns the names of all subtests, with their groups.
func Promises() []string {
	var out []string
	for _, g := range groups() {
		for _, p := range g.promises {
			out = append(out, g.name+"/"+p.sentence)
		}
	}
	return out
}

// RunWithPatience is like Run, but waits for a call no longer than patience.
func RunWithPatience(t *testing.T, patience time.Duration, newStore func(*testing.T, Contents) storefront.Store) {
	run(t, &suite{makeStore: newStore, patience: patience}, groups())
}

// RunGroups is like RunSynctest, but runs the subtests of some groups only.
func RunGroups(t *testing.T, names []string, newStore func(*testing.T, Contents) storefront.Store) {
	some := slices.DeleteFunc(groups(), func(g group) bool { return !slices.Contains(names, g.name) })
	run(t, &suite{makeStore: newStore, patience: time.Minute, bubble: true}, some)
}
