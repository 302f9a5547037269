package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

var orderChecks = []*Check{
	{"request", LostOrder, "Each try is a request that the service takes.",
		"The shop delivers what is in a request, which nobody has ordered, or refuses it, and delivers nothing.",
		orderRequest, nil},
	{"one-key", SecondOrder, "All tries of an order have one key, which is made before the first.",
		"An order whose answer is lost may be there. With another key, the next try creates a second one, " +
			"and the shop delivers twice.", eachTry(oneKey), nil},
	{"same-order", LostOrder, "All tries of an order send the same order.",
		"If the first try has arrived, the service answers 422 idempotency-key-reused, and the client " +
			"never learns of its order.", eachTry(sameOrder), nil},
	{"goes-on", LostOrder, "Tries go on until an answer is final, for 10 minutes at least, or until the " +
		"client leaves the order to a queue, which goes on.",
		"The order may be there, and nobody knows of it; or it is not, and a try more would have " +
			"created it.", eachOf((*Call).parts, goesOn), nil},
	{"stops", Rude, "No try follows a final answer.",
		"Requests that cannot succeed are a load on the shop, and go on until somebody notices.",
		eachOf((*Call).parts, stops), nil},
	{"silence", SecondOrder, "Nothing is sent once the client has said how the order ended.",
		"The program believes that there is no order, or puts it right by hand, and then the " +
			"request creates one after all.", silence, nil},
	{"success", LostOrder, "Only 201 with the order that was sent says that there is one.",
		"The program tells its customer that the order was placed, and the shop may never have heard of it.",
		eachOf((*Call).parts, success), nil},
	{"right-id", WrongData, "The client returns the ID of the order in the answer with 201.",
		"The program keeps an ID by which nobody finds the order.", eachOf((*Call).parts, rightID), nil},
	{"takes-order", SecondOrder, "201 with an order is success, also with Idempotent-Replayed.",
		"The order is there, the program believes that it is not, and places it again.",
		eachOf((*Call).parts, takesOrder), nil},
	{"interim", LostOrder, "1xx is no answer yet, but 101, and no error: the client waits for what follows.",
		"Behind a proxy that sends 100 Continue before each answer, no client learns of its order.", interim, nil},
	{"not-created", SecondOrder, "A client says that nothing was created only if no try has created the order.",
		"The order is there. The program believes that it is not, and places it again, or tells its customer so.",
		eachOf((*Call).parts, notCreated), nil},
	{"no-refusal", LostOrder, "A problem that a right request cannot have, such as idempotency-key-missing, is " +
		"no refusal of the order: something on the way has changed the request.",
		"A proxy drops a header, and the program tells its customers that the shop does not take their orders.",
		eachOf((*Call).parts, noRefusal), nil},
	{"agreement", SecondOrder, "In the end, the shop has one order at most.",
		"It delivers all of them.", agreement, nil},
	{"retry-after", Rude, "A client waits for the seconds of Retry-After, and where these are more than a " +
		"minute, for a minute at least.",
		"A shop that is about to recover is kept busy with requests that it has to refuse.",
		eachOf((*Call).parts, waitsAsTold), nil},
	{"comes-back", LostOrder, "A client is back within an hour and two minutes, whatever Retry-After says.",
		"One wrong header, of any proxy, and the order is not placed today.",
		eachOf((*Call).parts, comesBack), nil},
	{"try-limit", LostOrder, "A try has a limit of two minutes at most, the body of its answer included, and " +
		"reads 32 MiB of that at most; 40 seconds and 1 MiB are right.",
		"A connection that was cut off silently is never noticed, and the client waits for ever. An answer " +
			"without end takes all memory.",
		(*Call).leaves, nil},
	{"redirects", LostOrder, "Neither the redirect of an order is followed, nor any other Location.",
		"Libraries turn POST into GET, or send the order to another shop. A page to sign in answers " +
			"200, which is no order.", eachOf(exchanges, followsNoRedirect), nil},
	{"ends", SecondOrder, "Tries end within 24 hours of the first, also those of a client that goes on " +
		"with an order later.",
		"The service may have forgotten the key by then, and a try creates a second order.", endsInADay, nil},
	{"own-key", LostOrder, "Each order has a key of its own, also if it equals another.",
		"The customer who orders twice gets one order, or the second order is refused.", nil, ownKey},
	{"random-key", LostOrder, "Keys are so random that no two clients make the same; 120 bits are right.",
		"Two customers get the same key, and one of them the other's order in place of the own.",
		nil, randomKey},
	{"waits-grow", Rude, "Waits between tries grow while nothing helps.",
		"A shop that is down for an hour gets as many requests as all clients can send, and does not " +
			"come up again.", nil, waitsGrow},
	{"waits-differ", Rude, "Waits differ from client to client by chance.",
		"All clients that an outage has met come back at the same moment, again and again, and each " +
			"time they make the next outage.", nil, waitsDiffer},
}

