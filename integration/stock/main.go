// Command stock sells what is in stock and not a piece more, and leaves an event
// of each order to publish. It shows how a program decides about orders, and
// writes what belongs to them, in their own transactions.
//
// Usage:
//
//	stock [-addr host:port] [-db file|url]
//
// The database is a SQLite file or a PostgreSQL URL, as for integration/durable.
// Any number of stocks may share it. It needs these tables, the second as in
// integration/outbox:
//
//	CREATE TABLE stock (item VARCHAR(255) NOT NULL PRIMARY KEY, pieces BIGINT NOT NULL);
//	CREATE TABLE outbox (…);
//	INSERT INTO stock VALUES ('teapot', 10);
package main

import (
	"context"
	"database/sql"
	"flag"
	"log"
	"net/http"
	"net/url"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"example.com/storefront"
	"example.com/storefront/integration/outbox"
	"example.com/storefront/sqlstore"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "`host:port` to listen on")
	name := flag.String("db", "stock.db", "SQLite `file` or PostgreSQL URL")
	flag.Parse()
	db, err := open(*name)
	if err != nil {
		log.Fatal(err)
	}
	store := sqlstore.New(db, &sqlstore.Options{Accept: accept})
	if err := store.Migrate(context.Background()); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(*addr, storefront.New(store)))
}

// accept decides about an order that is about to be created. What it writes is
// there if and only if the order is, so it may be called again for the same order
// without any harm.
func accept(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, order storefront.Order) error {
	// Look and take in one statement: a SELECT before it would see what another
	// order is just about to take.
	taken, err := tx.ExecContext(ctx, `UPDATE stock SET pieces = pieces - $1 WHERE item = $2 AND pieces >= $1`, order.Qty, order.Item)
	if err != nil {
		return err
	}
	if n, err := taken.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return &storefront.Refusal{Reason: "sold-out", Detail: "There are not enough pieces left.", Pointer: "#/item"}
	}
	return outbox.Record(ctx, tx, key, order)
}

// open returns the database. For what its settings are about, and what else a
// program that serves should set, see integration/durable.
func open(name string) (*sql.DB, error) {
	driver, connections := "pgx", 20
	if !strings.HasPrefix(name, "postgres://") {
		driver, connections = "sqlite", 4
		name = (&url.URL{Scheme: "file", Opaque: url.PathEscape(name), RawQuery: "_journal_mode=WAL&_synchronous=FULL&_busy_timeout=100"}).String()
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}
