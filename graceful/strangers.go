package graceful

import (
	"context"
	"errors"
	"fmt"
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

// stepLimit is how long Serve waits for the record of a step.
const stepLimit = time.Second

// steps logs what Serve does. It does not wait for long for a logger whose records go nowhere, such as into a
// pipe that nobody reads.
type steps struct {
	logger *slog.Logger
	last   chan struct{} // closed after the record before
}

func (s *steps) log(message string, attrs ...slog.Attr) {
	before, written := s.last, make(chan struct{})
	s.last = written
	go func() {
		defer close(written)
		if before != nil {
			<-before
		}
		s.logger.LogAttrs(context.Background(), slog.LevelInfo, message, attrs...)
	}()
	select {
	case <-written:
	case <-time.After(stepLimit):
	}
}
