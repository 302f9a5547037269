// Command durable serves a shop from a database: a SQLite file, PostgreSQL, or MySQL
// or MariaDB. It is cmd/storefront with a store that keeps the orders. To begin your own
// program, copy all files of this folder except the tests. To leave a database out, delete its
// file and its case in open. docs/operations.md of the repository says how to run it.
//
// Usage:
//
//	durable [-addr host:port] [-data shop.json] [-db file|url] [-shutdown-delay duration]
//
// The database is a SQLite file, which is made if it is not there, or a URL of one or
// several servers:
//
//	durable -db shop.db
//	durable -db postgres://shop@db1,db2/shop
//	durable -db mysql://shop@db1,db2:3307,db3/shop
//
// A password is better given in a file (see PGPASSFILE in PostgreSQL's manual) or, for
// MySQL, in the environment variable MYSQL_PWD than in the URL, where its special
// characters have to be escaped, such as / as %2F. Any number of durables may share a
// database. They may also share a SQLite file, on one machine.
//
// Open its address in a browser to try it.
//
// At startup, it puts the users, products and widgets in the file of -data into the
// database, in place of those with the same IDs. Without -data, it serves the database as it
// is, and puts the sample shop into one that is empty.
//
// It waits for up to 30 seconds for a database that does not answer yet, or has no
// primary, and then listens. On SIGINT or SIGTERM it finishes the requests in flight, for
// up to a minute, and exits; a second signal ends it at once. The exit status is 2 for a
// bad flag or file and 1 for any other failure.
//
// # Probes
//
// For balancers and supervisors there are two paths beside those of the service, by GET
// and HEAD:
//
//   - /livez is 200 as long as the process serves.
//   - /readyz is 200 if an order could be created now, and 503 if not, or if that is not
//     known within 2 seconds. Its answer may be a second old. The log has the reason of a
//     503, once.
//
// On SIGTERM, /readyz is 503 for the time of -shutdown-delay, 10 seconds unless it is
// set, while everything is served as before, but each answer closes its connection. Only then
// durable stops listening, so a balancer that asks often enough sends it no request that would
// be refused, and a client that sends anything in that time has no connection that would break.
// On SIGINT, as from a terminal, it does not wait.
//
// # Several servers
//
// Of the servers in a URL, durable uses one that takes orders. When that server does not take
// orders any more, all connections move to the next one that does, within a few seconds. Give
// each server its own name: if a name has several addresses, the driver chooses.
//
// PostgreSQL: the server must not be read-only, and must commit. A primary that has
// lost its synchronous standby, perhaps because the standby is the primary now, is used for
// reads only, until there is a better one. With target_session_attrs=any, or any other value
// than read-write and primary, the driver chooses, and nothing of this applies.
// default_transaction_read_only=on, for the role or the database, is an error.
//
// MySQL and MariaDB: read_only must be off. The store refuses a Galera cluster. durable
// does not notice a primary whose commits hang for other reasons, such as one in the
// minority of a group replication. The parameters of the URL are those of
// github.com/go-sql-driver/mysql, such as tls=true, and system variables.
//
// # SQLite
//
// Only its owner may read a new file. durable writes nothing while the disk has less room than
// the write-ahead log takes: otherwise, a reader that keeps the log from being emptied could
// fill the disk for good. The file belongs on a local disk and not on a network file system. If
// the name is a symbolic link, all of this is true of the file that it leads to.
//
// The settings are given as _pragma, which all versions of modernc.org/sqlite know. The shorter
// forms, such as _journal_mode, need version 1.55.0: earlier versions ignore them, so that
// orders would not be on the disk when they are acknowledged.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/storefront"
	"example.com/storefront/explorer"
	"example.com/storefront/graceful"
	"example.com/storefront/internal/demo"
	"example.com/storefront/sqlstore"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "`host:port` to listen on")
	data := flag.String("data", "", "JSON `file` to put into the database")
	name := flag.String("db", "storefront.db", "SQLite `file`, or URL of PostgreSQL or MySQL servers")
	delay := flag.Duration("shutdown-delay", 10*time.Second, "`time` from SIGTERM, when /readyz fails, until it stops listening")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(2, errors.New("unexpected argument: is -db or -data missing?")) // it may be a URL with a password
	}
	if err := demo.CheckAddr(*addr); err != nil {
		fail(2, err)
	}
	if *delay < 0 {
		fail(2, fmt.Errorf("-shutdown-delay %v is negative", *delay))
	}
	shop, err := demo.Load(*data)
	if err != nil {
		fail(2, err)
	}
	db, maintain, err := open(*name)
	if err != nil {
		fail(2, err)
	}
	ctx, stop := graceful.NotifyContext(context.Background())
	defer stop()
	store := sqlstore.New(db, nil)
	// Until the last request in flight is finished.
	serving, end := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { maintain(serving) })
	product, err := prepare(ctx, db, store, shop, *data == "")
	if err == nil {
		background.Go(func() { forgetKeys(serving, store) })
		err = serve(ctx, *addr, *delay, store, product)
	} else if errors.Is(err, context.Canceled) { // asked to end while it waited
		err = nil
	}
	end()
	background.Wait()
	if err = errors.Join(err, db.Close()); err != nil {
		fail(1, err)
	}
}

