// Package shopdb opens the database of a shop for sqlstore, with all that the promises of the
// store need of a database and of its driver: a SQLite file, or servers of PostgreSQL, MySQL or
// MariaDB.
//
//	db, err := shopdb.Open("postgres://shop@db1,db2/shop", nil) // or "shop.db"
//	…
//	defer db.Close()
//	store := sqlstore.New(db.DB, nil)
//	if err := db.WaitFor(ctx, store.Migrate); err != nil {
//		…
//	}
//	db.ForgetKeysHourly(store)
//
// # Names
//
// The name of a database is that of a SQLite file, which is made if it is not there, or a URL of
// one or several servers:
//
//	shop.db
//	postgres://shop@db1,db2/shop
//	mysql://shop@db1,db2:3307,db3/shop
//
// A file is named without file:, parameters or ~, and none is in memory. ./file:x names a file that
// is called file:x.
//
// The parameters of the URL are those of github.com/jackc/pgx, or of
// github.com/go-sql-driver/mysql, such as tls=true, with system variables. In a user or a
// password, characters such as / are escaped (%2F).
//
// # Passwords
//
// A password in a URL is seen by whoever sees the command line of the program. Give it in a file
// that only the program reads:
//
//   - PostgreSQL: a password file of libpq, which the environment variable PGPASSFILE or the
//     parameter passfile names, or ~/.pgpass. For several servers, the line of the first is used.
//   - MySQL and MariaDB: a file that has the password alone, which the parameter password_file of
//     the URL names. Without it, the password is that of the environment variable MYSQL_PWD.
//
// The files are read anew for each connection, and so are those of certificates in PostgreSQL. To
// change a password, have the server take both for a while, or write the file right after the
// change: open connections go on. While the server refuses the password, the database is unavailable;
// [DB.WaitFor] returns the error at once.
//
// # Which promise each part keeps
//
// An acknowledged order survives a crash of the program and of the machine. SQLite has a
// write-ahead log (WAL) and synchronous=FULL: each commit is on the disk before it is acknowledged.
// What a server keeps is up to its settings (docs/databases.md of the repository).
//
// Orders go on after a fail-over, and none is acknowledged by a server that cannot commit it. Of
// several servers, all connections are to the one that takes orders, the primary. When it takes no
// orders any more, all connections move to the next one that does, within a few seconds, and what
// hangs on the old one ends. A server is asked before it is used:
//
//   - PostgreSQL must not be read-only, and, if there are several servers, must commit. A primary
//     that has lost its synchronous standby, perhaps because the standby is the primary now, is
//     used for reads only, until there is a better one. With target_session_attrs=any, or any other
//     value than read-write and primary, the driver chooses, and nothing of this applies.
//   - MySQL and MariaDB must not be read_only and, if there are several servers, must not replicate
//     from another one, which the account must be told: GRANT REPLICATION CLIENT (MariaDB: REPLICA
//     MONITOR). A primary whose commits hang for other reasons, such as one in the minority of a group
//     replication, is not noticed.
//
// Give each server its own name: if a name has several addresses, the driver chooses.
//
// A full disk does not stop a SQLite shop for good. The WAL grows while a reader, such as a backup,
// holds a snapshot. If it filled the disk, SQLite could never empty it. So nothing is written while
// the disk has less room than the WAL takes: orders fail with [storefront.ErrUnavailable], and go on
// once the reader has gone, when the WAL is emptied.
//
// No order waits for long for a caller who has gone. SQLite waits 100 ms for a lock
// (Options.BusyTimeout), InnoDB a second (innodb_lock_wait_timeout), and sqlstore tries again.
//
// Reads go on beside orders. The pool has 4 connections for SQLite, of which one at a time writes,
// and 20 for a server, so that four replicas fit into its default of 100. These are replaced after
// 30 minutes.
//
// A SQLite file stays the one that was opened. If it, or one of the two beside it, is removed, moved or
// replaced, no order is acknowledged any more, not even one whose commit is under way: orders fail with
// ErrUnavailable at once, and the log says what to do. So it is while one of them has a second name (a hard
// link). Only its owner can read a new file and those beside it. If the name is a symbolic link, all of this
// is true of the file that it leads to.
//
// Whoever opens a SQLite file finds the last orders, which are in the WAL beside it. Open refuses a file that
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
//
// # Leaving databases out
//
// A program contains the drivers of all databases. The build tags nosqlite, nopostgres and nomysql
// each leave one out, and the time that it takes to compile: go build -tags nosqlite,nomysql.
package shopdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"example.com/storefront"
	"example.com/storefront/sqlstore"
)

