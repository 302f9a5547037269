package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/storefront/internal/batch"
)

// An attempt is an attempt to create an order in one commit.
type attempt struct {
	*proposal
	ctx context.Context // the caller's

	created bool // if it is false, and err nil, the key is taken
	err     error
	again   bool // retry alone: another order of the commit may have failed this one
	ended   bool // Accept ended the transaction for this order
}

// errNotAccepted stands for the error of an Accept that panicked.
var errNotAccepted = errors.New("sqlstore: Accept has not returned")

// errNoReturn stands for the error of a commit that panicked.
var errNoReturn = errors.New("sqlstore: the commit has not returned")

// create tries to create the order. If it returns false without an error, the key
// is taken.
func (s *Store) create(ctx context.Context, p *proposal) (created bool, err error) {
	e, err := s.knownEngine(ctx, p.watch)
	if err != nil {
		return false, err
	}
	for {
		a := &attempt{proposal: p, ctx: ctx}
		if e.oneWriter || s.opts.Accept == nil && !p.alone {
			// If ctx is done, a commit that is under way goes on, as it may have other orders.
			if err := s.queue.Do(ctx, a); err != nil {
				return false, err
			}
		} else if err := s.withSession(ctx, p.watch, func(ctx context.Context, c session) error {
			return s.commit(ctx, c, shared{attempts: []*attempt{a}, accept: callAccept})
		}); err != nil {
			a.created, a.err = false, err
		}
		if a.again {
			p.alone = true // in all further attempts of the call
			if !transient(a.err) {
				continue
			}
		}
		if e, ok := a.err.(*panicError); ok {
			panic(e.value)
		}
		return a.created, a.err
	}
}

func newQueue(s *Store) *batch.Queue[*attempt] {
	return &batch.Queue[*attempt]{
		Run: s.runCommit,
		Limits: func(n int) (batches, size int) {
			e := s.engine.Load()
			batches = e.commits
			if most := s.ordersAtOnce(); most > 0 {
				batches = min(batches, most)
			}
			return batches, e.shared(n)
		},
		Alone: func(a *attempt) bool { return a.alone },
		// On SQLite, CreateOrder returns when its ctx is done, but the statements of its order
		// go on (see acceptContext).
		Detached: func() bool { return s.engine.Load().oneWriter },
	}
}

// A shared commit is that of one or more attempts.
type shared struct {
	attempts []*attempt
	until    time.Time                        // after it, the attempts that have not begun wait for the next commit; zero: never
	putBack  func(n int)                      // makes the attempts from the n-th on wait for the next commit
	accept   func(n int, accept func()) error // calls accept in the goroutine of the n-th attempt's caller
}

// callAccept calls accept in the goroutine of a caller that commits its own order alone.
func callAccept(_ int, accept func()) error {
	accept()
	return nil
}

// runCommit commits the orders of a batch of the queue.
//
// A commit that takes a quarter of Options.Timeout lets another one begin beside it, so
// that neither a lock on one of its keys nor a server that hangs holds up all orders that
// wait. If it has several orders, it also ends then, and each of them is tried alone. In
// SQLite, it commits the orders that are inserted by then, and the others wait for the
// next commit.
func (s *Store) runCommit(ctx context.Context, b *batch.Batch[*attempt]) {
	attempts := b.Members
	kept, sent := len(attempts), false
	oneWriter := s.engine.Load().oneWriter
	err := errNoReturn
	defer func() {
		// With panicnil=1 in GODEBUG, recover returns nil after panic(nil).
		if value := recover(); value != nil || err == errNoReturn {
			err = &panicError{value}
		}
		if err == nil {
			return
		}
		for _, a := range attempts[:kept] {
			mayBeAnothers := len(attempts) > 1 && !(transient(err) && (oneWriter || !sent))
			a.created, a.err, a.again = false, err, mayBeAnothers && !a.ended
		}
	}()
	w := attempts[0].watch
	if len(attempts) > 1 {
		w = s.newWatch(w.health)
	}
	if _, ok := ctx.Deadline(); !ok && !oneWriter {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.opts.Timeout)
		defer cancel()
	}
	err = s.withSession(ctx, w, func(ctx context.Context, c session) error {
		sent = true
		long := s.opts.Timeout / 4
		if !oneWriter {
			defer time.AfterFunc(long, b.HandOver).Stop()
			if len(attempts) > 1 {
				w.left.Store(true) // no need to give up the connection: the commit ends soon
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, long)
				defer cancel()
			}
		}
		return s.commit(ctx, c, shared{
			attempts: attempts,
			until:    time.Now().Add(long),
			putBack: func(n int) {
				kept = n
				b.PutBack(n)
			},
			accept: b.Call,
		})
	})
}