func fail(status int, err error) {
	fmt.Fprintln(os.Stderr, "durable:", err)
	os.Exit(status)
}

// open returns the database, which need not answer yet, and a function that maintains it
// until its context is done.
func open(name string) (db *sql.DB, maintain func(context.Context), err error) {
	maintain = func(context.Context) {}
	scheme, _, isURL := strings.Cut(name, "://")
	switch {
	case scheme == "postgres" || scheme == "postgresql":
		db, err = openPostgres(name)
	case scheme == "mysql" || scheme == "mariadb":
		db, err = openMySQL(name)
	case isURL:
		err = fmt.Errorf("-db: %s is neither postgres nor mysql nor a file", scheme)
	// It may have a password, which is not for a file's name.
	case strings.HasPrefix(name, "postgres:"), strings.HasPrefix(name, "postgresql:"), strings.Contains(name, "host="):
		err = errors.New("-db: PostgreSQL is named by a URL: postgres://user@host/database")
	case strings.HasPrefix(name, "mysql:"), strings.HasPrefix(name, "mariadb:"), strings.Contains(name, "@tcp("):
		err = errors.New("-db: MySQL is named by a URL: mysql://user@host/database")
	case name == "":
		err = errors.New("-db: no database is named")
	default:
		var file *sqliteFile
		db, file, err = openSQLite(name)
		maintain = func(ctx context.Context) { file.checkpoint(ctx, db) }
	}
	return db, maintain, err
}

// prepare makes the tables and puts the shop into them, or only if nothing is in
// them if onlyIfNew is set. It returns the ID of a product that they have, for an
// example.
func prepare(ctx context.Context, db *sql.DB, store *sqlstore.Store, shop *storefront.MemStore, onlyIfNew bool) (product string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err = db.PingContext(ctx); err != nil && ctx.Err() == nil && !isLasting(err) {
		slog.Warn("waiting for the database", slog.Any("error", err))
	}
	for !isLasting(err) {
		product, err = fill(ctx, db, store, shop, onlyIfNew)
		switch {
		case err == nil:
			return product, nil
		case ctx.Err() != nil:
			return "", fmt.Errorf("the database does not answer: %w", err)
		case !errors.Is(err, storefront.ErrUnavailable): // such as a wrong password
			return "", err
		}
	}
	return "", err
}

// isLasting reports whether err says that a primary is there and has been told to be
// read-only: it is no use to wait for another one.
func isLasting(err error) bool {
	_, ok := errors.AsType[*readOnlySetting](err)
	return ok
}

func fill(ctx context.Context, db *sql.DB, store *sqlstore.Store, shop *storefront.MemStore, onlyIfNew bool) (product string, err error) {
	if err := store.Migrate(ctx); err != nil {
		return "", err
	}
	put := !onlyIfNew
	if onlyIfNew {
		row := db.QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT 1 FROM storefront_users) AND NOT EXISTS (SELECT 1 FROM storefront_products)
			AND NOT EXISTS (SELECT 1 FROM storefront_widgets) AND NOT EXISTS (SELECT 1 FROM storefront_orders)`)
		if err := row.Scan(&put); err != nil {
			return "", lost(err)
		}
	}
	if put {
		err := errors.Join(
			store.Users.Put(ctx, slices.Collect(shop.Users.All())...),
			store.Products.Put(ctx, slices.Collect(shop.Products.All())...),
			store.Widgets.Put(ctx, slices.Collect(shop.Widgets.All())...))
		if err != nil {
			return "", err
		}
	}
	return exampleProduct(ctx, db)
}

// exampleProduct returns the ID of a product for examples, or "" if there is none that
// can be requested.
func exampleProduct(ctx context.Context, db *sql.DB) (string, error) {
	rows, err := db.QueryContext(ctx, `SELECT id FROM storefront_products ORDER BY id LIMIT 4`) // three IDs cannot be
	if err != nil {
		return "", lost(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return "", lost(err)
		}
		if demo.CanBeRequested(id) {
			return id, nil
		}
	}
	if err := rows.Err(); err != nil {
		return "", lost(err)
	}
	return "", nil
}

// lost marks err as temporary: the database answered a moment ago, so it is gone.
func lost(err error) error { return fmt.Errorf("%w: %w", storefront.ErrUnavailable, err) }

// forgetKeys forgets the keys that are too old, every hour until ctx is done.
func forgetKeys(ctx context.Context, store *sqlstore.Store) {
	const margin = time.Hour // for the clocks of replicas, which may differ
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		_, err := store.ForgetKeys(ctx, time.Now().Add(-storefront.KeyLifetime-margin))
		if err != nil && ctx.Err() == nil {
			slog.Warn("keys are not forgotten; next try in an hour", slog.Any("error", err))
		}
		select {
		case <-hourly.C:
		case <-ctx.Done():
			return
		}
	}
}

// serve serves the store until ctx is done.
func serve(ctx context.Context, addr string, delay time.Duration, store *sqlstore.Store, product string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	page := explorer.HandlerWithOptions("", &explorer.Options{Product: product})
	server := &http.Server{Handler: demo.WithExplorer(storefront.New(store), page)}
	demo.TryThis(os.Stdout, listener.Addr(), product)
	return graceful.Serve(ctx, server, listener, &graceful.Options{Check: store.Check, Delay: delay, Progress: os.Stdout})
}
