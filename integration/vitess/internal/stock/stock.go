// Package stock sells what is in stock, as shopdb/examples/stock does, in a keyspace of several shards.
package stock

import (
	"context"
	"database/sql"
	"encoding/json"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// Tables make the tables. An item has pieces at each of 16 places, and so in each of up to 16 shards.
var Tables = []string{
	`CREATE TABLE stock (place BINARY(1) NOT NULL, item VARBINARY(1020) NOT NULL, pieces BIGINT NOT NULL,
		PRIMARY KEY (place, item))`,
	`CREATE TABLE outbox (place BINARY(8) NOT NULL, order_id VARCHAR(255) NOT NULL, event LONGTEXT NOT NULL,
		PRIMARY KEY (place, order_id))`,
}

// Accept takes pieces out of the stock that is in the order's shard, and leaves an event there.
func Accept(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, order storefront.Order) error {
	place := sqlstore.Place(key)
	const take = `UPDATE stock SET pieces = pieces - ? WHERE place = ? AND item = ? AND pieces >= ?`
	taken, err := tx.ExecContext(ctx, take, order.Qty, []byte{place[0] & 0xf0}, order.Item, order.Qty)
	if err != nil {
		return err
	}
	if n, err := taken.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return &storefront.Refusal{Reason: "sold-out", Detail: "There are not enough pieces left.",
			Pointer: "#/item"}
	}
	event, err := json.Marshal(order)
	if err != nil {
		return err
	}
	const record = `INSERT INTO outbox (place, order_id, event) VALUES (?, ?, ?)`
	_, err = tx.ExecContext(ctx, record, place[:], order.ID, string(event))
	return err
}
