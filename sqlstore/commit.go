package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/bits"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// maxShared is how many orders share a commit at most.
const maxShared = 64

// A queue is of orders that arrived while as many commits as are worth it were under
// way. The next commit takes them all. So an order that arrives alone goes at once,
// no order waits for a timer, and the more there are, the less each costs.
type queue struct {
	mu         sync.Mutex
	waiting    []*turn
	committers int // goroutines that commit
}

// A turn is a try to create an order in a commit.
type turn struct {
	*proposal
	values   values        // of the caller's ctx
	deadline time.Time     // the caller's
	settled  chan struct{} // closed when the following is known

	created bool // if not, and err is nil, the key is taken
	err     error
	again   bool // another order may be to blame for err
	ended   bool // Accept has ended the transaction: err says so
}

// A values has the values of a ctx, not its cancellation, and until the method that
// was given the ctx returns: a Store does not use it any longer.
type values struct {
	context.Context // context.Background()

	mu sync.RWMutex
	of context.Context // nil from then on
}

func (v *values) Value(key any) any {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.of == nil {
		return nil
	}
	return v.of.Value(key)
}

// left reports whether the method has returned.
func (v *values) left() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.of == nil
}

func (v *values) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of = nil
}

// create tries to create the order. If it returns false without an error, the key
// is taken.
func (s *Store) create(ctx context.Context, p *proposal) (created bool, err error) {
	e, err := s.known(ctx, p.watch)
	if err != nil {
		return false, err
	}
	for {
		t := &turn{proposal: p, values: values{Context: context.Background(), of: ctx}, settled: make(chan struct{})}
		defer t.values.leave()
		t.deadline, _ = ctx.Deadline()
		if e.oneWriter || s.opts.Accept == nil && !p.alone {
			if s.enqueue(e, t) {
				s.commitOwn(ctx, e, t)
			}
			select {
			case <-t.settled:
			case <-ctx.Done():
				// A commit that is under way goes on, for the sake of the others.
				s.queue.leave(t)
				return false, ctx.Err()
			}
		} else {
			err := s.with(ctx, p.watch, func(ctx context.Context, c session) error { return s.commit(ctx, c, []*turn{t}) })
			if err != nil {
				t.created, t.err = false, err
			}
		}
		if t.again {
			p.alone = true // outside of the queue, for all the time that the call has
			if !transient(t.err) {
				continue
			}
		}
		if stopped, ok := t.err.(*stopped); ok {
			panic(stopped)
		}
		return t.created, t.err
	}
}

// enqueue has a committer settle t. If it returns true, that is to be the caller, who
// has nothing to wait for.
func (s *Store) enqueue(e *engine, t *turn) bool {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	begins := q.committers < e.commits
	if begins {
		q.committers++
	}
	// A statement in SQLite is not to end with ctx (see createIn), but the call is.
	if begins && !e.oneWriter {
		return true
	}
	q.waiting = append(q.waiting, t)
	if begins {
		go s.commitWaiting(e)
	}
	return false
}

// commitOwn settles t, and leaves what waits by then to another committer.
func (s *Store) commitOwn(ctx context.Context, e *engine, t *turn) {
	if s.settle(ctx, e, []*turn{t}) {
		s.giveWay(e)
	}
}

// giveWay has another committer in the place of one that ends or takes too long, if
// something waits.
func (s *Store) giveWay(e *engine) {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if len(s.queue.waiting) > 0 {
		go s.commitWaiting(e)
	} else {
		s.queue.committers--
	}
}

// leave takes t out of the queue, unless its commit has begun.
func (q *queue) leave(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, t); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// take returns the turns of the next commit. If there are none, the committer ends.
func (q *queue) take(e *engine) []*turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.IndexFunc(q.waiting, func(t *turn) bool { return t.alone })
	switch {
	case len(q.waiting) == 0:
		q.committers--
		return nil
	case n == 0:
		n = 1
	case n < 0:
		n = len(q.waiting)
	}
	n = min(n, maxShared)
	if !e.oneWriter {
		// For a driver that keeps statements prepared, by their text.
		n = 1 << (bits.Len(uint(n)) - 1)
	}
	turns := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return turns
}

