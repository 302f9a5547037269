package storetest_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/storetest"
)

// stuckStores have calls that do not return.
var stuckStores = []wrongStore{
	{"a lock is kept where a key is refused", func(s *store) {
		var mu sync.Mutex
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			stored, err := right(ctx, k, o)
			if !errors.Is(err, storefront.ErrKeyReused) {
				mu.Unlock()
			}
			return stored, err
		})
	}, []string{crash, reused, ordered}, "CreateOrder has not returned 2s after it was called. Does it wait for a lock"},
	{"GetProduct waits though ctx is done", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			if ctx.Err() != nil {
				select {}
			}
			return s.MemStore.GetProduct(ctx, id)
		}
	}, []string{done}, "GetProduct has not returned 2s after it was called, though its context is done"},
	{"GetProduct ends its goroutine if ctx is done", func(s *store) { // as t.FailNow does
		s.get = func(ctx ctxt, id string) (resource, error) {
			if ctx.Err() != nil {
				runtime.Goexit()
			}
			return s.MemStore.GetProduct(ctx, id)
		}
	}, []string{done}, "a call has ended its goroutine"},
}

// The subtests, by their beginnings.
const (
	concurrently = "Store/Methods may be called"
	done         = "Store/Once ctx is done"
	notLater     = "Store/A method does not use ctx"
	slice        = "Store/A returned slice"
	asPut        = "Store/A resource is returned"
	apart        = "Store/Users, products and widgets"
	errorText    = "Store/The text of an error"

	usersInOrder   = "ListUsers/ListUsers returns"
	widgetsInOrder = "ListWidgets/ListWidgets returns"
	usersBegin     = "ListUsers/It begins"
	widgetsBegin   = "ListWidgets/It begins"
	usersFirst     = `ListUsers/If after is ""`
	widgetsFirst   = `ListWidgets/If start is ""`
	usersAtMost    = "ListUsers/It returns at most"
	widgetsAtMost  = "ListWidgets/It returns at most"
	usersFewer     = "ListUsers/It returns fewer"
	widgetsFewer   = "ListWidgets/It returns fewer"
	usersGone      = "ListUsers/The user with"
	widgetsGone    = "ListWidgets/The widget with"
	usersWhile     = "ListUsers/A user that is there"
	widgetsWhile   = "ListWidgets/A widget that is there"
	usersEmpty     = "ListUsers/An empty list"
	widgetsEmpty   = "ListWidgets/An empty list"

	atomic     = "CreateOrder/The order and the key are recorded"
	exactlyOne = "CreateOrder/Of any number of calls"
	crash      = "CreateOrder/A Store that survives"
	asGiven    = "CreateOrder/The call that creates"
	replay     = "CreateOrder/Every other call"
	sameKey    = "CreateOrder/Two keys"
	reused     = "CreateOrder/A call whose key has been used"
	inProgress = "CreateOrder/A call that meets another"
	decided    = "CreateOrder/A refusal is not"
	ordered    = "CreateOrder/A key that has created"
	lifetime   = "CreateOrder/A key is remembered"
	noTrace    = "CreateOrder/A call that fails"
	unknown    = "CreateOrder/If ctx is done or a failure"
	settles    = "CreateOrder/A later call"

	product  = "GetProduct/GetProduct returns"
	notFound = "GetProduct/If there is none"
)

var everyOrder = []string{atomic, exactlyOne, crash, asGiven, replay, sameKey, reused, inProgress, decided, ordered, lifetime, noTrace, unknown, settles}

var errDriver = errors.New("driver: bad connection")

// A wrongStore breaks a promise. Exactly the subtests of fails fail, and the first
// failure has the text of says.
type wrongStore struct {
	name   string
	change func(*store)
	fails  []string
	says   string
}

// The methods that the wrong stores of a list change, and so the groups of subtests that
// see it, beside that of all methods.
var wrongReads = slices.Concat(wrongLists, wrongProducts)
var wrongOrders = slices.Concat(wrongCreation, wrongCrashes, wrongReplays, wrongKeys, wrongInterruptions,
	wrongRefusals, wrongLifetimes)
var wrongStores = slices.Concat(wrongMethods, wrongReads, wrongOrders)

// inWrongStores is the environment variable of the process that runs the suite on the
// wrong stores.
const inWrongStores = "STORETEST_WRONG_STORES"

