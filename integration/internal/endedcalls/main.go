// Endedcalls sends a store on PostgreSQL, whose URL is its first argument, orders of
// which Accept takes longer than the calls have time. It ends when many have ended in
// Accept, and fails if one of them panics or has created an order, or if the methods of
// a sql.Conn do not pause for as long as its second argument says.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

const (
	callers = 8
	enough  = 100         // calls that have ended in Accept
	timeout = time.Second // of a call; a try has a fifth of it, or less
)

func main() {
	log.SetFlags(0)
	db, err := sql.Open("pgx", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(callers)
	if err := checkPause(db, os.Args[2]); err != nil {
		log.Fatal(err)
	}
	var ended atomic.Int64
	store := sqlstore.New(db, &sqlstore.Options{
		Timeout: timeout,
		Accept: func(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, _ storefront.Order) error {
			_, err := tx.ExecContext(ctx, "SELECT pg_sleep(10)")
			if ctx.Err() != nil {
				ended.Add(1)
			}
			return err
		},
	})
	if err := sqlstore.New(db, nil).Migrate(context.Background()); err != nil {
		log.Fatal(err)
	}
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for ended.Load() < enough {
				// Some end with their ctx, some when a try has taken too long.
				ctx, cancel := context.WithTimeout(context.Background(), mathrand.N(timeout))
				order, err := store.CreateOrder(ctx, storefront.IdempotencyKey{Value: rand.Text()},
					storefront.Order{ID: "ord_" + rand.Text(), Item: "teapot", Qty: 1, CreatedAt: time.Now().UTC()})
				cancel()
				if err == nil {
					log.Fatalf("%v was created, though Accept has not accepted it", order)
				}
			}
		})
	}
	calling.Wait()
}

// checkPause returns an error if a sql.Conn does not pause: this program shows nothing
// then.
func checkPause(db *sql.DB, least string) error {
	pause, err := time.ParseDuration(least)
	if err != nil {
		return err
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close()
	began := time.Now()
	if err := conn.Raw(func(any) error { return nil }); err != nil {
		return err
	}
	if took := time.Since(began); took < pause {
		return fmt.Errorf("a method took %v: this is not the database/sql that pauses for %v", took, pause)
	}
	return nil
}
