// Package outbox publishes every order that was created, and none that was not.
// The event is written in the transaction of the order, into the table outbox, and
// published from there, at least once: who receives events tells those that come
// twice by the order's ID. Copy this file, and give the event what your receivers
// need.
//
//	store := sqlstore.New(db, &sqlstore.Options{Accept: outbox.Record})
//
// Any number of programs may publish, the one that serves or others:
//
//	for ctx.Err() == nil {
//		n, err := outbox.PublishPostgres(ctx, db, send)
//		if err != nil {
//			slog.Warn("events are late", slog.Any("error", err))
//		}
//		if err != nil || n == 0 {
//			time.Sleep(time.Second)
//		}
//	}
package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"example.com/storefront"
)

// The statements that make the table. A position is never used again, not even
// when its event was the last one and is deleted: a publisher that is late would
// delete another event than it has published. In SQLite, that takes AUTOINCREMENT.
const (
	PostgresTable = `CREATE TABLE IF NOT EXISTS outbox (position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event TEXT NOT NULL)`
	SQLiteTable   = `CREATE TABLE IF NOT EXISTS outbox (position INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL)`
)

// Record writes the event of an order. It is an Accept for sqlstore.Options, or
// the last part of one.
func Record(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
	event, err := json.Marshal(order)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO outbox (event) VALUES ($1)`, string(event))
	return err
}

// PublishPostgres publishes the oldest events, up to 100 of them, and returns how
// many. It holds them in a transaction, so that publishers that run at the same
// time pass them over and publish others; one that is killed lets go of them.
func PublishPostgres(ctx context.Context, db *sql.DB, send func(ctx context.Context, event string) error) (int, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	n, err := publish(ctx, tx, `SELECT position, event FROM outbox ORDER BY position LIMIT 100 FOR UPDATE SKIP LOCKED`, send)
	return n, errors.Join(err, tx.Commit())
}

// PublishSQLite is the same for SQLite, where a transaction would keep orders from
// being created while it lasts. Publishers that run at the same time publish the
// same events, so run one.
func PublishSQLite(ctx context.Context, db *sql.DB, send func(ctx context.Context, event string) error) (int, error) {
	return publish(ctx, db, `SELECT position, event FROM outbox ORDER BY position LIMIT 100`, send)
}

// publish sends the events that a query returns, and deletes them afterwards: if
// the program ends in between, they are sent again. It deletes these very ones and
// not all up to the last, as positions are given before the commit: one that is
// smaller may appear later.
func publish(ctx context.Context, db interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, send func(ctx context.Context, event string) error) (int, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var positions []int64
	var events []string
	for rows.Next() {
		var position int64
		var event string
		if err := rows.Scan(&position, &event); err != nil {
			return 0, err
		}
		positions, events = append(positions, position), append(events, event)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}

	var sent []string
	var failed error
	for i, event := range events {
		if failed = send(ctx, event); failed != nil {
			failed = fmt.Errorf("outbox: the event at %d: %w", positions[i], failed)
			break
		}
		sent = append(sent, strconv.FormatInt(positions[i], 10))
	}
	if len(sent) > 0 {
		if _, err := db.ExecContext(ctx, `DELETE FROM outbox WHERE position IN (`+strings.Join(sent, ", ")+`)`); err != nil {
			return len(sent), errors.Join(failed, err)
		}
	}
	return len(sent), failed
}
