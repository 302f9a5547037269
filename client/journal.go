package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"example.com/storefront"
)

// A Journal keeps drafts in a folder until the program has seen what became of them. A draft is on
// the disk before its first try, and so is its order before the program gets it. A program that was
// killed goes on with [Journal.Resume].
//
// Several journals, of any number of processes, may use one folder: a draft is locked while it is
// sent, by a lock that ends with its process. The folder is on a file system with locks, which some
// network file systems have not, and of this machine alone.
//
// A draft that is in a journal is sent by journals alone. Each is a file, whose lines are JSON: the
// draft, and then its order. A Journal's methods may be called concurrently.
type Journal struct {
	client *Client
	dir    string
}

// OpenJournal returns the journal in a folder, which it makes if there is none. The orders are
// sent by client.
//
// On systems other than those like Unix, the error matches [errors.ErrUnsupported]: keep drafts in a
// database there.
func OpenJournal(dir string, client *Client) (*Journal, error) {
	if !canLock {
		return nil, fmt.Errorf("client: a journal needs file locks: %w", errors.ErrUnsupported)
	}
	dir, err := filepath.Abs(dir) // the working directory may change
	if err != nil {
		return nil, fmt.Errorf("client: journal: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("client: journal: %w", err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	return &Journal{client, dir}, nil
}

// An Entry is a draft of a journal and its order. [Journal.Resume] yields it locked: until the
// loop goes on, no other call or process has it.
type Entry struct {
	Draft *Draft
	Order storefront.Order // its ID is "" unless the order was created

	file *os.File
}

// Remove deletes the entry: the program has kept what it needs of the order, or wants the draft
// no more.
func (e *Entry) Remove() error {
	if err := os.Remove(e.file.Name()); err != nil {
		return fmt.Errorf("client: journal: %w", err)
	}
	return syncDir(filepath.Dir(e.file.Name()))
}

// Put keeps a draft, for [Journal.Resume] to send. When it returns nil, the draft is on the disk. A
// draft that is kept already stays as it is.
func (j *Journal) Put(ctx context.Context, draft *Draft) error {
	if err := draft.check(); err != nil {
		return err
	}
	e, err := j.wait(ctx, draft)
	if err != nil {
		return err
	}
	defer e.file.Close()
	if e.Draft != nil {
		return nil
	}
	return e.append(record{Draft: draft})
}

// Order keeps a draft, sends it as [Client.Order] does, and keeps its order. It waits while another
// call or process sends the same draft, and returns the order that is kept if there is one.
//
// Call [Journal.Remove] when the program has kept the order, or wants the draft no more. Otherwise
// Resume yields it again. An error that is none of Client.Order is one of the journal. If it comes
// without an order, nothing was sent; if it comes with one, the order was created, and only the
// journal does not have it.
func (j *Journal) Order(ctx context.Context, draft *Draft) (storefront.Order, error) {
	if err := draft.check(); err != nil {
		return storefront.Order{}, err
	}
	e, err := j.wait(ctx, draft)
	if err != nil {
		return storefront.Order{}, err
	}
	defer e.file.Close()
	if e.Draft == nil { // it is new
		draft.Begin()
		if err := e.append(record{Draft: draft}); err != nil {
			return storefront.Order{}, err
		}
		e.Draft = draft
	}
	err = j.send(ctx, e)
	return e.Order, err
}

// Remove deletes a draft and its order. It waits while another call or process sends the draft.
func (j *Journal) Remove(ctx context.Context, draft *Draft) error {
	e, err := j.wait(ctx, draft)
	if err != nil {
		return err
	}
	defer e.file.Close()
	return e.Remove()
}

// extension is that of the files.
const extension = ".jsonl"

// resumed is how many drafts Resume sends at a time, so that one that fails for long does not hold
// up the others.
const resumed = 16

// Resume sends every draft that is kept and that no other call or process sends, and yields each with
// its order, or the error of [Client.Order]. It also yields those whose orders are kept already.
// A program calls it when it starts, and again from time to time:
//
//	for entry, err := range journal.Resume(ctx) {
//		if err != nil {
//			log.Print(err) // a draft that is refused and not wanted any more can be removed, too
//			continue
//		}
//		… // keep entry.Order where the program needs it; it may come twice
//		err := entry.Remove()
//	}
//
// A draft that was tried before it was read from the journal, as by a program that was killed then, is
// never a [*RefusedError] again: if the service refuses it, each Resume yields an [*UnknownError] whose
// Refused says why, and after [Lifetime] an UnknownError without a try. So a program that wants such an
// order no more waits some minutes after its last try, asks the shop whether the order exists, and removes
// the entry.
//
// The loop may be left at any time. A file that is no entry is an error beside a nil Entry, and stays.
func (j *Journal) Resume(ctx context.Context) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		files, err := os.ReadDir(j.dir)
		if err != nil {
			yield(nil, fmt.Errorf("client: journal: %w", err))
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		results := make(chan result)
		var sending sync.WaitGroup
		defer sending.Wait()
		defer cancel() // the loop may end by a panic
		sending.Go(func() {
			defer close(results)
			j.resume(ctx, files, results)
		})
		for r := range results {
			if !r.yield(yield) {
				return
			}
		}
	}
}

// A result is what Resume yields.
type result struct {
	entry *Entry
	err   error
}

func (r result) yield(yield func(*Entry, error) bool) bool {
	if r.entry != nil {
		defer r.entry.file.Close()
	}
	return yield(r.entry, r.err)
}

// resume returns when all results were received, or ctx is done.
func (j *Journal) resume(ctx context.Context, files []fs.DirEntry, results chan<- result) {
	var sending sync.WaitGroup
	defer sending.Wait()
	places := make(chan struct{}, resumed)
	for _, file := range files {
		if filepath.Ext(file.Name()) != extension {
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		sending.Go(func() {
			defer func() { <-places }()
			entry, err := openEntry(filepath.Join(j.dir, file.Name()), 0)
			switch {
			case errors.Is(err, errBusy), errors.Is(err, fs.ErrNotExist):
				return // another has it
			case err == nil && entry.Draft == nil: // its program was killed before it was kept
				entry.Remove()
				entry.file.Close()
				return
			}
			defer func() {
				select {
				case results <- result{entry, err}:
				case <-ctx.Done():
					if entry != nil {
						entry.file.Close()
					}
				}
			}()
			if err == nil {
				err = errNoReturn
				defer func() {
					if v := recover(); v != nil || err == errNoReturn {
						err = fmt.Errorf("client: the draft was not sent to its end: %w", didNotReturn(v))
					}
				}()
				err = j.send(ctx, entry)
			}
		})
	}
}

var errNoReturn = errors.New("what the program has given to the client ended its goroutine")

// didNotReturn returns the error for a function of the program's, such as the Transport, that has
// panicked with v or, if v is nil, ended its goroutine, which is none of the program's.
func didNotReturn(v any) error {
	switch v := v.(type) {
	case nil:
		return fmt.Errorf("%w\n\n%s", errNoReturn, debug.Stack())
	case error:
		return fmt.Errorf("panic: %w\n\n%s", v, debug.Stack())
	default:
		return fmt.Errorf("panic: %v\n\n%s", v, debug.Stack())
	}
}

// send sends the entry's draft, unless its order is kept, and keeps the order.
func (j *Journal) send(ctx context.Context, e *Entry) error {
	if e.Order.ID != "" {
		return nil
	}
	if e.Draft.Begin() { // it has waited here until now
		if err := e.append(record{Draft: e.Draft}); err != nil {
			return err
		}
	}
	order, err := j.client.Order(ctx, e.Draft)
	if err != nil {
		return err
	}
	e.Order = order
	return e.append(record{Order: &order})
}

// wait opens the entry of a draft when no other has it.
func (j *Journal) wait(ctx context.Context, draft *Draft) (*Entry, error) {
	// Keys may differ in case alone, and file names may not.
	sum := sha256.Sum256([]byte(draft.key))
	name := base32.HexEncoding.EncodeToString(sum[:20]) + extension
	var pauses pauses
	for {
		e, err := openEntry(filepath.Join(j.dir, name), os.O_CREATE)
		if err == nil && e.Draft != nil && (e.Draft.item != draft.item || e.Draft.qty != draft.qty) {
			e.file.Close()
			return nil, errors.New("client: the journal has another order with the key of the draft")
		}
		if !errors.Is(err, errBusy) {
			return e, err
		}
		pauses.limit = min(pauses.limit, time.Second/4)
		if pauses.wait(ctx, 0, 0) != nil {
			return nil, fmt.Errorf("client: another call or process sends the draft: %w", done(ctx))
		}
	}
}

// errBusy is why an entry is not opened that another has locked.
var errBusy = errors.New("client: the draft is being sent")

// openEntry opens and locks a file. Its Draft is nil if it has none yet.
func openEntry(path string, flag int) (*Entry, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|flag, 0o600)
		if err != nil {
			return nil, fmt.Errorf("client: journal: %w", err)
		}
		if err := lock(f); err != nil {
			f.Close()
			return nil, err
		}
		// Until the lock was there, another may have removed the file.
		if gone, err := isGone(f); gone || err != nil {
			f.Close()
			if err != nil {
				return nil, fmt.Errorf("client: journal: %w", err)
			}
			continue
		}
		e := &Entry{file: f}
		if err := e.read(); err != nil {
			f.Close()
			return nil, err
		}
		return e, nil
	}
}

