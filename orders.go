package storefront

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"example.com/storefront/internal/httpfield"
	"example.com/storefront/internal/ijson"
	"example.com/storefront/internal/orderid"
)

// An Order is what POST /v1/orders creates. It cannot be compared by ==: later versions may add fields of
// any type. Equal compares two.
type Order struct {
	_ [0]func()

	ID        string    `json:"id"`               // begins with "ord_"
	Item      string    `json:"item"`             // 1 to 255 characters (code points)
	Qty       int64     `json:"qty"`              // 1 to 2^53-1
	Fields    Fields    `json:"fields,omitempty"` // "" unless Options.OrderFields is set
	CreatedAt time.Time `json:"created_at"`       // UTC, whole milliseconds
}

// Fields are what an order has beside item and quantity, as the program and its clients have agreed: the
// text of one JSON object, or "" for none. What decides whether they are right is the Store, when it has
// looked for the key, such as MemStore.Accept.
//
// The service passes them on, and answers with them, in one form: without white space, with the escapes of
// strings in one form, and with members and numbers in the sequence and form in which the client has sent
// them. They are I-JSON (RFC 7493), have at most 16 KiB in that form, and are nested at
// most 1000 levels.
type Fields string

// MarshalJSON returns the text, or null for "". It returns an error if the text is not that of an object.
func (f Fields) MarshalJSON() ([]byte, error) {
	if f == "" {
		return []byte("null"), nil
	}
	return canonicalObject([]byte(f))
}

// UnmarshalJSON sets *f to the text of an object, in the form in which the service has it. As
// encoding/json wants it, null changes nothing. It does not look at the length.
func (f *Fields) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	text, err := canonicalObject(data)
	if err == nil {
		*f = Fields(text)
	}
	return err
}

// canonicalObject returns the text of an object in the form of Fields.
func canonicalObject(text []byte) ([]byte, error) {
	switch _, isObject, err := ijson.Parse(text); {
	case err != nil:
		return nil, fmt.Errorf("storefront: fields of an order: %w", err)
	case !isObject:
		return nil, errors.New("storefront: fields of an order: not a JSON object")
	}
	return ijson.AppendCanonical(nil, text), nil
}

// valued returns f, which a Store has kept, in the form of the service. It reports whether f has the value
// that a request sent, perhaps written in another way.
func (f Fields) valued(sent Fields) (Fields, bool) {
	if f == sent || f == "" || sent == "" {
		return f, f == sent
	}
	text, err := canonicalObject([]byte(f))
	return Fields(text), err == nil && ijson.Sum(text) == ijson.Sum([]byte(sent))
}

// Equal reports whether o and other are the same in all fields, with their times as
// instants, however they are held, which a database or JSON changes.
func (o Order) Equal(other Order) bool {
	return o.ID == other.ID && o.Item == other.Item && o.Qty == other.Qty && o.Fields == other.Fields &&
		o.CreatedAt.Equal(other.CreatedAt)
}

// A Refusal is the error with which a [Store] refuses an order that it would
// otherwise create. The service answers 422 Unprocessable Content and leaves the
// key free. Fields that break these rules are dropped and logged.
type Refusal struct {
	Reason  string // a code of the program's own, for programs: 1 to 64 of a-z, 0-9 and -, or ""
	Detail  string // for people: at most 1,000 bytes of UTF-8 without control or noncharacters, or ""
	Pointer string // what is refused: "#/item", "#/qty", "#/fields", a place in it such as "#/fields/zip", or ""

	// Faults are all that is wrong with the order, such as each field of an address. They follow the
	// fault at Pointer, if there is one. A Detail and a Pointer follow the rules above, and a fault
	// without Detail is not sent; Minimum and Maximum are sent, Parameter and Header are not.
	Faults []Fault
}

// Error returns the reason and the detail.
func (r *Refusal) Error() string {
	return fmt.Sprintf("storefront: order refused (%s): %s", r.Reason, r.Detail)
}

