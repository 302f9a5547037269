package clienttest

import (
	"net/http"
	"slices"
	"testing"

	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/conformance/drive"
	"example.com/storefront/internal/faults"
)

// A Trial is a run of some kinds of faults.
type Trial struct {
	Kinds []conformance.Kind
	Waits bool // whether the clients meet the outage in which their waits are compared
}

// TrialOf returns the trial of the kinds that have a check with one of these names.
func TrialOf(names []string) Trial {
	trial := Trial{Waits: slices.Contains(names, "waits-differ") || slices.Contains(names, "waits-grow")}
	for _, kind := range drive.Kinds {
		if slices.ContainsFunc(conformance.Checks(kind),
			func(c *conformance.Check) bool { return slices.Contains(names, c.Name) }) {
			trial.Kinds = append(trial.Kinds, kind)
		}
	}
	return trial
}

// Broken returns the names of the checks that fail, sorted, each once.
func (trial Trial) Broken(t *testing.T, newClient func(Service) *drive.Client) []string {
	s := &suite{Run: drive.Run{Pace: faults.Days, Seed: *seed}}
	s.New = func(url string, way http.RoundTripper) *drive.Client { return newClient(Service{url, way}) }
	s.leftOut = func(m *drive.Meeting) bool {
		return !slices.Contains(trial.Kinds, m.Kind) || !trial.Waits && m.Fault.Name == faults.Outage
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
