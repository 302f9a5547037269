package client

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"example.com/storefront"
	"example.com/storefront/internal/elapsed"
	"example.com/storefront/internal/ijson"
)

// A Draft is an order to place, with its Idempotency-Key: sent any number of times, by any number
// of processes, it becomes one order at most. Keep it until you know what became of it. Its methods
// may be called concurrently.
type Draft struct {
	key  string
	body string // of the request: it is sent and kept byte for byte
	item string // of body, as qty and fields
	qty  int64

	fields storefront.Fields

	mu      sync.Mutex
	made    time.Time
	begun   time.Time // since when it may have been sent; 0: it has not been, and nobody else has it
	journal string    // folder of the journal that alone sends it, as it may not have begun; or ""
	open    int       // tries that may have created the order, or may still create it
	doubted bool      // a clock was wrong: its text says so from now on, and no later process sends it

	yielded atomic.Bool // by Resume, in whose loop it is
}

// NewDraft returns a draft with a key of its own. The customer who orders the same twice needs two
// drafts; the one who presses a button twice, one draft that was made with the button.
//
// What the service would refuse, such as a qty of 0, [Client.Order] returns as a [*RefusedError].
func NewDraft(item string, qty int64) *Draft { return newDraft(item, qty, "") }

// DraftOptions are the options of [NewDraftWithOptions]. Their zero values are the defaults.
type DraftOptions struct {
	// Fields are what the order has beside item and quantity, as shop and clients have agreed: a value that
	// encoding/json encodes as an object, a [storefront.Fields] or, for text that is JSON already, a
	// json.RawMessage. The shop gets numbers as they are written there. It decides whether the fields are
	// right, and refuses all if it takes none (storefront.Options.OrderFields). nil: none.
	Fields any
}

// NewDraftWithOptions is like [NewDraft] with options; nil are the defaults. It returns an error if Fields
// cannot be encoded as an object, or are not I-JSON (RFC 7493), such as with text that is not valid UTF-8.
func NewDraftWithOptions(item string, qty int64, opts *DraftOptions) (*Draft, error) {
	if opts == nil || opts.Fields == nil || opts.Fields == storefront.Fields("") {
		return NewDraft(item, qty), nil
	}
	var text []byte
	var err error
	isText := false
	switch fields := opts.Fields.(type) {
	case json.RawMessage:
		text, isText = fields, true
	case string, []byte:
		err = fmt.Errorf("a %T is no object: text that is JSON already is a json.RawMessage", fields)
	default:
		text, err = ijson.Marshal(fields)
	}
	var fields storefront.Fields
	if err == nil {
		err = fields.UnmarshalJSON(text)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("client: fields of a draft: %w", err)
	case fields == "":
		return nil, errors.New("client: fields of a draft: null is no object")
	case !isText && replaced.Match(text):
		return nil, errors.New("client: fields of a draft: a text in them is not valid UTF-8")
	}
	return newDraft(item, qty, fields), nil
}

// replaced is what encoding/json writes in place of what is not UTF-8. It writes U+FFFD itself as it is.
var replaced = regexp.MustCompile(`(^|[^\\])(\\\\)*\\ufffd`)

func newDraft(item string, qty int64, fields storefront.Fields) *Draft {
	body, _ := ijson.Marshal(struct { // has no errors
		Item   string            `json:"item"`
		Qty    int64             `json:"qty"`
		Fields storefront.Fields `json:"fields,omitempty"`
	}{item, qty, fields})
	return &Draft{key: rand.Text(), body: string(body), item: item, qty: qty, fields: fields, made: time.Now()}
}

// Key returns the Idempotency-Key.
func (d *Draft) Key() string { return d.key }

// Item returns what is ordered.
func (d *Draft) Item() string { return d.item }

// Qty returns how many are ordered.
func (d *Draft) Qty() int64 { return d.qty }

// Fields returns what the order has beside item and quantity, or "" for none.
func (d *Draft) Fields() storefront.Fields { return d.fields }

// Lifetime is for how long a draft is sent, as the service may forget its key an hour later
// (storefront.KeyLifetime), and a try after that could create a second order. Clocks that differ by up to
// an hour do no harm. A draft from more than an hour ahead is never sent again, and a draft of a call that
// has seen by the Date of an answer that the clock is wrong not by a later process. A journal notes both; the
// text that a program has kept before says neither, so do not keep it then.
//
// It begins with the first try, or when a program has asked for the draft's text, as whoever has that may
// send it. A draft that [Journal.Put] has kept begins when the journal sends it.
const Lifetime = 23 * time.Hour

