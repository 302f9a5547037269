package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/flight"
	"example.com/storefront/internal/sqlerror"
	"example.com/storefront/internal/watchdog"
)

// The way of an order. At each station, what is still open is whether the order is there, and:
//
//	CreateOrder        who else sends the key: one call leads a flight for all
//	createOnce         how many tries it takes, until the call's deadline
//	tryOrder           which database this is, and whether the order may share a commit
//	committer.create   with which orders: concurrent or serial
//	batch.Queue.Do     when the commit begins, and in which goroutine
//	run                what becomes of each order if the commit panics
//	createBatch        over which connection; or createAlone, or serialCommit.transact, with Accept
//	insert, insertMany by which statement of the engine: whose keys are free
//	link, transaction  what the database does
//
// What has become of the order goes back as an outcome, which settle alone sets.
//
// The words: a call (retry.go) makes one try after the other, each over a session (session.go), which is a
// link of the engine in use. Calls with one key share a flight (internal/flight). What a call proposes is a
// proposal; a commit (commit.go) settles one or more, each with an outcome. To insert is to send an INSERT of
// orders. The store looks at settings (database.go), and inspects tables (tables.go).

// A proposal is an order that a call proposes to create with a key. It is the same in all tries of the call.
type proposal struct {
	key   storefront.IdempotencyKey
	order storefront.Order
	hash  [sha256.Size]byte // the column key_hash

	ctx   context.Context // of the tries
	watch *watchdog.Watch // of the call
	alone bool            // it shares no commit, in no further try: one has failed, perhaps by its fault
	wait  time.Duration   // how long its INSERT waits for a lock before the key is looked for; 0: to the end

	accepting atomic.Bool // Options.Accept works for it, or has until its time was up
	busy      int         // tries whose connection was busy, or lost, when Accept had returned nil
	outcome
}

func (p *proposal) isAlone() bool { return p.alone }

// row returns the values of orderColumns.
func (p *proposal) row() []any {
	return []any{p.order.ID, p.order.Item, p.order.Qty, p.order.CreatedAt.UnixMilli(),
		scopeColumn(p.key.Scope), p.hash[:], p.key.Fingerprint[:], string(p.order.Fields)}
}

// A result is the outcome of a flight: of a call and all its tries. Only one call of those that have the same
// key can create the order, and the others would wait for its locks, each with a connection. So they share
// what it learns: an order with the key, and a refusal of Accept if they have the same fingerprint and came
// before the flight began, as the stock may have changed since. Any other failure is the leader's alone.
type result struct {
	order       storefront.Order  // the one that has the key
	fingerprint [sha256.Size]byte // of order, or of the order that Accept has refused
	outcome
}

type (
	flights = flight.Group[[sha256.Size]byte, result] // by key_hash
	leader  = flight.Leader[[sha256.Size]byte, result]
)

// hasOrder reports whether the key has an order.
func (r result) hasOrder() bool { return r.state == created || r.state == taken }

// CreateOrder implements [storefront.Store]. It never returns
// [storefront.ErrInProgress]: the database makes concurrent calls with the same
// key wait for each other, and those of this process share one try. Who else sends the key is open.
func (s *Store) CreateOrder(ctx context.Context, key storefront.IdempotencyKey, order storefront.Order) (
	stored storefront.Order, err error) {
	counted := &s.stats.Failed // if it panics
	s.stats.add(&s.stats.Waiting, 1)
	defer func() {
		s.stats.add(&s.stats.Waiting, -1)
		s.stats.add(counted, 1)
	}()
	deadline := time.Now().Add(s.opts.Timeout)
	p := &proposal{key: key, order: order, hash: keyHash(key.Scope, key.Value), wait: s.times.commit}
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r, lead, err := s.flights.Join(waiting, p.hash, func(r result) bool {
		return r.state == refused && r.fingerprint == key.Fingerprint // Accept has refused the same order
	})
	if lead != nil {
		r = s.createOnce(ctx, deadline, p, lead)
	} else if err != nil {
		r.err = err
	}
	switch {
	case r.err == nil && r.fingerprint != key.Fingerprint:
		r = result{outcome: outcome{err: storefront.ErrKeyReused}}
	case lead == nil && r.err != nil && r.err == waiting.Err() && ctx.Err() == nil:
		r.err = fmt.Errorf("%w: another call with the key has not ended: %w",
			storefront.ErrUnavailable, r.err)
	}
	counted = s.stats.of(ctx, r.err, lead != nil && r.state == created)
	if accepted, ok := r.err.(acceptError); ok {
		return storefront.Order{}, accepted.error
	}
	return r.order, r.err
}

