//go:build !linux

package sqlite

import (
	"os"
	"testing"
)

// asOwner calls f as somebody who owns the folder, but is not root.
func asOwner(t *testing.T, _ string, f func()) {
	t.Helper()
	if os.Getuid() == 0 {
		t.Skip("root may write everything")
	}
	f()
}
