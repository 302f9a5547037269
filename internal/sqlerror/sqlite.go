package sqlerror

import (
	"reflect"
	"strings"
)

// sqliteCode returns the result code of an error of a driver of SQLite, the extended one if there is one,
// and false for any other error. The drivers have no common type: modernc.org/sqlite has a method Code,
// github.com/ncruces/go-sqlite3 and github.com/mattn/go-sqlite3 have ExtendedCode, as a method or a field.
func sqliteCode(err error) (code int64, ok bool) {
	found := find(err, func(err error) bool {
		if !isOf(err, "sqlite") {
			return false
		}
		v := reflect.ValueOf(err)
		// With names that are constants, the linker keeps no other methods of the program.
		for _, integer := range []reflect.Value{
			returned(v.MethodByName("ExtendedCode")), field(err, "ExtendedCode"),
			returned(v.MethodByName("Code")), field(err, "Code"),
		} {
			switch {
			case integer.IsValid() && integer.CanInt():
				code = integer.Int()
				return true
			case integer.IsValid() && integer.CanUint():
				code = int64(integer.Uint())
				return true
			}
		}
		return false
	})
	return code, found != nil
}

// IsSQLite reports whether an error has a result code of SQLite.
func IsSQLite(err error) bool {
	_, ok := sqliteCode(err)
	return ok
}

// returned returns what a method without arguments returns, if it is one value.
func returned(method reflect.Value) reflect.Value {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return reflect.Value{}
	}
	return method.Call(nil)[0]
}

// sqliteClasses maps result codes to classes: extended ones, and primary ones, which are their last 8 bits.
var sqliteClasses = map[int64]Class{
	5:    Passing,   // SQLITE_BUSY
	6:    Passing,   // SQLITE_LOCKED
	13:   Passing,   // SQLITE_FULL
	14:   Lost,      // SQLITE_CANTOPEN
	15:   Passing,   // SQLITE_PROTOCOL: many open the file at once
	17:   Passing,   // SQLITE_SCHEMA: others make tables at once, again and again
	1555: Duplicate, // SQLITE_CONSTRAINT_PRIMARYKEY
	2067: Duplicate, // SQLITE_CONSTRAINT_UNIQUE
	2579: Duplicate, // SQLITE_CONSTRAINT_ROWID
}

func sqliteCodeClass(err error) (Class, bool) {
	code, ok := sqliteCode(err)
	if !ok {
		return Final, false
	}
	switch primary := code & 0xFF; {
	case primary == 5 && strings.Contains(err.Error(), inProgress):
		return Final, true // rows that Options.Accept has left open
	case primary == 1 && strings.Contains(err.Error(), duplicateColumn):
		return Exists, true
	case primary == 1 && strings.Contains(err.Error(), noTable):
		return Absent, true
	case sqliteClasses[code] != Final:
		return sqliteClasses[code], true
	default:
		return sqliteClasses[primary], true
	}
}

const (
	inProgress      = "SQL statements in progress"
	duplicateColumn = "duplicate column name" // ADD COLUMN knows no IF NOT EXISTS
	noTable         = "no such table"
)

// sqliteTexts has the texts of sqlite3_errstr, which all drivers use.
var sqliteTexts = []textClass{
	{inProgress, Final},
	{duplicateColumn, Exists},
	{"database is locked", Passing},          // SQLITE_BUSY
	{"database table is locked", Passing},    // SQLITE_LOCKED
	{"database or disk is full", Passing},    // SQLITE_FULL
	{"unable to open database file", Lost},   // SQLITE_CANTOPEN
	{"locking protocol", Passing},            // SQLITE_PROTOCOL
	{"database schema has changed", Passing}, // SQLITE_SCHEMA
	{"UNIQUE constraint failed", Duplicate},  // SQLITE_CONSTRAINT_UNIQUE
}
