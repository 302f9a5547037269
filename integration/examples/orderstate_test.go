package examples

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/integration/internal/sqltap"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/examples/orderstate"
	"example.com/storefront/sqlstore"
)

// Each order has its state, a page by one query, and its entity tag changes with it.
func TestOrderState(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		d.Exec(t, orderstate.Table)
		var queries []int // of states, how many orders each was for
		db := sqltap.Open(t, d.Driver, d.URL, func(ctx context.Context, s sqltap.Statement, run func() error) error {
			if strings.Contains(s.Query, "FROM order_states") {
				queries = append(queries, len(s.Args))
			}
			return run()
		})
		store := sqlstore.New(d.Pool, &sqlstore.Options{OrderLists: true})
		reader := &orderstate.Reader{Orders: store.OrderReader(), DB: db, MySQL: d.Driver == "mysql"}
		service := storefront.NewWithOptions(store, &storefront.Options{
			Orders: reader, Scope: func(r *http.Request) string { return r.Header.Get("Account") },
		})
		var ids []string
		for i := range 4 {
			key := storefront.IdempotencyKey{Scope: "ada", Value: fmt.Sprint("key ", i)}
			order := storefront.Order{ID: fmt.Sprint("ord_", i), Item: "teapot", Qty: 1, CreatedAt: time.UnixMilli(0)}
			ids = append(ids, must.Get(store.CreateOrder(t.Context(), key, order))(t).ID)
		}
		d.Exec(t, "INSERT INTO order_states VALUES ('"+ids[1]+"', 'sent', 'R1'), ('"+ids[2]+"', 'packed', ''), ('ord_', 'sent', 'R2')")
		get := func(path, etag string) *httptest.ResponseRecorder {
			queries = nil
			r := httptest.NewRequest("GET", "/v1/orders"+path, nil)
			r.Header.Set("Account", "ada")
			r.Header.Set("If-None-Match", etag)
			w := httptest.NewRecorder()
			service.ServeHTTP(w, r)
			return w
		}
		order := func(i int, state string) string {
			return fmt.Sprintf(`{"id":"%s","item":"teapot","qty":1,"created_at":"1970-01-01T00:00:00.000Z",%s}`, ids[i], state)
		}
		received, packed, sent := order(3, `"state":"received"`), order(2, `"state":"packed"`), order(1, `"state":"sent","parcel":"R1"`)
		for path, want := range map[string]string{
			"?limit=3":                       received + "," + packed + "," + sent + "]",
			"?idempotency_key=%22key%202%22": `{"data":[` + packed + "]",
			"?idempotency_key=key":           `{"data":[]`,
			"/" + ids[1]:                     sent,
			"/" + ids[1] + "0":               "order-not-found",
		} {
			w := get(path, "")
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %s, want %s", path, w.Body, want)
			}
			if n := strings.Count(w.Body.String(), `"state"`); n == 0 && queries != nil || n > 0 && len(queries) != 1 {
				t.Errorf("%s: %d orders took queries of %v", path, n, queries)
			}
		}
		etag := get("/"+ids[3], "").Header().Get("ETag")
		unchanged := get("/"+ids[3], etag).Code
		d.Exec(t, "INSERT INTO order_states VALUES ('"+ids[3]+"', 'packed', '')")
		if changed := get("/"+ids[3], etag).Code; unchanged != http.StatusNotModified || changed != http.StatusOK {
			t.Errorf("an order is answered with %d, and with %d once it is packed", unchanged, changed)
		}

		d.Exec(t, "DROP TABLE order_states")
		if _, err := reader.ListOrders(t.Context(), "ada", "", 2); !errors.Is(err, storefront.ErrUnavailable) {
			t.Errorf("without the table of states, a list returns %v", err)
		}
	})
}
