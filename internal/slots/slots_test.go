package slots

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// visit takes a slot, calls then and gives the slot back after a second. It returns when the caller waits.
func visit(ctx context.Context, s *Slots, then func()) (ended chan error) {
	ended = make(chan error, 1)
	go func() {
		err := s.Acquire(ctx)
		if err == nil {
			then()
			time.Sleep(time.Second)
			s.Release()
		}
		ended <- err
	}()
	synctest.Wait()
	return ended
}

func TestSlotsGoInTheSequenceOfArrival(t *testing.T) {
	for _, limit := range []int{1, 2, 3, 0} {
		synctest.Test(t, func(t *testing.T) {
			s := &Slots{Limit: func() int { return limit }}
			if limit == 1 {
				s.Limit = nil
			}
			began := time.Now()
			var at [6]time.Duration // when each caller had its slot
			var ended [6]chan error
			for i := range at {
				ended[i] = visit(t.Context(), s, func() { at[i] = time.Since(began) })
			}
			if waits := limit != 0; s.Wanted() != waits || s.TryAcquire() == waits {
				t.Errorf("of %d slots, 6 callers left one: %t; some wait: %t", limit, !waits, s.Wanted())
			}
			for i := range at {
				var want time.Duration
				if limit > 0 {
					want = time.Duration(i/limit) * time.Second
				}
				if err := <-ended[i]; err != nil || at[i] != want {
					t.Errorf("caller %d had one of %d slots after %v, want %v; %v", i, limit, at[i], want, err)
				}
			}
			if s.Wanted() || !s.TryAcquire() {
				t.Errorf("when all have left, none of %d slots is free", limit)
			}
		})
	}
}

func TestSlotsFollowTheirLimit(t *testing.T) {
	for _, row := range []struct {
		limit int // after 4 callers have come while there were 2 slots
		at    [5]time.Duration
	}{
		{1, [5]time.Duration{0, 0, 1, 2, 3}},
		{3, [5]time.Duration{0, 0, 1, 1, 1}},
		{0, [5]time.Duration{0, 0, 1, 1, 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := 2
			s, began := &Slots{Limit: func() int { return limit }}, time.Now()
			var at [5]time.Duration
			var ended [5]chan error
			for i := range at {
				if i == 4 {
					limit = row.limit
				}
				ended[i] = visit(t.Context(), s, func() { at[i] = time.Since(began) / time.Second })
			}
			for i := range ended {
				<-ended[i]
			}
			if at != row.at {
				t.Errorf("with %d slots in place of 2, callers had one after %v, want %v seconds", row.limit, at, row.at)
			}
		})
	}
}

func TestACallerMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Slots
		nothing := func() {}
		first := visit(t.Context(), &s, nothing)
		ctx, leave := context.WithCancel(t.Context())
		second := visit(ctx, &s, func() { t.Error("a caller that has left had a slot") })
		third := visit(t.Context(), &s, nothing)
		leave()
		if err := <-second; err != context.Canceled {
			t.Errorf("a caller that left got %v", err)
		}
		began := time.Now()
		if err1, err3 := <-first, <-third; err1 != nil || err3 != nil || time.Since(began) != 2*time.Second {
			t.Errorf("the others got %v and %v, after %v", err1, err3, time.Since(began))
		}
		if err := s.Acquire(ctx); err != context.Canceled {
			t.Errorf("with a ctx that is done, a free slot was taken: %v", err)
		}
		if !s.TryAcquire() {
			t.Error("a slot is lost")
		}
	})
}

// It is chance whether the caller learns first of its turn or of its ctx.
func TestNoSlotIsLostToACallerThatLeavesAtItsTurn(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			var s Slots
			s.Acquire(t.Context())
			ctx, leave := context.WithCancel(t.Context())
			left := visit(ctx, &s, func() {})
			next := visit(t.Context(), &s, func() {})
			go s.Release()
			leave()
			<-left
			if err := <-next; err != nil {
				t.Error(err)
			}
			if !s.TryAcquire() {
				t.Error("a slot is lost")
			}
		})
	}
}

func TestSlotsGoFromOneBubbleToAnother(t *testing.T) {
	var s Slots
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			first, second := visit(t.Context(), &s, func() {}), visit(t.Context(), &s, func() {})
			if err1, err2 := <-first, <-second; err1 != nil || err2 != nil {
				t.Error(err1, err2)
			}
		})
	}
}
