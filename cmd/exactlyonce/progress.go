package main

import (
	"fmt"
	"io"
	"os"
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

// A line is where progress is shown.
type line struct {
	w        io.Writer
	terminal bool
}

func newLine(f *os.File) *line {
	info, err := f.Stat()
	return &line{f, err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// What a terminal does instead of showing it: go to the line's beginning and clear it, and
// cut off what is wider than the line (DECAWM), and wrap it again.
const (
	clearLine = "\r\x1b[K"
	cutOff    = "\x1b[?7l"
	wrap      = "\x1b[?7h"
)

// show shows how far something has come, until end is called: on a terminal in one line
// that changes and is never wrapped, else as a line from time to time.
func (l *line) show(what string, progress func() string) (end func()) {
	every, format := 10*time.Second, "%s: %s\n"
	if l.terminal {
		every, format = 100*time.Millisecond, clearLine+cutOff+"%s: %s"+wrap
	}
	update := func() { fmt.Fprintf(l.w, format, what, progress()) }
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				update()
			case <-stop:
				update()
				if l.terminal {
					fmt.Fprintln(l.w)
				}
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
