package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/storefront"
	"example.com/storefront/internal/ijson"
)

// A Call is all that a client sent, and was answered, to place one order, walk a list or read
// products.
type Call struct {
	Kind      Kind
	Began     time.Time
	Exchanges []*Exchange

	Want storefront.Order // the order, if it is known
	// Patience is for how long the client goes on with an order, before it returns an error and
	// leaves the rest to a queue. If it is 0, nothing goes on by itself.
	Patience time.Duration

	Items   []string        // of the list, when the walk began
	Changed map[string]bool // items that came or went during the walk

	// Results are what the client said of the call, and of those by which it went on with an order.
	Results []*Result

	Fault   string // the name of what went wrong
	Clean   bool   // every answer is a page or a product: the client has no reason to fail
	Lasting bool   // the fault outlasts the time in which a client may try
	Outage  bool   // the fault is an outage in which the waits of clients can be compared
}

// ErrNotCreated is what a client says, by an error that wraps it, if there is no order.
var ErrNotCreated = errors.New("no order was created")

// A Result is what a client said in the end.
type Result struct {
	Name  string // of the method
	Err   error
	Stuck bool     // the method did not return, and was stopped
	ID    string   // of the order
	IDs   []string // of the items in a list
	Text  string   // the name of a product
	Want  string   // the one that it has; empty: there is no such product

	From, To  int // exchanges
	Asked, At time.Time
}

// An Exchange is a request and its answer.
type Exchange struct {
	At                   time.Time
	Method, Target, Path string
	Key                  string // Idempotency-Key, without quotes
	Tag                  string // If-None-Match
	Credentials          string // Authorization and Cookie
	Body                 []byte
	Cursor               string
	CursorKnown          bool // the service has given it out
	Expected             bool // it is a request of the call's kind

	Answer      Answer
	FromService bool // the service gave the answer
	Delivery    Delivery
	Interim     bool      // 1xx came before the answer
	Left        bool      // the client left before the answer had ended
	Created     string    // the ID of the order that the request created
	Held        bool      // it arrived at the shop later
	Ended       time.Time // when its answer began to come, or failed to; 0 before
}

// An Answer is a response.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// A Delivery is how much of an answer comes, and when.
type Delivery string

const (
	Whole    Delivery = ""
	NoAnswer Delivery = "the connection is closed without an answer"
	CutHead  Delivery = "cut in its head"
	CutBody  Delivery = "cut in its body"
	CutChunk Delivery = "cut in its body, which has no Content-Length"
	Silent   Delivery = "nothing comes, and the connection stays open"
	Endless  Delivery = "its body never ends"
	Flood    Delivery = "its body never ends, and comes as fast as it is read"
	Late     Delivery = "it comes after 35 s"
)

// LongestTry is how long a try may last before the shop ends it, and LongestAnswer how many bytes of
// its answer there are.
const (
	LongestTry    = 150 * time.Second
	LongestAnswer = 32 << 20
)

// A Meaning is what docs/wire.md tells a client to make of an answer.
type Meaning int

const (
	Retryable Meaning = iota // the client sends the same again
	Created                  // this is the order
	Final                    // no order, and no further try
	Either                   // Retryable and Final are both right
)

// ProblemPrefix is what the problem types of the service begin with.
const ProblemPrefix = "urn:problem-type:storefront:"

// Meaning is the table of docs/wire.md.
func (a *Answer) Meaning() Meaning {
	switch {
	case a.Status == http.StatusCreated:
		if OrderID(a.Body) != "" {
			return Created
		}
		return Retryable
	case a.says("malformed-body"), a.toAnother():
		return Either
	case a.Status == 408, a.Status == 409, a.Status == 429, a.Status >= 500 && a.Status != 501:
		return Retryable
	}
	return Final
}

// says reports whether the answer is the service's problem with this code.
func (a *Answer) says(code string) bool {
	return a.Status/100 == 4 && strings.Contains(string(a.Body), `"`+ProblemPrefix+code+`"`)
}

// toAnother reports whether the answer, to a right order, shows that another request has arrived.
func (a *Answer) toAnother() bool {
	return slices.ContainsFunc([]string{"idempotency-key-missing", "idempotency-key-invalid",
		"unsupported-media-type", "invalid-query", "not-found", "method-not-allowed", "precondition-failed"}, a.says)
}

// RetryAfter returns how long a client must wait at least: what it is told, but no more
// than a minute, as a client may have a limit of its own. Numbers that few programs can read
// are none.
func (a *Answer) RetryAfter() time.Duration {
	seconds, err := strconv.ParseUint(a.Header.Get("Retry-After"), 10, 31)
	if err != nil || a.Meaning() != Retryable {
		return 0
	}
	return time.Duration(min(seconds, 60)) * time.Second
}

