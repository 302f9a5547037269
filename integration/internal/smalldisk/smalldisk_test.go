package smalldisk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestFolder(t *testing.T) {
	dir := Folder(t)
	file := filepath.Join(dir, "fills")
	err := os.WriteFile(file, bytes.Repeat([]byte("x"), Size+1), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a file that is larger than the disk: %v, want ENOSPC", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), Size/2), 0o600); err != nil {
		t.Errorf("a file of half its size: %v", err)
	}
}
