package examples

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/storefront"
	"example.com/storefront/client"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/examples/drafts"
)

// TestDraftsInATransaction keeps drafts, some of them in transactions that are rolled back, and
// sends them by several callers to a shop whose every third answer is lost.
func TestDraftsInATransaction(t *testing.T) {
	for driver, url := range map[string]string{
		"sqlite": testdb.SQLiteFile(t), "pgx": dbserver.Postgres.Database(t),
	} {
		t.Run(driver, func(t *testing.T) {
			db := testdb.Open(t, driver, url).Pool
			must.Get(db.Exec(drafts.Table))(t)
			store := new(storefront.MemStore)
			service := storefront.New(store)
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1)%3 == 0 {
					service.ServeHTTP(httptest.NewRecorder(), r)
					panic(http.ErrAbortHandler)
				}
				service.ServeHTTP(w, r)
			}))
			defer server.Close()
			shop := must.Get(client.New(server.URL, nil))(t)

			kept := make(map[string]bool) // items
			for i := range 20 {
				tx := must.Get(db.BeginTx(t.Context(), nil))(t)
				item := fmt.Sprint("item ", i)
				must.OK(t, drafts.Keep(t.Context(), tx, fmt.Sprint(i), item, 1))
				if i%4 == 0 {
					must.OK(t, tx.Rollback())
					continue
				}
				must.OK(t, tx.Commit())
				kept[item] = true
			}
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { drafts.Send(t.Context(), db, shop) })
			}
			wg.Wait()
			must.OK(t, drafts.Send(t.Context(), db, shop))
			for _, order := range store.Orders() {
				if !kept[order.Item] {
					t.Errorf("%s was not kept, or became two orders", order.Item)
				}
				delete(kept, order.Item)
				var item string
				must.OK(t, db.QueryRow("SELECT draft FROM drafts WHERE order_id = $1", order.ID).Scan(&item))
			}
			if len(kept) > 0 {
				t.Errorf("%v did not become orders", kept)
			}
			var n int
			if err := db.QueryRow("SELECT count(*) FROM drafts WHERE order_id IS NULL").Scan(&n); n != 0 || err != nil {
				t.Errorf("%d drafts have no order, %v", n, err)
			}
		})
	}
}
