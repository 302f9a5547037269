//go:build !linux

package volatilefs

import "testing"

// A Disk is only on Linux.
type Disk struct{ Dir string }

// Mount skips the test.
func Mount(t testing.TB, _ uint64) *Disk {
	t.Helper()
	t.Skip("a disk that can lose its power takes Linux")
	return nil
}

func (d *Disk) Lie() {}

func (d *Disk) KeepNames() {}

func (d *Disk) Sync() {}

func (d *Disk) Fail(int, <-chan struct{}, float64, func()) {}

func (d *Disk) Restore(testing.TB) {}
