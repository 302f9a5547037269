package storetest_test

import (
	"database/sql"
	"errors"
	"strings"
	"sync"

	"example.com/storefront"
)

var wrongProducts = []wrongStore{
	{"products in a cache that no change ends", func(s *store) {
		var cached sync.Map
		s.get = func(ctx ctxt, id string) (resource, error) {
			r, err := s.MemStore.GetProduct(ctx, id)
			if ctx.Err() != nil {
				return resource{}, ctx.Err()
			}
			if err != nil {
				r = resource{}
			}
			if first, ok := cached.LoadOrStore(id, r); ok || err == nil {
				r, err = first.(resource), nil
			}
			return r, err
		}
	}, []string{product, notFound}, "is cached"},
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
	{"the zero Resource for no product", func(s *store) {
		s.missing(func(string) (resource, error) { return resource{}, nil })
	}, []string{notFound}, "returned the zero Resource and no error"},
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
