package sqlerror

import (
	"cmp"
	"errors"
	"reflect"
)

// postgreSQLClasses maps SQLSTATEs (Appendix A of PostgreSQL's manual, also of CockroachDB and
// YugabyteDB), or their first two characters, to classes.
var postgreSQLClasses = map[string]Class{
	"08":    Lost,       // connection exception
	"23505": Duplicate,  // unique violation
	"25006": NotPrimary, // read-only transaction
	"25P03": Lost,       // idle-in-transaction timeout
	"25P04": Lost,       // transaction timeout: a time limit of the server
	"28":    Lost,       // invalid authorization: a password that is being changed
	"26000": Passing,    // prepared statement does not exist: dropped behind the driver's back
	"40":    Conflict,   // transaction rollback: serialization failure, deadlock, unknown completion
	"42P05": Passing,    // prepared statement exists: a pooler has given its connection to another client
	"53":    Passing,    // insufficient resources: disk full
	"53300": Lost,       // too many connections
	"55P03": Conflict,   // lock not available
	"57014": Passing,    // query canceled: a time limit of the server
	"57":    Lost,       // operator intervention: shutdown, crash, recovery, database dropped, idle for too long
	"42501": Denied,     // insufficient privilege
	"42P01": Absent,     // undefined table
	"42701": Raced,      // duplicate column
	"42710": Raced,      // duplicate object
	"42P07": Raced,      // duplicate table: IF NOT EXISTS looks first and creates in another step
	"XX000": Raced,      // internal error: tuple concurrently updated
}

var postgreSQLTexts = []textClass{
	{"conn closed", Lost}, // pgx
}

// postgreSQLCode returns the class of an error with an SQLSTATE. The errors of the PostgreSQL drivers (pgx,
// lib/pq) have it in a method, and other fields of the server's answer in fields.
func postgreSQLCode(err error) (Class, bool) {
	e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok || len(e.SQLState()) != 5 {
		return Final, false
	}
	text := func(name string) string {
		if f := field(e, name); f.IsValid() && f.Kind() == reflect.String {
			return f.String()
		}
		return ""
	}
	state := e.SQLState()
	class, ok := postgreSQLClasses[state]
	if !ok {
		class = postgreSQLClasses[state[:2]]
	}
	severity := cmp.Or(text("SeverityUnlocalized"), text("Severity"))
	switch {
	case state == "0A000" && text("Routine") == "RevalidateCachedQuery":
		return Passing, true // a column's type has changed under the plan of a prepared statement
	case class < Passing && (severity == "FATAL" || severity == "PANIC"):
		return Lost, true // the server has ended the connection
	}
	return class, true
}
