package client

import (
	"testing"
	"time"
)

// SetEarliest sets when a clock can be right.
func SetEarliest(t *testing.T, at time.Time) {
	before := earliest
	earliest = at
	t.Cleanup(func() { earliest = before })
}
