package sqlstore

import (
	"errors"
	"fmt"

	"example.com/storefront/internal/sqlerror"
)

// errOfAnother is the error of a statement whose answer has the row of another one, as from a pooler that
// mixes up its connections.
var errOfAnother = sqlerror.With(sqlerror.Silent,
	errors.New("sqlstore: the database has answered with the row of another statement"))

// An acceptError is an error of Options.Accept. It is final, whatever became of earlier
// tries: the key was free when Accept was called.
type acceptError struct{ error }

func (e acceptError) Unwrap() error { return e.error }

// A panicError holds the value with which a driver panicked in the goroutine of a commit.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprint("panic: ", e.value) }

// classOf returns the class of the error of a statement of the store's.
func classOf(err error) sqlerror.Class {
	switch err.(type) {
	case acceptError, *panicError: // the methods of an error or value of the program's may do anything
		return sqlerror.Final
	}
	return sqlerror.Of(err)
}

// transient reports whether the same statement may succeed later, perhaps over another connection.
func transient(err error) bool { return classOf(err) >= sqlerror.Passing }
