package faultreport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/faults"
	"example.com/storefront/internal/httpfield"
	"example.com/storefront/internal/ijson"
)

// OutcomesPath is where clients report what they believe, by POST.
const OutcomesPath = PagePath + "/outcomes"

const (
	mostOutcomeBytes = 1 << 20 // of a report, or a line
	mostOutcomes     = 1000    // of a report
	mostResults      = 100     // of a call

	stall = 10 * time.Second // which may come between a read and its outcome
)

// An outcome is what a client says of an order, a walk or a read.
type outcome struct {
	client string // empty: not said
	kind   conformance.Kind
	what   string // the item or the product
	qty    int64  // of an order; 0: not said
	result conformance.Result
}

// outcomeMembers are those that an outcome may have, besides error and client, by the first of them.
var outcomeMembers = map[string][]string{
	"item": {"item", "qty", "id"}, "list": {"list", "ids"}, "product": {"product", "name"},
}

// parseOutcome returns an outcome that is a JSON object, or what is wrong with it.
func parseOutcome(object []byte) (*outcome, []storefront.Fault) {
	members, isObject, err := ijson.Parse(object)
	if bad, ok := errors.AsType[*ijson.Error](err); ok {
		return nil, []storefront.Fault{{Detail: "The JSON " + bad.Reason + ".",
			Pointer: ijson.Truncate(ijson.Pointer(bad.Path...), 300)}}
	}
	if !isObject {
		return nil, []storefront.Fault{{Detail: "An outcome is an object.", Pointer: "#"}}
	}
	has := make(map[string]ijson.Member)
	for _, m := range members {
		if string(m.Value) != "null" {
			has[string(m.Name)] = m
		}
	}
	var faults []storefront.Fault
	wrong := func(member, format string, args ...any) {
		f := storefront.Fault{Detail: fmt.Sprintf(format, args...), Pointer: "#"}
		if member != "" {
			f.Pointer = pointer(member)
		}
		faults = append(faults, f)
	}
	text := func(name string) (text string, ok bool) {
		m, ok := has[name]
		if !ok {
			return "", false
		}
		if text, ok := m.Text(); ok {
			return text, true
		}
		wrong(name, "%s must be a string.", name)
		return "", false
	}
	o := new(outcome)
	o.client, _ = text("client")
	failure, failed := text("error")
	if failed {
		o.result.Err = errors.New(failure)
	}
	subject, believed := "", ""
	for _, name := range []string{"item", "list", "product"} {
		if _, ok := has[name]; ok && subject != "" {
			wrong(name, "An outcome is of one of item, list and product.")
		} else if ok {
			subject = name
		}
	}
	o.what, _ = text(subject)
	switch subject {
	case "item":
		o.kind, believed = conformance.Orders, "id"
		o.result.ID, _ = text("id")
		if qty, ok := has["qty"]; ok {
			if o.qty, ok = qty.Int64(); !ok || o.qty < 1 {
				wrong("qty", "qty must be a whole number from 1.")
			}
		}
	case "list":
		o.kind, believed = conformance.Kind(o.what), "ids"
		if !isWalk(o.kind) {
			wrong("list", "list must be users or widgets.")
		}
		if ids, ok := has["ids"]; ok {
			var texts []*string
			if json.Unmarshal(ids.Value, &texts) != nil || slices.Contains(texts, nil) {
				wrong("ids", "ids must be an array of strings.")
				break
			}
			o.result.IDs = []string{}
			for _, id := range texts {
				o.result.IDs = append(o.result.IDs, *id)
			}
		}
	case "product":
		o.kind, believed = conformance.Products, "name"
		o.result.Text, _ = text("name")
	default:
		wrong("", "An outcome has one of item, list and product.")
		return nil, faults
	}
	if _, ok := has[believed]; ok && failed { // a client may have neither: it believes, but has kept nothing
		wrong("", "An outcome of %s has either %s or error.", subject, believed)
	}
	for _, m := range members {
		name := string(m.Name)
		if name != "client" && name != "error" && !slices.Contains(outcomeMembers[subject], name) {
			wrong(name, "Unknown member. An outcome of %s has %s or error, and may have client.", subject,
				strings.Join(outcomeMembers[subject], ", "))
		}
	}
	if faults != nil {
		return nil, faults
	}
	return o, nil
}

