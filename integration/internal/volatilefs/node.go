//go:build linux

package volatilefs

import (
	"context"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// A node is an inode as one mount of the disk has it.
type node struct {
	fs.Inode
	disk  *Disk
	inode *inode
	mount int
}

var _ interface {
	fs.NodeLookuper
	fs.NodeReaddirer
	fs.NodeGetattrer
	fs.NodeSetattrer
	fs.NodeCreater
	fs.NodeMkdirer
	fs.NodeMknoder
	fs.NodeSymlinker
	fs.NodeReadlinker
	fs.NodeLinker
	fs.NodeUnlinker
	fs.NodeRmdirer
	fs.NodeRenamer
	fs.NodeOpener
	fs.NodeFlusher
	fs.NodeReader
	fs.NodeWriter
	fs.NodeAllocater
	fs.NodeFsyncer
	fs.NodeStatfser
} = (*node)(nil)

// change locks the disk for a call that changes or flushes something.
func (n *node) change() syscall.Errno { return n.disk.lock(n.mount, true) }

// see locks the disk for another call.
func (n *node) see() syscall.Errno { return n.disk.lock(n.mount, false) }

// child returns the node of an inode.
func (n *node) child(ctx context.Context, i *inode, out *fuse.EntryOut) *fs.Inode {
	i.describe(&out.Attr)
	return n.NewInode(ctx, &node{disk: n.disk, inode: i, mount: n.mount}, fs.StableAttr{Mode: i.mode & syscall.S_IFMT, Ino: i.number})
}

func (i *inode) describe(out *fuse.Attr) {
	out.Ino = i.number
	out.Mode = i.mode
	out.Uid, out.Gid = i.uid, i.gid
	out.Nlink = i.links
	out.Size = uint64(len(i.data) + len(i.target))
	out.Blocks = (out.Size + 511) / 512
	out.Blksize = 4096
	out.SetTimes(&i.modified, &i.modified, &i.modified)
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.see(); errno != 0 {
		return nil, errno
	}
	defer n.disk.mu.Unlock()
	i := n.inode.names[name]
	if i == nil {
		return nil, syscall.ENOENT
	}
	return n.child(ctx, i, out), 0
}

func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	if errno := n.see(); errno != 0 {
		return nil, errno
	}
	defer n.disk.mu.Unlock()
	var list []fuse.DirEntry
	for name, i := range n.inode.names {
		list = append(list, fuse.DirEntry{Name: name, Ino: i.number, Mode: i.mode})
	}
	return fs.NewListDirStream(list), 0
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if errno := n.see(); errno != 0 {
		return errno
	}
	defer n.disk.mu.Unlock()
	n.inode.describe(&out.Attr)
	return 0
}

func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if errno := n.change(); errno != 0 {
		return errno
	}
	defer n.disk.mu.Unlock()
	i := n.inode
	if mode, ok := in.GetMode(); ok {
		i.mode = i.mode&syscall.S_IFMT | mode&^syscall.S_IFMT
	}
	if uid, ok := in.GetUID(); ok {
		i.uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		i.gid = gid
	}
	if size, ok := in.GetSize(); ok {
		n.disk.write(i, write{size: int(size)})
	}
	if at, ok := in.GetMTime(); ok {
		i.modified = at
	}
	i.describe(&out.Attr)
	return 0
}

// add makes something with a name.
func (n *node) add(ctx context.Context, name string, mode uint32, target string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.change(); errno != 0 {
		return nil, errno
	}
	defer n.disk.mu.Unlock()
	if n.inode.names[name] != nil {
		return nil, syscall.EEXIST
	}
	caller, _ := fuse.FromContext(ctx)
	i := n.disk.newInode(mode, caller.Uid, caller.Gid)
	i.target = target
	n.disk.change(change{{dir: n.inode, name: name, is: i}})
	return n.child(ctx, i, out), 0
}

func (n *node) Create(ctx context.Context, name string, _ uint32, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	child, errno := n.add(ctx, name, syscall.S_IFREG|mode&0o7777, "", out)
	return child, nil, fuse.FOPEN_KEEP_CACHE, errno
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, syscall.S_IFDIR|mode&0o7777, "", out)
}