// commitWaiting commits what waits until nothing does.
func (s *Store) commitWaiting(e *engine) {
	done := false
	defer func() {
		if !done { // Accept has ended the goroutine
			go s.commitWaiting(e)
		}
	}()
	for turns := s.queue.take(e); turns != nil; turns = s.queue.take(e) {
		ctx, cancel := context.Background(), func() {}
		if !e.oneWriter {
			ctx, cancel = context.WithTimeout(ctx, s.opts.Timeout)
		}
		inPlace := s.settle(ctx, e, turns)
		cancel()
		if !inPlace {
			break
		}
	}
	done = true
}

// settle commits turns and tells their callers. Whatever happens, it tells them. It
// reports whether the committer still has its place, and has not given way.
//
// A commit that takes a quarter of the time that calls have gives way to another, so
// that neither a lock on one of its keys nor a server that hangs holds up all that
// waits. If it is shared, it ends then, and each of its orders goes alone.
func (s *Store) settle(ctx context.Context, e *engine, turns []*turn) (inPlace bool) {
	inPlace = true
	var err error = &stopped{value: "runtime.Goexit"}
	sent := false
	defer func() {
		if value := recover(); value != nil {
			err = &stopped{value, debug.Stack()}
		}
		for _, t := range turns {
			if err != nil {
				t.created, t.err = false, err
				mayBeAnothers := len(turns) > 1 && !(transient(err) && (e.oneWriter || !sent))
				t.again = !t.ended && mayBeAnothers
			}
			close(t.settled)
		}
	}()
	w := turns[0].watch
	if len(turns) > 1 {
		w = &watch{w.health, s.opts.Timeout / 5}
	}
	err = s.with(ctx, w, func(ctx context.Context, c session) error {
		sent = true
		if !e.oneWriter {
			long := s.opts.Timeout / 4
			timer := time.AfterFunc(long, func() { s.giveWay(e) })
			defer func() { inPlace = timer.Stop() }()
			if len(turns) > 1 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, long)
				defer cancel()
			}
		}
		return s.commit(ctx, c, turns)
	})
	return inPlace
}

// commit creates the orders of turns in one transaction. If it returns an error,
// none of them is known to be created.
func (s *Store) commit(ctx context.Context, c session, turns []*turn) error {
	switch {
	case s.opts.Accept == nil && len(turns) == 1:
		n, err := c.insert(ctx, turns[0].row()...)
		turns[0].created = n == 1 && err == nil
		return err
	case s.opts.Accept != nil || c.engine.oneWriter:
		return s.commitInTurn(ctx, c, turns)
	}
	return commitAtOnce(ctx, c, turns)
}

// commitAtOnce inserts the orders of turns in one statement.
func commitAtOnce(ctx context.Context, c session, turns []*turn) error {
	// Where two statements insert the same keys, those who do it in the same
	// sequence do not deadlock.
	turns = slices.Clone(turns)
	slices.SortStableFunc(turns, func(t, u *turn) int { return bytes.Compare(t.hash[:], u.hash[:]) })
	// Of several with one key, only the first can be told from an order that was
	// there before. The others find it.
	turns = slices.CompactFunc(turns, func(t, u *turn) bool { return t.hash == u.hash })
	if c.engine.unlessTaken == "" {
		return commitFree(ctx, c, turns)
	}
	created, err := c.hashes(ctx, c.engine.insertOrders(len(turns))+c.engine.unlessTaken, rowsOf(turns)...)
	if err != nil {
		return err
	}
	for _, t := range turns {
		t.created = created[t.hash]
	}
	return nil
}

// commitFree is commitAtOnce for an engine that cannot leave out what is taken: it
// looks which keys are, once the statement has failed for it.
func commitFree(ctx context.Context, c session, turns []*turn) error {
	_, err := c.exec(ctx, c.engine.insertOrders(len(turns)), rowsOf(turns)...)
	if duplicate(err) {
		var args []any
		for _, t := range turns {
			args = append(args, t.hash[:])
		}
		taken, lookErr := c.hashes(ctx, `SELECT key_hash FROM storefront_orders WHERE key_hash IN `+c.engine.placeholders(1, len(turns)), args...)
		if lookErr != nil {
			return lookErr
		}
		turns = slices.DeleteFunc(turns, func(t *turn) bool { return taken[t.hash] })
		if len(turns) == 0 {
			return nil
		}
		_, err = c.exec(ctx, c.engine.insertOrders(len(turns)), rowsOf(turns)...)
	}
	if err != nil {
		return err
	}
	for _, t := range turns {
		t.created = true
	}
	return nil
}

