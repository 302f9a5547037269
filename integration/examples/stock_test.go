package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/shopdb/examples/outbox"
)

const (
	stockPieces = 10
	stockBuyers = 200
)

// TestStock has many buyers of few pieces, through replicas of the command stock
// that are killed and come back. Each buyer asks again until it has a definite
// answer, which must be the same ever after and everywhere.
func TestStock(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		name, table := d.URL, outbox.PostgresTable
		switch d.Driver {
		case "sqlite":
			name, _, _ = strings.Cut(strings.TrimPrefix(d.URL, "file:"), "?")
			table = outbox.SQLiteTable
		case "mysql":
			name, table = dbserver.MySQLURL(t, d.URL), outbox.MySQLTable
		}
		d.Exec(t, table, "CREATE TABLE stock (item VARCHAR(255) NOT NULL PRIMARY KEY, pieces BIGINT NOT NULL)",
			fmt.Sprintf("INSERT INTO stock VALUES ('teapot', %d)", stockPieces))
		replicas := faulttest.StartReplicas(t, process.Stock, 3, name)
		rng := rand.New(rand.NewPCG(*long.Seed, 0))
		killReplica := func() (comeBack func()) {
			r := replicas[rng.IntN(len(replicas))]
			r.Process.Kill()
			return r.Start
		}
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: stockBuyers}}
		t.Cleanup(client.CloseIdleConnections)
		buyers := make([]*buyer, stockBuyers)
		settled := make(chan struct{}, stockBuyers)
		var buying sync.WaitGroup
		t.Cleanup(buying.Wait) // t.Context is done by then
		for i := range buyers {
			buyers[i] = &buyer{t: t, client: client, replicas: replicas, key: fmt.Sprint("buyer-", i), rng: rand.New(rand.NewPCG(*long.Seed, uint64(i+1)))}
		}
		buy := func(buyers []*buyer) {
			for _, b := range buyers {
				buying.Go(func() {
					b.buy(t.Context())
					settled <- struct{}{}
				})
			}
		}
		wait := func(n int) {
			for range n {
				<-settled
			}
		}
		// The first kill is while pieces are left, as fewer buyers than these are
		// there yet; the second while most are being refused.
		const first, more = stockPieces / 2, stockBuyers / 4
		buy(buyers[:first])
		wait(1)
		comeBack := killReplica()
		buy(buyers[first:])
		wait(1)
		comeBack()
		wait(more)
		comeBack = killReplica()
		wait(1)
		comeBack()
		buying.Wait()
		for _, r := range replicas {
			r.WaitUntilServing()
		}

		var sold []string
		for _, b := range buyers {
			if b.first.status == http.StatusCreated {
				var order storefront.Order
				if err := json.Unmarshal(b.first.body, &order); err != nil || order.Item != "teapot" || order.Qty != 1 {
					t.Errorf("%s got %s: %v", b.key, b.first.body, err)
				}
				sold = append(sold, order.ID)
			}
			for _, r := range replicas {
				again := b.ask(t.Context(), r)
				if again.status != b.first.status || !bytes.Equal(again.body, b.first.body) {
					t.Errorf("%s got %d %s\nand then, of %s, %d %v %s", b.key, b.first.status, b.first.body, r.URL, again.status, again.err, again.body)
				}
				if replayed := again.header.Get("Idempotent-Replayed") == "true"; replayed != (again.status == http.StatusCreated) {
					t.Errorf("%s: the answer %d is marked as a replay: %t", b.key, again.status, replayed)
				}
			}
		}
		if len(sold) != stockPieces {
			t.Errorf("%d buyers of %d pieces were told that they have one", len(sold), stockPieces)
		}
		var stored, events []string
		for _, order := range testdb.StoredOrders(t, d.Pool) {
			stored = append(stored, order.ID)
		}
		for _, event := range testdb.Column(t, d.Pool, "SELECT event FROM outbox") {
			var order storefront.Order
			if err := json.Unmarshal([]byte(event), &order); err != nil {
				t.Error(err)
			}
			events = append(events, order.ID)
		}
		expectOrders(t, "orders that buyers know of", sold, stored)
		expectOrders(t, "orders and their events", stored, events)
		if left := testdb.Column(t, d.Pool, "SELECT pieces FROM stock"); !slices.Equal(left, []string{"0"}) {
			t.Errorf("the stock has %q pieces left, want 0", left)
		}
		d.Exec(t, "UPDATE stock SET pieces = 1", "DROP TABLE outbox")
		late := &buyer{client: client, key: "late"}
		if a := late.ask(t.Context(), replicas[0]); a.err != nil || a.status != http.StatusInternalServerError {
			t.Errorf("an order whose event cannot be written is answered %d %s: %v", a.status, a.body, a.err)
		}
	})
}

// A buyer wants one piece.
type buyer struct {
	t        *testing.T
	client   *http.Client
	replicas []*faulttest.Replica
	key      string
	rng      *rand.Rand
	first    answer // that is definite
}

// buy asks one replica or another until the answer is definite.
func (b *buyer) buy(ctx context.Context) {
	const longestPause = 100 * time.Millisecond
	for pause := time.Millisecond; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		asking, cancel := ctx, context.CancelFunc(func() {})
		if b.rng.IntN(5) == 0 { // hang up early
			asking, cancel = context.WithTimeout(ctx, time.Duration(b.rng.IntN(8000))*time.Microsecond)
		}
		a := b.ask(asking, b.replicas[b.rng.IntN(len(b.replicas))])
		cancel()
		switch {
		case a.err != nil || a.status == http.StatusServiceUnavailable:
		case a.status == http.StatusCreated || a.isRefusal():
			b.first = a
			return
		default:
			b.t.Errorf("%s got %d %s", b.key, a.status, a.body)
			return
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
		}
	}
}

// ask sends the order to a replica.
func (b *buyer) ask(ctx context.Context, replica *faulttest.Replica) (a answer) {
	r, err := http.NewRequestWithContext(ctx, "POST", replica.URL+"/v1/orders", strings.NewReader(`{"item":"teapot","qty":1}`))
	if err != nil {
		return answer{err: err}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", strconv.Quote(b.key))
	response, err := b.client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	a.status, a.header = response.StatusCode, response.Header
	a.body, a.err = io.ReadAll(response.Body)
	return a
}

// An answer is a response to a buyer, or why there is none.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// isRefusal reports whether the answer says that there are too few pieces.
func (a *answer) isRefusal() bool {
	var problem struct {
		Type, Reason string
		Errors       []struct{ Pointer string }
	}
	return a.status == http.StatusUnprocessableEntity && json.Unmarshal(a.body, &problem) == nil &&
		problem.Type == "urn:problem-type:storefront:order-refused" && problem.Reason == "sold-out" &&
		len(problem.Errors) == 1 && problem.Errors[0].Pointer == "#/item"
}