// sendable returns r without what does not follow its rules, and the names of that.
func (r Refusal) sendable() (sendable Refusal, dropped []string) {
	drop := func(name string, field *string, follows bool) {
		if *field != "" && !follows {
			*field, dropped = "", append(dropped, name)
		}
	}
	drop("Reason", &r.Reason, len(r.Reason) <= 64 && consistsOf(r.Reason, lower+digits+"-"))
	drop("Detail", &r.Detail, isDetail(r.Detail))
	drop("Pointer", &r.Pointer, isOrderPointer(r.Pointer))
	faults := r.Faults
	r.Faults = nil // the Store's is left as it is
	for i, f := range faults[:min(len(faults), maxFaults)] {
		name := "Faults[" + strconv.Itoa(i) + "]."
		drop(name+"Detail", &f.Detail, isDetail(f.Detail))
		drop(name+"Pointer", &f.Pointer, isOrderPointer(f.Pointer))
		drop(name+"Parameter", &f.Parameter, false)
		drop(name+"Header", &f.Header, false)
		if f.Detail != "" {
			r.Faults = append(r.Faults, f)
		}
	}
	return r, dropped
}

func isDetail(s string) bool {
	unfit := func(c rune) bool { return unicode.IsControl(c) || ijson.IsNoncharacter(c) }
	return len(s) <= 1000 && utf8.ValidString(s) && !strings.ContainsFunc(s, unfit)
}

// isOrderPointer reports whether p leads to a member of an order, or into its fields (RFC 6901, Section 6).
func isOrderPointer(p string) bool {
	if p == "#/item" || p == "#/qty" || p == "#/fields" {
		return true
	}
	path, ok := strings.CutPrefix(p, "#/fields/")
	tokens, err := url.PathUnescape(path)
	tildes := strings.Count(tokens, "~") - strings.Count(tokens, "~0") - strings.Count(tokens, "~1")
	return ok && len(p) <= maxPointer && consistsOf(path, lower+upper+digits+"-._~!$&'()*+,;=:@/?%") &&
		err == nil && utf8.ValidString(tokens) && tildes == 0
}

const lower, upper, digits = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"

func consistsOf(s, set string) bool { return strings.Trim(s, set) == "" }

const (
	ordersPath    = "/v1/orders"
	maxOrderBody  = 64 << 10 // bytes
	maxItem       = 255      // characters
	maxFields     = 16 << 10 // bytes, as pages multiply it; may be raised, and never lowered
	maxPointer    = 2048     // bytes
	maxQty        = 1<<53 - 1
	commitTimeout = 30 * time.Second
	orderTooLarge = "The body must have at most 65536 bytes."
)

// createOrder serves POST /v1/orders.
func (s *service) createOrder(w http.ResponseWriter, r *http.Request) {
	if !s.checkOrderMedia(w, r) {
		return
	}
	value, problem, f := parseIdempotencyKey(r.Header["Idempotency-Key"])
	if f != nil {
		s.writeProblem(w, r, problem, "An order needs a key that makes its retry safe.", *f)
		return
	}
	if r.ContentLength > maxOrderBody {
		s.writeProblem(w, r, bodyTooLarge, orderTooLarge)
		return
	}
	if isPresent(r.Header["If-Match"]) { // after what would be refused without it (RFC 9110, Section 13.2.1)
		s.writeProblem(w, r, preconditionFailed,
			"If-Match matches nothing here, as there is no order yet. Leave it out.")
		return
	}
	body, ok := s.readOrderBody(w, r)
	if !ok {
		return
	}
	order, problem, faults := s.decodeOrder(body)
	if faults != nil {
		detail := "The body must be a JSON object with the members item and qty."
		if s.opts.OrderFields {
			detail = "The body must be a JSON object with the members item and qty, and perhaps fields."
		}
		s.writeProblem(w, r, problem, detail, faults...)
		return
	}

	key := IdempotencyKey{Value: value, Fingerprint: order.fingerprint()}
	if s.opts.Scope != nil {
		key.Scope = s.opts.Scope(r)
	}
	now := time.Now()
	order.ID = orderid.New(now)
	order.CreatedAt = now.UTC().Truncate(time.Millisecond)

	// A client that goes away must not cancel a commit under way: its retry will
	// ask for the outcome.
	deadline := now.Add(commitTimeout)
	if d, ok := r.Context().Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.Context()), deadline)
	defer cancel()
	stored, err := s.store.CreateOrder(ctx, key, order)
	if err != nil {
		s.orderFailed(w, r, err)
		return
	}
	if stored.ID != order.ID {
		w.Header()["Idempotent-Replayed"] = []string{"true"}
	}
	if s.opts.Orders != nil && key.Scope != "" {
		w.Header()["Location"] = []string{"orders/" + url.PathEscape(stored.ID)}
	}
	answer := stored.appendJSON(nil)
	setContent(w.Header(), "application/json", len(answer), "no-store")
	w.WriteHeader(http.StatusCreated)
	w.Write(answer)
}

