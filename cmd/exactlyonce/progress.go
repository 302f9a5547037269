package main

import (
	"fmt"
	"io"
	"time"

	"example.com/storefront/internal/audit"
)

func firstProgress(p audit.Progress) string {
	switch {
	case p.Acknowledged > 0:
		return "acknowledged"
	case p.Failure != "":
		return p.Failure + ", not acknowledged yet"
	}
	return "no answer yet"
}

func creatingProgress(p audit.Progress, orders int) string {
	text := fmt.Sprintf("%d of %d acknowledged, %d retrying, gap %.1f s%s", p.Acknowledged, orders,
		p.Retrying, p.Gap.Seconds(), faults(p))
	if p.Retrying > 0 && p.Failure != "" {
		text += ", last failure: " + p.Failure
	}
	return text
}

func createdProgress(r *audit.Result, orders int) string {
	return fmt.Sprintf("%d of %d acknowledged, longest gap %.1f s%s", r.Acknowledged, orders,
		r.LongestGap.Seconds(), faults(r.Progress))
}

func faults(p audit.Progress) string {
	if p.Faults == 0 {
		return ""
	}
	return fmt.Sprintf(", %d FAULTS", p.Faults)
}

// show shows how far something has come, as a line every two seconds and one at the end, until end is called.
func show(w io.Writer, what string, progress func() string) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for running := true; running; fmt.Fprintf(w, "%s: %s\n", what, progress()) {
			select {
			case <-tick.C:
			case <-stop:
				running = false
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
