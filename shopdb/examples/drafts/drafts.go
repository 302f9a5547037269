// Package drafts keeps drafts of package client in a database of the program that orders, so that an
// order is placed if and only if the program's own transaction commits. The statements are for
// PostgreSQL and SQLite.
package drafts

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"example.com/storefront/client"
)

// Table makes the table. A row without an order is a draft whose order is still to come.
const Table = `CREATE TABLE drafts (
	idempotency_key TEXT PRIMARY KEY,
	draft TEXT NOT NULL,
	order_id TEXT
)`

// Keep keeps a draft, in the transaction in which the program decides that it orders.
func Keep(ctx context.Context, tx *sql.Tx, draft *client.Draft) error {
	text, err := draft.MarshalText()
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO drafts (idempotency_key, draft) VALUES ($1, $2)", draft.Key(),
		string(text))
	return err
}

// Send sends the drafts that have no order yet, and stores the orders. A program calls it when it
// starts, after each commit, and from time to time. Several may do so at once: a draft that two of them
// send is still one order. The error joins those of all drafts.
func Send(ctx context.Context, db *sql.DB, shop *client.Client) error {
	texts, err := waiting(ctx, db)
	if err != nil {
		return err
	}
	for _, text := range texts {
		err = errors.Join(err, send(ctx, db, shop, text))
	}
	return err
}

func waiting(ctx context.Context, db *sql.DB) (texts []string, err error) {
	rows, err := db.QueryContext(ctx, "SELECT draft FROM drafts WHERE order_id IS NULL")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, rows.Err()
}

func send(ctx context.Context, db *sql.DB, shop *client.Client, text string) error {
	draft := new(client.Draft)
	if err := draft.UnmarshalText([]byte(text)); err != nil {
		return err
	}
	if draft.Begin() { // the time of the first try is stored before it
		begun, err := draft.MarshalText()
		if err != nil {
			return err
		}
		result, err := db.ExecContext(ctx,
			"UPDATE drafts SET draft = $1 WHERE idempotency_key = $2 AND draft = $3",
			string(begun), draft.Key(), text)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); n == 0 || err != nil {
			return err // another has begun it
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // so that one which fails holds up few
	defer cancel()
	order, err := shop.Order(ctx, draft)
	if err != nil {
		return err // a program that wants the draft no more after a RefusedError deletes its row
	}
	_, err = db.ExecContext(ctx, "UPDATE drafts SET order_id = $1 WHERE idempotency_key = $2",
		order.ID, draft.Key())
	return err
}