func TestSuiteOnWrongStores(t *testing.T) {
	if os.Getenv(inWrongStores) == "" {
		t.Skip("It fails, as it should, when TestWrongStoresAreCaught runs it.")
	}
	t.Run("bare", func(t *testing.T) {
		storetest.Run(t, func(_ *testing.T, c storetest.Contents) storefront.Store { return bareStore{newStore(c)} })
	})
	t.Run("movable", func(t *testing.T) {
		storetest.Run(t, func(_ *testing.T, c storetest.Contents) storefront.Store { return movableStore{newStore(c)} })
	})
	t.Run("leases", func(t *testing.T) { testLeaseStore(t, 12*time.Hour) })
	for _, w := range stuckStores {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunWithPatience(t, 2*time.Second, changed(w.change))
		})
	}
	runGroups := func(stores []wrongStore, groups ...string) {
		for _, w := range stores {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				storetest.RunGroups(t, groups, changed(w.change))
			})
		}
	}
	runGroups(wrongMethods, "Store", "CreateOrder", "ListUsers", "GetProduct", "ListWidgets")
	runGroups(wrongReads, "Store", "ListUsers", "GetProduct", "ListWidgets")
	runGroups(wrongOrders, "Store", "CreateOrder")
}

// results are those of a run of TestSuiteOnWrongStores, by the name of the wrong store.
type results struct {
	failed, skipped map[string][]string // subtests
	said            map[string]string
}

// suiteOnWrongStores runs TestSuiteOnWrongStores in another process, which ends with
// this test, and returns its output.
func suiteOnWrongStores(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), must.Get(os.Executable())(t), append(args, "-test.timeout=0")...)
	cmd.Env = append(os.Environ(), inWrongStores+"=1")
	return cmd.CombinedOutput()
}

// runWrongStores runs the suite on all wrong stores.
func runWrongStores(t *testing.T) results {
	t.Helper()
	// The stuck stores wait beside the others, which use the processors meanwhile.
	parallel := fmt.Sprint("-test.parallel=", runtime.GOMAXPROCS(0)+len(stuckStores))
	out, err := suiteOnWrongStores(t, "-test.run=^TestSuiteOnWrongStores$", "-test.v", parallel)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		t.Fatalf("the suite on wrong stores ended with %v, want failures", err)
	}
	r := results{make(map[string][]string), make(map[string][]string), make(map[string]string)}
	result := regexp.MustCompile(`^\s*--- (FAIL|PASS|SKIP): TestSuiteOnWrongStores/([^/]+)/([^/]+/.+) \(`)
	running := regexp.MustCompile(`^=== (?:RUN|NAME|CONT)\s+TestSuiteOnWrongStores/([^/]+)`)
	current, ended := "", false
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		if m := running.FindStringSubmatch(line); m != nil {
			current = m[1]
		} else if m := result.FindStringSubmatch(line); m != nil {
			switch m[1] {
			case "FAIL":
				r.failed[m[2]] = append(r.failed[m[2]], m[3])
			case "SKIP":
				r.skipped[m[2]] = append(r.skipped[m[2]], m[3])
			}
		} else {
			r.said[current] += line + "\n"
			ended = ended || line == "FAIL"
		}
	}
	if !ended {
		t.Fatalf("the suite on wrong stores did not come to its end:\n%s", out)
	}
	return r
}

// wantSubtests checks that the subtests are exactly those that begin as given.
func wantSubtests(t *testing.T, what string, got, beginnings []string) {
	t.Helper()
	missing := slices.Clone(beginnings)
	for _, g := range got {
		i := slices.IndexFunc(missing, func(b string) bool { return strings.HasPrefix(g, strings.ReplaceAll(b, " ", "_")) })
		if i < 0 {
			t.Errorf("%s: %s, too", what, g)
			continue
		}
		missing = slices.Delete(missing, i, i+1)
	}
	for _, m := range missing {
		t.Errorf("not %s: %s", what, m)
	}
}

// firstFailure matches the text that an implementer reads first.
var firstFailure = regexp.MustCompile(`(?s)^.*?(The broken promise: [^\n]*(\n\s*The usual cause: [^\n]*)?|So it was not checked: [^\n]*)`)

