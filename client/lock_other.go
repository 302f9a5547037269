//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package client

import (
	"errors"
	"os"
)

const canLock = false

func lock(*os.File) error { return errors.ErrUnsupported }
