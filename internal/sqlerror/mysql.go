package sqlerror

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// mySQLCode returns the number and the SQLSTATE of an error of MySQL or MariaDB, or 0 for
// any other error. The drivers' errors have them in fields, not in methods: Number and
// SQLState in go-sql-driver/mysql, Code and State in go-mysql-org/go-mysql.
func mySQLCode(err error) (number uint64, state string) {
	err = find(err, func(err error) bool {
		if !isOf(err, "mysql") {
			return false
		}
		for _, name := range []string{"Number", "Code"} {
			if f := field(err, name); f.IsValid() && f.Kind() == reflect.Uint16 && f.Uint() != 0 {
				number = f.Uint()
				return true
			}
		}
		return false
	})
	for _, name := range []string{"SQLState", "State"} {
		switch f := field(err, name); {
		case !f.IsValid():
		case f.Kind() == reflect.String:
			state = f.String()
		case f.Kind() == reflect.Array && f.Type().Elem().Kind() == reflect.Uint8:
			state = fmt.Sprintf("%s", f)
		}
	}
	return number, state
}

// mySQLClasses maps the numbers of MySQL and MariaDB (Server Error Message Reference) to classes.
var mySQLClasses = map[uint64]Class{
	1153: Final,      // a statement larger than max_allowed_packet, with the SQLSTATE of a lost connection
	1020: Conflict,   // record has changed since last read: a conflict of snapshots
	1021: Passing,    // disk full
	1037: Passing,    // out of memory
	1040: Lost,       // too many connections
	1041: Passing,    // out of memory
	1045: Lost,       // access denied: a password that is being changed
	1053: Lost,       // server shutdown
	1062: Duplicate,  // duplicate entry
	1077: Lost,       // server shutdown
	1079: Lost,       // server shutdown
	1114: Passing,    // table full
	1180: NotPrimary, // error during COMMIT
	1203: Lost,       // too many connections of a user
	1205: Conflict,   // lock wait timeout
	1213: Conflict,   // deadlock
	1226: Lost,       // too many of a user's resources
	1243: Passing,    // prepared statement does not exist
	1290: NotPrimary, // --read-only, or --super-read-only, as of a member that is not in its group
	1317: Passing,    // query interrupted
	1412: Passing,    // table definition has changed
	1461: Passing,    // too many prepared statements
	1615: Passing,    // prepared statement needs to be prepared again
	1698: Lost,       // access denied, as 1045
	1792: Passing,    // read-only transaction
	1836: NotPrimary, // read-only mode
	1862: Lost,       // the password has expired
	1927: Lost,       // connection killed
	1969: Passing,    // longer than the server allows (MariaDB)
	2002: Lost,       // Vitess: a tablet has lost its server
	2003: Lost,       // Vitess: the same
	2006: Lost,       // server gone
	2013: Lost,       // server gone while a statement was under way
	3024: Passing,    // longer than the server allows
	3032: NotPrimary, // offline mode, as of a member that was expelled from its group
	3100: NotPrimary, // Group Replication: the member has left before it could commit
	3101: Conflict,   // Group Replication: a conflict at the commit
	3118: Lost,       // the account is locked
	3169: Lost,       // session killed
	3572: Conflict,   // a lock that NOWAIT does not wait for
	3796: NotPrimary, // Group Replication: not in the group, or not yet again
	3797: NotPrimary, // Group Replication: leaving while it waited for the commits of others
	3798: NotPrimary, // the same
	3799: NotPrimary, // Group Replication: leaving
	4031: Lost,       // closed as it was idle
	4151: Lost,       // the account is locked (MariaDB)
	1142: Denied,     // no right to a table
	1143: Denied,     // no right to a column
	1146: Absent,     // no such table
	1060: Exists,     // duplicate column
	1061: Exists,     // duplicate key name
	1091: Exists,     // can't drop: there is no such column or index
}

