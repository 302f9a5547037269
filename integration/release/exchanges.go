package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The recorded exchanges of testdata/contract stay there, as later commits replay
// them. A release has their sums, as sha256sum prints them.

func recordExchanges(release, root string) error {
	files, err := filepath.Glob(filepath.Join(root, "testdata/contract/*.txt"))
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, file := range append(files, filepath.Join(root, "testdata/contract/store.json")) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(text), filepath.Base(file))
	}
	return os.WriteFile(filepath.Join(release, "contract.sha256"), []byte(b.String()), 0o644)
}

func checkExchanges(release, root string) ([]string, error) {
	sums, err := os.ReadFile(filepath.Join(release, "contract.sha256"))
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(sums)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return nil, fmt.Errorf("contract.sha256 has the line %q", line)
		}
		text, err := os.ReadFile(filepath.Join(root, "testdata/contract", name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			lines = append(lines, name+" is gone")
		case err != nil:
			return nil, err
		default:
			if now := fmt.Sprintf("%x", sha256.Sum256(text)); now != sum {
				lines = append(lines, fmt.Sprintf("%s has been edited since it was released: its sum is now %s", name, now))
			}
		}
	}
	return lines, nil
}
