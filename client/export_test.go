package client

import (
	"os"
	"testing"
	"time"
)

// SetLongestRead sets how many bytes of a page or product are read.
func SetLongestRead(t *testing.T, bytes int64) {
	before := longestRead
	longestRead = bytes
	t.Cleanup(func() { longestRead = before })
}

// OnSync calls f with each file that is synced.
func OnSync(t *testing.T, f func(path string)) {
	before := fsync
	fsync = func(file *os.File) error {
		f(file.Name())
		return before(file)
	}
	t.Cleanup(func() { fsync = before })
}

// SetEarliest sets when a clock can be right.
func SetEarliest(t *testing.T, at time.Time) {
	before := earliest
	earliest = at
	t.Cleanup(func() { earliest = before })
}
