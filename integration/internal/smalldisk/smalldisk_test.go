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
	file := filepath.Join(dir, "file")
	free := Fill(t, dir, Size+1)
	if err := os.WriteFile(file, []byte("x"), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a file on the full disk: %v, want ENOSPC", err)
	}
	free()
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), Size/2), 0o600); err != nil {
		t.Errorf("a file of half its size: %v", err)
	}
}
