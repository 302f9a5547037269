// Package storetest checks implementations of [storefront.Store].
//
// A store is tested with one call:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
//			store := shop.Open(t.TempDir())
//			t.Cleanup(store.Close)
//			// put contents.Users, contents.Products and contents.Widgets into it
//			return store
//		})
//	}
//
// The subtests are grouped by method and named after the sentences of the
// contract in the comments of [storefront.Store]. A failure says which promise is
// broken, by which call, and how that usually comes about; begin with the first
// failure. As with any subtests, -run chooses some:
//
//	go test -run 'TestStore/CreateOrder/Two_keys'
//
// A minor version may add subtests, of promises that the contract has and that no
// subtest has tested so far.
//
// # What a run does
//
// The function that makes a store is called about 50 times, once or twice for a
// subtest, and should return in milliseconds. One over a database may empty its
// tables rather than make new ones: subtests do not run in parallel, and a store
// is not used after the next was made. Three subtests need 1,100 resources each,
// the others fewer than 200.
//
// A store with all optional methods gets about as many calls as this table has, which
// was counted in memory. A slower store gets half as many calls of the lists. The times
// of the calls that are made one after another add up:
//
//	               in all  one after another
//	CreateOrder     2,950              1,800
//	GetProduct      1,600              1,500
//	ListUsers       1,200                450
//	ListWidgets     1,450                450
//	an OrderReader    500                200
//
// A run creates some 1,200 orders. Put and Delete are called 200 times or some more. Without
// [Refuser] there are 200 calls of CreateOrder fewer, without [Clock] 400, and without
// the methods of a [storefront.OrderReader] some 420. So a run takes
// a fifth of a second in memory (three times that with -race), up to half a minute
// in files that are synced, a minute where each call takes 10 milliseconds, as over
// a network, and otherwise as long as the database takes to commit.
//
// Calls that return [storefront.ErrUnavailable] or [storefront.ErrInProgress] are
// repeated for some seconds, as up to 16 are made at the same time. A call that
// does not return ends its subtest after a minute.
//
// # Optional methods
//
// Five things cannot be seen through the methods of a Store. A store that is
// returned to the suite may have more methods for them, which are those of [Clock],
// [Editor], [OrderLister], [Refuser] and [Reopener], and those of a [storefront.OrderReader],
// which are then tested, too. They usually belong to a type
// that is made for the test and embeds the store. Where a method is missing, the
// subtest checks as much as it can without the method, and is then skipped with a
// message that says what was not checked.
//
// Package testing shows such messages with -v only. Without -v, a run writes to
// standard output what it has not checked, in a line for each of the six types. If
// the package passes, go test shows that output where the command line names no
// package, as in the package's own folder, and hides it where it names one, as in
// "go test ./...". However the tests are run, the compiler reports a method that is
// missing or mistyped where the test file has this line:
//
//	var _ storetest.Clock = testStore{}
package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
)

// Contents are the resources that a store is to hold. They come in no particular
// sequence, and no two in a slice have the same ID. The slices are overwritten
// after the store was made, so it must not keep them.
type Contents struct {
	Users, Products, Widgets []storefront.Resource
}

// A Clock is a store whose clock can be moved, to see how long keys are
// remembered.
//
// Where an engine forgets keys by itself, when their time to live or their lease
// ends, its clock need not be moved: Advance takes d off the time that each key has
// left, and deletes the keys that have no time left. Keys that are created later have
// their full time. In Redis that is PTTL, then PEXPIRE or DEL. In etcd, whose leases cannot
// be shortened, it is TimeToLive, then a lease of the time left for the same value, or
// Revoke. Engines may round times down to whole seconds, and a lease may
// begin before its order is recorded: a lease of somewhat more than
// [storefront.KeyLifetime] keeps the promise.
type Clock interface {
	// Advance makes the store behave as if d had passed. If the store forgets keys
	// only when it is told to, Advance tells it. The suite calls no other method
	// meanwhile.
	Advance(d time.Duration)
}

// An Editor is a store whose users, products and widgets can be changed, to see
// whether lists can be walked meanwhile. Every call that begins after Put or Delete
// has returned sees the change.
type Editor interface {
	// Put adds resources, or replaces those with the same ID. The suite calls it
	// concurrently with the methods of the store, but not with itself or Delete.
	Put(ctx context.Context, contents Contents) error
	// Delete deletes the resources that have the same IDs as these, if they are
	// there.
	Delete(ctx context.Context, contents Contents) error
}

// An OrderLister is a store whose orders can be counted, to see that the store has
// created no orders but those that it returned.
type OrderLister interface {
	// Orders returns all orders in any sequence.
	Orders() []storefront.Order
}

