//go:build !nosqlite

package shopdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// walLimit is how large the WAL may stay, in bytes. SQLite copies it into the
	// database after every 1000 pages of 4 KiB and begins anew, if no reader keeps
	// it from that.
	walLimit = 16 << 20

	// walRoom is how much room there must be beside that for what the WAL has, in
	// bytes: more than a shared commit takes.
	walRoom = 2 << 20
)

// A sqliteFile is a driver.Connector for a SQLite database in a file.
//
// While a reader in another process holds a snapshot, the WAL grows. If it filled the
// disk, it could never be copied into the database, which may have to grow for that,
// nor be cut. So nothing is written unless there is as much room left as the WAL takes.
// And because SQLite copies only after a commit, watch does it when none succeeds.
type sqliteFile struct {
	driver.Connector
	path   string
	free   func(dir string) (bytes uint64, err error) // what the disk has left for this program
	logger *slog.Logger
}

// openSQLite returns the database in a file, which it makes if it is not there, and what watches
// over the file.
func openSQLite(name string, o Options) (*sql.DB, func(context.Context), error) {
	db, file, err := openSQLiteFile(name, o)
	return db, func(ctx context.Context) { file.watch(ctx, db) }, err
}

func openSQLiteFile(name string, o Options) (*sql.DB, *sqliteFile, error) {
	path, err := realPath(name)
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		create(path)
	}
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: url.Values{"_pragma": {
		// SQLite waits for another writer in milliseconds, and does not notice
		// meanwhile that a request's time is up; sqlstore tries again after it.
		"busy_timeout(" + strconv.FormatInt(max(1, o.BusyTimeout.Milliseconds()), 10) + ")",
		// Readers do not wait for the writer, nor the writer for them.
		"journal_mode(WAL)",
		// Each commit is on the disk before the order is acknowledged. WAL's
		// usual NORMAL would lose the last ones when the power fails.
		"synchronous(FULL)",
		"journal_size_limit(" + strconv.Itoa(walLimit) + ")",
	}}.Encode()}
	connector, err := sqlite.NewConnector(dsn.String())
	if err != nil {
		return nil, nil, err
	}
	f := &sqliteFile{connector, path, freeOf, o.Logger}
	db := sql.OpenDB(f)
	// The store commits orders over one connection at a time; the others are for
	// reads, which use more cores with more of them.
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	// What keeps a file from being written does not pass, unless it is another process or a
	// full disk.
	err = checkWritable(db)
	passes := errors.Is(err, errNoRoom) || hasCode(err, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)
	if err != nil && !passes {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", name, err), db.Close())
	}
	return db, f, nil
}

// create makes an empty file that only its owner can read, if there is none. SQLite would give a
// new file to everyone to read, and gives the mode of the file to those that it makes beside it.
// If it cannot be made, SQLite says why.
func create(path string) {
	// Another Open of this process may use the file as soon as it has its name. To close a
	// descriptor of it then would release the locks that SQLite has.
	if f, err := os.CreateTemp(filepath.Dir(path), ".shopdb-*"); err == nil { // of mode 0600
		f.Close()
		err = os.Link(f.Name(), path)
		os.Remove(f.Name())
		if err == nil || errors.Is(err, fs.ErrExist) {
			return
		}
	}
	// The file system has no hard links.
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
		f.Close()
	}
}

// realPath returns the absolute path of the file that a name leads to, which need not be
// there. SQLite follows symbolic links: the WAL is beside the file that is behind them,
// and takes the room of that disk. And with an absolute path, no name is special, as
// :memory: would be.
func realPath(name string) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	for {
		real, err := filepath.EvalSymlinks(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return real, err
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return path, nil // SQLite says what is wrong
		}
		path = filepath.Join(dir, filepath.Base(path))
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // it is going to be made here
		}
		if path = target; !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
	}
}

