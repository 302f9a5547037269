package sqlstore

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// An engine is a kind of database: what is sent to it where kinds differ, and how
// it likes its work.
type engine struct {
	users, product, widgets string // a list, one by its ID, and a list

	// insert inserts an order, unless its key is taken.
	insert string

	// orderOf reads the order of a key. It does not return before that order is as
	// durable as a new one.
	orderOf string

	// now reads the clock, in milliseconds since 1970-01-01 00:00:00 UTC.
	now string

	// commits is how many commits of orders are best under way at the same time.
	commits int

	// oneWriter says that there is one transaction that writes at a time. Orders
	// that share a commit are then inserted one by one, with whatever Options.Accept
	// does, as nobody else could write meanwhile. Otherwise, one statement inserts
	// all of them, and with Accept, each order has a transaction of its own, which
	// no other order's locks and conflicts can hold up.
	oneWriter bool

	// prepares says that preparing a statement costs more than a part of running
	// it, and that connections are nothing that poolers between here and there
	// change and that are to be told apart.
	prepares bool
}

func postgreSQL() *engine {
	return &engine{
		users:   `SELECT id, body FROM storefront_users WHERE id > $1 ORDER BY id LIMIT $2`,
		product: `SELECT id, body FROM storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM storefront_widgets WHERE id >= $1 ORDER BY id LIMIT $2`,
		insert:  insertOrders(1),
		// The lock is there to write and thus to commit. A mere read would see an
		// order whose commit still waits for a synchronous standby after the
		// connection was lost, and answering with an order that may yet be lost in
		// a fail-over would be a false promise. The commit of a write waits for all
		// before it. An UPDATE would do, too, but for triggers and dead rows.
		orderOf: `SELECT id, item, qty, created_ms, fingerprint FROM storefront_orders WHERE key_hash = $1 FOR NO KEY UPDATE`,
		now:     `SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)`,
		commits: 4, // one round trip and flush each; more are slower than more orders in each
	}
}

func sqlite() *engine {
	return &engine{
		// For a bare $2, it would plan anew each time that one is bound.
		users:   `SELECT id, body FROM storefront_users WHERE id > $1 ORDER BY id LIMIT +$2`,
		product: `SELECT id, body FROM storefront_products WHERE id = $1`,
		widgets: `SELECT id, body FROM storefront_widgets WHERE id >= $1 ORDER BY id LIMIT +$2`,
		insert:  insertOrders(1),
		// What can be seen is on the disk.
		orderOf:   `SELECT id, item, qty, created_ms, fingerprint FROM storefront_orders WHERE key_hash = $1`,
		now:       `SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`,
		commits:   1,
		oneWriter: true,
		prepares:  true,
	}
}

// ask returns what kind of database conn leads to.
func ask(ctx context.Context, conn *sql.Conn) (*engine, error) {
	var version string
	err := conn.QueryRowContext(ctx, `SELECT version()`).Scan(&version)
	switch {
	case err == nil:
		return postgreSQL(), nil // or what speaks its SQL
	case strings.Contains(err.Error(), "no such function"):
		return sqlite(), nil
	}
	return nil, err
}

// insertOrders returns the statement that inserts n orders, each with the arguments
// that proposal.row returns, but none whose key is taken.
func insertOrders(n int) string {
	return `INSERT INTO storefront_orders (id, item, qty, created_ms, scope, key_hash, fingerprint) VALUES ` +
		placeholders(n, 7) + ` ON CONFLICT (key_hash) DO NOTHING`
}

// placeholders returns those of rows with as many columns, such as ($1, $2), ($3, $4).
func placeholders(rows, columns int) string {
	var b strings.Builder
	for i := range rows * columns {
		switch {
		case i == 0:
			b.WriteString("(")
		case i%columns == 0:
			b.WriteString("), (")
		default:
			b.WriteString(", ")
		}
		b.WriteString("$" + strconv.Itoa(i+1))
	}
	b.WriteString(")")
	return b.String()
}
