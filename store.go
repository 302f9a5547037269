package storefront

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"
)

// Errors returned by a [Store]. The service matches them with [errors.Is], so a
// Store may wrap them.
var (
	// ErrNotFound is returned by GetProduct when there is no such product. The
	// service answers 404 Not Found.
	ErrNotFound = errors.New("storefront: not found")
	// ErrKeyReused is returned by CreateOrder when the key has been used with
	// another fingerprint. The service answers 422 Unprocessable Content.
	ErrKeyReused = errors.New("storefront: idempotency key reused with another order")
	// ErrInProgress is returned by CreateOrder when another call with the same
	// key is in progress and the Store cannot wait for it. The service answers
	// 409 Conflict with Retry-After.
	ErrInProgress = errors.New("storefront: a call with this idempotency key is in progress")
	// ErrUnavailable is returned by any method when the Store is temporarily
	// unable to answer. The service answers 503 Service Unavailable with
	// Retry-After.
	ErrUnavailable = errors.New("storefront: store unavailable")
)

var errZeroResource = errors.New("the store returned the zero Resource")

// KeyLifetime is the shortest time for which a [Store] remembers an idempotency
// key, counted from when the order was created.
const KeyLifetime = 24 * time.Hour

// A Store holds the users, products, widgets and orders that the service fronts.
// [MemStore] is the reference implementation. Package storetest checks any other:
// it has a test for each promise made here, named after it.
//
// Methods may be called concurrently. Once ctx is done, a method returns
// promptly, with an error that matches ctx.Err(). A method does not use ctx
// after it has returned. A returned slice belongs to the caller. A resource is
// returned byte for byte as it was put into the Store. Users, products and
// widgets are kept apart, even if they have the same ID.
//
// If any method returns an error that matches [ErrUnavailable] or
// [context.DeadlineExceeded], the service answers 503 Service Unavailable with
// Retry-After. An error that the method's comment does not name is answered with
// 500 Internal Server Error, and so is a panic. The text of an error, which is
// logged and never sent, contains neither the value of a key nor the item of an
// order.
//
// No method reads an order back, because no endpoint needs one. None writes
// users, products or widgets: how they get into the store is up to the embedding
// program. So is how long orders are kept once their keys may be forgotten.
type Store interface {
	// ListUsers returns users in ascending byte order of ID. It begins with the
	// first whose ID is greater than after, byte by byte. If after is "", it
	// begins with the first of all. It returns at most limit users. It returns
	// fewer only if no more follow. The limit is between 1 and
	// Options.MaxPageSize+1. The user with the ID after need not exist. A user
	// that is there throughout the call is not skipped, whatever is inserted or
	// deleted meanwhile. An empty list is not an error.
	ListUsers(ctx context.Context, after string, limit int) ([]Resource, error)

	// CreateOrder creates order, unless an order was created with key before,
	// and returns the order that was created with key. The service has checked
	// the order: its item is valid UTF-8 of 1 to 255 characters without control
	// characters, its quantity is 1 to 2^53-1, and CreatedAt is the current time
	// in UTC, in whole milliseconds.
	//
	// The order and the key are recorded in one atomic step. Of any number of
	// calls with the same key, concurrent or not, exactly one creates an order.
	// A Store that survives a crash has every order that it returned before,
	// with its key. The call that creates an order returns it as it was given.
	// Every other call returns the stored order, equal in all four fields. Times
	// are equal as instants. (The service recognizes a replay by an ID other
	// than the one it proposed.)
	//
	// Two keys are the same key if Scope and Value are equal byte for byte, and
	// only then. A call whose key has been used with another Fingerprint changes
	// nothing and returns [ErrKeyReused]. A call that meets another in progress
	// with the same key waits for its outcome, or returns [ErrInProgress] if the
	// Store cannot wait.
	//
	// A key is remembered for at least [KeyLifetime]. A call that fails without
	// creating an order leaves no trace: its key may be used again, with any
	// order. If ctx is done or a failure occurs while it is unknown whether the
	// order has been recorded, CreateOrder returns an error that matches
	// ctx.Err() or [ErrUnavailable]. A later call with the same key then settles
	// the question.
	CreateOrder(ctx context.Context, key IdempotencyKey, order Order) (Order, error)

	// GetProduct returns the product whose ID is id, byte for byte. If there is
	// none, it returns [ErrNotFound]. The ID is as a client has sent it: it
	// follows the rules of [NewResource], but may have slashes, so it is no file
	// name.
	GetProduct(ctx context.Context, id string) (Resource, error)

	// ListWidgets returns widgets in ascending byte order of ID. It begins with
	// the first whose ID is greater than or equal to start, byte by byte. If
	// start is "", it begins with the first of all. It returns at most limit
	// widgets. It returns fewer only if no more follow. The limit is between 1
	// and Options.MaxPageSize+1. The widget with the ID start need not exist. A
	// widget that is there throughout the call is not skipped, whatever is
	// inserted or deleted meanwhile. An empty list is not an error.
	ListWidgets(ctx context.Context, start string, limit int) ([]Resource, error)
}

