//go:build linux

package volatilefs

import (
	"cmp"
	"errors"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"example.com/storefront/integration/internal/process"
)

// sector is how many bytes a disk writes as one.
const sector = 512

// A Disk is a file system in memory that knows what of it has been flushed.
type Disk struct {
	Dir string // where it is mounted

	mu      sync.Mutex
	lies    bool
	names   bool // a file that is flushed keeps its names, too
	random  *rand.Rand
	root    *inode
	inodes  uint64          // that were ever made
	written map[*inode]bool // files with writes that are not on the disk
	renamed []change        // of names that is not on the disk, the oldest first
	mounts  int             // that have ended; calls that come from these fail
	halted  bool            // calls wait
	goOn    sync.Cond       // when they need not any longer
	calls   int             // that may yet change something before it halts
	reached chan struct{}   // closed when it halts; nil if nobody waits for that
}

// An inode is a file or a folder.
type inode struct {
	number         uint64
	mode, uid, gid uint32
	modified       time.Time
	links          uint32

	data   []byte  // of a file
	disk   []byte  // what the disk has of it
	writes []write // what it does not have, the oldest first

	names     map[string]*inode // of a folder
	diskNames map[string]*inode // what the disk has of them

	target string // of a symbolic link
}

// A write writes data into a file, or gives it another size.
type write struct {
	data []byte
	at   int
	size int  // that the file has after it
	cuts bool // it is smaller than before
}

// A change is one call that changes names, which happens as a whole or not at all.
type change []name

// A name is what a change makes of a name.
type name struct {
	dir  *inode
	name string
	was  *inode // nil if the name was free
	is   *inode // nil if it is free now
}

// of returns what the change is about: names and files.
func (c change) of() (keys []any) {
	for _, n := range c {
		keys = append(keys, key{n.dir, n.name})
		for _, i := range []*inode{n.was, n.is} {
			if i != nil {
				keys = append(keys, i)
			}
		}
	}
	return keys
}

type key struct {
	dir  *inode
	name string
}

