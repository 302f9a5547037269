package sqlite

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb"
	"example.com/storefront/sqlstore"
)

// logged returns options whose log is in memory.
func logged() (*lockedLog, *Options) {
	log := new(lockedLog)
	return log, &Options{Logger: slog.New(slog.NewTextHandler(log, nil))}
}

// wantNotOpened checks that no database is opened, and that the error says something.
func wantNotOpened(t *testing.T, name string, opts *Options, says ...string) {
	t.Helper()
	db, err := Open(name, opts)
	if err == nil {
		db.Close()
		t.Fatalf("%s is opened, want an error that says %q", name, says)
	}
	for _, what := range says {
		if !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want an error that says %s", err, what)
		}
	}
}

// makeShop makes a database with an order, k, and calls f while it is open.
func makeShop(t *testing.T, name string, f func(*shopdb.DB, *sqlstore.Store)) {
	t.Helper()
	db := must.Get(Open(name, nil))(t)
	store := sqlstore.New(db.DB, nil)
	must.OK(t, store.Migrate(t.Context()))
	must.OK(t, createOrder(t.Context(), store, "k"))
	f(db, store)
	must.OK(t, db.Close())
}

func TestFileWithSeveralNamesIsNotOpened(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	other := filepath.Join(t.TempDir(), "copy.db")
	makeShop(t, name, func(*shopdb.DB, *sqlstore.Store) {})
	must.OK(t, os.Link(name, other))
	wantNotOpened(t, name, nil, name+" has 2 names")
	wantNotOpened(t, other, nil, other+" has 2 names")
	must.OK(t, os.Remove(other))
	must.OK(t, must.Get(Open(name, nil))(t).Close())
}

// A file that is open has its WAL where it was opened. Who finds the file elsewhere does not use it.
func TestFileThatIsOpenUnderAnotherName(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	moved := filepath.Join(t.TempDir(), "moved.db")
	makeShop(t, name, func(db *shopdb.DB, _ *sqlstore.Store) {
		must.OK(t, os.Rename(name, moved))
		before := list(t, filepath.Dir(moved))
		second := must.Get(Open(moved, nil))(t)
		err := second.PingContext(t.Context())
		if !errors.Is(err, storefront.ErrUnavailable) || !strings.Contains(err.Error(), "by another name") {
			t.Errorf("%v, want ErrUnavailable for another name", err)
		}
		must.OK(t, second.Close())
		if after := list(t, filepath.Dir(moved)); after != before {
			t.Errorf("there are %s, want %s", after, before)
		}
		must.OK(t, os.Rename(moved, name))
	})
	makeShop(t, name, func(*shopdb.DB, *sqlstore.Store) {}) // whose order is there
}

// A database that was moved without its WAL, with a link in its place, is not begun without the last orders.
func TestLinkInPlaceOfAFileWhoseWALStayed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	moved := filepath.Join(t.TempDir(), "moved.db")
	makeShop(t, name, func(*shopdb.DB, *sqlstore.Store) {})
	must.OK(t, os.WriteFile(name+"-wal", []byte("the last orders"), 0o600)) // as of a program that was killed
	must.OK(t, errors.Join(os.Rename(name, moved), os.Symlink(moved, name)))
	wantNotOpened(t, name, nil, name+"-wal", "last orders")
}

// A database that is gone is not begun anew in its place.
func TestDatabaseThatIsGoneIsNotMadeAnew(t *testing.T) {
	for _, suffix := range []string{"-wal", "-shm", "-queue"} {
		for _, state := range []string{"is not there", "is empty"} {
			t.Run(suffix+", the file "+state, func(t *testing.T) {
				dir := t.TempDir()
				name := filepath.Join(dir, "shop.db")
				must.OK(t, os.WriteFile(name+suffix, []byte("the last orders"), 0o600))
				if state == "is empty" {
					must.OK(t, os.WriteFile(name, nil, 0o600))
				}
				before := list(t, dir)
				wantNotOpened(t, name, nil, name+" "+state, name+suffix+" is left")
				if after := list(t, dir); after != before {
					t.Errorf("there are %s, want %s", after, before)
				}
				must.OK(t, os.Rename(name+suffix, filepath.Join(t.TempDir(), "kept")))
				must.OK(t, must.Get(Open(name, nil))(t).Close())
			})
		}
	}
	t.Run("after an end by SIGTERM", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("nothing is left there")
		}
		name := filepath.Join(t.TempDir(), "shop.db")
		makeShop(t, name, func(*shopdb.DB, *sqlstore.Store) {})
		must.OK(t, os.Remove(name))
		wantNotOpened(t, name, nil, name+" is not there")
	})
}

// The log says, once, where a new database is made. With MustExist, none is.
func TestNewDatabaseIsSaidOrRefused(t *testing.T) {
	for _, state := range []string{"is not there", "is empty"} {
		t.Run(state, func(t *testing.T) {
			dir := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
			t.Chdir(dir)
			if state == "is empty" {
				must.OK(t, os.WriteFile("shop.db", nil, 0o600))
			}
			before := list(t, dir)
			wantNotOpened(t, "shop.db", &Options{MustExist: true}, filepath.Join(dir, "shop.db")+" "+state, "must exist")
			if after := list(t, dir); after != before {
				t.Errorf("there are %s, want %s", after, before)
			}
			log, opts := logged()
			for range 2 {
				must.OK(t, must.Get(Open("shop.db", opts))(t).Close())
				opts.MustExist = true
			}
			line := "a new database is made\" file=" + filepath.Join(dir, "shop.db")
			if n := strings.Count(log.text(), line); n != 1 {
				t.Errorf("the log has %d times %s: %s", n, line, log.text())
			}
		})
	}
}
