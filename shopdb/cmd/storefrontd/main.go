// Command storefrontd serves a shop from a database: a SQLite file, PostgreSQL, or MySQL
// or MariaDB. It is cmd/storefront with a store that keeps the orders. The packages below
// shopdb open the database; docs/operations.md of the repository says how to run it.
//
// Usage:
//
//	storefrontd [-addr host:port] [-data shop.json | -sample] [-db file|url] [-must-exist] [-fields]
//		[-metrics-addr host:port] [-shutdown-delay duration]
//
// The database is a SQLite file, or a URL of one or several servers, of which storefrontd uses the
// one that takes orders:
//
//	storefrontd -db shop.db
//	storefrontd -db postgres://shop@db1,db2/shop
//	storefrontd -db mysql://shop@db1,db2:3307,db3/shop
//
// The packages shopdb/sqlite, postgres and mysql say where a password goes, what is asked of each server,
// and what storefrontd does for a SQLite file and its disk. Any number of storefrontds may share a database.
// They may also share a SQLite file, on one machine.
//
// A SQLite file that is not there is made, and a warning says where, and so are tables that are
// not there. With -must-exist, nothing is made, and storefrontd ends: set it once a shop has orders. A
// start without the disk of the file, or in another folder, would else begin a new shop, in which
// the keys of the old one create new orders.
//
// Open its address in a browser to try it. With -fields, orders may have fields; once set, leave it set on
// all replicas. Orders are not read back, as there is no sign-in that tells whose they are.
//
// At startup, it puts the users, products and widgets in the file of -data into the
// database, in place of those with the same IDs. Without -data, it serves the database as it
// is. With -sample, it puts a sample shop into a database that has nothing yet, to try it.
//
// It waits for up to 30 seconds for a database that does not answer yet, or has no
// primary, and then listens. On SIGINT or SIGTERM it finishes the requests in flight, for
// up to a minute, and exits; a second signal ends it at once. The exit status is 2 for a
// bad flag or file and 1 for any other failure.
//
// # Probes and the end
//
// Package graceful says how it answers /livez and /readyz, and how it ends on SIGTERM: for the time of
// -shutdown-delay, 10 seconds unless it is set, /readyz is 503 while everything is served. On SIGINT, as from
// a terminal, it does not wait.
//
// # Metrics
//
// GET /metrics answers Prometheus with the metrics that the package shopdb/metrics lists. Let no proxy
// pass it on to everybody, or serve it on an address of its own, by -metrics-addr.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/storefront"
	"example.com/storefront/explorer"
	"example.com/storefront/graceful"
	"example.com/storefront/internal/demo"
	"example.com/storefront/shopdb"
	"example.com/storefront/shopdb/metrics"
	"example.com/storefront/shopdb/mysql"
	"example.com/storefront/shopdb/postgres"
	"example.com/storefront/shopdb/sqlite"
	"example.com/storefront/sqlstore"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "`host:port` to listen on")
	data := flag.String("data", "", "JSON `file` to put into the database")
	sample := flag.Bool("sample", false, "put a sample shop into a database that has nothing yet")
	name := flag.String("db", "storefront.db", "SQLite `file`, or URL of PostgreSQL or MySQL\nservers")
	mustExist := flag.Bool("must-exist", false, "make no new database: the file and the tables must be there")
	fields := flag.Bool("fields", false, "let orders have fields, an object of the client's own")
	metricsAddr := flag.String("metrics-addr", "", "`host:port` of /metrics (default: that of -addr)")
	delay := flag.Duration("shutdown-delay", 10*time.Second,
		"`time` from SIGTERM, when /readyz fails, until it stops\nlistening")
	flag.Parse()
	if flag.NArg() > 0 {
		// It may be a URL with a password, so it is not told.
		fail(2, errors.New("unexpected argument: is -db or -data missing?"))
	}
	if err := demo.CheckFlags(*addr, *delay); err != nil {
		fail(2, err)
	}
	if _, _, err := net.SplitHostPort(*metricsAddr); err != nil && *metricsAddr != "" {
		fail(2, fmt.Errorf("-metrics-addr %q is not host:port", *metricsAddr))
	}
	if *sample && *data != "" {
		fail(2, errors.New("-data and -sample exclude each other"))
	}
	shop := new(storefront.MemStore)
	if *sample || *data != "" {
		var err error
		if shop, err = demo.Load(*data); err != nil {
			fail(2, err)
		}
	}
	ctx, stop := graceful.NotifyContext(context.Background())
	defer stop()
	db, err := open(*name, *mustExist)
	if err != nil {
		fail(2, fmt.Errorf("-db: %w", err))
	}
	place := "" // a URL may have a password
	if !strings.Contains(*name, "://") {
		place, _ = filepath.Abs(*name)
	}
	err = run(ctx, db, shop, settings{*sample, *mustExist, place, *fields, *addr, *metricsAddr, *delay})
	if err = errors.Join(err, db.Close()); err != nil {
		fail(1, err)
	}
}

