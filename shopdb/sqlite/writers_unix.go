//go:build darwin || freebsd || linux

package sqlite

import (
	"os"
	"syscall"
)

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
