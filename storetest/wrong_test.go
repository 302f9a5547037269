package storetest_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	atomics "sync/atomic"
	"testing"
	"time"
	"unicode/utf16"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

type (
	ctxt     = context.Context
	resource = storefront.Resource
	key      = storefront.IdempotencyKey
	order    = storefront.Order
	lister   = func(ctx ctxt, position string, limit int) ([]resource, error)
	creator  = func(ctx ctxt, k key, o order) (order, error)
	getter   = func(ctx ctxt, id string) (resource, error)
)

// A store is right until one of its functions, which are nil at first, is set. It
// has all optional methods but Advance, as it is tested in bubbles.
type store struct {
	*storefront.MemStore
	listUsers, listWidgets lister
	create                 creator
	get                    getter
	put, delete            func(storetest.Contents)
	reopen                 func() storefront.Store
	soldOut                *sync.Map          // items
	refusal                storefront.Refusal // that SellOut returns

	knowing sync.Mutex
	known   map[string]bool // the keys that have an order
}

func newStore(contents storetest.Contents) *store {
	s := &store{MemStore: new(storefront.MemStore), soldOut: new(sync.Map), refusal: soldOut, known: make(map[string]bool)}
	s.Accept = func(_ ctxt, _ key, o order) error { return s.decide(o) }
	s.putAll(contents)
	return s
}

func (s *store) ListUsers(ctx ctxt, after string, limit int) ([]resource, error) {
	if s.listUsers != nil {
		return s.listUsers(ctx, after, limit)
	}
	return s.MemStore.ListUsers(ctx, after, limit)
}

func (s *store) ListWidgets(ctx ctxt, start string, limit int) ([]resource, error) {
	if s.listWidgets != nil {
		return s.listWidgets(ctx, start, limit)
	}
	return s.MemStore.ListWidgets(ctx, start, limit)
}

func (s *store) CreateOrder(ctx ctxt, k key, o order) (order, error) {
	return s.creator()(ctx, k, o)
}

func (s *store) creator() creator {
	if s.create != nil {
		return s.create
	}
	return func(ctx ctxt, k key, o order) (order, error) {
		s.knowing.Lock()
		defer s.knowing.Unlock()
		stored, err := s.MemStore.CreateOrder(ctx, k, o)
		if err == nil {
			s.known[nameOf(k)] = true
		}
		return stored, err
	}
}

func (s *store) GetProduct(ctx ctxt, id string) (resource, error) {
	if s.get != nil {
		return s.get(ctx, id)
	}
	return s.MemStore.GetProduct(ctx, id)
}

func (s *store) Put(_ ctxt, contents storetest.Contents) error {
	if s.put != nil {
		s.put(contents)
	} else {
		s.putAll(contents)
	}
	return nil
}

func (s *store) putAll(c storetest.Contents) {
	s.Users.Put(c.Users...)
	s.Products.Put(c.Products...)
	s.Widgets.Put(c.Widgets...)
}

func (s *store) Delete(_ ctxt, contents storetest.Contents) error {
	if s.delete != nil {
		s.delete(contents)
	} else {
		s.deleteAll(contents)
	}
	return nil
}

func (s *store) deleteAll(c storetest.Contents) {
	s.Users.Delete(ids(c.Users)...)
	s.Products.Delete(ids(c.Products)...)
	s.Widgets.Delete(ids(c.Widgets)...)
}

// Orders returns each order once, even if it has two keys.
func (s *store) Orders() []order {
	orders := make(map[order]bool)
	for _, o := range s.MemStore.Orders() {
		orders[o] = true
	}
	return slices.Collect(maps.Keys(orders))
}

func (s *store) Reopen(*testing.T) storefront.Store {
	if s.reopen != nil {
		return s.reopen()
	}
	return s
}

var soldOut = storefront.Refusal{Reason: "sold-out", Detail: "There is none left.", Pointer: "#/item"}

func (s *store) SellOut(_ ctxt, item string) (storefront.Refusal, error) {
	s.soldOut.Store(item, true)
	return s.refusal, nil
}

func (s *store) Restock(_ ctxt, item string) error {
	s.soldOut.Delete(item)
	return nil
}

// decide refuses what is sold out.
func (s *store) decide(o order) error {
	if _, ok := s.soldOut.Load(o.Item); ok {
		return &soldOut
	}
	return nil
}

// isRefusal reports whether an order was refused.
func isRefusal(err error) bool { return errors.As(err, new(*storefront.Refusal)) }

// again is the store after a crash.
func (s *store) again() *store {
	again := newStore(storetest.Contents{})
	again.MemStore, again.create, again.soldOut = s.MemStore, s.creator(), s.soldOut
	return again
}

func ids(resources []resource) []string {
	var ids []string
	for _, r := range resources {
		ids = append(ids, r.ID())
	}
	return ids
}

// lists replaces both lists with what wrong makes of them.
func (s *store) lists(wrong func(right lister, all *storefront.Collection, inclusive bool) lister) {
	s.listUsers = wrong(s.MemStore.ListUsers, &s.Users, false)
	s.listWidgets = wrong(s.MemStore.ListWidgets, &s.Widgets, true)
}

// compareInMemory makes a list that is sorted and begins by comparison functions
// of the store's own.
func (s *store) compareInMemory(order, position func(a, b string) int) {
	s.lists(func(right lister, all *storefront.Collection, inclusive bool) lister {
		return func(ctx ctxt, pos string, limit int) ([]resource, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			page := slices.Collect(all.All())
			page = slices.DeleteFunc(page, func(r resource) bool {
				c := position(r.ID(), pos)
				return pos != "" && (c < 0 || c == 0 && !inclusive)
			})
			slices.SortStableFunc(page, func(a, b resource) int { return order(a.ID(), b.ID()) })
			return page[:min(limit, len(page))], nil
		}
	})
}

// around replaces CreateOrder with what calls the right one.
func (s *store) around(create func(right creator, ctx ctxt, k key, o order) (order, error)) {
	right := s.creator()
	s.create = func(ctx ctxt, k key, o order) (order, error) { return create(right, ctx, k, o) }
}

// replays changes what replays return.
func (s *store) replays(change func(stored *order)) {
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		stored, err := right(ctx, k, o)
		if err == nil && stored.ID != o.ID {
			change(&stored)
		}
		return stored, err
	})
}

// keys changes the keys.
func (s *store) keys(change func(k *key)) {
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		change(&k)
		return right(ctx, k, o)
	})
}

func ignoringCase(a, b string) int { return cmp.Compare(strings.ToLower(a), strings.ToLower(b)) }
func inUTF16(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// Stores with calls that do not return.
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
	}, []string{crash, reused, ordered}, "CreateOrder has not returned 1s after it was called. Does it wait for a lock"},
	{"GetProduct waits though ctx is done", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			if ctx.Err() != nil {
				select {}
			}
			return s.MemStore.GetProduct(ctx, id)
		}
	}, []string{done}, "GetProduct has not returned 1s after it was called, though its context is done"},
}