// OrderID returns the ID if the body is a JSON object with one.
func OrderID(body []byte) string {
	var order struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(body, &order) != nil {
		return ""
	}
	return order.ID
}

// Meaning is that of the answer as far as it came.
func (e *Exchange) Meaning() Meaning {
	if (e.Delivery == Flood || e.Answer.Status == http.StatusSwitchingProtocols) && e.Answer.Meaning() == Final {
		return Either // its status is there
	}
	if e.Left || e.Delivery != Whole && e.Delivery != Late ||
		e.Answer.Status == http.StatusCreated && !e.hasOrder() {
		return Retryable
	}
	return e.Answer.Meaning()
}

// hasOrder reports whether the answer is the order that was sent: proxies have mixed up answers.
func (e *Exchange) hasOrder() bool {
	return e.Answer.Meaning() == Created && same(ordered(e.Answer.Body), e.Order())
}

// Redirected reports whether the request follows one of the redirects to [SignInPath] and
// [ElsewherePath].
func (e *Exchange) Redirected() bool { return e.Path == SignInPath || e.Path == ElsewherePath }

// stray reports whether a request is for nothing that a client may ask meanwhile: it may look at
// whatever the service has, such as a product or the OpenAPI document, or what is allowed.
func (e *Exchange) stray() bool {
	read := e.Method == http.MethodGet || e.Method == http.MethodHead || e.Method == http.MethodOptions
	return !e.Expected && !e.Redirected() && (!read || e.Answer.says("not-found"))
}

// Where redirects lead.
const (
	SignInPath    = "/sign-in"
	ElsewherePath = "/elsewhere/v1/orders"
)

// Order returns what a request orders, with zeros for what is no item, no whole quantity or no object.
func (e *Exchange) Order() storefront.Order { return ordered(e.Body) }

func ordered(body []byte) (o storefront.Order) {
	members, _, _ := ijson.Parse(body)
	for _, m := range members {
		switch string(m.Name) {
		case "item":
			o.Item, _ = m.Text()
		case "qty":
			o.Qty, _ = m.Int64()
		case "fields":
			o.Fields.UnmarshalJSON(m.Value)
		}
	}
	return o
}

// same reports whether the same is ordered, however its fields are written.
func same(a, b storefront.Order) bool {
	return a.Item == b.Item && a.Qty == b.Qty && ijson.Sum([]byte(a.Fields)) == ijson.Sum([]byte(b.Fields))
}

// difference says where JSON is another than the one that is wanted, with a JSON Pointer, or "".
func difference(want, got []byte) string {
	for _, text := range [][]byte{want, got} {
		if _, isObject, err := ijson.Parse(text); err != nil || !isObject {
			return bodyText(text) + " is no JSON object"
		}
	}
	wanted, found := make(map[string][]byte), make(map[string][]byte)
	values(nil, want, wanted)
	values(nil, got, found)
	pointers := slices.AppendSeq(slices.Collect(maps.Keys(wanted)), maps.Keys(found))
	slices.Sort(pointers)
	for _, at := range pointers {
		if ijson.Sum(wanted[at]) != ijson.Sum(found[at]) {
			return fmt.Sprintf("%s is %s in place of %s", at, shown(found[at]), shown(wanted[at]))
		}
	}
	return ""
}

// orderText returns an order as a request has it.
func orderText(o storefront.Order) []byte {
	b, _ := ijson.Marshal(struct { // has no errors
		Item   string            `json:"item"`
		Qty    int64             `json:"qty"`
		Fields storefront.Fields `json:"fields,omitempty"`
	}{o.Item, o.Qty, o.Fields})
	return b
}

// values puts what has no others in it into a map, by its JSON Pointer.
func values(path []string, value []byte, into map[string][]byte) {
	value = bytes.TrimSpace(value)
	n := 0
	for name, inner := range ijson.Children(value) {
		if value[0] == '[' {
			name = strconv.Itoa(n)
		}
		values(append(slices.Clip(path), name), inner, into)
		n++
	}
	if n == 0 {
		into[ijson.Pointer(path...)] = value
	}
}

