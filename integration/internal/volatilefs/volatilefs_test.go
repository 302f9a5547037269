//go:build linux

package volatilefs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/storefront/integration/internal/process"
)

func TestWhatIsFlushedSurvives(t *testing.T) {
	const old = "old content"
	open := func(name string, flags int) *os.File {
		f, err := os.OpenFile(name, flags|os.O_RDWR, 0o600)
		if err != nil {
			panic(err)
		}
		return f
	}
	write := func(name string, flags int, flush func(*os.File) error) error {
		f := open(name, flags)
		_, err := f.WriteString("new")
		return errors.Join(err, flush(f), f.Close())
	}
	flush := (*os.File).Sync
	dont := func(*os.File) error { return nil }
	data := func(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
	flushFolder := func(dir string) error {
		f, err := os.Open(dir)
		return errors.Join(err, f.Sync(), f.Close())
	}
	for _, row := range []struct {
		name string
		do   func(dir string) error // where there are old/file, with old as its content, and the empty folder new
		want map[string]string
	}{
		{"a write", func(dir string) error { return write(dir+"/old/file", 0, dont) }, map[string]string{"old/file": old}},
		{"a write with fsync", func(dir string) error { return write(dir+"/old/file", 0, flush) }, map[string]string{"old/file": "new content"}},
		{"a write with fdatasync", func(dir string) error { return write(dir+"/old/file", os.O_APPEND, data) }, map[string]string{"old/file": old + "new"}},
		{"a write with O_DSYNC", func(dir string) error { return write(dir+"/old/file", syscall.O_DSYNC, dont) }, map[string]string{"old/file": "new content"}},
		{"a write with O_SYNC", func(dir string) error { return write(dir+"/old/file", os.O_SYNC, dont) }, map[string]string{"old/file": "new content"}},
		{"a write to another file", func(dir string) error {
			return errors.Join(write(dir+"/old/file", 0, dont), write(dir+"/new/file", os.O_CREATE, flush), flushFolder(dir+"/new"))
		}, map[string]string{"old/file": old, "new/file": "new"}},
		{"a truncation", func(dir string) error { return os.Truncate(dir+"/old/file", 3) }, map[string]string{"old/file": old}},
		{"a truncation with fsync", func(dir string) error {
			f := open(dir+"/old/file", 0)
			return errors.Join(f.Truncate(3), f.Sync(), f.Close())
		}, map[string]string{"old/file": "old"}},
		{"O_TRUNC and a write with fsync", func(dir string) error { return write(dir+"/old/file", os.O_TRUNC, flush) }, map[string]string{"old/file": "new"}},
		{"an allocation with fsync", func(dir string) error {
			f := open(dir+"/old/file", 0)
			return errors.Join(syscall.Fallocate(int(f.Fd()), 0, 0, 13), f.Sync(), f.Close())
		}, map[string]string{"old/file": old + "\x00\x00"}},
		{"a new file with fsync, but not its folder", func(dir string) error { return write(dir+"/old/other", os.O_CREATE, flush) }, map[string]string{"old/file": old}},
		{"a new folder's file, flushed but for the folder's own name", func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/sub", 0o700), write(dir+"/sub/file", os.O_CREATE, flush), flushFolder(dir+"/sub"))
		}, map[string]string{"old/file": old}},
		{"the name of a new file, but not its content", func(dir string) error {
			return errors.Join(write(dir+"/new/file", os.O_CREATE, dont), flushFolder(dir+"/new"))
		}, map[string]string{"old/file": old, "new/file": ""}},
		{"a file that is deleted", func(dir string) error { return os.Remove(dir + "/old/file") }, map[string]string{"old/file": old}},
		{"a file that is deleted, and its folder flushed", func(dir string) error {
			return errors.Join(os.Remove(dir+"/old/file"), flushFolder(dir+"/old"))
		}, map[string]string{}},
		{"another name", func(dir string) error { return os.Rename(dir+"/old/file", dir+"/new/file") }, map[string]string{"old/file": old}},
		{"another name, with its folder flushed", func(dir string) error {
			return errors.Join(os.Rename(dir+"/old/file", dir+"/new/file"), flushFolder(dir+"/new"))
		}, map[string]string{"new/file": old}},
		{"another name, with the earlier folder flushed", func(dir string) error {
			return errors.Join(os.Rename(dir+"/old/file", dir+"/new/file"), flushFolder(dir+"/old"))
		}, map[string]string{"new/file": old}},
		{"two names one after the other, with the last folder flushed", func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/sub", 0o700), flushFolder(dir), os.Rename(dir+"/old/file", dir+"/new/file"),
				os.Rename(dir+"/new/file", dir+"/sub/file"), flushFolder(dir+"/sub"))
		}, map[string]string{"sub/file": old}},
		{"a name in the place of another", func(dir string) error {
			return errors.Join(write(dir+"/old/other", os.O_CREATE, flush), os.Rename(dir+"/old/other", dir+"/old/file"), flushFolder(dir+"/old"))
		}, map[string]string{"old/file": "new"}},
		{"a second name, with its folder flushed", func(dir string) error {
			return errors.Join(os.Link(dir+"/old/file", dir+"/new/file"), flushFolder(dir+"/new"))
		}, map[string]string{"old/file": old, "new/file": old}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := Mount(t, 1)
			if err := errors.Join(os.Mkdir(d.Dir+"/old", 0o700), os.Mkdir(d.Dir+"/new", 0o700), os.WriteFile(d.Dir+"/old/file", []byte(old), 0o600)); err != nil {
				t.Fatal(err)
			}
			d.Sync()
			if err := row.do(d.Dir); err != nil {
				t.Fatal(err)
			}
			fail(t, d, 0)
			if got := files(t, d); !maps.Equal(got, row.want) {
				t.Errorf("after it, without power: %q, want %q", got, row.want)
			}
		})
	}
}