func byLength(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
func trimmed(a, b string) int {
	return cmp.Compare(strings.TrimRight(a, " "), strings.TrimRight(b, " "))
}

var withoutPunctuation = strings.NewReplacer(" ", "", "-", "", "_", "", ".", "", "'", "", "\u00ad", "", "\u200b", "")

func ignoringPunctuation(a, b string) int {
	return cmp.Compare(withoutPunctuation.Replace(a), withoutPunctuation.Replace(b))
}
func natural(a, b string) int {
	if len(a) > 0 && len(b) > 0 && strings.Trim(a+b, "0123456789") == "" && len(a) != len(b) {
		return cmp.Compare(len(a), len(b))
	}
	return cmp.Compare(a, b)
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

// A wrongStore breaks a promise. The subtests that fail are exactly those given,
// and the first failure says the given text.
type wrongStore struct {
	name   string
	change func(*store)
	fails  []string
	says   string
}

// groups returns the names of the groups whose subtests run on the store: those of
// the methods whose functions it changes, that of all methods, and those of which a
// subtest is to fail. The others see the store of newStore, which is right.
func (w wrongStore) groups() []string {
	s := newStore(storetest.Contents{})
	w.change(s)
	groups := []string{"Store"}
	if s.create != nil || s.reopen != nil || s.Accept == nil {
		groups = append(groups, "CreateOrder")
	}
	if s.listUsers != nil || s.listWidgets != nil || s.get != nil || s.put != nil || s.delete != nil {
		groups = append(groups, "ListUsers", "GetProduct", "ListWidgets")
	}
	for _, f := range w.fails {
		group, _, _ := strings.Cut(f, "/")
		groups = append(groups, group)
	}
	return groups
}

var wrongStores = []wrongStore{
	// All methods.
	{"a database that allows one read at a time", func(s *store) {
		var mu sync.Mutex
		s.get = func(ctx ctxt, id string) (resource, error) {
			if ctx.Err() != nil {
				return resource{}, ctx.Err()
			}
			if !mu.TryLock() {
				return resource{}, errors.New("database is locked")
			}
			defer mu.Unlock()
			time.Sleep(time.Microsecond)
			return s.MemStore.GetProduct(ctx, id)
		}
	}, []string{concurrently}, "database is locked"},
	{"scratch space that calls share", func(s *store) {
		var mu sync.Mutex
		var position string
		s.listUsers = func(ctx ctxt, after string, limit int) ([]resource, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			mu.Lock()
			position = after
			mu.Unlock()
			time.Sleep(time.Nanosecond)
			mu.Lock()
			defer mu.Unlock()
			return s.MemStore.ListUsers(ctx, position, limit)
		}
	}, []string{concurrently}, "state that calls share"},
	{"ListUsers ignores ctx", func(s *store) {
		s.listUsers = func(ctx ctxt, after string, limit int) ([]resource, error) {
			return s.MemStore.ListUsers(context.WithoutCancel(ctx), after, limit)
		}
	}, []string{done}, "returned no error"},
	{"CreateOrder ignores ctx", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			return right(context.WithoutCancel(ctx), k, o)
		})
	}, []string{done}, "returned no error"},
	{"GetProduct ignores ctx", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			return s.MemStore.GetProduct(context.WithoutCancel(ctx), id)
		}
	}, []string{done}, "returned no error"},
	{"CreateOrder looks at ctx only where it waits for its turn", func(s *store) {
		turn := make(chan struct{}, 1)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			select { // at random, if both can be done
			case turn <- struct{}{}:
				defer func() { <-turn }()
				return right(context.WithoutCancel(ctx), k, o)
			case <-ctx.Done():
				return order{}, ctx.Err()
			}
		})
	}, []string{done}, "CreateOrder(ctx, key, order) with a context that was cancelled returned no error"},
	{"GetProduct looks at ctx only where it waits for its turn", func(s *store) {
		turns := make(chan struct{}, 16)
		s.get = func(ctx ctxt, id string) (resource, error) {
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
				return s.MemStore.GetProduct(context.WithoutCancel(ctx), id)
			case <-ctx.Done():
				return resource{}, ctx.Err()
			}
		}
	}, []string{done}, "with a context that was cancelled returned no error"},
	{"a replay ignores ctx", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if s.isKnown(k) {
				ctx = context.WithoutCancel(ctx)
			}
			return right(ctx, k, o)
		})
	}, []string{done}, "CreateOrder(ctx, the key of an order, order) with a context that was cancelled returned no error"},
	{"an error of the driver when ctx is done", func(s *store) {
		s.listWidgets = func(ctx ctxt, start string, limit int) ([]resource, error) {
			if ctx.Err() != nil {
				return nil, errors.New("canceling statement due to user request")
			}
			return s.MemStore.ListWidgets(ctx, start, limit)
		}
	}, []string{done}, `does not match "context canceled"`},
	{"Canceled for a deadline", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			if ctx.Err() != nil {
				return resource{}, context.Canceled
			}
			return s.MemStore.GetProduct(ctx, id)
		}
	}, []string{done}, `does not match "context deadline exceeded"`},
	{"more attempts though ctx is done", func(s *store) {
		s.get = func(ctx ctxt, id string) (r resource, err error) {
			for range 3 {
				if r, err = s.MemStore.GetProduct(ctx, id); err == nil || errors.Is(err, storefront.ErrNotFound) {
					return r, err
				}
				time.Sleep(time.Second)
			}
			return r, err
		}
	}, []string{done}, "took 3s to return"},
	{"a pause that does not end with ctx", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			if ctx.Err() != nil {
				return resource{}, ctx.Err()
			}
			time.Sleep(time.Second)
			return s.MemStore.GetProduct(context.WithoutCancel(ctx), id)
		}
	}, []string{done}, "done after 1ms took 1s to return"},
	{"rows.Err is not looked at", func(s *store) {
		s.listUsers = func(ctx ctxt, after string, limit int) ([]resource, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			page, _ := s.MemStore.ListUsers(context.WithoutCancel(ctx), after, limit)
			for i := range page {
				if ctx.Err() != nil {
					return page[:i], nil
				}
			}
			return page, nil
		}
	}, []string{done}, "sql.Rows.Err"},
	{"the context of the first call is kept", func(s *store) {
		var mu sync.Mutex
		var first ctxt
		s.listUsers = func(ctx ctxt, after string, limit int) ([]resource, error) {
			mu.Lock()
			defer mu.Unlock()
			if first != nil && first.Err() != nil {
				return nil, first.Err()
			}
			page, err := s.MemStore.ListUsers(ctx, after, limit)
			if err == nil && first == nil {
				first = ctx
			}
			return page, err
		}
	}, []string{notLater}, "which was given another context"},
	{"a value of an earlier context is read", func(s *store) {
		var mu sync.Mutex
		var last ctxt
		s.get = func(ctx ctxt, id string) (resource, error) {
			mu.Lock()
			defer mu.Unlock()
			if last != nil {
				last.Value("trace")
			}
			last = ctx
			return s.MemStore.GetProduct(ctx, id)
		}
	}, []string{notLater}, "used 1 times by other calls"},
	{"pages are cached and not copied", func(s *store) {
		var mu sync.Mutex
		cached := make(map[string][]resource)
		s.listUsers = func(ctx ctxt, after string, limit int) ([]resource, error) {
			mu.Lock()
			defer mu.Unlock()
			name := fmt.Sprint(after, limit)
			if page, ok := cached[name]; ok && ctx.Err() == nil {
				return page, nil
			}
			page, err := s.MemStore.ListUsers(ctx, after, limit)
			if err == nil {
				cached[name] = page
			}
			return page, err
		}
		changed := func(change func(storetest.Contents)) func(storetest.Contents) {
			return func(c storetest.Contents) {
				mu.Lock()
				defer mu.Unlock()
				change(c)
				clear(cached)
			}
		}
		s.put, s.delete = changed(s.putAll), changed(s.deleteAll)
	}, []string{slice}, "slices.Clone"},
	{"resources are decoded into maps", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			r, err := s.MemStore.GetProduct(ctx, id)
			if err != nil {
				return r, err
			}
			var fields map[string]any
			if err := json.Unmarshal([]byte(r.String()), &fields); err != nil {
				return r, err
			}
			return storefront.NewResource(id, fields)
		}
	}, []string{asPut}, "decoded and encoded again"},
	{"long JSON is cut", func(s *store) {
		s.lists(func(right lister, _ *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				page, err := right(ctx, position, limit)
				for i, r := range page {
					if len(r.String()) > 64<<10 {
						page[i] = storefront.MustResource(r.ID(), nil)
					}
				}
				return page, err
			}
		})
	}, []string{asPut}, "decoded and encoded again"},
	{"products are looked for among users, too", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			r, err := s.MemStore.GetProduct(ctx, id)
			if u, ok := s.Users.Get(id); ok && errors.Is(err, storefront.ErrNotFound) {
				return u, nil
			}
			return r, err
		}
	}, []string{apart}, "returned what is no product"},
	{"one list for users and widgets", func(s *store) {
		s.listWidgets = func(ctx ctxt, start string, limit int) ([]resource, error) {
			widgets, err := s.MemStore.ListWidgets(ctx, start, limit)
			for u := range s.Users.All() {
				if u.ID() >= start && !slices.Contains(ids(widgets), u.ID()) {
					widgets = append(widgets, u)
				}
			}
			slices.SortFunc(widgets, func(a, b resource) int { return cmp.Compare(a.ID(), b.ID()) })
			return widgets[:min(limit, len(widgets))], err
		}
	}, []string{apart}, "one table or map for all"},
	{"the key in the error of a reused key", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if err != nil {
				err = fmt.Errorf("creating with key %q: %w", k.Value, err)
			}
			return stored, err
		})
	}, []string{errorText}, "wrapped into the error"},
	{"the item in the error of a done context", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if ctx.Err() != nil {
				err = fmt.Errorf("creating %v: %w", o, ctx.Err())
			}
			return stored, err
		})
	}, []string{errorText}, `contains "a very private item"`},

	// Lists.
	{"order without case", func(s *store) { s.compareInMemory(ignoringCase, strings.Compare) }, []string{usersInOrder, widgetsInOrder}, `COLLATE "C"`},
	{"order of UTF-16", func(s *store) { s.compareInMemory(inUTF16, strings.Compare) }, []string{usersInOrder, widgetsInOrder}, `returned "\U0010fffd" before "\ue000"`},
	{"order of numbers", func(s *store) { s.compareInMemory(natural, strings.Compare) }, []string{usersInOrder, widgetsInOrder}, `returned "9" before "10"`},
	{"order without punctuation", func(s *store) { s.compareInMemory(ignoringPunctuation, strings.Compare) }, []string{usersInOrder, widgetsInOrder}, "goes by language"},
	{"order of trimmed IDs", func(s *store) { s.compareInMemory(descendingSpaces, strings.Compare) }, []string{usersInOrder, widgetsInOrder}, `returned "a  " before "a "`},
	{"positions without case", func(s *store) { s.compareInMemory(strings.Compare, ignoringCase) }, []string{usersBegin, widgetsBegin}, "compares in another way than by bytes"},
	{"positions of UTF-16", func(s *store) { s.compareInMemory(strings.Compare, inUTF16) }, []string{usersBegin, widgetsBegin}, "compares in another way than by bytes"},
	{"positions of trimmed IDs", func(s *store) { s.compareInMemory(strings.Compare, trimmed) }, []string{usersBegin, widgetsBegin}, "compares in another way than by bytes"},
	{"positions are cut", func(s *store) {
		s.compareInMemory(strings.Compare, func(id, position string) int {
			return cmp.Compare(id[:min(254, len(id))], position[:min(254, len(position))])
		})
	}, []string{usersBegin, widgetsBegin}, "xxx"},
	{"the beginning is nowhere", func(s *store) {
		s.lists(func(right lister, _ *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				if position == "" {
					return nil, ctx.Err()
				}
				return right(ctx, position, limit)
			}
		})
	}, []string{usersFirst, widgetsFirst}, "taken for an ID, or for NULL"},
	{"a first page of at most 100", func(s *store) {
		s.lists(func(right lister, _ *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				if position == "" {
					limit = min(limit, 100)
				}
				return right(ctx, position, limit)
			}
		})
	}, []string{usersFirst, widgetsFirst}, "100 items, want 101"},
	{"one more than the limit", func(s *store) {
		s.lists(func(right lister, _ *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				return right(ctx, position, limit+1)
			}
		})
	}, []string{usersAtMost, widgetsAtMost}, "one more is read"},
	{"at most 500", func(s *store) {
		s.lists(func(right lister, _ *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				return right(ctx, position, min(limit, 500))
			}
		})
	}, []string{usersFewer, widgetsFewer}, "a limit of the store's own"},
	{"deleted items count", func(s *store) {
		var mu sync.Mutex
		goneUsers, goneWidgets := make(map[string]bool), make(map[string]bool)
		mark := func(c storetest.Contents, deleted bool) {
			mu.Lock()
			defer mu.Unlock()
			for _, u := range c.Users {
				goneUsers[u.ID()] = deleted
			}
			for _, w := range c.Widgets {
				goneWidgets[w.ID()] = deleted
			}
		}
		s.put = func(c storetest.Contents) {
			s.putAll(c)
			mark(c, false)
		}
		s.delete = func(c storetest.Contents) {
			s.deleteAll(storetest.Contents{Products: c.Products})
			mark(c, true)
		}
		s.lists(func(right lister, _ *storefront.Collection, inclusive bool) lister {
			gone := goneUsers
			if inclusive {
				gone = goneWidgets
			}
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				mu.Lock()
				defer mu.Unlock()
				page, err := right(ctx, position, limit)
				return slices.DeleteFunc(page, func(r resource) bool { return gone[r.ID()] }), err
			}
		})
	}, []string{usersFewer, widgetsFewer, usersWhile, widgetsWhile}, "after LIMIT was applied"},
	{"a page of IDs, then each of its items", func(s *store) {
		s.lists(func(right lister, all *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				page, err := right(ctx, position, limit)
				if err != nil {
					return nil, err
				}
				time.Sleep(10 * time.Microsecond)
				return slices.DeleteFunc(page, func(r resource) bool {
					_, ok := all.Get(r.ID())
					return !ok
				}), nil
			}
		})
	}, []string{usersWhile, widgetsWhile}, "fewer than the limit, though more follow"},
	{"the position is looked up", func(s *store) {
		s.lists(func(right lister, all *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				if _, ok := all.Get(position); !ok && position != "" && len(slices.Collect(all.All())) > 2 {
					return nil, errors.New("no such position")
				}
				return right(ctx, position, limit)
			}
		})
	}, []string{usersGone, widgetsGone}, "looked up as an item"},
	{"counting, then OFFSET", func(s *store) {
		s.lists(func(_ lister, all *storefront.Collection, inclusive bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				offset := 0
				for r := range all.All() {
					if r.ID() < position || r.ID() == position && !inclusive {
						offset++
					}
				}
				time.Sleep(10 * time.Microsecond)
				page := slices.Collect(all.All())
				page = page[min(offset, len(page)):]
				return page[:min(limit, len(page))], nil
			}
		})
	}, []string{usersWhile, widgetsWhile}, "OFFSET"},
	{"an empty list is not found", func(s *store) {
		s.lists(func(right lister, _ *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				page, err := right(ctx, position, limit)
				if err == nil && len(page) == 0 {
					err = storefront.ErrNotFound
				}
				return page, err
			}
		})
	}, []string{usersEmpty, widgetsEmpty}, "ErrNotFound is for GetProduct alone"},

	{"> and >= mixed up", func(s *store) {
		s.lists(func(right lister, all *storefront.Collection, inclusive bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				page, err := right(ctx, position, limit+1)
				at, ok := all.Get(position)
				switch {
				case err != nil:
					return nil, err
				case ok && inclusive:
					page = slices.DeleteFunc(page, func(r resource) bool { return r.ID() == position })
				case ok:
					page = slices.Insert(page, 0, at)
				}
				return page[:min(limit, len(page))], nil
			}
		})
	}, []string{usersBegin, usersFewer, usersEmpty, widgetsBegin, widgetsFewer}, "a comparison with >= instead of >"},
	{"shorter IDs first", func(s *store) { s.compareInMemory(byLength, strings.Compare) },
		[]string{usersInOrder, usersFirst, usersGone, widgetsInOrder, widgetsFirst, widgetsGone}, `returned "~" before`},

	// Orders.
	{"the order, then the key", func(s *store) {
		var mu sync.Mutex
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			if s.isKnown(k) {
				return right(context.WithoutCancel(ctx), k, o)
			}
			right(context.WithoutCancel(ctx), key{Scope: "without a key", Value: o.ID}, o)
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return right(context.WithoutCancel(ctx), k, o)
		})
	}, []string{atomic}, "two statements without a transaction"},
	{"a crash between the order and the key", func(s *store) {
		crashed, turn := make(chan struct{}), make(chan struct{}, 1)
		right := s.creator()
		s.reopen = func() storefront.Store {
			close(crashed)
			again := s.again()
			again.create = right
			return again
		}
		s.create = func(ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			ctx = context.WithoutCancel(ctx)
			turn <- struct{}{} // not a mutex, for which the clock of a bubble does not move
			defer func() { <-turn }()
			if s.isKnown(k) {
				return right(ctx, k, o)
			}
			right(ctx, key{Scope: "without a key", Value: o.ID}, o)
			time.Sleep(time.Microsecond)
			select {
			case <-crashed:
				return order{}, errDriver
			default:
				return right(ctx, k, o)
			}
		}
	}, []string{atomic}, "was made while the store crashed"},
	{"SELECT, then INSERT", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if !s.isKnown(k) && ctx.Err() == nil {
				time.Sleep(time.Microsecond)
				if s.isKnown(k) { // by now
					return right(ctx, key{Value: o.ID}, o)
				}
			}
			return right(ctx, k, o)
		})
	}, []string{exactlyOne, reused}, "ON CONFLICT DO NOTHING"},
	{"a loser creates an order and returns the other", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			fresh := !s.isKnown(k)
			if fresh && ctx.Err() == nil {
				time.Sleep(time.Microsecond)
			}
			stored, err := right(ctx, k, o)
			if fresh && err == nil && stored.ID != o.ID {
				right(ctx, key{Value: o.ID}, o)
			}
			return stored, err
		})
	}, []string{exactlyOne}, "created 16 orders, want 1"},
	{"CreateOrder is not written yet", func(s *store) {
		s.create = func(ctx ctxt, _ key, _ order) (order, error) {
			return order{}, cmp.Or(ctx.Err(), errors.New("not written yet"))
		}
	}, append([]string{concurrently, done, notLater}, everyOrder...), "failed: not written yet"},
	{"the contents are not put in", func(s *store) {
		s.MemStore.Users, s.MemStore.Widgets = storefront.Collection{}, storefront.Collection{}
	}, []string{
		concurrently, done, notLater, slice, apart,
		usersInOrder, usersBegin, usersFirst, usersFewer, usersGone, usersWhile,
		widgetsInOrder, widgetsBegin, widgetsFirst, widgetsFewer, widgetsGone, widgetsWhile,
	}, "newStore is given are not put into the store"},
	{"Reopen returns nil", func(s *store) {
		s.reopen = func() storefront.Store { return nil }
	}, []string{atomic, crash, ordered, noTrace}, "Reopen returned nil."},
	{"replays return the order that they are given", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if _, err := right(ctx, k, o); err != nil {
				return order{}, err
			}
			return o, nil
		})
	}, []string{exactlyOne, sameKey, lifetime, settles, crash, notLater, reused, decided, ordered}, "returned the order that it was given"},
	{"a replay is always in progress", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if s.isKnown(k) && ctx.Err() == nil {
				return order{}, storefront.ErrInProgress
			}
			return right(ctx, k, o)
		})
	}, []string{atomic, exactlyOne, crash, replay, sameKey, reused, inProgress, decided, ordered, lifetime, settles, notLater}, "another call with its key failed: storefront: a call with this idempotency key is in progress"},
	{"Reopen returns a store without Orders", func(s *store) {
		s.reopen = func() storefront.Store {
			return struct {
				storefront.Store
				storetest.Editor
				storetest.Refuser
				storetest.Reopener
			}{s, s, s, s}
		}
	}, []string{atomic, crash, ordered, noTrace}, "has not got the methods of storetest.OrderLister"},
	{"keys in memory alone", func(s *store) {
		s.reopen = func() storefront.Store {
			again := newStore(storetest.Contents{})
			for _, o := range s.Orders() {
				again.MemStore.CreateOrder(context.Background(), key{Scope: "lost", Value: o.ID}, o)
			}
			return again
		}
	}, []string{crash}, "keys that are kept in memory alone"},
	{"the last orders are not on disk yet", func(s *store) {
		s.reopen = func() storefront.Store { return newStore(storetest.Contents{}) }
	}, []string{crash}, "acknowledged before it is on disk"},
	{"another order after a crash", func(s *store) {
		s.reopen = func() storefront.Store {
			again := s.again()
			again.replays(func(o *order) { o.Qty++ })
			return again
		}
	}, []string{crash}, "Qty 3, want 2"},
	{"fingerprints in memory alone", func(s *store) {
		s.reopen = func() storefront.Store {
			again := s.again()
			again.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
				stored, err := right(ctx, k, o)
				if errors.Is(err, storefront.ErrKeyReused) {
					return order{ID: "the stored one"}, nil
				}
				return stored, err
			})
			return again
		}
	}, []string{crash}, "fingerprints that are kept in memory alone"},
	{"an order is returned without milliseconds", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			fresh := !s.isKnown(k)
			stored, err := right(ctx, k, o)
			if fresh {
				stored.CreatedAt = stored.CreatedAt.Truncate(time.Second)
			}
			return stored, err
		})
	}, []string{asGiven}, "CreatedAt"},
	{"times without milliseconds", func(s *store) {
		s.replays(func(o *order) { o.CreatedAt = o.CreatedAt.Truncate(time.Second) })
	}, []string{replay}, "CreatedAt"},
	{"times without zone", func(s *store) {
		zone := time.FixedZone("", 2*60*60)
		s.replays(func(o *order) {
			local := o.CreatedAt.In(zone)
			o.CreatedAt = time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
		})
	}, []string{replay}, "a time without zone"},
	{"times in 32 bits", func(s *store) {
		s.replays(func(o *order) {
			if o.CreatedAt.Unix() > 1<<31-1 {
				o.CreatedAt = o.CreatedAt.Add(-1 << 32 * time.Second)
			}
		})
	}, []string{replay}, "CreatedAt"},
	{"quantities in 32 bits", func(s *store) { s.replays(func(o *order) { o.Qty = int64(int32(o.Qty)) }) }, []string{replay}, "an integer of 32 bits"},
	{"quantities as float32", func(s *store) { s.replays(func(o *order) { o.Qty = int64(float32(o.Qty)) }) }, []string{replay}, "Qty 16777216, want 16777217"},
	{"items trimmed", func(s *store) { s.replays(func(o *order) { o.Item = strings.TrimSpace(o.Item) }) }, []string{replay}, `Item "teapot", want " teapot "`},
	{"items cut at 255 bytes", func(s *store) { s.replays(func(o *order) { o.Item = o.Item[:min(255, len(o.Item))] }) }, []string{replay}, "trimmed, cut or normalized"},
	{"items composed", func(s *store) {
		s.replays(func(o *order) { o.Item = strings.ReplaceAll(o.Item, "e\u0301", "\u00e9") })
	}, []string{replay}, "normalized"},
	{"the retry's own time", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if stored.ID != o.ID {
				stored.CreatedAt = o.CreatedAt
			}
			return stored, err
		})
	}, []string{replay}, "CreatedAt"},
	{"the time of a call that lost a race", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			fresh := !s.isKnown(k) && ctx.Err() == nil
			if fresh {
				time.Sleep(time.Microsecond)
			}
			stored, err := right(ctx, k, o)
			if fresh && err == nil {
				stored.CreatedAt = o.CreatedAt
			}
			return stored, err
		})
	}, []string{replay}, "loses a race"},
	{"a replay with the order's own ID taken for new", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if err == nil && stored.ID == o.ID {
				return o, nil
			}
			return stored, err
		})
	}, []string{replay}, "CreatedAt"},
	{"a replay with the order's own ID taken for new where calls meet", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			fresh := !s.isKnown(k) && ctx.Err() == nil
			if fresh {
				time.Sleep(time.Microsecond)
			}
			stored, err := right(ctx, k, o)
			if fresh && err == nil && stored.ID == o.ID {
				return o, nil
			}
			return stored, err
		})
	}, []string{replay}, "taken for that of this very call"},
	{"a replay with the order's own ID is recorded again", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			known := s.isKnown(k)
			stored, err := right(ctx, k, o)
			if known && err == nil && stored.ID == o.ID {
				right(ctx, key{Value: o.ID}, o)
			}
			return stored, err
		})
	}, []string{exactlyOne}, "there are 2 orders with the ID, want 1"},
	{"the fingerprint of a call with the order's own ID is not compared", func(s *store) {
		var ids sync.Map
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if err == nil {
				ids.Store(nameOf(k), stored)
			}
			if own, ok := ids.Load(nameOf(k)); ok && errors.Is(err, storefront.ErrKeyReused) && own.(order).ID == o.ID {
				return own.(order), nil
			}
			return stored, err
		})
	}, []string{reused}, "taken for that of this very call"},
	{"a replay with the order's own ID is decided anew", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if err == nil && stored.ID == o.ID {
				if refusal := s.decide(o); refusal != nil && s.isKnown(k) {
					return order{}, refusal
				}
			}
			return stored, err
		})
	}, []string{ordered}, "taken for that of this very call"},
	{"keys without scope", func(s *store) { s.keys(func(k *key) { k.Scope = "" }) }, []string{sameKey}, "Scope is left out"},
	{"keys joined", func(s *store) { s.keys(func(k *key) { k.Scope, k.Value = "", k.Scope+k.Value }) }, []string{sameKey}, "was taken for"},
	{"keys joined by a comma", func(s *store) { s.keys(func(k *key) { k.Scope, k.Value = "", k.Scope+","+k.Value }) }, []string{sameKey}, `{Scope: "a", Value: "b,c"} was taken for {Scope: "a,b", Value: "c"}`},
	{"keys without case", func(s *store) { s.keys(func(k *key) { k.Value = strings.ToLower(k.Value) }) }, []string{sameKey}, `Value: "K"`},
	{"keys trimmed", func(s *store) { s.keys(func(k *key) { k.Value = strings.TrimRight(k.Value, " ") }) }, []string{sameKey}, `Value: "k "`},
	{"keys cut", func(s *store) { s.keys(func(k *key) { k.Scope = k.Scope[:min(255, len(k.Scope))] }) }, []string{sameKey}, "10002 bytes"},
	{"scopes as valid UTF-8", func(s *store) { s.keys(func(k *key) { k.Scope = strings.ToValidUTF8(k.Scope, "\ufffd") }) }, []string{sameKey}, `\xfe`},
	{"fingerprints without scope", func(s *store) {
		var mu sync.Mutex
		fingerprints := make(map[string][32]byte)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			if f, ok := fingerprints[k.Value]; ok && f != k.Fingerprint && ctx.Err() == nil {
				return order{}, storefront.ErrKeyReused
			}
			stored, err := right(ctx, k, o)
			if err == nil {
				fingerprints[k.Value] = k.Fingerprint
			}
			return stored, err
		})
	}, []string{sameKey}, "found by Value alone"},
	{"orders compared, not fingerprints", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			k.Fingerprint = [32]byte{}
			stored, err := right(ctx, k, o)
			if err == nil && (stored.Item != o.Item || stored.Qty != o.Qty) {
				return order{}, storefront.ErrKeyReused
			}
			return stored, err
		})
	}, []string{reused}, "returned that order and no error"},
	{"fingerprints up to a zero", func(s *store) {
		s.keys(func(k *key) {
			if i := slices.Index(k.Fingerprint[:], 0); i >= 0 {
				clear(k.Fingerprint[i:])
			}
		})
	}, []string{reused}, "differs in the last byte"},
	{"fingerprints are not compared in a race", func(s *store) {
		var stored sync.Map
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			fresh := !s.isKnown(k) && ctx.Err() == nil
			if fresh {
				time.Sleep(time.Microsecond)
			}
			got, err := right(ctx, k, o)
			if err == nil {
				stored.Store(nameOf(k), got)
			}
			if first, ok := stored.Load(nameOf(k)); ok && fresh && errors.Is(err, storefront.ErrKeyReused) {
				return first.(order), nil
			}
			return got, err
		})
	}, []string{reused}, "joined before their fingerprints are compared"},
	{"fingerprints ignored", func(s *store) { s.keys(func(k *key) { k.Fingerprint = [32]byte{} }) }, []string{reused}, "returned that order and no error"},
	{"half of a fingerprint", func(s *store) { s.keys(func(k *key) { clear(k.Fingerprint[16:]) }) }, []string{reused}, "differs in the last byte"},
	{"fingerprints in the key", func(s *store) {
		s.keys(func(k *key) { k.Value += fmt.Sprintf("%x", k.Fingerprint); k.Fingerprint = [32]byte{} })
	}, []string{reused, ordered}, "part of the key in the unique constraint"},
	{"an order of a reused key", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if errors.Is(err, storefront.ErrKeyReused) {
				right(ctx, key{Value: o.ID}, o)
			}
			return stored, err
		})
	}, []string{reused}, "created an order"},
	{"a reused key replaces the order", func(s *store) {
		var mu sync.Mutex
		replaced := make(map[string]order)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			stored, err := right(ctx, k, o)
			if errors.Is(err, storefront.ErrKeyReused) {
				replaced[nameOf(k)] = o
			} else if r, ok := replaced[nameOf(k)]; ok && err == nil {
				stored = r
			}
			return stored, err
		})
	}, []string{reused}, "ON CONFLICT DO UPDATE"},
	{"another error for a reused key", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if errors.Is(err, storefront.ErrKeyReused) {
				err = errors.New("conflict")
			}
			return stored, err
		})
	}, []string{reused}, "does not match ErrKeyReused: conflict"},
	{"the unique constraint's error", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			fresh := !s.isKnown(k) && ctx.Err() == nil
			if fresh {
				time.Sleep(time.Microsecond)
			}
			stored, err := right(ctx, k, o)
			if fresh && err == nil && stored.ID != o.ID {
				return order{}, errors.New("duplicate key value violates unique constraint")
			}
			return stored, err
		})
	}, []string{inProgress}, "read the order of the first"},
	{"calls that meet abort each other", func(s *store) {
		var mu sync.Mutex
		calls := make(map[*bool]bool)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			aborted := new(bool)
			mu.Lock()
			calls[aborted] = true
			for met := range calls {
				*met = len(calls) > 1 || *met
			}
			mu.Unlock()
			time.Sleep(time.Microsecond)
			mu.Lock()
			delete(calls, aborted)
			failed := *aborted
			mu.Unlock()
			if failed {
				return order{}, errors.New("could not serialize access")
			}
			return right(ctx, k, o)
		})
	}, []string{inProgress, concurrently, decided}, "could not serialize access"},
	{"calls joined under the first one's context", func(s *store) {
		type flight struct {
			over chan struct{}
			o    order
			err  error
		}
		var mu sync.Mutex
		flights := make(map[string]*flight)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			name := fmt.Sprint(k)
			mu.Lock()
			if ctx.Err() != nil {
				mu.Unlock()
				return order{}, ctx.Err()
			}
			f, joined := flights[name]
			if !joined {
				f = &flight{over: make(chan struct{})}
				flights[name] = f
			}
			mu.Unlock()
			if joined {
				<-f.over
				return f.o, f.err
			}
			time.Sleep(time.Microsecond)
			f.o, f.err = right(ctx, k, o)
			mu.Lock()
			delete(flights, name)
			mu.Unlock()
			close(f.over)
			return f.o, f.err
		})
	}, []string{inProgress}, "calls with one key are joined"},
	{"refused before the key is looked for", func(s *store) {
		s.decideFirst()
	}, []string{ordered}, "it is decided before the key is looked for"},
	{"a refusal is remembered with the key", func(s *store) {
		s.rememberRefusals(func(k key) string { return fmt.Sprint(k) })
	}, []string{decided}, "recorded as the outcome of the key"},
	{"a refusal is remembered for any order", func(s *store) {
		s.rememberRefusals(nameOf)
	}, []string{decided, noTrace}, "recorded as the outcome of the key"},
	{"a refused call keeps its key", func(s *store) {
		var mu sync.Mutex
		taken := make(map[string]key)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			if first, ok := taken[nameOf(k)]; ok && first.Fingerprint != k.Fingerprint {
				return order{}, storefront.ErrKeyReused
			}
			stored, err := right(ctx, k, o)
			if isRefusal(err) {
				taken[nameOf(k)] = k
			}
			return stored, err
		})
	}, []string{noTrace}, "A call whose order was refused failed. Then a call with the same key and another order failed"},
	{"recorded, then decided", func(s *store) {
		s.Accept = nil
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			known := s.isKnown(k)
			stored, err := right(ctx, k, o)
			if err == nil && !known {
				err = s.decide(o)
			}
			return stored, err
		})
	}, []string{decided, noTrace}, "A call was refused. Another with its key returned the order"},
	{"a refused order is not rolled back", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if isRefusal(err) {
				o.Item = "refused"
				right(ctx, key{Value: o.ID}, o)
			}
			return stored, err
		})
	}, []string{exactlyOne, noTrace}, "sold out now and then, and one after them created 17 orders"},
	{"a refused order is recovered after a crash", func(s *store) {
		var mu sync.Mutex
		var refused []order
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if isRefusal(err) {
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, o)
			}
			return stored, err
		})
		s.reopen = func() storefront.Store {
			for _, o := range refused {
				o.Item = "refused"
				s.MemStore.CreateOrder(context.Background(), key{Value: o.ID}, o)
			}
			return s
		}
	}, []string{noTrace}, "After a crash there are 3 orders that were refused"},
	{"a refused call is taken up again", func(s *store) {
		var mu sync.Mutex
		refused := make(map[string]order)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			if first, ok := refused[nameOf(k)]; ok && s.decide(o) == nil {
				o.ID = first.ID
			}
			stored, err := right(ctx, k, o)
			if isRefusal(err) {
				refused[nameOf(k)] = o
			}
			return stored, err
		})
	}, []string{decided, noTrace}, "returned the order"},
	{"a key that was refused is not recorded later on", func(s *store) {
		var mu sync.Mutex
		var calls atomics.Int64
		refused := make(map[string]bool)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			time.Sleep(time.Duration(calls.Add(1)%8) * time.Microsecond)
			mu.Lock()
			defer mu.Unlock()
			name := nameOf(k)
			if refused[name] {
				k.Value = o.ID
			}
			stored, err := right(ctx, k, o)
			refused[name] = refused[name] || isRefusal(err)
			return stored, err
		})
	}, []string{exactlyOne, decided}, "sold out now and then, and one after them, "},
	{"a refusal as text", func(s *store) {
		s.refusalIs(func(r storefront.Refusal) error { return errors.New(r.Error()) })
	}, []string{decided}, "does not match *storefront.Refusal: storefront: order refused (sold-out)"},
	{"a nil Refusal", func(s *store) {
		s.refusalIs(func(storefront.Refusal) error { return (*storefront.Refusal)(nil) })
	}, []string{decided}, "does not match *storefront.Refusal: <nil>"},
	{"a Refusal without its pointer", func(s *store) {
		s.refusalIs(func(r storefront.Refusal) error {
			return &storefront.Refusal{Reason: r.Reason, Detail: r.Detail}
		})
	}, []string{decided}, `refused with Pointer "", want "#/item"`},
	{"all are refused that are committed with one", func(s *store) {
		s.commitTogether(func(b *batch, err error) error { return cmp.Or(b.refusal, err) }, nil)
	}, []string{decided}, "all of them are refused if one is"},
	{"all are rolled back that are committed with one that is refused", func(s *store) {
		s.commitTogether(nil, func(b *batch) bool { return b.refusal != nil })
	}, []string{decided, ordered}, "all of them are rolled back if one is refused"},
	{"all are decided as one of those that are committed together", func(s *store) {
		s.commitTogether(func(b *batch, _ error) error { return b.first }, nil)
	}, []string{decided}, "committed together"},
	{"another fingerprint is refused", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if errors.Is(err, storefront.ErrKeyReused) {
				err = cmp.Or(s.decide(o), err)
			}
			return stored, err
		})
	}, []string{ordered}, "looked for together with its fingerprint"},
	{"an order changes with its item", func(s *store) {
		s.replays(func(o *order) {
			if s.decide(*o) != nil {
				o.Qty = 0
			}
		})
	}, []string{ordered}, "returned one with Qty 0, want 2"},
	{"the key is not looked for where calls meet", func(s *store) {
		var mu sync.Mutex
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			if mu.TryLock() {
				defer mu.Unlock()
				time.Sleep(time.Microsecond)
			} else if err := s.decide(o); err != nil {
				return order{}, err
			}
			return right(ctx, k, o)
		})
	}, []string{ordered}, "one of 16 concurrent calls with the order's key was refused"},
	{"decided, then recorded", func(s *store) {
		s.decideFor(time.Microsecond)
	}, []string{ordered}, "to decide and to record the order are not one step"},
	{"after a crash, refused before the key is looked for", func(s *store) {
		s.reopen = func() storefront.Store {
			again := s.again()
			again.decideFirst()
			return again
		}
	}, []string{ordered}, "After a crash, a call with the order's key failed"},
	{"SellOut has no effect", func(s *store) {
		s.Accept = nil
	}, []string{decided}, `After SellOut(ctx, "teapot"), CreateOrder with a new key and an order for the item returned the order`},
	{"the last 100 keys", func(s *store) {
		var mu sync.Mutex
		var last []string
		forgotten := make(map[string]int)
		s.keys(func(k *key) {
			mu.Lock()
			defer mu.Unlock()
			name := nameOf(*k)
			k.Scope += fmt.Sprint(forgotten[name])
			if slices.Contains(last, name) {
				return
			}
			if last = append(last, name); len(last) > 100 {
				forgotten[last[0]]++
				last = last[1:]
			}
		})
	}, []string{lifetime}, "keeps the last keys only"},
	{"keys for a day of the store's own", func(s *store) {
		opened := time.Now()
		s.keys(func(k *key) { k.Scope += fmt.Sprint(time.Since(opened) / (24 * time.Hour)) })
	}, []string{lifetime}, "whole days"},
	{"keys for an hour", func(s *store) { s.expireKeys(time.Hour) }, []string{lifetime}, "keys expire too early"},
	{"keys for a day but two minutes", func(s *store) { s.expireKeys(24*time.Hour - 2*time.Minute) }, []string{lifetime}, "23h59m0s after"},
	{"keys for 12 hours, of which each call forgets 16", func(s *store) {
		s.sweepKeys(12*time.Hour, func(int) int { return 16 })
	}, []string{lifetime}, "23h59m0s after an order was created"},
	{"keys for 5 minutes, of which each call forgets 2", func(s *store) {
		s.sweepKeys(5*time.Minute, func(int) int { return 2 })
	}, []string{lifetime}, "1h0m0s after an order was created"},
	{"keys for 12 hours, forgotten by every hundredth call", func(s *store) {
		calls := 0
		s.sweepKeys(12*time.Hour, func(keys int) int {
			calls++
			return keys * (calls % 100 / 99)
		})
	}, []string{lifetime}, "23h59m0s after an order was created"},
	{"keys for 12 hours, of which each call looks at 8", func(s *store) {
		var mu sync.Mutex
		created := make(map[string]time.Time)
		forgotten := make(map[string]int)
		s.keys(func(k *key) {
			mu.Lock()
			defer mu.Unlock()
			looked := 0
			for name, at := range created { // in random order
				if time.Since(at) > 12*time.Hour {
					delete(created, name)
					forgotten[name]++
				}
				if looked++; looked == 8 {
					break
				}
			}
			name := nameOf(*k)
			k.Scope += fmt.Sprint(forgotten[name])
			if _, ok := created[name]; !ok {
				created[name] = time.Now()
			}
		})
	}, []string{lifetime}, "23h59m0s after"},
	{"keys for 12 hours, forgotten where there are 256", func(s *store) {
		s.sweepKeys(12*time.Hour, func(keys int) int { return keys * (keys / 256) })
	}, []string{lifetime}, "23h59m0s after an order was created"},
	{"keys for 13 hours from their last use", func(s *store) {
		var mu sync.Mutex
		used := make(map[string]time.Time)
		forgotten := make(map[string]int)
		s.keys(func(k *key) {
			mu.Lock()
			defer mu.Unlock()
			name := nameOf(*k)
			if at, ok := used[name]; ok && time.Since(at) > 13*time.Hour {
				forgotten[name]++
			}
			used[name] = time.Now()
			k.Scope += fmt.Sprint(forgotten[name])
		})
	}, []string{lifetime}, "23h59m0s after an order was created"},
	{"keys for a calendar day", func(s *store) {
		s.keys(func(k *key) { k.Scope += time.Now().UTC().Format(time.DateOnly) })
	}, []string{lifetime}, "whole days"},
	{"a failed call keeps its key", func(s *store) {
		var mu sync.Mutex
		taken := make(map[string]key)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			name := nameOf(k)
			if first, ok := taken[name]; ok && first.Fingerprint != k.Fingerprint {
				return order{}, storefront.ErrKeyReused
			}
			stored, err := right(ctx, k, o)
			if err == nil || ctx.Err() != nil {
				taken[name] = k
			}
			return stored, err
		})
	}, []string{noTrace}, "the key is recorded before the order"},
	{"a failure is remembered", func(s *store) {
		var mu sync.Mutex
		failures := make(map[string]error)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			name := nameOf(k)
			if err := failures[name]; err != nil {
				return order{}, err
			}
			stored, err := right(ctx, k, o)
			if ctx.Err() != nil {
				failures[name] = err
			}
			return stored, err
		})
	}, []string{noTrace, settles, inProgress}, "leaves something behind"},
	{"an order is created, then ctx looked at", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(context.WithoutCancel(ctx), k, o)
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return stored, err
		})
	}, []string{noTrace}, "looked at after the order was recorded"},
	{"an order is created, then ctx looked at, unless that was done by chance before", func(s *store) {
		turn := make(chan struct{}, 1)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			select { // at random, if both can be done
			case turn <- struct{}{}:
				defer func() { <-turn }()
			case <-ctx.Done():
				return order{}, ctx.Err()
			}
			stored, err := right(context.WithoutCancel(ctx), k, o)
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return stored, err
		})
	}, []string{noTrace}, "looked at after the order was recorded"},
	{"the driver's error in the midst", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			stored, err := right(context.WithoutCancel(ctx), k, o)
			if ctx.Err() != nil {
				return order{}, errDriver
			}
			return stored, err
		})
	}, []string{unknown}, "matches neither context canceled nor ErrUnavailable"},
	{"the key, then the order", func(s *store) {
		var mu sync.Mutex
		begun := make(map[string]string)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			if begun[nameOf(k)+fmt.Sprint(k.Fingerprint)] != "" && !s.isKnown(k) {
				return order{}, errors.New("the key has no order")
			}
			begun[nameOf(k)+fmt.Sprint(k.Fingerprint)] = o.ID
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return right(context.WithoutCancel(ctx), k, o)
		})
	}, []string{settles, inProgress, decided}, "leaves something behind"},
	{"the key of an interrupted call is not recorded again", func(s *store) {
		var mu sync.Mutex
		interrupted := make(map[string]bool)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				interrupted[nameOf(k)] = true
				return order{}, ctx.Err()
			}
			if interrupted[nameOf(k)] {
				k.Value = o.ID
			}
			return right(context.WithoutCancel(ctx), k, o)
		})
	}, []string{settles}, "The third returned another"},

	// Products.
	{"IDs cleaned as paths", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			if path.Clean("/"+id) != "/"+id {
				return resource{}, cmp.Or(ctx.Err(), storefront.ErrNotFound)
			}
			return s.MemStore.GetProduct(ctx, id)
		}
	}, []string{product}, "cleaned as a path"},
	{"products in a cache that no change ends", func(s *store) {
		var mu sync.Mutex
		cached := make(map[string]resource)
		s.get = func(ctx ctxt, id string) (resource, error) {
			mu.Lock()
			defer mu.Unlock()
			if r, ok := cached[id]; ok && ctx.Err() == nil {
				return r, nil
			}
			r, err := s.MemStore.GetProduct(ctx, id)
			if err == nil {
				cached[id] = r
			}
			return r, err
		}
	}, []string{product, notFound}, "is cached"},
	{"a product among many", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			if r, ok := s.Products.Get(id); ok && ctx.Err() == nil {
				few := slices.Collect(s.Products.All())
				if few = few[:min(500, len(few))]; !slices.Contains(ids(few), id) {
					return resource{}, storefront.ErrNotFound
				}
				return r, nil
			}
			return s.MemStore.GetProduct(ctx, id)
		}
	}, []string{product}, "did not find the product"},
	{"IDs cut", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			return s.MemStore.GetProduct(ctx, id[:min(254, len(id))])
		}
	}, []string{product}, "returned the product"},
	{"products without case", func(s *store) {
		s.matchProducts(strings.EqualFold)
	}, []string{notFound}, `GetProduct(ctx, "TEAPOT"), where there is no such product, returned the product "teapot"`},
	{"products by prefix", func(s *store) {
		s.matchProducts(func(id, asked string) bool { return strings.HasPrefix(id, asked) })
	}, []string{notFound}, `GetProduct(ctx, "tea")`},
	{"products by LIKE", func(s *store) {
		s.matchProducts(func(id, asked string) bool {
			pattern := regexp.QuoteMeta(asked)
			pattern = strings.NewReplacer("%", ".*", "_", ".").Replace(pattern)
			return regexp.MustCompile("^" + pattern + "$").MatchString(id)
		})
	}, []string{notFound}, "as a pattern (LIKE)"},
	{"the zero Resource for no product", func(s *store) {
		s.notFoundIs(nil)
	}, []string{notFound}, "returned the zero Resource and no error"},
	{"the database's error for no row", func(s *store) {
		s.notFoundIs(sql.ErrNoRows)
	}, []string{notFound}, "no rows in result set"},
}

