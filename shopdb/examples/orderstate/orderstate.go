// Package orderstate shows customers their orders with what has become of them: received, packed, or sent,
// with the number of the parcel. The shop writes that into a table of its own, order_states, and a Reader
// adds it to the orders that it reads, to a whole page by one query. Copy this file, and put your own
// columns into it.
//
//	store := sqlstore.New(db, &sqlstore.Options{OrderLists: true})
//	handler := storefront.NewWithOptions(store, &storefront.Options{
//		Scope:  account,
//		Orders: &orderstate.Reader{Orders: store.OrderReader(), DB: db},
//	})
//
// Who packs an order writes its state by a statement of the shop's, such as, in PostgreSQL and SQLite,
//
//	INSERT INTO order_states VALUES ($1, 'sent', $2)
//		ON CONFLICT (order_id) DO UPDATE SET state = excluded.state, parcel = excluded.parcel
//
// The entity tag of an order is that of its state, too: a client that sends it along gets 304 Not Modified
// until the state changes.
package orderstate

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"example.com/storefront"
)

// Table makes the table.
const Table = `CREATE TABLE IF NOT EXISTS order_states (
	order_id VARCHAR(255) NOT NULL PRIMARY KEY,
	state VARCHAR(20) NOT NULL,
	parcel VARCHAR(100) NOT NULL -- the number, or ''
)`

// A Reader is a storefront.OrderReader whose orders have a state, and perhaps a parcel.
type Reader struct {
	Orders storefront.OrderReader // whose orders they are is for it to say
	DB     *sql.DB                // which has the table
	MySQL  bool                   // it is MySQL or MariaDB
}

// GetOrder implements storefront.OrderReader.
func (r *Reader) GetOrder(ctx context.Context, scope, id string) (storefront.Resource, error) {
	order, err := r.Orders.GetOrder(ctx, scope, id)
	return r.withState(ctx, order, err)
}

// GetOrderByKey implements storefront.OrderReader.
func (r *Reader) GetOrderByKey(ctx context.Context, scope, key string) (storefront.Resource, error) {
	order, err := r.Orders.GetOrderByKey(ctx, scope, key)
	return r.withState(ctx, order, err)
}

func (r *Reader) withState(
	ctx context.Context, order storefront.Resource, err error,
) (storefront.Resource, error) {
	if err != nil {
		return order, err
	}
	orders, err := r.withStates(ctx, []storefront.Resource{order})
	if err != nil {
		return order, err
	}
	return orders[0], nil
}

// ListOrders implements storefront.OrderReader.
func (r *Reader) ListOrders(
	ctx context.Context, scope, after string, limit int,
) ([]storefront.Resource, error) {
	orders, err := r.Orders.ListOrders(ctx, scope, after, limit)
	if err != nil || len(orders) == 0 {
		return nil, err
	}
	return r.withStates(ctx, orders)
}

// A state is what is added to an order.
type state struct {
	State  string `json:"state"`
	Parcel string `json:"parcel,omitempty"`
}

// withStates adds the states of orders, of which there is at least one.
func (r *Reader) withStates(
	ctx context.Context, orders []storefront.Resource,
) ([]storefront.Resource, error) {
	var in []string
	var ids []any
	for i, order := range orders {
		placeholder := "?"
		if !r.MySQL {
			placeholder = fmt.Sprint("$", i+1)
		}
		in, ids = append(in, placeholder), append(ids, order.ID())
	}
	rows, err := r.DB.QueryContext(ctx, `SELECT order_id, state, parcel FROM order_states
		WHERE order_id IN (`+strings.Join(in, ", ")+`)`, ids...)
	if err != nil {
		return nil, failed(ctx, err)
	}
	defer rows.Close()
	states := make(map[string]state)
	for rows.Next() {
		var id string
		var s state
		if err := rows.Scan(&id, &s.State, &s.Parcel); err != nil {
			return nil, failed(ctx, err)
		}
		states[id] = s
	}
	if err := rows.Err(); err != nil { // without this, a lost connection would take states back
		return nil, failed(ctx, err)
	}
	with := make([]storefront.Resource, len(orders))
	for i, order := range orders {
		s, ok := states[order.ID()]
		if !ok {
			s.State = "received"
		}
		if with[i], err = order.With(s); err != nil {
			return nil, err
		}
	}
	return with, nil
}

// failed returns the error of a query that is known to be right, so that what is wrong
// is most likely the database, and passes: the answer is 503.
func failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
}
