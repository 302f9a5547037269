package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/storefront/internal/batch"
)

// An attempt is one to create an order in one commit.
type attempt struct {
	*proposal
	ctx context.Context // the caller's

	created bool // if not, and err is nil, the key is taken
	err     error
	again   bool // alone: another order of the commit may have failed it
	ended   bool // Accept has ended the transaction: err says so
}

// errNotAccepted is of an Accept that has not returned: it has panicked.
var errNotAccepted = errors.New("sqlstore: Accept has not returned")

// create tries to create the order. If it returns false without an error, the key
// is taken.
func (s *Store) create(ctx context.Context, p *proposal) (created bool, err error) {
	e, err := s.known(ctx, p.watch)
	if err != nil {
		return false, err
	}
	for {
		a := &attempt{proposal: p, ctx: ctx}
		if e.oneWriter || s.opts.Accept == nil && !p.alone {
			// A commit that is under way goes on, for the sake of the others.
			if err := s.queue.Do(ctx, a); err != nil {
				return false, err
			}
		} else if err := s.withSession(ctx, p.watch, func(ctx context.Context, c session) error {
			return s.commit(ctx, c, shared{attempts: []*attempt{a}, accept: callAccept})
		}); err != nil {
			a.created, a.err = false, err
		}
		if a.again {
			p.alone = true // for all the time that the call has
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
		// A statement in SQLite is not to end with a caller's ctx (see accept), but the
		// call is.
		Detached: func() bool { return s.engine.Load().oneWriter },
	}
}

// A shared commit is one of attempts, of which the queue can have some wait for the
// next one.
type shared struct {
	attempts []*attempt
	until    time.Time                        // when those that have not begun wait for the next one; zero: never
	putBack  func(n int)                      // has the attempts from the n-th on wait
	accept   func(n int, accept func()) error // calls Accept for the n-th where its caller is
}

// callAccept is for who commits what is its own.
func callAccept(_ int, accept func()) error {
	accept()
	return nil
}

// runCommit is what the queue runs.
//
// A commit that takes a quarter of the time that calls have gives way to another, so
// that neither a lock on one of its keys nor a server that hangs holds up all that
// waits. If it is shared, it ends then, and each of its orders goes alone; in SQLite,
// what it has done by then is committed.
func (s *Store) runCommit(ctx context.Context, b *batch.Batch[*attempt]) {
	attempts := b.Members
	kept, sent := len(attempts), false
	oneWriter := s.engine.Load().oneWriter
	var err error
	defer func() {
		if value := recover(); value != nil {
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
				w.left.Store(true) // it ends soon by itself
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

// commit creates the orders of attempts in one transaction. If it returns an error,
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
	// Where two statements insert the same keys, those who do it in the same
	// sequence do not deadlock.
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

// commitFree is commitAtOnce for an engine that cannot leave out what is taken: it
// looks which keys are, once the statement has failed for it.
func commitFree(ctx context.Context, c session, attempts []*attempt) error {
	_, err := c.exec(ctx, c.engine.insertOrders(len(attempts)), rowsOf(attempts)...)
	if classOf(err) == duplicate {
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

// commitInTurn inserts the orders of attempts one after the other, each with what
// Accept does for it. What fails for one of them only is its attempt's err.
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
		// While who has created an order still waits to learn of it.
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

// confirmRefusal commits that the key of a refused order was free, so that no other node
// of the cluster has created its order, or finds that it is taken.
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

// claim runs the engine's claim.
func (tx *transaction) claim(ctx context.Context, a *attempt) error {
	// Of numbers that syncReplay does not use, so many that few orders share one.
	number := 256 + int(a.hash[1])<<8 + int(a.hash[2])
	_, err := tx.ExecContext(ctx, tx.engine.claim, number)
	return err
}

// createIn inserts the order of the n-th attempt and lets Accept work. It returns an
// error only if tx cannot go on. If it reports that it was late, the time of the commit
// ended before Accept did.
func (s *Store) createIn(ctx context.Context, tx *transaction, commit shared, n int) (late bool, err error) {
	a := commit.attempts[n]
	oneWriter := tx.engine.oneWriter
	if s.opts.Accept == nil {
		inserted, err := rowsAffected(tx.insert(ctx, a.row()...))
		a.created = inserted == 1
		if oneWriter && !transient(err) {
			a.err, err = err, nil // SQLite has undone this statement alone, or Commit fails
		}
		return false, err
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
	// First of all: where Group Replication has the transaction give way to another
	// member's, a savepoint would begin a new one, which would be committed.
	if err := send(save); err != nil {
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
		// Some errors undo the whole transaction in SQLite, and what comes after
		// them would be on its own; then there is no such savepoint.
		a.err = err
		if send(rollBack) != nil {
			return false, err
		}
		return false, nil
	case inserted == 0:
		return false, send(release)
	}

	accepting := ctx
	if oneWriter {
		// It has the values and the deadline of this call. In a shared commit, it has not its
		// cancellation: where a statement is cancelled, SQLite may roll back what the
		// others have done, too. Nor do those wait for longer than a commit may take.
		accepting = a.ctx
		if len(commit.attempts) > 1 {
			accepting = context.WithoutCancel(a.ctx)
		}
		deadline, _ := a.ctx.Deadline()
		if n > 0 && commit.until.Before(deadline) {
			deadline = commit.until
		}
		var cancel context.CancelFunc
		accepting, cancel = context.WithDeadline(accepting, deadline)
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
		end = rollBack
	}
	ended := send(end) // it fails if this is not the transaction that Accept was given
	if late = n > 0 && accepted != nil && accepting.Err() != nil && a.ctx.Err() == nil; late {
		a.alone = true
	}
	switch class := classOf(accepted); {
	case transient(ended) && !strings.Contains(ended.Error(), "SQL statements in progress"): // rows that Accept has left open in SQLite
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
		a.err = accepted // of its statements: the whole transaction may succeed later
	default:
		a.err = acceptError{accepted}
	}
	return false, nil
}
