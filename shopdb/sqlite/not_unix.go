//go:build !darwin && !freebsd && !linux

package sqlite

import (
	"io/fs"
	"math"
	"os"
)

// freeOf does not know, and returns that there is no end of it.
func freeOf(string) (uint64, error) { return math.MaxUint64, nil }

func isReadOnly(string) bool { return false }

// statOf does not know.
func statOf(fs.FileInfo) (device, links uint64) { return 0, 1 }

// openQueue returns nil: processes ask for SQLite's own lock alone.
func openQueue(string) *os.File { return nil }

func lock(*os.File, bool) bool { return true }
func unlock(*os.File)          {}