// fail takes the power now.
func fail(t *testing.T, d *Disk, keep float64) {
	t.Helper()
	now := make(chan struct{})
	close(now)
	d.Fail(0, now, keep, func() {})
	d.Restore(t)
}

// files returns the content of all files.
func files(t *testing.T, d *Disk) map[string]string {
	t.Helper()
	all := make(map[string]string)
	if err := fs.WalkDir(os.DirFS(d.Dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(d.Dir, path))
		all[path] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDiskThatKeepsNamesKeepsThoseOfFlushedFiles(t *testing.T) {
	d := Mount(t, 1)
	d.KeepNames()
	f, err := os.Create(d.Dir + "/file")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(d.Dir+"/other", nil, 0o600), os.Rename(d.Dir+"/file", d.Dir+"/renamed"), f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	fail(t, d, 0)
	if got, want := files(t, d), map[string]string{"renamed": ""}; !maps.Equal(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
}

// A disk that keeps all loses nothing.
func TestAllSurvivesIfAllIsKept(t *testing.T) {
	d := Mount(t, 1)
	if err := errors.Join(os.Mkdir(d.Dir+"/folder", 0o700), os.WriteFile(d.Dir+"/folder/one", []byte("text"), 0o600),
		os.Rename(d.Dir+"/folder/one", d.Dir+"/folder/other"), os.Truncate(d.Dir+"/folder/other", 3)); err != nil {
		t.Fatal(err)
	}
	fail(t, d, 1)
	if got, want := files(t, d), map[string]string{"folder/other": "tex"}; !maps.Equal(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
}

func TestDiskThatLiesLosesWhatIsFlushed(t *testing.T) {
	d := Mount(t, 1)
	d.Lie()
	f, err := os.Create(d.Dir + "/file")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("text")
	dir, err2 := os.Open(d.Dir)
	if err := errors.Join(err, err2, f.Sync(), f.Close(), dir.Sync(), dir.Close()); err != nil {
		t.Fatal(err)
	}
	fail(t, d, 0)
	if got := files(t, d); len(got) > 0 {
		t.Errorf("there is %q", got)
	}
}

// Each sector has a content that it had, and any combination may be.
func TestWritesAreTornBetweenSectors(t *testing.T) {
	old, first, second := bytes.Repeat([]byte("o"), 2*sector), bytes.Repeat([]byte("1"), sector), bytes.Repeat([]byte("2"), 2*sector-100)
	seen := make(map[string]int)
	for seed := range uint64(1000) {
		d := newDisk(seed)
		i := &inode{data: slices.Clone(old), disk: slices.Clone(old)}
		d.write(i, write{data: first, size: 2 * sector})
		d.write(i, write{data: second, at: 100, size: 2 * sector})
		d.lose(0.5)
		if !bytes.Equal(i.data, i.disk) || len(i.writes) > 0 {
			t.Fatal("what is there is not what the disk has")
		}
		seen[fmt.Sprintf("%c%c %c", i.data[0], i.data[100], i.data[sector])]++
	}
	want := []string{"11 2", "11 o", "12 2", "12 o", "oo 2", "oo o"}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("there is %v, want each of %v", seen, want)
	}
}

// A file that has grown has any size that it had, and zeros where its data has not been
// written; what was before a cut is never there after it.
func TestSizesSurvive(t *testing.T) {
	seen := make(map[string]int)
	for seed := range uint64(1000) {
		d := newDisk(seed)
		i := &inode{data: []byte("old"), disk: []byte("old")}
		d.write(i, write{})
		d.write(i, write{data: []byte("n"), at: 1, size: 2})
		d.lose(0.5)
		seen[fmt.Sprintf("%q", i.data)]++
	}
	want := []string{`""`, `"\x00\x00"`, `"\x00n"`, `"old"`}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("there is %v, want each of %v", seen, want)
	}
}

// Of the changes of one name or file, the first ones survive. Others do or do not, each by
// itself, and a rename as a whole.
func TestNamesSurvive(t *testing.T) {
	seen := make(map[string]int)
	for seed := range uint64(1000) {
		d := newDisk(seed)
		i, other := d.newInode(syscall.S_IFREG, 0, 0), d.newInode(syscall.S_IFREG, 0, 0)
		d.change(change{{dir: d.root, name: "a", is: i}})
		d.Sync()
		d.change(change{{dir: d.root, name: "a", was: i}, {dir: d.root, name: "b", is: i}})
		d.change(change{{dir: d.root, name: "b", was: i}, {dir: d.root, name: "c", is: i}})
		d.change(change{{dir: d.root, name: "other", is: other}})
		d.lose(0.5)
		for name, i := range d.root.names {
			if i.links != 1 {
				t.Fatalf("%s has %d links", name, i.links)
			}
		}
		seen[strings.Join(slices.Sorted(maps.Keys(d.root.names)), " ")]++
	}
	want := []string{"a", "a other", "b", "b other", "c", "c other"}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("there is %v, want each of %v", seen, want)
	}
}

// The call after so many fails, and so do all later ones, but not before processes were
// told to stop.
func TestPowerFailsAtACall(t *testing.T) {
	d := Mount(t, 1)
	f, err := os.Create(d.Dir + "/file")
	if err != nil {
		t.Fatal(err)
	}
	d.Sync()
	written := make(chan int)
	go func() {
		defer close(written)
		for n := 0; ; n++ {
			if _, err := f.WriteString("x"); err != nil {
				if !errors.Is(err, syscall.EIO) {
					t.Error(err)
				}
				written <- n
				return
			}
		}
	}()
	d.Fail(3, nil, 1, func() {
		select {
		case n := <-written:
			t.Errorf("call %d has failed before all was stopped", n)
		default:
		}
	})
	n := <-written
	if n < 3 {
		t.Errorf("%d calls have succeeded, want 3 and those before", n)
	}
	f.Close()
	d.Restore(t)
	if got := len(files(t, d)["file"]); got != n {
		t.Errorf("%d calls have succeeded, and %d survive", n, got)
	}
}

// Whoever reads a file sees what was written before, while others open it.
func TestWritesAreSeenWhileOthersOpen(t *testing.T) {
	d := Mount(t, 1)
	name := d.Dir + "/file"
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	done := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for text := make([]byte, 8); ; {
				select {
				case <-done:
					return
				default:
				}
				f, err := os.Open(name)
				if err != nil {
					t.Error(err)
					return
				}
				f.ReadAt(text, 0)
				f.Close()
			}
		})
	}
	got := make([]byte, 8)
	for n := range 2000 {
		want := fmt.Appendf(nil, "%8d", n)
		if _, err := f.WriteAt(want, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%q is read, %v, and %q was written", got, err, want)
			break
		}
	}
	close(done)
	others.Wait()
}