func orderRequest(c *Call) (bool, string) {
	for i, e := range c.Exchanges {
		switch {
		case e.stray():
			return true, fmt.Sprintf("Request %d is not POST /v1/orders.", i+1)
		case e.Expected && e.FromService && e.Answer.Status >= 400 && e.Answer.Status < 500 &&
			!e.Answer.says("idempotency-key-reused"):
			return true, fmt.Sprintf("The service itself refuses request %d: %s", i+1, bodyText(e.Answer.Body))
		}
	}
	tries := c.tries(0, len(c.Exchanges))
	if len(tries) == 0 {
		return true, "No request has come. Does the client send to Service.URL, through " +
			"Service.Transport, and before it returns?"
	}
	if c.Want.Item != "" && !same(tries[0].Order(), c.Want) {
		return true, fmt.Sprintf("Request %d is another order than was asked for: %s.", c.number(tries[0]),
			difference(orderText(c.Want), tries[0].Body))
	}
	return true, ""
}

// eachTry judges the tries of an order by the first.
func eachTry(differs func(c *Call, first, e *Exchange) string) func(*Call) (bool, string) {
	return func(c *Call) (bool, string) {
		tries := c.tries(0, len(c.Exchanges))
		for _, e := range tries {
			if violation := differs(c, tries[0], e); violation != "" {
				return true, violation
			}
		}
		return len(tries) > 1, ""
	}
}

func oneKey(c *Call, first, e *Exchange) (violation string) {
	if e.Key == first.Key {
		return ""
	}
	return fmt.Sprintf("Request %d has another key than request %d, but for the same order.",
		c.number(e), c.number(first))
}

func sameOrder(c *Call, first, e *Exchange) (violation string) {
	if same(e.Order(), first.Order()) {
		return ""
	}
	return fmt.Sprintf("The body of request %d is another order than that of request %d: %s.",
		c.number(e), c.number(first), difference(first.Body, e.Body))
}

func goesOn(c *Call, _ int, p part) (met bool, violation string) {
	r := p.result
	if len(p.tries) == 0 {
		before := c.tries(0, r.From)
		if len(before) > 0 && r.Err != nil && !r.Stuck && r.At.Sub(before[0].At) < leastTime {
			return true, r.Name + " sent nothing and failed."
		}
		return false, ""
	}
	last := p.tries[len(p.tries)-1]
	tried, early := c.tried(p)
	if last.Meaning() == Retryable && r.Err != nil && !r.Stuck && early {
		return true, fmt.Sprintf("%s gave up after %v and request %d, whose answer is not final.",
			r.Name, rounded(tried), c.number(last))
	}
	return slices.ContainsFunc(p.tries, func(e *Exchange) bool { return e.Meaning() == Retryable }), ""
}

// tried returns for how long a client has tried that says what came of it, and whether it must
// have gone on unless an answer was final.
func (c *Call) tried(p part) (tried time.Duration, early bool) {
	r, first := p.result, p.tries[0].At
	if !r.Asked.IsZero() && r.Asked.Before(first) { // which may have been a while before
		first = r.Asked
	}
	tried = r.At.Sub(first)
	return tried, tried < cmp.Or(c.Patience, leastTime) && (c.Patience == 0 || r == c.Results[0])
}

func stops(c *Call, _ int, p part) (met bool, violation string) {
	for i, e := range p.tries {
		if m := e.Meaning(); m != Created && m != Final {
			continue
		}
		met = true
		for _, next := range p.tries[i+1:] {
			if next.At.After(e.Ended) && e.arrived(next.At) && next.Key == e.Key &&
				next.Credentials == e.Credentials {
				return true, fmt.Sprintf("Request %d was sent although the answer to request %d was final: "+
					"%s", c.number(next), c.number(e), whyFinal(e))
			}
		}
	}
	return met, ""
}

func silence(c *Call) (bool, string) {
	for _, p := range c.parts() {
		if len(p.after) > 0 {
			return true, fmt.Sprintf("Request %d was sent after %s had returned.", c.number(p.after[0]),
				p.result.Name)
		}
	}
	return len(c.Results) > 0, ""
}