// A guardedStore turns a panic of a Store into an error, so that it is answered
// and logged like any other failure.
type guardedStore struct{ store Store }

func (g guardedStore) ListUsers(ctx context.Context, after string, limit int) (users []Resource, err error) {
	defer recoverTo(&err)
	return g.store.ListUsers(ctx, after, limit)
}

func (g guardedStore) CreateOrder(ctx context.Context, key IdempotencyKey, order Order) (stored Order, err error) {
	defer recoverTo(&err)
	return g.store.CreateOrder(ctx, key, order)
}

func (g guardedStore) GetProduct(ctx context.Context, id string) (product Resource, err error) {
	defer recoverTo(&err)
	return g.store.GetProduct(ctx, id)
}

func (g guardedStore) ListWidgets(ctx context.Context, start string, limit int) (widgets []Resource, err error) {
	defer recoverTo(&err)
	return g.store.ListWidgets(ctx, start, limit)
}

func recoverTo(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("the store panicked: %v\n\n%s", v, debug.Stack())
	}
}

// A Resource is a user, product or widget: an ID and any further members, whose
// names and meaning are up to the embedding program. It is checked and encoded
// once, when it is made, so that serving it only copies bytes.
//
// A Resource is immutable and may be shared and copied freely. Use
// [Resource.Equal] to compare two. The zero Resource is not valid: if a Store
// returns it, the service answers 500.
type Resource struct {
	r *rendered // nil in the zero Resource
}

type rendered struct {
	id   string
	json string // compact, "id" first
	tag  tag
	etag string // tag as text
}

// NewResource returns the resource with the given ID and the members of fields,
// which is anything that [encoding/json] encodes as an object or null: a struct,
// a map, a [json.RawMessage], nil.
//
// NewResource returns an error unless the ID is 1 to 255 bytes of valid UTF-8
// without control characters and noncharacters, and the object is I-JSON (RFC
// 7493): no duplicate members, lone surrogates or noncharacters. If the object
// has a member "id", it must be the ID. Numbers are not checked; clients may
// read integers beyond 2^53-1 inexactly (RFC 7493, Section 2.2). Objects and
// arrays are nested at most 1000 levels.
//
// A product whose ID is ".", ".." or "/" cannot be requested, as no URL path
// leads to it.
func NewResource(id string, fields any) (Resource, error) {
	if err := checkID(id); err != nil {
		return Resource{}, fmt.Errorf("storefront: resource: %w", err)
	}
	text, err := encode(fields)
	if err != nil {
		return Resource{}, fmt.Errorf("storefront: resource %q: %w", id, err)
	}
	if string(text) == "null" {
		text = []byte("{}")
	}
	r, err := renderResource(id, text)
	if err != nil {
		return Resource{}, fmt.Errorf("storefront: resource %q: %w", id, err)
	}
	return r, nil
}

// MustResource is like [NewResource], but panics if NewResource returns an
// error.
func MustResource(id string, fields any) Resource {
	r, err := NewResource(id, fields)
	if err != nil {
		panic(err)
	}
	return r
}