func descendingSpaces(a, b string) int {
	return cmp.Or(trimmed(a, b), -cmp.Compare(a, b))
}

// isKnown reports whether there is an order with the key.
func (s *store) isKnown(k key) bool {
	s.knowing.Lock()
	defer s.knowing.Unlock()
	return s.known[nameOf(k)]
}

// decideFirst refuses orders that were created, too.
func (s *store) decideFirst() {
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		if err := s.decide(o); err != nil && ctx.Err() == nil {
			return order{}, err
		}
		return right(ctx, k, o)
	})
}

// decideFor looks for the key and decides, some time before the order is recorded.
func (s *store) decideFor(pause time.Duration) {
	s.Accept = nil
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		if ctx.Err() != nil {
			return order{}, ctx.Err()
		}
		if !s.isKnown(k) {
			if err := s.decide(o); err != nil {
				return order{}, err
			}
		}
		if ctx.Err() != nil {
			return order{}, ctx.Err()
		}
		time.Sleep(pause)
		return right(context.WithoutCancel(ctx), k, o)
	})
}

// rememberRefusals refuses again what has a name that was refused.
func (s *store) rememberRefusals(name func(key) string) {
	var mu sync.Mutex
	refusals := make(map[string]error)
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		mu.Lock()
		defer mu.Unlock()
		if err := refusals[name(k)]; err != nil {
			return order{}, err
		}
		stored, err := right(ctx, k, o)
		if isRefusal(err) {
			refusals[name(k)] = err
		}
		return stored, err
	})
}

