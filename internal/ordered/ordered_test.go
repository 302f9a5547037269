package ordered

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
	"weak"
)

// An item is a value of the maps in these tests.
type item struct {
	id      string
	version int
}

func (i item) ID() string { return i.id }

// number returns what an ID of digits alone says.
func number(i item) int {
	n, _ := strconv.Atoi(i.id)
	return n
}

func byID(a, b item) int { return strings.Compare(a.id, b.id) }

// wantAgreement checks the whole of c, and single reads at some positions.
func wantAgreement(t *testing.T, c *Map[item], want map[string]item, random *rand.Rand, ids []string) {
	t.Helper()
	var all []item
	for _, id := range slices.Sorted(maps.Keys(want)) {
		all = append(all, want[id])
	}
	if got := slices.Collect(c.All()); !slices.Equal(got, all) {
		t.Fatalf("All has %d items, want %d: %v", len(got), len(all), got)
	}
	for range 5 {
		id := ids[random.IntN(len(ids))]
		got, ok := c.Get(id)
		if wanted, there := want[id]; ok != there || got != wanted {
			t.Fatalf("Get(%q) = %v, %t, want %v", id, got, ok, wanted)
		}
		limit := []int{1, 2, 63, 64, 65, 200, 2000}[random.IntN(7)]
		for _, from := range []string{id, id + "\x00", id[:len(id)-1], ""} {
			i, _ := slices.BinarySearchFunc(all, item{id: from}, byID)
			wanted := all[i:min(len(all), i+limit)]
			if got := c.From(from, limit); !slices.Equal(got, wanted) {
				t.Fatalf("From(%q, %d) = %v, want %v", from, limit, got, wanted)
			}
		}
	}
}

func (n *node[V]) depth() int {
	if n.children == nil {
		return 1
	}
	return 1 + n.children[0].Load().depth()
}

func TestMapAgreesWithASortedMap(t *testing.T) {
	const n = 6000 // makes the tree three levels deep
	random := rand.New(rand.NewPCG(1, 2))
	numbered := make([]string, n)
	for i := range numbered {
		numbered[i] = fmt.Sprintf("product-%06d", i)
	}
	uneven := make(map[string]bool) // of many lengths and with long prefixes in common
	for len(uneven) < n {
		id := strings.Repeat("ab", random.IntN(6))
		for range 1 + random.IntN(8) {
			id += []string{"a", "b", " ", "é", "\U0010FFFD"}[random.IntN(5)]
		}
		uneven[id] = true
	}
	kinds := map[string][]string{"numbered": numbered, "uneven": slices.Sorted(maps.Keys(uneven))}
	for kind, ids := range kinds {
		descending := slices.Clone(ids)
		slices.Reverse(descending)
		shuffled := slices.Clone(ids)
		random.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		orders := map[string][]string{"random": shuffled}
		if kind == "numbered" {
			orders["ascending"], orders["descending"] = ids, descending
		}
		for order, ids := range orders {
			t.Run(kind+" "+order, func(t *testing.T) {
				var c Map[item]
				want := make(map[string]item)
				for round := range 2 { // the second one after everything was deleted
					for i, id := range ids {
						r := item{id, round}
						c.Put(r)
						want[id] = r
						if i%2500 == 0 {
							wantAgreement(t, &c, want, random, ids)
						}
					}
					wantAgreement(t, &c, want, random, ids)
					if got := c.root.Load().depth(); got < 3 {
						t.Fatalf("the tree has %d levels: it tests too little", got)
					}
					for i, id := range ids {
						c.Delete(id)
						delete(want, id)
						if i%2500 == 0 {
							wantAgreement(t, &c, want, random, ids)
						}
					}
					wantAgreement(t, &c, want, random, ids)
					if c.root.Load() != nil {
						t.Fatal("an empty map keeps nodes")
					}
				}
			})
		}
		t.Run(kind+" mixed", func(t *testing.T) {
			var c Map[item]
			want := make(map[string]item)
			for step := range 20_000 {
				// In turn the map grows and shrinks.
				id := ids[random.IntN(n)]
				if random.IntN(10) < 3+4*(step/5000%2) {
					c.Delete(id, "never there")
					delete(want, id)
				} else {
					r := item{id, step}
					c.Put(r)
					want[id] = r
				}
				if step%2000 == 0 {
					wantAgreement(t, &c, want, random, ids)
				}
			}
		})
	}
}

