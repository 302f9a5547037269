package engines

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/storefront"
	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

func TestPutAndDeleteInBatches(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		store := sqlstore.New(d.Pool, nil)
		want := make(map[string]string)
		var resources []storefront.Resource
		for round := range 2 { // each ID twice, far from each other
			for i := range 900 {
				r := storefront.MustResource(fmt.Sprint("u", i*7919%900), map[string]int{"round": round})
				resources = append(resources, r)
				want[r.ID()] = r.String()
			}
		}
		// It is longer than what some databases take for a text of usual length.
		long := storefront.MustResource("long", map[string]string{"text": strings.Repeat("😀", 100_000)})
		resources, want[long.ID()] = append(resources, long), long.String()
		given := slices.Clone(resources)
		for range 2 {
			must.OK(t, store.Users.Put(t.Context(), resources...))
		}
		if diff := cmp.Diff(given, resources); diff != "" {
			t.Errorf("Put changed its arguments (-want +got):\n%s", diff)
		}
		expectUsers(t, store, want)

		var ids []string
		for i := range 850 {
			ids = append(ids, fmt.Sprint("u", i), "nobody", fmt.Sprint("u", i))
			delete(want, fmt.Sprint("u", i))
		}
		must.OK(t, store.Users.Delete(t.Context(), ids...))
		expectUsers(t, store, want)

		if err := errors.Join(store.Users.Put(t.Context()), store.Users.Delete(t.Context())); err != nil {
			t.Errorf("Put and Delete of nothing returned %v", err)
		}
	})
}

func expectUsers(t *testing.T, store *sqlstore.Store, want map[string]string) {
	t.Helper()
	list := must.Get(store.ListUsers(t.Context(), "", 10_000))(t)
	got := make(map[string]string)
	for _, r := range list {
		got[r.ID()] = r.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

// Programs may do with the tables what docs/databases.md tells them to.
func TestDocumentedSQL(t *testing.T) {
	testdb.OnSQLEngines(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		documented := documents.Statements(t, "../..", "docs/databases.md", "TestDocumentedSQL", d.Driver)
		readUsers, putUser, findOrder := documented[0], documented[1], documented[2:]
		store := sqlstore.New(d.Pool, nil)
		t.Run("users", func(t *testing.T) {
			d.Exec(t, putUser)
			if list, err := store.ListUsers(t.Context(), "", 2); err != nil || fmt.Sprint(list) != `[{"id":"ada","name":"Ada"}]` {
				t.Errorf("users are %v, %v", list, err)
			}
			var id, name string
			if err := d.Pool.QueryRow(readUsers).Scan(&id, &name); err != nil || id != "ada" || name != "Ada" {
				t.Errorf("read %s, %s, %v", id, name, err)
			}
		})
		t.Run("order of a key", func(t *testing.T) {
			if len(findOrder) == 0 {
				t.Skip("SQLite has no SHA-256")
			}
			key := storefront.IdempotencyKey{Scope: "ada", Value: "a1"}
			order := must.Get(store.CreateOrder(t.Context(), key, storefront.Order{ID: "ord_1"}))(t)
			if diff := cmp.Diff([]string{order.ID}, testdb.Column(t, d.Pool, findOrder[0])); diff != "" {
				t.Errorf("the order of the key (-want +got):\n%s", diff)
			}
		})
	})
}

// The documented index is the one that Migrate makes, and that lists need.
func TestDocumentedIndexOfLists(t *testing.T) {
	testdb.OnDatabasesWithoutTables(t, func(t *testing.T, d *testdb.DB) {
		t.Parallel()
		must.OK(t, sqlstore.New(d.Pool, nil).Migrate(t.Context()))
		store := sqlstore.New(d.Pool, &sqlstore.Options{OrderLists: true})
		list := func() error {
			_, err := store.OrderReader().ListOrders(t.Context(), "ada", "", 1)
			return err
		}
		if list() == nil {
			t.Error("orders are listed without an index")
		}
		d.Exec(t, documents.Statements(t, "../..", "docs/databases.md", "TestDocumentedIndexOfLists", d.Driver)...)
		must.OK(t, errors.Join(list(), store.Migrate(t.Context()), list()))
	})
}
