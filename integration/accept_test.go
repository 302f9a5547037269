package integration

import (
	"context"
	"crypto/rand"
	"database/sql"
	"time"

	"example.com/storefront"
)

// An accept is what sqlstore.Options.Accept is set to.
type accept = func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error

// create creates an order for an item, in the way of the service: with a new ID.
func create(ctx context.Context, store storefront.Store, key, item string) (storefront.Order, error) {
	return store.CreateOrder(ctx, storefront.IdempotencyKey{Value: key, Fingerprint: [32]byte{1}},
		storefront.Order{ID: "ord_" + rand.Text(), Item: item, Qty: 1, CreatedAt: time.Now().UTC().Truncate(time.Millisecond)})
}