func (s *store) refusalIs(instead func(storefront.Refusal) error) {
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		stored, err := right(ctx, k, o)
		if isRefusal(err) {
			err = instead(soldOut)
		}
		return stored, err
	})
}

// A batch is orders that are committed together.
type batch struct {
	first, refusal error // of the first order, and of any
}

// commitTogether commits the orders of calls that meet together. The outcome of
// one may be decided by those of the others, and it may be lost.
func (s *store) commitTogether(decide func(b *batch, own error) error, lost func(b *batch) bool) {
	var mu sync.Mutex
	var open *batch
	s.Accept = nil
	s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
		if ctx.Err() != nil {
			return order{}, ctx.Err()
		}
		if s.isKnown(k) {
			return right(ctx, k, o)
		}
		own := s.decide(o)
		mu.Lock()
		if open == nil {
			open = &batch{first: own}
		}
		b := open
		b.refusal = cmp.Or(b.refusal, own)
		mu.Unlock()
		time.Sleep(time.Microsecond)
		mu.Lock()
		if open == b {
			open = nil
		}
		if decide != nil {
			own = decide(b, own)
		}
		mu.Unlock()
		if own != nil {
			return order{}, own
		}
		if lost != nil && lost(b) {
			return o, nil
		}
		return right(context.WithoutCancel(ctx), k, o)
	})
}

