package batch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"example.com/storefront/internal/batch"
)

// A queue is a Queue that notes its batches, each of which goes on until the test lets it end.
type queue struct {
	batch.Queue[string]
	batches, size int                        // what Limits returns
	detached      bool                       // what Detached returns
	in            func(*batch.Batch[string]) // nil, or what a batch does before it waits
	let           chan struct{}              // each batch receives once from it
	begun         []*batch.Batch[string]     // the batches that have begun
	ctxs          []context.Context          // the ctx of each
	mu            sync.Mutex                 // guards begun and ctxs
}

// newQueue returns a queue with room for one batch of any size. A value that begins with !
// goes alone.
func newQueue() *queue {
	q := &queue{batches: 1, size: 100, let: make(chan struct{})}
	q.Limits = func(n int) (int, int) { return q.batches, min(q.size, n) }
	q.Alone = func(v string) bool { return strings.HasPrefix(v, "!") }
	q.Detached = func() bool { return q.detached }
	q.Run = func(ctx context.Context, b *batch.Batch[string]) {
		q.mu.Lock()
		q.begun, q.ctxs = append(q.begun, b), append(q.ctxs, ctx)
		q.mu.Unlock()
		if q.in != nil {
			q.in(b)
		}
		<-q.let
	}
	return q
}

// A doing is a call of Do.
type doing struct {
	leave    func()        // cancels its ctx
	ended    chan struct{} // closed when its goroutine has ended
	returned bool
	err      error
	panicked any
}

type nameKey struct{}

// do calls Do for each value, in this sequence. The ctx has the value as nameKey.
func (q *queue) do(values ...string) (all []*doing) {
	for _, v := range values {
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), nameKey{}, v))
		d := &doing{leave: cancel, ended: make(chan struct{})}
		go func() {
			defer close(d.ended)
			defer cancel()
			defer func() { d.panicked = recover() }()
			d.err = q.Do(ctx, v)
			d.returned = true
		}()
		synctest.Wait()
		all = append(all, d)
	}
	return all
}

// letEnd lets n batches end, one after the other.
func (q *queue) letEnd(n int) {
	for range n {
		q.let <- struct{}{}
		synctest.Wait()
	}
}

// want checks which batches have begun so far.
func (q *queue) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	var members [][]string
	for _, b := range q.begun {
		members = append(members, b.Members)
	}
	if got := fmt.Sprint(members); got != want {
		t.Errorf("the batches that have begun are %s, want %s", got, want)
	}
}

// wantEnded checks that calls of Do have returned nil.
func wantEnded(t *testing.T, all ...*doing) {
	t.Helper()
	for _, d := range all {
		<-d.ended
		if !d.returned || d.err != nil {
			t.Errorf("Do returned: %t, %v, or panicked: %v", d.returned, d.err, d.panicked)
		}
	}
}

// each runs a test twice: with batches that may run in the goroutine of their member, and
// with detached ones.
func each(t *testing.T, test func(*testing.T, *queue)) {
	for _, detached := range []bool{false, true} {
		t.Run(fmt.Sprintf("detached %t", detached), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				q.detached = detached
				test(t, q)
			})
		})
	}
}

func TestWhoWaitsSharesTheNextBatch(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		all := q.do("a", "b", "c", "d")
		q.want(t, "[[a]]")
		q.letEnd(1)
		q.want(t, "[[a] [b c d]]")
		wantEnded(t, all[0])
		q.letEnd(1)
		wantEnded(t, all...)
		all = q.do("e")
		q.want(t, "[[a] [b c d] [e]]")
		q.letEnd(1)
		wantEnded(t, all...)
	})
}

func TestAsManyBatchesAreUnderWayAsLimitsSays(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		q.batches = 3
		all := q.do("a", "b", "c", "d", "e")
		q.want(t, "[[a] [b] [c]]")
		q.letEnd(2)
		q.want(t, "[[a] [b] [c] [d e]]")
		all = append(all, q.do("f", "g")...)
		q.want(t, "[[a] [b] [c] [d e] [f]]")
		q.letEnd(4)
		wantEnded(t, all...)
	})
}

func TestBatchHasAsManyMembersAsLimitsSays(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		q.size = 2
		all := q.do("a", "b", "c", "d", "e", "f")
		q.letEnd(4)
		q.want(t, "[[a] [b c] [d e] [f]]")
		wantEnded(t, all...)
	})
}

func TestWhoIsAloneSharesNoBatch(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		all := q.do("a", "b", "c", "!d", "!e", "f", "g")
		q.letEnd(5)
		q.want(t, "[[a] [b c] [!d] [!e] [f g]]")
		wantEnded(t, all...)
	})
}