func success(c *Call, _ int, p part) (met bool, violation string) {
	if p.result.Err != nil {
		return true, ""
	}
	if !slices.ContainsFunc(c.Exchanges[:p.result.To], (*Exchange).createdByService) {
		return true, fmt.Sprintf("%s returned without an error, but no answer was 201 with the order that was "+
			"sent.", p.result.Name)
	}
	return true, ""
}

func (e *Exchange) createdByService() bool { return e.FromService && e.hasOrder() }

func rightID(c *Call, _ int, p part) (met bool, violation string) {
	if p.result.Err != nil {
		return false, ""
	}
	var ids []string
	for _, e := range c.Exchanges[:p.result.To] {
		if e.createdByService() {
			ids = append(ids, OrderID(e.Answer.Body))
		}
	}
	if len(ids) > 0 && !slices.Contains(ids, p.result.ID) {
		return true, fmt.Sprintf("%s returned the ID %q; the order has the ID %q.",
			p.result.Name, p.result.ID, ids[len(ids)-1])
	}
	return len(ids) > 0, ""
}

func takesOrder(c *Call, _ int, p part) (met bool, violation string) {
	for _, e := range slices.Backward(p.tries) {
		if e.Meaning() != Created {
			continue
		}
		_, early := c.tried(p) // a client that has not seen the answer would have gone on
		if p.result.Err != nil && (early || p.result.Stuck || e.arrived(p.result.At)) {
			return true, fmt.Sprintf("%s did not return the order, although the answer to request %d is 201 with "+
				"the order.", p.result.Name, c.number(e))
		}
		return true, ""
	}
	return false, ""
}

func interim(c *Call) (met bool, violation string) {
	all, left := 0, 0
	for _, e := range c.Exchanges {
		if e.Interim {
			all++
		}
		if e.Interim && e.Left {
			left++
		}
	}
	if left >= 3 && left == all { // a client may be stalled, but not each time
		violation = fmt.Sprintf("It broke off each of the %d requests whose answer came behind a 1xx.", all)
	}
	return all > 0, violation
}

func notCreated(c *Call, _ int, p part) (met bool, violation string) {
	if !errors.Is(p.result.Err, ErrNotCreated) {
		return false, ""
	}
	for _, e := range c.Exchanges[:p.result.To] {
		if e.Created != "" {
			return true, fmt.Sprintf("%s says that no order was created, but request %d has created %s.",
				p.result.Name, c.number(e), e.Created)
		}
	}
	return true, ""
}

func noRefusal(c *Call, _ int, p part) (met bool, violation string) {
	if len(p.tries) == 0 {
		return false, ""
	}
	last := p.tries[len(p.tries)-1]
	changed := !last.FromService && last.Answer.toAnother()
	if changed && errors.Is(p.result.Err, ErrNotCreated) {
		return true, fmt.Sprintf("%s gives the order up as one that was not created, but the answer to request "+
			"%d is not one to what the client sent: %s", p.result.Name, c.number(last), bodyText(last.Answer.Body))
	}
	return changed, ""
}

func agreement(c *Call) (bool, string) {
	if ids := c.Created(); len(ids) > 1 {
		return true, fmt.Sprintf("One order was to be placed; the shop has %d: %s.",
			len(ids), strings.Join(ids, ", "))
	}
	return true, ""
}

func waitsAsTold(c *Call, _ int, p part) (met bool, violation string) {
	soon, waited := 0, 0 // where nobody knows whether the answer arrived
	for i, e := range p.tries[:max(0, len(p.tries)-1)] {
		if e.Delivery != Whole || e.Left || e.Answer.RetryAfter() == 0 {
			continue
		}
		met = true
		text := c.tooSoon(e, p.tries[i+1])
		switch {
		case text == "":
			waited++
		case e.arrived(p.tries[i+1].At):
			return true, text
		default:
			soon, violation = soon+1, text
		}
	}
	if soon < 3 || waited > 0 { // a client may be stalled, but not each time
		violation = ""
	}
	return met, violation
}

func comesBack(c *Call, _ int, p part) (met bool, violation string) {
	for i, e := range p.tries {
		next := p.result.At
		if i+1 < len(p.tries) {
			next = p.tries[i+1].At
		}
		if e.Meaning() != Retryable {
			continue // a program may go on with a final answer whenever it likes
		}
		met = met || e.Answer.Header.Get("Retry-After") != ""
		if waited := next.Sub(e.Ended); waited > 62*time.Minute {
			return true, fmt.Sprintf("After the answer to request %d, it waited for %v.",
				c.number(e), waited.Round(time.Second))
		}
	}
	return met, ""
}

