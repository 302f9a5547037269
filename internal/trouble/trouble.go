// Package trouble is a shop that behaves as badly as networks, proxies and shops do, and
// judges how a client takes that.
//
// A [Shop] is the service of package storefront with troubles before it. It writes down
// in a [Call] what a client sends to place an order, walk a list or read a product, and
// what it is answered. A [Check] says of calls whether the client did right. Where time is
// that of testing/synctest, all of it is.
package trouble

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Pace is the time that a trouble may take.
type Pace int

// A shop leaves out the troubles that take longer than its pace.
const (
	Seconds Pace = iota // as in tests of clients whose time is real
	Minutes             // as in a program that somebody looks at
	Days                // as where time passes while all wait
)

// A Kind is what a client does.
type Kind string

const (
	Orders   Kind = "orders"
	Users    Kind = "users"
	Widgets  Kind = "widgets"
	Products Kind = "products"
)

// A Trouble is how the first requests of a call are answered. Those after them, the
// service answers.
type Trouble struct {
	Name string
	// Calls is how many clients meet it at the same time.
	Calls int
	// Final is whether the client cannot have what it wants without somebody who puts
	// something right: it is to say so.
	Final bool
	// Later is how long it takes until that is done.
	Later time.Duration
	// Hard is whether the order that meets it is to have an item and a quantity that are
	// easily sent as others.
	Hard bool

	takes   Pace
	steps   func(dice) []step
	forever bool          // whether the last step answers all that come after it
	pause   time.Duration // between two reads of a product; 0: until what was kept is too old
}

// Calm is whether nothing goes wrong.
func (t *Trouble) Calm() bool { return t.steps == nil && !t.Final }

// Endless is whether it never ends.
func (t *Trouble) Endless() bool { return t.forever }

// Pause returns the time between two reads of a product.
func (t *Trouble) Pause(pace Pace) time.Duration { return cmp.Or(t.pause, 2*pace.MaxAge()) }

// Troubles returns those that a client of a kind can meet at a pace. Where one is chosen
// by chance, such as what a proxy says, the seed of the shop decides.
func Troubles(kind Kind, pace Pace) []*Trouble {
	all := map[Kind][]Trouble{Orders: orderTroubles, Users: walkTroubles, Widgets: walkTroubles, Products: productTroubles}[kind]
	var out []*Trouble
	for i := range all {
		if all[i].takes <= pace {
			out = append(out, &all[i])
		}
	}
	return out
}

// A way is how much of an answer comes, and when.
type way string

const (
	whole    way = ""
	nothing  way = "the connection is closed without an answer"
	cutHead  way = "cut in its head"
	cutBody  way = "cut in its body"
	cutChunk way = "cut in its body, which has no Content-Length"
	silent   way = "nothing comes, and the connection stays open"
	endless  way = "its body never ends"
	late     way = "it comes after 35 s"
)

// A step is how one request is answered.
type step struct {
	times  int           // how often the service gets the request
	held   bool          // whether the service gets it later, before the next that it gets
	answer *answer       // in place of the service's
	edit   func(*answer) // what becomes of the service's
	empty  bool          // whether the page has a next and no items
	change bool          // whether the list is changed before
	way    way
	part   float64 // how much of the head or of the body comes, where it is cut
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// says is a step in which the service does not get the request. Fields are names and
// values in turn.
func says(status int, body string, fields ...string) step {
	a := &answer{status, make(http.Header), []byte(body)}
	for i := 0; i < len(fields); i += 2 {
		a.header.Set(fields[i], fields[i+1])
	}
	if a.header.Get("Content-Type") == "" && strings.HasPrefix(body, "<") {
		a.header.Set("Content-Type", "text/html; charset=utf-8")
	}
	return step{answer: a}
}

// problem is like says with a problem document of the service.
func problem(status int, code, detail, members string, fields ...string) step {
	return says(status, fmt.Sprintf(`{"type":%q,"title":%q,"status":%d,"detail":%q%s}`,
		problemPrefix+code, strings.ToUpper(code[:1])+strings.ReplaceAll(code[1:], "-", " "), status, detail, members),
		append(fields, "Content-Type", "application/problem+json")...)
}

const problemPrefix = "urn:problem-type:storefront:"

// done is the step after the service has got the request.
func done(s step) step {
	s.times = 1
	return s
}

// comes is a step whose answer, the service's, comes in that way.
func comes(w way) step { return step{times: 1, way: w} }

// cuts returns steps whose answers, the service's, are cut somewhere.
func cuts(ways ...way) func(dice) []step {
	return func(d dice) (steps []step) {
		for _, w := range ways {
			steps = append(steps, step{times: 1, way: w, part: 0.05 + 0.9*d.Float64()})
		}
		return steps
	}
}

// lost is a step in which the service does not get the request, and nothing comes.
func lost() step { return step{way: nothing} }

func always(steps ...step) func(dice) []step { return func(dice) []step { return steps } }

func repeat(n int, s step) []step {
	out := make([]step, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// dice decide what a seed leaves to chance.
type dice struct {
	*rand.Rand
	pace Pace
}

func newDice(seed uint64, name string, pace Pace) dice {
	stream := fnv.New64a()
	stream.Write([]byte(name))
	return dice{rand.New(rand.NewPCG(seed, stream.Sum64())), pace}
}

func (d dice) oneOf(texts ...string) string { return texts[d.IntN(len(texts))] }

// retryAfter returns some seconds that a client is to wait.
func (d dice) retryAfter() string {
	if d.pace == Seconds {
		return "1"
	}
	return strconv.Itoa(2 + d.IntN(4))
}

// a page of a proxy, in Latin-1 and with what looks like an order
const html = "<!DOCTYPE html><title>Sorry</title><p>Soci\xe9t\xe9 {\"id\":\"ord_FORGED\"}"

const signIn = "<!DOCTYPE html><title>Sign in</title><form method=post><input name=password type=password></form>"

const forged = `{"id":"ord_FORGED","item":"forged","qty":1,"created_at":"2026-11-20T20:52:11.250Z"}`

// A Meaning is what docs/wire.md says that a client is to make of an answer.
type Meaning int

const (
	Again   Meaning = iota // the client is to send the same again
	Created                // this is the order
	Final                  // no order, and no further try
	Open                   // either is right
)

// meaning is the table of docs/wire.md.
func (a *answer) meaning() Meaning {
	switch {
	case a.status == http.StatusCreated:
		if orderID(a.body) != "" {
			return Created
		}
		return Again
	case a.status == http.StatusBadRequest && strings.Contains(string(a.body), problemPrefix+"malformed-body"):
		return Open
	case a.status == 408, a.status == 409, a.status == 429, a.status >= 500 && a.status != 501:
		return Again
	}
	return Final
}

// retryAfter returns how long a client must wait at least: what it is told, but no more
// than a minute, as a client may have a limit of its own. Numbers that few programs can read
// are none.
func (a *answer) retryAfter() time.Duration {
	seconds, err := strconv.ParseUint(a.header.Get("Retry-After"), 10, 31)
	if err != nil || a.meaning() != Again {
		return 0
	}
	return time.Duration(min(seconds, 60)) * time.Second
}
