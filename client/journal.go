package client

import (
	"bytes"
	"cmp"
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
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/elapsed"
	"example.com/storefront/internal/ijson"
)

// A Journal keeps drafts in a folder until the program has seen what became of them. A draft is on
// the disk before its first try, and so is its order before the program gets it. A program that was
// killed goes on with [Journal.Resume].
//
// Several journals, of any number of processes, may use one folder: a draft is locked while it is
// sent, by a lock that ends with its process. The folder is on a file system with locks, which some
// network file systems have not, and of this machine alone. If it is moved or replaced while a draft is
// being sent, no more tries are sent.
//
// A draft belongs to the shop and the account (Options.Account) of the journal's client. Journals whose
// client has another one may use the same folder: they neither send, yield nor remove it.
//
// A draft that is in a journal is sent by journals alone. Each is a file, whose lines are JSON: the
// draft, and then what became of it; see docs/formats.md. Do not restore a folder from a backup: it may have
// drafts that were sent since, as if they had not been. A Journal's methods may be called concurrently.
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
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = syncDir(filepath.Dir(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("client: journal: %w", err)
	}
	return &Journal{client, dir}, nil
}

// An Entry is a draft of a journal and its order. [Journal.Resume] yields it locked: until the
// loop goes on, no other call or process has it.
type Entry struct {
	Draft *Draft
	Order storefront.Order // its ID is "" unless the order was created

	file    *os.File
	waits   bool                // the draft has never been sent
	refused *storefront.Problem // nil: no try has been, or may have created the order
}

// Remove deletes the entry: the program has kept what it needs of the order, or wants the draft
// no more. When the loop has gone on, the entry may be another's: then Remove returns an error, and
// [Journal.Remove] removes the draft.
func (e *Entry) Remove() error {
	err := e.held()
	if errors.Is(err, os.ErrClosed) {
		err = errors.New("the loop has gone on, and others may send the draft: use Journal.Remove")
	}
	if err == nil {
		err = os.Remove(e.file.Name())
	}
	if err == nil {
		err = syncDir(filepath.Dir(e.file.Name()))
	}
	if err != nil {
		return fmt.Errorf("client: journal: %w", err)
	}
	return nil
}

// Put keeps a draft, for [Journal.Resume] to send. When it returns nil, the draft is on the disk. A
// draft that is kept already stays as it is.
func (j *Journal) Put(ctx context.Context, draft *Draft) error {
	e, err := j.take(ctx, draft, false)
	if err == nil {
		e.file.Close()
	}
	return err
}

// take returns the entry of a draft. A new one has the draft first, to be sent now or later.
func (j *Journal) take(ctx context.Context, draft *Draft, now bool) (*Entry, error) {
	if err := draft.check(); err != nil {
		return nil, err
	}
	e, err := j.wait(ctx, draft)
	if err != nil || e.Draft != nil {
		return e, err
	}
	text, err := draft.enter(j.dir, now)
	if err != nil {
		e.file.Close()
		return nil, fmt.Errorf("client: journal: %w", err)
	}
	c := j.client
	if err := e.append(firstRecord{formatVersion, c.shop, &c.opts.Account, record{Draft: text}}); err != nil {
		e.file.Close()
		draft.left(j.dir)
		return nil, err
	}
	e.Draft = draft
	return e, nil
}

// Order keeps a draft, sends it as [Client.Order] does, and keeps its order. It waits while another
// call or process sends the same draft, and returns the order that is kept if there is one. A draft that was
// refused is sent anew.
//
// In the loop of Resume, call [Entry.Remove]: Order, Put and [Journal.Remove] return an error for entry.Draft
// there, and for another Draft of its key they wait until ctx is done.
//
// Call [Journal.Remove] when the program has kept the order, or wants the draft no more. Otherwise
// Resume yields it again. An error that is none of Client.Order is one of the journal. If it comes
// without an order, nothing was sent; if it comes with one, the order was created, and only the
// journal does not have it.
func (j *Journal) Order(ctx context.Context, draft *Draft) (storefront.Order, error) {
	e, err := j.take(ctx, draft, true)
	if err != nil {
		return storefront.Order{}, err
	}
	defer e.file.Close()
	err = j.send(ctx, e, false)
	return e.Order, err
}

// Remove deletes a draft and its order. It waits while another call or process sends the draft.
func (j *Journal) Remove(ctx context.Context, draft *Draft) error {
	e, err := j.wait(ctx, draft)
	if err != nil {
		return err
	}
	defer e.file.Close()
	if err := e.Remove(); err != nil {
		return err
	}
	draft.left(j.dir)
	return nil
}

