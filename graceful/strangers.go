package graceful

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"
)

// What the program gives to Serve is called in goroutines in which a panic would end the process.

// errNoReturn stands for the error of a function that does not return.
var errNoReturn = errors.New("it ended its goroutine, as runtime.Goexit does")

// stopped returns the error for the program's code that has panicked with v or, if v is nil, ended its
// goroutine. It is called by the deferred function that has recovered v.
func stopped(what string, v any) error {
	switch v := v.(type) {
	case nil:
		return fmt.Errorf("%s did not return: %w\n\n%s", what, errNoReturn, debug.Stack())
	case error:
		return fmt.Errorf("%s panicked: %w\n\n%s", what, v, debug.Stack())
	default:
		return fmt.Errorf("%s panicked: %v\n\n%s", what, v, debug.Stack())
	}
}

// A safeHandler is a slog.Handler whose panics go to standard error, as there is no other log.
type safeHandler struct{ slog.Handler }

func (h safeHandler) Enabled(ctx context.Context, level slog.Level) bool {
	defer h.recover()
	return h.Handler.Enabled(ctx, level)
}

func (h safeHandler) Handle(ctx context.Context, r slog.Record) error {
	defer h.recover()
	return h.Handler.Handle(ctx, r)
}

func (safeHandler) recover() {
	if v := recover(); v != nil {
		fmt.Fprintln(os.Stderr, "graceful:", stopped("the Logger", v))
	}
}

// progressLimit is how long a line may take that is for people.
const progressLimit = time.Second

// progress writes Options.Progress. The end of the process does not wait for long for a writer, such as a
// pipe that nobody reads, nor does its panic keep it from finishing the requests.
type progress struct {
	to     io.Writer
	logger *slog.Logger
	last   chan struct{} // closed after the line before
}

func (p *progress) say(format string, args ...any) {
	if p.to == nil {
		return
	}
	before, written := p.last, make(chan struct{})
	p.last = written
	go func() {
		defer close(written)
		defer func() {
			if v := recover(); v != nil {
				p.logger.Error("a line was not written", slog.Any("error", stopped("Progress", v)))
			}
		}()
		if before != nil {
			<-before
		}
		fmt.Fprintf(p.to, format+"\n", args...)
	}()
	select {
	case <-written:
	case <-time.After(progressLimit):
	}
}
