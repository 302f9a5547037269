package sqlite

import (
	"fmt"
	"io/fs"
	"iter"
	"os"
	"regexp"
	"strings"
	"syscall"
)

const (
	ofNetwork = "the SQLite file is on a network file system, where locks may not hold, and orders may be " +
		"lost or made twice: put it on a local disk"
	ofMemory = "the SQLite file is in memory, and its orders are lost when the machine stops: put it on a disk"
	ofLayer  = "the SQLite file is in a layer, such as that of a container, with which its orders are lost: " +
		"mount a volume for its folder"
	ofContainer = "the SQLite file is in a volume without a name, and another container begins a new shop: mount " +
		"a folder, or a volume that has a name"
)

// systems names the file systems by statfs(2) that other machines may change, that have their own ideas of
// locks, or that do not last, and what to warn of.
var systems = map[uint32]struct{ name, warning string }{
	0x00006969: {"NFS", ofNetwork}, 0x0000517b: {"SMB", ofNetwork}, 0xff534d42: {"CIFS", ofNetwork},
	0xfe534d42: {"SMB2", ofNetwork}, 0x01021997: {"9p", ofNetwork}, 0x65735546: {"FUSE", ofNetwork},
	0x5346414f: {"AFS", ofNetwork}, 0x6b414653: {"AFS", ofNetwork}, 0x00c36400: {"Ceph", ofNetwork},
	0x73757245: {"Coda", ofNetwork}, 0x0000564c: {"NCP", ofNetwork}, 0x0bd00bd0: {"Lustre", ofNetwork},
	0x01161970: {"GFS2", ofNetwork}, 0x7461636f: {"OCFS2", ofNetwork}, 0x47504653: {"GPFS", ofNetwork},
	0x786f4256: {"vboxsf", ofNetwork},
	0x01021994: {"tmpfs", ofMemory}, 0x858458f6: {"ramfs", ofMemory},
	0x794c7630: {"overlay", ofLayer}, 0x61756673: {"aufs", ofLayer},
}

// warningOf returns the name of the file system of a folder, and what to warn of if it is one of systems.
func warningOf(dir string) (system, warning string) {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return "", ""
	}
	if found := systems[uint32(s.Type)]; found.warning != "" {
		return found.name, found.warning
	}
	source, longest := "", -1
	for point, from := range mounts() {
		below := point == "/" || dir == point || strings.HasPrefix(dir, point+"/")
		if below && len(point) >= longest {
			source, longest = from, len(point)
		}
	}
	if ofOneContainer.MatchString(source) {
		return source, ofContainer
	}
	return "", ""
}

// ofOneContainer matches where volumes come from that docker, podman or containerd, which has no _data, has made
// for one container, as the image asks for one and whoever runs it names none, or Kubernetes for one pod.
var ofOneContainer = regexp.MustCompile(
	`/volumes/(?:.*/)?[0-9a-f]{64}(?:/_data)?$|/volumes/kubernetes\.io~empty-dir/`)

// isMounted reports whether a file, and not the folder that it is in, is a mount point.
func isMounted(path string) bool {
	for point := range mounts() {
		if point == path {
			return true
		}
	}
	return false
}

// mounts has the mount points, in their sequence, and the path of each in the file system that is mounted.
func mounts() iter.Seq2[string, string] {
	return func(yield func(point, source string) bool) {
		text, _ := os.ReadFile("/proc/self/mountinfo")
		for line := range strings.Lines(string(text)) {
			// proc_pid_mountinfo(5): the fifth and the fourth field, in which these are escaped.
			fields := strings.Fields(line)
			if len(fields) > 4 && !yield(unescape.Replace(fields[4]), unescape.Replace(fields[3])) {
				return
			}
		}
	}
}

var unescape = strings.NewReplacer(`\011`, "\t", `\012`, "\n", `\040`, " ", `\043`, "#", `\134`, `\`)

// mayWrite returns an error if the user of this program may not read and write a file or folder.
func mayWrite(path string, info fs.FileInfo) error {
	const (
		cwd       = -100  // AT_FDCWD
		effective = 0x200 // AT_EACCESS: not by the real user
	)
	mode := uint32(6) // R_OK and W_OK
	if info.IsDir() {
		mode |= 1 // X_OK
	}
	err := syscall.Faccessat(cwd, path, mode, effective)
	if err == syscall.EACCES {
		err = fmt.Errorf("the program may not read and write it: it belongs to user %d, with the mode %v: "+
			"chown or chmod it", info.Sys().(*syscall.Stat_t).Uid, info.Mode())
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return err
}

// makeFile makes an empty file, without a descriptor.
func makeFile(path string, mode uint32) error { return syscall.Mknod(path, syscall.S_IFREG|mode, 0) }
