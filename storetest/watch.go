package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/storefront"
)

// A watchedStore makes all calls of a store for the suite. It reports a call that does not
// return, and repeats a call of the three methods that only read while the store is
// unavailable.
type watchedStore struct {
	storefront.Store
	t *test
}

func (w watchedStore) ListUsers(ctx context.Context, after string, limit int) ([]storefront.Resource, error) {
	return retry(w.t, ctx, func() ([]storefront.Resource, error) {
		return watch(w.t, ctx, "ListUsers",
			func() ([]storefront.Resource, error) { return w.Store.ListUsers(ctx, after, limit) })
	})
}

func (w watchedStore) CreateOrder(ctx context.Context, key storefront.IdempotencyKey,
	order storefront.Order) (storefront.Order, error) {
	return watch(w.t, ctx, "CreateOrder",
		func() (storefront.Order, error) { return w.Store.CreateOrder(ctx, key, order) })
}

func (w watchedStore) GetProduct(ctx context.Context, id string) (storefront.Resource, error) {
	return retry(w.t, ctx, func() (storefront.Resource, error) {
		return watch(w.t, ctx, "GetProduct",
			func() (storefront.Resource, error) { return w.Store.GetProduct(ctx, id) })
	})
}

func (w watchedStore) ListWidgets(ctx context.Context, start string,
	limit int) ([]storefront.Resource, error) {
	return retry(w.t, ctx, func() ([]storefront.Resource, error) {
		return watch(w.t, ctx, "ListWidgets",
			func() ([]storefront.Resource, error) { return w.Store.ListWidgets(ctx, start, limit) })
	})
}

// A watchedReader is what a watchedStore is, for an OrderReader.
type watchedReader struct {
	orders storefront.OrderReader
	t      *test
}

func (w watchedReader) GetOrder(ctx context.Context, scope, id string) (storefront.Resource, error) {
	return retry(w.t, ctx, func() (storefront.Resource, error) {
		return watch(w.t, ctx, "GetOrder",
			func() (storefront.Resource, error) { return w.orders.GetOrder(ctx, scope, id) })
	})
}

func (w watchedReader) ListOrders(ctx context.Context, scope, after string,
	limit int) ([]storefront.Resource, error) {
	return retry(w.t, ctx, func() ([]storefront.Resource, error) {
		return watch(w.t, ctx, "ListOrders",
			func() ([]storefront.Resource, error) { return w.orders.ListOrders(ctx, scope, after, limit) })
	})
}

func (w watchedReader) GetOrderByKey(ctx context.Context, scope, key string) (storefront.Resource, error) {
	return retry(w.t, ctx, func() (storefront.Resource, error) {
		return watch(w.t, ctx, "GetOrderByKey",
			func() (storefront.Resource, error) { return w.orders.GetOrderByKey(ctx, scope, key) })
	})
}

var errStuck = errors.New("a call has not returned")

// watch makes a call and waits until it returns. If the call takes too long, watch
// fails the subtest and returns errStuck, as all further calls then do at once.
func watch[T any](t *test, ctx context.Context, method string, call func() (T, error)) (T, error) {
	if t.bubble { // in which package synctest notices that all goroutines wait for each other
		return call()
	}
	type result struct {
		value T
		err   error
	}
	var none T
	if t.stuck.Load() {
		return none, errStuck
	}
	limit := t.patience
	if t.impatient.Load() {
		limit = min(limit, 5*time.Second)
	}
	returned := make(chan result, 1)
	go func() {
		value, err := call()
		returned <- result{value, err}
	}()
	// However long a machine stalls, that is one of the ticks: the call has the others.
	const ticks = 100
	ticker := time.NewTicker(limit / ticks)
	defer ticker.Stop()
	for range ticks {
		select {
		case r := <-returned:
			return r.value, r.err
		case <-ticker.C:
		}
	}
	t.impatient.Store(true)
	if err := ctx.Err(); !t.stuck.Swap(true) {
		text := fmt.Sprintf("%s has not returned %v after it was called", method, limit)
		if err != nil {
			t.fail(fmt.Sprintf("%s, though its context is done: %v.\nThe broken promise: %s.", text, err, promptly))
		} else {
			t.fail(text + ". Does it wait for a lock that another call has not released?\nSo it was not checked: " +
				t.sentence + ".")
		}
	}
	return none, errStuck
}

// retry repeats a call for up to five seconds, while its error matches ErrUnavailable
// or ErrInProgress, unless the error tells that ctx is done. After a call that has
// failed for that long, others in the same run are not repeated as often.
func retry[T any](t *test, ctx context.Context, call func() (T, error)) (T, error) {
	attempts := 100
	if t.impatient.Load() {
		attempts = 10
	}
	for i := range attempts {
		value, err := call()
		if !isTemporary(err) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return value, err
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
	}
	t.impatient.Store(true)
	return call()
}

func isTemporary(err error) bool {
	return errors.Is(err, storefront.ErrInProgress) || errors.Is(err, storefront.ErrUnavailable)
}
