// Package sqlite opens a SQLite file for a shop, with all that the promises of its store need of the file
// and of the driver.
//
//	db, err := sqlite.Open("shop.db", nil)
//
// [shopdb] says how to go on. A file is named without file:, parameters or ~, and none is in memory. ./file:x
// names a file that is called file:x.
//
// An acknowledged order survives a crash of the program and of the machine: there is a write-ahead log
// (WAL) and synchronous=FULL, so each commit is on the disk before it is acknowledged.
//
// A full disk does not stop a shop for good. The WAL grows while a reader, such as a backup, holds a
// snapshot. If it filled the disk, SQLite could never empty it. So nothing is written while the disk has
// less room than the WAL takes: orders fail with [storefront.ErrUnavailable], and go on once the reader has
// gone, when the WAL is emptied.
//
// No order waits for long for a caller who has gone. SQLite waits 100 ms for a lock (Options.BusyTimeout),
// and sqlstore tries again. Reads go on beside orders: the pool has 4 connections, of which one at a time
// writes.
//
// A file stays the one that was opened. If it, or one of the two beside it, is removed, moved or
// replaced, no order is acknowledged any more, not even one whose commit is under way: orders fail with
// ErrUnavailable at once, and the log says what to do. So it is while one of them has a second name (a hard
// link). Only its owner can read a new file and those beside it. If the name is a symbolic link, all of this
// is true of the file that it leads to.
//
// Whoever opens a file finds the last orders, which are in the WAL beside it. Open refuses a file that
// is mounted by itself, without its folder, that has several names, or that was moved without its WAL, and
// waits while another program has it open elsewhere. The log warns of a network file system, and of one that
// does not outlive the machine or the container.
//
// A shop is not begun anew in silence. The log warns, with its place, of a new database. Where files of a
// database are left, but not the database, none is made, and none anywhere with Options.MustExist.
//
// Those who write a file go one after the other, also in several processes: they wait for the lock of a
// file beside it, whose name ends with -queue. A transaction that only reads should be begun as ReadOnly.
//
// A process has one SQLite library per file, and nothing else in it opens the file, such as os.ReadFile:
// when a process closes any descriptor of a file, the system drops its locks on that file, and another
// process writes at the same time. Open refuses a program that has a second library linked in.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"example.com/storefront"
	"example.com/storefront/shopdb"
	"example.com/storefront/shopdb/internal/safelog"
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
//
// The file that was opened first must stay, under one name: see intact. The connection that is pinned stays
// open, so that no other process is the last to close the file and removes the WAL.
type sqliteFile struct {
	driver.Connector
	alone     driver.Connector // of connections beside which there is no other, see checkAlone
	name      string           // absolute; it may lead to path by symbolic links
	path      string
	mustExist bool
	free      func(dir string) (bytes uint64, err error) // what the disk has left for this program
	readOnly  func(dir string) bool                      // whether the file system can only be read
	logger    *slog.Logger

	pinned  *sql.DB // of one connection
	first   sync.Mutex
	writers *writers                       // once the connection is pinned
	files   atomic.Pointer[[3]fs.FileInfo] // of each of suffixes, once the connection is pinned
	fault   atomic.Pointer[error]          // what watch has last seen wrong with the files, or nil

	watching sync.WaitGroup
	ctx      context.Context // of watch, until Close
	cancel   context.CancelFunc
}

var suffixes = [3]string{"", "-wal", "-shm"}

// Options are settings of [Open]. Zero values are defaults.
type Options struct {
	// Logger is told of a new database, when the disk has no room for orders, or a file is gone, and
	// when that has passed, what WaitFor waits for, and why keys are not forgotten. If it is nil, it
	// is slog.Default().
	Logger *slog.Logger

	// BusyTimeout is how long a statement waits for the lock of the file. Zero means 100 ms,
	// which is for sqlstore: SQLite does not notice meanwhile that a request's time is up, and
	// sqlstore tries again after it. For statements of the program's own, open the file a second
	// time, with some seconds.
	BusyTimeout time.Duration

	// MustExist has Open make no new database: a file that is not there, or is empty, is an error.
	// Set it once a shop has orders. Else, a start without its disk, or in another folder, begins a new
	// shop, in which known keys create new orders. To make no tables either, give the method Check of the
	// store to WaitFor in place of Migrate.
	MustExist bool
}