// extension is that of the files. A file with it that has another name is none of the journal's.
const extension = ".jsonl"

// fileName returns the name of a draft's file. Keys may differ in case alone, and file names may not.
func fileName(draft *Draft) string {
	sum := sha256.Sum256([]byte(draft.key))
	return base32.HexEncoding.EncodeToString(sum[:20]) + extension
}

// resumed is how many drafts Resume sends at a time.
const resumed = 16

// Resume sends every draft that is kept and that no other call or process sends, and yields each with
// its order, or the error of [Client.Order]. It also yields those whose orders are kept already. An
// [*UnknownError] that says that a draft is too old, or that a clock was wrong, comes each time: ask the shop
// whether the order exists (see [Client.GetOrderByKey]), and then remove the entry.
//
// Each draft has its turn: it is tried once, first the one whose last try is the longest ago, and those
// without a final answer again when the others have been tried, for Options.Patience in all. So one that
// fails holds up no other, however soon ctx is done each time. Then Resume ends, and the rest stays.
//
// A program calls it when it starts, and again from time to time. The loop goes on for as long as one of the
// drafts fails, so it is in a goroutine of its own, or ctx ends soon:
//
//	ctx, cancel := context.WithTimeout(ctx, time.Minute)
//	defer cancel()
//	for entry, err := range journal.Resume(ctx) {
//		if err != nil {
//			log.Print(err) // a draft that is refused and not wanted any more can be removed, too
//			continue
//		}
//		… // keep entry.Order where the program needs it; it may come twice
//		err := entry.Remove()
//	}
//
// A draft that was refused, so that no try can have created its order, is yielded as that [*RefusedError]
// and not sent: Order sends it anew, behind the loop. If one is refused of which an earlier try may still be
// on its way, as from a program that was killed then, each Resume sends it and yields an [*UnknownError]
// whose Refused says why, and after [Lifetime] an UnknownError without a try. So a program that wants such
// an order no more asks the shop whether the order exists, as [Client.GetOrderByKey] says, and removes
// the entry.
//
// The loop may be left at any time. What has the name of an entry, or .jsonl at its end, and is none, or one
// that a later release wrote, is an error beside a nil Entry, and stays.
func (j *Journal) Resume(ctx context.Context) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		drafts, err := j.drafts()
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
			j.resume(ctx, drafts, results)
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
	if e := r.entry; e != nil {
		e.Draft.yielded.Store(true)
		defer e.Draft.yielded.Store(false)
		defer e.file.Close()
	}
	return yield(r.entry, r.err)
}

// A kept draft is one that Resume sends.
type kept struct {
	path    string
	regular bool      // it is a file
	tried   time.Time // when it was looked at last; zero: nobody knows
	due     time.Time // when it may be tried again
	over    bool      // it is not tried again
	draft   *Draft    // it was sent by this call, which knows its age by a clock that is not set; or nil
}

// drafts returns what may be drafts, that of the longest wait first.
func (j *Journal) drafts() ([]*kept, error) {
	files, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, err
	}
	var drafts []*kept
	for _, file := range files {
		info, err := file.Info()
		if filepath.Ext(file.Name()) != extension || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		// If err is another one, open says what is wrong.
		k := &kept{path: filepath.Join(j.dir, file.Name()), regular: err != nil || info.Mode().IsRegular()}
		if err == nil && !info.ModTime().After(time.Now()) { // else a clock was wrong
			k.tried = info.ModTime()
		}
		drafts = append(drafts, k)
	}
	slices.SortStableFunc(drafts, func(a, b *kept) int { return a.tried.Compare(b.tried) })
	return drafts, nil
}

// resume sends the drafts in rounds. It returns when all results were received, or ctx is done.
func (j *Journal) resume(ctx context.Context, drafts []*kept, results chan<- result) {
	began := time.Now()
	places := make(chan struct{}, resumed)
	var pauses pauses
	for len(drafts) > 0 && ctx.Err() == nil {
		last := elapsed.Since(began) >= j.client.opts.Patience
		var sending sync.WaitGroup
		for _, k := range drafts {
			if !last && time.Now().Before(k.due) {
				continue
			}
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				sending.Wait()
				return
			}
			sending.Go(func() {
				defer func() { <-places }()
				j.try(ctx, k, last, results)
			})
		}
		sending.Wait()
		drafts = slices.DeleteFunc(drafts, func(k *kept) bool { return k.over })
		if len(drafts) > 0 {
			pauses.wait(ctx, 0, 0)
		}
	}
}