// shown returns JSON in which characters that look the same are not.
func shown(value []byte) string {
	var b strings.Builder
	for _, r := range string(value) {
		if r <= '~' {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return cmp.Or(cut(b.String(), mostShown), "nothing")
}

// mostShown is how many bytes of a body, or of a value, are shown.
const mostShown = 1000

// bodyText returns a body in one line. Of JSON, white space in strings is kept.
func bodyText(body []byte) string {
	var b bytes.Buffer
	if !utf8.Valid(body) || json.Compact(&b, body) != nil {
		return Excerpt(string(body), mostShown)
	}
	return cut(b.String(), mostShown)
}

// Created returns the IDs of the orders that the shop has of it.
func (c *Call) Created() (ids []string) {
	for _, e := range c.Exchanges {
		if e.Created != "" {
			ids = append(ids, e.Created)
		}
	}
	return ids
}

// Last returns the last request of the call's own kind, or nil.
func (c *Call) Last() *Exchange {
	for _, e := range slices.Backward(c.Exchanges) {
		if e.Expected {
			return e
		}
	}
	return nil
}

// tries returns those of some exchanges that are the call's.
func (c *Call) tries(from, to int) []*Exchange {
	var out []*Exchange
	for _, e := range c.Exchanges[from:to] {
		if e.Expected {
			out = append(out, e)
		}
	}
	return out
}

// number returns that of an exchange in the story.
func (c *Call) number(e *Exchange) int { return slices.Index(c.Exchanges, e) + 1 }

// Story tells the call in lines: when, what was sent, and what was answered.
func (c *Call) Story() string {
	var b strings.Builder
	say := func(at time.Time, format string, args ...any) {
		if since := at.Sub(c.Began); since < time.Hour {
			fmt.Fprintf(&b, "%9.3f s  ", since.Seconds())
		} else {
			fmt.Fprintf(&b, "%11s  ", since.Round(time.Second))
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
	}
	const shown = 6
	told := 0
	tell := func(to int) {
		for ; told < to; told++ {
			i, e := told, c.Exchanges[told]
			if i >= shown && i < len(c.Exchanges)-2 {
				if i == shown {
					fmt.Fprintf(&b, "             … and %d more requests\n", len(c.Exchanges)-2-shown)
				}
				continue
			}
			body := bodyText(e.Body)
			same := func(was *Exchange) bool { return bytes.Equal(was.Body, e.Body) }
			if first := slices.IndexFunc(c.Exchanges[:min(i, shown)], same); first >= 0 && len(body) > 100 {
				body = fmt.Sprint("the body of ", first+1)
			}
			fields := ""
			if e.Key != "" {
				fields += "  Idempotency-Key: " + Excerpt(e.Key, 60)
			}
			if e.Tag != "" {
				fields += "  If-None-Match: " + Excerpt(e.Tag, 60)
			}
			say(e.At, "%d. %s %s%s  %s", i+1, e.Method, e.Target, fields, body)
			end := e.Ended
			if end.IsZero() {
				end = e.At
			}
			say(end, "   %s", e.answered())
		}
	}
	for _, r := range c.Results {
		tell(r.From)
		say(r.Asked, "%s is called", r.Name)
		tell(r.To)
		say(r.At, "%s", r)
	}
	tell(len(c.Exchanges))
	if c.Kind.IsOrder() {
		fmt.Fprintf(&b, "             In the end, the shop has %s\n",
			cmp.Or(strings.Join(c.Created(), " and "), "no order"))
	}
	return b.String()
}

func (r *Result) String() string {
	switch {
	case r.Err != nil:
		return "it returns the error: " + Excerpt(r.Err.Error(), 300)
	case r.IDs != nil:
		return "it returns " + cmp.Or(strings.Join(r.IDs, ", "), "an empty list")
	case r.ID != "":
		return fmt.Sprintf("it returns the order %q", r.ID)
	default:
		return fmt.Sprintf("it returns %q", r.Text)
	}
}

// answered says what came of a request, as far as it came.
func (e *Exchange) answered() string {
	said := []string{string(e.Delivery)}
	if e.Delivery != NoAnswer && e.Delivery != Silent {
		text := fmt.Sprint(e.Answer.Status)
		for _, name := range []string{"Retry-After", "Location", "Age", "ETag", "Cache-Control",
			"Idempotent-Replayed"} {
			value := e.Answer.Header.Get(name)
			if value != "" && (name != "Cache-Control" || e.Answer.Header.Get("ETag") != "") {
				text += "  " + name + ": " + Excerpt(value, 40)
			}
		}
		said = []string{text + "  " + bodyText(e.Answer.Body), string(e.Delivery)}
	}
	if e.Left {
		said = append(said, "the client left")
	}
	switch {
	case e.Created != "" && e.Held:
		said = append(said, "the request was held up, and created the order "+e.Created+" later")
	case e.Created != "" && (e.Delivery != Whole || e.Answer.Status != http.StatusCreated):
		said = append(said, "the shop has created the order "+e.Created)
	}
	return strings.Join(slices.DeleteFunc(said, func(s string) bool { return s == "" }), "; ")
}

// rounded returns a duration as people would say it.
func rounded(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.3f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Excerpt returns the text in one line of no more than n bytes and something.
func Excerpt(text string, n int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\ufffd")), " ")
	return cut(text, n)
}

// cut returns the first n bytes of a text, and something if that is not all.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
