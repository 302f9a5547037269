package storetest

import (
	"context"
	"iter"
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
