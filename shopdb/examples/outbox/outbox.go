// Package outbox publishes every order that was created, and none that was not.
// The event is written in the transaction of the order, into the table outbox, and
// published from there, at least once: who receives events tells those that come
// twice by the order's ID. Copy this file, and give the event what your receivers
// need.
//
//	store := sqlstore.New(db, &sqlstore.Options{Accept: outbox.Record}) // RecordMySQL for MySQL and MariaDB
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
// delete another event than it has published. In SQLite, that takes AUTOINCREMENT; in
// MySQL, release 8.0 (MariaDB 10.2), as earlier ones forget positions in a restart. In PostgreSQL, programs that
// start at once must take turns, or IF NOT EXISTS fails: the lock, for which no order waits, ends with the
// statements, if they are sent at once.
const (
	PostgresTable = `LOCK TABLE storefront_schema IN SHARE UPDATE EXCLUSIVE MODE;
		CREATE TABLE IF NOT EXISTS outbox (
		position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event TEXT NOT NULL)`
	SQLiteTable = `CREATE TABLE IF NOT EXISTS outbox (
		position INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL)`
	MySQLTable = `CREATE TABLE IF NOT EXISTS outbox (
		position BIGINT AUTO_INCREMENT PRIMARY KEY, event LONGTEXT NOT NULL)
		ENGINE = InnoDB CHARACTER SET utf8mb4`
)

// Record writes the event of an order, in PostgreSQL and SQLite. It is an Accept for
// sqlstore.Options, or the last part of one.
func Record(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
	return record(ctx, tx, `INSERT INTO outbox (event) VALUES ($1)`, order)
}

// RecordMySQL is Record for MySQL and MariaDB.
func RecordMySQL(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
	return record(ctx, tx, `INSERT INTO outbox (event) VALUES (?)`, order)
}

func record(ctx context.Context, tx *sql.Tx, insert string, order storefront.Order) error {
	event, err := json.Marshal(order)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, insert, string(event))
	return err
}

// PublishPostgres publishes the oldest events, up to 100 of them, and returns how
// many. It holds them in a transaction, so that publishers that run at the same
// time pass them over and publish others; one that is killed lets go of them.
func PublishPostgres(ctx context.Context, db *sql.DB,
	send func(ctx context.Context, event string) error) (int, error) {
	return publishInTx(ctx, db, nil, atOnce, send)
}

// PublishMySQL is the same for MySQL since 8.0 and MariaDB since 10.6. In a group with several
// primaries, publishers pass over only what others on the same member hold: run them on one,
// or some events are published several times.
func PublishMySQL(ctx context.Context, db *sql.DB,
	send func(ctx context.Context, event string) error) (int, error) {
	// At the default level, REPEATABLE READ, the locks are also on what is not there
	// yet, and orders would wait for the publisher.
	return publishInTx(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, oneByOne, send)
}

// atOnce returns the statement that deletes events.
func atOnce(positions []string) []string {
	return []string{`DELETE FROM outbox WHERE position IN (` + strings.Join(positions, ", ") + `)`}
}

// oneByOne is for MySQL, which may look for several by reading the whole table, and
// then waits for all the locks that there are on others.
func oneByOne(positions []string) (statements []string) {
	for _, position := range positions {
		statements = append(statements, `DELETE FROM outbox WHERE position = `+position)
	}
	return statements
}

func publishInTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, remove func([]string) []string,
	send func(ctx context.Context, event string) error) (int, error) {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	n, err := publish(ctx, tx,
		`SELECT position, event FROM outbox ORDER BY position LIMIT 100 FOR UPDATE SKIP LOCKED`, remove, send)
	return n, errors.Join(err, tx.Commit())
}

// PublishSQLite is the same for SQLite, where a transaction would keep orders from
// being created while it lasts. Publishers that run at the same time publish the
// same events, so run one.
func PublishSQLite(ctx context.Context, db *sql.DB,
	send func(ctx context.Context, event string) error) (int, error) {
	return publish(ctx, db, `SELECT position, event FROM outbox ORDER BY position LIMIT 100`, atOnce, send)
}

// publish sends the events that a query returns, and deletes them afterwards: if
// the program ends in between, they are sent again. It deletes these very ones and
// not all up to the last, as positions are given before the commit: one that is
// smaller may appear later.
func publish(ctx context.Context, db interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, remove func(positions []string) (statements []string),
	send func(ctx context.Context, event string) error) (int, error) {
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
		for _, statement := range remove(sent) {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return len(sent), errors.Join(failed, err)
			}
		}
	}
	return len(sent), failed
}
