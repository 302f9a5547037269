//go:build !linux

package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// warningOf does not know.
func warningOf(string) (system, warning string) { return "", "" }

// isMounted reports whether a file is on another device than its folder.
func isMounted(path string) bool {
	file, err := os.Lstat(path)
	if err != nil {
		return false
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return false
	}
	device, _ := statOf(file)
	ofDir, _ := statOf(dir)
	return device != ofDir
}

// mayWrite does not know.
func mayWrite(string, fs.FileInfo) error { return nil }

// makeFile cannot make a file without a descriptor.
func makeFile(string, uint32) error { return errors.ErrUnsupported }