// A Refuser is a store that can be made to refuse orders, to see what a refusal
// leaves. It refuses those for one item, so that others can be created at the same
// time. The rule may be the store's own, such as a stock that SellOut empties, or one
// that the test has put in its place. Before SellOut is called, the store refuses no
// order of the suite, whatever the item and the quantity.
//
// The suite calls SellOut and Restock concurrently with the methods of the store, but
// not with each other. Once one of them has returned, the store decides accordingly.
// After Reopen, the suite calls them anew.
type Refuser interface {
	// SellOut makes the store refuse every order for the item that it would
	// otherwise create, and no other order. It returns the refusal that the suite is
	// to expect; a field that is empty may be anything.
	SellOut(ctx context.Context, item string) (storefront.Refusal, error)
	// Restock makes the store accept orders for the item again.
	Restock(ctx context.Context, item string) error
}

// A Reopener is a store whose orders survive a crash.
//
// The suite cannot see what the operating system would lose. Review that a write is on
// the disk before CreateOrder returns, and test with a process that is killed that no
// file is left half-written.
//
// Where a lock on its files keeps a store from being opened twice, as in bbolt, Badger
// and Pebble, there can be no crash within one process. Reopen may then close the old
// store as the program would, and wait for the calls in progress if closing does. The
// suite does not see then what a store loses that is not closed: test that, too, with
// a process that is killed.
type Reopener interface {
	// Reopen stops the store as a crash would, without waiting for the calls in
	// progress, and returns a store on the same data. Calls of the old store that are
	// in progress, or begin before Reopen has returned, may fail in any way but must
	// return. The new store must have the same optional methods.
	Reopen(t *testing.T) storefront.Store
}

// Run checks the promises of [storefront.Store], each in a subtest. Each subtest
// calls newStore, which returns a store with these contents and without any orders
// and keys. If newStore fails, it calls t.Fatal. To have the store closed at the end of
// the subtest, it calls t.Cleanup.
func Run(t *testing.T, newStore func(t *testing.T, contents Contents) storefront.Store) {
	t.Helper()
	run(t, &suite{makeStore: newStore, patience: time.Minute}, groups())
}

// RunSynctest is like [Run], but runs each subtest in a bubble of
// [testing/synctest], in which time passes only while all goroutines wait. It is for
// stores that take the time from package time, wait for nothing outside of the
// bubble, such as the network (files are fine), and do not hold a mutex while time
// passes. A store with a goroutine must end it in t.Cleanup. RunSynctest checks more
// than Run: that keys are remembered for long enough, even without Advance, and that
// calls return promptly.
func RunSynctest(t *testing.T, newStore func(t *testing.T, contents Contents) storefront.Store) {
	t.Helper()
	run(t, &suite{makeStore: newStore, patience: time.Minute, bubble: true}, groups())
}

// A promise is a sentence of the contract and how it is checked.
type promise struct {
	sentence string
	check    func(*test)
}

// A group is the promises of a method, or of all methods.
type group struct {
	name     string
	promises []promise
}

func groups() []group {
	return []group{
		{"ListUsers", users.promises()},
		{"CreateOrder", orderPromises()},
		{"OrderReader", readerPromises()},
		{"GetProduct", productPromises()},
		{"ListWidgets", widgets.promises()},
		{"Store", storePromises()}, // last, as the group of a method best tells what is wrong with it
	}
}

// A suite is what the subtests of a run have in common.
type suite struct {
	makeStore func(*testing.T, Contents) storefront.Store
	bubble    bool                          // whether subtests run in bubbles
	patience  time.Duration                 // the most that a call may take outside of a bubble
	impatient atomic.Bool                   // whether a call has not come to an end
	told      func(subtest, failure string) // in place of testing; nil: the test fails
}

func run(t *testing.T, s *suite, groups []group) {
	t.Helper()
	var gaps []gap
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, p := range g.promises {
				t.Run(p.sentence, func(t *testing.T) {
					c := &test{suite: s, name: g.name + "/" + p.sentence, sentence: p.sentence}
					check := func(t *testing.T) {
						c.T = t
						p.check(c)
					}
					if s.bubble {
						synctest.Test(t, check)
					} else {
						check(t)
					}
					gaps = append(gaps, c.unchecked...)
					if c.unchecked != nil {
						t.Skip(explain(c.unchecked))
					}
				})
			}
		})
	}
	if gaps != nil && !testing.Verbose() {
		// Package testing shows nothing of a test that passes.
		os.Stdout.WriteString(t.Name() + summary(gaps))
	}
}

// A gap is something that was not checked, as the store lacks the methods of a type.
type gap struct{ what, methods string }

// explain says what was not checked in a subtest, and how it would be.
func explain(gaps []gap) string {
	var texts []string
	for _, g := range gaps {
		texts = append(texts, fmt.Sprintf("Not checked: %s. To have it checked, give the store that newStore "+
			"returns the methods of %s.", g.what, g.methods))
	}
	return strings.Join(texts, "\n")
}

// summary says what was not checked in a run, in a line for each type of optional
// methods.
func summary(gaps []gap) string {
	lines := make(map[string]string)
	for _, g := range gaps {
		switch line := lines[g.methods]; {
		case line == "":
			lines[g.methods] = "\t" + g.methods + ": " + g.what
		case !strings.Contains(line, g.what):
			lines[g.methods] += "; " + g.what
		}
	}
	return " has left unchecked, as the store lacks optional methods (go test -v names them):\n" +
		strings.Join(slices.Sorted(maps.Values(lines)), "\n") + "\n"
}

