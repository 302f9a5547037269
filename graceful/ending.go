package graceful

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// gatherTime is how long the requests of HTTP/2 are gathered after the last answer: longer than the way
	// to a client and back, so that all who waited for an answer have sent their next request.
	gatherTime = 250 * time.Millisecond
	// slowLimit is how long those that were gathered wait for answers to earlier ones.
	slowLimit = time.Second
)

// An ending has answers tell clients to connect anew. In HTTP/1.1 each does, once ctx is done. In HTTP/2,
// where a connection may have more requests on their way, only those to requests that were gathered.
type ending struct {
	ctx     context.Context
	gathers chan struct{} // closed: requests of HTTP/2 wait until comes is closed
	comes   chan struct{}
	early   atomic.Int64 // requests of HTTP/2 in flight that were not gathered
}

func newEnding(ctx context.Context) *ending {
	return &ending{ctx: ctx, gathers: make(chan struct{}), comes: make(chan struct{})}
}

func (e *ending) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		closes := e.ctx.Err() != nil
		if r.ProtoMajor > 1 {
			select {
			case <-e.gathers:
				select {
				case <-e.comes:
				case <-r.Context().Done():
				}
			default:
				closes = false
				e.early.Add(1)
				defer e.early.Add(-1)
			}
		}
		if closes {
			w.Header().Set("Connection", "close") // which net/http makes a GOAWAY over HTTP/2
		}
		next.ServeHTTP(w, r)
	})
}

// delay waits for about d, as long as wait reports that all is well, and gathers at its end.
func (e *ending) delay(d time.Duration, wait func(time.Duration) (well bool)) {
	last := min(gatherTime, d/2)
	well := wait(d - last)
	close(e.gathers)
	for began := time.Now(); well && e.early.Load() > 0 && time.Since(began) < slowLimit; {
		well = wait(slowLimit / 100)
	}
	if well {
		wait(last)
	}
}
