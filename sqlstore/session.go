package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"slices"
	"time"

	"example.com/storefront/internal/sqlerror"
	"example.com/storefront/internal/watchdog"
)

// A session is a link that one try uses, and what it holds meanwhile.
type session struct {
	link
	database *database // nil: not known yet
	store    *Store
	watch    *watchdog.Watch
	began    time.Duration
	caller   context.Context
}

// session opens a session with the database, and returns the ctx of its statements. It first finds out
// which database that is, if that is not known yet. w, if it is not nil, ends a try that the server does
// not answer, and records the outcome.
func (s *Store) session(ctx context.Context, w *watchdog.Watch) (context.Context, *session, error) {
	db, err := s.known(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	return s.openWith(ctx, w, db, db.open)
}

// openWith opens a session over the link that open, as that of an engine, opens.
func (s *Store) openWith(ctx context.Context, w *watchdog.Watch, db *database,
	open func(context.Context, *Store, *watchdog.Watch) (context.Context, link, error)) (
	context.Context, *session, error) {
	if s.isOrdering(w) {
		if err := s.slots.Acquire(ctx); err != nil {
			return nil, nil, err
		}
	}
	c := &session{database: db, store: s, watch: w, began: s.now(), caller: ctx}
	err := errNoReturn
	defer func() {
		if err != nil { // also if a driver panics
			c.end(err)
		}
	}()
	ctx, c.link, err = open(ctx, s, w)
	return ctx, c, err
}

// close closes the session after a try that has ended with err, and returns the error to go by.
func (c *session) close(err error) error {
	err = c.link.close(err)
	c.end(err)
	return err
}

// end records the outcome of a try, and gives its slot back.
func (c *session) end(err error) {
	if c.watch == nil {
		return
	}
	if c.caller.Err() != context.Canceled && err != errNoReturn {
		// An error that is not transient is an answer, too, and so is a conflict with another transaction.
		class := classOf(err)
		c.watch.Note(c.began, class < sqlerror.Passing || class == sqlerror.Conflict)
	}
	if c.store.isOrdering(c.watch) {
		c.store.slots.Release()
	}
}

// with calls f with a session.
func (s *Store) with(ctx context.Context, w *watchdog.Watch, f func(context.Context, *session) error) (
	err error) {
	ctx, c, err := s.session(ctx, w)
	if err != nil {
		return err
	}
	defer func() { err = c.close(err) }()
	return f(ctx, c)
}

// retryWith is retry for as long as Options.Timeout.
func (s *Store) retryWith(ctx context.Context, try func(context.Context, *session) error) error {
	return s.retry(ctx, time.Now().Add(s.opts.Timeout), try)
}

// each runs a query, scans each row into dest, and then calls then.
func (c *session) each(ctx context.Context, then func(), dest []any, query string, args ...any) error {
	return each(ctx, c, then, dest, query, args...)
}

// A sender sends statements: a link or a transaction.
type sender interface {
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	exec(ctx context.Context, query string, args ...any) (int64, error)
}

func each(ctx context.Context, to sender, then func(), dest []any, query string, args ...any) error {
	rows, err := to.query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		then()
	}
	// A statement that writes commits after its last row, and that may fail.
	return unlessDone(ctx, errors.Join(rows.Err(), rows.Close()))
}

// hashes returns the key_hash of each row of a statement, which are those of some of the proposals.
func (c *session) hashes(ctx context.Context, proposals []*proposal, query string, args ...any) (
	map[[sha256.Size]byte]bool, error) {
	hashes := make(map[[sha256.Size]byte]bool)
	var hash []byte
	var other error
	err := c.each(ctx, func() {
		if !slices.ContainsFunc(proposals, func(p *proposal) bool { return bytes.Equal(p.hash[:], hash) }) {
			other = errOfAnother
			return
		}
		hashes[[sha256.Size]byte(hash)] = true
	}, []any{&hash}, query, args...)
	return hashes, cmp.Or(err, other)
}

// exec runs a statement, again after an error that may pass, and returns how many rows it
// affected the last time.
func (s *Store) exec(ctx context.Context, query func(*statements) string, args ...any) (n int64, err error) {
	err = s.retryWith(ctx, func(ctx context.Context, c *session) (err error) {
		n, err = c.exec(ctx, query(c.database.sql()), args...)
		return err
	})
	return n, err
}