// checkWritable commits a write that changes nothing. Where a file, its folder or its
// file system is read-only, BEGIN IMMEDIATE succeeds, and so does its end.
func checkWritable(db *sql.DB) error {
	ctx := context.Background() // busy_timeout is limit enough
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	var version int
	err = conn.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version)
	if err == nil {
		_, err = conn.ExecContext(ctx, `PRAGMA user_version = `+strconv.Itoa(version))
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, `COMMIT`)
	}
	if err != nil {
		conn.ExecContext(ctx, `ROLLBACK`)
	}
	return err
}

// hasCode reports whether err is a SQLite error with one of these primary result codes.
func hasCode(err error, codes ...int) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && slices.Contains(codes, e.Code()&0xFF)
}

// size returns the size of the WAL in bytes.
func (f *sqliteFile) size() uint64 {
	info, err := os.Stat(f.path + "-wal")
	if err != nil { // there is none
		return 0
	}
	return uint64(info.Size())
}

// errNoRoom has SQLite's text for a full disk, which tells the store to try again.
var errNoRoom = errors.New("database or disk is full, but for what it takes to empty the WAL")

// room returns errNoRoom if the database might not have the room to take what the WAL has.
func (f *sqliteFile) room() error {
	size := f.size()
	if size == 0 {
		return nil
	}
	if free, err := f.free(filepath.Dir(f.path)); err == nil && free < size+walRoom {
		return errNoRoom
	}
	return nil
}

// watch copies the WAL into the database and empties it whenever it is too large, and says when
// the disk has no room, until ctx is done.
func (f *sqliteFile) watch(ctx context.Context, db *sql.DB) {
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	full := false
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		var err error
		if f.size() > walLimit || f.room() != nil {
			err = empty(ctx, db)
		}
		switch was := full; {
		case ctx.Err() != nil:
			return
		case f.room() != nil:
			if full = true; !was {
				f.logger.Warn("the disk has no room for orders", slog.Any("error", err))
			}
		default:
			if full = false; was {
				f.logger.Info("the disk has room for orders again")
			}
		}
	}
}

// empty copies the WAL into the database and, if no reader needs it any longer, empties
// it.
func empty(ctx context.Context, db *sql.DB) error {
	pragma := func(mode string) (busy bool, pages, copied int, err error) {
		err = db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(`+mode+`)`).Scan(&busy, &pages, &copied)
		return busy, pages, copied, err
	}
	// A TRUNCATE holds up orders while it waits for readers: only for those that
	// are about to end.
	_, pages, copied, err := pragma("PASSIVE")
	if err == nil && copied < pages {
		err = fmt.Errorf("a reader needs all but %d of the %d pages in the WAL", copied, pages)
	}
	if err != nil {
		return err
	}
	_, _, _, err = pragma("TRUNCATE")
	return err
}

// Connect implements driver.Connector.
func (f *sqliteFile) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &fileConn{c.(sqliteConn), f}, nil
}

// A sqliteConn is what the driver's connections are.
type sqliteConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// A fileConn is a connection that executes nothing unless there is room.
type fileConn struct {
	sqliteConn
	file *sqliteFile
}

// ExecContext implements driver.ExecerContext.
func (c *fileConn) ExecContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (driver.Result, error) {
	if err := c.file.room(); err != nil && !endsTransaction(query) {
		return nil, err
	}
	return c.sqliteConn.ExecContext(ctx, query, args)
}

// endsTransaction reports whether a statement ends a transaction or a savepoint.
func endsTransaction(query string) bool {
	verb, _, _ := strings.Cut(query, " ")
	return slices.Contains([]string{"COMMIT", "END", "RELEASE", "ROLLBACK"}, strings.ToUpper(verb))
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *fileConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.sqliteConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &fileStmt{s.(sqliteStmt), c.file}, nil
}

// A sqliteStmt is what the driver's statements are.
type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// A fileStmt is a statement of a fileConn.
type fileStmt struct {
	sqliteStmt
	file *sqliteFile
}

// ExecContext implements driver.StmtExecContext.
func (s *fileStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.file.room(); err != nil {
		return nil, err
	}
	return s.sqliteStmt.ExecContext(ctx, args)
}
