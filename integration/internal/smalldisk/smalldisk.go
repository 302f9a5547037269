// Package smalldisk gives tests disks that they can fill.
package smalldisk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Size is how large the disk of Folder is, in bytes.
const Size = 24 << 20

// Folder returns a folder on a file system that is empty and of the size Size, for the
// time of the test: a new one in memory, where the test may mount one, which takes
// Linux and root; else one that the environment variable STOREFRONT_SMALL_DISK names,
// such as
//
//	sudo mount -t tmpfs -o size=24m,mode=1777 tmpfs /mnt/small
//
// which tests use in turn, and whose content they delete. Without either, it skips the
// test.
func Folder(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("STOREFRONT_SMALL_DISK"); dir != "" {
		return given(t, dir)
	}
	return FolderOf(t, Size)
}

// FolderOf is Folder of another size, which has to be mounted.
func FolderOf(t testing.TB, size int64) string {
	t.Helper()
	dir, err := mount(t, size)
	if err != nil {
		t.Skipf("no small disk can be mounted (%v), and STOREFRONT_SMALL_DISK names none of %d bytes", err, size)
	}
	return dir
}

// Fill fills the disk that a folder is on, of up to size bytes, and returns a function that
// frees it.
func Fill(t testing.TB, dir string, size int64) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "fills")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.CopyN(f, zeros{}, size); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// zeros reads as zeros without end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
