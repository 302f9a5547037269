package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"example.com/storefront"
)

// The first pause between two tries is at most minPause; then they double, up to
// maxPause.
const (
	minPause = 2 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// retry calls try, again and again as long as it fails for a reason that may pass.
// It gives up when ctx is done, with an error that matches ctx.Err(), and after
// Options.Timeout, with one that matches [storefront.ErrUnavailable].
func (s *Store) retry(ctx context.Context, try func(context.Context) error) error {
	trying, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	for most := minPause; ; most = min(2*most, maxPause) {
		err := try(trying)
		if err == nil {
			return nil
		}
		if trying.Err() == nil {
			if !transient(err) {
				return err
			}
			if errors.Is(err, driver.ErrBadConn) && s.db.Stats().Idle > 0 {
				most = minPause
				continue // when the server is back, all that were idle are dead
			}
			// At random, so that those who met do not meet again.
			select {
			case <-time.After(s.pause(most)):
				continue
			case <-trying.Done():
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("sqlstore: %w: %w", ctx.Err(), err)
		}
		return fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
	}
}

// A passing error is one that is known to be transient.
type passing struct{ error }

func (e passing) Unwrap() error { return e.error }

// readOnly is the SQLSTATE read_only_sql_transaction.
const readOnly = "25006"

// sqlState returns the SQLSTATE of an error, or "" if it has none. The errors of
// the PostgreSQL drivers (pgx, lib/pq) have this method.
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

// transient reports whether the same statement may succeed later, perhaps on
// another connection. The codes are those of PostgreSQL (Appendix A of its
// manual), which CockroachDB and YugabyteDB use, too.
func transient(err error) bool {
	if _, ok := err.(*stopped); ok || err == nil {
		return false // nobody knows what a panic's value does when it is looked at
	}
	if _, ok := errors.AsType[passing](err); ok {
		return true
	}
	if state := sqlState(err); len(state) == 5 {
		switch state[:2] {
		case "08", // connection exception
			"40", // transaction rollback: serialization failure, deadlock, unknown completion
			"53": // insufficient resources: too many connections, disk full
			return true
		}
		switch state {
		case readOnly,
			"25P03", // idle-in-transaction timeout
			"25P04", // transaction timeout: a time limit of the server
			"26000", // prepared statement does not exist: dropped behind the driver's back
			"55P03", // lock not available
			"57014", // query canceled: a time limit of the server
			"57P01", // admin shutdown
			"57P02", // crash shutdown
			"57P03", // cannot connect now: starting up, in recovery
			"57P05": // idle session timeout
			return true
		}
		return false
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	// SQLite has no SQLSTATE, and its drivers no common type of error; the text
	// of SQLITE_BUSY, SQLITE_LOCKED, SQLITE_FULL and SQLITE_CANTOPEN is that of sqlite3_errstr in
	// all of them.
	text := err.Error()
	return strings.Contains(text, "database is locked") || strings.Contains(text, "database table is locked") ||
		strings.Contains(text, "database or disk is full") || strings.Contains(text, "unable to open database file")
}
