package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"example.com/storefront"
)

// A list is one of the two lists of a store.
type list struct {
	method, items, item, position string
	inclusive                     bool // whether the item at the position is listed
	contents                      func([]storefront.Resource) Contents
	call                          func(_ storefront.Store, _ context.Context, position string, limit int) (
		[]storefront.Resource, error)
}

var (
	users = list{
		method: "ListUsers", items: "users", item: "user", position: "after",
		contents: func(r []storefront.Resource) Contents { return Contents{Users: r} },
		call:     storefront.Store.ListUsers,
	}
	widgets = list{
		method: "ListWidgets", items: "widgets", item: "widget", position: "start", inclusive: true,
		contents: func(r []storefront.Resource) Contents { return Contents{Widgets: r} },
		call:     storefront.Store.ListWidgets,
	}
)

func (l list) promises() []promise {
	begins := "It begins with the first whose ID is greater than after, byte by byte"
	if l.inclusive {
		begins = "It begins with the first whose ID is greater than or equal to start, byte by byte"
	}
	return []promise{
		{l.method + " returns " + l.items + " in ascending byte order of ID", l.checkOrder},
		{begins, l.checkBegin},
		{"If " + l.position + ` is "", it begins with the first of all`, l.checkBeginning},
		{"It returns at most limit " + l.items, l.checkAtMost},
		{"It returns fewer only if no more follow", l.checkFewer},
		{"The " + l.item + " with the ID " + l.position + " need not exist", l.checkGone},
		{"A " + l.item + " that is there throughout the call is not skipped, whatever is inserted or " +
			"deleted meanwhile", l.checkMeanwhile},
		{"An empty list is not an error", l.checkEmpty},
	}
}

