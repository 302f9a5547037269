package storetest_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
	"example.com/storefront/storetest"
)

// A fileStore is in an SQLite file.
type fileStore struct {
	*sqlstore.Store
	db   *sql.DB
	file string
}

func openFile(t *testing.T, file string) *fileStore {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(1000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &fileStore{sqlstore.New(db, nil), db, file}
}

// Reopen implements storetest.Reopener. To close the database under the calls in
// progress is as near to a crash as one process can come.
func (s *fileStore) Reopen(t *testing.T) storefront.Store {
	s.db.Close()
	return openFile(t, s.file)
}

// A store that survives a crash is opened again on the same file.
func ExampleReopener() {
	_ = func(t *testing.T) { // func TestFileStore(t *testing.T)
		storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
			store := openFile(t, filepath.Join(t.TempDir(), "shop.db"))
			ctx := t.Context()
			if err := errors.Join(
				store.Migrate(ctx),
				store.Users.Put(ctx, contents.Users...),
				store.Products.Put(ctx, contents.Products...),
				store.Widgets.Put(ctx, contents.Widgets...),
			); err != nil {
				t.Fatal(err)
			}
			return store
		})
	}
}
