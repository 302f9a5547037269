package sqlite

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"example.com/storefront/internal/must"
)

// asNobody calls f as somebody who is not root, who may write everything, and who owns the folder and what is
// in it, unless roots is true.
func asNobody(t *testing.T, dir string, roots bool, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		if roots {
			t.Skip("needs files of another user: run it as root")
		}
		f()
		return
	}
	const nobody = 65534
	names := must.Get(filepath.Glob(filepath.Join(dir, "*")))(t)
	for _, path := range append(names, dir) {
		if !roots {
			os.Lchown(path, nobody, nobody) // unless it is not there
		}
	}
	for _, above := range []string{filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} { // the test's folders
		must.OK(t, os.Chmod(above, 0o755))
	}
	// Of this thread alone, which is the one that SQLite is called on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setUser := func(id uintptr) { syscall.RawSyscall(syscall.SYS_SETFSUID, id, 0, 0) }
	setUser(nobody)
	defer setUser(0)
	f()
}