// parseOutcomes parses a form, or JSON objects one after the other.
func parseOutcomes(body []byte) (all []*outcome, faults []storefront.Fault) {
	if body = bytes.TrimSpace(body); len(body) == 0 || body[0] != '{' && body[0] != '[' {
		object, faults := formObject(string(body))
		if faults != nil {
			return nil, faults
		}
		body = object
	}
	for d := json.NewDecoder(bytes.NewReader(body)); len(all) < mostOutcomes; {
		var text json.RawMessage
		rest := body[d.InputOffset():]
		if err := d.Decode(&text); err == io.EOF {
			return all, nil
		} else if err != nil {
			text = rest // which has what is wrong
		}
		o, faults := parseOutcome(text)
		if faults != nil {
			faults[0].Detail += fmt.Sprintf(" (Object %d.)", len(all)+1)
			return nil, faults
		}
		all = append(all, o)
	}
	return nil, []storefront.Fault{{Detail: fmt.Sprintf("A report has at most %d outcomes.", mostOutcomes-1)}}
}

// formObject returns the object of JSON that has the fields of a form, in which ids may come several times.
func formObject(body string) ([]byte, []storefront.Fault) {
	form, err := url.ParseQuery(body)
	if err != nil {
		return nil, []storefront.Fault{{Detail: "The body is neither JSON nor a form."}}
	}
	members := make(map[string]any)
	for name, values := range form {
		qty, err := strconv.ParseInt(values[0], 10, 64)
		switch {
		case name == "ids":
			members[name] = values
		case len(values) > 1:
			return nil, []storefront.Fault{{Detail: "It comes twice.", Pointer: pointer(name)}}
		case name == "qty" && err == nil:
			members[name] = qty
		default:
			members[name] = values[0]
		}
	}
	text, _ := ijson.Marshal(members) // has no errors
	return text, nil
}

func pointer(member string) string { return ijson.Pointer(ijson.Truncate(member, 100)) }