// trickyIDs are IDs that a store might put into another order than that of their
// bytes, or take for each other. They are sorted.
var trickyIDs = func() []string {
	ids := []string{
		// Case, which many collations ignore or put last.
		"A", "AB", "Ab", "B", "Z", "a", "aB", "ab", "b", "z",
		// Prefixes of each other.
		"aa", "aaa", "aab",
		// Numbers, which natural sorting compares as such.
		"1", "02", "10", "2", "9", "item-10", "item-9",
		// Spaces and punctuation, which collations ignore and CHAR columns trim.
		" a", "a ", "a  ", "a b", "a-b", "a.b", "a_b", "a,b", "-a", "~",
		// Characters and words that are special to SQL, JSON and file systems.
		"%", "a%", "_", "a'b", `"`, `\`, `a\b`, "$1", "?", ":a", "NULL", "null", "0x41", "[a-z]", "{a}",
		"*", "a--", "a;b",
		".", "..", "../a", "/", "a/b", "a//b", "a/",
		// Characters that are the same composed and decomposed, or look alike.
		"\u00e9", "e\u0301", "\u00c5", "\u212b", "A\u030a", "\u00df", "ss", "i", "I",
		"\u0131", "\u0130", "\u0430",
		// Characters that collations ignore.
		"a\u00adb", "a\u200bb",
		// UTF-16 puts surrogates, and so U+10000 and above, before U+E000 to U+FFFD.
		"\u65e5\u672c", "\ud7ff", "\ue000", "\uff5e", "\ufffd", "\U00010000", "\U0001f600", "\U0010fffd",
		// As long as an ID may be.
		strings.Repeat("x", 254), strings.Repeat("x", 255), strings.Repeat("x", 254) + "y",
		strings.Repeat("\u00e9", 127) + "z",
	}
	slices.Sort(ids)
	return ids
}()

// plainIDs returns n IDs whose order is the same in any collation.
func plainIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("id%05d", i)
	}
	return ids
}

// resources returns a resource for each ID, shuffled, but always in the same way.
func resources(ids []string) []storefront.Resource {
	out := make([]storefront.Resource, len(ids))
	random := rand.New(rand.NewPCG(1, 1))
	for i, j := range random.Perm(len(ids)) {
		out[j] = storefront.MustResource(ids[i], map[string]any{"number": i})
	}
	return out
}

func idsOf(resources []storefront.Resource) []string {
	ids := make([]string, len(resources))
	for i, r := range resources {
		ids[i] = r.ID()
	}
	return ids
}

// from returns the rest of the sorted IDs, from a position on, as the list has it.
func (l list) from(ids []string, position string) []string {
	i, found := slices.BinarySearch(ids, position)
	if found && !l.inclusive {
		i++
	}
	return ids[i:]
}

func (l list) text(position string, limit int) string {
	return fmt.Sprintf("%s(ctx, %q, %d)", l.method, position, limit)
}

// list calls the store's method and returns the IDs of the page. It ends the subtest
// if the call fails.
func (l list) list(t *test, store storefront.Store, position string, limit int) []string {
	t.Helper()
	got, err := l.call(store, t.Context(), position, limit)
	t.must(l.text(position, limit), err)
	return idsOf(got)
}

// difference says where two sequences of IDs begin to differ. It returns "" if they
// are equal.
func difference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		switch {
		case len(got) == 0:
			return fmt.Sprintf("nothing, want %d: %q is missing", len(want), want[0])
		case i == len(got):
			return fmt.Sprintf("%d items, want %d: after them, %q is missing", len(got), len(want), want[i])
		case i == len(want):
			return fmt.Sprintf("%d items, want %d: after them, there is %q", len(got), len(want), got[i])
		case got[i] != want[i]:
			return fmt.Sprintf("%q at index %d, want %q there", got[i], i, want[i])
		}
	}
	return ""
}

// cause returns the usual cause, unless the page that the store returned tells of
// another: it is empty, or wrongly has or lacks the item at the position.
func (l list) cause(usual, position string, got []string) string {
	switch found := slices.Contains(got, position); {
	case len(got) == 0:
		return "the contents that newStore is given are not put into the store, or the limit is off by one."
	case found && !l.inclusive:
		return "a comparison with >= instead of >. Users begin after the position, widgets at it."
	case !found && l.inclusive:
		return "a comparison with > instead of >=. Users begin after the position, widgets at it."
	}
	return usual
}

const collation = "no order, or that of insertion; or a comparison that goes by language, ignores case, " +
	"accents or spaces, or compares UTF-16. In PostgreSQL, use COLLATE \"C\" or BYTEA; in MySQL, a _bin " +
	"collation or VARBINARY."

func (l list) checkOrder(t *test) {
	store := t.newStore(l.contents(resources(trickyIDs)))
	// The position is the ID of an item, as a store that is not finished may know
	// no others.
	position := trickyIDs[0]
	got := l.list(t, store, position, 500)
	for i := 1; i < len(got); i++ {
		if got[i-1] >= got[i] {
			t.broken(collation, "%s returned %q before %q.", l.text(position, 500), got[i-1], got[i])
		}
	}
	if d := difference(after(position, got, 500), trickyIDs[1:]); d != "" {
		t.broken(l.cause(collation, position, got), "%s returned %s.", l.text(position, 500), d)
	}
}

func (l list) checkBegin(t *test) {
	store := t.newStore(l.contents(resources(trickyIDs)))
	for _, position := range trickyIDs {
		want := l.from(trickyIDs, position)
		if len(want) == 0 {
			continue
		}
		got := l.list(t, store, position, 500)
		slices.Sort(got) // the order is another promise
		if d := difference(got, want); d != "" {
			usual := "WHERE id > $1 (or >=) compares in another way than by bytes: " + collation
			t.wrong(l.cause(usual, position, got), "%s returned, sorted: %s.", l.text(position, 500), d)
		}
	}
}

func (l list) checkBeginning(t *test) {
	ids := append([]string{" !", "!"}, plainIDs(150)...)
	store := t.newStore(l.contents(resources(ids)))
	for _, limit := range []int{1, 50, 101, len(ids)} {
		got := l.list(t, store, "", limit)
		if d := difference(got[:min(limit, len(got))], ids[:limit]); d != "" {
			t.wrong(`"" is taken for an ID, or for NULL, or the first page is made unlike the others.`,
				"%s returned %s.", l.text("", limit), d)
		}
	}
}

func (l list) checkAtMost(t *test) {
	ids := plainIDs(12)
	store := t.newStore(l.contents(resources(ids)))
	for _, position := range []string{"", ids[0], ids[5]} {
		for limit := 1; limit <= len(ids); limit++ {
			if got := l.list(t, store, position, limit); len(got) > limit {
				t.wrong("the limit is not passed on, or one more is read, to see whether any follow.",
					"%s returned %d %s.", l.text(position, limit), len(got), l.items)
			}
		}
	}
}

const tooFew = "a limit of the store's own, or items that are left out after LIMIT was applied."

func (l list) checkFewer(t *test) {
	ids := plainIDs(1100)
	store := t.newStore(l.contents(resources(ids)))
	// Of the limits, 51, 101 and 501 are those of the service, which asks for one item
	// more than a page has, to see whether any follow.
	for _, limit := range []int{1, 2, 50, 51, 100, 101, 255, 256, 500, 501, 1001, len(ids) - 1, len(ids)} {
		for _, position := range []string{ids[0], ids[700], ids[len(ids)-2]} {
			want := l.from(ids, position)
			want = want[:min(limit, len(want))]
			got := l.list(t, store, position, limit)
			if d := difference(got[:min(limit, len(got))], want); d != "" {
				t.wrong(l.cause(tooFew, position, got), "%s returned %s.", l.text(position, limit), d)
			}
		}
	}
}

func (l list) checkGone(t *test) {
	const cause = "the position is looked up as an item rather than compared with IDs."
	ids := []string{"b", "bb", "d", "dd", "f", "\U0001f600"}
	store := t.newStore(l.contents(resources(ids)))
	for _, position := range []string{
		" ", "a", "ba", "bbb", "c", "cc", "de", "e", "g", strings.Repeat("c", 255), "c'", "c%",
	} {
		for _, limit := range []int{1, 2, 10} {
			got, err := l.call(store, t.Context(), position, limit)
			if err != nil {
				t.wrong(cause, "%s, where there is no such %s, failed: %v", l.text(position, limit),
					l.item, err)
				continue
			}
			want := l.from(ids, position)
			want = want[:min(limit, len(want))]
			if d := difference(idsOf(got[:min(limit, len(got))]), want); d != "" {
				t.wrong(cause, "%s, where there is no such %s, returned %s.", l.text(position, limit),
					l.item, d)
			}
		}
	}
}

// checkMeanwhile walks through the list in small pages while every second item comes
// and goes.
func (l list) checkMeanwhile(t *test) {
	ids := plainIDs(41)
	var stable, changing []string
	for i, id := range ids {
		if i%2 == 0 {
			stable = append(stable, id)
		} else {
			changing = append(changing, id)
		}
	}
	store := t.newStore(l.contents(resources(ids)))
	editor, ok := optional[Editor](t, store, "lists that change while they are read")
	if !ok {
		return
	}

	// Changes and walks go on until there are enough of both, or one has failed.
	const changes, walks = 100, 20
	var changed, walked atomic.Int64
	var failed atomic.Bool
	more := func() bool { return !failed.Load() && (changed.Load() < changes || walked.Load() < walks) }
	// Both goroutines pause, as the clock of a bubble moves only then, and the store
	// may wait for it. The pauses grow, or a slow store would be changed a million
	// times in one call. They are the same for both, or in a bubble many walks would
	// see no change.
	var cause, seen, method string
	var err error
	together(2, func(goroutine int) {
		for i := 0; more(); i++ {
			time.Sleep(time.Duration(i) * time.Microsecond)
			if goroutine == 0 {
				method, err = l.change(t.Context(), editor, changing, i)
				failed.CompareAndSwap(false, err != nil)
				changed.Add(1)
			} else {
				cause, seen = l.walk(t, store, stable, 3+i%5)
				failed.CompareAndSwap(false, seen != "")
				walked.Add(1)
			}
		}
	})
	t.must(method, err)
	if seen != "" {
		t.broken(cause, "While %s came and went, %s.", l.items, seen)
	}
}

// change deletes up to three of the IDs, or puts up to three back, in turn. It returns
// the name of the method that it calls, and its error.
func (l list) change(ctx context.Context, editor Editor, ids []string, i int) (method string, err error) {
	first := i * 7 % len(ids)
	some := l.contents(resources(ids[first:min(first+3, len(ids))]))
	if i%2 == 0 {
		return "Delete", editor.Delete(ctx, some)
	}
	return "Put", editor.Put(ctx, some)
}

// walk walks from the first to the last of the IDs. Unless it sees them all, in order
// and once, it returns what it saw instead, and the usual cause.
func (l list) walk(t *test, store storefront.Store, stable []string, limit int) (usual, wrong string) {
	const cause = "a page is found by counting (OFFSET), or put together from several reads of data that " +
		"changes between them."
	seen := stable[:1:1]
	for position := stable[0]; position != stable[len(stable)-1]; {
		page, err := l.call(store, t.Context(), position, limit)
		if err != nil {
			return "", fmt.Sprintf("%s failed: %v", l.text(position, limit), err)
		}
		if n := len(page); n < limit && (n == 0 || page[n-1].ID() < stable[len(stable)-1]) {
			return "items that are deleted meanwhile are left out after the page was read.", fmt.Sprintf(
				"%s returned %q: fewer than the limit, though more follow. The service takes such a page "+
					"for the last one", l.text(position, limit), idsOf(page))
		}
		before := position
		for _, id := range idsOf(page) {
			if _, ok := slices.BinarySearch(stable, id); ok && id != before {
				seen = append(seen, id)
				position = id // which stays, as a position whose item is gone is another promise
			}
		}
		if position <= before {
			return cause, fmt.Sprintf("%s returned %q, and %q, which was there throughout, was not seen",
				l.text(before, limit), idsOf(page), stable[len(seen)])
		}
	}
	if d := difference(seen, stable); d != "" {
		return cause, "a walk saw, of those that were there throughout, " + d
	}
	return "", ""
}

func (l list) checkEmpty(t *test) {
	check := func(store storefront.Store, situation, position string) {
		for _, limit := range []int{1, 501} {
			got, err := l.call(store, t.Context(), position, limit)
			switch {
			case errors.Is(err, storefront.ErrNotFound):
				t.wrong("ErrNotFound is for GetProduct alone.", "%s, %s, failed: %v", l.text(position, limit),
					situation, err)
			case err != nil:
				t.wrong("", "%s, %s, failed: %v", l.text(position, limit), situation, err)
			case len(got) > 0:
				t.wrong("", "%s, %s, returned %q.", l.text(position, limit), situation, idsOf(got))
			}
		}
	}
	empty := t.newStore(Contents{})
	check(empty, "where there are no "+l.items, "")
	check(empty, "where there are no "+l.items, "a")

	store := t.newStore(l.contents(resources([]string{"a", "b"})))
	check(store, "where none is greater", "c")
	check(store, "where none is greater", "\U0010fffd")
	if !l.inclusive {
		check(store, "where it is the last one", "b")
	}
}
