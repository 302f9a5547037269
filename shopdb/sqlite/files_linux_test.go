package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/storefront/internal/must"
	"example.com/storefront/shopdb"
	"example.com/storefront/sqlstore"
)

// mount mounts something for the time of the test, which it skips if that takes more rights.
func mount(t *testing.T, source, target, system string, flags uintptr, data string) {
	t.Helper()
	if err := syscall.Mount(source, target, system, flags, data); err != nil {
		t.Skipf("nothing can be mounted, as by root: %v", err)
	}
	t.Cleanup(func() { must.OK(t, syscall.Unmount(target, syscall.MNT_DETACH)) })
}

// A container that mounts the one file has a WAL of its own, and so has one for which the WAL is another.
func TestFileThatIsMountedByItselfIsNotOpened(t *testing.T) {
	for _, suffix := range suffixes {
		t.Run("shop.db"+suffix, func(t *testing.T) {
			source := filepath.Join(t.TempDir(), "source")
			name := filepath.Join(t.TempDir(), `a #\ shop.db`)
			if suffix != "" {
				makeShop(t, name, func(*shopdb.DB, *sqlstore.Store) {})
			}
			must.OK(t, os.WriteFile(source, nil, 0o600))
			must.OK(t, os.WriteFile(name+suffix, nil, 0o600))
			mount(t, source, name+suffix, "", syscall.MS_BIND, "")
			before := list(t, filepath.Dir(source))
			wantNotOpened(t, name, nil, name+suffix+" is a mount point", "mount the folder")
			if after := list(t, filepath.Dir(source)); after != before {
				t.Errorf("there are %s, want %s", after, before)
			}
		})
	}
}

// Programs for which the folder has other names, as containers that mount it, have one database.
func TestFolderThatIsMountedUnderAnotherName(t *testing.T) {
	name, other := filepath.Join(t.TempDir(), "shop.db"), t.TempDir()
	makeShop(t, name, func(db *shopdb.DB, store *sqlstore.Store) {
		mount(t, filepath.Dir(name), other, "", syscall.MS_BIND, "")
		makeShop(t, filepath.Join(other, "shop.db"), func(_ *shopdb.DB, second *sqlstore.Store) {
			for i := range 25 {
				must.OK(t, createOrder(t.Context(), store, fmt.Sprint(i)))
				must.OK(t, createOrder(t.Context(), second, fmt.Sprint(i)))
			}
		})
		var n int
		must.OK(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM storefront_orders`).Scan(&n))
		if n != 26 {
			t.Errorf("there are %d orders, want 26", n)
		}
	})
}

// The log names a volume that only one container, or one pod, has, and a file system that does not outlive the
// machine. It does not name a folder of a volume that somebody has mounted by name.
func TestPlacesThatDoNotLastAreSaid(t *testing.T) {
	containerd := "containers/c/volumes/" + strings.Repeat("7f", 32)
	unnamed := "volumes/" + strings.Repeat("7f", 32) + "/_data"
	for source, says := range map[string]string{
		unnamed: ofContainer, containerd: ofContainer, "volumes/kubernetes.io~empty-dir/data": ofContainer,
		"volumes/shop/_data": "", unnamed + "/of-a-shop": "", "tmpfs": ofMemory, "overlay": ofLayer,
	} {
		t.Run(source, func(t *testing.T) {
			dir, target := filepath.Join(t.TempDir(), source), t.TempDir()
			for _, layer := range []string{"l", "u", "w"} {
				must.OK(t, os.MkdirAll(filepath.Join(dir, layer), 0o700))
			}
			switch source {
			case "tmpfs":
				mount(t, dir, target, source, 0, "")
			case "overlay":
				mount(t, dir, target, source, 0, fmt.Sprintf("lowerdir=%[1]s/l,upperdir=%[1]s/u,workdir=%[1]s/w", dir))
			default:
				mount(t, dir, target, "", syscall.MS_BIND, "")
			}
			must.OK(t, os.Mkdir(filepath.Join(target, "shop"), 0o700))
			log, opts := logged()
			must.OK(t, must.Get(Open(filepath.Join(target, "shop", "shop.db"), opts))(t).Close())
			text := log.text()
			if strings.Contains(text, ofContainer) != (says == ofContainer) || !strings.Contains(text, says) {
				t.Errorf("the log is %s, want that it says %q", text, says)
			}
		})
	}
}
