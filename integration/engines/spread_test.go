package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// A spread is a Store whose orders are in several others. It finds an order's by its
// key, so their number and sequence must stay.
type spread struct {
	storefront.Store // of users, products and widgets
	orders           []storefront.Store
}

func (s *spread) CreateOrder(
	ctx context.Context, key storefront.IdempotencyKey, order storefront.Order,
) (storefront.Order, error) {
	h := fnv.New64a()
	h.Write([]byte(key.Scope + key.Value))
	return s.orders[h.Sum64()%uint64(len(s.orders))].CreateOrder(ctx, key, order)
}

// A successor is a Store that takes over from another one, whose keys it asks for first.
type successor struct {
	storefront.Store
	before storefront.Store // its Accept is refuse, so that it replays and creates nothing
}

var notHere = &storefront.Refusal{Reason: "not-here"}

func refuse(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error {
	return notHere
}

func (s *successor) CreateOrder(
	ctx context.Context, key storefront.IdempotencyKey, order storefront.Order,
) (storefront.Order, error) {
	stored, err := s.before.CreateOrder(ctx, key, order)
	if errors.Is(err, notHere) {
		return s.Store.CreateOrder(ctx, key, order)
	}
	return stored, err
}

// TestOrdersMoveToMoreStores has orders be spread over two databases, and then over those and
// a third one. Keys are remembered wherever their orders were created, and a new order is
// created once.
func TestOrdersMoveToMoreStores(t *testing.T) {
	var databases []*testdb.DB
	for range 3 {
		databases = append(databases, testdb.New(t, "sqlite", testdb.SQLiteFile(t)))
	}
	over := func(n int, opts *sqlstore.Options) *spread {
		s := new(spread)
		for _, d := range databases[:n] {
			s.orders = append(s.orders, d.OpenWith(t, opts))
		}
		return s
	}
	const keys = 60
	create := func(store storefront.Store, i int, id, item string) (storefront.Order, error) {
		key := storefront.IdempotencyKey{Scope: "ada", Value: fmt.Sprint("key ", i)}
		copy(key.Fingerprint[:], item)
		order := storefront.Order{ID: fmt.Sprint(id, i), Item: item, Qty: 1, CreatedAt: time.Now()}
		return store.CreateOrder(t.Context(), key, order)
	}
	before := over(2, nil)
	for i := range keys / 2 {
		must.Get(create(before, i, "before", "teapot"))(t)
	}
	after := &successor{over(3, nil), over(2, &sqlstore.Options{Accept: refuse})}
	for range 2 { // created, and replayed
		for i := range keys {
			want := fmt.Sprint("before", i)
			if i >= keys/2 {
				want = fmt.Sprint("after", i)
			}
			if order, err := create(after, i, "after", "teapot"); err != nil || order.ID != want {
				t.Errorf("key %d: %v, %v, want the order %s", i, order, err, want)
			}
			if _, err := create(after, i, "other", "kettle"); !errors.Is(err, storefront.ErrKeyReused) {
				t.Errorf("key %d with another order: %v, want ErrKeyReused", i, err)
			}
		}
	}
	total := 0
	for i, d := range databases {
		n := len(testdb.StoredOrders(t, d.Pool))
		if total += n; n == 0 {
			t.Errorf("database %d has no order", i)
		}
	}
	if total != keys {
		t.Errorf("there are %d orders of %d keys", total, keys)
	}
}
