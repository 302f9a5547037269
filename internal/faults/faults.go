// Package faults is a shop that behaves as badly as networks, proxies and shops do.
//
// A [Shop] is the service of package storefront with faults before it. It records what clients
// send and are answered for package conformance, which judges them. Where time is that of
// testing/synctest, all of it is.
package faults

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/storefront/internal/conformance"
)

// A Pace is the time that a fault may take.
type Pace int

// A shop leaves out the faults that take longer than its pace.
const (
	Seconds Pace = iota // as in tests of clients whose time is real
	Minutes             // as in a program that somebody looks at
	Days                // as where time passes while all wait
)

// MaxAge returns for how long a read is fresh.
func (p Pace) MaxAge() time.Duration {
	if p == Days {
		return time.Minute
	}
	return time.Second
}

// A Fault is how the first requests of a call are answered. Those after them, the service
// answers.
type Fault struct {
	Name    string
	Final   bool          // the client must say that it cannot have what it wants until something is fixed
	Later   time.Duration // how long it takes until that is done
	Forever bool          // it never ends: the last step answers all that come after it
	Hard    bool          // it meets an order with an item, a quantity and fields that clients often mis-encode

	takes    Pace
	steps    func(Dice) []step
	variants []variant     // each of which is a fault, in place of steps
	pause    time.Duration // between two reads of a product; 0: until what was kept is too old
}

// A variant is one of the ways in which a fault comes.
type variant struct {
	name  string
	steps func(Dice) []step
}

// None reports whether nothing goes wrong.
func (f *Fault) None() bool { return f.steps == nil && !f.Final }

// Slow reports whether it takes most of a minute.
func (f *Fault) Slow() bool { return f.takes > Seconds }

// Pause returns the time between two reads of a product.
func (f *Fault) Pause(pace Pace) time.Duration { return cmp.Or(f.pause, 2*pace.MaxAge()) }

// Of returns the faults that a client of a kind can meet at a pace, each variant as one. The seed
// of the shop decides their sequence and what is a number, such as where an answer is cut, but
// not what is tried.
func Of(kind conformance.Kind, pace Pace) []*Fault {
	all := map[conformance.Kind][]Fault{conformance.Orders: orderFaults, conformance.Fields: fieldFaults,
		conformance.Users: walkFaults, conformance.Widgets: walkFaults, conformance.Products: productFaults,
		conformance.History: walkFaults, conformance.Lookups: lookupFaults}[kind]
	var out []*Fault
	for _, f := range all {
		if f.takes > pace {
			continue
		}
		for _, v := range f.variants {
			f := f
			f.Name, f.steps = f.Name+": "+v.name, v.steps
			out = append(out, &f)
		}
		if f.variants == nil {
			out = append(out, &f)
		}
	}
	return out
}

// A step is how one request is answered.
type step struct {
	times    int                       // how often the service gets the request
	way      func(*http.Request)       // what becomes of the request on its way
	held     bool                      // the service gets it later, before the next that it gets
	answer   *conformance.Answer       // in place of the service's
	edit     func(*conformance.Answer) // what becomes of the service's
	interim  []int                     // statuses of answers that come before it
	stale    bool                      // the page is the first one again
	empty    bool                      // the page has a next and no items
	change   bool                      // the list is changed before
	delivery conformance.Delivery
	part     float64 // how much of the head or of the body comes, where it is cut
}

// says is a step in which the service does not get the request. Fields are names and
// values in turn.
func says(status int, body string, fields ...string) step {
	a := &conformance.Answer{Status: status, Header: make(http.Header), Body: []byte(body)}
	for i := 0; i < len(fields); i += 2 {
		a.Header.Set(fields[i], fields[i+1])
	}
	if a.Header.Get("Content-Type") == "" && strings.HasPrefix(body, "<") {
		a.Header.Set("Content-Type", "text/html; charset=utf-8")
	}
	return step{answer: a}
}

// problem is like says with a problem document of the service.
func problem(status int, code, detail, members string, fields ...string) step {
	return says(status, fmt.Sprintf(`{"type":%q,"title":%q,"status":%d,"detail":%q%s}`,
		conformance.ProblemPrefix+code, strings.ToUpper(code[:1])+strings.ReplaceAll(code[1:], "-", " "),
		status, detail, members),
		append(fields, "Content-Type", "application/problem+json")...)
}

// done is the step after the service has got the request.
func done(s step) step {
	s.times = 1
	return s
}

// comes is a step whose answer, the service's, comes in that way.
func comes(d conformance.Delivery) step { return step{times: 1, delivery: d} }

// cuts returns steps whose answers, the service's, are cut somewhere.
func cuts(ways ...conformance.Delivery) func(Dice) []step {
	return func(d Dice) (steps []step) {
		for _, w := range ways {
			steps = append(steps, step{times: 1, delivery: w, part: 0.05 + 0.9*d.Float64()})
		}
		return steps
	}
}

// lost is a step in which the service does not get the request, and nothing comes.
func lost() step { return step{delivery: conformance.NoAnswer} }

func always(steps ...step) func(Dice) []step { return func(Dice) []step { return steps } }

func repeat(n int, s step) []step { return slices.Repeat([]step{s}, n) }

// Dice decide what a seed leaves to chance.
type Dice struct {
	*rand.Rand
	pace Pace
}

// newDice returns those of a client with this name.
func newDice(seed uint64, name string, pace Pace) Dice {
	stream := fnv.New64a()
	stream.Write([]byte(name))
	return Dice{rand.New(rand.NewPCG(seed, stream.Sum64())), pace}
}

// a page of a proxy, in Latin-1 and with what looks like an order
const html = "<!DOCTYPE html><title>Sorry</title><p>Soci\xe9t\xe9 {\"id\":\"ord_FORGED\"}"

const signIn = "<!DOCTYPE html><title>Sign in</title><form method=post><input name=password " +
	"type=password></form>"

// forged stands for an order that nobody has created, with the item, quantity and fields that were sent.
const forged = `{"id":"ord_FORGED","item":"forged","qty":1,"created_at":"2026-11-20T20:52:11.250Z"}`
