// Package lazyctx has a context whose deadline costs nothing until somebody waits for it. An order
// that a store in memory creates at once has no use for the timer, the channel and the links
// between contexts that context.WithDeadline makes. They took a twentieth of all that a server
// does for it.
package lazyctx

import (
	"context"
	"sync"
	"time"
)

// WithDeadline is like [context.WithDeadline], but makes no timer before Done is called. The
// parent is never done, such as one from [context.WithoutCancel].
func WithDeadline(parent context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	c := &lazy{Context: parent, deadline: deadline}
	return c, c.cancel
}

// A lazy is a context that leaves everything to another one from when Done is first called.
type lazy struct {
	context.Context // the parent
	deadline        time.Time

	mu   sync.Mutex
	real context.Context // with a timer; nil while nobody waits
	stop context.CancelFunc
	err  error // with which it ended while nobody waited
}

func (c *lazy) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *lazy) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		if c.err != nil {
			return closed
		}
		c.real, c.stop = context.WithDeadline(c.Context, c.deadline)
	}
	return c.real.Done()
}

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (c *lazy) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locked()
}

// locked is Err, of a c that is locked.
func (c *lazy) locked() error {
	if c.real != nil {
		return c.real.Err()
	}
	if c.err == nil && !time.Now().Before(c.deadline) {
		c.err = context.DeadlineExceeded
	}
	return c.err
}

// Value also gives package context what it needs so that a child of c, which has called Done,
// takes no goroutine.
func (c *lazy) Value(key any) any {
	c.mu.Lock()
	real := c.real
	c.mu.Unlock()
	if real != nil {
		return real.Value(key)
	}
	return c.Context.Value(key)
}

// cancel is the CancelFunc of c.
func (c *lazy) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real != nil {
		c.stop()
	} else if c.locked() == nil {
		c.err = context.Canceled
	}
}