func TestWhoGoesAtOnceRunsWithItsOwnCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		all := q.do("a", "b")
		q.letEnd(2)
		if q.ctxs[0].Value(nameKey{}) != "a" || q.ctxs[1].Done() != nil {
			t.Error("not the first batch alone has the ctx of its caller")
		}
		wantEnded(t, all...)
	})
}

func TestWhoGoesAtOnceRunsInItsOwnGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.in = func(*batch.Batch[string]) { runtime.Goexit() }
		d := q.do("a")[0]
		<-d.ended
		if d.returned {
			t.Error("Do has returned, so that its goroutine was not the one of Run")
		}
	})
}

func TestDetachedBatchDoesNotKeepItsMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.detached = true
		d := q.do("a")[0]
		d.leave()
		<-d.ended
		if !errors.Is(d.err, context.Canceled) || q.ctxs[0].Err() != nil {
			t.Errorf("Do returned %v, and the ctx of its batch is done: %v", d.err, q.ctxs[0].Err())
		}
		q.letEnd(1)
	})
}

func TestWhoLeavesBeforeItsBatchIsLeftOut(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		all := q.do("a", "b", "c", "d")
		all[2].leave()
		<-all[2].ended
		if all[2].err != context.Canceled {
			t.Errorf("Do returned %v", all[2].err)
		}
		q.letEnd(2)
		q.want(t, "[[a] [b d]]")
		wantEnded(t, all[0], all[1], all[3])
	})
}

// The last member that waits may leave, too.
func TestPlaceIsFreeWhenAllHaveLeft(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		all := q.do("a", "b")
		all[1].leave()
		<-all[1].ended
		q.letEnd(1)
		all[1] = q.do("c")[0]
		q.want(t, "[[a] [c]]")
		q.letEnd(1)
		wantEnded(t, all...)
	})
}

func TestWhoLeavesDuringItsBatchCancelsNobody(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		all := q.do("a", "b", "c")
		q.letEnd(1)
		all[1].leave()
		<-all[1].ended
		if all[1].err != context.Canceled || q.ctxs[1].Err() != nil {
			t.Errorf("Do returned %v, and the ctx of its batch is done: %v", all[1].err, q.ctxs[1].Err())
		}
		q.letEnd(1)
		wantEnded(t, all[0], all[2])
	})
}

// HandOver may be called more than once, before the batch ends and after.
func TestHandOverGivesOnePlaceAway(t *testing.T) {
	for name, wait := range map[string]bool{"while others wait": true, "while nobody waits": false} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, q *queue) {
				all := q.do("a")
				if wait {
					all = append(all, q.do("b")...)
				}
				first := q.begun[0]
				first.HandOver()
				first.HandOver()
				synctest.Wait()
				if !wait {
					all = append(all, q.do("b")...)
				}
				q.want(t, "[[a] [b]]")
				all = append(all, q.do("c")...)
				first.HandOver()
				q.want(t, "[[a] [b]]")
				q.letEnd(1) // the first batch, which has waited longest
				wantEnded(t, all[0])
				q.want(t, "[[a] [b]]")
				first.HandOver()
				q.want(t, "[[a] [b]]")
				q.letEnd(1)
				q.want(t, "[[a] [b] [c]]")
				q.begun[1].HandOver() // the second batch has no place any more
				all = append(all, q.do("d")...)
				q.want(t, "[[a] [b] [c]]")
				q.letEnd(2)
				wantEnded(t, all...)
				q.begun[3].HandOver() // nor has the last one
				all = q.do("e", "f")
				q.want(t, "[[a] [b] [c] [d] [e]]")
				q.letEnd(2)
				wantEnded(t, all...)
			})
		})
	}
}

func TestBatchThatWasPutBackIsTheNext(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		q.size = 4
		all := q.do("a", "b", "c", "d", "e", "f")
		q.in = func(b *batch.Batch[string]) {
			if len(b.Members) == 4 {
				b.PutBack(1)
			}
		}
		q.letEnd(1)
		q.want(t, "[[a] [b c d e]]")
		q.in = nil
		q.letEnd(1)
		wantEnded(t, all[1])
		q.want(t, "[[a] [b c d e] [c d e f]]")
		q.letEnd(1)
		wantEnded(t, all...)
	})
}

func TestWhoHasLeftIsNotPutBack(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		all := q.do("a", "b", "c", "d")
		q.in = func(b *batch.Batch[string]) { b.PutBack(1) }
		q.letEnd(1)
		q.in = nil
		all[2].leave()
		<-all[2].ended
		q.letEnd(1)
		q.want(t, "[[a] [b c d] [d]]")
		q.letEnd(1)
		wantEnded(t, all[0], all[1], all[3])
	})
}