// renderResource makes a Resource from JSON text. If id is empty, the text must
// have a member "id".
func renderResource(id string, text []byte) (Resource, error) {
	if n, ok := canonicalID(text); ok {
		r := newResource(text, n)
		if checkID(r.ID()) == nil && (id == "" || id == r.ID()) {
			return r, nil
		}
	}
	members, isObject, fault := parseIJSON(text)
	if fault != nil {
		return Resource{}, fmt.Errorf("%s: %s", fault.Pointer, fault.Detail)
	}
	if !isObject {
		return Resource{}, errors.New("it is not a JSON object")
	}
	for _, m := range members {
		if string(m.name) != "id" {
			continue
		}
		own, ok := m.str()
		if !ok {
			return Resource{}, errors.New(`its "id" is not a string`)
		}
		if id != "" && own != id {
			return Resource{}, fmt.Errorf(`its "id" is %q`, own)
		}
		id = own
	}
	if err := checkID(id); err != nil {
		return Resource{}, err
	}
	out := make([]byte, 0, len(`{"id":"",`)+len(id)+len(text))
	out = appendString(append(out, `{"id":`...), id)
	for _, m := range members {
		if string(m.name) != "id" {
			out = appendString(append(out, ','), string(m.name))
			out = appendCanonical(append(out, ':'), m.value)
		}
	}
	r := newResource(append(out, '}'), len(id))
	r.r.id = id // it may be escaped in the text
	return r, nil
}

// idStart is where the ID begins in the JSON of a resource.
const idStart = len(`{"id":"`)

// newResource makes a Resource of rendered JSON whose ID has n bytes and is not
// escaped. Its three strings are one allocation.
func newResource(json []byte, n int) Resource {
	tag := tagOf(json)
	var b strings.Builder
	b.Grow(len(json) + 24)
	b.Write(json)
	b.Write(tag.append(make([]byte, 0, 24)))
	text := b.String()
	return Resource{&rendered{id: text[idStart : idStart+n], json: text[:len(json)], tag: tag, etag: text[len(json):]}}
}

// canonicalID returns the length of the ID in a text that renderResource would
// give back as it is, once checkID has allowed the ID. It may not recognize all of
// those, but it makes it cheap to read resources that have been rendered before,
// as a store does.
func canonicalID(text []byte) (n int, ok bool) {
	if !bytes.HasPrefix(text, []byte(`{"id":"`)) || canonicalValue(text, 1) != len(text) {
		return 0, false
	}
	return bytes.IndexByte(text[idStart:], '"'), true
}

// canonicalValue returns the length of the JSON value that b begins with, or 0 if
// appendCanonical or parseIJSON might have something to change or refuse in it.
func canonicalValue(b []byte, depth int) int {
	if len(b) == 0 || depth > maxJSONDepth {
		return 0
	}
	switch b[0] {
	case '{', '[':
		return canonicalContainer(b, depth)
	case '"':
		return canonicalString(b)
	case 't', 'f', 'n':
		for _, word := range []string{"true", "false", "null"} {
			if bytes.HasPrefix(b, []byte(word)) {
				return len(word)
			}
		}
		return 0
	}
	return canonicalNumber(b)
}

func canonicalContainer(b []byte, depth int) int {
	end := b[0] + 2 // } or ]
	if len(b) > 1 && b[1] == end {
		return 2
	}
	var names [16][]byte // few enough to search in turn
	for i, count := 1, 0; i < len(b); count++ {
		if end == '}' {
			n := canonicalString(b[i:])
			if n == 0 || i+n == len(b) || b[i+n] != ':' || count == len(names) {
				return 0
			}
			name := b[i : i+n]
			for _, earlier := range names[:count] {
				if bytes.Equal(earlier, name) {
					return 0
				}
			}
			names[count] = name
			i += n + 1
		}
		n := canonicalValue(b[i:], depth+1)
		i += n
		if n == 0 || i == len(b) {
			return 0
		}
		if b[i] == end {
			return i + 1
		}
		if b[i] != ',' {
			return 0
		}
		i++
	}
	return 0
}

func canonicalString(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return 0
	}
	for i := 1; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ' || c == '\\':
			return 0
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' || isNoncharacter(r) {
				return 0
			}
			i += size
		}
	}
	return 0
}

func canonicalNumber(b []byte) int {
	i := 0
	digits := func() (n int) {
		for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
			n++
		}
		return n
	}
	if b[0] == '-' {
		i++
	}
	leadingZero := i < len(b) && b[i] == '0'
	if n := digits(); n == 0 || leadingZero && n > 1 {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		i++
		if digits() == 0 {
			return 0
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if digits() == 0 {
			return 0
		}
	}
	return i
}

