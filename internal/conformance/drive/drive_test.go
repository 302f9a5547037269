package drive

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAClientThatGoesOnIsNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		const each, end = 90 * time.Second, 6 * time.Minute // as on a slow machine
		active := func() time.Time { return start.Add(min(end, time.Since(start).Truncate(each))) }
		returned := make(chan string, 1)
		time.AfterFunc(end, func() { returned <- "all pages" })
		if got, ok := await(returned, 2*time.Minute, active); !ok || got != "all pages" {
			t.Errorf("a client that sends a request each %v was stopped after %v", each, time.Since(start))
		}
		time.AfterFunc(time.Hour, func() { returned <- "too late" })
		if _, ok := await(returned, 2*time.Minute, active); ok || time.Since(start) != end+2*time.Minute {
			t.Errorf("a client that sends nothing more was stopped after %v (%t)", time.Since(start), !ok)
		}
	})
}
