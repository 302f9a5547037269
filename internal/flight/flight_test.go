package flight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A result is what a flight made, or refused, of what its leader wanted, such as a color.
type result struct{ made, refused string }

func newGroup() *Group[string, result] {
	return &Group[string, result]{IsFinal: func(r result) bool { return r.made != "" }}
}

// A call wants a color of the key "k".
type call struct {
	name  string
	lead  *Leader[string, result] // nil: it leads no flight
	got   result
	err   error
	leave func()
	ended chan struct{} // closed when Join has returned
}

// join calls Join, and returns when that waits.
func join(t *testing.T, g *Group[string, result], name, color string) *call {
	ctx, cancel := context.WithCancel(t.Context())
	c := &call{name: name, leave: cancel, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.got, c.lead, c.err = g.Join(ctx, "k", func(r result) bool { return r.refused == color })
	}()
	synctest.Wait()
	return c
}

// leads reports whether the call leads a flight now.
func (c *call) leads() bool {
	synctest.Wait()
	select {
	case <-c.ended:
		return c.lead != nil
	default:
		return false
	}
}

// want checks what a call got that leads no flight.
func (c *call) want(t *testing.T, want result) {
	t.Helper()
	<-c.ended
	if c.got != want || c.lead != nil || c.err != nil {
		t.Errorf("the call %s got %+v, %v, or leads: %t; want %+v", c.name, c.got, c.err, c.lead != nil, want)
	}
}

func TestAFinalResultIsThatOfAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		first := join(t, g, "first", "red")
		var others []*call
		for i := range 20 {
			others = append(others, join(t, g, fmt.Sprint(i), []string{"red", "blue"}[i%2]))
		}
		if !first.leads() || slices.ContainsFunc(others, (*call).leads) {
			t.Error("the first call does not lead, or another one does")
		}
		first.lead.End(result{made: "cup"})
		for _, c := range others {
			c.want(t, result{made: "cup"})
		}
		if !join(t, g, "next", "red").leads() || len(g.keys) != 1 {
			t.Errorf("after a flight, the next call does not lead one; keys %v", g.keys)
		}
	})
}

// What was refused may be made later.
func TestARefusalIsForThoseWhoCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		first := join(t, g, "first", "red")
		a, b, other := join(t, g, "a", "red"), join(t, g, "b", "red"), join(t, g, "other", "blue")
		first.lead.End(result{refused: "red"})
		if !a.leads() {
			t.Fatal("a call that came after a flight began shares its refusal")
		}
		late := join(t, g, "late", "red")
		a.lead.End(result{refused: "red"})
		b.want(t, result{refused: "red"})
		if !late.leads() || other.leads() {
			t.Fatal("who came during the flight does not lead the next one")
		}
		late.lead.End(result{refused: "red"})
		if !other.leads() {
			t.Error("who wants something else shares a refusal")
		}
		other.lead.End(result{made: "cup"})
	})
}

// Calls that are refused and come again at once do not keep another one from its flight.
func TestTheCallThatCameFirstLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var led []string
		var all sync.WaitGroup
		visit := func(ctx context.Context, color string) {
			_, lead, _ := g.Join(ctx, "k", func(r result) bool { return r.refused == color })
			if lead != nil {
				mu.Lock()
				led = append(led, color)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				lead.End(result{refused: color})
			}
		}
		for range 100 {
			all.Go(func() {
				for ctx.Err() == nil {
					visit(ctx, "red")
				}
			})
		}
		for range 20 {
			synctest.Wait()
			before := len(led)
			visit(t.Context(), "blue")
			mu.Lock()
			if i := slices.Index(led[before:], "blue"); i < 0 || i > 2 {
				t.Errorf("it led after %d others", i)
			}
			mu.Unlock()
		}
		cancel()
		all.Wait()
	})
}

func TestACallMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup()
		first, second, third := join(t, g, "first", "red"), join(t, g, "second", "red"), join(t, g, "third", "red")
		second.leave()
		if <-second.ended; !errors.Is(second.err, context.Canceled) || second.lead != nil {
			t.Errorf("who left got %v", second.err)
		}
		first.lead.End(result{})
		if !third.leads() {
			t.Error("after one that has left, the next one does not lead")
		}
		fourth := join(t, g, "fourth", "red")
		fourth.leave()
		third.lead.End(result{})
		if <-fourth.ended; len(g.keys) != 0 {
			t.Errorf("keys %v are kept", g.keys)
		}
	})
}

// The call that is to lead may leave in the same moment. It is chance what it learns first.
func TestNoFlightIsLeftToACallThatLeaves(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup()
			first := join(t, g, "first", "red")
			var others []*call
			for i := range 3 {
				others = append(others, join(t, g, fmt.Sprint(i), "red"))
			}
			stays := join(t, g, "stays", "red")
			go first.lead.End(result{})
			for _, c := range others {
				c.leave()
			}
			for _, c := range others {
				if <-c.ended; c.lead != nil {
					c.lead.End(result{})
				}
			}
			if !stays.leads() {
				t.Error("a flight is left to a call that has left")
			}
			gone := join(t, g, "gone", "red")
			go stays.lead.End(result{})
			gone.leave()
			if <-gone.ended; gone.lead != nil {
				gone.lead.End(result{})
			}
			synctest.Wait()
			if len(g.keys) != 0 {
				t.Errorf("keys %v are kept", g.keys)
			}
		})
	}
}