func TestOnlyMemberMayBePutBack(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		q.in = func(b *batch.Batch[string]) { b.PutBack(0) }
		all := q.do("a")
		q.in = nil
		q.letEnd(1)
		q.want(t, "[[a] [a]]")
		q.letEnd(1)
		wantEnded(t, all...)
	})
}

// A member's code may panic, or end its goroutine; the batch and the others go on.
func TestCallCallsInTheGoroutineOfTheMember(t *testing.T) {
	type value struct{ int }
	for name, stop := range map[string]func(){
		"panic":  func() { panic(&value{1}) },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, q *queue) {
				all := q.do("a", "b", "c", "d")
				var called []string
				q.in = func(b *batch.Batch[string]) {
					for i, member := range b.Members {
						if err := b.Call(i, func() {
							called = append(called, member)
							if member == "c" {
								stop()
							}
						}); err != nil {
							t.Errorf("Call for %s returned %v", member, err)
						}
					}
				}
				q.letEnd(1)
				for i, d := range []*doing{all[1], all[3]} {
					select {
					case <-d.ended:
						t.Errorf("Do %d has returned before its batch has ended", i)
					default:
					}
				}
				q.letEnd(1)
				wantEnded(t, all[0], all[1], all[3])
				<-all[2].ended
				if _, ok := all[2].panicked.(*value); all[2].returned || ok != (name == "panic") {
					t.Errorf("Do has returned: %t, or panicked with %v", all[2].returned, all[2].panicked)
				}
				if fmt.Sprint(called) != "[b c d]" {
					t.Errorf("Call has called for %v", called)
				}
			})
		})
	}
}

func TestCallOfWhoGoesAtOnceIsInItsGoroutine(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		q.in = func(b *batch.Batch[string]) {
			defer func() {
				if q.detached {
					return
				}
				if recover() != "a value" {
					t.Error("the panic did not pass through Run, which was in the same goroutine")
				}
			}()
			b.Call(0, func() { panic("a value") })
		}
		all := q.do("a")
		q.letEnd(1)
		<-all[0].ended
		if q.detached && all[0].panicked != "a value" {
			t.Errorf("Do panicked with %v", all[0].panicked)
		}
	})
}

func TestCallDoesNotCallForWhoHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		all := q.do("a", "b", "c")
		begin := make(chan struct{})
		var err error
		q.in = func(b *batch.Batch[string]) {
			<-begin
			err = b.Call(1, func() { t.Error("it was called") })
		}
		q.letEnd(1)
		all[2].leave()
		<-all[2].ended
		close(begin)
		q.letEnd(1)
		wantEnded(t, all[:2]...)
		if err == nil {
			t.Error("Call returned nil")
		}
	})
}

// t.FailNow ends the goroutine, if a test calls it in Run.
func TestRunThatEndsItsGoroutineLeavesItsPlace(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		q.in = func(b *batch.Batch[string]) {
			if b.Members[0] != "d" {
				<-q.let
				runtime.Goexit()
			}
		}
		all := q.do("a", "b", "c")
		q.letEnd(1)
		q.want(t, "[[a] [b c]]")
		<-all[0].ended
		if all[0].returned != q.detached {
			t.Errorf("Do has returned: %t", all[0].returned)
		}
		q.letEnd(1)
		wantEnded(t, all[1:]...)
		all = q.do("d")
		q.want(t, "[[a] [b c] [d]]")
		q.letEnd(1)
		wantEnded(t, all...)
	})
}

// handOverAndPutBack puts the second of two members back, whose place others may have.
func handOverAndPutBack(b *batch.Batch[string]) {
	if len(b.Members) == 2 {
		b.HandOver()
		b.PutBack(1)
	}
}

// No call may come for a long time that would run it.
func TestWhatIsPutBackByABatchThatHasHandedOverIsRun(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		q.in = handOverAndPutBack
		all := q.do("a", "b", "c")
		q.letEnd(3)
		q.want(t, "[[a] [b c] [c]]")
		wantEnded(t, all...)
	})
}

// There are never more batches than places.
func TestWhatIsPutBackByABatchThatHasHandedOverHasAPlace(t *testing.T) {
	each(t, func(t *testing.T, q *queue) {
		q.in = handOverAndPutBack
		all := q.do("a", "b", "c")
		q.letEnd(1)
		all = append(all, q.do("d")...)
		q.letEnd(1) // of b, which has begun before d
		q.want(t, "[[a] [b c] [d]]")
		q.letEnd(2)
		q.want(t, "[[a] [b c] [d] [c]]")
		wantEnded(t, all...)

		q.begun = nil
		all = q.do("e", "f", "g")
		q.letEnd(2)
		all = append(all, q.do("h")...)
		q.want(t, "[[e] [f g] [g]]")
		q.letEnd(2)
		q.want(t, "[[e] [f g] [g] [h]]")
		wantEnded(t, all...)
	})
}
