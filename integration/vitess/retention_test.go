package vitess

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
)

// TestRetention forgets the keys of many orders in several shards by two stores at once, and then deletes the
// orders, a thousand of each shard by a statement, while others are created, whose keys stay.
func TestRetention(t *testing.T) {
	k := shared(t, long.Of(2, 4))
	old := long.Of(20_000, 1_000_000)
	expired := time.Now().Add(-storefront.KeyLifetime)
	began := time.Now()
	makeOldOrders(t, k.DB, old, expired.Add(-time.Hour))
	took := func(what string, n int) {
		t.Logf("%s %d orders in %v", what, n, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	took("made", old)

	second := testdb.Open(t, "mysql", k.Gates[1].DSN())
	stores := []*testdb.SQLStore{k.OpenWith(t, nil), second.OpenWith(t, nil)}
	creating, stop := context.WithCancel(t.Context())
	defer stop()
	var others sync.WaitGroup
	var created []string // keys
	others.Go(func() {
		for i := 0; creating.Err() == nil; i++ {
			key := fmt.Sprint("new ", i)
			if _, err := testdb.Create(t.Context(), stores[i%2], key, "teapot"); err != nil {
				t.Error(err)
				return
			}
			created = append(created, key)
		}
	})
	var forgot atomic.Int64
	var forgetting sync.WaitGroup
	for _, store := range stores {
		forgetting.Go(func() {
			n, err := store.ForgetKeys(t.Context(), expired)
			if err != nil {
				t.Error(err)
			}
			forgot.Add(n)
		})
	}
	forgetting.Wait()
	took("forgot the keys of", int(forgot.Load()))
	if n := int(forgot.Load()); n != old {
		t.Errorf("two stores forgot %d keys, want %d", n, old)
	}

	if unplaced := testdb.Column(t, k.Pool, "SELECT id FROM storefront_orders WHERE place IS NULL LIMIT 1"); len(unplaced) > 0 {
		t.Errorf("the order %s has no place once its key is forgotten", unplaced[0])
	}

	deleted := 0
	for {
		result := must.Get(k.Pool.Exec("DELETE FROM `shop[-]`.storefront_orders WHERE key_hash IS NULL AND "+
			"created_ms < ? LIMIT 1000", expired.UnixMilli()))(t) // of each shard
		n := must.Get(result.RowsAffected())(t)
		if n == 0 {
			break
		}
		deleted += int(n)
	}
	took("deleted", deleted)
	stop()
	others.Wait()
	if deleted != old {
		t.Errorf("%d orders were deleted, want %d", deleted, old)
	}
	if len(created) == 0 {
		t.Error("no order was created meanwhile")
	}
	left := testdb.Column(t, k.Pool,
		"SELECT count(*) FROM storefront_orders WHERE key_hash IS NOT NULL")[0]
	if left != fmt.Sprint(len(created)) {
		t.Errorf("there are %s orders with their keys, want the %d that were created meanwhile",
			left, len(created))
	}
	t.Logf("%d orders were created meanwhile", len(created))
}

// makeOldOrders makes orders whose keys were recorded at a time.
func makeOldOrders(t *testing.T, d *testdb.DB, n int, at time.Time) {
	t.Helper()
	const most = 2_000 // in a statement
	for from := 0; from < n; from += most {
		var rows []string
		for i := from; i < min(from+most, n); i++ {
			hash := sha256.Sum256(fmt.Append(nil, "old ", i))
			text := hex.EncodeToString(hash[:])
			rows = append(rows, fmt.Sprintf("('ord_%.26s', 'kettle', 1, %d, 'old', x'%[1]s', x'%[1]s', "+
				"%[2]d, x'%.16[1]s')", text, at.UnixMilli()))
		}
		d.Exec(t, "INSERT INTO storefront_orders "+
			"(id, item, qty, created_ms, scope, key_hash, key_fingerprint, keyed_ms, place) VALUES "+
			strings.Join(rows, ", "))
	}
}
