// Command seller sells one item, under whatever name it is ordered, out of the stock of a sharded keyspace.
package main

import (
	"context"
	"database/sql"
	"flag"
	"log"
	"net"
	"net/http"

	"example.com/storefront"
	"example.com/storefront/graceful"
	"example.com/storefront/integration/vitess/internal/stock"
	"example.com/storefront/shopdb/mysql"
	"example.com/storefront/sqlstore"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "`host:port` to listen on")
	url := flag.String("db", "", "`URL` of the keyspace")
	flag.Parse()
	db, err := mysql.Open(*url, nil)
	if err != nil {
		log.Fatal(err)
	}
	accept := func(ctx context.Context, tx *sql.Tx, key storefront.IdempotencyKey, o storefront.Order) error {
		o.Item = "kettle"
		return stock.Accept(ctx, tx, key, o)
	}
	store := sqlstore.New(db.DB, &sqlstore.Options{Accept: accept})
	if err := store.Migrate(context.Background()); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := graceful.NotifyContext(context.Background())
	defer stop()
	server := &http.Server{Handler: storefront.New(store)}
	if err := graceful.Serve(ctx, server, listener, nil); err != nil {
		log.Fatal(err)
	}
}
