package integration

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"example.com/storefront/internal/audit"
)

// TestSplitBrain promotes the standby of a PostgreSQL primary that lives on, takes
// connections and calls itself the primary, but has nobody left to commit with.
func TestSplitBrain(t *testing.T) {
	testPromotions(t, 3, func(old *postgresServer, promote func()) (comeBack func()) {
		promote()
		return func() {}
	})
}

// TestFrozenPrimary promotes the standby of a PostgreSQL primary that is frozen, and
// later goes on as if nothing had happened.
func TestFrozenPrimary(t *testing.T) {
	testPromotions(t, 2, func(old *postgresServer, promote func()) (comeBack func()) {
		old.freeze(t)
		promote()
		return func() { old.thaw(t) }
	})
}

// testPromotions has each of three PostgreSQL servers in turn be the primary, its
// synchronous standby, and one that has been the primary before. change promotes the
// standby, with what else it does to the primary, and returns what undoes that.
//
// Before, the standby is cut off for long enough that whatever does not wait for it
// is acknowledged, and would be lost.
func testPromotions(t *testing.T, turns int, change func(old *postgresServer, promote func()) (comeBack func())) {
	f := newFaultTest(t)
	primary := startPostgres(t)
	standby, spare := primary.another(t), primary.another(t)
	standby.port, spare.port = freePort(), freePort()
	link := startProxy(t, anyProtocol, primary.addr())
	standby.followOver(t, primary, link.port)
	f.start(3, postgresURL("postgres", primary, standby, spare))
	f.begin()
	f.waitUntilAcknowledged(f.orders / 10)
	for range turns {
		link.hold()
		f.waitUntilStuck()
		f.kills["promoted"]++
		comeBack := change(primary, func() { standby.promote(t) })
		link = startProxy(t, anyProtocol, standby.addr())
		spare.followOver(t, standby, link.port)
		waitUntilReplaying(t, f)
		comeBack()
		f.killReplica() // what connects anew finds both
		waitUntilReplaying(t, f)
		primary.kill(t)
		primary, standby, spare = standby, spare, primary
	}
	f.end()
	f.check(func() *sql.DB { return openDatabase(t, "pgx", primary.URL()) })
}

// waitUntilStuck waits until every client could have failed once, or until so many
// orders are acknowledged, or all, that they are not stuck at all.
func (f *faultTest) waitUntilStuck() {
	f.t.Helper()
	before := f.audit.Progress()
	f.waitUntil("clients fail", func(p audit.Progress) bool {
		return p.Failed >= before.Failed+faultClients || p.Acknowledged >= min(before.Acknowledged+10*faultClients, f.orders)
	})
}

// waitUntilReplaying waits until each replica replays an order, for which it needs
// a database that commits.
func waitUntilReplaying(t *testing.T, f *faultTest) {
	t.Helper()
	var order audit.Order
	for _, o := range f.audit.Orders() {
		if o.Body != nil {
			order = o
			break
		}
	}
	text, err := json.Marshal(map[string]any{"item": order.Item, "qty": order.Qty})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 5 * time.Second}
	for _, r := range f.replicas {
		waitFor(t, r.url+" replays", time.Minute, r.process, func() error {
			request, err := http.NewRequest(http.MethodPost, r.url+"/v1/orders", bytes.NewReader(text))
			if err != nil {
				return err
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Idempotency-Key", order.Key)
			w, err := client.Do(request)
			if err != nil {
				return err
			}
			defer w.Body.Close()
			body, err := io.ReadAll(w.Body)
			if err == nil && !bytes.Equal(body, order.Body) {
				err = fmt.Errorf("%s: %s", w.Status, body)
			}
			return err
		})
	}
}
