package storetest_test

import (
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

// A leaseStore keeps orders by their keys in an engine that deletes each entry at the
// end of its time to live. Here the engine is a map; it may as well be a server.
type leaseStore struct {
	storefront.Store // for users, products and widgets
	orders           leases[orderKey, keyedOrder]
	lifetime         time.Duration
}

type orderKey struct{ scope, value string }

type keyedOrder struct {
	order       storefront.Order
	fingerprint [32]byte
}

// CreateOrder implements storefront.Store.
func (s *leaseStore) CreateOrder(ctx ctxt, key storefront.IdempotencyKey, order storefront.Order) (storefront.Order, error) {
	if err := ctx.Err(); err != nil {
		return storefront.Order{}, err
	}
	first := s.orders.PutIfAbsent(orderKey{key.Scope, key.Value}, keyedOrder{order, key.Fingerprint}, s.lifetime)
	if first.fingerprint != key.Fingerprint {
		return storefront.Order{}, storefront.ErrKeyReused
	}
	return first.order, nil
}

// Advance implements storetest.Clock. The engine goes by a clock of its own, so Advance
// takes d off the time that each key has left. In Redis that is PTTL, then PEXPIRE or
// DEL. In etcd, whose leases cannot be shortened, it is TimeToLive, then a lease of the
// time left for the same value, or Revoke.
func (s *leaseStore) Advance(d time.Duration) {
	for key, left := range s.orders.TimesToLive() {
		if left > d {
			s.orders.Expire(key, left-d)
		} else {
			s.orders.Delete(key)
		}
	}
}

// A store in an engine with leases takes the time that has passed off them.
func ExampleClock_lease() {
	_ = func(t *testing.T) { // func TestLeaseStore(t *testing.T)
		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
			rest := new(storefront.MemStore)
			rest.Users.Put(contents.Users...)
			rest.Products.Put(contents.Products...)
			rest.Widgets.Put(contents.Widgets...)
			return &leaseStore{Store: rest, lifetime: storefront.KeyLifetime + time.Minute}
		})
	}
}
