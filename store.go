package storefront

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"example.com/storefront/internal/httpfield"
	"example.com/storefront/internal/ijson"
	"example.com/storefront/internal/ordered"
	"example.com/storefront/internal/slots"
)

// Errors returned by a [Store]. The service matches them with [errors.Is], so a
// Store may wrap them.
var (
	// ErrNotFound is returned by GetProduct when there is no such product, and by an OrderReader when
	// there is no such order. The service answers 404 Not Found, or an empty page if a key was asked for.
	ErrNotFound = errors.New("storefront: not found")
	// ErrKeyReused is returned by CreateOrder when the key has been used with
	// another fingerprint. The service answers 422 Unprocessable Content.
	ErrKeyReused = errors.New("storefront: idempotency key reused with another order")
	// ErrInProgress is returned by CreateOrder when another call with the same key is in progress
	// and the Store cannot wait for it. The service answers 409 Conflict with Retry-After.
	ErrInProgress = errors.New("storefront: a call with this idempotency key is in progress")
	// ErrUnavailable is returned by any method when the Store is temporarily unable to answer. The
	// service answers 503 Service Unavailable with Retry-After.
	ErrUnavailable = errors.New("storefront: store unavailable")
)

// KeyLifetime is the shortest time for which a [Store] remembers an idempotency
// key, counted from when the order was created.
const KeyLifetime = 24 * time.Hour

// A Store holds the users, products, widgets and orders that the service fronts.
// [MemStore] is the reference implementation. Package storetest checks any other:
// it has a test for each promise made here, named after it.
//
// Methods may be called concurrently. Once ctx is done, a method returns promptly, with an error
// that matches ctx.Err(). A method does not use ctx after it has returned. A returned slice belongs
// to the caller. A resource is returned byte for byte as it was put into the Store. Users, products
// and widgets are kept apart, even if they have the same ID.
//
// If any method returns an error that matches [ErrUnavailable] or [context.DeadlineExceeded], the
// service answers 503 Service Unavailable with Retry-After, whatever else the error matches. An
// error that the method's comment does not name is answered with 500 Internal Server Error. So is a
// panic, the zero Resource, a list that does not ascend from its position, a product with another
// ID, an order with another item, quantity or fields, and one with an ID or a CreatedAt that it cannot
// have. The text of an error, which is logged and never sent, contains neither the value of a key
// nor the item or the fields of an order.
//
// Requests for a product share a call, so the ctx of GetProduct may carry the values of another
// request, which may have ended: one of the same scope or, with Options.Shared, of any.
//
// What later versions ask of a store comes as a field of [Options] with an interface of its own, as
// [OrderReader] has. The service finds nothing by type assertion, so a wrapper hides nothing.
//
// No method writes users, products or widgets: how they get into the store is up to the embedding
// program. So is how long orders are kept once their keys may be forgotten.
type Store interface {
	// ListUsers returns users in ascending byte order of ID. It begins with the first whose ID is
	// greater than after, byte by byte. If after is "", it begins with the first of all. It returns
	// at most limit users. It returns fewer only if no more follow. The limit is between 1 and
	// Options.MaxPageSize+1. The user with the ID after need not exist. A user that is there
	// throughout the call is not skipped, whatever is inserted or deleted meanwhile. An empty list
	// is not an error.
	ListUsers(ctx context.Context, after string, limit int) ([]Resource, error)

	// CreateOrder creates order, unless an order was created with key before, and returns the order
	// that was created with key. The service has checked the order: its item is valid UTF-8 of 1 to
	// 255 characters without control characters, its quantity is 1 to 2^53-1, its fields are as
	// [Fields] says, and CreatedAt is the current time in UTC, in whole milliseconds.
	//
	// The order and the key are recorded in one atomic step. Of any number of calls with the same
	// key, concurrent or not, exactly one creates an order. A Store that survives a crash has every
	// order that it returned before, with its key. The call that creates an order returns it as it
	// was given. Every other call returns the stored order, equal in all five fields, even if it
	// proposes the same ID. Times are equal as instants, and Fields byte for byte, which a database's
	// type for JSON may not keep. (The service recognizes a replay by an ID other than the one it
	// proposed.)
	//
	// Two keys are the same key if Scope and Value are equal byte for byte, and
	// only then. A call whose key has been used with another Fingerprint changes
	// nothing and returns [ErrKeyReused]. A call that meets another in progress with the
	// same key waits for its outcome, or returns [ErrInProgress] if the Store cannot wait.
	//
	// A Store may refuse an order that it would otherwise create, such as one for what is sold out,
	// with an error that matches *[Refusal] by [errors.As]. A refusal is not remembered: the next
	// call with the key is decided anew. A key that has created an order is never refused, whatever
	// has changed since. (So a Store decides after it has looked for the key; a wrapper cannot.)
	//
	// A key is remembered for at least [KeyLifetime]. A call that fails without creating an order
	// leaves no trace: its key may be used again, with any order. If ctx is done or a failure
	// occurs while it is unknown whether the order has been recorded, CreateOrder returns an error
	// that matches ctx.Err() or [ErrUnavailable]. A later call with the same key then settles the
	// question.
	CreateOrder(ctx context.Context, key IdempotencyKey, order Order) (Order, error)

	// GetProduct returns the product whose ID is id, byte for byte. If there is none, it returns
	// [ErrNotFound]. The ID is as a client has sent it: it follows the rules of [NewResource], but
	// may have slashes, so it is no file name.
	GetProduct(ctx context.Context, id string) (Resource, error)

	// ListWidgets returns widgets in ascending byte order of ID. It begins with the first whose ID
	// is greater than or equal to start, byte by byte. If start is "", it begins with the first of
	// all. It returns at most limit widgets. It returns fewer only if no more follow. The limit is
	// between 1 and Options.MaxPageSize+1. The widget with the ID start need not exist. A widget
	// that is there throughout the call is not skipped, whatever is inserted or deleted meanwhile.
	// An empty list is not an error.
	ListWidgets(ctx context.Context, start string, limit int) ([]Resource, error)
}

