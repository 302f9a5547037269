package sqlite

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"example.com/storefront/internal/must"
)

// asOwner calls f as somebody who owns the folder and what is in it, but is not root,
// who may write everything.
func asOwner(t *testing.T, dir string, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	names := must.Get(filepath.Glob(filepath.Join(dir, "*")))(t)
	for _, path := range append(names, dir) {
		must.OK(t, os.Chown(path, nobody, nobody))
	}
	must.OK(t, os.Chmod(filepath.Dir(dir), 0o755)) // of the test's folders, too
	// Of this thread alone, which is the one that SQLite is called on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setUser := func(id uintptr) { syscall.RawSyscall(syscall.SYS_SETFSUID, id, 0, 0) }
	setUser(nobody)
	defer setUser(0)
	f()
}
