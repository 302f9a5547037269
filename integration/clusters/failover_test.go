package clusters

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/netfault"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/audit"
	"example.com/storefront/internal/must"
)

// TestSplitBrain promotes the standby of a PostgreSQL primary that lives on, takes
// connections and calls itself the primary, but has nobody left to commit with.
func TestSplitBrain(t *testing.T) {
	long.Test(t)
	testPromotions(t, 3, func(old *dbserver.Server, promote func()) (comeBack func()) {
		promote()
		return func() {}
	})
}

// TestFrozenPrimary promotes the standby of a PostgreSQL primary that is frozen, and
// later goes on as if nothing had happened.
func TestFrozenPrimary(t *testing.T) {
	long.Test(t)
	testPromotions(t, 2, func(old *dbserver.Server, promote func()) (comeBack func()) {
		old.Freeze(t)
		promote()
		return func() { old.Thaw(t) }
	})
}

// testPromotions has each of three PostgreSQL servers in turn be the primary, its
// synchronous standby, and one that has been the primary before. change promotes the
// standby, with what else it does to the primary, and returns what undoes that.
//
// Before, the standby is cut off for long enough that whatever does not wait for it
// is acknowledged, and would be lost.
func testPromotions(t *testing.T, turns int, change func(old *dbserver.Server, promote func()) (comeBack func())) {
	f := faulttest.New(t)
	primary := dbserver.Postgres.Start(t)
	standby, spare := primary.Another(t), primary.Another(t)
	link := netfault.Start(t, primary.Addr())
	standby.Follow(t, primary, link.Addr())
	f.Start(3, dbserver.PostgresURL("postgres", primary.Addr(), standby.Addr(), spare.Addr()))
	f.Begin()
	f.WaitUntilAcknowledged(200)
	for range turns {
		link.Hold()
		f.WaitUntilStuck()
		f.Kills["promoted"]++
		comeBack := change(primary, func() { standby.Promote(t) })
		link = netfault.Start(t, standby.Addr())
		spare.Follow(t, standby, link.Addr())
		waitUntilReplaying(t, f)
		comeBack()
		f.KillReplica() // what connects anew finds both
		waitUntilReplaying(t, f)
		primary.Kill(t)
		primary, standby, spare = standby, spare, primary
	}
	f.End()
	f.Check(func() *sql.DB { return dbserver.Open(t, "pgx", primary.DSN()) })
}

// waitUntilReplaying waits until each replica replays an order, for which it needs
// a database that commits.
func waitUntilReplaying(t *testing.T, f *faulttest.Test) {
	t.Helper()
	var order audit.Order
	for _, o := range f.Audit.Orders() {
		if o.Body != nil {
			order = o
			break
		}
	}
	text := must.Get(json.Marshal(map[string]any{"item": order.Item, "qty": order.Qty}))(t)
	client := &http.Client{Timeout: 5 * time.Second}
	for _, r := range f.Replicas {
		process.WaitFor(t, r.URL+" replays", 5*time.Minute, r.Process, func() error {
			request, err := http.NewRequest(http.MethodPost, r.URL+"/v1/orders", bytes.NewReader(text))
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
