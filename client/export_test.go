package client

import (
	"testing"
	"time"
)

// SetLongestRead sets how many bytes of a page or product are read.
func SetLongestRead(t *testing.T, bytes int64) {
	before := longestRead
	longestRead = bytes
	t.Cleanup(func() { longestRead = before })
}

// SetEarliest sets when a clock can be right.
func SetEarliest(t *testing.T, at time.Time) {
	before := earliest
	earliest = at
	t.Cleanup(func() { earliest = before })
}
