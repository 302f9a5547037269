//go:build darwin || freebsd || linux

package sqlite

import (
	"io/fs"
	"os"
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

// openQueue opens the file for whose lock those wait who write a database, or returns nil. Who may read the
// database may wait, too.
func openQueue(database string) *os.File {
	mode := os.FileMode(0o600)
	if info, err := os.Stat(database); err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.OpenFile(database+"-queue", os.O_CREATE|os.O_RDONLY, mode)
	if err != nil {
		return nil // the store works without it
	}
	return f
}

// lock takes the lock of a file, and reports whether it has it. It waits if it may.
func lock(f *os.File, wait bool) bool {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	err := syscall.EINTR
	for err == syscall.EINTR {
		err, _ = syscall.Flock(int(f.Fd()), how).(syscall.Errno)
	}
	return err == 0
}

func unlock(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
