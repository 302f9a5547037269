package storetest_test

import (
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/storetest"
)

// leases is a map whose entries live for a time, like an engine with leases. Its zero
// value is empty.
type leases[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V
	ends   map[K]time.Time
}

// PutIfAbsent gives a key a value, unless it has one, and returns the value that it has.
func (l *leases[K, V]) PutIfAbsent(key K, value V, lifetime time.Duration) V {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, ok := l.values[key]; ok && time.Now().Before(l.ends[key]) {
		return first
	}
	if l.values == nil {
		l.values, l.ends = make(map[K]V), make(map[K]time.Time)
	}
	l.values[key], l.ends[key] = value, time.Now().Add(lifetime)
	return value
}

// TimesToLive returns the time that each key has left.
func (l *leases[K, V]) TimesToLive() map[K]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := make(map[K]time.Duration)
	for key, end := range l.ends {
		left[key] = time.Until(end)
	}
	return left
}

// Expire gives a key another time to live.
func (l *leases[K, V]) Expire(key K, lifetime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[key] = time.Now().Add(lifetime)
}

// Delete deletes a key.
func (l *leases[K, V]) Delete(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.values, key)
	delete(l.ends, key)
}

// testLeaseStore runs the suite on a leaseStore.
func testLeaseStore(t *testing.T, lifetime time.Duration) {
	storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
		rest := new(storefront.MemStore)
		rest.Users.Put(contents.Users...)
		rest.Products.Put(contents.Products...)
		rest.Widgets.Put(contents.Widgets...)
		return &leaseStore{Store: rest, lifetime: lifetime}
	})
}

func TestLeasesThatLastPass(t *testing.T) {
	testLeaseStore(t, storefront.KeyLifetime+time.Minute)
}
