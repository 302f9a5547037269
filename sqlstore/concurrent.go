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
	// insertMany inserts the orders whose keys are free, and returns those keys. It may reorder attempts.
	insertMany(ctx context.Context, c *session, attempts []*attempt) (map[[sha256.Size]byte]bool, error)

	// confirm returns the refusal of an order if it stands, or another outcome.
	confirm(ctx context.Context, c *session, a *attempt, refusal outcome) (outcome, error)
}

// A concurrent committer has several commits under way. Orders that wait share one, and one statement
// inserts all of them. With Options.Accept, each order has a transaction of its own, so that it does
// not wait for the locks of another.
type concurrent struct {
	writer
	store *Store
	queue *batch.Queue[*attempt]
}

func newConcurrent(s *Store, w writer) *concurrent {
	c := &concurrent{writer: w, store: s}
	c.queue = &batch.Queue[*attempt]{
		Run: c.run,
		Limits: func(n int) (batches, size int) {
			batches = 4 // one round trip and flush each; more are slower than more orders in each
			if most := s.ordersAtOnce(); most > 0 {
				batches = min(batches, most)
			}
			// A power of 2, for a driver that keeps statements prepared, by their text.
			return batches, 1 << (bits.Len(uint(min(n, mostShared))) - 1)
		},
		Alone:    (*attempt).isSolo,
		Detached: func() bool { return false },
	}
	return c
}

// commit commits the order together with those that wait, or alone if Accept works for it or it is solo.
func (c *concurrent) commit(ctx context.Context, a *attempt) error {
	if c.store.opts.Accept == nil && a.state == pending {
		// If ctx is done, a commit that is under way goes on, as it may have other orders.
		return c.queue.Do(ctx, a)
	}
	fail([]*attempt{a}, c.commitAlone(ctx, a), false)
	return nil
}

// run commits the orders of a batch.
func (c *concurrent) run(ctx context.Context, b *batch.Batch[*attempt]) {
	sent, err := false, errNoReturn
	defer func() {
		err := orPanic(err, recover())
		fail(b.Members, err, len(b.Members) > 1 && (sent || !transient(err)))
	}()
	sent, err = c.commitBatch(ctx, b)
}

// commitBatch commits the orders of a batch, and reports whether any of them was sent.
//
// A commit that takes longer than times.commit lets another one begin beside it, so
// that neither a lock on one of its keys nor a server that hangs holds up all orders that
// wait. If it has several orders, it also ends then, and each of them is tried alone.
func (c *concurrent) commitBatch(ctx context.Context, b *batch.Batch[*attempt]) (sent bool, err error) {
	w, times := watchOf(b.Members), &c.store.times
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, times.Call)
		defer cancel()
	}
	ctx, session, err := c.store.session(ctx, w)
	if err != nil {
		return false, err
	}
	defer func() { err = session.close(err) }()
	defer time.AfterFunc(times.commit, b.HandOver).Stop()
	if len(b.Members) == 1 {
		out, err := insertWith(ctx, session, b.Members[0])
		if err == nil {
			c.store.finish(b.Members, []outcome{out})
		}
		return true, err
	}
	w.Keep() // no need to give up the connection: the commit ends soon
	ctx, cancel := context.WithTimeout(ctx, times.commit)
	defer cancel()
	// Two statements that insert the same keys in the same sequence do not deadlock. No two orders have
	// the same key (see inFlight).
	attempts := slices.SortedFunc(slices.Values(b.Members), func(a, b *attempt) int {
		return bytes.Compare(a.hash[:], b.hash[:])
	})
	inserted, err := c.insertMany(ctx, session, attempts)
	if err != nil {
		return true, err
	}
	outcomes := make([]outcome, len(b.Members))
	for i, a := range b.Members {
		outcomes[i].state = taken
		if inserted[a.hash] {
			outcomes[i].state = created
		}
	}
	c.store.finish(b.Members, outcomes)
	return true, nil
}

// commitAlone creates the order of an attempt in a transaction of its own. If it returns an error, the
// order is not known to be created.
func (c *concurrent) commitAlone(ctx context.Context, a *attempt) (err error) {
	ctx, session, err := c.store.session(ctx, a.watch)
	if err != nil {
		return err
	}
	defer func() { err = session.close(err) }()
	var out outcome
	if c.store.opts.Accept == nil {
		out, err = insertWith(ctx, session, a)
	} else {
		out, err = c.store.commitAccepted(ctx, session, a)
	}
	if err == nil && out.state == refused {
		out, err = c.confirm(ctx, session, a, out)
	}
	if err == nil {
		c.store.finish([]*attempt{a}, []outcome{out})
	}
	return err
}