// A test is the run of one subtest.
type test struct {
	*testing.T
	*suite
	name      string // with that of its group
	sentence  string
	advanced  time.Duration // by how much the store's clock is ahead
	unchecked []gap         // what was not checked
	wrongs    int           // how often wrong was called
	stuck     atomic.Bool   // whether a call has not returned
}

// newStore returns a store with copies of the contents' slices.
func (t *test) newStore(contents Contents) storefront.Store {
	t.Helper()
	given := Contents{
		slices.Clone(contents.Users), slices.Clone(contents.Products), slices.Clone(contents.Widgets),
	}
	store := t.makeStore(t.T, given)
	if store == nil {
		t.unable("newStore returned nil.")
	}
	for _, resources := range [][]storefront.Resource{given.Users, given.Products, given.Widgets} {
		overwrite(resources)
	}
	t.advanced = 0
	return watchedStore{store, t}
}

// reopen returns the store after a crash.
func (t *test) reopen(store Reopener) storefront.Store {
	t.Helper()
	reopened := store.Reopen(t.T)
	if reopened == nil {
		t.unable("Reopen returned nil.")
	}
	for _, methods := range []reflect.Type{reflect.TypeFor[Clock](), reflect.TypeFor[Editor](),
		reflect.TypeFor[OrderLister](), reflect.TypeFor[storefront.OrderReader](), reflect.TypeFor[Refuser](), reflect.TypeFor[Reopener]()} {
		if reflect.TypeOf(store).Implements(methods) && !reflect.TypeOf(reopened).Implements(methods) {
			t.unable("Reopen returned a %T, which has not got the methods of %v that %T has.",
				reopened, methods, store)
		}
	}
	return watchedStore{reopened, t}
}

// overwrite overwrites a slice, as its owner may.
func overwrite(resources []storefront.Resource) {
	other := storefront.MustResource("overwritten by the owner of the slice", nil)
	for i := range resources {
		resources[i] = other
	}
}

// broken ends the subtest, as the promise is broken. The cause is the usual one, or ""
// if none is usual.
func (t *test) broken(cause, format string, args ...any) {
	t.Helper()
	t.end(t.brokenText(cause, format, args...))
}

// wrong is broken for one of several cases: the subtest goes on with the next case, unless
// it is the third that is wrong.
func (t *test) wrong(cause, format string, args ...any) {
	t.Helper()
	if t.wrongs++; t.wrongs == 3 || t.stuck.Load() {
		t.broken(cause, format, args...)
	}
	t.fail(t.brokenText(cause, format, args...))
}

func (t *test) brokenText(cause, format string, args ...any) string {
	if cause != "" {
		cause = "\nThe usual cause: " + cause
	}
	return fmt.Sprintf(format, args...) + "\nThe broken promise: " + t.sentence + "." + cause
}

// unable ends the subtest, as there is nothing to check.
func (t *test) unable(format string, args ...any) {
	t.Helper()
	t.end(fmt.Sprintf(format, args...) + "\nSo it was not checked: " + t.sentence + ".")
}

// end ends the subtest. Where a call has not returned, that has been said.
func (t *test) end(text string) {
	t.Helper()
	if !t.stuck.Load() {
		t.fail(text)
	}
	if t.told != nil {
		t.SkipNow()
	}
	t.FailNow()
}

func (t *test) fail(text string) {
	t.Helper()
	if t.told == nil {
		t.Error(text)
	} else {
		t.told(t.name, text)
	}
}

// must ends the subtest if a call has failed or returned a wrongResult.
func (t *test) must(call string, err error) {
	t.Helper()
	if wrong := (wrongResult{}); errors.As(err, &wrong) {
		t.unable("%s %s.", call, wrong.text)
	}
	if err != nil {
		t.unable("%s failed: %v", call, err)
	}
}

// optional returns the store as one with the optional methods of T. If the store has
// not got them, optional notes what was not checked, unless that is "", as where
// another call notes it.
func optional[T any](t *test, store storefront.Store, unchecked string) (T, bool) {
	store = store.(watchedStore).Store
	o, ok := store.(T)
	if ok || unchecked == "" {
		return o, ok
	}
	t.unchecked = append(t.unchecked, gap{unchecked, reflect.TypeFor[T]().String()})
	return o, false
}

// advance moves the store's clock and reports whether the clock can be moved.
func (t *test) advance(store storefront.Store, d time.Duration) bool {
	t.Helper()
	if t.bubble {
		time.Sleep(d)
		return true
	}
	clock, ok := optional[Clock](t, store, "that keys are remembered when time has passed")
	if ok {
		clock.Advance(d)
		t.advanced += d
	}
	return ok
}

// clock returns the time by the store's clock.
func (t *test) clock() time.Time { return time.Now().Add(t.advanced) }

// now returns the time by the store's clock as the service puts it into an order.
func (t *test) now() time.Time { return t.clock().UTC().Truncate(time.Millisecond) }

// together makes calls at the same time and waits for them.
func together(n int, call func(i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			call(i)
		})
	}
	close(start)
	wg.Wait()
}
