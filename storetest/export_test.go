package storetest

import (
	"slices"
	"testing"
	"time"

	"example.com/storefront"
)

// Promises returns the names of all subtests, with their groups.
func Promises() (names []string) {
	for _, g := range groups() {
		for _, p := range g.promises {
			names = append(names, g.name+"/"+p.sentence)
		}
	}
	return names
}

// Failures returns the subtests that fail, in sequence, each once for each of its failures, and what
// these say. It runs those of some groups, in bubbles or, with a patience for calls, in real time.
func Failures(t *testing.T, groupNames []string, patience time.Duration,
	newStore func(*testing.T, Contents) storefront.Store) (subtests, texts []string) {
	s := &suite{makeStore: newStore, patience: patience, bubble: patience == 0}
	s.told = func(subtest, failure string) {
		subtests, texts = append(subtests, subtest), append(texts, failure)
	}
	run(t, s, slices.DeleteFunc(groups(), func(g group) bool { return !slices.Contains(groupNames, g.name) }))
	return subtests, texts
}
