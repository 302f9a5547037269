//go:build darwin || freebsd || linux

package sqlite

import (
	"io/fs"
	"syscall"
)

// freeOf returns how many bytes this program may still write to the file system of a
// folder.
func freeOf(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return uint64(max(0, s.Bavail)) * uint64(s.Bsize), nil
}

// isReadOnly reports whether the file system of a folder is mounted so that it can only be read.
func isReadOnly(dir string) bool {
	const readOnly = 1 // ST_RDONLY, MNT_RDONLY
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && s.Flags&readOnly != 0
}

// statOf returns the device of a file, and how many names it has.
func statOf(info fs.FileInfo) (device, links uint64) {
	s := info.Sys().(*syscall.Stat_t)
	return uint64(s.Dev), uint64(s.Nlink)
}
