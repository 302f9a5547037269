package storetest_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/storefront/internal/must"
	"example.com/storefront/storetest"
)

// Subtests, by their group and a text in their name. "List" is both lists.
const (
	concurrently = "Store/Methods may be called"
	done         = "Store/Once ctx is done"
	notLater     = "Store/A method does not use ctx"
	slice        = "Store/A returned slice"
	asPut        = "Store/A resource is returned"
	apart        = "Store/Users, products and widgets"
	errorText    = "Store/The text of an error"

	inOrder = "List/in ascending byte order"
	begin   = "List/It begins"
	first   = `List/is ""`
	atMost  = "List/It returns at most"
	fewer   = "List/It returns fewer"
	gone    = "List/need not exist"
	while   = "List/is there throughout"
	empty   = "List/An empty list"

	everyOrder = "CreateOrder/"
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

	getOrder   = "OrderReader/GetOrder returns"
	noOrder    = "OrderReader/If there is none"
	noKey      = "OrderReader/If no order"
	leave      = "OrderReader/Methods may be called"
	orderList  = "OrderReader/ListOrders returns"
	afterOrder = "OrderReader/It begins"
	orderLimit = "OrderReader/It returns at most"
	byKey      = "OrderReader/GetOrderByKey"
	readAtOnce = "OrderReader/An order that"

	product  = "GetProduct/GetProduct returns"
	notFound = "GetProduct/If there is none"
)

// subtests returns those that have one of some names.
func subtests(names []string) []string {
	return slices.DeleteFunc(storetest.Promises(), func(p string) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			group, text, _ := strings.Cut(name, "/")
			return strings.HasPrefix(p, group) && strings.Contains(p, text)
		})
	})
}

var errDriver = errors.New("driver: bad connection")

// A wrongStore breaks a promise. Of the subtests of the method that is wrong, exactly those
// of fails fail, and the first failure has the text of says.
type wrongStore struct {
	name   string
	change func(*store)
	fails  []string
	says   string
}

func TestWrongStoresAreCaught(t *testing.T) {
	t.Run("of all methods", func(t *testing.T) {
		testWrongStores(t, wrongMethods, 0, "Store")
		testWrongStores(t, stuckStores, 2*time.Second, "Store")
		testWrongStores(t, stuckReaders, 2*time.Second, "OrderReader")
	})
	t.Run("lists", func(t *testing.T) { testWrongStores(t, wrongLists, 0, "ListUsers", "ListWidgets") })
	t.Run("products", func(t *testing.T) { testWrongStores(t, wrongProducts, 0, "GetProduct") })
	t.Run("orders", func(t *testing.T) { testWrongStores(t, wrongOrders, 0, "CreateOrder") })
	t.Run("readers", func(t *testing.T) { testWrongStores(t, wrongReaders, 0, "OrderReader") })
	t.Run("by the store's own clock", func(t *testing.T) {
		testWrongStores(t, []wrongStore{forgetful}, time.Minute, "CreateOrder")
	})
}

func testWrongStores(t *testing.T, stores []wrongStore, patience time.Duration, groups ...string) {
	for _, w := range stores {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			failed, said := storetest.Failures(t, groups, patience, changed(w.change))
			want := subtests(w.fails)
			for _, p := range storetest.Promises() {
				if slices.Contains(failed, p) != slices.Contains(want, p) {
					t.Errorf("%s: failed is %t", p, slices.Contains(failed, p))
				}
			}
			if said == nil || !strings.Contains(said[0], w.says) {
				t.Fatalf("the first failure does not say %q:\n%q", w.says, said)
			}
			// Where nothing works, no promise is said to be broken.
			if works := !slices.Contains(w.fails, everyOrder); !works {
				if all := strings.Join(said, "\n"); strings.Contains(all, "The broken promise: ") {
					t.Error(all)
				}
			}
		})
	}
}

func TestEveryPromiseIsBrokenByAWrongStore(t *testing.T) {
	var fail []string
	for _, w := range slices.Concat(wrongMethods, wrongLists, wrongProducts, wrongOrders, wrongReaders) {
		if !slices.Contains(w.fails, everyOrder) {
			fail = append(fail, subtests(w.fails)...)
		}
	}
	for _, p := range storetest.Promises() {
		if !slices.Contains(fail, p) {
			t.Errorf("no wrong store breaks this promise: %s", p)
		}
	}
}

func TestWhatIsNotCheckedIsSaid(t *testing.T) {
	t.Parallel()
	const heading = "TestBareStorePasses has left unchecked, as the store lacks optional methods"
	for _, row := range []struct {
		args []string
		says []string
	}{
		{nil, []string{
			heading + " (go test -v names them):\n\tstorefront.OrderReader: that orders are read back\n\tstoretest.Editor: lists that change while they are read\n",
			"\n\tstoretest.Reopener: what a crash leaves",
		}},
		{[]string{"-test.v"}, []string{
			"--- SKIP: TestBareStorePasses/CreateOrder/A_Store_that_survives", "Not checked: what a crash leaves",
			"the methods of storetest.Editor.", "the methods of storefront.OrderReader.",
		}},
	} {
		const some = "-test.run=^TestBareStorePasses$/^(ListUsers|CreateOrder|OrderReader)$/(not_skipped|crash|at_most)"
		cmd := exec.CommandContext(t.Context(), must.Get(os.Executable())(t), append(row.args, some)...)
		out, err := cmd.CombinedOutput()
		for _, says := range row.says {
			if !strings.Contains(string(out), says) {
				t.Errorf("with %q, it does not say %q:\n%s", row.args, says, out)
			}
		}
		if verbose := row.args != nil; err != nil || strings.Contains(string(out), heading) == verbose {
			t.Errorf("with %q: %v\n%s", row.args, err, out)
		}
	}
}

// stuckStores have calls that do not return.
var stuckStores = []wrongStore{
	{"GetProduct waits though ctx is done", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			stickIfDone(ctx)
			return s.MemStore.GetProduct(ctx, id)
		}
	}, []string{done}, "GetProduct has not returned 2s after it was called, though its context is done"},
}

var stuckReaders = []wrongStore{
	{"GetOrder waits though ctx is done", func(s *store) {
		s.getOrder = func(ctx ctxt, scope, id string) (resource, error) {
			stickIfDone(ctx)
			return s.MemStore.GetOrder(ctx, scope, id)
		}
	}, []string{leave}, "GetOrder has not returned 2s after it was called, though its context is done"},
	{"GetOrderByKey waits though ctx is done", func(s *store) {
		s.byKey = func(ctx ctxt, scope, key string) (resource, error) {
			stickIfDone(ctx)
			return s.MemStore.GetOrderByKey(ctx, scope, key)
		}
	}, []string{leave}, "GetOrderByKey has not returned"},
	{"ListOrders waits though ctx is done", func(s *store) {
		s.listOrders = func(ctx ctxt, scope, after string, limit int) ([]resource, error) {
			stickIfDone(ctx)
			return s.MemStore.ListOrders(ctx, scope, after, limit)
		}
	}, []string{leave}, "ListOrders has not returned"},
}

func stickIfDone(ctx ctxt) {
	if ctx.Err() != nil {
		select {}
	}
}
