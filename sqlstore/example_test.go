package sqlstore_test

import (
	"context"
	"database/sql"
	"log"
	"net/http"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// Accept takes the pieces out of the stock and writes an event for the outbox, in the
// transaction that creates the order.
func ExampleOptions() {
	db, err := sql.Open("pgx", "postgres://shop@db1,db2/shop?target_session_attrs=read-write&connect_timeout=3")
	if err != nil {
		log.Fatal(err)
	}
	store := sqlstore.New(db, &sqlstore.Options{
		Accept: func(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
			taken, err := tx.ExecContext(ctx, `UPDATE stock SET pieces = pieces - $1 WHERE item = $2 AND pieces >= $1`, order.Qty, order.Item)
			if err != nil {
				return err
			}
			if rows, err := taken.RowsAffected(); err != nil {
				return err
			} else if rows == 0 {
				return &storefront.Refusal{Reason: "sold-out", Detail: "There are too few of these left.", Pointer: "#/item"}
			}
			_, err = tx.ExecContext(ctx, `INSERT INTO outbox (order_id) VALUES ($1)`, order.ID)
			return err
		},
	})
	log.Fatal(http.ListenAndServe(":8080", storefront.New(store)))
}
