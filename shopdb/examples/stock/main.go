// Command stock sells what is in stock and not a piece more, and leaves an event
// of each order to publish. It shows how a program decides about orders, and
// writes what belongs to them, in their own transactions.
//
// Usage:
//
//	stock [-addr host:port] [-db file|url]
//
// The database is a SQLite file, or a URL of servers of PostgreSQL, MySQL or MariaDB, as for
// storefrontd. Any number of stocks may share it. It needs these tables, the second as in the
// example outbox, which publishes the events. In MySQL, item is VARBINARY(1020), which takes no
// TEAPOT for a teapot:
//
//	CREATE TABLE stock (item VARCHAR(255) NOT NULL PRIMARY KEY, pieces BIGINT NOT NULL);
//	CREATE TABLE outbox (…);
//	INSERT INTO stock VALUES ('teapot', 10);
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"strings"

	"example.com/storefront"
	"example.com/storefront/shopdb"
	"example.com/storefront/shopdb/mysql"
	"example.com/storefront/shopdb/postgres"
	"example.com/storefront/shopdb/sqlite"
	"example.com/storefront/sqlstore"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "`host:port` to listen on")
	name := flag.String("db", "stock.db", "SQLite `file`, or PostgreSQL or MySQL URL")
	flag.Parse()
	db, seller, err := open(*name)
	if err != nil {
		log.Fatal(err)
	}
	store := sqlstore.New(db.DB, &sqlstore.Options{Accept: seller.accept})
	if err := store.Migrate(context.Background()); err != nil {
		log.Fatal(err)
	}
	// For what else a program that serves should have, see docs/embedding.md.
	log.Fatal(http.ListenAndServe(*addr, storefront.New(store)))
}

// A seller decides about orders.
type seller struct {
	take   string // the statement that takes pieces of an item out of the stock, if there are so many
	record string // the statement that writes an event
}

// accept decides about an order that is about to be created. What it writes is
// there if and only if the order is, so it may be called again for the same order
// without any harm.
func (s seller) accept(
	ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order,
) error {
	// Look and take in one statement: a SELECT before it would see what another
	// order is just about to take.
	taken, err := tx.ExecContext(ctx, s.take, order.Qty, order.Item, order.Qty)
	if err != nil {
		return err
	}
	if n, err := taken.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		const detail = "There are not enough pieces left."
		return &storefront.Refusal{Reason: "sold-out", Detail: detail, Pointer: "#/item"}
	}
	event, err := json.Marshal(order)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, s.record, string(event))
	return err
}

// open opens the database with a name, and returns who sells in it.
func open(name string) (*shopdb.DB, seller, error) {
	s := seller{
		take:   `UPDATE stock SET pieces = pieces - $1 WHERE item = $2 AND pieces >= $3`,
		record: `INSERT INTO outbox (event) VALUES ($1)`,
	}
	var db *shopdb.DB
	var err error
	switch scheme, _, _ := strings.Cut(name, "://"); scheme {
	case "postgres", "postgresql":
		db, err = postgres.Open(name, nil)
	case "mysql", "mariadb":
		s = seller{
			take:   `UPDATE stock SET pieces = pieces - ? WHERE item = ? AND pieces >= ?`,
			record: `INSERT INTO outbox (event) VALUES (?)`,
		}
		db, err = mysql.Open(name, nil)
	default:
		db, err = sqlite.Open(name, nil)
	}
	return db, s, err
}
