package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/sqlstore"
)

// A lockedLog may be written to and read at once.
type lockedLog struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(b)
}

func (l *lockedLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// createOrder creates an order with an ID, which is its key, too.
func createOrder(ctx context.Context, store *sqlstore.Store, id string) error {
	_, err := store.CreateOrder(ctx, storefront.IdempotencyKey{Value: id},
		storefront.Order{ID: id, Item: "teapot", Qty: 1, CreatedAt: time.UnixMilli(1).UTC()})
	return err
}

// Where a file of a running shop is gone, or has another name, no order is acknowledged, not even one whose
// commit is under way. Check fails, the log says so once, and no file is made in its place. When the file is
// back, orders go on.
func TestFileThatIsGone(t *testing.T) {
	// As docs/failures.md has it: the file without a name, which the program has open, and its WAL.
	const save = `mkdir saved; cp shop/shop.db-wal saved; for fd in /proc/$PPID/fd/*; do
		[ "$(readlink $fd)" != "$PWD/shop/shop.db (deleted)" ] || cp $fd saved/shop.db; done`
	for _, row := range []struct {
		name           string
		lose, giveBack string // what a shell does beside the folder shop, and a backup; "": nothing can
	}{
		{"the file is removed", "rm shop/shop.db", ""},
		{"the file is moved", "mv shop/shop.db old.db", "mv old.db shop/shop.db"},
		{"the file is moved, and a link is in its place", "mv shop/shop.db old.db; ln -s ../old.db shop/shop.db",
			"rm shop/shop.db; mv old.db shop/shop.db"},
		{"a backup is moved over it", "mv backup.db shop/shop.db", ""},
		{"the WAL is removed", "rm shop/shop.db-wal", ""},
		{"the shared memory is removed", "rm shop/shop.db-shm", ""},
		{"the file gets another name", "ln shop/shop.db link", "rm link"},
		{"the folder is moved", "mv shop elsewhere", "mv elsewhere shop"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			shell := func(command string) {
				sh := exec.CommandContext(t.Context(), "sh", "-ec", command)
				sh.Dir = dir
				if out, err := sh.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", command, err, out)
				}
			}
			name := filepath.Join(dir, "shop", "shop.db")
			shell("mkdir shop")
			var log lockedLog
			db := must.Get(Open(name, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
			defer db.Close()
			store := sqlstore.New(db.DB, nil)
			ctx := t.Context()
			must.OK(t, store.Migrate(ctx))
			must.Get(db.ExecContext(ctx, `VACUUM INTO '`+filepath.Join(dir, "backup.db")+`'`))(t)
			must.OK(t, createOrder(ctx, store, "before"))
			// The file goes between the INSERT and the COMMIT.
			tx, err := db.BeginTx(ctx, nil)
			if err == nil {
				_, err = tx.ExecContext(ctx, `UPDATE storefront_orders SET qty = 2`)
			}
			must.OK(t, err)
			shell(row.lose)
			left := list(t, dir)
			if err := tx.Commit(); !errors.Is(err, storefront.ErrUnavailable) {
				t.Errorf("the commit under way: %v", err)
			}
			says := "see docs/failures.md"
			if strings.HasSuffix(row.name, "another name") {
				says = "2 names"
			}
			if err := createOrder(ctx, store, "after"); !errors.Is(err, storefront.ErrUnavailable) ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("an order: %v, want an error that says what to do", err)
			}
			if err := store.Check(ctx); !errors.Is(err, storefront.ErrUnavailable) {
				t.Errorf("Check: %v", err)
			}
			db.SetMaxIdleConns(0) // other calls would have new connections
			db.PingContext(ctx)
			if now := list(t, dir); now != left {
				t.Errorf("there are %s, want %s", now, left)
			}
			if row.giveBack != "" {
				shell(row.giveBack)
				again := func() error { return createOrder(ctx, store, "again") }
				for err := again(); err != nil; err = again() {
					if !errors.Is(err, storefront.ErrUnavailable) {
						t.Fatal(err)
					}
					runtime.Gosched()
				}
			}
			if runtime.GOOS == "linux" && row.giveBack == "" && strings.HasSuffix(row.lose, "shop/shop.db") {
				shell(save)
				saved := must.Get(Open(filepath.Join(dir, "saved", "shop.db"), nil))(t)
				defer saved.Close()
				var before string
				err := saved.QueryRowContext(ctx, `SELECT id FROM storefront_orders`).Scan(&before)
				if before != "before" {
					t.Errorf("what is saved has the order %q, %v", before, err)
				}
			}
			text := log.text()
			if n := strings.Count(text, "no orders are taken"); n != 1 {
				t.Errorf("the log says %d times that no orders are taken: %s", n, text)
			}
		})
	}
}

