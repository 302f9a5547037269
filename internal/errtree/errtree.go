// Package errtree looks at errors that come from a stranger's code, as [errors.Is],
// [errors.AsType] and Error do, but with bounds: the tree of such an error may contain
// itself or have no end, and its methods may panic, or not return.
package errtree

import (
	"fmt"
	"time"
)

const (
	// MaxErrors is how many errors of a tree are looked at.
	MaxErrors = 10_000
	// Timeout is how long that may take. Methods that take longer are left to
	// themselves, as Go has no way to end them.
	Timeout = 900 * time.Millisecond
)

// Findings are what is to be known of an error.
type Findings[T error] struct {
	Text string  // of Error, or why there is none
	Is   []error // those of the targets that the error matches, as by errors.Is
	As   T       // the first error of this type, as by errors.AsType, or the zero T
}

// Examine returns its findings on err. If its methods panic or take longer than Timeout,
// or its tree has more than MaxErrors errors, there is only a Text. The targets must be
// comparable.
func Examine[T error](err error, targets ...error) Findings[T] {
	findings := make(chan Findings[T], 1)
	go func() {
		found := Findings[T]{Text: fmt.Sprintf("a %T that ends the goroutine that looks at it", err)} // unless it does not
		defer func() {
			if recover() != nil {
				found = Findings[T]{Text: fmt.Sprintf("%s (and to look at this %T panics)", text(err), err)}
			}
			findings <- found
		}()
		x := examination[T]{left: MaxErrors, targets: targets}
		if !x.look(err) {
			found = Findings[T]{Text: fmt.Sprintf("a %T whose tree has more than %d errors", err, MaxErrors)}
			return
		}
		x.Text = text(err) // which may go through the tree as well, without bounds
		found = x.Findings
	}()
	select {
	case found := <-findings:
		return found
	case <-time.After(Timeout):
		return Findings[T]{Text: fmt.Sprintf("a %T that takes more than %v to look at", err, Timeout)}
	}
}

// text returns the text of err, if it has one.
func text(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T without a text", err)
		}
	}()
	return err.Error()
}

type examination[T error] struct {
	Findings[T]
	targets []error // not found yet
	left    int     // how many errors may still be looked at
	isT     bool    // As is found
}

// look reports whether it has seen all of the tree.
func (x *examination[T]) look(err error) bool {
	if x.left--; x.left < 0 {
		return false
	}
	is, _ := err.(interface{ Is(error) bool })
	for i := 0; i < len(x.targets); {
		if target := x.targets[i]; err == target || is != nil && is.Is(target) {
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
		x.isT = as.As(&x.As)
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		inner := err.Unwrap()
		return inner == nil || x.look(inner)
	case interface{ Unwrap() []error }:
		for _, inner := range err.Unwrap() {
			if inner != nil && !x.look(inner) {
				return false
			}
		}
	}
	return true
}