// Options are settings of [Open]. Zero values are defaults.
type Options struct {
	// Logger is told of a new database, when the disk has no room for orders, or a file is gone, and
	// when that has passed, what WaitFor waits for, and why keys are not forgotten. If it is nil, it
	// is slog.Default().
	Logger *slog.Logger

	// BusyTimeout is how long a statement waits for the lock of a SQLite file. Zero means 100 ms,
	// which is for sqlstore: SQLite does not notice meanwhile that a request's time is up, and
	// sqlstore tries again after it. For statements of the program's own, open the file a second
	// time, with some seconds.
	BusyTimeout time.Duration

	// MustExist has Open make no new database: a SQLite file that is not there, or is empty, is an error.
	// Set it once a shop has orders. Else, a start without its disk, or in another folder, begins a new
	// shop, in which known keys create new orders. Servers make no database in any case; to make no tables
	// either, give the method Check of the store to WaitFor in place of Migrate.
	MustExist bool
}

// A DB is a pool of connections to a database, and the work in the background that it needs.
// Methods may be called concurrently.
type DB struct {
	*sql.DB
	logger     *slog.Logger
	ctx        context.Context // of the work in the background, until Close
	cancel     context.CancelFunc
	background sync.WaitGroup
}

// Open returns the database with a name: see the package's documentation. If opts is nil, the
// defaults are used. A server need not answer yet, see [DB.WaitFor]. A SQLite file that cannot be
// written is an error, unless another process has locked it or the disk is full: that may pass.
// No error has a password.
func Open(name string, opts *Options) (*DB, error) {
	o := withDefaults(opts)
	pool, watch, err := open(name, o)
	if err != nil {
		return nil, err
	}
	db := &DB{DB: pool, logger: o.Logger}
	db.ctx, db.cancel = context.WithCancel(context.Background())
	if watch != nil {
		db.background.Go(func() { watch(db.ctx) })
	}
	return db, nil
}

func withDefaults(opts *Options) (o Options) {
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = guard(o.Logger)
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 100 * time.Millisecond
	}
	return o
}

// open returns the pool, and what watches over the database until its context is done, or nil.
func open(name string, o Options) (pool *sql.DB, watch func(context.Context), err error) {
	scheme, rest, isURL := strings.Cut(name, "://")
	if isURL {
		if err := checkURL(rest); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case scheme == "postgres" || scheme == "postgresql":
		pool, err = openPostgres(name)
	case scheme == "mysql" || scheme == "mariadb":
		pool, err = openMySQL(name)
	case isURL:
		err = fmt.Errorf("%s is neither postgres nor mysql nor a file", scheme)
	// It may have a password, which is not for a file's name.
	case strings.HasPrefix(name, "postgres:"), strings.HasPrefix(name, "postgresql:"),
		strings.Contains(name, "host="), strings.Contains(name, "dbname="):
		err = errors.New("PostgreSQL is named by a URL: postgres://user@host/database")
	case strings.HasPrefix(name, "mysql:"), strings.HasPrefix(name, "mariadb:"),
		strings.Contains(name, "@tcp("):
		err = errors.New("MySQL is named by a URL: mysql://user@host/database")
	case name == "":
		err = errors.New("no database is named")
	default:
		if err = checkFile(name); err == nil {
			pool, watch, err = openSQLite(name, o)
		}
	}
	return pool, watch, err
}

