package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"example.com/storefront"
	"example.com/storefront/internal/watchdog"
)

// A state says what is known of an order.
type state int

const (
	pending state = iota // nothing: it waits for a commit, which it may share
	solo                 // nothing: it waits for a commit of its own
	suspect              // a shared commit has failed, perhaps because of this order
	created              // a commit of this call has created the order
	taken                // its key has an order
	refused              // Options.Accept has refused it, or ended its transaction
)

// An outcome is the state of an order after a commit. err is nil if the order is created or its key
// taken; otherwise it says why not.
type outcome struct {
	state state
	err   error
}

// An attempt is an attempt to create an order in one commit, which sets its outcome when it ends.
type attempt struct {
	*proposal
	ctx   context.Context // the caller's
	watch *watchdog.Watch
	outcome
}

func (a *attempt) isSolo() bool { return a.state == solo }

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

// finish sets the outcomes of a commit that has succeeded, and counts the orders.
func (s *Store) finish(attempts []*attempt, outcomes []outcome) {
	n := 0
	for i, a := range attempts {
		a.outcome = outcomes[i]
		if a.state == created {
			n++
		}
	}
	if n > 0 {
		s.stats.commits.Add(1)
		s.stats.committed.Add(int64(n))
	}
}

// fail sets the outcomes of a commit that has failed with err; nil does nothing. If the fault may be
// that of one of several orders, all are suspects, except an order that Accept has decided.
func fail(attempts []*attempt, err error, several bool) {
	for _, a := range attempts {
		if err == nil || a.state == refused {
			continue
		}
		a.err = err
		if several {
			a.state = suspect
		}
	}
}

// watchOf returns the watch of a commit: that of the call, or a new one if several calls share it.
func watchOf(attempts []*attempt) *watchdog.Watch {
	w := attempts[0].watch
	if len(attempts) > 1 {
		w = w.Health.Watch()
	}
	return w
}

// mostShared is how many orders share a commit at most.
const mostShared = 64

// commitAccepted commits the order of an attempt with what Options.Accept does for it.
func (s *Store) commitAccepted(ctx context.Context, c *session, a *attempt) (outcome, error) {
	tx, err := c.begin(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer tx.rollBack(ctx) // in case of an error, or a panic of Accept
	if err := a.ctx.Err(); err != nil {
		return outcome{a.state, err}, nil
	}
	out, err := savedInsert(ctx, tx, a)
	if err == nil && out.state == created {
		out, err = s.accept(ctx, ctx, tx, a, func(accept func()) error { accept(); return nil })
	}
	if err == nil && out.state == created {
		err = tx.commit(ctx)
	}
	return out, err
}

// insertWith inserts the order of an attempt over a link or in a transaction.
func insertWith(ctx context.Context, to interface {
	insert(context.Context, *attempt) (int64, error)
}, a *attempt) (outcome, error) {
	inserted, err := to.insert(ctx, a)
	switch {
	case err != nil:
		return outcome{state: a.state}, err
	case inserted == 1:
		return outcome{state: created}, nil
	}
	return outcome{state: taken}, nil
}

const (
	savepoint  = "SAVEPOINT storefront_order"
	release    = "RELEASE SAVEPOINT storefront_order"
	rollBackTo = "ROLLBACK TO SAVEPOINT storefront_order"
)

// savedInsert inserts the order of an attempt after a savepoint, which stays only if the order is
// created. It returns an error only if tx cannot go on.
func savedInsert(ctx context.Context, tx transaction, a *attempt) (outcome, error) {
	// The savepoint comes first: where Group Replication has made the transaction give way
	// to one of another member, a savepoint would begin a new transaction, which would be
	// committed.
	if _, err := tx.exec(ctx, savepoint); err != nil {
		return outcome{}, err
	}
	out, err := insertWith(ctx, tx, a)
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

// accept lets Options.Accept work for the order of an attempt, which is inserted after a savepoint, and
// keeps or undoes both. accepting is the ctx of Accept, and call calls a function in the goroutine of
// the attempt's caller. It returns an error only if tx cannot go on.
func (s *Store) accept(ctx, accepting context.Context, tx transaction, a *attempt, call func(func()) error) (
	outcome, error) {
	out := outcome{state: a.state}
	accepted := errNotAccepted
	if err := call(func() {
		tx.accept(accepting, func(tx *sql.Tx) { accepted = s.opts.Accept(accepting, tx, a.key, a.order) })
	}); err != nil {
		accepted = err // the caller has left
	}
	end := release
	if accepted != nil {
		end = rollBackTo
	}
	_, ended := tx.exec(ctx, end) // it fails if Accept has ended the transaction
	class, _ := codeClass(accepted)
	_, refusal := errors.AsType[*storefront.Refusal](accepted)
	switch {
	case transient(ended):
		return out, ended
	case ended == nil && refusal:
		out = outcome{refused, acceptError{accepted}} // whatever it says: a client may have written that
	case ended != nil && class >= passing, tx.isDemoted(accepted):
		return out, accepted // the database has ended the transaction, or soon will
	case ended != nil && accepting.Err() != nil:
		return out, accepting.Err()
	case ended != nil:
		a.outcome = outcome{refused, acceptError{fmt.Errorf("sqlstore: the order's transaction cannot go on "+
			"after Accept, which must not end it and must return the errors of its statements: %w (it "+
			"returned %v)", ended, accepted)}}
		return a.outcome, a.err
	case accepted == nil:
		out.state = created
	case accepting.Err() != nil && errors.Is(accepted, accepting.Err()):
		out.err = accepting.Err() // of this call alone: its time is up, or it was cancelled
	case class == passing || class == conflict:
		out.err = accepted // of a statement in tx: the whole transaction may succeed later
	default:
		out = outcome{refused, acceptError{accepted}}
	}
	return out, nil
}
