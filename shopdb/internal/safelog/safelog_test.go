package safelog

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// A strangeHandler is a slog.Handler of which each line does something else.
type strangeHandler struct {
	slog.Handler
	lines []func()
}

func (h *strangeHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *strangeHandler) Handle(context.Context, slog.Record) error {
	line := h.lines[0]
	h.lines = h.lines[1:]
	line()
	return nil
}

// The goroutines that watch the disk, and forget keys, go on whatever the program's Logger does.
func TestLoggerThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged, hang := 0, make(chan struct{})
		h := &strangeHandler{lines: []func(){
			func() { panic("no log") }, runtime.Goexit, func() { logged++ }, func() { <-hang }, func() { logged++ },
		}}
		logger := New(slog.New(h))
		for range 4 {
			logger.Warn("the disk has no room for orders")
		}
		began := time.Now()
		logger.Warn("is dropped")
		if took := time.Since(began); took > 0 || logged != 1 {
			t.Errorf("beside a line that hangs, another takes %v; %d were logged, want 1", took, logged)
		}
		close(hang)
		synctest.Wait()
		if logger.Warn("the disk has room for orders again"); logged != 2 {
			t.Errorf("then, %d lines are logged, want 2", logged)
		}
	})
}
