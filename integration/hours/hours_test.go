// Package hours runs the command durable for long, and sees that nothing grows but what
// orders take.
package hours

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/machine"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/sqlstore"
)

var (
	during = flag.Duration("for", 3*time.Second, "`time` for which orders are sent to PostgreSQL; if it is more than a minute, a quarter of it to others")
	filled = flag.Int("orders", 20_000, "`number` of orders that the tables begin with")
)

const (
	// keysLast is when durable forgets a key.
	keysLast = storefront.KeyLifetime + time.Hour

	// keysDue is how long it takes until the keys of all orders that the tables begin with
	// are that old, one after the other.
	keysDue = 3 * time.Hour

	// listed is how many users there are, and products, and widgets.
	listed = 5_000
)

// TestHours sends orders to durable at half of the rate that it can take, on tables that
// have many already, while keys are forgotten, backups taken and lists changed. Afterwards,
// every acknowledged order is there once, and durable is as large as before. In a run of
// minutes or more, so it is meanwhile: what the last quarter has is compared with what the
// second one has.
//
//	STOREFRONT_LONG=1 go test ./integration/hours -run Hours -v -timeout 0 -for 1h -orders 10000000
//
// Built with GOEXPERIMENT=goroutineleakprofile, durable also says that none of its goroutines
// waits for what can never come.
func TestHours(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			length := *during
			if e.quarter && length > time.Minute {
				length /= 4
			}
			run(t, e, length)
		})
	}
}

func run(t *testing.T, e engine, length time.Duration) {
	on := e.start(t)
	shop := startDurable(t, on.url)
	shop.End() // it has made the tables
	began := time.Now()
	first := began.Add(-keysLast)
	on.fill(t, *filled, func(from, to int) string {
		return fmt.Sprintf(on.insert, from, to, first.UnixMilli(), float64(keysDue.Milliseconds())/float64(*filled))
	})
	d := testdb.Open(t, on.driver, on.dsn)
	store := d.OpenWith(t, &sqlstore.Options{Timeout: time.Minute})
	fillLists(t, store)
	t.Logf("the tables were filled in %v", time.Since(began))

	forget := func(ctx context.Context) int64 {
		n, err := store.ForgetKeys(ctx, time.Now().Add(-keysLast))
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		return n
	}
	forget(t.Context()) // those that have come due meanwhile
	shop.Start()
	shop.WaitUntilServing()
	c := newClients(t, shop.URL)
	capacity := c.send(0, min(length/6, 45*time.Second), 1)
	calm, before := shop.sample(t), c.sent()
	t.Logf("%.0f requests a second, of which orders %.0f", capacity, capacity*ordersOfRequests)

	var forgotten int64
	backups, changes := 0, 0
	meanwhile, end := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() {
		every(meanwhile, length/60, 0, func() { forgotten += forget(meanwhile) })
	})
	background.Go(func() {
		file := filepath.Join(process.Folder(t), "backup")
		wait := min(length/4, 450*time.Second)
		every(meanwhile, wait, wait/2, func() {
			on.backUp(t, file)
			backups++
		})
	})
	background.Go(func() {
		every(meanwhile, 250*time.Millisecond, 0, func() {
			changeLists(meanwhile, t, store, changes)
			changes++
		})
	})
	var samples []sample
	background.Go(func() {
		start := time.Now()
		every(meanwhile, max(length/240, 100*time.Millisecond), 0, func() {
			s := shop.sample(t)
			s.quarter = min(int(4*time.Since(start)/length), 3)
			s.orders, s.rest = on.size(t, d.Pool)
			s.created = *filled + c.sent()
			s.connections = on.connections(t, d.Pool)
			s.p99 = c.window()
			samples = append(samples, s)
			t.Logf("%+v", s)
		})
	})
	c.send(capacity/2, length, 4)
	end()
	background.Wait()
	forgotten += forget(t.Context())

	after := shop.settle(t, calm)
	shop.expectNoLeak(t)
	shop.End()
	if forgotten == 0 || backups == 0 || changes == 0 {
		t.Errorf("%d keys were forgotten, %d backups taken and %d changes made to each list", forgotten, backups, changes)
	}
	account(t, d.Pool, c)

	attr := func(key string, value float64) { t.Attr(key, strconv.FormatFloat(value, 'g', 6, 64)) }
	attr("minutes", length.Minutes())
	attr("filled", float64(*filled))
	attr("capacity", capacity*ordersOfRequests)
	attr("rate", float64(c.sent()-before)/length.Seconds())
	attr("acknowledged", float64(c.sent()))
	attr("retries", float64(c.retries.Load()))
	attr("forgotten", float64(forgotten))
	attr("backups", float64(backups))
	attr("changes", float64(changes*len(collections)))
	attr("calm-goroutines", float64(after.goroutines))
	for q := range 4 {
		attr(fmt.Sprintf("p50-ms-%d", q+1), c.percentile(q, 50))
		attr(fmt.Sprintf("p99-ms-%d", q+1), c.percentile(q, 99))
	}
	for _, m := range measures {
		var medians [4]float64
		for q := range medians {
			medians[q] = median(samples, q, m.of)
			attr(fmt.Sprintf("%s-%d", m.name, q+1), medians[q])
		}
		// In seconds, there is no median to speak of.
		if length >= time.Minute && medians[3] > 1.1*medians[1]+m.slack {
			t.Errorf("%s has grown: its median in each quarter is %v", m.name, medians)
		}
	}
	if testing.Verbose() {
		what, err := machine.Describe()
		if err != nil {
			t.Error(err)
		}
		t.Attr("machine", what)
	}
}