// An OrderReader returns orders to those whose they are: the scope of a method is that of the key with
// which an order was created. The Resource of an [Order] is NewResource(o.ID, o). A program that knows
// more of an order, such as its state, wraps a reader and adds it with [Resource.With].
//
// Errors are as those of a [Store]. Methods may be called concurrently, and once ctx is done, one returns
// promptly, with an error that matches ctx.Err().
//
// An order that CreateOrder has returned is there for every call that begins later. (So a replica of a
// database that lags behind is none to read from. What a reader returns may still be undone by a
// fail-over: only CreateOrder acknowledges.)
type OrderReader interface {
	// GetOrder returns the order whose ID is id. If there is none, or it is another scope's, it returns
	// [ErrNotFound]. The ID is as a client has sent it: it follows the rules of [NewResource].
	GetOrder(ctx context.Context, scope, id string) (Resource, error)

	// ListOrders returns the orders of a scope in descending byte order of ID, which is newest first. It
	// begins with the first whose ID is less than after, byte by byte, or with the last of all if after is
	// "". It returns at most limit orders, and fewer only if no more follow. The limit is between 1 and
	// Options.MaxPageSize+1.
	ListOrders(ctx context.Context, scope, after string, limit int) ([]Resource, error)

	// GetOrderByKey returns the order that was created with a key, as long as CreateOrder would return it
	// for this key, and perhaps longer. If no order has been created with the key, it returns
	// [ErrNotFound]. (A call of CreateOrder that is on its way may still create one.)
	GetOrderByKey(ctx context.Context, scope, key string) (Resource, error)
}

// A Resource is a user, product, widget or order: an ID and any further members, whose
// names and meaning are up to the embedding program. It is checked and encoded
// once, when it is made, so that serving it only copies bytes.
//
// A Resource is immutable and may be shared and copied freely. Use [Resource.Equal] to compare two.
// The zero Resource is not valid: if a Store returns it, the service answers 500.
type Resource struct {
	// All of a resource in one string, or "" for the zero Resource, so that the garbage
	// collector has no pointers to follow: the length of the ID in a byte, 1 in a byte
	// if the JSON has the ID escaped and otherwise 0, the JSON, compact and with "id"
	// first, the entity tag, the bytes that it encodes, and the ID if it is escaped.
	text string
}

const (
	maxID   = 255 // bytes
	etagLen = 24  // with the quotes
	tagLen  = 16
)

// parts returns the JSON, the entity tag and the bytes that it encodes, or nothing.
func (r Resource) parts() (json, etag, tag string) {
	if r.text == "" {
		return "", "", ""
	}
	end := len(r.text) - int(r.text[0])*int(r.text[1])
	at := end - etagLen - tagLen
	return r.text[2:at], r.text[at : at+etagLen], r.text[at+etagLen : end]
}

