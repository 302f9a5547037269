package vitess

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

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

// patient are options for many calls that wait for each other.
var patient = &sqlstore.Options{Timeout: 10 * time.Minute}
