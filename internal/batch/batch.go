// Package batch makes callers that arrive while a commit is under way share the next one. It
// knows nothing of the values that they commit, and has no clock.
package batch

import (
	"context"
	"slices"
	"sync"
)

// A Queue holds the values that arrive while all places for batches are taken; the next
// batch takes them. So a value that arrives alone goes at once, nobody waits for a timer,
// and the more values there are, the less each costs. The methods of a Queue may be called
// concurrently, and its fields are set before the first call.
type Queue[T any] struct {
	// Run commits the members of a batch, and notes the outcome in each of them. It does
	// not panic. For a value that goes at once, ctx is that of Do, unless the queue is
	// detached; otherwise ctx is never done.
	Run func(ctx context.Context, b *Batch[T])

	// Limits returns how many batches may be under way at the same time, at least 1,
	// and how many of n values that wait the next batch takes, from 1 to n. The queue is
	// locked when it calls Limits.
	Limits func(n int) (batches, size int)

	// Alone reports whether v shares its batch with no other value.
	Alone func(v T) bool

	// Detached makes all batches run in goroutines of their own. A batch that runs in the
	// goroutine of its member keeps Do from returning before the batch ends.
	Detached bool

	mu      sync.Mutex
	waiting []*member[T]
	running int // batches that have not handed over their place
}

// A member is a call of Do.
type member[T any] struct {
	value T
	calls chan func()   // functions that Call runs in the goroutine of Do
	left  chan struct{} // closed when Do returns
	done  chan struct{} // closed after the batch with value
}

func (m *member[T]) hasLeft() bool {
	select {
	case <-m.left:
		return true
	default:
		return false
	}
}

// A Batch is what one call of Run commits.
type Batch[T any] struct {
	Members []T

	queue      *Queue[T]
	members    []*member[T]
	handedOver bool
	kept       int // how many members are not put back
}

// Do runs v in a batch and returns nil after it. If ctx is done before, Do returns
// ctx.Err(). Then v is left out, unless its batch has begun; that batch goes on, as it may
// have other members.
func (q *Queue[T]) Do(ctx context.Context, v T) error {
	m := &member[T]{v, make(chan func()), make(chan struct{}), make(chan struct{})}
	defer q.leave(m) // also if Run panics or ends the goroutine, which may have put m back
	if q.enter(m) && q.run(ctx, []*member[T]{m}) {
		q.mu.Lock()
		q.handOver()
		q.mu.Unlock()
	}
	for {
		select {
		case <-m.done:
			return nil
		case f := <-m.calls:
			f()
			continue
		case <-ctx.Done():
		}
		select {
		case <-m.done:
			return nil
		default:
			return ctx.Err()
		}
	}
}

// enter returns true if the caller is to run m. Otherwise m waits in the queue.
func (q *Queue[T]) enter(m *member[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	batches, _ := q.Limits(len(q.waiting) + 1)
	begins := q.running < batches
	if begins {
		q.running++
		if !q.Detached {
			return true
		}
	}
	q.waiting = append(q.waiting, m)
	if begins {
		go q.work()
	}
	return false
}

// leave takes m out of the queue.
func (q *Queue[T]) leave(m *member[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(m.left)
	if i := slices.Index(q.waiting, m); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// handOver gives a place that has become free to the members that wait. The queue is locked.
func (q *Queue[T]) handOver() {
	if len(q.waiting) > 0 {
		go q.work()
	} else {
		q.running--
	}
}

// work runs batches until no member waits, or its place was handed over.
func (q *Queue[T]) work() {
	for {
		members := q.take()
		if members == nil || !q.run(context.Background(), members) {
			return
		}
	}
}

// take returns the members of the next batch. If no member waits, it gives up the place and
// returns nil.
func (q *Queue[T]) take() []*member[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.IndexFunc(q.waiting, func(m *member[T]) bool { return q.Alone(m.value) })
	switch {
	case len(q.waiting) == 0:
		q.running--
		return nil
	case n == 0:
		n = 1
	case n < 0:
		n = len(q.waiting)
	}
	_, n = q.Limits(n)
	members := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return members
}

// run runs a batch, maybe in the goroutine of its only member, and tells all members when it
// has ended, even if Run ends the goroutine. It reports whether the caller still has the
// place.
func (q *Queue[T]) run(ctx context.Context, members []*member[T]) (inPlace bool) {
	b := &Batch[T]{queue: q, members: members, kept: len(members)}
	for _, m := range members {
		b.Members = append(b.Members, m.value)
	}
	returned := false
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		inPlace = !b.handedOver
		b.handedOver = true
		back := slices.DeleteFunc(slices.Clone(members[b.kept:]), (*member[T]).hasLeft)
		q.waiting = slices.Insert(q.waiting, 0, back...)
		for _, m := range members[:b.kept] {
			close(m.done)
		}
		if !returned && inPlace { // Run has ended the goroutine
			q.handOver()
		}
	}()
	q.Run(ctx, b)
	returned = true
	return
}

// HandOver gives the place of the batch away, so that another batch can begin beside one that
// takes long. It may be called at any time, from any goroutine and more than once.
func (b *Batch[T]) HandOver() {
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
	if !b.handedOver {
		b.handedOver = true
		b.queue.handOver()
	}
}

// PutBack makes the members from the n-th on, counted from 0, wait for the next batch, as the
// first in the queue. Only Run calls it, and not if the place was handed over.
func (b *Batch[T]) PutBack(n int) { b.kept = n }

// Call calls f in the goroutine that has called Do for the n-th member, so that a panic of f
// is a panic of that goroutine. It returns when f has returned, panicked or ended the
// goroutine. If that Do has returned, Call returns an error and does not call f. Only Run of
// a detached queue calls it.
func (b *Batch[T]) Call(n int, f func()) error {
	m := b.members[n]
	ended := make(chan struct{})
	select {
	case m.calls <- func() {
		defer close(ended)
		f()
	}:
		<-ended
		return nil
	case <-m.left:
		return context.Canceled
	}
}