// listOrders serves GET /v1/orders.
func (s *service) listOrders(w http.ResponseWriter, r *http.Request) {
	q, faults := s.parsePageQuery(r.URL.RawQuery, ordersList, "after", s.opts.PageSize)
	if faults != nil {
		s.writeProblem(w, r, invalidQuery, "The query is not valid for this list.", faults...)
		return
	}
	var orders []Resource
	var err error
	switch scope := s.opts.Scope(r); {
	case scope == "" && q.key != "": // an empty page would say that there is no order
		s.writeProblem(w, r, invalidQuery, "The query is not valid for this list.",
			Fault{Detail: "Without an account, no order is found by its key.", Parameter: keyParameter})
		return
	case scope == "": // they would be those of everybody who has signed in nowhere
	case q.key != "":
		var order Resource
		if order, err = s.orders.GetOrderByKey(r.Context(), scope, q.key); err == nil {
			orders = []Resource{order}
		} else if errors.Is(err, ErrNotFound) {
			err = nil
		}
	default:
		orders, err = s.orders.ListOrders(r.Context(), scope, q.position, q.limit+1)
	}
	if err != nil {
		s.storeFailed(w, r, err)
		return
	}
	next := ""
	if len(orders) > q.limit { // the extra one shows that more follow
		next = ordersList.encodeCursor(orders[q.limit-1].ID())
	}
	s.writePage(w, r, orders, q.limit, "orders", "after", next, ownedByOne)
}

// getOrder serves GET /v1/orders/{order_id}.
func (s *service) getOrder(w http.ResponseWriter, r *http.Request) {
	id, scope := r.PathValue("order_id"), s.opts.Scope(r)
	order, err := Resource{}, ErrNotFound
	if scope != "" && checkID(id) == nil {
		order, err = s.orders.GetOrder(r.Context(), scope, id)
	}
	switch {
	case errors.Is(err, ErrNotFound):
		s.writeProblem(w, r, orderNotFound, "There is no order with this ID, or it is not yours.")
		return
	case err != nil:
		s.storeFailed(w, r, err)
		return
	}
	body, etag, _ := order.parts()
	if s.writeHead(w, r, representation{etag: etag, freshness: ownedByOne, length: len(body)}) {
		io.WriteString(w, body)
	}
}

// orderFailed answers an order for which the store returned err.
func (s *service) orderFailed(w http.ResponseWriter, r *http.Request, err error) {
	refusal, refused := errors.AsType[*Refusal](err)
	switch {
	case errors.Is(err, ErrKeyReused):
		s.writeProblem(w, r, idempotencyKeyReused,
			"The key was used before, with another order. Use a new key for a new order.",
			Fault{Detail: "The key belongs to another order.", Header: "Idempotency-Key"})
	case errors.Is(err, ErrInProgress):
		w.Header().Set("Retry-After", "1")
		s.writeProblem(w, r, idempotencyKeyInProgress,
			"A request with this key is in progress. Try again, with the same key.")
	case refused:
		send, dropped := refusal.sendable()
		if dropped != nil { // the names alone are logged, as the values may have the order in them
			s.log(r, slog.LevelWarn, "a Refusal has parts that do not follow their rules and were not sent",
				slog.Any("parts", dropped))
		}
		p := orderRefused.problem(cmp.Or(send.Detail, "The order was refused."))
		p.Reason = send.Reason
		if send.Pointer != "" {
			p.Errors = []Fault{{Detail: p.Detail, Pointer: send.Pointer}}
		}
		p.Errors = bounded(p.Detail, append(p.Errors, send.Faults...))
		p.ServeHTTP(w, r)
	default:
		s.storeFailed(w, r, err)
	}
}

