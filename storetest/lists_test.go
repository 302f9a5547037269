package storetest_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"example.com/storefront"
)

// compareInMemory replaces both lists. Their items are in the order of one comparison
// function, and begin at a position by another.
func (s *store) compareInMemory(order, position func(a, b string) int) {
	s.lists(func(l list, ctx ctxt, pos string, limit int) ([]resource, error) {
		page := slices.Collect(l.all.All())
		page = slices.DeleteFunc(page, func(r resource) bool {
			c := position(r.ID(), pos)
			return pos != "" && (c < 0 || c == 0 && !l.inclusive)
		})
		slices.SortStableFunc(page, func(a, b resource) int { return order(a.ID(), b.ID()) })
		return page[:min(limit, len(page))], nil
	})
	s.lookFirst()
}

func ignoringCase(a, b string) int { return cmp.Compare(strings.ToLower(a), strings.ToLower(b)) }

var wrongLists = []wrongStore{
	{"order without case", func(s *store) {
		s.compareInMemory(ignoringCase, strings.Compare)
	}, []string{inOrder}, `COLLATE "C"`},
	{"positions without case", func(s *store) {
		s.compareInMemory(strings.Compare, ignoringCase)
	}, []string{begin}, "compares in another way than by bytes"},
	{"a first page of at most 100", func(s *store) {
		s.lists(func(l list, ctx ctxt, position string, limit int) ([]resource, error) {
			if position == "" {
				limit = min(limit, 100)
			}
			return l.right(ctx, position, limit)
		})
	}, []string{first}, "100 items, want 101"},
	{"one more than the limit", func(s *store) {
		s.lists(func(l list, ctx ctxt, position string, limit int) ([]resource, error) {
			return l.right(ctx, position, limit+1)
		})
	}, []string{atMost}, "one more is read"},
	{"at most 500", func(s *store) {
		s.lists(func(l list, ctx ctxt, position string, limit int) ([]resource, error) {
			return l.right(ctx, position, min(limit, 500))
		})
	}, []string{fewer}, "a limit of the store's own"},
	{"the position is looked up", func(s *store) {
		s.lists(func(l list, ctx ctxt, position string, limit int) ([]resource, error) {
			if _, ok := l.all.Get(position); !ok && position != "" && len(slices.Collect(l.all.All())) > 2 {
				return nil, errors.New("no such position")
			}
			return l.right(ctx, position, limit)
		})
	}, []string{gone}, "looked up as an item"},
	{"counting, then OFFSET", func(s *store) {
		s.lists(func(l list, ctx ctxt, position string, limit int) ([]resource, error) {
			offset := 0
			for r := range l.all.All() {
				if r.ID() < position || r.ID() == position && !l.inclusive {
					offset++
				}
			}
			time.Sleep(10 * time.Microsecond)
			page := slices.Collect(l.all.All())
			page = page[min(offset, len(page)):]
			return page[:min(limit, len(page))], nil
		})
		s.lookFirst()
	}, []string{while}, "OFFSET"},
	{"an empty list is not found", func(s *store) {
		s.lists(func(l list, ctx ctxt, position string, limit int) ([]resource, error) {
			page, err := l.right(ctx, position, limit)
			if err == nil && len(page) == 0 {
				err = storefront.ErrNotFound
			}
			return page, err
		})
	}, []string{empty}, "ErrNotFound is for GetProduct alone"},
	{"the contents are not put in", func(s *store) {
		s.MemStore.Users, s.MemStore.Widgets = storefront.Collection{}, storefront.Collection{}
	}, []string{inOrder, begin, first, fewer, gone, while}, "newStore is given are not put into the store"},
}
