package sqlite

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"example.com/storefront/internal/slots"
	sqlite3 "modernc.org/sqlite/lib"
)

// writers is a queue of those that write a file, of all processes. SQLite's own lock is not a queue: a waiter
// asks for it now and then, and the process that has just released it usually asks first. A process that
// writes all the time would keep the others waiting for seconds.
//
// The next writer holds the lock of a file beside the database until SQLite's lock is free. The kernel
// releases it when a process ends. If the next writer is frozen, others wait no longer than patience, once.
type writers struct {
	next  slots.Slots               // of the one that is next here, or waits for the file's lock
	file  *os.File                  // nil: of this process alone
	asked atomic.Pointer[time.Time] // since when this process waits for the file's lock, or nil
}

// patience is how long a writer waits until it is next, and then for SQLite's lock. It is longer than a
// quarter of the Timeout that stores have by default, which is as long as a shared commit may take.
const patience = 4 * time.Second

func newWriters(database string) *writers {
	return &writers{file: openQueue(database)}
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

// enter waits until the caller is next, for up to patience. The caller calls leave.
func (w *writers) enter(ctx context.Context) (leave func(), err error) {
	if asked := w.asked.Load(); asked != nil && time.Since(*asked) > patience {
		return func() {}, nil
	}
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if w.next.Acquire(patient) != nil {
		return func() {}, ctx.Err()
	}
	if w.file == nil || lock(w.file, false) {
		return w.leave, nil
	}
	w.asked.Store(new(time.Now()))
	locked := make(chan struct{})
	go func() {
		defer close(locked)
		lock(w.file, true)
		w.asked.Store(nil)
	}()
	select {
	case <-locked:
		return w.leave, nil
	case <-patient.Done():
	}
	go func() {
		<-locked
		w.leave()
	}()
	return func() {}, ctx.Err()
}

// leave lets the next one write.
func (w *writers) leave() {
	if w.file != nil {
		unlock(w.file)
	}
	w.next.Release()
}

// Close closes the file, which releases its lock, once no goroutine waits for that.
func (w *writers) Close() error {
	if w.file == nil {
		return nil
	}
	if w.next.TryAcquire() { // for ever
		return w.file.Close()
	}
	go func() {
		w.next.Acquire(context.Background())
		w.file.Close()
	}()
	return nil
}