// MarshalJSON returns the order as the service sends it: CreatedAt is in UTC and always in
// milliseconds, with three digits, so the times of orders sort as text. It returns an error if Fields
// are not those of an object. A struct that embeds an Order has this method, too, and so nothing else
// in its JSON: give the field a name.
func (o Order) MarshalJSON() ([]byte, error) {
	if o.Fields != "" {
		text, err := o.Fields.MarshalJSON()
		if err != nil {
			return nil, err
		}
		o.Fields = Fields(text)
	}
	return o.appendJSON(nil), nil
}

// resource returns the order as [NewResource] does, but in a fraction of the time.
func (o *Order) resource(id string) (r Resource, ok bool) {
	var scratch [512]byte
	switch {
	case o == nil:
	case o.ID != id || o.Fields != "" || !isPrintableASCII(o.Item):
		text, err := o.MarshalJSON()
		if err == nil {
			r, err = renderResource(id, text)
		}
		ok = err == nil
	default: // nothing is left that JSON could not have
		r = newResource(o.appendJSON(scratch[:0]), len(id), "")
		ok = r.ID() == id // unless it is escaped
	}
	return r, ok
}

// appendJSON appends the order, whose fields are in the form of the service.
func (o *Order) appendJSON(b []byte) []byte {
	b = slices.Grow(b, 128+len(o.Item)+len(o.Fields))
	b = ijson.AppendString(append(b, `{"id":`...), o.ID)
	b = ijson.AppendString(append(b, `,"item":`...), o.Item)
	b = strconv.AppendInt(append(b, `,"qty":`...), o.Qty, 10)
	if o.Fields != "" {
		b = append(append(b, `,"fields":`...), o.Fields...)
	}
	b = o.CreatedAt.UTC().AppendFormat(append(b, `,"created_at":"`...), time.RFC3339) // which ends in Z
	ms := o.CreatedAt.Nanosecond() / int(time.Millisecond)
	return append(b[:len(b)-1], '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z', '"', '}')
}

// checkOrderMedia reports whether the headers declare the body to be JSON
// without a content coding. If not, it has answered.
func (s *service) checkOrderMedia(w http.ResponseWriter, r *http.Request) bool {
	var faults []Fault
	if !httpfield.IsJSON(r.Header["Content-Type"]) {
		w.Header().Set("Accept", "application/json")
		detail := "Content-Type must be application/json; a charset, if given, must be utf-8."
		faults = append(faults, Fault{Detail: detail, Header: "Content-Type"})
	}
	if httpfield.HasCoding(r.Header["Content-Encoding"]) {
		w.Header().Set("Accept-Encoding", "identity")
		detail := "The body must not have a content coding."
		faults = append(faults, Fault{Detail: detail, Header: "Content-Encoding"})
	}
	if faults != nil {
		s.writeProblem(w, r, unsupportedMediaType,
			"An order is sent as application/json without a content coding.", faults...)
	}
	return faults == nil
}

