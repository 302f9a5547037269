// Package sqlerror says of an error of a database whether, and how, to try its statement again. It imports no
// driver: it knows the errors of drivers by their methods, fields and texts. Each database has a file.
package sqlerror

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
)

// A Class says whether, and how, to try again after an error.
type Class int

const (
	Final      Class = iota // the same statement would fail again
	Duplicate               // a row had the same value in a unique column
	KeyTaken                // a row had the same value in a unique column, which is or may be key_hash
	Exists                  // a statement of the schema has nothing to do: what it makes is there
	Raced                   // another program has run the same statement of the schema meanwhile
	Absent                  // a table is not there
	Denied                  // the role may not do that
	Passing                 // the same statement may succeed later, over this connection, too
	Conflict                // another transaction was in the way
	NotPrimary              // this server is not the primary, or no longer; its connections are in order
	Lost                    // the connection or its server is gone, or there is none
	Silent                  // there is no answer, or that of another question: give up the connection
)

// IsDuplicate reports whether a row had the same value in a unique column.
func (c Class) IsDuplicate() bool { return c == Duplicate || c == KeyTaken }

// A classified error has a class not evident from its text or code.
type classified struct {
	error
	class Class
}

func (e classified) Unwrap() error { return e.error }

// With returns err with a class that is not evident from its text or code.
func With(class Class, err error) error { return classified{err, class} }

// A redacted error has the text of another one without some values.
type redacted struct {
	error
	text string
}

func (e redacted) Error() string { return e.text }
func (e redacted) Unwrap() error { return e.error }

// WithoutValues returns err with a text, for a log, that has no values of rows that MySQL or Vitess quote. It
// goes by the text alone, as err may only quote the error of the database. To statements of the store,
// PostgreSQL sends values as details, which are in no driver's text, and SQLite sends none.
func WithoutValues(err error) error {
	if err == nil {
		return nil
	}
	if text := withoutMySQLValues(err.Error()); text != err.Error() {
		return redacted{err, text}
	}
	return err
}

// A textClass is how texts of errors without a code begin or end, and their class.
type textClass struct {
	text string
	Class
}

// Of returns the class of the error of a statement.
func Of(err error) Class {
	if err == nil {
		return Final
	}
	if e, ok := errors.AsType[classified](err); ok {
		return e.class
	}
	if class, ok := ByCode(err); ok {
		return class
	}
	// A text may quote what a client has sent, but neither begins nor ends with that.
	text := err.Error()
	for _, texts := range [][]textClass{postgreSQLTexts, mySQLTexts, sqliteTexts} {
		for _, known := range texts {
			if strings.HasPrefix(text, known.text) || strings.HasSuffix(text, known.text) {
				return known.Class
			}
		}
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return Lost
	}
	for _, gone := range []error{driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, gone) {
			return Lost
		}
	}
	return Final
}

// ByCode returns the class of the code of err, and false if err has no code of any database. It
// looks at no text but those of the database itself, so err may be an error of the program's.
func ByCode(err error) (Class, bool) {
	for _, classOf := range []func(error) (Class, bool){postgreSQLCode, mySQLCodeClass, sqliteCodeClass} {
		if class, ok := classOf(err); ok {
			return class, true
		}
	}
	return Final, false
}

// IsBusy reports whether err may be what a driver returns for a connection whose rows are open: pgx has
// driver.ErrBadConn, go-sql-driver/mysql "busy buffer". A connection that is lost may have the same error.
func IsBusy(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || err != nil && strings.HasSuffix(err.Error(), "busy buffer")
}

// find returns the first error in the tree of err for which is returns true, or nil.
func find(err error, is func(error) bool) error {
	if err == nil || is(err) {
		return err
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		return find(err.Unwrap(), is)
	case interface{ Unwrap() []error }:
		for _, err := range err.Unwrap() {
			if found := find(err, is); found != nil {
				return found
			}
		}
	}
	return nil
}

// isOf reports whether the type of an error, or its package, has a word in its name: those of the drivers
// have that of their database. Other types may have the same fields and methods, with codes of their own.
func isOf(err error, word string) bool {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.Contains(strings.ToLower(t.PkgPath()+"."+t.Name()), word)
}

// field returns the field of an error that is a struct, or points to one.
func field(err error, name string) reflect.Value {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}
