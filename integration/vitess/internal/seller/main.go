// Command seller sells one item, under whatever name it is ordered, out of the stock of a sharded keyspace.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"

	"example.com/storefront"
	"example.com/storefront/durable/shopdb"
	"example.com/storefront/integration/vitess/internal/stock"
	"example.com/storefront/sqlstore"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "`host:port` to listen on")
	url := flag.String("db", "", "`URL` of the keyspace")
	flag.Parse()
	db, err := shopdb.Open(*url, nil)
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
	server := http.Server{Addr: *addr, Handler: storefront.New(store)}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(interrupted, func() { server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
