package clienttest

import (
	"slices"
	"testing"

	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/conformance/drive"
	"example.com/storefront/internal/faults"
)

// Broken returns the names of the checks that fail, sorted, each once. It runs the checks of
// the kinds that have one of these names.
func Broken(t *testing.T, seed uint64, names []string, newClient func(*testing.T, Service) Client) []string {
	s := &suite{Run: drive.Run{Pace: faults.Days, Seed: seed}, newClient: newClient}
	for _, kind := range drive.Kinds {
		if slices.ContainsFunc(conformance.Checks(kind),
			func(c *conformance.Check) bool { return slices.Contains(names, c.Name) }) {
			s.kinds = append(s.kinds, kind)
		}
	}
	var broken []string
	s.broken = func(check string) { broken = append(broken, check) }
	run(t, s)
	slices.Sort(broken)
	return slices.Compact(broken)
}

// Checks returns the names of all checks.
func Checks() []string {
	var names []string
	for _, kind := range drive.Kinds {
		for _, c := range conformance.Checks(kind) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
