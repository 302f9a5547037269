package testdb

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/internal/orderid"
)

// An Accept is what sqlstore.Options.Accept is set to.
type Accept = func(context.Context, *sql.Tx, storefront.IdempotencyKey, storefront.Order) error

// Create creates an order for an item as the service does, with a new ID.
func Create(ctx context.Context, store storefront.Store, key, item string) (storefront.Order, error) {
	return store.CreateOrder(ctx, storefront.IdempotencyKey{Value: key, Fingerprint: [32]byte{1}},
		storefront.Order{ID: orderid.New(time.Now()), Item: item, Qty: 1,
			CreatedAt: time.Now().UTC().Truncate(time.Millisecond)})
}

// A Purchase is an order that is sent, and what came of it.
type Purchase struct {
	Key, Item string
	Leaves    bool // its caller goes away before there is an answer
	Order     storefront.Order
	Err       error
}

// Send has a store create the order.
func (p *Purchase) Send(ctx context.Context, store storefront.Store) {
	p.Order, p.Err = Create(ctx, store, p.Key, p.Item)
}

// Noted is an Accept that writes down the order's ID in the table notes, and fails
// as the item says.
func Noted(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
	if order.Item == "held up" {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO notes (order_id) VALUES ('"+order.ID+"')"); err != nil {
		return err
	}
	var err error
	switch order.Item {
	case "refused":
		err = new(SoldOut)
	case "leaves rows open":
		_, err := tx.QueryContext(ctx, "SELECT 1 UNION SELECT 2 UNION SELECT 3")
		return err
	case "commits":
		err = tx.Commit()
	case "rolls back":
		err = tx.Rollback()
	case "sends COMMIT":
		_, err = tx.ExecContext(ctx, "COMMIT")
	case "sends ROLLBACK":
		_, err = tx.ExecContext(ctx, "ROLLBACK")
	case "begins another":
		if _, err = tx.ExecContext(ctx, "ROLLBACK"); err == nil {
			_, err = tx.ExecContext(ctx, "BEGIN")
		}
	case "rolls back and says so":
		err = errors.Join(ErrAccept, tx.Rollback())
	}
	return err
}

// ErrAccept is the error of Noted.
var ErrAccept = errors.New("of two minds")

// CheckOrders checks that the orders that were acknowledged are there, and none for
// an item that must not be, and that each has been noted if all were to be.
func CheckOrders(t *testing.T, d *DB, purchases []*Purchase, never func(item string) bool, allNoted bool) {
	t.Helper()
	stored := StoredOrders(t, d.Pool)
	for _, order := range stored {
		if never(order.Item) {
			t.Errorf("there is the order %v", order)
		}
	}
	for _, p := range purchases {
		if p.Err == nil && !slices.ContainsFunc(stored, p.Order.Equal) {
			t.Errorf("%s of %s: the order %v was acknowledged and is not there", p.Key, p.Item, p.Order)
		}
	}
	if !allNoted {
		return
	}
	var ids []string
	for _, order := range stored {
		ids = append(ids, order.ID)
	}
	notes := Column(t, d.Pool, "SELECT order_id FROM notes")
	slices.Sort(ids)
	slices.Sort(notes)
	if diff := cmp.Diff(ids, notes); diff != "" {
		t.Errorf("orders (-) and what Accept has written (+):\n%s", diff)
	}
}
