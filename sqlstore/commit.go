package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/sqlerror"
	"example.com/storefront/internal/watchdog"
)

// A state says what is known of an order after a try.
type state int

const (
	unknown state = iota // nothing: the try has failed
	suspect              // a commit that it shared has failed, perhaps because of this order
	created              // a commit of this call has created the order
	taken                // its key has an order
	refused              // Options.Accept has refused it
	endedTx              // the same, and Accept has ended the transaction, and so failed the commit
)

// An outcome is the state of an order after a try. err is nil if the order is created or its key
// taken; otherwise it says why not.
type outcome struct {
	state state
	err   error
}

// errNotAccepted stands for the error of an Accept that panicked.
var errNotAccepted = errors.New("sqlstore: Accept has not returned")

// errNoReturn stands for the error of a commit that panicked.
var errNoReturn = errors.New("sqlstore: the commit has not returned")

// orPanic returns err, or a panicError if the commit panicked with value before it set err. With
// panicnil=1 in GODEBUG, recover returns nil after panic(nil).
func orPanic(err error, value any) error {
	if value != nil || err == errNoReturn {
		return &panicError{value}
	}
	return err
}

// settle sets the outcomes of a commit. If it has failed with err, outcomes has what is known of the first
// proposals. If the fault may be that of one of several orders, all are suspects, except the order whose
// Accept has ended the transaction. Nothing else sets an outcome.
func (s *Store) settle(proposals []*proposal, outcomes []outcome, err error, several bool) {
	n := 0
	var last *proposal
	for i, p := range proposals {
		switch {
		case err == nil:
			p.outcome = outcomes[i]
		case i < len(outcomes) && outcomes[i].state == endedTx:
			p.outcome = outcome{refused, outcomes[i].err}
		case several:
			p.outcome = outcome{suspect, err}
		default:
			p.outcome = outcome{unknown, err}
		}
		if p.state == created {
			n++
			last = p
		}
	}
	if n > 0 {
		s.last.Store(&acknowledged{id: last.order.ID, hash: last.hash, at: time.Now()})
		s.stats.add(&s.stats.Commits, 1)
		s.stats.add(&s.stats.Committed, int64(n))
	}
}

// watchOf returns the watch of a commit: that of the call, or a new one if several calls share it.
func watchOf(proposals []*proposal) *watchdog.Watch {
	w := proposals[0].watch
	if len(proposals) > 1 {
		w = w.Health.Watch()
	}
	return w
}

// mostShared is how many orders share a commit at most.
const mostShared = 64

// createAccepted creates the order of a proposal in a transaction, with what Options.Accept does for it.
func (s *Store) createAccepted(ctx context.Context, c *session, p *proposal) (outcome, error) {
	tx, err := c.begin(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer tx.rollBack(ctx) // in case of an error, or a panic of Accept
	if err := p.ctx.Err(); err != nil {
		return outcome{err: err}, nil
	}
	out, err := insertSaved(ctx, tx, p)
	if err == nil && out.state == created {
		out, err = s.accept(ctx, ctx, tx, p, func(accept func()) error { accept(); return nil })
	}
	if err == nil && out.state == created {
		err = tx.commit(ctx)
	}
	return out, err
}

// inserted returns the outcome of an INSERT of one order that has inserted n rows.
func inserted(n int64, err error) (outcome, error) {
	switch {
	case err != nil:
		return outcome{}, err
	case n == 1:
		return outcome{state: created}, nil
	}
	return outcome{state: taken}, nil
}

const (
	savepoint  = "SAVEPOINT storefront_order"
	release    = "RELEASE SAVEPOINT storefront_order"
	rollBackTo = "ROLLBACK TO SAVEPOINT storefront_order"
)

// insertSaved inserts the order of a proposal after a savepoint, which stays only if the order is
// created. It returns an error only if tx cannot go on.
func insertSaved(ctx context.Context, tx transaction, p *proposal) (outcome, error) {
	// The savepoint comes first: where Group Replication has made the transaction give way to one of another
	// member, a savepoint would begin a new transaction, which would be committed.
	if _, err := tx.exec(ctx, savepoint); err != nil {
		return outcome{}, err
	}
	out, err := inserted(tx.insert(ctx, p))
	switch {
	case transient(err):
		return out, err
	case err != nil:
		// After some errors, the database has undone the whole transaction with its savepoint,
		// and may run further statements outside of any.
		if _, ended := tx.exec(ctx, rollBackTo); ended != nil {
			return out, err
		}
		out.err = err
	case out.state == taken:
		_, err := tx.exec(ctx, release)
		return out, err
	}
	return out, nil
}

// accept lets Options.Accept work for the order of a proposal, which is inserted after a savepoint, and
// keeps or undoes both. accepting is the ctx of Accept, and call calls a function in the goroutine of
// the call. It returns an error only if tx cannot go on.
func (s *Store) accept(ctx, accepting context.Context, tx transaction, p *proposal, call func(func()) error) (
	out outcome, err error) {
	accepted := errNotAccepted
	p.accepting.Store(true)
	defer func() { p.accepting.Store(accepting.Err() != nil) }() // what fails then, fails by it
	if err := call(func() {
		tx.accept(accepting, func(tx *sql.Tx) { accepted = s.opts.Accept(accepting, tx, p.key, p.order) })
	}); err != nil {
		accepted = err // the caller has left
	}
	end := release
	if accepted != nil {
		end = rollBackTo
	}
	_, ended := tx.exec(ctx, end) // it fails if Accept has ended the transaction
	class, _ := sqlerror.ByCode(accepted)
	_, refusal := errors.AsType[*storefront.Refusal](accepted)
	if accepted == nil && sqlerror.IsBusy(ended) {
		p.busy++ // a lost connection, once
	}
	switch {
	case ended != nil && ended == accepting.Err():
		return out, inAccept(ended)
	case transient(ended) && p.busy < 3:
		return out, ended
	case ended == nil && refusal:
		out = outcome{refused, acceptError{accepted}} // whatever it says: a client may have written that
	case ended != nil && class >= sqlerror.Passing, tx.isDemoted(accepted):
		return out, accepted // the database has ended the transaction, or soon will
	case ended != nil && accepting.Err() != nil:
		return out, inAccept(accepting.Err())
	case ended != nil:
		out = outcome{endedTx, acceptError{fmt.Errorf("sqlstore: the order's transaction cannot go on "+
			"after Accept, which must not end it, must close its rows and must return the errors of its "+
			"statements: %w (it returned %v)", ended, accepted)}}
		return out, out.err
	case accepted == nil:
		out.state = created
	case accepting.Err() != nil && errors.Is(accepted, accepting.Err()):
		out.err = inAccept(accepting.Err()) // of this call alone: its time is up, or it was cancelled
	case class == sqlerror.Passing || class == sqlerror.Conflict:
		out.err = inAccept(accepted) // of a statement in tx: the whole transaction may succeed later
	default:
		out = outcome{refused, acceptError{accepted}}
	}
	return out, nil
}

// inAccept says that an error comes from Accept. A statement that does not use tx may wait for a lock that tx
// has, and the database cannot tell.
func inAccept(err error) error {
	return fmt.Errorf("sqlstore: in Accept (a statement that does not use its tx waits for the locks of tx): %w", err)
}
