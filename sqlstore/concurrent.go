package sqlstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math/bits"
	"slices"
	"time"

	"example.com/storefront/internal/batch"
)

// A writer is an engine that lets many transactions write at a time.
type writer interface {
	// insertMany inserts the orders whose keys are free, and returns those keys. It may reorder proposals.
	insertMany(ctx context.Context, c *session, proposals []*proposal) (map[[sha256.Size]byte]bool, error)

	// confirm returns the refusal of an order if it stands, or another outcome.
	confirm(ctx context.Context, c *session, p *proposal, refusal outcome) (outcome, error)
}

// A concurrent committer has several commits under way. Orders that wait share one, and one statement
// inserts all of them. With Options.Accept, each order has a transaction of its own, so that it does
// not wait for the locks of another.
type concurrent struct {
	writer
	store *Store
	queue *batch.Queue[*proposal]
}

func newConcurrent(s *Store, w writer) *concurrent {
	c := &concurrent{writer: w, store: s}
	c.queue = &batch.Queue[*proposal]{
		Run: c.run,
		Limits: func(n int) (batches, size int) {
			batches = 4 // one round trip and flush each; more are slower than more orders in each
			if most := s.ordersAtOnce(); most > 0 {
				batches = min(batches, most)
			}
			// A power of 2, for a driver that keeps statements prepared, by their text.
			return batches, 1 << (bits.Len(uint(min(n, mostShared))) - 1)
		},
		Alone: (*proposal).isAlone,
	}
	return c
}

// create creates the order together with those that wait, or alone if Accept works for it, or it must be.
func (c *concurrent) create(ctx context.Context, p *proposal) error {
	if c.store.opts.Accept == nil && !p.alone {
		// If ctx is done, a commit that is under way goes on, as it may have other orders.
		return c.queue.Do(ctx, p)
	}
	out, err := c.createAlone(ctx, p)
	c.store.settle([]*proposal{p}, []outcome{out}, err, false)
	return nil
}

// run creates the orders of a batch, and settles them whatever happens. What becomes of each is open.
func (c *concurrent) run(ctx context.Context, b *batch.Batch[*proposal]) {
	var outcomes []outcome
	sent, err := false, errNoReturn
	defer func() {
		err := orPanic(err, recover())
		c.store.settle(b.Members, outcomes, err, len(b.Members) > 1 && (sent || !transient(err)))
	}()
	outcomes, sent, err = c.createBatch(ctx, b)
}

// createBatch creates the orders of a batch in one commit, and reports whether any of them was sent. Over which
// connection is open, and whose keys are free.
//
// A commit that takes longer than times.commit lets another one begin beside it, so
// that neither a lock on one of its keys nor a server that hangs holds up all orders that
// wait. If it has several orders, it also ends then, and each of them is tried alone.
func (c *concurrent) createBatch(ctx context.Context, b *batch.Batch[*proposal]) (
	outcomes []outcome, sent bool, err error) {
	w, times := watchOf(b.Members), &c.store.times
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, times.Call)
		defer cancel()
	}
	ctx, session, err := c.store.session(ctx, w)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = session.close(err) }()
	defer time.AfterFunc(times.commit, b.HandOver).Stop()
	if len(b.Members) == 1 {
		out, err := inserted(session.database.sql().insert(ctx, session, b.Members[0]))
		return []outcome{out}, true, err
	}
	w.Keep() // no need to give up the connection: the commit ends soon
	ctx, cancel := context.WithTimeout(ctx, times.commit)
	defer cancel()
	// Two statements that insert the same keys in the same sequence do not deadlock. No two orders have
	// the same key (see flights).
	proposals := slices.SortedFunc(slices.Values(b.Members), func(a, b *proposal) int {
		return bytes.Compare(a.hash[:], b.hash[:])
	})
	free, err := c.insertMany(ctx, session, proposals)
	if err != nil {
		return nil, true, err
	}
	outcomes = make([]outcome, len(b.Members))
	for i, p := range b.Members {
		outcomes[i].state = taken
		if free[p.hash] {
			outcomes[i].state = created
		}
	}
	return outcomes, true, nil
}

// createAlone creates the order of a proposal in a transaction of its own. If it returns an error, the order
// is not known to be created.
func (c *concurrent) createAlone(ctx context.Context, p *proposal) (out outcome, err error) {
	ctx, session, err := c.store.session(ctx, p.watch)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = session.close(err) }()
	if c.store.opts.Accept == nil {
		return inserted(session.database.sql().insert(ctx, session, p))
	}
	out, err = c.store.createAccepted(ctx, session, p)
	if err == nil && out.state == refused {
		return c.confirm(ctx, session, p, out)
	}
	return out, err
}
