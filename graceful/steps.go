package graceful

import (
	"context"
	"log/slog"
	"time"
)

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