// rowsOf returns the arguments of engine.insertOrders for the orders of turns.
func rowsOf(turns []*turn) (args []any) {
	for _, t := range turns {
		args = append(args, t.row()...)
	}
	return args
}

// commitInTurn inserts the orders of turns one after the other, each with what
// Accept does for it. What fails for one of them only is its turn's err.
func (s *Store) commitInTurn(ctx context.Context, c session, turns []*turn) error {
	tx, insert, err := c.begin(ctx, &turns[0].values)
	if err != nil {
		return err
	}
	defer c.rollBack(ctx, tx) // in case of an error, or a panic of Accept
	created := false
	for _, t := range turns {
		if t.values.left() {
			continue
		}
		if err := s.createIn(ctx, c, tx, insert, t); err != nil {
			return err
		}
		created = created || t.created
	}
	if _, refused := turns[0].err.(decision); !created && !(refused && c.engine.claim != "") {
		return nil
	}
	if c.engine.commit != "" {
		_, err := tx.ExecContext(ctx, c.engine.commit)
		return err
	}
	return tx.Commit()
}

// createIn inserts the order of t and lets Accept work. It returns an error only if
// tx cannot go on.
func (s *Store) createIn(ctx context.Context, c session, tx *sql.Tx, insert func(args ...any) (int64, error), t *turn) error {
	if s.opts.Accept == nil {
		n, err := insert(t.row()...)
		t.created = n == 1
		if c.engine.oneWriter && !transient(err) {
			t.err, err = err, nil // SQLite has undone this statement alone, or Commit fails
		}
		return err
	}
	send := func(statement string) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}
	const (
		save     = "SAVEPOINT storefront_order"
		release  = "RELEASE SAVEPOINT storefront_order"
		rollBack = "ROLLBACK TO SAVEPOINT storefront_order"
	)
	if c.engine.claim != "" {
		// Of numbers that settle does not use, so many that few orders share one.
		number := 256 + int(t.hash[1])<<8 + int(t.hash[2])
		if _, err := tx.ExecContext(ctx, c.engine.claim, number); err != nil {
			return err
		}
	}
	if err := send(save); err != nil {
		return err
	}
	n, err := insert(t.row()...)
	switch {
	case transient(err):
		return err
	case err != nil:
		// Some errors undo the whole transaction in SQLite, and what comes after
		// them would be on its own; then there is no such savepoint.
		t.err = err
		if send(rollBack) != nil {
			return err
		}
		return nil
	case n == 0:
		return send(release)
	}

	accepting := ctx
	if c.engine.oneWriter {
		// Of a shared commit, it has the values and the deadline of this call, but
		// not its cancellation: where a statement is cancelled, SQLite may roll
		// back what the others have done, too.
		var cancel context.CancelFunc
		accepting, cancel = context.WithDeadline(&t.values, t.deadline)
		defer cancel()
	}
	end := release
	if err = s.opts.Accept(accepting, tx, t.key, t.order); err != nil {
		end = rollBack
	}
	lost := send(end) // if this is not the transaction that Accept was given
	switch {
	case transient(lost) && !c.engine.oneWriter: // in SQLite, it is rows that Accept has left open
		return lost
	case lost != nil && transient(err):
		return err // an error with which the database has ended the transaction
	case lost != nil && accepting.Err() != nil:
		return accepting.Err()
	case lost != nil:
		t.ended = true
		return decision{fmt.Errorf("sqlstore: the order's transaction cannot go on after Accept, "+
			"which must not end it and must return the errors of its statements: %w (it returned %v)", lost, err)}
	case err == nil:
		t.created = true
	case transient(err):
		t.err = err
	default:
		t.err = decision{err}
	}
	return nil
}

// A decision is an error of Accept's. As the key was free, it is all there is to say
// of the order, whatever happened to tries before.
type decision struct{ error }

func (d decision) Unwrap() error { return d.error }

// A stopped is what ended the work of a committer: a panic.
type stopped struct {
	value any
	stack []byte
}

func (s *stopped) Error() string { return fmt.Sprintf("%v\n\n%s", s.value, s.stack) }

// Unwrap returns the value that Accept or the driver panicked with, if it is an error.
func (s *stopped) Unwrap() error {
	err, _ := s.value.(error)
	return err
}
