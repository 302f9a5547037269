package conformance

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

var walkChecks = append([]*Check{
	{"list-request", WrongData, "Each page is asked for by a request that the service takes.",
		"Something else is read, or nothing.", (*Call).readsRightly, nil},
	{"cursor", WrongData, "A cursor is what next or Link has said, byte for byte.",
		"A cursor that is made or changed is refused now, or leads elsewhere after the next release.",
		eachOf(exchanges, cursorAsGiven), nil},
	{"each-once", WrongData, "A walk has each item once, and only items of the list.",
		"A report counts a customer twice, or one who is none.", eachOf(results, eachOnce), nil},
	{"whole-list", WrongData, "A walk goes on as long as there is a next, or fails.",
		"A part of the list passes for the whole: whoever is not in it gets no invoice.",
		eachOf(results, wholeList), nil},
	{"walks", WrongData, "A walk through a list that is well does not fail.",
		"The list cannot be read at all.", eachOf(results, succeeds("each answer was a page")), nil},
}, readingChecks("walk")...)

var productChecks = append([]*Check{
	{"product-request", WrongData, "A product is asked for by a request that the service takes.",
		"Something else is read, or nothing.", (*Call).readsRightly, nil},
	{"fresh", WrongData, "A product that the client has kept is used for no longer than its max-age, less " +
		"its Age, and not with no-cache.",
		"The customer sees yesterday's price.", eachOf(results, freshEnough), nil},
	{"product", WrongData, "Only 200 with the product, or 304 for one that was kept, is a product.",
		"A page to sign in, or half an answer, passes for a product.", eachOf(results, onlyProducts), nil},
	{"reads", WrongData, "A product that is there, and whose answers come, is read.",
		"The customer sees an error in place of the product.",
		eachOf(results, succeeds("nothing was wrong")), nil},
}, readingChecks("read")...)

var lookupChecks = append([]*Check{
	{"lookup-request", WrongData, "An order is looked for by a request that the service takes, and none is sent.",
		"Something else is read, or nothing.", (*Call).readsRightly, nil},
	{"lookup", SecondOrder, "Only a page says of a key what order it has, or that it has none: a 200 with a JSON " +
		"object that has data, an array, and has_more, a boolean.",
		"The program believes that there is no order, and places it again, or it takes another for it.",
		eachOf(results, looksUp), nil},
	{"finds", WrongData, "A look that is answered does not fail.", "Nobody learns whether there is an order.",
		eachOf(results, succeeds("each answer was a page")), nil},
}, readingChecks("read")...)

// readingChecks are those of all that a client reads. Their names begin in the same way.
func readingChecks(name string) []*Check {
	return []*Check{
		{name + "-ends", WrongData, "A " + name + " ends, with an error if need be, and waits no longer than two " +
			"minutes for an answer, of which it reads 32 MiB at most.",
			"The customer's page never comes, or an answer without end takes all memory.", (*Call).ends, nil},
		{name + "-stops", Rude, "What is read is not asked for again after a 4xx but 408, 409 and 429, and those of " +
			"a request that was changed on its way.",
			"Requests that cannot succeed are a load on the shop, and look like an attack.",
			eachOf((*Call).rereads, stopsReading), nil},
		{name + "-waits", Rude, "What is read is asked for again after the seconds of Retry-After, and where " +
			"these are more than a minute, after a minute at least.",
			"A shop that is about to recover is kept busy with requests that it has to refuse.",
			eachOf((*Call).rereads, waitsToRead), nil},
	}
}

func cursorAsGiven(_ *Call, i int, e *Exchange) (met bool, violation string) {
	if e.Cursor != "" && !e.CursorKnown {
		return true, fmt.Sprintf("The cursor of request %d, %q, was never given out.", i+1,
			Excerpt(e.Cursor, 60))
	}
	return e.Cursor != "", ""
}

func eachOnce(c *Call, _ int, r *Result) (met bool, violation string) {
	if r.Err != nil {
		return false, ""
	}
	seen := make(map[string]bool)
	for _, id := range r.IDs {
		switch {
		case seen[id]:
			return true, fmt.Sprintf("%s returned %q twice.", r.Name, id)
		case !c.Changed[id] && !slices.Contains(c.Items, id):
			return true, fmt.Sprintf("%s returned %q, which is no item of the list.", r.Name, id)
		}
		seen[id] = true
	}
	return true, ""
}

func wholeList(c *Call, _ int, r *Result) (met bool, violation string) {
	for _, id := range c.Items {
		if r.Err == nil && !c.Changed[id] && !slices.Contains(r.IDs, id) {
			return true, fmt.Sprintf("%s returned no error, but not %q, which was in the list throughout.",
				r.Name, id)
		}
	}
	return r.Err == nil, ""
}

// succeeds judges whether a client does where nothing is wrong.
func succeeds(because string) func(*Call, int, *Result) (bool, string) {
	return func(c *Call, _ int, r *Result) (met bool, violation string) {
		if c.Clean && r.Err != nil && !errors.Is(r.Err, ErrNotCreated) && !c.stalled(r) {
			return true, fmt.Sprintf("%s failed, although %s.", r.Name, because)
		}
		return c.Clean, ""
	}
}

