package errtree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var targets = []error{io.EOF, fs.ErrNotExist, fs.ErrExist}

// examine is Examine on a clock that stands still while Examine works, so that a busy
// machine does not use up the Timeout.
func examine[T error](t *testing.T, err error) (found Findings[T]) {
	synctest.Test(t, func(*testing.T) { found = Examine[T](err, targets...) })
	return found
}

func TestExamineFindsWhatTheErrorsPackageFinds(t *testing.T) {
	_, missing := os.Open("/there/is/no/such/file")
	for _, err := range []error{
		io.EOF,
		errors.New("x"),
		fmt.Errorf("a: %w", io.EOF),
		missing,
		fmt.Errorf("a: %w, %w", missing, fmt.Errorf("b: %w", io.EOF)),
		errors.Join(errors.New("x"), errors.Join(io.EOF, io.EOF), missing),
		errors.Join(&fs.PathError{Op: "first", Err: io.EOF}, &fs.PathError{Op: "second", Err: fs.ErrExist}),
		asPath{},
		uncomparable{io.EOF},
		chain(MaxErrors - 1),
	} {
		got := examine[*fs.PathError](t, err)
		for _, target := range targets {
			if want := errors.Is(err, target); slices.Contains(got.Is, target) != want {
				t.Errorf("%.100v is %v: %t, want %t", err, target, !want, want)
			}
		}
		if want, _ := errors.AsType[*fs.PathError](err); got.As != want && (want == nil || *got.As != *want) {
			t.Errorf("%.100v as a PathError is %v, want %v", err, got.As, want)
		}
		if want := err.Error(); got.Text != want {
			t.Errorf("%.100v has the text %.100q, want %.100q", err, got.Text, want)
		}
		if len(got.Is) > len(targets) {
			t.Errorf("%.100v is %v: some of them twice", err, got.Is)
		}
	}
}

func TestExamineEnds(t *testing.T) {
	for name, err := range map[string]error{
		"contains itself":             loop{},
		"contains itself, and others": knot{io.EOF},
		"has no end":                  unending(0),
		"one more than are looked at": chain(MaxErrors),
		"a chain of a million":        chain(1_000_000),
		"wide":                        wide(make([]error, MaxErrors)),
		"ends the goroutine":          trap(runtime.Goexit),
	} {
		got := examine[*fs.PathError](t, err)
		if got.Text == "" || got.Is != nil || got.As != nil {
			t.Errorf("%s: %+v, want a text alone", name, got)
		}
		if !strings.Contains(got.Text, fmt.Sprintf("%T", err)) {
			t.Errorf("%s: the text %q does not say of which type the error is", name, got.Text)
		}
	}
}

// The findings have what the other errors of the tree say.
func TestExamineSurvivesPanics(t *testing.T) {
	for name, err := range map[string]error{
		"Is":           trap(func() { panic("a trap") }),
		"with itself":  trap(func() { panic(textless{}) }),
		"As":           asTrap{},
		"Unwrap":       (*fs.PathError)(nil),
		"Unwrap many":  unwrapTrap{},
		"Error":        textless{},
		"As, to false": asFalse{},
	} {
		for _, joined := range []error{errors.Join(err, io.EOF), errors.Join(io.EOF, err)} {
			got := examine[*os.SyscallError](t, joined)
			if got.Text == "" || !slices.Equal(got.Is, []error{io.EOF}) || got.As != nil {
				t.Errorf("%s: %+v, want a text and EOF", name, got)
			}
		}
	}
	if got := examine[*os.SyscallError](t, textless{}); got.Text != "a errtree.textless without a text" {
		t.Errorf("the text is %q", got.Text)
	}
}

func TestPanicIsAnErrorWithAText(t *testing.T) {
	ring := []any{nil}
	ring[0] = ring // package fmt would format it without end
	for want, v := range map[string]any{
		"EOF": io.EOF, "a text": "a text", "42": 42, "1m0s": time.Minute, "true": true, "a struct {}": struct{}{}, "a []interface {}": ring,
	} {
		if got := Panic(v).Error(); got != want {
			t.Errorf("the text of %T is %q, want %q", v, got, want)
		}
	}
}

func TestExamineDoesNotWaitForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got := Examine[*fs.PathError](trap(func() { time.Sleep(time.Hour) }), targets...)
		if took := time.Since(began); took != Timeout || !strings.Contains(got.Text, "takes more than 5s") {
			t.Errorf("it took %v and found %+v", took, got)
		}
		time.Sleep(24 * time.Hour) // until the method has returned
	})
}

// A process that is frozen finds, when it goes on, that all of the Timeout has passed.
func TestExamineGoesOnAfterAFreeze(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no signal that freezes a process")
	}
	freeze := sync.OnceFunc(func() {
		const script = "trap 'kill -CONT $PPID' EXIT INT TERM; kill -STOP $PPID; sleep %v"
		if out, err := exec.Command("sh", "-c", fmt.Sprintf(script, Timeout.Seconds())).CombinedOutput(); err != nil {
			t.Errorf("sh: %v\n%s", err, out)
		}
	})
	got := Examine[*fs.PathError](errors.Join(trap(freeze), io.EOF), targets...)
	if !slices.Contains(got.Is, io.EOF) {
		t.Errorf("%+v, want an end of file", got)
	}
}

type asPath struct{}

func (asPath) Error() string { return "is none, but can be had as one" }
func (asPath) As(target any) bool {
	p, ok := target.(**fs.PathError)
	if ok {
		*p = &fs.PathError{Op: "as", Err: io.EOF}
	}
	return ok
}

type uncomparable []error

func (u uncomparable) Error() string   { return "uncomparable" }
func (u uncomparable) Unwrap() []error { return u }

// The method Error of the first three calls Error of the errors inside, as that of
// errors.Join does.
type (
	loop     struct{}
	knot     [1]error // has itself inside, too
	unending int
	chain    int // the number of errors that follow
	wide     []error
)

func (l loop) Error() string     { return l.Unwrap().Error() }
func (l loop) Unwrap() error     { return l }
func (k knot) Error() string     { return errors.Join(k.Unwrap()...).Error() }
func (k knot) Unwrap() []error   { return []error{k[0], k, k} }
func (u unending) Error() string { return u.Unwrap().Error() }
func (u unending) Unwrap() error { return u + 1 }
func (c chain) Error() string    { return "link" }
func (c chain) Unwrap() error {
	switch c {
	case 0:
		return nil
	case 1:
		return io.EOF
	}
	return c - 1
}
func (w wide) Error() string { return "wide" }
func (w wide) Unwrap() []error {
	for i := range w {
		w[i] = io.EOF
	}
	return w
}

type textless struct{}

func (textless) Error() string { panic(textless{}) }

type asTrap struct{}

func (asTrap) Error() string { return "a trap" }
func (asTrap) As(any) bool   { panic("a trap") }

type asFalse struct{}

func (asFalse) Error() string { return "sets what it does not say" }
func (asFalse) As(target any) bool {
	if p, ok := target.(**os.SyscallError); ok {
		*p = new(os.SyscallError)
	}
	return false
}

type unwrapTrap struct{}

func (unwrapTrap) Error() string   { return "a trap" }
func (unwrapTrap) Unwrap() []error { panic("a trap") }

type trap func()

func (f trap) Error() string { return "a trap" }
func (f trap) Is(error) bool { f(); return false }