// checkFile returns an error if a name is not meant as the plain name of a file, though there could be
// a file of that name. Of the name, only what is no part of a password is said.
func checkFile(name string) error {
	scheme, _, found := strings.Cut(name, ":")
	isScheme := found && len(scheme) > 1 && // C:\shop.db is a file
		strings.Trim(strings.ToLower(scheme), "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
	_, query, _ := strings.Cut(name, "?")
	switch {
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

// checkURL returns an error if it is not sure which part of a URL is the password, or what else is
// wrong with its servers. Nothing of the URL is said or looked up: it may be a part of the password.
func checkURL(rest string) error {
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	if strings.Count(authority, "@") > 1 || strings.Contains(rest[len(authority):], "@") ||
		strings.Contains(rest, "#") {
		return errors.New("the URL can be read in several ways: in a user, a password or a parameter," +
			" @ is written %40, / is %2F, ? is %3F and # is %23")
	}
	hosts := authority[strings.IndexByte(authority, '@')+1:]
	for host := range strings.SplitSeq(hosts, ",") {
		_, port, _ := strings.Cut(host[strings.LastIndexByte(host, ']')+1:], ":")
		if strings.Trim(port, "0123456789") != "" {
			return errors.New("a port in the URL is none: a server is host, host:port or [address]:port;" +
				" with a password, the URL is user:password@host")
		}
	}
	return nil
}

// Close ends the work in the background, and closes the pool. No goroutine of this package is
// left.
func (db *DB) Close() error {
	db.cancel()
	db.background.Wait()
	return db.DB.Close()
}

// WaitFor calls prepare, such as the method Migrate of a store, until it succeeds. It tries again
// as long as prepare fails with [storefront.ErrUnavailable], which is what sqlstore returns for a
// database that does not answer yet, or has no primary, and logs once that it waits. It returns
// any other error of prepare, such as for a wrong password, and that of the last try when ctx is
// done. A primary that has been told to be read-only is not waited for.
func (db *DB) WaitFor(ctx context.Context, prepare func(context.Context) error) error {
	waits := false
	wait := func(err error) {
		if !waits && ctx.Err() == nil && !isLasting(err) {
			db.logger.Warn("waiting for the database", slog.Any("error", err))
			waits = true
		}
	}
	err := db.PingContext(ctx)
	if err != nil {
		wait(err)
	}
	for !isLasting(err) {
		err = prepare(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the database is not ready: %w", err)
		case !errors.Is(err, storefront.ErrUnavailable):
			return err
		}
		wait(err) // it answers, but has no primary, or a setting with which it takes no orders
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return err
}

// A lastingError is one that does not pass while somebody waits.
type lastingError struct{ error }

func (e lastingError) Unwrap() error { return e.error }

// isLasting reports whether err does not pass. A password that is wrong at the start, as PostgreSQL
// says by the class 28, is as good as none; later, it is one that is being changed.
func isLasting(err error) bool {
	_, lasting := errors.AsType[lastingError](err)
	pg, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	return lasting || ok && strings.HasPrefix(pg.SQLState(), "28")
}

// ForgetKeysHourly has the store forget the keys of orders that are older than
// [storefront.KeyLifetime] and an hour, for clocks that differ, at once and every hour until Close.
// Call it once, and not after Close.
func (db *DB) ForgetKeysHourly(store *sqlstore.Store) {
	db.background.Go(func() {
		hourly := time.NewTicker(time.Hour)
		defer hourly.Stop()
		for {
			_, err := store.ForgetKeys(db.ctx, time.Now().Add(-storefront.KeyLifetime-time.Hour))
			if err != nil && db.ctx.Err() == nil {
				db.logger.Warn("keys are not forgotten; next try in an hour", slog.Any("error", err))
			}
			select {
			case <-hourly.C:
			case <-db.ctx.Done():
				return
			}
		}
	})
}