// appendCanonical appends a JSON value without white space and with its strings
// written as appendString writes them. [encoding/json] escapes them in another
// way in what a Marshaler returns, and the resource must be the same when it
// comes back.
func appendCanonical(b, value []byte) []byte {
	for len(value) > 0 {
		switch c := value[0]; {
		case c == '"':
			p := ijsonParser{rest: value}
			text, _ := p.str() // parsed without a fault before
			b = appendString(b, string(text))
			value = p.rest
		case isSpace(c):
			value = value[1:]
		default:
			b = append(b, c)
			value = value[1:]
		}
	}
	return b
}

// A tag is the first 128 bits of the SHA-256 sum of a representation, so that
// the same bytes have the same tag on every replica.
type tag [16]byte

func tagOf(representation []byte) tag {
	sum := sha256.Sum256(representation)
	return tag(sum[:16])
}

// String returns the tag as a strong entity tag (RFC 9110, Section 8.8.3).
func (t tag) String() string {
	return string(t.append(make([]byte, 0, 24)))
}

func (t tag) append(b []byte) []byte {
	return append(base64.RawURLEncoding.AppendEncode(append(b, '"'), t[:]), '"')
}

func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("the ID is missing or empty")
	case len(id) > 255:
		return fmt.Errorf("the ID has %d bytes, more than 255", len(id))
	case !utf8.ValidString(id):
		return fmt.Errorf("the ID %q is not valid UTF-8", id)
	case strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("the ID %q has a control character", id)
	case strings.ContainsFunc(id, isNoncharacter):
		return fmt.Errorf("the ID %q has a noncharacter", id)
	}
	return nil
}

// ID returns the resource's ID, or "" for the zero Resource.
func (r Resource) ID() string {
	if r.r == nil {
		return ""
	}
	return r.r.id
}

// ETag returns the resource's strong entity tag as in an ETag header, with its
// quotes (RFC 9110, Section 8.8.3), or "" for the zero Resource.
func (r Resource) ETag() string {
	if r.r == nil {
		return ""
	}
	return r.r.etag
}

// String returns the resource's JSON, or "" for the zero Resource.
func (r Resource) String() string {
	if r.r == nil {
		return ""
	}
	return r.r.json
}

// Equal reports whether r and other are the same JSON, byte for byte.
func (r Resource) Equal(other Resource) bool {
	return r.String() == other.String()
}

// MarshalJSON returns the resource as the service sends it: a compact JSON
// object with "id" first. It returns an error for the zero Resource.
func (r Resource) MarshalJSON() ([]byte, error) {
	if r.r == nil {
		return nil, errors.New("storefront: the zero Resource has no JSON")
	}
	return []byte(r.r.json), nil
}

// UnmarshalJSON sets *r to the resource in data: a JSON object with a member
// "id" that follows the rules of [NewResource]. The other members keep their
// order. Unlike most implementations, it returns an error for null.
func (r *Resource) UnmarshalJSON(data []byte) error {
	made, err := renderResource("", data)
	if err != nil {
		return fmt.Errorf("storefront: resource: %w", err)
	}
	*r = made
	return nil
}

// MemStore is a [Store] in memory, for tests and small deployments, and the
// reference for other implementations. The zero MemStore is empty and ready to
// use. A MemStore must not be copied after first use.
//
// Its methods may be called concurrently, and reads wait neither for writes nor
// for each other. Orders are kept until the process ends, and are lost with
// their keys when it does. There is no goroutine and no timer: keys older than
// [KeyLifetime] are dropped by later calls of CreateOrder.
type MemStore struct {
	Users, Products, Widgets Collection

	mu    sync.Mutex
	keys  map[keyDigest]int // the index of the order that was created with it
	count int               // of orders

	// All orders as they were created, ordersPerSlab in each slab but the last,
	// and their texts. There are no pointers in either, so the garbage collector
	// does not go through them.
	slabs     [][]keyedOrder
	texts     [][]byte
	forgotten int       // how many orders, from the first on, have lost their keys
	epoch     time.Time // when the first one was created
}

const ordersPerSlab = 1024

// A keyDigest is the SHA-256 sum of a key's scope and value. Unlike the strings,
// it takes no memory outside of the map.
type keyDigest [sha256.Size]byte