// open opens the database that a URL or a file's name means.
func open(name string, mustExist bool) (*shopdb.DB, error) {
	scheme, _, _ := strings.Cut(name, ":")
	switch scheme {
	case "postgres", "postgresql":
		return postgres.Open(name, nil)
	case "mysql", "mariadb":
		return mysql.Open(name, nil)
	}
	if strings.HasPrefix(name, scheme+"://") {
		return nil, fmt.Errorf("%s:// is neither postgres:// nor mysql:// nor the name of a SQLite file", scheme)
	}
	return sqlite.Open(name, &sqlite.Options{MustExist: mustExist})
}

func fail(status int, err error) {
	fmt.Fprintln(os.Stderr, "storefrontd:", err)
	os.Exit(status)
}

// settings are those of run.
type settings struct {
	onlyIfNew         bool   // the shop is for a database in which nothing is
	mustExist         bool   // no tables of a new shop are made
	place             string // where orders are kept, or ""
	fields            bool   // orders may have some
	addr, metricsAddr string
	delay             time.Duration
}

// run prepares the database, puts the shop into it, and serves it until ctx is done.
func run(ctx context.Context, db *shopdb.DB, shop *storefront.MemStore, s settings) error {
	store := sqlstore.New(db.DB, nil)
	var product string
	waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := db.WaitFor(waiting, func(ctx context.Context) (err error) {
		if s.mustExist {
			if err := checkOrders(ctx, db.DB, store); err != nil {
				return err
			}
		}
		product, err = fill(ctx, db.DB, store, shop, s.onlyIfNew)
		return err
	})
	if errors.Is(err, context.Canceled) { // asked to end while it waited
		return nil
	}
	if err != nil {
		return err
	}
	db.ForgetKeysHourly(store)
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	page := explorer.HandlerWithOptions("", &explorer.Options{Product: product})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counted, err := metrics.New(registry, &metrics.Options{DB: db.DB, Store: store})
	if err != nil {
		return err
	}
	shown := promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})
	service := storefront.NewWithOptions(store, &storefront.Options{OrderFields: s.fields})
	handler := counted.Wrap(demo.WithExplorer(service, page))
	var own net.Listener // of /metrics alone
	if s.metricsAddr == "" {
		handler = withMetrics(handler, shown)
	} else {
		if own, err = net.Listen("tcp", s.metricsAddr); err != nil {
			return errors.Join(err, listener.Close())
		}
		exporter := &http.Server{
			Handler: withMetrics(http.NotFoundHandler(), shown), ReadTimeout: time.Minute}
		defer exporter.Close()
		go exporter.Serve(own)
	}
	server := &http.Server{Handler: handler}
	if s.place != "" {
		fmt.Printf("Orders are kept in %s.\n", s.place)
	}
	demo.TryThis(os.Stdout, listener.Addr(), product)
	if own != nil {
		fmt.Printf("Metrics are on http://%s/metrics.\n", own.Addr())
	}
	opts := &graceful.Options{Check: store.Check, Delay: s.delay}
	return graceful.Serve(ctx, server, listener, opts)
}

// withMetrics answers GET and HEAD of /metrics with the metrics, and all else with next. In another
// spelling, such as /%6detrics, the path may pass a proxy that does not pass /metrics on.
func withMetrics(next, shown http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() == "/metrics" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			shown.ServeHTTP(w, r)
		} else {
			next.ServeHTTP(w, r)
		}
	})
}

// checkOrders returns an error if there is no table of orders, which may be one that Migrate has to change.
func checkOrders(ctx context.Context, db *sql.DB, store *sqlstore.Store) error {
	err := store.Check(ctx) // which knows what passes
	if err == nil || errors.Is(err, storefront.ErrUnavailable) {
		return err
	}
	var n int
	if db.QueryRowContext(ctx, `SELECT count(*) FROM storefront_orders WHERE 1 = 0`).Scan(&n) != nil {
		return fmt.Errorf("with -must-exist, no tables are made: %w", err)
	}
	return nil
}

// fill makes the tables and puts the shop into them, or only if nothing is in them if onlyIfNew
// is set. It returns the ID of a product that they have, for an example.
func fill(
	ctx context.Context, db *sql.DB, store *sqlstore.Store, shop *storefront.MemStore, onlyIfNew bool,
) (product string, err error) {
	if err := store.Migrate(ctx); err != nil {
		return "", err
	}
	put := !onlyIfNew
	if onlyIfNew {
		row := db.QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT 1 FROM storefront_users)
			AND NOT EXISTS (SELECT 1 FROM storefront_products)
			AND NOT EXISTS (SELECT 1 FROM storefront_widgets)
			AND NOT EXISTS (SELECT 1 FROM storefront_orders)`)
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
	// Three IDs cannot be requested.
	rows, err := db.QueryContext(ctx, `SELECT id FROM storefront_products ORDER BY id LIMIT 4`)
	if err != nil {
		return "", lost(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err = rows.Scan(&id); err == nil && demo.CanBeRequested(id) {
			return id, nil
		}
	}
	if err = cmp.Or(err, rows.Err()); err != nil {
		return "", lost(err)
	}
	return "", nil
}

// lost marks err as temporary: the database answered a moment ago, so it is gone.
func lost(err error) error { return fmt.Errorf("%w: %w", storefront.ErrUnavailable, err) }
