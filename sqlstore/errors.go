package sqlstore

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
)

// A class says whether, and how, to try again after an error.
type class int

const (
	final      class = iota // the same statement would fail again
	duplicate               // a row had the same value in a unique column
	keyTaken                // a row had the same value in a unique column, which is or may be key_hash
	exists                  // a statement of the schema has nothing to do: what it makes is there
	raced                   // another program has run the same statement of the schema meanwhile
	absent                  // a table is not there
	denied                  // the role may not do that
	passing                 // the same statement may succeed later, over this connection, too
	conflict                // another transaction was in the way
	notPrimary              // this server is not the primary, or no longer; its connections are in order
	lost                    // the connection or its server is gone, or there is none
	silent                  // there is no answer, or that of another question: give up the connection
)

// A classified error has a class not evident from its text or code.
type classified struct {
	error
	class class
}

func (e classified) Unwrap() error { return e.error }

// errOfAnother is the error of a statement whose answer has the row of another one, as from a pooler that
// mixes up its connections.
var errOfAnother = classified{
	errors.New("sqlstore: the database has answered with the row of another statement"), silent,
}

// An acceptError is an error of Options.Accept. It is final, whatever became of earlier
// tries: the key was free when Accept was called.
type acceptError struct{ error }

func (e acceptError) Unwrap() error { return e.error }

// A panicError holds the value with which a driver panicked in the goroutine of a commit.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprint("panic: ", e.value) }

// classOf returns the class of the error of a statement of the store's.
func classOf(err error) class {
	switch err.(type) {
	case nil, acceptError, *panicError: // the methods of an error or value of the program's may do anything
		return final
	}
	if e, ok := errors.AsType[classified](err); ok {
		return e.class
	}
	if class, ok := codeClass(err); ok {
		return class
	}
	// A text may quote what a client has sent, but neither begins nor ends with that.
	text := err.Error()
	for _, k := range kinds() {
		for _, known := range k.texts {
			if strings.HasPrefix(text, known.text) || strings.HasSuffix(text, known.text) {
				return known.class
			}
		}
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return lost
	}
	for _, gone := range []error{driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, gone) {
			return lost
		}
	}
	return final
}

// codeClass returns the class of the code of err, and false if err has no code of any database. It
// looks at no text but those of the database itself, so err may be an error of the program's.
func codeClass(err error) (class, bool) {
	for _, k := range kinds() {
		if class, ok := k.codeClass(err); ok {
			return class, true
		}
	}
	return final, false
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

// isDuplicate reports whether a row had the same value in a unique column.
func (c class) isDuplicate() bool { return c == duplicate || c == keyTaken }

// transient reports whether the same statement may succeed later, perhaps over another
// connection.
func transient(err error) bool { return classOf(err) >= passing }
