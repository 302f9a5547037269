package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
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
			case <-time.After(s.pause(0, most)):
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

// displaced reports whether a server has refused a statement because it is not, or no
// longer, the one to send it to. Its connections are in order all the same.
func displaced(err error) bool {
	switch mySQLNumber(err) {
	case 1047, // Galera: the node is not in the cluster's majority, or not in step with it
		1180,       // error during COMMIT, such as that
		1290,       // --read-only, or --super-read-only, as of a member that is not in its group
		1836,       // read-only mode
		3032,       // offline mode, as of a member that was expelled from its group
		3100,       // Group Replication: the member has left before it could commit
		3796,       // it is not, or not yet again, one of the group
		3797, 3798, // it could not wait for what others commit, as it left
		3799: // it is leaving
		return true
	}
	return sqlState(err) == readOnly
}

// conflict reports whether another transaction was in the way.
func conflict(err error) bool {
	switch mySQLNumber(err) {
	case 1213, 3101, 1205, 1020, 3572, 9007: // see transient
		return true
	}
	state := sqlState(err)
	return strings.HasPrefix(state, "40") || state == "55P03" || preempted(err)
}

// preempted reports whether InnoDB has rolled back a transaction for what another
// member of the group has committed. A statement that reads or writes then is a
// deadlock, but one of a savepoint only does not find it.
func preempted(err error) bool {
	number := mySQLNumber(err)                                                              // 1030, or 1181 of ROLLBACK TO SAVEPOINT
	return (number == 1030 || number == 1181) && strings.Contains(err.Error(), "error 153") // of the storage engine: no savepoint with that name
}

// duplicate reports whether a value that must be unique was there before. It need
// not be a key's.
func duplicate(err error) bool {
	return err != nil && (sqlState(err) == "23505" || mySQLNumber(err) == 1062 || strings.Contains(err.Error(), "UNIQUE constraint failed"))
}

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

// mySQLNumber returns the number that MySQL or MariaDB has given an error, or 0 if it
// is from neither. It is in a field of the drivers' errors, which have no method for
// it: Number in go-sql-driver/mysql, Code in go-mysql-org/go-mysql.
func mySQLNumber(err error) (number uint64) {
	if err == nil {
		return 0
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		for _, name := range []string{"Number", "Code"} {
			if field := v.Elem().FieldByName(name); field.Kind() == reflect.Uint16 {
				return field.Uint()
			}
		}
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		return mySQLNumber(err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range err.Unwrap() {
			if number := mySQLNumber(err); number != 0 {
				return number
			}
		}
	}
	return 0
}

// transient reports whether the same statement may succeed later, perhaps on
// another connection. The codes are those of PostgreSQL (Appendix A of its
// manual), which CockroachDB and YugabyteDB use, too, and the numbers those of MySQL
// and MariaDB (Server Error Message Reference) and of TiDB.
func transient(err error) bool {
	if _, ok := err.(*stopped); ok || err == nil {
		return false // nobody knows what a panic's value does when it is looked at
	}
	if _, ok := errors.AsType[passing](err); ok {
		return true
	}
	if _, ok := err.(silence); ok || preempted(err) {
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
			"0A000", // feature not supported: a column's type changed under a prepared statement's plan
			"25P03", // idle-in-transaction timeout
			"25P04", // transaction timeout: a time limit of the server
			"26000", // prepared statement does not exist: dropped behind the driver's back
			"42P05", // prepared statement exists: on a server's connection that a pooler has given to another client
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
	switch mySQLNumber(err) {
	case 0:
	case 1213, // deadlock, or a conflict that Galera found at the commit
		3101,                   // a conflict that Group Replication found at the commit
		1205,                   // lock wait timeout
		1020,                   // record has changed since last read: a conflict of snapshots
		1047, 1180, 1290, 1836, // see displaced
		3032, 3100, 3796, 3797, 3798, 3799,
		1792,                   // read-only transaction
		1040, 1203, 1226, 1461, // too many connections, of a user, or other resources
		1021, 1041, 1037, 1114, // disk full, out of memory, table full
		1053, 1077, 1079, 1080, // server shutdown
		1152, 1158, 1159, 1160, 1161, 1184, 1927, 2006, 2013, // connection lost, aborted or killed
		1243, 1615, // prepared statement does not exist, or needs to be prepared again
		3169, 4031, // session killed, or closed as it was idle
		1317, 1969, 3024, // query interrupted, or longer than the server allows
		1412,                                                 // table definition has changed
		3572,                                                 // a lock that NOWAIT does not wait for
		8022, 8028, 9001, 9002, 9003, 9004, 9005, 9006, 9007: // TiDB: retry, schema changed, storage away or busy, write conflict
		return true
	default:
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
	// all of them. The first two are what go-sql-driver/mysql says of a connection that
	// broke while a statement was under way, and the third is what pgx says of some.
	text := err.Error()
	return strings.Contains(text, "invalid connection") || strings.Contains(text, "busy buffer") || strings.Contains(text, "conn closed") ||
		strings.Contains(text, "database is locked") || strings.Contains(text, "database table is locked") ||
		strings.Contains(text, "database or disk is full") || strings.Contains(text, "unable to open database file")
}