func followsNoRedirect(_ *Call, i int, e *Exchange) (met bool, violation string) {
	if e.Redirected() {
		return true, fmt.Sprintf("Request %d goes where the Location of an answer leads.", i+1)
	}
	return e.Answer.Status/100 == 3, ""
}

func endsInADay(c *Call) (met bool, violation string) {
	tries := c.tries(0, len(c.Exchanges))
	for _, e := range tries {
		if since := e.At.Sub(tries[0].At); since >= 24*time.Hour {
			return true, fmt.Sprintf("Request %d came %v after the first.", c.number(e),
				since.Round(time.Second))
		}
	}
	if n := len(c.Exchanges); n >= c.Kind.MostRequests() {
		return true, fmt.Sprintf("After %d requests in %v, it was stopped. Do its waits grow?",
			n, rounded(c.Exchanges[n-1].At.Sub(c.Began)))
	}
	return c.Lasting, ""
}

func ownKey(calls []*Call) (bool, *Call, string) {
	owner := make(map[string]*Call)
	for _, c := range calls {
		for _, e := range c.tries(0, len(c.Exchanges)) {
			if other := owner[e.Key]; e.Key != "" && other != nil && other != c {
				return true, c, fmt.Sprintf(
					"The key %q was used for another order before, which is that of the fault %q. Is it "+
						"made once for all orders, from what is ordered, from the time, from a counter, or "+
						"by a generator with a constant seed?", Excerpt(e.Key, 60), other.Fault)
			}
			owner[e.Key] = c
		}
	}
	return len(calls) > 1, nil, ""
}

func randomKey(calls []*Call) (bool, *Call, string) {
	var keys []string
	for _, c := range calls {
		if tries := c.tries(0, len(c.Exchanges)); len(tries) > 0 && !slices.Contains(keys, tries[0].Key) {
			keys = append(keys, tries[0].Key)
		}
	}
	if len(keys) < 16 {
		return false, nil, ""
	}
	if bits := chance(keys); bits < 60 {
		return true, calls[len(calls)-1], fmt.Sprintf("The keys of %d orders differ by some %.0f bits only. "+
			"Three of them: %q, %q, %q.", len(keys), bits, Excerpt(keys[0], 60), Excerpt(keys[1], 60),
			Excerpt(keys[2], 60))
	}
	return true, nil, ""
}

var waitsGrow = inOutages(func(waits [][]time.Duration) (met bool, violation string) {
	var first, last []time.Duration
	few := len(waits) < 16
	for _, w := range waits {
		first, last = append(first, w[:min(3, len(w)/2)]...), append(last, w[len(w)/2:]...)
		few = few || len(w) < 12
	}
	first, last = usual(first), usual(last)
	all := usual(slices.Concat(waits...))
	same := all[len(all)-1] <= max(all[0], 50*time.Millisecond)*23/20
	if few && !same { // of waits at random, a few may be of any length
		return mean(last) > mean(first)*5/2, ""
	}
	if !few && mean(last) > mean(first)*8/5 {
		return true, ""
	}
	return true, fmt.Sprintf("In an outage, the first waits of %d clients are %v on average, the later ones "+
		"%v.", len(waits), mean(first).Round(time.Millisecond), mean(last).Round(time.Millisecond))
})

// usual returns waits without the longest quarter, which may be that of clients that were
// stalled, sorted.
func usual(waits []time.Duration) []time.Duration {
	return slices.Sorted(slices.Values(waits))[:max(1, len(waits)*3/4)]
}

var waitsDiffer = inOutages(func(waits [][]time.Duration) (met bool, violation string) {
	shortest := slices.MinFunc(waits, func(a, b []time.Duration) int { return cmp.Compare(len(a), len(b)) })
	differ := 0
	for i := range shortest {
		least, most := waits[0][i], waits[0][i]
		for _, w := range waits {
			least, most = min(least, w[i]), max(most, w[i])
		}
		if most-least-least/50 > 10*time.Millisecond { // timers are not exact
			differ++
		}
	}
	if differ > len(shortest)/6 { // a few differ where a client is stalled
		return true, ""
	}
	same := slices.Clone(shortest)
	for i := range same {
		same[i] = same[i].Round(time.Millisecond)
	}
	return true, fmt.Sprintf("In an outage, %d clients wait for the same times: %v.", len(waits), same)
})