// commit creates the orders of the attempts in one transaction. If it returns an error,
// none of them is known to be created.
func (s *Store) commit(ctx context.Context, c session, commit shared) (err error) {
	attempts := commit.attempts
	switch {
	case s.opts.Accept != nil || c.engine.oneWriter:
		err = s.commitInTurn(ctx, c, commit)
		if _, refused := attempts[0].err.(acceptError); err == nil && refused && c.engine.claim != "" {
			err = confirmRefusal(ctx, c, attempts[0])
		}
	case len(attempts) == 1:
		var n int64
		n, err = c.exec(ctx, c.engine.insert, attempts[0].row()...)
		attempts[0].created = n == 1
	default:
		err = commitAtOnce(ctx, c, attempts)
	}
	if err != nil {
		return err
	}
	created := 0
	for _, a := range attempts {
		if a.created {
			created++
		}
	}
	if created > 0 {
		s.stats.commits.Add(1)
		s.stats.committed.Add(int64(created))
	}
	return nil
}

// commitAtOnce inserts the orders of attempts in one statement. No two of them have the
// same key (see flights).
func commitAtOnce(ctx context.Context, c session, attempts []*attempt) error {
	// Two statements that insert the same keys in the same sequence do not deadlock.
	attempts = slices.Clone(attempts)
	slices.SortFunc(attempts, func(a, b *attempt) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	if c.engine.unlessTaken == "" {
		return commitFree(ctx, c, attempts)
	}
	created, err := c.hashes(ctx, c.engine.insertOrders(len(attempts))+c.engine.unlessTaken, rowsOf(attempts)...)
	if err != nil {
		return err
	}
	for _, a := range attempts {
		a.created = created[a.hash]
	}
	return nil
}

// commitFree is commitAtOnce for an engine whose INSERT fails if a key is taken. It then
// asks which keys are, and inserts the orders of the others.
func commitFree(ctx context.Context, c session, attempts []*attempt) error {
	_, err := c.exec(ctx, c.engine.insertOrders(len(attempts)), rowsOf(attempts)...)
	if classOf(err).isDuplicate() {
		var args []any
		for _, a := range attempts {
			args = append(args, a.hash[:])
		}
		taken, lookErr := c.hashes(ctx, `SELECT key_hash FROM storefront_orders WHERE key_hash IN `+c.engine.placeholders(1, len(attempts)), args...)
		if lookErr != nil {
			return lookErr
		}
		attempts = slices.DeleteFunc(attempts, func(a *attempt) bool { return taken[a.hash] })
		if len(attempts) == 0 {
			return nil
		}
		_, err = c.exec(ctx, c.engine.insertOrders(len(attempts)), rowsOf(attempts)...)
	}
	if err != nil {
		return err
	}
	for _, a := range attempts {
		a.created = true
	}
	return nil
}

// rowsOf returns the arguments of engine.insertOrders for the orders of attempts.
func rowsOf(attempts []*attempt) (args []any) {
	for _, a := range attempts {
		args = append(args, a.row()...)
	}
	return args
}

// commitInTurn inserts the orders of the attempts one after the other, each with what
// Accept does for it. An error that concerns one order alone is left in its attempt.
func (s *Store) commitInTurn(ctx context.Context, c session, commit shared) error {
	tx, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.rollBack(ctx) // in case of an error, or a panic of Accept
	created := false
	for n, a := range commit.attempts {
		if n > 0 && !commit.until.IsZero() && time.Now().After(commit.until) {
			commit.putBack(n)
			break
		}
		if a.ctx.Err() != nil {
			a.err = a.ctx.Err()
			continue
		}
		late, err := s.createIn(ctx, tx, commit, n)
		if err != nil {
			return err
		}
		if late {
			commit.putBack(n)
			break
		}
		created = created || a.created
		// The commit ends while the callers whose orders it has still wait for it.
		if deadline, ok := a.ctx.Deadline(); ok && a.created {
			if half := time.Now().Add(time.Until(deadline) / 2); half.Before(commit.until) {
				commit.until = half
			}
		}
	}
	if !created {
		return nil
	}
	return tx.commit(ctx)
}

// confirmRefusal makes sure that the key of a refused order is free on all primaries of a
// group: it commits a transaction with the key's claim, which fails if another one has
// created an order with the key. If the order is there, it takes the refusal back.
func confirmRefusal(ctx context.Context, c session, a *attempt) error {
	tx, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.rollBack(ctx)
	if err := tx.claim(ctx, a); err != nil {
		return err
	}
	var id string
	switch err := tx.QueryRowContext(ctx, `SELECT id FROM storefront_orders WHERE key_hash = ?`, a.hash[:]).Scan(&id); err {
	case nil:
		a.err = nil
		return nil
	case sql.ErrNoRows:
		return tx.commit(ctx)
	default:
		return err
	}
}

// claim runs the engine's claim for the key of an attempt.
func (tx *transaction) claim(ctx context.Context, a *attempt) error {
	// There are 65536 numbers, which few orders share, and syncReplay uses none of them.
	number := 256 + int(a.hash[1])<<8 + int(a.hash[2])
	_, err := tx.ExecContext(ctx, tx.engine.claim, number)
	return err
}

// createIn inserts the order of the n-th attempt, and lets Accept work. It returns an
// error only if tx cannot go on. It reports that the attempt was late if the time of the
// commit ended before Accept returned.
func (s *Store) createIn(ctx context.Context, tx *transaction, commit shared, n int) (late bool, err error) {
	a := commit.attempts[n]
	if s.opts.Accept == nil {
		inserted, err := rowsAffected(tx.insert(ctx, a.row()...))
		a.created = inserted == 1
		if tx.engine.oneWriter && !transient(err) {
			a.err, err = err, nil // SQLite has undone this statement alone, or Commit fails
		}
		return false, err
	}
	// The savepoint comes first: where Group Replication has made the transaction give way
	// to one of another member, a savepoint would begin a new transaction, which would be
	// committed.
	if err := tx.send(ctx, savepoint); err != nil {
		return false, err
	}
	if tx.engine.claim != "" {
		if err := tx.claim(ctx, a); err != nil {
			return false, err
		}
	}
	inserted, err := rowsAffected(tx.insert(ctx, a.row()...))
	switch {
	case transient(err):
		return false, err
	case err != nil:
		// After some errors, SQLite has undone the whole transaction with its savepoint, and
		// would run further statements outside of any.
		a.err = err
		if tx.send(ctx, rollBackTo) != nil {
			return false, err
		}
		return false, nil
	case inserted == 0:
		return false, tx.send(ctx, release)
	}
	return s.acceptIn(ctx, tx, commit, n)
}

const (
	savepoint  = "SAVEPOINT storefront_order"
	release    = "RELEASE SAVEPOINT storefront_order"
	rollBackTo = "ROLLBACK TO SAVEPOINT storefront_order"
)

// acceptIn lets Accept work for the order of the n-th attempt, which is inserted, and keeps
// or undoes both. It returns what createIn does.
func (s *Store) acceptIn(ctx context.Context, tx *transaction, commit shared, n int) (late bool, err error) {
	a, oneWriter := commit.attempts[n], tx.engine.oneWriter
	accepting := ctx
	if oneWriter {
		var cancel context.CancelFunc
		accepting, cancel = commit.acceptContext(n)
		defer cancel()
	}
	var accepted error = errNotAccepted
	if tx.held != nil {
		tx.held.accepting.Store(true)
	}
	if err := commit.accept(n, func() {
		defer tx.endWith(accepting)()
		accepted = s.opts.Accept(accepting, tx.Tx, a.key, a.order)
	}); err != nil {
		accepted = err // the caller has left
	}
	end := release
	if accepted != nil {
		end = rollBackTo
	}
	ended := tx.send(ctx, end) // it fails if Accept has ended the transaction
	if late = n > 0 && accepted != nil && accepting.Err() != nil && a.ctx.Err() == nil; late {
		a.alone = true
	}
	switch class := classOf(accepted); {
	case transient(ended):
		return false, ended
	case ended != nil && class >= passing, class == notPrimary && !oneWriter:
		return false, accepted // the database has ended the transaction, or soon will
	case ended != nil && accepting.Err() != nil:
		return false, accepting.Err()
	case ended != nil:
		a.ended = true
		return false, acceptError{fmt.Errorf("sqlstore: the order's transaction cannot go on after Accept, "+
			"which must not end it and must return the errors of its statements: %w (it returned %v)", ended, accepted)}
	case late:
		return true, nil
	case accepted == nil:
		a.created = true
	case accepting.Err() != nil && errors.Is(accepted, accepting.Err()):
		a.err = accepting.Err() // of this call alone: its time is up, or it was cancelled
	case class == passing || class == conflict:
		a.err = accepted // of a statement in tx: the whole transaction may succeed later
	default:
		a.err = acceptError{accepted}
	}
	return false, nil
}

// acceptContext returns the ctx of Accept for the n-th attempt in SQLite, with the values and
// the deadline of the caller's ctx. In a commit of several orders, the caller cannot cancel
// it: SQLite may roll back the other orders, too, when a statement is cancelled. And Accept
// then has no more time than the commit, except for the first order.
func (commit shared) acceptContext(n int) (context.Context, context.CancelFunc) {
	a := commit.attempts[n]
	accepting := a.ctx
	if len(commit.attempts) > 1 {
		accepting = context.WithoutCancel(a.ctx)
	}
	deadline, _ := a.ctx.Deadline()
	if n > 0 && commit.until.Before(deadline) {
		deadline = commit.until
	}
	return context.WithDeadline(accepting, deadline)
}