// NewResource returns the resource with the given ID and the members of fields, which is anything
// that [encoding/json] encodes as an object or null: a struct, a map, a [json.RawMessage], nil.
//
// NewResource returns an error unless the ID is 1 to 255 bytes of valid UTF-8 without control
// characters and noncharacters, and the object is I-JSON (RFC 7493): no duplicate members, lone
// surrogates or noncharacters. If the object has a member "id", it must be the ID. Numbers are not
// checked; clients may read integers beyond 2^53-1 inexactly (RFC 7493, Section 2.2). Objects and
// arrays are nested at most 1000 levels.
//
// A product whose ID is ".", ".." or "/" cannot be requested, as no URL path leads to it.
func NewResource(id string, fields any) (Resource, error) {
	if err := checkID(id); err != nil {
		return Resource{}, fmt.Errorf("storefront: resource: %w", err)
	}
	var r Resource
	var ok bool
	switch order := fields.(type) {
	case Order:
		r, ok = order.resource(id)
	case *Order:
		r, ok = order.resource(id)
	}
	if ok {
		return r, nil
	}
	text, isText := fields.(json.RawMessage) // perhaps a stranger's, that encoding/json need not check, too
	if !isText || text == nil {
		var err error
		if text, err = ijson.Marshal(fields); err != nil {
			return Resource{}, fmt.Errorf("storefront: resource %q: %w", id, err)
		}
	}
	if string(bytes.Trim(text, " \t\r\n")) == "null" {
		text = []byte("{}")
	}
	r, err := renderResource(id, text)
	if err != nil {
		return Resource{}, fmt.Errorf("storefront: resource %q: %w", id, err)
	}
	return r, nil
}

// With returns r with further members: those of fields, which is what [NewResource] takes. A member that
// r has gets the value of that in fields, in its place, and the others follow. The ID stays: if fields has
// a member "id", it must be r's. With returns the errors of NewResource, and one for the zero Resource.
func (r Resource) With(fields any) (Resource, error) {
	if r == (Resource{}) {
		return r, errors.New("storefront: the zero Resource has no members")
	}
	more, err := NewResource(r.ID(), fields) // which is checked
	if err != nil {
		return Resource{}, err
	}
	members, _, _ := ijson.Parse([]byte(r.String()))
	place := make(map[string]int, len(members))
	for i, m := range members {
		place[string(m.Name)] = i
	}
	added, _, _ := ijson.Parse([]byte(more.String()))
	for _, m := range added {
		if i, there := place[string(m.Name)]; there {
			members[i] = m
		} else {
			members = append(members, m)
		}
	}
	return renderMembers(r.ID(), members, len(r.text)+len(more.text))
}

// MustResource is like [NewResource], but panics if that returns an error.
func MustResource(id string, fields any) Resource {
	r, err := NewResource(id, fields)
	if err != nil {
		panic(err)
	}
	return r
}

// renderResource makes a Resource from JSON text. If id is empty, the text must have a member "id".
func renderResource(id string, text []byte) (Resource, error) {
	if bytes.HasPrefix(text, []byte(idStart)) && ijson.IsCanonical(text) { // such as MarshalJSON returns
		n := bytes.IndexByte(text[len(idStart):], '"')
		r := newResource(text, min(n, maxID), "")
		if n <= maxID && checkID(r.ID()) == nil && (id == "" || id == r.ID()) {
			return r, nil
		}
	}
	members, isObject, err := ijson.Parse(text)
	if err != nil {
		return Resource{}, err
	}
	if !isObject {
		return Resource{}, errors.New("it is not a JSON object")
	}
	for _, m := range members {
		if string(m.Name) != "id" {
			continue
		}
		own, ok := m.Text()
		if !ok {
			return Resource{}, errors.New(`its "id" is not a string`)
		}
		if id != "" && own != id {
			return Resource{}, fmt.Errorf(`its "id" is %q`, own)
		}
		id = own
	}
	return renderMembers(id, members, len(text))
}

// renderMembers makes a Resource of an ID and other members. The JSON has some size bytes.
func renderMembers(id string, members []ijson.Member, size int) (Resource, error) {
	if err := checkID(id); err != nil {
		return Resource{}, err
	}
	out := make([]byte, 0, len(idStart)+len(id)+size)
	out = ijson.AppendString(append(out, `{"id":`...), id)
	escaped := ""
	if len(out) > len(idStart)+len(id)+len(`"`) {
		escaped = id
	}
	for _, m := range members {
		if string(m.Name) != "id" {
			out = ijson.AppendString(append(out, ','), string(m.Name))
			out = ijson.AppendCanonical(append(out, ':'), m.Value)
		}
	}
	return newResource(append(out, '}'), len(id), escaped), nil
}