// Mount mounts a new, empty disk for the time of the test, which a seed decides about.
// Everyone may write to it.
func Mount(t testing.TB, seed uint64) *Disk {
	t.Helper()
	d := newDisk(seed)
	d.Dir = process.Folder(t)
	if err := canMount(); err != nil {
		t.Skipf("no disk that can lose its power: that takes /dev/fuse and the right to mount, which root has: %v", err)
	}
	if err := d.mount(); errors.Is(err, syscall.EPERM) {
		t.Skipf("no disk that can lose its power: a disk cannot be mounted here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.unmount(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// canMount returns why this process can mount no disk.
func canMount() error {
	if os.Geteuid() != 0 {
		return errors.New("this is not root")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func newDisk(seed uint64) *Disk {
	d := &Disk{random: rand.New(rand.NewPCG(seed, 1)), written: make(map[*inode]bool)}
	d.goOn.L = &d.mu
	d.root = d.newInode(syscall.S_IFDIR|0o777, 0, 0)
	return d
}

// Lie makes the disk one that says of what is flushed that it is there, and does nothing.
func (d *Disk) Lie() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lies = true
}

// KeepNames makes the disk one on which a file that is flushed keeps its names, too.
func (d *Disk) KeepNames() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names = true
}

func (d *Disk) mount() error {
	// Else a process that is started meanwhile would keep the connection to the kernel
	// open, and wait for itself.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	forever := 24 * time.Hour // nothing changes but by calls of this kernel
	_, err := fs.Mount(d.Dir, &node{disk: d, inode: d.root, mount: d.mounts}, &fs.Options{
		MountOptions: fuse.MountOptions{
			DirectMountStrict:        true,
			AllowOther:               true, // servers run as another user
			Options:                  []string{"default_permissions"},
			FsName:                   "volatilefs",
			Name:                     "volatilefs",
			Logger:                   log.New(io.Discard, "", 0), // of what nobody waits for any longer
			DisableXAttrs:            true,
			ExplicitDataCacheControl: true,
		},
		EntryTimeout:    &forever,
		AttrTimeout:     &forever,
		NegativeTimeout: &forever,
		RootStableAttr:  &fs.StableAttr{Ino: d.root.number},
	})
	if err != nil {
		return err
	}
	files, err := os.ReadDir("/proc/self/fd")
	for _, file := range files {
		if target, err := os.Readlink("/proc/self/fd/" + file.Name()); err == nil && target == "/dev/fuse" {
			fd, err := strconv.Atoi(file.Name())
			if err != nil {
				return err
			}
			syscall.CloseOnExec(fd)
		}
	}
	return err
}

// unmount takes the file system away, also from processes that still use it.
func (d *Disk) unmount() error {
	return syscall.Unmount(d.Dir, syscall.MNT_FORCE|syscall.MNT_DETACH)
}

// Sync flushes all that there is, like the command sync, even if the disk lies.
func (d *Disk) Sync() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.written {
		d.flush(i)
	}
	for _, c := range d.renamed {
		c.reach()
	}
	d.renamed = nil
}

// Fail takes the power before the next call that changes or flushes something but for as
// many calls, or as soon as until is closed. Each part of what was not flushed survives
// with the probability keep: 0 loses all of it. Every call waits until stop has returned,
// and then fails. So stop sends SIGKILL to the processes and does not wait for them: none
// may live to tell of an error. Once they are gone, Restore makes the disk usable again.
func (d *Disk) Fail(calls int, until <-chan struct{}, keep float64, stop func()) {
	reached := make(chan struct{})
	d.mu.Lock()
	d.calls, d.reached = calls, reached
	d.mu.Unlock()
	select {
	case <-reached:
	case <-until:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reached = nil
	stop()
	d.lose(keep)
	d.mounts++
	d.halted = false
	d.goOn.Broadcast()
}

// lose makes what the disk has, and so much of the rest, all that there is.
func (d *Disk) lose(keep float64) {
	oldestFirst := func(a, b *inode) int { return cmp.Compare(a.number, b.number) } // for the same seed to do the same
	for _, i := range slices.SortedFunc(maps.Keys(d.written), oldestFirst) {
		i.survive(d.random, keep)
	}
	clear(d.written)
	broken := make(map[any]bool)
	for _, c := range d.renamed {
		keys := c.of()
		if d.random.Float64() < keep && !slices.ContainsFunc(keys, func(key any) bool { return broken[key] }) {
			c.reach()
			continue
		}
		for _, key := range keys {
			broken[key] = true
		}
	}
	for _, c := range d.renamed {
		for _, n := range c {
			n.dir.names = maps.Clone(n.dir.diskNames)
		}
	}
	d.renamed = nil
	d.root.count(make(map[*inode]bool))
}

// Restore mounts the disk again, after Fail.
func (d *Disk) Restore(t testing.TB) {
	t.Helper()
	if err := d.unmount(); err != nil {
		t.Fatal(err)
	}
	if err := d.mount(); err != nil {
		t.Fatal(err)
	}
}

// lock locks the disk for a call of a mount, which may change something.
func (d *Disk) lock(mount int, changes bool) syscall.Errno {
	d.mu.Lock()
	if changes && d.reached != nil && mount == d.mounts {
		if d.calls == 0 {
			close(d.reached)
			d.reached, d.halted = nil, true
		}
		d.calls--
	}
	for d.halted {
		d.goOn.Wait()
	}
	if mount != d.mounts {
		d.mu.Unlock()
		return syscall.EIO
	}
	return 0
}

func (d *Disk) newInode(mode, uid, gid uint32) *inode {
	d.inodes++
	i := &inode{number: d.inodes, mode: mode, uid: uid, gid: gid, modified: time.Now()}
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		i.names, i.diskNames = make(map[string]*inode), make(map[string]*inode)
	}
	return i
}

// write has a file written, which is not on the disk yet.
func (d *Disk) write(i *inode, w write) {
	w.cuts = w.size < len(i.data)
	i.data = w.onto(i.data)
	i.writes = append(i.writes, w)
	i.modified = time.Now()
	d.written[i] = true
}

// onto returns the data of a file after the write.
func (w write) onto(data []byte) []byte {
	if w.size <= len(data) {
		data = data[:w.size]
	} else {
		old := len(data)
		data = slices.Grow(data, w.size-old)[:w.size]
		clear(data[old:])
	}
	copy(data[w.at:], w.data)
	return data
}

// flush writes a file to the disk.
func (d *Disk) flush(i *inode) {
	for _, w := range i.writes {
		i.disk = w.onto(i.disk)
	}
	i.writes = nil
	delete(d.written, i)
}

// survive decides what of a file's writes has reached the disk, and makes it its content.
func (i *inode) survive(random *rand.Rand, keep float64) {
	n := len(i.writes)
	reach := func() int { // of the first writes
		switch {
		case random.Float64() < keep:
			return n
		case keep > 0 && random.IntN(4) == 0:
			return random.IntN(n)
		}
		return 0
	}
	sized := reach()
	// Where the file was cut, its sectors are others afterwards, which it has only if
	// it has been cut on the disk, too.
	uncut := n
	for j := n - 1; j >= sized; j-- {
		if i.writes[j].cuts {
			uncut = j
		}
	}
	reached := make(map[int]int) // how many writes, by sector
	for j, w := range i.writes {
		if j < sized {
			i.disk = write{size: w.size}.onto(i.disk)
		} else if end := w.at + len(w.data); end > len(i.disk) {
			// Of these, only the sectors that are within its size survive.
			w.data = w.data[:max(0, len(i.disk)-w.at)]
		}
		for at := w.at; at < w.at+len(w.data); {
			end := min(w.at+len(w.data), (at/sector+1)*sector)
			upTo, decided := reached[at/sector]
			if !decided {
				upTo = min(reach(), uncut)
				reached[at/sector] = upTo
			}
			if j < upTo {
				copy(i.disk[at:], w.data[at-w.at:end-w.at])
			}
			at = end
		}
	}
	i.writes = nil
	i.data = slices.Clone(i.disk)
}

// change has names changed, which is not on the disk yet.
func (d *Disk) change(c change) {
	for _, n := range c {
		if n.was != nil {
			n.was.links--
		}
		if n.is != nil {
			n.is.links++
			n.dir.names[n.name] = n.is
		} else {
			delete(n.dir.names, n.name)
		}
		n.dir.modified = time.Now()
	}
	d.renamed = append(d.renamed, c)
}

// reach makes the change on the disk.
func (c change) reach() {
	for _, n := range c {
		if n.is != nil {
			n.dir.diskNames[n.name] = n.is
		} else {
			delete(n.dir.diskNames, n.name)
		}
	}
}

// flushNames writes changes of some names to the disk, and those that they depend on: earlier
// ones of the same names and files.
func (d *Disk) flushNames(some func(name) bool) {
	needed := make(map[any]bool)
	due := make([]bool, len(d.renamed))
	for j, c := range slices.Backward(d.renamed) {
		keys := c.of()
		due[j] = slices.ContainsFunc(c, some) || slices.ContainsFunc(keys, func(key any) bool { return needed[key] })
		if due[j] {
			for _, key := range keys {
				needed[key] = true
			}
		}
	}
	var left []change
	for j, c := range d.renamed {
		if due[j] {
			c.reach()
		} else {
			left = append(left, c)
		}
	}
	d.renamed = left
}

// count counts the links anew to all that is below a folder.
func (i *inode) count(seen map[*inode]bool) {
	for _, child := range i.names {
		if !seen[child] {
			seen[child], child.links = true, 0
			child.count(seen)
		}
		child.links++
	}
}
