package graceful

import (
	"context"
	"log/slog"
	"time"
)

// stepLimit is how long Serve waits for the record of a step.
const stepLimit = time.Second

// steps logs what Serve does, in turn, into a logger whose records may go nowhere, such as into a pipe that
// nobody reads.
type steps struct {
	logger *slog.Logger
	last   chan struct{} // closed after the record before
}

// log waits until a record is written, but not for long.
func (s *steps) log(message string, attrs ...slog.Attr) {
	s.begin(slog.LevelInfo, message, attrs...)
	select {
	case <-s.last:
	case <-time.After(stepLimit):
	}
}

// areWritten reports whether all records that were begun are written.
func (s *steps) areWritten() bool {
	if s.last == nil {
		return true
	}
	select {
	case <-s.last:
		return true
	default:
		return false
	}
}

// begin begins to write a record once the one before is written.
func (s *steps) begin(level slog.Level, message string, attrs ...slog.Attr) {
	before, written := s.last, make(chan struct{})
	s.last = written
	go func() {
		defer close(written)
		defer func() { recover() }() // the Logger's panic would end the process
		if before != nil {
			<-before
		}
		s.logger.LogAttrs(context.Background(), level, message, attrs...)
	}()
}