var (
	errExpired = errors.New("the draft is too old to be sent again: ask the shop by its key whether the order " +
		"exists, and then remove it")
	errWrongClock = errors.New("a clock was wrong when the draft was made or sent, so that its age is " +
		"unknown: ask the shop by its key whether the order exists, and then remove the draft: do not keep it")
	errInJournal = errors.New("the draft is in a journal, which alone sends it")
)

// begin notes that a try begins, which may create the order, or returns why it must not.
func (d *Draft) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.share()
	if err == nil {
		err = d.unsendable()
	}
	if err == nil {
		d.open++
	}
	return err
}

// share notes that the draft may be sent from now on, unless only a journal may do that.
func (d *Draft) share() error {
	if d.journal != "" {
		return errInJournal
	}
	if d.begun.IsZero() {
		d.begun = time.Now()
	}
	return nil
}

// unsendable returns why a draft that may have been sent must not be sent any more, as far as clocks can
// tell. One from ahead would seem to be new later, and so is never sent again.
func (d *Draft) unsendable() error {
	age, behind := elapsed.Since(d.begun), clockBehind()
	switch {
	case d.begun.Equal(never):
		return errWrongClock
	case behind != nil:
		return behind
	case age < -clockError, time.Until(d.made) > clockError:
		d.begun = never
		return errWrongClock
	case age >= Lifetime:
		return errExpired
	}
	return nil
}

// never is the begun of a draft that is not sent any more, as a clock was wrong.
var never = time.UnixMilli(0)

// clockError is by how much a clock may be ahead of another, or of itself once it was put right.
const clockError = time.Hour

// earliest is when a clock can be right. It is that of package testing/synctest.
var earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// clockBehind returns an error if the clock has not been set since the machine was started, so that it says
// nothing of the age of a draft.
func clockBehind() error {
	if now := time.Now(); now.Before(earliest) {
		return fmt.Errorf("the clock of this machine is wrong (%s): set it, and go on with the draft",
			now.UTC().Format(time.RFC3339))
	}
	return nil
}

// doubt notes that a clock was wrong. The first time, it returns the text that says so.
func (d *Draft) doubt() (text []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.doubted {
		d.doubted = true
		text, _ = d.text(d.begun) // has no errors
	}
	return text
}

func (d *Draft) isDoubted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.doubted
}

// refused notes that a try has created nothing, and reports whether the same is known of all.
func (d *Draft) refused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
	return d.open == 0
}

// enter returns the text with which a journal in a folder takes the draft, to send it now or later. Later, it
// begins only then if it has not yet; until then, no other may send it.
func (d *Draft) enter(journal string, now bool) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.journal == journal {
		d.journal = "" // if it was there, it is there no more
	}
	if err := clockBehind(); now && err != nil {
		return nil, err
	}
	later := !now && d.begun.IsZero()
	if err := d.share(); err != nil {
		return nil, err
	}
	if later {
		d.journal = journal
		return d.text(time.Time{})
	}
	return d.text(d.begun)
}

// left notes that a journal has not got the draft, or not any more.
func (d *Draft) left(journal string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.journal == journal {
		d.journal = ""
	}
}

// check returns a RefusedError if JSON cannot say the item, so that its encoder would keep and order
// something else, or if the draft is of nobody's making. It comes before anything is kept or sent.
func (d *Draft) check() error {
	detail := ""
	switch {
	case d.key == "":
		detail = "The draft has no key: NewDraft makes one that has."
	case !utf8.ValidString(d.item) || strings.ContainsFunc(d.item, ijson.IsNoncharacter):
		detail = "The item is not valid UTF-8, or has a noncharacter."
	default:
		return nil
	}
	return &RefusedError{Draft: d, Problem: storefront.Problem{Type: problemPrefix + "invalid-order",
		Title: "Invalid order", Status: http.StatusUnprocessableEntity, Detail: detail}}
}

// formatVersion is that of drafts and of entries of a journal; see docs/formats.md.
const formatVersion = 1

// text returns the draft as a program keeps it, with the time of its first try.
func (d *Draft) text(begun time.Time) ([]byte, error) {
	kept := struct {
		Version int      `json:"version"`
		Key     string   `json:"key"`
		Body    string   `json:"body"`
		Made    float64  `json:"made"`
		Begun   *float64 `json:"begun,omitempty"`
	}{formatVersion, d.key, d.body, float64(d.made.UnixMilli()) / 1000, nil}
	if d.doubted {
		begun = never
	}
	if !begun.IsZero() {
		kept.Begun = new(float64(begun.UnixMilli()) / 1000)
	}
	return ijson.Marshal(kept)
}