func nameOf(k key) string { return fmt.Sprintf("%q %q", k.Scope, k.Value) }

// expireKeys forgets keys after a time.
func (s *store) expireKeys(lifetime time.Duration) {
	var mu sync.Mutex
	created := make(map[string]time.Time)
	s.keys(func(k *key) {
		mu.Lock()
		defer mu.Unlock()
		name := nameOf(*k)
		if at, ok := created[name]; !ok || time.Since(at) > lifetime {
			created[name] = time.Now()
		}
		k.Scope += created[name].String()
	})
}

// sweepKeys forgets keys after a time, the oldest first, and in each call no more
// than most returns when it is given how many there are.
func (s *store) sweepKeys(lifetime time.Duration, most func(keys int) int) {
	type entry struct {
		name string
		at   time.Time
	}
	var mu sync.Mutex
	var entries []entry
	forgotten := make(map[string]int)
	s.keys(func(k *key) {
		mu.Lock()
		defer mu.Unlock()
		for left := most(len(entries)); left > 0 && len(entries) > 0 && time.Since(entries[0].at) > lifetime; left-- {
			forgotten[entries[0].name]++
			entries = entries[1:]
		}
		name := nameOf(*k)
		k.Scope += fmt.Sprint(forgotten[name])
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.name == name }) {
			entries = append(entries, entry{name, time.Now()})
		}
	})
}

