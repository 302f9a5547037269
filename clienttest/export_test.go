package clienttest

import (
	"slices"
	"testing"

	"example.com/storefront/internal/trouble"
)

// Broken returns the names of the checks that fail, sorted, each once. It runs the checks of
// the kinds that have one of these names.
func Broken(t *testing.T, seed uint64, names []string, newClient func(*testing.T, Service) Client) []string {
	s := &suite{newClient: newClient, pace: trouble.Days, seed: seed}
	for _, kind := range kinds {
		if slices.ContainsFunc(trouble.Checks(kind), func(c *trouble.Check) bool { return slices.Contains(names, c.Name) }) {
			s.kinds = append(s.kinds, kind)
		}
	}
	var broken []string
	s.broken = func(check string) { broken = append(broken, check) }
	run(t, s)
	slices.Sort(broken)
	return slices.Compact(broken)
}

var kinds = []trouble.Kind{trouble.Orders, trouble.Users, trouble.Widgets, trouble.Products}

// Checks returns the names of all checks.
func Checks() []string {
	var names []string
	for _, kind := range kinds {
		for _, c := range trouble.Checks(kind) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
