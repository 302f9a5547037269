package storefront

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// An Order is what POST /v1/orders creates.
type Order struct {
	ID        string    `json:"id"`         // "ord_" and 26 random characters
	Item      string    `json:"item"`       // 1 to 255 characters (code points)
	Qty       int64     `json:"qty"`        // 1 to 2^53-1
	CreatedAt time.Time `json:"created_at"` // UTC, whole milliseconds
}

const (
	maxOrderBody  = 64 << 10 // bytes
	maxItem       = 255      // characters
	maxQty        = 1<<53 - 1
	commitTimeout = 30 * time.Second
)

// createOrder serves POST /v1/orders.
func (s *service) createOrder(w http.ResponseWriter, r *http.Request) {
	if !s.checkNoQuery(w, r) || !s.checkOrderMedia(w, r) {
		return
	}
	value, problem, f := parseIdempotencyKey(r.Header["Idempotency-Key"])
	if f != nil {
		s.writeProblem(w, r, problem, "An order needs a key that makes its retry safe.", *f)
		return
	}
	body, ok := s.readOrderBody(w, r)
	if !ok {
		return
	}
	order, problem, faults := decodeOrder(body)
	if faults != nil {
		s.writeProblem(w, r, problem, "The body must be a JSON object with the members item and qty.", faults...)
		return
	}

	key := IdempotencyKey{Value: value, Fingerprint: order.fingerprint()}
	if s.opts.Scope != nil {
		key.Scope = s.opts.Scope(r)
	}
	now := time.Now()
	order.ID = "ord_" + rand.Text()
	order.CreatedAt = now.UTC().Truncate(time.Millisecond)

	// A client that goes away must not cancel a commit under way: its retry will
	// ask for the outcome.
	ctx := &commitContext{Context: context.WithoutCancel(r.Context()), deadline: now.Add(commitTimeout)}
	defer ctx.end()
	stored, err := s.store.CreateOrder(ctx, key, order)
	if err == nil && stored.ID == "" {
		err = errors.New("CreateOrder returned an order without ID")
	}
	switch {
	case errors.Is(err, ErrKeyReused):
		s.writeProblem(w, r, idempotencyKeyReused, "The key was used before, with another order. Use a new key for a new order.",
			fault{Detail: "The key belongs to another order.", Header: "Idempotency-Key"})
	case errors.Is(err, ErrInProgress):
		w.Header().Set("Retry-After", "1")
		s.writeProblem(w, r, idempotencyKeyInProgress, "A request with this key is in progress. Try again, with the same key.")
	case err != nil:
		s.storeFailed(w, r, err)
	default:
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		if stored.ID != order.ID {
			h.Set("Idempotent-Replayed", "true")
		}
		s.writeJSON(w, r, http.StatusCreated, stored.appendJSON(nil))
	}
}

// appendJSON appends the order as [encoding/json] renders it, in UTC and with <, >
// and & as they are.
func (o *Order) appendJSON(b []byte) []byte {
	b = slices.Grow(b, 128+len(o.Item))
	b = appendString(append(b, `{"id":`...), o.ID)
	b = appendString(append(b, `,"item":`...), o.Item)
	b = strconv.AppendInt(append(b, `,"qty":`...), o.Qty, 10)
	b = o.CreatedAt.UTC().AppendFormat(append(b, `,"created_at":"`...), time.RFC3339Nano)
	return append(b, `"}`...)
}

// checkOrderMedia reports whether the headers declare the body to be JSON
// without a content coding. If not, it has answered.
func (s *service) checkOrderMedia(w http.ResponseWriter, r *http.Request) bool {
	var faults []fault
	if lines := r.Header["Content-Type"]; len(lines) != 1 || !isJSON(lines[0]) {
		w.Header().Set("Accept", "application/json")
		faults = append(faults, fault{Detail: "Content-Type must be application/json; a charset, if given, must be utf-8.", Header: "Content-Type"})
	}
	if slices.ContainsFunc(r.Header["Content-Encoding"], namesCoding) {
		w.Header().Set("Accept-Encoding", "identity")
		faults = append(faults, fault{Detail: "The body must not have a content coding.", Header: "Content-Encoding"})
	}
	if faults != nil {
		s.writeProblem(w, r, unsupportedMediaType, "An order is sent as application/json without a content coding.", faults...)
	}
	return faults == nil
}

