package tables

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// TestTenantsHaveTheirOwnTables has tenants of one PostgreSQL database whose search_path
// leads to their schema first, and then to that of another shop. No tenant begins there by mistake: a schema
// of the user's name that somebody makes comes first in the usual search_path of a shop that runs in public.
func TestTenantsHaveTheirOwnTables(t *testing.T) {
	public := testdb.New(t, "pgx", dbserver.Postgres.Database(t))
	shop := sqlstore.New(public.Pool, nil)
	must.OK(t, shop.Products.Put(t.Context(), storefront.MustResource("kettle", nil)))
	first := must.Get(testdb.Create(t.Context(), shop, "key", "kettle"))(t)
	created := map[string]string{first.ID: "public"}
	for _, schema := range []string{`tenant`, `"Tenant ""2"", é"`} {
		public.Exec(t, "CREATE SCHEMA "+schema)
		tenant := testdb.Open(t, "pgx", public.URL+"&search_path="+url.PathEscape(schema+",public"))
		store := sqlstore.New(tenant.Pool, nil)
		for call, f := range map[string]func() error{
			"CreateOrder": func() error { _, err := testdb.Create(t.Context(), store, "key", "kettle"); return err },
			"GetProduct":  func() error { _, err := store.GetProduct(t.Context(), "kettle"); return err },
			"ListUsers":   func() error { _, err := store.ListUsers(t.Context(), "", 1); return err },
			"Put":         func() error { return store.Users.Put(t.Context(), storefront.MustResource("ada", nil)) },
			"Check":       func() error { return store.Check(t.Context()) },
		} {
			if err := f(); err == nil || !strings.Contains(err.Error(), "42P01") { // undefined table
				t.Errorf("%s: before Migrate, %s returned %v, want that there is no such table", schema, call, err)
			}
		}
		if err := store.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "there is a shop in schema public") {
			t.Errorf("%s: Migrate returned %v, want that there is a shop", schema, err)
		}
		testdb.Open(t, "pgx", public.URL+"&search_path="+url.PathEscape(schema)).Migrate(t)
		must.OK(t, store.Migrate(t.Context()))
		if users, err := store.ListUsers(t.Context(), "", 1); err != nil || len(users) > 0 {
			t.Errorf("%s: users are %v, %v", schema, users, err)
		}
		order, err := testdb.Create(t.Context(), store, "key", "teapot")
		if err != nil || created[order.ID] != "" {
			t.Errorf("%s: the key has the order %v of %q, %v", schema, order, created[order.ID], err)
		}
		created[order.ID] = schema
		if again, err := testdb.Create(t.Context(), sqlstore.New(tenant.Pool, nil), "key", "teapot"); err != nil || !again.Equal(order) {
			t.Errorf("%s: the order, sent again, is %v, %v, want %v", schema, again, err, order)
		}
		if ids := testdb.Column(t, public.Pool, "SELECT id FROM "+schema+".storefront_orders"); !slices.Equal(ids, []string{order.ID}) {
			t.Errorf("%s has the orders %q, want %s", schema, ids, order.ID)
		}
	}
	if ids := testdb.Column(t, public.Pool, "SELECT id FROM public.storefront_orders"); !slices.Equal(ids, []string{first.ID}) {
		t.Errorf("public has the orders %q, want %s", ids, first.ID)
	}
}

// TestAttachedFilesAreOfOthers has a connection whose own file has no tables yet, and a shop's file attached.
func TestAttachedFilesAreOfOthers(t *testing.T) {
	other := testdb.New(t, "sqlite", testdb.SQLiteFile(t))
	file, _, _ := strings.Cut(strings.TrimPrefix(other.URL, "file:"), "?")
	d := testdb.Open(t, "sqlite", testdb.SQLiteFile(t))
	d.Pool.SetMaxOpenConns(1)
	d.Exec(t, "ATTACH DATABASE '"+file+"' AS other")
	d.Exec(t, "CREATE TEMP TABLE storefront_users AS SELECT * FROM other.storefront_users")
	store := sqlstore.New(d.Pool, nil)
	_, order := testdb.Create(t.Context(), store, "key", "kettle")
	_, list := store.ListUsers(t.Context(), "", 1)
	for _, err := range []error{order, list, store.Check(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "no such table") {
			t.Errorf("before Migrate, a call returned %v, want that there is no such table", err)
		}
	}
	if err := d.Use(t); err != nil {
		t.Error(err)
	}
	if orders := testdb.StoredOrders(t, other.Pool); len(orders) > 0 {
		t.Errorf("the other file has the orders %v", orders)
	}
}
