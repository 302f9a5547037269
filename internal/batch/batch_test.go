package batch_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"example.com/storefront/internal/batch"
)

// A queue is a Queue of which each batch goes on until the test lets it end.
type queue struct {
	batch.Queue[string]
	batches, size int                        // what Limits returns
	in            func(*batch.Batch[string]) // nil, or what a batch does before it waits
	let           chan int                   // each batch receives once from it, from where on it puts back
	begun         []*batch.Batch[string]     // the batches that have begun
	ctxs          []context.Context          // the ctx of each
	ended         []string                   // the calls of Do that have returned since step has looked
	mu            sync.Mutex                 // guards begun, ctxs and ended
}

// newQueue returns a queue with room for one batch of any size. A value that begins with !
// goes alone.
func newQueue() *queue {
	q := &queue{batches: 1, size: 100, let: make(chan int)}
	q.Limits = func(n int) (int, int) { return q.batches, min(q.size, n) }
	q.Alone = func(v string) bool { return strings.HasPrefix(v, "!") }
	q.Run = func(ctx context.Context, b *batch.Batch[string]) {
		q.mu.Lock()
		q.begun, q.ctxs = append(q.begun, b), append(q.ctxs, ctx)
		q.mu.Unlock()
		if q.in != nil {
			q.in(b)
		}
		if n := <-q.let; n >= 0 {
			b.PutBack(n)
		}
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
			if d.err != nil {
				v += ": " + d.err.Error()
			}
			q.mu.Lock()
			q.ended = append(q.ended, v)
			q.mu.Unlock()
		}()
		synctest.Wait()
		all = append(all, d)
	}
	return all
}

// letEnd lets n batches end, one after the other.
func (q *queue) letEnd(n int) {
	for range n {
		q.let <- -1
		synctest.Wait()
	}
}

// begunSince returns the members of the batches that have begun since the n-th.
func (q *queue) begunSince(n int) string {
	var begun []string
	for _, b := range q.begun[n:] {
		begun = append(begun, fmt.Sprint(b.Members))
	}
	return strings.Join(begun, " ")
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
				q.Detached = detached
				test(t, q)
			})
		})
	}
}

// A step is something that happens, the calls of Do that return, and the batches that begin.
//
//	do a b       Do is called for a, then for b
//	leave a      the ctx of a is done
//	let          the batch that has waited longest ends
//	let 2        it puts back its members from the third on
//	hand over 0  the first batch that has begun hands over
type step struct{ does, ended, begun string }