// namesCoding reports whether a line of Content-Encoding lists a coding other
// than identity.
func namesCoding(line string) bool {
	for coding := range strings.SplitSeq(line, ",") {
		if coding = strings.Trim(coding, " \t"); coding != "" && !strings.EqualFold(coding, "identity") {
			return true
		}
	}
	return false
}

// isJSON reports whether contentType is application/json, in UTF-8 if it has a
// charset (RFC 8259, Section 8.1).
func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8")
}

// readOrderBody reads the body, of at most maxOrderBody bytes. If ok is false,
// it has answered.
func (s *service) readOrderBody(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	const tooLarge = "The body must have at most 65536 bytes."
	if r.ContentLength > maxOrderBody {
		s.writeProblem(w, r, bodyTooLarge, tooLarge)
		return nil, false
	}
	if r.Body == nil { // in a request not made by a server
		return nil, true
	}
	// The declared length is only a hint: middleware that decodes the body may
	// have left it unchanged.
	body = make([]byte, 0, max(r.ContentLength, 0)+1)
	var err error
	for err == nil && len(body) <= maxOrderBody {
		body = slices.Grow(body, 1)
		var n int
		n, err = r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
	}
	switch {
	case len(body) > maxOrderBody:
		s.writeProblem(w, r, bodyTooLarge, tooLarge)
	case err == io.EOF:
		return body, true
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.writeProblem(w, r, requestTimeout, "The body did not arrive in time. Try again, with the same key.")
	default:
		s.writeProblem(w, r, malformedBody, "The body could not be read to its end. Try again, with the same key.")
	}
	return nil, false
}

// decodeOrder returns the order in body, or every fault found in it.
func decodeOrder(body []byte) (Order, problemType, []fault) {
	members, isObject, f := parseIJSON(body)
	if f != nil {
		return Order{}, malformedBody, []fault{*f}
	}
	if !isObject {
		return Order{}, invalidOrder, []fault{{Detail: "The body must be an object.", Pointer: "#"}}
	}
	var (
		order           Order
		faults          []fault
		hasItem, hasQty bool
	)
	for _, m := range members {
		f := (*fault)(nil)
		switch string(m.name) {
		case "item":
			hasItem = true
			order.Item, f = decodeItem(m)
		case "qty":
			hasQty = true
			order.Qty, f = decodeQty(m)
		default:
			f = &fault{Detail: "Unknown member. An order has item and qty."}
		}
		if f != nil {
			f.Pointer = pointer(string(m.name))
			faults = append(faults, *f)
		}
	}
	if !hasItem {
		faults = append(faults, fault{Detail: "item is required.", Pointer: "#/item"})
	}
	if !hasQty {
		faults = append(faults, fault{Detail: "qty is required.", Pointer: "#/qty"})
	}
	return order, invalidOrder, faults
}

func decodeItem(m member) (string, *fault) {
	item, ok := m.str()
	switch n := utf8.RuneCountInString(item); {
	case !ok:
		return "", &fault{Detail: "item must be a string."}
	case n == 0:
		return "", &fault{Detail: "item must not be empty.", Minimum: 1}
	case n > maxItem:
		return "", &fault{Detail: "item must have at most 255 characters.", Maximum: maxItem}
	case strings.TrimSpace(item) == "":
		return "", &fault{Detail: "item must not be blank."}
	case strings.ContainsFunc(item, unicode.IsControl):
		return "", &fault{Detail: "item must not have control characters."}
	}
	return item, nil
}

func decodeQty(m member) (int64, *fault) {
	qty, err := strconv.ParseInt(string(m.value), 10, 64)
	if err != nil || qty < 1 || qty > maxQty {
		return 0, &fault{Detail: "qty must be a whole number from 1 to 9007199254740991, in digits alone.", Minimum: 1, Maximum: maxQty}
	}
	return qty, nil
}

