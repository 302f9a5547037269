package smalldisk

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func folder(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("STOREFRONT_SMALL_DISK"); dir != "" {
		return given(t, dir)
	}
	dir, err := os.MkdirTemp("", "storefront-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", Size)); err != nil {
		t.Skipf("no small disk can be mounted (%v), and STOREFRONT_SMALL_DISK names none", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
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
