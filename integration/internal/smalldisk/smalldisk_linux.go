package smalldisk

import (
	"fmt"
	"syscall"
	"testing"

	"example.com/storefront/integration/internal/process"
)

// mount returns the folder of a new disk of a size.
func mount(t testing.TB, size int64) (dir string, err error) {
	t.Helper()
	dir = process.Folder(t) // else the disk may outlive the test binary
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", size)); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, nil
}