// matchProducts finds products that are not there by another comparison.
func (s *store) matchProducts(match func(id, asked string) bool) {
	s.get = func(ctx ctxt, asked string) (resource, error) {
		r, err := s.MemStore.GetProduct(ctx, asked)
		if errors.Is(err, storefront.ErrNotFound) {
			for r := range s.Products.All() {
				if match(r.ID(), asked) {
					return r, nil
				}
			}
		}
		return r, err
	}
}

func (s *store) notFoundIs(instead error) {
	s.get = func(ctx ctxt, id string) (resource, error) {
		r, err := s.MemStore.GetProduct(ctx, id)
		if errors.Is(err, storefront.ErrNotFound) {
			err = instead
		}
		return r, err
	}
}

// Stores that make use of what the contract leaves to them.
var rightStores = []struct {
	name   string
	change func(*store)
}{
	{"the store that the wrong ones are made of", func(*store) {}},
	{"errors are wrapped", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			return stored, wrapped(err)
		})
		s.get = func(ctx ctxt, id string) (resource, error) {
			r, err := s.MemStore.GetProduct(ctx, id)
			return r, wrapped(err)
		}
		s.lists(func(right lister, _ *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				page, err := right(ctx, position, limit)
				return page, wrapped(err)
			}
		})
	}},
	{"calls that meet another are in progress", func(s *store) {
		var mu sync.Mutex
		busy := make(map[string]bool)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			mu.Lock()
			taken := busy[nameOf(k)]
			busy[nameOf(k)] = true
			mu.Unlock()
			if taken {
				return order{}, storefront.ErrInProgress
			}
			time.Sleep(time.Microsecond)
			stored, err := right(ctx, k, o)
			mu.Lock()
			delete(busy, nameOf(k))
			mu.Unlock()
			return stored, err
		})
	}},
	{"two calls at once are enough", func(s *store) {
		calls := make(chan struct{}, 2)
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			select {
			case calls <- struct{}{}:
				defer func() { <-calls }()
				time.Sleep(time.Microsecond)
				return right(ctx, k, o)
			default:
				return order{}, storefront.ErrUnavailable
			}
		})
	}},
	{"every fifth call is unavailable", func(s *store) {
		var calls atomics.Int64
		unavailable := func(ctx ctxt) error {
			if calls.Add(1)%5 == 0 {
				return cmp.Or(ctx.Err(), storefront.ErrUnavailable)
			}
			return nil
		}
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if err := unavailable(ctx); err != nil {
				return order{}, err
			}
			return right(ctx, k, o)
		})
		s.get = func(ctx ctxt, id string) (resource, error) {
			if err := unavailable(ctx); err != nil {
				return resource{}, err
			}
			return s.MemStore.GetProduct(ctx, id)
		}
		s.lists(func(right lister, _ *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				if err := unavailable(ctx); err != nil {
					return nil, err
				}
				return right(ctx, position, limit)
			}
		})
	}},
	{"unavailable to who does not wait", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			if ctx.Err() != nil {
				return resource{}, fmt.Errorf("%w: %w", storefront.ErrUnavailable, ctx.Err())
			}
			return s.MemStore.GetProduct(ctx, id)
		}
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			stored, err := right(ctx, k, o)
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", storefront.ErrUnavailable, ctx.Err())
			}
			return stored, err
		})
	}},
	{"refusals of the store's own words", func(s *store) {
		s.refusal = storefront.Refusal{Reason: soldOut.Reason}
		s.refusalIs(func(r storefront.Refusal) error {
			return fmt.Errorf("the store: %w", &storefront.Refusal{Reason: r.Reason, Detail: "There were some until " + time.Now().String()})
		})
	}},
	{"what is sold out is back after a crash", func(s *store) {
		s.reopen = func() storefront.Store {
			s.soldOut.Clear()
			return s
		}
	}},
	{"decided, then recorded, while others with the key wait", func(s *store) {
		s.decideFor(time.Microsecond)
		var turns sync.Map
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			turn, _ := turns.LoadOrStore(nameOf(k), make(chan struct{}, 1))
			select {
			case turn.(chan struct{}) <- struct{}{}:
				defer func() { <-turn.(chan struct{}) }()
				return right(ctx, k, o)
			case <-ctx.Done():
				return order{}, ctx.Err()
			}
		})
	}},
	{"times in another zone", func(s *store) {
		s.replays(func(o *order) { o.CreatedAt = o.CreatedAt.In(time.FixedZone("", 3600)) })
	}},
	{"slices with room and empty ones", func(s *store) {
		s.lists(func(right lister, _ *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				page, err := right(ctx, position, limit)
				return append(make([]resource, 0, 1000), page...), err
			}
		})
	}},
	{"keys for two days", func(s *store) { s.expireKeys(48 * time.Hour) }},
	{"keys for a day, in calls that take their time", func(s *store) {
		s.expireKeys(storefront.KeyLifetime)
		wait := func(ctx ctxt) {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			wait(ctx)
			return right(ctx, k, o)
		})
		s.lists(func(right lister, _ *storefront.Collection, _ bool) lister {
			return func(ctx ctxt, position string, limit int) ([]resource, error) {
				wait(ctx)
				return right(ctx, position, limit)
			}
		})
	}},
	{"the first context's error", func(s *store) { // of a call that is interrupted but has created its order
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			stored, err := right(context.WithoutCancel(ctx), k, o)
			if ctx.Err() != nil {
				return order{}, ctx.Err()
			}
			return stored, err
		})
	}},
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the store: %w", err)
}

