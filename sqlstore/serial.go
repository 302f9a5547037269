package sqlstore

import (
	"context"
	"errors"
	"time"

	"example.com/storefront/internal/batch"
)

// A serial committer commits the orders of an engine that lets one transaction write at a time.
type serial struct {
	store *Store
	queue *batch.Queue[*attempt]
}

func newSerial(s *Store) *serial {
	c := &serial{store: s}
	c.queue = &batch.Queue[*attempt]{
		Run:    c.run,
		Limits: func(n int) (int, int) { return 1, min(n, mostShared) },
		Alone:  (*attempt).isSolo,
		// CreateOrder returns when its ctx is done, but the statements of its order go on (see
		// acceptContext).
		Detached: func() bool { return true },
	}
	return c
}

// commit commits the order together with those that wait, in the goroutine of the queue.
func (c *serial) commit(ctx context.Context, a *attempt) error { return c.queue.Do(ctx, a) }

// run commits the orders of a batch.
func (c *serial) run(ctx context.Context, b *batch.Batch[*attempt]) {
	commit, err := &serialCommit{Batch: b, store: c.store, begun: b.Members}, errNoReturn
	defer func() {
		err := orPanic(err, recover())
		fail(commit.begun, err, len(b.Members) > 1 && !transient(err))
	}()
	err = commit.run(ctx)
}

// A serialCommit commits the orders of a batch in one transaction. If it takes
// longer than times.commit, it commits those that are inserted by then, and the others wait for the next commit.
type serialCommit struct {
	*batch.Batch[*attempt]
	store *Store
	begun []*attempt // without those that wait for the next commit
	until time.Time  // after it, no further attempt begins
	saved bool       // each order is inserted after a savepoint
}

func (c *serialCommit) run(ctx context.Context) (err error) {
	ctx, session, err := c.store.session(ctx, watchOf(c.Members))
	if err != nil {
		return err
	}
	defer func() { err = session.close(err) }()
	c.saved = c.store.opts.Accept != nil
	err = c.try(ctx, session)
	if err == errUnsaved {
		c.saved = true
		err = c.try(ctx, session)
	}
	return err
}

// errUnsaved is the error of a commit of several orders one of which failed without a savepoint. SQLite may
// not have undone its statement: after RAISE(FAIL) or a constraint with ON CONFLICT FAIL, the row stays.
var errUnsaved = errors.New("sqlstore: the statement of an order has failed")

// try commits the orders. If it returns an error, it has committed none.
func (c *serialCommit) try(ctx context.Context, session *session) error {
	tx, err := session.begin(ctx) // which may wait for another process
	if err != nil {
		return err
	}
	defer tx.rollBack(ctx)
	c.until = time.Now().Add(c.store.times.commit)
	outcomes := make([]outcome, len(c.Members))
	anyCreated := false
	for n, a := range c.Members {
		if n > 0 && time.Now().After(c.until) {
			c.putBack(n)
			break
		}
		late := false
		if outcomes[n], late, err = c.insert(ctx, tx, n); err != nil {
			return err
		}
		if late {
			c.putBack(n)
			break
		}
		if outcomes[n].state != created {
			continue
		}
		anyCreated = true
		// The commit ends while the callers whose orders it has still wait for it.
		if deadline, ok := a.ctx.Deadline(); ok {
			if half := time.Now().Add(time.Until(deadline) / 2); half.Before(c.until) {
				c.until = half
			}
		}
	}
	if anyCreated {
		if err := tx.commit(ctx); err != nil {
			return err
		}
	}
	c.store.finish(c.begun, outcomes)
	return nil
}

// putBack makes the attempts from the n-th on wait for the next commit.
func (c *serialCommit) putBack(n int) {
	c.begun = c.Members[:n]
	c.PutBack(n)
}

// insert inserts the order of the n-th attempt, and lets Options.Accept work. It returns an error only if
// tx cannot go on. It reports that the attempt was late if the time of the commit ended before Accept
// returned.
func (c *serialCommit) insert(ctx context.Context, tx transaction, n int) (
	out outcome, late bool, err error) {
	a := c.Members[n]
	if err := a.ctx.Err(); err != nil {
		return outcome{a.state, err}, false, nil
	}
	if !c.saved {
		out, err = insertWith(ctx, tx, a)
		switch {
		case err == nil, transient(err): // SQLite has undone the statement, or the commit fails
		case len(c.Members) > 1:
			err = errUnsaved
		default:
			out.err, err = err, nil // there is nothing to commit
		}
		return out, false, err
	}
	if out, err = savedInsert(ctx, tx, a); out.state != created || err != nil {
		return out, false, err
	}
	if c.store.opts.Accept == nil {
		_, err = tx.exec(ctx, release)
		return out, false, err
	}
	accepting, cancel := c.acceptContext(n)
	defer cancel()
	out, err = c.store.accept(ctx, accepting, tx, a, func(f func()) error { return c.Call(n, f) })
	late = n > 0 && out.state != created && accepting.Err() != nil && a.ctx.Err() == nil
	if late && a.state == pending {
		a.state = solo
	}
	return out, late, err
}

// acceptContext returns the ctx of Accept for the n-th attempt, with the values and the deadline of
// the caller's ctx. In a commit of several orders, the caller cannot cancel it: SQLite may roll back
// the other orders, too, when a statement is cancelled. And Accept then has no more time than the
// commit, except for the first order.
func (c *serialCommit) acceptContext(n int) (context.Context, context.CancelFunc) {
	a := c.Members[n]
	accepting := a.ctx
	if len(c.Members) > 1 {
		accepting = context.WithoutCancel(a.ctx)
	}
	deadline, _ := a.ctx.Deadline()
	if n > 0 && c.until.Before(deadline) {
		deadline = c.until
	}
	return context.WithDeadline(accepting, deadline)
}