// list returns the names and modes of what is in a folder.
func list(t *testing.T, dir string) (all string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all += info.Mode().String() + " " + strings.TrimPrefix(path, dir) + "\n"
		}
		return err
	})
	must.OK(t, err)
	return all
}

// Orders that are in a WAL that has lost its name are in the file once the program has ended.
func TestOrdersInARemovedWALAreKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	db, _ := openFile(t, name)
	must.Get(db.ExecContext(t.Context(), `CREATE TABLE t (n)`))(t)
	must.OK(t, errors.Join(os.Remove(name+"-wal"), db.Close()))
	again, _ := openFile(t, name)
	if _, err := again.ExecContext(t.Context(), `INSERT INTO t VALUES (1)`); err != nil {
		t.Error(err)
	}
}

// A process that opens and closes the file while no connection of the pool is open removes no WAL.
func TestWALStaysWhileThePoolIsEmpty(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	db, _ := openFile(t, name)
	db.SetMaxIdleConns(-1)
	shell := exec.CommandContext(t.Context(), "sqlite3", name, "CREATE TABLE t (n)")
	if out, err := shell.CombinedOutput(); err != nil {
		t.Skipf("%v: %s (Debian: apt-get install sqlite3)", err, out)
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO t VALUES (1)`); err != nil {
		t.Error(err)
	}
}

func TestFileSystemThatBecomesReadOnly(t *testing.T) {
	_, file := openFile(t, filepath.Join(t.TempDir(), "shop.db"))
	var log strings.Builder
	file.logger = slog.New(slog.NewTextHandler(&log, nil))
	for _, readOnly := range []bool{true, true, false} {
		file.readOnly = func(string) bool { return readOnly }
		file.look()
		if err := file.usable(); errors.Is(err, storefront.ErrUnavailable) != readOnly {
			t.Errorf("read-only: %t, and it is %v", readOnly, err)
		}
	}
	if n, m := strings.Count(log.String(), "read-only"), strings.Count(log.String(), "again"); n != 1 || m != 1 {
		t.Errorf("the log is %s", &log)
	}
}

// A program with a second SQLite library is refused.
func TestSecondLibraryIsRefused(t *testing.T) {
	for path, want := range map[string]bool{
		"github.com/mattn/go-sqlite3": true, "github.com/mattn/go-isatty": false,
		"github.com/mutecomm/go-sqlcipher/v4": true, "modernc.org/sqlite": false,
		"github.com/glebarez/go-sqlite": false, // built on modernc.org/sqlite/lib
	} {
		info := &debug.BuildInfo{Deps: []*debug.Module{{Path: "modernc.org/sqlite"}, {Path: path}}}
		name := filepath.Join(t.TempDir(), "shop.db")
		db, _, err := open(name, withDefaults(nil), info)
		if err == nil {
			err = db.Close()
		} else if _, missing := os.Stat(name); missing == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("with %s: %v, and is the file there? %v", path, err, missing)
		}
		if (err != nil) != want {
			t.Errorf("with %s: %v", path, err)
		}
	}
}