// createOnce creates the order of p, unless the key has one, which it returns then. No two
// calls of the process run it for one key at the same time: lead leads the flight of this one. How many tries
// the order takes is open.
func (s *Store) createOnce(ctx context.Context, deadline time.Time, p *proposal, lead *leader) (r result) {
	defer func() { lead.End(r) }() // also if it panics
	c, err := s.begin(ctx, deadline, &s.ordering)
	if err != nil {
		return result{outcome: outcome{err: err}}
	}
	defer c.end()
	p.ctx, p.watch = c.ctx, c.watch
	open := false // whether a try may have created the order though its commit failed
	missing := 0  // tries whose key was neither free nor taken
	// Trying again is safe, whatever became of the try before: if that one has
	// created the order, this one finds it.
	for {
		out := s.tryOrder(p)
		if out.state == created {
			return result{p.order, p.key.Fingerprint, out}
		}
		err := out.err
		switch {
		case out.state == refused:
		case err != nil && (transient(err) || c.ctx.Err() != nil):
			open = true
			class := classOf(err)
			if (out.state == suspect || class == sqlerror.Conflict || class == sqlerror.Silent) && c.ctx.Err() == nil {
				// The INSERT may have waited for another program that has locked the order of the key.
				p.wait = 0
				if found := s.find(p, err); found.err == nil {
					return found
				}
			}
		default:
			found := s.find(p, err)
			if found.err == nil {
				return found
			}
			if err = found.err; err == errNeither {
				if missing++; missing > 3 {
					err = fmt.Errorf("%w: %w", storefront.ErrUnavailable, errors.Unwrap(errNeither))
				}
			}
		}
		if err = c.next(err); err == nil {
			continue
		}
		_, decided := err.(acceptError)
		switch {
		case decided && ctx.Err() == nil: // otherwise, Accept may have failed because ctx is done
			return result{fingerprint: p.key.Fingerprint, outcome: outcome{refused, err}}
		case !decided && open && ctx.Err() == nil && !errors.Is(err, storefront.ErrUnavailable):
			err = fmt.Errorf("%w: %w", storefront.ErrUnavailable, err)
		}
		return result{outcome: outcome{err: err}}
	}
}

// tryOrder makes a try for the order of p, in a shared commit or alone. If a shared one has failed, and may
// have failed because of this order, it tries it alone. Which database this is, and with whom p shares a
// commit, is open.
func (s *Store) tryOrder(p *proposal) outcome {
	db, err := s.known(p.ctx, p.watch)
	if err != nil {
		return outcome{err: err}
	}
	for {
		if err := db.create(p.ctx, p); err != nil { // what becomes of p is not known yet
			if p.accepting.Load() {
				err = inAccept(err)
			}
			return outcome{err: err}
		}
		if p.state == suspect {
			p.alone = true
			if !transient(p.err) {
				continue
			}
		}
		if driver, ok := p.err.(*panicError); ok {
			panic(driver.value)
		}
		return p.outcome
	}
}

// errNeither is the error of a try for which a key was forgotten between the INSERT and the SELECT, or
// for which something in the database inserts no row.
var errNeither = sqlerror.With(sqlerror.Conflict,
	errors.New("sqlstore: the database inserted no row, yet the key is not stored"))

// find returns the order that has the key of p, after an INSERT that failed with err or, if err is nil,
// inserted nothing. A database may check other constraints before the key, and their errors do not
// matter if the key is taken.
func (s *Store) find(p *proposal, err error) (r result) {
	foundErr := s.with(p.ctx, p.watch, func(ctx context.Context, c *session) (err error) {
		r.order, r.fingerprint, err = c.database.find(ctx, c, p.hash)
		return err
	})
	switch {
	case foundErr == nil:
		r.state = taken
	case !errors.Is(foundErr, sql.ErrNoRows):
		r.err = foundErr
	case err != nil && classOf(err) != sqlerror.KeyTaken:
		r.err = err
	default:
		r.err = errNeither
	}
	return r
}

// keyHash returns the value of the column key_hash. All hashes have one length, so that a
// scope may be longer than an index allows.
func keyHash(scope, value string) [sha256.Size]byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(scope)+len(value)), uint64(len(scope)))
	return sha256.Sum256(append(append(b, scope...), value...))
}
