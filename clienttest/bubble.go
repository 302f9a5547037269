package clienttest

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/storefront/internal/conformance/drive"
)

// holdInBubble holds a meeting, and notes what the client has left running, for which synctest panics.
func (s *suite) holdInBubble(t *testing.T, m *drive.Meeting) {
	var bubble string
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if m.Calls == nil || !strings.Contains(fmt.Sprint(p), "blocked goroutines remain") {
			panic(p)
		}
		for _, c := range m.Calls {
			c.Running = cmp.Or(leftIn(bubble), "(no stack could be read)")
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		var head [100]byte // the first line
		bubble = bubbleOf(string(head[:runtime.Stack(head[:], false)]))
		s.t = t
		m.Open()
		m.Hold(context.Background())
	})
}

// bubbleOf returns the name of a goroutine's bubble, such as "synctest bubble 13]", and "" if
// it is in none.
func bubbleOf(stack string) string {
	head, _, _ := strings.Cut(stack, "\n")
	if i := strings.Index(head, "synctest bubble "); i >= 0 {
		return head[i:]
	}
	return ""
}

// leftIn returns the stacks of the goroutines in a bubble.
func leftIn(bubble string) string {
	var left []string
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		if bubble != "" && bubbleOf(stack) == bubble {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}
