//go:build !darwin && !freebsd && !linux

package sqlite

import "os"

// openQueue returns nil: processes ask for SQLite's own lock alone.
func openQueue(string) *os.File { return nil }

func lock(*os.File, bool) bool { return true }
func unlock(*os.File)          {}
