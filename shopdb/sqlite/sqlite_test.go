package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/storefront"
	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb"
	"example.com/storefront/shopdb/internal/opentest"
	"example.com/storefront/sqlstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNameThatIsNoFile(t *testing.T) {
	t.Chdir(t.TempDir()) // where a file of a name that is taken is made
	for _, row := range []struct{ name, says string }{
		{"", "no database"},
		{"oracle://shop:secret@localhost/shop", "./oracle:"},
		{"mysql://shop:secret@localhost/shop", "plain name"},
		{"shop:secret@tcp(localhost)/shop", "a server is named by a URL"},
		{"user=shop password=secret dbname=shop", "postgres://"},
		// There could be a file of each of these names, and nobody would look for orders in it.
		{":memory:", "./:memory:"},
		{"file:shop.db", "./file:"},
		{"./shop.db?_pragma=journal_mode(WAL)", "parameters"},
		{"~/shop.db", "~"},
		{"shop.db/", "folder"},
		{"shop.db\n", "white space"},
	} {
		opentest.Refused(t, Open, row.name, row.says)
	}
}

// openFile opens the database in a file for the time of the test.
func openFile(t *testing.T, name string) (*sql.DB, *sqliteFile) {
	t.Helper()
	db, file, err := open(name, withDefaults(nil), nil)
	must.OK(t, err)
	t.Cleanup(func() { db.Close() })
	return db, file
}

func TestSQLiteKeepsWhatItCommitted(t *testing.T) {
	db, _ := openFile(t, filepath.Join(t.TempDir(), "shop.db"))
	for range 4 { // connections
		conn := must.Get(db.Conn(t.Context()))(t)
		defer conn.Close()
		for pragma, want := range map[string]string{
			"journal_mode": "wal", "synchronous": "2", "busy_timeout": "100", "journal_size_limit": "16777216",
		} {
			var got string
			if err := conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %s, %v; want %s", pragma, got, err, want)
			}
		}
	}
}

// SQLite has 31 bits for the milliseconds, and takes more for none at all.
func TestAnyBusyTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]int64{-1: 100, 1: 1, time.Minute: 60_000, math.MaxInt64: math.MaxInt32} {
		name := filepath.Join(t.TempDir(), "shop.db")
		db, _, err := open(name, withDefaults(&Options{BusyTimeout: timeout}), nil)
		must.OK(t, err)
		defer db.Close()
		var got int64
		if err := db.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&got); err != nil || got != want {
			t.Errorf("with a BusyTimeout of %v, SQLite has %d, %v; want %d", timeout, got, err, want)
		}
	}
}

// A file that another process has locked is not one that cannot be served.
func TestLockedFile(t *testing.T) {
	for _, begin := range []string{"BEGIN EXCLUSIVE", "PRAGMA journal_mode = WAL; BEGIN IMMEDIATE"} {
		name := filepath.Join(t.TempDir(), "shop.db")
		other := must.Get(sql.Open("sqlite", name))(t)
		defer other.Close()
		other.SetMaxOpenConns(1)
		must.Get(other.ExecContext(t.Context(), begin))(t)
		openFile(t, name)
	}
}

func TestNoFileNameIsSpecial(t *testing.T) {
	for _, name := range []string{"./:memory:", "shop?mode", "a#b%20c.db", "./file:shop.db", "C:shop.db"} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			db := must.Get(Open(name, nil))(t)
			defer db.Close()
			if _, err := os.Stat(name + "-wal"); err != nil { // the file itself is there in any case
				t.Error(err)
			}
		})
	}
}

func TestNewFilesAreTheOwnersAlone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	var opening sync.WaitGroup
	for range 4 {
		opening.Go(func() {
			db, err := Open(name, nil)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { db.Close() })
		})
	}
	opening.Wait()
	if files, err := os.ReadDir(filepath.Dir(name)); err != nil || len(files) != 4 {
		t.Errorf("%d files are in the folder, %v; want shop.db and three beside it", len(files), err)
	}
	for _, suffix := range suffixes {
		info := must.Get(os.Stat(name + suffix))(t)
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("shop.db%s has the mode %o, want 600", suffix, mode)
		}
	}
}

