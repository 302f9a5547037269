package storetest

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A countdownContext is cancelled when it is used for the nth time, so that
// calls are interrupted in their midst without any timing.
type countdownContext struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
	first  func() // called when it is used for the first time; may be nil
	used   sync.Once
}

func newCountdown(parent context.Context, n int) *countdownContext {
	c := new(countdownContext)
	c.Context, c.cancel = context.WithCancel(parent)
	c.left.Store(int64(n))
	return c
}

func (c *countdownContext) use() context.Context {
	if c.first != nil {
		c.used.Do(c.first)
	}
	if c.left.Add(-1) == 0 {
		c.cancel()
	}
	return c.Context
}

func (c *countdownContext) Deadline() (time.Time, bool) { return c.use().Deadline() }
func (c *countdownContext) Done() <-chan struct{}       { return c.use().Done() }
func (c *countdownContext) Err() error                  { return c.use().Err() }
func (c *countdownContext) Value(key any) any           { return c.use().Value(key) }

// A recordingContext counts how often it is used by calls that were not given
// it. Goroutines do not count: those of a library may be about to end.
type recordingContext struct {
	context.Context
	returned atomic.Bool // whether the call that was given it has returned
	late     atomic.Int64
}

func (c *recordingContext) use() context.Context {
	if c.returned.Load() && calledBySuite() {
		c.late.Add(1)
	}
	return c.Context
}

func (c *recordingContext) Deadline() (time.Time, bool) { return c.use().Deadline() }
func (c *recordingContext) Done() <-chan struct{}       { return c.use().Done() }
func (c *recordingContext) Err() error                  { return c.use().Err() }
func (c *recordingContext) Value(key any) any           { return c.use().Value(key) }

// calledBySuite reports whether this is part of a call that the suite has made.
func calledBySuite() bool {
	pc := make([]uintptr, 256)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "storetest.callOfTheSuite[") {
			return true
		}
		if !more {
			return false
		}
	}
}
