package examples

import (
	"errors"
	"fmt"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb/examples/owntables"
)

// A store that embeds sqlstore's and reads tables of the program's keeps the contract of what it reads.
func TestOwnTables(t *testing.T) {
	for driver, tables := range map[string]string{"sqlite": owntables.SQLiteTables, "pgx": owntables.PostgresTables} {
		t.Run(driver, func(t *testing.T) {
			url := testdb.SQLiteFile(t)
			if driver == "pgx" {
				url = dbserver.Postgres.Database(t)
			}
			d := testdb.New(t, driver, url)
			d.Exec(t, tables, "INSERT INTO goods VALUES ('teapot', 'Teapot', 2450)")
			var all []string // in the order of bytes
			for i, id := range []string{"A", "Z", "a", "a b", "b", "ä", "😀"} {
				must.Get(d.Pool.Exec("INSERT INTO customers VALUES ($1, $2)", id, fmt.Sprint("Ada ", i)))(t)
				all = append(all, fmt.Sprintf(`{"id":"%s","name":"Ada %d"}`, id, i))
			}
			shop, ctx := owntables.New(d.Pool, nil), t.Context()
			for after, want := range map[string][]string{"": all[:2], "Z": all[2:4], "a": all[3:5], "aa": all[4:6], "b": all[5:], "😀": nil} {
				list, err := shop.ListUsers(ctx, after, 2)
				var got []string
				for _, user := range list {
					got = append(got, user.String())
				}
				if fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
					t.Errorf("users after %q are %v, %v, want %v", after, got, err, want)
				}
			}
			product, err := shop.GetProduct(ctx, "teapot")
			if err != nil || product.String() != `{"id":"teapot","title":"Teapot","cents":2450}` {
				t.Errorf("the product is %v, %v", product, err)
			}
			if _, err := shop.GetProduct(ctx, "kettle"); !errors.Is(err, storefront.ErrNotFound) {
				t.Errorf("a product that is not there: %v", err)
			}
			first, err := testdb.Create(ctx, shop, "key", "teapot")
			if again, err2 := testdb.Create(ctx, shop, "key", "teapot"); err != nil || err2 != nil || !again.Equal(first) {
				t.Errorf("a key has the orders %v, %v and %v, %v", first, err, again, err2)
			}
			d.Exec(t, "DROP TABLE goods", "DROP TABLE customers")
			_, failed := shop.GetProduct(ctx, "teapot")
			_, list := shop.ListUsers(ctx, "", 2)
			if !errors.Is(failed, storefront.ErrUnavailable) || !errors.Is(list, storefront.ErrUnavailable) {
				t.Errorf("without the tables, the calls return %v and %v", failed, list)
			}
		})
	}
}
