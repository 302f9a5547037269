package sqlstore

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// A class says whether, and how, to try again after an error.
type class int

const (
	final      class = iota // the same statement would fail again
	duplicate               // a row had the same value in a unique column, not only in key_hash
	passing                 // the same statement may succeed later, over this connection, too
	conflict                // another transaction was in the way
	notPrimary              // this server is not the primary, or no longer; its connections are in order
	lost                    // the connection or its server is gone, or there is none
	silent                  // the server does not answer; the connection is to be given up
)

// codeClasses maps the codes of errors to classes: SQLSTATEs of PostgreSQL (Appendix A of
// its manual), CockroachDB and YugabyteDB, or the first two characters of them, and the
// numbers of MySQL and MariaDB (Server Error Message Reference) and of TiDB.
var codeClasses = map[string]class{
	"08":    lost,       // connection exception
	"0A000": passing,    // feature not supported: a column's type changed under a prepared statement's plan
	"23505": duplicate,  // unique violation
	"25006": notPrimary, // read-only transaction
	"25P03": lost,       // idle-in-transaction timeout
	"25P04": lost,       // transaction timeout: a time limit of the server
	"26000": passing,    // prepared statement does not exist: dropped behind the driver's back
	"40":    conflict,   // transaction rollback: serialization failure, deadlock, unknown completion; Group Replication, too
	"42P05": passing,    // prepared statement exists: on a server's connection that a pooler has given to another client
	"53":    passing,    // insufficient resources: disk full
	"53300": lost,       // too many connections
	"55P03": conflict,   // lock not available
	"57014": passing,    // query canceled: a time limit of the server
	"57P01": lost,       // admin shutdown
	"57P02": lost,       // crash shutdown
	"57P03": lost,       // cannot connect now: starting up, in recovery
	"57P05": lost,       // idle session timeout

	"1020": conflict,   // record has changed since last read: a conflict of snapshots
	"1021": passing,    // disk full
	"1037": passing,    // out of memory
	"1040": lost,       // too many connections
	"1041": passing,    // out of memory
	"1053": lost,       // server shutdown
	"1062": duplicate,  // duplicate entry
	"1077": lost,       // server shutdown
	"1079": lost,       // server shutdown
	"1080": lost,       // server shutdown
	"1114": passing,    // table full
	"1152": lost,       // connection aborted
	"1158": lost,       // connection
	"1159": lost,       // connection
	"1160": lost,       // connection
	"1161": lost,       // connection
	"1180": notPrimary, // error during COMMIT
	"1184": lost,       // connection aborted
	"1203": lost,       // too many connections of a user
	"1205": conflict,   // lock wait timeout
	"1213": conflict,   // deadlock
	"1226": lost,       // too many of a user's resources
	"1243": passing,    // prepared statement does not exist
	"1290": notPrimary, // --read-only, or --super-read-only, as of a member that is not in its group
	"1317": passing,    // query interrupted
	"1412": passing,    // table definition has changed
	"1461": passing,    // too many prepared statements
	"1615": passing,    // prepared statement needs to be prepared again
	"1792": passing,    // read-only transaction
	"1836": notPrimary, // read-only mode
	"1927": lost,       // connection killed
	"1969": passing,    // longer than the server allows (MariaDB)
	"2006": lost,       // server gone
	"2013": lost,       // server gone while a statement was under way
	"3024": passing,    // longer than the server allows
	"3032": notPrimary, // offline mode, as of a member that was expelled from its group
	"3100": notPrimary, // Group Replication: the member has left before it could commit
	"3101": conflict,   // Group Replication: a conflict at the commit
	"3169": lost,       // session killed
	"3572": conflict,   // a lock that NOWAIT does not wait for
	"3796": notPrimary, // Group Replication: not in the group, or not yet again
	"3797": notPrimary, // Group Replication: leaving while it waited for the commits of others
	"3798": notPrimary, // the same
	"3799": notPrimary, // Group Replication: leaving
	"4031": lost,       // closed as it was idle
	"8022": passing,    // TiDB: retry
	"8028": passing,    // TiDB: schema changed
	"9001": lost,       // TiDB: storage away
	"9002": lost,       // TiDB: storage away
	"9003": passing,    // TiDB: storage busy
	"9004": passing,    // TiDB: locked
	"9005": lost,       // TiDB: region away
	"9006": passing,    // TiDB: too old for garbage collection
	"9007": conflict,   // TiDB: write conflict
}

// textClasses maps parts of the texts of errors without a code to classes. All drivers of
// SQLite use the texts of sqlite3_errstr, but they have no common type of error.
var textClasses = []struct {
	text string
	class
}{
	{"invalid connection", lost},            // go-sql-driver/mysql: it broke while a statement was under way
	{"busy buffer", lost},                   // go-sql-driver/mysql: the same
	{"conn closed", lost},                   // pgx
	{"database is locked", passing},         // SQLITE_BUSY
	{"database table is locked", passing},   // SQLITE_LOCKED
	{"database or disk is full", passing},   // SQLITE_FULL
	{"unable to open database file", lost},  // SQLITE_CANTOPEN
	{"UNIQUE constraint failed", duplicate}, // SQLITE_CONSTRAINT_UNIQUE
}

// A classified error has a class that neither its text nor its code tells.
type classified struct {
	error
	class class
}

func (e classified) Unwrap() error { return e.error }

// An acceptError is an error of Options.Accept. It is final, whatever became of earlier
// tries: the key was free when Accept was called.
type acceptError struct{ error }

func (e acceptError) Unwrap() error { return e.error }

// A panicError holds the value with which a driver panicked in the goroutine of a commit.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprint("panic: ", e.value) }

// classOf returns the class of err.
func classOf(err error) class {
	switch err.(type) {
	case nil, acceptError, *panicError: // the methods of an error or value of the program's may do anything
		return final
	}
	if e, ok := errors.AsType[classified](err); ok {
		return e.class
	}
	if state := sqlState(err); len(state) == 5 {
		if class, ok := codeClasses[state]; ok {
			return class
		}
		return codeClasses[state[:2]]
	}
	if number, state := mySQLCode(err); number != 0 {
		if class, ok := codeClasses[strconv.Itoa(int(number))]; ok {
			return class
		}
		// InnoDB has rolled back because another member of the group committed first. The
		// error of the next read or write is then a deadlock, but that of a statement on a
		// savepoint says only that there is no such savepoint.
		if (number == 1030 || number == 1181) && strings.Contains(err.Error(), "error 153") {
			return conflict
		}
		return codeClasses[state[:min(2, len(state))]]
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return lost
	}
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return lost
	}
	text := err.Error()
	for _, c := range textClasses {
		if strings.Contains(text, c.text) {
			return c.class
		}
	}
	return final
}

// transient reports whether the same statement may succeed later, perhaps over another
// connection.
func transient(err error) bool { return classOf(err) >= passing }