// try sends a draft once, and what came of it to results, unless it may be tried again.
func (j *Journal) try(ctx context.Context, k *kept, last bool, results chan<- result) {
	k.over = true
	entry, err := j.open(k)
	if entry == nil && err == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil { // nobody else could, here
			err = fmt.Errorf("client: the draft was not sent to its end: panic: %v\n\n%s", v, debug.Stack())
		}
		if unknown, ok := errors.AsType[*UnknownError](err); ok && unknown.again && !last {
			entry.file.Close()
			k.due, k.draft, k.over = time.Now().Add(unknown.after), entry.Draft, false
			return
		}
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
		err = j.send(ctx, entry, true)
	}
}

// errNoReturn is of a goroutine that ends in what the program has given to the client, such as a Transport.
var errNoReturn = errors.New("client: the draft was not sent to its end: the goroutine has ended")

// open returns no entry and no error if there is nothing to send.
func (j *Journal) open(k *kept) (*Entry, error) {
	sum, err := base32.HexEncoding.DecodeString(strings.TrimSuffix(filepath.Base(k.path), extension))
	if err != nil || len(sum) != 20 || !k.regular {
		return nil, fmt.Errorf("client: journal: %s is no entry", k.path)
	}
	e, err := j.openEntry(k.path, 0)
	switch {
	case errors.Is(err, errBusy), errors.Is(err, fs.ErrNotExist), errors.Is(err, errOthers):
		return nil, nil // another has it
	case err != nil:
		return nil, err
	case e.Draft == nil: // its program was killed before it was kept
		e.Remove()
		e.file.Close()
		return nil, nil
	}
	if k.draft != nil && e.Draft.begun.Equal(never) {
		e.Draft = k.draft
	}
	return e, nil
}

// send sends the entry's draft, unless its order is kept, and keeps what becomes of it. With once, it is sent
// once at most, and not if it was refused.
func (j *Journal) send(ctx context.Context, e *Entry, once bool) error {
	final := e.Order.ID != "" || e.refused != nil && (once || e.Draft.unsendable() != nil)
	if !final && (e.refused != nil || e.waits) {
		begun := e.Draft.begun
		if e.waits {
			if err := clockBehind(); err != nil {
				return &UnknownError{Err: err, Draft: e.Draft}
			}
			begun = time.Now()
			if e.Draft.made.After(begun) { // by a clock that was ahead, which matters no more
				e.Draft.made = begun
			}
		}
		text, _ := e.Draft.text(begun) // has no errors
		if err := e.append(record{Draft: text}); err != nil {
			return err
		}
		e.Draft.begun, e.Draft.journal = begun, ""
	}
	os.Chtimes(e.file.Name(), time.Time{}, time.Now()) // others come first the next time
	switch {
	case e.Order.ID != "":
		return nil
	case final:
		return &RefusedError{Problem: *e.refused, Draft: e.Draft}
	}
	order, err := j.client.order(ctx, e.Draft, once, e.held, func(text []byte) error {
		return e.append(record{Draft: text})
	})
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		if err := e.append(record{Refused: &refused.Problem}); err != nil {
			return errors.Join(refused, err)
		}
	}
	if err != nil {
		return err
	}
	e.Order = order
	return e.append(record{Order: &order})
}

