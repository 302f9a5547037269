package storetest_test

import (
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/storetest"
)

// calls counts all calls, and apart from that the calls that were made one after another.
type calls struct {
	mu                     sync.Mutex
	inAll, oneAfterAnother map[string]int // by method
}

// countIn counts the calls of a store.
func (c *calls) countIn(s *store) *store {
	s.listUsers = func(ctx ctxt, after string, limit int) ([]resource, error) {
		c.count("ListUsers")
		return s.MemStore.ListUsers(ctx, after, limit)
	}
	s.listWidgets = func(ctx ctxt, start string, limit int) ([]resource, error) {
		c.count("ListWidgets")
		return s.MemStore.ListWidgets(ctx, start, limit)
	}
	s.get = func(ctx ctxt, id string) (resource, error) {
		c.count("GetProduct")
		return s.MemStore.GetProduct(ctx, id)
	}
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		c.count("CreateOrder")
		return right(ctx, k, o)
	})
	s.put = func(contents storetest.Contents) { c.count("Put"); s.putAll(contents) }
	s.delete = func(contents storetest.Contents) { c.count("Delete"); s.deleteAll(contents) }
	return s
}

// count counts a call. In a bubble, the suite makes calls one after another only in the
// subtest's own goroutine.
func (c *calls) count(method string) {
	pc := make([]uintptr, 100)
	frames := runtime.CallersFrames(pc[:runtime.Callers(1, pc)])
	alone := 1
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.HasPrefix(f.Function, "sync.(*WaitGroup).Go") {
			alone = 0
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inAll[method]++
	c.oneAfterAnother[method] += alone
}

func TestTheDocumentationSaysHowManyCallsARunMakes(t *testing.T) {
	c := &calls{inAll: make(map[string]int), oneAfterAnother: make(map[string]int)}
	var made []*storefront.MemStore
	storetest.RunSynctest(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
		s := c.countIn(newStore(contents))
		made = append(made, s.MemStore)
		return s
	})
	orders := 0
	for _, m := range made {
		orders += len(m.Orders())
	}

	doc, _, _ := strings.Cut(string(must.Get(os.ReadFile("storetest.go"))(t)), "\npackage ")
	doc = strings.NewReplacer("\n// ", " ", ",", "").Replace(doc)
	check := func(what, pattern string, counts ...int) {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(doc)
		if len(m) != 1+len(counts) {
			t.Errorf("the package comment does not say %s, as in %q", what, pattern)
			return
		}
		for i, n := range counts {
			// How many there are depends on how calls meet. The comment says the most.
			if says, _ := strconv.Atoi(m[1+i]); n > says || n < says*7/10 {
				t.Errorf("the package comment says %d where it says %s, but there are %d: %s", says, what, n, m[0])
			}
		}
	}
	for _, method := range []string{"CreateOrder", "GetProduct", "ListUsers", "ListWidgets"} {
		check("how often "+method+" is called", `\t`+method+` +(\d+) +(\d+)`, c.inAll[method], c.oneAfterAnother[method])
	}
	check("how often stores are changed", `Put and Delete are called (\d+) times`, c.inAll["Put"]+c.inAll["Delete"])
	check("how many orders are created", `creates (\d+) orders`, orders)
	check("how many stores are made", `called about (\d+) times`, len(made))
}
