// Package shopdb has what a shop needs of its database beside sqlstore: it waits until the database is
// ready, and forgets keys. The packages below it each open one kind of database, with all that the promises
// of the store need of it and of its driver, and import that driver alone:
//
//   - sqlite: a SQLite file, with modernc.org/sqlite
//   - postgres: servers of PostgreSQL, with github.com/jackc/pgx
//   - mysql: servers of MySQL or MariaDB, with github.com/go-sql-driver/mysql
//
// A program uses one of them:
//
//	db, err := postgres.Open("postgres://shop@db1,db2/shop", nil) // or sqlite.Open("shop.db", nil)
//	…
//	defer db.Close()
//	store := sqlstore.New(db.DB, nil)
//	if err := db.WaitFor(ctx, store.Migrate); err != nil {
//		…
//	}
//	db.ForgetKeysHourly(store)
//
// cmd/storefrontd is a server that opens any of them, and metrics is for Prometheus.
//
// This module is young: until version 1, a release may change it, and the changelog names each change.
package shopdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/storefront"
	"example.com/storefront/shopdb/internal/safelog"
	"example.com/storefront/shopdb/internal/servers"
	"example.com/storefront/sqlstore"
)

// Options are settings of [New]. Zero values are defaults.
type Options struct {
	// Logger is told what WaitFor waits for, and why keys are not forgotten. If it is nil, it is
	// slog.Default().
	Logger *slog.Logger
}

// A DB is a pool of connections to a database, and the work in the background that a shop needs.
// Methods may be called concurrently.
type DB struct {
	*sql.DB
	logger     *slog.Logger
	ctx        context.Context // of the work in the background, until Close
	cancel     context.CancelFunc
	background sync.WaitGroup
}

// New returns a DB of a pool that the program has opened by another driver, or with settings of its own.
// docs/databases.md of the repository says what the store needs of them. If opts is nil, the defaults are
// used. Close closes the pool.
func New(pool *sql.DB, opts *Options) *DB {
	if opts == nil {
		opts = new(Options)
	}
	db := &DB{DB: pool, logger: safelog.New(opts.Logger)}
	db.ctx, db.cancel = context.WithCancel(context.Background())
	return db
}

// Close ends the work in the background, and closes the pool. No goroutine is left, except on SQLite while
// another process holds the lock of those who write: a statement may have left some that wait for it.
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

// isLasting reports whether err does not pass. A password, a name or a parameter that is wrong at the start, as
// PostgreSQL says by the class 28, 3D000, 42704 and 22023, is as good as none; later, it is being changed.
func isLasting(err error) bool {
	pg, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	return servers.IsLasting(err) || ok && (strings.HasPrefix(pg.SQLState(), "28") ||
		slices.Contains([]string{"3D000", "42704", "22023"}, pg.SQLState()))
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
