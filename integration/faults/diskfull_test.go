package faults

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/smalldisk"
)

// A storefrontd that starts on a full disk waits for room: its supervisor starts no process anew that has ended
// with status 2.
func TestStartOnAFullDisk(t *testing.T) {
	dir := smalldisk.Folder(t, 8<<20)
	file := filepath.Join(dir, "shop.db")
	r := faulttest.StartReplicas(t, process.Storefrontd, 1, file)[0]
	r.End()
	freeDisk := smalldisk.Fill(t, dir)
	r.Start()
	process.WaitFor(t, "a line of the log", 5*time.Minute, r.Process, func() error {
		if log := process.LogTail(r.Log); !strings.Contains(log, "waiting for the database") {
			return errors.New(log)
		}
		return nil
	})
	freeDisk()
	r.WaitUntilServing()
	r.End()
}