// isGone reports whether the file is not in the folder any more.
func isGone(f *os.File) (bool, error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Stat(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && !os.SameFile(own, now), err
}

// A record is a line of a file. The last of each kind counts.
type record struct {
	Draft *Draft            `json:"draft,omitempty"`
	Order *storefront.Order `json:"order,omitempty"`
}

// read reads the file. What follows the last end of a line was never acknowledged: its program was
// killed, or the disk was full.
func (e *Entry) read() error {
	data, err := io.ReadAll(e.file)
	if err != nil {
		return fmt.Errorf("client: journal: %w", err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	for line := range bytes.Lines(whole) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil || r.Draft == nil && r.Order == nil {
			return fmt.Errorf("client: journal: %s is no entry: %q", e.file.Name(), line[:min(len(line), 80)])
		}
		if r.Draft != nil {
			e.Draft = r.Draft
		}
		if r.Order != nil {
			e.Order = *r.Order
		}
	}
	if len(whole) == len(data) {
		return nil
	}
	if err := e.file.Truncate(int64(len(whole))); err != nil {
		return fmt.Errorf("client: journal: %w", err)
	}
	return nil
}

// append writes a line, and returns when it is on the disk. A new file is then in its folder, too.
func (e *Entry) append(r record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("client: journal: %w", err)
	}
	size, err := e.file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = e.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = e.file.Sync()
	}
	if err != nil {
		e.file.Truncate(size) // what nobody may count on
		return fmt.Errorf("client: journal: %w", err)
	}
	if size > 0 {
		return nil
	}
	return syncDir(filepath.Dir(e.file.Name()))
}

// syncDir returns when the names in a folder are on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("client: journal: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("client: journal: %w", err)
	}
	return nil
}