// A commitContext is like the result of [context.WithDeadline], but starts its
// timer only when Done is called. MemStore never calls it, and the timer would
// be a tenth of the cost of creating an order.
type commitContext struct {
	context.Context // never done
	deadline        time.Time

	mu    sync.Mutex
	timed context.Context // has the timer; nil until Done is called
	stop  context.CancelFunc
	ended error // if it ended without a timer
}

func (c *commitContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *commitContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.stop = context.WithDeadline(c.Context, c.deadline)
		if c.ended != nil {
			c.stop()
		}
	}
	return c.timed.Done()
}

func (c *commitContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended != nil:
		return c.ended
	case c.timed != nil:
		return c.timed.Err()
	case time.Now().Before(c.deadline):
		return nil
	}
	return context.DeadlineExceeded
}

// Value asks timed, so that package context recognizes its cancellation and
// starts no goroutine for a child context.
func (c *commitContext) Value(key any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed != nil {
		return c.timed.Value(key)
	}
	return c.Context.Value(key)
}

// end does what a [context.CancelFunc] does.
func (c *commitContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stop != nil:
		c.stop()
	case time.Now().Before(c.deadline):
		c.ended = context.Canceled
	default:
		c.ended = context.DeadlineExceeded
	}
}

// A member is a member of a JSON object.
type member struct {
	name  []byte
	value []byte // as it was written
	text  []byte // the value unescaped, if it is a string
}

// str returns the member's value, if it is a string.
func (m member) str() (string, bool) { return string(m.text), m.value[0] == '"' }

// parseIJSON checks that text is a single I-JSON value (RFC 7493) and returns
// its members if it is an object. It leaves the syntax to [encoding/json] and
// checks what that package lets pass: invalid UTF-8, lone surrogates,
// noncharacters and duplicate names.
func parseIJSON(text []byte) (members []member, isObject bool, f *fault) {
	switch {
	case !utf8.Valid(text):
		return nil, false, &fault{Detail: "The JSON is not valid UTF-8.", Pointer: "#"}
	case bytes.HasPrefix(text, []byte("\ufeff")):
		return nil, false, &fault{Detail: "The JSON begins with a byte order mark, which it must not have.", Pointer: "#"}
	case !json.Valid(text):
		detail := "The JSON is empty."
		var syntax *json.SyntaxError
		if errors.As(json.Unmarshal(text, new(json.RawMessage)), &syntax) && len(text) > 0 {
			detail = "The JSON is not well-formed, at byte " + strconv.FormatInt(syntax.Offset, 10) + " or before."
		}
		return nil, false, &fault{Detail: detail, Pointer: "#"}
	}
	p := ijsonParser{rest: text}
	p.space()
	if p.rest[0] == '{' {
		p.depth = 1
		members, f = p.object()
	} else {
		_, f = p.value()
	}
	if f != nil {
		slices.Reverse(p.path)
		f.Pointer = pointer(p.path...)
	}
	return members, members != nil, f
}

// maxJSONDepth bounds how deeply objects and arrays are nested, and so the stack
// that parsing them takes.
const maxJSONDepth = 1000

// An ijsonParser walks a text that is known to be valid JSON.
type ijsonParser struct {
	rest  []byte
	depth int
	path  []string // the way to a fault, innermost first
}