// A test binary that is killed leaves no mount, no file and no process that waits for the
// disk.
func TestNoMountOutlivesTheBinary(t *testing.T) {
	const isChild = "VOLATILEFS_IS_KILLED"
	if os.Getenv(isChild) != "" {
		d := Mount(t, 1)
		p, err := process.Start(exec.Command("sh", "-c", "while :; do echo; done > "+d.Dir+"/file"), os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		d.Fail(0, nil, 0, func() { // while a call of the process waits
			fmt.Println(d.Dir, p.Process.Pid)
			io.Copy(io.Discard, os.Stdin)
		})
		return
	}
	Mount(t, 1) // else it skips
	child := exec.Command(os.Args[0], "-test.run", "^TestNoMountOutlivesTheBinary$")
	child.Env = append(os.Environ(), isChild+"=1")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	var pid int
	_, err = fmt.Fscanln(stdout, &dir, &pid)
	child.Process.Kill()
	child.Wait()
	if err != nil {
		t.Fatal(err)
	}
	process.WaitFor(t, "all is gone", 5*time.Minute, nil, func() error {
		if command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); len(command) > 0 {
			return errors.New("its process lives")
		}
		if _, err := os.Lstat(filepath.Dir(dir)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("its folder is there: %v", err)
		}
		return nil
	})
}
