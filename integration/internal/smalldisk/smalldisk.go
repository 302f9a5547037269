// Package smalldisk gives tests a disk that they can fill.
package smalldisk

import "testing"

// Size is how large the disk is, in bytes.
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
	return folder(t)
}
