// Package batch has those who come while a commit is under way share the next one. It
// knows nothing of what is committed, and has no clock.
package batch

import (
	"context"
	"slices"
	"sync"
)

// A Queue holds what arrived while as many batches as are worth it were under way;
// the next batch takes it. So who arrives alone goes at once, nobody waits for a timer,
// and the more there are, the less each costs. Its methods may be called concurrently,
// its fields are set before.
type Queue[T any] struct {
	// Run commits the members of a batch, and notes in each what became of it. It does
	// not panic. For who goes at once, ctx is that of Do, unless the queue is
	// detached; otherwise it is never done.
	Run func(ctx context.Context, b *Batch[T])

	// Limits returns how many batches are to be under way at the same time, at least 1,
	// and how many of n that wait the next one takes, from 1 to n. It is called with
	// the queue locked.
	Limits func(n int) (batches, size int)

	// Alone reports whether v shares its batch with nobody.
	Alone func(v T) bool

	// Detached reports whether no batch is to run in the goroutine of its member, whose
	// Do could not return before the batch ends.
	Detached func() bool

	mu      sync.Mutex
	waiting []*member[T]
	running int // batches that have not handed their place over
}

type member[T any] struct {
	value T
	calls chan func()   // what Call has for the goroutine of Do
	left  chan struct{} // closed when nobody waits for it any more
	done  chan struct{} // closed after its batch
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
	own        bool // it runs in the goroutine of its member
	handedOver bool
	kept       int // how many are not put back
}

// Do has v run in a batch and returns nil after it. If ctx is done before, it returns
// ctx.Err(): v is then left out, unless its batch has begun, which goes on for the
// sake of the others.
func (q *Queue[T]) Do(ctx context.Context, v T) error {
	m := &member[T]{v, make(chan func()), make(chan struct{}), make(chan struct{})}
	if q.enter(m) && q.run(ctx, []*member[T]{m}, true) {
		q.mu.Lock()
		q.handOver()
		q.mu.Unlock()
	}
	defer q.leave(m)
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

// enter has m wait, or returns true if the caller is to run it.
func (q *Queue[T]) enter(m *member[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	batches, _ := q.Limits(len(q.waiting) + 1)
	begins := q.running < batches
	if begins {
		q.running++
		if !q.Detached() {
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

// handOver has those who wait run in a place that has become free. The queue is locked.
func (q *Queue[T]) handOver() {
	if len(q.waiting) > 0 {
		go q.work()
	} else {
		q.running--
	}
}

// work runs what waits until nothing does, or its place was handed over.
func (q *Queue[T]) work() {
	for {
		members := q.take()
		if members == nil || !q.run(context.Background(), members, false) {
			return
		}
	}
}

// take returns the members of the next batch. If there are none, the place is given up.
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

// run runs a batch, maybe in the goroutine of its only member, and tells its members,
// whatever happens. It reports whether the place is still its own.
func (q *Queue[T]) run(ctx context.Context, members []*member[T], own bool) (inPlace bool) {
	b := &Batch[T]{queue: q, members: members, own: own, kept: len(members)}
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
		// Where the place was handed over and nobody waited, nobody may be there to take them.
		if !inPlace && len(back) > 0 {
			if batches, _ := q.Limits(len(q.waiting)); q.running < batches {
				q.running++
				go q.work()
			}
		}
	}()
	q.Run(ctx, b)
	returned = true
	return
}

// HandOver lets another batch begin beside this one, which takes too long to keep its
// place. It may be called at any time, from any goroutine and more than once.
func (b *Batch[T]) HandOver() {
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
	if !b.handedOver {
		b.handedOver = true
		b.queue.handOver()
	}
}

// PutBack has the members from the n-th on, from 0, wait for the next batch, as the
// first in the queue. It is called by Run.
func (b *Batch[T]) PutBack(n int) { b.kept = n }

// Call calls f in the goroutine that has called Do for the n-th member, so that a panic is
// that goroutine's, and returns when f has, in whatever way. If nobody waits for the
// member any more, it returns an error and does not call f.
func (b *Batch[T]) Call(n int, f func()) error {
	if b.own {
		f()
		return nil
	}
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
