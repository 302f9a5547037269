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

// The log names a volume that only one container, or one pod, has.
func TestVolumesOfOneContainerAreSaid(t *testing.T) {
	for volume, isSaid := range map[string]bool{
		"volumes/" + strings.Repeat("7f", 32) + "/_data":           true,
		"volumes/kubernetes.io~empty-dir/data":                     true,
		"volumes/shop/_data":                                       false,
		"volumes/" + strings.Repeat("7f", 32) + "/_data/of-a-shop": false, // which somebody has mounted by name
	} {
		t.Run(volume, func(t *testing.T) {
			source, target := filepath.Join(t.TempDir(), volume), t.TempDir()
			must.OK(t, os.MkdirAll(source, 0o700))
			mount(t, source, target, "", syscall.MS_BIND, "")
			must.OK(t, os.Mkdir(filepath.Join(target, "shop"), 0o700))
			log, opts := logged()
			db := must.Get(Open(filepath.Join(target, "shop", "shop.db"), opts))(t)
			defer db.Close()
			if text := log.text(); strings.Contains(text, "volume without a name") != isSaid {
				t.Errorf("the log is %s", text)
			}
		})
	}
}

// The log names a file system that does not outlive the machine or the container.
func TestFileSystemsThatDoNotLastAreSaid(t *testing.T) {
	for system, data := range map[string]string{
		"tmpfs": "", "overlay": "lowerdir=%[1]s/l,upperdir=%[1]s/u,workdir=%[1]s/w",
	} {
		t.Run(system, func(t *testing.T) {
			dir, layers := t.TempDir(), t.TempDir()
			for _, layer := range []string{"l", "u", "w"} {
				must.OK(t, os.Mkdir(filepath.Join(layers, layer), 0o700))
			}
			if data != "" {
				data = fmt.Sprintf(data, layers)
			}
			mount(t, system, dir, system, 0, data)
			log, opts := logged()
			db := must.Get(Open(filepath.Join(dir, "shop.db"), opts))(t)
			defer db.Close()
			if text := log.text(); !strings.Contains(text, "WARN") || !strings.Contains(text, "orders are lost") ||
				!strings.Contains(text, "system="+system) {
				t.Errorf("the log is %s", text)
			}
		})
	}
}