// Open returns the database in a file, which it makes if it is not there. If opts is nil, the defaults are
// used. A file that cannot be written is an error, unless another process has locked it or the disk is full:
// that may pass.
func Open(name string, opts *Options) (*shopdb.DB, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	o := withDefaults(opts)
	program, _ := debug.ReadBuildInfo()
	pool, file, err := open(name, o, program)
	if err != nil {
		return nil, err
	}
	file.watching.Go(func() { file.watch(pool) })
	return shopdb.New(pool, &shopdb.Options{Logger: o.Logger}), nil
}

func withDefaults(opts *Options) (o Options) {
	if opts != nil {
		o = *opts
	}
	o.Logger = safelog.New(o.Logger)
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 100 * time.Millisecond
	}
	return o
}

// checkName returns an error if a name is not meant as the plain name of a file, though there could be
// a file of that name. Of the name, only what is no part of a password is said.
func checkName(name string) error {
	scheme, _, found := strings.Cut(name, ":")
	isScheme := found && len(scheme) > 1 && // C:\shop.db is a file
		strings.Trim(strings.ToLower(scheme), "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
	_, query, _ := strings.Cut(name, "?")
	switch {
	case name == "":
		return errors.New("no database is named")
	case strings.Contains(name, "host="), strings.Contains(name, "dbname="), strings.Contains(name, "@tcp("):
		return errors.New("a server is named by a URL, such as postgres://user@host/database, and a SQLite file " +
			"by its plain name")
	case strings.HasPrefix(strings.ToLower(name), ":memory:"):
		return errors.New("orders in memory would be lost: name a file (./:memory: if it is called so)")
	case isScheme:
		return fmt.Errorf("a SQLite file is named by its plain name, such as shop.db, without %s: "+
			"before it (./%[1]s:… if it is called so)", scheme)
	case strings.Contains(query, "="):
		return errors.New("a SQLite file is named by its plain name, such as shop.db, without parameters" +
			" behind a ?: Open sets what orders need")
	case strings.HasPrefix(name, "~"):
		return errors.New("~ is not replaced by a home folder: name it (./~… if a file is called so)")
	case os.IsPathSeparator(name[len(name)-1]):
		return errors.New("a SQLite file is named, and not a folder, as by a / at the end")
	case strings.TrimSpace(name) != name:
		return errors.New("the name begins or ends with white space")
	}
	return nil
}

// open is Open of a name that is right, without what watches over the file. The program is nil if nothing is
// known of it.
func open(name string, o Options, program *debug.BuildInfo) (*sql.DB, *sqliteFile, error) {
	if other := otherLibrary(program); other != "" {
		return nil, nil, fmt.Errorf("%s: the program has two SQLite libraries, modernc.org/sqlite and "+
			"%s, and would lose orders: when one closes a file, the system drops the locks of the other",
			name, other)
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, nil, err
	}
	path, err := realPath(abs)
	if err != nil {
		return nil, nil, cmp.Or(accessible(abs), err)
	}
	if system, warning := warningOf(filepath.Dir(path)); warning != "" {
		o.Logger.Warn(warning, slog.String("file", path), slog.String("system", system))
	}
	// SQLite waits for another writer in milliseconds, and does not notice meanwhile that a
	// request's time is up; sqlstore tries again after it.
	ms := min(max(1, o.BusyTimeout.Milliseconds()), math.MaxInt32)
	timeout := "busy_timeout(" + strconv.FormatInt(ms, 10) + ")"
	connector, err := connectorOf(path, timeout,
		// Readers do not wait for the writer, nor the writer for them.
		"journal_mode(WAL)",
		// Each commit is on the disk before the order is acknowledged. WAL's
		// usual NORMAL would lose the last ones when the power fails.
		"synchronous(FULL)",
		"journal_size_limit("+strconv.Itoa(walLimit)+")")
	if err != nil {
		return nil, nil, err
	}
	alone, err := connectorOf(path, timeout, "locking_mode(EXCLUSIVE)")
	if err != nil {
		return nil, nil, err
	}
	f := &sqliteFile{Connector: connector, alone: alone, name: abs, path: path, mustExist: o.MustExist,
		free: freeOf, readOnly: isReadOnly, logger: o.Logger}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.pinned = sql.OpenDB(connector)
	f.pinned.SetMaxOpenConns(1)
	db := sql.OpenDB(f)
	// The store commits orders over one connection at a time; the others are for
	// reads, which use more cores with more of them.
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	// What keeps a file from being written does not pass, unless it is another process or a
	// full disk.
	err = checkWritable(db)
	passes := errors.Is(err, storefront.ErrUnavailable) || errors.Is(err, errNoRoom) || hasCode(err, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL,
		sqlite3.SQLITE_IOERR) // such as SQLITE_IOERR_SHMSIZE
	if err != nil && !passes {
		if !strings.Contains(err.Error(), name) {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, f, nil
}

// connectorOf returns a connector to a file whose connections have the settings of some pragmas.
func connectorOf(path string, pragmas ...string) (driver.Connector, error) {
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: url.Values{"mode": {"rw"},
		"_txlock": {"immediate"}, // BEGIN takes the lock for which writers have waited
		"_pragma": pragmas}.Encode()}
	return sqlite.NewConnector(dsn.String())
}

// otherLibrary returns a module of the program that has SQLite a second time, or "". What is built on
// modernc.org/sqlite/lib, such as github.com/glebarez/go-sqlite, shares its locks.
func otherLibrary(program *debug.BuildInfo) string {
	if program == nil {
		return ""
	}
	for _, module := range program.Deps {
		for _, other := range []string{
			"crawshaw.io/sqlite", "github.com/bvinc/go-sqlite-lite", "github.com/eatonphil/gosqlite",
			"github.com/gwenn/gosqlite", "github.com/mattn/go-sqlite3", "github.com/mutecomm/go-sqlcipher",
			"github.com/ncruces/go-sqlite3", "github.com/tailscale/sqlite",
			"github.com/tursodatabase/go-libsql", "gitlab.com/cznic/sqlite",
		} {
			if module.Path == other || strings.HasPrefix(module.Path, other+"/v") {
				return module.Path
			}
		}
	}
	return ""
}

// realPath returns the path of the file that an absolute path leads to, which need not be
// there. SQLite follows symbolic links: the WAL is beside the file that is behind them,
// and takes the room of that disk. And with an absolute path, no name is special, as
// :memory: would be.
func realPath(path string) (string, error) {
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

// errNoRoom is SQLite's error of a full disk, which tells the store to try again, in Accept, too.
var errNoRoom error = sqliteFull{}

type sqliteFull struct{}

func (sqliteFull) Error() string {
	return "database or disk is full, but for what it takes to empty the WAL"
}
func (sqliteFull) Code() int { return sqlite3.SQLITE_FULL }

// room returns errNoRoom if the database might not have the room to take what the WAL has.
func (f *sqliteFile) room() error {
	if free, err := f.free(filepath.Dir(f.path)); err == nil && free < f.size()+walRoom {
		return errNoRoom
	}
	return nil
}

// makeRoom is room for who is about to write. If the disk has no room, it first empties the WAL: an order
// that came back later would find that others have taken the room.
func (f *sqliteFile) makeRoom(ctx context.Context) error {
	if f.room() == nil {
		return nil
	}
	// If ctx ended in it, database/sql would close the connection that is pinned.
	if err := empty(context.WithoutCancel(ctx), f.pinned); err != nil {
		return errNoRoom
	}
	return f.room()
}

// intact returns an error if one of the files is no longer the one that was opened, or has another name,
// too. What is committed then may be in a file that nobody will see again, or who opens the other name does
// not see it, so no order is acknowledged. The error matches ErrUnavailable, and the store does not try
// again.
func (f *sqliteFile) intact() error {
	files := f.files.Load()
	if files == nil {
		return nil
	}
	for i, suffix := range suffixes {
		now, err := os.Lstat(f.path + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = errors.New("it was removed or moved")
		case err != nil:
		case now.Mode()&fs.ModeSymlink != 0: // the WAL of who follows it is elsewhere
			err = errors.New("a symbolic link has its name")
		case !os.SameFile(files[i], now):
			err = errors.New("another file has its name")
		default:
			if err := oneName(f.path+suffix, now); err != nil {
				return fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
			}
		}
		if err != nil {
			return fmt.Errorf("%w: %s is not the file that was opened (%w): this program may have the only copy "+
				"of the last orders open: before you end it, see docs/failures.md, The SQLite file is gone",
				storefront.ErrUnavailable, f.path+suffix, err)
		}
	}
	return nil
}

// usable returns what watch has last seen wrong with the files.
func (f *sqliteFile) usable() error {
	if fault := f.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// look has usable return what is wrong with the files, and says when that changes.
func (f *sqliteFile) look() {
	err := f.intact()
	if err == nil && f.readOnly(filepath.Dir(f.path)) {
		err = fmt.Errorf("%w: the file system of %s has become read-only, as after an error of its disk: "+
			"the log of the system has the reason", storefront.ErrUnavailable, f.path)
	}
	was := f.usable()
	switch {
	case err != nil:
		if f.fault.Store(&err); was == nil {
			f.logger.Error("no orders are taken: the database cannot be used", slog.Any("error", err))
		}
	case was != nil:
		f.fault.Store(nil)
		f.logger.Info("the database can be used again")
	}
}

// explain returns what is wrong with the files, their rights, or the disk, if that may be the cause of an
// error.
func (f *sqliteFile) explain(err error) error {
	if err == nil {
		return nil
	}
	f.look()
	if fault := f.usable(); fault != nil {
		return fault
	}
	free, unknown := f.free(filepath.Dir(f.path))
	if hasCode(err, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) && unknown == nil && free < walRoom {
		return fmt.Errorf("%w: %w", errNoRoom, err)
	}
	switch {
	case hasCode(err, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
		if cause := accessible(f.path); cause != nil {
			return fmt.Errorf("%w: %w", cause, err)
		}
	case hasCode(err, sqlite3.SQLITE_NOTADB):
		return fmt.Errorf("%s is not a database of SQLite: is it the right file? %w", f.path, err)
	case hasCode(err, sqlite3.SQLITE_CORRUPT):
		return fmt.Errorf("%s is damaged: keep a copy of it and of the files beside it, then restore a backup, or try "+
			".recover of sqlite3: %w", f.path, err)
	}
	return err
}

// watch copies the WAL into the database and empties it whenever it is too large, and says when
// the disk has no room, or the files are gone, until Close.
func (f *sqliteFile) watch(db *sql.DB) {
	ctx := f.ctx
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	full := false
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		if f.look(); f.usable() != nil {
			continue
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
				free, _ := f.free(filepath.Dir(f.path))
				about := []any{slog.String("file", f.path), slog.Uint64("free", free), slog.Uint64("wanted", f.size()+walRoom)}
				if err != nil { // why the WAL is not emptied
					about = append(about, slog.Any("error", err))
				}
				f.logger.Warn("the disk has no room for orders", about...)
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
	err := f.pin(ctx)
	if err == nil {
		err = f.intact()
	}
	if err != nil {
		return nil, err
	}
	c, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, f.explain(err)
	}
	if err := f.intact(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &fileConn{sqliteConn: c.(sqliteConn), file: f}, nil
}

// pin opens the connection that stays open, which is the only one that makes the file if it is not there.
func (f *sqliteFile) pin(ctx context.Context) error {
	f.first.Lock()
	defer f.first.Unlock()
	if f.files.Load() != nil {
		return nil
	}
	isNew, err := f.find()
	if err == nil && !isNew {
		err = f.checkAlone(ctx)
	}
	if err != nil {
		return err
	}
	var n int
	if err := f.pinned.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&n); err != nil {
		return f.explain(err)
	}
	var files [3]fs.FileInfo
	for i, suffix := range suffixes {
		if files[i], err = os.Lstat(f.path + suffix); err == nil {
			err = together(f.path+suffix, files[i])
		}
		if err != nil {
			return err
		}
	}
	f.writers = newWriters(f.path)
	f.files.Store(&files)
	if isNew {
		f.logger.Warn("a new database is made", slog.String("file", f.path))
	}
	return nil
}

// Close ends watch, and closes the pinned connection. The pool calls it once its own are closed, see
// sql.DB.Close.
func (f *sqliteFile) Close() error {
	f.cancel()
	f.watching.Wait()
	f.first.Lock()
	defer f.first.Unlock()
	err := f.pinned.Close()
	if f.writers != nil {
		err = errors.Join(err, f.writers.Close())
	}
	return err
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

// A fileConn is a connection that executes nothing unless there is room and the files are intact.
type fileConn struct {
	sqliteConn
	file *sqliteFile
	inTx bool // in a fileTx
	room bool // there was, when the fileTx began, and no statement has been executed since
	raw  bool // in a transaction that a statement began
}

// ExecContext implements driver.ExecerContext.
func (c *fileConn) ExecContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (driver.Result, error) {
	return c.exec(ctx, query, func() (driver.Result, error) {
		return c.sqliteConn.ExecContext(ctx, query, args)
	})
}

// exec executes a statement. Unless it is one of a transaction, it may be a commit: then it fails if
// the files are not intact afterwards.
//
// A statement that begins a transaction, or is one, waits with those who write.
func (c *fileConn) exec(ctx context.Context, query string, f func() (driver.Result, error)) (
	result driver.Result, err error) {
	verb := strings.ToUpper(strings.SplitN(query, " ", 2)[0])
	ends := slices.Contains([]string{"COMMIT", "END", "RELEASE", "ROLLBACK"}, verb)
	if !ends {
		if err := c.file.usable(); err != nil {
			return nil, err
		}
	}
	try := func(err error) error {
		if err == nil {
			result, err = f()
		}
		return err
	}
	switch {
	case ends:
		err = try(nil)
	case c.room:
		c.room = false
		err = try(nil)
	case c.inTx || c.raw:
		err = try(c.file.room())
	default:
		err = c.file.writers.write(ctx, func() error { return try(c.file.makeRoom(ctx)) })
	}
	switch {
	case err != nil || c.inTx:
	case verb == "BEGIN" || verb == "SAVEPOINT":
		c.raw = true
	case ends && !strings.Contains(strings.ToUpper(query), " TO "):
		c.raw = false
	}
	if err == nil && !c.inTx {
		err = c.file.intact()
	}
	return result, c.file.explain(err)
}

// QueryContext implements driver.QueryerContext.
func (c *fileConn) QueryContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (driver.Rows, error) {
	if err := c.file.usable(); err != nil {
		return nil, err
	}
	return c.sqliteConn.QueryContext(ctx, query, args)
}

// BeginTx implements driver.ConnBeginTx.
func (c *fileConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.file.usable(); err != nil {
		return nil, err
	}
	var tx driver.Tx
	begin := func(err error) error {
		if err == nil {
			tx, err = c.sqliteConn.BeginTx(ctx, opts)
		}
		return err
	}
	var err error
	if opts.ReadOnly {
		err = begin(nil)
	} else {
		err = c.file.writers.write(ctx, func() error { return begin(c.file.makeRoom(ctx)) })
	}
	if err != nil {
		return nil, c.file.explain(err)
	}
	c.inTx, c.room = true, !opts.ReadOnly
	return &fileTx{tx, c}, nil
}

// A fileTx is a transaction of a fileConn.
type fileTx struct {
	driver.Tx
	conn *fileConn
}

// Commit implements driver.Tx. It fails if the files are not intact afterwards.
func (tx *fileTx) Commit() error {
	tx.conn.inTx, tx.conn.room = false, false
	err := tx.Tx.Commit()
	if err == nil {
		err = tx.conn.file.intact()
	}
	return tx.conn.file.explain(err)
}

// Rollback implements driver.Tx.
func (tx *fileTx) Rollback() error {
	tx.conn.inTx, tx.conn.room = false, false
	return tx.Tx.Rollback()
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *fileConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.sqliteConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &fileStmt{s.(sqliteStmt), c, query}, nil
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
	conn  *fileConn
	query string
}

// ExecContext implements driver.StmtExecContext.
func (s *fileStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.exec(ctx, s.query, func() (driver.Result, error) {
		return s.sqliteStmt.ExecContext(ctx, args)
	})
}

// QueryContext implements driver.StmtQueryContext.
func (s *fileStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.conn.file.usable(); err != nil {
		return nil, err
	}
	return s.sqliteStmt.QueryContext(ctx, args)
}