// mySQLStates maps the first two characters of SQLSTATEs to classes, for numbers that have none, such as
// those of a connection that breaks.
var mySQLStates = map[string]Class{
	"08": Lost,     // connection exception
	"40": Conflict, // transaction rollback
	"53": Passing,  // insufficient resources
}

var mySQLTexts = []textClass{
	{"invalid connection", Lost}, // go-sql-driver/mysql: it broke while a statement was under way
	{"busy buffer", Lost},        // go-sql-driver/mysql: the same
}

// mySQLText returns the text of an error without what Vitess adds to it: the statement and its arguments,
// which clients have sent.
func mySQLText(err error) string {
	text, _, _ := strings.Cut(err.Error(), " (errno ")
	text, _, _ = strings.Cut(text, vitessStatement)
	return text
}

// vitessStatement begins what vttablet adds to the text of an error. The text may end in its midst.
const vitessStatement = `: Sql: "`

// mySQLValue is in the texts of errors that quote a value of a row, which may have any text in it, and
// mySQLLastValue at their ends.
var (
	mySQLValue     = regexp.MustCompile(`(?s)(Duplicate entry|value:) '.*' for (key|column) `)
	mySQLLastValue = regexp.MustCompile(`(?s)value: '.*'$`)
)

// withoutMySQLValues returns a text without the values of rows that MySQL quotes in it, or Vitess adds.
func withoutMySQLValues(text string) string {
	text, _, _ = strings.Cut(text, vitessStatement)
	text = mySQLValue.ReplaceAllString(text, "$1 '…' for $2 ")
	return mySQLLastValue.ReplaceAllString(text, "value: '…'")
}

func mySQLCodeClass(err error) (Class, bool) {
	number, state := mySQLCode(err)
	if number == 0 {
		return Final, false
	}
	text := mySQLText(err)
	if class, ok := vitessClass(number, text); ok {
		return class, true
	}
	switch class, ok := mySQLClasses[number]; {
	case class == Duplicate:
		// Only the end of the text tells which index it is: "Duplicate entry '…' for key '…'".
		if i := strings.LastIndex(text, "for key '"); i >= 0 && !strings.Contains(text[i:], "key_hash") {
			return Duplicate, true
		}
		return KeyTaken, true
	case ok:
		return class, true
	case (number == 1030 || number == 1181) && strings.Contains(text, "error 153"):
		// InnoDB has rolled back because another member of the group committed first. The
		// error of the next read or write is then a deadlock, but that of a statement on a
		// savepoint says only that there is no such savepoint.
		return Conflict, true
	}
	return mySQLStates[state[:min(2, len(state))]], true
}

// CrossesShards reports whether a statement would have made a transaction of Vitess one of two shards.
func CrossesShards(err error) bool { return strings.Contains(mySQLText(err), crossShard) }

// crossShard is in the error of a statement that would make a transaction one of two shards.
const crossShard = "multi-db transaction attempted"

var (
	// statementCodes are in the errors of statements that Vitess does not take. Its other codes, such as
	// those of a fail-over, are transient; so are internal errors (VT13001), as of a statement that vtgate has
	// sent again because its shard gave the rows to another.
	statementCodes = regexp.MustCompile(`\bVT(03|05|07|09|10|12)\d{3}\b`)

	// momentary is in errors of a primary that cannot be demoted yet, and of a transaction that can only be
	// rolled back.
	momentary = regexp.MustCompile(`\bVT(09031|09032|15001)\b`)
)

// vitessClass returns the class of an error by the number of vtgate, and false if that of MySQL holds. Where
// vtgate has no number of MySQL's, it gives 1105 or, for an internal error, 1815; one that was aborted, or
// took too long, has 1317.
func vitessClass(number uint64, text string) (Class, bool) {
	switch number {
	case 1105, 1815, 1317:
	default:
		return Final, false
	}
	switch {
	case strings.Contains(text, crossShard), strings.Contains(text, "Row count exceeded"):
		return Final, true
	case momentary.MatchString(text):
		return Passing, true
	case statementCodes.MatchString(text):
		return Final, true
	}
	return Passing, true
}
