// Package smalldisk gives tests disks that they can fill.
package smalldisk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// Folder returns a folder on a new file system in memory of this size, for the time of the
// test. That takes Linux and root, without which it skips the test.
func Folder(t testing.TB, size int64) string {
	t.Helper()
	dir := process.Folder(t) // else the disk may outlive the test binary
	options := fmt.Sprintf("size=%d,mode=0755", size)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no small disk can be mounted: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "--lazy", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	return dir
}

// Fill fills the disk that a folder is on, of less than a gigabyte, and returns a function that
// frees it.
func Fill(t testing.TB, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "fills")
	f := must.Get(os.Create(name))(t)
	defer f.Close()
	zeros := must.Get(os.Open("/dev/zero"))(t)
	defer zeros.Close()
	if _, err := io.CopyN(f, zeros, 1<<30); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}
