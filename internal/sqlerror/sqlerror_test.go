package sqlerror

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
)

// A stateError is an error with an SQLSTATE, like those of pgx and lib/pq.
type stateError string

func (e stateError) Error() string    { return "ERROR (SQLSTATE " + string(e) + ")" }
func (e stateError) SQLState() string { return string(e) }

// A serverError is an error like those of pgx, with more of the server's answer.
type serverError struct{ Code, SeverityUnlocalized, Routine string }

func (e *serverError) Error() string    { return "ERROR (SQLSTATE " + e.Code + ")" }
func (e *serverError) SQLState() string { return e.Code }

// A mySQLError is an error like those of go-sql-driver/mysql, with a number and perhaps an SQLSTATE.
type mySQLError struct {
	Number   uint16
	Message  string
	SQLState [5]byte
}

func (e *mySQLError) Error() string { return fmt.Sprintf("Error %d: %s", e.Number, e.Message) }

func number(n uint16, text string) error { return &mySQLError{Number: n, Message: text} }

// A sqliteError is an error like those of modernc.org/sqlite.
type sqliteError struct {
	text string
	code int
}

func (e sqliteError) Error() string { return e.text }
func (e sqliteError) Code() int     { return e.code }

// A sqliteNetError is an error like those of ncruces/go-sqlite3, which have the methods of a net.Error.
type sqliteNetError string

func (e sqliteNetError) Error() string   { return string(e) }
func (e sqliteNetError) Code() uint8     { return map[bool]uint8{true: 5, false: 1}[e.Timeout()] }
func (e sqliteNetError) Timeout() bool   { return strings.Contains(string(e), "locked") }
func (e sqliteNetError) Temporary() bool { return e.Timeout() }

// A serviceError has a code, and is of no database.
type serviceError struct{ Code uint16 }

func (e *serviceError) Error() string { return fmt.Sprint("the warehouse said ", e.Code) }

func TestClassesOfErrors(t *testing.T) {
	for class, errs := range map[Class][]error{
		Final: {
			nil, // none
			&serverError{Code: "0A000", Routine: "transformOnConflictClause"}, // a rule of the table
			stateError("23514"), // constraint violated
			stateError("40"),    // not an SQLSTATE
			sqliteError{"locked: SQL statements in progress", 5},                  // SQLITE_BUSY, rows left open
			sqliteError{"CHECK constraint failed", 275},                           // SQLITE_CONSTRAINT_CHECK
			errors.New("database disk image is malformed (11)"),                   // SQLITE_CORRUPT
			sqliteError{"database is locked (1811)", 1811},                        // what a trigger of SQLite says
			number(1030, "Got error 180 - 'Index corrupted' from storage engine"), // corruption (MySQL)
			&mySQLError{1153, "packet too big", [5]byte([]byte("08S01"))},         // too large (MySQL)
			errors.New("no item database is locked for you"),                      // a text that quotes one
			&serviceError{1213}, // an error of another program's
			number(1105, "VT09023: could not map [NULL] to a keyspace id"), // no keyspace ID (Vitess)
			number(1317, "Row count exceeded 10000"),                       // too many rows (Vitess)
			number(1105, "multi-db transaction attempted"),                 // two shards (Vitess)
		},
		Duplicate: {
			stateError("23505"),                                          // unique violation
			sqliteError{"UNIQUE constraint failed", 1555},                // SQLITE_CONSTRAINT_PRIMARYKEY
			number(1062, "Duplicate entry 'key_hash' for key 'PRIMARY'"), // the ID is taken (MySQL)
		},
		KeyTaken: {
			number(1062, "Duplicate entry 'x' for key 'orders.key_hash'"), // the key is taken (MySQL)
			number(1062, "Duplicate entry 'x'"),                           // a key is taken (MySQL)
		},
		Exists: {sqliteError{"duplicate column name: t", 1}}, // a column that is there (SQLite)
		Raced:  {stateError("42P07")},                        // the table is being made
		Absent: {
			stateError("42P01"), // undefined table
			sqliteError{"SQL logic error: no such table: t (1)", 1},      // no table (SQLite)
			sqliteNetError("sqlite3: SQL logic error: no such table: t"), // no table (ncruces)
			number(1146, "invalid connection"),                           // no table (MySQL)
		},
		Denied: {stateError("42501")}, // no right
		Passing: {
			errors.New("sqlite3: database is locked"), // SQLITE_BUSY (mattn)
			stateError("53100"),                       // disk full
			stateError("57014"),                       // statement timeout
			stateError("26000"),                       // prepared statement gone
			&serverError{Code: "0A000", Routine: "RevalidateCachedQuery"},    // a column's type changed
			errors.New("database is locked (5) (SQLITE_BUSY)"),               // SQLITE_BUSY
			sqliteNetError("sqlite3: database is locked"),                    // SQLITE_BUSY (ncruces)
			sqliteError{"locked", 517},                                       // SQLITE_BUSY_SNAPSHOT
			errors.New("database or disk is full (13)"),                      // SQLITE_FULL
			errors.New("database schema has changed: no such table: t (17)"), // SQLITE_SCHEMA
			errors.New("locking protocol (15)"),                              // SQLITE_PROTOCOL
			number(1105, "target: shop.-80.primary: primary is not serving"), // reparenting (Vitess)
			number(1105, "VT14003: no connection for tablet zone1-100"),      // tablet gone (Vitess)
			number(1105, "VT09032: previous transaction failed"),             // rolled back (Vitess)
			number(1815, "VT13001: [BUG] unexpected 'autocommitted' state"),  // internal error (Vitess)
			number(1317, "vttablet: rpc error: code = DeadlineExceeded"),     // too slow (Vitess)
			number(1105, `gone: Sql: "insert", BindVars: {v1: "VT12001"}`),   // what a client has sent to Vitess
		},
		Conflict: {
			stateError("40001"),                          // serialization failure
			stateError("55P03"),                          // lock not available
			fmt.Errorf("query: %w", stateError("40001")), // wrapped
			number(1213, ""),                             // deadlock (MySQL)
			number(3101, ""),                             // conflict in a group
			number(1181, "Got error 153 - 'No savepoint with that name'"), // preempted, and rolling back
			number(1030, "Got error 153 - 'No savepoint with that name'"), // preempted in a group
		},
		NotPrimary: {
			stateError("25006"), // no longer the primary
			&serverError{Code: "25006", SeverityUnlocalized: "FATAL"}, // FATAL, but no primary
			number(3100, ""), // has left the group
			number(1290, ""), // read-only (MySQL)
			errors.Join(errors.New("query"), number(1180, "")), // joined (MySQL)
		},
		Lost: {
			stateError("08006"), // connection failure
			stateError("53300"), // too many connections
			stateError("57P01"), // admin shutdown
			stateError("25P03"), // idle-in-transaction timeout
			&serverError{Code: "58000", SeverityUnlocalized: "FATAL"}, // the server ends the connection
			number(1040, ""), // too many connections (MySQL)
			&mySQLError{1999, "", [5]byte([]byte("08S01"))},   // SQLSTATE alone (MySQL)
			errors.New("invalid connection"),                  // server gone (MySQL)
			errors.New("conn closed"),                         // server gone (pgx)
			io.ErrUnexpectedEOF,                               // server gone
			io.EOF,                                            // server gone between statements
			driver.ErrBadConn,                                 // bad connection
			&net.OpError{Op: "read", Err: syscall.ECONNRESET}, // connection reset
			number(2002, "vttablet: Can't connect to local MySQL server"), // socket gone (Vitess)
		},
		Silent: {fmt.Errorf("query: %w", With(Silent, stateError("40001")))}, // told by who calls
	} {
		for _, err := range errs {
			if got := Of(err); got != class {
				t.Errorf("the class of %v is %d, want %d", err, got, class)
			}
		}
	}
}