// wait opens the entry of a draft when no other has it.
func (j *Journal) wait(ctx context.Context, draft *Draft) (*Entry, error) {
	if draft.yielded.Load() {
		return nil, errors.New("client: journal: the loop of Resume has the draft until it goes on: use " +
			"Entry.Remove, or the journal behind the loop")
	}
	path := filepath.Join(j.dir, fileName(draft))
	var pauses pauses
	for {
		e, err := j.openEntry(path, os.O_CREATE)
		if err == nil && e.Draft != nil && e.Draft.body != draft.body {
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

var (
	// errBusy is why an entry is not opened that another has locked.
	errBusy   = errors.New("client: the draft is being sent")
	errOthers = errors.New("the draft is another shop's or another account's")
)

// openEntry opens and locks a file. Its Draft is nil if it has none yet.
func (j *Journal) openEntry(path string, flag int) (*Entry, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|flag, 0o600)
		if err != nil {
			return nil, fmt.Errorf("client: journal: %w", err)
		}
		if err := lock(f); err != nil {
			f.Close()
			return nil, err
		}
		e := &Entry{file: f}
		// Until the lock was there, another may have removed the file.
		if err = e.held(); err == nil {
			err = j.read(e)
		}
		if err == nil && e.Draft != nil { // who wrote it may have been killed before it was on the disk
			err = cmp.Or(fsync(f), syncDir(j.dir))
		}
		if err == nil {
			return e, nil
		}
		f.Close()
		if !errors.Is(err, errReplaced) {
			return nil, fmt.Errorf("client: journal: %w", err)
		}
	}
}

var errReplaced = errors.New("the file of the draft was removed or replaced while it was open")

// held returns an error unless the file is that in the folder. If it was removed, or the folder moved,
// its lock tells others nothing.
func (e *Entry) held() error {
	own, err := e.file.Stat()
	if err != nil {
		return err
	}
	now, err := os.Lstat(e.file.Name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errReplaced
	case err != nil:
		return err
	case !now.Mode().IsRegular() || now.Size() > longestEntry:
		return fmt.Errorf("%s is no entry", e.file.Name())
	case !os.SameFile(own, now):
		return errReplaced
	}
	return nil
}

// longestEntry is how many bytes a file has at most. A longer one is of others.
const longestEntry = 16 << 20

// A record is a line of a file. The last draft and the last order count, and a refusal that no draft follows.
type record struct {
	Draft   json.RawMessage     `json:"draft,omitempty"`
	Order   *storefront.Order   `json:"order,omitempty"`
	Refused *storefront.Problem `json:"refused,omitempty"`
}

// A firstRecord is the first line, which says whose the draft is.
type firstRecord struct {
	Version int     `json:"version"`
	Shop    string  `json:"shop"`
	Account *string `json:"account"`
	record
}

// read reads the file, unless it is another shop's or account's. What follows the last end of a line was
// never acknowledged: its program was killed, or the disk was full.
func (j *Journal) read(e *Entry) error {
	data, err := io.ReadAll(e.file)
	if err != nil {
		return err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	for line := range bytes.Lines(whole) {
		r, err := j.parse(line, e.Draft == nil)
		if err == nil {
			err = e.add(r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.file.Name(), err)
		}
	}
	if len(whole) > 0 && fileName(e.Draft) != filepath.Base(e.file.Name()) {
		return fmt.Errorf("%s is no entry of its name", e.file.Name())
	}
	if len(whole) == len(data) {
		return nil
	}
	return e.file.Truncate(int64(len(whole)))
}

// parse reads a line. A first one of another shop or account is errOthers.
func (j *Journal) parse(line []byte, first bool) (record, error) {
	var r firstRecord
	err := json.Unmarshal(line, &r)
	var as any = &r.record
	if first {
		as = &r
		switch {
		case r.Version > formatVersion:
			return record{}, fmt.Errorf("the entry has version %d: %w", r.Version, errLater)
		case err == nil && r.Version == 0:
			return record{}, fmt.Errorf("this is no entry: %w", errNoVersion)
		case err != nil || r.Version < 0 || r.Shop == "" || r.Account == nil || r.Draft == nil:
			return record{}, errors.New("this is no entry")
		case r.Shop != j.client.shop || *r.Account != j.client.opts.Account:
			return record{}, errOthers
		}
	}
	if err != nil {
		return record{}, fmt.Errorf("this is no entry: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(as); err != nil {
		return record{}, fmt.Errorf("%w: %w", err, errLater)
	}
	return r.record, nil
}

// add notes what a line has.
func (e *Entry) add(r record) error {
	if r.Draft != nil {
		d, err := parseDraft(r.Draft)
		if err != nil {
			return fmt.Errorf("no draft: %w", err)
		}
		e.Draft, e.waits, e.refused = d, d.begun.IsZero(), nil
		if e.waits {
			d.journal = filepath.Dir(e.file.Name())
		} else {
			d.open = 1 // nobody knows
		}
	}
	if r.Refused != nil {
		e.Draft.open, e.refused = 0, r.Refused
	}
	if r.Order != nil {
		e.Order = *r.Order
	}
	if r.Draft == nil && r.Refused == nil && r.Order == nil {
		return errors.New("this is no entry")
	}
	return nil
}

// append writes a line, and returns when it is on the disk, in a file that others see. A new file is then
// in its folder, too.
func (e *Entry) append(r any) error {
	line, err := ijson.Marshal(r)
	if err != nil {
		return fmt.Errorf("client: journal: %w", err)
	}
	size, err := e.file.Seek(0, io.SeekEnd)
	if err == nil && size+int64(len(line)) >= longestEntry {
		err = errors.New("the entry is too long")
	}
	if err == nil {
		_, err = e.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = fsync(e.file)
	}
	if err == nil && size == 0 {
		err = syncDir(filepath.Dir(e.file.Name()))
	}
	if err == nil {
		err = e.held()
	}
	if err != nil {
		e.file.Truncate(size) // what nobody may count on
		return fmt.Errorf("client: journal: %w", err)
	}
	return nil
}

// syncDir returns when the names in a folder are on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return fsync(d)
}

// fsync returns when a file is on the disk. Tests set it.
var fsync = (*os.File).Sync