// every calls do every so often, for the first time after a while, until ctx is done.
func every(ctx context.Context, interval, first time.Duration, do func()) {
	for next := time.Now().Add(first); ; next = next.Add(interval) {
		select {
		case <-time.After(time.Until(next)):
			do()
		case <-ctx.Done():
			return
		}
	}
}

// measures are what must not grow from the second quarter to the last one by more than a
// tenth and a slack.
var measures = []struct {
	name  string
	slack float64
	of    func(sample) float64
}{
	{"resident", 4 << 20, func(s sample) float64 { return s.resident }},
	{"heap", 2 << 20, func(s sample) float64 { return s.heap }},
	{"goroutines", 16, func(s sample) float64 { return float64(s.goroutines) }},
	{"files", 16, func(s sample) float64 { return float64(s.files) }},
	{"connections", 2, func(s sample) float64 { return s.connections }},
	{"rest", 16 << 20, func(s sample) float64 { return s.rest }},
	{"order", 0, func(s sample) float64 { return s.orders / float64(s.created) }},
}

func median(samples []sample, quarter int, of func(sample) float64) float64 {
	var values []float64
	for _, s := range samples {
		if s.quarter == quarter {
			values = append(values, of(s))
		}
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

var collections = []string{"users", "products", "widgets"}

func listID(n int) string { return fmt.Sprintf("id-%05d", n%listed) }

func fillLists(t *testing.T, store *testdb.SQLStore) {
	t.Helper()
	var resources []storefront.Resource
	for n := range listed {
		resources = append(resources, storefront.MustResource(listID(n), map[string]any{"name": "at first", "n": n}))
	}
	for _, c := range collections {
		if err := store.Put(t.Context(), c, resources...); err != nil {
			t.Fatal(err)
		}
	}
}

// changeLists deletes one item of each list, puts another one back and changes a third one.
func changeLists(ctx context.Context, t *testing.T, store *testdb.SQLStore, n int) {
	for _, c := range collections {
		err := errors.Join(store.Delete(ctx, c, listID(n)), store.Put(ctx, c,
			storefront.MustResource(listID(n+listed-10), map[string]any{"name": "put back", "n": n}),
			storefront.MustResource(listID(n+listed/2), map[string]any{"name": "changed", "n": n})))
		if err != nil && ctx.Err() == nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// account compares what was acknowledged with what the database has.
func account(t *testing.T, db *sql.DB, c *clients) {
	t.Helper()
	rows, err := db.Query("SELECT id, item, qty, created_ms FROM storefront_orders")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	there := make([]bool, len(c.acknowledged))
	before, unknown, duplicated, other := 0, 0, 0, 0
	for rows.Next() {
		var o storefront.Order
		var ms int64
		if err := rows.Scan(&o.ID, &o.Item, &o.Qty, &ms); err != nil {
			t.Fatal(err)
		}
		o.CreatedAt = time.UnixMilli(ms).UTC()
		if o.Item == "filled" {
			before++
			continue
		}
		n, ok := numberOf(o.Item)
		if !ok || n >= len(there) {
			unknown++
			continue
		}
		if there[n] {
			duplicated++
		}
		there[n] = true
		if text, err := json.Marshal(o); err != nil || c.acknowledged[n] != maphash.Bytes(c.seed, text) {
			other++
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, here := range there {
		if !here {
			lost++
		}
	}
	for key, n := range map[string]int{"lost": lost, "duplicated": duplicated, "unknown": unknown, "other": other, "gone": *filled - before} {
		t.Attr(key, strconv.Itoa(n))
		if n != 0 {
			t.Errorf("%d orders are %s", n, key)
		}
	}
}

// A shop is a process of durable that can be looked into.
type shop struct {
	*faulttest.Replica
	debug string // URL
}

// debugAddr is the environment variable that has where durable can be looked into.
const debugAddr = "STOREFRONT_HOURS_DEBUG"

// startDurable builds durable together with one more file, by which it can be looked into,
// and starts it.
func startDurable(t *testing.T, url string) *shop {
	t.Helper()
	dir := process.Folder(t)
	added, err := filepath.Abs("testdata/debug.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	durable, err := filepath.Abs("../../durable/debug.go")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{durable: added}})
	if err != nil {
		t.Fatal(err)
	}
	file, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "durable")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := process.GoBuild(binary, "durable", "-overlay", file); err != nil {
		t.Fatal(err)
	}
	addr := "127.0.0.1:" + strconv.Itoa(process.FreePort())
	t.Setenv(debugAddr, addr)
	s := &shop{faulttest.NewReplica(t, binary, url), "http://" + addr + "/debug/pprof/"}
	s.Start()
	s.WaitUntilServing()
	return s
}
