// Package drafts keeps drafts of package client in a database of the program that orders, so that an
// order is placed if and only if the program's own transaction commits. The statements are for
// PostgreSQL and SQLite.
package drafts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/storefront/client"
)

// Table makes the table. What is ordered may wait for long before its first try, as when the program does
// not run: it gets a draft right before that, as a draft is sent for client.Lifetime. The drafts are of one
// shop and one account: for several, add both as columns, and send what is theirs.
const Table = `CREATE TABLE drafts (
	id TEXT PRIMARY KEY, -- the program's own
	item TEXT NOT NULL,
	qty BIGINT NOT NULL,
	draft TEXT,
	order_id TEXT
)`

// Keep keeps what is ordered, in the transaction in which the program decides that.
func Keep(ctx context.Context, tx *sql.Tx, id, item string, qty int64) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO drafts (id, item, qty) VALUES ($1, $2, $3)", id, item, qty)
	return err
}

// Send sends what has no order yet, and stores the orders. A program calls it when it
// starts, after each commit, and from time to time. Several may do so at once: a draft that two of them
// send is still one order. Some are sent at a time, and any first, so that those which fail hold up no
// other for long, however soon ctx ends. The error joins those of all.
func Send(ctx context.Context, db *sql.DB, shop *client.Client) error {
	all, err := waiting(ctx, db)
	if err != nil {
		return err
	}
	s := &sender{db: db, shop: shop}
	errs := make([]error, len(all))
	places := make(chan struct{}, 16)
	var sending sync.WaitGroup
	for i, w := range all {
		places <- struct{}{}
		sending.Go(func() {
			defer func() { <-places }()
			errs[i] = s.send(ctx, w)
		})
	}
	sending.Wait()
	return errors.Join(errs...)
}

type waits struct {
	id, item string
	qty      int64
	draft    sql.NullString
}

func waiting(ctx context.Context, db *sql.DB) (all []waits, err error) {
	rows, err := db.QueryContext(ctx,
		"SELECT id, item, qty, draft FROM drafts WHERE order_id IS NULL ORDER BY random()")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var w waits
		if err := rows.Scan(&w.id, &w.item, &w.qty, &w.draft); err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, rows.Err()
}

type sender struct {
	db   *sql.DB
	shop *client.Client
	mu   sync.Mutex // SQLite has one writer at a time
}

func (s *sender) exec(ctx context.Context, statement string, args ...any) (sql.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.ExecContext(ctx, statement, args...)
}

func (s *sender) send(ctx context.Context, w waits) error {
	draft := client.NewDraft(w.item, w.qty)
	if w.draft.Valid {
		if err := draft.UnmarshalText([]byte(w.draft.String)); err != nil {
			return err
		}
	} else { // it is stored before its first try
		text, err := draft.MarshalText()
		if err != nil {
			return err
		}
		result, err := s.exec(ctx, "UPDATE drafts SET draft = $1 WHERE id = $2 AND draft IS NULL",
			string(text), w.id)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); n == 0 || err != nil {
			return err // another sends it
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // the rest is for the next Send
	defer cancel()
	order, err := s.shop.Order(ctx, draft)
	if err != nil {
		return err // after a RefusedError, a program may delete the row, once no other Send has read it
	}
	result, err := s.exec(ctx, "UPDATE drafts SET order_id = $1 WHERE id = $2", order.ID, w.id)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = fmt.Errorf("drafts: %s is the order %s, and its row was deleted before that was known", w.id, order.ID)
	}
	return err
}