// idStart is how the JSON of every resource begins, unless its ID is escaped.
const idStart = `{"id":"`

// newResource makes a Resource of rendered JSON, whose ID has n bytes. If the ID is
// escaped in the JSON, escaped is the ID; otherwise it is "".
func newResource(json []byte, n int, escaped string) Resource {
	tag := tagOf(json)
	var b strings.Builder
	b.Grow(2 + len(json) + etagLen + tagLen + len(escaped))
	b.WriteByte(byte(n))
	b.WriteByte(byte(min(len(escaped), 1)))
	b.Write(json)
	b.WriteString(httpfield.ETag(tag))
	b.Write(tag[:])
	b.WriteString(escaped)
	return Resource{b.String()}
}

// tagOf returns the first 128 bits of the SHA-256 sum of a representation, so that
// the same bytes have the same entity tag on every replica.
func tagOf(representation []byte) [16]byte {
	sum := sha256.Sum256(representation)
	return [16]byte(sum[:])
}

func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("the ID is missing or empty")
	case len(id) > maxID:
		return fmt.Errorf("the ID has %d bytes, more than %d", len(id), maxID)
	case isPrintableASCII(id):
		return nil // as nearly all are, and are told in a fraction of the time
	case !utf8.ValidString(id):
		return fmt.Errorf("the ID %q is not valid UTF-8", id)
	case strings.ContainsFunc(id,
		func(r rune) bool { return unicode.IsControl(r) || ijson.IsNoncharacter(r) }):
		return fmt.Errorf("the ID %q has a control character or a noncharacter", id)
	}
	return nil
}

func isPrintableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// ID returns the resource's ID, or "" for the zero Resource.
func (r Resource) ID() string {
	if r.text == "" {
		return ""
	}
	start, n := 2+len(idStart), int(r.text[0])
	if r.text[1] == 1 {
		start = len(r.text) - n
	}
	return r.text[start : start+n]
}

// ETag returns the resource's strong entity tag as in an ETag header, with its
// quotes (RFC 9110, Section 8.8.3), or "" for the zero Resource.
func (r Resource) ETag() string {
	_, etag, _ := r.parts()
	return etag
}

// String returns the resource's JSON, or "" for the zero Resource.
func (r Resource) String() string {
	json, _, _ := r.parts()
	return json
}

// Equal reports whether r and other are the same JSON, byte for byte.
func (r Resource) Equal(other Resource) bool { return r.String() == other.String() }

// MarshalJSON returns the resource as the service sends it: a compact JSON
// object with "id" first. It returns an error for the zero Resource.
func (r Resource) MarshalJSON() ([]byte, error) {
	if r == (Resource{}) {
		return nil, errors.New("storefront: the zero Resource has no JSON")
	}
	return []byte(r.String()), nil
}

// UnmarshalJSON sets *r to the resource in data: a JSON object with a member "id" that follows the
// rules of [NewResource]. The other members keep their order. It keeps no part of data. Unlike most
// implementations, it returns an error for null.
func (r *Resource) UnmarshalJSON(data []byte) error {
	made, err := renderResource("", data)
	if err != nil {
		return fmt.Errorf("storefront: resource: %w", err)
	}
	*r = made
	return nil
}

// MemStore is a [Store] and an [OrderReader] in memory, for tests and small deployments, and the
// reference for other implementations. The zero MemStore is empty and ready to
// use. A MemStore must not be copied after first use.
//
// Its methods may be called concurrently, and reads of users, products and widgets wait neither for
// writes nor for each other. Orders are kept until the process ends, and are lost with their keys when
// it does. There is no goroutine and no timer: keys older than [KeyLifetime] are dropped by later calls
// of CreateOrder. Goroutines of two bubbles of testing/synctest must not use it at the same time.
type MemStore struct {
	Users, Products, Widgets Collection

	// Accept, if it is not nil, is called for an order that is about to be created, and never for a
	// replay. If it returns an error, such as a *[Refusal], that is what CreateOrder returns, and
	// there is no order; if it returns nil, there is one. Calls come one at a time, so it must be
	// quick: other calls of CreateOrder, and reads of orders, wait in a queue until their contexts
	// are done. Accept may use the collections, but no method that creates or returns orders, as
	// that would wait for it. If it panics, there is no order. It must not be changed after first use.
	Accept func(ctx context.Context, key IdempotencyKey, order Order) error

	lock slots.Slots // of the fields below

	keys      map[[32]byte]int // the index of the order that was created with it
	orders    [][]keyedOrder   // all of them, oldest first, in blocks: one slice would be copied as it grows
	count     int              // of orders
	forgotten int              // how many orders, from the first on, have lost their keys
	owned     map[string][]int // the indexes of a scope's orders, in ascending order of ID
	indexed   int              // how many orders, from the first on, are in owned
}