// A part is the tries of one method's call.
type part struct {
	tries  []*Exchange
	after  []*Exchange // that came when it had returned
	result *Result
}

func (c *Call) parts() []part {
	var out []part
	for i, r := range c.Results {
		next := len(c.Exchanges)
		if i+1 < len(c.Results) {
			next = c.Results[i+1].From
		}
		out = append(out, part{c.tries(r.From, r.To), c.tries(r.To, next), r})
	}
	return out
}

// Doubt is how long after its request nobody knows any more whether an answer that was sent has
// arrived, or was too late for a client that was stalled or has short limits. Nor is it known
// then whether somebody has put right what was wrong, and goes on.
const Doubt = 5 * time.Second

// arrived reports whether a client certainly had the answer when it did something else.
func (e *Exchange) arrived(then time.Time) bool { return then.Sub(e.At) < Doubt }

// leastTime is for how long a client goes on with an order, from its first try.
const leastTime = 10 * time.Minute

// tooSoon says that a request did not wait for the Retry-After of an answer.
func (c *Call) tooSoon(e, next *Exchange) (violation string) {
	told := e.Answer.RetryAfter()
	waited := next.At.Sub(e.Ended)
	if waited >= told-max(told/100, 20*time.Millisecond) { // timers may be a tick early
		return ""
	}
	return fmt.Sprintf("The answer to request %d has Retry-After: %s, and request %d came after %v.",
		c.number(e), Excerpt(e.Answer.Header.Get("Retry-After"), 50), c.number(next), rounded(waited))
}

// leaves judges whether the client leaves where an answer does not end.
func (c *Call) leaves() (met bool, violation string) {
	for _, e := range c.Exchanges {
		if e.Delivery != Silent && e.Delivery != Endless && e.Delivery != Flood {
			continue
		}
		met = true
		switch {
		case e.Left || e.Ended.IsZero():
		case e.Delivery == Flood:
			return true, fmt.Sprintf("The client read %d MiB of the answer to request %d, until the shop closed the "+
				"connection.", LongestAnswer>>20, c.number(e))
		default:
			return true, fmt.Sprintf("The client waited for the answer to request %d until the shop "+
				"closed the connection, after %v.", c.number(e), LongestTry)
		}
	}
	return met, ""
}

// inOutages judges the waits of clients that have met an outage, if there are enough.
func inOutages(
	judge func(waits [][]time.Duration) (met bool, violation string),
) func([]*Call) (bool, *Call, string) {
	return func(calls []*Call) (met bool, of *Call, violation string) {
		waits, of := outages(calls)
		if len(waits) >= 3 {
			met, violation = judge(waits)
		}
		return met, of, violation
	}
}

// outages returns the waits of the calls that met one, and one of the calls.
func outages(calls []*Call) (waits [][]time.Duration, of *Call) {
	for _, c := range calls {
		if !c.Outage {
			continue
		}
		var w []time.Duration
		for _, p := range c.parts() { // between two of them, a queue has waited
			for i := 1; i < len(p.tries); i++ {
				w = append(w, p.tries[i].At.Sub(p.tries[i-1].Ended))
			}
		}
		if len(w) >= 4 {
			waits, of = append(waits, w), c
		}
	}
	return waits, of
}

func mean(waits []time.Duration) (m time.Duration) {
	for _, w := range waits {
		m += w / time.Duration(len(waits))
	}
	return m
}

func whyFinal(e *Exchange) string {
	if e.Meaning() == Created {
		return "it is 201 with the order. Does the client read all of the body, and wait for it before " +
			"it tries again? Does its HTTP library take a 1xx that comes first for an error?"
	}
	return fmt.Sprintf("it is %d.", e.Answer.Status)
}

// chance estimates how many bits of keys are chance: what is the same in all keys is none,
// and neither is what they share with the one that came before.
func chance(keys []string) float64 {
	var bits float64
	for i := 0; ; i++ {
		count := make(map[byte]int)
		same, n := 0, 0
		for k, key := range keys {
			if i >= len(key) {
				continue
			}
			n++
			count[key[i]]++
			if k > 0 && i < len(keys[k-1]) && keys[k-1][i] == key[i] {
				same++
			}
		}
		if n < len(keys)/2 {
			return bits
		}
		if same > n/2 { // it changes now and then, as in a counter or a time
			continue
		}
		for _, c := range count {
			p := float64(c) / float64(n)
			bits -= p * math.Log2(p)
		}
	}
}
