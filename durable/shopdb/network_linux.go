//go:build !nosqlite

package shopdb

import "syscall"

// networkSystems names the file systems by statfs(2) that other machines may change, or that have
// their own ideas of locks.
var networkSystems = map[uint32]string{
	0x00006969: "NFS", 0x0000517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9p",
	0x65735546: "FUSE", 0x5346414f: "AFS", 0x6b414653: "AFS", 0x00c36400: "Ceph", 0x73757245: "Coda",
	0x0000564c: "NCP", 0x0bd00bd0: "Lustre", 0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x47504653: "GPFS",
	0x786f4256: "vboxsf",
}

// networkOf returns the name of the file system of a folder if it is one of networkSystems.
func networkOf(dir string) string {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return ""
	}
	return networkSystems[uint32(s.Type)]
}