// stalled reports whether so much time went by somewhere that an answer may have been too late.
func (c *Call) stalled(r *Result) bool {
	was := r.Asked
	for _, e := range c.Exchanges[r.From:r.To] {
		if e.At.Sub(was) >= Doubt {
			return true
		}
		was = e.At
	}
	return r.At.Sub(was) >= Doubt
}

// was reports whether a product had the name of a result before its i-th reading.
func (c *Call) was(i int, r *Result) bool {
	return slices.ContainsFunc(c.Results[:i], func(old *Result) bool { return old.Want == r.Text })
}

func freshEnough(c *Call, i int, r *Result) (met bool, violation string) {
	if r.Err != nil || r.Want == "" {
		return false, ""
	}
	if r.Text != r.Want && c.was(i, r) {
		return true, fmt.Sprintf("%s returned the name %q, which the product had before; it is %q now, and "+
			"what the client kept is too old.", r.Name, r.Text, r.Want)
	}
	return i > 0, ""
}

func onlyProducts(c *Call, i int, r *Result) (met bool, violation string) {
	switch {
	case r.Err != nil:
	case r.Want == "":
		return true, fmt.Sprintf("%s returned no error, and there is no such product.", r.Name)
	case r.Text != r.Want && !c.was(i, r):
		return true, fmt.Sprintf("%s returned the name %q; the product has %q.", r.Name, r.Text, r.Want)
	}
	return true, ""
}

func looksUp(c *Call, _ int, r *Result) (met bool, violation string) {
	found := map[bool]string{true: "no order", false: "the order " + r.ID}
	has := map[bool]string{true: "no order", false: "the order " + r.Want}
	none := errors.Is(r.Err, ErrNotCreated)
	switch {
	case r.Err != nil && !none:
		return false, ""
	case none != (r.Want == "") || r.ID != r.Want:
		return true, fmt.Sprintf("%s found %s; the shop has %s with the key.", r.Name, found[none], has[r.Want == ""])
	}
	return true, ""
}

func (c *Call) readsRightly() (met bool, violation string) {
	reads := 0
	for i, e := range c.Exchanges {
		switch {
		case e.stray():
			return true, fmt.Sprintf("Request %d is another than one for %s.", i+1, c.Kind)
		case !e.Expected:
			continue
		case e.Method != http.MethodGet && e.Method != http.MethodHead:
			return true, fmt.Sprintf("Request %d is not a GET.", i+1)
		case e.FromService && e.Answer.Status >= 400 && (e.Cursor == "" || e.CursorKnown) &&
			e.Answer.Status != http.StatusNotFound:
			return true, fmt.Sprintf("The service itself refuses request %d: %s", i+1, bodyText(e.Answer.Body))
		}
		reads++
	}
	if reads == 0 {
		return true, "No request has come."
	}
	return true, ""
}

func (c *Call) ends() (bool, string) {
	if n := len(c.Exchanges); n >= c.Kind.MostRequests() {
		return true, fmt.Sprintf("After %d requests, it was stopped.", n)
	}
	for _, r := range c.Results {
		if r.Stuck {
			return true, fmt.Sprintf("After %v and %d requests, %s was stopped.",
				rounded(r.At.Sub(r.Asked)), r.To-r.From, r.Name)
		}
	}
	if met, violation := c.leaves(); violation != "" {
		return met, violation
	}
	return len(c.Results) > 0, ""
}

// A reread is an answer to a read, and the request that asks for the same in the same call of a
// method, nil if there is none. Between two calls, the program may ask whenever it likes.
type reread struct{ first, again *Exchange }

func (c *Call) rereads() (out []reread) {
	for _, r := range c.Results {
		for i := r.From; i < r.To; i++ {
			e := c.Exchanges[i]
			if !e.Expected || e.Delivery != Whole || e.Left {
				continue
			}
			pair := reread{first: e}
			same := func(n *Exchange) bool {
				return n.Method == e.Method && n.Target == e.Target && n.Tag == e.Tag &&
					n.Credentials == e.Credentials && !n.At.Before(e.Ended)
			}
			if n := slices.IndexFunc(c.Exchanges[i+1:r.To], same); n >= 0 {
				pair.again = c.Exchanges[i+1+n]
			}
			out = append(out, pair)
		}
	}
	return out
}

func stopsReading(c *Call, _ int, p reread) (met bool, violation string) {
	if a := &p.first.Answer; a.Status/100 != 4 || a.Meaning() != Final {
		return false, ""
	}
	if p.again == nil || !p.first.arrived(p.again.At) {
		return true, ""
	}
	return true, fmt.Sprintf("Request %d was sent although the answer to request %d was final: %s",
		c.number(p.again), c.number(p.first), whyFinal(p.first))
}

func waitsToRead(c *Call, _ int, p reread) (met bool, violation string) {
	if p.again == nil || p.first.Answer.RetryAfter() == 0 {
		return false, ""
	}
	if !p.first.arrived(p.again.At) {
		return true, ""
	}
	return true, c.tooSoon(p.first, p.again)
}