// readOrderBody reads the body, of at most maxOrderBody bytes. If ok is false, it has answered.
func (s *service) readOrderBody(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	if r.Body == nil { // in a request not made by a server
		return nil, true
	}
	// The declared length is only a hint: what it promises may never come, and middleware
	// that decodes the body may have left it unchanged.
	body = make([]byte, 0, min(uint64(r.ContentLength), 4<<10-1)+1) // -1 is unknown
	var err error
	for err == nil && len(body) <= maxOrderBody {
		if len(body) == cap(body) {
			body = slices.Grow(body, 1+min(len(body), max(0, int(r.ContentLength)-len(body))))
		}
		var n int
		n, err = r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
	}
	switch {
	case err == io.EOF && len(body) == 0 && r.ContentLength > 0:
		s.writeProblem(w, r, malformedBody, "The body was read by something around the service, and none was left.")
	case len(body) > maxOrderBody:
		s.writeProblem(w, r, bodyTooLarge, orderTooLarge)
	case err == io.EOF:
		r.Body.Close() // otherwise net/http would look for more before it sends the answer
		return body, true
	case errors.As(err, new(*http.MaxBytesError)): // by a limit of the program's, around the service
		s.writeProblem(w, r, bodyTooLarge, "The body is larger than this server takes.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.writeProblem(w, r, requestTimeout, "The body did not arrive in time. Try again, with the same key.")
	default:
		s.writeProblem(w, r, malformedBody,
			"The body could not be read to its end. Try again, with the same key.")
	}
	return nil, false
}

// decodeOrder returns the order in body, or every fault found in it.
func (s *service) decodeOrder(body []byte) (Order, problemType, []Fault) {
	members, isObject, err := ijson.Parse(body)
	if bad, ok := errors.AsType[*ijson.Error](err); ok {
		fault := Fault{Detail: "The JSON " + bad.Reason + ".", Pointer: pointer(bad.Path...)}
		return Order{}, malformedBody, []Fault{fault}
	}
	if !isObject {
		return Order{}, invalidOrder, []Fault{{Detail: "The body must be an object.", Pointer: "#"}}
	}
	var (
		order           Order
		faults          []Fault
		hasItem, hasQty bool
	)
	for _, m := range members {
		if len(faults) == maxFaults { // no more are sent
			break
		}
		var f *Fault
		switch name := string(m.Name); {
		case name == "item":
			hasItem = true
			order.Item, f = decodeItem(m)
		case name == "qty":
			hasQty = true
			order.Qty, f = decodeQty(m)
		case !s.opts.OrderFields:
			f = &Fault{Detail: "Unknown member. An order has item and qty."}
		case name == "fields":
			order.Fields, f = decodeFields(m)
		default:
			f = &Fault{Detail: "Unknown member. An order has item, qty and fields."}
		}
		if f != nil {
			f.Pointer = pointer(string(m.Name))
			faults = append(faults, *f)
		}
	}
	if !hasItem {
		faults = append(faults, Fault{Detail: "item is required.", Pointer: "#/item"})
	}
	if !hasQty {
		faults = append(faults, Fault{Detail: "qty is required.", Pointer: "#/qty"})
	}
	return order, invalidOrder, faults
}

// pointer returns the JSON Pointer for path as a URI fragment (RFC 6901, Section
// 6), or "" if that would be long.
func pointer(path ...string) string {
	if p := ijson.Pointer(path...); len(p) <= maxPointer {
		return p
	}
	return ""
}

func decodeItem(m ijson.Member) (string, *Fault) {
	item, ok := m.Text()
	switch n := utf8.RuneCountInString(item); {
	case !ok:
		return "", &Fault{Detail: "item must be a string."}
	case n == 0:
		return "", &Fault{Detail: "item must not be empty.", Minimum: new(int64(1))}
	case n > maxItem:
		return "", &Fault{Detail: "item must have at most 255 characters.", Maximum: new(int64(maxItem))}
	case strings.TrimSpace(item) == "":
		return "", &Fault{Detail: "item must not be blank."}
	case strings.ContainsFunc(item, unicode.IsControl):
		return "", &Fault{Detail: "item must not have control characters."}
	}
	return item, nil
}

func decodeFields(m ijson.Member) (Fields, *Fault) {
	if m.Value[0] != '{' {
		return "", &Fault{Detail: "fields must be an object."}
	}
	text := ijson.AppendCanonical(make([]byte, 0, len(m.Value)), m.Value)
	if len(text) > maxFields {
		return "", &Fault{Detail: "fields must have at most 16384 bytes, without white space."}
	}
	return Fields(text), nil
}

func decodeQty(m ijson.Member) (int64, *Fault) {
	qty, ok := m.Int64()
	if !ok || qty < 1 || qty > maxQty {
		detail := "qty must be a whole number from 1 to 9007199254740991."
		return 0, &Fault{Detail: detail, Minimum: new(int64(1)), Maximum: new(int64(maxQty))}
	}
	return qty, nil
}