// A keyedOrder is an order and the idempotency key that it was created with.
type keyedOrder struct {
	order       Order
	scope       string
	key         [32]byte // its digest
	fingerprint [32]byte
	created     time.Time // by the store's own clock
}

// ListUsers implements [Store].
func (m *MemStore) ListUsers(ctx context.Context, after string, limit int) ([]Resource, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return m.Users.byID.From(ordered.Successor(after), limit), nil // that of "" is less than any ID
}

// ListWidgets implements [Store].
func (m *MemStore) ListWidgets(ctx context.Context, start string, limit int) ([]Resource, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return m.Widgets.byID.From(start, limit), nil
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
	if err := m.lock.Acquire(ctx); err != nil {
		return Order{}, err
	}
	defer m.lock.Release()
	now, digest := time.Now(), key.digest()
	m.forgetKeys(now)
	if i, ok := m.keys[digest]; ok {
		first := m.at(i)
		if first.fingerprint != key.Fingerprint {
			return Order{}, ErrKeyReused
		}
		return first.order, nil
	}
	if m.Accept != nil {
		if err := m.Accept(ctx, key, order); err != nil {
			return Order{}, err
		}
		now = time.Now() // Accept took its time
	}
	m.record(keyedOrder{order, key.Scope, digest, key.Fingerprint, now})
	return order, nil
}

const ordersPerBlock = 128

func (m *MemStore) at(i int) *keyedOrder { return &m.orders[i/ordersPerBlock][i%ordersPerBlock] }

func (m *MemStore) record(o keyedOrder) {
	if m.count == 0 {
		m.keys = make(map[[32]byte]int)
	}
	if m.count%ordersPerBlock == 0 {
		m.orders = append(m.orders, make([]keyedOrder, 0, ordersPerBlock))
	}
	last := &m.orders[len(m.orders)-1]
	*last = append(*last, o)
	m.keys[o.key] = m.count
	m.count++
}

// forgetKeys forgets the keys that have expired.
func (m *MemStore) forgetKeys(now time.Time) {
	for m.forgotten < m.count && now.Sub(m.at(m.forgotten).created) > KeyLifetime {
		delete(m.keys, m.at(m.forgotten).key)
		m.forgotten++
	}
}

// ordersOf returns the indexes of a scope's orders. Those that nobody has asked for since they came are
// put in their places first: a shop that reads no orders back does nothing for it.
func (m *MemStore) ordersOf(scope string) []int {
	if m.owned == nil {
		m.owned = make(map[string][]int)
	}
	for ; m.indexed < m.count; m.indexed++ {
		o := m.at(m.indexed)
		own := m.owned[o.scope]
		m.owned[o.scope] = slices.Insert(own, m.place(own, o.order.ID), m.indexed)
	}
	return m.owned[scope]
}

// place returns how many of some orders have an ID that is less than id.
func (m *MemStore) place(orders []int, id string) int {
	return sort.Search(len(orders), func(i int) bool { return m.at(orders[i]).order.ID >= id })
}

// GetOrder implements [OrderReader]. As the other two methods, it waits for an Accept that is under way.
func (m *MemStore) GetOrder(ctx context.Context, scope, id string) (Resource, error) {
	if err := m.lock.Acquire(ctx); err != nil {
		return Resource{}, err
	}
	defer m.lock.Release()
	own := m.ordersOf(scope)
	if i := m.place(own, id); i < len(own) && m.at(own[i]).order.ID == id {
		return NewResource(id, m.at(own[i]).order)
	}
	return Resource{}, ErrNotFound
}