func (k *IdempotencyKey) digest() keyDigest {
	b := make([]byte, 0, 512)
	b = binary.BigEndian.AppendUint64(b, uint64(len(k.Scope)))
	b = append(append(b, k.Scope...), k.Value...)
	return sha256.Sum256(b)
}

// A keyedOrder is an order and the idempotency key that it was created with.
type keyedOrder struct {
	key         keyDigest
	fingerprint [32]byte
	created     time.Duration // since epoch
	qty         int64

	// The ID, the item and the time, which is as AppendBinary writes it, are in
	// texts[text], one after another from start on.
	text, start, itemStart, timeStart, end int
}

// ListUsers implements [Store].
func (m *MemStore) ListUsers(ctx context.Context, after string, limit int) ([]Resource, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if after != "" {
		after = successor(after)
	}
	return m.Users.page(after, limit), nil
}

// ListWidgets implements [Store].
func (m *MemStore) ListWidgets(ctx context.Context, start string, limit int) ([]Resource, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return m.Widgets.page(start, limit), nil
}

// GetProduct implements [Store].
func (m *MemStore) GetProduct(ctx context.Context, id string) (Resource, error) {
	if err := ctx.Err(); err != nil {
		return Resource{}, err
	}
	r, ok := m.Products.Get(id)
	if !ok {
		return Resource{}, ErrNotFound
	}
	return r, nil
}

// CreateOrder implements [Store].
func (m *MemStore) CreateOrder(ctx context.Context, key IdempotencyKey, order Order) (Order, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Order{}, err
	}
	now := time.Now()
	for range 16 { // a few at a time, so that no call waits for many
		if m.forgotten == m.count || now.Sub(m.epoch)-m.at(m.forgotten).created <= KeyLifetime {
			break
		}
		if key := m.at(m.forgotten).key; m.keys[key] == m.forgotten { // not used again since
			delete(m.keys, key)
		}
		m.forgotten++
	}
	digest := key.digest()
	if i, ok := m.keys[digest]; ok {
		if first := m.at(i); now.Sub(m.epoch)-first.created <= KeyLifetime {
			if first.fingerprint != key.Fingerprint {
				return Order{}, ErrKeyReused
			}
			return m.order(first), nil
		}
	}
	if m.count == 0 {
		m.keys = make(map[keyDigest]int)
		m.epoch = now
	}
	if m.count%ordersPerSlab == 0 {
		m.slabs = append(m.slabs, nil)
	}
	o := m.keep(order)
	o.key, o.fingerprint, o.created = digest, key.Fingerprint, now.Sub(m.epoch)
	last := &m.slabs[len(m.slabs)-1]
	*last = append(*last, o)
	m.keys[digest] = m.count
	m.count++
	return order, nil
}

// at returns the order with index i.
func (m *MemStore) at(i int) *keyedOrder {
	return &m.slabs[i/ordersPerSlab][i%ordersPerSlab]
}

// keep puts the order into texts and returns its record, without its key.
func (m *MemStore) keep(order Order) (o keyedOrder) {
	const maxTime = 16 // bytes
	need := len(order.ID) + len(order.Item) + maxTime
	if n := len(m.texts); n == 0 || need > cap(m.texts[n-1])-len(m.texts[n-1]) {
		m.texts = append(m.texts, make([]byte, 0, max(need, min(512<<min(n, 7), 64<<10))))
	}
	o.qty, o.text = order.Qty, len(m.texts)-1
	b := m.texts[o.text]
	o.start = len(b)
	b = append(b, order.ID...)
	o.itemStart = len(b)
	b = append(b, order.Item...)
	o.timeStart = len(b)
	b, _ = order.CreatedAt.UTC().AppendBinary(b) // the errors are of other zones
	o.end = len(b)
	m.texts[o.text] = b
	return o
}

// order returns the order that keep was given, with its time in UTC.
func (m *MemStore) order(o *keyedOrder) Order {
	b := m.texts[o.text]
	order := Order{ID: string(b[o.start:o.itemStart]), Item: string(b[o.itemStart:o.timeStart]), Qty: o.qty}
	if err := order.CreatedAt.UnmarshalBinary(b[o.timeStart:o.end]); err != nil {
		panic(err) // it is as AppendBinary has written it
	}
	return order
}

