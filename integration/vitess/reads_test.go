package vitess

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
)

// TestReadsSeeEarlierWrites reads by way of one vtgate what was written by way of another, while many
// others read the same: Vitess may answer a query with what an equal one that began earlier has found.
func TestReadsSeeEarlierWrites(t *testing.T) {
	const readers, rounds = 16, 100
	onShards(t, func(t *testing.T, k keyspace) {
		first := k.DB.OpenWith(t, nil)
		second := testdb.Open(t, "mysql", k.Gates[1].DSN()).OpenWith(t, nil)
		resource := func(version int) storefront.Resource {
			return storefront.MustResource("kettle", map[string]int{"version": version})
		}
		must.OK(t, first.Products.Put(t.Context(), resource(0)))
		must.OK(t, first.Widgets.Put(t.Context(), resource(0)))
		reading, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		defer others.Wait()
		defer stop()
		for range readers {
			others.Go(func() {
				for reading.Err() == nil {
					_, err := second.GetProduct(reading, "kettle")
					if err == nil {
						_, err = second.ListWidgets(reading, "", 10)
					}
					if err != nil && reading.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for version := 1; version <= rounds; version++ {
			want := resource(version)
			must.OK(t, first.Products.Put(t.Context(), want))
			if got := must.Get(second.GetProduct(t.Context(), "kettle"))(t); !got.Equal(want) {
				t.Errorf("after a Put of %v, the product is %v", want, got)
			}
			must.OK(t, first.Widgets.Put(t.Context(), want))
			got := must.Get(second.ListWidgets(t.Context(), "", 10))(t)
			if len(got) != 1 || !got[0].Equal(want) {
				t.Errorf("after a Put of %v, the widgets are %v", want, got)
			}
		}
	})
}

// TestAReplayFollowsAtOnce sends each order again by way of the other vtgate as soon as it is
// acknowledged, and at the same time by way of both.
func TestAReplayFollowsAtOnce(t *testing.T) {
	const clients, orders = 16, 20
	onShards(t, func(t *testing.T, k keyspace) {
		stores := []storefront.Store{k.DB.Open(t), testdb.Open(t, "mysql", k.Gates[1].DSN()).Open(t)}
		var calling sync.WaitGroup
		for client := range clients {
			calling.Go(func() {
				for i := range orders {
					key := fmt.Sprint("key ", client, " ", i)
					created, err := testdb.Create(t.Context(), stores[i%2], key, "kettle")
					if err != nil {
						t.Error(err)
						return
					}
					for _, store := range []storefront.Store{stores[(i+1)%2], stores[i%2]} {
						again, err := testdb.Create(t.Context(), store, key, "kettle")
						if err != nil || again != created {
							t.Errorf("%s was acknowledged as %v, and then %v, %v", key, created, again, err)
						}
					}
				}
			})
		}
		for i := range orders {
			var both [2]storefront.Order
			var errs [2]error
			var same sync.WaitGroup
			for n, store := range stores {
				same.Go(func() {
					both[n], errs[n] = testdb.Create(t.Context(), store, fmt.Sprint("both ", i), "kettle")
				})
			}
			same.Wait()
			if both[0] != both[1] || errs[0] != nil || errs[1] != nil {
				t.Errorf("one key was acknowledged as %v and %v, %v, %v", both[0], both[1], errs[0], errs[1])
			}
		}
		calling.Wait()
		if n := len(testdb.StoredOrders(t, k.Pool)); n != clients*orders+orders {
			t.Errorf("there are %d orders of %d keys", n, clients*orders+orders)
		}
	})
}
