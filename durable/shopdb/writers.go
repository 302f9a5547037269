//go:build !nosqlite

package shopdb

import (
	"context"
	"os"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// A writers lets those who write a SQLite file go one after the other, also of several processes. SQLite's
// own lock is no queue: those who wait ask for it now and then, and it goes to who asks first, which is who
// has just released it. So a process that writes all the time kept the others waiting for seconds.
//
// Who is next has the lock of a file beside the database until SQLite's lock is free. The kernel releases it
// when a process ends. A process that is frozen while it is next costs the others patience for each write.
type writers struct {
	next chan struct{} // has room for the one of this process that is next, or waits for the file's lock
	file *os.File      // nil: of this process alone
}

// patience is how long a writer waits until it is next, and then for SQLite's lock. It is longer than a
// quarter of the Timeout that stores have by default, which is as long as a shared commit may take.
const patience = 4 * time.Second

func newWriters(database string) *writers {
	return &writers{make(chan struct{}, 1), openQueue(database)}
}

// write calls f, which asks for SQLite's lock and returns SQLITE_BUSY if it is not free. It calls it again
// until it is free, ctx is done, or patience is at its end.
func (w *writers) write(ctx context.Context, f func() error) error {
	leave, err := w.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for began := time.Now(); ; {
		err := f()
		if !hasCode(err, sqlite3.SQLITE_BUSY) || ctx.Err() != nil || time.Since(began) > patience {
			return err
		}
	}
}

// enter waits until the caller is next, for up to patience.
func (w *writers) enter(ctx context.Context) (leave func(), err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case w.next <- struct{}{}:
	case <-timer.C:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if w.file == nil {
		return func() { <-w.next }, nil
	}
	leave = func() {
		unlock(w.file)
		<-w.next
	}
	if lock(w.file, false) {
		return leave, nil
	}
	locked := make(chan struct{})
	go func() {
		defer close(locked)
		lock(w.file, true)
	}()
	select {
	case <-locked:
		return leave, nil
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	go func() {
		<-locked
		leave()
	}()
	return func() {}, err
}

// Close closes the file, which releases its lock.
func (w *writers) Close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}