// Orders returns all orders, oldest first. It is meant for tests.
func (m *MemStore) Orders() []Order {
	m.mu.Lock()
	defer m.mu.Unlock()
	var orders []Order
	for _, slab := range m.slabs {
		for i := range slab {
			orders = append(orders, m.order(&slab[i]))
		}
	}
	return orders
}

// Load puts the resources in a JSON text into the store:
//
//	{"users": [{"id": "u1", …}, …], "products": […], "widgets": […]}
//
// Each collection may be absent, and each resource may have any further members.
// Errors name the collection and the index. If Load returns an error, the store
// is unchanged.
func (m *MemStore) Load(r io.Reader) error {
	collections := map[string]*Collection{"users": &m.Users, "products": &m.Products, "widgets": &m.Widgets}
	loaded := make(map[string][]Resource)
	text := bufio.NewReader(r)
	if start, _ := text.Peek(3); string(start) == "\ufeff" {
		return errors.New("storefront: load: the text begins with a byte order mark, which JSON must not have")
	}
	dec := json.NewDecoder(text)
	if err := expectDelim(dec, '{', "it is not a JSON object"); err != nil {
		return fmt.Errorf("storefront: load: %w", err)
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return fmt.Errorf("storefront: load: %w", err)
		}
		name := token.(string) // names are always strings
		if collections[name] == nil {
			return fmt.Errorf("storefront: load: unknown collection %q: there are users, products and widgets", name)
		}
		if _, twice := loaded[name]; twice {
			return fmt.Errorf("storefront: load: duplicate collection %q", name)
		}
		if loaded[name], err = loadCollection(dec); err != nil {
			return fmt.Errorf("storefront: load: %s%w", name, err)
		}
	}
	if err := expectDelim(dec, '}', "it does not end"); err != nil {
		return fmt.Errorf("storefront: load: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("storefront: load: unexpected data after the object, at byte %d", dec.InputOffset())
	}
	for name, resources := range loaded {
		collections[name].Put(resources...)
	}
	return nil
}

// loadCollection reads an array of resources. Its errors begin with the index.
func loadCollection(dec *json.Decoder) ([]Resource, error) {
	if err := expectDelim(dec, '[', "it is not an array"); err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	resources := []Resource{}
	seen := make(map[string]int)
	for dec.More() {
		i := len(resources)
		var text json.RawMessage
		if err := dec.Decode(&text); err != nil {
			return nil, fmt.Errorf("[%d]: %w, after byte %d", i, err, dec.InputOffset())
		}
		r, err := renderResource("", text)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		if first, twice := seen[r.ID()]; twice {
			return nil, fmt.Errorf("[%d]: duplicate ID %q, first used at [%d]", i, r.ID(), first)
		}
		seen[r.ID()] = i
		resources = append(resources, r)
	}
	if err := expectDelim(dec, ']', "it does not end"); err != nil {
		return nil, fmt.Errorf("[%d]: %w", len(resources), err)
	}
	return resources, nil
}

// expectDelim consumes the token want. What it says of another one begins with
// complaint.
func expectDelim(dec *json.Decoder, want json.Delim, complaint string) error {
	token, err := dec.Token()
	if token == nil {
		token = "null"
	}
	var syntax *json.SyntaxError
	switch {
	case err == nil && token == want:
		return nil
	case err == nil:
		err = fmt.Errorf("found %v at byte %d", token, dec.InputOffset())
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	case !errors.As(err, &syntax): // the text could not be read
		return err
	}
	return fmt.Errorf("%s: %w", complaint, err)
}

// A Collection is the users, products or widgets of a [MemStore], in ascending
// byte order of ID. The zero Collection is empty and ready to use. Its methods
// may be called concurrently, and readers never wait.
//
// It is a B+ tree whose leaves never change once readers can see them: writers,
// one at a time, replace them with changed copies. A leaf is removed when it is
// empty; leaves are not merged.
type Collection struct {
	mu   sync.Mutex           // held by writers
	root atomic.Pointer[node] // nil if empty
}

// maxNode is the largest number of items or children in a node. Larger nodes
// make reads of large collections faster and writes slower.
const maxNode = 64

