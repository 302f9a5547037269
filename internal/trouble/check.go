package trouble

import "slices"

// A Check says of calls whether the client did right.
type Check struct {
	Name    string // such as one-key
	Promise string // that a right client keeps
	Shop    string // what happens to a shop otherwise

	each func(c *Call) (met bool, fault string)
	all  func(calls []*Call) (met bool, of *Call, fault string)
}

// MostRequests is how many requests a call can have before its client counts as one that
// never ends.
const MostRequests = 5000

// A Fault is a broken promise.
type Fault struct {
	Call *Call
	Text string
}

// Together is whether a check needs the calls of several clients.
func (k *Check) Together() bool { return k.all != nil }

// Judge judges calls of a kind, and reports whether they were such that a wrong client could
// be seen. No request may be under way.
func (k *Check) Judge(calls []*Call) (met bool, faults []Fault) {
	if k.all != nil {
		met, of, fault := k.all(calls)
		if fault != "" {
			faults = append(faults, Fault{of, fault})
		}
		return met, faults
	}
	for _, c := range calls {
		m, fault := k.each(c)
		met = met || m
		if fault != "" {
			faults = append(faults, Fault{c, fault})
		}
	}
	return met, faults
}

// Checks returns those of a kind.
func Checks(kind Kind) []*Check {
	return slices.Clone(map[Kind][]*Check{Orders: orderChecks, Users: walkChecks, Widgets: walkChecks, Products: productChecks}[kind])
}
