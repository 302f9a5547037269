// Package errtree examines errors that come from other people's code, as [errors.Is],
// [errors.AsType] and Error do, but within limits: the tree of such an error may contain
// itself or have no end, and its methods may panic, or not return. Only a method that
// calls itself without end still ends the process, as nothing in Go can prevent that.
package errtree

import (
	"fmt"
	"reflect"
	"time"
)

const (
	// MaxErrors is how many errors of a tree Examine looks at.
	MaxErrors = 10_000
	// Timeout is how long Examine takes at most: long enough for a busy machine. A method
	// that takes longer goes on in its own goroutine, as Go has no way to end it.
	Timeout = 5 * time.Second
)

// Findings are the result of Examine.
type Findings[T error] struct {
	Text string  // what Error returned, or why it returned nothing
	Is   []error // the targets that the error matches, as by errors.Is
	As   T       // the first error of this type, as by errors.AsType, or the zero T
}

// Examine looks at err and the tree below it. If a method of an error panics, Examine goes
// on without its result. If the methods take longer than Timeout, or the tree has more than
// MaxErrors errors, only Text is set. The targets must be comparable.
func Examine[T error](err error, targets ...error) Findings[T] {
	findings := make(chan Findings[T], 1)
	go func() {
		found := Findings[T]{Text: fmt.Sprintf("a %T that ends the goroutine that looks at it", err)} // replaced below, unless a method does that
		defer func() { findings <- found }()
		x := examination[T]{left: MaxErrors, targets: targets}
		if !x.look(err) {
			found = Findings[T]{Text: fmt.Sprintf("a %T whose tree has more than %d errors", err, MaxErrors)}
			return
		}
		x.Text = fmt.Sprintf("a %T without a text", err)
		try(func() { x.Text = err.Error() }) // Error may walk the tree, too, and without limits: so it comes after look
		found = x.Findings
	}()
	// A process that was frozen finds that much time has passed, but gets one tick for it.
	ticks := time.NewTicker(Timeout / 5)
	defer ticks.Stop()
	for range 5 {
		select {
		case found := <-findings:
			return found
		case <-ticks.C:
		}
	}
	return Findings[T]{Text: fmt.Sprintf("a %T that takes more than %v to look at", err, Timeout)}
}

// Panic returns the value of a panic as an error: v itself if it is one. Otherwise the text
// of the error is that of a Stringer, a number, a bool or a string, and for any other value
// its type, as formatting some values with package fmt never ends.
func Panic(v any) error {
	if err, ok := v.(error); ok {
		return err
	}
	return panicValue{v}
}

type panicValue struct{ v any }

func (p panicValue) Error() string {
	if s, ok := p.v.(fmt.Stringer); ok {
		return s.String()
	}
	if kind := reflect.TypeOf(p.v).Kind(); kind <= reflect.Complex128 || kind == reflect.String {
		return fmt.Sprint(p.v)
	}
	return fmt.Sprintf("a %T", p.v)
}

// try calls a method of an error, and survives its panic.
func try(method func()) {
	defer func() { recover() }()
	method()
}

type examination[T error] struct {
	Findings[T]
	targets []error // those that no error has matched yet
	left    int     // how many more errors look may look at
	isT     bool    // As is set
}

// look examines err and the tree below it, and reports whether it has seen all of them.
func (x *examination[T]) look(err error) bool {
	if x.left--; x.left < 0 {
		return false
	}
	is, _ := err.(interface{ Is(error) bool })
	for i := 0; i < len(x.targets); {
		target := x.targets[i]
		matches := err == target
		if !matches && is != nil {
			try(func() { matches = is.Is(target) })
		}
		if matches {
			x.Is = append(x.Is, target)
			x.targets = append(x.targets[:i:i], x.targets[i+1:]...)
		} else {
			i++
		}
	}
	if !x.isT {
		x.As, x.isT = err.(T)
	}
	if as, ok := err.(interface{ As(any) bool }); ok && !x.isT {
		try(func() {
			var found T
			if as.As(&found) {
				x.As, x.isT = found, true
			}
		})
	}
	var inner []error
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		try(func() { inner = []error{err.Unwrap()} })
	case interface{ Unwrap() []error }:
		try(func() { inner = err.Unwrap() })
	}
	for _, err := range inner {
		if err != nil && !x.look(err) {
			return false
		}
	}
	return true
}