// A node holds the items of a range of IDs. Once readers can see a node, only
// the pointers in children change. A reader may still be in a node that has been
// replaced: its leaves are as they were then, and the inner nodes that it shares
// with its replacement are current. A range grows only by that of a neighbour
// whose items were all deleted. So a reader that visits the children from left
// to right, and skips IDs not greater than the last one it has, sees every item
// that was there throughout exactly once.
type node struct {
	items    []Resource             // in a leaf
	children []atomic.Pointer[node] // in an inner node
	least    []string               // in an inner node: the lower bound of each child but the first

	// Comparing the IDs of items or least would cost a cache miss for each one,
	// so searches compare sort keys, which are contiguous in memory.
	prefix string   // common to all IDs
	keys   []uint64 // sort keys of the IDs without the prefix
}

func newLeaf(items []Resource) *node {
	n := &node{items: items, keys: make([]uint64, len(items))}
	n.setKeys()
	return n
}

func newInner(least []string, children []*node) *node {
	n := &node{least: least, keys: make([]uint64, len(least)), children: make([]atomic.Pointer[node], len(children))}
	for i, c := range children {
		n.children[i].Store(c)
	}
	n.setKeys()
	return n
}

// id returns the ID that keys[i] was made from.
func (n *node) id(i int) string {
	if n.children == nil {
		return n.items[i].r.id
	}
	return n.least[i]
}

// setKeys sets prefix and keys.
func (n *node) setKeys() {
	if len(n.keys) == 0 {
		return
	}
	first, last := n.id(0), n.id(len(n.keys)-1)
	for len(n.prefix) < len(first) && strings.HasPrefix(last, first[:len(n.prefix)+1]) {
		n.prefix = first[:len(n.prefix)+1]
	}
	for i := range n.keys {
		n.keys[i] = sortKey(n.id(i)[len(n.prefix):])
	}
}

// sortKey returns the first eight bytes of id as a number. IDs whose keys differ
// are in the order of their keys.
func sortKey(id string) uint64 {
	var b [8]byte
	copy(b[:], id)
	return binary.BigEndian.Uint64(b[:])
}

// search returns the index of the first ID that is not less than id, and whether
// it is id.
func (n *node) search(id string) (int, bool) {
	if !strings.HasPrefix(id, n.prefix) {
		if id < n.prefix {
			return 0, false
		}
		return len(n.keys), false
	}
	key := sortKey(id[len(n.prefix):])
	i, _ := slices.BinarySearch(n.keys, key)
	for i < len(n.keys) && n.keys[i] == key && n.id(i) < id {
		i++
	}
	return i, i < len(n.keys) && n.keys[i] == key && n.id(i) == id
}

// child returns the index of the child whose range contains id.
func (n *node) child(id string) int {
	i, found := n.search(id)
	if found {
		i++
	}
	return i
}

// Get returns the resource with this ID and reports whether there is one.
func (c *Collection) Get(id string) (Resource, bool) {
	n := c.root.Load()
	if n == nil {
		return Resource{}, false
	}
	for n.children != nil {
		n = n.children[n.child(id)].Load()
	}
	i, found := n.search(id)
	if !found {
		return Resource{}, false
	}
	return n.items[i], true
}