// MarshalJSON returns the draft as a JSON object, which has the bytes that are sent as the body; see
// docs/formats.md. Its [Lifetime] begins, if it has not before. The error is a [*RefusedError] if the item is
// not Unicode text, which JSON cannot say. A draft that [Journal.Put] has kept has no text, as only the
// journal may send it.
func (d *Draft) MarshalJSON() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err := clockBehind()
	if err == nil {
		err = d.share()
	}
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return d.text(d.begun)
}

// UnmarshalJSON reads what [Draft.MarshalJSON] returned, or what a client in another language has kept.
// What a later version wrote in another form is an error, as a part of it would be lost: go on with that
// version. A draft from more than an hour ahead is read, but not sent.
func (d *Draft) UnmarshalJSON(data []byte) error {
	kept, err := parseDraft(data)
	if err != nil {
		return fmt.Errorf("client: not a draft: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.key, d.body, d.item, d.qty, d.fields = kept.key, kept.body, kept.item, kept.qty, kept.fields
	d.made, d.begun, d.journal, d.open = kept.made, kept.begun, "", 1 // nobody knows
	d.doubted = kept.doubted
	if d.begun.IsZero() {
		d.begun = d.made
	}
	return nil
}

// parseDraft returns a draft with what its text has, and item, qty and fields of its body.
func parseDraft(data []byte) (*Draft, error) {
	members, isObject, err := ijson.Parse(data) // which is no other text to another program
	if err == nil && !isObject {
		err = errors.New("it is no JSON object")
	}
	if err != nil {
		return nil, err
	}
	d := new(Draft)
	var version int64
	var wrong error
	for _, m := range members {
		right := true
		switch string(m.Name) {
		case "version":
			version, right = m.Int64()
		case "key":
			d.key, right = m.Text()
		case "body":
			d.body, right = m.Text()
		case "made":
			d.made, right = parseTime(m.Value)
		case "begun":
			d.begun, right = parseTime(m.Value)
			d.doubted = d.begun.Equal(never)
		default:
			wrong = fmt.Errorf("it has a member %.40q: %w", m.Name, errLater)
		}
		if !right {
			wrong = fmt.Errorf("%s is %.40s", m.Name, m.Value)
		}
	}
	switch {
	case version == 0:
		return nil, errNoVersion
	case version != formatVersion:
		return nil, fmt.Errorf("it has version %d: %w", version, errLater)
	case wrong != nil:
		return nil, wrong
	case d.key == "" || len(d.key) > 255 || strings.ContainsFunc(d.key, notOfKey):
		return nil, errors.New("key is not 1 to 255 visible ASCII characters without a double quote, comma or " +
			"backslash")
	case d.made.IsZero():
		return nil, errors.New("made is missing")
	}
	members, _, err = ijson.Parse([]byte(d.body))
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	item, qty := false, false
	for _, m := range members {
		switch string(m.Name) {
		case "item":
			d.item, item = m.Text()
		case "qty":
			d.qty, qty = m.Int64()
		case "fields":
			d.fields.UnmarshalJSON(m.Value) // the service refuses what is no object
		}
	}
	if !item || !qty {
		return nil, errors.New("body is no object with a string as item and a whole number as qty")
	}
	return d, nil
}

var (
	errLater     = errors.New("a later release wrote it: go on with that one")
	errNoVersion = errors.New("it has no version, as what candidates before 1.0.0-rc.4 wrote, which no release reads")
)

// parseTime returns the time of a JSON number: seconds since 1970.
func parseTime(number []byte) (t time.Time, ok bool) {
	seconds, err := strconv.ParseFloat(string(number), 64)
	if err != nil || seconds < 0 || seconds > 1e11 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(math.Round(seconds * 1000))), true
}

// notOfKey leaves out what a bare key cannot have; see docs/wire.md.
func notOfKey(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == ',' || r == '\\' }

// MarshalText returns the same text as [Draft.MarshalJSON], for a column of a database or a field
// of a form.
func (d *Draft) MarshalText() ([]byte, error) { return d.MarshalJSON() }

// UnmarshalText reads what [Draft.MarshalText] returned.
func (d *Draft) UnmarshalText(text []byte) error { return d.UnmarshalJSON(text) }