// What is looked at, such as how large the WAL is and how much room its disk has, is the
// file that SQLite writes.
func TestFileBehindASymbolicLink(t *testing.T) {
	for _, row := range []struct {
		name  string
		links [][2]string // the name of each and what it leads to; a / stands for the test's folder
		file  string      // the database
	}{
		{"no link", nil, "shop.db"},
		{"to another folder", [][2]string{{"shop.db", "/disk/orders.db"}}, "disk/orders.db"},
		{"to another link", [][2]string{
			{"disk/link.db", "../other/orders.db"}, {"shop.db", "disk/link.db"},
		}, "other/orders.db"},
	} {
		for _, there := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, there before %t", row.name, there), func(t *testing.T) {
				root := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
				real := filepath.Join(root, row.file)
				err := errors.Join(os.Mkdir(root+"/disk", 0o700), os.Mkdir(root+"/other", 0o700))
				for _, link := range row.links {
					if strings.HasPrefix(link[1], "/") {
						link[1] = root + link[1]
					}
					err = errors.Join(err, os.Symlink(link[1], filepath.Join(root, link[0])))
				}
				want := fs.FileMode(0o600)
				if there {
					want = 0o640
					err = errors.Join(err, os.WriteFile(real, nil, want))
				}
				must.OK(t, err)
				db, file := openFile(t, filepath.Join(root, "shop.db"))
				must.Get(db.ExecContext(t.Context(), `CREATE TABLE t (n)`))(t)
				for _, suffix := range []string{"", "-wal", "-shm"} {
					info := must.Get(os.Lstat(real + suffix))(t)
					if info.Mode() != want { // it is no link, either
						t.Errorf("%s%s has the mode %v, want %v", row.file, suffix, info.Mode(), want)
					}
					if suffix == "-wal" && file.size() != uint64(info.Size()) {
						t.Errorf("the WAL is taken to have %d bytes, and has %d", file.size(), info.Size())
					}
				}
				var looked string
				file.free = func(dir string) (uint64, error) { looked = dir; return 0, nil }
				if err := file.room(); !errors.Is(err, errNoRoom) || looked != filepath.Dir(real) {
					t.Errorf("%v: room was looked for in %s, want errNoRoom in %s", err, looked, filepath.Dir(real))
				}
			})
		}
	}
}

// Each error of a file at the start says what is wrong, where, and what to do.
func TestWhatIsSaidOfAFile(t *testing.T) {
	for _, row := range []struct {
		name string
		make func(dir, file string) error // beside a database that is there
		says string                       // FILE and DIR are its name and that of its folder
	}{
		{"no folder", func(dir, _ string) error { return os.RemoveAll(dir) },
			"there is no folder DIR: make it, or mount its disk"},
		{"a link to nowhere", func(dir, file string) error {
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.Symlink(dir+"/missing/shop.db", file))
		}, "there is no folder DIR/missing"},
		{"no database", func(_, file string) error {
			return os.WriteFile(file, []byte(strings.Repeat("text ", 100)), 0o600)
		}, "FILE is not a database of SQLite: is it the right file?"},
		{"a database that is cut off", func(_, file string) error { return os.Truncate(file, 5000) },
			"FILE is damaged: keep a copy of it and of the files beside it, then restore a backup"},
	} {
		t.Run(row.name, func(t *testing.T) {
			root := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
			dir := filepath.Join(root, "shop")
			file := filepath.Join(dir, "shop.db")
			must.OK(t, os.Mkdir(dir, 0o755))
			makeShop(t, file, func(*shopdb.DB, *sqlstore.Store) {})
			must.OK(t, row.make(dir, file))
			db, _, err := open(file, withDefaults(nil), nil)
			if err == nil {
				db.Close()
			}
			says := strings.NewReplacer("FILE", file, "DIR", dir).Replace(row.says)
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want an error that says %s", err, says)
			}
		})
	}
}

const diskSize = 12 << 20

// A disk is one of a size, of which a folder is all that is used.
func disk(size int64) func(dir string) (uint64, error) {
	return func(dir string) (uint64, error) {
		left := size
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		for _, name := range names {
			if info, err := os.Stat(name); err == nil {
				left -= info.Size()
			}
		}
		return uint64(max(0, left)), err
	}
}

func TestWithoutRoomTransactionsCanOnlyEnd(t *testing.T) {
	db, file := openFile(t, filepath.Join(t.TempDir(), "shop.db"))
	file.free = disk(0)
	if file.size() == 0 {
		t.Fatal("the WAL is empty")
	}
	for query, says := range map[string]string{
		`CREATE TABLE t (n)`: "disk is full",
		`SAVEPOINT a`:        "disk is full",
		`RELEASE a`:          "no such savepoint",
		`rollback`:           "no transaction is active",
		`ROLLBACK TO a`:      "no such savepoint",
		`COMMIT`:             "no transaction is active",
	} {
		if _, err := db.ExecContext(t.Context(), query); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want an error that says %s", query, err, says)
		}
	}
	var n int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_schema`).Scan(&n); err != nil {
		t.Errorf("a read: %v", err)
	}
}

// read has another reader begin to read, and returns what ends it.
func read(t *testing.T, name string) (end func()) {
	t.Helper()
	db := must.Get(sql.Open("sqlite", name))(t)
	tx := must.Get(db.BeginTx(t.Context(), nil))(t)
	end = sync.OnceFunc(func() {
		tx.Rollback()
		db.Close()
	})
	t.Cleanup(end)
	var n int
	must.OK(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_schema`).Scan(&n))
	return end
}

