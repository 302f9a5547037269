// Package volatilefs gives tests a disk that can lose its power. It is a file system in the
// test binary's memory, which Linux mounts by FUSE, and so hears of all that programs write
// and flush.
//
// # What survives
//
// fsync and fdatasync of a file, and writes with O_SYNC or O_DSYNC, put its data and its size
// on the disk; fsync of a folder does so with the names in it: files made, linked, renamed and
// deleted. That is all that fsync(2) promises, which says of the name of a new file that it
// takes an fsync of the folder. O_DIRECT passes by the cache of the kernel, and flushes nothing.
//
// Of the rest, when the power fails, nothing survives, or a random part, as if some of it had
// been written in the background:
//
//   - Each sector of a file, of 512 bytes, has any content that it has had since it was
//     flushed, so a write may be torn between two sectors, and not within one. SQLite,
//     PostgreSQL and InnoDB rely on as much.
//   - A file has any size that it has had since then. Sectors within it that have not reached
//     the disk are zeros. Once a truncation has reached the disk, nothing that was behind the
//     new end comes back.
//   - Names change in any sequence, apart from the content of files: a file that was made and
//     renamed may be there, and empty. But a call changes names as a whole, so a rename loses
//     no file, and of the calls on one name or one file, the first ones survive.
//
// That is less than ext4 and XFS keep, whose journals have an order for all names. Btrfs has no
// such order between files: see "All File Systems Are Not Created Equal" (Pillai et al., OSDI
// 2014), which lists what each keeps. All three keep the names of a file that is flushed, which
// fsync(2) does not promise. MySQL relies on it for a new binary log, which its index names, and
// does not start without it: KeepNames is for that. Modes and owners survive always.
package volatilefs