func TestAllMayEndEarlyAndMeetChanges(t *testing.T) {
	var c Map[item]
	for i := range 1000 {
		c.Put(item{fmt.Sprintf("%04d", i), 0})
	}
	seen := 0
	for range c.All() {
		if seen++; seen == 2 {
			break
		}
	}
	for r := range c.All() {
		c.Delete(r.id)
		seen++
	}
	if left := slices.Collect(c.All()); seen != 1002 || len(left) != 0 {
		t.Errorf("%d were seen and %v are left, want 1002 and none", seen, left)
	}
}

// Readers beside a writer see ascending IDs, and each item that was there
// throughout once.
func TestReadersBesideAWriter(t *testing.T) {
	const n = 6000
	id := func(i int) string { return fmt.Sprintf("%05d", i) }
	// Long stretches come and go, and whole nodes with them.
	stays := func(i int) bool { return i%7 == 0 && i/500%2 == 0 }
	var c Map[item]
	var staying []string
	for i := range n {
		if stays(i) {
			c.Put(item{id(i), 0})
			staying = append(staying, id(i))
		}
	}
	var done atomic.Bool
	// check is of a page from an item on, up to the last one if it is all there is.
	check := func(page []item, from int, all bool) {
		next := from
		for _, r := range page {
			i := number(r)
			if i < next {
				t.Errorf("a page from %s has %s after %s", id(from), r.id, id(next-1))
			}
			for ; next < i; next++ {
				if stays(next) {
					t.Errorf("a page from %s has not %s, which stays", id(from), id(next))
				}
			}
			next++
		}
		for ; all && next < n; next++ {
			if stays(next) {
				t.Errorf("a page from %s has not %s, which stays", id(from), id(next))
			}
		}
	}
	var wg sync.WaitGroup
	for seed := range uint64(3) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for first := true; (first || !done.Load()) && !t.Failed(); first = false {
				check(slices.Collect(c.All()), 0, true)
				from, limit := random.IntN(n), 1+random.IntN(2000)
				page := c.From(id(from), limit)
				check(page, from, len(page) < limit)
				one := staying[random.IntN(len(staying))]
				if _, ok := c.Get(one); !ok {
					t.Errorf("Get has not %s, which stays", one)
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(9, 9))
	for range 20 {
		from, length := random.IntN(n), 200+random.IntN(2000)
		put := random.IntN(2) == 0
		for i := from; i < min(n, from+length); i++ {
			switch {
			case stays(i):
				c.Put(item{id(i), length}) // another of that ID
			case put:
				c.Put(item{id(i), 0})
			default:
				c.Delete(id(i))
			}
		}
	}
	done.Store(true)
	wg.Wait()
}

// A reader may still have a root whose last child is gone from the tree. It may meet the
// last item of that child twice: there, and where the item was put since.
func TestReaderOfAnOldRootSeesNothingTwice(t *testing.T) {
	var c Map[item]
	for i := range 6000 {
		c.Put(item{fmt.Sprintf("%05d", i), 0})
	}
	old := c.root.Load()
	begin := number(item{id: old.least[len(old.least)-1]}) // of the last child's range
	for i := begin; i < 6000; i++ {
		c.Delete(fmt.Sprintf("%05d", i))
	}
	c.Put(item{"05999", 0})
	if c.root.Load() == old {
		t.Fatal("the root is the old one: this tests nothing")
	}
	page := old.appendFrom(nil, "", 10_000)
	if len(page) != begin+1 || page[begin].id != "05999" {
		t.Errorf("it sees %d items, want %d", len(page), begin+1)
	}
}

// So a reader needs no lock, and sees a leaf as it was at one moment.
func TestLeavesThatReadersSeeDoNotChange(t *testing.T) {
	for name, change := range map[string]func(*Map[item]){
		"replace": func(m *Map[item]) { m.Put(item{"b", 2}) },
		"insert":  func(m *Map[item]) { m.Put(item{"bb", 1}) },
		"append":  func(m *Map[item]) { m.Put(item{"d", 1}) },
		"delete":  func(m *Map[item]) { m.Delete("b") },
	} {
		var m Map[item]
		m.Put(item{"a", 1}, item{"b", 1}, item{"c", 1}, item{"x", 1})
		m.Delete("x") // so that there might be room for another
		leaf := m.root.Load()
		items, keys := slices.Clone(leaf.items), slices.Clone(leaf.keys)
		change(&m)
		if !slices.Equal(leaf.items, items) || !slices.Equal(leaf.keys, keys) {
			t.Errorf("%s: what a reader has is now %v, want %v", name, leaf.items, items)
		}
	}
}

// A reader that waited for the lock would wait for ever.
func TestReadersDoNotWaitForWriters(t *testing.T) {
	var m Map[item]
	m.Put(item{"a", 1})
	m.mu.Lock()
	defer m.mu.Unlock()
	got, ok := m.Get("a")
	all, page := slices.Collect(m.All()), m.From("", 9)
	if !ok || got.version != 1 || len(all) != 1 || len(page) != 1 {
		t.Errorf("got %v, %v and %v, want the one item", got, all, page)
	}
}

func TestZeroMapIsEmptyAndReady(t *testing.T) {
	var m Map[item]
	if got, ok := m.Get("a"); ok || got != (item{}) {
		t.Errorf("Get: %v, %t", got, ok)
	}
	if got := m.From("", 9); len(got) != 0 {
		t.Errorf("From: %v", got)
	}
	for got := range m.All() {
		t.Errorf("All: %v", got)
	}
	m.Delete("a")
	m.Put()
	m.Put(item{"a", 1})
	if got := slices.Collect(m.All()); len(got) != 1 {
		t.Errorf("All: %v, want the one item", got)
	}
}

// A text is a value whose ID is a part of its text.
type text struct {
	text string
	id   int // bytes
}

func (t *text) ID() string { return t.text[:t.id] }

func newText(id string, size int) (*text, weak.Pointer[byte]) {
	b := make([]byte, len(id)+size)
	copy(b, id)
	return &text{unsafe.String(&b[0], len(b)), len(id)}, weak.Make(&b[0])
}

func TestWhatWasReplacedOrDeletedIsFree(t *testing.T) {
	const n = 6000 // makes the tree three levels deep
	id := func(i int) string { return fmt.Sprintf("in common/%05d", i) }
	for name, remove := range map[string]func(m *Map[*text], i int){
		"replaced": func(m *Map[*text], i int) {
			small, _ := newText(id(i), 0)
			m.Put(small)
		},
		"deleted": func(m *Map[*text], i int) {
			if i > 0 { // so that nodes stay
				m.Delete(id(i))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m Map[*text]
			large := make([]weak.Pointer[byte], n)
			for i := range n {
				var v *text
				v, large[i] = newText(id(i), 1000)
				m.Put(v)
			}
			for i := range n {
				remove(&m, i)
			}
			runtime.GC()
			kept := 0
			for _, p := range large[1:] {
				if p.Value() != nil {
					kept++
				}
			}
			if kept > 0 {
				t.Errorf("%d of %d values are still in memory", kept, n)
			}
			runtime.KeepAlive(&m)
		})
	}
}
