package examples

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"example.com/storefront"
	"example.com/storefront/durable/examples/owntables"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
	"example.com/storefront/storetest"
)

// A columnStore is a store that makes its resources of columns. The suite wants those
// back that it has put, with any members: each is put as the text of a column, and
// taken out of it again.
type columnStore struct {
	*owntables.Shop
	database *testdb.DB
}

var _ storetest.Editor = columnStore{}

func (s columnStore) ListUsers(ctx context.Context, after string, limit int) (users []storefront.Resource, err error) {
	made, err := s.Shop.ListUsers(ctx, after, limit)
	for _, r := range made {
		user, textErr := ofColumn(r)
		users, err = append(users, user), errors.Join(err, textErr)
	}
	return users, err
}

func (s columnStore) GetProduct(ctx context.Context, id string) (storefront.Resource, error) {
	made, err := s.Shop.GetProduct(ctx, id)
	if err != nil {
		return made, err
	}
	return ofColumn(made)
}

// ofColumn returns the resource whose text is the name or the title of another one.
func ofColumn(made storefront.Resource) (r storefront.Resource, err error) {
	var columns struct{ ID, Name, Title string }
	if err := json.Unmarshal([]byte(made.String()), &columns); err != nil {
		return r, err
	}
	if err := r.UnmarshalJSON([]byte(columns.Name + columns.Title)); err != nil {
		return r, err
	}
	if r.ID() != made.ID() || columns.ID != made.ID() {
		return r, errors.New("the row of " + r.ID() + " was read as that of " + made.ID())
	}
	return r, nil
}

func (s columnStore) Put(ctx context.Context, contents storetest.Contents) error {
	tx, err := s.database.Pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	put := func(insert string, resources []storefront.Resource) error {
		statement, err := tx.PrepareContext(ctx, insert)
		if err != nil {
			return err
		}
		defer statement.Close()
		for _, r := range resources {
			if _, err := statement.ExecContext(ctx, r.ID(), r.String()); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(
		put(`INSERT INTO customers VALUES ($1, $2) ON CONFLICT (login) DO UPDATE SET name = excluded.name`, contents.Users),
		put(`INSERT INTO goods VALUES ($1, $2, 100) ON CONFLICT (sku) DO UPDATE SET title = excluded.title`, contents.Products),
		tx.Commit(),
		s.Widgets.Put(ctx, contents.Widgets...))
}

func (s columnStore) Delete(ctx context.Context, contents storetest.Contents) error {
	err := s.Widgets.Delete(ctx, testdb.IDs(contents.Widgets)...)
	for _, id := range testdb.IDs(contents.Users) {
		_, deleteErr := s.database.Pool.ExecContext(ctx, `DELETE FROM customers WHERE login = $1`, id)
		err = errors.Join(err, deleteErr)
	}
	for _, id := range testdb.IDs(contents.Products) {
		_, deleteErr := s.database.Pool.ExecContext(ctx, `DELETE FROM goods WHERE sku = $1`, id)
		err = errors.Join(err, deleteErr)
	}
	return err
}

// A store that embeds sqlstore's and reads tables of the program's keeps the contract.
func TestOwnTables(t *testing.T) {
	test := func(t *testing.T, d *testdb.DB, tables string) {
		t.Parallel()
		d.Exec(t, tables)
		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
			d.Clear(t)
			d.Exec(t, "DELETE FROM customers", "DELETE FROM goods")
			store := columnStore{owntables.New(d.Connect(t), nil), d}
			must.OK(t, store.Put(t.Context(), contents))
			return store
		})
	}
	t.Run("SQLite", func(t *testing.T) { test(t, testdb.New(t, "sqlite", testdb.SQLiteFile(t)), owntables.SQLiteTables) })
	t.Run("PostgreSQL", func(t *testing.T) {
		test(t, testdb.New(t, "pgx", dbserver.Postgres.Database(t)), owntables.PostgresTables)
	})
}

func TestOwnTablesHaveTheirColumns(t *testing.T) {
	d := testdb.New(t, "sqlite", testdb.SQLiteFile(t))
	d.Exec(t, owntables.SQLiteTables, "INSERT INTO customers VALUES ('ada', 'Ada')", "INSERT INTO goods VALUES ('teapot', 'Teapot', 2450)")
	shop := owntables.New(d.Pool, nil)
	users, err := shop.ListUsers(t.Context(), "", 10)
	if err != nil || len(users) != 1 || users[0].String() != `{"id":"ada","name":"Ada"}` {
		t.Errorf("users are %v, %v", users, err)
	}
	product, err := shop.GetProduct(t.Context(), "teapot")
	if err != nil || product.String() != `{"id":"teapot","title":"Teapot","cents":2450}` {
		t.Errorf("the product is %v, %v", product, err)
	}
}
