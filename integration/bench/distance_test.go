package bench

import (
	"crypto/rand"
	"fmt"
	"net"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

// BenchmarkDistance measures how many orders a second a store creates whose database is far
// away: 1,000 callers, as many as wait for 4 commits of 64 orders each and more, and one alone.
// docs/scale.md has the figures.
func BenchmarkDistance(b *testing.B) {
	server := dbserver.StartPostgres(b)
	testdb.New(b, "pgx", server.DSN())
	for _, roundTrip := range []time.Duration{20 * time.Millisecond, 80 * time.Millisecond} {
		b.Run(fmt.Sprintf("round-trip=%v", roundTrip), func(b *testing.B) {
			d := testdb.Open(b, "pgx", server.DSNVia(far(b, server.Addr(), roundTrip/2)))
			store := sqlstore.New(servingPool(b, d), &sqlstore.Options{Timeout: time.Minute})
			create := func(int) error {
				key := storefront.IdempotencyKey{Scope: "account-00000001", Value: rand.Text()}
				_, err := store.CreateOrder(b.Context(), key, storefront.Order{ID: "ord_" + rand.Text(), Item: "teapot", Qty: 2, CreatedAt: time.Now().UTC()})
				return err
			}
			const during = 5 * time.Second
			closedLoop(b, 1000, time.Second, create) // has the connections be made
			for b.Loop() {
				each, all := closedLoop(b, 1000, during, create)
				b.ReportMetric(float64(len(each))/all.Seconds(), "orders/s")
				alone, _ := closedLoop(b, 1, during, create)
				b.ReportMetric(median(seconds(alone))*1000, "alone-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func seconds(durations []time.Duration) (s []float64) {
	for _, d := range durations {
		s = append(s, d.Seconds())
	}
	return s
}

// far returns the address of a proxy that hands on all bytes, in either direction, after a
// time.
func far(b *testing.B, addr string, after time.Duration) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	type piece struct {
		due   time.Time
		bytes []byte
	}
	handOn := func(from, to net.Conn) {
		pieces := make(chan piece, 1000)
		go func() {
			defer to.Close()
			for p := range pieces {
				time.Sleep(time.Until(p.due))
				if _, err := to.Write(p.bytes); err != nil {
					from.Close() // and so ends who sends pieces
				}
			}
		}()
		defer close(pieces)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			pieces <- piece{time.Now().Add(after), buffer[:n]}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				continue
			}
			go handOn(client, server)
			go handOn(server, client)
		}
	}()
	return listener.Addr().String()
}
