package examples

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/examples/address"
	"example.com/storefront/sqlstore"
)

// An order has its address if it is created, once, and none otherwise. All that is wrong is said at once.
func TestAddress(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		accept, table := address.Accept, address.Table
		if d.Driver == "mysql" {
			accept, table = address.AcceptMySQL, address.Table+" CHARACTER SET utf8mb4"
		}
		d.Exec(t, table)
		store := d.OpenWith(t, &sqlstore.Options{Accept: accept})
		service := storefront.NewWithOptions(store, &storefront.Options{OrderFields: true})
		order := func(key, fields string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("POST", "/v1/orders",
				strings.NewReader(`{"item":"teapot","qty":1`+strings.TrimSuffix(`,"fields":`+fields, `,"fields":`)+`}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", key)
			w := httptest.NewRecorder()
			service.ServeHTTP(w, r)
			return w
		}
		fields := func(name, street, zip, city, country, rest string) string {
			return fmt.Sprintf(`{"address":{"name":%s,"street":%s,"zip":%s,"city":%s,"country":%s%s`,
				name, street, zip, city, country, rest)
		}
		const long = "ääääääääääääääääääääääääääääääääääääääääääääääääää" // 50
		ada := fields(`" Ada 😀 "`, `"12 St James's"`, `"SW1Y 4JH"`, `"London"`, `"GB"`, "}")
		ordered := 0
		for i, row := range []struct {
			fields   string
			pointers string // of the faults, without #/fields
		}{
			{ada + `}`, ""},
			{ada + `,"note":"\n` + strings.Repeat(long, 10)[2:] + `"}`, ""},
			{"", "/address/name /address/street /address/zip /address/city /address/country"},
			{fields(`"\t"`, `""`, `null`, `{"a":1}`, `"gb"`, "}}"), "/address/name /address/street /address/zip /address/city /address/country"},
			{fields(`"`+long+long+`x"`, `"a\u0000b"`, `12345`, `["London"]`, `true`, "}}"),
				"/address/name /address/street /address/zip /address/city /address/country"},
			{ada + `,"note":null}`, "/note"},
			{ada + `,"note":"` + strings.Repeat(long, 10) + `x"}`, "/note"},
			{ada + `,"Note":"a"}`, "/Note"},
			{fields(`"Ada"`, `"1"`, `"000"`, `"Å"`, `"SE"`, `,"a/b~c%d ä":1,"":2}}`), "/address/ /address/a~1b~0c%25d%20%C3%A4"},
		} {
			first, again := order(fmt.Sprint(i), row.fields), order(fmt.Sprint(i), row.fields)
			if row.pointers == "" {
				ordered++
				if first.Code != http.StatusCreated || again.Body.String() != first.Body.String() {
					t.Errorf("%s\nis answered with %s\nand then with %s", row.fields, first.Body, again.Body)
				}
				continue
			}
			var refused storefront.Problem
			must.OK(t, json.Unmarshal(first.Body.Bytes(), &refused))
			var pointers []string
			for _, fault := range refused.Errors {
				pointers = append(pointers, strings.TrimPrefix(fault.Pointer, "#/fields"))
			}
			if first.Code != http.StatusUnprocessableEntity || again.Code != first.Code ||
				strings.Join(pointers, " ") != row.pointers || strings.Contains(refused.Type, "invalid-order") {
				t.Errorf("%s\nis answered with %s\nwant faults at %s", row.fields, first.Body, row.pointers)
			}
		}
		stored := testdb.Column(t, d.Pool, `SELECT o.id FROM storefront_orders o JOIN addresses a ON a.order_id = o.id`)
		addresses := testdb.Column(t, d.Pool, "SELECT name FROM addresses")
		if len(stored) != ordered || len(addresses) != ordered || !slices.Contains(addresses, "Ada 😀") {
			t.Errorf("%d orders have an address, and there are %q, want %d", len(stored), addresses, ordered)
		}
	})
}
