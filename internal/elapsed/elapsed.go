// Package elapsed tells how long ago something was, where too little would break a promise.
package elapsed

import "time"

// Since returns the time since t by the clock that has gone further: Linux stops the monotonic one while the
// machine is suspended, and the other one may be set back.
func Since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}
