package testdb

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// usedIDs are in the order of lists. To people, some of them are the same.
var usedIDs = []string{"A", "B", "Z", "a", "a ", "a b", "a-b", "ab", "a\u0308", "b", "Ä", "ä", "\uff5e", "😀"}

// Use has a store over d's connections do each thing once, and returns what it gets wrong. The tables may be
// missing, or have what an earlier Use has left, but nothing else.
func (d *DB) Use(t testing.TB) error {
	store := sqlstore.New(d.Pool, nil)
	ctx := t.Context()
	if err := errors.Join(store.Migrate(ctx), store.Users.Delete(ctx, usedIDs...)); err != nil {
		return err
	}
	d.Clear(t)
	var users []storefront.Resource
	for _, id := range usedIDs {
		users = append(users, storefront.MustResource(id, map[string]string{"name": id + ` \ ' "`}))
	}
	put := store.Users.Put(ctx, users...)
	for n, after := range map[int]string{0: "", 4: "a", len(users): "😀"} {
		list, err := store.ListUsers(ctx, after, 100)
		if fmt.Sprint(list) != fmt.Sprint(users[n:]) || err != nil {
			return fmt.Errorf("users after %q are %v, %w, want %v (%w)", after, list, err, users[n:], put)
		}
	}
	if _, err := store.GetProduct(ctx, "A"); !errors.Is(err, storefront.ErrNotFound) {
		return fmt.Errorf("there is a product: %w", err)
	}

	create := func(key int, id string, fingerprint byte) (storefront.Order, error) {
		sent := storefront.IdempotencyKey{Value: fmt.Sprint("key", key), Fingerprint: [32]byte{fingerprint}}
		order := storefront.Order{
			ID: id, Item: ` Ä "\\'😀 kettle `, Qty: 1, CreatedAt: time.UnixMilli(1e12).UTC()}
		return store.CreateOrder(ctx, sent, order)
	}
	const keys = 10
	var created [keys]storefront.Order
	for round := range 2 { // new, together with a replay, and then only replays
		var got [2 * keys]storefront.Order
		var errs [2 * keys]error
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() { got[i], errs[i] = create(i%keys, fmt.Sprint("ord_", round, i), 1) })
		}
		wg.Wait()
		if round == 0 {
			copy(created[:], got[:])
		}
		for i := range got {
			if !got[i].Equal(created[i%keys]) || errs[i] != nil {
				return fmt.Errorf("a key has the orders %v and %v, %w", created[i%keys], got[i], errs[i])
			}
		}
	}
	if _, err := create(1, "ord_other", 2); !errors.Is(err, storefront.ErrKeyReused) {
		return fmt.Errorf("another order with a key is not refused: %w", err)
	}
	byID := func(a, b storefront.Order) int { return cmp.Compare(a.ID, b.ID) }
	stored, want := StoredOrders(t, d.Pool), slices.SortedFunc(slices.Values(created[:]), byID)
	if slices.SortFunc(stored, byID); !slices.EqualFunc(stored, want, storefront.Order.Equal) {
		return fmt.Errorf("the orders %v are stored, want %v", stored, want)
	}

	horizon := time.Now().Add(-storefront.KeyLifetime - time.Hour)
	d.RecordKey(t, created[0].ID, horizon.Add(-time.Hour))
	n, err := store.ForgetKeys(ctx, horizon)
	forgotten, err0 := create(0, "ord_new", 2)
	replayed, err1 := create(1, "ord_new", 1)
	if n != 1 || forgotten.ID != "ord_new" || !replayed.Equal(created[1]) {
		return fmt.Errorf("ForgetKeys forgot %d keys, want 1; now there are the orders %v and %v (%w)",
			n, forgotten, replayed, errors.Join(err, err0, err1))
	}
	return store.Check(ctx)
}