func TestRightStoresPass(t *testing.T) {
	for _, r := range rightStores {
		t.Run(r.name, func(t *testing.T) {
			storetest.RunSynctest(t, func(_ *testing.T, contents storetest.Contents) storefront.Store {
				s := newStore(contents)
				r.change(s)
				return s
			})
		})
	}
}

// A bareStore has the four methods, and of the optional ones but half of an Editor.
type bareStore struct{ storefront.Store }

func (bareStore) Put(ctxt, storetest.Contents) error { return nil }

// A movableStore has a clock, but one whose type is wrong.
type movableStore struct{ *store }

func (movableStore) Advance(seconds int) {}

// inWrongStores is set in the process that runs the suite on the wrong stores.
const inWrongStores = "STORETEST_WRONG_STORES"

func TestSuiteOnWrongStores(t *testing.T) {
	if os.Getenv(inWrongStores) == "" {
		t.Skip("It fails, as it should, when TestWrongStoresAreCaught runs it.")
	}
	t.Run("bare", func(t *testing.T) {
		storetest.Run(t, func(_ *testing.T, contents storetest.Contents) storefront.Store {
			return bareStore{newStore(contents)}
		})
	})
	t.Run("movable", func(t *testing.T) {
		storetest.Run(t, func(_ *testing.T, contents storetest.Contents) storefront.Store {
			return movableStore{newStore(contents)}
		})
	})
	t.Run("leases", func(t *testing.T) {
		testLeaseStore(t, 12*time.Hour)
	})
	for _, w := range stuckStores {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunWithPatience(t, time.Second, func(t *testing.T, contents storetest.Contents) storefront.Store {
				s := newStore(contents)
				w.change(s)
				return s
			})
		})
	}
	for _, w := range wrongStores {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunGroups(t, w.groups(), func(t *testing.T, contents storetest.Contents) storefront.Store {
				s := newStore(contents)
				w.change(s)
				return s
			})
		})
	}
}

