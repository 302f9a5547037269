// Package conformance judges clients by what they sent and were answered: whether they keep the
// rules that docs/wire.md has for them.
//
// A [Call] records all that a client sent to place one order, walk a list or read a product. A
// [Check] says of calls whether the client kept one rule, and if not, what it did.
package conformance

import (
	"cmp"
	"slices"
)

// A Kind is what a client does.
type Kind string

const (
	Orders   Kind = "orders"
	Fields   Kind = "fields" // orders that have some
	Users    Kind = "users"
	Widgets  Kind = "widgets"
	Products Kind = "products"
	History  Kind = "history" // a list of the client's own orders
	Lookups  Kind = "lookups" // of an order by its key
)

// A Check is one rule.
type Check struct {
	Name    string // such as one-key
	Weight  Weight
	Promise string // that a right client keeps
	Harm    string // to a shop otherwise

	each func(c *Call) (met bool, violation string)
	all  func(calls []*Call) (met bool, of *Call, violation string)
}

// A Weight is what a broken promise means to the shop's owner. The heaviest comes first.
type Weight int

const (
	LostOrder   Weight = iota // somebody believes in an order that does not exist, or does not learn of one
	SecondOrder               // the shop delivers twice, or may
	WrongData                 // somebody sees what is not so, or nothing
	Rude                      // a load on the shop
)

func (w Weight) String() string {
	return [...]string{"lost order", "second order", "wrong data", "rude"}[w]
}

// MostRequests is how many requests a call can have before its client counts as one that never ends. A
// client may try an order for a day.
func (k Kind) MostRequests() int {
	if k.IsOrder() {
		return 5000
	}
	return 500
}

// A Violation is a broken promise.
type Violation struct {
	Call *Call
	Text string
}

// IsList reports whether what the client does is a walk through a list.
func (k Kind) IsList() bool { return k == Users || k == Widgets || k == History }

// IsOrder reports whether it is placing an order.
func (k Kind) IsOrder() bool { return k == Orders || k == Fields }

// Checks returns those of a kind, the heaviest first.
func Checks(kind Kind) []*Check {
	checks := map[Kind][]*Check{Orders: orderChecks, Fields: orderChecks, Users: walkChecks, Widgets: walkChecks,
		Products: productChecks, History: walkChecks, Lookups: lookupChecks}[kind]
	return slices.SortedStableFunc(slices.Values(checks),
		func(a, b *Check) int { return cmp.Compare(a.Weight, b.Weight) })
}

// Together reports whether the check needs the calls of several clients.
func (k *Check) Together() bool { return k.all != nil }

// Judge judges calls of a kind, and reports whether they were such that a wrong client could
// be seen. No request may be under way.
func (k *Check) Judge(calls []*Call) (met bool, violations []Violation) {
	if k.all != nil {
		met, of, text := k.all(calls)
		if text != "" {
			violations = append(violations, Violation{of, text})
		}
		return met, violations
	}
	for _, c := range calls {
		m, text := k.each(c)
		met = met || m
		if text != "" {
			violations = append(violations, Violation{c, text})
		}
	}
	return met, violations
}

func exchanges(c *Call) []*Exchange { return c.Exchanges }
func results(c *Call) []*Result     { return c.Results }

// eachOf judges the items of a call, until one breaks the promise.
func eachOf[T any](
	items func(*Call) []T, judge func(c *Call, i int, item T) (met bool, violation string),
) func(*Call) (bool, string) {
	return func(c *Call) (met bool, violation string) {
		for i, item := range items(c) {
			m, violation := judge(c, i, item)
			if met = met || m; violation != "" {
				return true, violation
			}
		}
		return met, ""
	}
}
