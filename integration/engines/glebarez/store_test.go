// Package glebarez runs storetest on github.com/glebarez/go-sqlite, which registers the same name as
// modernc.org/sqlite: no program can have both.
package glebarez

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	_ "github.com/glebarez/go-sqlite"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
	"example.com/storefront/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, contents storetest.Contents) storefront.Store {
		db := must.Get(sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db")+
			"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(100)"))(t)
		t.Cleanup(func() { db.Close() })
		store := sqlstore.New(db, nil)
		must.OK(t, errors.Join(
			store.Migrate(t.Context()),
			store.Users.Put(t.Context(), contents.Users...),
			store.Products.Put(t.Context(), contents.Products...),
			store.Widgets.Put(t.Context(), contents.Widgets...),
		))
		return store
	})
}