// results are those of a run of TestSuiteOnWrongStores, by wrong store.
type results struct {
	failed, skipped map[string][]string
	said            map[string]string
}

func runWrongStores(t *testing.T) results {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestSuiteOnWrongStores$", "-test.v", "-test.timeout=0") // it ends with this test
	cmd.Env = append(os.Environ(), inWrongStores+"=1")
	out, err := cmd.CombinedOutput()
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

// firstFailure is what an implementer reads first.
var firstFailure = regexp.MustCompile(`(?s)^.*?(The broken promise: [^\n]*(\n\s*The usual cause: [^\n]*)?|So it was not checked: [^\n]*)`)

func TestWrongStoresAreCaught(t *testing.T) {
	results := runWrongStores(t)

	t.Run("what a bare store has not got is skipped", func(t *testing.T) {
		wantSubtests(t, "skipped", results.skipped["bare"], []string{
			apart, usersFewer, usersGone, usersWhile, widgetsFewer, widgetsGone, widgetsWhile,
			atomic, exactlyOne, crash, reused, decided, ordered, lifetime, noTrace, product, notFound,
		})
		wantSubtests(t, "failed", results.failed["bare"], nil)
		for _, says := range []string{
			"Not checked: what a crash leaves",
			"the methods of storetest.Editor:", "Delete(context.Context, storetest.Contents) error",
		} {
			if !strings.Contains(results.said["bare"], says) {
				t.Errorf("it does not say %q:\n%s", says, results.said["bare"])
			}
		}
		if says := "its type is another"; strings.Contains(results.said["bare"], says) {
			t.Errorf("it says %q of a method that is as it should be:\n%s", says, results.said["bare"])
		}
	})
	t.Run("without -v, a run sums up what it has not checked", func(t *testing.T) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestSuiteOnWrongStores$/^(bare|movable)$")
		cmd.Env = append(os.Environ(), inWrongStores+"=1")
		out, err := cmd.CombinedOutput()
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
		for name, said := range results.said {
			if strings.Contains(said, heading) {
				t.Errorf("with -v, the run on %s says it, too", name)
			}
		}
	})
	t.Run("an optional method of another type is pointed out", func(t *testing.T) {
		wantSubtests(t, "skipped", results.skipped["movable"], []string{lifetime})
		if says := "has one with this name, but its type is another"; !strings.Contains(results.said["movable"], says) {
			t.Errorf("it does not say %q:\n%s", says, results.said["movable"])
		}
	})

	t.Run("leases that end too early are seen where Advance shortens them", func(t *testing.T) {
		wantSubtests(t, "failed", results.failed["leases"], []string{lifetime})
	})

	t.Run("where CreateOrder never works, nothing is said to be broken", func(t *testing.T) {
		if said := results.said["CreateOrder_is_not_written_yet"]; strings.Contains(said, "The broken promise: ") {
			t.Error(said)
		}
	})
	t.Run("a subtest explains itself once and shows three failures", func(t *testing.T) {
		said := results.said["times_without_milliseconds"]
		for text, want := range map[string]int{
			"A repeated call with the key": 3, "The broken promise: ": 1, "The usual cause: ": 1, "Further failures are not shown.": 1,
		} {
			if n := strings.Count(said, text); n != want {
				t.Errorf("it says %q %d times, want %d:\n%s", text, n, want, said)
			}
		}
	})

	broken := make(map[string]bool) // the promises that a wrong store breaks alone
	for _, w := range slices.Concat(wrongStores, stuckStores) {
		t.Run(w.name, func(t *testing.T) {
			name := strings.ReplaceAll(w.name, " ", "_")
			wantSubtests(t, "failed", results.failed[name], w.fails)
			if first := firstFailure.FindString(results.said[name]); !strings.Contains(first, w.says) {
				t.Errorf("the first failure does not say %q:\n%s", w.says, first)
			}
		})
		// Both lists make the same promises, and are broken together.
		for _, f := range w.fails {
			group, _, _ := strings.Cut(f, "/")
			if len(w.fails) == 1 || len(w.fails) == 2 && strings.HasPrefix(group, "List") {
				broken[f] = true
			}
		}
	}
	for _, p := range storetest.Promises() {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(broken)), func(f string) bool { return strings.HasPrefix(p, f) }) {
			t.Errorf("no wrong store breaks only this promise: %s", p)
		}
	}
}