func (p *ijsonParser) space() {
	for len(p.rest) > 0 && isSpace(p.rest[0]) {
		p.rest = p.rest[1:]
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// object consumes the object that rest begins with and returns its members,
// which are not nil even if there are none.
func (p *ijsonParser) object() ([]member, *fault) {
	members := make([]member, 0, 2)
	var names map[string]bool // nil while there are few enough to search in turn
	for {
		p.rest = p.rest[1:] // { or ,
		p.space()
		if p.rest[0] == '}' { // only in an empty object
			break
		}
		var m member
		var f *fault
		if m.name, f = p.str(); f != nil {
			return nil, f
		}
		if len(members) == 8 {
			names = make(map[string]bool)
			for _, earlier := range members {
				names[string(earlier.name)] = true
			}
		}
		if names[string(m.name)] || len(members) < 8 && slices.ContainsFunc(members, m.sameName) {
			p.path = append(p.path, string(m.name))
			return nil, &fault{Detail: "The JSON has a duplicate member."}
		}
		if names != nil {
			names[string(m.name)] = true
		}
		p.space()
		p.rest = p.rest[1:] // :
		p.space()
		before := p.rest
		if m.text, f = p.value(); f != nil {
			p.path = append(p.path, string(m.name))
			return nil, f
		}
		m.value = before[:len(before)-len(p.rest)]
		members = append(members, m)
		p.space()
		if p.rest[0] == '}' {
			break
		}
	}
	p.rest = p.rest[1:]
	return members, nil
}

func (m member) sameName(other member) bool { return bytes.Equal(m.name, other.name) }

// value consumes the value that rest begins with and returns its text if it is a
// string.
func (p *ijsonParser) value() (text []byte, f *fault) {
	switch p.rest[0] {
	case '{', '[':
		if p.depth++; p.depth > maxJSONDepth {
			return nil, &fault{Detail: "The JSON is nested too deeply."}
		}
		if p.rest[0] == '{' {
			_, f = p.object()
		} else {
			f = p.array()
		}
		p.depth--
	case '"':
		text, f = p.str()
	default: // a number, true, false or null
		for len(p.rest) > 0 && !isSpace(p.rest[0]) && p.rest[0] != ',' && p.rest[0] != ']' && p.rest[0] != '}' {
			p.rest = p.rest[1:]
		}
	}
	return text, f
}

func (p *ijsonParser) array() *fault {
	for i := 0; ; i++ {
		p.rest = p.rest[1:] // [ or ,
		p.space()
		if p.rest[0] == ']' { // only in an empty array
			break
		}
		if _, f := p.value(); f != nil {
			p.path = append(p.path, strconv.Itoa(i))
			return f
		}
		p.space()
		if p.rest[0] == ']' {
			break
		}
	}
	p.rest = p.rest[1:]
	return nil
}

// str consumes the string that rest begins with and returns its text.
func (p *ijsonParser) str() ([]byte, *fault) {
	end, escaped := 1, false
	for ; p.rest[end] != '"'; end++ {
		if p.rest[end] == '\\' {
			escaped = true
			end++
		}
	}
	literal := p.rest[:end+1]
	p.rest = p.rest[end+1:]
	text := literal[1:end]
	if escaped {
		if hasLoneSurrogate(literal) {
			return nil, &fault{Detail: `The JSON has a surrogate (\uD800 to \uDFFF) that is not one of a pair.`}
		}
		var unescaped string
		if err := json.Unmarshal(literal, &unescaped); err != nil {
			return nil, &fault{Detail: "The JSON has a string that is not well-formed."}
		}
		text = []byte(unescaped)
	}
	if bytes.ContainsFunc(text, isNoncharacter) {
		return nil, &fault{Detail: "The JSON has a noncharacter, such as U+FFFF."}
	}
	return text, nil
}

// hasLoneSurrogate reports whether a JSON string contains an escaped surrogate
// that is not part of a pair.
func hasLoneSurrogate(literal []byte) bool {
	for i := 0; i < len(literal); i++ {
		if literal[i] != '\\' {
			continue
		}
		i++
		if literal[i] != 'u' {
			continue
		}
		r := hexRune(literal[i+1 : i+5])
		i += 4
		if !utf16.IsSurrogate(r) {
			continue
		}
		next := literal[i+1:]
		if !bytes.HasPrefix(next, []byte(`\u`)) || utf16.DecodeRune(r, hexRune(next[2:6])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

func hexRune(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits), 16, 16) // valid JSON has four hex digits here
	return rune(n)
}

// isNoncharacter reports whether r is a noncharacter, which I-JSON forbids
// (RFC 7493, Section 2.1).
func isNoncharacter(r rune) bool {
	return 0xFDD0 <= r && r <= 0xFDEF || r&0xFFFE == 0xFFFE
}

// pointer returns the JSON Pointer for path as a URI fragment (RFC 6901, Section
// 6).
func pointer(path ...string) string {
	var b strings.Builder
	b.WriteByte('#')
	for _, token := range path {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
		b.WriteString("/" + url.PathEscape(token))
	}
	return b.String()
}
