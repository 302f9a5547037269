package lazyctx

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type key struct{}

// A use is a context and what was done with it.
type use struct {
	ctx      context.Context
	cancel   context.CancelFunc
	children []context.Context
	cancels  []context.CancelFunc // of children
	seen     []string
}

func (u *use) see(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	u.seen = append(u.seen, fmt.Sprint(ctx.Err(), context.Cause(ctx), time.Until(deadline), ctx.Value(key{})))
}

var actions = map[string]func(u *use){
	"wait":   func(u *use) { time.Sleep(40 * time.Second) }, // of a minute
	"cancel": func(u *use) { u.cancel() },
	"look":   func(u *use) { u.see(u.ctx) },
	"done": func(u *use) {
		synctest.Wait()
		select {
		case <-u.ctx.Done():
			u.seen = append(u.seen, "done")
		default:
			u.seen = append(u.seen, "not done")
		}
	},
	"child": func(u *use) {
		child, cancel := context.WithTimeout(u.ctx, time.Hour)
		u.children, u.cancels = append(u.children, child), append(u.cancels, cancel)
	},
}

// Whatever is done with the context, and in whatever sequence, it is as the one of package context.
func TestWithDeadlineIsAsInPackageContext(t *testing.T) {
	names := []string{"wait", "cancel", "look", "done", "child"}
	synctest.Test(t, func(t *testing.T) {
		for n := range 5 * 5 * 5 * 5 * 5 {
			var sequence []string
			for ; n > 0; n /= len(names) {
				sequence = append(sequence, names[n%len(names)])
			}
			run := func(with func(context.Context, time.Time) (context.Context, context.CancelFunc)) *use {
				request, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
				cancel(errors.New("the client is gone"))
				u := new(use)
				u.ctx, u.cancel = with(context.WithoutCancel(request), time.Now().Add(time.Minute))
				defer u.cancel()
				for _, name := range sequence {
					actions[name](u)
				}
				synctest.Wait()
				for _, ctx := range append(u.children, u.ctx) {
					u.see(ctx)
				}
				for _, cancel := range u.cancels {
					cancel()
				}
				return u
			}
			want := run(context.WithDeadline).seen
			if got := run(WithDeadline).seen; !slices.Equal(got, want) {
				t.Fatalf("after %q it is %q, want %q", sequence, got, want)
			}
		}
	})
}

// Done makes one context, whoever asks for it, and a cancellation reaches all of them.
func TestWithDeadlineIsSharedByGoroutines(t *testing.T) {
	for range 100 {
		ctx, cancel := WithDeadline(context.Background(), time.Now().Add(time.Hour))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				<-ctx.Done()
				if err := ctx.Err(); err != context.Canceled {
					t.Errorf("it ended with %v", err)
				}
			})
		}
		wg.Go(cancel)
		wg.Wait()
	}
}

// A context that nobody waits for makes no timer, and children of one take no goroutines.
func TestWithDeadlineIsLazy(t *testing.T) {
	ctx, cancel := WithDeadline(context.Background(), time.Now().Add(time.Hour))
	ctx.Err()
	ctx.Value(key{})
	context.Cause(ctx)
	if ctx.(*lazy).real != nil {
		t.Error("it made a context before Done was called")
	}
	const children = 100
	before := runtime.NumGoroutine()
	for range children {
		_, cancel := context.WithCancel(ctx)
		defer cancel()
	}
	if now := runtime.NumGoroutine(); now-before > children/2 {
		t.Errorf("%d children took %d goroutines", children, now-before)
	}
	cancel()
}
