package storetest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"example.com/storefront"
)

var wrongMethods = []wrongStore{
	{"scratch space that calls share", func(s *store) {
		var mu sync.Mutex
		var position string
		s.listUsers = func(ctx ctxt, after string, limit int) ([]resource, error) {
			mu.Lock()
			position = after
			mu.Unlock()
			time.Sleep(time.Nanosecond)
			mu.Lock()
			defer mu.Unlock()
			return s.MemStore.ListUsers(ctx, position, limit)
		}
		s.lookFirst()
	}, []string{concurrently}, "state that calls share"},
	{"CreateOrder looks at ctx only where it waits for its turn", func(s *store) {
		s.around(func(right creator, ctx ctxt, k key, o order) (order, error) {
			return right(context.WithoutCancel(ctx), k, o)
		})
		s.takeTurns(oneForAll, waitOrLeave)
	}, []string{done}, "CreateOrder(ctx, key, order) with a context that was cancelled returned no error"},
	{"a call that waits for the one before does not leave when ctx is done", func(s *store) {
		s.takeTime(time.Second)
		s.takeTurns(oneForAll, waitAnyway)
		s.lookFirst()
	}, []string{done}, "While a call of CreateOrder was in progress, another with a context that was done after 1ms took 1s to return"},
	{"rows.Err is not looked at", func(s *store) {
		s.listUsers = func(ctx ctxt, after string, limit int) ([]resource, error) {
			page, _ := s.MemStore.ListUsers(context.WithoutCancel(ctx), after, limit)
			for i := range page {
				if ctx.Err() != nil {
					return page[:i], nil
				}
			}
			return page, nil
		}
		s.lookFirst()
	}, []string{done}, "sql.Rows.Err"},
	{"the context of the first call is kept", func(s *store) {
		var contexts sync.Map
		s.listUsers = func(ctx ctxt, after string, limit int) ([]resource, error) {
			if first, _ := contexts.LoadOrStore("first", ctx); first.(ctxt).Err() != nil {
				return nil, first.(ctxt).Err()
			}
			return s.MemStore.ListUsers(ctx, after, limit)
		}
	}, []string{notLater}, "which was given another context"},
	{"pages are cached and not copied", func(s *store) {
		var cached sync.Map
		s.listUsers = func(ctx ctxt, after string, limit int) ([]resource, error) {
			page, err := s.MemStore.ListUsers(ctx, after, limit)
			if err != nil {
				return nil, err
			}
			first, _ := cached.LoadOrStore(fmt.Sprint(ids(page)), page)
			return first.([]resource), nil
		}
	}, []string{slice}, "slices.Clone"},
	{"a resource is decoded into a map", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			r, err := s.MemStore.GetProduct(ctx, id)
			if err != nil {
				return r, err
			}
			var fields map[string]any
			json.Unmarshal([]byte(r.String()), &fields)
			return storefront.NewResource(id, fields)
		}
	}, []string{asPut}, "decoded and encoded again"},
	{"one list for users and widgets", func(s *store) {
		for u := range s.Users.All() {
			if _, ok := s.Widgets.Get(u.ID()); !ok {
				s.Widgets.Put(u)
			}
		}
	}, []string{apart}, "one table or map for all"},
	{"the key in the error of a reused key", func(s *store) {
		s.returns(func(k key, _, stored order, err error) (order, error) {
			if err != nil {
				err = fmt.Errorf("creating with key %q: %w", k.Value, err)
			}
			return stored, err
		})
	}, []string{errorText}, "wrapped into the error"},
}

var wrongProducts = []wrongStore{
	{"IDs cut", func(s *store) {
		s.get = func(ctx ctxt, id string) (resource, error) {
			return s.MemStore.GetProduct(ctx, id[:min(254, len(id))])
		}
	}, []string{product}, "returned the product"},
	{"products without case", func(s *store) {
		s.missing(func(asked string) (resource, error) {
			for r := range s.Products.All() {
				if strings.EqualFold(r.ID(), asked) {
					return r, nil
				}
			}
			return resource{}, storefront.ErrNotFound
		})
	}, []string{notFound}, `GetProduct(ctx, "TEAPOT"), where there is no such product, returned the product "teapot"`},
	{"the database's error for no row", func(s *store) {
		s.missing(func(string) (resource, error) { return resource{}, sql.ErrNoRows })
	}, []string{notFound}, "no rows in result set"},
}

// missing changes what GetProduct returns for an ID that no product has.
func (s *store) missing(instead func(id string) (resource, error)) {
	s.get = func(ctx ctxt, id string) (resource, error) {
		r, err := s.MemStore.GetProduct(ctx, id)
		if errors.Is(err, storefront.ErrNotFound) {
			return instead(id)
		}
		return r, err
	}
}
