package smalldisk

import (
	"fmt"
	"os"
	"path/filepath"
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

// given returns dir once no other test uses it.
func given(t testing.TB, dir string) string {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	empty := func() {
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		for _, name := range names {
			err = os.RemoveAll(name)
		}
		if err != nil {
			t.Error(err)
		}
	}
	empty()
	t.Cleanup(empty)
	return dir
}
