package client

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"example.com/storefront"
	"example.com/storefront/internal/ijson"
)

// A Draft is an order that is to be placed, with its Idempotency-Key: sent any number of times, by
// any number of processes, it becomes one order at most. Keep it for as long as it is not known what
// became of it. Its methods may be called concurrently.
type Draft struct {
	key, item string
	qty       int64

	mu    sync.Mutex
	made  time.Time
	begun time.Time // 0: no try is known
	open  int       // tries that may have created the order, or may still create it
}

// NewDraft returns a draft with a key of its own. The customer who orders the same twice needs two
// drafts; the one who presses a button twice, one draft that was made with the button.
//
// What the service would refuse, such as a qty of 0, [Client.Order] returns as a [*RefusedError].
func NewDraft(item string, qty int64) *Draft {
	return &Draft{key: rand.Text(), item: item, qty: qty, made: time.Now()}
}

// Key returns the Idempotency-Key.
func (d *Draft) Key() string { return d.key }

// Item returns what is ordered.
func (d *Draft) Item() string { return d.item }

// Qty returns how many are ordered.
func (d *Draft) Qty() int64 { return d.qty }

// Begin says that the draft has never been sent and now will be, and reports whether it changed.
//
// The service remembers a key for a day, so that a draft is sent for [Lifetime] at most. This time
// begins when the draft is made, unless a program that keeps drafts calls Begin, keeps the draft
// as it is then, and calls Order after that. So a draft may wait for long before it is sent first.
func (d *Draft) Begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.begun.IsZero() {
		return false
	}
	d.begun, d.open = time.Now(), 0
	return true
}

// Lifetime is how long after its first try, or after it was made, a draft may be sent. A key lives
// for an hour more: storefront.KeyLifetime. A later try might create a second order.
const Lifetime = 23 * time.Hour

var errExpired = errors.New("the draft is too old to be sent again: ask the shop whether the order exists")

// sendable returns errExpired if the draft must not be sent any more, as far as clocks can tell.
func (d *Draft) sendable() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if age := elapsed(d.since()); age >= Lifetime || age < -time.Hour {
		return errExpired
	}
	return nil
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

// since returns when the draft may have been sent first.
func (d *Draft) since() time.Time {
	switch {
	case !d.begun.IsZero():
		return d.begun
	case d.open == 0:
		return time.Now()
	}
	return d.made
}

// sent notes that a try begins, which may create the order.
func (d *Draft) sent() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun = d.since()
	d.open++
}

// refused notes that a try has created nothing, and reports whether the same is known of all.
func (d *Draft) refused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
	return d.open == 0
}

// draftJSON is a draft as a program keeps it.
type draftJSON struct {
	Key   string    `json:"key"`
	Item  string    `json:"item"`
	Qty   int64     `json:"qty"`
	Made  time.Time `json:"made"`
	Begun time.Time `json:"begun,omitzero"`
}

// MarshalJSON returns the draft as a JSON object. The error is a [*RefusedError] if the item is not
// Unicode text, which JSON cannot say.
func (d *Draft) MarshalJSON() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return json.Marshal(draftJSON{d.key, d.item, d.qty, d.made.UTC(), d.begun.UTC()})
}

// UnmarshalJSON reads what [Draft.MarshalJSON] returned. What a later version has added is an error, as it
// would be lost: go on with that version.
func (d *Draft) UnmarshalJSON(data []byte) error {
	var kept draftJSON
	_, _, err := ijson.Parse(data) // which is no other text to another program
	if err == nil {
		// A member of a later version belongs to the order: without it, another one would be sent.
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(&kept)
	}
	if err != nil {
		return fmt.Errorf("client: not a draft: %w", err)
	}
	switch {
	case kept.Key == "" || len(kept.Key) > 255 || strings.ContainsFunc(kept.Key, notOfKey):
		return errors.New("client: not a draft: key is not 1 to 255 visible ASCII characters without a " +
			"double quote, comma or backslash")
	case kept.Made.IsZero():
		return errors.New("client: not a draft: made is missing")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.key, d.item, d.qty, d.made, d.begun = kept.Key, kept.Item, kept.Qty, kept.Made, kept.Begun
	d.open = 1 // nobody knows
	return nil
}

// notOfKey leaves out what a bare key cannot have; see docs/wire.md.
func notOfKey(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == ',' || r == '\\' }

// MarshalText returns the same text as [Draft.MarshalJSON], for a column of a database or a field
// of a form.
func (d *Draft) MarshalText() ([]byte, error) { return d.MarshalJSON() }

// UnmarshalText reads what [Draft.MarshalText] returned.
func (d *Draft) UnmarshalText(text []byte) error { return d.UnmarshalJSON(text) }
