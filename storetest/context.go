package storetest

import (
	"context"
	"iter"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A countdownContext is cancelled when one of its methods is called for the nth time:
// so the suite interrupts a call at each of its steps, without any timing.
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

// moments returns contexts that are cancelled when they are used for the first time, the
// second, and so on, until one has not been used so often. There are no more than most, as
// some drivers look at ctx again and again while they commit.
func moments(parent context.Context, most int) iter.Seq2[int, *countdownContext] {
	return func(yield func(int, *countdownContext) bool) {
		for n, more := 1, true; more && n <= most; n++ {
			ctx := newCountdown(parent, n)
			more = yield(n, ctx) && ctx.left.Load() <= 0
			ctx.cancel()
		}
	}
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

// A recordingContext counts how often it is used after the call that was given it has
// returned, by later calls of the suite. Its use by other goroutines does not count,
// as those that a library has started may be about to end.
type recordingContext struct {
	context.Context
	returned atomic.Bool // whether the call that was given the context has returned
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

// calledBySuite reports whether the calling goroutine makes a call of the suite.
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