// Mknod makes sockets, among others.
func (n *node) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, mode, "", out)
}

func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, syscall.S_IFLNK|0o777, target, out)
}

func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) { return []byte(n.inode.target), 0 }

func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.change(); errno != 0 {
		return nil, errno
	}
	defer n.disk.mu.Unlock()
	i := target.(*node).inode
	n.disk.change(change{{dir: n.inode, name: name, is: i}})
	return n.child(ctx, i, out), 0
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno { return n.remove(name) }

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno { return n.remove(name) }

func (n *node) remove(name string) syscall.Errno {
	if errno := n.change(); errno != 0 {
		return errno
	}
	defer n.disk.mu.Unlock()
	i := n.inode.names[name]
	switch {
	case i == nil:
		return syscall.ENOENT
	case len(i.names) > 0:
		return syscall.ENOTEMPTY
	}
	n.disk.change(change{{dir: n.inode, name: name, was: i}})
	return 0
}

func (n *node) Rename(_ context.Context, from string, parent fs.InodeEmbedder, to string, flags uint32) syscall.Errno {
	const noReplace = 1
	if errno := n.change(); errno != 0 {
		return errno
	}
	defer n.disk.mu.Unlock()
	dir := parent.(*node).inode
	i, old := n.inode.names[from], dir.names[to]
	switch {
	case i == nil:
		return syscall.ENOENT
	case flags&^noReplace != 0:
		return syscall.EINVAL
	case flags == noReplace && old != nil:
		return syscall.EEXIST
	case old != nil && len(old.names) > 0:
		return syscall.ENOTEMPTY
	case i == old: // two names of one file
		return 0
	}
	n.disk.change(change{{dir: n.inode, name: from, was: i}, {dir: dir, name: to, was: old, is: i}})
	return 0
}

// Open says that the kernel need not ask: all is known by the inode. So the kernel also keeps
// what it has of the file. If it forgot that, it could read a page again whose write is still
// on its way here, and would keep the earlier content.
func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, 0, syscall.ENOSYS
}

// Flush is for close, where there is nothing to do, and the kernel need not ask.
func (n *node) Flush(context.Context, fs.FileHandle) syscall.Errno { return syscall.ENOSYS }

func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno := n.see(); errno != 0 {
		return nil, errno
	}
	defer n.disk.mu.Unlock()
	from := min(int(off), len(n.inode.data))
	return fuse.ReadResultData(dest[:copy(dest, n.inode.data[from:])]), 0
}

func (n *node) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	if errno := n.change(); errno != 0 {
		return 0, errno
	}
	defer n.disk.mu.Unlock()
	end := int(off) + len(data)
	n.disk.write(n.inode, write{data: slices.Clone(data), at: int(off), size: max(end, len(n.inode.data))})
	return uint32(len(data)), 0
}

// Allocate makes a file larger. Other ways to allocate are not supported, which
// programs must expect.
func (n *node) Allocate(_ context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	if mode != 0 {
		return syscall.EOPNOTSUPP
	}
	if errno := n.change(); errno != 0 {
		return errno
	}
	defer n.disk.mu.Unlock()
	if end := int(off + size); end > len(n.inode.data) {
		n.disk.write(n.inode, write{size: end})
	}
	return 0
}

// Fsync is fsync and fdatasync, of files and folders.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	if errno := n.change(); errno != 0 {
		return errno
	}
	defer n.disk.mu.Unlock()
	i := n.inode
	switch {
	case n.disk.lies:
	case i.names != nil:
		n.disk.flushNames(func(n name) bool { return n.dir == i })
	default:
		n.disk.flush(i)
		if n.disk.names {
			n.disk.flushNames(func(n name) bool { return n.is == i || n.was == i })
		}
	}
	return 0
}

// Statfs says that there is room.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	const blocks = 1 << 24
	*out = fuse.StatfsOut{Blocks: blocks, Bfree: blocks, Bavail: blocks, Files: blocks, Ffree: blocks, Bsize: 4096, Frsize: 4096, NameLen: 255}
	return 0
}
