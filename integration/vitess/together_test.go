package vitess

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

func TestUse(t *testing.T) {
	onShards(t, func(t *testing.T, k keyspace) { must.OK(t, k.Use(t)) })
}

// TestPutsOfTheSameResources has calls by way of both vtgates put the same resources in opposite sequences:
// no call may wait for another in one shard, and be waited for in the next one.
func TestPutsOfTheSameResources(t *testing.T) {
	onShards(t, func(t *testing.T, k keyspace) {
		const many, rounds = 40, 40
		var up, down []storefront.Resource
		for i := range many {
			up = append(up, storefront.MustResource(fmt.Sprintf("u%02d", i), nil))
			down = append(down, storefront.MustResource(fmt.Sprintf("u%02d", many-1-i), nil))
		}
		var putting sync.WaitGroup
		for i := range 8 {
			// A call that waits for two others, as they wait for it, would wait until its time is over.
			dsn := k.Gates[i%2].DSN() + "&innodb_lock_wait_timeout=3600"
			store := sqlstore.New(testdb.Open(t, "mysql", dsn).Pool, patient)
			resources := [][]storefront.Resource{up, down}[i/2%2]
			putting.Go(func() {
				for range rounds {
					if err := store.Users.Put(t.Context(), resources...); err != nil {
						t.Error(err)
					}
				}
			})
		}
		putting.Wait()
		store := sqlstore.New(k.Pool, patient)
		if users, err := store.ListUsers(t.Context(), "", many+1); err != nil || len(users) != many {
			t.Errorf("there are %d users, %v, want %d", len(users), err, many)
		}
	})
}

// TestForgetKeysOfAllShards has several stores forget the same keys at the same time, each of which is
// forgotten once.
func TestForgetKeysOfAllShards(t *testing.T) {
	onShards(t, func(t *testing.T, k keyspace) {
		const many, young = 1200, 40
		store := k.DB.OpenWith(t, patient)
		var creating sync.WaitGroup
		for client := range 8 {
			creating.Go(func() {
				for i := client; i < many; i += 8 {
					_, err := testdb.Create(t.Context(), store, fmt.Sprint("key ", i), "kettle")
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		creating.Wait()
		k.Exec(t, fmt.Sprintf("UPDATE storefront_orders SET keyed_ms = keyed_ms - %d",
			(storefront.KeyLifetime+time.Hour).Milliseconds()))
		for i := range young {
			must.Get(testdb.Create(t.Context(), store, fmt.Sprint("young ", i), "kettle"))(t)
		}
		var forgetting sync.WaitGroup
		forgotten := make([]int64, 3)
		for i := range forgotten {
			store := sqlstore.New(testdb.Open(t, "mysql", k.Gates[i%2].DSN()).Pool, patient)
			forgetting.Go(func() {
				var err error
				forgotten[i], err = store.ForgetKeys(t.Context(), time.Now().Add(-storefront.KeyLifetime))
				if err != nil {
					t.Error(err)
				}
			})
		}
		forgetting.Wait()
		if total := forgotten[0] + forgotten[1] + forgotten[2]; total != many {
			t.Errorf("%v keys were forgotten, %d in all, want %d", forgotten, total, many)
		}
		left := testdb.Column(t, k.Pool, "SELECT id FROM storefront_orders WHERE key_hash IS NOT NULL")
		unplaced := testdb.Column(t, k.Pool, "SELECT id FROM storefront_orders WHERE place IS NULL")
		if len(left) != young || len(unplaced) > 0 {
			t.Errorf("%d keys are remembered, want %d; %d orders have no place", len(left), young,
				len(unplaced))
		}
	})
}

// patient are options for many calls that wait for each other.
var patient = &sqlstore.Options{Timeout: 10 * time.Minute}