func TestWrongStoresAreCaught(t *testing.T) {
	t.Parallel()
	r := runWrongStores(t)
	t.Run("what a bare store has not got is skipped", r.bareStoreIsSkipped)
	t.Run("without -v, a run sums up what it has not checked", r.runSumsUp)
	t.Run("an optional method of another type is pointed out", r.mistypedMethodIsPointedOut)
	t.Run("leases that end too early are seen where Advance shortens them", func(t *testing.T) {
		wantSubtests(t, "failed", r.failed["leases"], []string{lifetime})
	})
	t.Run("where CreateOrder never works, nothing is said to be broken", func(t *testing.T) {
		if said := r.said["CreateOrder_is_not_written_yet"]; strings.Contains(said, "The broken promise: ") {
			t.Error(said)
		}
	})
	t.Run("of many wrong cases, three are told", func(t *testing.T) {
		if n := strings.Count(r.said["one_more_than_the_limit"], "The broken promise: "); n != 2*3 {
			t.Errorf("of each list, %d were told", n/2)
		}
	})
	for _, w := range slices.Concat(wrongStores, stuckStores) {
		t.Run(w.name, func(t *testing.T) {
			name := strings.ReplaceAll(w.name, " ", "_")
			wantSubtests(t, "failed", r.failed[name], w.fails)
			if n := strings.Count(r.said[name], "The broken promise: "); n > 3*len(w.fails) {
				t.Errorf("it tells %d times of a broken promise, want up to three in a subtest", n)
			}
			if first := firstFailure.FindString(r.said[name]); !strings.Contains(first, w.says) {
				t.Errorf("the first failure does not say %q:\n%s", w.says, first)
			}
		})
	}
}

func (r results) bareStoreIsSkipped(t *testing.T) {
	wantSubtests(t, "skipped", r.skipped["bare"], []string{
		apart, usersFewer, usersGone, usersWhile, widgetsFewer, widgetsGone, widgetsWhile,
		atomic, exactlyOne, crash, reused, decided, ordered, lifetime, noTrace, product, notFound,
	})
	wantSubtests(t, "failed", r.failed["bare"], nil)
	for _, says := range []string{
		"Not checked: what a crash leaves",
		"the methods of storetest.Editor:", "Delete(context.Context, storetest.Contents) error",
	} {
		if !strings.Contains(r.said["bare"], says) {
			t.Errorf("it does not say %q:\n%s", says, r.said["bare"])
		}
	}
	if says := "its type is another"; strings.Contains(r.said["bare"], says) {
		t.Errorf("it says %q of a method that is as it should be:\n%s", says, r.said["bare"])
	}
}

func (r results) runSumsUp(t *testing.T) {
	out, err := suiteOnWrongStores(t, "-test.run=^TestSuiteOnWrongStores$/^(bare|movable)$")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	heading := " has left unchecked, as the store lacks optional methods (go test -v names them):\n"
	for _, says := range []string{
		"TestSuiteOnWrongStores/bare" + heading + "\tClock: that keys are remembered when time has passed\n\tEditor: that pages are full",
		"; lists that change while they are read; ",
		"\n\tOrderLister: ", "\n\tRefuser: ", "\n\tReopener: ",
		"TestSuiteOnWrongStores/movable" + heading + "\tClock (whose Advance is not to be a func(int)): that keys are remembered when time has passed\n",
	} {
		if n := strings.Count(string(out), says); n != 1 {
			t.Errorf("it says %q %d times, want 1:\n%s", says, n, out)
		}
	}
	if n := strings.Count(string(out), "\n"); n > 20 {
		t.Errorf("it writes %d lines, want few:\n%s", n, out)
	}
	for name, said := range r.said {
		if strings.Contains(said, heading) {
			t.Errorf("with -v, the run on %s says it, too", name)
		}
	}
}

func (r results) mistypedMethodIsPointedOut(t *testing.T) {
	wantSubtests(t, "skipped", r.skipped["movable"], []string{lifetime})
	if says := "has one with this name, but its type is another"; !strings.Contains(r.said["movable"], says) {
		t.Errorf("it does not say %q:\n%s", says, r.said["movable"])
	}
}

func TestEveryPromiseIsBrokenByAWrongStoreThatBreaksNoOther(t *testing.T) {
	var alone []string // the subtests that fail alone
	for _, w := range slices.Concat(wrongStores, stuckStores) {
		// Both lists make the same promises, and are broken together.
		if len(w.fails) == 1 || len(w.fails) == 2 && strings.HasPrefix(w.fails[0], "List") && strings.HasPrefix(w.fails[1], "List") {
			alone = append(alone, w.fails...)
		}
	}
	for _, p := range storetest.Promises() {
		if !slices.ContainsFunc(alone, func(f string) bool { return strings.HasPrefix(p, f) }) {
			t.Errorf("no wrong store breaks only this promise: %s", p)
		}
	}
}
