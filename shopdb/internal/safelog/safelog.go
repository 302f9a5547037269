// Package safelog logs to a Logger of the program, for goroutines that must go on whatever it does.
package safelog

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"
)

// logLimit is how long a line of the log may take.
const logLimit = time.Second

// A guarded handler is that of the program's Logger.
type guarded struct {
	slog.Handler
	busy chan struct{} // has room for one
}

// New returns a Logger that writes to another one, or to the default one if that is nil. It may panic, end
// its goroutine, or hang. While a line hangs, later ones are dropped.
func New(l *slog.Logger) *slog.Logger {
	if l == nil {
		l = slog.Default()
	}
	return slog.New(guarded{l.Handler(), make(chan struct{}, 1)})
}

// Enabled implements slog.Handler.
func (g guarded) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (g guarded) Handle(ctx context.Context, r slog.Record) error {
	select {
	case g.busy <- struct{}{}:
	default:
		return nil
	}
	handled := make(chan struct{})
	go func() {
		defer func() {
			if v := recover(); v != nil {
				fmt.Fprintf(os.Stderr, "shopdb: the Logger panicked: %v\n%s", v, debug.Stack())
			}
			<-g.busy
			close(handled)
		}()
		if g.Handler.Enabled(ctx, r.Level) {
			g.Handler.Handle(ctx, r)
		}
	}()
	select {
	case <-handled:
	case <-time.After(logLimit):
	}
	return nil
}
