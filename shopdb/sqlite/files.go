package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	sqlite3 "modernc.org/sqlite/lib"

	"example.com/storefront"
)

// A database is three files. Whoever opens the first one finds the WAL, which alone has the last orders, by
// the name of the first one. So nobody may find it by a name beside which there is no WAL, or another one.

// find returns whether the database is new, and is going to be made: there is no file, which it makes, or an
// empty one. It returns an error if a database was there, or must be, or if others do not find its files.
func (f *sqliteFile) find() (isNew bool, err error) {
	if err := f.checkLink(); err != nil {
		return false, err
	}
	// Who makes a database makes the file first, so what is beside it is looked for first.
	left := ""
	for _, suffix := range []string{"-queue", "-shm", "-wal"} {
		if _, err := os.Lstat(f.path + suffix); err == nil {
			left = f.path + suffix
		}
	}
	info, err := os.Lstat(f.path)
	state := "is empty"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		state = "is not there"
	case err != nil || !info.Mode().IsRegular():
		return false, nil // SQLite says what is wrong
	default:
		if err := together(f.path, info); err != nil {
			return false, err
		}
		if info.Size() > 0 {
			return false, nil
		}
	}
	if left != "" { // SQLite would remove the WAL
		return false, fmt.Errorf("%s %s, but %s is left of a database: put the database back, or mount its "+
			"disk; to begin anew, without its orders, move what is left to another folder", f.path, state, left)
	}
	if f.mustExist {
		return false, fmt.Errorf("%s %s, and must exist: is its disk mounted, and is it the right folder?",
			f.path, state)
	}
	if info == nil {
		create(f.path)
	}
	return true, nil
}

// checkLink returns an error if the name is a symbolic link, and a WAL is beside the link: the file was moved
// without it.
func (f *sqliteFile) checkLink() error {
	info, err := os.Lstat(f.name)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	if _, err := os.Lstat(f.name + "-wal"); err != nil {
		return nil
	}
	return fmt.Errorf("%s is a symbolic link to %s, and %[1]s-wal, which has the last orders, is beside the link: "+
		"stop all programs that use it, by SIGTERM, then move all files of the database at once", f.name, f.path)
}

// checkAlone returns an error if another program has the file open, but what SQLite keeps beside an open file
// is not there: then that is elsewhere, beside another name of the file. While another program only looks,
// too, the error passes.
func (f *sqliteFile) checkAlone(ctx context.Context) error {
	isShared := func() bool {
		_, err := os.Lstat(f.path + "-shm")
		return err == nil
	}
	if isShared() {
		return nil
	}
	db := sql.OpenDB(f.alone)
	defer db.Close()
	db.SetMaxOpenConns(1)
	_, err := db.ExecContext(ctx, `BEGIN EXCLUSIVE; ROLLBACK`)
	if !hasCode(err, sqlite3.SQLITE_BUSY) || isShared() {
		return nil // of other errors, SQLite says what is wrong
	}
	return fmt.Errorf("%w: %s is open in another program by another name, beside which its WAL has the last "+
		"orders: move the file back, or end that program and move the WAL, too", storefront.ErrUnavailable, f.path)
}

// accessible returns why SQLite cannot open a file, or not write it, if the file system tells: SQLite says
// the same of all causes.
func accessible(file string) error {
	dir := filepath.Dir(file)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s: make it, or mount its disk", dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	}
	for _, path := range []string{file, file + "-wal", file + "-shm", dir} {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission): // of its folder
			continue
		case err == nil && path != dir && info.IsDir():
			err = fmt.Errorf("%s is a folder: name a file in it", path)
		case err == nil:
			err = mayWrite(path, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// create makes an empty file that only its owner can read, if there is none. SQLite would give a
// new file to everyone to read, and gives the mode of the file to those that it makes beside it.
// If it cannot be made, SQLite says why.
//
// It has one name from the beginning: see oneName. And another Open of this process may use the file as soon
// as it has its name. To close a descriptor of it then would release the locks that SQLite has.
func create(path string) {
	const mode = 0o600
	if err := makeFile(path, mode); err == nil || errors.Is(err, fs.ErrExist) {
		return
	}
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_EXCL|syscall.O_RDWR|syscall.O_CLOEXEC, mode)
	if err == nil && runtime.GOOS == "windows" { // where that releases no locks of others
		syscall.Close(fd)
	}
}

// together returns an error if others may find a file without those beside it.
func together(path string, info fs.FileInfo) error {
	if isMounted(path) {
		return fmt.Errorf("%s is a mount point: who opens the database elsewhere does not find all of its files, "+
			"and without the one beside it, the last orders are lost: mount the folder", path)
	}
	return oneName(path, info)
}

// oneName returns an error if a file has several names.
func oneName(path string, info fs.FileInfo) error {
	if _, links := statOf(info); links > 1 {
		return fmt.Errorf("%s has %d names (hard links), and who opens the database by another one does not see "+
			"the last orders: remove the others, which find -samefile lists; copy a database by VACUUM INTO",
			path, links)
	}
	return nil
}