// On a disk that is almost full, who is about to write empties the WAL itself, and is not sent away.
func TestWritersOnAnAlmostFullDiskMakeRoom(t *testing.T) {
	dir := t.TempDir()
	db, file := openFile(t, filepath.Join(dir, "shop.db"))
	must.Get(db.ExecContext(t.Context(), `CREATE TABLE t (b)`))(t)
	used := 1<<40 - must.Get(disk(1<<40)(dir))(t)
	file.free = disk(int64(used) + walRoom + 600<<10)
	for range 100 {
		tx := must.Get(db.BeginTx(t.Context(), nil))(t)
		must.Get(tx.ExecContext(t.Context(), `INSERT INTO t VALUES (randomblob(1000))`))(t)
		must.OK(t, tx.Commit())
		must.Get(db.ExecContext(t.Context(), `INSERT INTO t VALUES (randomblob(1000))`))(t)
	}
}

// A caller whose time is up closes no connection that has to stay open.
func TestRoomIsMadeThoughTheTimeIsUp(t *testing.T) {
	_, file := openFile(t, filepath.Join(t.TempDir(), "shop.db"))
	free := uint64(0)
	file.free = func(string) (uint64, error) { free += 1 << 40; return free - 1<<40, nil }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := file.makeRoom(ctx); err != nil || file.pinned.Stats().OpenConnections != 1 {
		t.Errorf("%v, and %+v; want the WAL emptied over one connection", err, file.pinned.Stats())
	}
}

// While a reader keeps the WAL from being emptied, orders are created until there is
// just the room that it takes to empty it, and no longer.
func TestOrdersLeaveRoomForTheWAL(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	db, file := openFile(t, name)
	file.free = disk(diskSize)
	must.OK(t, sqlstore.New(db, nil).Migrate(t.Context()))
	// Each client waits for room for all of that time.
	store := sqlstore.New(db, &sqlstore.Options{Timeout: 2 * time.Second})
	end := read(t, name)
	var n atomic.Int64
	next := func() error { return createOrder(t.Context(), store, fmt.Sprint("order", n.Add(1))) }
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			var err error
			for !errors.Is(err, errNoRoom) && file.size() < diskSize {
				err = next()
			}
			if !errors.Is(err, storefront.ErrUnavailable) || !errors.Is(err, errNoRoom) {
				t.Errorf("after %d orders: %v, want ErrUnavailable for lack of room", n.Load(), err)
			}
		})
	}
	clients.Wait()
	if free, err := file.free(filepath.Dir(name)); err != nil || free < file.size() || file.size() < 1<<20 {
		t.Fatalf("%d bytes are left, %v, and the WAL has %d", free, err, file.size())
	}

	file.watching.Go(func() { file.watch(db) })
	end()
	for limit := time.Now().Add(30 * time.Second); ; {
		err := next()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("after the reader has gone: %v", err)
		}
	}
}

func TestWALIsKeptSmall(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.db")
	db, file := openFile(t, name)
	must.Get(db.ExecContext(t.Context(), `CREATE TABLE t (b)`))(t)
	end := read(t, name)
	for file.size() <= walLimit {
		must.Get(db.ExecContext(t.Context(), `INSERT INTO t VALUES (zeroblob(1000000))`))(t)
	}
	file.watching.Go(func() { file.watch(db) })
	end()
	for limit := time.Now().Add(30 * time.Second); file.size() > walLimit; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("the WAL still has %d bytes", file.size())
		}
	}
}

// What is wrong with a program is said in its first order.
func TestWhatIsSaidOfAnOrder(t *testing.T) {
	db := must.Get(Open(filepath.Join(t.TempDir(), "shop.db"), nil))(t)
	defer db.Close()
	store := sqlstore.New(db.DB, nil)
	if err := createOrder(t.Context(), store, "early"); err == nil || !strings.Contains(err.Error(), "the method Migrate") {
		t.Errorf("without tables: %v", err)
	}
	must.OK(t, store.Migrate(t.Context()))
	must.Get(db.ExecContext(t.Context(), `CREATE TABLE stock (n)`))(t)
	accept := func(ctx context.Context, _ *sql.Tx, _ storefront.IdempotencyKey, _ storefront.Order) error {
		_, err := db.ExecContext(ctx, `INSERT INTO stock VALUES (1)`) // in place of tx
		return err
	}
	store = sqlstore.New(db.DB, &sqlstore.Options{Accept: accept, Timeout: time.Second})
	err := createOrder(t.Context(), store, "k")
	if !errors.Is(err, storefront.ErrUnavailable) ||
		!strings.Contains(err.Error(), "in Accept (a statement that does not use its tx") {
		t.Errorf("an Accept that uses the pool: %v", err)
	}
}