func TestWithoutValues(t *testing.T) {
	const vttablet = "target: shop.80-.primary: vttablet: Lock wait timeout exceeded (errno 1205) (sqlstate HY000)"
	for _, test := range []struct {
		err  error
		want string // "": the same error
	}{
		{nil, ""},
		{number(1205, vttablet+`: Sql: "insert …", BindVars: {vtg2: "value:\"kettle\""}`), "Error 1205: " + vttablet},
		{number(1205, vttablet+`: Sql: "insert … 'kettle' [TRUNCATED]`), "Error 1205: " + vttablet},
		{fmt.Errorf("gone: %v", number(1205, vttablet+": Sql: \"\nkettle")), "gone: Error 1205: " + vttablet},
		{number(1062, "Duplicate entry 'a' for key 'b\n' for key 'orders.item'"),
			"Error 1062: Duplicate entry '…' for key 'orders.item'"},
		{number(1062, `Duplicate entry 'kettle' for key 'orders.key_hash': Sql: "insert' for key '`),
			"Error 1062: Duplicate entry '…' for key 'orders.key_hash'"},
		{number(1366, `Incorrect string value: '\xFFkettle' for column 'item' at row 1`),
			"Error 1366: Incorrect string value: '…' for column 'item' at row 1"},
		{number(1292, "Truncated incorrect INTEGER value: 'kettle'"), "Error 1292: Truncated incorrect INTEGER value: '…'"},
	} {
		got := WithoutValues(test.err)
		switch {
		case test.want == "" && got != test.err:
			t.Errorf("of %v, it is %v, want the same error", test.err, got)
		case test.want != "" && (got.Error() != test.want || !errors.Is(got, test.err)):
			t.Errorf("of %v, it is %v, want %s, which wraps it", test.err, got, test.want)
		case Of(got) != Of(test.err):
			t.Errorf("the class of %v is %d, and was %d", got, Of(got), Of(test.err))
		}
	}
}
