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
	queue *batch.Queue[*proposal]
}

func newSerial(s *Store) *serial {
	c := &serial{store: s}
	c.queue = &batch.Queue[*proposal]{
		Run:    c.run,
		Limits: func(n int) (int, int) { return 1, min(n, mostShared) },
		Alone:  (*proposal).isAlone,
		// CreateOrder returns when its ctx is done, but the statements of its order go on (see
		// acceptContext).
		Detached: true,
	}
	return c
}

// create creates the order together with those that wait, in the goroutine of the queue.
func (c *serial) create(ctx context.Context, p *proposal) error { return c.queue.Do(ctx, p) }

// run creates the orders of a batch, and settles them whatever happens. What becomes of each is open.
func (c *serial) run(ctx context.Context, b *batch.Batch[*proposal]) {
	commit, err := &serialCommit{Batch: b, store: c.store, begun: b.Members}, errNoReturn
	defer func() {
		err := orPanic(err, recover())
		c.store.settle(commit.begun, commit.outcomes, err, len(b.Members) > 1 && !transient(err))
	}()
	err = commit.run(ctx)
}

// A serialCommit creates the orders of a batch in one transaction. If it takes longer than times.commit, it
// commits those that are inserted by then, and the others wait for the next commit.
type serialCommit struct {
	*batch.Batch[*proposal]
	store    *Store
	begun    []*proposal // without those that wait for the next commit
	outcomes []outcome   // of those that are inserted, in the last transaction
	until    time.Time   // after it, no further order is inserted
	saved    bool        // each order is inserted after a savepoint
}

func (c *serialCommit) run(ctx context.Context) (err error) {
	ctx, session, err := c.store.session(ctx, watchOf(c.Members))
	if err != nil {
		return err
	}
	defer func() { err = session.close(err) }()
	c.saved = c.store.opts.Accept != nil
	err = c.transact(ctx, session)
	if err == errUnsaved {
		c.saved = true
		err = c.transact(ctx, session)
	}
	return err
}

// errUnsaved is the error of a commit of several orders one of which failed without a savepoint. SQLite may
// not have undone its statement: after RAISE(FAIL) or a constraint with ON CONFLICT FAIL, the row stays.
var errUnsaved = errors.New("sqlstore: the statement of an order has failed")

// transact creates the orders. If it returns an error, it has created none. Whose keys are free is open.
func (c *serialCommit) transact(ctx context.Context, session *session) error {
	tx, err := session.begin(ctx) // which may wait for another process
	if err != nil {
		return err
	}
	defer tx.rollBack(ctx)
	c.until = time.Now().Add(c.store.times.commit)
	c.outcomes = make([]outcome, len(c.Members))
	anyCreated := false
	for n, p := range c.Members {
		if n > 0 && time.Now().After(c.until) {
			c.putBack(n)
			break
		}
		late := false
		if c.outcomes[n], late, err = c.insert(ctx, tx, n); err != nil {
			return err
		}
		if late {
			c.putBack(n)
			break
		}
		if c.outcomes[n].state != created {
			continue
		}
		anyCreated = true
		// The commit ends while the callers whose orders it has still wait for it.
		if deadline, ok := p.ctx.Deadline(); ok {
			if half := time.Now().Add(time.Until(deadline) / 2); half.Before(c.until) {
				c.until = half
			}
		}
	}
	if anyCreated {
		return tx.commit(ctx)
	}
	return nil
}

// putBack makes the proposals from the n-th on wait for the next commit.
func (c *serialCommit) putBack(n int) {
	c.begun = c.Members[:n]
	c.PutBack(n)
}

// insert inserts the order of the n-th proposal, and lets Options.Accept work. It returns an error only if tx
// cannot go on. It reports that the order was late if the time of the commit ended before Accept returned.
func (c *serialCommit) insert(ctx context.Context, tx transaction, n int) (
	out outcome, late bool, err error) {
	p := c.Members[n]
	if err := p.ctx.Err(); err != nil {
		return outcome{err: err}, false, nil
	}
	if !c.saved {
		out, err = inserted(tx.insert(ctx, p))
		switch {
		case err == nil, transient(err): // SQLite has undone the statement, or the commit fails
		case len(c.Members) > 1:
			err = errUnsaved
		default:
			out.err, err = err, nil // there is nothing to commit
		}
		return out, false, err
	}
	if out, err = insertSaved(ctx, tx, p); out.state != created || err != nil {
		return out, false, err
	}
	if c.store.opts.Accept == nil {
		_, err = tx.exec(ctx, release)
		return out, false, err
	}
	accepting, cancel := c.acceptContext(n)
	defer cancel()
	out, err = c.store.accept(ctx, accepting, tx, p, func(f func()) error { return c.Call(n, f) })
	late = n > 0 && out.state != created && accepting.Err() != nil && p.ctx.Err() == nil
	if late {
		p.alone = true
	}
	return out, late, err
}

// acceptContext returns the ctx of Accept for the n-th proposal, with the values and the deadline of
// the caller's ctx. In a commit of several orders, the caller cannot cancel it: SQLite may roll back
// the other orders, too, when a statement is cancelled. And Accept then has no more time than the
// commit, except for the first order.
func (c *serialCommit) acceptContext(n int) (context.Context, context.CancelFunc) {
	p := c.Members[n]
	accepting := p.ctx
	if len(c.Members) > 1 {
		accepting = context.WithoutCancel(p.ctx)
	}
	deadline, _ := p.ctx.Deadline()
	if n > 0 && c.until.Before(deadline) {
		deadline = c.until
	}
	return context.WithDeadline(accepting, deadline)
}