// ListOrders implements [OrderReader].
func (m *MemStore) ListOrders(ctx context.Context, scope, after string, limit int) ([]Resource, error) {
	if err := m.lock.Acquire(ctx); err != nil {
		return nil, err
	}
	defer m.lock.Release()
	own := m.ordersOf(scope)
	if after != "" {
		own = own[:m.place(own, after)]
	}
	own = own[max(0, len(own)-limit):]
	page := make([]Resource, 0, len(own))
	for _, i := range slices.Backward(own) {
		order, err := NewResource(m.at(i).order.ID, &m.at(i).order)
		if err != nil {
			return nil, err
		}
		page = append(page, order)
	}
	return page, nil
}

// GetOrderByKey implements [OrderReader].
func (m *MemStore) GetOrderByKey(ctx context.Context, scope, key string) (Resource, error) {
	if err := m.lock.Acquire(ctx); err != nil {
		return Resource{}, err
	}
	defer m.lock.Release()
	m.forgetKeys(time.Now())
	if i, ok := m.keys[(&IdempotencyKey{Scope: scope, Value: key}).digest()]; ok {
		return NewResource(m.at(i).order.ID, m.at(i).order)
	}
	return Resource{}, ErrNotFound
}

// Orders returns a copy of all orders, oldest first, for tests and for a look at a small
// shop; to follow orders, use Accept. It waits for an Accept that is under way.
func (m *MemStore) Orders() []Order {
	m.lock.Acquire(context.Background())
	defer m.lock.Release()
	orders := make([]Order, m.count)
	for i := range orders {
		orders[i] = m.at(i).order
	}
	return orders
}

// Load puts the resources in a JSON text into the store:
//
//	{"users": [{"id": "u1", …}, …], "products": […], "widgets": […]}
//
// Each collection may be absent, and each resource may have any further members. Resources that are
// there with the same ID are replaced, and all others stay. An unknown collection is an error, and
// so is a collection or an ID that is there twice. Errors name the collection and the index, or the
// line and the column of what is not JSON, or wrap the error of r. If Load returns an error, the
// store is unchanged. The whole text is in memory meanwhile.
func (m *MemStore) Load(r io.Reader) error {
	if err := m.load(r); err != nil {
		return fmt.Errorf("storefront: load: %w", err)
	}
	return nil
}

func (m *MemStore) load(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := ijson.Syntax(text); err != nil {
		return err
	}
	text = bytes.TrimSpace(text)
	if text[0] != '{' {
		return errors.New("it is not a JSON object")
	}
	collections := map[string]*Collection{"users": &m.Users, "products": &m.Products, "widgets": &m.Widgets}
	loaded := make(map[string][]Resource)
	for name, list := range ijson.Children(text) {
		if collections[name] == nil {
			return fmt.Errorf("unknown collection %q: there are users, products and widgets", name)
		}
		if _, twice := loaded[name]; twice {
			return fmt.Errorf("duplicate collection %q", name)
		}
		if loaded[name], err = loadCollection(list); err != nil {
			return fmt.Errorf("%s%w", name, err)
		}
	}
	for name, resources := range loaded {
		collections[name].Put(resources...)
	}
	return nil
}

// loadCollection reads an array of resources. Its errors begin with the index, if it is an array.
func loadCollection(list []byte) (resources []Resource, err error) {
	if list[0] != '[' {
		return nil, errors.New(": it is not an array")
	}
	seen := make(map[string]int)
	for _, text := range ijson.Children(list) {
		i := len(resources)
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
	return resources, nil
}

// A Collection is the users, products or widgets of a [MemStore]. The zero Collection
// is empty and ready to use. Methods may be called concurrently; readers never wait.
type Collection struct{ byID ordered.Map[Resource] }

// Get returns the resource with this ID and reports whether there is one.
func (c *Collection) Get(id string) (Resource, bool) { return c.byID.Get(id) }

// All returns an iterator over the resources in ascending byte order of ID.
// Changes made during the iteration may or may not be seen.
func (c *Collection) All() iter.Seq[Resource] { return c.byID.All() }

// Put stores each resource under its ID, replacing any that is there. Readers may see some of the
// resources before the others. Put panics if one is the zero Resource.
func (c *Collection) Put(resources ...Resource) {
	if slices.Contains(resources, Resource{}) {
		panic("storefront: Put of the zero Resource")
	}
	c.byID.Put(resources...)
}

// Delete removes the resources with these IDs. It ignores IDs that are not there.
func (c *Collection) Delete(ids ...string) { c.byID.Delete(ids...) }