func TestWhichBatchesBegin(t *testing.T) {
	const left = ": context canceled"
	for _, row := range []struct {
		name          string
		batches, size int
		steps         []step
	}{
		{"who waits shares the next batch", 1, 9, []step{
			{"do a b c d", "", "[a]"}, {"let", "a", "[b c d]"}, {"let", "b c d", ""},
			{"do e", "", "[e]"}, {"let", "e", ""},
		}},
		{"as many batches are under way as Limits says", 3, 9, []step{
			{"do a b c d e", "", "[a] [b] [c]"}, {"let", "a", "[d e]"}, {"let", "b", ""},
			{"do f g", "", "[f]"}, {"let", "c", "[g]"}, {"let", "d e", ""}, {"let", "f", ""},
			{"let", "g", ""},
		}},
		{"a batch has as many members as Limits says", 1, 2, []step{
			{"do a b c d e f", "", "[a]"}, {"let", "a", "[b c]"}, {"let", "b c", "[d e]"},
			{"let", "d e", "[f]"}, {"let", "f", ""},
		}},
		{"who is alone shares no batch", 1, 9, []step{
			{"do a b c !d !e f g", "", "[a]"}, {"let", "a", "[b c]"}, {"let", "b c", "[!d]"},
			{"let", "!d", "[!e]"}, {"let", "!e", "[f g]"}, {"let", "f g", ""},
		}},
		{"who leaves before its batch is left out", 1, 9, []step{
			{"do a b c d", "", "[a]"}, {"leave c", "c" + left, ""}, {"let", "a", "[b d]"}, {"let", "b d", ""},
		}},
		{"the place is free when all have left", 1, 9, []step{
			{"do a b", "", "[a]"}, {"leave b", "b" + left, ""}, {"let", "a", ""},
			{"do c", "", "[c]"}, {"let", "c", ""},
		}},
		{"who leaves during its batch cancels nobody", 1, 9, []step{
			{"do a b c", "", "[a]"}, {"let", "a", "[b c]"}, {"leave b", "b" + left, ""}, {"let", "c", ""},
		}},

		{"what is put back is the next", 1, 4, []step{
			{"do a b c d e f", "", "[a]"}, {"let", "a", "[b c d e]"}, {"let 1", "b", "[c d e f]"},
			{"let", "c d e f", ""},
		}},
		{"who has left is not put back", 1, 9, []step{
			{"do a b c d", "", "[a]"}, {"let", "a", "[b c d]"}, {"leave c", "c" + left, ""},
			{"let 1", "b", "[d]"}, {"let", "d", ""},
		}},
		{"an only member may be put back", 1, 9, []step{
			{"do a", "", "[a]"}, {"let 0", "", "[a]"}, {"let", "a", ""},
		}},

		// A batch may hand over more than once, before it ends and after.
		{"a batch hands over its place while others wait", 1, 9, []step{
			{"do a b", "", "[a]"}, {"hand over 0", "", "[b]"}, {"hand over 0", "", ""},
			{"do c", "", ""}, {"hand over 0", "", ""}, {"let", "a", ""}, {"hand over 0", "", ""},
			{"let", "b", "[c]"}, {"hand over 1", "", ""}, {"do d", "", ""}, {"let", "c", "[d]"},
			{"let", "d", ""},
			{"hand over 3", "", ""}, {"do e f", "", "[e]"}, {"let", "e", "[f]"}, {"let", "f", ""},
		}},
		{"a batch hands over its place while nobody waits", 1, 9, []step{
			{"do a", "", "[a]"}, {"hand over 0", "", ""}, {"hand over 0", "", ""}, {"do b", "", "[b]"},
			{"do c", "", ""}, {"hand over 0", "", ""}, {"let", "a", ""}, {"hand over 0", "", ""},
			{"let", "b", "[c]"}, {"let", "c", ""},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			each(t, func(t *testing.T, q *queue) {
				q.batches, q.size = row.batches, row.size
				calls, seen := make(map[string]*doing), 0
				for _, step := range row.steps {
					words := strings.Fields(step.does)
					n, err := strconv.Atoi(words[len(words)-1])
					switch words[0] {
					case "do":
						for _, v := range words[1:] {
							calls[v] = q.do(v)[0]
						}
					case "leave":
						calls[words[1]].leave()
					case "let":
						if err != nil {
							n = -1
						}
						q.let <- n
					case "hand":
						q.begun[n].HandOver()
					}
					synctest.Wait()
					slices.Sort(q.ended)
					begun, ended := q.begunSince(seen), strings.Join(q.ended, " ")
					if begun != step.begun || ended != step.ended {
						t.Fatalf("%s: %s begin and %s end, want %+v", step.does, begun, ended, step)
					}
					seen, q.ended = len(q.begun), nil
				}
			})
		})
	}
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

// t.FailNow ends the goroutine, if a test calls it in Run: that of Do, unless the batch is detached.
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
		<-all[0].ended
		if all[0].returned != q.Detached {
			t.Errorf("Do has returned: %t", all[0].returned)
		}
		q.letEnd(1)
		wantEnded(t, all[1:]...)
		all = q.do("d")
		if got := q.begunSince(0); got != "[a] [b c] [d]" {
			t.Errorf("the batches that have begun are %s", got)
		}
		q.letEnd(1)
		wantEnded(t, all...)
	})
}
