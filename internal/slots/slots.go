// Package slots is a semaphore that is first come, first served, and that a caller can leave.
package slots

import (
	"context"
	"slices"
	"sync"
)

// Slots limit how many callers do something at once. The zero Slots is a lock: it has one slot. Its methods
// may be called concurrently, by goroutines of one bubble of [testing/synctest] at a time.
type Slots struct {
	// Limit returns how many slots there are now, and 0 if there is no limit. If it is nil, there is
	// one. It is set before the first call, and Slots are locked when they call it.
	Limit func() int

	mu    sync.Mutex // never held for long
	taken int
	// Each caller waits for its own channel: one for all would belong to the bubble in which it was made,
	// and time does not pass in a bubble while a goroutine waits for a mutex.
	waiting []chan struct{}
}

// Acquire takes a slot, and waits for one while all are taken. If ctx is done, it takes none and returns
// ctx.Err(). Slots go to the callers in the sequence in which they came.
func (s *Slots) Acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if len(s.waiting) == 0 && s.take() {
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()
	select {
	case <-turn:
	case <-ctx.Done():
	}
	err := ctx.Err()
	if err != nil {
		s.leave(turn)
	}
	return err
}

// TryAcquire takes a slot and returns true, or returns false if all are taken.
func (s *Slots) TryAcquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) == 0 && s.take()
}

// take takes a slot if one is free, and reports whether it has. Slots are locked.
func (s *Slots) take() bool {
	limit := 1
	if s.Limit != nil {
		limit = s.Limit()
	}
	free := limit == 0 || s.taken < limit
	if free {
		s.taken++
	}
	return free
}

// leave gives up the wait for a turn, or the slot if it has come in the same moment.
func (s *Slots) leave(turn chan struct{}) {
	s.mu.Lock()
	i := slices.Index(s.waiting, turn)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		s.Release()
	}
}

// Release gives a slot back. The caller that has waited for the longest time gets it.
func (s *Slots) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	for len(s.waiting) > 0 && s.take() { // several if there are more slots now, or none if there are fewer
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}

// Wanted reports whether a caller waits for a slot.
func (s *Slots) Wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}