// All returns an iterator over the resources in ascending byte order of ID.
// Changes made during the iteration may or may not be seen.
func (c *Collection) All() iter.Seq[Resource] {
	return func(yield func(Resource) bool) {
		from := ""
		for {
			page := c.page(from, 2*maxNode)
			for _, r := range page {
				if !yield(r) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
			from = successor(page[len(page)-1].r.id)
		}
	}
}

// successor returns the least string greater than id. It is not a valid ID.
func successor(id string) string { return id + "\x00" }

// page returns up to limit resources whose ID is at least from.
func (c *Collection) page(from string, limit int) []Resource {
	n := c.root.Load()
	if n == nil {
		return nil
	}
	return n.appendFrom(make([]Resource, 0, min(limit, 1024)), from, limit)
}

// appendFrom appends to page resources whose ID is at least from and greater
// than the last one in page, until page has limit resources.
func (n *node) appendFrom(page []Resource, from string, limit int) []Resource {
	if n.children != nil {
		for i := n.child(from); i < len(n.children) && len(page) < limit; i++ {
			page = n.children[i].Load().appendFrom(page, from, limit)
		}
		return page
	}
	i, _ := n.search(from)
	if len(page) > 0 {
		last := page[len(page)-1].r.id
		for i < len(n.items) && n.items[i].r.id <= last {
			i++
		}
	}
	return append(page, n.items[i:i+min(len(n.items)-i, limit-len(page))]...)
}

// Put stores each resource under its ID, replacing any that is there. Readers
// may see some of the resources before the others. Put panics if one is the zero
// Resource.
func (c *Collection) Put(resources ...Resource) {
	for _, r := range resources {
		if r.r == nil {
			panic("storefront: Put of the zero Resource")
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range resources {
		root := c.root.Load()
		if root == nil {
			root = new(node)
		}
		left, right, least := root.put(r)
		if right != nil {
			left = newInner([]string{least}, []*node{left, right})
		}
		c.root.Store(left)
	}
}

// put returns the replacement of n with r in it: one node, or two and the lower
// bound of the second if one would be too large. An inner node whose number of
// children does not change is its own replacement.
func (n *node) put(r Resource) (left, right *node, least string) {
	if n.children == nil {
		return n.putItem(r)
	}
	i := n.child(r.r.id)
	old := n.children[i].Load()
	left, right, least = old.put(r)
	if right == nil {
		if left != old {
			n.children[i].Store(left)
		}
		return n, nil, ""
	}
	leasts := inserted(n.least, i, least)
	children := inserted(n.childPointers(), i+1, right)
	children[i] = left
	if len(children) <= maxNode {
		return newInner(leasts, children), nil, ""
	}
	const half = maxNode / 2
	return newInner(slices.Clone(leasts[:half-1]), children[:half]), newInner(slices.Clone(leasts[half:]), children[half:]), leasts[half-1]
}

// putItem implements put for leaves.
func (n *node) putItem(r Resource) (left, right *node, least string) {
	id := r.r.id
	i, found := n.search(id)
	if found {
		changed := &node{items: slices.Clone(n.items), prefix: n.prefix, keys: n.keys}
		changed.items[i] = r
		return changed, nil, ""
	}
	items := inserted(n.items, i, r)
	if len(items) > maxNode {
		const half = maxNode / 2
		return newLeaf(slices.Clone(items[:half])), newLeaf(slices.Clone(items[half:])), items[half].r.id
	}
	if len(n.items) == 0 || !strings.HasPrefix(id, n.prefix) {
		return newLeaf(items), nil, ""
	}
	keys := inserted(n.keys, i, sortKey(id[len(n.prefix):]))
	return &node{items: items, prefix: n.prefix, keys: keys}, nil, ""
}

// inserted returns a copy of s with v inserted at i, without spare capacity.
func inserted[E any](s []E, i int, v E) []E {
	out := make([]E, len(s)+1)
	copy(out, s[:i])
	out[i] = v
	copy(out[i+1:], s[i:])
	return out
}

// Delete removes the resources with these IDs. It ignores IDs that are not
// there.
func (c *Collection) Delete(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		root := c.root.Load()
		if root == nil {
			return
		}
		root = root.delete(id)
		for root != nil && len(root.children) == 1 {
			root = root.children[0].Load()
		}
		c.root.Store(root)
	}
}

// delete returns the replacement of n without id: n itself if nothing changes at
// this level, or nil if nothing is left.
func (n *node) delete(id string) *node {
	if n.children == nil {
		i, found := n.search(id)
		switch {
		case !found:
			return n
		case len(n.items) == 1:
			return nil
		}
		return &node{items: removed(n.items, i), prefix: n.prefix, keys: removed(n.keys, i)}
	}
	i := n.child(id)
	old := n.children[i].Load()
	left := old.delete(id)
	switch {
	case left == old:
		return n
	case left != nil:
		n.children[i].Store(left)
		return n
	case len(n.children) == 1:
		return nil
	}
	return newInner(removed(n.least, max(i-1, 0)), removed(n.childPointers(), i))
}

// removed returns a copy of s without the element at i.
func removed[E any](s []E, i int) []E {
	return slices.Concat(s[:i], s[i+1:])
}

func (n *node) childPointers() []*node {
	out := make([]*node, len(n.children))
	for i := range n.children {
		out[i] = n.children[i].Load()
	}
	return out
}