func (s *Server) serveOutcomes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	refuse := func(status int, detail string, faults ...storefront.Fault) {
		storefront.Problem{Status: status, Detail: detail, Errors: faults}.ServeHTTP(w, r)
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuse(http.StatusMethodNotAllowed, "Outcomes are sent by POST.")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostOutcomeBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		refuse(http.StatusRequestEntityTooLarge, "Outcomes have at most 1 MiB. Send them in parts.")
		return
	}
	if err != nil {
		refuse(http.StatusBadRequest, "The body did not arrive whole.")
		return
	}
	outcomes, faults := parseOutcomes(body)
	if faults != nil {
		refuse(http.StatusUnprocessableEntity, "The body is no outcome, and none was taken.", faults...)
		return
	}
	for i, o := range outcomes {
		if problem := s.take(o, clientName(r)); problem != "" {
			problem = fmt.Sprintf("Object %d: %s Those before it were taken.", i+1, problem)
			refuse(http.StatusNotFound, problem)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// take adds an outcome to its call, or says why it cannot.
func (s *Server) take(o *outcome, reporter string) (problem string) {
	s.mu.Lock()
	clients := slices.Clone(s.clients)
	s.mu.Unlock()
	clients = slices.DeleteFunc(clients, func(cl *client) (other bool) {
		cl.view(func() { other = cl.ofOutcome(o) == nil })
		return other || cl.store == nil || o.client != "" && cl.name != shown(o.client)
	})
	i := slices.IndexFunc(clients, func(cl *client) bool { return cl.name == reporter })
	switch {
	case len(clients) == 0:
		return fmt.Sprintf("No such client has sent what this would be the outcome of: %s.", o.ask())
	case len(clients) > 1 && i < 0:
		return "Several clients have sent this. The member client says which, by its User-Agent."
	}
	clients[max(0, i)].view(func() { problem = clients[max(0, i)].record(o) })
	return problem
}

// ask is what the outcome answers, as a program would be asked for it.
func (o *outcome) ask() string {
	text, _ := ijson.Marshal(o.what)
	switch {
	case o.kind == conformance.Orders && o.qty > 0:
		return fmt.Sprintf(`{"item":%s,"qty":%d}`, text, o.qty)
	case o.kind == conformance.Orders:
		return fmt.Sprintf(`{"item":%s}`, text)
	case o.kind == conformance.Products:
		return fmt.Sprintf(`{"product":%s}`, text)
	}
	return fmt.Sprintf(`{"list":%s}`, text)
}

// ofOutcome returns the call that an outcome is about, nil if there is none. Its caller is in view.
func (cl *client) ofOutcome(o *outcome) *faults.Call {
	newest := func(again bool) *faults.Call {
		return cl.newest(func(c *faults.Call) bool {
			return c.Kind == o.kind && (isWalk(o.kind) || c.Item == o.what) &&
				(o.qty == 0 || c.Qty == o.qty) && (again || len(c.Results) == 0)
		})
	}
	switch o.kind {
	case conformance.Orders:
		return cmp.Or(newest(false), newest(true))
	case conformance.Products:
		return newest(true)
	}
	return newest(false)
}

func isWalk(kind conformance.Kind) bool {
	return kind == conformance.Users || kind == conformance.Widgets
}

// record adds an outcome to its call. Its caller is in view.
func (cl *client) record(o *outcome) (problem string) {
	c := cl.ofOutcome(o)
	if c == nil || len(c.Results) == mostResults || cl.size() > 2*mostBytes {
		return "There have been too many outcomes."
	}
	switch {
	case isWalk(c.Kind):
		changed := make(map[string]bool)
		for _, other := range cl.calls { // at the same time may have changed the list, too
			if other.Kind == c.Kind && !lastAt(&other.Call).Before(c.Began) {
				for id := range other.Changed {
					changed[id] = true
				}
			}
		}
		c.Changed = changed
	case c.Kind == conformance.Products:
		if cl.reads[o.what].settled && tooOld(c.Last()) {
			cl.rename(o.what)
		}
		cl.reads[o.what] = reads{cl.reads[o.what].number + 1, true}
		o.result.Want = nameOf(cl.product(o.what))
	}
	add(c, o, c.Began)
	return ""
}

// add adds an outcome to a call: all since the one before belongs to it.
func add(c *faults.Call, o *outcome, asked time.Time) {
	r := o.result
	r.Name, r.Asked, r.At, r.To = o.ask(), asked, time.Now(), len(c.Exchanges)
	if n := len(c.Results); n > 0 {
		r.From = c.Results[n-1].To
	}
	c.Results = append(c.Results, &r)
}

// Reads are those of a product that have an outcome.
type reads struct {
	number  int
	settled bool // no request has come since the last of them
}

// arrive is called before a product is asked for: its name changes, every other time, and it has one.
func (cl *client) arrive(id string) {
	r := cl.reads[id]
	if r.settled && r.number%2 == 1 || nameOf(cl.product(id)) == "" {
		cl.rename(id)
	}
	if r.settled {
		cl.reads[id] = reads{r.number, false}
	}
}

// product returns the members of a product, nil if there is none.
func (cl *client) product(id string) (members map[string]any) {
	if p, ok := cl.store.Products.Get(id); ok {
		json.Unmarshal([]byte(p.String()), &members)
	}
	return members
}

func nameOf(members map[string]any) string {
	name, _ := members["name"].(string)
	return name
}

// rename changes the name of a product.
func (cl *client) rename(id string) {
	if members := cl.product(id); members != nil {
		name, _, _ := strings.Cut(nameOf(members), ", version ")
		members["name"] = fmt.Sprintf("%s, version %d", cmp.Or(name, id), cl.reads[id].number+1)
		cl.store.Products.Put(storefront.MustResource(id, members))
	}
}

// tooOld reports whether a client may no longer use an answer that it has kept, and could not have
// read it from there before.
func tooOld(e *conformance.Exchange) bool {
	control := httpfield.ParseCacheControl(e.Answer.Header["Cache-Control"])
	if !control.AcceptsAge || control.NoCache || control.NoStore || e.Delivery != conformance.Whole {
		return true
	}
	age, _ := strconv.Atoi(e.Answer.Header.Get("Age"))
	return time.Since(e.Ended)-stall > control.MaxAge-time.Duration(age)*time.Second
}
