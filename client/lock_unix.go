//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package client

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const canLock = true

// lock locks a file until it is closed, by its process or with it. It returns errBusy if
// another has locked it, also one of the same process.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errBusy
		default:
			return fmt.Errorf("client: journal: locking %s: %w", f.Name(), err)
		}
	}
}
